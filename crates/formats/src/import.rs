//! Imports files of other programs: iperf3's JSON, netperf's output, flent's data files.
//!
//! Pure: bytes in, results out. A figure that a file lacks is absent in the results, never zero. An
//! invalid file is refused with the file and the place.

use std::collections::{BTreeMap, BTreeSet};

use latput_trial::figures::decode;
use latput_trial::results::{HostFacts, LabelledSetting, NAMES_NOTE, RECORDS_NOTE};
use latput_trial::{Results, Row};

use crate::parsed::{ParseProblem, ParsedTest, ParsedTests, TestRecord};
use crate::read_error::ReadError;
use crate::{flent, gzip, iperf3, netperf};

/// Largest file, and largest unpacked content.
pub const LARGEST: usize = 64 << 20;
/// Label of the setting of files that name none.
const UNNAMED: &str = "as it was";
/// Most objects, and most commas, of a JSON file. In memory an object takes some 700 bytes and a
/// number 32.
const MOST_OBJECTS: usize = 500_000;
const MOST_COMMAS: usize = 8_000_000;

/// The program whose files are imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImportFormat {
    /// `iperf3 --json` and `--json-stream`, of either end.
    Iperf3,
    /// netperf's keyval (`-k`), CSV (`-o`) and, where it is unambiguous, classic output.
    Netperf,
    /// `.flent` and `.flent.gz`.
    Flent,
}

impl ImportFormat {
    /// The program's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Iperf3 => "iperf3",
            Self::Netperf => "netperf",
            Self::Flent => "flent",
        }
    }

    /// The outputs of the program that are read.
    const fn readable_outputs(self) -> &'static str {
        match self {
            Self::Iperf3 => "`iperf3 --json` and `--json-stream`",
            Self::Netperf => "`netperf -k`, `-o` and the classic output with its title",
            Self::Flent => "its data files, `.flent` and `.flent.gz`",
        }
    }
}

/// A file that cannot be imported.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}: {place}{problem}")]
pub struct ImportError {
    /// The file as it was named.
    pub file: String,
    /// The place in the file, followed by a colon and a space; empty for the whole file.
    pub place: String,
    /// The problem and its remedy.
    pub problem: String,
}

/// The tests of some files.
#[derive(Clone, Debug)]
pub struct ImportOutcome {
    /// One run with the tests that could be read.
    pub results: Results,
    /// The record of each row of a file that tells a name of its tests, or not even their time; see [`known_records`].
    pub records: Vec<Option<TestRecord>>,
    /// The files and tests that could not be read, each with its reason.
    pub left_out: Vec<ImportError>,
}

impl ImportOutcome {
    /// Adds files and tests that are not in the results, and notes them there.
    pub fn leave_out(&mut self, errors: Vec<ImportError>) {
        self.results.notes.extend(errors.iter().map(|error| format!("not imported: {error}")));
        self.left_out.extend(errors);
    }
}

/// A test with its place.
#[derive(Debug)]
struct FoundTest {
    file: String,
    number: usize,
    test: ParsedTest,
}

impl FoundTest {
    fn build_error(&self, error: ReadError) -> ImportError {
        let place = format!("test {}", self.number);
        build_error(&self.file, &ParseProblem::of_test(place, error))
    }
}

fn build_error(file: &str, problem: &ParseProblem) -> ImportError {
    ImportError {
        file: file.to_owned(),
        place: problem.place.clone(),
        problem: problem.error.to_string(),
    }
}

