//! netperf's three output formats. Each is read into one record of selectors and values, with the
//! names of its keyval output.

use std::collections::BTreeMap;

use latput_trial::figures::{Commas, NumberError, read_number};
use latput_units::IntoMap;

use super::find_unit;
use crate::parsed::{NO_LINE_END, ParseProblem, is_last_line_open};

/// The output of one test.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct NetperfRecord {
    /// The title line, such as `MIGRATED TCP STREAM TEST from ...`; empty with `-P 0`.
    pub(super) title: String,
    /// Values by selector: `THROUGHPUT`, `P99_LATENCY`.
    pub(super) values: BTreeMap<String, String>,
    /// The first line of the test in the file.
    pub(super) line: usize,
    /// Whether netperf warned that its confidence was not reached.
    pub(super) is_uncertain: bool,
    /// The reason why the test has no figures that count.
    pub(super) problem: Option<String>,
}

impl NetperfRecord {
    /// Whether it has the means of several iterations, beside the counts of the last one (`-i`).
    pub(super) fn is_mean(&self) -> bool {
        let iterations = self.values.get("CONFIDENCE_ITERATION");
        let iterations = iterations.and_then(|count| count.parse::<u64>().ok());
        iterations.is_some_and(|count| count > 1) || self.title.contains("% conf.")
    }

    /// Whether it is classic output whose second row did not come.
    fn is_half(&self) -> bool {
        self.problem.as_deref() == Some(SECOND_ROW)
    }

    /// A checksum of the title, the line and every value.
    pub(super) fn checksum(&self) -> u32 {
        let mut sum = flate2::Crc::new();
        let mut add = |text: &str| {
            sum.update(text.as_bytes());
            sum.update(b"\n");
        };
        add(&self.title);
        add(&self.line.to_string());
        for (key, value) in &self.values {
            add(key);
            add(value);
        }
        sum.sum()
    }
}

/// The problem of classic output until its second row, that of the other end, comes.
const SECOND_ROW: &str = "the second row of its figures is missing: the test was cut short";
/// Beginnings of the headers of the blocks with more details of a test (`-v 2`). Each has one row.
const DETAILS: [&str; 2] = ["Alignment", "Maximum"];
/// Words in the headers of request/response tests whose rate is no count of transactions (`-f`).
const OTHER_RATES: [&str; 3] = ["Throughput", "Tput", "Latency"];

/// Selectors with their names in the CSV header (`netperf_output_name` in `src/nettest_omni.c`).
const CSV_NAMES: [(&str, &str); 34] = [
    ("PROTOCOL", "Protocol"),
    ("DIRECTION", "Direction"),
    ("ELAPSED_TIME", "Elapsed Time (sec)"),
    ("THROUGHPUT", "Throughput"),
    ("THROUGHPUT_UNITS", "Throughput Units"),
    ("LOCAL_SEND_SIZE", "Local Send Size"),
    ("REMOTE_SEND_SIZE", "Remote Send Size"),
    ("REQUEST_SIZE", "Request Size Bytes"),
    ("RESPONSE_SIZE", "Response Size Bytes"),
    ("LOCAL_CPU_UTIL", "Local CPU Util %"),
    ("LOCAL_CPU_METHOD", "Local CPU Util Method"),
    ("LOCAL_SD", "Local Service Demand"),
    ("REMOTE_CPU_UTIL", "Remote CPU Util %"),
    ("REMOTE_CPU_METHOD", "Remote CPU Util Method"),
    ("REMOTE_SD", "Remote Service Demand"),
    ("SD_UNITS", "Service Demand Units"),
    ("TRANSACTION_RATE", "Transaction Rate Tran/s"),
    ("BURST_SIZE", "Initial Burst Requests"),
    ("LOCAL_TRANSPORT_RETRANS", "Local Transport Retransmissions"),
    ("REMOTE_TRANSPORT_RETRANS", "Remote Transport Retransmissions"),
    ("REMOTE_RECV_THROUGHPUT", "Remote Recv Throughput"),
    ("LOCAL_SEND_THROUGHPUT", "Local Send Throughput"),
    ("LOCAL_BYTES_SENT", "Local Bytes Sent"),
    ("LOCAL_BYTES_RECVD", "Local Bytes Received"),
    ("REMOTE_BYTES_SENT", "Remote Bytes Sent"),
    ("REMOTE_BYTES_RECVD", "Remote Bytes Received"),
    ("TRANSPORT_MSS", "Transport MSS bytes"),
    ("CONFIDENCE_ITERATION", "Confidence Iterations Run"),
    ("LOCAL_NODELAY", "Local NODELAY"),
    ("MIN_LATENCY", "Minimum Latency Microseconds"),
    ("MAX_LATENCY", "Maximum Latency Microseconds"),
    ("P50_LATENCY", "50th Percentile Latency Microseconds"),
    ("P90_LATENCY", "90th Percentile Latency Microseconds"),
    ("P99_LATENCY", "99th Percentile Latency Microseconds"),
];
const MEAN_LATENCY: (&str, &str) = ("MEAN_LATENCY", "Mean Latency Microseconds");

