//! `latput agent`: the agent on a host, started by latput itself.

use std::io;
use std::process::ExitCode;

use crate::context::Context;
use crate::exit::CliError;

/// The far end of a run; latput starts it itself, through the `via` command of a host.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
It listens on no port for control: whoever may start it may control it. When its stdin closes, or nothing has
come for 10 s (`lease` in the testbed file), it ends its traffic, puts every knob back that it changed, and
ends.")]
pub(crate) struct Args {
    /// Speak over stdin and stdout; required.
    #[arg(long, required = true)]
    stdio: bool,
}

impl Args {
    pub(crate) fn run(self, context: &Context) -> Result<ExitCode, CliError> {
        let Self { stdio: _ } = self; // clap has seen to it
        latput_experiment::agent::serve(io::stdin(), io::stdout(), &context.stop)?;
        Ok(ExitCode::SUCCESS)
    }
}
