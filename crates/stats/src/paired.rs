//! Differences between two settings, paired within blocks, as a ratio.
//!
//! Runs of one block share the state of the machine, so their ratio is steadier than either figure;
//! on a logarithmic scale half and double are equally far, and several workloads can be averaged.

use crate::estimate::{Estimate, Method};
use crate::mean::{mean, standard_error, two_sided_p};

/// The natural logarithm of `other / base`; `None` unless both are finite and above zero.
pub fn log_ratio(base: f64, other: f64) -> Option<f64> {
    let is_usable = |value: f64| value.is_finite() && value > 0.0;
    (is_usable(base) && is_usable(other)).then(|| (other / base).ln()).filter(|log| log.is_finite())
}

/// The ratio `other / base` over pairs `(base, other)`: geometric mean, with Student's t interval on
/// the logarithms. `None` without pairs, or where one has a figure that is not above zero (it has no
/// ratio, and leaving it out would flatter).
pub fn ratio(pairs: &[(f64, f64)], confidence: f64) -> Option<Estimate> {
    let logs: Option<Vec<f64>> =
        pairs.iter().map(|&(base, other)| log_ratio(base, other)).collect();
    ratio_of_logs(&logs?, confidence)
}

/// The same from logarithms of ratios, one for each block.
pub fn ratio_of_logs(logs: &[f64], confidence: f64) -> Option<Estimate> {
    let log = mean(logs, confidence)?;
    if log.method == Method::Single {
        return Some(Estimate::single(log.value.exp()));
    }
    Some(Estimate {
        value: log.value.exp(),
        low: log.low.exp(),
        high: log.high.exp(),
        method: Method::PairedLogRatio,
        ..log
    })
}

/// How likely logarithms of ratios at least this far from zero are where there is no difference
/// (two-sided paired t test); `None` with fewer than two. Below `1 - confidence` exactly where the
/// interval of [`ratio_of_logs`] excludes 1.
pub fn p_value(logs: &[f64]) -> Option<f64> {
    if logs.len() < 2 || !logs.iter().all(|log| log.is_finite()) {
        return None;
    }
    let average = logs.iter().sum::<f64>() / logs.len() as f64;
    let error = standard_error(logs, average);
    if average == 0.0 {
        return Some(1.0);
    }
    // Equal logarithms: no scatter at all, as only a simulator gives it.
    Some(if error == 0.0 { 0.0 } else { two_sided_p(average / error, logs.len() - 1) })
}

/// One comparison of several after Holm's correction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Corrected {
    /// One less the level that the comparison is held against: its own interval at this confidence
    /// excludes 1 exactly where its p-value is below that level.
    pub confidence: f64,
    /// Whether the difference is proven.
    pub proven: bool,
}

