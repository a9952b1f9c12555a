//! Round-trip samples of TCP, as long as there are not too many of them.

use latput_linux::{RttSamples, RttTracer, process};
use latput_units::{Clock, Nanos};

use super::chain;

/// Most samples a second. Tracing takes 0.25 us for each (docs/journal/2026-11-26-round-trip-samples.md), so that these
/// take 2 % of a CPU, as readings may.
const MOST_PER_S: u64 = 80_000;
/// Their number is looked at this often: a burst is no load.
const LOOK_EVERY: Nanos = Nanos::from_s(1);
const CUT: &str = "some round-trip samples of TCP are missing: there were more than latput keeps";

/// The tracer of a block, while it has one.
#[derive(Debug)]
pub(super) struct Samples {
    tracer: Option<RttTracer>,
    rate: SampleRate,
    has_too_many: bool,
}

impl Samples {
    /// Begins to trace, unless there were too many samples before. `notes` gets why not.
    pub(super) fn open(had_too_many: bool, notes: &mut Vec<String>) -> Self {
        let attached = (!had_too_many).then(RttTracer::attach);
        let tracer = attached.and_then(|it| it.map_err(|error| notes.push(chain(&error))).ok());
        let rate = SampleRate { since: process::OsClock.now(), count: 0 };
        Self { tracer, rate, has_too_many: had_too_many }
    }

    /// Whether there were too many at some time.
    pub(super) fn has_too_many(&self) -> bool {
        self.has_too_many
    }

    /// The socket's number and the time of each sample since the last call.
    pub(super) fn take(&mut self, notes: &mut Vec<String>) -> Vec<(u64, Nanos)> {
        let Some(tracer) = &mut self.tracer else { return Vec::new() };
        let RttSamples { samples, are_cut } = tracer.take();
        if are_cut && !notes.iter().any(|note| note == CUT) {
            notes.push(CUT.to_owned());
        }
        if self.rate.is_too_fast(samples.len(), process::OsClock.now()) {
            (self.tracer, self.has_too_many) = (None, true);
            notes.push(format!(
                "round-trip samples of TCP are no longer traced: there are more than {MOST_PER_S} a second"
            ));
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
    /// Whether they come too fast, with so many more.
    fn is_too_fast(&mut self, more: usize, now: Nanos) -> bool {
        self.count += more;
        let time = now.saturating_sub(self.since);
        if time < LOOK_EVERY {
            return false;
        }
        let count = std::mem::take(&mut self.count);
        self.since = now;
        count as f64 > MOST_PER_S as f64 * time.as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_traced_and_a_load_is_not() {
        let mut rate = SampleRate { since: Nanos::from_s(5), count: 0 };
        assert!(!rate.is_too_fast(70_000, Nanos::from_ms(5_050)), "a burst");
        assert!(!rate.is_too_fast(5_000, Nanos::from_ms(6_000)));
        assert!(!rate.is_too_fast(75_000, Nanos::from_ms(6_100)), "another second");
        assert!(rate.is_too_fast(10_000, Nanos::from_ms(7_000)));
        // Where readings are rare, the second is longer.
        assert!(!rate.is_too_fast(150_000, Nanos::from_ms(9_000)));
        assert!(rate.is_too_fast(170_000, Nanos::from_ms(11_000)));
    }
}
