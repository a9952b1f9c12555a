//! What came of one trial against a stock peer: latput's own figures of this end, and what the peer
//! said of its own.

use std::collections::BTreeMap;

use latput_trial::Metric;
use latput_trial::observation::{Check, ProgramCpu, TrafficObservation};

/// One trial against a stock peer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PeerResult {
    /// The traffic.
    pub traffic: TrafficObservation,
    /// Figures that only the peer could give, without the counts behind them.
    pub reported_metrics: BTreeMap<Metric, f64>,
    /// The peer's own CPU figure, with its method.
    pub programs: Vec<ProgramCpu>,
    /// What was checked.
    pub checks: Vec<Check>,
}

impl PeerResult {
    /// Keeps a figure that is a number; what is not is absent.
    pub(crate) fn give(&mut self, metric: Metric, value: f64) {
        if value.is_finite() && value >= 0.0 {
            self.reported_metrics.insert(metric, value);
        }
    }

    pub(crate) fn check(&mut self, name: &str, passed: bool, detail: String) {
        self.checks.push(Check { name: name.to_owned(), passed, detail });
    }
}
