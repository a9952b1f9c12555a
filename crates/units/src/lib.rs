//! Quantities with their units, so that no bare number with a unit crosses a public function.
//!
//! Pure: no I/O, no clock of its own ([`Clock`] is a trait that the edges implement), no threads.

pub mod collect;
pub mod cpu;
pub mod file_words;
pub mod printable;
pub mod quantity;
pub mod rng;
pub mod spelling;
pub mod text;

pub use collect::{IntoMap, IntoSet};
pub use cpu::{CpuId, CpuSet};
pub use quantity::{BitsPerSecond, Bytes, Nanos, ParseQuantityError};
pub use rng::SeededRng;

/// A source of monotonic time. The operating system's is in `latput-linux`, the simulator has its
/// own; everything that decides is told the time and never asks for it.
pub trait Clock {
    /// Time since an arbitrary, fixed start; never goes back.
    fn now(&self) -> Nanos;
}
