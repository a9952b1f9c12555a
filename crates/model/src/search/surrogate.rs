//! Predicts settings that were not tried from those that were: Gaussian process regression of one
//! figure over the space, with an effect of each block and robust against outliers.
//!
//! Figures are logarithms, so that effects multiply. A run's figure is modelled as `mean +
//! f(setting) + b(block) + noise`. f is smooth along ordered axes (Matern 5/2 covariance, Rasmussen
//! and Williams, "Gaussian Processes for Machine Learning", 2006, section 4.2) and in part a sum of
//! each axis's own effect (Duvenaud, Nickisch and Rasmussen, NIPS 2011), which needs only a few
//! runs. b is shared by all runs of a block, like the state of the machine. The noise has heavier
//! tails than a normal distribution (one published run in fifteen is off by a factor of 1.1 to 5):
//! runs far from the fit have less weight, as under a Student t likelihood with [`TAIL`] degrees of
//! freedom (Lange, Little and Taylor, JASA 84, 1989).

#[cfg(test)]
mod closed_forms;

use latput_stats::linear::{Cholesky, dot};

use super::space::{SearchAxis, SearchSpace};

/// Degrees of freedom of the noise: the fewer, the less weight an outlier has.
const TAIL: f64 = 4.0;
/// Rounds of reweighting runs.
const REWEIGHINGS: usize = 3;
/// Usual standard deviation of a run on the logarithmic scale, and of the machine between blocks: 3%.
const USUAL_NOISE: f64 = 0.03;
/// Share of an axis's effect that jumps from level to level, as where timers meet other timers.
const ROUGH: f64 = 0.03;
/// Addend that keeps the covariance positive definite in floating point.
const NUGGET: f64 = 1e-9;

/// One run of one setting.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RunSample {
    pub(super) setting: usize,
    pub(super) block: u32,
    /// Logarithm of the figure, or any figure on an additive scale.
    pub(super) value: f64,
}

/// The hyperparameters, all on the scale of the values.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Hyperparameters {
    /// Standard deviation over the space of the axes' own effects.
    alone: f64,
    /// Standard deviation over the space of the axes' joint effect.
    together: f64,
    /// Standard deviation between blocks.
    block: f64,
    /// Standard deviation of a run.
    noise: f64,
    /// Distance on each axis over which f changes, in units of the whole axis.
    lengths: Vec<f64>,
}

/// A fitted Gaussian process.
#[derive(Clone, Debug)]
pub(super) struct Surrogate<'a> {
    space: &'a SearchSpace,
    levels: Vec<Vec<usize>>,
    mean: f64,
    scales: Hyperparameters,
    kernel: CovarianceKernel,
    /// Lower triangle of the Cholesky factor of the samples' covariance, row by row.
    factor: Cholesky,
    /// Inverse covariance times the samples' distance from the mean.
    pull: Vec<f64>,
}

/// The belief of one setting, with the data for its covariance with others.
#[derive(Clone, Debug)]
pub(super) struct SettingBelief {
    pub(super) belief: Belief,
    levels: Vec<usize>,
    half: Vec<f64>,
}

/// The belief of one setting.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Belief {
    pub(super) mean: f64,
    /// Standard deviation of f there, without the noise of a run.
    pub(super) deviation: f64,
}

impl<'a> Surrogate<'a> {
    /// Fits `samples`, at least two. The scales of an earlier fit of nearly the same samples save
    /// most of the work.
    pub(super) fn fit_samples(
        space: &'a SearchSpace,
        samples: &[RunSample],
        earlier: Option<&Hyperparameters>,
    ) -> Self {
        assert!(samples.len() >= 2, "a fit needs two runs");
        let levels: Vec<Vec<usize>> =
            samples.iter().map(|sample| space.levels(sample.setting)).collect();
        let values: Vec<f64> = samples.iter().map(|sample| sample.value).collect();
        let mut fit = SurrogateFit {
            space,
            samples,
            levels: &levels,
            values: &values,
            weights: vec![1.0; samples.len()],
        };
        let mut scales = earlier.cloned().unwrap_or_else(|| fit.first_scales());
        // Outliers lose their weight before they can count as scatter.
        for _ in 0..REWEIGHINGS {
            fit.downweight_outliers(&fit.evaluate_scales(&scales), &scales);
        }
        scales = fit.maximize_evidence(scales, if earlier.is_some() { 1 } else { 3 });
        for _ in 0..REWEIGHINGS {
            fit.downweight_outliers(&fit.evaluate_scales(&scales), &scales);
        }
        let ProcessSolution { factor, pull, mean, kernel, .. } = fit.evaluate_scales(&scales);
        Self { space, levels, mean, scales, kernel, factor, pull }
    }

