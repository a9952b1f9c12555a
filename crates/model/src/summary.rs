//! What a results file amounts to: the one thing that tables, pictures and exports are made from.

use std::collections::BTreeMap;

use latput_stats::{Estimate, Histogram};
use latput_trial::Metric;

/// A results file, summarised.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// Every setting under every workload that has at least one run.
    pub cells: Vec<Cell>,
    /// Settings that no other setting beats on every workload's rate, latency and CPU cost at once
    /// (by their estimates), by index.
    pub pareto: Vec<usize>,
    /// What to set, where the results file has a goal that can be judged.
    pub recommendation: Option<Recommendation>,
    /// Runs far from their cell's others.
    pub outliers: Vec<Outlier>,
    /// Failed checks of trials, those of the same name on the same cell counted together.
    pub failed_checks: Vec<FailedCheck>,
    /// netperf's kind of warning: intervals that are wider than was asked for.
    pub warnings: Vec<String>,
}

/// One setting under one workload.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// Index into the settings of the results.
    pub setting: usize,
    /// Index into the workloads of the results.
    pub workload: usize,
    /// How many runs.
    pub runs: usize,
    /// Each figure the workload has, over all runs.
    pub metrics: BTreeMap<Metric, Estimate>,
    /// Each figure as a ratio to the first setting's, paired within blocks; absent for the first
    /// setting itself and where a figure was 0.
    pub against_first: BTreeMap<Metric, Estimate>,
    /// The round-trip times of all runs together.
    pub latency: Option<Histogram>,
    /// The probe's round-trip times of all runs together.
    pub probe: Option<Histogram>,
    /// Whether the interval of the rate is as narrow as was asked for.
    pub narrow_enough: bool,
}

/// One run far from the others of its cell.
#[derive(Clone, Debug, PartialEq)]
pub struct Outlier {
    /// Index into the settings.
    pub setting: usize,
    /// Index into the workloads.
    pub workload: usize,
    /// Which repetition.
    pub block: u32,
    /// The figure that stands out.
    pub metric: Metric,
    /// Its value in this run.
    pub value: f64,
    /// The median of the cell's runs.
    pub median: f64,
}

/// Checks of one name that failed in one cell.
#[derive(Clone, Debug, PartialEq)]
pub struct FailedCheck {
    /// Index into the settings.
    pub setting: usize,
    /// Index into the workloads.
    pub workload: usize,
    /// The check's name.
    pub name: String,
    /// In how many runs.
    pub runs: usize,
    /// The figures of the first.
    pub detail: String,
}

/// What to set, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Recommendation {
    /// The goal in full.
    pub goal: String,
    /// Index of the recommended setting.
    pub setting: usize,
    /// Whether the difference against the first setting is proven (its interval excludes none).
    pub proven: bool,
    /// The objective against the first setting, as a paired ratio; `None` if the first setting itself
    /// is recommended.
    pub against_first: Option<Estimate>,
    /// Two or three sentences: the difference, its interval, and what it costs elsewhere.
    pub reason: Vec<String>,
}
