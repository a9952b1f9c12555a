//! Outliers among runs, by measures that outliers do not move.
//!
//! Source of the limits: 1327 published runs of 30 s each. Their 99th percentiles had a median
//! absolute deviation of 1.4%. 6.9% of them were off by more than five such deviations and by
//! more than 10%. The largest was off by a factor of 5.

use crate::order::middle;

/// Distance from the median beyond which a run is an outlier, in median absolute deviations.
const DEVIATIONS: f64 = 5.0;
/// Least distance as a share of the median, because the deviations of steady runs are tiny.
const SHARE: f64 = 0.1;
/// Fewest runs in which outliers can be told.
const FEWEST_RUNS: usize = 5;

/// Median and deviation of some values; outliers do not move them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The median absolute deviation from the median, not scaled to a standard deviation.
    pub deviation: f64,
}

impl Spread {
    /// Measures `values`; `None` without any, or with one that is not finite.
    pub fn from_values(values: &[f64]) -> Option<Self> {
        if !values.iter().all(|value| value.is_finite()) {
            return None;
        }
        let median = middle(values.iter().copied())?;
        let deviation = middle(values.iter().map(|value| (value - median).abs()))?;
        Some(Self { median, deviation })
    }

    /// Whether `value` is far from the median: more than 5 median absolute deviations, and more than
    /// 10% of the median.
    pub fn is_outlier(&self, value: f64) -> bool {
        let off = (value - self.median).abs();
        off > DEVIATIONS * self.deviation && off > SHARE * self.median.abs()
    }
}

/// Indices of the outliers of `values`, ascending; none with fewer than 5 values, or if one is not
/// finite.
pub fn outliers(values: &[f64]) -> Vec<usize> {
    let spread = Spread::from_values(values).filter(|_| values.len() >= FEWEST_RUNS);
    spread.map_or_else(Vec::new, |spread| {
        (0..values.len()).filter(|&index| spread.is_outlier(values[index])).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_run_is_found() {
        check(&[152.0, 153.0, 153.0, 153.0, 154.0, 153.0, 466.0, 152.0], &[6]);
        check(&[10.0, 10.0, 10.0, 10.0, 5.0, 30.0], &[4, 5]);
    }

    #[test]
    fn steady_runs_and_even_scatter_have_none() {
        check(&[100.0, 100.0, 100.0, 100.0, 109.0], &[]); // less than 10% off
        check(&[80.0, 90.0, 100.0, 110.0, 130.0], &[]); // less than 5 deviations
        check(&[0.0; 6], &[]);
    }

    #[test]
    fn five_deviations_and_a_tenth_are_the_limits() {
        // The median is 100; the deviations 0, 10, 10, 20 and the last one's have the median 10.
        check(&[80.0, 90.0, 100.0, 110.0, 131.0], &[]);
        check(&[80.0, 90.0, 100.0, 110.0, 150.0], &[]);
        check(&[80.0, 90.0, 100.0, 110.0, 151.0], &[4]);
        check(&[48.0, 90.0, 100.0, 110.0, 120.0], &[0]);
        check(&[100.0, 100.0, 100.0, 101.0, 110.0], &[]);
        check(&[100.0, 100.0, 100.0, 101.0, 111.0], &[4]);
    }

    #[test]
    fn few_or_damaged_runs_have_none() {
        check(&[1.0, 1.0, 1.0, 99.0], &[]);
        check(&[], &[]);
        check(&[1.0, 1.0, 1.0, 1.0, f64::NAN, 99.0], &[]);
    }

    #[track_caller]
    fn check(values: &[f64], expected: &[usize]) {
        assert_eq!(outliers(values), expected, "{values:?}");
    }
}
