//! Errors of cells, and of whole settings, left out of the fit of costs and of the choice of `steal_after_ns`.
//!
//! The validation is nested (Stone 1974; Varma and Simon 2006, "Bias in error estimation when using cross-validation for
//! model selection"). One part is left out at a time. Inner folds of the other cells choose the value. The costs are
//! fitted to all of those cells. Then the part is predicted. Structure is not nested: the other mechanisms were chosen
//! with all cells in view. Searches begin where a fit to all cells ended, with a weak prior.

use latput_calibrate::{ErrorSummary, OTHER_SEED, SearchEffort, WeightedResidual, compute_misfit};
use latput_sim::SystemProfile;
use latput_units::Nanos;
use serde::{Deserialize, Serialize};

use super::{CellFit, FitPlan, PublishedCells, Residual};
use crate::kind::ErrorScale;
use crate::row::CsvRow;

/// Number of folds of the cells.
const FOLDS: usize = 2;
/// Candidate values of `steal_after_ns` in microseconds; 0 means at once.
const STEAL_AFTER_US: [u64; 6] = [0, 5, 10, 20, 100, 500];

/// The part `number`, from 1, of `count`: the fits whose place, counted from 0, leaves `number` - 1 when divided by `count`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartOfFits {
    /// Its number, counted from 1.
    pub number: u32,
    /// How many parts there are.
    pub count: u32,
}

impl PartOfFits {
    /// All fits in one process.
    pub const WHOLE: Self = Self { number: 1, count: 1 };

    fn has_fit(self, place: usize) -> bool {
        place % self.count.max(1) as usize + 1 == self.number as usize
    }
}

/// A fit without some cells, and what it predicts there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FitHeldOut {
    /// Its place among all fits of the validation, counted from 0.
    pub place: usize,
    /// Its predictions.
    pub figures: Vec<HeldOut>,
}

/// The cells that a fit left out.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HeldOutSplit {
    /// Every second cell of each table.
    Cells,
    /// All cells of this setting.
    Setting(String),
}

/// A figure of a cell that the fit left out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeldOut {
    /// The cells that the fit left out.
    pub split: HeldOutSplit,
    /// The cell in words.
    pub what: String,
    /// The column.
    pub column: String,
    /// Whether the figure is CPU time; otherwise it is a rate.
    pub is_cpu: bool,
    /// The published value.
    pub published: f64,
    /// The predicted value.
    pub predicted: f64,
    /// The value of `steal_after_ns` chosen by the other cells; `null` if the profile has none.
    pub steal_after_ns: Option<u64>,
}

impl HeldOut {
    /// Predicted over published, less one.
    pub fn error_ratio(&self) -> f64 {
        self.predicted / self.published - 1.0
    }
}

/// Errors of held-out figures: of held-out cells, of each held-out setting, and of all settings
/// (the last). Rates come first, then CPU time.
pub fn errors_held_out<'a>(
    held_out: impl IntoIterator<Item = &'a HeldOut>,
) -> Vec<(String, ErrorSummary)> {
    let mut groups = std::collections::BTreeMap::<(&HeldOutSplit, bool), Vec<f64>>::new();
    let all = HeldOutSplit::Setting(String::from("~ each setting in turn"));
    for figure in held_out {
        let error = figure.error_ratio();
        groups.entry((&figure.split, figure.is_cpu)).or_default().push(error);
        if figure.split != HeldOutSplit::Cells {
            groups.entry((&all, figure.is_cpu)).or_default().push(error);
        }
    }
    let named = |((split, is_cpu), errors): ((&HeldOutSplit, bool), Vec<f64>)| {
        let name = match split {
            HeldOutSplit::Cells => "every second cell",
            HeldOutSplit::Setting(setting) => setting.trim_start_matches("~ "),
        };
        let part = if is_cpu { "CPU" } else { "rates" };
        Some((format!("{name}, {part}"), ErrorSummary::from_errors(errors)?))
    };
    groups.into_iter().filter_map(named).collect()
}

/// The cells of one fit of the validation, and those that it leaves out.
pub(super) struct ValidationFold {
    split: HeldOutSplit,
    about: String,
    train: PublishedCells,
    test: PublishedCells,
}

/// The fits of a validation, in their order. A setting that leaves too few figures has none.
pub(super) fn build_folds(plan: &FitPlan, cells: &PublishedCells) -> Vec<ValidationFold> {
    let halves = (0..FOLDS).map(|fold| {
        let is_out = move |idx: usize| idx % FOLDS == fold;
        ValidationFold {
            split: HeldOutSplit::Cells,
            about: format!("every second cell, {} of {FOLDS}", fold + 1),
            train: cells.select_cells(|idx, _| !is_out(idx)),
            test: cells.select_cells(|idx, _| is_out(idx)),
        }
    });
    let settings = cells.setting_names().into_iter().map(|setting| ValidationFold {
        split: HeldOutSplit::Setting(setting.to_owned()),
        about: format!("the setting {setting}"),
        train: cells.select_cells(|_, cell| cell.setting != setting),
        test: cells.select_cells(|_, cell| cell.setting == setting),
    });
    let has_enough = |fold: &ValidationFold| {
        fold.split == HeldOutSplit::Cells || fold.train.count_figures() >= 2 * plan.free.len()
    };
    halves.chain(settings).filter(has_enough).collect()
}

