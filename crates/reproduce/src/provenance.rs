//! Origins of published rows: fitted, hand-set or predicted, from the fit plans and the table of
//! hand-set constants.
//!
//! A label is about numbers. The mechanisms were chosen with all published rows in view, including
//! those labelled predicted.

mod hand_set;

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::Serialize;

pub use self::hand_set::HandSet;
use crate::calibrate::{FitPlan, PublishedCells};
use crate::files;
pub use crate::label::{Label, RowCounts};
use crate::system::SystemCatalog;
use crate::table::CsvTable;

/// Origins of the numbers of a profile.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProfileOrigin {
    /// The profile.
    pub profile: String,
    /// The costs fitted for it; empty without a fit.
    pub free_costs: Vec<String>,
    /// Number of published rows in the fit.
    pub fitted_rows: usize,
    /// The constants set by hand.
    pub hand_set: Vec<HandSet>,
}

/// Origins of all profiles, and the published rows that determined numbers.
#[derive(Clone, Debug)]
pub struct Provenance {
    profiles: Vec<ProfileOrigin>,
    /// Files and their rows, from 1.
    fitted: BTreeSet<(String, usize)>,
}

impl Provenance {
    /// The origins of the shipped profiles and plans.
    pub fn load_shipped(systems: &SystemCatalog) -> Self {
        Self::new(&FitPlan::load_shipped().expect("the plans are shipped and tested"), systems)
    }

    /// The origins of profiles with these plans. A profile without a plan has no fitted cost.
    pub fn new(plans: &[FitPlan], systems: &SystemCatalog) -> Self {
        let mut this = Self { profiles: Vec::new(), fitted: BTreeSet::new() };
        for name in systems.profile_names() {
            let plan = plans.iter().find(|plan| plan.profile == name);
            let before = this.fitted.len();
            this.fitted.extend(plan.into_iter().flat_map(|plan| fitted_rows(plan, systems)));
            let free = plan.iter().flat_map(|plan| &plan.free);
            this.profiles.push(ProfileOrigin {
                profile: name.to_owned(),
                free_costs: free.map(|free| free.parameter.to_string()).collect(),
                fitted_rows: this.fitted.len() - before,
                hand_set: hand_set::hand_set_keys(systems.expect_profile(name), plan, systems),
            });
        }
        this
    }

    /// The profiles, by name.
    pub fn profiles(&self) -> &[ProfileOrigin] {
        &self.profiles
    }

    /// The label of a row (from 1) of a published file. `id` is its table, run, section or own
    /// name, as constants use it.
    pub fn label_row(&self, file: &str, row: usize, id: &str) -> Label {
        if self.fitted.contains(&(file.to_owned(), row)) {
            Label::Fitted
        } else {
            self.label_id(id)
        }
    }

    /// The label of a claim of the slides on receive delay and MTU. No cost is fitted to claims.
    pub fn label_claim(&self, id: &str) -> Label {
        self.label_id(id)
    }

    fn label_id(&self, id: &str) -> Label {
        let mut constants = self.profiles.iter().flat_map(|profile| &profile.hand_set);
        if constants.any(|constant| constant.meets.contains(&id)) {
            Label::HandSet
        } else {
            Label::Predicted
        }
    }
}

/// The files and rows of a plan's fit.
fn fitted_rows(plan: &FitPlan, systems: &SystemCatalog) -> Vec<(String, usize)> {
    let of_file = |name: &String| {
        let file = name.trim_end_matches(".csv");
        let (_, text) = files::FILES
            .iter()
            .find(|(published, _)| *published == file)
            .expect("plans name published files; a test sees to it");
        let table = CsvTable::parse(text).expect("the file is shipped and tested");
        let cells =
            PublishedCells::from_tables(vec![(name.clone(), table)], &plan.profile, systems)
                .expect("the file is shipped and tested")
                .asked_by(plan);
        cells.row_numbers().map(|row| (file.to_owned(), row)).collect::<Vec<_>>()
    };
    plan.cells.iter().flat_map(of_file).collect()
}

#[cfg(test)]
mod tests;
