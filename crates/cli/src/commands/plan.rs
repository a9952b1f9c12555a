//! `latput plan`: plans that latput knows, to be kept in a file and changed.

use std::process::ExitCode;

use latput_trial::plan;

use crate::exit::CliError;
use crate::output;

/// Print a plan that latput knows, to be kept in a file and changed.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  latput plan twin > twin.toml           the rows that `latput model twin` needs
  latput plan built-in > mine.toml       the plan of `latput tune`, as a start for your own")]
pub(crate) struct Args {
    /// Which plan.
    which: Which,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Which {
    /// The rows that `latput model twin` calibrates a profile on.
    Twin,
    /// The plan of `latput tune` without arguments.
    BuiltIn,
}

impl Args {
    pub(crate) fn run(self) -> Result<ExitCode, CliError> {
        output::print(match self.which {
            Which::Twin => latput_calibrate::PLAN,
            Which::BuiltIn => plan::BUILT_IN,
        })?;
        Ok(ExitCode::SUCCESS)
    }
}
