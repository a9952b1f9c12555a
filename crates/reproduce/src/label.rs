//! Origins of published rows: whether numbers of their profile come from them.

use schemars::JsonSchema;
use serde::Serialize;

/// The part of rows in the numbers of their profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Label {
    /// Costs were fitted to them.
    Fitted,
    /// A constant was chosen by hand to meet them.
    HandSet,
    /// For several rows: of different origins.
    InSample,
    /// No number comes from them.
    Predicted,
}

impl Label {
    /// The label as text.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fitted => "fitted",
            Self::HandSet => "hand-set",
            Self::InSample => "in sample",
            Self::Predicted => "predicted",
        }
    }
}

/// Number of rows by origin. A row that was fitted and gave a constant counts as fitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RowCounts {
    /// Rows to which costs were fitted.
    pub fitted: usize,
    /// Rows that a constant was chosen to match.
    pub hand_set: usize,
    /// Other rows.
    pub predicted: usize,
}

impl RowCounts {
    /// Counts the labels of single rows.
    pub fn from_labels(labels: impl IntoIterator<Item = Label>) -> Self {
        let mut counts = Self::default();
        for label in labels {
            match label {
                Label::Fitted => counts.fitted += 1,
                Label::HandSet | Label::InSample => counts.hand_set += 1,
                Label::Predicted => counts.predicted += 1,
            }
        }
        counts
    }

    /// The common label of all rows.
    pub const fn common_label(self) -> Label {
        match (self.fitted, self.hand_set, self.predicted) {
            (0, 0, _) => Label::Predicted,
            (_, 0, 0) => Label::Fitted,
            (0, _, 0) => Label::HandSet,
            _ => Label::InSample,
        }
    }
}
