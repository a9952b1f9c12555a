//! Search: chooses the settings to try next when there are more than can be tried.
//!
//! The caller runs the settings that [`Search::next_step`] returns, block by block, and records the
//! figures. The first settings are spread over the space and include today's. Each later block has
//! the settings with the highest promise under the current belief (`surrogate`), tried before or
//! not. So bad settings are dropped after a run or two and leaders are repeated. The winner must be
//! confirmed on fresh runs beside today's setting, because the runs that selected it are biased in
//! its favour.
//!
//! Three things end the search:
//!
//! - The leader is probably the best: a gain over it of more than the smallest effect is unlikely.
//! - Today's setting is good enough: a gain over it of more than the least gain is unlikely.
//! - The budget is used up.
//!
//! Promise is the augmented expected improvement of Huang, Allen, Notz and Zeng (Journal of Global
//! Optimization 34, 2006), which also decides when a repetition is worth more than a new setting,
//! times the chance that the limits are kept (Gardner et al., ICML 2014). It is reduced where a
//! disruptive knob would change.

use std::collections::{BTreeMap, BTreeSet};

use latput_stats::linear::dot;
use latput_stats::normal;
use latput_units::{IntoMap, IntoSet, SeededRng};

use self::space::SearchSpace;
use self::surrogate::{Belief, Hyperparameters, RunSample, SettingBelief, Surrogate};
use crate::goal::{BoundSide, LimitReference};

pub mod of_plan;
pub mod space;
mod surrogate;

/// Most settings whose promise is computed. Larger spaces are sampled, and settings near the best
/// are added.
const CANDIDATES: usize = 1_500;
/// Fewest runs of the leader before the search may stop.
const RUNS_OF_LEADER: usize = 3;
/// Settings whose joint belief decides whether to stop.
const RIVALS: usize = 40;
/// Draws from the joint belief.
const DRAWS: usize = 500;
/// Divisor of the promise where a disruptive knob differs from the leader's.
const DISRUPTION: f64 = 2.0;

/// Options of a search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SearchOptions {
    /// Seed of all random draws.
    pub seed: u64,
    /// Most settings in a block.
    pub block: usize,
    /// Most runs of settings in all, without confirmation.
    pub budget: usize,
    /// The smallest ratio of two costs that matters, minus 1: 0.03 is three percent.
    pub smallest_effect: f64,
    /// The smallest ratio of today's cost to another setting's that is worth a change, minus 1.
    pub least_gain: f64,
    /// A gain with a chance below this is unlikely. The search stops when a gain over the leader of
    /// more than the smallest effect is unlikely, or one over today's setting of more than the least
    /// gain.
    pub doubt: f64,
}

/// A limit on one figure in one workload, as in [`crate::goal::GoalCondition`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SearchLimit {
    /// The side of the limit.
    pub bound: BoundSide,
    /// Natural logarithm of the limit, or of the share of the reference.
    pub number_log: f64,
    /// The reference of a relative limit.
    pub reference: Option<LimitReference>,
}

/// The figures of one setting in one block.
#[derive(Clone, Debug, PartialEq)]
pub struct SearchRun {
    /// The setting's index in the space.
    pub setting: usize,
    /// The block it ran in.
    pub block: u32,
    /// Natural logarithm of the cost to minimise.
    pub cost_log: f64,
    /// Natural logarithm of each limit's figure.
    pub figures_log: Vec<f64>,
}

/// The next step of a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SearchStep {
    /// Run these settings in one block, in any order.
    Try {
        /// The settings.
        settings: Vec<usize>,
        /// The best setting so far, if known.
        leader: Option<usize>,
    },
    /// Stop the search.
    Stop(StopReason),
}

/// The reason why a search ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// A setting that is better by more than the smallest effect is unlikely.
    Settled,
    /// A gain over today's setting of more than the least gain is unlikely.
    NothingToGain,
    /// The budget is used up.
    Budget,
}

