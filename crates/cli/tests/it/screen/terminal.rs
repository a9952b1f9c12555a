//! A command on a pseudo-terminal, and the screen that it leaves.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::num::NonZero;
use std::process::Stdio;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::Place;

/// Rows that the emulator keeps: all that a command writes.
const ROWS: u16 = 3000;
/// Rows that the command is told of.
const WINDOW_ROWS: u16 = 24;

/// The screen after a command has ended.
pub(crate) struct TerminalScreen {
    what: String,
    columns: u16,
    bytes: Vec<u8>,
    parser: vt100::Parser,
}

impl TerminalScreen {
    /// Runs latput on a terminal of so many columns.
    pub(crate) fn run(
        place: &Place,
        columns: u16,
        environment: &[(&str, &str)],
        args: &[&str],
    ) -> Self {
        let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&controller).unwrap();
        unlockpt(&controller).unwrap();
        let name = ptsname(&controller, Vec::new()).unwrap();
        let path = name.to_str().unwrap();
        let terminal = File::options().read(true).write(true).open(path).unwrap();
        let window = Winsize { ws_row: WINDOW_ROWS, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&terminal, window).unwrap();
        let end = || Stdio::from(terminal.try_clone().unwrap());
        let mut command = place.latput_command(args);
        command.env_remove("COLUMNS").env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE");
        command.env("TERM", "xterm-256color").envs(environment.iter().copied());
        command.stdout(end()).stderr(end());
        let mut child = command.spawn().unwrap();
        drop((command, terminal)); // the last end is the command's
        let bytes = read_all(File::from(controller));
        child.wait().unwrap();
        let size = |count| NonZero::new(count).unwrap();
        let mut parser = vt100::Parser::new(size(ROWS), size(columns), 0);
        parser.process(&bytes);
        Self { what: args.join(" "), columns, bytes, parser }
    }

    /// Bytes that were written to the terminal.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The rows down to the last that is not empty.
    pub(crate) fn rows(&self) -> Vec<String> {
        let mut rows: Vec<String> = self.parser.screen().rows(0, self.columns).collect();
        while rows.last().is_some_and(String::is_empty) {
            rows.pop();
        }
        rows
    }

    /// Whether a row has this text.
    pub(crate) fn has_text(&self, text: &str) -> bool {
        self.rows().iter().any(|row| row.contains(text))
    }

    /// The rows with bold text.
    pub(crate) fn bold_rows(&self) -> Vec<String> {
        let rows = self.rows().into_iter().enumerate();
        rows.filter(|(idx, _)| self.row_cells(*idx).any(vt100::Cell::bold))
            .map(|(_, row)| row)
            .collect()
    }

    /// Asserts what holds for each screen: no escape sequence as text, no line that the terminal had to break, and no
    /// colour that some background hides.
    #[track_caller]
    pub(crate) fn hold_rules(&self) {
        self.check_width();
        for (idx, row) in self.rows().iter().enumerate() {
            let is_escaped = row.contains("\\u00") || row.contains("[2m") || row.contains("[1m");
            assert!(!is_escaped && !row.contains('\u{1b}'), "{self}");
            for cell in self.row_cells(idx).filter(|cell| cell.has_contents()) {
                let is_plain = cell.fgcolor() == vt100::Color::Default && !cell.dim();
                assert!(is_plain && cell.bgcolor() == vt100::Color::Default, "row {idx}: {self}");
            }
        }
    }

    /// Asserts that no line is wider than the screen, unless it is one word, as a shell sees it.
    #[track_caller]
    pub(crate) fn check_width(&self) {
        let rows = self.rows();
        assert!(!rows.is_empty(), "{self}");
        for (idx, row) in rows.iter().enumerate() {
            let is_wrapped = self.parser.screen().row_wrapped(u16::try_from(idx).unwrap());
            let last = row.trim_start().rsplit("  ").next().unwrap_or_default();
            let is_one_word = row.trim_start().starts_with('\'') || !last.contains(' ');
            let is_usage = row.starts_with("Usage: "); // clap never breaks it
            assert!(!is_wrapped || is_one_word || is_usage, "row {idx} goes on: {self}");
        }
    }

    /// The ends of the figures with an interval in each row that has some, for each table: consecutive rows.
    pub(crate) fn ends_of_figures(&self) -> Vec<Vec<Vec<usize>>> {
        let mut tables: Vec<Vec<Vec<usize>>> = Vec::new();
        let mut is_inside = false;
        for row in self.rows() {
            let chars: Vec<char> = row.chars().collect();
            let is_of_number = |char: &&char| char.is_ascii_digit() || ['.', '<'].contains(*char);
            let end = |at: usize| at + chars[at + 1..].iter().take_while(is_of_number).count();
            // A lopsided interval, such as `(3 to 172)`, ends in its bracket.
            let is_bracket = |at: usize| {
                let open = chars[..at].iter().rposition(|char| *char == '(');
                let inside = open.map(|open| chars[open..at].iter().collect::<String>());
                inside.is_some_and(|inside| inside.contains(" to "))
            };
            let places = chars.iter().enumerate().filter_map(|(at, char)| match char {
                '±' => Some(end(at)),
                ')' if is_bracket(at) => Some(at),
                _ => None,
            });
            let places: Vec<usize> = places.collect();
            let is_row = !places.is_empty() && !row.contains('%');
            if is_row && !is_inside {
                tables.push(Vec::new());
            }
            if is_row {
                tables.last_mut().unwrap().push(places);
            }
            is_inside = is_row;
        }
        tables
    }

    /// Whether each example begins a row of its own.
    pub(crate) fn examples_are_apart(&self) -> bool {
        let rows = self.rows();
        let from = rows.iter().position(|row| row == "Examples:").unwrap_or(0);
        let examples = rows[from + 1..].iter().take_while(|row| !row.is_empty());
        // `latput` is at the beginning, or within words of what explains an example.
        examples.filter(|row| row.starts_with("  latput ")).count() > 0
            && rows[from + 1..]
                .iter()
                .take_while(|row| !row.is_empty())
                .all(|row| row.starts_with("  "))
    }

    fn row_cells(&self, row: usize) -> impl Iterator<Item = &vt100::Cell> {
        let row = u16::try_from(row).unwrap();
        (0..self.columns).filter_map(move |column| self.parser.screen().cell(row, column))
    }
}

impl fmt::Display for TerminalScreen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "latput {} on {} columns:\n{}", self.what, self.columns, self.rows().join("\n"))
    }
}

/// Reads until the last end of the terminal is closed, which is an error of the controlling end.
fn read_all(mut controller: File) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut part = [0; 4096];
    while let Ok(count @ 1..) = controller.read(&mut part) {
        bytes.extend_from_slice(&part[..count]);
    }
    bytes
}
