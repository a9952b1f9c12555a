//! `latput model`: models of a host from its results.

pub(crate) mod fit;
mod twin;

use std::process::ExitCode;

use clap::Subcommand;

use crate::context::CliContext;
use crate::exit::CliError;

/// Fit CPU costs of a host, or a profile of it.
///
/// Models of a host from its results: the costs of its CPU time, and a profile for the simulator.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: ModelCommand,
}

#[derive(Debug, Subcommand)]
enum ModelCommand {
    Fit(fit::Args),
    Twin(twin::Args),
}

impl Args {
    pub(crate) fn run(self, context: &CliContext) -> Result<ExitCode, CliError> {
        match self.command {
            ModelCommand::Fit(args) => args.run(context),
            ModelCommand::Twin(args) => args.run(context),
        }
    }
}
