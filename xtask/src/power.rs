//! `cargo xtask bench-power`: what chance a run of 200 s has to prove a known effect, and to claim one that
//! is not there, on noise recorded from the lab. The exit code tells of a goal that is missed. With `--intervals`,
//! how often the intervals of estimators hold the truth. With `--disturbed`, what runs of
//! the lab say beside other work.

mod disturbed;

use std::path::PathBuf;

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
    /// The built-in plan on the lab beside other work, against its answer on quiet hosts.
    #[arg(long, conflicts_with = "intervals")]
    disturbed: bool,
    /// Runs beside each load.
    #[arg(long, default_value_t = 10, requires = "disturbed")]
    runs: u32,
    /// Length of each of them: the built-in plan has 200 s for three workloads.
    #[arg(long, default_value_t = 66, requires = "disturbed")]
    seconds: u32,
    #[command(flatten)]
    beside_work: DisturbedOptions,
}

/// Flags for `--disturbed`.
#[derive(Debug, clap::Args)]
struct DisturbedOptions {
    /// With --disturbed: only these loads, such as `cpu30,compiler@b`; `list` prints all.
    #[arg(long, value_delimiter = ',', requires = "disturbed")]
    loads: Vec<String>,
    /// With --disturbed: measure this latput, in the place of one built from this tree.
    #[arg(long, value_name = "PATH", requires = "disturbed")]
    binary: Option<PathBuf>,
    /// With --disturbed: the load is part of the case (`latput run --beside`), and a long run beside it judges.
    #[arg(long, requires = "disturbed")]
    beside: bool,
    /// With --disturbed: count the runs of earlier calls with the same binary and length as well.
    #[arg(long, requires = "disturbed")]
    resume: bool,
}

/// Prints the table. The noise is resampled by an example of the model.
pub fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    if options.disturbed {
        return disturbed::run(workspace, options);
    }
    let mut command = cargo_command();
    command.current_dir(&workspace.root).args(["run", "--release", "-q", "-p", "latput-model"]);
    command.args(["--example", "bench_power", "--"]).arg(options.draws.to_string());
    command.args(options.intervals.then_some("intervals"));
    run_checked(&mut command).context("a goal is missed")
}
