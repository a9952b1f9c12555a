//! The interval of a mean over a few runs: for rates and shares, whose runs scatter symmetrically.

use statrs::distribution::{ContinuousCDF, StudentsT};

use crate::estimate::{Estimate, Method};

/// The mean of `values` with Student's t interval; `None` without values, with one that is not
/// finite, or with a confidence outside 0 to 1. One value has no interval ([`Method::Single`]).
///
/// The half width is `t(confidence, n - 1) * s / sqrt(n)`, with `s` the standard deviation that
/// divides by `n - 1`. netperf's `calculate_confidence` (`src/netlib.c`) has the same figure: it
/// divides the variance by `n` and then by `n - 1` under the root, and states the full width, so its
/// `-I 99,5` is a half width of 2.5%.
pub fn mean(values: &[f64], confidence: f64) -> Option<Estimate> {
    if !are_usable(values, confidence) {
        return None;
    }
    if let [only] = values {
        return Some(Estimate::single(*only));
    }
    let runs = values.len();
    let value = values.iter().sum::<f64>() / runs as f64;
    let half_width = critical_t(confidence, runs - 1) * standard_error(values, value);
    Some(Estimate {
        value,
        low: value - half_width,
        high: value + half_width,
        confidence,
        method: Method::StudentT,
        runs,
    })
}

/// Whether the values and the confidence are valid.
pub(crate) fn are_usable(values: &[f64], confidence: f64) -> bool {
    let confidence_exists = confidence > 0.0 && confidence < 1.0;
    confidence_exists && !values.is_empty() && values.iter().all(|value| value.is_finite())
}

/// The standard error of `mean`, which must be the mean of at least two `values`.
pub fn standard_error(values: &[f64], mean: f64) -> f64 {
    let runs = values.len() as f64;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (squares / (runs - 1.0) / runs).sqrt()
}

/// The two-sided critical value of Student's t: `|t|` stays below it with `confidence`.
pub fn critical_t(confidence: f64, degrees_of_freedom: usize) -> f64 {
    student_t(degrees_of_freedom).inverse_cdf(f64::midpoint(1.0, confidence))
}

/// The probability of a `|t|` at least this large if the true mean is zero.
fn two_sided_p(t: f64, degrees_of_freedom: usize) -> f64 {
    (2.0 * student_t(degrees_of_freedom).sf(t.abs())).min(1.0)
}

/// Student's t test of a mean against zero.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct TTest {
    pub(crate) mean: f64,
    /// Its standard error.
    pub(crate) error: f64,
    pub(crate) degrees_of_freedom: usize,
}

impl TTest {
    /// The chance of a mean at least this far from zero if the true one is zero (two-sided).
    pub(crate) fn p_value(&self) -> f64 {
        match (self.mean == 0.0, self.error == 0.0) {
            (true, _) => 1.0,
            // No scatter, as in the simulator, is proof.
            (false, true) => 0.0,
            (false, false) => two_sided_p(self.mean / self.error, self.degrees_of_freedom),
        }
    }

    /// The chance of a mean at least this far below zero if the true one is not below it (one-sided).
    pub(crate) fn p_below(&self) -> f64 {
        match (self.error == 0.0, self.mean < 0.0) {
            // No scatter, as in the simulator, is proof.
            (true, is_below) => f64::from(u8::from(!is_below)),
            (false, true) => two_sided_p(self.mean / self.error, self.degrees_of_freedom) / 2.0,
            (false, false) => {
                1.0 - two_sided_p(self.mean / self.error, self.degrees_of_freedom) / 2.0
            }
        }
    }

    /// Like [`Self::p_below`], for a mean above zero.
    pub(crate) fn p_above(&self) -> f64 {
        Self { mean: -self.mean, ..*self }.p_below()
    }

    /// The two-sided interval.
    pub(crate) fn bounds(&self, confidence: f64) -> (f64, f64) {
        let half_width = critical_t(confidence, self.degrees_of_freedom) * self.error;
        (self.mean - half_width, self.mean + half_width)
    }
}

fn student_t(degrees_of_freedom: usize) -> StudentsT {
    assert!(degrees_of_freedom > 0, "Student's t needs two values");
    StudentsT::new(0.0, 1.0, degrees_of_freedom as f64).expect("scale and freedom are above zero")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_coverage, normal};

    #[test]
    fn critical_values_are_those_of_the_tables() {
        // Fisher and Yates, "Statistical Tables", table III (two-sided probabilities).
        for (confidence, degrees_of_freedom, expected) in [
            (0.95, 1, 12.706),
            (0.95, 4, 2.776),
            (0.95, 30, 2.042),
            (0.99, 2, 9.925),
            (0.99, 4, 4.604),
            (0.99, 9, 3.250),
            (0.99, 29, 2.756),
            (0.999, 4, 8.610),
        ] {
            let found = critical_t(confidence, degrees_of_freedom);
            assert!((found - expected).abs() < 5e-4, "{confidence} {degrees_of_freedom}: {found}");
            let p = two_sided_p(found, degrees_of_freedom);
            assert!((p - (1.0 - confidence)).abs() < 1e-9, "{p}");
        }
    }

    #[test]
    fn half_width_is_netperfs() {
        let values = [10.0, 12.0, 11.0, 15.0, 9.5];
        let estimate = mean(&values, 0.99).unwrap();
        let runs = values.len() as f64;
        let average = values.iter().sum::<f64>() / runs;
        let variance = values.iter().map(|v| v * v).sum::<f64>() / runs - average * average;
        let full_width = 2.0 * 4.604_095 * (variance / (runs - 1.0)).sqrt() / average;
        let found = estimate.half_width_ratio().unwrap();
        assert!((found - full_width / 2.0).abs() < 1e-6, "{found} {full_width}");
    }

    #[test]
    fn single_value_has_no_interval() {
        let single = mean(&[3.0], 0.99).unwrap();
        assert_eq!(
            (single.method, single.runs, single.half_width_ratio()),
            (Method::Single, 1, None)
        );
        assert!(!single.excludes(4.0));
        assert_eq!(mean(&[], 0.99), None);
        assert_eq!(mean(&[1.0, f64::NAN], 0.99), None);
        for confidence in [0.0, 1.0, -1.0, 99.0, f64::NAN] {
            assert_eq!(mean(&[1.0, 2.0], confidence), None, "{confidence}");
        }
    }

    #[test]
    fn equal_values_have_an_interval_of_no_width() {
        let estimate = mean(&[5.0; 4], 0.99).unwrap();
        assert_eq!((estimate.low, estimate.high), (5.0, 5.0));
    }

    #[test]
    fn mean_interval_of_five_runs_covers() {
        assert_coverage(0.95, 100.0, |rng| {
            let values: Vec<f64> = (0..5).map(|_| 100.0 + 7.0 * normal(rng)).collect();
            mean(&values, 0.95)
        });
    }
}
