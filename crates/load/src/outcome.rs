//! What each end brings home, and how the two halves become an observation.

use latput_stats::Histogram;
use latput_trial::Check;
use latput_trial::observation::{ProbeObservation, TrafficObservation};
use latput_units::Nanos;
use serde::{Deserialize, Serialize};

/// The generator's half of a trial, over its window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SenderOutcome {
    /// Length of the window.
    pub window: Nanos,
    /// Payload bytes that the kernel took.
    pub sent_bytes: u64,
    /// Completed transactions, of a request/response load.
    pub transactions: Option<u64>,
    /// Their round-trip times.
    pub latency: Option<Histogram>,
    /// TCP segments that this end sent again.
    pub retransmits: Option<u64>,
    /// CPU time of the traffic thread.
    pub cpu: Nanos,
}

/// The reflector's half of a trial, over its window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReceiverOutcome {
    /// Length of the window.
    pub window: Nanos,
    /// Payload bytes that the application got.
    pub received_bytes: u64,
    /// Requests that came in whole, of a request/response load.
    pub requests: Option<u64>,
    /// TCP segments that this end sent again.
    pub retransmits: Option<u64>,
    /// CPU time of the traffic thread.
    pub cpu: Nanos,
    /// Connections that showed another key, or none in time, since the port was opened.
    pub wrong_keys: u64,
}

/// Joins the two halves, and checks what can be checked from them.
pub fn combine(
    sender: &SenderOutcome,
    receiver: &ReceiverOutcome,
) -> (TrafficObservation, Option<ProbeObservation>, Vec<Check>) {
    let traffic = TrafficObservation {
        sender_window: sender.window,
        receiver_window: receiver.window,
        sent_bytes: sender.sent_bytes,
        received_bytes: receiver.received_bytes,
        transactions: sender.transactions,
        latency: sender.latency.clone(),
        datagrams: None,
        retransmits: sender.retransmits.zip(receiver.retransmits).map(|(a, b)| a + b),
        offered_bps: None,
        sender_cpu: sender.cpu,
        receiver_cpu: receiver.cpu,
    };
    (traffic, None, vec![wrong_keys(receiver)])
}

fn wrong_keys(receiver: &ReceiverOutcome) -> Check {
    Check {
        name: "wrong-keys".to_owned(),
        passed: receiver.wrong_keys == 0,
        detail: format!(
            "{} connections to the reflector's port did not show the run's key",
            receiver.wrong_keys
        ),
    }
}
