//! The lines of a search that another optimiser drives: what latput says, and what the optimiser answers.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A line of latput.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum SearchSaid {
    /// The first line: what there is to choose from.
    Space {
        /// Version of this document's schema: 1.
        schema: u32,
        /// The plan's name.
        plan: String,
        /// The goal as it is judged.
        goal: Option<String>,
        /// The factors; a setting has one level of each.
        factors: Vec<SpaceFactor>,
        /// The names of the workloads; each runs under every setting.
        workloads: Vec<String>,
        /// Number of settings that would lose packets, and are not run.
        refused_count: usize,
    },
    /// Figures of one setting in a block of runs. Block 0 has today's setting alone.
    Observe {
        /// The block; runs of one block are close to each other in time.
        block: u32,
        /// The level of each factor, by its index; null for today's setting where the plan does not list it.
        setting: Option<BTreeMap<String, usize>>,
        /// The setting's name in tables.
        label: String,
        /// The cost to minimise: the goal's figures multiplied, with the geometric mean of workloads, and the inverse
        /// of what is to be maximised; null where a run has no such figure.
        cost: Option<f64>,
        /// For each limit of the goal, the ratio by which it is broken: kept at 1 and below. A limit that is a share of
        /// today's or of the best figure is taken from the figures so far.
        limits_ratio: Vec<f64>,
        /// By the workload's name, every metric of its run.
        metrics: BTreeMap<String, BTreeMap<String, f64>>,
    },
    /// A suggested setting is not run.
    Refused {
        /// The level of each factor, by its index.
        setting: BTreeMap<String, usize>,
        /// The reason.
        problem: String,
    },
    /// The optimiser is to answer with a line.
    Ask {},
    /// The last line: the winner is confirmed, or there is none.
    Ended {
        /// Number of finished trials.
        trials: usize,
        /// The results file.
        file: String,
        /// The run's number in it.
        run: i64,
        /// Remarks of the run, such as why it ended.
        remarks: Vec<String>,
    },
}

/// A factor of the space.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SpaceFactor {
    /// Its key in the plan.
    pub name: String,
    /// Its levels as in tables, in the plan's order.
    pub levels: Vec<String>,
}

/// A line of the optimiser.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum SearchAnswer {
    /// Run these settings in one block.
    Suggest {
        /// The level of each factor, by its index.
        settings: Vec<BTreeMap<String, usize>>,
    },
    /// The search has ended; latput confirms the winner.
    Done {},
}
