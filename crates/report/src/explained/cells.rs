//! The cells that are explained.

use latput_model::explain::{CellExplanation, KnobEffect, explain_cells, predict_effects};
use latput_model::fit::{CostModel, FitError, fit_cost_models};
use latput_trial::Results;

use super::ExplainDocument;

/// Confidence of the costs' intervals. That of a run is for many comparisons at once.
const COST_CONFIDENCE: f64 = 0.95;

/// Why nothing can be explained.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExplainError {
    /// No workload's name contains the text.
    #[error("workload {name}: no workload has this in its name; the workloads are {there}")]
    Workload {
        /// The text.
        name: String,
        /// The names of the workloads.
        there: String,
    },
    /// No setting's label contains the text.
    #[error("setting {part}: no label has this in it; the settings are {there}")]
    Setting {
        /// The text.
        part: String,
        /// The labels of the settings.
        there: String,
    },
    /// The rows have no costs.
    #[error(transparent)]
    Fit(#[from] FitError),
}

/// The parts of the time in cells of a run.
#[derive(Debug)]
pub struct RunExplanation<'a> {
    pub(super) results: &'a Results,
    pub(super) models: Vec<CostModel>,
    pub(crate) cells: Vec<CellExplanation>,
    pub(super) effects: Vec<KnobEffect>,
}

impl<'a> RunExplanation<'a> {
    /// Explains the cells whose workload's name contains one of `workloads` (any without) and whose setting's label
    /// contains `setting`.
    ///
    /// # Errors
    ///
    /// If there is no such workload or setting, or the rows have no CPU time.
    pub fn new(
        results: &'a Results,
        workloads: &[String],
        setting: Option<&str>,
    ) -> Result<Self, ExplainError> {
        let loads = select_workloads(results, workloads)?;
        let is_set = |label: &str| setting.is_none_or(|part| label.contains(part));
        if !results.settings.iter().any(|setting| is_set(&setting.label)) {
            let there: Vec<&str> = results.settings.iter().map(|set| set.label.as_str()).collect();
            let part = setting.unwrap_or_default().to_owned();
            return Err(ExplainError::Setting { part, there: there.join(", ") });
        }
        let models = fit_cost_models(results, |load| loads[load], COST_CONFIDENCE)?;
        let mut cells = explain_cells(results, &models);
        cells.retain(|it| loads[it.workload] && is_set(&results.settings[it.setting].label));
        let mut effects = predict_effects(results, &models);
        effects.retain(|effect| loads[effect.workload]);
        Ok(Self { results, models, cells, effects })
    }

    /// The document of `latput explain --json`.
    pub fn to_document(&self) -> ExplainDocument {
        ExplainDocument::new(self.results, &self.models, &self.cells, &self.effects)
    }
}

/// For each workload, whether its name contains one of `names`; all true without names.
pub fn select_workloads(results: &Results, names: &[String]) -> Result<Vec<bool>, ExplainError> {
    let of = |load: &str| names.is_empty() || names.iter().any(|name| load.contains(name.as_str()));
    let loads = || results.workloads.iter().map(|load| load.name.as_str());
    for name in names {
        if !loads().any(|load| load.contains(name.as_str())) {
            let there = loads().collect::<Vec<_>>().join(", ");
            return Err(ExplainError::Workload { name: name.clone(), there });
        }
    }
    Ok(loads().map(of).collect())
}
