//! Requests of an agent's process to its keeper, and the answers: the whole list.

use latput_protocol::control::{Answer, EarlyEnd, Request, SettingTurns};
use latput_trial::observation::{HostObservation, InterfaceCounters};
use latput_units::Nanos;
use serde::{Deserialize, Serialize};

/// A message to the keeper.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum KeeperMessage {
    /// Do this, and reply.
    Do(Box<KeeperOperation>),
    /// The traffic has reached its count, or a guard of the agent's is broken, which ends the counting.
    CountReached,
    /// End what is being done.
    Halt,
    /// The agent is alive; the keeper replies the same.
    Alive,
}

/// Operation of a keeper.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum KeeperOperation {
    /// A request that is about the host and not about traffic. Any other is refused.
    Host(Box<Request>),
    /// Count over the window, or in each of its slices.
    Count(CountRequest),
}

/// The window to count in, as in [`Request::Go`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CountRequest {
    pub(crate) at: Nanos,
    pub(crate) warmup: Nanos,
    pub(crate) duration: Nanos,
    pub(crate) turns: Option<SettingTurns>,
    /// Whether [`KeeperMessage::CountReached`] may come, and how soon it is to be heard.
    pub(crate) early_end: EarlyEnd,
    /// Whether programs of the user's make the traffic.
    pub(crate) is_of_programs: bool,
}

/// A message from the keeper.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum KeeperReply {
    /// It is done, or has failed.
    Answer(Answer),
    /// The interface's counters, while it counts.
    Snapshot { at: Nanos, interface: InterfaceCounters },
    /// It has counted.
    Counted(WindowCounts),
    /// The keeper is alive.
    Alive,
}

/// Counts of a window.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WindowCounts {
    /// Of each slice, or of the window: the counters, and the duration of the change before.
    pub(crate) slices: Vec<(HostObservation, Nanos)>,
    /// Knobs that changed meanwhile, in sentences.
    pub(crate) drift: Vec<String>,
    /// Quotas and heat that held the host back, in sentences.
    pub(crate) held_back: Vec<String>,
    /// Knobs that were left to somebody else, in sentences.
    pub(crate) left: Vec<String>,
}
