//! `latput search`: searches a plan's settings, by latput's own search or by another optimiser that drives it.

mod ask_tell;

use std::path::PathBuf;
use std::process::ExitCode;

use latput_experiment::ask_tell::{self as lines, AskTell};
use latput_experiment::session::{self, Run, Suggest};
use latput_model::Summary;
use latput_trial::plan::Design;

use self::ask_tell::Stdio;
use crate::commands::report;
use crate::commands::run::{checked_plan, conclude, open_both, read_text};
use crate::context::Context;
use crate::exit::CliError;
use crate::progress::{ProgressArgs, Shown};
use crate::targets::HostArgs;

/// Search the settings of a plan; an interrupted search is resumed.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  latput search plan.toml --on sim:server-10g                latput's own search
  python3 optuna_search.py 16 plan.toml --on sim:server-10g  Optuna's, over `--ask-tell` (examples/search)

With --ask-tell latput writes JSON lines to stdout and reads answers from stdin: the space, what was observed,
and `ask`; the optimiser suggests settings or is done. Then the winner is confirmed on fresh runs.")]
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
    #[command(flatten)]
    watch: ProgressArgs,
}

impl Args {
    pub(crate) fn run(self, context: &Context) -> Result<ExitCode, CliError> {
        let text = read_text(&self.plan)?;
        let mut plan = checked_plan(&self.plan.display().to_string(), &text, self.goal)?;
        let text = if self.ask_tell {
            let searched = lines::searched(plan, &text);
            plan = searched.0;
            searched.1
        } else {
            plan.method.design = Some(Design::Search);
            format!("{text}\n# search\n") // a run is resumed by the same command only
        };
        let place = self.hosts.named(&self.on, &plan)?;
        place.give_up_rights(Some(&plan), &[&self.output], context)?;
        let (testbed, mut results_db) = open_both(|| place.open(context), &self.output)?;
        let run = Run {
            plan: &plan,
            plan_text: &text,
            testbed: &testbed,
            shard: None,
            interval: self.watch.interval()?,
            stop: &context.stop,
        };
        let mut other = self.ask_tell.then(|| AskTell::new(Stdio::new(&context.stop)));
        let suggest = other.as_mut().map(|other| -> &mut dyn Suggest { other });
        let ended = session::run_suggested(&run, &mut results_db, &mut Shown::new(), suggest)?;
        match &mut other {
            Some(other) => other.end(&ended, self.output.display().to_string())?,
            None => report::print(context, &ended.results, &Summary::of(&ended.results))?,
        }
        conclude(&ended, &self.output)
    }
}
