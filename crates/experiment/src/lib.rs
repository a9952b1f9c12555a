//! Runs a plan on a testbed: agents over stdio, the order of trials, the stopping rule and the
//! results file.
//!
//! Read [`session`] first; then [`simulator`] for trials that are computed, or `crew` for trials on
//! hosts (`vm`: in a guest) with [`controller`] and [`agent`], the two ends of the control line, [`protocol`] for what goes
//! over it, and [`archive`] for where finished trials are kept.

pub mod agent;
pub mod archive;
pub mod checks;
mod clock;
mod combine;
pub mod controller;
mod crew;
pub mod error;
pub mod fuzzing;
pub mod host;
pub mod host_spec;
pub mod interval;
mod lacking;
pub mod protocol;
mod refusal;
mod runner;
pub mod session;
pub mod simulator;
mod stock;
pub mod testbed;
mod vm;

pub use archive::Archive;
pub use error::{Error, ErrorKind};
pub use session::{Ended, Progress, run};
pub use testbed::Testbed;
