//! `latput run`: runs every trial of a plan and stores it in a results file.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use latput_experiment::session::{self, Ended, Quiet, Run};
use latput_experiment::{ResultsDb, RunPart, Shard, Testbed};
use latput_knobs::ChangeOutcome;
use latput_linux::confine::UsedFiles;
use latput_linux::files;
use latput_model::{Headline, Summary};
use latput_trial::Plan;
use latput_units::Nanos;

use crate::commands::{check, report, tune};
use crate::context::Context;
use crate::exit::{CliError, Code, CutShort};
use crate::output;
use crate::precision::{FirstArg, Precision};
use crate::progress::{ProgressArgs, Shown};
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
    /// file, every host, its knobs and levels (a guest is booted for it). Nothing is set. `--check=plan` checks only the
    /// plan file.
    #[arg(
        long,
        value_enum,
        value_name = "WHAT",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "all"
    )]
    check: Option<check::What>,
}

impl Args {
    pub(crate) fn run(self, context: &Context) -> Result<ExitCode, CliError> {
        let text = read_text(&self.plan)?;
        let mut plan = checked_plan(&self.plan.display().to_string(), &text, self.goal)?;
        self.precision.apply(&mut plan.method)?;
        self.quiet.beside.apply(&mut plan.method);
        self.first.apply(&mut plan)?;
        let flags =
            self.precision.plan_lines() + self.quiet.beside.plan_line() + self.first.plan_line();
        let text = text + &flags;
        let named = check::PlanToCheck { name: &self.plan.display().to_string(), plan: &plan };
        if self.check == Some(check::What::Plan) {
            return check::plan_only(context, &named, self.on.starts_with(targets::SIMULATED));
        }
        let place = self.hosts.named(&self.on, &plan)?;
        let files = UsedFiles::new([], [self.output.as_path()]);
        place.give_up_rights(Some(&plan), &files, context)?;
        if self.check.is_some() {
            check::check_results(&self.output)?;
            return check::all(context, &named, &place.open(context)?);
        }
        let part = self.shard.map_or(RunPart::Whole, RunPart::Shard);
        let open = || {
            let testbed = place.open(context)?;
            part.check(&plan, &testbed)?;
            Ok(testbed)
        };
        let (testbed, mut results_db) = open_both(open, &self.output)?;
        let run = Run {
            plan: &plan,
            plan_text: &text,
            testbed: &testbed,
            part,
            quiet: self.quiet.for_plan(&plan),
            interval: self.watch.interval()?,
            stop: &context.stop,
        };
        let ended = session::run(&run, &mut results_db, &mut Shown::new())?;
        if self.shard.is_some() && !context.json {
            return conclude(&ended, &self.output);
        }
        let summary = Summary::from_results(&ended.results);
        report::print(context, &ended.results, &summary)?;
        if self.shard.is_some() {
            return conclude(&ended, &self.output); // its part alone has no answer
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
    let mut plan = Plan::parse(file, text).map_err(latput_experiment::Error::from)?;
    let from = if goal.is_some() { "--goal".to_owned() } else { format!("{file}: goal") };
    plan.goal = goal.or(plan.goal);
    if let Some(goal) = &plan.goal {
        report::check_goal(&from, goal, &plan.workloads)?;
    }
    tune::check_guards(file, &plan)?;
    Ok(plan)
}

/// Opens the testbed and the results file. A wrong results file is refused before the testbed is
/// made, and no file is created for a testbed that cannot be made.
pub(crate) fn open_both(
    testbed: impl FnOnce() -> Result<Testbed, CliError>,
    output: &Path,
) -> Result<(Testbed, ResultsDb), CliError> {
    ResultsDb::check(output)?;
    let testbed = testbed()?;
    Ok((testbed, ResultsDb::create(output)?))
}

/// Runs a plan with progress on stderr.
pub(crate) fn run_plan(
    context: &Context,
    plan: &Plan,
    plan_text: &str,
    testbed: &Testbed,
    results_db: &mut ResultsDb,
    (interval, quiet): (Option<Nanos>, Quiet),
) -> Result<Ended, CliError> {
    let (part, stop) = (RunPart::Whole, &context.stop);
    let run = Run { plan, plan_text, testbed, part, quiet, interval, stop };
    Ok(session::run(&run, results_db, &mut Shown::new())?)
}

/// As [`conclude`]; a run that could not judge its goal is as good as partial.
pub(crate) fn conclude_with(
    ended: &Ended,
    summary: &Summary,
    output: &Path,
) -> Result<ExitCode, CliError> {
    let done = conclude(ended, output)?;
    let is_judged = summary.headline.as_ref().is_none_or(Headline::is_judged);
    Ok(if is_judged { done } else { Code::Partial.into() })
}

/// Prints where the results are, and returns the exit code.
pub(crate) fn conclude(ended: &Ended, output: &Path) -> Result<ExitCode, CliError> {
    let file = output.display();
    let Some(cause) = &ended.cause else {
        output::remark(&format!("results: run {} of {file}", ended.run));
        return Ok(ExitCode::SUCCESS);
    };
    let code = match cause.outcome() {
        ChangeOutcome::Stranded => Code::Stranded,
        _ => Code::Partial,
    };
    let message = format!(
        "{cause}; {} of {} trials are kept in run {} of {file}: run the same command again to resume",
        ended.results.rows.len(),
        ended.planned,
        ended.run
    );
    let left = match cause {
        latput_experiment::Error::Changed { hosts, .. } => hosts.clone(),
        _ => Vec::new(),
    };
    Err(CliError { code, error: CutShort { message, left }.into() })
}
