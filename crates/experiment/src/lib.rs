//! Runs a plan on a testbed: the order of trials, the stopping rule and the search.
//!
//! Read [`session`] first. Then read [`testbed`], which opens what runs the trials: [`simulator`], or hosts. [`ask_tell`] is
//! a search by another optimiser.

pub mod ask_tell;
pub mod parallel;
mod read_back;
mod refusal;
pub mod session;
pub mod simulator;
pub mod testbed;
mod unsupported;

pub use session::{RunOutcome, RunPart, RunProgress, run};
pub use testbed::Testbed;
