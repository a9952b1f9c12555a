//! The controller's side of trials on hosts.
//!
//! Read [`agent_pool`] first: the agents of a testbed, and the trials that are run with them. [`vm`] runs trials in a guest,
//! and [`third_party`] against a program of others. [`discover`] chooses the interfaces of two hosts, and [`hosts`] checks
//! those of a testbed. [`looks`] records what a diagnosis reads of hosts.

pub mod agent_pool;
mod clock;
mod combine;
pub mod discover;
pub mod hosts;
pub mod looks;
pub mod shared_cpus;
pub mod third_party;
pub mod vm;
