//! Holds an interface at a goal while its load changes: samples its counters, lets a policy of
//! `latput-policy` decide, and moves the delay of its interrupts or polls.
//!
//! Every change goes through a transaction of `latput-knobs`, so that the interface goes back to what it
//! was when the holding ends, however it ends. One thread, one loop, no root but `CAP_NET_ADMIN`.

pub mod goal;
pub mod status;

mod error;
mod governor;
mod hand;
mod hold;
mod lever;
mod meter;
mod metrics;
mod notify;
mod pace;
mod serve;

pub use error::Error;
pub use goal::{Goal, GoalError};
pub use hold::{Hold, Options};
pub use serve::{MetricsAddress, ask};
pub use status::Status;
