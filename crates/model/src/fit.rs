//! The CPU cost model: the cost of a byte, a packet, an interrupt and a poll on a host, fitted to
//! its rows.
//!
//! The model is a sum, `T = a N_bytes + b N_packets + g N_interrupts`, and, where they can be told
//! apart, the cost of polls beside interrupts and of the host's background work. No cost is below
//! zero. A cost that the rows do not determine is refused, with the factor that would determine it.

mod cells;
mod collinearity;
mod solve;
mod suggestions;

use latput_knobs::Knob;
use latput_trial::Results;
use latput_trial::observation::Role;

pub(crate) use self::cells::CellFigures;

/// One kind of work that costs a host CPU time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CostTerm {
    /// A byte in or out of the measured interface, headers included.
    Byte,
    /// A packet in or out of the measured interface.
    Packet,
    /// A hardware interrupt on the host's CPUs, timer interrupts included.
    Interrupt,
    /// A NAPI poll, started by an interrupt or by a timer.
    Poll,
    /// A second of work that does not depend on the traffic.
    Background,
}

impl CostTerm {
    /// All terms, in the order of the formula.
    pub const ALL: [Self; 5] =
        [Self::Byte, Self::Packet, Self::Interrupt, Self::Poll, Self::Background];

    /// The name in tables and files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Byte => "byte",
            Self::Packet => "packet",
            Self::Interrupt => "interrupt",
            Self::Poll => "poll",
            Self::Background => "background",
        }
    }

    /// The plural in sentences.
    pub const fn plural(self) -> &'static str {
        match self {
            Self::Byte => "bytes",
            Self::Packet => "packets",
            Self::Interrupt => "interrupts",
            Self::Poll => "polls",
            Self::Background => "background work",
        }
    }

    /// The unit of its count.
    pub const fn unit(self) -> &'static str {
        if matches!(self, Self::Background) { "second" } else { self.name() }
    }

    /// The setting that changes its count, in words; `None` where no common setting does.
    pub const fn moved_by(self) -> Option<&'static str> {
        match self {
            Self::Byte | Self::Background => None,
            Self::Packet => Some("a larger `mtu`, larger messages"),
            Self::Interrupt => Some("a longer `rx-usecs` or its like"),
            Self::Poll => Some("a longer `gro-flush-timeout` with `napi-defer-hard-irqs`"),
        }
    }

    /// Whether the formula holds without it. Its cost is then part of the term that it moves with.
    pub(crate) const fn is_extra(self) -> bool {
        matches!(self, Self::Poll | Self::Background)
    }
}

/// The cost model of one host.
#[derive(Clone, Debug, PartialEq)]
pub struct CostModel {
    /// The host's name in the testbed.
    pub host: String,
    /// The host's role.
    pub role: Role,
    /// Number of cells in the fit, each by the medians of its runs.
    pub cells: usize,
    /// Confidence of the intervals, such as 0.99.
    pub confidence: f64,
    /// The largest over the smallest singular value of the columns in the fit, each at unit length
    /// (Belsley, Kuh and Welsch, 1980: above 30 the terms are hard to tell apart). `None` without a fit.
    pub condition_number: Option<f64>,
    /// Every term, in the order of [`CostTerm::ALL`].
    pub terms: Vec<FittedTerm>,
    /// Error of the fit at each cell; empty without a fit.
    pub errors: Vec<CellError>,
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
    /// The count was 0 in every cell.
    NeverHappened,
    /// There are no more cells than terms, so any costs would fit.
    TooFewCells,
    /// It rises and falls with another term in every cell.
    MovesWith(CostTerm),
    /// It moves slightly apart from the others, but the fit leaves more than that unexplained.
    Uncertain,
}

/// The error of the fit at one cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CellError {
    /// Index into the settings.
    pub setting: usize,
    /// Index into the workloads.
    pub workload: usize,
    /// Fitted over measured CPU time, minus 1.
    pub error_ratio: f64,
}

/// CPU times that differ by less than this share are alike.
const ALIKE: f64 = 0.01;

impl CostModel {
    /// The cost of a term, if known.
    pub fn cost(&self, term: CostTerm) -> Option<TermCost> {
        self.terms.iter().find(|fitted| fitted.term == term)?.finding.as_ref().ok().copied()
    }

    /// Whether every cell used as much CPU time as the others, like cells of CPUs that are always busy. The seconds
    /// then explain all of it, and the small errors say nothing of the costs.
    pub fn is_explained_by_seconds(&self) -> bool {
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

/// Fits the cost model of every host to the rows of the workloads that `wanted` selects by index.
pub fn fit_cost_models(
    results: &Results,
    wanted: impl Fn(usize) -> bool,
    confidence: f64,
) -> Result<Vec<CostModel>, FitError> {
    if !(confidence > 0.0 && confidence < 1.0) {
        return Err(FitError::Confidence);
    }
    let hosts = cells::cell_figures(results, wanted);
    if hosts.is_empty() {
        return Err(FitError::NoHosts);
    }
    let model = |((host, role), cells): (&(String, Role), &Vec<CellFigures>)| {
        let fitted = solve::fit_costs(cells, confidence);
        let refusal = |why: CostObstacle, term| CostRefusal {
            why,
            vary: suggestions::suggest_factor(term, why, results, *role),
        };
        CostModel {
            host: host.clone(),
            role: *role,
            cells: cells.len(),
            confidence,
            condition_number: fitted.condition_number,
            terms: fitted
                .terms
                .into_iter()
                .map(|(term, finding)| FittedTerm {
                    term,
                    finding: finding.map_err(|why| refusal(why, term)),
                })
                .collect(),
            errors: fitted.errors,
        }
    };
    Ok(hosts.iter().map(model).collect())
}

/// The rates that the hosts of a role counted in each cell; of several hosts those of the first.
pub(crate) fn collect_role_cells(results: &Results, role: Role) -> Vec<CellFigures> {
    let hosts = cells::cell_figures(results, |_| true);
    hosts.into_iter().find(|((_, of), _)| *of == role).map(|(_, cells)| cells).unwrap_or_default()
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
