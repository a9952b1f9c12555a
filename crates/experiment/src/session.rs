//! Runs a plan on a testbed, trial by trial. Each trial is stored durably before the next begins.

mod check;
mod live;
mod looking;
mod lost;
mod opened;
mod planned;
mod quiet;
mod search;
mod slices;
mod suggested;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use latput_linux::process::unix_ms;
use latput_load::Stop;
use latput_model::search::of_plan::PlanSearch;
use latput_results::order::{group_disruptive, shuffle_trials, trial_seed};
use latput_results::results_db::WITHOUT;
use latput_results::{ResultsDb, Shard};
use latput_runner::Error;
use latput_runner::trials::{Trial, TrialProgress, TrialRunner};
use latput_trial::check::CheckRow;
use latput_trial::plan::Design;
use latput_trial::{Plan, Results, Row};
use latput_units::Nanos;
use latput_units::text::format_count;

pub use self::check::{CheckReport, MOST_LABELS, check_run, list_labels, live_remarks};
use self::looking::InterimAnalysis;
use self::lost::{ATTEMPTS, LostTrials};
use self::opened::OpenedRun;
pub use self::planned::PlannedRuns;
pub use self::quiet::QuietPolicy;
pub use self::suggested::{ExternalOptimiser, SettingObservation};
use crate::refusal::RefusedSettings;
use crate::testbed::{Testbed, TestbedKind};

/// Usual time of a trial on hosts beyond its traffic.
const TRIAL_OVERHEAD: Duration = Duration::from_millis(150);

/// Receives the progress of a run.
pub trait RunProgress: TrialProgress {
    /// One more trial has finished.
    fn report_trial(&mut self, done: &TrialDone<'_>);
    /// The run has ended.
    fn report_end(&mut self);
}

/// The state of a run after a trial.
#[derive(Clone, Debug)]
pub struct TrialDone<'a> {
    /// Finished trials, with those of earlier sessions.
    pub finished: u64,
    /// Trials planned so far; the number grows while intervals are too wide.
    pub planned: u64,
    /// Estimated time left, from the trials so far.
    pub time_left: Nanos,
    /// The time of a run that ends by time; its number of trials is not known before.
    pub time: Option<TimeSpent>,
    /// Description of the finished trial.
    pub what: &'a str,
}

/// The time of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeSpent {
    /// Time since its beginning.
    pub spent: Nanos,
    /// Its longest time.
    pub most: Nanos,
}

/// The inputs of a run.
#[derive(Debug)]
pub struct RunInputs<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// Text of the plan file: a run is resumed only if it is exactly the same.
    pub plan_text: &'a str,
    /// The testbed.
    pub testbed: &'a Testbed,
    /// The trials that this process runs.
    pub part: RunPart<'a>,
    /// Whether it needs quiet hosts to begin.
    pub quiet: QuietPolicy,
    /// Interval of reports on a running trial; `None` reports only finished trials.
    pub interval: Option<Nanos>,
    /// Flag that stops the run.
    pub stop: &'a Stop,
}

/// The trials of a run that a process runs.
#[derive(Clone, Copy, Debug, Default)]
pub enum RunPart<'a> {
    /// Every trial.
    #[default]
    Whole,
    /// Each n-th trial of the plan.
    Shard(Shard),
    /// Each n-th trial of the next block of the search in this results file.
    ShardOfBlock(Shard, &'a Path),
    /// None: a search whose next block is known ends with [`Error::SearchGoesOn`].
    Nothing,
}

impl RunPart<'_> {
    /// The text by which the run of this part is found again.
    fn plan_text(self, plan: &Plan, text: &str) -> String {
        match self {
            Self::Shard(shard) => shard.plan_text(plan, text),
            Self::Whole | Self::ShardOfBlock(..) | Self::Nothing => text.to_owned(),
        }
    }

    /// Refuses a plan or a testbed that has no such part.
    pub fn check_part(self, plan: &Plan, testbed: &Testbed) -> Result<(), Error> {
        let (shard, is_of_block) = match self {
            Self::Whole | Self::Nothing => return Ok(()),
            Self::Shard(shard) => (shard, false),
            Self::ShardOfBlock(shard, _) => (shard, true),
        };
        let problem = if !matches!(testbed.kind, TestbedKind::Simulator(_)) {
            "shards on the same hosts would disturb each other: leave out --shard, or simulate with `--on \
             sim:SYSTEM`"
        } else if plan.method.design == Some(Design::Search) && !is_of_block {
            "a search chooses each block from all earlier trials, and a shard does not have them: divide one \
             block at a time (`latput search --shard`), or use `design = \"blocks\"`"
        } else if plan.method.seed.is_none() {
            "without a seed in the plan each shard has another order: add `seed = 1` under `[method]`"
        } else {
            return Ok(());
        };
        Err(shard_error(shard, problem))
    }
}

