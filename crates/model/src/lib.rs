//! From rows to answers: cells with intervals, the trade-off (Pareto) set, and the recommendation for
//! a goal.
//!
//! Pure: no I/O, no clock, no threads.

pub mod goal;
pub mod summary;

pub use goal::Goal;
pub use summary::{Cell, Recommendation, Summary};
