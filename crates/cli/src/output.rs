//! Everything that is printed: results to stdout, remarks and errors to stderr.

use std::io::{self, IsTerminal, Write};

use latput_report::Screen;
use serde::Serialize;

use crate::exit::{Code, Failure};

/// A file or a pipe: wide enough for one table, no colours.
pub(crate) const PLAIN: Screen = Screen { columns: 160, is_terminal: false };

/// Prints a command's result.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let written = out
        .write_all(text.as_bytes())
        .and_then(|()| if text.ends_with('\n') { out.flush() } else { out.write_all(b"\n") });
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()), // `| head`
        other => other.map_err(Failure::from),
    }
}

/// Prints a command's result as JSON.
pub(crate) fn print_json<T: Serialize>(document: &T) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(document)
        .map_err(|error| Failure { code: Code::Failed, error: error.into() })?;
    print(&text)
}

/// A remark beside the result, to stderr.
#[expect(clippy::print_stderr, reason = "the one place for remarks beside a result")]
pub(crate) fn remark(text: &str) {
    eprintln!("{text}");
}

/// Where results are printed to.
pub(crate) fn screen() -> Screen {
    let out = io::stdout();
    if !out.is_terminal() {
        return PLAIN;
    }
    let columns = rustix::termios::tcgetwinsize(&out).map_or(80, |size| size.ws_col);
    Screen { columns: usize::from(columns.max(40)), is_terminal: true }
}
