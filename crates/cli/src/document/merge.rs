//! The JSON of `latput merge`.

use schemars::JsonSchema;
use serde::Serialize;

/// A results file that was made of shards.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct MergeDocument {
    /// Version of this document's schema: 1.
    pub(crate) schema: u32,
    /// The results file.
    pub(crate) file: String,
    /// Number of trials in it.
    pub(crate) trials: u64,
    /// Number of trials of all shards.
    pub(crate) planned_trials: u64,
    /// Missing parts and how to get them, in sentences; empty unless `--partial` was given.
    pub(crate) missing: Vec<String>,
    /// Whether more trials may follow: the plan's stopping rule has not looked at these yet, or they are a block of a search.
    pub(crate) may_go_on: bool,
}
