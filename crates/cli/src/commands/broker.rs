//! `latput broker`: keeps the rights of a run, started by latput itself.

use std::io;
use std::os::fd::RawFd;
use std::process::ExitCode;

use latput_reach::broker;

use crate::exit::{CliError, ExitReason};

/// Keep the rights of a run; started by latput itself, which then gives up its own. What the run may ask for comes on stdin.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The socket to the controller.
    #[arg(long)]
    line: RawFd,
}

impl Args {
    pub(crate) fn run(self) -> Result<ExitCode, CliError> {
        broker::serve_controller(io::stdin(), self.line).map_err(|error| {
            CliError::new(ExitReason::Failed, latput_protocol::text::format_error_chain(&error))
        })?;
        Ok(ExitCode::SUCCESS)
    }
}
