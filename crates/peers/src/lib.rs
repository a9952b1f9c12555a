//! Other programs at the far end: measures against an unmodified iperf3 server or netserver.
//!
//! [`Peer`] reads a URL such as `iperf3://192.0.2.7`, says whether that program can do a workload, and
//! opens a [`PeerSession`]; the traffic itself is made by latput's own loops (`latput_load::PeerTraffic`). Read
//! [`peer`] first, then [`iperf3`] or [`netperf`].

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
