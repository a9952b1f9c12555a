//! The search of a plan: from its factors, goal and rows to the next settings.
//!
//! The rows are the only state between blocks, so a run that was cut short continues from its
//! results file exactly as it would have.

use std::collections::{BTreeMap, BTreeSet};

use latput_knobs::{Tier, Value};
use latput_stats::paired::log_ratio;
use latput_trial::observation::Role;
use latput_trial::plan::{Factor, KnobOnRole, Plan};
use latput_trial::results::LabelledSetting;
use latput_trial::today::has;
use latput_trial::{Metric, Results, Row};
use latput_units::text::format_count;
use latput_units::{IntoMap, IntoSet};

use super::space::{SearchAxis, SearchSpace, SpaceError};
use super::{Search, SearchLeader, SearchLimit, SearchOptions, SearchRun, SearchStep, StopReason};
use crate::goal::{Goal, OptimizeDirection};

/// Settings in one block.
const BLOCK: usize = 4;
/// Fewest fresh runs of the winner and of today's setting.
pub const FEWEST_CONFIRMATIONS: u32 = 6;
/// Share of all settings that is tried without a budget: 15%.
const ONE_IN: (usize, usize) = (3, 20);
/// The smallest effect that matters, as a ratio minus 1.
const SMALLEST_EFFECT: f64 = 0.03;
/// The gain over today's setting that is worth a change, as a ratio minus 1. It ends a search with nothing to find:
/// to exclude 3% takes eleven times the runs, the square of 10 / 3.
const LEAST_GAIN: f64 = 0.10;
/// A gain with a chance below this is unlikely, and the search stops.
const DOUBT: f64 = 0.05;

/// The reason of an end that needs no word.
const SETTLED: &str = "";

/// The next block of a run.
#[derive(Clone, Debug, PartialEq)]
pub enum NextBlock {
    /// Run every workload under these settings, in one block.
    Explore {
        /// The settings.
        settings: Vec<LabelledSetting>,
        /// The best setting so far, if known.
        leader: Option<LabelledSetting>,
    },
    /// Run every workload in one block under today's setting, the winner, and each other setting
    /// that a limit of the goal refers to.
    Confirm(Vec<LabelledSetting>),
    /// Run nothing more, with the reason for people.
    Done(String),
}

/// Figures of one setting in one block, in the terms of the goal.
#[derive(Clone, Debug, PartialEq)]
pub struct BlockFigures<'a> {
    /// The block.
    pub block: u32,
    /// The setting's index in the results.
    pub setting: usize,
    /// The setting.
    pub set: &'a LabelledSetting,
    /// Natural logarithm of the cost to minimise; `None` where a figure of the goal is missing.
    pub cost_log: Option<f64>,
    /// For each limit of the goal, the natural logarithm of the ratio by which it is broken; kept at 0 and below. A limit
    /// that is a share of today's or of the best figure takes the mean of these figures so far. Empty where a
    /// figure is missing.
    pub excesses_log: Vec<f64>,
}

/// A plan's search.
#[derive(Clone, Debug)]
pub struct PlanSearch {
    space: SearchSpace,
    /// By the index in the space: those of the plan, and today's.
    settings: BTreeMap<usize, LabelledSetting>,
    today: usize,
    by_label: BTreeMap<String, usize>,
    goal: Goal,
    confirmations: u32,
}

impl PlanSearch {
    /// A search of every combination of the plan's levels except those `refused` (by their index in the
    /// plan's settings), and of `today`, by the plan's goal. Without `today` that is the first level of every
    /// factor. The error names the missing part of the plan.
    pub fn new(
        plan: &Plan,
        today: Option<&LabelledSetting>,
        refused: BTreeSet<usize>,
    ) -> Result<Self, String> {
        let text = plan.goal.as_ref().ok_or("a search needs a goal")?;
        let goal = Goal::parse(text).map_err(|error| error.to_string())?;
        let listed = plan.settings();
        let first = today.unwrap_or(&listed[0]);
        let laid = laid_out(plan, &listed, first, &refused);
        let all: usize = laid.axes.iter().map(|axis| axis.levels).product();
        let closed = (0..all).filter(|index| !laid.settings.contains_key(index)).into_set();
        let space = SearchSpace::new(laid.axes, closed).map_err(|error| match error {
            // Levels of today's own are no part of the plan.
            SpaceError::Empty { .. } => {
                SpaceError::Empty { size: listed.len(), refused: refused.len() }.to_string()
            }
            SpaceError::TooLarge => error.to_string(),
        })?;
        let by_label = laid.settings.iter().map(|(idx, set)| (set.label.clone(), *idx)).into_map();
        let confirmations = plan.method.repetitions_min.max(FEWEST_CONFIRMATIONS);
        let (settings, today) = (laid.settings, laid.today);
        Ok(Self { space, settings, today, by_label, goal, confirmations })
    }

