//! Goals of benchmarks: whether the interval of a figure lies within the values that are wanted. Figures in their tables.

use std::ops::RangeInclusive;

use latput_stats::Estimate;
use latput_stats::share::wilson;

/// `1.016 [0.998, 1.034]`.
pub fn format_estimate(it: Estimate) -> String {
    format!("{:.3} [{:.3}, {:.3}]", it.value, it.low, it.high)
}

/// `3 of 10 [11%, 60%]`: the interval of 95% is Wilson's.
pub fn format_share(count: u64, of: u64) -> String {
    let (low, high) = wilson(count, of);
    format!("{count} of {of} [{:.0}%, {:.0}%]", 100.0 * low, 100.0 * high)
}

/// Verdict on a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GoalVerdict {
    /// The whole interval is within the goal.
    Held,
    /// The interval reaches beyond the goal.
    Open,
    /// None of it is within the goal.
    Missed,
}

impl GoalVerdict {
    /// Judges the interval from `low` to `high`.
    pub fn of_interval((low, high): (f64, f64), goal: &RangeInclusive<f64>) -> Self {
        if low > *goal.end() || high < *goal.start() {
            Self::Missed
        } else if low >= *goal.start() && high <= *goal.end() {
            Self::Held
        } else {
            Self::Open
        }
    }

    /// The words in a table; `samples` are what more of would settle an open one, such as `runs`.
    pub fn describe(self, samples: &str) -> String {
        match self {
            Self::Held => "met".to_owned(),
            Self::Open => format!("open: too few {samples}"),
            Self::Missed => "missed".to_owned(),
        }
    }
}
