//! The part of latput that runs on a host of a testbed.
//!
//! Read [`agent`] first: it answers a controller and makes the traffic, without rights. Its [`keeper`] does what needs
//! rights, on the `host`. [`program`] runs the programs of `command` workloads. [`brought`] is of a host to which this
//! program was copied.

pub mod agent;
pub mod brought;
mod host;
pub mod keeper;
mod keeper_line;
mod lease;
pub mod program;