    /// Today's setting.
    pub fn today(&self) -> &LabelledSetting {
        &self.settings[&self.today]
    }

    /// Number of settings to choose from.
    fn setting_count(&self) -> usize {
        self.settings.len()
    }

    /// Default number of exploring runs of settings (each with every workload).
    pub fn usual_budget(&self) -> usize {
        let share = (self.setting_count() * ONE_IN.0).div_ceil(ONE_IN.1);
        // Enough for the initial settings and two blocks.
        share.max(self.fewest_budget() + 2 * BLOCK)
    }

    /// Runs of settings with which exploring can begin: the initial settings.
    pub fn fewest_budget(&self) -> usize {
        self.space.axes().len() + 3
    }

    /// Number of fresh blocks that confirm a winner.
    pub fn confirmations(&self) -> u32 {
        self.confirmations
    }

    /// The setting that would be recommended (after confirmation) if the search ended here, also in
    /// the middle of a block; `None` before two runs have the goal's figures.
    pub fn best_setting(&self, results: &Results) -> Option<&LabelledSetting> {
        let rows = explored_rows(results);
        self.build_search(results, &rows, usize::MAX)
            .best_setting()
            .map(|setting| &self.settings[&setting])
    }

    /// The next block after those in `results`, all of which must be complete. Exploring takes at
    /// most `budget` runs of settings.
    pub fn next(&self, results: &Results, budget: usize) -> NextBlock {
        if let Some(next) = self.confirmation_step(results) {
            return next;
        }
        let rows = explored_rows(results);
        let mut search = self.build_search(results, &rows, budget);
        // A file that was cut may name a block that lies ahead.
        let blocks = results.rows.iter().map(|row| row.block + 1).max().unwrap_or(0);
        if results.confirmed_from.is_some_and(|from| blocks >= from) {
            return self.stop_search(&search, SETTLED);
        }
        let attempts: BTreeSet<(u32, usize)> =
            rows.iter().map(|row| (row.block, row.setting)).into_set();
        let step = if attempts.len() >= budget.saturating_mul(2) {
            SearchStep::Stop(StopReason::Budget) // many runs gave no figure
        } else {
            search.next_step()
        };
        match step {
            // Trials that never give a figure must not be repeated forever.
            SearchStep::Try { .. } if search.run_count() == 0 && !rows.is_empty() => {
                NextBlock::Done("no trial that counts has the goal's figures".to_owned())
            }
            SearchStep::Try { settings, leader } => {
                let setting = |index: usize| self.settings[&index].clone();
                let settings = settings.into_iter().map(setting).collect();
                NextBlock::Explore { settings, leader: leader.map(setting) }
            }
            SearchStep::Stop(StopReason::Settled) => self.stop_search(&search, SETTLED),
            SearchStep::Stop(StopReason::NothingToGain) => {
                let percent = 100.0 * LEAST_GAIN;
                let why = format!("a setting that is {percent:.0}% better is unlikely");
                self.stop_search(&search, &why)
            }
            SearchStep::Stop(StopReason::Budget) => {
                self.stop_search(&search, "the budget is used up")
            }
        }
    }

