//! `latput run`: runs every trial of a plan and stores it in a results file.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use latput_experiment::session::{self, QuietPolicy, RunInputs, RunOutcome};
use latput_experiment::{RunPart, Testbed};
use latput_knobs::ChangeOutcome;
use latput_linux::confine::UsedFiles;
use latput_linux::files;
use latput_model::{Headline, ResultsSummary};
use latput_protocol::live::Guard;
use latput_results::{ResultsDb, Shard};
use latput_trial::Plan;
use latput_units::Nanos;
use latput_units::text::{format_count, is_or_are};

use crate::commands::{check, report};
use crate::context::CliContext;
use crate::exit::{CliError, CutShort, ExitReason};
use crate::output;
use crate::precision::{FirstArg, Precision};
use crate::progress::{ProgressArgs, ProgressDisplay};
use crate::quiet_args::QuietArgs;
use crate::targets::{self, HostArgs};

/// Run every trial of a plan.
///
/// An interrupted run is resumed.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  latput run examples/built-in.toml                   on the lab of this machine, needs root
  latput run plan.toml --on rack.toml -o rack.db      on the hosts that a testbed file names
  latput run plan.toml --on ssh://root@server,ssh://root@client
  latput run plan.toml --on sim:server-10g            in the simulator, needs no root
  latput run plan.toml --half-width 5% --repetitions 3..30
  latput run plan.toml --on vm:e1000e                 with a real driver, in a QEMU guest, needs no root
  latput run plan.toml --on sim:server-10g --shard 3/16 -o part3.db     join all 16 by `latput merge`
  latput run plan.toml --on rack.toml --check         would it start, how many trials, how long

After Ctrl-C, a kill -9 or a power cut the same command resumes with the next trial.")]
pub(crate) struct Args {
    /// The plan file.
    plan: PathBuf,
    /// Where trials run: `lab`, `sim:SYSTEM` (a system's name or the file of its profile), `vm:DRIVER` (a
    /// QEMU guest with network cards of `e1000e`, `e1000` or `virtio-net`), a testbed file that
    /// names hosts, or the hosts themselves: `HOST,HOST`, the system under test first. A HOST is
    /// `ssh://root@server`, `netns://NAME`, `exec:COMMAND` or an interface of this host.
    #[arg(long, default_value = "lab", value_name = "TESTBED")]
    on: String,
    #[command(flatten)]
    hosts: HostArgs,
    /// The results file; runs are added to it.
    #[arg(short, long, default_value = "latput-results.db", value_name = "FILE")]
    output: PathBuf,
    /// A goal instead of the plan's: `latency`, `throughput`, `cpu`, `balanced`, or in words
    /// (`minimize latency_ns_p99 where throughput_bps >= 0.95 today`).
    #[arg(long)]
    goal: Option<String>,
    /// Run only every COUNT-th trial of a simulated plan, from its NUMBER-th: `3/16`, or counted from 0
    /// `index:2/16`. Each shard runs on its own, on any machine; `latput merge` joins their files.
    #[arg(long, value_name = "NUMBER/COUNT", conflicts_with_all = ["check", "first"])]
    shard: Option<Shard>,
    #[command(flatten)]
    first: FirstArg,
    #[command(flatten)]
    precision: Precision,
    #[command(flatten)]
    quiet: QuietArgs,
    #[command(flatten)]
    watch: ProgressArgs,
    /// Only check whether the run would start, and print how many trials and about how long: the plan, the results
    /// file, every host, whether it is quiet, its knobs and levels (a guest is booted for it). Nothing is set.
    /// `--check=plan` checks only the plan file.
    #[arg(
        long,
        value_enum,
        value_name = "WHAT",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "all"
    )]
    check: Option<check::CheckScope>,
}

impl Args {
    pub(crate) fn run(self, context: &CliContext) -> Result<ExitCode, CliError> {
        let text = read_text(&self.plan)?;
        let mut plan = checked_plan(&self.plan.display().to_string(), &text, self.goal)?;
        self.precision.apply_to_method(&mut plan.method)?;
        self.quiet.beside.apply_to_method(&mut plan.method);
        self.first.apply_to_plan(&mut plan)?;
        let flags =
            self.precision.plan_lines() + self.quiet.beside.plan_line() + self.first.plan_line();
        let text = text + &flags;
        let quiet = self.quiet.for_plan(&plan);
        let name = self.plan.display().to_string();
        let named = check::PlanToCheck { name: &name, plan: &plan, quiet };
        if self.check == Some(check::CheckScope::Plan) {
            return check::plan_only(context, &named, self.on.starts_with(targets::SIMULATED));
        }
        let place = self.hosts.resolve_testbed(&self.on, &plan)?;
        let files = UsedFiles::new([], [self.output.as_path()]);
        place.give_up_rights(Some(&plan), &files, context)?;
        if self.check.is_some() {
            check::check_results(&self.output)?;
            return check::check_run(context, &named, &place.open(context)?);
        }
        let part = self.shard.map_or(RunPart::Whole, RunPart::Shard);
        let open = || {
            let testbed = place.open(context)?;
            part.check_part(&plan, &testbed)?;
            Ok(testbed)
        };
        let (testbed, mut results_db) = open_both(open, &self.output)?;
        let run = RunInputs {
            plan: &plan,
            plan_text: &text,
            testbed: &testbed,
            part,
            quiet,
            interval: self.watch.checked_interval()?,
            stop: &context.stop,
        };
        let ended = session::run(&run, &mut results_db, &mut ProgressDisplay::new())?;
        if self.shard.is_some() && !context.json {
            return conclude_run(&ended, &self.output);
        }
        let summary = ResultsSummary::from_results(&ended.results);
        report::print_report(context, &ended.results, &summary)?;
        if self.shard.is_some() {
            return conclude_run(&ended, &self.output); // its part alone has no answer
        }
        conclude_with(&ended, &summary, &self.output)
    }
}

