//! `latput program`: runs the programs of a `command` workload on a host, started by latput itself.

use std::io;
use std::process::ExitCode;

use latput_agent::program::{self, hold};
use latput_linux::contain::Containment;

use crate::context::CliContext;
use crate::exit::{CliError, ExitReason};

/// Runs the programs of a `command` workload; latput starts it itself, through the `via` command of a host. When its stdin
/// closes, all of them are ended.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Speak over stdin and stdout.
    #[arg(long, required_unless_present_any = ["hold", "first"])]
    stdio: bool,
    /// Hold one program.
    #[arg(long, conflicts_with_all = ["stdio", "first"])]
    hold: bool,
    /// Be the first process of a namespace.
    #[arg(long, conflicts_with = "stdio")]
    first: bool,
}

impl Args {
    pub(crate) fn run(self, context: &CliContext) -> Result<ExitCode, CliError> {
        let failed = |error: hold::HoldError| {
            CliError::new(ExitReason::Failed, latput_protocol::text::format_error_chain(&error))
        };
        if self.hold {
            hold::hold_program(&context.stop).map_err(failed)?;
        } else if self.first {
            if std::process::id() != 1 {
                return Err(CliError::usage("--first is for the first process of a namespace"));
            }
            hold::run_first_process(Containment::Namespace, &context.stop).map_err(failed)?;
        } else {
            program::serve_controller(io::stdin(), io::stdout(), &context.stop)
                .map_err(|error| CliError::new(ExitReason::Failed, error.to_string()))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
