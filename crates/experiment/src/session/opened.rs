//! The beginning of a run, step by step: its testbed is opened, its hosts are read, its results are begun.
//!
//! Each step is a type, and takes the one before. Nothing is stored before the last; an error of a step puts the hosts back.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use latput_linux::process::unix_ms;
use latput_load::Stop;
use latput_results::{ResultsDb, Shard};
use latput_runner::Error;
use latput_runner::trials::TrialRunner;
use latput_trial::plan::{Design, OnUnsupported};
use latput_trial::results::LabelledSetting;
use latput_trial::surroundings::collect_findings;
use latput_trial::{Finding, HostToday, Plan, Results};
use latput_units::text::{format_count, is_or_are};

use super::lost::LostTrials;
use super::planned::PlannedRuns;
use super::{
    ExternalOptimiser, RunInputs, RunOutcome, RunPart, RunProgress, RunSession, planned_share,
    quiet, shard_error,
};
use crate::refusal::{RefusedSettings, find_refused_settings, plan_search};
use crate::unsupported::{SupportCheckMethod, drop_unsupported_parts, refuse_unsupported};

/// The number of a run that begins with its first trial.
const NOT_BEGUN: i64 = 0;

/// A run whose testbed is open. The hosts are quiet enough, and the plan has only what they support.
pub(super) struct OpenedRun {
    runner: Box<dyn TrialRunner>,
    seen: Vec<Finding>,
    /// The parts of the plan that are left out, in sentences.
    skipped: Vec<String>,
}

impl OpenedRun {
    /// Opens the testbed. Returns the plan without what is not supported.
    pub(super) fn open(
        run: &RunInputs<'_>,
        progress: &mut dyn RunProgress,
    ) -> Result<(Self, Plan), Error> {
        let mut runner = run.testbed.open(run.plan, run.interval, run.stop)?;
        let quiet = refuse_small_budget(run, &mut *runner)
            .and_then(|()| quiet::wait_for_quiet_start(run, &mut *runner, progress));
        let (mut runner, hosts) = or_abort(runner, quiet, run.stop, progress)?;
        let seen = collect_findings(&hosts);
        if run.plan.method.on_unsupported == OnUnsupported::Refuse {
            return Ok((Self { runner, seen, skipped: Vec::new() }, run.plan.clone()));
        }
        let check = SupportCheckMethod::from_plan(run.plan);
        let tried = drop_unsupported_parts(run.plan, &mut *runner, check, run.stop);
        let (runner, (plan, skipped)) = or_abort(runner, tried, run.stop, progress)?;
        runner.close(run.stop, &mut |text| progress.report_remark(text))?; // puts back what was tried
        for note in &skipped {
            progress.report_remark(note);
        }
        let runner = run.testbed.open(&plan, run.interval, run.stop)?;
        Ok((Self { runner, seen, skipped }, plan))
    }

    /// Reads the hosts. `run` has the plan that [`open`](Self::open) returned.
    pub(super) fn read_hosts(
        mut self,
        run: &RunInputs<'_>,
        progress: &mut dyn RunProgress,
    ) -> Result<ReadRun, Error> {
        let read = self.read_design(run);
        let Self { runner, seen, skipped } = self;
        let (runner, (design, readings, planned)) = or_abort(runner, read, run.stop, progress)?;
        Ok(ReadRun { runner, design, readings, seen, skipped, planned })
    }

    fn read_design(
        &mut self,
        run: &RunInputs<'_>,
    ) -> Result<(Design, InitialReadings, u64), Error> {
        let design = choose_design(run.plan, &mut *self.runner)?;
        let readings = read_hosts(run, &mut *self.runner)?;
        let planned = planned_trials(run, design, self.runner.is_simulated(), &readings)?;
        Ok((design, readings, planned))
    }
}

/// A run whose design and hosts' values are known.
pub(super) struct ReadRun {
    runner: Box<dyn TrialRunner>,
    design: Design,
    readings: InitialReadings,
    seen: Vec<Finding>,
    skipped: Vec<String>,
    /// The fewest trials.
    planned: u64,
}