    /// The scales, for the next fit.
    pub(super) fn scales(&self) -> &Hyperparameters {
        &self.scales
    }

    /// The standard deviation of one run of one setting within a block.
    pub(super) fn run_noise(&self) -> f64 {
        self.scales.noise
    }

    /// The belief of `setting`.
    pub(super) fn belief(&self, setting: usize) -> Belief {
        self.belief_with_covariance(setting).belief
    }

    /// The belief of `setting`, with the data for covariances.
    pub(super) fn belief_with_covariance(&self, setting: usize) -> SettingBelief {
        let levels = self.space.levels(setting);
        let cross: Vec<f64> =
            self.levels.iter().map(|other| self.kernel.covariance(&levels, other)).collect();
        let mean = self.mean + dot(&cross, &self.pull);
        let half = self.factor.forward(&cross);
        let variance = self.kernel.variance() - dot(&half, &half);
        SettingBelief { belief: Belief { mean, deviation: variance.max(0.0).sqrt() }, levels, half }
    }

    /// Covariance of the beliefs of two settings.
    pub(super) fn covariance(&self, a: &SettingBelief, b: &SettingBelief) -> f64 {
        self.kernel.covariance(&a.levels, &b.levels) - dot(&a.half, &b.half)
    }

    /// The joint belief of `settings`: means, and the Cholesky factor of their covariance.
    pub(super) fn joint_belief(&self, settings: &[usize]) -> (Vec<f64>, Cholesky) {
        let places: Vec<SettingBelief> =
            settings.iter().map(|setting| self.belief_with_covariance(*setting)).collect();
        let means = places.iter().map(|place| place.belief.mean).collect();
        let covariance = |i: usize, j: usize| {
            let jitter = if i == j { 1e-6 * self.kernel.variance() + NUGGET } else { 0.0 };
            self.covariance(&places[i], &places[j]) + jitter
        };
        (means, Cholesky::forced(settings.len(), covariance))
    }
}

/// The covariance of f, with the correlation of each axis by the two settings' levels.
#[derive(Clone, Debug)]
struct CovarianceKernel {
    alone: f64,
    together: f64,
    axes: Vec<Vec<Vec<f64>>>,
}

impl CovarianceKernel {
    fn new(space: &SearchSpace, scales: &Hyperparameters) -> Self {
        let of_axis = |(axis, length): (&SearchAxis, &f64)| {
            let correlation = |a: usize, b: usize| {
                let r = 5.0_f64.sqrt() * axis.level_distance(a, b) / length;
                let smooth = (1.0 + r + r * r / 3.0) * (-r).exp();
                (1.0 - ROUGH) * smooth + if a == b { ROUGH } else { 0.0 }
            };
            let row = |a: usize| (0..axis.levels).map(|b| correlation(a, b)).collect();
            (0..axis.levels).map(row).collect()
        };
        let axes: Vec<_> = space.axes().iter().zip(&scales.lengths).map(of_axis).collect();
        let alone = scales.alone.powi(2) / axes.len() as f64;
        Self { alone, together: scales.together.powi(2), axes }
    }

    fn covariance(&self, a: &[usize], b: &[usize]) -> f64 {
        let (mut sum, mut product) = (0.0, 1.0);
        for (axis, (a, b)) in self.axes.iter().zip(a.iter().zip(b)) {
            let correlation = axis[*a][*b];
            sum += correlation;
            product *= correlation;
        }
        self.alone * sum + self.together * product
    }

    fn variance(&self) -> f64 {
        self.alone * self.axes.len() as f64 + self.together
    }
}

