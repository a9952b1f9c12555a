//! Intervals from ranks. They hold for any distribution, so they suit tails.

use statrs::distribution::{Binomial, DiscreteCDF};

use crate::estimate::{Estimate, Method};
use crate::histogram::Histogram;
use crate::mean::are_usable;

/// The value at `quantile` (0 to 1) of sorted values, with linear interpolation (Hyndman and Fan's
/// type 7, The American Statistician 50, 1996); `None` without values.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a place in a list")]
pub fn quantile_of_sorted(sorted: &[f64], quantile: f64) -> Option<f64> {
    let place = quantile * sorted.len().checked_sub(1)? as f64;
    let (below, above) = (place.floor() as usize, place.ceil() as usize);
    Some(sorted[below] + place.fract() * (sorted[above] - sorted[below]))
}

/// The median of `values` with an interval between order statistics; `None` without values, with one
/// that is not finite, or with a confidence outside 0 to 1. One value has no interval.
///
/// The two neighbouring pairs of ranks with more and with less than the wanted confidence are
/// interpolated (Hettmansperger and Sheather, "Confidence intervals based on interpolated order
/// statistics", Statistics & Probability Letters 4, 1986). With too few runs even the smallest and
/// the largest value do not reach it (99% needs 8). Then they are the interval, and
/// [`Estimate::confidence`] is the confidence that they reach.
pub fn median(values: &[f64], confidence: f64) -> Option<Estimate> {
    if !are_usable(values, confidence) {
        return None;
    }
    if let [only] = values {
        return Some(Estimate::single(*only));
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let runs = sorted.len();
    let signs = Binomial::new(0.5, runs as u64).expect("a half is a probability");
    // The interval from the `rank`-th smallest to the `rank`-th largest misses the median if fewer
    // than `rank` values lie on one side of it.
    let confidence_of = |rank: usize| 1.0 - 2.0 * signs.cdf(rank as u64 - 1);
    let rank = (1..=runs / 2).rev().find(|&rank| confidence_of(rank) >= confidence);
    let (rank, inward, reached) = match rank {
        None => (1, 0.0, confidence_of(1)),
        Some(rank) if rank == runs / 2 => (rank, 0.0, confidence_of(rank)),
        Some(rank) => {
            let outer = confidence_of(rank);
            let inner = confidence_of(rank + 1);
            let share = (outer - confidence) / (outer - inner);
            let n = runs as f64;
            let d = rank as f64;
            (rank, (n - d) * share / (d + (n - 2.0 * d) * share), confidence)
        }
    };
    let between = |outer: usize, inner: usize| {
        if inward == 0.0 {
            sorted[outer]
        } else {
            (1.0 - inward) * sorted[outer] + inward * sorted[inner]
        }
    };
    Some(Estimate {
        value: middle_of_sorted(&sorted)?,
        low: between(rank - 1, rank),
        high: between(runs - rank, runs - rank - 1),
        confidence: reached,
        method: Method::OrderStatistic,
        runs,
    })
}

/// The middle of the values, of an even number the mean of the middle two: [`median`] without an interval. `None`
/// without values.
pub fn middle(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut sorted: Vec<f64> = values.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    middle_of_sorted(&sorted)
}

fn middle_of_sorted(sorted: &[f64]) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    Some(f64::midpoint(sorted[last / 2], sorted[last.div_ceil(2)]))
}

/// A quantile (0 to 1) of one run's samples in nanoseconds. Its interval lies between the ranks
/// that a binomial count of samples below the true quantile leaves open. `None` without samples, or
/// with a quantile or confidence outside 0 to 1.
///
/// It describes this run only and treats its samples as independent. Samples of a network are not
/// independent, and runs differ by more than their samples do: use runs to compare settings. Where
/// a rank is outside the samples, the extreme sample stands in, and [`Estimate::confidence`] is
/// what that leaves.
pub fn quantile_within(histogram: &Histogram, quantile: f64, confidence: f64) -> Option<Estimate> {
    let is_share = |share: f64| share > 0.0 && share < 1.0;
    if !is_share(quantile) || !is_share(confidence) {
        return None;
    }
    let value = histogram.quantile(quantile)?;
    let samples = histogram.count();
    let below = Binomial::new(quantile, samples).expect("checked to be a probability");
    let tail = (1.0 - confidence) / 2.0;
    // low: the largest rank that the count falls short of with at most `tail`; high: the smallest
    // rank that the count reaches with at most `tail`.
    let low = last_where(samples, |rank| below.cdf(rank - 1) <= tail).max(1);
    let high = (last_where(samples, |rank| below.sf(rank - 1) > tail) + 1).min(samples);
    Some(Estimate {
        value: value.as_ns() as f64,
        low: histogram.at_rank(low)?.as_ns() as f64,
        high: histogram.at_rank(high)?.as_ns() as f64,
        confidence: (1.0 - below.cdf(low - 1) - below.sf(high - 1)).max(0.0),
        method: Method::OrderStatistic,
        runs: 1,
    })
}

