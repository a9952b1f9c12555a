//! Settings that take turns while traffic flows.
//!
//! The noise of a shared machine is slow: two slices a second apart see nearly the same machine,
//! two trials ten seconds apart do not. So every setting has a slice of about a quarter of a second
//! in each *round*, in random order, on the same connections. Consecutive rounds are a *stint*;
//! stints of the workloads alternate. A round is a block of the results, and a slice one of its
//! rows.

use std::collections::{BTreeMap, BTreeSet};

use latput_linux::process::unix_ms;
use latput_model::goal::{GoalFigure, GoalMeasure};
use latput_model::{
    EliminatedSetting, Goal, blocks_to_next_look, find_eliminated, objective_scatter,
};
use latput_results::order::trial_seed;
use latput_runner::Error;
use latput_runner::trials::{
    IntervalCounts, SliceRunner, Stint, Trial, TrialProgress, TrialRunner,
};
use latput_trial::plan::Method;
use latput_trial::results::LabelledSetting;
use latput_trial::{Metric, Observation, Results, Row, Workload};
use latput_units::{IntoSet, Nanos, SeededRng};

use super::lost::ATTEMPTS;
use super::{RunInputs, RunProgress, RunSession};

/// Length of a slice with its cut, if carry-over is short. Longer slices contain more of the slow
/// noise; in shorter ones the cut is a larger share.
const LENGTH: Nanos = Nanos::from_ms(250);
/// Fewest cuts in the length of a slice.
const LENGTH_PER_CUT: u64 = 6;
/// Usual length of a stint's traffic: long against connecting and warming up, and short enough that
/// workloads alternate often.
const STINT: Nanos = Nanos::from_s(10);
/// Fewest rounds of a stint.
const ROUNDS_AT_LEAST: u64 = 2;
/// Most slices of a stint: a host keeps and sends them at once.
const SLICES_AT_MOST: usize = 400;

/// The least part of an even share of the rounds, before the shares are scaled to add up to one.
const LEAST_SHARE: f64 = 0.5;
/// Rounds are made up for until there are this many times those that were wanted.
const MADE_UP: u32 = 2;

/// The workload of the search for carry-over.
const SEARCHED: usize = 0;
/// Length of the steps in the search for carry-over.
const STEP: Nanos = Nanos::from_ms(25);
/// Steps of a turn of one setting.
pub(super) const STEPS: usize = 10;
/// Turns of each of the two settings.
const SWITCHES: usize = 7;
/// The last steps of a turn, in which carry-over is assumed to be over.
const SETTLED: usize = 4;
/// A step is settled if its rate is within this share of the settled rate,
const NEAR: f64 = 0.05;
/// or within this many standard errors. With 6 turns and 12 tests of a search that is 1% for all of them by Student's t.
const STANDARD_ERRORS: f64 = 7.15;

/// The layout of a run's slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SliceLayout {
    length: Nanos,
    cut: Nanos,
}

impl SliceLayout {
    const fn measured_length(self) -> Nanos {
        self.length.saturating_sub(self.cut)
    }
}

/// The layout where changes carry over for a step at most. Others measure at least as long in a slice.
const USUAL: SliceLayout = SliceLayout { length: LENGTH, cut: STEP };

/// The fewest and the most rounds of a plan: those with the measured time of its repetitions in slices of the usual
/// length. The count is known before carry-over is measured; longer slices measure more than was asked for.
pub(super) fn compute_round_limits(method: &Method) -> (u32, u32) {
    let rounds = |repetitions: u32| {
        let time = method.duration.saturating_mul(u64::from(repetitions)).as_ns();
        u32::try_from(time.div_ceil(USUAL.measured_length().as_ns())).unwrap_or(u32::MAX)
    };
    (rounds(method.repetitions_min), rounds(method.repetitions_max))
}

/// Rounds that can prove something.
pub(super) const LEAST_ROUNDS: u32 = 8;

/// About the time of so many rounds of these settings and workloads, with the search for carry-over before them.
pub(super) fn estimate_rounds_time(
    rounds: u32,
    (settings, workloads): (u64, u64),
    method: &Method,
) -> Nanos {
    let settings = usize::try_from(settings).unwrap_or(usize::MAX);
    let of_workload = estimate_stints_time(0..rounds, settings, USUAL, method);
    let steps = STEP.saturating_mul((2 * SWITCHES * STEPS) as u64);
    let search = steps.saturating_add(time_beside_stint(method));
    of_workload.saturating_mul(workloads).saturating_add(search)
}