/// Samples with their weights during the search for the scales.
struct SurrogateFit<'a> {
    space: &'a SearchSpace,
    samples: &'a [RunSample],
    levels: &'a [Vec<usize>],
    values: &'a [f64],
    /// 1 for a usual run, less for an outlier: its noise variance is divided by it.
    weights: Vec<f64>,
}

struct ProcessSolution {
    factor: Cholesky,
    pull: Vec<f64>,
    mean: f64,
    kernel: CovarianceKernel,
    /// Logarithm of the marginal likelihood and of the scales' weak priors.
    evidence: f64,
}

impl SurrogateFit<'_> {
    /// Initial scales: half of the values' variation comes from the settings, little from the
    /// blocks.
    fn first_scales(&self) -> Hyperparameters {
        let spread = trimmed_deviation(self.values).max(1e-4);
        Hyperparameters {
            alone: spread * 0.7,
            together: spread * 0.7,
            block: USUAL_NOISE,
            noise: USUAL_NOISE,
            lengths: vec![0.7; self.space.axes().len()],
        }
    }

    /// Maximises the evidence along one scale at a time.
    fn maximize_evidence(&self, mut scales: Hyperparameters, rounds: usize) -> Hyperparameters {
        let mut best = self.evaluate_scales(&scales).evidence;
        for round in 0..rounds {
            let step = if round == 0 { 2.5_f64 } else { 1.5 };
            for at in 0..4 + scales.lengths.len() {
                for factor in [step, 1.0 / step] {
                    // Continue while it helps, with a bound.
                    for _ in 0..3 {
                        let mut other = scales.clone();
                        *other.scale_mut(at) *= factor;
                        let evidence = self.evaluate_scales(&other).evidence;
                        if evidence <= best + 1e-6 {
                            break;
                        }
                        (best, scales) = (evidence, other);
                    }
                }
            }
        }
        scales
    }

    fn evaluate_scales(&self, scales: &Hyperparameters) -> ProcessSolution {
        let kernel = CovarianceKernel::new(self.space, scales);
        let covariance = |i: usize, j: usize| {
            let (a, b) = (&self.samples[i], &self.samples[j]);
            let mut sum = kernel.covariance(&self.levels[i], &self.levels[j]);
            if a.block == b.block {
                sum += scales.block.powi(2);
            }
            if i == j {
                sum += scales.noise.powi(2) / self.weights[i] + NUGGET;
            }
            sum
        };
        let count = self.samples.len();
        let factor = Cholesky::forced(count, covariance);
        // The mean with the highest likelihood under the covariance.
        let ones = factor.forward(&vec![1.0; count]);
        let half = factor.forward(self.values);
        let mean = dot(&ones, &half) / dot(&ones, &ones);
        let half: Vec<f64> =
            half.iter().zip(&ones).map(|(value, one)| value - mean * one).collect();
        let log_determinant: f64 =
            factor.rows().iter().enumerate().map(|(i, row)| row[i].ln()).sum();
        let evidence = -0.5 * dot(&half, &half) - log_determinant + self.log_prior(scales);
        ProcessSolution { pull: factor.backward(&half), factor, mean, kernel, evidence }
    }

    /// Weak log-normal priors: they decide only where the samples give no information.
    fn log_prior(&self, scales: &Hyperparameters) -> f64 {
        let near =
            |value: f64, center: f64, width: f64| -0.5 * ((value / center).ln() / width).powi(2);
        let spread = trimmed_deviation(self.values).max(1e-4);
        near(scales.alone, spread * 0.7, 1.0)
            + near(scales.together, spread * 0.7, 1.0)
            + near(scales.noise, USUAL_NOISE, 0.8)
            + near(scales.block, USUAL_NOISE, 1.0)
            + scales.lengths.iter().map(|length| near(*length, 0.8, 1.0)).sum::<f64>()
    }

    /// Lowers the weight of runs that are far from the prediction of the others.
    fn downweight_outliers(&mut self, solved: &ProcessSolution, scales: &Hyperparameters) {
        for (idx, weight) in self.weights.iter_mut().enumerate() {
            // noise variance / weight x pull is the run's residual.
            let residual = solved.pull[idx] * scales.noise.powi(2) / *weight;
            let far = (residual / scales.noise).powi(2);
            *weight = ((TAIL + 1.0) / (TAIL + far)).min(1.0);
        }
    }
}

