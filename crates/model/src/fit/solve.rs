//! The fit: the terms that predict settings left out, their costs and the costs' intervals.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use latput_stats::linear::dot;
use latput_stats::mean::critical_t;
use latput_stats::nnls::Products;
use latput_stats::order::middle;
use latput_units::{IntoMap, IntoSet, SeededRng};

use super::cells::CellFigures;
use super::collinearity::{condition_number, independent_columns, nearest_column};
use super::{CellError, CostObstacle, CostTerm, TermCost};

/// Blocks are left out in so many groups at most.
const MOST_FOLDS: usize = 10;
/// A term leaves if the mean error of what is left out is lower without it by this share. In ten runs of the built-in plan
/// on the lab less, or terms that join one by one, is noise of five settings: it misses more of those left out.
const LEAST_GAIN: f64 = 0.4;
/// A column of which less than this share is its own cannot be told from those before it.
const LEAST_APART: f64 = 0.1;
/// An error counts as this at most, so that one cell does not choose the terms.
const WORST_ERROR: f64 = 0.5;
/// Resamples of the bootstrap.
const RESAMPLES: usize = 200;
/// Cells for each term, at least.
const CELLS_PER_TERM: usize = 2;
/// Least share of the CPU time that an event can matter with.
const LEAST_SHARE: f64 = 0.01;
/// Least blocks of which one can be left out.
const LEAST_BLOCKS: usize = 3;

/// The result for every term.
pub(super) struct FitResult {
    pub(super) terms: Vec<(CostTerm, Result<TermCost, CostObstacle>)>,
    pub(super) condition_number: Option<f64>,
    pub(super) errors: Vec<CellError>,
}

/// Fits costs to cells. All cells have the same weight, by relative errors: a cell at full load
/// tells no more than an idle one. A term that costs nothing is left out.
pub(super) fn fit_costs(cells: &[CellFigures], confidence: f64) -> FitResult {
    let mut findings: BTreeMap<CostTerm, Result<TermCost, CostObstacle>> = BTreeMap::new();
    let mut terms = Vec::new();
    let mut columns = Vec::new();
    for term in CostTerm::ALL {
        match term_column(cells, term) {
            None => {
                findings.insert(term, Err(CostObstacle::NotCounted));
            }
            Some(column) if is_too_rare(&column, term) => {
                findings.insert(term, Err(CostObstacle::TooRare));
            }
            Some(column) => {
                terms.push(term);
                columns.push(column);
            }
        }
    }
    let problem = FitProblem::new(cells, columns);
    if !problem.can_leave_out() {
        findings.extend(terms.into_iter().map(|term| (term, Err(CostObstacle::TooFewCells))));
        return FitResult {
            terms: findings.into_iter().collect(),
            condition_number: None,
            errors: Vec::new(),
        };
    }
    let all: Vec<usize> = (0..problem.folds).collect();
    let chosen = problem.choose_terms(&all);
    let costs = problem.bootstrap_costs(&chosen, confidence);
    let costs: Vec<(usize, TermCost)> =
        chosen.into_iter().zip(costs).filter(|(_, cost)| cost.ns > 0.0).collect();
    let chosen: Vec<usize> = costs.iter().map(|(j, _)| *j).collect();
    findings.extend(costs.into_iter().map(|(j, cost)| (terms[j], Ok(cost))));
    let kept: Vec<&[f64]> = chosen.iter().map(|j| problem.columns[*j].as_slice()).collect();
    for j in (0..terms.len()).filter(|j| !chosen.contains(j)) {
        let nearest = nearest_column(&problem.columns[j], &kept);
        let why = nearest
            .map_or(CostObstacle::Uncertain, |idx| CostObstacle::MovesWith(terms[chosen[idx]]));
        findings.insert(terms[j], Err(why));
    }
    FitResult {
        terms: findings.into_iter().collect(),
        condition_number: (!kept.is_empty()).then(|| condition_number(&kept)),
        errors: problem.left_out_errors(cells),
    }
}

/// The count of a term divided by the CPU time, in each cell.
fn term_column(cells: &[CellFigures], term: CostTerm) -> Option<Vec<f64>> {
    cells.iter().map(|cell| Some(cell.counts[term as usize]? / cell.busy)).collect()
}

