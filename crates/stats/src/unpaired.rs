//! Differences between two unpaired groups of runs, as a ratio.
//!
//! The logarithms and means are those of [`crate::paired`], but each group has its own variance:
//! Welch's t, and for tails Yuen's t of trimmed means ("The two-sample trimmed t for unequal
//! population variances", Biometrika 61, 1974).

use crate::estimate::{Estimate, Method};
use crate::mean::{TTest, are_usable};
use crate::paired::{Average, Center};
use crate::untrimmed::{ENOUGH, MeanTests, RankTest, Untrimmed};

/// The ratio `other / base` of the (trimmed) geometric means of two groups, with its interval.
/// `None` if a figure is not above zero, or a group is empty. With a group of one there is no
/// interval.
pub fn ratio(base: &[f64], other: &[f64], average: Average, confidence: f64) -> Option<Estimate> {
    let (base, other) = (logs(base)?, logs(other)?);
    if !are_usable(&base, confidence) || !are_usable(&other, confidence) {
        return None;
    }
    let runs = base.len() + other.len();
    let Some(gap) = Gap::between(&base, &other, average) else {
        let mean = |logs: &[f64]| logs.iter().sum::<f64>() / logs.len() as f64;
        let value = (mean(&other) - mean(&base)).exp();
        return Some(Estimate { runs, ..Estimate::single(value) });
    };
    let (low, high) = gap.tests().bounds(confidence);
    Some(Estimate {
        value: gap.student.mean.exp(),
        low: low.exp(),
        high: high.exp(),
        confidence,
        method: Method::WelchLogRatio,
        runs,
    })
}

/// The chance of a gap at least this large without a difference (two-sided). `None` if a group has
/// fewer than two figures, or one that is not above zero.
pub fn p_value(base: &[f64], other: &[f64], average: Average) -> Option<f64> {
    p_value_of_means(&logs(base)?, &logs(other)?, average)
}

/// Like [`p_value`], for the gap between the (trimmed) arithmetic means, so that figures may be zero.
pub fn p_value_of_means(base: &[f64], other: &[f64], average: Average) -> Option<f64> {
    Gap::between(base, other, average).map(|gap| gap.tests().p_value())
}

fn logs(values: &[f64]) -> Option<Vec<f64>> {
    values.iter().map(|&value| crate::paired::log_ratio(1.0, value)).collect()
}

/// The gap between two groups' centers.
struct Gap {
    student: TTest,
    /// The tests that must prove a claim too, where a group of few runs was trimmed.
    untrimmed: Option<Untrimmed>,
}

impl Gap {
    fn between(base: &[f64], other: &[f64], average: Average) -> Option<Self> {
        let student = test_gap(base, other, average)?;
        let groups = [base, other];
        let are_few_trimmed = groups.iter().all(|group| group.len() < ENOUGH)
            && groups.iter().any(|group| average.cut(group.len()) > 0);
        let untrimmed = if are_few_trimmed {
            let plain = test_gap(base, other, Average::Plain)?;
            Some(Untrimmed::new(plain, RankTest::of_groups(base, other)))
        } else {
            None
        };
        Some(Self { student, untrimmed })
    }

    const fn tests(&self) -> MeanTests<'_> {
        MeanTests { student: self.student, untrimmed: self.untrimmed.as_ref() }
    }
}

fn test_gap(base: &[f64], other: &[f64], average: Average) -> Option<TTest> {
    let (base, other) = (Center::from_logs(base, average)?, Center::from_logs(other, average)?);
    let square = |center: &Center| center.error * center.error;
    let together = square(&base) + square(&other);
    // Welch and Satterthwaite: between the smaller group's degrees of freedom and the sum of
    // both, but for rounding. Rounded down, which widens the interval.
    let share = |center: &Center| square(center).powi(2) / center.degrees_of_freedom as f64;
    let freedom = together * together / (share(&base) + share(&other));
    let least = base.degrees_of_freedom.min(other.degrees_of_freedom);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 1 and the number of runs"
    )]
    let degrees_of_freedom =
        if freedom.is_finite() { (freedom as usize).max(least) } else { least };
    Some(TTest { mean: other.log - base.log, error: together.sqrt(), degrees_of_freedom })
}

#[cfg(test)]
mod tests {
    use latput_units::SeededRng;

    use super::*;
    use crate::testing::{coverage, normal};

    #[test]
    fn ratio_is_that_of_the_geometric_means() {
        let estimate = ratio(&[10.0, 10.0, 10.0], &[20.0, 5.0], Average::Plain, 0.95).unwrap();
        assert!((estimate.value - 1.0).abs() < 1e-12, "{estimate:?}");
        assert_eq!((estimate.method, estimate.runs), (Method::WelchLogRatio, 5));
        // Only the second group scatters: sd of {ln 2, -ln 2} is ln 2 * sqrt(2), its error ln 2, and
        // t(0.975, 1) = 12.706.
        assert!((estimate.high.ln() - 12.706_205 * 2_f64.ln()).abs() < 1e-4, "{estimate:?}");
    }