/// Holm's correction (Scandinavian Journal of Statistics 6, 1979): with it the chance that any of
/// the comparisons is called proven where there is no difference stays at `1 - confidence`. `None`
/// is a comparison that could not be made: it is not proven, and does not count.
///
/// The smallest of m p-values is held against `alpha / m`, the next against `alpha / (m - 1)` and so
/// on, up to the first that fails.
pub fn holm(p_values: &[Option<f64>], confidence: f64) -> Vec<Corrected> {
    let alpha = 1.0 - confidence;
    let mut made: Vec<(usize, f64)> =
        p_values.iter().enumerate().filter_map(|(index, p)| Some((index, (*p)?))).collect();
    made.sort_by(|a, b| a.1.total_cmp(&b.1));
    let mut corrected = vec![Corrected { confidence, proven: false }; p_values.len()];
    let mut all_proven = true;
    for (rank, &(index, p)) in made.iter().enumerate() {
        let level = alpha / (made.len() - rank) as f64;
        all_proven &= p < level;
        corrected[index] = Corrected { confidence: 1.0 - level, proven: all_proven };
    }
    corrected
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_coverage, normal};

    #[test]
    fn a_ratio_is_the_geometric_mean_of_the_pairs() {
        let estimate = ratio(&[(10.0, 20.0), (10.0, 5.0), (7.0, 7.0)], 0.95).unwrap();
        assert!((estimate.value - 1.0).abs() < 1e-12, "{estimate:?}");
        // ln 2 * t(0.975, 2) / sqrt(3): sd of {ln 2, -ln 2, 0} is ln 2.
        let half_width = 4.302_653 * 2_f64.ln() / 3_f64.sqrt();
        assert!((estimate.high.ln() - half_width).abs() < 1e-6, "{estimate:?}");
        assert!((estimate.low.ln() + half_width).abs() < 1e-6, "{estimate:?}");
        assert_eq!((estimate.method, estimate.runs), (Method::PairedLogRatio, 3));
    }

    #[test]
    fn what_has_no_ratio_has_no_estimate() {
        for pair in [(0.0, 1.0), (1.0, 0.0), (-1.0, 1.0), (f64::NAN, 1.0), (1.0, f64::INFINITY)] {
            assert_eq!(ratio(&[(1.0, 2.0), pair], 0.95), None, "{pair:?}");
        }
        assert_eq!(ratio(&[], 0.95), None);
        assert_eq!(ratio(&[(1.0, 2.0)], 0.95).unwrap(), Estimate::single(2.0));
    }

    #[test]
    fn the_p_value_and_the_interval_agree() {
        let mut rng = latput_units::Rng::from_seed(5);
        for _ in 0..300 {
            let logs: Vec<f64> = (0..4).map(|_| 0.1 + 0.1 * normal(&mut rng)).collect();
            let excludes = ratio_of_logs(&logs, 0.95).unwrap().excludes(1.0);
            assert_eq!(p_value(&logs).unwrap() < 0.05, excludes, "{logs:?}");
        }
        assert_eq!(p_value(&[0.3]), None);
        assert_eq!(p_value(&[0.0, 0.0]), Some(1.0));
        assert!(p_value(&[0.1, 0.1, 0.1]).unwrap() < 1e-9);
        assert_eq!(p_value(&[0.5, 0.5]), Some(0.0));
    }

    #[test]
    fn holm_stops_at_the_first_that_fails() {
        // The family of 5 % over four: 1.25 %, 1.67 %, 2.5 %, 5 %.
        check(&[Some(0.012), Some(0.016), Some(0.026), Some(0.04)], &[true, true, false, false]);
        check(&[Some(0.04), Some(0.013), Some(0.013), Some(0.013)], &[false; 4]);
        check(&[Some(0.04), Some(0.001), Some(0.02), Some(0.002)], &[true; 4]);
        check(&[None, Some(0.049), None], &[false, true, false]);
        check(&[], &[]);
        let confidences = holm(&[Some(0.5), Some(0.001)], 0.95);
        assert!((confidences[1].confidence - 0.975).abs() < 1e-12);
        assert!((confidences[0].confidence - 0.95).abs() < 1e-12);
    }

    #[test]
    fn holm_keeps_the_chance_of_any_false_claim_at_what_was_asked() {
        let mut rng = latput_units::Rng::from_seed(11);
        let claims = (0..2_000)
            .filter(|_| {
                let p: Vec<Option<f64>> = (0..6)
                    .map(|_| p_value(&(0..5).map(|_| normal(&mut rng)).collect::<Vec<_>>()))
                    .collect();
                holm(&p, 0.95).iter().any(|comparison| comparison.proven)
            })
            .count();
        assert!((60..=130).contains(&claims), "{claims} of 2000 families at 5 %");
    }

    #[test]
    fn a_95_percent_interval_of_a_paired_ratio_holds_it() {
        assert_coverage(0.95, 1.3, |rng| {
            let pairs: Vec<(f64, f64)> = (0..6)
                .map(|_| {
                    let block = (0.5 * normal(rng)).exp();
                    (block * (0.05 * normal(rng)).exp(), 1.3 * block * (0.05 * normal(rng)).exp())
                })
                .collect();
            ratio(&pairs, 0.95)
        });
    }

    #[track_caller]
    fn check(p_values: &[Option<f64>], proven: &[bool]) {
        let found: Vec<bool> = holm(p_values, 0.95).iter().map(|c| c.proven).collect();
        assert_eq!(found, proven);
    }
}
