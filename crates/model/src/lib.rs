//! Turns rows into cells with intervals, the trade-off (Pareto) set and the recommendation for a
//! goal.
//!
//! Pure: no I/O, no clock, no threads.

mod cell;
pub mod compare;
mod confirmation;
pub mod explain;
pub mod fit;
mod fitness;
pub mod goal;
pub mod groups;
pub mod history;
pub mod labels;
pub mod live;
pub mod pairs;
mod pareto;
pub mod predicted;
mod recommend;
mod runs;
pub mod search;
pub mod summary;
#[cfg(test)]
mod synthetic;
mod warning;
mod words;

pub use compare::{Comparison, compare};
pub use fit::{CostModel, Term, fit};
pub use fitness::{Disturber, Fitness};
pub use goal::{Goal, GoalError};
pub use groups::ConnectionGroups;
pub use labels::ShortLabels;
pub use pairs::{PairsSummary, PairsVerdict};
pub use predicted::{Prediction, predicted};
pub use recommend::{
    EarlyAnswer, Eliminated, Headline, LARGEST_MISSED, Looks, ObjectiveChange, SettingVerdict,
    SmallestEffect, banned, early_answer, eliminated, objective_center, objective_ratio,
    objective_scatter, recommendation,
};
pub use search::Search;
pub use summary::{Cell, ProvenBy, Recommendation, Summary, too_wide};
