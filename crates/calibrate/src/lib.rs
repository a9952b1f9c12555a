//! Calibration: the few costs of a simulator profile, fitted to figures that were measured.
//!
//! A [`Search`] moves the [`Parameter`]s of a profile until its predictions meet the figures. Who has the figures says
//! how they are predicted: [`twin()`] has the rows of a live host pair, `latput-reproduce` has published cells.
//! Pure: running simulations in parallel is for the edge.

pub mod parameter;
mod result;
mod search;
mod twin;

pub use self::parameter::{Fixed, Free, Generators, Parameter};
pub use self::result::{Combination, ErrorSummary, FittedCost};
pub use self::search::{Effort, OTHER_SEED, Residuals, Search, SearchPoint, Weighed, misfit};
pub use self::twin::{Job, PLAN, Predicted, Twin, TwinError, twin};
