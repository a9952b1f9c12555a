//! The search of every calibration: damped least squares on the logarithms of the costs, from
//! several starts. Huber's rule limits the weight of outliers. Weak priors keep costs near their
//! start values where the figures do not fix them.

use latput_sim::SystemProfile;
use latput_stats::linear;
use latput_stats::order::middle;
use latput_units::SeededRng;
use serde::Deserialize;

use crate::parameter::{self, FixedParameter, FreeParameter, GeneratorCosts};
use crate::result::{CostCombination, FittedCost};

/// Residuals count quadratically up to this size, and linearly above.
const KNEE: f64 = 0.12;
/// Standard deviation of the prior on the logarithm of each cost: a factor of two and a half.
const PRIOR: f64 = 0.9;
/// Share of a prediction's simulated time in a step of a short search.
const EFFORT: f64 = 0.2;
/// Largest distance, as a logarithm, of the fourth and later starts from those of the plan.
const FAR: f64 = 0.4;
/// Seed of the runs for errors and intervals. No search uses it.
pub const OTHER_SEED: u64 = 101;
/// Step of numerical slopes, as a logarithm. It exceeds the noise of a short run.
const SLOPE_STEP: f64 = 0.08;
/// The longest step, as a logarithm.
const LONGEST: f64 = 0.4;

/// The residual of one figure with its weight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WeightedResidual {
    /// The weight of the figure.
    pub weight: f64,
    /// Natural logarithm of predicted over measured.
    pub log: f64,
}

impl WeightedResidual {
    /// The residual of a prediction, limited so that a missing one cannot outweigh all others.
    pub fn new(predicted: f64, measured: f64, weight: f64) -> Self {
        Self { weight, log: (predicted.max(1e-9) / measured).ln().clamp(-5.0, 5.0) }
    }

    /// The residual of shares in per cent: five points count like a rate that is 10% off.
    pub fn from_percentages(predicted: f64, measured: f64, weight: f64) -> Self {
        Self { weight, log: (2.0 * (predicted - measured) / 100.0).clamp(-5.0, 5.0) }
    }
}

/// Computes the residual of every figure under a profile, simulated with a seed and a share of the
/// full time (0 to 1).
pub type Residuals<'a> = &'a dyn Fn(&SystemProfile, u64, f64) -> Vec<WeightedResidual>;

/// A search for the `free` parameters of `base`.
#[expect(missing_debug_implementations, reason = "it holds a function")]
pub struct CostSearch<'a> {
    /// The start profile. Fields that are neither fixed nor free stay.
    pub base: &'a SystemProfile,
    /// Parameters with given values.
    pub fixed: &'a [FixedParameter],
    /// Parameters to search for.
    pub free: &'a [FreeParameter],
    /// Treatment of the generators' costs.
    pub generators: GeneratorCosts,
    /// The figures' residuals under a profile.
    pub residuals: Residuals<'a>,
    /// Weight of the prior, relative to a figure of weight 1.
    pub prior_weight: f64,
}

/// The length of a search.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SearchEffort {
    /// Number of starts.
    pub starts: usize,
    /// Approximate evaluations from each start.
    pub first: usize,
    /// Further evaluations from the best start, and the share of a prediction's simulated time in
    /// each.
    pub last: (usize, f64),
}

impl SearchEffort {
    /// The effort of a fit that starts at the optimum of a fit to more cells.
    pub const PART: Self = Self { starts: 1, first: 24, last: (0, EFFORT) };
}

impl Default for SearchEffort {
    fn default() -> Self {
        Self { starts: 3, first: 22, last: (40, EFFORT) }
    }
}

/// A point of the search space with its objective.
#[derive(Clone, Debug)]
pub struct SearchPoint {
    /// The logarithms, in the order of the free costs.
    pub at: Vec<f64>,
    /// The objective, lower is better.
    pub value: f64,
    residuals: Vec<WeightedResidual>,
}