/// The error that refuses a shard.
fn shard_error(shard: Shard, problem: impl Into<String>) -> Error {
    Error::Shard { shard: shard.to_string(), problem: problem.into() }
}

/// The end of a run. The hosts are as before in every case but a stranded error.
#[derive(Debug)]
pub struct RunOutcome {
    /// Every finished trial.
    pub results: Results,
    /// The run's number in the results file.
    pub run: i64,
    /// Trials that this process was to finish, with those of earlier sessions.
    pub planned: u64,
    /// The error that ended it early.
    pub cause: Option<Error>,
}

/// Runs every trial of a plan that `db` does not have yet. An error means that no trial ran.
pub fn run(
    run: &RunInputs<'_>,
    db: &mut ResultsDb,
    progress: &mut dyn RunProgress,
) -> Result<RunOutcome, Error> {
    run_suggested(run, db, progress, None)
}

/// As [`run`]; in a plan with `design = "search"` the settings are those of `other` if there is one.
pub fn run_suggested(
    run: &RunInputs<'_>,
    db: &mut ResultsDb,
    progress: &mut dyn RunProgress,
    other: Option<&mut dyn ExternalOptimiser>,
) -> Result<RunOutcome, Error> {
    run.part.check_part(run.plan, run.testbed)?;
    let (opened, plan) = OpenedRun::open(run, progress)?;
    let plan_text = run.part.plan_text(run.plan, run.plan_text);
    let run = &RunInputs { plan: &plan, plan_text: &plan_text, ..*run };
    let read = opened.read_hosts(run, progress)?;
    read.begin(run, db, progress)?.run_to_end(other)
}

/// The state of a run.
struct RunSession<'a> {
    run: &'a RunInputs<'a>,
    db: &'a mut ResultsDb,
    progress: &'a mut dyn RunProgress,
    id: i64,
    /// Key of the testbed in the file.
    machine: String,
    /// The number in the merged file of each setting and workload of the block; empty where the file itself counts.
    places: BTreeMap<(usize, usize), i64>,
    /// Number of trials of earlier sessions.
    resumed: usize,
    results: Results,
    begun: Instant,
    is_simulated: bool,
    /// Length of a slice, in a run with slices.
    slice: Option<Nanos>,
    /// The time of a run on live traffic.
    run_time: Option<live::RunTime>,
    /// The trials whose traffic broke.
    lost: LostTrials,
}