/// Classic columns, without and with CPU figures.
const BULK: [&str; 9] = [
    "RSR_SIZE",
    "LSS_SIZE",
    "SEND_SIZE",
    "ELAPSED_TIME",
    "THROUGHPUT",
    "LOCAL_CPU_UTIL",
    "REMOTE_CPU_UTIL",
    "LOCAL_SD",
    "REMOTE_SD",
];
const REQUEST_RESPONSE: [&str; 10] = [
    "LSS_SIZE",
    "LSR_SIZE",
    "REQUEST_SIZE",
    "RESPONSE_SIZE",
    "ELAPSED_TIME",
    "TRANSACTION_RATE",
    "LOCAL_CPU_UTIL",
    "REMOTE_CPU_UTIL",
    "LOCAL_SD",
    "REMOTE_SD",
];
/// The sender's row of datagrams, and the receiver's.
const DATAGRAMS: [&str; 6] =
    ["LSS_SIZE", "SEND_SIZE", "ELAPSED_TIME", "LOCAL_OKAY", "ERRORS", "LOCAL_SEND_THROUGHPUT"];
const DATAGRAMS_ARRIVED: [&str; 4] = ["RSR_SIZE", "", "REMOTE_OKAY", "REMOTE_RECV_THROUGHPUT"];

/// The figures of which each test has one.
const FIGURES: [&str; 3] = ["THROUGHPUT", "TRANSACTION_RATE", "REMOTE_RECV_THROUGHPUT"];

/// Part of a line in a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LinePart {
    /// A selector with its value.
    Keyval,
    /// A row of figures.
    Row,
    /// A title, a header, or anything else.
    Other,
}

/// The tests of a file, and a sentence on the file where its last line may be cut. Fails where several tests are mixed.
pub(super) fn read(text: &str) -> Result<(Vec<NetperfRecord>, Option<&'static str>), ParseProblem> {
    let mut reader = RecordParser::default();
    let mut last = LinePart::Other;
    for (number, line) in (1..).zip(text.lines()) {
        last = reader
            .parse_line(number, line)
            .map_err(|text| ParseProblem::at_place(format!("line {number}"), text))?;
    }
    let note = if is_last_line_open(text) { reader.refuse_cut(text, last) } else { None };
    reader.end_title();
    Ok((reader.records, note))
}

/// The state of the reader in a file.
#[derive(Debug, Default)]
struct RecordParser {
    records: Vec<NetperfRecord>,
    /// The title of the following tests, and its line.
    title: String,
    title_line: usize,
    /// The number of records before the title.
    before_title: usize,
    /// Lines between a title and its figures: the classic header.
    header: String,
    /// Whether the line before is in the header of a block of details, whose row is to come.
    in_details: bool,
    /// The columns of the following CSV lines.
    columns: Option<Vec<Option<&'static str>>>,
    /// The incomplete keyval test.
    record: NetperfRecord,
    is_uncertain: bool,
}

impl RecordParser {
    fn parse_line(&mut self, number: usize, line: &str) -> Result<LinePart, String> {
        let line = line.trim_end();
        let in_details = std::mem::take(&mut self.in_details);
        if line.starts_with("!!!") {
            self.is_uncertain = true;
        } else if line.contains(" TEST from ") {
            self.end_title();
            line.clone_into(&mut self.title);
            self.title_line = number;
            self.before_title = self.records.len();
            self.header.clear();
            self.columns = None;
        } else if let Some((key, value)) = split_keyval(line) {
            self.add_keyval(number, key, value)?;
            return Ok(LinePart::Keyval);
        } else if let Some(columns) = csv_header(line) {
            self.columns = Some(columns);
        } else if let Some(columns) = &self.columns
            && !line.is_empty()
        {
            let row = csv_record(columns, line);
            let row = row.map(|values| {
                self.push_row(number, values);
                LinePart::Row
            });
            return Ok(self.name_problem(number, row));
        } else if let Some(numbers) = split_numbers(line) {
            if !in_details {
                let row = self.parse_classic_row(number, &numbers);
                return Ok(self.name_problem(number, row));
            }
        } else if DETAILS.iter().any(|start| line.starts_with(start)) {
            self.in_details = true;
        } else if in_details {
            self.in_details = !line.is_empty();
        } else {
            self.header += line;
            self.header += "\n";
        }
        Ok(LinePart::Other)
    }

