//! What every command is given: how to print, and whether it was told to stop.

use std::io::{self, IsTerminal, Write};

use latput_load::Stop;
use latput_report::Screen;
use serde::Serialize;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::exit::{Code, Failure};

/// A file or a pipe: wide enough for one table, no colours.
pub(crate) const PLAIN: Screen = Screen { columns: 160, is_terminal: false };

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
    pub(crate) fn new(json: bool) -> Result<Self, Failure> {
        tracing_subscriber::fmt()
            .with_env_filter(tracing_subscriber::EnvFilter::from_env("LATPUT_LOG"))
            .with_writer(io::stderr)
            .init();
        let stop = Stop::new();
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            // However often it comes it only asks: ending at once would leave settings behind.
            signal_hook::flag::register(signal, stop.flag()).map_err(Failure::from)?;
        }
        Ok(Self { json, stop })
    }

    /// Prints a command's result.
    pub(crate) fn print(&self, text: &str) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        let written = out.write_all(text.as_bytes()).and_then(|()| {
            if text.ends_with('\n') { out.flush() } else { out.write_all(b"\n") }
        });
        match written {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()), // `| head`
            other => other.map_err(Failure::from),
        }
    }

    /// Prints a command's result as JSON.
    pub(crate) fn print_json<T: Serialize>(&self, document: &T) -> Result<(), Failure> {
        let text = serde_json::to_string_pretty(document)
            .map_err(|error| Failure { code: Code::Failed, error: error.into() })?;
        self.print(&text)
    }

    /// A remark beside the result, to stderr.
    #[expect(clippy::print_stderr, reason = "the one place for remarks beside a result")]
    pub(crate) fn remark(&self, text: &str) {
        eprintln!("{text}");
    }

    /// Where results are printed to.
    pub(crate) fn screen(&self) -> Screen {
        let out = io::stdout();
        if !out.is_terminal() {
            return PLAIN;
        }
        let columns = rustix::termios::tcgetwinsize(&out).map_or(80, |size| size.ws_col);
        Screen { columns: usize::from(columns.max(40)), is_terminal: true }
    }
}
