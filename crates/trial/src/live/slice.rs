//! A slice of live traffic, beside its figures.

use latput_units::Nanos;
use serde::{Deserialize, Serialize};

/// The changes of a slice, and what ended it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LiveSlice {
    /// Duration of the change to the setting,
    pub change: Nanos,
    /// and of the change back to today's.
    pub change_back: Nanos,
    /// Unmeasured time after each.
    pub cut: Nanos,
    /// The guard that was broken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broken: Option<BrokenGuard>,
    /// Why the setting is banned from this slice on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub banned: Option<String>,
}

/// A guard that was broken in a slice.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BrokenGuard {
    /// As the plan has it.
    pub guard: String,
    /// The figure that broke it.
    pub value: f64,
    /// Today's, just before.
    pub today: Option<f64>,
    /// How long the setting had been in force.
    pub after: Nanos,
    /// From the reading that broke it until today's values were read back.
    pub until_back: Nanos,
}