/// Imports named files as one run: one workload for each kind of test, one setting for each that a file names, one
/// repetition for each test of both. A test that stands there several times, in one file or in several, counts once.
///
/// # Errors
///
/// No test of any file can be read: the error is of the first one.
pub fn import_files(
    format: ImportFormat,
    files: &[(String, Vec<u8>)],
) -> Result<ImportOutcome, ImportError> {
    let mut results = Results {
        name: format!("imported from {}", format.name()),
        goal: None,
        confidence: 0.99,
        half_width: 0.025,
        testbed: Results::testbed_of_program(format.name()),
        latput_version: env!("CARGO_PKG_VERSION").to_owned(),
        seed: 0,
        hosts: Vec::new(),
        settings: Vec::new(),
        workloads: Vec::new(),
        rows: Vec::new(),
        planned_trials: 0,
        confirmed_from: None,
        source: None,
        today: Vec::new(),
        findings: Vec::new(),
        beside: false,
        notes: Vec::new(),
    };
    let mut left_out = Vec::new();
    let mut found: Vec<FoundTest> = Vec::new();
    for (file, bytes) in files {
        let tests = match parse_tests(format, bytes) {
            Ok(tests) => tests,
            Err(problem) => {
                left_out.push(build_error(file, &problem));
                continue;
            }
        };
        for note in tests.notes {
            add_note(&mut results, format!("{file}: {note}"));
        }
        for (number, test) in (1..).zip(tests.tests) {
            match test {
                Ok(test) => found.push(FoundTest { file: file.clone(), number, test }),
                Err(problem) => left_out.push(build_error(file, &problem)),
            }
        }
    }
    let mut known: Vec<ParsedTest> = Vec::new();
    let mut records = Vec::new();
    for found in drop_duplicate_tests(found, &mut results, &mut left_out) {
        for note in compare_with_known(&found.test, &known) {
            add_note(&mut results, note);
        }
        known.push(found.test.clone());
        let record = found.test.find_record();
        match add_test(&mut results, found.test.clone()) {
            Ok(()) => records.push(record),
            Err(text) => left_out.push(found.build_error(text.into())),
        }
    }
    if results.rows.is_empty() {
        return Err(first_error(left_out, &results.notes));
    }
    results.planned_trials = results.rows.len() as u64;
    let mut outcome = ImportOutcome { results, records, left_out: Vec::new() };
    outcome.leave_out(left_out);
    outcome.results.notes.extend(format_record_notes(&outcome.records));
    Ok(outcome)
}

/// Keeps one document of each test: of those with its name the one that knows most. Where two of one end contradict each
/// other, the test is left out.
fn drop_duplicate_tests(
    found: Vec<FoundTest>,
    results: &mut Results,
    left_out: &mut Vec<ImportError>,
) -> Vec<FoundTest> {
    let mut of_one: Vec<Vec<FoundTest>> = Vec::new();
    for found in found {
        let test = &found.test;
        let is_same = |all: &&mut Vec<FoundTest>| {
            all.iter().any(|known| match (&known.test.identity, &test.identity) {
                (Some(one), Some(other)) => one == other,
                _ => known.test.is_same(test),
            })
        };
        match of_one.iter_mut().find(is_same) {
            Some(all) => all.push(found),
            None => of_one.push(vec![found]),
        }
    }
    let mut kept = Vec::new();
    for mut all in of_one {
        if let Some(error) = find_contradiction(&all) {
            left_out.push(error);
            continue;
        }
        // The first of those that know most.
        let Some(best) = (0..all.len()).rev().max_by_key(|idx| all[*idx].test.count_known()) else {
            continue;
        };
        let best = all.remove(best);
        for other in all {
            let FoundTest { file, number, .. } = other;
            add_note(results, format!("{file}: test {number} is there twice; it counts once"));
        }
        kept.push(best);
    }
    kept
}

/// The error of a document that says something else of a test than another one of the same end.
fn find_contradiction(all: &[FoundTest]) -> Option<ImportError> {
    all.iter().enumerate().find_map(|(idx, found)| {
        let test = &found.test;
        let of_same_end = all[..idx].iter().filter(|other| other.test.writer == test.writer);
        let other = of_same_end.into_iter().find(|other| other.test.contradicts(test))?;
        let FoundTest { file, number, .. } = other;
        Some(found.build_error(ReadError::Contradiction(format!(
            "{file}: test {number} is the same test with other figures, and which are right cannot be told"
        ))))
    })
}

/// The error of the first file that has one, with the notes on that file.
fn first_error(mut errors: Vec<ImportError>, notes: &[String]) -> ImportError {
    let mut first = errors.swap_remove(0);
    let start = format!("{}: ", first.file);
    for note in notes.iter().filter_map(|note| note.strip_prefix(&start)) {
        first.problem += "; ";
        first.problem += note;
    }
    first
}

/// A note for each fact in which a test differs from others of its workload.
fn compare_with_known(test: &ParsedTest, known: &[ParsedTest]) -> BTreeSet<String> {
    known
        .iter()
        .flat_map(|earlier| test.differing_facts(earlier))
        .map(format_difference_note)
        .collect()
}

/// Names an option or a host that tests of one workload do not share.
fn format_difference_note(name: &str) -> String {
    format!(
        "tests of one workload differ in `{name}`; import them into files of their own to compare them"
    )
}

