//! Holds an interface at a goal while its load changes: samples its counters, lets a policy of
//! `latput-policy` decide, and moves the delay of its interrupts or polls.
//!
//! Every change goes through a transaction of `latput-knobs`, so that the interface goes back to what it
//! was when the holding ends, however it ends. One thread, one loop, no root but `CAP_NET_ADMIN`.

pub mod goal;
pub mod status;

mod daemon;
mod delay_knob;
mod error;
mod governor;
mod interface_handle;
mod meter;
mod metrics;
mod metrics_server;
mod notify;
mod proposals;
mod sampling;
mod serve;

pub use daemon::{Daemon, DaemonOptions};
pub use error::Error;
pub use goal::{Goal, GoalError};
pub use metrics_server::serve_metrics;
pub use serve::{METRICS_SERVER, MetricsAddress, request_status};
pub use status::Status;