impl Hyperparameters {
    fn scale_mut(&mut self, index: usize) -> &mut f64 {
        match index {
            0 => &mut self.alone,
            1 => &mut self.together,
            2 => &mut self.noise,
            3 => &mut self.block,
            axis => &mut self.lengths[axis - 4],
        }
    }
}

/// Standard deviation without the outermost values.
fn trimmed_deviation(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let cut = sorted.len() / 10;
    let kept = &sorted[cut..sorted.len() - cut];
    let mean = kept.iter().sum::<f64>() / kept.len() as f64;
    (kept.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / kept.len() as f64).sqrt()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use latput_units::SeededRng;

    use super::*;
    use crate::synthetic::noise_factor;

    #[test]
    fn untried_setting_is_judged_by_neighbours() {
        let space = make_line(11);
        let runs: Vec<RunSample> = [0, 2, 4, 6, 8, 10]
            .iter()
            .map(|&setting| make_sample(setting, 0, valley_cost(setting)))
            .collect();
        let fit = Surrogate::fit_samples(&space, &runs, None);
        for setting in [3, 5, 7] {
            let belief = fit.belief(setting);
            assert!((belief.mean - valley_cost(setting)).abs() < 0.05, "{setting}: {belief:?}");
        }
    }

    #[test]
    fn one_outlier_does_not_move_belief() {
        let space = make_line(11);
        let mut rng = SeededRng::from_seed(5);
        let mut runs = Vec::new();
        for block in 0..4 {
            for setting in [0, 3, 5, 7, 10] {
                runs.push(make_sample(
                    setting,
                    block,
                    valley_cost(setting) + noise_factor(&mut rng, 0.01).ln(),
                ));
            }
        }
        runs[7].value += 1.5; // setting 5, block 1
        let belief = Surrogate::fit_samples(&space, &runs, None).belief(5);
        assert!((belief.mean - valley_cost(5)).abs() < 0.03, "{belief:?}");
    }

    #[test]
    fn slow_block_is_not_the_settings_doing() {
        let space = make_line(11);
        let mut runs = Vec::new();
        for (block, slow) in [(0, 0.0), (1, 0.15), (2, 0.05), (3, -0.1)] {
            for setting in if block == 1 { [4, 5, 6] } else { [0, 5, 10] } {
                runs.push(make_sample(setting, block, valley_cost(setting) + slow));
            }
        }
        let fit = Surrogate::fit_samples(&space, &runs, None);
        assert!(fit.belief(4).mean < fit.belief(0).mean - 0.3);
        assert!(fit.belief(6).mean < fit.belief(10).mean - 0.3);
    }

    #[test]
    fn inert_axis_is_smoother_than_active_one() {
        let axis = || SearchAxis { levels: 5, is_ordered: true, apart: None, is_disruptive: false };
        let space = SearchSpace::new(vec![axis(), axis()], BTreeSet::new()).unwrap();
        let run =
            |setting: usize| make_sample(setting, 0, valley_cost(2 * space.levels(setting)[1]));
        let runs: Vec<RunSample> = (0..25).map(run).collect();
        let [idle, busy] = Surrogate::fit_samples(&space, &runs, None).scales().lengths[..] else {
            panic!("two axes")
        };
        assert!(idle > 1.4 * busy, "{idle} and {busy}");
    }

    fn valley_cost(setting: usize) -> f64 {
        0.02 * (setting as f64 - 5.0).powi(2)
    }

    fn make_sample(setting: usize, block: u32, value: f64) -> RunSample {
        RunSample { setting, block, value }
    }

    fn make_line(levels: usize) -> SearchSpace {
        let axis = SearchAxis { levels, is_ordered: true, apart: None, is_disruptive: false };
        SearchSpace::new(vec![axis], BTreeSet::new()).unwrap()
    }
}
