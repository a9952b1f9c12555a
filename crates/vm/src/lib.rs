//! One QEMU guest with real drivers on emulated network cards: its kernel, its initramfs, the first
//! process in it, and the line over which the host runs commands there.
//!
//! On the host [`Guest::start`] finds QEMU, a kernel and a static latput, packs an initramfs and
//! boots it; [`GuestCommand`] runs commands inside. In the guest the same program is process 1: [`init::run`]
//! makes two hosts of the two cards, each in a network namespace of its own, and serves the line.
//! Nothing in the guest has a way out: its two cards are on a hub that is connected to nothing else.

mod binary;
mod config;
mod console;
mod error;
mod frame;
mod guest;
mod initramfs;
mod kernel;
mod line;
mod modules;
mod qemu;
mod spec;

pub mod init;
pub mod probe;

pub use binary::is_static;
pub use config::{ENDPOINTS, GuestEndpoint, PROGRAM};
pub use error::Error;
pub use frame::CommandExit;
pub use guest::Guest;
pub use kernel::beside_program;
pub use line::{CommandEvent, CommandOutput, GuestCommand};
pub use qemu::QmpMonitor;
pub use spec::{CardDriver, E1000_PARAMETERS, GuestSpec};
