//! Third-party programs at the far end: measures against an unmodified iperf3 server or netserver.
//!
//! [`Peer`] parses a URL such as `iperf3://192.0.2.7`, checks that the program supports a workload,
//! and opens a [`PeerSession`]. latput's own loops make the traffic (`latput_load::PeerTraffic`).
//! Read [`peer`] first, then [`iperf3`] or [`netperf`].

pub mod error;
pub mod iperf3;
pub mod netperf;
pub mod outcome;
pub mod peer;
pub mod program;

mod control;
mod support;
mod window_cpu;

pub use error::{Error, ErrorKind};
pub use outcome::PeerResult;
pub use peer::{Peer, PeerSession};
