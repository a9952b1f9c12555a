//! `latput`: finds, proves and holds network-interface settings.
//!
//! The only crate that prints, parses arguments or installs signal handlers. A subcommand is a file
//! in `commands/` with its `Args` and its `run`.

mod commands;
mod context;
mod document;
mod exit;
mod output;
mod precision;
mod progress;

use std::process::ExitCode;

use clap::Parser;

use crate::commands::Command;
use crate::context::Context;

/// Finds, proves and holds the network-interface settings that give a workload the latency,
/// throughput and CPU cost its owner wants.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100, after_help = exit::TABLE)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Print one JSON document (its schema: `docs/json.md`) instead of text.
    #[arg(long, global = true)]
    json: bool,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let context = match Context::new(cli.json) {
        Ok(context) => context,
        Err(failure) => return failure.report(),
    };
    match cli.command.run(&context) {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}
