//! Round-trip samples of TCP, in parts of the time where tracing all of them would take too much.

use latput_linux::{RttSamples, RttTracer, process};
use latput_protocol::text::format_error_chain;
use latput_units::{Clock, Nanos};

/// Time of the program for each sample, where the kernel does not count it
/// (docs/journal/2026-11-26-round-trip-samples.md).
const EACH: Nanos = Nanos::from_ns(250);
/// Interval between checks of the cost of tracing. It is long enough that a short burst does not count as a load.
const LOOK_EVERY: Nanos = Nanos::from_ms(50);
/// The kernel counts the program's run time in a look this often, and in the first. That costs itself.
const COUNT_EVERY: Nanos = Nanos::from_s(1);
/// Longest pause.
const LONGEST_PAUSE: Nanos = Nanos::from_s(10);
const CUT: &str = "some TCP round-trip samples were dropped: there were more than latput keeps";

/// The tracer of a block, while it has one.
#[derive(Debug)]
pub(super) struct RttSampler {
    tracer: Option<RttTracer>,
    spending: TracingBudget,
    /// The program's run time before this look, if the kernel counts it now.
    counted_from: Option<Nanos>,
    /// When the kernel counts again.
    count_at: Nanos,
    /// When to trace again.
    resume_at: Option<Nanos>,
    has_paused: bool,
    /// CPU time of tracing in the spans so far.
    cost: Nanos,
}

impl RttSampler {
    /// Begins to trace at `from` or later, for at most this share of a CPU. `notes` gets why not.
    pub(super) fn open(most: f64, from: Option<Nanos>, notes: &mut Vec<String>) -> Self {
        let _told_by_attaching = RttTracer::prepare();
        let now = process::OsClock.now();
        let mut samples = Self {
            tracer: None,
            spending: TracingBudget::with_limit(most, now),
            counted_from: None,
            count_at: now,
            resume_at: Some(from.unwrap_or(now)),
            has_paused: false,
            cost: Nanos::ZERO,
        };
        samples.resume_tracing(now, notes);
        samples
    }

    /// CPU time that tracing took in the looks so far: the program's, and that of reading what it saw.
    pub(super) const fn cpu_cost(&self) -> Nanos {
        self.cost
    }

    /// The end of the pause that it is in, which the next block keeps to.
    pub(super) const fn paused_until(&self) -> Option<Nanos> {
        self.resume_at
    }

    fn resume_tracing(&mut self, now: Nanos, notes: &mut Vec<String>) {
        if self.resume_at.take_if(|at| *at <= now).is_none() {
            return;
        }
        let begun = process::thread_cpu_time();
        match RttTracer::attach() {
            Ok(tracer) => {
                self.tracer = Some(tracer);
                self.spending.since = now;
                self.spending.attaching = process::thread_cpu_time().saturating_sub(begun);
                self.cost = self.cost + self.spending.attaching;
                self.count_from(now);
            }
            Err(error) => notes.push(format_error_chain(&error)),
        }
    }

    /// Lets the kernel count in the look that begins, if it is time for that.
    fn count_from(&mut self, now: Nanos) {
        let Some(tracer) = &mut self.tracer else { return };
        let is_counted =
            tracer.count_run_time(self.spending.share.is_none() || now >= self.count_at);
        if is_counted {
            self.count_at = now + COUNT_EVERY;
        }
        self.counted_from = if is_counted { tracer.run_time() } else { None };
    }

    /// The socket's number and the time of each sample since the last call.
    pub(super) fn take(&mut self, notes: &mut Vec<String>) -> Vec<(u64, Nanos)> {
        let now = process::OsClock.now();
        self.resume_tracing(now, notes);
        let begun = process::thread_cpu_time();
        let Some(tracer) = &mut self.tracer else { return Vec::new() };
        let RttSamples { samples, are_cut } = tracer.take();
        if are_cut && !notes.iter().any(|note| note == CUT) {
            notes.push(CUT.to_owned());
        }
        self.spending.samples += samples.len() as u64;
        self.spending.own = self.spending.own + process::thread_cpu_time().saturating_sub(begun);
        if now.saturating_sub(self.spending.since) >= LOOK_EVERY {
            self.check_cost(now, notes);
        }
        samples
    }

    /// Ends a look: pauses if it took more than may be.
    fn check_cost(&mut self, now: Nanos, notes: &mut Vec<String>) {
        let run_time = self.tracer.as_ref().and_then(RttTracer::run_time);
        let counted = self.counted_from.zip(run_time);
        let counted = counted.map(|(before, after)| after.saturating_sub(before));
        let (cost, pause) = self.spending.charge_interval(counted, now);
        self.cost = self.cost + cost;
        let Some(pause) = pause else { return self.count_from(now) };
        // Each tracer has a program of its own, whose run time is not known yet.
        (self.tracer, self.spending.share, self.counted_from) = (None, None, None);
        self.resume_at = Some(now + pause);
        if !std::mem::replace(&mut self.has_paused, true) {
            notes.push(format!(
                "TCP round-trip samples are traced part of the time: all of them would take more than {} of a CPU \
                 (`--samples-cpu`)",
                latput_units::text::written_share(self.spending.most)
            ));
        }
    }
}

