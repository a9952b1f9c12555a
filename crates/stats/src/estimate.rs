//! An estimate: a figure with its interval.

use serde::{Deserialize, Serialize};

/// A figure and the interval that holds the truth with the stated confidence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The estimated figure.
    pub value: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// The actual confidence of the interval. With few runs an order-statistic interval cannot
    /// reach the wanted confidence; then this is lower, and tables say so.
    pub confidence: f64,
    /// The method behind the interval.
    pub method: Method,
    /// Number of independent values (runs, or pairs of runs).
    pub runs: usize,
}

/// The method behind an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// Student's t on the mean.
    StudentT,
    /// Order statistics of the median (distribution-free).
    OrderStatistic,
    /// Student's t on the logarithms of paired ratios, for tails on their trimmed mean.
    PairedLogRatio,
    /// Welch's t on the logarithms of two groups of runs, for tails on their trimmed means.
    WelchLogRatio,
    /// One run only: no interval; `low` and `high` equal `value`, confidence 0.
    Single,
}

impl Estimate {
    /// The figure of one run, without an interval.
    pub fn single(value: f64) -> Self {
        Self { value, low: value, high: value, confidence: 0.0, method: Method::Single, runs: 1 }
    }

    /// Half the interval's width. Of one that was cut at 0 it is the part above the figure: the part below was as wide.
    pub fn half_width(&self) -> f64 {
        let half = (self.high - self.low) / 2.0;
        if self.low == 0.0 { half.max(self.high - self.value) } else { half }
    }

    /// Half the interval's width as a share of the figure; `None` where the figure is 0 or the
    /// estimate has no interval.
    pub fn half_width_ratio(&self) -> Option<f64> {
        let has_interval = self.method != Method::Single && self.value != 0.0;
        has_interval.then(|| self.half_width() / self.value.abs())
    }

    /// Whether the interval excludes `value`.
    pub fn excludes(&self, value: f64) -> bool {
        self.method != Method::Single && (value < self.low || value > self.high)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn single_figure_excludes_nothing() {
        let found = Estimate {
            value: -4.0,
            low: -5.0,
            high: -2.0,
            confidence: 0.99,
            method: Method::StudentT,
            runs: 5,
        };
        let excluded = [-5.1, -5.0, -4.0, -2.0, -1.9].map(|value| found.excludes(value));
        assert_eq!(excluded, [true, false, false, false, true]);
        assert_eq!(found.half_width_ratio(), Some(1.5 / 4.0));
        let cut = Estimate { value: 4.0, low: 0.0, high: 40.0, ..found.clone() };
        assert_eq!(cut.half_width_ratio(), Some(9.0), "what was cut off counts");
        assert_eq!(Estimate { value: 0.0, ..found }.half_width_ratio(), None);
        let single = Estimate::single(7.0);
        assert!(!single.excludes(6.0) && !single.excludes(8.0));
        assert_eq!(single.half_width_ratio(), None);
    }
}
