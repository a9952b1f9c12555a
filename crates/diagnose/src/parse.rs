//! Readers of the kernel's files and of tools' outputs. Each takes a text and gives `None` where it is not of that form.

pub(crate) mod counters;
pub(crate) mod cpus;
pub(crate) mod interrupts;
pub(crate) mod qdiscs;
pub(crate) mod settings;
pub(crate) mod sockets;
