//! The CPU cost model: the CPU time of each event that the kernel counts, fitted to the rows of a run.
//!
//! The model is a sum, CPU time = cost x count over events, and no cost is below zero. Events that move with others are
//! left out, and cross-validation removes those that do harm: settings are left out in turn, and an event leaves if the CPU
//! time of the settings left out is predicted better without it. The cost of an event that is left out is in those that it
//! moves with. Hosts that share a kernel are fitted together.

mod cells;
mod collinearity;
mod solve;
mod suggestions;
mod terms;

use latput_knobs::Knob;
use latput_trial::Results;
use latput_trial::observation::Role;

pub(crate) use self::cells::CellFigures;
pub use self::terms::CostTerm;

/// The cost model of the hosts of one kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct CostModel {
    /// The hosts.
    pub hosts: Vec<ModelHost>,
    /// Number of cells in the fit, each by the medians of its runs.
    pub cells: usize,
    /// Confidence of the intervals, such as 0.95.
    pub confidence: f64,
    /// The largest over the smallest singular value of the columns in the fit, each at unit length
    /// (Belsley, Kuh and Welsch, 1980: above 30 the terms are hard to tell apart). `None` without a fit.
    pub condition_number: Option<f64>,
    /// Every term, in the order of [`CostTerm::ALL`].
    pub terms: Vec<FittedTerm>,
    /// Error at each cell, of terms and costs that were chosen without its setting; empty without a fit.
    pub errors: Vec<CellError>,
}

/// A host of a cost model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelHost {
    /// The name in the testbed.
    pub host: String,
    /// The role.
    pub role: Role,
}

/// A term with its cost or refusal.
#[derive(Clone, Debug, PartialEq)]
pub struct FittedTerm {
    /// The term.
    pub term: CostTerm,
    /// Its cost, or the reason for its absence.
    pub finding: Result<TermCost, CostRefusal>,
}

/// The cost of one unit of a term.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TermCost {
    /// CPU time of one unit, nanoseconds.
    pub ns: f64,
    /// Lower end of its interval.
    pub ns_low: f64,
    /// Upper end of its interval.
    pub ns_high: f64,
    /// Its part of the CPU time, median over the cells, 0 to 1.
    pub share: f64,
}

/// The reason why a term has no cost.
#[derive(Clone, Debug, PartialEq)]
pub struct CostRefusal {
    /// The obstacle.
    pub why: CostObstacle,
    /// The factor that a plan must vary to determine the cost; empty where no plan can.
    pub vary: String,
}

/// An obstacle to a cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CostObstacle {
    /// The host does not count the term.
    NotCounted,
    /// There were too few in most cells to matter.
    TooRare,
    /// There are too few settings or cells to leave any out.
    TooFewCells,
    /// It predicts nothing that this term, whose count moves most like its own, does not.
    MovesWith(CostTerm),
    /// No term predicts anything.
    Uncertain,
}

/// The error at one cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CellError {
    /// Index into the model's hosts.
    pub host: usize,
    /// Index into the settings.
    pub setting: usize,
    /// Index into the workloads.
    pub workload: usize,
    /// Predicted over measured CPU time, minus 1.
    pub error_ratio: f64,
}

/// CPU times that differ by less than this share are alike.
const ALIKE: f64 = 0.01;

impl TermCost {
    /// Whether the interval reaches into the plausible costs of its term.
    pub fn is_plausible(&self, term: CostTerm) -> bool {
        let (low, high) = term.plausible_ns();
        self.ns_high >= low && self.ns_low <= high
    }
}

/// A model that is off by more than these, median and 90th percentile, predicts nothing.
const PREDICTS_WITHIN: (f64, f64) = (0.10, 0.25);

impl CostModel {
    /// The cost of a term, if known.
    pub fn cost(&self, term: CostTerm) -> Option<TermCost> {
        self.terms.iter().find(|fitted| fitted.term == term)?.finding.as_ref().ok().copied()
    }

