//! The common ground of a run and its testbeds: trials, their checks, and their errors.
//!
//! Read [`trials`] first: the traits that a testbed implements and a run uses. [`checks`] are made of every trial, and
//! [`error`] says what the hosts are left in.

pub mod checks;
pub mod error;
pub mod trials;

pub use error::Error;
