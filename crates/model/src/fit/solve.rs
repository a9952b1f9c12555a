//! The fit: the terms that can be told apart, their costs and the costs' intervals.

#[cfg(test)]
mod tests;

use latput_stats::mean::critical_t;
use latput_stats::nnls::Products;

use super::cells::CellFigures;
use super::collinearity::{condition_number, independent_share, nearest_column};
use super::{CellError, CostObstacle, CostTerm, TermCost};

/// A column of which less than this share is its own cannot be told from the others.
const LEAST_APART: f64 = 0.02;
/// A cost is known if its interval is no wider than this multiple of its value,
const WIDEST: f64 = 1.0;
/// or if its share of the CPU time is known to within this.
const LEAST_SHARE: f64 = 0.1;

/// The result for every term.
pub(super) struct FitResult {
    pub(super) terms: Vec<(CostTerm, Result<TermCost, CostObstacle>)>,
    pub(super) condition_number: Option<f64>,
    pub(super) errors: Vec<CellError>,
}

/// Fits costs to cells. All cells have the same weight, by relative errors: a cell at full load
/// tells no more than an idle one. An extra term that cannot be told apart is left out, so that its
/// cost is in the term that it moves with. Other such terms stay in the fit and are refused.
pub(super) fn fit_costs(cells: &[CellFigures], confidence: f64) -> FitResult {
    let mut findings: Vec<(CostTerm, Result<TermCost, CostObstacle>)> = Vec::new();
    let mut terms = Vec::new();
    let mut columns = Vec::new();
    for term in CostTerm::ALL {
        match term_column(cells, term) {
            None => findings.push((term, Err(CostObstacle::NotCounted))),
            Some(column) if column.iter().all(|share| *share <= 0.0) => {
                findings.push((term, Err(CostObstacle::NeverHappened)));
            }
            Some(column) => {
                terms.push(term);
                columns.push(column);
            }
        }
    }
    let problem = loop {
        let problem = FitProblem::new(terms, columns, cells.len(), confidence);
        let Some((leaves, why)) = problem.term_to_remove() else { break problem };
        (terms, columns) = (problem.terms, problem.columns);
        findings.push((terms.remove(leaves), Err(why)));
        columns.remove(leaves);
    };
    for j in 0..problem.terms.len() {
        findings.push((problem.terms[j], problem.find_cost(j)));
    }
    findings.sort_by_key(|(term, _)| *term);
    let has_fit = problem.freedom > 0 && !problem.terms.is_empty();
    FitResult {
        terms: findings,
        condition_number: has_fit.then(|| condition_number(&problem.columns)),
        errors: if has_fit { problem.cell_errors(cells) } else { Vec::new() },
    }
}

/// The count of a term divided by the CPU time, in each cell.
fn term_column(cells: &[CellFigures], term: CostTerm) -> Option<Vec<f64>> {
    cells.iter().map(|cell| Some(cell.counts[term as usize]? / cell.busy)).collect()
}

/// Terms in a fit, and the fit.
struct FitProblem {
    terms: Vec<CostTerm>,
    /// The column of each term, by cell.
    columns: Vec<Vec<f64>>,
    products: Products,
    costs: Vec<f64>,
    /// Degrees of freedom: cells minus terms.
    freedom: usize,
    /// The residual squares above which a cost is rejected.
    ceiling: f64,
}

impl FitProblem {
    fn new(terms: Vec<CostTerm>, columns: Vec<Vec<f64>>, cells: usize, confidence: f64) -> Self {
        let products = Products::new(&columns, &vec![1.0; cells]);
        let solution = products.solve();
        let freedom = cells.saturating_sub(terms.len());
        let residual_squares = solution.residual_squares;
        let ceiling = if freedom == 0 {
            f64::INFINITY
        } else {
            // Rounding alone leaves this much.
            let squares = residual_squares.max(1e-12 * cells as f64);
            squares * (1.0 + critical_t(confidence, freedom).powi(2) / freedom as f64)
        };
        Self { terms, columns, products, costs: solution.coefficients, freedom, ceiling }
    }