    /// Refuses the test to which a last line without an end belongs: its figure may be cut. Returns the note on a file whose
    /// last line has no figure.
    fn refuse_cut(&mut self, text: &str, last: LinePart) -> Option<&'static str> {
        let is_key = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
        let begins_key = text.lines().last().is_some_and(|line| line.chars().all(is_key));
        let is_open = !self.record.values.is_empty();
        let record = match last {
            LinePart::Row => self.records.last_mut(),
            LinePart::Keyval => Some(&mut self.record),
            LinePart::Other => Some(&mut self.record).filter(|_| is_open && begins_key),
        };
        let Some(record) = record else { return Some(NO_LINE_END) };
        record.problem = Some(NO_LINE_END.to_owned());
        None
    }

    fn add_keyval(&mut self, number: usize, key: &str, value: &str) -> Result<(), String> {
        let values = &self.record.values;
        if values.contains_key(key) {
            if !FIGURES.iter().any(|figure| values.contains_key(*figure)) {
                return Err(format!(
                    "`{key}` appears again before the first test ended: several netperfs wrote here at once; \
                     give each a file of its own"
                ));
            }
            self.finish_record(); // with -P 0 nothing else parts two tests
        }
        if self.record.values.is_empty() {
            self.record.line = number;
        }
        self.record.values.insert(key.to_owned(), value.trim_matches('"').to_owned());
        Ok(())
    }

    fn finish_record(&mut self) {
        let record = std::mem::take(&mut self.record);
        if !record.values.is_empty() {
            self.push(record);
        }
    }

    /// Ends the tests of a title. One without any is named: its figures are missing, or in a form that is not read.
    fn end_title(&mut self) {
        self.finish_record();
        if self.title.is_empty() || self.records.len() > self.before_title {
            return;
        }
        let has_figures = |line: &str| {
            line.split_whitespace().next().is_some_and(|word| word.parse::<f64>().is_ok())
        };
        let problem = if self.header.lines().any(has_figures) {
            "the figures under this title are a table whose columns latput does not know: use -k or -o"
        } else {
            "no figures follow this title: the test was cut short"
        };
        let problem = Some(problem.to_owned());
        self.push(NetperfRecord { line: self.title_line, problem, ..NetperfRecord::default() });
    }

    /// Names a row that is not read: it takes no other test with it.
    fn name_problem(&mut self, number: usize, row: Result<LinePart, String>) -> LinePart {
        row.unwrap_or_else(|problem| {
            let problem = Some(problem);
            match self.records.last_mut().filter(|record| record.is_half()) {
                Some(first) => first.problem = problem,
                None => {
                    self.push(NetperfRecord { line: number, problem, ..NetperfRecord::default() });
                }
            }
            LinePart::Row
        })
    }

    fn push_row(&mut self, number: usize, values: BTreeMap<String, String>) {
        self.push(NetperfRecord { values, line: number, ..NetperfRecord::default() });
    }

    fn push(&mut self, mut record: NetperfRecord) {
        let is_uncertain = std::mem::take(&mut self.is_uncertain);
        // The title of a test with transactions tells the burst.
        if let Some((_, burst)) = self.title.split_once("first burst ")
            && !record.values.is_empty()
        {
            let burst = burst.split(' ').next().unwrap_or_default();
            record.values.entry("BURST_SIZE".to_owned()).or_insert_with(|| burst.to_owned());
        }
        self.records.push(NetperfRecord { title: self.title.clone(), is_uncertain, ..record });
    }

    /// Reads classic output; the title defines the columns.
    fn parse_classic_row(&mut self, number: usize, numbers: &[&str]) -> Result<LinePart, String> {
        let title = self.title.to_ascii_uppercase();
        let is = |name: &str| title.contains(name);
        let mut unit = None;
        let mut is_half = false;
        let columns: &[&str] = if is("REQUEST/RESPONSE TEST") {
            is_half = true;
            match numbers.len() {
                6 | 10 => &REQUEST_RESPONSE[..numbers.len()],
                2 if self.complete(&["RSS_SIZE", "RSR_SIZE"], numbers) => return Ok(LinePart::Row),
                2 => return Ok(LinePart::Other), // of a first row that is named
                _ => return Err(unknown_row_error(numbers)),
            }
        } else if is("TCP STREAM TEST") || is("TCP MAERTS TEST") || is("TCP SENDFILE TEST") {
            match numbers.len() {
                5 | 9 => {
                    unit = Some(self.throughput_unit()?);
                    &BULK[..numbers.len()]
                }
                _ => return Err(unknown_row_error(numbers)),
            }
        } else if is("UDP STREAM TEST") {
            is_half = true;
            match numbers.len() {
                6 => {
                    unit = Some(self.throughput_unit()?);
                    &DATAGRAMS
                }
                4 if self.complete(&DATAGRAMS_ARRIVED, numbers) => return Ok(LinePart::Row),
                4 => return Err("the receiver's figures stand before the sender's".to_owned()),
                _ => return Err(unknown_row_error(numbers)),
            }
        } else {
            let problem = "these figures have no title: leave out -P 0, or use -k";
            return Err(problem.to_owned());
        };
        if columns.contains(&"REMOTE_SD") && !self.header.contains("local") {
            return Err("the header does not say which end its CPU figures belong to".to_owned());
        }
        if columns.contains(&"TRANSACTION_RATE") {
            self.check_counts_transactions()?;
        }
        let mut values = named_values(columns, numbers);
        values.extend(unit.map(|unit| ("THROUGHPUT_UNITS".to_owned(), unit)));
        let problem = is_half.then(|| SECOND_ROW.to_owned());
        self.push(NetperfRecord { values, line: number, problem, ..NetperfRecord::default() });
        Ok(LinePart::Row)
    }

    /// Adds the second row, with the other end's figures. Returns whether a first one stands before it.
    fn complete(&mut self, columns: &[&str], numbers: &[&str]) -> bool {
        let first = self.records.last_mut().filter(|record| record.is_half());
        let Some(first) = first else { return false };
        first.values.extend(named_values(columns, numbers));
        first.problem = None;
        true
    }

    /// Refuses a rate of bytes, and a latency, in the place of the rate of transactions.
    fn check_counts_transactions(&self) -> Result<(), String> {
        if !OTHER_RATES.iter().any(|word| self.header.contains(word)) {
            return Ok(());
        }
        let unit = find_unit(&self.header).unwrap_or("another unit");
        Err(format!("its rate is in {unit} and not in transactions: use -f x, or -k"))
    }

    /// The unit of throughput, from the header.
    fn throughput_unit(&self) -> Result<String, String> {
        let unit = find_unit(&self.header).ok_or(
            "the header with the unit of throughput is missing: leave out -P 0, or use -k",
        )?;
        Ok(format!("{unit}/s"))
    }
}

