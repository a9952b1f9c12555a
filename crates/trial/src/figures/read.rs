//! The output of a program, the figures that were read in it, and why one could not be read.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;

use latput_stats::Histogram;
use latput_units::{IntoMap, Nanos};
use serde_json::Value;

use super::document::{JsonDocuments, decode};
use super::{Figures, Lookup, OwnFigure, PrintedUnit, Source};
use crate::metric::Metric;
use crate::observation::Observation;

/// The most bytes of a stream or file that are looked at: half from its start, half from its end.
const MOST_BYTES: usize = 4 << 20;
/// Lines of an output in an error, and characters of each.
const SHOWN_LINES: usize = 6;
const SHOWN_CHARS: usize = 160;

/// Output of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// Its standard output.
    pub stdout: Text,
    /// Its standard error.
    pub stderr: Text,
    /// The files of [`Figures::files`] that it wrote, by path.
    pub files: BTreeMap<String, Text>,
}

impl Output {
    /// Text of one of its outputs; `None` for a file that is not there.
    pub fn text(&self, source: &Source) -> Option<&Text> {
        match source {
            Source::Stdout => Some(&self.stdout),
            Source::Stderr => Some(&self.stderr),
            Source::File(path) => self.files.get(path),
        }
    }

    /// Its standard output, and its standard error behind it.
    pub fn both(&self) -> Text {
        Text {
            text: [self.stdout.as_str(), "\n", self.stderr.as_str()].concat(),
            left_out_bytes: self.stdout.left_out_bytes + self.stderr.left_out_bytes,
        }
    }
}

/// A stream or file as lines without colours, at most 4 MiB of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Text {
    text: String,
    left_out_bytes: u64,
}

impl Text {
    /// The whole of it.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        if bytes.len() <= MOST_BYTES {
            return Self { text: plain(bytes), left_out_bytes: 0 };
        }
        let (head, rest) = bytes.split_at(MOST_BYTES / 2);
        let (middle, tail) = rest.split_at(rest.len() - MOST_BYTES / 2);
        Self::of_parts(head, middle.len() as u64, tail)
    }

    /// Its start and its end, with the number of bytes between them that were not kept. The lines
    /// that the cut went through are left out.
    pub fn of_parts(head: &[u8], left_out_bytes: u64, tail: &[u8]) -> Self {
        if left_out_bytes == 0 {
            return Self::from_bytes(&[head, tail].concat());
        }
        let head = &head[..head.len().min(MOST_BYTES / 2)];
        let tail = &tail[tail.len().saturating_sub(MOST_BYTES / 2)..];
        let head_end = head.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let tail_start =
            tail.iter().position(|byte| *byte == b'\n').map_or(tail.len(), |at| at + 1);
        let text = plain(&head[..head_end]) + &plain(&tail[tail_start..]);
        Self { text, left_out_bytes }
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether bytes between its start and its end are missing.
    pub const fn is_cut(&self) -> bool {
        self.left_out_bytes > 0
    }

    /// The JSON documents in it ([`JsonDocuments::parse`]).
    pub fn json_documents(&self) -> JsonDocuments {
        JsonDocuments::parse(&self.text)
    }

    /// The first JSON document in it that can be read. Lines before and after it are passed over.
    ///
    /// The error says why there is none.
    pub fn json(&self) -> Result<Value, String> {
        let mut problem = "it has no JSON document".to_owned();
        for document in self.json_documents().documents {
            match document {
                Ok(value) => return Ok(value),
                Err(broken) => problem = format!("its JSON is invalid: {broken}"),
            }
        }
        Err(problem)
    }

    /// The fields of a column of comma-separated values, under the first line that has it; `None`
    /// without such a line. The rows end with the first line of another length.
    pub fn column(&self, name: &str) -> Option<Vec<String>> {
        let mut lines = self.text.lines();
        let (column, width) = lines.find_map(|line| {
            let header = csv_fields(line);
            let column = header.iter().position(|field| field == name)?;
            Some((column, header.len()))
        })?;
        let rows = lines.map(csv_fields).take_while(|fields| fields.len() == width);
        Some(rows.map(|mut fields| fields.swap_remove(column)).collect())
    }

    /// Its last lines, printable and short.
    fn tail(&self) -> String {
        let lines: Vec<&str> = self
            .text
            .lines()
            .rev()
            .filter(|line| !line.trim().is_empty())
            .take(SHOWN_LINES)
            .collect();
        let mut tail = String::new();
        for line in lines.into_iter().rev() {
            let printable =
                line.trim_end().chars().map(|it| if it.is_control() { ' ' } else { it });
            let shown: String = printable.take(SHOWN_CHARS).collect();
            let _infallible = write!(tail, "\n  | {shown}");
        }
        tail
    }
}

