//! `latput search`: searches a plan's settings, by latput's own search or by another optimiser that drives it.

mod ask_tell;

use std::path::PathBuf;
use std::process::ExitCode;

use latput_experiment::RunPart;
use latput_experiment::ask_tell::{self as lines, AskTell};
use latput_experiment::session::{self, ExternalOptimiser, RunInputs};
use latput_linux::confine::UsedFiles;
use latput_model::ResultsSummary;
use latput_results::Shard;
use latput_trial::plan::Design;

use self::ask_tell::StdioLine;
use crate::commands::report;
use crate::commands::run::{checked_plan, conclude_run, conclude_with, open_both, read_text};
use crate::context::CliContext;
use crate::exit::{CliError, ExitReason};
use crate::precision::FirstArg;
use crate::progress::{ProgressArgs, ProgressDisplay};
use crate::quiet_args::QuietArgs;
use crate::targets::HostArgs;

/// Search the settings of a plan.
///
/// An interrupted search is resumed.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  latput search plan.toml --on sim:server-10g                latput's own search
  python3 optuna_search.py 16 plan.toml --on sim:server-10g  Optuna's, over `--ask-tell` (examples/search)
  latput search plan.toml --on sim:server-10g --shard 3/4 --from all.db -o part3.db
                                                             one of four parts of the next block

With --ask-tell latput writes JSON lines to stdout (the space, observations, and `ask`) and reads answers from
stdin. The optimiser suggests settings or is done. Then the winner is confirmed on fresh runs.")]
pub(crate) struct Args {
    /// The plan file; it needs a goal. Its design is a search.
    plan: PathBuf,
    /// Where trials run, as for `latput run`.
    #[arg(long, default_value = "lab", value_name = "TESTBED")]
    on: String,
    #[command(flatten)]
    hosts: HostArgs,
    /// The results file; runs are added to it.
    #[arg(short, long, default_value = "latput-results.db", value_name = "FILE")]
    output: PathBuf,
    /// A goal instead of the plan's.
    #[arg(long)]
    goal: Option<String>,
    /// Ask another optimiser for the settings, by JSON lines over stdin and stdout.
    #[arg(long)]
    ask_tell: bool,
    /// Simulate only every COUNT-th trial of the next block of the search in --from: `3/16`, or counted from 0
    /// `index:2/16`. `latput merge` joins the shards to the blocks before.
    #[arg(long, value_name = "NUMBER/COUNT", requires = "from", conflicts_with_all = ["ask_tell", "first"])]
    shard: Option<Shard>,
    /// The results file of the search so far, which a shard reads.
    #[arg(long, value_name = "FILE", requires = "shard")]
    from: Option<PathBuf>,
    /// Run no trial, and print the next block. The exit code is 6 until the search is over.
    #[arg(long, conflicts_with_all = ["shard", "ask_tell"])]
    no_trials: bool,
    #[command(flatten)]
    first: FirstArg,
    #[command(flatten)]
    quiet: QuietArgs,
    #[command(flatten)]
    watch: ProgressArgs,
}

impl Args {
    pub(crate) fn run(self, context: &CliContext) -> Result<ExitCode, CliError> {
        let text = read_text(&self.plan)?;
        let mut plan = checked_plan(&self.plan.display().to_string(), &text, self.goal)?;
        let text = if self.ask_tell {
            let searched = lines::convert_to_search(plan, &text);
            plan = searched.0;
            searched.1
        } else {
            plan.method.design = Some(Design::Search);
            format!("{text}\n# search\n") // a run is resumed by the same command only
        };
        self.quiet.beside.apply_to_method(&mut plan.method);
        let text = text + self.quiet.beside.plan_line();
        self.first.apply_to_plan(&mut plan)?;
        let text = text + self.first.plan_line();
        let place = self.hosts.resolve_testbed(&self.on, &plan)?;
        let files = UsedFiles::new(self.from.as_deref(), [self.output.as_path()]);
        place.give_up_rights(Some(&plan), &files, context)?;
        let part = match (self.shard, &self.from) {
            (Some(shard), Some(file)) => RunPart::ShardOfBlock(shard, file),
            _ if self.no_trials => RunPart::Nothing,
            _ => RunPart::Whole,
        };
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
            quiet: self.quiet.for_plan(&plan),
            interval: self.watch.checked_interval()?,
            stop: &context.stop,
        };
        let mut other = self.ask_tell.then(|| AskTell::new(StdioLine::new(&context.stop)));
        let suggest = other.as_mut().map(|other| -> &mut dyn ExternalOptimiser { other });
        let ended =
            session::run_suggested(&run, &mut results_db, &mut ProgressDisplay::new(), suggest)?;
        if let Some(next @ latput_runner::Error::SearchGoesOn { .. }) = &ended.cause {
            let file = self.output.display();
            let how = format!("leave out --no-trials, or run its shards with `--from {file}`");
            return Err(CliError::new(ExitReason::Partial, format!("{next}: {how}")));
        }
        if self.shard.is_some() && !context.json {
            return conclude_run(&ended, &self.output);
        }
        let summary = ResultsSummary::from_results(&ended.results);
        match &mut other {
            Some(other) => other.finish_search(&ended, self.output.display().to_string())?,
            None => report::print_report(context, &ended.results, &summary)?,
        }
        if self.shard.is_some() {
            return conclude_run(&ended, &self.output); // its part alone has no answer
        }
        conclude_with(&ended, &summary, &self.output)
    }
}
