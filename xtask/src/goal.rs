//! Goals of benchmarks: whether the interval of a figure lies within the values that are wanted.

use std::ops::RangeInclusive;

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
