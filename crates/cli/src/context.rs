//! What every command is given: the form of output that is wanted, and whether it was told to stop.

use latput_load::Stop;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::exit::CliError;
use crate::output;

/// What is logged unless `LATPUT_LOG` says otherwise: errors, and each change that a daemon makes.
const LOG: &str = "error,latput_moderate=info";

/// What every command is given.
#[derive(Debug)]
pub(crate) struct Context {
    /// One JSON document instead of text.
    pub(crate) json: bool,
    /// Set by Ctrl-C and by a termination signal.
    pub(crate) stop: Stop,
}

impl Context {
    /// Installs the signal handlers and the log.
    pub(crate) fn new(json: bool) -> Result<Self, CliError> {
        tracing_subscriber::fmt()
            .with_env_filter(
                tracing_subscriber::EnvFilter::try_from_env("LATPUT_LOG")
                    .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(LOG)),
            )
            .with_writer(|| output::Stderr)
            .init();
        let stop = Stop::new();
        // The first only asks: ending at once would leave settings behind. The second one ends the wait for hosts
        // that do not answer.
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, stop.on_signal()).map_err(CliError::from)?;
        }
        // The kernel and the shell may each send one when a terminal closes.
        signal_hook::flag::register(SIGHUP, stop.flag()).map_err(CliError::from)?;
        Ok(Self { json, stop })
    }
}