/// Text without colours, and with a line feed where a program returned to the start of its line.
fn plain(bytes: &[u8]) -> String {
    let text = decode(bytes).unwrap_or_else(|_| String::from_utf8_lossy(bytes));
    let text: Cow<'_, str> = if text.contains('\r') {
        text.replace("\r\n", "\n").replace('\r', "\n").into()
    } else {
        text
    };
    if !text.contains('\u{1b}') {
        return text.into_owned();
    }
    let mut plain = String::with_capacity(text.len());
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        if letter != '\u{1b}' {
            plain.push(letter);
        } else if letters.as_str().starts_with('[') {
            // A control sequence ends with a letter (ECMA-48, 5.4).
            letters.next();
            let _end = letters.find(|it| ('\u{40}'..='\u{7e}').contains(it));
        }
    }
    plain
}

/// The fields of a line of RFC 4180; a field does not span lines.
fn csv_fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut is_quoted = false;
    let mut letters = line.trim_end().chars().peekable();
    while let Some(letter) = letters.next() {
        match (letter, is_quoted) {
            ('"', true) if letters.next_if_eq(&'"').is_some() => push(&mut fields, '"'),
            ('"', _) => is_quoted = !is_quoted,
            (',', false) => fields.push(String::new()),
            (other, _) => push(&mut fields, other),
        }
    }
    fields.iter().map(|field| field.trim().to_owned()).collect()
}

fn push(fields: &mut [String], letter: char) {
    if let Some(field) = fields.last_mut() {
        field.push(letter);
    }
}

/// Figures that were read in a program's output.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProgramFigures {
    /// The figures, each finite and in its metric's unit.
    pub metrics: BTreeMap<Metric, f64>,
    /// The round-trip times, where the program gives their distribution.
    pub latency: Option<Histogram>,
    /// The transactions that it completed.
    pub transactions: Option<u64>,
    /// The transactions that failed, by its own count.
    pub errors: Option<u64>,
    /// How long it measured.
    pub window: Option<Nanos>,
}

impl ProgramFigures {
    /// Puts everything into an observation, but for the window and the errors.
    pub fn store(self, observation: &mut Observation) {
        for (metric, value) in self.metrics {
            match metric {
                Metric::Custom(custom) => observation.figures.insert(custom, value),
                built_in => observation.reported_metrics.insert(built_in, value),
            };
        }
        let traffic = &mut observation.traffic;
        traffic.latency = self.latency.or(traffic.latency.take());
        traffic.transactions = self.transactions.or(traffic.transactions);
    }
}

/// A figure that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{figure}: {problem}; {place}")]
pub struct FiguresError {
    /// The figure or parser: ``figure `rps` ``.
    pub figure: String,
    /// The figure that was looked up and its fault, with the remedy if there is one.
    pub problem: String,
    /// The last lines of the output.
    pub place: String,
}

