//! All output: results to stdout or to a file, remarks and errors to stderr. Control characters
//! from any source are escaped on terminals, and lines that are too long there are folded. With `--json` each remark and
//! the error are a JSON document in a line.

use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use latput_linux::files;
use latput_report::lines::fold_lines;
use latput_report::{Screen, printable_lines};
use rustix::fd::AsFd;
use serde::Serialize;

use crate::document::error::{ErrorDocument, RemarkDocument};
use crate::exit::{CliError, ExitReason};

/// Columns of a file or a pipe, where `COLUMNS` does not say another number.
const PLAIN_COLUMNS: usize = 100;
/// Columns of a terminal that does not tell them.
const TERMINAL_COLUMNS: usize = 80;

/// Prints a command's result for people: on a terminal no line is wider than that.
pub(crate) fn print_text(text: &str) -> Result<(), CliError> {
    if io::stdout().is_terminal() {
        write(&fold_lines(text, stdout_screen().columns))
    } else {
        write(text)
    }
}

/// Prints a command's result for a program or a file, with its lines as they are.
pub(crate) fn print_data(text: &str) -> Result<(), CliError> {
    write(text)
}

/// Prints a line of an output that goes on. `false`: nobody reads it any more.
pub(crate) fn print_line(text: &str) -> Result<bool, CliError> {
    let mut out = io::stdout().lock();
    let text = printable_lines(text, false);
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        written => written.map(|()| true).map_err(CliError::from),
    }
}

/// Whether a screen that is drawn again and again can be shown, and keys can be read.
pub(crate) fn can_draw() -> bool {
    io::stdout().is_terminal() && io::stdin().is_terminal() && !is_dumb()
}

/// Prints what a change has made. The change stays made: where stdout cannot be written, stderr tells it.
pub(crate) fn print_change(text: &str) {
    if let Err(failure) = print_text(text) {
        print_remark(&format!(
            "latput: stdout cannot be written ({}). Done:\n{text}",
            failure.message()
        ));
    }
}

/// As [`print_change`], as JSON.
pub(crate) fn print_change_json<T: Serialize>(document: &T) {
    if let Err(failure) = print_json(document) {
        print_remark(&format!(
            "latput: stdout cannot be written ({}). It is done",
            failure.message()
        ));
    }
}

fn write(text: &str) -> Result<(), CliError> {
    let mut out = io::stdout().lock();
    let text = printable_lines(text, is_styled(&out));
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
        .map_err(|error| CliError { code: ExitReason::Failed, error: error.into() })?;
    write(&text)
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
pub(crate) fn print_remark(text: &str) {
    if is_json() {
        return json_line(&RemarkDocument { schema: 1, remark: text.to_owned() });
    }
    write_line(&for_stderr(text));
}

/// Prints the error that ends the command to stderr.
pub(crate) fn print_error(failure: &CliError) {
    if is_json() {
        return json_line(&ErrorDocument::from_error(failure));
    }
    write_line(&for_stderr(&format!("latput: error: {}", failure.message())));
}

fn json_line(document: &impl Serialize) {
    // Text and numbers: there is nothing that could fail.
    write_line(&printable_lines(&serde_json::to_string(document).unwrap_or_default(), false));
}

fn write_line(text: &str) {
    // A pipe that nobody reads and a full disk end no run: nothing is left to tell it on.
    let _is_told = writeln!(io::stderr().lock(), "{text}");
}

/// Stderr, for writers of whole lines.
#[derive(Debug)]
pub(crate) struct StderrWriter;

impl Write for StderrWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        if is_json() {
            print_remark(text.trim_end());
        } else {
            io::stderr().write_all(printable_lines(&text, false).as_bytes())?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// A text for stderr: escaped, and folded if that is a terminal.
fn for_stderr(text: &str) -> String {
    let text = printable_lines(text, false);
    let err = io::stderr();
    if err.is_terminal() {
        fold_lines(&text, stream_columns(&err)).into_owned()
    } else {
        text.into_owned()
    }
}

/// The device of stdout.
pub(crate) fn stdout_screen() -> Screen {
    let out = io::stdout();
    Screen { columns: stream_columns(&out), is_styled: is_styled(&out) }
}

/// A file that is written.
pub(crate) fn file_screen() -> Screen {
    Screen { columns: wanted_columns().unwrap_or(PLAIN_COLUMNS), is_styled: false }
}

/// Whether stderr can show a line that changes, such as a progress bar.
pub(crate) fn can_move() -> bool {
    io::stderr().is_terminal() && !is_dumb()
}

/// The columns of stderr.
pub(crate) fn stderr_columns() -> usize {
    stream_columns(&io::stderr())
}

/// `COLUMNS` in the environment decides, as for `ls`; then the window.
fn stream_columns(stream: &(impl AsFd + IsTerminal)) -> usize {
    let window = || match rustix::termios::tcgetwinsize(stream) {
        Ok(size) if size.ws_col > 0 => usize::from(size.ws_col),
        _ => TERMINAL_COLUMNS,
    };
    let found = || if stream.is_terminal() { window() } else { PLAIN_COLUMNS };
    wanted_columns().unwrap_or_else(found).clamp(40, 1000)
}

fn wanted_columns() -> Option<usize> {
    std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok())
}

/// Whether styles are shown: `NO_COLOR` turns them off, `CLICOLOR_FORCE` on, and else a terminal that is not `dumb`
/// has them.
fn is_styled(stream: &impl IsTerminal) -> bool {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    if is_set("NO_COLOR") {
        return false;
    }
    let is_forced = std::env::var_os("CLICOLOR_FORCE").is_some_and(|value| value != "0");
    is_forced || (stream.is_terminal() && !is_dumb())
}

fn is_dumb() -> bool {
    std::env::var_os("TERM").is_none_or(|term| term == "dumb")
}
