//! `cargo xtask bench-power`: what chance a run of 200 s has to prove a known effect, and to claim one that
//! is not there, on noise recorded from the lab. The exit code tells of a goal that is missed. With `--intervals`,
//! how often the intervals of estimators hold the truth.

use anyhow::{Context, Result};

use crate::workspace::{Workspace, cargo_command, run_checked};

/// How thoroughly.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Resampled runs of each effect; five times as many where there is none.
    #[arg(long, default_value_t = 400)]
    draws: u32,
    /// Compare estimators by how often their intervals hold the truth, and what they prove.
    #[arg(long)]
    intervals: bool,
}

/// Prints the table. The noise is resampled by an example of the model.
pub fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let mut command = cargo_command();
    command.current_dir(&workspace.root).args(["run", "--release", "-q", "-p", "latput-model"]);
    command.args(["--example", "bench_power", "--"]).arg(options.draws.to_string());
    command.args(options.intervals.then_some("intervals"));
    run_checked(&mut command).context("a goal is missed")
}