/// The last of 1..=`end` for which `holds` is true, if it is true up to some rank and false beyond;
/// 0 if for none.
fn last_where(end: u64, holds: impl Fn(u64) -> bool) -> u64 {
    let mut holding = 0;
    let mut failing = end + 1;
    while failing - holding > 1 {
        let rank = holding + (failing - holding) / 2;
        if holds(rank) {
            holding = rank;
        } else {
            failing = rank;
        }
    }
    holding
}

#[cfg(test)]
mod tests {
    use latput_units::Nanos;

    use super::*;
    use crate::testing::{assert_coverage, normal};

    #[test]
    fn middle_of_an_even_number_is_between_two() {
        assert_eq!(middle([3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(middle([4.0, 1.0, 2.0, 9.0]), Some(3.0));
        assert_eq!(middle([]), None);
    }

    #[test]
    fn few_runs_give_range_with_confidence() {
        // 1 - 2 / 2^n
        check(&[3.0, 1.0, 2.0, 5.0, 4.0], 0.99, (1.0, 3.0, 5.0, 0.9375));
        check(&[1.0, 2.0], 0.95, (1.0, 1.5, 2.0, 0.5));
        check(&[1.0, 2.0, 9.0], 0.95, (1.0, 2.0, 9.0, 0.75));
    }

    #[test]
    fn enough_runs_give_the_wanted_confidence() {
        // n = 10: ranks 2 and 9 have 97.85%, ranks 3 and 8 have 89.06%. By hand:
        // share = (0.978516 - 0.95) / (0.978516 - 0.890625) = 0.324444, inward = 0.658...
        let values: Vec<f64> = (1..=10).map(f64::from).collect();
        let estimate = median(&values, 0.95).unwrap();
        let inward = 8.0 * 0.324_444 / (2.0 + 6.0 * 0.324_444);
        assert!((estimate.low - (2.0 + inward)).abs() < 1e-4, "{estimate:?}");
        assert!((estimate.high - (9.0 - inward)).abs() < 1e-4, "{estimate:?}");
        assert_eq!((estimate.value, estimate.confidence), (5.5, 0.95));
    }

    #[test]
    fn low_confidence_takes_innermost_ranks() {
        check(&[1.0, 2.0, 3.0, 4.0], 0.1, (2.0, 2.5, 3.0, 0.375));
        check(&[1.0, 2.0, 3.0], 0.1, (1.0, 2.0, 3.0, 0.75));
    }

    #[test]
    fn outlier_does_not_move_median_interval() {
        // The run-level p99 of a published data set (200K, defer 20 us), in us.
        let runs = [152.0, 153.0, 153.0, 153.0, 153.0, 153.0, 154.0, 153.0, 466.0, 152.0];
        let estimate = median(&runs, 0.95).unwrap();
        let holds = estimate.low >= 152.0 && estimate.high < 155.0;
        assert!(holds, "{estimate:?}");
    }

    #[test]
    fn nonsense_gives_no_estimate() {
        assert_eq!(median(&[], 0.95), None);
        assert_eq!(median(&[1.0, f64::INFINITY], 0.95), None);
        assert_eq!(median(&[1.0, 2.0], 1.0), None);
        assert_eq!(median(&[1.0], 0.95).map(|single| single.method), Some(Method::Single));
        let mut histogram = Histogram::new();
        assert_eq!(quantile_within(&histogram, 0.5, 0.95), None);
        histogram.record(Nanos::from_us(1));
        for (quantile, confidence) in [(0.0, 0.9), (1.0, 0.9), (f64::NAN, 0.9), (0.5, 1.0)] {
            assert_eq!(quantile_within(&histogram, quantile, confidence), None);
        }
    }

    #[test]
    fn median_interval_of_skewed_runs_covers() {
        assert_coverage(0.95, 100.0, |rng| {
            let values: Vec<f64> = (0..10).map(|_| 100.0 * normal(rng).exp()).collect();
            median(&values, 0.95)
        });
    }

    #[test]
    fn p90_interval_within_run_covers() {
        let true_p90 = 1e5 * (0.5_f64 * 1.281_552).exp();
        assert_coverage(0.95, true_p90, |rng| {
            let mut histogram = Histogram::new();
            for _ in 0..500 {
                histogram.record(Nanos::from_secs_f64(1e-4 * (0.5 * normal(rng)).exp()));
            }
            quantile_within(&histogram, 0.9, 0.95)
        });
    }

    #[test]
    fn unsampled_tail_ends_at_largest_value() {
        let mut histogram = Histogram::new();
        (1..=100).for_each(|us| histogram.record(Nanos::from_us(us)));
        let estimate = quantile_within(&histogram, 0.999, 0.99).unwrap();
        let largest = histogram.max().unwrap().as_ns() as f64;
        assert!((estimate.high - largest).abs() < 0.5, "{estimate:?}");
        // The largest of 100 exceeds the 99.9th percentile with 1 - 0.999^100 = 9.52% only, and the
        // second largest does with 0.46%.
        assert!((estimate.confidence - 0.0906).abs() < 0.0001, "{estimate:?}");
        // The lower end at 80% is the largest too, then.
        let estimate = quantile_within(&histogram, 0.999, 0.8).unwrap();
        assert!((estimate.low - largest).abs() < 0.5, "{estimate:?}");
    }

    #[test]
    fn ranks_are_those_of_the_binomial_distribution() {
        // scipy 1.17: the largest rank with `binom.cdf(rank - 1) <= tail`, the smallest with
        // `binom.sf(rank - 1) <= tail`, and the difference of the two `cdf`.
        check_ranks((100, 0.5, 0.95), (40, 61, 0.964_799_8));
        check_ranks((1000, 0.9, 0.99), (875, 925, 0.991_708_1));
    }

    /// Of that many samples, each of its own: sample `i` lasts `i` ns, which the histogram keeps exact.
    #[track_caller]
    fn check_ranks(
        (samples, quantile, confidence): (u64, f64, f64),
        (low, high, reached): (u64, u64, f64),
    ) {
        let mut histogram = Histogram::new();
        (1..=samples).for_each(|ns| histogram.record(Nanos::from_ns(ns)));
        let found = quantile_within(&histogram, quantile, confidence).unwrap();
        let value = quantile * samples as f64;
        assert_eq!((found.low, found.value, found.high), (low as f64, value, high as f64));
        assert!((found.confidence - reached).abs() < 1e-7, "{found:?}");
    }

    #[test]
    fn quantile_equals_numpys() {
        // numpy.quantile(values, quantile), whose default is type 7.
        let sorted = [1.0, 2.0, 4.0, 8.0, 16.0];
        for (quantile, expected) in
            [(0.0, 1.0), (0.1, 1.4), (0.3, 2.4), (0.5, 4.0), (0.9, 12.8), (1.0, 16.0)]
        {
            let found = quantile_of_sorted(&sorted, quantile).unwrap();
            assert!((found - expected).abs() < 1e-12, "{quantile}: {found} and not {expected}");
        }
        for (quantile, expected) in [(0.1, 1.3), (0.5, 3.0), (0.95, 7.4)] {
            let found = quantile_of_sorted(&sorted[..4], quantile).unwrap();
            assert!((found - expected).abs() < 1e-12, "{quantile}: {found} and not {expected}");
        }
        assert_eq!(quantile_of_sorted(&[3.0], 0.7), Some(3.0));
        assert_eq!(quantile_of_sorted(&[], 0.5), None);
    }

    #[test]
    fn quantile_lies_in_its_interval() {
        let mut histogram = Histogram::new();
        for sample in 1..=300_u64 {
            histogram.record(Nanos::from_us(sample * sample % 997));
            for quantile in [0.01, 0.5, 0.9, 0.99] {
                let estimate = quantile_within(&histogram, quantile, 0.95).unwrap();
                let ordered = estimate.low <= estimate.value && estimate.value <= estimate.high;
                assert!(ordered, "{sample} {quantile} {estimate:?}");
            }
        }
    }

    #[track_caller]
    fn check(values: &[f64], confidence: f64, expected: (f64, f64, f64, f64)) {
        let Estimate { low, value, high, confidence, .. } = median(values, confidence).unwrap();
        assert_eq!((low, value, high), (expected.0, expected.1, expected.2));
        assert!((confidence - expected.3).abs() < 1e-9, "{confidence}");
    }
}
