//! `cargo xtask bench-scale`: what sweeps over Dask cost and how they grow with workers.

use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::python;
use crate::workspace::{Workspace, capture_output, python_programs};

const PROGRAM: &str = include_str!("scale_bench/bench.py");
/// Simulated runs of the largest sweep,
const SMALL: u32 = 40_000;
/// and with `--full`.
const FULL: u32 = 1_000_000;

/// How many.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cargo xtask bench-scale           40,000 simulated runs, about a minute after the build
  cargo xtask bench-scale --full    a million: most of an hour with two CPUs

Each task of Dask simulates 200 runs of a few packets. How long one takes is printed. It fails where a goal is missed.")]
pub struct Options {
    /// A million simulated runs.
    #[arg(long)]
    full: bool,
}

/// Builds the optimised wheel, and measures.
pub fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let folder = workspace.target.join("bench-scale");
    let programs = python_programs(&folder.join("environment"))?;
    let pip = |words: &[&str]| {
        capture_output(Command::new(programs.join("pip")).args(["install", "--quiet"]).args(words))
    };
    pip(&["maturin>=1.9,<2", "pandas>=2", "distributed>=2024.1"])?;
    let wheel = python::build_wheel(workspace, &folder, "release")?;
    let size = std::fs::metadata(&wheel)?.len();
    pip(&["--no-deps", "--force-reinstall", &wheel.display().to_string()])?;
    println!("wheel: {:.1} MB", size as f64 / 1e6);
    let program = folder.join("bench.py");
    std::fs::write(&program, PROGRAM).context("cannot write the bench's program")?;
    let runs = if options.full { FULL } else { SMALL };
    let mut bench = Command::new(programs.join("python"));
    let status = bench.arg(&program).arg(runs.to_string()).current_dir(&folder).status();
    ensure!(status.context("cannot start Python")?.success(), "a goal is missed");
    Ok(())
}
