//! `latput plan`: prints built-in plans, as a start for your own.

use std::process::ExitCode;

use latput_trial::plan;

use crate::exit::CliError;
use crate::output;

/// Print a built-in plan, as a start for your own.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  latput plan twin > twin.toml           the rows that `latput model twin` needs
  latput plan built-in > mine.toml       the plan of `latput tune`, as a start for your own")]
pub(crate) struct Args {
    /// The plan.
    which: Which,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Which {
    /// The rows for calibrating a profile with `latput model twin`.
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
