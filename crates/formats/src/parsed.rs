//! The result of a reader: tests, or problems with their places.

use std::collections::BTreeMap;
use std::fmt;

use latput_trial::figures::{JsonDocuments, MOST_DOCUMENTS};
use latput_trial::workload::WorkloadKind;
use latput_trial::{Metric, Observation, Traffic, Workload, workload};
use latput_units::{Bytes, IntoMap};

use crate::read_error::ReadError;
use crate::rules::{self, StatedFigures, TestFigures};

/// Share by which one figure may differ in two files: programs that save JSON again round its last digits.
const SAME_FIGURE: f64 = 1e-6;

/// The tests of a file, in its order: each is read, or has a problem of its own.
#[derive(Debug, Default)]
pub(crate) struct ParsedTests {
    pub(crate) tests: Vec<Result<ParsedTest, ParseProblem>>,
    /// Sentences on the whole file.
    pub(crate) notes: Vec<String>,
}

impl ParsedTests {
    /// Adds a test, or the problem with it; the place is `test N`.
    pub(crate) fn push(&mut self, test: Result<ParsedTest, ReadError>) {
        let place = format!("test {}", self.tests.len() + 1);
        self.tests.push(test.map_err(|error| ParseProblem::of_test(place, error)));
    }

    /// Drops each test that stands there once more, as programs print it twice. Returns how many were dropped.
    pub(crate) fn drop_repeated(&mut self) -> usize {
        let before = self.tests.len();
        let mut kept: Vec<Result<ParsedTest, ParseProblem>> = Vec::with_capacity(before);
        for test in std::mem::take(&mut self.tests) {
            let is_known = |known: &Result<ParsedTest, ParseProblem>| match (known, &test) {
                (Ok(known), Ok(test)) => known.is_same(test),
                _ => false,
            };
            if !kept.iter().any(is_known) {
                kept.push(test);
            }
        }
        self.tests = kept;
        before - self.tests.len()
    }
}

/// The end whose document a test is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WritingEnd {
    Server,
    Client,
}

/// One test of a file.
#[derive(Clone, Debug)]
pub(crate) struct ParsedTest {
    pub(crate) workload: Workload,
    /// Label of the setting, where the file names one.
    pub(crate) setting: Option<String>,
    pub(crate) started_unix_ms: Option<u64>,
    /// The program's own name of the test, such as iperf3's cookie.
    pub(crate) identity: Option<String>,
    /// The end that wrote of it, where both may.
    pub(crate) writer: Option<WritingEnd>,
    /// Checksum of everything that the file says of it, with its line, where neither a name nor a time tells it.
    pub(crate) record: Option<u32>,
    pub(crate) observation: Observation,
    /// Figures that are only compared.
    pub(crate) beside: StatedFigures,
    /// Facts of the hosts, and options that no workload has a field for, as the file states them.
    pub(crate) facts: Vec<(String, String)>,
    pub(crate) notes: Vec<String>,
}

impl ParsedTest {
    /// Whether both are one test that says the same: with the program's own name of it, or by everything that is said of it.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let is_same_case = self.workload == other.workload && self.setting == other.setting;
        if !is_same_case || self.started_unix_ms != other.started_unix_ms {
            return false;
        }
        let names = self.identity.as_ref().zip(other.identity.as_ref());
        if names.is_some_and(|(one, other)| one != other) {
            return false;
        }
        let is_same_record = self.record.is_some() && self.record == other.record;
        let is_identified = names.is_some() || self.started_unix_ms.is_some() || is_same_record;
        rules::is_same_content(&self.observation, &other.observation, is_identified)
    }

    /// Whether another document of the same test has other figures. A figure that one of them lacks does not count.
    pub(crate) fn contradicts(&self, other: &Self) -> bool {
        let figures = other.known_metrics();
        let differs = |(metric, value): (&Metric, &f64)| {
            let of_other = figures.get(metric);
            of_other.is_some_and(|it| (value - it).abs() > SAME_FIGURE * value.abs().max(it.abs()))
        };
        self.workload != other.workload || self.known_metrics().iter().any(differs)
    }

    /// The amount that is known of it, with the figures of programs: of one test the client knows more than the server.
    pub(crate) fn count_known(&self) -> (usize, Option<WritingEnd>) {
        (self.known_metrics().len() + self.observation.programs.len(), self.writer)
    }

    fn known_metrics(&self) -> BTreeMap<Metric, f64> {
        let traffic = &self.workload.traffic;
        let known = |metric: &Metric| Some((*metric, metric.value(traffic, &self.observation)?));
        Metric::ALL.iter().filter_map(known).into_map()
    }

    /// The checksum by which a later import knows it: of the program's own name of it, or of everything that is said.
    pub(crate) fn find_record(&self) -> Option<TestRecord> {
        let name = self.identity.as_ref().map(|name| {
            let mut sum = flate2::Crc::new();
            sum.update(name.as_bytes());
            TestRecord::Name(sum.sum())
        });
        name.or(self.record.map(TestRecord::Content))
    }

    /// Names of the facts that are not those of another test of the same case. A fact that one of them lacks does not count.
    pub(crate) fn differing_facts<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = &'a str> {
        let is_same_case = self.workload == other.workload && self.setting == other.setting;
        let differs = |(name, value): &&(String, String)| {
            other.facts.iter().any(|(of_other, it)| of_other == name && it != value)
        };
        let facts = if is_same_case { self.facts.as_slice() } else { &[] };
        facts.iter().filter(differs).map(|(name, _)| name.as_str())
    }

    /// Applies the rules of all programs' figures, and marks percentiles of too few observations.
    pub(crate) fn into_checked(mut self) -> Result<Self, ReadError> {
        let metrics = self.known_metrics();
        if metrics.is_empty() && self.observation.programs.is_empty() {
            let why: Vec<&str> = std::iter::once("it has no figures")
                .chain(self.notes.iter().map(String::as_str))
                .collect();
            return Err(ReadError::Failed(why.join("; ")));
        }
        let flow = &self.observation.traffic;
        let claims = TestFigures {
            beside: Some(&self.beside),
            transactions: flow.transactions,
            latency: flow.latency.as_ref(),
            ..TestFigures::new(&metrics)
        };
        claims.check_all()?;
        let few = rules::check_observation_count(&metrics, &self.observation);
        self.observation.checks.extend(few);
        Ok(self)
    }
}