/// CPU time of tracing, and its limit.
#[derive(Clone, Copy, Debug)]
struct TracingBudget {
    /// Most share of a CPU.
    most: f64,
    /// Begin of this look.
    since: Nanos,
    /// Samples of this look.
    samples: u64,
    /// CPU time of reading them.
    own: Nanos,
    /// CPU time of attaching the tracer, which the next pause makes up for. It is no reason to pause: that would make it come
    /// again.
    attaching: Nanos,
    /// Share of a CPU that the program took in the last look in which the kernel counted.
    share: Option<f64>,
}

impl TracingBudget {
    const fn with_limit(most: f64, now: Nanos) -> Self {
        Self { most, since: now, samples: 0, own: Nanos::ZERO, attaching: Nanos::ZERO, share: None }
    }

    /// Ends a look in which the kernel counted so much run time, or did not count. Returns what the look took, and how long to
    /// pause so that it takes as much as may be on average.
    fn charge_interval(&mut self, counted: Option<Nanos>, now: Nanos) -> (Nanos, Option<Nanos>) {
        let time = now.saturating_sub(self.since);
        let by_samples = EACH.saturating_mul(std::mem::take(&mut self.samples));
        let of_program = match counted {
            Some(run_time) => {
                self.share = Some(run_time.as_secs_f64() / time.as_secs_f64().max(f64::EPSILON));
                run_time
            }
            // The load may have grown since.
            None => self
                .share
                .map_or(Nanos::ZERO, |share| Nanos::from_secs_f64(share * time.as_secs_f64()))
                .max(by_samples),
        };
        let cost = of_program.saturating_add(std::mem::take(&mut self.own));
        self.since = now;
        let earned = |cost: Nanos| Nanos::from_secs_f64(cost.as_secs_f64() / self.most);
        if earned(cost) <= time {
            return (cost, None);
        }
        let with_attaching = cost.saturating_add(self.attaching);
        (cost, Some(earned(with_attaching).saturating_sub(time).min(LONGEST_PAUSE)))
    }
}

#[cfg(test)]
mod root_tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    use latput_testkit::{isolate, needs};

    use super::*;

    /// Round trips over loopback, as many as go, for two seconds.
    #[needs("root")]
    #[test]
    fn load_takes_no_more_than_its_share() {
        isolate();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut far = listener.accept().unwrap().0;
        for end in [&near, &far] {
            end.set_nodelay(true).unwrap();
        }
        let (begun, mut notes) = (process::OsClock.now(), Vec::new());
        let end = begun + Nanos::from_s(2);
        let load = std::thread::spawn(move || {
            let mut byte = [0];
            while process::OsClock.now() < end {
                near.write_all(&[1]).unwrap();
                far.read_exact(&mut byte).unwrap();
                far.write_all(&[1]).unwrap();
                near.read_exact(&mut byte).unwrap();
            }
        });
        let mut samples = RttSampler::open(0.005, None, &mut notes);
        let mut count = 0;
        while process::OsClock.now() < end {
            std::thread::sleep(Duration::from_millis(10));
            count += samples.take(&mut notes).len();
        }
        load.join().unwrap();
        if count == 0 {
            return eprintln!("skipped: {notes:?}");
        }
        // The time taken is paid by the end of the pause. A tracer that has begun again has not paid for that.
        let until = samples.paused_until().unwrap_or(end).max(end);
        let time = until.saturating_sub(begun).as_secs_f64() + LOOK_EVERY.as_secs_f64();
        let is_paid = samples.paused_until().is_some();
        let unpaid = if is_paid { Nanos::ZERO } else { samples.spending.attaching };
        let share = samples.cpu_cost().saturating_sub(unpaid).as_secs_f64() / time;
        println!("{count} samples, {:?} in {time} s: {:.3}%", samples.cpu_cost(), share * 100.0);
        assert!(share > 0.0 && share <= 1.02 * 0.005, "{share}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tracing_keeps_to_its_cpu_share() {
        let begun = Nanos::from_s(5);
        let ms = |ms: u64| begun + Nanos::from_ms(ms);
        let mut spending = TracingBudget::with_limit(0.005, begun);
        // 250 us in 50 ms are the share.
        assert_eq!(
            spending.charge_interval(Some(Nanos::from_us(250)), ms(50)),
            (Nanos::from_us(250), None)
        );
        // Not counted: as before, or by the samples if these are more.
        assert_eq!(spending.charge_interval(None, ms(100)), (Nanos::from_us(250), None));
        spending.samples = 8_500;
        let (cost, pause) = spending.charge_interval(None, ms(150));
        assert_eq!((cost, pause), (Nanos::from_us(2_125), Some(Nanos::from_ms(375))));
        // No sample at all, and a CPU's third.
        let (_, pause) = spending.charge_interval(Some(Nanos::from_ms(16)), ms(200));
        assert_eq!(pause, Some(Nanos::from_ms(3_150)));
        assert_eq!(
            spending.charge_interval(Some(Nanos::from_s(9)), ms(250)).1,
            Some(LONGEST_PAUSE)
        );
        // Reading counts. Attaching does where a pause is needed anyhow.
        let mut spending = TracingBudget::with_limit(0.005, begun);
        spending.attaching = Nanos::from_ms(1);
        assert_eq!(spending.charge_interval(Some(Nanos::ZERO), ms(50)).1, None);
        spending.own = Nanos::from_ms(1);
        assert_eq!(
            spending.charge_interval(Some(Nanos::ZERO), ms(100)).1,
            Some(Nanos::from_ms(350))
        );
        let mut told = TracingBudget::with_limit(0.02, begun);
        assert_eq!(
            told.charge_interval(Some(Nanos::from_ms(1)), ms(50)).1,
            None,
            "who may take more"
        );
    }
}
