//! Parts that several kinds of traffic share.

use latput_units::Nanos;
use serde::{Deserialize, Serialize};

/// The direction of bulk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// The generator to the system under test: `tcp_stream`.
    #[default]
    ToSut,
    /// The system under test to the generator: `tcp_maerts` (netperf's name: stream, backwards).
    FromSut,
    /// Both at once, on separate connections: `tcp_bidir`.
    Both,
}

/// The distribution of times between events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Distribution {
    /// Constant.
    Fixed,
    /// Exponential: a Poisson process, which cannot lock onto a timer's phase.
    #[default]
    Exponential,
}

/// The arrivals of an open loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrivals {
    /// Requests per second, over all connections.
    pub rate_per_s: u32,
    /// Distribution of the gaps between requests.
    pub gaps: Distribution,
}

/// Time a server takes before it answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Think {
    /// Mean; zero means no think time.
    pub mean: Nanos,
    /// Distribution of the think time.
    pub distribution: Distribution,
}