    /// The term to remove for a better fit, if any, and the reason.
    fn term_to_remove(&self) -> Option<(usize, CostObstacle)> {
        let extras = || (0..self.terms.len()).rev().filter(|j| self.terms[*j].is_extra());
        if self.freedom == 0 {
            return extras().next().map(|j| (j, CostObstacle::TooFewCells));
        }
        if let Some(j) = extras().find(|j| independent_share(&self.columns, *j) < LEAST_APART) {
            return Some(self.weaker_of(j, self.tie_reason(j)));
        }
        extras()
            .find(|j| self.find_cost(*j).is_err())
            .map(|j| self.weaker_of(j, CostObstacle::Uncertain))
    }

    /// Of polls and interrupts, where the fit cannot keep both, the term that explains less. On a
    /// veth pair polls do the work, and interrupts belong to other devices.
    fn weaker_of(&self, j: usize, why: CostObstacle) -> (usize, CostObstacle) {
        let interrupt = self.terms.iter().position(|term| *term == CostTerm::Interrupt);
        let is_open = why == CostObstacle::Uncertain && self.terms[j] == CostTerm::Poll;
        match interrupt.filter(|_| is_open) {
            Some(interrupt) if self.left_without(interrupt) < self.left_without(j) => {
                (interrupt, why)
            }
            _ => (j, why),
        }
    }

    fn left_without(&self, j: usize) -> f64 {
        self.products.with_fixed(j, 0.0).solve().residual_squares
    }

    fn tie_reason(&self, j: usize) -> CostObstacle {
        nearest_column(&self.columns, j)
            .map_or(CostObstacle::Uncertain, |other| CostObstacle::MovesWith(self.terms[other]))
    }

    /// The cost of a term, if known.
    fn find_cost(&self, j: usize) -> Result<TermCost, CostObstacle> {
        if self.freedom == 0 {
            return Err(CostObstacle::TooFewCells);
        }
        if independent_share(&self.columns, j) < LEAST_APART {
            return Err(self.tie_reason(j));
        }
        let ns = self.costs[j];
        let (ns_low, ns_high) = self.cost_interval(j);
        let mut shares = self.columns[j].clone();
        shares.sort_by(f64::total_cmp);
        let count = shares[shares.len() / 2];
        let width = ns_high - ns_low;
        let is_known = width <= WIDEST * ns || width * count <= 2.0 * LEAST_SHARE;
        if is_known {
            Ok(TermCost { ns, ns_low, ns_high, share: ns * count })
        } else {
            Err(CostObstacle::Uncertain)
        }
    }

    /// The interval of a cost: the values at which, with all other costs fitted anew, the residual
    /// squares stay below the ceiling. It is the interval of a profile likelihood, which for free
    /// costs is Student's t (Bates and Watts, "Nonlinear Regression Analysis", 1988, section 6.1)
    /// and also holds at the bound of zero.
    fn cost_interval(&self, j: usize) -> (f64, f64) {
        let left = |cost: f64| self.products.with_fixed(j, cost).solve().residual_squares;
        let best = self.costs[j];
        let low =
            if left(0.0) <= self.ceiling { 0.0 } else { self.find_interval_edge(best, 0.0, &left) };
        // At this cost the term alone fills some cell's whole CPU time.
        let scale = 1.0 / self.columns[j].iter().copied().fold(f64::MIN_POSITIVE, f64::max);
        let mut beyond = best + scale;
        // A confidence so near to 1 that Student's t is infinite rejects no cost: a million times is enough.
        for _ in 0..20 {
            if left(beyond) > self.ceiling {
                break;
            }
            beyond *= 2.0;
        }
        (low, self.find_interval_edge(best, beyond, &left))
    }

    /// The boundary of the interval between an accepted and a rejected value, by bisection.
    fn find_interval_edge(
        &self,
        believed: f64,
        unbelieved: f64,
        left: &impl Fn(f64) -> f64,
    ) -> f64 {
        let (mut inside, mut outside) = (believed, unbelieved);
        for _ in 0..40 {
            let middle = f64::midpoint(inside, outside);
            if left(middle) <= self.ceiling { inside = middle } else { outside = middle }
        }
        inside
    }

    fn cell_errors(&self, cells: &[CellFigures]) -> Vec<CellError> {
        let error = |(idx, cell): (usize, &CellFigures)| {
            let parts = self.columns.iter().zip(&self.costs);
            let fitted: f64 = parts.map(|(column, cost)| cost * column[idx]).sum();
            let CellFigures { setting, workload, .. } = *cell;
            CellError { setting, workload, error_ratio: fitted - 1.0 }
        };
        cells.iter().enumerate().map(error).collect()
    }
}