/// The notes by which a later import knows the records that are there already.
fn format_record_notes(records: &[Option<TestRecord>]) -> Vec<String> {
    let [mut names, mut contents] = [Vec::new(), Vec::new()];
    for record in records.iter().flatten() {
        match record {
            TestRecord::Name(sum) => names.push(format!("{sum:08x}")),
            TestRecord::Content(sum) => contents.push(format!("{sum:08x}")),
        }
    }
    let all = [(NAMES_NOTE, names), (RECORDS_NOTE, contents)].into_iter();
    let known = all.filter(|(_, sums)| !sums.is_empty());
    known.map(|(start, sums)| format!("{start}{}", sums.join(" "))).collect()
}

/// The records that the notes of an earlier import name.
pub fn known_records(notes: &[String]) -> BTreeSet<TestRecord> {
    let parse = |note: &String| -> Vec<TestRecord> {
        let name: fn(u32) -> TestRecord = TestRecord::Name;
        let content: fn(u32) -> TestRecord = TestRecord::Content;
        let all = [(NAMES_NOTE, name), (RECORDS_NOTE, content)];
        let list = all.iter().find_map(|(start, of)| Some((note.strip_prefix(start)?, of)));
        let Some((list, of)) = list else { return Vec::new() };
        list.split(' ').filter_map(|sum| u32::from_str_radix(sum, 16).ok()).map(of).collect()
    };
    notes.iter().flat_map(parse).collect()
}

fn add_note(results: &mut Results, note: String) {
    if !results.notes.contains(&note) {
        results.notes.push(note);
    }
}

fn parse_tests(format: ImportFormat, bytes: &[u8]) -> Result<ParsedTests, ParseProblem> {
    if bytes.len() > LARGEST {
        return Err(ParseProblem::new(format!("it has more than {} MiB", LARGEST >> 20)));
    }
    let unpacked;
    let bytes = if gzip::is_gzip(bytes) {
        unpacked = gzip::unpack(bytes, LARGEST)
            .map_err(|error| ParseProblem::new(format!("it cannot be unpacked: {error}")))?;
        unpacked.as_slice()
    } else {
        bytes
    };
    check_encoding(bytes)?;
    let text = decode(bytes).map_err(ParseProblem::new)?;
    if text.trim().is_empty() {
        return Err(ParseProblem::new("it is empty"));
    }
    if format != ImportFormat::Netperf {
        check_json_size(text.as_bytes())?;
    }
    let tests = match format {
        ImportFormat::Iperf3 => iperf3::parse_tests(&text)?,
        ImportFormat::Netperf => netperf::parse_tests(&text)?,
        ImportFormat::Flent => flent::parse_tests(&text)?,
    };
    if tests.tests.is_empty() {
        return Err(ParseProblem::new(format!(
            "no test of {} is in it: latput reads {}",
            format.name(),
            format.readable_outputs()
        )));
    }
    Ok(tests)
}

/// Refuses the encodings of Unicode that [`decode`] does not read. In all of them the letters of a program's output have
/// bytes of 0, which no other text has.
fn check_encoding(bytes: &[u8]) -> Result<(), ParseProblem> {
    let encoding = match bytes {
        [0xff, 0xfe, 0, 0, ..] | [0, 0, 0xfe, 0xff, ..] | [0, 0, 0, _, ..] | [_, 0, 0, 0, ..] => {
            "UTF-32"
        }
        [0, _, ..] | [_, 0, ..] => "UTF-16 without a byte order mark",
        _ => return Ok(()),
    };
    Err(ParseProblem::new(format!("it is {encoding}: save it as UTF-8")))
}

/// Refuses JSON that would take far more memory than the file has bytes. `serde_json` limits the
/// depth.
fn check_json_size(bytes: &[u8]) -> Result<(), ParseProblem> {
    for (what, byte, most) in [("objects", b'{', MOST_OBJECTS), ("values", b',', MOST_COMMAS)] {
        if bytes.split(|it| *it == byte).count() > most + 1 {
            return Err(ParseProblem::new(format!(
                "it has more than {most} JSON {what}: cut it in parts"
            )));
        }
    }
    Ok(())
}