impl FiguresError {
    /// A problem with a figure of this source.
    pub fn new(
        figure: impl Into<String>,
        problem: impl Into<String>,
        output: &Output,
        source: &Source,
    ) -> Self {
        let place = match output.text(source) {
            None => format!("the program did not write `{}`", source.name()),
            Some(text) => {
                let mut place = last_lines(source.name(), text);
                if *source == Source::Stdout && text.as_str().trim().is_empty() {
                    let _infallible = write!(place, "; {}", last_lines("stderr", &output.stderr));
                }
                place
            }
        };
        Self { figure: figure.into(), problem: problem.into(), place }
    }
}

fn last_lines(name: &str, text: &Text) -> String {
    let tail = text.tail();
    let cut = match text.left_out_bytes {
        0 => String::new(),
        bytes => format!(" ({bytes} bytes of it were not kept)"),
    };
    if tail.is_empty() {
        format!("{name} is empty{cut}")
    } else {
        format!("the last lines of {name}{cut}:{tail}")
    }
}

impl Figures {
    /// Reads the plan's own figures. Each must be there, with one value.
    pub fn read_own(&self, output: &Output) -> Result<BTreeMap<Metric, f64>, FiguresError> {
        let read = self.own.iter().map(|figure| Ok((figure.metric, figure.read(output)?)));
        Ok(read.collect::<Result<Vec<_>, _>>()?.into_map())
    }
}

impl OwnFigure {
    fn read(&self, output: &Output) -> Result<f64, FiguresError> {
        let name = format!("figure `{}`", self.metric);
        let error = |problem: String| FiguresError::new(&name, problem, output, &self.from);
        let Some(text) = output.text(&self.from) else {
            return Err(error("its file is not there".to_owned()));
        };
        self.lookup.read(self.printed, text).map_err(error)
    }
}

impl Lookup {
    /// The only value in a text, in the base unit of what is printed.
    ///
    /// # Errors
    ///
    /// It is not there, is no number of at least 0, or is there with several values.
    pub(super) fn read(&self, printed: PrintedUnit, text: &Text) -> Result<f64, String> {
        let (first, other) = match self {
            Self::Regex(pattern) => {
                let found = pattern.find_all(text.as_str()).map(|found| printed.read(found));
                self.first_and_other(found)
            }
            Self::Json(pointer) => {
                let value = self.read_json(pointer, printed, text)?;
                self.first_and_other(std::iter::once(value))
            }
            Self::Csv { column, row } => {
                let fields = text.column(column).ok_or_else(|| format!("{self} is not there"))?;
                let fields: Vec<&String> = match row {
                    None => fields.iter().collect(),
                    Some(row) => fields.get(*row as usize - 1).into_iter().collect(),
                };
                self.first_and_other(fields.into_iter().map(|field| printed.read(field)))
            }
        }?;
        match other {
            None => Ok(first),
            Some(other) => Err(format!(
                "{self} is there several times, with different values ({first} and {other}): make the place \
                 unique"
            )),
        }
    }

    fn read_json(
        &self,
        pointer: &str,
        printed: PrintedUnit,
        text: &Text,
    ) -> Result<Result<f64, String>, String> {
        let document = text.json()?;
        Ok(match document.pointer(pointer) {
            None => return Err(format!("{self} is not there")),
            Some(Value::Number(number)) => number
                .as_f64()
                .map_or_else(|| Err(format!("{number} is not a number")), |it| printed.value(it)),
            Some(Value::String(text)) => printed.read(text),
            Some(_) => Err("it is not a number".to_owned()),
        })
    }

    /// The first value, and another one if there is one.
    fn first_and_other(
        &self,
        mut found: impl Iterator<Item = Result<f64, String>>,
    ) -> Result<(f64, Option<f64>), String> {
        let value = |found: Result<f64, String>| found.map_err(|why| format!("{self}: {why}"));
        let first = found.next().ok_or_else(|| format!("{self} is not there"))?;
        let first = value(first)?;
        for other in found {
            let other = value(other)?;
            if other.to_bits() != first.to_bits() {
                return Ok((first, Some(other)));
            }
        }
        Ok((first, None))
    }
}
