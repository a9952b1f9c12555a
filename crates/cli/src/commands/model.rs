//! `latput model`: models of a host from its results.

pub(crate) mod fit;

use std::process::ExitCode;

use clap::Subcommand;

use crate::context::Context;
use crate::exit::Failure;

/// Models of a host from its results: what its CPU time goes into.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Fit(fit::Args),
}

impl Args {
    pub(crate) fn run(self, context: &Context) -> Result<ExitCode, Failure> {
        match self.command {
            Command::Fit(args) => args.run(context),
        }
    }
}