    /// Figures of the exploring blocks in `results` from `from` on, in order. Every block must be complete.
    pub fn explored_figures<'a>(&self, results: &'a Results, from: u32) -> Vec<BlockFigures<'a>> {
        let rows = explored_rows(results);
        let search = self.build_search(results, &rows, usize::MAX);
        let runs: BTreeSet<(u32, usize)> =
            rows.iter().map(|row| (row.block, row.setting)).into_set();
        let of_run = |(block, setting): (u32, usize)| {
            let set = results.settings.get(setting)?;
            let is_this = |one: &&SearchRun| {
                one.block == block && self.by_label.get(&set.label) == Some(&one.setting)
            };
            let tried = search.tried.iter().find(is_this);
            let excesses_log = tried.map_or_else(Vec::new, |tried| search.limit_excesses(tried));
            Some(BlockFigures {
                block,
                setting,
                set,
                cost_log: tried.map(|it| it.cost_log),
                excesses_log,
            })
        };
        runs.into_iter().filter(|(block, _)| *block >= from).filter_map(of_run).collect()
    }

    /// The step after exploring, where somebody else ends it, for the reason `why`.
    pub fn conclude_search(&self, results: &Results, why: &str) -> NextBlock {
        let rows = explored_rows(results);
        self.stop_search(&self.build_search(results, &rows, usize::MAX), why)
    }

    /// While a winner is confirmed, the fresh rows themselves give the settings to run again.
    /// Nothing needs to be fitted before the last of them.
    fn confirmation_step(&self, results: &Results) -> Option<NextBlock> {
        let from = results.confirmed_from?;
        let fresh = || results.rows.iter().filter(|row| row.block >= from);
        let settings: BTreeSet<usize> = fresh().map(|row| row.setting).into_set();
        let blocks: BTreeSet<u32> = fresh().map(|row| row.block).into_set();
        if blocks.is_empty() {
            return None;
        }
        if blocks.len() < self.confirmations as usize {
            let settings = settings.iter().filter_map(|idx| results.settings.get(*idx).cloned());
            return Some(NextBlock::Confirm(settings.collect()));
        }
        let rows = explored_rows(results);
        let leader = self.build_search(results, &rows, usize::MAX).leader();
        let conclusion = leader.map_or_else(
            || "no trial that counts has the goal's figures".to_owned(),
            |leader| {
                let settings = format_count(self.setting_count(), "setting");
                format!("searched {settings}; {}", describe_regret(&leader))
            },
        );
        Some(NextBlock::Done(conclusion))
    }

    /// Confirms the leader, or says `why` exploring ended where that is today's setting.
    fn stop_search(&self, search: &Search, why: &str) -> NextBlock {
        let Some(leader) = search.leader() else {
            return NextBlock::Done("the budget is too small for a search".to_owned());
        };
        if leader.setting != self.today {
            let mut fresh = vec![self.today, leader.setting];
            for reference in &leader.references {
                if !fresh.contains(reference) {
                    fresh.push(*reference);
                }
            }
            let setting = |index: usize| self.settings[&index].clone();
            return NextBlock::Confirm(fresh.into_iter().map(setting).collect());
        }
        let why = if why.is_empty() { String::new() } else { format!("{why}, and ") };
        NextBlock::Done(format!(
            "{why}today's setting is the best found; {}",
            describe_regret(&leader)
        ))
    }

    fn build_search(&self, results: &Results, rows: &[&Row], budget: usize) -> Search {
        let limits = self.resolve_limits(results);
        let blocks = rows.iter().map(|row| u64::from(row.block) + 1).max().unwrap_or(0);
        let options = SearchOptions {
            seed: latput_units::SeededRng::from_seed_and_index(results.seed, blocks).next_u64(),
            block: BLOCK,
            budget,
            smallest_effect: SMALLEST_EFFECT,
            least_gain: LEAST_GAIN,
            doubt: DOUBT,
        };
        let bounds = limits.iter().map(|(limit, _)| *limit).collect();
        let mut search = Search::new(self.space.clone(), self.today, bounds, options);
        let mut runs: BTreeMap<(u32, usize), BTreeMap<usize, &Row>> = BTreeMap::new();
        for row in rows {
            let label = results.settings.get(row.setting).map(|set| set.label.as_str());
            if let Some(setting) = label.and_then(|label| self.by_label.get(label)) {
                runs.entry((row.block, *setting)).or_default().insert(row.workload, row);
            }
        }
        search.record_runs(runs.into_iter().filter_map(|((block, setting), of_workload)| {
            let figure = |(workload, metric): &(usize, Metric)| {
                let traffic = &results.workloads.get(*workload)?.traffic;
                let value = metric.value(traffic, &of_workload.get(workload)?.observation)?;
                log_ratio(1.0, value)
            };
            let figures: Option<Vec<f64>> = limits.iter().map(|(_, cell)| figure(cell)).collect();
            Some(SearchRun {
                setting,
                block,
                cost_log: self.log_cost(results, &figure)?,
                figures_log: figures?,
            })
        }));
        search
    }

    /// The objective on a logarithmic scale, where less is better: figures multiply, workloads are
    /// averaged.
    fn log_cost(
        &self,
        results: &Results,
        figure: &impl Fn(&(usize, Metric)) -> Option<f64>,
    ) -> Option<f64> {
        let mut sum = 0.0;
        for wanted in &self.goal.objective {
            // Only the workloads that have the figure count.
            let logs: Vec<f64> =
                wanted.cells_in(&results.workloads).iter().filter_map(figure).collect();
            if logs.is_empty() {
                return None;
            }
            sum += logs.iter().sum::<f64>() / logs.len() as f64;
        }
        Some(if self.goal.direction == OptimizeDirection::Minimize { sum } else { -sum })
    }

    /// The goal's conditions, one for each workload that has the figure.
    fn resolve_limits(&self, results: &Results) -> Vec<(SearchLimit, (usize, Metric))> {
        let has = |(workload, metric): &(usize, Metric)| {
            let of_workload = results.rows.iter().filter(|row| row.workload == *workload);
            let traffic = results.workloads.get(*workload).map(|workload| workload.traffic);
            let mut values =
                of_workload.filter_map(|row| metric.value(&traffic?, &row.observation));
            values.any(|value| value > 0.0)
        };
        let mut limits = Vec::new();
        for condition in &self.goal.conditions {
            for cell in condition.figure.cells_in(&results.workloads).into_iter().filter(has) {
                let limit = SearchLimit {
                    bound: condition.bound,
                    number_log: condition.number.max(f64::MIN_POSITIVE).ln(),
                    reference: condition.reference,
                };
                limits.push((limit, cell));
            }
        }
        limits
    }
}

