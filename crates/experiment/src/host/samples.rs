//! Round-trip samples of TCP, in parts of the time where there are many.

use latput_linux::{RttSamples, RttTracer, process};
use latput_units::{Clock, Nanos};

use super::chain;

/// Most samples a second, on average. Tracing takes 0.25 us for each (docs/journal/2026-11-26-round-trip-samples.md), so that
/// these take 0.5% of a CPU: whose traffic it is has not asked for a slower host.
const MOST_PER_S: u64 = 20_000;
/// Their number is looked at this often: a burst is no load.
const LOOK_EVERY: Nanos = Nanos::from_ms(50);
/// Longest pause.
const LONGEST_PAUSE: Nanos = Nanos::from_s(10);
const CUT: &str = "some TCP round-trip samples were dropped: there were more than latput keeps";

/// The tracer of a block, while it has one.
#[derive(Debug)]
pub(super) struct Samples {
    tracer: Option<RttTracer>,
    rate: SampleRate,
    /// When to trace again.
    resume_at: Option<Nanos>,
    has_paused: bool,
}

impl Samples {
    /// Begins to trace. `notes` gets why not.
    pub(super) fn open(notes: &mut Vec<String>) -> Self {
        let now = process::OsClock.now();
        let rate = SampleRate { since: now, count: 0 };
        let mut samples = Self { tracer: None, rate, resume_at: Some(now), has_paused: false };
        samples.resume(now, notes);
        samples
    }

    fn resume(&mut self, now: Nanos, notes: &mut Vec<String>) {
        if self.resume_at.take_if(|at| *at <= now).is_none() {
            return;
        }
        match RttTracer::attach() {
            Ok(tracer) => {
                self.tracer = Some(tracer);
                self.rate = SampleRate { since: now, count: 0 };
            }
            Err(error) => notes.push(chain(&error)),
        }
    }

    /// The socket's number and the time of each sample since the last call.
    pub(super) fn take(&mut self, notes: &mut Vec<String>) -> Vec<(u64, Nanos)> {
        let now = process::OsClock.now();
        self.resume(now, notes);
        let Some(tracer) = &mut self.tracer else { return Vec::new() };
        let RttSamples { samples, are_cut } = tracer.take();
        if are_cut && !notes.iter().any(|note| note == CUT) {
            notes.push(CUT.to_owned());
        }
        if let Some(pause) = self.rate.pause(samples.len(), now) {
            (self.tracer, self.resume_at) = (None, Some(now + pause));
            if !std::mem::replace(&mut self.has_paused, true) {
                notes.push(format!(
                    "TCP round-trip samples are traced part of the time: there are more than {MOST_PER_S} a \
                     second, and tracing may take at most 0.5% of a CPU"
                ));
            }
        }
        samples
    }
}

/// Samples since the last look.
#[derive(Clone, Copy, Debug)]
struct SampleRate {
    since: Nanos,
    count: usize,
}

impl SampleRate {
    /// How long to pause after so many more, so that there are on average as many as may be.
    fn pause(&mut self, more: usize, now: Nanos) -> Option<Nanos> {
        self.count += more;
        let time = now.saturating_sub(self.since);
        if time < LOOK_EVERY {
            return None;
        }
        let count = std::mem::take(&mut self.count) as u64;
        self.since = now;
        let earned = Nanos::from_ns(count.saturating_mul(1_000_000_000) / MOST_PER_S);
        let pause = earned.saturating_sub(time).min(LONGEST_PAUSE);
        (pause > Nanos::ZERO).then_some(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_traced_and_a_load_in_parts() {
        let mut rate = SampleRate { since: Nanos::from_s(5), count: 0 };
        assert_eq!(rate.pause(900, Nanos::from_ms(5_010)), None, "a burst");
        assert_eq!(rate.pause(100, Nanos::from_ms(5_050)), None, "1,000 in 50 ms are allowed");
        // 170,000 a second: 8,500 are as many as are allowed in 425 ms.
        assert_eq!(rate.pause(8_500, Nanos::from_ms(5_100)), Some(Nanos::from_ms(375)));
        assert_eq!(rate.pause(usize::MAX, Nanos::from_s(9)), Some(LONGEST_PAUSE));
    }
}