impl CostSearch<'_> {
    fn make_starts(&self, count: usize) -> Vec<Vec<f64>> {
        let middle: Vec<f64> = self.free.iter().map(|free| free.start.max(1e-3).ln()).collect();
        let shifted = |sign: f64| -> Vec<f64> {
            let shift = |(idx, log): (usize, &f64)| log + sign * [0.25, -0.2, 0.15][idx % 3];
            middle.iter().enumerate().map(shift).collect()
        };
        let drawn = |start: usize| {
            let mut rng = SeededRng::from_seed(start as u64);
            middle.iter().map(|log| log + FAR * (2.0 * rng.next_uniform() - 1.0)).collect()
        };
        let start = |idx| match idx {
            0 => middle.clone(),
            1 => shifted(1.0),
            2 => shifted(-1.0),
            _ => drawn(idx),
        };
        (0..count).map(start).collect()
    }

    /// The profile with the costs whose logarithms these are.
    pub fn build_profile(&self, logs: &[f64]) -> SystemProfile {
        let mut profile = self.base.clone();
        let fixed = self.fixed.iter().map(|fixed| (fixed.parameter, fixed.value));
        let free = self.free.iter().zip(logs).map(|(free, log)| (free.parameter, log.exp()));
        let values: Vec<_> = fixed.chain(free).collect();
        parameter::set_all(&mut profile, &values, self.generators);
        profile
    }

    fn evaluate_point(&self, at: Vec<f64>, share: f64) -> SearchPoint {
        let residuals = (self.residuals)(&self.build_profile(&at), 1, share);
        let value = self.compute_objective(&at, &residuals);
        SearchPoint { at, value, residuals }
    }

    fn compute_objective(&self, at: &[f64], residuals: &[WeightedResidual]) -> f64 {
        let weights: f64 = residuals.iter().map(|it| it.weight).sum();
        let prior: f64 = self.off_start(at).map(|off| (off / PRIOR).powi(2)).sum();
        compute_misfit(residuals) + self.prior_weight * prior / weights
    }

    /// The distance of each cost from its start, as a logarithm.
    fn off_start<'a>(&'a self, at: &'a [f64]) -> impl Iterator<Item = f64> + 'a {
        at.iter().zip(self.free).map(|(log, free)| log - free.start.max(1e-3).ln())
    }

    /// Searches from several starts around the plan's values, or from `only`, and continues from
    /// the best one.
    pub fn find_optimum(
        &self,
        only: Option<&[f64]>,
        effort: SearchEffort,
        said: &mut dyn FnMut(String),
    ) -> SearchPoint {
        let starts =
            only.map_or_else(|| self.make_starts(effort.starts), |only| vec![only.to_vec()]);
        let mut best: Option<SearchPoint> = None;
        for (idx, start) in starts.iter().enumerate() {
            let found = self.minimize_from(start.clone(), (effort.first, EFFORT));
            said(format!("start {} of {}: objective {:.5}", idx + 1, starts.len(), found.value));
            if best.as_ref().is_none_or(|best| found.value < best.value) {
                best = Some(found);
            }
        }
        let best = best.expect("there is a start");
        let found = self.minimize_from(best.at, effort.last);
        said(format!("searched further: objective {:.5}", found.value));
        found
    }

    /// Steps of Levenberg (1944) and Marquardt (1963). Each residual is linear in the logarithms of
    /// the costs; Huber's rule reduces the weight of large ones.
    fn minimize_from(&self, start: Vec<f64>, (evaluations, share): (usize, f64)) -> SearchPoint {
        let mut best = self.evaluate_point(start, share);
        let mut damping = 0.03;
        let mut used = 1;
        while used + self.free.len() < evaluations {
            let (information, gradient) = self.compute_derivatives(&best, share);
            used += self.free.len();
            let before = best.value;
            for _ in 0..3 {
                let mut damped = information.clone();
                for (axis, row) in damped.iter_mut().enumerate() {
                    row[axis] *= 1.0 + damping;
                }
                let step = linear::solve(&damped, &gradient).unwrap_or_default();
                let step = step.iter().map(|step| step.clamp(-LONGEST, LONGEST));
                let at = best.at.iter().zip(step).map(|(log, by)| log - by).collect();
                let tried = self.evaluate_point(at, share);
                used += 1;
                if tried.value < best.value {
                    best = tried;
                    damping = (damping / 5.0).max(1e-3);
                    break;
                }
                damping *= 6.0;
            }
            if best.value > 0.995 * before {
                break;
            }
        }
        best
    }

    /// The curvature of the objective and its gradient.
    fn compute_derivatives(&self, point: &SearchPoint, share: f64) -> (Vec<Vec<f64>>, Vec<f64>) {
        let n = point.at.len();
        let columns: Vec<Vec<f64>> = (0..n)
            .map(|axis| {
                let mut at = point.at.clone();
                at[axis] += SLOPE_STEP;
                let moved = self.evaluate_point(at, share).residuals;
                let slope = |(to, from): (&WeightedResidual, &WeightedResidual)| {
                    (to.log - from.log) / SLOPE_STEP
                };
                moved.iter().zip(&point.residuals).map(slope).collect()
            })
            .collect();
        let pull = |it: &WeightedResidual| it.weight * (KNEE / it.log.abs().max(KNEE));
        let dot = |a: &[f64], b: &mut dyn Iterator<Item = f64>| -> f64 {
            point.residuals.iter().zip(a).zip(b).map(|((it, a), b)| pull(it) * a * b).sum()
        };
        let stiffness = 2.0 * self.prior_weight / PRIOR.powi(2);
        let mut information = vec![vec![0.0; n]; n];
        for (a, row) in information.iter_mut().enumerate() {
            for (b, entry) in row.iter_mut().enumerate() {
                *entry = dot(&columns[a], &mut columns[b].iter().copied());
            }
            row[a] += stiffness;
        }
        let logs = || point.residuals.iter().map(|it| it.log);
        let offs = self.off_start(&point.at);
        let gradient = columns
            .iter()
            .zip(offs)
            .map(|(column, off)| dot(column, &mut logs()) + stiffness * off);
        let gradient = gradient.collect();
        (information, gradient)
    }

    /// Intervals of the costs from the curvature at the optimum, and the combinations that the
    /// figures fix. `whole` are the residuals there, simulated in full with seed [`OTHER_SEED`].
    pub fn estimate_uncertainty(
        &self,
        at: &[f64],
        whole: &[WeightedResidual],
    ) -> (Vec<FittedCost>, Vec<CostCombination>) {
        const STEP: f64 = 0.05;
        let flat = |residuals: &[WeightedResidual]| -> Vec<f64> {
            residuals.iter().map(|it| it.weight.sqrt() * it.log).collect()
        };
        let columns: Vec<Vec<f64>> = (0..at.len())
            .map(|axis| {
                let moved = |by: f64| {
                    let mut at = at.to_vec();
                    at[axis] += by;
                    flat(&(self.residuals)(&self.build_profile(&at), OTHER_SEED, 2.0 * EFFORT))
                };
                let (up, down) = (moved(STEP), moved(-STEP));
                up.iter().zip(&down).map(|(up, down)| (up - down) / (2.0 * STEP)).collect()
            })
            .collect();
        let spread = {
            let absolute = middle(flat(whole).iter().map(|r| r.abs()));
            // The median of absolute deviations of a normal distribution is 0.6745 of its deviation.
            (absolute.expect("there are residuals") / 0.6745).max(0.01)
        };
        let n = at.len();
        let mut information = vec![vec![0.0; n]; n];
        for (a, row) in information.iter_mut().enumerate() {
            for (b, entry) in row.iter_mut().enumerate() {
                let dot: f64 = columns[a].iter().zip(&columns[b]).map(|(x, y)| x * y).sum();
                *entry = dot / spread.powi(2);
                if a == b {
                    *entry += PRIOR.powi(-2);
                }
            }
        }
        let (values, vectors) = linear::eigen(&information);
        let combinations = values.iter().zip(&vectors).map(|(value, vector)| CostCombination {
            deviation_ratio: 1.0 / value.max(1e-12).sqrt(),
            weights: vector.clone(),
        });
        let cost = |axis: usize| {
            let variance: f64 = values
                .iter()
                .zip(&vectors)
                .map(|(value, vector)| vector[axis].powi(2) / value.max(1e-12))
                .sum();
            let half = 1.645 * variance.sqrt();
            let log = at[axis];
            FittedCost {
                parameter: self.free[axis].parameter,
                value: log.exp(),
                low: (log - half).exp(),
                high: (log + half).exp(),
            }
        };
        ((0..n).map(cost).collect(), combinations.collect())
    }
}

