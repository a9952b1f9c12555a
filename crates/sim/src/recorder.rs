//! A latency recorder for the inner loop: the buckets of the histogram without its checks.

use latput_stats::Histogram;
use latput_units::Nanos;

/// Bits kept of a value: 2048 steps, as in a histogram of three significant digits.
const BITS: u32 = 11;
const HALF: usize = 1 << (BITS - 1);
/// Number of buckets. Values from 2^53 ns (three months) on share the last.
const BUCKETS: usize = HALF * (53 - BITS as usize + 3);

/// Counts of durations.
#[derive(Clone, Debug)]
pub(crate) struct LatencyRecorder {
    counts: Vec<u64>,
}

impl Default for LatencyRecorder {
    fn default() -> Self {
        Self { counts: vec![0; BUCKETS] }
    }
}

impl LatencyRecorder {
    /// Counts `count` durations of `ns` nanoseconds.
    #[inline]
    pub(crate) fn record(&mut self, ns: u64, count: u64) {
        let bucket = bucket_index(ns).min(BUCKETS - 1);
        self.counts[bucket] += count;
    }

    /// The counts as a histogram.
    pub(crate) fn to_histogram(&self) -> Histogram {
        let mut histogram = Histogram::new();
        for (bucket, &count) in self.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            histogram.record_n(Nanos::from_ns(bucket_floor(bucket)), count);
        }
        histogram
    }
}

/// The bucket of a value. Values below 2048 have a bucket each; each doubling beyond has 1024.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the shifted value has 11 bits")]
const fn bucket_index(ns: u64) -> usize {
    let shift = (64 - BITS).saturating_sub(ns.leading_zeros());
    (ns >> shift) as usize + shift as usize * HALF
}

/// The smallest value of a bucket.
const fn bucket_floor(bucket: usize) -> u64 {
    let shift = (bucket / HALF).saturating_sub(1);
    ((bucket - shift * HALF) as u64) << shift
}

#[cfg(test)]
mod tests {
    use latput_units::SeededRng;

    use super::*;

    #[test]
    fn it_gives_the_histogram_that_its_values_give() {
        let mut rng = SeededRng::from_seed(1);
        let (mut recorder, mut histogram) = (LatencyRecorder::default(), Histogram::new());
        let mut values = vec![0, 1, 2_047, 2_048, 2_049, 4_095, 4_096, 1_000_000_007];
        values.extend((0..10_000).map(|_| rng.next_u64() >> (12 + rng.next_below(50))));
        for ns in values {
            recorder.record(ns, 1);
            histogram.record(Nanos::from_ns(ns));
        }
        assert_eq!(recorder.to_histogram(), histogram);
    }
}
