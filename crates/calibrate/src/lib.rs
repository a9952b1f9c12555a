//! Calibration: the few costs of a simulator profile, fitted to figures that were measured.
//!
//! A [`CostSearch`] moves the [`Parameter`]s of a profile until its predictions fit the figures. The
//! owner of the figures defines their prediction: [`calibrate_twin`] uses the rows of a live host pair,
//! `latput-reproduce` uses published cells. Pure: the edge crate runs the simulations in parallel.

pub mod parameter;
mod result;
mod search;
mod twin;

pub use self::parameter::{FixedParameter, FreeParameter, GeneratorCosts, Parameter};
pub use self::result::{CostCombination, ErrorSummary, FittedCost};
pub use self::search::{
    CostSearch, OTHER_SEED, Residuals, SearchEffort, SearchPoint, WeightedResidual, compute_misfit,
};
pub use self::twin::{PLAN, PredictedFigures, SimulationJob, Twin, TwinError, calibrate_twin};
