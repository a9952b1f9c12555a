//! A results file as the report and the model read it.

use std::collections::BTreeSet;

use latput_knobs::Setting;
use latput_units::IntoSet;
use serde::{Deserialize, Serialize};

use crate::metric::CustomMetric;
use crate::observation::{Observation, Role};
use crate::surroundings::Finding;
use crate::today::HostToday;
use crate::workload::Workload;

/// One run: its plan, hosts and finished trials.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// The plan's name.
    pub name: String,
    /// The goal, as in the plan.
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
    /// The settings; a row refers to one by its index. Others are compared with the first, which is
    /// today's where [`today`](Self::today) tells.
    pub settings: Vec<LabelledSetting>,
    /// The workloads; a row refers to one by its index.
    pub workloads: Vec<Workload>,
    /// The finished trials in the order they ran.
    pub rows: Vec<Row>,
    /// Fewest planned trials (blocks may be added until intervals are narrow enough).
    pub planned_trials: u64,
    /// Remarks of the run, such as why it stopped.
    pub notes: Vec<String>,
    /// The first block of the fresh runs that confirm the winner of a search. Only these runs
    /// support the recommendation, because the runs that selected the winner are biased in its
    /// favour.
    #[serde(default)]
    pub confirmed_from: Option<u32>,
    /// The results file that they were loaded from, as it was named.
    #[serde(skip)]
    pub source: Option<String>,
    /// The hosts' values of the plan's knobs before the run, which the first setting has. Empty if they are
    /// not known, as in files of earlier versions.
    #[serde(default)]
    pub today: Vec<HostToday>,
    /// Disturbances that could reach the trials, as found on the hosts before the first.
    #[serde(default)]
    pub findings: Vec<Finding>,
    /// Whether the hosts' other work is part of the case, as the plan says: it makes no trial unfit, and the answer
    /// holds beside it.
    #[serde(default)]
    pub beside: bool,
}

/// The remark on results that came out of a report.
const IMPORTED: &str =
    "imported from a report: its trials were measured elsewhere and may have been edited";

/// Beginning of the testbed of results that another program's files give.
const FOREIGN: &str = "import:";

/// The start of a note with the checksums of imported records that tell no time.
pub const RECORDS_NOTE: &str = "records without a time, by their checksums: ";
/// The start of a note with the checksums of the names that imported tests have.
pub const NAMES_NOTE: &str = "tests with a name of their own, by its checksums: ";

impl Results {
    /// The notes for people: without those by which a later import knows its tests again.
    pub fn notes_to_show(&self) -> impl Iterator<Item = &String> {
        let starts = [RECORDS_NOTE, NAMES_NOTE];
        self.notes.iter().filter(move |note| !starts.iter().any(|start| note.starts_with(start)))
    }

    /// Name of the testbed of results that files of `program` give.
    pub fn testbed_of_program(program: &str) -> String {
        format!("{FOREIGN}{program}")
    }

    /// The program whose files they are. Their order is that of the files, and says nothing of the trials.
    pub fn other_program(&self) -> Option<&str> {
        self.testbed.strip_prefix(FOREIGN)
    }

    /// Reads results from JSON.
    ///
    /// This compiles the readers of all parts in this crate. The crates above share them. Otherwise each compiles its own.
    ///
    /// # Errors
    ///
    /// What is no JSON, or other than results.
    pub fn from_json(bytes: &[u8]) -> serde_json::Result<Self> {
        serde_json::from_slice(bytes)
    }

    /// As JSON.
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self)
            .expect("results have text keys and finite numbers only, so they always serialise")
    }

    /// The metrics of the plan's own that any trial has, by name.
    pub fn custom_metrics(&self) -> BTreeSet<CustomMetric> {
        self.rows.iter().flat_map(|row| row.observation.figures.keys().copied()).into_set()
    }

    /// Whether they are of live traffic, on one host.
    pub fn is_live(&self) -> bool {
        self.workloads.iter().any(|load| load.live.is_some())
    }

    /// Whether live traffic was only watched, so that there is nothing to recommend.
    pub fn is_observed(&self) -> bool {
        self.workloads.iter().any(|load| load.live.as_ref().is_some_and(|live| live.observe))
    }

    /// Marks results that came out of a report as such. Nothing takes the mark off again.
    pub fn mark_imported(&mut self) {
        if !self.is_imported() {
            self.notes.insert(0, IMPORTED.to_owned());
        }
    }

    /// Whether they came out of a report.
    pub fn is_imported(&self) -> bool {
        self.notes.iter().any(|note| note == IMPORTED)
    }
}

/// A setting of the plan with its name in tables.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LabelledSetting {
    /// `gro-flush-timeout=50us`.
    pub label: String,
    /// The values to set, by role. Hosts of other roles are left alone.
    pub by_role: std::collections::BTreeMap<Role, Setting>,
}

/// One finished trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Repetition of the whole plan, from 0; differences are paired within a block.
    pub block: u32,
    /// Index into [`Results::settings`].
    pub setting: usize,
    /// Index into [`Results::workloads`].
    pub workload: usize,
    /// Start, milliseconds since 1970.
    pub started_unix_ms: u64,
    /// The measurements.
    pub observation: Observation,
}

/// The facts of a host that a reader needs to judge its figures.
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