/// A checksum by which an imported test is known again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TestRecord {
    /// Checksum of the program's own name of the test, such as iperf3's cookie: no other test has it.
    Name(u32),
    /// Checksum of everything that the file says of it.
    Content(u32),
}

/// The JSON documents of a text, all of them. Fails where the text has more than are looked at.
pub(crate) fn parse_documents(text: &str) -> Result<JsonDocuments, ReadError> {
    let found = JsonDocuments::parse(text);
    if found.documents.len() < MOST_DOCUMENTS {
        return Ok(found);
    }
    let problem = format!("it has {MOST_DOCUMENTS} JSON documents or more: cut it in parts");
    Err(ReadError::Failed(problem))
}

/// The problem of a test whose last figure may be cut.
pub(crate) const NO_LINE_END: &str = "the last line has no end: the file may be cut";

/// Whether a text of lines ends within a word: programs end their lines, so the last figure may be cut.
pub(crate) fn is_last_line_open(text: &str) -> bool {
    text.chars().next_back().is_some_and(|last| !last.is_whitespace())
}

/// Compares the bytes, the time and the rate that a test's end states.
pub(crate) fn check_rate(
    bytes: Option<f64>,
    seconds: Option<f64>,
    bits_per_s: Option<f64>,
) -> Result<(), ReadError> {
    let known = bytes.zip(seconds).zip(bits_per_s);
    known.map_or(Ok(()), |((bytes, seconds), rate)| {
        rules::check_rate_against_bytes(bytes, seconds, rate)
    })
}

/// A problem with its place in the file.
#[derive(Debug)]
pub(crate) struct ParseProblem {
    pub(crate) place: String,
    pub(crate) error: ReadError,
}

impl ParseProblem {
    /// A problem of the whole file.
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self { place: String::new(), error: ReadError::Form(text.into()) }
    }

    /// A problem at a place such as `line 3` or `test 2`.
    pub(crate) fn at_place(place: impl Into<String>, text: impl Into<String>) -> Self {
        Self::of_test(place, ReadError::Form(text.into()))
    }

    /// A problem with one test.
    pub(crate) fn of_test(place: impl Into<String>, error: ReadError) -> Self {
        Self { place: place.into() + ": ", error }
    }

    /// The problem without its place, for a file with one test.
    pub(crate) fn into_error(self) -> ReadError {
        self.error
    }
}

impl fmt::Display for ParseProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.place, self.error)
    }
}

/// The traffic with sizes that latput itself could send: over UDP another program's requests may be smaller.
pub(crate) fn with_sendable_sizes(traffic: &Traffic) -> Traffic {
    let mut traffic = *traffic;
    let fields = WorkloadKind::find(traffic.kind()).map_or(&[][..], |kind| kind.fields);
    if let Traffic::UdpRr { request_bytes, response_bytes, .. } = &mut traffic {
        for (size, name) in [(request_bytes, "request_bytes"), (response_bytes, "response_bytes")] {
            let least = fields.iter().find(|field| field.name == name).map_or(0, |it| it.least);
            *size = (*size).max(Bytes::new(least));
        }
    }
    traffic
}

/// A workload from field names and values as in plans.
pub(crate) fn workload_from_fields(
    kind: &str,
    fields: &[(&str, String)],
) -> Result<Workload, String> {
    let mut all: BTreeMap<String, String> =
        fields.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).into_map();
    all.insert("kind".to_owned(), kind.to_owned());
    workload::from_fields(&all).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_udp_request_is_raised_for_check() {
        let mut traffic = workload_from_fields("udp_rr", &[]).unwrap().traffic;
        if let Traffic::UdpRr { request_bytes, .. } = &mut traffic {
            *request_bytes = Bytes::new(1);
        }
        assert!(traffic.check().is_err());
        with_sendable_sizes(&traffic).check().unwrap();
        let stream = workload_from_fields("tcp_stream", &[]).unwrap().traffic;
        assert_eq!(with_sendable_sizes(&stream), stream);
    }
}
