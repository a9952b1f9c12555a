//! `cargo xtask bench-peers`: latput against netperf and iperf3 on the lab, in one interleaved run.

use anyhow::Result;

use crate::workspace::Workspace;

/// How long, and which programs.
#[derive(Debug, clap::Args)]
pub struct Options {}

pub fn run(_: &Workspace, _: &Options) -> Result<()> {
    Ok(())
}