    /// Whether every cell used as much CPU time as the others, like cells of CPUs that are always busy. The background
    /// then explains all of it, and the small errors say nothing of the costs.
    pub fn is_explained_by_background(&self) -> bool {
        let background = self.cost(CostTerm::Background);
        background.is_some_and(|cost| cost.share > 1.0 - ALIKE)
            && self.error_quantile(1.0).is_some_and(|worst| worst < ALIKE)
    }

    /// A quantile (0 to 1) of the absolute errors; `None` without a fit.
    #[expect(clippy::cast_possible_truncation, reason = "a place in a list")]
    pub fn error_quantile(&self, quantile: f64) -> Option<f64> {
        let mut sizes: Vec<f64> = self.errors.iter().map(|cell| cell.error_ratio.abs()).collect();
        sizes.sort_by(f64::total_cmp);
        let place = (quantile * sizes.len() as f64).ceil() as usize;
        sizes.get(place.saturating_sub(1)).copied()
    }

    /// Whether settings that were left out are predicted well enough for a prediction of others.
    pub fn is_predictive(&self) -> bool {
        let is_within =
            |quantile, limit| self.error_quantile(quantile).is_some_and(|of| of <= limit);
        is_within(0.5, PREDICTS_WITHIN.0) && is_within(0.9, PREDICTS_WITHIN.1)
    }

    /// The index of a host among the model's.
    pub fn host_index(&self, host: &str, role: Role) -> Option<usize> {
        self.hosts.iter().position(|of| of.host == host && of.role == role)
    }
}

/// A reason why nothing can be fitted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FitError {
    /// No row has a host with CPU time.
    #[error("no host of this file counted CPU time, so no cost can be fitted")]
    NoHosts,
    /// The confidence is not above 0 and below 1.
    #[error("the file's confidence must be between 0 and 1: give `--confidence 99%`")]
    Confidence,
}

/// Fits a cost model for each kernel to the rows of the workloads that `wanted` selects by index.
///
/// # Errors
///
/// If no host counted CPU time, or the confidence is no probability.
pub fn fit_cost_models(
    results: &Results,
    wanted: impl Fn(usize) -> bool,
    confidence: f64,
) -> Result<Vec<CostModel>, FitError> {
    if !(confidence > 0.0 && confidence < 1.0) {
        return Err(FitError::Confidence);
    }
    let kernels = cells::kernel_cells(results, wanted);
    if kernels.is_empty() {
        return Err(FitError::NoHosts);
    }
    let model = |kernel: cells::KernelCells| {
        let fitted = solve::fit_costs(&kernel.cells, confidence);
        let refuse = |why: CostObstacle, term| CostRefusal {
            why,
            vary: suggestions::suggest_factor(term, why, results, &kernel.hosts),
        };
        let terms = fitted.terms.into_iter().map(|(term, finding)| FittedTerm {
            term,
            finding: finding.map_err(|why| refuse(why, term)),
        });
        CostModel {
            cells: kernel.cells.len(),
            confidence,
            condition_number: fitted.condition_number,
            terms: terms.collect(),
            errors: fitted.errors,
            hosts: kernel.hosts.clone(),
        }
    };
    Ok(kernels.into_iter().map(model).collect())
}

/// The rates that each host counted in each cell, with the host's name and role.
pub(crate) fn collect_host_cells(results: &Results) -> Vec<(ModelHost, CellFigures)> {
    let kernels = cells::kernel_cells(results, |_| true);
    let cells = kernels.into_iter().flat_map(|kernel| {
        let cells::KernelCells { hosts, cells } = kernel;
        cells.into_iter().filter_map(move |cell| Some((hosts.get(cell.host)?.clone(), cell)))
    });
    cells.collect()
}

/// Whether the settings of a plan vary a knob: more than one sets it, and not all to the same
/// value.
fn knob_variation(results: &Results, role: Role) -> impl Fn(Knob) -> bool {
    let values = move |knob| {
        let of = |setting: &latput_trial::results::LabelledSetting| {
            setting.by_role.get(&role).and_then(|set| set.get(&knob)).cloned()
        };
        results.settings.iter().map(of).collect::<Vec<_>>()
    };
    move |knob| values(knob).windows(2).any(|pair| pair[0] != pair[1])
}

#[cfg(test)]
mod tests;
