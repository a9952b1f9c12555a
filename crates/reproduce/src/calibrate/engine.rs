//! The search that every calibration shares: a downhill simplex on the logarithms of the costs, from
//! several starts; residuals are weighed by Huber's rule so that no odd figure pulls; weak priors keep what
//! the figures do not say near its start.

use latput_sim::Profile;
use latput_stats::linear;

use super::{Combination, FittedCost, Free, parameter, simplex};

/// Residuals up to this count fully, larger ones linearly.
const KNEE: f64 = 0.12;
/// One standard deviation of the prior on each cost, as a logarithm: a factor of two and a half.
const PRIOR: f64 = 0.9;
/// The share of a prediction's simulated time that a step of a search takes.
const EFFORT: f64 = 0.2;

/// The logarithm of predicted over measured of one figure, and what it weighs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Weighed {
    pub(crate) weight: f64,
    pub(crate) log: f64,
}

impl Weighed {
    /// Of a prediction that may be missing, bounded so that one cannot outweigh all others.
    pub(crate) fn of(predicted: f64, measured: f64, weight: f64) -> Self {
        Self { weight, log: (predicted.max(1e-9) / measured).ln().clamp(-5.0, 5.0) }
    }
}

/// Every figure's residual under a profile, simulated with a seed and a share of the full time.
pub(crate) type Residuals<'a> = &'a dyn Fn(&Profile, u64, f64) -> Vec<Weighed>;

/// A fit of the `free` costs of `base`.
pub(crate) struct Engine<'a> {
    pub(crate) base: &'a Profile,
    pub(crate) free: &'a [Free],
    pub(crate) residuals: Residuals<'a>,
    /// What the prior weighs beside a cell.
    pub(crate) prior_weight: f64,
}

impl Engine<'_> {
    fn starts(&self) -> [Vec<f64>; 3] {
        let middle: Vec<f64> = self.free.iter().map(|free| free.start.max(1e-3).ln()).collect();
        let shifted = |sign: f64| {
            let shift = |(idx, log): (usize, &f64)| log + sign * [0.25, -0.2, 0.15][idx % 3];
            middle.iter().enumerate().map(shift).collect()
        };
        [middle.clone(), shifted(1.0), shifted(-1.0)]
    }

    /// The profile with the costs of which these are the logarithms.
    pub(crate) fn profile(&self, logs: &[f64]) -> Profile {
        let mut profile = self.base.clone();
        let values: Vec<_> =
            self.free.iter().zip(logs).map(|(free, log)| (free.parameter, log.exp())).collect();
        parameter::set_all(&mut profile, &values);
        profile
    }

    fn objective(&self, logs: &[f64]) -> f64 {
        let residuals = (self.residuals)(&self.profile(logs), 1, EFFORT);
        let fit: f64 = residuals.iter().map(|it| it.weight * huber(it.log)).sum();
        let weights: f64 = residuals.iter().map(|it| it.weight).sum();
        let prior: f64 = self
            .free
            .iter()
            .zip(logs)
            .map(|(free, log)| ((log - free.start.max(1e-3).ln()) / PRIOR).powi(2))
            .sum();
        fit / weights + self.prior_weight * prior / weights
    }

    /// The best of three starts with `first` evaluations each, searched further with `last`.
    pub(crate) fn best(
        &self,
        first: usize,
        last: usize,
        said: &mut dyn FnMut(String),
    ) -> simplex::Found {
        let mut best: Option<simplex::Found> = None;
        for (idx, start) in self.starts().iter().enumerate() {
            let found = simplex::minimise(start, 0.3, first, |at| self.objective(at));
            said(format!("start {} of 3: objective {:.5}", idx + 1, found.value));
            if best.as_ref().is_none_or(|best| found.value < best.value) {
                best = Some(found);
            }
        }
        let best = best.expect("there are three starts");
        let found = simplex::minimise(&best.at, 0.15, last, |at| self.objective(at));
        said(format!("searched further: objective {:.5}", found.value));
        found
    }

    /// Intervals from the curvature at the optimum, and which directions it fixes.
    pub(crate) fn uncertainty(&self, at: &[f64]) -> (Vec<FittedCost>, Vec<Combination>) {
        const STEP: f64 = 0.05;
        let flat = |at: &[f64]| -> Vec<f64> {
            let residuals = (self.residuals)(&self.profile(at), 101, 1.0);
            residuals.iter().map(|it| it.weight.sqrt() * it.log).collect()
        };
        let columns: Vec<Vec<f64>> = (0..at.len())
            .map(|axis| {
                let moved = |by: f64| {
                    let mut at = at.to_vec();
                    at[axis] += by;
                    flat(&at)
                };
                let (up, down) = (moved(STEP), moved(-STEP));
                up.iter().zip(&down).map(|(up, down)| (up - down) / (2.0 * STEP)).collect()
            })
            .collect();
        let spread = {
            let mut absolute: Vec<f64> = flat(at).iter().map(|r| r.abs()).collect();
            absolute.sort_by(f64::total_cmp);
            // The median of absolute deviations of a normal distribution is 0.6745 of its deviation.
            (absolute[absolute.len() / 2] / 0.6745).max(0.01)
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
        let combinations = values.iter().zip(&vectors).map(|(value, vector)| Combination {
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

fn huber(residual: f64) -> f64 {
    let size = residual.abs();
    if size <= KNEE { size * size / 2.0 } else { KNEE * (size - KNEE / 2.0) }
}
