//! `latput tune`: run a plan, recommend a setting, write the report. The main job.

use std::path::PathBuf;
use std::process::ExitCode;

use latput_model::Summary;
use latput_trial::plan;

use crate::commands::{report, run};
use crate::context::Context;
use crate::exit::Failure;
use crate::output;

/// Measure the settings of a plan, recommend one, and write the report. Without PLAN: how long may
/// the receive side of this machine's network stack wait before it polls?
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  latput tune                                the built-in plan on the lab: about 4 minutes, needs root
  latput tune --goal cpu                     the same trials, judged for least CPU
  latput tune --on sim:server-10g            the same in the simulator: needs no root, sets nothing
  latput tune plan.toml --on rack.toml       a plan of your own on hosts of your own

The lab is two network namespaces and a veth pair that latput makes and removes; nothing else on the
machine is touched. The setting is recommended, not applied: the command that applies it is printed.")]
pub(crate) struct Args {
    /// The plan file; without it the built-in plan.
    plan: Option<PathBuf>,
    /// Where trials run: `lab`, `sim:SYSTEM` (a system's name or the file of its profile), or a testbed
    /// file that names hosts.
    #[arg(long, default_value = "lab", value_name = "TESTBED")]
    on: String,
    /// What is wanted: `latency`, `throughput`, `cpu`, `balanced`, or in words
    /// (`minimize latency_ns_p99 where throughput_bps >= 0.95 best`).
    #[arg(long)]
    goal: Option<String>,
    /// The results file; runs are added to it.
    #[arg(short, long, default_value = "latput-results.db", value_name = "FILE")]
    output: PathBuf,
    /// The report: one HTML file that works offline.
    #[arg(long, default_value = "latput-report.html", value_name = "FILE")]
    report: PathBuf,
}

impl Args {
    pub(crate) fn run(self, context: &Context) -> Result<ExitCode, Failure> {
        let (file, text) = match &self.plan {
            Some(path) => (path.display().to_string(), run::read_plan(path)?),
            None => ("built-in plan".to_owned(), plan::BUILT_IN.to_owned()),
        };
        let plan = run::checked_plan(&file, &text, self.goal)?;
        let (testbed, mut archive) = run::open(&self.on, &plan, &self.output)?;
        let ended = run::run_plan(context, &plan, &text, &testbed, &mut archive, None)?;
        drop(testbed); // the lab is gone before anything is told
        let summary = Summary::of(&ended.results);
        report::print(context, &ended.results, &summary)?;
        report::write_html(&self.report, &ended.results, &summary)?;
        output::remark(&format!("report: {}", self.report.display()));
        run::conclude(&ended, &self.output)
    }
}
