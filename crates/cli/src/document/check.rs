//! The JSON of `--check` and of `latput plan`.

use schemars::JsonSchema;
use serde::Serialize;

/// A run that would start.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CheckDocument {
    /// Version of this document's schema: 1.
    pub(crate) schema: u32,
    /// The plan's file, or what it was made for.
    pub(crate) plan: String,
    /// The testbed; `null` where only the plan was checked.
    pub(crate) testbed: Option<String>,
    /// Its hosts with their interfaces.
    pub(crate) hosts: Vec<String>,
    /// `blocks`, `slices` or `search`; `null` where the testbed decides and was not checked.
    pub(crate) design: Option<String>,
    /// Number of settings, with today's where hosts were asked.
    pub(crate) settings: u64,
    /// The labels of the first settings, at most 20.
    pub(crate) labels: Vec<String>,
    /// Number of workloads.
    pub(crate) workloads: u64,
    /// The fewest trials within the budget. A trial is a row of the results; in slices each slice is one.
    pub(crate) trials_min: u64,
    /// The most trials within the budget.
    pub(crate) trials_max: u64,
    /// About the shortest time, of the simulated clock in the simulator.
    pub(crate) duration_ns_min: u64,
    /// About the longest time.
    pub(crate) duration_ns_max: u64,
    /// Whether time is simulated, and so passes faster.
    pub(crate) is_simulated: bool,
    /// Parts that would be skipped, and disturbances of the run, in sentences.
    pub(crate) remarks: Vec<String>,
}

/// A plan.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PlanDocument {
    /// Version of this document's schema: 1.
    pub(crate) schema: u32,
    /// The keys and values of the plan file.
    pub(crate) plan: serde_json::Value,
    /// The plan file, with its comments.
    pub(crate) toml: String,
}
