//! All output: results to stdout or to a file, remarks and errors to stderr. Control characters
//! from any source are escaped on terminals. With `--json` each remark and the error are a JSON document in a line.

use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use latput_linux::files;
use latput_report::{Screen, printable_lines};
use serde::Serialize;

use crate::document::error::{ErrorDocument, RemarkDocument};
use crate::exit::{CliError, Code};

/// A file or a pipe: wide enough for one table, without colours.
pub(crate) const PLAIN: Screen = Screen { columns: 160, is_terminal: false };

/// Prints a command's result.
pub(crate) fn print(text: &str) -> Result<(), CliError> {
    let mut out = io::stdout().lock();
    let text = printable_lines(text, out.is_terminal());
    let written = out
        .write_all(text.as_bytes())
        .and_then(|()| if text.ends_with('\n') { out.flush() } else { out.write_all(b"\n") });
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()), // `| head`
        other => other.map_err(CliError::from),
    }
}

/// Writes a command's result to a file, atomically.
pub(crate) fn write_file(path: &Path, text: &str) -> Result<(), CliError> {
    Ok(files::replace(path, printable_lines(text, false).as_bytes())?)
}

/// Prints a command's result as JSON.
pub(crate) fn print_json<T: Serialize>(document: &T) -> Result<(), CliError> {
    let text = serde_json::to_string_pretty(document)
        .map_err(|error| CliError { code: Code::Failed, error: error.into() })?;
    print(&text)
}

/// Whether stderr has JSON lines. Remarks come from everywhere, also from the log.
static JSON: AtomicBool = AtomicBool::new(false);

/// Makes remarks and errors JSON documents from now on.
pub(crate) fn use_json() {
    JSON.store(true, Ordering::Relaxed);
}

/// Whether remarks and errors are JSON documents.
pub(crate) fn is_json() -> bool {
    JSON.load(Ordering::Relaxed)
}

/// Prints a remark beside the result to stderr.
pub(crate) fn remark(text: &str) {
    if is_json() {
        return json_line(&RemarkDocument { schema: 1, remark: text.to_owned() });
    }
    line(&printable_lines(text, false));
}

/// Prints the error that ends the command to stderr.
pub(crate) fn error(failure: &CliError) {
    if is_json() {
        return json_line(&ErrorDocument::of(failure));
    }
    line(&printable_lines(&format!("latput: error: {}", failure.message()), false));
}

fn json_line(document: &impl Serialize) {
    // Text and numbers: there is nothing that could fail.
    line(&printable_lines(&serde_json::to_string(document).unwrap_or_default(), false));
}

#[expect(
    clippy::print_stderr,
    reason = "the one place for remarks beside a result, and for errors"
)]
fn line(text: &str) {
    eprintln!("{text}");
}

/// Stderr, for writers of whole lines.
#[derive(Debug)]
pub(crate) struct Stderr;

impl Write for Stderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        if is_json() {
            remark(text.trim_end());
        } else {
            io::stderr().write_all(printable_lines(&text, false).as_bytes())?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// The device of stdout. `COLUMNS` in the environment decides its width, as for `ls`.
pub(crate) fn screen() -> Screen {
    let out = io::stdout();
    let is_terminal = out.is_terminal();
    let wanted = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    let columns = wanted.unwrap_or_else(|| {
        let window =
            rustix::termios::tcgetwinsize(&out).map_or(80, |size| usize::from(size.ws_col));
        if is_terminal { window } else { PLAIN.columns }
    });
    Screen { columns: columns.clamp(40, 1000), is_terminal }
}
