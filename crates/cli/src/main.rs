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
mod help;
mod live_args;
mod misplaced;
mod output;
mod parallel;
mod precision;
mod progress;
mod quiet_args;
mod targets;
mod version;

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{FromArgMatches, Parser};
use latput_report::printable_lines;

use crate::commands::Command;
use crate::context::CliContext;
use crate::exit::CliError;

/// Find, prove and keep the network settings that a workload needs.
///
/// latput measures what settings of network interfaces do to the latency, throughput and CPU cost of a workload, and
/// recommends one.
#[derive(Debug, Parser)]
#[command(version, after_help = exit::render_help_table())]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Print one JSON document (`docs/json.md`) instead of text.
    #[arg(long, global = true)]
    json: bool,
}

fn main() -> ExitCode {
    latput_agent::brought::forget_file();
    // Processes that latput starts from its own file are called `exe` otherwise.
    let _for_others_to_read = rustix::thread::set_name(c"latput");
    // Where that fails, what needs the files of an interface says so.
    let _unmounted = latput_linux::Namespace::show_in_sysfs();
    // The words are not understood yet, and an error about them is to be JSON too.
    if std::env::args_os().take_while(|word| word != "--").any(|word| word == "--json") {
        output::use_json();
    }
    let parsed = help::build_command().try_get_matches().and_then(|it| Cli::from_arg_matches(&it));
    let cli = match parsed {
        Ok(cli) => cli,
        Err(error) if error.kind() == ErrorKind::DisplayVersion && version::is_long_asked() => {
            return version::print_long()
                .map_or_else(|failure| report_error(&failure), |()| ExitCode::SUCCESS);
        }
        Err(error) => {
            return not_understood(&misplaced::with_commands(error, &help::build_command()));
        }
    };
    let context = match CliContext::new(cli.json) {
        Ok(context) => context,
        Err(failure) => return report_error(&failure),
    };
    match cli.command.run(&context) {
        Ok(code) => code,
        Err(failure) => report_error(&failure),
    }
}

/// Prints the error with its causes and returns the exit code.
fn report_error(failure: &CliError) -> ExitCode {
    output::print_error(failure);
    failure.code.into()
}

/// Prints clap's message or help. Arguments in it are escaped, because a script may have them from
/// elsewhere.
fn not_understood(error: &clap::Error) -> ExitCode {
    let plain = error.render().to_string();
    if output::is_json() && error.use_stderr() {
        let message = plain.trim_start_matches("error: ").trim_end();
        return report_error(&CliError::usage(message));
    }
    if printable_lines(&plain, false) == plain {
        error.exit(); // in colours on a terminal
    }
    output::print_remark(plain.trim_end());
    exit::ExitReason::Usage.into()
}
