//! Trials on a tabulated host with the noise of real ones, chosen by latput's search or at random.

use std::collections::{BTreeMap, BTreeSet};

use latput_model::ResultsSummary;
use latput_model::search::of_plan::{NextBlock, PlanSearch};
use latput_trial::results::LabelledSetting;
use latput_trial::{Observation, Plan, Results, Row};
use latput_units::SeededRng;
use serde::Serialize;

use crate::cases::{self, FIGURES};
use crate::table::{FigureTable, TrueAnswer};

/// Standard deviations of the logarithms of a run's rate, tail and CPU cost.
const NOISE: [f64; FIGURES] = [0.02, 0.03, 0.02];
/// The same of the machine's state, which all runs of a block share.
const DRIFT: f64 = 0.03;
/// One run in so many is odd: 1.1 to 5 times worse.
const ODD: f64 = 15.0;
/// Trials that share the machine's state where the method has no blocks.
const BLOCK: usize = 4;

/// One search by one method.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct SearchOutcome {
    pub(crate) case: String,
    pub(crate) method: &'static str,
    pub(crate) seed: u64,
    /// Trials after which the setting that it would recommend was near the best.
    pub(crate) found: Option<usize>,
    /// The first trial of a setting near the best.
    pub(crate) tried: Option<usize>,
    /// Trials in all, without those that confirm.
    pub(crate) trials: usize,
    /// Whether the setting recommended at the end is near the best.
    pub(crate) ends_near: bool,
    /// Its cost as a ratio to the best one's; `None` where it breaks the limit.
    pub(crate) excess: Option<f64>,
    /// Whether it claimed something proven better than today's, and whether that was wrong.
    pub(crate) claim: Option<ClaimCheck>,
}

/// A claim that a setting is proven better than today's.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct ClaimCheck {
    pub(crate) is_wrong: bool,
}

/// A host with its noise.
struct NoisyHost<'a> {
    table: &'a FigureTable,
    rng: SeededRng,
    drift: f64,
}

impl<'a> NoisyHost<'a> {
    fn new(table: &'a FigureTable, seed: u64) -> Self {
        Self { table, rng: SeededRng::from_seed_and_index(seed, 1), drift: 0.0 }
    }

    fn begin_block(&mut self) {
        self.drift = DRIFT * self.rng.next_normal();
    }

    fn run(&mut self, setting: usize) -> [f64; FIGURES] {
        let is_odd = self.rng.next_uniform() < 1.0 / ODD;
        let worse = if is_odd { (1.1 + 3.9 * self.rng.next_uniform().powi(3)).ln() } else { 0.0 };
        let mut figures = self.table.figures[setting];
        for (at, figure) in figures.iter_mut().enumerate() {
            let towards_worse = if at == 0 { -1.0 } else { 1.0 };
            let log = NOISE[at] * self.rng.next_normal() + towards_worse * (self.drift + worse);
            *figure *= log.exp();
        }
        figures
    }
}

/// A comparison of searches: one host, one workload, one goal.
#[derive(Debug)]
pub(crate) struct SearchCase<'a> {
    pub(crate) name: String,
    pub(crate) table: &'a FigureTable,
    pub(crate) truth: TrueAnswer,
    pub(crate) plan: Plan,
    pub(crate) settings: Vec<LabelledSetting>,
    /// Which figures the cost is made of.
    pub(crate) cost: Vec<usize>,
}