impl RunSession<'_> {
    /// Runs every block of the plan, and more while intervals are too wide and the budget allows.
    fn run_blocks(&mut self, runner: &mut dyn TrialRunner) -> Result<(), Error> {
        let method = self.run.plan.method;
        let settings: Vec<usize> = (0..self.results.settings.len()).collect();
        let every: Vec<usize> = (0..self.results.workloads.len()).collect();
        let mut patience = self.initial_wait_budget();
        let mut looking = self.plan_interim_analysis(method.repetitions_max)?;
        for block in 0..method.repetitions_min {
            self.wait_for_quiet(runner, &mut patience)?;
            self.run_block(runner, block, &settings, &every)?;
            if self.look_after(&mut looking, block) {
                return Ok(());
            }
        }
        if matches!(self.run.part, RunPart::Shard(_)) {
            return Ok(()); // the stopping rule looks at the trials of all shards
        }
        self.results.notes.retain(|note| !note.starts_with(WITHOUT)); // their trials are here now
        for block in method.repetitions_min..method.repetitions_max {
            // Trials of an earlier session must not change the content of their block.
            let before = self.results.rows.partition_point(|row| row.block < block);
            let begun = self.results.rows.split_off(before);
            let too_wide = latput_model::too_wide(&self.results);
            self.results.rows.extend(begun);
            if too_wide.is_empty() {
                return Ok(());
            }
            let trials = too_wide.len() * self.results.settings.len();
            if !self.fits_budget(before, trials) {
                let note = "stopped at the time budget; some intervals are wider than asked for";
                self.results.notes.push(note.to_owned());
                return Ok(());
            }
            if block == method.repetitions_min {
                self.progress.report_remark(&self.describe_more_blocks(before));
            }
            self.results.planned_trials = (before + trials) as u64;
            self.wait_for_quiet(runner, &mut patience)?;
            self.run_block(runner, block, &settings, &too_wide)?;
            if self.look_after(&mut looking, block) {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Looks for an answer after this block, if a look is due and the whole run is here.
    fn look_after(&mut self, looking: &mut InterimAnalysis, block: u32) -> bool {
        let is_whole = matches!(self.run.part, RunPart::Whole);
        let after = block + 1;
        if !is_whole || !looking.looks.is_due(block, after) {
            return false;
        }
        let method = &self.run.plan.method;
        let trials = self.results.settings.len() * self.results.workloads.len();
        let blocks = method.repetitions_max.saturating_sub(after);
        let longest: Nanos =
            (self.trial_time() * clamp_to_u32(trials).saturating_mul(blocks)).into();
        let spent: Nanos = self.begun.elapsed().into();
        let left = method.budget.map_or(longest, |it| longest.min(it.saturating_sub(spent)));
        self.check_for_answer(looking, (blocks > 0 && !self.is_simulated).then_some(left))
    }

    /// Says that the planned blocks were not enough, and how many more may follow: as many as the stopping rule lets begin
    /// behind the `before` trials at the pace of this run. A block has fewer trials when some workloads are narrow enough, so
    /// they are counted with the fewest.
    fn describe_more_blocks(&self, before: usize) -> String {
        let method = &self.run.plan.method;
        let wanted = method.repetitions_max - method.repetitions_min;
        let fewest = self.results.settings.len();
        let fits = |more: &u32| self.fits_budget(before, fewest * *more as usize);
        let most = (1..=wanted).rev().find(fits).unwrap_or(1);
        let percent = latput_units::text::format_percent(method.half_width);
        let blocks = format_count(most, "more block");
        let told = format!("some intervals are wider than {percent}: up to {blocks} may follow");
        let left = method.budget.map(|budget| budget.saturating_sub(self.begun.elapsed().into()));
        match left.filter(|_| !self.is_simulated) {
            Some(left) => format!("{told}, in the {:.0} s that are left", left.as_secs_f64()),
            None => told,
        }
    }

    /// Reports a remark, and stores it once with the results.
    fn add_remark(&mut self, text: String) {
        self.progress.report_remark(&text);
        if !self.results.notes.contains(&text) {
            self.results.notes.push(text);
        }
    }

    /// Runs one repetition of the given settings under the given workloads, in random order.
    fn run_block(
        &mut self,
        runner: &mut dyn TrialRunner,
        block: u32,
        settings: &[usize],
        workloads: &[usize],
    ) -> Result<(), Error> {
        let mut order = self.order_trials(block, settings, workloads);
        if let RunPart::Shard(shard) = self.run.part {
            let first = u64::from(block) * order.len() as u64;
            order = select_shard_trials(shard, first, order);
        }
        self.run_trials(runner, block, order)
    }

    /// The trials of a block, as setting and workload, in the order in which they run.
    fn order_trials(
        &self,
        block: u32,
        settings: &[usize],
        workloads: &[usize],
    ) -> Vec<(usize, usize)> {
        let mut order = shuffle_trials(self.results.seed, block, settings, workloads);
        if self.run.plan.method.design == Some(Design::Search) {
            group_disruptive(&mut order, &self.results.settings);
        }
        order
    }

    fn is_done(&self, block: u32, (setting, workload): (usize, usize)) -> bool {
        let of_trial = |row: &Row| (row.block, row.setting, row.workload);
        self.results.rows.iter().any(|row| of_trial(row) == (block, setting, workload))
    }

    /// Runs those of the trials that are not done.
    fn run_trials(
        &mut self,
        runner: &mut dyn TrialRunner,
        block: u32,
        mut order: Vec<(usize, usize)>,
    ) -> Result<(), Error> {
        order.retain(|trial| !self.is_done(block, *trial));
        let todo: Vec<Trial> = order
            .iter()
            .map(|&(setting, workload)| self.plan_trial(block, setting, workload))
            .collect();
        runner.expect_trials(&todo, &self.run.plan.method);
        todo.iter().try_for_each(|trial| self.run_trial(runner, trial))
    }

    /// Runs a trial, and again if its traffic breaks. Stores its row.
    fn run_trial(&mut self, runner: &mut dyn TrialRunner, trial: &Trial) -> Result<(), Error> {
        let RunInputs { plan, stop, .. } = self.run;
        for attempt in 1..=ATTEMPTS {
            let started_unix_ms = unix_ms();
            match runner.measure_trial(trial, &plan.method, stop, &mut *self.progress) {
                Ok(observation) => {
                    return self.store_row(trial.to_row(started_unix_ms, observation));
                }
                Err(error) if error.is_transient() => {
                    self.note_lost_attempt(trial, error, attempt)?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// A trial of a block, or a slice of a round.
    fn plan_trial(&self, block: u32, setting: usize, workload: usize) -> Trial {
        Trial {
            block,
            setting,
            workload,
            set: self.results.settings[setting].clone(),
            load: self.results.workloads[workload].clone(),
            seed: trial_seed(self.results.seed, block, setting, workload),
        }
    }

    /// Stores the row of a finished trial, then reports it.
    fn store_row(&mut self, row: Row) -> Result<(), Error> {
        self.end_losses()?;
        for check in &row.observation.checks {
            debug_assert!(CheckRow::find(&check.name).is_some(), "{} has no row", check.name);
        }
        let (setting, workload) = (row.setting, row.workload);
        let place = self.places.get(&(setting, workload)).copied();
        self.db.append_numbered_trial(self.id, &self.results, &row, place)?;
        self.results.rows.push(row);
        self.report_finished_trial(setting, workload);
        Ok(())
    }

    /// Whether `trials` more trials fit the budget, after those `before` them.
    fn fits_budget(&self, before: usize, trials: usize) -> bool {
        let Some(budget) = self.run.plan.method.budget else { return true };
        let spent = if self.is_simulated {
            self.trial_time() * clamp_to_u32(before)
        } else {
            self.begun.elapsed()
        };
        spent + self.trial_time() * clamp_to_u32(trials) <= budget.as_duration()
    }

    /// The planned trials, as far as the budget has room for them behind those that are finished.
    fn limit_to_budget(&self, planned: u64, finished: u64) -> u64 {
        let room = self.run.plan.method.budget.filter(|_| !self.is_simulated).map(|budget| {
            let left = budget.as_duration().saturating_sub(self.begun.elapsed());
            left.as_nanos() / self.trial_time().as_nanos().max(1)
        });
        let room = room.map_or(u64::MAX, |room| u64::try_from(room).unwrap_or(u64::MAX));
        planned.min(finished.saturating_add(room)).max(finished)
    }

    /// Time of a trial: of a slice its length, else on hosts the mean of this session's trials. A command that ends by
    /// itself takes less than is planned for it, and a slow connection more.
    fn trial_time(&self) -> Duration {
        if let Some(length) = self.slice {
            return length.as_duration();
        }
        let done = clamp_to_u32(self.results.rows.len().saturating_sub(self.resumed));
        if self.is_simulated || done == 0 {
            return trial_time(self.run.plan, self.is_simulated);
        }
        self.begun.elapsed() / done
    }

    /// Time until `trials` more trials have ended.
    fn estimate_wait(&self, trials: u32) -> Duration {
        let done = clamp_to_u32(self.results.rows.len() - self.resumed);
        if !self.is_simulated || done == 0 {
            return self.trial_time() * trials;
        }
        (self.begun.elapsed() / done) * trials // simulated time passes faster
    }

    fn report_finished_trial(&mut self, setting: usize, workload: usize) {
        let finished = self.results.rows.len() as u64;
        let planned = self.limit_to_budget(planned_share(self.run, &self.results), finished);
        let left = self.estimate_wait(u32::try_from(planned - finished).unwrap_or(u32::MAX));
        let what = format!(
            "{}, {}",
            self.results.workloads[workload].name, self.results.settings[setting].label
        );
        let time = self.run_time.map(|time| time.time_spent(self.begun.elapsed()));
        let time_left = time.map_or(left.into(), |time| time.most.saturating_sub(time.spent));
        let done = TrialDone { finished, planned, time_left, time, what: &what };
        self.progress.report_trial(&done);
    }

    /// Runs the plan by its design.
    fn run_design(
        &mut self,
        runner: &mut dyn TrialRunner,
        (design, refused): (Design, &RefusedSettings),
        other: Option<&mut dyn ExternalOptimiser>,
    ) -> Result<(), Error> {
        match design {
            Design::Blocks if self.run.plan.live().is_some() => self.run_live(runner),
            Design::Blocks => self.run_blocks(runner),
            Design::Slices => self.run_slices(runner),
            Design::Search => self.run_search(runner, refused, other),
        }
    }

    /// Puts the hosts back and closes the run. A host that could not be put back is a worse error
    /// than the one that ended the run.
    fn close_run(
        mut self,
        runner: Box<dyn TrialRunner>,
        cause: Option<Error>,
    ) -> Result<RunOutcome, Error> {
        self.progress.report_end();
        let cause = self.tell_lost("not tried again").err().or(cause);
        let cause = match cause {
            None => {
                match runner.close(self.run.stop, &mut |text| self.progress.report_remark(text)) {
                    Ok(()) => self.lost.into_error(),
                    Err(error) => Some(error),
                }
            }
            // An agent may be busy or gone.
            Some(cause) => Some(abort_run(runner, cause, self.run.stop, self.progress)),
        };
        let cause =
            cause.or_else(|| self.db.finish_run(self.id, &self.results).err().map(Error::from));
        if let Err(error) = self.db.checkpoint_log() {
            self.progress.report_remark(&error.to_string());
        }
        match cause {
            Some(cause)
                if self.results.rows.is_empty() && !matches!(cause, Error::SearchGoesOn { .. }) =>
            {
                Err(cause)
            }
            cause => {
                let planned =
                    planned_share(self.run, &self.results).max(self.results.rows.len() as u64);
                Ok(RunOutcome { results: self.results, run: self.id, planned, cause })
            }
        }
    }
}

/// Number of the planned trials that this process is to finish.
fn planned_share(run: &RunInputs<'_>, results: &Results) -> u64 {
    match run.part {
        RunPart::Shard(shard) => shard.count_trials(results.planned_trials),
        _ => results.planned_trials,
    }
}

/// The trials of a shard. The first of these has the place `first` in the run, counted from 0.
fn select_shard_trials(
    shard: Shard,
    first: u64,
    order: Vec<(usize, usize)>,
) -> Vec<(usize, usize)> {
    let placed = (first..).zip(order);
    placed.filter(|(place, _)| shard.has_trial(*place)).map(|(_, trial)| trial).collect()
}

/// Time of a trial, the mean over the plan's workloads: its traffic, and on hosts the usual overhead.
fn trial_time(plan: &Plan, is_simulated: bool) -> Duration {
    let all: Nanos = plan.workloads.iter().map(|load| plan.method.trial_time(load)).sum();
    let mean = all.as_duration() / u32::try_from(plan.workloads.len().max(1)).unwrap_or(u32::MAX);
    if is_simulated { mean } else { mean + TRIAL_OVERHEAD }
}

/// Runs of settings that the plan's budget allows for exploring.
fn search_budget(plan: &Plan, search: &PlanSearch, trial_time: Duration) -> usize {
    let Some(budget) = plan.method.budget else { return search.usual_budget() };
    let run = trial_time * clamp_to_u32(plan.workloads.len());
    let runs = budget.as_duration().as_nanos() / run.as_nanos().max(1);
    usize::try_from(runs).unwrap_or(usize::MAX).saturating_sub(2 * search.confirmations() as usize)
}

fn abort_run(
    runner: Box<dyn TrialRunner>,
    cause: Error,
    stop: &Stop,
    progress: &mut dyn RunProgress,
) -> Error {
    runner.abort_run(cause, stop, &mut |text| progress.report_remark(text))
}

fn clamp_to_u32(trials: usize) -> u32 {
    u32::try_from(trials).unwrap_or(u32::MAX)
}
