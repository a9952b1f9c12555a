//! `cargo xtask bench-power`: what chance a run of 200 s has to prove a known effect, and to claim one that
//! is not there, on noise recorded from the lab. The exit code tells of a goal that is missed. With `--intervals`,
//! how often the intervals of estimators hold the truth. With `--lab`, the same of whole runs of the lab.

mod lab;

use anyhow::{Context, Result, ensure};

use crate::workspace::{Workspace, cargo};

/// How thoroughly.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Resampled runs of each effect; five times as many where there is none.
    #[arg(long, default_value_t = 400)]
    draws: u32,
    /// Compare estimators by how often their intervals hold the truth, and what they prove.
    #[arg(long)]
    intervals: bool,
    /// Whole runs of the lab, in which a timer of known length makes the effect.
    #[arg(long, conflicts_with = "intervals")]
    lab: bool,
    /// Runs of each effect on the lab.
    #[arg(long, default_value_t = 10, requires = "lab")]
    runs: u32,
    /// Length of each of them: the built-in plan has 200 s for three workloads.
    #[arg(long, default_value_t = 66, requires = "lab")]
    seconds: u32,
}

/// Prints the table. The noise is resampled by an example of the model.
pub fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    if options.lab {
        return lab::run(workspace, options.runs, options.seconds);
    }
    let mut command = cargo();
    command.current_dir(&workspace.root).args(["run", "--release", "-q", "-p", "latput-model"]);
    command.args(["--example", "bench_power", "--"]).arg(options.draws.to_string());
    command.args(options.intervals.then_some("intervals"));
    let status = command.status().context("cannot start cargo")?;
    ensure!(status.success(), "the benchmark ended with {status}: a goal is missed");
    Ok(())
}
