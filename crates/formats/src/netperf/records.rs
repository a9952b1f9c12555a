//! netperf's three output formats. Each is read into one record of selectors and values, with the
//! names of its keyval output.

use std::collections::BTreeMap;

use latput_trial::figures::{Commas, NumberError, read_number};
use latput_units::IntoMap;

use crate::parsed::ParseProblem;

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
    /// The reason why a title has no figures.
    pub(super) problem: Option<String>,
}

impl NetperfRecord {
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

/// Selectors with their names in the CSV header (`netperf_output_name` in `src/nettest_omni.c`).
const CSV_NAMES: [(&str, &str); 27] = [
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

/// The figures of which each test has one.
const FIGURES: [&str; 3] = ["THROUGHPUT", "TRANSACTION_RATE", "REMOTE_RECV_THROUGHPUT"];

/// Every test of a file. Fails where several tests are mixed.
pub(super) fn read(text: &str) -> Result<Vec<NetperfRecord>, ParseProblem> {
    let mut reader = RecordParser::default();
    for (number, line) in (1..).zip(text.lines()) {
        reader
            .parse_line(number, line)
            .map_err(|text| ParseProblem::at_place(format!("line {number}"), text))?;
    }
    reader.end_title();
    Ok(reader.records)
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
    /// The columns of the following CSV lines.
    columns: Option<Vec<Option<&'static str>>>,
    /// The incomplete keyval test.
    record: NetperfRecord,
    is_uncertain: bool,
}

impl RecordParser {
    fn parse_line(&mut self, number: usize, line: &str) -> Result<(), String> {
        let line = line.trim_end();
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
        } else if let Some(columns) = csv_header(line) {
            self.columns = Some(columns);
        } else if let Some(columns) = &self.columns
            && !line.is_empty()
        {
            let row = csv_record(columns, line);
            let row = row.map(|values| self.push_row(number, values));
            self.name_problem(number, row);
        } else if let Some(numbers) = split_numbers(line) {
            let row = self.parse_classic_row(number, &numbers);
            self.name_problem(number, row);
        } else {
            self.header += line;
            self.header += "\n";
        }
        Ok(())
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
    fn name_problem(&mut self, number: usize, row: Result<(), String>) {
        if let Err(problem) = row {
            let problem = Some(problem);
            self.push(NetperfRecord { line: number, problem, ..NetperfRecord::default() });
        }
    }

    fn push_row(&mut self, number: usize, values: BTreeMap<String, String>) {
        self.push(NetperfRecord { values, line: number, ..NetperfRecord::default() });
    }

    fn push(&mut self, record: NetperfRecord) {
        let is_uncertain = std::mem::take(&mut self.is_uncertain);
        self.records.push(NetperfRecord { title: self.title.clone(), is_uncertain, ..record });
    }

    /// Reads classic output; the title defines the columns.
    fn parse_classic_row(&mut self, number: usize, numbers: &[&str]) -> Result<(), String> {
        let title = self.title.to_ascii_uppercase();
        let is = |name: &str| title.contains(name);
        let mut extra = Vec::new();
        let columns: &[&str] = if is("REQUEST/RESPONSE TEST") {
            match numbers.len() {
                6 | 10 => &REQUEST_RESPONSE[..numbers.len()],
                2 => return Ok(()), // the other end's socket buffers
                _ => return Err(unknown_row_error(numbers)),
            }
        } else if is("TCP STREAM TEST") || is("TCP MAERTS TEST") || is("TCP SENDFILE TEST") {
            extra = self.throughput_unit()?;
            match numbers.len() {
                5 | 9 => &BULK[..numbers.len()],
                _ => return Err(unknown_row_error(numbers)),
            }
        } else if is("UDP STREAM TEST") {
            extra = self.throughput_unit()?;
            match numbers.len() {
                6 => &["LSS_SIZE", "SEND_SIZE", "ELAPSED_TIME", "LOCAL_OKAY", "ERRORS", "SENT"],
                4 => return self.udp_receiver(numbers),
                _ => return Err(unknown_row_error(numbers)),
            }
        } else {
            let problem = "these figures have no title: leave out -P 0, or use -k";
            return Err(problem.to_owned());
        };
        if columns.contains(&"REMOTE_SD") && !self.header.contains("local") {
            return Err("the header does not say which end its CPU figures belong to".to_owned());
        }
        let pairs = columns.iter().zip(numbers);
        let mut values: BTreeMap<String, String> =
            pairs.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).into_map();
        values.extend(extra);
        if let Some((_, burst)) = self.title.split_once("first burst ") {
            values.insert("BURST_SIZE".to_owned(), burst.trim().to_owned());
        }
        self.push_row(number, values);
        Ok(())
    }

    /// Reads the second line of `UDP_STREAM`: the receiver's figures.
    fn udp_receiver(&mut self, numbers: &[&str]) -> Result<(), String> {
        let sent = self.records.last_mut().filter(|record| record.values.contains_key("SENT"));
        let sent = sent.ok_or("the receiver's figures stand before the sender's")?;
        sent.values.insert("REMOTE_OKAY".to_owned(), numbers[2].to_owned());
        sent.values.insert("REMOTE_RECV_THROUGHPUT".to_owned(), numbers[3].to_owned());
        Ok(())
    }

    /// The unit of throughput, from the header.
    fn throughput_unit(&self) -> Result<Vec<(String, String)>, String> {
        let units = ["10^3bits", "10^6bits", "10^9bits", "KBytes", "MBytes", "GBytes"];
        let unit = units.into_iter().find(|unit| self.header.contains(unit)).ok_or(
            "the header with the unit of throughput is missing: leave out -P 0, or use -k",
        )?;
        Ok(vec![("THROUGHPUT_UNITS".to_owned(), format!("{unit}/s"))])
    }
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