/// Whether an event takes less than [`LEAST_SHARE`] of the CPU time in most cells, even if each costs the most that is
/// plausible.
fn is_too_rare(column: &[f64], term: CostTerm) -> bool {
    let most = middle(column.iter().copied()).unwrap_or(0.0) * term.plausible_ns().1;
    most < LEAST_SHARE
}

/// Candidate terms, and the cells in blocks that are left out together.
struct FitProblem {
    /// The column of each candidate, by cell.
    columns: Vec<Vec<f64>>,
    /// The block of each cell: its setting, or with few settings the cell of all hosts.
    blocks: Vec<usize>,
    /// The products of each block.
    products: Vec<Products>,
    /// Number of groups of blocks.
    folds: usize,
}

impl FitProblem {
    fn new(cells: &[CellFigures], columns: Vec<Vec<f64>>) -> Self {
        let settings = number_blocks(cells, |cell| (cell.setting, 0));
        let of_cells = || number_blocks(cells, |cell| (cell.setting, cell.workload));
        let blocks = if settings.1 < LEAST_BLOCKS { of_cells() } else { settings };
        let (blocks, count) = blocks;
        let rows = |block: usize| {
            let pick = |column: &Vec<f64>| -> Vec<f64> {
                let cells = column.iter().zip(&blocks).filter(|(_, of)| **of == block);
                cells.map(|(share, _)| *share).collect()
            };
            let columns: Vec<Vec<f64>> = columns.iter().map(pick).collect();
            let size = blocks.iter().filter(|of| **of == block).count();
            Products::new(&columns, &vec![1.0; size])
        };
        let products: Vec<Products> = (0..count).map(rows).collect();
        Self { columns, blocks, products, folds: count.min(MOST_FOLDS) }
    }

    /// Whether there is something to fit, and to leave out.
    const fn can_leave_out(&self) -> bool {
        self.folds >= LEAST_BLOCKS && !self.columns.is_empty()
    }

    const fn fold_of(&self, block: usize) -> usize {
        block % self.folds
    }

    /// The products of the blocks in `folds` without the one in `left_out`.
    fn training(&self, folds: &[usize], left_out: Option<usize>) -> Option<Products> {
        let blocks = (0..self.products.len()).filter(|block| {
            let fold = self.fold_of(*block);
            folds.contains(&fold) && left_out != Some(fold)
        });
        Products::joined(blocks.map(|block| &self.products[block]))
    }

    /// The terms of a fit of `folds`: those that can be told from the ones before them, without those that make the
    /// prediction of a fold worse that is left out.
    fn choose_terms(&self, folds: &[usize]) -> Vec<usize> {
        let training: Vec<(usize, Products)> = folds
            .iter()
            .filter_map(|fold| Some((*fold, self.training(folds, Some(*fold))?)))
            .collect();
        let is_in = |cell: &usize| folds.contains(&self.fold_of(self.blocks[*cell]));
        let cells: Vec<usize> = (0..self.blocks.len()).filter(is_in).collect();
        let pick = |column: &Vec<f64>| cells.iter().map(|cell| column[*cell]).collect();
        let columns: Vec<Vec<f64>> = self.columns.iter().map(pick).collect();
        let mut chosen = independent_columns(&columns, LEAST_APART);
        chosen.truncate((cells.len() / CELLS_PER_TERM).max(1));
        let mut error = self.left_out_error(&training, &chosen);
        while chosen.len() > 1 {
            let without = |idx: usize| {
                let mut rest = chosen.clone();
                rest.remove(idx);
                (self.left_out_error(&training, &rest), rest)
            };
            let tried = (0..chosen.len()).map(without);
            let Some((found, rest)) = tried.min_by(|(a, _), (b, _)| a.total_cmp(b)) else { break };
            if found >= error * (1.0 - LEAST_GAIN) {
                break;
            }
            (chosen, error) = (rest, found);
        }
        chosen
    }

