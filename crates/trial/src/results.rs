//! A results file as the report and the model see it.

use latput_knobs::Setting;
use serde::{Deserialize, Serialize};

use crate::observation::{Observation, Role};
use crate::workload::Workload;

/// One run: what was asked, where, and every finished trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// The plan's name.
    pub name: String,
    /// The goal, as the plan has it.
    pub goal: Option<String>,
    /// Confidence of intervals, such as 0.99.
    pub confidence: f64,
    /// Wanted half width of the interval of a rate, as a share of it, such as 0.025.
    pub half_width: f64,
    /// `lab`, or the testbed file's name.
    pub testbed: String,
    /// latput's version.
    pub latput_version: String,
    /// The seed of the order of trials.
    pub seed: u64,
    /// The hosts, in the order of each observation.
    pub hosts: Vec<HostFacts>,
    /// The settings; a row names one by its index. The first is the one that others are compared to.
    pub settings: Vec<LabelledSetting>,
    /// The workloads; a row names one by its index.
    pub workloads: Vec<Workload>,
    /// The finished trials in the order they ran.
    pub rows: Vec<Row>,
    /// Trials that were planned at least (blocks may be added until intervals are narrow enough).
    pub planned_trials: u64,
    /// Remarks of the run: why it stopped, what it could not do.
    pub notes: Vec<String>,
    /// Of a search: the first block of the fresh runs that confirm its winner. The recommendation rests
    /// on these alone, since the runs that made it the winner flatter it.
    #[serde(default)]
    pub confirmed_from: Option<u32>,
}

/// A setting of the plan and what it is called in tables.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LabelledSetting {
    /// `gro-flush-timeout=50us`.
    pub label: String,
    /// What each host is set to, by role; a host whose role is not named is left alone.
    pub by_role: std::collections::BTreeMap<Role, Setting>,
}

/// One finished trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Which repetition of the whole plan, from 0; differences are paired within a block.
    pub block: u32,
    /// Index into [`Results::settings`].
    pub setting: usize,
    /// Index into [`Results::workloads`].
    pub workload: usize,
    /// Start, milliseconds since 1970.
    pub started_unix_ms: u64,
    /// What was measured.
    pub observation: Observation,
}

/// What a reader must know of a host to judge its figures.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostFacts {
    /// The name in the testbed.
    pub host: String,
    /// Its role.
    pub role: Role,
    /// The measured interface.
    pub interface: String,
    /// Kernel, driver, CPU model, governor and so on, as `key` and `value`.
    pub facts: Vec<(String, String)>,
}