/// The winner of a search, before its confirmation.
#[derive(Clone, Debug, PartialEq)]
pub struct SearchLeader {
    /// The setting.
    pub setting: usize,
    /// The chance that some setting is better by more than the smallest effect.
    pub doubt: f64,
    /// Natural logarithm of the ratio of its cost to that of the best setting: median, and the ends
    /// of the central 90% of the belief.
    pub regret_log: [f64; 3],
    /// The chance that it keeps every limit.
    pub keeps_limits: f64,
    /// For each limit that is a share of the best figure, the setting believed to have that figure.
    pub references: Vec<usize>,
}

/// The state of a search.
#[derive(Clone, Debug)]
pub struct Search {
    space: SearchSpace,
    today: usize,
    limits: Vec<SearchLimit>,
    options: SearchOptions,
    tried: Vec<SearchRun>,
    rng: SeededRng,
    /// Hyperparameters of the last fits: of the cost, then of each limit.
    scales: Vec<Hyperparameters>,
}

impl Search {
    /// Starts a search of `space` for the least cost within `limits`; `today` is the setting to
    /// beat.
    pub fn new(
        space: SearchSpace,
        today: usize,
        limits: Vec<SearchLimit>,
        options: SearchOptions,
    ) -> Self {
        let rng = SeededRng::from_seed(options.seed);
        Self { space, today, limits, options, tried: Vec::new(), rng, scales: Vec::new() }
    }

    /// Records the figures of a block. Failed runs are omitted.
    pub fn record_runs(&mut self, tried: impl IntoIterator<Item = SearchRun>) {
        let limits = self.limits.len();
        let is_usable = |tried: &SearchRun| {
            tried.cost_log.is_finite()
                && tried.figures_log.len() == limits
                && tried.figures_log.iter().all(|figure| figure.is_finite())
        };
        self.tried.extend(tried.into_iter().filter(is_usable));
    }

    /// Number of runs recorded so far.
    pub fn run_count(&self) -> usize {
        self.tried.len()
    }

    /// The next step.
    pub fn next_step(&mut self) -> SearchStep {
        let start = self.start_size();
        if self.tried.len() < start {
            let mut first = self.space.choose_spread(self.today, start - 1, &mut self.rng);
            first.insert(0, self.today);
            return SearchStep::Try { settings: first, leader: None };
        }
        if self.tried.len() >= self.options.budget {
            return SearchStep::Stop(StopReason::Budget);
        }
        let room = self.options.block.min(self.options.budget - self.tried.len()).max(1);
        let mut rng = self.rng.clone();
        let view = SearchBelief::new(self);
        let leader = view.leading_setting();
        let SearchOptions { smallest_effect, least_gain, .. } = self.options;
        let mut is_unlikely = |setting: usize, effect: f64| {
            view.count_runs(setting) >= RUNS_OF_LEADER
                && view.estimate_doubt(setting, effect, &mut rng).0 < self.options.doubt
        };
        if is_unlikely(leader, smallest_effect) {
            return SearchStep::Stop(StopReason::Settled);
        }
        if view.is_within(self.today) && is_unlikely(self.today, least_gain) {
            return SearchStep::Stop(StopReason::NothingToGain);
        }
        let mut settings = view.choose_block(leader, room, &mut rng);
        // A gain over today's setting is known no better than that setting.
        if view.count_runs(self.today) < view.count_runs(leader) && !settings.contains(&self.today)
        {
            settings.pop();
            settings.push(self.today);
        }
        let scales = view.scales();
        (self.rng, self.scales) = (rng, scales);
        SearchStep::Try { settings, leader: Some(leader) }
    }

    /// The index of the best setting so far, without its regret; `None` before two runs.
    pub fn best_setting(&self) -> Option<usize> {
        (self.tried.len() >= 2).then(|| SearchBelief::new(self).leading_setting())
    }

    /// The best setting so far with its regret; `None` before two runs.
    pub fn leader(&self) -> Option<SearchLeader> {
        if self.tried.len() < 2 {
            return None;
        }
        let view = SearchBelief::new(self);
        let setting = view.leading_setting();
        let effect = self.options.smallest_effect;
        let (doubt, regret_log) = view.estimate_doubt(setting, effect, &mut self.rng.clone());
        let keeps_limits = view.keep_probability(setting);
        Some(SearchLeader {
            setting,
            doubt,
            regret_log,
            keeps_limits,
            references: view.limit_references(),
        })
    }

