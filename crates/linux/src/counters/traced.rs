//! Parts of busy time, from a span beside the window in which it was traced.
//!
//! Tracing costs time at each switch and interrupt, and so more under one setting than under another. So it is done in
//! a short span of the same traffic, and its proportions are applied to the window, in which nothing is attached.

use latput_trial::observation::{CpuSource, HostObservation, NapiObservation};
use latput_units::Nanos;

use super::cpu::split_by_trace;
use super::{Sample, polls_between};
use crate::bpf::CpuSpans;
use crate::error::Error;

/// Most that the traced busy time of a span may differ from that of the kernel's record, as a share. The two count the
/// way into sleep and out of it differently. More than this is a CPU that hardly ran.
const APART: std::ops::RangeInclusive<f64> = 0.8..=1.25;

/// A span in which CPU time and polls were traced.
#[derive(Clone, Debug, PartialEq)]
pub struct Traced {
    window: Nanos,
    cpus: Vec<TracedCpu>,
    napi: Option<NapiObservation>,
    rx_packets: u64,
    /// Share of a CPU that tracing took in the span, if the window is traced as well.
    cost: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct TracedCpu {
    spans: CpuSpans,
    /// Time that was not idle, by the kernel's record.
    busy: Nanos,
}

impl Traced {
    /// The span between two samples; `None` where it was not traced, or the kernel's record could not be read.
    pub fn between(first: &Sample, last: &Sample) -> Result<Option<Self>, Error> {
        let spans = first.cpu.traced(&last.cpu)?;
        let Some((spans, busy)) = spans.zip(first.cpu.busy_by_record(&last.cpu)?) else {
            return Ok(None);
        };
        let cpus = spans.into_iter().zip(busy).map(|(spans, busy)| TracedCpu { spans, busy });
        let napi = first.napi.zip(last.napi);
        let packets = last.interface.rx_packets.saturating_sub(first.interface.rx_packets);
        Ok(Some(Self {
            window: last.at.saturating_sub(first.at),
            cpus: cpus.collect(),
            napi: napi.map(|(first, last)| polls_between(&first, &last)).transpose()?,
            rx_packets: packets,
            cost: None,
        }))
    }

    /// Makes the result of a span for a window that is itself traced: the share of a CPU that tracing takes.
    pub fn of_cost(share: f64) -> Self {
        let (cpus, cost) = (Vec::new(), Some(share));
        Self { window: Nanos::ZERO, cpus, napi: None, rx_packets: 0, cost }
    }

    /// How far the traced busy time of all CPUs is from that of the kernel's record.
    pub fn busy_apart(&self) -> Nanos {
        let traced = |cpu: &TracedCpu| {
            let CpuSpans { process, softirq, irq, .. } = cpu.spans;
            process.saturating_add(softirq).saturating_add(irq)
        };
        let all: Nanos = self.cpus.iter().map(traced).sum();
        let by_record: Nanos = self.cpus.iter().map(|cpu| cpu.busy).sum();
        all.saturating_sub(by_record).max(by_record.saturating_sub(all))
    }