impl ReadRun {
    /// Begins the run in the results file, or resumes it.
    pub(super) fn begin<'a>(
        mut self,
        run: &'a RunInputs<'a>,
        db: &'a mut ResultsDb,
        progress: &'a mut dyn RunProgress,
    ) -> Result<RunningRun<'a>, Error> {
        for finding in &self.seen {
            progress.report_remark(&format!("{}: {}", finding.name, finding.sentence()));
        }
        let machine = format!("{}: {}", run.testbed.name, self.runner.machine_id());
        let begun = self.resume_or_begin(run, db, &machine, progress);
        let (runner, (id, results)) = or_abort(self.runner, begun, run.stop, progress)?;
        let session = RunSession {
            run,
            id,
            machine,
            places: BTreeMap::new(),
            resumed: results.rows.len(),
            results: Results { source: db.file_name(), ..results },
            db,
            progress,
            begun: Instant::now(),
            is_simulated: runner.is_simulated(),
            slice: None,
            run_time: None,
            lost: LostTrials::default(),
        };
        let (design, refused) = (self.design, self.readings.refused);
        Ok(RunningRun { session, runner, design, refused })
    }

    /// The run that is resumed, with its trials; or a new one. A shard of a block has that of the blocks before, and no number yet.
    fn resume_or_begin(
        &mut self,
        run: &RunInputs<'_>,
        db: &mut ResultsDb,
        machine: &str,
        progress: &mut dyn RunProgress,
    ) -> Result<(i64, Results), Error> {
        let today = &self.readings.today;
        let kept = match run.part {
            RunPart::ShardOfBlock(shard, file) => {
                return Ok((NOT_BEGUN, search_before(run, (shard, file), machine, today)?));
            }
            RunPart::Whole | RunPart::Shard(_) | RunPart::Nothing => {
                find_resumable_run(run, db, machine, today, progress)?
            }
        };
        if let Some((id, mut results)) = kept {
            let done = results.rows.len();
            let finished = match run.plan.live() {
                Some(_) => format_count(done, "trial"), // their number is not known before
                None => {
                    format!("{done} of {}", format_count(planned_share(run, &results), "trial"))
                }
            };
            let verb = is_or_are(done);
            progress.report_remark(&format!("resuming run {id}: {finished} {verb} done"));
            self.seen.retain(|finding| !results.findings.contains(finding));
            results.findings.append(&mut self.seen);
            return Ok((id, Results { goal: run.plan.goal.clone(), ..results })); // today's goal judges
        }
        let mut header = build_header(run, &*self.runner, today.clone());
        header.notes.append(&mut self.skipped);
        header.findings = std::mem::take(&mut self.seen);
        header.planned_trials = self.planned;
        if let RunPart::Shard(shard) = run.part {
            header.notes.push(shard.result_note());
        }
        Ok((db.begin_run(run.plan_text, machine, unix_ms(), &header)?, header))
    }
}

/// A run whose trials can begin.
pub(super) struct RunningRun<'a> {
    session: RunSession<'a>,
    runner: Box<dyn TrialRunner>,
    design: Design,
    refused: RefusedSettings,
}

impl RunningRun<'_> {
    /// Runs every trial, puts the hosts back and closes the run.
    pub(super) fn run_to_end(
        mut self,
        other: Option<&mut dyn ExternalOptimiser>,
    ) -> Result<RunOutcome, Error> {
        let design = (self.design, &self.refused);
        let cause = self.session.run_design(&mut *self.runner, design, other).err();
        self.session.close_run(self.runner, cause)
    }
}

/// Passes on what a step has given, with the runner. An error puts the hosts back.
fn or_abort<T>(
    runner: Box<dyn TrialRunner>,
    given: Result<T, Error>,
    stop: &Stop,
    progress: &mut dyn RunProgress,
) -> Result<(Box<dyn TrialRunner>, T), Error> {
    match given {
        Ok(given) => Ok((runner, given)),
        Err(error) => Err(super::abort_run(runner, error, stop, progress)),
    }
}

/// Counts the trials and the time of a run with this number of settings.
pub(super) fn planned_runs(
    run: &RunInputs<'_>,
    design: Design,
    (settings, is_simulated): (usize, bool),
    today: &[HostToday],
    refused: &RefusedSettings,
) -> Result<PlannedRuns, Error> {
    let plan = run.plan;
    let settings = settings as u64;
    if design != Design::Search {
        return Ok(PlannedRuns::of_grid(plan, design, settings, is_simulated));
    }
    let search = plan_search(plan, build_today_setting(plan, today).as_ref(), refused)?;
    Ok(PlannedRuns::of_search(plan, &search, settings, is_simulated))
}

/// The fewest trials of a run. A whole run whose budget has no room for an answer is refused.
fn planned_trials(
    run: &RunInputs<'_>,
    design: Design,
    is_simulated: bool,
    found: &InitialReadings,
) -> Result<u64, Error> {
    let InitialReadings { today, refused } = found;
    let settings = run.plan.settings_from(today).len();
    if let Some(live) = run.plan.live() {
        return Ok(PlannedRuns::of_live(run.plan, live, settings).trials.0);
    }
    let runs = planned_runs(run, design, (settings, is_simulated), today, refused)?;
    if matches!(run.part, RunPart::Whole) {
        runs.check_budget(run.plan)?;
    }
    Ok(runs.trials.0)
}

/// Refuses a budget that has no room for an answer, before anybody waits for quiet hosts. What the hosts do not support may
/// make a plan smaller; then the budget is judged behind that.
pub(super) fn refuse_small_budget(
    run: &RunInputs<'_>,
    runner: &mut dyn TrialRunner,
) -> Result<(), Error> {
    let method = &run.plan.method;
    if method.budget.is_none() || method.on_unsupported == OnUnsupported::Skip {
        return Ok(());
    }
    let today = runner.read_knob_values(&run.plan.knobs(), run.stop)?;
    let design = choose_design(run.plan, runner)?;
    let found = InitialReadings { today, refused: BTreeMap::new() };
    planned_trials(run, design, runner.is_simulated(), &found).map(drop)
}

