//! The bootstrap over runs: the interval of a percentile of all runs' samples together.

use latput_units::{Nanos, Rng};

use crate::estimate::{Estimate, Method};
use crate::histogram::Histogram;

/// Resamples; beyond each end of a 99 % interval then lie ten of them. One less than a round number,
/// so that the ends fall on resamples.
const RESAMPLES: usize = 1_999;

/// A quantile (0 to 1) of the samples of all `runs` together, in nanoseconds, with the percentile
/// bootstrap over runs (Efron and Tibshirani, "An Introduction to the Bootstrap", 1993, chapter 13);
/// `None` without samples, or with a quantile or confidence outside 0 to 1.
///
/// Whole runs are drawn, not samples, because the samples of one run hang together. With fewer than
/// about twenty runs the interval is too narrow: then prefer [`crate::order::median`] of the runs'
/// own percentiles. The same `seed` gives the same interval.
pub fn pooled_quantile(
    runs: &[Histogram],
    quantile: f64,
    confidence: f64,
    seed: u64,
) -> Option<Estimate> {
    let is_share = |share: f64| share > 0.0 && share < 1.0;
    if !is_share(quantile) || !is_share(confidence) {
        return None;
    }
    let runs: Vec<&Histogram> = runs.iter().filter(|run| !run.is_empty()).collect();
    let pool = Pool::of(runs.iter().map(|run| run.buckets()));
    let mut rng = Rng::from_seed(seed);
    pool.interval(quantile, confidence, RESAMPLES, &mut rng)
}

/// Every non-empty bucket of every run in ascending order of value: a resample's quantile is then one
/// walk with each run's counts multiplied by how often it was drawn, the same as merging histograms.
struct Pool {
    buckets: Vec<Bucket>,
    counts: Vec<u64>,
}

struct Bucket {
    value: Nanos,
    run: usize,
    count: u64,
}

impl Pool {
    fn of<I: Iterator<Item = (Nanos, u64)>>(runs: impl Iterator<Item = I>) -> Self {
        let mut buckets = Vec::new();
        let mut counts = Vec::new();
        for (run, run_buckets) in runs.enumerate() {
            let start = buckets.len();
            buckets.extend(run_buckets.map(|(value, count)| Bucket { value, run, count }));
            counts.push(buckets[start..].iter().map(|bucket| bucket.count).sum());
        }
        buckets.sort_by_key(|bucket| bucket.value);
        Self { buckets, counts }
    }

    #[expect(clippy::cast_possible_truncation, reason = "a share of a number of resamples")]
    fn interval(
        &self,
        quantile: f64,
        confidence: f64,
        resamples: usize,
        rng: &mut Rng,
    ) -> Option<Estimate> {
        let runs = self.counts.len();
        let value = self.quantile(quantile, &vec![1; runs])?;
        if runs == 1 {
            return Some(Estimate::single(value));
        }
        let mut drawn: Vec<f64> = (0..resamples)
            .filter_map(|_| {
                let mut times = vec![0; runs];
                (0..runs).for_each(|_| times[rng.below(runs)] += 1);
                self.quantile(quantile, &times)
            })
            .collect();
        drawn.sort_by(f64::total_cmp);
        let tail = (1.0 - confidence) / 2.0;
        // The k-th smallest and k-th largest of B, with k = tail * (B + 1).
        let cut = ((tail * (drawn.len() + 1) as f64).round() as usize).saturating_sub(1);
        Some(Estimate {
            value,
            low: *drawn.get(cut)?,
            high: *drawn.get(drawn.len() - 1 - cut)?,
            confidence,
            method: Method::Bootstrap,
            runs,
        })
    }

    /// The quantile with the samples of each run counted `times` over; `None` without samples.
    fn quantile(&self, quantile: f64, times: &[u64]) -> Option<f64> {
        let count: u128 =
            self.counts.iter().zip(times).map(|(&n, &t)| u128::from(n) * u128::from(t)).sum();
        let rank = (quantile * count as f64).ceil().max(1.0);
        let mut seen = 0_u128;
        self.buckets.iter().find_map(|bucket| {
            seen += u128::from(bucket.count) * u128::from(times[bucket.run]);
            (seen as f64 >= rank).then(|| bucket.value.as_ns() as f64)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_coverage, normal};

    #[test]
    fn a_resample_is_what_merging_its_runs_gives() {
        let runs = [run(&[1, 5, 9, 200]), run(&[2, 2, 7]), run(&[3, 40, 41])];
        let pool = Pool::of(runs.iter().map(Histogram::buckets));
        for times in [[1, 1, 1], [3, 0, 0], [0, 1, 2], [2, 0, 1]] {
            let mut merged = Histogram::new();
            for (run, times) in runs.iter().zip(times) {
                (0..times).for_each(|_| merged.merge(run));
            }
            for quantile in [0.01, 0.25, 0.5, 0.9, 0.99] {
                let expected = merged.quantile(quantile).map(|value| value.as_ns() as f64);
                assert_eq!(pool.quantile(quantile, &times), expected, "{times:?} {quantile}");
            }
        }
    }

    #[test]
    fn a_seed_gives_one_interval() {
        let runs: Vec<Histogram> = (1..20).map(|us| run(&[us, us + 3, us * 2])).collect();
        let first = pooled_quantile(&runs, 0.9, 0.95, 1).unwrap();
        assert_eq!(pooled_quantile(&runs, 0.9, 0.95, 1).unwrap(), first);
        assert!(first.low < first.value && first.value < first.high, "{first:?}");
        assert_eq!((first.method, first.runs), (Method::Bootstrap, 19));
    }

    #[test]
    fn empty_runs_do_not_count() {
        assert_eq!(pooled_quantile(&[], 0.9, 0.95, 1), None);
        assert_eq!(pooled_quantile(&[Histogram::new()], 0.9, 0.95, 1), None);
        let one = pooled_quantile(&[Histogram::new(), run(&[7])], 0.9, 0.95, 1).unwrap();
        assert_eq!((one.method, one.runs), (Method::Single, 1));
        assert_eq!(pooled_quantile(&[run(&[7])], 1.5, 0.95, 1), None);
        assert_eq!(pooled_quantile(&[run(&[7])], 0.5, f64::NAN, 1), None);
    }

    #[test]
    fn a_95_percent_interval_over_sixty_runs_holds_the_pooled_quantile() {
        // ln of a sample: 11.5 + run effect (sd 0.3) + sample (sd 0.4), so sd 0.5 over all runs.
        let truth = (11.5_f64 + 0.5 * 0.841_621).exp();
        assert_coverage(0.95, truth, |rng| {
            let runs: Vec<Vec<(Nanos, u64)>> = (0..60)
                .map(|_| {
                    let run = 11.5 + 0.3 * normal(rng);
                    let sample = |_| Nanos::from_secs_f64(1e-9 * (run + 0.4 * normal(rng)).exp());
                    (0..6).map(sample).map(|value| (value, 1)).collect()
                })
                .collect();
            Pool::of(runs.into_iter().map(Vec::into_iter)).interval(0.8, 0.95, 199, rng)
        });
    }

    fn run(samples_us: &[u64]) -> Histogram {
        let mut histogram = Histogram::new();
        for &us in samples_us {
            histogram.record(Nanos::from_us(us));
        }
        histogram
    }
}