    /// Divides the busy time of a window as the span's was, and gives it the span's polls for each packet. A window that
    /// was traced itself gets what that took. One whose busy time is of another source stays as it is.
    pub fn divide(&self, seen: &mut HostObservation) {
        if let Some(share) = self.cost.filter(|_| seen.accounting.source == CpuSource::Trace) {
            let cost = Nanos::from_secs_f64(seen.window.as_secs_f64() * share);
            seen.tracing_cpu = Some(seen.tracing_cpu.unwrap_or_default().saturating_add(cost));
            return;
        }
        let is_of_it = seen.cpus.len() == self.cpus.len();
        if seen.accounting.source != CpuSource::Record || !is_of_it || self.window == Nanos::ZERO {
            return;
        }
        for (own, traced) in seen.cpus.iter_mut().zip(&self.cpus) {
            let busy = own.time.busy().saturating_add(own.time.steal);
            if let Some(spans) = traced.scaled(busy, own.time.total()) {
                own.time = split_by_trace(&spans, &own.time);
            }
        }
        self.mark(seen);
        let (whole, span) = match (seen.interface.rx_packets, self.rx_packets) {
            (packets, in_span) if packets > 0 && in_span > 0 => (packets, in_span),
            _ => (seen.window.as_ns(), self.window.as_ns()),
        };
        let scale = |count: u64| scale(count, whole, span);
        seen.napi = self.napi.map(|napi| NapiObservation {
            polls: scale(napi.polls),
            packets: scale(napi.packets),
            empty_polls: scale(napi.empty_polls),
        });
    }
}

impl Traced {
    /// Notes that there was a span beside the window, and leaves its figures as they are.
    pub const fn mark(&self, seen: &mut HostObservation) {
        seen.accounting.traced = Some(self.window);
    }
}

impl TracedCpu {
    /// The spans of a window of which the CPU was not idle for `busy` by the kernel's record. `None` where nothing of
    /// the span was busy.
    fn scaled(&self, busy: Nanos, window: Nanos) -> Option<CpuSpans> {
        let CpuSpans { process, softirq, irq, .. } = self.spans;
        let traced = process.saturating_add(softirq).saturating_add(irq);
        if traced == Nanos::ZERO || self.busy == Nanos::ZERO {
            return None;
        }
        let is_near = APART.contains(&(traced.as_secs_f64() / self.busy.as_secs_f64()));
        let busy = if is_near { scaled(busy, traced, self.busy).min(window) } else { busy };
        let [softirq, irq] = [softirq, irq].map(|part| scaled(busy, part, traced));
        let process = busy.saturating_sub(softirq).saturating_sub(irq);
        Some(CpuSpans { idle: window.saturating_sub(busy), process, softirq, irq })
    }
}

/// `amount * part / whole`.
fn scaled(amount: Nanos, part: Nanos, whole: Nanos) -> Nanos {
    Nanos::from_ns(scale(amount.as_ns(), part.as_ns(), whole.as_ns()))
}

fn scale(amount: u64, part: u64, whole: u64) -> u64 {
    let product = u128::from(amount) * u128::from(part);
    u64::try_from(product / u128::from(whole.max(1))).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use latput_trial::observation::{CpuAccounting, CpuObservation, CpuTime, InterfaceCounters};
    use latput_units::CpuId;

    use super::*;

    #[test]
    fn window_is_divided_as_the_span_was() {
        let mut seen = window(CpuSource::Record);
        span([48, 24, 24], 100).divide(&mut seen);
        // 400 ms by the record, of which the tracer sees 96%.
        let time = seen.cpus[0].time;
        assert_eq!(time.busy(), Nanos::from_ms(384));
        assert_eq!((time.softirq, time.irq), (Nanos::from_ms(96), Nanos::from_ms(96)));
        assert_eq!((time.user, time.system), (Nanos::from_ms(48), Nanos::from_ms(144)), "by ticks");
        assert_eq!(time.total(), Nanos::from_s(1));
        assert_eq!(seen.accounting.traced, Some(Nanos::from_ms(200)));
        let napi = seen.napi.unwrap();
        assert_eq!((napi.polls, napi.packets), (5_000, 10_000), "by packets, which tracing slows");
    }

    #[test]
    fn cpu_that_hardly_ran_keeps_its_total() {
        let mut seen = window(CpuSource::Record);
        span([100, 60, 40], 100).divide(&mut seen);
        assert_eq!(seen.cpus[0].time.busy(), Nanos::from_ms(400));
        assert_eq!(seen.cpus[0].time.softirq, Nanos::from_ms(120));
        let before = window(CpuSource::Record).cpus;
        let mut seen = window(CpuSource::Record);
        span([0, 0, 0], 0).divide(&mut seen);
        assert_eq!(seen.cpus, before, "nothing was traced");
    }

    #[test]
    fn window_of_another_source_stays() {
        for source in [CpuSource::Trace, CpuSource::Idle, CpuSource::Ticks] {
            let mut seen = window(source);
            span([48, 24, 24], 100).divide(&mut seen);
            assert_eq!(seen, window(source));
        }
    }

    /// Of 200 ms; process, soft and hard interrupts, and not idle by the record, milliseconds.
    fn span([process, softirq, irq]: [u64; 3], busy: u64) -> Traced {
        let [process, softirq, irq, busy] = [process, softirq, irq, busy].map(Nanos::from_ms);
        let spans = CpuSpans { idle: Nanos::ZERO, process, softirq, irq };
        Traced {
            window: Nanos::from_ms(200),
            cpus: vec![TracedCpu { spans, busy }],
            napi: Some(NapiObservation { polls: 500, packets: 1_000, empty_polls: 0 }),
            rx_packets: 2_000,
            cost: None,
        }
    }

    #[test]
    fn window_with_tracing_has_its_cost() {
        let mut seen = window(CpuSource::Trace);
        Traced::of_cost(0.03).divide(&mut seen);
        let expected =
            HostObservation { tracing_cpu: Some(Nanos::from_ms(30)), ..window(CpuSource::Trace) };
        assert_eq!(seen, expected);
        let mut seen = window(CpuSource::Record);
        Traced::of_cost(0.03).divide(&mut seen);
        assert_eq!(seen, window(CpuSource::Record), "nothing was attached in it");
    }

    /// Of a second, busy for 400 ms, a quarter of it user code.
    fn window(source: CpuSource) -> HostObservation {
        let [user, system, idle] = [100, 300, 600].map(Nanos::from_ms);
        let time = CpuTime { user, system, idle, ..CpuTime::default() };
        HostObservation {
            window: Nanos::from_s(1),
            cpus: vec![CpuObservation { cpu: CpuId(0), time }],
            accounting: CpuAccounting { source, ..CpuAccounting::default() },
            interface: InterfaceCounters { rx_packets: 20_000, ..InterfaceCounters::default() },
            ..HostObservation::default()
        }
    }
}