/// Readings of the hosts before the first trial.
pub(super) struct InitialReadings {
    pub(super) today: Vec<HostToday>,
    pub(super) refused: RefusedSettings,
}

/// Reads the hosts, and refuses settings and workloads that cannot be.
pub(super) fn read_hosts(
    run: &RunInputs<'_>,
    runner: &mut dyn TrialRunner,
) -> Result<InitialReadings, Error> {
    let today = runner.read_knob_values(&run.plan.knobs(), run.stop)?;
    let settings = run.plan.settings_from(&today);
    let is_today = usize::from(!today.is_empty());
    refuse_unsupported(run.plan, run.stop, &settings[is_today..], runner)?;
    if let Some(live) = run.plan.live() {
        PlannedRuns::of_live(run.plan, live, settings.len()).check_budget(run.plan)?;
        return Ok(InitialReadings { today, refused: BTreeMap::new() });
    }
    let first = build_today_setting(run.plan, &today);
    let refused = find_refused_settings(run.plan, &runner.receive_sides(), first.as_ref())?;
    Ok(InitialReadings { today, refused })
}

/// Today's setting, if the hosts' values are known.
pub(super) fn build_today_setting(plan: &Plan, today: &[HostToday]) -> Option<LabelledSetting> {
    plan.settings_from(today).into_iter().next().filter(|_| !today.is_empty())
}

/// The unfinished run of this plan on these hosts. If their values are others than at its beginning, its
/// first setting is no longer today's, and a new run begins.
fn find_resumable_run(
    run: &RunInputs<'_>,
    db: &ResultsDb,
    machine: &str,
    today: &[HostToday],
    progress: &mut dyn RunProgress,
) -> Result<Option<(i64, Results)>, Error> {
    let Some((id, results)) = db.find_resumable_run(run.plan_text, machine)? else {
        return Ok(None);
    };
    if results.today == today {
        return Ok(Some((id, results)));
    }
    let moved = latput_trial::today::differences(&results.today, today);
    progress.report_remark(&format!(
        "run {id} is not resumed: the hosts' values have changed since it began ({}); a new run begins",
        moved.first().map_or("it does not have them", String::as_str)
    ));
    Ok(None)
}

/// The design of a plan on this testbed.
pub(super) fn choose_design(plan: &Plan, runner: &mut dyn TrialRunner) -> Result<Design, Error> {
    if plan.live().is_some() {
        return runner.live_runner().map(|_| Design::Blocks).ok_or(Error::NoLiveTraffic);
    }
    let takes_slices = runner.slice_runner().is_some();
    match plan.method.design {
        Some(Design::Slices) if !takes_slices => Err(Error::NoSlices),
        Some(design) => Ok(design),
        None if takes_slices && plan.is_cheap_to_change() => Ok(Design::Slices),
        None => Ok(Design::Blocks),
    }
}

pub(super) fn build_header(
    run: &RunInputs<'_>,
    runner: &dyn TrialRunner,
    today: Vec<HostToday>,
) -> Results {
    let method = &run.plan.method;
    let mut settings = run.plan.settings_from(&today);
    let is_observed = run.plan.live().is_some_and(|live| live.observe);
    if method.design == Some(Design::Search) || is_observed {
        settings.truncate(1); // the others come as they are tried
    }
    let mut notes = run.testbed.notes.clone();
    notes.extend(runner.notes());
    Results {
        name: run.plan.name.clone(),
        goal: run.plan.goal.clone(),
        confidence: method.confidence,
        half_width: method.half_width,
        testbed: run.testbed.name.clone(),
        latput_version: env!("CARGO_PKG_VERSION").to_owned(),
        seed: method.seed.unwrap_or_else(unix_ms),
        hosts: runner.host_facts(),
        settings,
        workloads: run.plan.workloads.clone(),
        rows: Vec::new(),
        planned_trials: 0,
        notes,
        confirmed_from: None,
        source: None,
        today,
        findings: Vec::new(),
        beside: method.beside,
    }
}

/// The open search in the file that a shard of its next block begins with.
fn search_before(
    run: &RunInputs<'_>,
    (shard, file): (Shard, &Path),
    machine: &str,
    today: &[HostToday],
) -> Result<Results, Error> {
    match ResultsDb::open(file)?.find_resumable_run(run.plan_text, machine)? {
        Some((_, results)) if results.today == today => Ok(results),
        _ => {
            let file = file.display();
            let begin = format!("`latput search` with --no-trials and `-o {file}`");
            Err(shard_error(
                shard,
                format!(
                    "{file} has no open search of this plan on this system: {begin} starts one"
                ),
            ))
        }
    }
}
