//! What published rows are to their predictions, and how many are of each sort.

use schemars::JsonSchema;
use serde::Serialize;

/// What rows are to their predictions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Label {
    /// Costs were fitted to them.
    Fitted,
    /// A constant was chosen by hand to meet them.
    HandSet,
    /// Of several rows: not all are predicted, and not all are of one of the other sorts.
    InSample,
    /// No number was fitted to them or chosen by them.
    Predicted,
}

impl Label {
    /// As people read it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fitted => "fitted",
            Self::HandSet => "hand-set",
            Self::InSample => "in sample",
            Self::Predicted => "predicted",
        }
    }
}

/// How many rows are of each sort. A row that was fitted and gave a constant too counts as fitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RowCounts {
    /// Costs were fitted to these.
    pub fitted: usize,
    /// A constant was chosen by hand to meet these.
    pub hand_set: usize,
    /// Neither.
    pub predicted: usize,
}

impl RowCounts {
    /// Of the labels of single rows.
    pub fn of(labels: impl IntoIterator<Item = Label>) -> Self {
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

    /// What all of them together are.
    pub const fn label(self) -> Label {
        match (self.fitted, self.hand_set, self.predicted) {
            (0, 0, _) => Label::Predicted,
            (_, 0, 0) => Label::Fitted,
            (0, _, 0) => Label::HandSet,
            _ => Label::InSample,
        }
    }
}