    /// For each limit the logarithm of the ratio by which a run breaks it, by the means of the figures so far.
    fn limit_excesses(&self, run: &SearchRun) -> Vec<f64> {
        let mean = |setting: usize, at: usize| {
            let of_setting = self.tried.iter().filter(|it| it.setting == setting);
            let (sum, runs) = of_setting
                .fold((0.0, 0.0), |(sum, runs), it| (sum + it.figures_log[at], runs + 1.0));
            (runs > 0.0).then_some(sum / runs)
        };
        let of_limit = |(at, limit): (usize, &SearchLimit)| {
            let tried: BTreeSet<usize> = self.tried.iter().map(|it| it.setting).into_set();
            let towards_best = if limit.bound == BoundSide::AtLeast { 1.0 } else { -1.0 };
            let reference = match limit.reference {
                None => Some(0.0),
                Some(LimitReference::Today) => mean(self.today, at),
                Some(LimitReference::Best) => tried
                    .iter()
                    .filter_map(|setting| mean(*setting, at))
                    .max_by(|a, b| (towards_best * a).total_cmp(&(towards_best * b))),
            };
            // Without today's figure nothing is known to be broken.
            reference.map_or(0.0, |it| towards_best * (limit.number_log + it - run.figures_log[at]))
        };
        self.limits.iter().enumerate().map(of_limit).collect()
    }

    /// Settings of the first phase: enough to see each axis once, and the corners between them.
    fn start_size(&self) -> usize {
        let axes = self.space.axes().iter().filter(|axis| axis.levels > 1).count();
        let allowed = self.space.allowed_settings().take(64).count();
        (axes + 2).min(allowed).min(self.options.budget)
    }
}

/// The belief at one moment.
struct SearchBelief<'a> {
    search: &'a Search,
    cost: Surrogate<'a>,
    limits: Vec<(Surrogate<'a>, f64)>,
    tried: BTreeMap<usize, usize>,
}

impl<'a> SearchBelief<'a> {
    fn new(search: &'a Search) -> Self {
        let fit = |at: usize, value: &dyn Fn(&SearchRun) -> f64| {
            let sample = |tried: &SearchRun| RunSample {
                setting: tried.setting,
                block: tried.block,
                value: value(tried),
            };
            let samples: Vec<RunSample> = search.tried.iter().map(sample).collect();
            Surrogate::fit_samples(&search.space, &samples, search.scales.get(at))
        };
        let mut tried: BTreeMap<usize, usize> = BTreeMap::new();
        for run in &search.tried {
            *tried.entry(run.setting).or_default() += 1;
        }
        let limits = search.limits.iter().enumerate().map(|(idx, limit)| {
            let fit = fit(idx + 1, &|tried| tried.figures_log[idx]);
            let at = bound_log(limit, &fit, &tried, search.today);
            (fit, at)
        });
        let limits = limits.collect();
        Self { search, cost: fit(0, &|tried| tried.cost_log), limits, tried }
    }

    fn scales(&self) -> Vec<Hyperparameters> {
        let limits = self.limits.iter().map(|(fit, _)| fit.scales().clone());
        std::iter::once(self.cost.scales().clone()).chain(limits).collect()
    }

    fn count_runs(&self, setting: usize) -> usize {
        self.tried.get(&setting).copied().unwrap_or(0)
    }

