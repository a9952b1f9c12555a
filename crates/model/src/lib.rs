//! Turns rows into cells with intervals, the trade-off (Pareto) set and the recommendation for a
//! goal.
//!
//! Pure: no I/O, no clock, no threads.

#![cfg_attr(not(test), warn(clippy::wildcard_enum_match_arm))]

pub mod compare;
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
pub mod stage;
pub mod summary;
#[cfg(test)]
mod synthetic;
pub mod tried;
mod words;

pub use compare::{Comparison, compare_settings};
pub use fit::{CostModel, CostTerm, fit_cost_models};
pub use fitness::{DisturbingProcess, RunFitness};
pub use goal::{Goal, GoalError};
pub use groups::ConnectionGroups;
pub use labels::ShortLabels;
pub use pairs::{PairsSummary, PairsVerdict};
pub use predicted::{PredictionReport, compare_prediction};
pub use recommend::{
    EarlyAnswer, EliminatedSetting, Headline, LARGEST_MISSED, ObjectiveChange, PlannedLooks,
    SettingVerdict, SmallestEffect, banned_settings, blocks_to_next_look, early_answer,
    find_eliminated, objective_center, objective_ratio, objective_scatter, recommend_setting,
};
pub use search::Search;
pub use summary::{CellSummary, ProvenBy, Recommendation, ResultsSummary, too_wide};
pub use tried::{TriedSetting, TriedVerdict};
