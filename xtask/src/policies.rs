//! `cargo xtask bench-policies`: moderation policies side by side on simulated loads, and beside them the
//! best fixed delay of each phase.

use anyhow::{Context, Result, ensure};

use crate::workspace::{Workspace, cargo};

/// Which loads, and how thoroughly.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// One seed instead of three, and without the longest loads.
    #[arg(long)]
    quick: bool,
    /// Only loads whose label contains one of these: `bulk`, `rr b0`, `every 50ms`, `100G`.
    #[arg(value_name = "WORDS")]
    only: Vec<String>,
}

/// Runs the example of the simulator that holds the loads and prints the table.
pub fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let mut command = cargo();
    command.current_dir(&workspace.root).args(["run", "--release", "-q", "-p", "latput-sim"]);
    command.args(["--example", "bench_policies", "--"]).args(&options.only);
    if options.quick {
        command.arg("--quick");
    }
    let status = command.status().context("cannot start cargo")?;
    ensure!(status.success(), "the benchmark ended with {status}");
    Ok(())
}
