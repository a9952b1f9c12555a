//! The division of a window into slices.

use latput_units::Nanos;
use serde::{Deserialize, Serialize};

/// The division of a window: `count` slices of `length` without gaps. The first `cut` of each slice
/// is not measured, and in the first slices more than that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SliceLayout {
    /// Length of each slice, including its cut.
    pub length: Nanos,
    /// The unmeasured part at the start of each slice.
    pub cut: Nanos,
    /// Number of slices, 1 to 1000.
    pub count: u32,
    /// Number of slices at the start that have `long_cut` in the place of `cut`.
    pub long_cuts: u32,
    /// Their cut.
    pub long_cut: Nanos,
}

impl SliceLayout {
    /// Slices that all have the same cut.
    pub const fn new(length: Nanos, cut: Nanos, count: u32) -> Self {
        Self { length, cut, count, long_cuts: 0, long_cut: cut }
    }

    /// Length of all slices together.
    pub fn total_length(&self) -> Nanos {
        self.length.saturating_mul(u64::from(self.count))
    }

    /// The cut of slice `idx`, counted from 0.
    pub const fn cut_of(&self, idx: u32) -> Nanos {
        if idx < self.long_cuts { self.long_cut } else { self.cut }
    }

    /// Length of the measured part of slice `idx`.
    pub const fn measured_length(&self, idx: u32) -> Nanos {
        self.length.saturating_sub(self.cut_of(idx))
    }
}