/// The text of a plan, or of another small input file.
pub(crate) fn read_text(path: &Path) -> Result<String, CliError> {
    files::read_text(path, files::TEXT_BYTES_MOST)
        .map_err(|error| CliError::usage(error.to_string()))
}

/// Reads a plan and checks its goal before anything is changed.
pub(crate) fn checked_plan(file: &str, text: &str, goal: Option<String>) -> Result<Plan, CliError> {
    let mut plan = Plan::parse(file, text).map_err(latput_runner::Error::from)?;
    let from = if goal.is_some() { "--goal".to_owned() } else { format!("{file}: goal") };
    plan.goal = goal.or(plan.goal);
    if let Some(goal) = &plan.goal {
        report::check_goal(&from, goal, &plan.workloads)?;
    }
    check_guards(file, &plan)?;
    Ok(plan)
}

/// Refuses guards that could not be judged, before anything is opened.
pub(crate) fn check_guards(file: &str, plan: &Plan) -> Result<(), CliError> {
    for guard in plan.live().iter().flat_map(|live| &live.guards) {
        Guard::parse(guard).map_err(|why| CliError::usage(format!("{file}: {why}")))?;
    }
    Ok(())
}

/// Opens the testbed and the results file. A wrong results file is refused before the testbed is
/// made, and no file is created for a testbed that cannot be made.
pub(crate) fn open_both(
    testbed: impl FnOnce() -> Result<Testbed, CliError>,
    output: &Path,
) -> Result<(Testbed, ResultsDb), CliError> {
    ResultsDb::check_path(output)?;
    let testbed = testbed()?;
    Ok((testbed, ResultsDb::create(output)?))
}

/// Runs a plan with progress on stderr.
pub(crate) fn run_plan(
    context: &CliContext,
    plan: &Plan,
    plan_text: &str,
    testbed: &Testbed,
    results_db: &mut ResultsDb,
    (interval, quiet): (Option<Nanos>, QuietPolicy),
) -> Result<RunOutcome, CliError> {
    let (part, stop) = (RunPart::Whole, &context.stop);
    let run = RunInputs { plan, plan_text, testbed, part, quiet, interval, stop };
    Ok(session::run(&run, results_db, &mut ProgressDisplay::new())?)
}

/// As [`conclude_run`]; a run that could not judge its goal is as good as partial.
pub(crate) fn conclude_with(
    ended: &RunOutcome,
    summary: &ResultsSummary,
    output: &Path,
) -> Result<ExitCode, CliError> {
    let done = conclude_run(ended, output)?;
    let is_judged = summary.headline.as_ref().is_none_or(Headline::is_judged);
    Ok(if is_judged { done } else { ExitReason::Partial.into() })
}

/// Prints where the results are, and returns the exit code.
pub(crate) fn conclude_run(ended: &RunOutcome, output: &Path) -> Result<ExitCode, CliError> {
    let file = output.display();
    let Some(cause) = &ended.cause else {
        output::print_remark(&format!("results: run {} of {file}", ended.run));
        return Ok(ExitCode::SUCCESS);
    };
    let code = match cause.outcome() {
        ChangeOutcome::Stranded => ExitReason::Stranded,
        ChangeOutcome::Unchanged
        | ChangeOutcome::Done
        | ChangeOutcome::Refused(_)
        | ChangeOutcome::RolledBack => ExitReason::Partial,
    };
    let message = format!(
        "{cause}; {} of {} {} kept in run {} of {file}: run the same command again to resume",
        ended.results.rows.len(),
        format_count(ended.planned, "trial"),
        is_or_are(ended.results.rows.len()),
        ended.run
    );
    let left = match cause {
        latput_runner::Error::Changed { hosts, .. } => hosts.clone(),
        _ => Vec::new(),
    };
    Err(CliError { code, error: CutShort { message, left }.into() })
}
