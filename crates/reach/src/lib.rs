//! How a host is reached: the words that name one, and the process that starts latput there.
//!
//! Read [`target`] and [`testbed_file`] first: hosts in words. Then read [`broker`], the process with rights that starts
//! latput on them. [`bring`] takes latput along to a host that has none. [`held_lab`] and [`held_guest`] are hosts that
//! latput makes itself.

pub mod bring;
pub mod broker;
mod child;
pub mod error;
pub mod held_guest;
pub mod held_lab;
pub mod host_spec;
pub mod target;
pub mod testbed_file;

pub use error::Error;