/// The rows before the confirming ones.
fn explored_rows(results: &Results) -> Vec<&Row> {
    let is_explored = |row: &&Row| results.confirmed_from.is_none_or(|from| row.block < from);
    results.rows.iter().filter(is_explored).collect()
}

/// A plan's settings in a space that has a place for today's.
struct LaidOut {
    axes: Vec<SearchAxis>,
    settings: BTreeMap<usize, LabelledSetting>,
    today: usize,
}

/// Lays the plan's settings out. An axis whose factor lacks today's level gets one more, in order if the
/// levels are numbers; of all settings only today's has it.
fn laid_out(
    plan: &Plan,
    listed: &[LabelledSetting],
    today: &LabelledSetting,
    refused: &BTreeSet<usize>,
) -> LaidOut {
    let mut axes = Vec::new();
    // For each axis the index of the level that only today's setting has.
    let mut own: Vec<Option<usize>> = Vec::new();
    let mut of_today = Vec::new();
    for factor in &plan.factors {
        let is_today = |level: &Vec<Value>| has(&today.by_role, &factor.setting(level));
        let known = factor.levels.iter().position(is_today);
        let (axis, at) =
            known.map_or_else(|| with_today(factor, today), |at| (make_axis(factor), at));
        axes.push(axis);
        own.push(known.is_none().then_some(at));
        of_today.push(at);
    }
    let index = |levels: &[usize]| {
        axes.iter().zip(levels).fold(0, |index, (axis, level)| index * axis.levels + level)
    };
    let plan_axes: Vec<usize> = plan.factors.iter().map(|factor| factor.levels.len()).collect();
    let mut settings = BTreeMap::new();
    for (idx, set) in listed.iter().enumerate().filter(|(idx, _)| !refused.contains(idx)) {
        let mut rest = idx;
        let mut levels = vec![0; plan_axes.len()];
        for ((level, count), own) in levels.iter_mut().zip(&plan_axes).zip(&own).rev() {
            *level = rest % count;
            rest /= count;
            *level += usize::from(own.is_some_and(|own| own <= *level));
        }
        settings.insert(index(&levels), set.clone());
    }
    let at = index(&of_today);
    settings.entry(at).or_insert_with(|| today.clone());
    LaidOut { axes, settings, today: at }
}

