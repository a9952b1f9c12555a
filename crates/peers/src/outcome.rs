//! The result of one trial against a third-party peer: this end's figures and the peer's own
//! report.

use std::collections::BTreeMap;

use latput_trial::Metric;
use latput_trial::observation::{Check, ProgramCpu, TrafficObservation};
use serde::{Deserialize, Serialize};

/// One trial against a third-party peer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PeerResult {
    /// The traffic.
    pub traffic: TrafficObservation,
    /// Figures that only the peer reports, without their counts.
    pub reported_metrics: BTreeMap<Metric, f64>,
    /// The peer's own CPU figure, with its method.
    pub programs: Vec<ProgramCpu>,
    /// The checks of the trial.
    pub checks: Vec<Check>,
}

impl PeerResult {
    /// Stores a finite figure; other values are absent.
    pub(crate) fn set_metric(&mut self, metric: Metric, value: f64) {
        if value.is_finite() && value >= 0.0 {
            self.reported_metrics.insert(metric, value);
        }
    }

    pub(crate) fn add_check(&mut self, name: &str, passed: bool, detail: String) {
        self.checks.push(Check { name: name.to_owned(), passed, detail });
    }
}