impl CellFit<'_> {
    /// Fits without some cells and predicts those, as far as the fits are of this part. Each begins at `at`, the
    /// logarithms of the costs of the fit to all.
    pub(super) fn validate_folds(
        &self,
        cells: &PublishedCells,
        at: &[f64],
        part: PartOfFits,
        said: &mut dyn FnMut(String),
    ) -> Vec<FitHeldOut> {
        let folds = build_folds(self.plan, cells).into_iter().enumerate();
        let mut fits = Vec::new();
        for (place, fold) in folds.filter(|(place, _)| part.has_fit(*place)) {
            said(format!("without {}", fold.about));
            let figures = self.predict_held_out(&fold.train, &fold.test, at, &fold.split, said);
            fits.push(FitHeldOut { place, figures });
        }
        fits
    }

    fn predict_held_out(
        &self,
        train: &PublishedCells,
        test: &PublishedCells,
        at: &[f64],
        split: &HeldOutSplit,
        said: &mut dyn FnMut(String),
    ) -> Vec<HeldOut> {
        let (base, steal_after_ns) = self.choose_steal_after(train, at, said);
        let fit = CellFit { base: &base, ..*self };
        let found = fit.find_best(train, Some(at), SearchEffort::PART, said);
        let profile = fit.with_search(train, |search| search.build_profile(&found.at));
        let residuals = fit.compute_residuals(&profile, test, OTHER_SEED, 1.0);
        let mut held_out = Vec::new();
        for (cell, residuals) in test.cells.iter().zip(residuals) {
            let row = CsvRow::new(&test.tables[cell.table], cell.row);
            let is_told = |it: &Residual| matches!(it.scale, ErrorScale::Rate | ErrorScale::Cpu);
            let told = residuals.into_iter().filter(is_told);
            held_out.extend(told.map(|residual| HeldOut {
                split: split.clone(),
                what: format!("{} {}", cell.group, crate::files::describe_row(&row)),
                column: residual.column.to_owned(),
                is_cpu: residual.scale == ErrorScale::Cpu,
                published: residual.published,
                predicted: residual.predicted,
                steal_after_ns,
            }));
        }
        held_out
    }

    /// Chooses the `steal_after_ns` with which fits to one half of `train` best predict the other
    /// half. Returns the profile and the value, or the unchanged profile if it has none.
    fn choose_steal_after(
        &self,
        train: &PublishedCells,
        at: &[f64],
        said: &mut dyn FnMut(String),
    ) -> (SystemProfile, Option<u64>) {
        if self.base.sut.machine.steal_after.is_none() {
            return (self.base.clone(), None);
        }
        let tried = STEAL_AFTER_US.map(|us| with_steal_after(self.base, Nanos::from_us(us)));
        let misfits = tried.each_ref().map(|base| {
            let fit = CellFit { base, ..*self };
            let residuals = (0..FOLDS).flat_map(|fold| {
                let inner = train.select_cells(|idx, _| idx % FOLDS != fold);
                let found = fit.find_best(&inner, Some(at), SearchEffort::PART, &mut |_| ());
                let profile = fit.with_search(&inner, |search| search.build_profile(&found.at));
                let rest = train.select_cells(|idx, _| idx % FOLDS == fold);
                fit.compute_residuals(&profile, &rest, OTHER_SEED, 1.0)
            });
            let weighed: Vec<WeightedResidual> = residuals.flatten().map(|it| it.weighed).collect();
            compute_misfit(&weighed)
        });
        let best = (0..tried.len()).min_by(|a, b| misfits[*a].total_cmp(&misfits[*b]));
        let best = best.expect("there are values");
        let told = STEAL_AFTER_US.iter().zip(&misfits).map(|(us, it)| format!("{us}us {it:.5}"));
        let told = told.collect::<Vec<_>>().join(", ");
        said(format!("chose steal_after_ns {}us of {told}", STEAL_AFTER_US[best]));
        (tried[best].clone(), Some(1_000 * STEAL_AFTER_US[best]))
    }
}

/// Sets the wait of processes at both ends; 0 means no wait.
fn with_steal_after(base: &SystemProfile, wait: Nanos) -> SystemProfile {
    let wait = (wait > Nanos::ZERO).then_some(wait);
    let mut profile = base.clone();
    profile.sut.machine.steal_after = wait;
    if let Some(generator) = &mut profile.generator {
        generator.machine.steal_after = wait;
    }
    profile
}