/// Weighted mean of the residuals under Huber's rule; not a number without residuals.
pub fn compute_misfit(residuals: &[WeightedResidual]) -> f64 {
    let weights: f64 = residuals.iter().map(|it| it.weight).sum();
    residuals.iter().map(|it| it.weight * huber_loss(it.log)).sum::<f64>() / weights
}

fn huber_loss(residual: f64) -> f64 {
    let size = residual.abs();
    if size <= KNEE { size * size / 2.0 } else { KNEE * (size - KNEE / 2.0) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parameter::Parameter;

    /// A machine whose figures are products of powers of two costs, which are then known.
    #[test]
    fn known_costs_are_found_despite_odd_figure() {
        let base = SystemProfile::find_shipped("server-10g").unwrap();
        let free = [Parameter::Interrupt, Parameter::Wake];
        let free = free.map(|parameter| FreeParameter { parameter, start: parameter.get(&base) });
        let wanted = [1.6, 0.7];
        let residuals = |profile: &SystemProfile, _: u64, _: f64| -> Vec<WeightedResidual> {
            let [a, b] = free.map(|it| it.parameter.get(profile) / it.start);
            let figures = [(1.0, 0.0), (0.0, 1.0), (0.5, 0.5), (1.0, -1.0), (0.3, 0.7), (0.7, 0.3)];
            let at = |a: f64, b: f64, (p, q): (f64, f64)| a.powf(p) * b.powf(q);
            let weighed =
                |it| WeightedResidual::new(at(a, b, it), at(wanted[0], wanted[1], it), 1.0);
            let mut all: Vec<WeightedResidual> = figures.into_iter().map(weighed).collect();
            all.push(WeightedResidual::new(at(a, b, (1.0, 0.0)), 3.0, 1.0));
            all
        };
        let search = CostSearch {
            base: &base,
            fixed: &[],
            free: &free,
            generators: GeneratorCosts::Stay,
            residuals: &residuals,
            prior_weight: 1e-3,
        };
        let found = search.find_optimum(None, SearchEffort::default(), &mut |_| ());
        let whole = residuals(&search.build_profile(&found.at), OTHER_SEED, 1.0);
        let (costs, combinations) = search.estimate_uncertainty(&found.at, &whole);
        assert_eq!(combinations.len(), 2);
        for ((cost, free), wanted) in costs.iter().zip(&free).zip(wanted) {
            let ratio = cost.value / free.start;
            assert!((ratio / wanted - 1.0).abs() < 0.06, "{cost:?}");
            assert!(cost.low < cost.value && cost.value < cost.high, "{cost:?}");
        }
    }
}
