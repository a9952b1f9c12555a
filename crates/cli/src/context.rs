//! The context of every command: the output format and the stop flag.

use latput_linux::confine::{self, UsedFiles};
use latput_load::Stop;
use latput_reach::broker;
use latput_reach::broker::message::RunPermissions;
use signal_hook::consts::{
    SIGALRM, SIGHUP, SIGINT, SIGPROF, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGVTALRM, SIGXCPU,
    SIGXFSZ,
};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::prelude::*;

use crate::exit::CliError;
use crate::output;

/// Other signals that end a process which does not handle them. They request the end, as a terminal's end does. After
/// SIGXFSZ the write fails too, with EFBIG.
const ENDING: [i32; 8] = [SIGHUP, SIGUSR1, SIGUSR2, SIGALRM, SIGVTALRM, SIGPROF, SIGXCPU, SIGXFSZ];

const LOG_VARIABLE: &str = "LATPUT_LOG";
/// The default of `LATPUT_LOG`: errors, and each change of the daemon.
const LOG: &str = "error,latput_moderate=info";

/// The context of every command.
#[derive(Debug)]
pub(crate) struct CliContext {
    /// Whether output is one JSON document instead of text.
    pub(crate) json: bool,
    /// Raised by Ctrl-C and by a termination signal.
    pub(crate) stop: Stop,
}

impl CliContext {
    /// Installs the signal handlers and the log.
    pub(crate) fn new(json: bool) -> Result<Self, CliError> {
        tracing_subscriber::registry()
            .with(tracing_subscriber::fmt::layer().with_writer(|| output::StderrWriter))
            .with(log_filter()?)
            .init();
        let stop = Stop::new();
        // The first signal only requests the end, because ending at once would leave settings
        // behind. The second ends the wait for hosts that do not answer.
        for signal in [SIGINT, SIGTERM, SIGQUIT] {
            signal_hook::flag::register(signal, stop.on_signal()).map_err(CliError::from)?;
        }
        // When a terminal closes, the kernel and the shell may each send one.
        for signal in ENDING {
            signal_hook::flag::register(signal, stop.flag()).map_err(CliError::from)?;
        }
        Ok(Self { json, stop })
    }

    /// Gives up the rights of this process, but for using `files`, and leaves them to a broker that does what is
    /// `permitted`. Nothing is given up by a process without rights. To be called before a stranger's byte is read, and
    /// before a thread is started.
    pub(crate) fn leave_rights_to_broker(
        &self,
        permitted: &RunPermissions,
        files: &UsedFiles<'_>,
    ) -> Result<(), CliError> {
        let stop = self.stop.clone();
        let on_loss = move || {
            output::print_remark(
                "latput: the process that holds the rights of this run has ended; the run ends as after Ctrl-C",
            );
            stop.raise();
        };
        let barriers = broker::start(permitted, files, on_loss)?;
        if barriers.is_some_and(|barriers| !barriers.close_files()) {
            output::print_remark(
                "latput: warning: the kernel has no Landlock. The process that reads answers of hosts has no \
                 capability, but can read files of user 0",
            );
        }
        Ok(())
    }
}

/// Filter of the log: `LATPUT_LOG`, such as `latput_moderate=debug,error`.
fn log_filter() -> Result<Targets, CliError> {
    let asked = std::env::var(LOG_VARIABLE).unwrap_or_else(|_| LOG.to_owned());
    asked.parse().map_err(|error| {
        CliError::usage(format!(
            "{LOG_VARIABLE}: {error}: write levels, such as `debug` or `{LOG}`"
        ))
    })
}

/// Gives up the rights that a command on files has no use for: all but those of one user to these files. To be called before
/// the first file is opened, and before a thread is started.
pub(crate) fn keep_only_files(files: &UsedFiles<'_>) -> Result<(), CliError> {
    confine::keep_files(files)?;
    Ok(())
}
