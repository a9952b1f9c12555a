//! Runs a plan on a testbed: agents over stdio, the order of trials, the stopping rule and the
//! results file.
//!
//! Read [`session`] first. Then read [`simulator`] for simulated trials, or `agent_pool` for trials
//! on hosts (`vm` for those of a guest), with [`controller`] and [`agent`], the two ends of the
//! control line, and [`keeper`], which does what needs rights. [`broker`] does so for a controller. [`protocol`] has their messages, and [`results_db`] keeps finished trials.

pub mod agent;
mod agent_pool;
pub mod ask_tell;
pub mod bring;
pub mod broker;
pub mod checks;
mod child;
mod clock;
mod combine;
pub mod controller;
pub mod discover;
pub mod error;
mod figure_line;
pub mod fuzzing;
pub mod held_guest;
mod held_lab;
pub mod host;
pub mod host_spec;
pub mod host_view;
pub mod hosts;
pub mod interval;
pub mod keeper;
mod lease;
pub mod live;
pub mod parallel;
mod passing;
pub mod program;
pub mod protocol;
mod read_back;
mod refusal;
pub mod results_db;
mod runner;
pub mod session;
pub mod shard;
mod shared_cpus;
pub mod simulator;
pub mod target;
pub mod testbed;
mod third_party;
mod unsupported;
mod vm;

pub use error::Error;
pub use results_db::ResultsDb;
pub use session::{RunOutcome, RunProgress, run};
pub use shard::{RunPart, Shard};
pub use testbed::Testbed;
