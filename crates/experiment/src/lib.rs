//! Runs a plan on a testbed: agents over stdio, the order of trials, the stopping rule and the
//! results file.
//!
//! Read [`session`] first; then [`simulator`] for trials that are computed, or `pool` for trials on
//! hosts (`vm`: in a guest) with [`controller`] and [`agent`], the two ends of the control line, [`protocol`] for what goes
//! over it, and [`results_db`] for where finished trials are kept.

pub mod agent;
mod agent_pool;
pub mod checks;
mod clock;
mod combine;
pub mod controller;
pub mod error;
pub mod fuzzing;
pub mod host;
pub mod host_spec;
pub mod interval;
pub mod protocol;
mod refusal;
pub mod results_db;
mod runner;
pub mod session;
pub mod simulator;
pub mod testbed;
mod third_party;
mod unsupported;
mod vm;

pub use error::Error;
pub use results_db::ResultsDb;
pub use session::{Ended, Progress, run};
pub use testbed::Testbed;
