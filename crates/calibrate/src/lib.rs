//! Calibration: the few costs of a simulator profile, fitted to figures that were measured.
//!
//! A [`Search`] moves the [`Parameter`]s of a profile until its predictions fit the figures. The
//! owner of the figures defines their prediction: [`twin()`] uses the rows of a live host pair,
//! `latput-reproduce` uses published cells. Pure: the edge crate runs the simulations in parallel.

pub mod parameter;
mod result;
mod search;
mod twin;

pub use self::parameter::{Fixed, Free, Generators, Parameter};
pub use self::result::{Combination, ErrorSummary, FittedCost};
pub use self::search::{Effort, OTHER_SEED, Residuals, Search, SearchPoint, Weighed, misfit};
pub use self::twin::{Job, PLAN, Predicted, Twin, TwinError, twin};