/// The figures of a row with their names.
fn named_values(columns: &[&str], numbers: &[&str]) -> BTreeMap<String, String> {
    let pairs = columns.iter().zip(numbers).filter(|(name, _)| !name.is_empty());
    pairs.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).into_map()
}

fn unknown_row_error(numbers: &[&str]) -> String {
    format!("a row has {} figures, which no known form of this test has: use -k", numbers.len())
}

/// Splits `THROUGHPUT=940.10`.
fn split_keyval(line: &str) -> Option<(&str, &str)> {
    let (key, value) = line.split_once('=')?;
    let is_key = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    (!key.is_empty() && key.len() < 64 && key.chars().all(is_key)).then_some((key, value))
}

fn split_numbers(line: &str) -> Option<Vec<&str>> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let is_number =
        |word: &&str| !matches!(read_number(word, Commas::Locale), Err(NumberError::Form(_)));
    let all = words.iter().all(is_number);
    (!words.is_empty() && all).then_some(words)
}

fn csv_header(line: &str) -> Option<Vec<Option<&'static str>>> {
    let known = |name: &String| {
        let names = CSV_NAMES.iter().chain([&MEAN_LATENCY]);
        names.into_iter().find(|(_, known)| known == name).map(|(selector, _)| *selector)
    };
    let columns: Vec<Option<&str>> = csv_fields(line).iter().map(known).collect();
    columns.contains(&Some("THROUGHPUT")).then_some(columns)
}

fn csv_record(
    columns: &[Option<&'static str>],
    line: &str,
) -> Result<BTreeMap<String, String>, String> {
    let fields = csv_fields(line);
    if fields.len() != columns.len() {
        return Err(format!("{} fields stand under {} names", fields.len(), columns.len()));
    }
    let named = columns.iter().zip(fields);
    Ok(named.filter_map(|(name, value)| Some(((*name)?.to_owned(), value))).into_map())
}

/// The fields of a CSV line. Quotes protect commas.
fn csv_fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut quoted = false;
    for c in line.chars() {
        match c {
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(String::new()),
            c => fields.last_mut().expect("there is always one").push(c),
        }
    }
    fields
}