    /// The mean of the absolute relative errors of cells, each with its fold left out.
    fn left_out_error(&self, training: &[(usize, Products)], terms: &[usize]) -> f64 {
        let mut sum = 0.0;
        let mut count = 0_u32;
        for (fold, products) in training {
            let costs = products.select(terms).solve().coefficients;
            for (cell, _) in self.cells_of(*fold) {
                sum += self.error_at(cell, terms, &costs).abs().min(WORST_ERROR);
                count += 1;
            }
        }
        sum / f64::from(count.max(1))
    }

    /// The cells of a fold, each with its block.
    fn cells_of(&self, fold: usize) -> impl Iterator<Item = (usize, usize)> + '_ {
        let cells = self.blocks.iter().copied().enumerate();
        cells.filter(move |(_, block)| self.fold_of(*block) == fold)
    }

    /// Fitted over measured CPU time at a cell, minus 1.
    fn error_at(&self, cell: usize, terms: &[usize], costs: &[f64]) -> f64 {
        let counts: Vec<f64> = terms.iter().map(|j| self.columns[*j][cell]).collect();
        dot(&counts, costs) - 1.0
    }

    /// The error of each cell under terms and costs that do not know its fold.
    fn left_out_errors(&self, cells: &[CellFigures]) -> Vec<CellError> {
        let mut errors = Vec::new();
        for fold in 0..self.folds {
            let others: Vec<usize> = (0..self.folds).filter(|other| *other != fold).collect();
            let terms = self.choose_terms(&others);
            let Some(training) = self.training(&others, None) else { continue };
            let costs = training.select(&terms).solve().coefficients;
            for (idx, _) in self.cells_of(fold) {
                let CellFigures { host, setting, workload, .. } = cells[idx];
                let error_ratio = self.error_at(idx, &terms, &costs);
                errors.push(CellError { host, setting, workload, error_ratio });
            }
        }
        errors.sort_by_key(|of| (of.host, of.setting, of.workload));
        errors
    }

    /// The costs of terms with their intervals: Student's t over blocks, with the standard error of a bootstrap that draws
    /// whole blocks (Efron and Tibshirani, "An Introduction to the Bootstrap", 1993, chapter 8).
    fn bootstrap_costs(&self, terms: &[usize], confidence: f64) -> Vec<TermCost> {
        let selected: Vec<Products> =
            self.products.iter().map(|block| block.select(terms)).collect();
        let blocks = selected.len();
        let fit = |products: Option<Products>| {
            products.map_or_else(|| vec![0.0; terms.len()], |of| of.solve().coefficients)
        };
        let best = fit(Products::joined(&selected));
        let mut rng = SeededRng::from_seed(1);
        let mut squares = vec![0.0; terms.len()];
        for _ in 0..RESAMPLES {
            let drawn: Vec<&Products> =
                (0..blocks).map(|_| &selected[rng.next_below(blocks)]).collect();
            let costs = fit(Products::joined(drawn));
            for ((sum, cost), best) in squares.iter_mut().zip(costs).zip(&best) {
                *sum += (cost - best).powi(2);
            }
        }
        let freedom = blocks.saturating_sub(1).max(1);
        let widen = blocks as f64 / freedom as f64 / RESAMPLES as f64;
        let t = critical_t(confidence, freedom);
        let cost = |((j, ns), squares): ((&usize, &f64), &f64)| {
            let half = t * (widen * squares).sqrt();
            let mut shares = self.columns[*j].clone();
            shares.sort_by(f64::total_cmp);
            let share = ns * shares[shares.len() / 2];
            TermCost { ns: *ns, ns_low: (ns - half).max(0.0), ns_high: ns + half, share }
        };
        terms.iter().zip(&best).zip(&squares).map(cost).collect()
    }
}

/// The number of each cell's block, and how many blocks there are: those with the same key are one.
fn number_blocks(
    cells: &[CellFigures],
    key: impl Fn(&CellFigures) -> (usize, usize),
) -> (Vec<usize>, usize) {
    let keys = cells.iter().map(&key).into_set();
    let numbers: BTreeMap<(usize, usize), usize> = keys.into_iter().zip(0..).into_map();
    let blocks = cells.iter().filter_map(|cell| numbers.get(&key(cell)).copied()).collect();
    (blocks, numbers.len())
}
