//! `latput`: finds, proves and holds network-interface settings.
//!
//! This is the only crate that prints, parses arguments or installs signal handlers. A subcommand
//! is a file in `commands/` with its `Args` and its `run`.

mod command_args;
mod commands;
mod context;
mod document;
mod exit;
mod factor_args;
mod live_args;
mod output;
mod parallel;
mod precision;
mod progress;
mod quiet_args;
mod targets;

use std::process::ExitCode;

use clap::Parser;
use latput_report::printable_lines;

use crate::commands::Command;
use crate::context::Context;
use crate::exit::CliError;

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
    latput_experiment::bring::forget_file();
    // The words are not understood yet, and an error about them is to be JSON too.
    if std::env::args_os().take_while(|word| word != "--").any(|word| word == "--json") {
        output::use_json();
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return not_understood(&error),
    };
    let context = match Context::new(cli.json) {
        Ok(context) => context,
        Err(failure) => return report(&failure),
    };
    match cli.command.run(&context) {
        Ok(code) => code,
        Err(failure) => report(&failure),
    }
}

/// Prints the error with its causes and returns the exit code.
fn report(failure: &CliError) -> ExitCode {
    output::error(failure);
    failure.code.into()
}

/// Prints clap's message or help. Arguments in it are escaped, because a script may have them from
/// elsewhere.
fn not_understood(error: &clap::Error) -> ExitCode {
    let plain = error.render().to_string();
    if output::is_json() && error.use_stderr() {
        let message = plain.trim_start_matches("error: ").trim_end();
        return report(&CliError::usage(message));
    }
    if printable_lines(&plain, false) == plain {
        error.exit(); // in colours on a terminal
    }
    output::remark(plain.trim_end());
    exit::Code::Usage.into()
}
