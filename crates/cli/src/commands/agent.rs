//! `latput agent`: the agent on a host, started by latput itself.

use std::io;
use std::os::fd::RawFd;
use std::process::ExitCode;

use latput_agent::{agent, keeper};

use crate::context::CliContext;
use crate::exit::CliError;

/// Serve as the far end of a run.
///
/// latput starts it itself, through the `via` command of a host.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
It has no control port: whoever may start it may control it. When its stdin closes, or nothing arrives for 10
s (`lease` in the testbed file), it stops its traffic, puts back every knob that it changed, and ends. It is
two processes: the one that reads the control line and makes the traffic has no rights.")]
pub(crate) struct Args {
    /// Speak over stdin and stdout; required.
    #[arg(long, required = true)]
    stdio: bool,
    /// The sockets to the keeper, which starts this.
    #[arg(long, hide = true, num_args = 2)]
    kept: Vec<RawFd>,
}

impl Args {
    pub(crate) fn run(self, context: &CliContext) -> Result<ExitCode, CliError> {
        let Self { stdio: _, kept } = self; // clap has seen to it
        if let [line, rights] = kept[..] {
            agent::serve_controller(io::stdin(), io::stdout(), [line, rights], &context.stop)?;
            return Ok(ExitCode::SUCCESS);
        }
        Ok(keeper::run(&context.stop)?.into())
    }
}