    #[test]
    fn fractional_degrees_of_freedom_round_down() {
        // scipy 1.17: `ttest_ind(..., equal_var=False)` of the logarithms has 6.678 degrees of freedom;
        // the interval and the p-value are those of `t` with 6.
        let (base, other) =
            ([10.0, 10.4, 9.7, 10.1, 9.9], [12.0, 14.5, 11.0, 13.0, 12.2, 15.0, 10.8]);
        let found = ratio(&base, &other, Average::Plain, 0.95).unwrap();
        let expected = [1.253_344_75, 1.110_831_25, 1.414_141_95];
        for (found, expected) in [found.value, found.low, found.high].iter().zip(expected) {
            assert!((found - expected).abs() < 1e-7, "{found} and not {expected}");
        }
        let p_value = p_value(&base, &other, Average::Plain).unwrap();
        assert!((p_value - 0.003_78).abs() < 1e-8, "{p_value}");
    }

    #[test]
    fn missing_ratio_or_scatter_is_told() {
        assert_eq!(ratio(&[0.0, 1.0], &[1.0, 2.0], Average::Plain, 0.95), None);
        assert_eq!(ratio(&[], &[1.0], Average::Plain, 0.95), None);
        assert_eq!(p_value(&[1.0], &[2.0, 3.0], Average::Plain), None);
        let single = ratio(&[2.0], &[3.0, 3.0], Average::Plain, 0.95).unwrap();
        assert_eq!((single.method, single.runs), (Method::Single, 3));
        assert!((single.value - 1.5).abs() < 1e-12);
        assert_eq!(p_value(&[1.0, 1.0], &[2.0, 2.0], Average::Trimmed), Some(0.0));
        assert_eq!(p_value(&[1.0, 1.0], &[1.0, 1.0], Average::Trimmed), Some(1.0));
    }

    #[test]
    fn p_value_and_the_interval_agree() {
        let mut rng = SeededRng::from_seed(8);
        for average in [Average::Plain, Average::Trimmed].into_iter().cycle().take(600) {
            let mut group = |shift: f64, runs: usize| -> Vec<f64> {
                (0..runs).map(|_| (shift + 0.1 * normal(&mut rng)).exp()).collect()
            };
            let (base, other) = (group(0.0, 5), group(0.1, 8));
            let excludes = ratio(&base, &other, average, 0.95).unwrap().excludes(1.0);
            assert_eq!(p_value(&base, &other, average).unwrap() < 0.05, excludes);
        }
    }

    #[test]
    fn unequal_group_interval_covers_ratio() {
        for average in [Average::Plain, Average::Trimmed] {
            let share = coverage(1.3, |rng| {
                let mut group = |scale: f64, scatter: f64, runs: usize| -> Vec<f64> {
                    (0..runs).map(|_| scale * (scatter * normal(rng)).exp()).collect()
                };
                let (base, other) = (group(1.0, 0.02, 10), group(1.3, 0.08, 8));
                ratio(&base, &other, average, 0.95)
            });
            // Trimmed groups need two proofs.
            let most = if average == Average::Plain { 0.97 } else { 0.985 };
            assert!((0.93..=most).contains(&share), "{share} of the intervals hold the truth");
        }
    }

    #[test]
    fn trimmed_groups_with_outliers_need_rank_test() {
        let base = [1.00, 1.01, 0.99, 1.02, 0.98, 1.00, 45.0];
        let other = [1.05, 1.06, 1.04, 1.07, 1.05, 0.01, 1.06];
        // 13 of the 49 differences are below 0, which has a chance of 8%.
        let found = p_value(&base, &other, Average::Trimmed).unwrap();
        assert!((0.1..0.3).contains(&found), "{found}");
        let base = [1.00, 1.01, 0.99, 1.02, 0.98, 1.00, 1.01];
        let other = [1.05, 1.06, 1.04, 1.07, 1.05, 50.0, 1.06];
        // All are above 0, which one order of 3432 has; the plain mean proves nothing.
        let found = p_value(&base, &other, Average::Trimmed).unwrap();
        assert!((found - 2.0 / 3432.0).abs() < 1e-9, "{found}");
        assert!(ratio(&base, &other, Average::Trimmed, 0.999).unwrap().excludes(1.0));
        assert!(!ratio(&base, &other, Average::Trimmed, 0.9995).unwrap().excludes(1.0));
    }
}