/// The axis of a factor that lacks today's value, with one more level, and the index of that: among the
/// others if all are numbers, else behind them and apart.
fn with_today(factor: &Factor, today: &LabelledSetting) -> (SearchAxis, usize) {
    let mut axis = make_axis(factor);
    let of_today = |target: &KnobOnRole| {
        let role = target.role.unwrap_or(Role::Sut);
        today.by_role.get(&role).and_then(|set| set.get(&target.knob)).and_then(numeric_value)
    };
    let numbers: Option<Vec<u64>> =
        factor.levels.iter().map(|level| level.first().and_then(numeric_value)).collect();
    let rising = numbers.filter(|numbers| numbers.is_sorted());
    let at = if let (Some(numbers), Some(now)) = (rising, factor.targets.first().and_then(of_today))
    {
        let at = numbers.partition_point(|number| *number < now);
        axis.apart = axis.apart.map(|apart| apart + usize::from(at <= apart));
        at
    } else {
        axis.apart = axis.apart.or(Some(axis.levels));
        axis.levels
    };
    axis.levels += 1;
    (axis, at)
}

/// The axis of a factor. Its levels are ordered if they are rising or falling numbers.
fn make_axis(factor: &Factor) -> SearchAxis {
    let numbers: Option<Vec<u64>> =
        factor.levels.iter().map(|level| level.first().and_then(numeric_value)).collect();
    let is_ordered =
        numbers.is_some_and(|numbers| numbers.is_sorted() || numbers.iter().rev().is_sorted());
    let is_zero = |level: &Vec<Value>| level.first().and_then(numeric_value) == Some(0);
    let apart = factor.levels.iter().position(is_zero).filter(|_| is_ordered);
    let is_disruptive = factor.targets.iter().any(|target| target.knob.spec().tier > Tier::Brief);
    SearchAxis { levels: factor.levels.len(), is_ordered, apart, is_disruptive }
}

fn numeric_value(value: &Value) -> Option<u64> {
    match value {
        Value::Count(count) => Some(*count),
        Value::Time(time) => Some(time.as_ns()),
        Value::Switch(on) => Some(u64::from(*on)),
        Value::Cpus(_)
        | Value::Qdisc(_)
        | Value::Table(_)
        | Value::Profile(_)
        | Value::Sizes(_)
        | Value::Module(_)
        | Value::Named(_) => None,
    }
}

/// The remaining uncertainty, in words.
fn describe_regret(leader: &SearchLeader) -> String {
    let high = 100.0 * leader.regret_log[2].exp_m1();
    let kept = if leader.references.is_empty() && leader.keeps_limits >= 1.0 {
        String::new()
    } else {
        format!(
            "; the winner keeps the limits with a chance of {:.0}%",
            100.0 * leader.keeps_limits
        )
    };
    format!(
        "the chance that another setting is over {:.0}% better is {:.0}%; none is over {high:.1}% better, at 95%{kept}",
        100.0 * SMALLEST_EFFECT,
        100.0 * leader.doubt,
    )
}

#[cfg(test)]
mod decisions;

#[cfg(test)]
mod tests {
    use latput_knobs::{Knob, Setting};
    use latput_trial::today::TODAY;

    use super::*;
    use crate::synthetic::{SyntheticFigures, build_results, rr_workload};

    const PLAN: &str = r#"
        schema = 1
        goal = "minimize latency_ns_p99"
        [factors]
        txqueuelen = [0, 10, 20, 30]
        mtu = [1500, 9000]
        [[workload]]
        kind = "tcp_rr"
        [method]
        design = "search"
        "#;

