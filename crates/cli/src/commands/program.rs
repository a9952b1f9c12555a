//! `latput program`: runs the programs of a `command` workload on a host, started by latput itself.

use std::io;
use std::process::ExitCode;

use latput_experiment::program::{self, hold};
use latput_linux::contain::Containment;

use crate::context::Context;
use crate::exit::{CliError, Code};

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
    pub(crate) fn run(self, context: &Context) -> Result<ExitCode, CliError> {
        let failed = |error: hold::Error| {
            CliError::new(Code::Failed, latput_experiment::host::chain(&error))
        };
        if self.hold {
            hold::hold(&context.stop).map_err(failed)?;
        } else if self.first {
            if std::process::id() != 1 {
                return Err(CliError::usage("--first is for the first process of a namespace"));
            }
            hold::first(Containment::Namespace, &context.stop).map_err(failed)?;
        } else {
            program::serve(io::stdin(), io::stdout(), &context.stop)
                .map_err(|error| CliError::new(Code::Failed, error.to_string()))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
