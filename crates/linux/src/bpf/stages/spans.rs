//! How long the programs are attached, how long not, and how many packets they follow: so that tracing stays cheap.

use latput_units::Nanos;

/// CPU time that tracing may take, as a share of one CPU.
pub(super) const MOST_CPU: f64 = 0.004;
/// CPU time of one run of a program, with what the kernel does around it.
const RUN: Nanos = Nanos::from_ns(100);
/// CPU time to attach and to detach one program, for each CPU: the kernel changes its own code and tells each.
const ATTACHING: Nanos = Nanos::from_us(10);
/// CPU time that one span may take.
const MOST_OF_SPAN: Nanos = Nanos::from_ms(10);
/// The first span, in which the rate is not known yet, and the limits of others.
const FIRST: Nanos = Nanos::from_ms(20);
const SHORTEST: Nanos = Nanos::from_ms(5);
const LONGEST: Nanos = Nanos::from_s(1);
/// Packets that are followed in a second.
const FOLLOWED: f64 = 20_000.0;

/// A span that was traced.
#[derive(Clone, Copy, Debug)]
pub(super) struct TracedSpan {
    /// Its length.
    pub(super) time: Nanos,
    /// Runs of programs.
    pub(super) runs: u64,
    /// Packets of the interface.
    pub(super) packets: u64,
}

/// The next span.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct SpanPlan {
    /// Time before it in which nothing is attached.
    pub(super) pause: Nanos,
    /// Its length.
    pub(super) time: Nanos,
    /// The bits that the number of a packet must not have to be followed.
    pub(super) mask: u64,
}

impl SpanPlan {
    /// The first span.
    pub(super) const fn new() -> Self {
        Self { pause: Nanos::ZERO, time: FIRST, mask: 0 }
    }

    /// The span after another one. `attachments` is the number of programs times that of CPUs.
    pub(super) fn after(span: TracedSpan, attachments: usize) -> Self {
        let seconds = span.time.as_secs_f64().max(1e-6);
        let running = RUN.as_secs_f64() * span.runs as f64;
        let cost = running + ATTACHING.as_secs_f64() * attachments as f64;
        let pause = (cost / MOST_CPU - seconds).max(0.0);
        // Running it for this long costs the share that a span may.
        let affordable = MOST_OF_SPAN.as_secs_f64() / (running / seconds).max(1e-6);
        let time = Nanos::from_secs_f64(affordable.min(LONGEST.as_secs_f64())).max(SHORTEST);
        let mut mask = 0_u64;
        while span.packets as f64 / seconds > FOLLOWED * (mask + 1) as f64 && mask < 0xffff {
            mask = mask * 2 + 1;
        }
        Self { pause: Nanos::from_secs_f64(pause), time, mask }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The plan and its cost as a share of a CPU, at a rate of packets with six runs each.
    fn plan_at(packets_per_s: u64) -> (SpanPlan, f64) {
        let mut plan = SpanPlan::new();
        for _ in 0..5 {
            let packets = packets_per_s * plan.time.as_ns() / 1_000_000_000;
            let span = TracedSpan { time: plan.time, runs: packets * 6, packets };
            plan = SpanPlan::after(span, 20);
        }
        let run = RUN.as_secs_f64() * (packets_per_s * 6) as f64 * plan.time.as_secs_f64();
        let whole = plan.time.saturating_add(plan.pause).as_secs_f64();
        (plan, (run + 20.0 * ATTACHING.as_secs_f64()) / whole)
    }

    #[test]
    fn quiet_interface_is_traced_without_pauses() {
        let (plan, cost) = plan_at(1000);
        assert_eq!(plan, SpanPlan { pause: Nanos::ZERO, time: LONGEST, mask: 0 });
        assert!(cost < MOST_CPU, "{cost}");
    }

    #[test]
    fn tracing_costs_no_more_than_it_may() {
        for rate in [10_000, 100_000, 1_000_000, 20_000_000] {
            let (plan, cost) = plan_at(rate);
            assert!(cost <= MOST_CPU * 1.01, "{rate}: {cost}");
            assert!(plan.pause > Nanos::ZERO && plan.time >= SHORTEST, "{rate}: {plan:?}");
            let followed = rate as f64 / (plan.mask + 1) as f64;
            assert!((300.0..=FOLLOWED).contains(&followed), "{rate}: {followed}");
        }
    }

    #[test]
    fn silent_span_is_followed_by_a_long_one() {
        let plan = SpanPlan::after(TracedSpan { time: FIRST, runs: 0, packets: 0 }, 20);
        assert_eq!((plan.time, plan.mask), (LONGEST, 0));
        assert!(plan.pause < Nanos::from_ms(50), "{plan:?}");
    }
}