fn add_test(results: &mut Results, test: ParsedTest) -> Result<(), String> {
    let known = results.workloads.iter().position(|load| load.name == test.workload.name);
    let workload = match known {
        Some(idx) if results.workloads[idx] == test.workload => idx,
        Some(_) => {
            let name = &test.workload.name;
            return Err(format!("its test has the same name as another, `{name}`, but differs"));
        }
        None => {
            results.workloads.push(test.workload);
            results.workloads.len() - 1
        }
    };
    let label = test.setting.unwrap_or_else(|| UNNAMED.to_owned());
    let known = results.settings.iter().position(|setting| setting.label == label);
    let setting = known.unwrap_or_else(|| {
        results.settings.push(LabelledSetting { label, by_role: BTreeMap::new() });
        results.settings.len() - 1
    });
    let is_earlier = |row: &&Row| (row.setting, row.workload) == (setting, workload);
    let earlier = results.rows.iter().filter(is_earlier).count();
    results.rows.push(Row {
        block: u32::try_from(earlier).map_err(|_| "there are too many tests".to_owned())?,
        setting,
        workload,
        started_unix_ms: test.started_unix_ms.unwrap_or(0),
        observation: test.observation,
    });
    for note in test.notes {
        add_note(results, note);
    }
    if results.hosts.is_empty() && !test.facts.is_empty() {
        let host =
            HostFacts { host: "generator".to_owned(), facts: test.facts, ..Default::default() };
        let role = latput_trial::observation::Role::Generator;
        results.hosts.push(HostFacts { role, ..host });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unread_encoding_is_named() {
        let units =
            |text: &str| -> Vec<u8> { text.encode_utf16().flat_map(u16::to_le_bytes).collect() };
        let wide = |text: &str| -> Vec<u8> {
            text.chars().flat_map(|c| (c as u32).to_be_bytes()).collect()
        };
        let json = "{\"start\":{}}";
        let marked = ["\u{feff}", json].concat();
        for (bytes, said) in [
            (units(json), "UTF-16 without a byte order mark: save it as UTF-8"),
            (wide(json), "it is UTF-32"),
            (wide(&marked), "it is UTF-32"),
        ] {
            let error =
                import_files(ImportFormat::Iperf3, &[("file".to_owned(), bytes)]).unwrap_err();
            assert!(error.problem.contains(said), "{error}");
        }
        check_encoding(&units(&marked)).unwrap();
    }

    #[test]
    fn records_are_read_back_from_their_note() {
        let records = [TestRecord::Content(7), TestRecord::Name(7), TestRecord::Content(u32::MAX)];
        let notes = format_record_notes(&records.map(Some));
        assert_eq!((notes.len(), known_records(&notes)), (2, records.into()));
        assert!(format_record_notes(&[None]).is_empty());
    }

    #[test]
    fn tests_with_other_options_are_told() {
        let test = |gso: u8, cookie: &str| {
            let text = r#"{"start":{"connecting_to":{},"cookie":"COOKIE","version":"iperf 3.22",
                "test_start":{"protocol":"UDP","num_streams":1,"blksize":1470,"reverse":0,"gso":GSO}},
                "end":{"streams":[{"udp":{}}],"sum_received":{"seconds":1,"bytes":125000,"packets":100,
                "lost_packets":1,"lost_percent":1}}}"#;
            text.replace("COOKIE", cookie).replace("GSO", &gso.to_string()).into_bytes()
        };
        let notes = |gso: u8| {
            let files = [test(0, "one"), test(gso, "two"), test(gso, "three")];
            let files = files.map(|bytes| ("udp.json".to_owned(), bytes));
            import_files(ImportFormat::Iperf3, &files).unwrap().results.notes
        };
        assert_eq!(notes(1), [format_difference_note("--gsro")]);
        assert_eq!(notes(0), [""; 0]);
    }

    #[test]
    fn decompression_bomb_is_refused() {
        let bomb = |unit: &str, count: usize| format!("[{}0]", unit.repeat(count)).into_bytes();
        let packed = |bytes: &[u8]| gzip::pack(std::str::from_utf8(bytes).unwrap());
        for (bytes, said) in [
            (bomb(r#"{"":0},"#, 500_001), "more than 500000 JSON objects"),
            (bomb("0,", 8_000_001), "more than 8000000 JSON values"),
            (vec![b' '; LARGEST + 1], "64 MiB"),
            ("{\"a\":".repeat(1000).into_bytes(), "recursion limit"),
        ] {
            for bytes in [packed(&bytes), bytes] {
                for format in [ImportFormat::Flent, ImportFormat::Iperf3] {
                    let text = import_files(format, &[("bomb".to_owned(), bytes.clone())]);
                    let text = text.unwrap_err().to_string();
                    assert!(text.contains("bomb") && text.contains(said), "{text}");
                }
            }
        }
    }
}
