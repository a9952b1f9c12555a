//! Knobs, settings, and the transaction that changes them.
//!
//! Pure: the kernel is reached through [`KernelRead`] and [`KernelWrite`], which `latput-linux` (the
//! real one) and `latput-testkit` (one that rounds, refuses and delays) implement, and checkpoints
//! through [`CheckpointStore`].

pub mod catalogue;
pub mod kernel;
pub mod value;

pub use catalogue::Knob;
pub use kernel::{Capability, KernelError, KernelErrorKind, KernelRead, KernelWrite};
pub use value::{Place, Setting, State, Value};
