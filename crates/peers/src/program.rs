//! The programs that latput can measure against.

use serde::{Deserialize, Serialize};

use crate::{iperf3, netperf};

/// The programs that latput can measure against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PeerProgram {
    /// An unmodified `iperf3 -s`.
    Iperf3,
    /// An unmodified `netserver`, 2.7.0 or later.
    Netperf,
}

impl PeerProgram {
    /// The name in URLs and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Iperf3 => "iperf3",
            Self::Netperf => "netperf",
        }
    }

    pub(crate) const fn default_port(self) -> u16 {
        match self {
            Self::Iperf3 => iperf3::PORT,
            Self::Netperf => netperf::PORT,
        }
    }
}