impl SearchCase<'_> {
    /// latput's search as a plan runs it, with its confirmation and the report's recommendation.
    pub(crate) fn run_search(&self, seed: u64, budget: usize) -> SearchOutcome {
        let own = self.own_seed(seed);
        let by_label: BTreeMap<&str, usize> =
            self.settings.iter().enumerate().map(|(idx, set)| (set.label.as_str(), idx)).collect();
        let search =
            PlanSearch::new(&self.plan, None, BTreeSet::new()).expect("the cases can be searched");
        let mut host = NoisyHost::new(self.table, own);
        let mut results = self.make_results(own);
        let mut ended = self.make_outcome("latput", seed);
        let mut leader = 0;
        // Until anything is known today's setting is what a search would recommend.
        ended.found = self.truth.near[0].then_some(1);
        for block in 0.. {
            let next = search.next(&results, budget);
            let chosen = match next {
                NextBlock::Done(_) => break,
                NextBlock::Explore { settings, leader: now } => {
                    leader = now.map_or(0, |now| by_label[now.label.as_str()]);
                    settings
                }
                NextBlock::Confirm(settings) => {
                    if results.confirmed_from.is_none() {
                        leader = by_label[settings[1].label.as_str()];
                        results.confirmed_from = Some(block);
                    }
                    settings
                }
            };
            host.begin_block();
            for set in chosen {
                let setting = by_label[set.label.as_str()];
                if results.confirmed_from.is_none() {
                    ended.trials += 1;
                    if self.truth.near[setting] {
                        ended.tried.get_or_insert(ended.trials);
                    }
                }
                let row = self.make_row(&mut results, block, set, host.run(setting));
                results.rows.push(row);
                // As the other methods are asked, after every trial.
                if ended.found.is_none()
                    && results.confirmed_from.is_none()
                    && let Some(best) = search.best_setting(&results)
                    && self.truth.near[by_label[best.label.as_str()]]
                {
                    ended.found = Some(ended.trials);
                }
            }
        }
        if results.confirmed_from.is_none() {
            leader = 0;
            if self.truth.near[0] {
                ended.found.get_or_insert(ended.trials);
            }
        }
        ended.ends_near = self.truth.near[leader];
        ended.excess = self.truth.cost_ratio(self.table, leader);
        ended.claim = self.check_claim(&results, &by_label);
        ended
    }

    /// Different settings at random; the best that was seen to keep the limit leads.
    pub(crate) fn run_random(&self, seed: u64, budget: usize) -> SearchOutcome {
        let own = self.own_seed(seed);
        let mut host = NoisyHost::new(self.table, own);
        let mut ended = self.make_outcome("random", seed);
        let mut order: Vec<usize> = (1..self.settings.len()).collect();
        SeededRng::from_seed_and_index(own, 2).shuffle(&mut order);
        let mut best: Option<(f64, usize)> = None;
        for (at, setting) in std::iter::once(0).chain(order).take(budget).enumerate() {
            if at % BLOCK == 0 {
                host.begin_block();
            }
            let figures = host.run(setting);
            ended.trials += 1;
            if self.truth.near[setting] {
                ended.tried.get_or_insert(ended.trials);
            }
            let cost: f64 = self.cost.iter().map(|at| figures[*at]).product();
            let keeps = self.truth.least_rate.is_none_or(|least| figures[0] >= least);
            if keeps && best.is_none_or(|(least, _)| cost < least) {
                best = Some((cost, setting));
            }
            if best.is_some_and(|(_, setting)| self.truth.near[setting]) {
                ended.found.get_or_insert(ended.trials);
            }
        }
        ended.ends_near = best.is_some_and(|(_, setting)| self.truth.near[setting]);
        ended.excess = best.and_then(|(_, setting)| self.truth.cost_ratio(self.table, setting));
        ended
    }

    /// Another for every case, so that luck is not shared.
    fn own_seed(&self, seed: u64) -> u64 {
        self.name.bytes().fold(seed, |seed, byte| {
            SeededRng::from_seed_and_index(seed, u64::from(byte)).next_u64()
        })
    }

    fn make_outcome(&self, method: &'static str, seed: u64) -> SearchOutcome {
        SearchOutcome {
            case: self.name.clone(),
            method,
            seed,
            found: None,
            tried: None,
            trials: 0,
            ends_near: false,
            excess: None,
            claim: None,
        }
    }

    /// As a run of the plan begins.
    fn make_results(&self, seed: u64) -> Results {
        Results {
            name: self.name.clone(),
            goal: self.plan.goal.clone(),
            confidence: self.plan.method.confidence,
            half_width: self.plan.method.half_width,
            testbed: "table".to_owned(),
            latput_version: String::new(),
            seed,
            hosts: Vec::new(),
            settings: self.settings[..1].to_vec(),
            workloads: self.plan.workloads.clone(),
            rows: Vec::new(),
            planned_trials: 0,
            notes: Vec::new(),
            confirmed_from: None,
            source: None,
            today: Vec::new(),
            findings: Vec::new(),
            beside: false,
        }
    }

    fn make_row(
        &self,
        results: &mut Results,
        block: u32,
        set: LabelledSetting,
        figures: [f64; FIGURES],
    ) -> Row {
        let known = results.settings.iter().position(|known| known.label == set.label);
        let setting = known.unwrap_or_else(|| {
            results.settings.push(set);
            results.settings.len() - 1
        });
        let metrics = cases::workload_metrics(&self.plan.workloads[0]);
        let reported_metrics = metrics.into_iter().zip(figures).collect();
        let observation = Observation { reported_metrics, ..Observation::default() };
        Row { block, setting, workload: 0, started_unix_ms: 0, observation }
    }

    /// The report's claim, held against the table: better in the objective, or, where today's setting breaks the limit,
    /// in the figure of the limit.
    fn check_claim(
        &self,
        results: &Results,
        by_label: &BTreeMap<&str, usize>,
    ) -> Option<ClaimCheck> {
        let recommendation = ResultsSummary::from_results(results).recommendation?;
        if !recommendation.is_proven() {
            return None;
        }
        let setting = by_label[results.settings[recommendation.setting].label.as_str()];
        let rate = |setting: usize| self.table.figures[setting][0];
        let today_keeps = self.truth.least_rate.is_none_or(|least| rate(0) >= least);
        let cheaper = self.truth.cost[setting] < self.truth.cost[0];
        let faster = rate(setting) > rate(0);
        // Where today's breaks it, but seemed to keep it, the claim was of the objective.
        let is_wrong = if today_keeps { !cheaper } else { !faster && !cheaper };
        Some(ClaimCheck { is_wrong })
    }
}