/// About the time of these rounds of a workload, in stints.
fn estimate_stints_time(
    rounds: std::ops::Range<u32>,
    settings: usize,
    layout: SliceLayout,
    method: &Method,
) -> Nanos {
    let (mut stints, mut done) = (0_u64, rounds.start);
    while done < rounds.end {
        done = done.saturating_add(rounds_of_stint(settings, done, rounds.end, layout));
        stints += 1;
    }
    let slices = u64::from(rounds.end - rounds.start).saturating_mul(settings as u64);
    let traffic = layout.length.saturating_mul(slices);
    traffic.saturating_add(time_beside_stint(method).saturating_mul(stints))
}

/// Time of a stint beside its slices.
fn time_beside_stint(method: &Method) -> Nanos {
    method.warmup + super::TRIAL_OVERHEAD.into()
}

/// Rounds that a workload lacks of those that are wanted, after so many of which `fit` count, if all further ones count.
/// Rounds that do not count are made up for, up to [`MADE_UP`] times.
fn missing_rounds(wanted: u32, done: u32, fit: u32) -> u32 {
    wanted.saturating_sub(fit).min(wanted.saturating_mul(MADE_UP).saturating_sub(done))
}

impl RunSession<'_> {
    /// Runs stints of the workloads in turn, until the intervals are narrow enough or the budget is
    /// used up.
    pub(super) fn run_slices(&mut self, runner: &mut dyn TrialRunner) -> Result<(), Error> {
        let layout = self.measure_layout(runner.slice_runner().ok_or(Error::NoSlices)?)?;
        let mut patience = self.initial_wait_budget();
        self.slice = Some(layout.length);
        let (least, most) = compute_round_limits(&self.run.plan.method);
        let settings = self.results.settings.len();
        let mut dropped: BTreeSet<usize> = BTreeSet::new();
        let mut looking = self.plan_interim_analysis(most)?;
        for cycle in 0.. {
            let rounds = self.next_rounds();
            let read = self.read_by_goal();
            let fit = fit_rounds(&self.results);
            let too_wide = latput_model::too_wide(&self.results);
            let wants = |workload: &usize| {
                let is_open =
                    |wanted: u32| missing_rounds(wanted, rounds[*workload], fit[*workload]) > 0;
                is_open(least)
                    || is_open(most) && read.any[*workload] && too_wide.contains(workload)
            };
            let mut workloads: Vec<usize> =
                (0..self.results.workloads.len()).filter(wants).collect();
            if workloads.is_empty() {
                self.ended_by_its_rules();
                return Ok(());
            }
            read.put_off_others(&mut workloads, &rounds);
            leave_out_steady(&mut workloads, &rounds, &self.measure_scatter(&dropped));
            SeededRng::from_seed_and_index(self.results.seed, cycle).shuffle(&mut workloads);
            for workload in workloads {
                let alive: Vec<usize> =
                    (0..settings).filter(|setting| !dropped.contains(setting)).collect();
                let first = self.next_rounds()[workload];
                let made_up = most.saturating_mul(MADE_UP);
                let until =
                    [least, most].into_iter().find(|until| first < *until).unwrap_or(made_up);
                let rounds = rounds_of_stint(alive.len(), first, until, layout);
                let rounds = read.share_of_stint(workload, first, rounds);
                let stint = self.plan_stint(workload, &alive, first..first + rounds, layout);
                if first > 0 && !self.has_budget_for(&stint) {
                    let note = "the time budget is used up";
                    self.results.notes.push(note.to_owned());
                    self.ended_by_its_rules();
                    return Ok(());
                }
                self.wait_for_quiet(runner, &mut patience)?;
                self.run_stint(runner.slice_runner().ok_or(Error::NoSlices)?, &stint)?;
            }
            let seen = [rounds, self.next_rounds()].map(|rounds| read.mean_of_objective(&rounds));
            if !looking.looks.is_due(seen[0], seen[1]) {
                continue;
            }
            self.drop_losers(&mut dropped, self.share_of_look(&looking));
            let alive = settings - dropped.len();
            self.plan_the_rest(least, alive);
            let left = self.time_left([least, most], &read, alive, layout);
            if self.check_for_answer(&mut looking, Some(left)) {
                return Ok(());
            }
            if dropped.len() + 1 == settings && settings > 1 {
                self.add_remark("one setting is left, so nothing more can be compared".to_owned());
                self.ended_by_its_rules();
                return Ok(());
            }
        }
        Ok(())
    }

    /// Counts the planned trials: settings that were dropped have fewer.
    pub(super) fn ended_by_its_rules(&mut self) {
        self.results.planned_trials = self.results.rows.len() as u64;
    }

    /// Counts the planned trials after settings were dropped.
    fn plan_the_rest(&mut self, least: u32, settings: usize) {
        let (done, fit) = (self.next_rounds(), fit_rounds(&self.results));
        let missing = done.iter().zip(&fit).map(|(&done, &fit)| missing_rounds(least, done, fit));
        let slices = missing.map(u64::from).sum::<u64>() * settings as u64;
        self.results.planned_trials = self.results.rows.len() as u64 + slices;
    }

    /// The longest time that the run goes on: until each workload has the rounds that the loop of [`Self::run_slices`] asks
    /// for, with the stints around them, if all of them count; or until the budget is used up.
    fn time_left(
        &self,
        [least, most]: [u32; 2],
        read: &ReadByGoal,
        settings: usize,
        layout: SliceLayout,
    ) -> Nanos {
        let (done, fit) = (self.next_rounds(), fit_rounds(&self.results));
        let method = &self.run.plan.method;
        let of_workload = |workload: usize| {
            let wanted = if read.any[workload] { most } else { least };
            let missing = missing_rounds(wanted, done[workload], fit[workload]);
            let rounds = done[workload]..done[workload].saturating_add(missing);
            estimate_stints_time(rounds, settings, layout, method)
        };
        let longest = (0..done.len()).map(of_workload).fold(Nanos::ZERO, Nanos::saturating_add);
        let of_budget = method.budget.map(|it| it.saturating_sub(self.begun.elapsed().into()));
        of_budget.map_or(longest, |left| left.min(longest))
    }

    /// The next round of each workload.
    fn next_rounds(&self) -> Vec<u32> {
        let mut next = vec![0; self.results.workloads.len()];
        for row in &self.results.rows {
            next[row.workload] = next[row.workload].max(row.block + 1);
        }
        next
    }

    /// A workload counts as read until it has a trial, and then if some trial has the figure: a stream has no round trips.
    fn read_by_goal(&self) -> ReadByGoal {
        let Results { goal, workloads, rows, .. } = &self.results;
        ReadByGoal::new(goal.as_deref(), workloads, |&(workload, metric)| {
            let traffic = &workloads[workload].traffic;
            let mut rows = rows.iter().filter(|row| row.workload == workload).peekable();
            let has = |row: &Row| metric.value(traffic, &row.observation).is_some();
            rows.peek().is_none() || rows.any(has)
        })
    }

    /// The scatter of the objective by workload, over the settings that still run.
    fn measure_scatter(&self, dropped: &BTreeSet<usize>) -> BTreeMap<usize, f64> {
        let Some(Ok(goal)) = self.results.goal.as_deref().map(Goal::parse_kept) else {
            return BTreeMap::new();
        };
        let others = 1..self.results.settings.len();
        let others: Vec<usize> = others.filter(|setting| !dropped.contains(setting)).collect();
        objective_scatter(&self.results, &goal, &others)
    }

    /// Runs a stint, and again if its traffic breaks. Stores every slice.
    fn run_stint(&mut self, runner: &mut dyn SliceRunner, stint: &Stint) -> Result<(), Error> {
        let planned = self.results.rows.len() + stint.trials.len();
        self.results.planned_trials = self.results.planned_trials.max(planned as u64);
        let RunInputs { plan, stop, .. } = self.run;
        let length_ms = stint.length.as_ns() / 1_000_000;
        for attempt in 1..=ATTEMPTS {
            let started_unix_ms = unix_ms();
            match runner.measure_stint(stint, &plan.method, stop, &mut *self.progress) {
                Ok(observations) => {
                    for (at, (trial, observation)) in
                        (0..).zip(stint.trials.iter().zip(observations))
                    {
                        self.store_row(
                            trial.to_row(started_unix_ms + at * length_ms, observation),
                        )?;
                    }
                    return Ok(());
                }
                Err(error) if error.is_transient() => {
                    let first = stint.trials.first().expect("a stint has slices");
                    self.note_lost_attempt(first, error, attempt)?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Drops settings that are proven to lose; the others get their time.
    fn drop_losers(&mut self, dropped: &mut BTreeSet<usize>, share: f64) {
        let Some(Ok(goal)) = self.results.goal.as_deref().map(Goal::parse_kept) else { return };
        // Early on a goal may not be judged yet: then no setting has lost.
        let losers = find_eliminated(&self.results, &goal, share).unwrap_or_default();
        for EliminatedSetting { setting, why } in losers {
            if dropped.insert(setting) {
                let label = &self.results.settings[setting].label;
                self.add_remark(format!("`{label}` has no further slices: {why}"));
            }
        }
    }

    /// Whether a stint ends within the budget.
    fn has_budget_for(&self, stint: &Stint) -> bool {
        let Some(budget) = self.run.plan.method.budget else { return true };
        let length = stint.window_length().saturating_add(time_beside_stint(&self.run.plan.method));
        self.begun.elapsed() + length.as_duration() <= budget.as_duration()
    }

    fn plan_stint(
        &self,
        workload: usize,
        settings: &[usize],
        rounds: std::ops::Range<u32>,
        layout: SliceLayout,
    ) -> Stint {
        let trials = rounds.flat_map(|round| {
            let mut order = settings.to_vec();
            SeededRng::from_seed_and_index(
                self.results.seed,
                trial_seed(self.results.seed, round, 0, workload),
            )
            .shuffle(&mut order);
            order.into_iter().map(move |setting| self.plan_trial(round, setting, workload))
        });
        Stint { trials: trials.collect(), length: layout.length, cut: layout.cut }
    }

    /// The length of slices and of their cuts, measured before the first slice by the carry-over of
    /// changes between the first setting and the last. Carry-over that would make slices longer is real where a second
    /// search finds it too.
    fn measure_layout(&mut self, runner: &mut dyn SliceRunner) -> Result<SliceLayout, Error> {
        let ends = [0, self.results.settings.len() - 1];
        let mut carry_over = self.search_carry_over(runner, ends)?;
        if length_for(cut_for(carry_over)) > LENGTH {
            let again = self.search_carry_over(runner, ends)?;
            carry_over =
                [carry_over, again].into_iter().min_by_key(|found| cut_for(*found)).flatten();
        }
        let cut = cut_for(carry_over);
        let layout = SliceLayout { length: length_for(cut), cut };
        let load = &self.results.workloads[SEARCHED];
        let note =
            layout_note(layout, load, &ends.map(|idx| &self.results.settings[idx]), carry_over);
        self.add_remark(note);
        Ok(layout)
    }

    /// Steps until a change between the settings `ends` has settled; `None` if it never does.
    fn search_carry_over(
        &mut self,
        runner: &mut dyn SliceRunner,
        ends: [usize; 2],
    ) -> Result<Option<usize>, Error> {
        let turns = (0..2 * SWITCHES).map(|turn| ends[turn % 2]);
        let trials: Vec<Trial> = turns
            .flat_map(|setting| std::iter::repeat_n(setting, STEPS))
            .map(|setting| self.plan_trial(0, setting, SEARCHED))
            .collect();
        let stint = Stint { trials, length: STEP, cut: Nanos::ZERO };
        let steps = self.measure_steps(runner, &stint)?;
        let load = &self.results.workloads[SEARCHED];
        let metric = GoalMeasure::Rate.metric_for(&load.traffic);
        Ok(carry_over(&compute_step_rates(load, metric, &steps)))
    }

    /// Runs a stint of the search for carry-over, and again if its traffic breaks. Nothing of it is stored.
    fn measure_steps(
        &mut self,
        runner: &mut dyn SliceRunner,
        stint: &Stint,
    ) -> Result<Vec<Observation>, Error> {
        let RunInputs { plan, stop, .. } = self.run;
        let mut attempt = 1;
        loop {
            let progress = &mut RemarksOnly(&mut *self.progress);
            match runner.measure_stint(stint, &plan.method, stop, progress) {
                Err(error) if error.is_transient() && attempt < ATTEMPTS => attempt += 1,
                ended => return ended,
            }
        }
    }
}

/// Passes on remarks; intervals of the search for carry-over are no progress of the run.
struct RemarksOnly<'a>(&'a mut dyn RunProgress);

impl TrialProgress for RemarksOnly<'_> {
    fn report_interval(&mut self, _: &IntervalCounts) {}
    fn report_remark(&mut self, text: &str) {
        self.0.report_remark(text);
    }
}

/// The cut of a slice by the steps of carry-over.
fn cut_for(carry_over: Option<usize>) -> Nanos {
    STEP.saturating_mul(carry_over.unwrap_or(STEPS - SETTLED).max(1) as u64)
}

/// The length of a slice with such a cut.
fn length_for(cut: Nanos) -> Nanos {
    LENGTH.max(cut.saturating_mul(LENGTH_PER_CUT))
}

fn layout_note(
    layout: SliceLayout,
    load: &Workload,
    [from, to]: &[&LabelledSetting; 2],
    carry_over: Option<usize>,
) -> String {
    let between = format!("`{}` and `{}`", from.label, to.label);
    let name = &load.name;
    let found = match carry_over {
        Some(0) => format!(
            "`{name}` shows no carry-over after {SWITCHES} changes each way between {between}"
        ),
        Some(steps) => format!(
            "`{name}` is settled {:.0} ms after a change between {between} ({SWITCHES} each way)",
            STEP.as_ms_f64() * steps as f64
        ),
        None => format!(
            "`{name}` is not settled {:.0} ms after a change between {between}: with `design = \"blocks\"` each \
             setting has trials of its own",
            STEP.as_ms_f64() * (STEPS - SETTLED) as f64
        ),
    };
    format!(
        "settings alternate in slices of {:.0} ms; the first {:.0} ms of each are cut: {found}",
        layout.length.as_ms_f64(),
        layout.cut.as_ms_f64()
    )
}

/// Rounds of a stint with this number of settings after so many rounds of its workload. The first stint is short, so
/// that all workloads are seen early; a later one goes to the next look.
/// None goes beyond `until`; a rest that is too short for a stint of its own belongs to the last one.
fn rounds_of_stint(settings: usize, before: u32, until: u32, layout: SliceLayout) -> u32 {
    let round = layout.length.saturating_mul(settings as u64).as_ns().max(1);
    let at_most = (SLICES_AT_MOST / settings.max(1)).max(1) as u64;
    let usual = (STINT.as_ns() / round).max(ROUNDS_AT_LEAST).min(at_most);
    let early = u64::from(blocks_to_next_look(before));
    let wanted = usual.min(early);
    let left = u64::from(until.saturating_sub(before)).max(1);
    let rounds = if left < wanted + ROUNDS_AT_LEAST { left.min(at_most) } else { wanted };
    u32::try_from(rounds).expect("a stint has few rounds")
}

/// For each workload, the rounds' worth of slices that count: pairs with the first setting's by the number of other
/// settings that still run, or where no other does the first one's slices.
fn fit_rounds(results: &Results) -> Vec<u32> {
    let is_fit = |row: &&Row| row.observation.is_fit(results.beside);
    let of_workload = |workload: usize| {
        let rows = || results.rows.iter().filter(move |row| row.workload == workload);
        let firsts: BTreeSet<u32> =
            rows().filter(|row| row.setting == 0).filter(is_fit).map(|row| row.block).into_set();
        let last = rows().map(|row| row.block).max();
        let others = rows().filter(|row| row.setting != 0 && Some(row.block) == last).count();
        if others == 0 {
            return firsts.len();
        }
        let pairs = rows().filter(|row| row.setting != 0 && firsts.contains(&row.block));
        // A setting that was dropped has pairs of earlier rounds, which are no more rounds of the others.
        (pairs.filter(is_fit).count() / others).min(firsts.len())
    };
    let rounds = (0..results.workloads.len()).map(of_workload);
    rounds.map(|rounds| u32::try_from(rounds).unwrap_or(u32::MAX)).collect()
}

/// Figures of each workload that the goal reads.
struct ReadByGoal {
    /// Whether any figure; all without a goal.
    any: Vec<bool>,
    /// Whether a figure of the objective; all without a goal.
    objective: Vec<bool>,
}

impl ReadByGoal {
    /// Looks up what a goal reads. `may_have` says whether a workload may have this metric: any may be named by a goal that names none.
    fn new(
        goal: Option<&str>,
        workloads: &[Workload],
        may_have: impl Fn(&(usize, Metric)) -> bool,
    ) -> Self {
        let Some(Ok(goal)) = goal.map(Goal::parse_kept) else {
            let all = vec![true; workloads.len()];
            return Self { any: all.clone(), objective: all };
        };
        let among = |figures: &[&GoalFigure]| -> Vec<bool> {
            let cells =
                figures.iter().flat_map(|figure| figure.cells_in(workloads)).filter(&may_have);
            let read: BTreeSet<usize> = cells.map(|(workload, _)| workload).into_set();
            (0..workloads.len()).map(|idx| read.contains(&idx)).collect()
        };
        let objective: Vec<&GoalFigure> = goal.objective.iter().collect();
        let limits = goal.conditions.iter().map(|condition| &condition.figure);
        let all: Vec<&GoalFigure> = objective.iter().copied().chain(limits).collect();
        Self { any: among(&all), objective: among(&objective) }
    }

    /// The rounds that every workload of the objective has.
    fn rounds_of_objective(&self, rounds: &[u32]) -> u32 {
        let of_objective = rounds.iter().zip(&self.objective).filter(|(_, is_read)| **is_read);
        of_objective.map(|(rounds, _)| *rounds).min().unwrap_or(0)
    }

    /// The rounds of the objective's workloads on average, which count its looks: steady workloads have fewer.
    fn mean_of_objective(&self, rounds: &[u32]) -> u32 {
        let of_objective = || rounds.iter().zip(&self.objective).filter(|(_, is_read)| **is_read);
        let count = u64::try_from(of_objective().count()).unwrap_or(u64::MAX);
        let sum: u64 = of_objective().map(|(rounds, _)| u64::from(*rounds)).sum();
        u32::try_from(sum.checked_div(count).unwrap_or(0)).unwrap_or(u32::MAX)
    }

    /// Lets the objective go before: while its workloads still want rounds, the others get half as many.
    fn put_off_others(&self, wanted: &mut Vec<usize>, rounds: &[u32]) {
        if wanted.iter().any(|workload| self.objective[*workload]) {
            let half = self.rounds_of_objective(rounds) / 2;
            wanted.retain(|workload| {
                let done = rounds[*workload];
                self.objective[*workload] || done == 0 || done < half
            });
        }
    }

    /// The rounds of a stint, of which another workload than the objective's has half the first time.
    fn share_of_stint(&self, workload: usize, before: u32, rounds: u32) -> u32 {
        let is_put_off = !self.objective[workload] && self.objective.contains(&true);
        if before == 0 && is_put_off { rounds.div_ceil(2) } else { rounds }
    }
}

/// Leaves out of a cycle the workloads that have more than their share of the rounds. The error of a sum of averages is
/// least where each has rounds in proportion to its scatter (Neyman, Journal of the Royal Statistical Society 97, 1934).
/// None has much less than half of an even share, since a scatter is an estimate too. Workloads without a known scatter stay.
fn leave_out_steady(wanted: &mut Vec<usize>, rounds: &[u32], scatter: &BTreeMap<usize, f64>) {
    let known: Vec<(usize, f64)> =
        wanted.iter().filter_map(|workload| Some((*workload, *scatter.get(workload)?))).collect();
    let sum: f64 = known.iter().map(|(_, scatter)| scatter).sum();
    if !(sum > 0.0 && sum.is_finite()) {
        return;
    }
    let least = LEAST_SHARE / known.len() as f64;
    let weight = |scatter: f64| (scatter / sum).max(least);
    let weights: f64 = known.iter().map(|(_, scatter)| weight(*scatter)).sum();
    let all: f64 = known.iter().map(|(workload, _)| f64::from(rounds[*workload])).sum();
    let has_enough = |workload: usize| {
        let scatter = known.iter().find(|(known, _)| *known == workload);
        scatter.is_some_and(|(_, scatter)| {
            f64::from(rounds[workload]) > weight(*scatter) / weights * all + 1.0
        })
    };
    wanted.retain(|workload| !has_enough(*workload));
}

/// The rate of each step, turn by turn.
fn compute_step_rates(load: &Workload, metric: Metric, steps: &[Observation]) -> Vec<Vec<f64>> {
    let rate = |step: &Observation| metric.value(&load.traffic, step).unwrap_or(0.0);
    steps.chunks(STEPS).map(|turn| turn.iter().map(rate).collect()).collect()
}

/// Steps until a change has settled: from there on every step has the rate of the last ones, up to
/// chance. `None` if it never settles. `turns` are the rates step by step; those of the two
/// settings alternate, and the first two turns do not count because no change preceded them.
fn carry_over(turns: &[Vec<f64>]) -> Option<usize> {
    let of_setting =
        |parity: usize| -> Vec<&Vec<f64>> { turns.iter().skip(2 + parity).step_by(2).collect() };
    settled_after([&of_setting(0), &of_setting(1)], STEPS - SETTLED, STANDARD_ERRORS)
}

/// As [`carry_over`], of the turns of each of two settings, whose steps from `settled_from` on are assumed to be settled. A
/// step is settled within so many standard errors.
pub(super) fn settled_after(
    turns: [&[&Vec<f64>]; 2],
    settled_from: usize,
    standard_errors: f64,
) -> Option<usize> {
    let is_settled = |step: usize| {
        turns.iter().all(|of_setting| {
            let log = |turn: &&Vec<f64>| {
                let last = turn.get(settled_from..).filter(|steps| !steps.is_empty())?;
                let settled = last.iter().sum::<f64>() / last.len() as f64;
                let rate = *turn.get(step)?;
                (rate > 0.0 && settled > 0.0).then(|| (rate / settled).ln())
            };
            is_near_zero(&of_setting.iter().filter_map(log).collect::<Vec<f64>>(), standard_errors)
        })
    };
    let unsettled = (0..settled_from).rev().find(|step| !is_settled(*step));
    match unsettled {
        None => Some(0),
        Some(last) if last + 1 == settled_from => None,
        Some(last) => Some(last + 1),
    }
}

/// Whether the mean of `logs` is small, or within so many standard errors of zero. False for too few values.
fn is_near_zero(logs: &[f64], standard_errors: f64) -> bool {
    let n = logs.len() as f64;
    if logs.len() < 3 {
        return false;
    }
    let mean = logs.iter().sum::<f64>() / n;
    let variance = logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / (n - 1.0);
    mean.abs() <= NEAR.max(standard_errors * (variance / n).sqrt())
}

#[cfg(test)]
mod tests {
    use latput_trial::Plan;
    use latput_units::IntoMap;

    use super::*;

    #[test]
    fn carry_over_is_found_to_the_step() {
        for after in 0..STEPS - SETTLED {
            assert_eq!(carry_over(&make_turns(after, 0.5, 0.02)), Some(after), "{after}");
        }
        assert_eq!(carry_over(&make_turns(STEPS - SETTLED, 0.5, 0.02)), None, "it never ends");
    }

    #[test]
    fn noise_is_no_carry_over() {
        let false_alarms = (0..50_u64)
            .filter(|seed| {
                carry_over(&make_noisy_turns(*seed, 0, 1.0, 0.1)).is_none_or(|steps| steps > 2)
            })
            .count();
        assert!(false_alarms <= 1, "{false_alarms} of 50");
        assert_eq!(carry_over(&vec![vec![0.0; STEPS]; 2 * SWITCHES]), None);
        assert_eq!(carry_over(&[]), None);
    }

    #[test]
    fn stint_is_ten_seconds_and_small() {
        let layout = SliceLayout { length: Nanos::from_ms(250), cut: Nanos::from_ms(25) };
        let of = |settings: usize, before: u32| rounds_of_stint(settings, before, 1_000, layout);
        assert_eq!([of(5, 60), of(2, 60), of(100, 60), of(1000, 60)], [8, 20, 2, 1]);
        // The first of each workload is short, and later ones grow with what there is.
        assert_eq!([0, 4, 8, 12].map(|before| of(2, before)), [4, 3, 3, 4]);
        // None goes beyond what is planned, and no rest of a round is left.
        assert_eq!([18, 17, 22, 23].map(|it| rounds_of_stint(5, it, 23, layout)), [5, 6, 1, 1]);
        let method = Method { duration: Nanos::from_s(1), ..Method::default() };
        assert_eq!(compute_round_limits(&method), (23, 134), "5 and 30 s in slices of 225 ms");
    }

    #[test]
    fn rounds_that_do_not_count_are_missing() {
        let missing = |done: u32, fit: u32| missing_rounds(20, done, fit);
        assert_eq!([missing(0, 0), missing(12, 12), missing(20, 20)], [20, 8, 0]);
        // Of 15 rounds 5 count: as many as are wanted may follow, and no more than twice as many are run in all.
        assert_eq!([missing(15, 5), missing(38, 5), missing(40, 5), missing(50, 5)], [15, 2, 0, 0]);
    }

    #[test]
    fn time_of_the_rest_has_all_stints() {
        let method = Method { warmup: Nanos::from_s(1), ..Method::default() };
        let time = |rounds| estimate_stints_time(rounds, 2, USUAL, &method);
        let slices = LENGTH.saturating_mul(2 * 30);
        let whole = time(0..30);
        assert!(
            whole > slices + Nanos::from_s(4),
            "several stints, each with its warm-up: {whole}"
        );
        assert_eq!(time(30..30), Nanos::ZERO);
        assert!(time(0..10) + time(10..30) >= whole);
    }

    #[test]
    fn only_goal_metrics_get_extra_slices() {
        let text = "schema = 1\n[[workload]]\nkind = \"tcp_rr\"\n[[workload]]\nkind = \"tcp_stream\"\n\
                    [[workload]]\nkind = \"ping\"\n";
        let workloads = Plan::parse("plan.toml", text).unwrap().workloads;
        let goal =
            "minimize latency_ns_p99 of tcp_rr where throughput_bps of tcp_stream >= 0.95 first";
        let read = ReadByGoal::new(Some(goal), &workloads, |_| true);
        assert_eq!((read.any, read.objective), (vec![true, true, false], vec![true, false, false]));
        let all = ReadByGoal::new(None, &workloads, |_| true);
        assert_eq!((all.any, all.objective), (vec![true; 3], vec![true; 3]));
        // A goal that names no workload reads those that have its figures.
        let goal = "minimize latency_ns_p99 where throughput_bps >= 0.95 today";
        let has = |&(workload, metric): &(usize, Metric)| {
            (workload == 1) == (metric == Metric::ThroughputBps)
        };
        let read = ReadByGoal::new(Some(goal), &workloads, has);
        assert_eq!((read.any, read.objective), (vec![true; 3], vec![true, false, true]));
    }

    #[test]
    fn objective_goes_before_the_limits() {
        let read = ReadByGoal { any: vec![true; 3], objective: vec![true, true, false] };
        let wanted = |rounds: [u32; 3], wanted: &[usize]| {
            let mut wanted = wanted.to_vec();
            read.put_off_others(&mut wanted, &rounds);
            wanted
        };
        assert_eq!(wanted([0, 0, 0], &[0, 1, 2]), [0, 1, 2], "all are seen early");
        assert_eq!(wanted([4, 4, 4], &[0, 1, 2]), [0, 1]);
        assert_eq!(wanted([8, 8, 4], &[0, 1, 2]), [0, 1]);
        assert_eq!(wanted([10, 10, 4], &[0, 1, 2]), [0, 1, 2]);
        assert_eq!([0, 2].map(|workload| read.share_of_stint(workload, 0, 4)), [4, 2]);
        assert_eq!(read.share_of_stint(2, 4, 3), 3);
        let none = ReadByGoal { any: vec![true; 3], objective: vec![false; 3] };
        assert_eq!(none.share_of_stint(2, 0, 4), 4, "without an objective all are alike");
        assert_eq!(wanted([23, 23, 12], &[2]), [2], "in the end it has what is planned");
        assert_eq!(read.rounds_of_objective(&[9, 7, 2]), 7);
        assert_eq!(read.mean_of_objective(&[9, 7, 2]), 8);
    }

    #[test]
    fn steady_workloads_have_fewer_rounds() {
        let left = |rounds: [u32; 3], scatter: &[(usize, f64)]| {
            let mut wanted = vec![0, 1, 2];
            leave_out_steady(&mut wanted, &rounds, &scatter.iter().copied().into_map());
            wanted
        };
        let uneven = [(0, 0.1), (1, 0.1), (2, 1.0)];
        assert_eq!(left([4, 4, 4], &uneven), [2]);
        assert_eq!(left([4, 4, 20], &uneven), [0, 1, 2], "about half of an even share is theirs");
        assert_eq!(left([4, 4, 30], &uneven), [0, 1]);
        // Alike, all go on; so does what has no scatter yet, or where none is known.
        assert_eq!(left([8, 8, 8], &[(0, 0.2), (1, 0.2), (2, 0.2)]), [0, 1, 2]);
        assert_eq!(left([8, 8, 2], &[(0, 0.2), (1, 0.2)]), [0, 1, 2]);
        for nothing in [&[][..], &[(0, 0.0)], &[(0, f64::NAN)], &[(0, f64::INFINITY)]] {
            assert_eq!(left([9, 1, 1], nothing), [0, 1, 2]);
        }
        // Whatever the scatter, a cycle has a workload.
        for seed in 0..200 {
            let mut rng = SeededRng::from_seed(seed.into());
            let scatter = [0, 1, 2].map(|workload| (workload, rng.next_uniform()));
            let rounds = [1, 7, 13].map(|factor| 4 + seed * factor % 90);
            assert!(!left(rounds, &scatter).is_empty(), "{rounds:?} {scatter:?}");
        }
    }

    fn make_turns(after: usize, of_before: f64, noise: f64) -> Vec<Vec<f64>> {
        make_noisy_turns(7, after, of_before, noise)
    }

    /// Two settings of rates 1000 and 400; for the first `after` steps a turn has `of_before` of the change left.
    fn make_noisy_turns(seed: u64, after: usize, of_before: f64, noise: f64) -> Vec<Vec<f64>> {
        let mut rng = SeededRng::from_seed(seed);
        let mut rate = |turn: usize, step: usize| {
            let (own, other) =
                if turn.is_multiple_of(2) { (1000.0, 400.0) } else { (400.0, 1000.0) };
            let base = if step < after { own + of_before * (other - own) } else { own };
            base * (1.0 + noise * (2.0 * rng.next_uniform() - 1.0))
        };
        (0..2 * SWITCHES).map(|turn| (0..STEPS).map(|step| rate(turn, step)).collect()).collect()
    }
}