    #[test]
    fn while_a_winner_is_confirmed_nothing_is_fitted() {
        let search = make_search(BTreeSet::new());
        // Nothing but fresh rows: whoever fitted the explored ones would find none.
        let mut fresh = make_results(&["mtu=1500", "mtu=9000"], 1);
        fresh.confirmed_from = Some(0);
        let NextBlock::Confirm(settings) = search.next(&fresh, 10) else { panic!() };
        assert_eq!(settings, fresh.settings);
        let mut all = make_results(&["mtu=1500", "mtu=9000"], search.confirmations());
        all.confirmed_from = Some(0);
        assert!(matches!(search.next(&all, 10), NextBlock::Done(_)));
    }

    #[test]
    fn what_is_refused_is_never_tried() {
        let plan = Plan::parse("test", PLAN).unwrap();
        let refused = BTreeSet::from([3, 5]);
        let settings = plan.settings();
        let search = make_search(refused.clone());
        let NextBlock::Explore { settings: tried, leader: None } =
            search.next(&make_results(&[], 0), 8)
        else {
            panic!()
        };
        assert!(tried.len() >= 4, "{tried:?}");
        assert!(refused.iter().all(|idx| !tried.contains(&settings[*idx])), "{tried:?}");
        let all_but_today = PlanSearch::new(&plan, None, (1..8).collect()).unwrap_err();
        assert!(all_but_today.contains("7 of 8 settings are refused"), "{all_but_today}");
    }

    #[test]
    fn delay_of_zero_stands_apart_from_the_others() {
        let axes = make_search(BTreeSet::new()).space.axes().to_vec();
        let queue = axes.iter().find(|axis| axis.levels == 4).unwrap();
        assert_eq!((queue.apart, queue.is_ordered), (Some(0), true));
        assert!(queue.level_distance(0, 1) > queue.level_distance(1, 2));
        let mtu = axes.iter().find(|axis| axis.levels == 2).unwrap();
        assert_eq!((mtu.apart, mtu.is_disruptive), (None, true));
    }

    #[test]
    fn today_is_tried_first() {
        let plan = Plan::parse("test", PLAN).unwrap();
        let listed = plan.settings();
        let with = |today: &LabelledSetting| {
            let search = PlanSearch::new(&plan, Some(today), BTreeSet::new()).unwrap();
            let next = search.next(&make_results(&[], 0), 8);
            let NextBlock::Explore { settings, leader: None } = next else { panic!("{next:?}") };
            assert_eq!((&settings[0], search.today()), (today, today));
            assert!(settings[1..].iter().all(|set| listed.contains(set)), "{settings:?}");
            search
        };
        assert_eq!(with(&listed[5]).settings.len(), 8, "one of the plan's");
        let set = |values: &[(Knob, u64)]| {
            let set: Setting =
                values.iter().map(|(knob, value)| (*knob, Value::Count(*value))).collect();
            LabelledSetting {
                label: TODAY.to_owned(),
                by_role: [Role::Sut, Role::Generator].map(|role| (role, set.clone())).into(),
            }
        };
        let search = with(&set(&[(Knob::Mtu, 1500), (Knob::Txqueuelen, 15)]));
        assert_eq!(search.settings.len(), 9, "one more");
        let axes = search.space.axes();
        let queue = axes.iter().find(|axis| axis.levels == 5).unwrap();
        assert!(queue.is_ordered && queue.apart == Some(0), "{queue:?}");
        // A knob that is not the same on all hosts is beside the others.
        let search = with(&set(&[(Knob::Mtu, 9000)]));
        assert_eq!(search.space.axes().iter().map(|axis| axis.levels).sum::<usize>(), 2 + 5);
        assert_eq!(search.space.allowed_settings().count(), 9);
    }

    fn make_search(refused: BTreeSet<usize>) -> PlanSearch {
        PlanSearch::new(&Plan::parse("test", PLAN).unwrap(), None, refused).unwrap()
    }

    fn make_results(settings: &[&str], blocks: u32) -> Results {
        let figures = SyntheticFigures { rate: 1e5, p99_us: Some(20.0), service_demand_us: 2.0 };
        build_results(settings, &[rr_workload("tcp_rr")], blocks, |_, _| figures)
    }
}