    /// The chance that a setting keeps every limit.
    fn keep_probability(&self, setting: usize) -> f64 {
        let of_limit = |((fit, at), limit): (&(Surrogate<'_>, f64), &SearchLimit)| {
            let Belief { mean, deviation } = fit.belief(setting);
            let above = (mean - at) / deviation.max(1e-6);
            normal::cdf(if limit.bound == BoundSide::AtLeast { above } else { -above })
        };
        self.limits.iter().zip(&self.search.limits).map(of_limit).product()
    }

    /// Whether a setting probably keeps every limit.
    fn is_within(&self, setting: usize) -> bool {
        self.keep_probability(setting) >= 0.5
    }

    /// For each limit that is a share of the best figure, the tried setting believed to have that
    /// figure.
    fn limit_references(&self) -> Vec<usize> {
        let of_limit = |((fit, _), limit): (&(Surrogate<'_>, f64), &SearchLimit)| {
            (limit.reference == Some(LimitReference::Best))
                .then(|| find_best_tried(limit, fit, &self.tried))?
        };
        self.limits.iter().zip(&self.search.limits).filter_map(of_limit).collect()
    }

    /// Of the tried settings that probably keep the limits, the one believed cheapest; if none
    /// does, the one that most likely keeps them.
    fn leading_setting(&self) -> usize {
        let cost = |setting: &usize| self.cost.belief(*setting).mean;
        let keeps: BTreeMap<usize, f64> =
            self.tried.keys().map(|&setting| (setting, self.keep_probability(setting))).into_map();
        let kept = keeps.iter().filter(|(_, keeps)| **keeps >= 0.5).map(|(setting, _)| *setting);
        let cheapest = kept.min_by(|a, b| cost(a).total_cmp(&cost(b)));
        let likeliest =
            || keeps.iter().max_by(|a, b| a.1.total_cmp(b.1)).map(|(setting, _)| *setting);
        cheapest.or_else(likeliest).expect("at least one setting was tried")
    }

    /// The chance that a setting is better than `leader` by more than `effect`, a ratio minus 1, and
    /// the leader's regret.
    fn estimate_doubt(&self, leader: usize, effect: f64, rng: &mut SeededRng) -> (f64, [f64; 3]) {
        let effect = effect.ln_1p();
        let base = self.cost.belief(leader).mean;
        let mut rivals: Vec<(f64, usize)> = self
            .list_candidates(leader, rng)
            .into_iter()
            .filter(|setting| *setting != leader)
            .map(|setting| {
                let Belief { mean, deviation } = self.cost.belief(setting);
                let better = normal::cdf((base - effect - mean) / deviation.max(1e-9));
                (better * self.keep_probability(setting), setting)
            })
            .collect();
        rivals.sort_by(|a, b| b.0.total_cmp(&a.0));
        rivals.truncate(RIVALS);
        let settings: Vec<usize> =
            std::iter::once(leader).chain(rivals.iter().map(|(_, setting)| *setting)).collect();
        let keeps: Vec<f64> =
            settings.iter().map(|setting| self.keep_probability(*setting)).collect();
        let (means, factor) = self.cost.joint_belief(&settings);
        let mut regrets: Vec<f64> = (0..DRAWS)
            .map(|_| {
                let normals: Vec<f64> = settings.iter().map(|_| rng.next_normal()).collect();
                let drawn = |at: usize| {
                    let shift = dot(&factor.rows()[at], &normals);
                    means[at] + shift
                };
                let own = drawn(0);
                let best = (1..settings.len())
                    .filter(|at| rng.next_uniform() < keeps[*at])
                    .map(drawn)
                    .fold(own, f64::min);
                own - best
            })
            .collect();
        regrets.sort_by(f64::total_cmp);
        let doubt = regrets.iter().filter(|regret| **regret > effect).count() as f64 / DRAWS as f64;
        let at = |share: usize| regrets[(DRAWS - 1) * share / 100];
        (doubt, [at(50), at(5), at(95)])
    }

    /// Up to `room` settings with the highest promise. Each counts as known once it is chosen.
    fn choose_block(&self, leader: usize, room: usize, rng: &mut SeededRng) -> Vec<usize> {
        let best = self.cost.belief(leader).mean;
        let is_within = self.is_within(leader);
        let mut left: Vec<Candidate> = self
            .list_candidates(leader, rng)
            .into_iter()
            .map(|setting| Candidate {
                setting,
                place: self.cost.belief_with_covariance(setting),
                keeps: self.keep_probability(setting),
                weight: if self.is_disruptive(setting, leader) { 1.0 / DISRUPTION } else { 1.0 },
            })
            .collect();
        let noise = self.cost.run_noise();
        let mut block: Vec<usize> = Vec::with_capacity(room);
        while block.len() < room {
            let promise =
                |one: &Candidate| one.weight * one.compute_promise(best, is_within, noise);
            let promises = left.iter().map(promise).enumerate();
            let Some((at, _)) = promises.max_by(|a, b| a.1.total_cmp(&b.1)) else { break };
            let chosen = left.swap_remove(at);
            block.push(chosen.setting);
            self.discount_correlated(&chosen, &mut left);
        }
        block
    }

    /// Lowers the promise of settings that are correlated with `chosen`, since its run will tell of
    /// them too.
    fn discount_correlated(&self, chosen: &Candidate, left: &mut [Candidate]) {
        let variance = chosen.place.belief.deviation.powi(2) + self.cost.run_noise().powi(2);
        for other in left {
            let shared = self.cost.covariance(&chosen.place, &other.place);
            let belief = &mut other.place.belief;
            let known = belief.deviation.powi(2) - shared.powi(2) / variance.max(1e-12);
            belief.deviation = known.max(0.0).sqrt();
        }
    }

    fn is_disruptive(&self, setting: usize, leader: usize) -> bool {
        let space = &self.search.space;
        let (a, b) = (space.levels(setting), space.levels(leader));
        space.axes().iter().zip(a.iter().zip(&b)).any(|(axis, (a, b))| axis.is_disruptive && a != b)
    }

    /// Every setting or, of a large space, a sample with the tried settings and those near the
    /// leader.
    fn list_candidates(&self, leader: usize, rng: &mut SeededRng) -> BTreeSet<usize> {
        let space = &self.search.space;
        let mut candidates: BTreeSet<usize> = space.sample_settings(CANDIDATES, rng).into_set();
        candidates.extend(self.tried.keys());
        for near in space.neighbours(leader) {
            candidates.extend(space.neighbours(near));
            candidates.insert(near);
        }
        candidates
    }
}

/// A setting that may be in the next block.
struct Candidate {
    setting: usize,
    place: SettingBelief,
    /// The chance that it keeps the limits.
    keeps: f64,
    /// Factor of its promise.
    weight: f64,
}

impl Candidate {
    /// The promise of a run. `best` is the leader's cost, and `is_within` says whether the leader
    /// is within the limits.
    fn compute_promise(&self, best: f64, is_within: bool, noise: f64) -> f64 {
        let Belief { mean, deviation } = self.place.belief;
        let deviation = deviation.max(1e-9);
        let z = (best - mean) / deviation;
        let improvement = deviation * (z * normal::cdf(z) + normal::pdf(z));
        let news = 1.0 - noise / (deviation.powi(2) + noise.powi(2)).sqrt();
        if is_within { improvement * news * self.keeps } else { self.keeps * news }
    }
}

/// The limit on the logarithmic scale, by the current belief.
fn bound_log(
    limit: &SearchLimit,
    fit: &Surrogate<'_>,
    tried: &BTreeMap<usize, usize>,
    today: usize,
) -> f64 {
    let reference = match limit.reference {
        None => 0.0,
        Some(LimitReference::Today) => fit.belief(today).mean,
        Some(LimitReference::Best) => {
            find_best_tried(limit, fit, tried).map_or(0.0, |setting| fit.belief(setting).mean)
        }
    };
    limit.number_log + reference
}

/// The tried setting whose figure is believed to be the best on the limited side.
fn find_best_tried(
    limit: &SearchLimit,
    fit: &Surrogate<'_>,
    tried: &BTreeMap<usize, usize>,
) -> Option<usize> {
    let towards_best = if limit.bound == BoundSide::AtLeast { 1.0 } else { -1.0 };
    let means = tried.keys().map(|&setting| (towards_best * fit.belief(setting).mean, setting));
    means.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, setting)| setting)
}

#[cfg(test)]
mod tests;
