//! The traffic of a trial.

use latput_units::{BitsPerSecond, Bytes};
use serde::{Deserialize, Serialize};

/// One load, and what observes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Workload {
    /// Short and unique in its plan: `tcp_rr burst=16`.
    pub name: String,
    /// What flows between the load generator and the system under test.
    pub traffic: Traffic,
    /// A latency probe beside the traffic.
    pub probe: Option<Probe>,
}

/// What flows between the load generator and the system under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Traffic {
    /// Request and response on TCP, closed loop: a response lets the next request go.
    TcpRr {
        /// Size of a request.
        request_bytes: Bytes,
        /// Size of a response.
        response_bytes: Bytes,
        /// Requests in flight on each connection beside the first (netperf's "first burst").
        burst: u32,
        /// Connections, all on one thread of each end.
        connections: u32,
        /// Whether `TCP_NODELAY` is set at both ends.
        nodelay: bool,
    },
    /// Bulk from the generator to the system under test on TCP.
    TcpStream {
        /// Size of one send.
        message_bytes: Bytes,
        /// Connections, all on one thread of each end.
        connections: u32,
    },
    /// Datagrams from the generator to the system under test, paced.
    UdpStream {
        /// Payload of one datagram.
        datagram_bytes: Bytes,
        /// Offered payload rate, evenly spaced.
        rate: BitsPerSecond,
    },
}

impl Traffic {
    /// The name that plans and the command line use.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::TcpRr { .. } => "tcp_rr",
            Self::TcpStream { .. } => "tcp_stream",
            Self::UdpStream { .. } => "udp_stream",
        }
    }
}

/// ICMP echo at a fixed rate beside the traffic, sent by the generator: latency under load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Probe {
    /// Echo requests per second, evenly spaced whatever comes back.
    pub rate_hz: u32,
}
