//! The controller's side of trials on hosts.
//!
//! Read [`controller`] first: the lines to the agents of a testbed. `agent_pool` runs trials with them, [`vm`] in a guest,
//! and [`third_party`] against a program of others. [`discover`] chooses the interfaces of two hosts, and [`hosts`] checks
//! those of a testbed. [`looks`] records what a diagnosis reads of hosts.

mod agent_pool;
mod clock;
mod combine;
pub mod controller;
pub mod discover;
pub mod hosts;
mod interval;
pub mod looks;
pub mod shared_cpus;
pub mod third_party;
pub mod vm;
