//! `cargo xtask bench-wire`: latput's figures beside what tcpdump saw of the same packets on the lab's wire.
//!
//! The mean of `ping` drifts with the machine by more than the goal, so each program is held to the wire of its own
//! packets, and the two ratios are compared. Counters of slices are held to the wire's count of the same window. The
//! traffic between slices is compared: where the setting changes, and where it stays.

mod capture;
mod changes;
mod ping;
mod slices;

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

use crate::peers::lab::Lab;
use crate::workspace::Workspace;

/// How thoroughly.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Runs of ping and of latput's `ping` workload, in turns.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(2..=1000))]
    pairs: u32,
    /// Repetitions of each setting whose slices are counted.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(2..=1000))]
    repetitions: u32,
    /// Measure this binary, and not one that is built now.
    #[arg(long, value_name = "PATH")]
    latput: Option<PathBuf>,
}

/// Measures both, prints them, fails where a goal is missed.
pub fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let latput = options.latput.clone().map_or_else(|| workspace.build_latput(), Ok)?;
    let folder = workspace.target.join("bench-wire");
    std::fs::create_dir_all(&folder).context("cannot make the folder of the results")?;
    let lab = Lab::up(&latput, &folder)?;
    let pings = ping::measure_pings(&lab, options.pairs)?;
    println!("{pings}");
    let slices = slices::measure_slices(&lab, options.repetitions)?;
    println!("{slices}");
    let changes = changes::measure_changes(&lab, options.repetitions)?;
    println!("{changes}");
    ensure!(pings.is_good() && slices.is_good() && changes.is_good(), "a goal is missed");
    Ok(())
}
