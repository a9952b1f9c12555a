//! The context of every command: the output format and the stop flag.

use latput_load::Stop;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::exit::CliError;
use crate::output;

/// The default of `LATPUT_LOG`: errors, and each change of the daemon.
const LOG: &str = "error,latput_moderate=info";

/// The context of every command.
#[derive(Debug)]
pub(crate) struct Context {
    /// Whether output is one JSON document instead of text.
    pub(crate) json: bool,
    /// Raised by Ctrl-C and by a termination signal.
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
        // The first signal only requests the end, because ending at once would leave settings
        // behind. The second ends the wait for hosts that do not answer.
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, stop.on_signal()).map_err(CliError::from)?;
        }
        // When a terminal closes, the kernel and the shell may each send one.
        signal_hook::flag::register(SIGHUP, stop.flag()).map_err(CliError::from)?;
        Ok(Self { json, stop })
    }
}
