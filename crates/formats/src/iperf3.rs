//! iperf3's JSON: one or several documents (`--json`), or lines of events (`--json-stream`).

mod agreement;

use std::fmt::Write as _;

use latput_trial::observation::{CpuMethod, ProgramCpu, Role, TrafficObservation};
use latput_trial::{Metric, Observation};
use latput_units::Nanos;
use serde_json::Value;

use crate::parsed::{
    ParseProblem, ParsedTest, ParsedTests, WritingEnd, parse_documents, workload_from_fields,
};
use crate::read_error::ReadError;
use crate::rules::{BIN, COUNTING, DeliveryCounts, StatedFigures};

/// Letters of a cookie. In a file without names of hosts it may be a shorter word, which all files have.
const COOKIE: usize = 36;
/// Most connections that a note names.
const MOST_NAMED: usize = 8;
/// Beginning of the note on a test without its goodput, and the reason of a server's file.
const UNKNOWN: &str = "iperf3: goodput is not known: ";
const OF_SERVER: &str = "a server is not told what its client received";

/// Every test of a file.
pub(crate) fn parse_tests(text: &str) -> Result<ParsedTests, ParseProblem> {
    let found = parse_documents(text).map_err(|error| ParseProblem::new(error.to_string()))?;
    let mut tests = ParsedTests { notes: found.notes, ..ParsedTests::default() };
    // `--json-stream` prints the parts of a test one after another.
    let mut stream = StreamedTest::default();
    let mut versions: Vec<String> = Vec::new();
    for document in found.documents {
        let document = match document {
            Ok(document) => document,
            Err(problem) => {
                tests.push(Err(problem.into()));
                continue;
            }
        };
        let start =
            if document["event"].is_string() { &document["data"] } else { &document["start"] };
        if let Some(version) = start["version"].as_str()
            && !versions.iter().any(|known| known == version)
        {
            versions.push(version.to_owned());
        }
        if document["event"].is_string() {
            stream.handle_event(&document, &mut tests);
        } else {
            tests.push(parse_test(&document));
        }
    }
    stream.finish_test(&mut tests);
    for note in tests.notes.iter_mut().filter(|note| note.contains("`nan`")) {
        if !versions.is_empty() {
            let _infallible = write!(note, "; {} printed it", versions.join(" and "));
        }
    }
    Ok(tests)
}

/// The test of which `--json-stream` has printed a part.
#[derive(Debug, Default)]
struct StreamedTest {
    start: Option<Value>,
    /// An `error` event came, which an `end` event follows.
    has_failed: bool,
    /// The first test that had not ended when another one began.
    overlapping: Option<usize>,
}

impl StreamedTest {
    fn handle_event(&mut self, document: &Value, tests: &mut ParsedTests) {
        let data = &document["data"];
        match document["event"].as_str() {
            Some("start") => {
                if self.start.is_some() {
                    self.overlapping = self.overlapping.or(Some(tests.tests.len()));
                }
                self.finish_test(tests);
                self.start = Some(data.clone());
                self.has_failed = false;
            }
            Some("error") => {
                let text = data.as_str().unwrap_or("no reason is given");
                tests.push(Err(failed_test_error(text)));
                self.start = None;
                self.has_failed = true;
            }
            Some("end") if self.has_failed => self.has_failed = false,
            Some("end") => {
                let Some(start) = self.start.take() else {
                    self.refuse_mixed(tests);
                    tests.push(Err("an `end` event without its `start`: the file is cut".into()));
                    return;
                };
                tests.push(parse_test(&serde_json::json!({ "start": start, "end": data })));
            }
            _ => {}
        }
    }

    /// Refuses the tests since two ran at once: an `end` too many says that the others are not theirs.
    fn refuse_mixed(&mut self, tests: &mut ParsedTests) {
        let Some(first) = self.overlapping.take() else { return };
        for (idx, test) in tests.tests.iter_mut().enumerate().skip(first) {
            if test.is_ok() || idx == first {
                let problem = "events of several clients are mixed: give each a file of its own";
                let error = ReadError::Contradiction(problem.to_owned());
                *test = Err(ParseProblem::of_test(format!("test {}", idx + 1), error));
            }
        }
    }

    /// Ends a test whose last event did not come.
    fn finish_test(&mut self, tests: &mut ParsedTests) {
        if self.start.take().is_some() {
            tests.push(Err("the `end` event is missing: the file is cut".into()));
        }
    }
}

fn failed_test_error(text: &str) -> ReadError {
    ReadError::Failed(format!("the test failed: {text}"))
}

/// Options that change the figures and are no part of a workload: their places, and iperf3's words for them.
const OPTIONS: &[(&str, &str)] = &[
    ("/start/test_start/gso", "--gsro"),
    ("/start/test_start/fqrate", "--fq-rate"),
    ("/start/test_start/tos", "--tos"),
    ("/start/sock_bufsize", "--window"),
    ("/end/sender_tcp_congestion", "--congestion"),
];

/// The end that wrote a document, and its part in the traffic.
#[derive(Clone, Copy, Debug)]
struct ReportingEnd {
    is_client: bool,
    is_reverse: bool,
}

impl ReportingEnd {
    /// Whether it received the data. A server is not told what its client counted.
    const fn is_receiver(self) -> bool {
        self.is_client == self.is_reverse
    }
}

fn parse_test(value: &Value) -> Result<ParsedTest, ReadError> {
    if let Some(text) = value["error"].as_str() {
        return Err(failed_test_error(text));
    }
    let (start, end) = (&value["start"], &value["end"]);
    let asked = &start["test_start"];
    let protocol = asked["protocol"]
        .as_str()
        .ok_or("it has no start.test_start.protocol: is it the JSON of iperf3 3.1 or later?")?;
    let udp = match protocol {
        "TCP" => false,
        "UDP" => true,
        other => return Err(format!("latput has no workload for {other}").into()),
    };
    if end["streams"].as_array().is_none_or(Vec::is_empty) && end["sum_received"].is_null() {
        return Err("it has no figures of its end: the test was cut short".into());
    }
    let both = is_both_ways(asked, end);
    let reverse = is_enabled(&asked["reverse"]);
    let kind = match (udp, both, reverse) {
        (true, false, false) => "udp_stream",
        (true, ..) => return Err("latput has no workload for UDP from the server".into()),
        (false, true, _) => "tcp_bidir",
        (false, false, true) => "tcp_maerts",
        (false, false, false) => "tcp_stream",
    };
    let writer =
        ReportingEnd { is_client: start["connecting_to"].is_object(), is_reverse: reverse };
    agreement::check_test(start, end)?;
    let mut observation =
        Observation { traffic: parse_traffic(end, udp, both, writer), ..Observation::default() };
    let mut notes: Vec<String> = Vec::new();
    if both {
        notes.extend(add_both_ways(end, writer, &mut observation)?);
    }
    let mut arrivals = arrived_bytes(asked, end);
    if udp {
        arrivals.extend(parse_datagrams(end, &mut observation)?);
    }
    // The document of a server names the server itself as the host.
    let roles =
        if writer.is_client { [Role::Generator, Role::Sut] } else { [Role::Sut, Role::Generator] };
    for (role, end_name) in roles.into_iter().zip(["host", "remote"]) {
        // An end that moved data has used CPU time: 0 is that of an end that told nothing.
        let known = parse_cpu(end, role, end_name).filter(|cpu| cpu.busy_ratio > 0.0);
        observation.programs.extend(known);
    }
    let fact = |key: &str| Some((key.to_owned(), start[key].as_str()?.to_owned()));
    let options = OPTIONS.iter().filter_map(|(place, name)| {
        let value = value.pointer(place)?;
        Some(((*name).to_owned(), value.as_str().map_or_else(|| value.to_string(), str::to_owned)))
    });
    notes
        .extend(missing_connections(start, end, writer).into_iter().chain(ended_early(asked, end)));
    let workload = workload_from_fields(kind, &workload_fields(asked, udp)?)?;
    if !both && Metric::ThroughputBps.value(&workload.traffic, &observation).is_none() {
        notes.push(unknown_goodput(end, udp, writer));
    }
    let test = ParsedTest {
        workload,
        setting: None,
        started_unix_ms: parse_start_ms(&start["timestamp"]),
        identity: start["cookie"].as_str().filter(|it| it.len() == COOKIE).map(str::to_owned),
        writer: Some(if writer.is_client { WritingEnd::Client } else { WritingEnd::Server }),
        record: None,
        observation,
        beside: StatedFigures { arrivals, ..StatedFigures::default() },
        facts: ["version", "system_info"].into_iter().filter_map(fact).chain(options).collect(),
        notes,
    };
    test.into_checked()
}

/// Whether data went in both directions.
fn is_both_ways(asked: &Value, end: &Value) -> bool {
    end["sum_received_bidir_reverse"].is_object() || is_enabled(&asked["bidir"])
}

/// Adds the goodput of each direction. A server does not know what its client received, and states 0.
fn add_both_ways(
    end: &Value,
    writer: ReportingEnd,
    observation: &mut Observation,
) -> Result<Option<String>, ReadError> {
    let sum = |key: &str| read_number(&end[key], "bits_per_second");
    let from = sum("sum_received_bidir_reverse").filter(|rate| writer.is_client || *rate > 0.0);
    let to = sum("sum_received").ok_or("it has no figures of both directions")?;
    let metrics = &mut observation.reported_metrics;
    metrics.insert(Metric::ThroughputToSutBps, to);
    if let Some(from) = from {
        metrics.insert(Metric::ThroughputBps, to + from);
        metrics.insert(Metric::ThroughputFromSutBps, from);
        return Ok(None);
    }
    if writer.is_client {
        return Err("it has no figures of both directions".into());
    }
    // The bytes of one direction are no goodput of both.
    observation.traffic = TrafficObservation::default();
    Ok(Some(format!("{UNKNOWN}{OF_SERVER}, so only that towards the system under test is there")))
}

/// Says why a test has no goodput.
fn unknown_goodput(end: &Value, udp: bool, writer: ReportingEnd) -> String {
    let received = &end["sum_received"];
    let why = if !writer.is_client && !writer.is_receiver() {
        OF_SERVER.to_owned()
    } else if received.is_object() {
        let is_missing = |key: &&&str| read_number(received, key).is_none_or(|it| it == 0.0);
        let missing = ["seconds", "bytes"].iter().find(is_missing).unwrap_or(&"bytes");
        format!("`{missing}` of its `sum_received` is missing, 0 or impossible")
    } else if udp && end["sum"].is_object() {
        "it has the sender's bytes alone, as before iperf3 3.7".to_owned()
    } else {
        "it has no `sum_received`".to_owned()
    };
    format!("{UNKNOWN}{why}")
}

/// Bytes that one end sent and the other received, in each direction.
fn arrived_bytes(asked: &Value, end: &Value) -> Vec<DeliveryCounts> {
    // With `-O` both ends begin to count anew, each at its own time; and a sender that is ended may not count its last
    // block.
    let slack = if asked["omit"].as_u64().unwrap_or(0) > 0 { COUNTING } else { BIN };
    let of = |sent: &str, received: &str| -> Option<DeliveryCounts> {
        let bytes = |name: &str| read_count(&end[name], "bytes").filter(|bytes| *bytes > 0);
        let (sent, arrived) = (bytes(sent)? as f64, bytes(received)? as f64);
        Some(DeliveryCounts { counted: "bytes", sent, arrived, stated_loss: None, slack })
    };
    [("sum_sent", "sum_received"), ("sum_sent_bidir_reverse", "sum_received_bidir_reverse")]
        .into_iter()
        .filter_map(|(sent, received)| of(sent, received))
        .collect()
}

/// Names a test that was shorter than it was asked to be.
fn ended_early(asked: &Value, end: &Value) -> Option<String> {
    let wanted = read_number(asked, "duration").filter(|seconds| *seconds > 0.0)?;
    let seconds = |name: &str| read_number(&end[name], "seconds");
    let ran = [seconds("sum_sent"), seconds("sum_received"), seconds("sum")];
    let longest = ran.into_iter().flatten().reduce(f64::max)?;
    (longest < wanted * (1.0 - COUNTING)).then(|| {
        format!("iperf3: the test was asked to last {wanted:.0} s and lasted {longest:.1} s")
    })
}

/// Names the connections that were asked for and moved nothing, or have no figures. A server does not know what arrived at
/// its client.
fn missing_connections(start: &Value, end: &Value, writer: ReportingEnd) -> Option<String> {
    let wanted = agreement::count_wanted(start, end)?;
    let streams = end["streams"].as_array()?;
    let bytes = |stream: &Value| {
        let of = |part: &str| read_count(&stream[part], "bytes");
        let all = [of("receiver"), of("udp"), of("sender")];
        if writer.is_client { all.into_iter().flatten().next() } else { all.into_iter().max()? }
    };
    let is_sending = |stream: &&Value| bytes(stream).is_some_and(|bytes| bytes > 0);
    let list = |numbers: Vec<u64>| {
        let named: Vec<String> = numbers.iter().take(MOST_NAMED).map(u64::to_string).collect();
        named.join(", ")
    };
    let idle = (1..).zip(streams).filter(|(_, stream)| bytes(stream) == Some(0));
    let idle: Vec<u64> = idle.map(|(number, _)| number).collect();
    if streams.len() as u64 != wanted {
        let missing = list(missing_numbers(start, streams, wanted));
        Some(format!("iperf3: of {wanted} connections these have no figures at the end: {missing}"))
    } else if !idle.is_empty() && streams.iter().any(|stream| is_sending(&stream)) {
        let numbers = list(idle);
        Some(format!("iperf3: of {wanted} connections these moved no data: {numbers}"))
    } else {
        None
    }
}

/// The numbers of the connections without a stream at the end, by their sockets where the start lists them.
fn missing_numbers(start: &Value, streams: &[Value], wanted: u64) -> Vec<u64> {
    let connected = start["connected"].as_array().map_or(&[][..], Vec::as_slice);
    let of_stream = |stream: &Value| {
        let mut parts = ["sender", "receiver", "udp"].iter();
        parts.find_map(|part| stream[part]["socket"].as_u64())
    };
    let ended: Vec<u64> = streams.iter().filter_map(of_stream).collect();
    let sockets = connected.iter().map(|one| one["socket"].as_u64());
    // Without sockets the first ones are those that are there.
    let mut has_ended: Vec<bool> =
        sockets.map(|socket| socket.is_some_and(|socket| ended.contains(&socket))).collect();
    if has_ended.is_empty() {
        has_ended = vec![true; streams.len()];
    }
    let all = has_ended.into_iter().chain(std::iter::repeat(false));
    let missing = (1..=wanted).zip(all).filter(|(_, has_ended)| !has_ended);
    missing.map(|(number, _)| number).take(MOST_NAMED).collect()
}

fn workload_fields(asked: &Value, udp: bool) -> Result<Vec<(&'static str, String)>, ReadError> {
    let whole = |key: &str| {
        let known = asked[key].as_u64();
        known.ok_or_else(|| format!("its start.test_start has no number `{key}`"))
    };
    let size = if udp { "datagram_bytes" } else { "message_bytes" };
    let mut fields = vec![
        (size, whole("blksize")?.to_string()),
        ("connections", whole("num_streams")?.to_string()),
    ];
    // The bit rate of each stream; absent before 3.9, and 0 for none.
    if let Some(rate) = asked["target_bitrate"].as_u64().filter(|rate| *rate > 0) {
        let all = rate.saturating_mul(whole("num_streams")?);
        fields.push(("rate", format!("{all}bps")));
    }
    Ok(fields)
}

/// The sums of both ends. Before 3.7 UDP had one sum only, that of the sender. A server that sent does not know what
/// arrived, and one that received does not know what was sent.
fn parse_traffic(end: &Value, udp: bool, both: bool, writer: ReportingEnd) -> TrafficObservation {
    let seconds = |sum: &Value| {
        let seconds = read_number(sum, "seconds").unwrap_or(0.0);
        Nanos::from_secs_f64(seconds)
    };
    let sent = if end["sum_sent"].is_object() { &end["sum_sent"] } else { &end["sum"] };
    let received = &end["sum_received"];
    let is_told =
        |is_own: bool| move |bytes: &u64| is_own || both || writer.is_client || *bytes > 0;
    let sent_bytes = read_count(sent, "bytes").filter(is_told(!writer.is_receiver()));
    let received_bytes = read_count(received, "bytes").filter(is_told(writer.is_receiver()));
    TrafficObservation {
        sender_window: sent_bytes.map_or(Nanos::ZERO, |_| seconds(sent)),
        receiver_window: received_bytes.map_or(Nanos::ZERO, |_| seconds(received)),
        sent_bytes: sent_bytes.unwrap_or(0),
        received_bytes: received_bytes.unwrap_or(0),
        retransmits: read_count(sent, "retransmits").filter(|_| !udp),
        ..TrafficObservation::default()
    }
}

/// Reads loss and jitter, which are the receiver's in every version; returns what arrived. Fails where nothing did:
/// before 3.21 iperf3 prints a loss of 0% then.
fn parse_datagrams(
    end: &Value,
    observation: &mut Observation,
) -> Result<Option<DeliveryCounts>, ReadError> {
    let packets = |sum: &str| read_count(&end[sum], "packets");
    if packets("sum_received").or_else(|| packets("sum")) == Some(0) {
        let sent = packets("sum_sent").unwrap_or(0);
        return Err(ReadError::Failed(format!("no data arrived: {sent} datagrams were sent")));
    }
    let name = if end["sum_received"]["lost_percent"].is_number() { "sum_received" } else { "sum" };
    let sum = &end[name];
    let stated_loss = read_number(sum, "lost_percent").map(|percent| percent / 100.0);
    if let Some(jitter_ms) = read_number(sum, "jitter_ms") {
        observation.reported_metrics.insert(Metric::JitterNs, jitter_ms * 1e6);
    }
    let of = |name: &str| {
        let sent = read_number(&end[name], "packets").filter(|packets| *packets > 0.0)?;
        let arrival = DeliveryCounts::from_packets(sent, sent - read_number(sum, "lost_packets")?);
        Some(DeliveryCounts { stated_loss, ..arrival })
    };
    // Versions differ in whose packets they take the share of.
    let all = || [name, "sum_sent", "sum"].into_iter().filter_map(of);
    let arrival = all().find(|arrival| arrival.check_delivery().is_ok()).or_else(|| all().next());
    observation.reported_metrics.extend(stated_loss.map(|loss| (Metric::LossRatio, loss)));
    Ok(arrival)
}

fn parse_cpu(end: &Value, role: Role, end_name: &str) -> Option<ProgramCpu> {
    let all = &end["cpu_utilization_percent"];
    let percent = |part: &str| read_number(all, &format!("{end_name}_{part}"));
    Some(process_cpu(role, percent("total")?, percent("user"), percent("system")))
}

fn parse_start_ms(timestamp: &Value) -> Option<u64> {
    let seconds = || timestamp["timesecs"].as_u64()?.checked_mul(1000);
    timestamp["timemillisecs"].as_u64().or_else(seconds).filter(|ms| *ms < 1 << 62)
}

/// A switch: a number, or a word in some versions.
fn is_enabled(value: &Value) -> bool {
    value.as_u64().map_or_else(|| value.as_bool().unwrap_or(false), |number| number != 0)
}

/// CPU time of iperf3's process at one end, in percent of one CPU. It gives no service demand.
pub fn process_cpu(role: Role, total: f64, user: Option<f64>, system: Option<f64>) -> ProgramCpu {
    ProgramCpu {
        role,
        program: "iperf3".to_owned(),
        method: CpuMethod::Process,
        busy_ratio: total / 100.0,
        user_ratio: user.map(|percent| percent / 100.0),
        system_ratio: system.map(|percent| percent / 100.0),
    }
}

/// A share, time or rate in iperf3's JSON: finite and not negative.
pub fn read_number(value: &Value, key: &str) -> Option<f64> {
    value[key].as_f64().filter(|number| (0.0..1e18).contains(number))
}

/// A count in iperf3's JSON. Before 3.14 it prints -1 for "unknown" as 2^64 - 1.
#[expect(clippy::cast_possible_truncation, reason = "bounded just before")]
pub fn read_count(value: &Value, key: &str) -> Option<u64> {
    const LARGEST: f64 = 9e15; // every whole number below is a float
    let known = |count: &u64| *count < u64::MAX / 2;
    value[key]
        .as_u64()
        .or_else(|| read_number(value, key).filter(|number| *number < LARGEST).map(|n| n as u64))
        .filter(known)
}

#[cfg(test)]
mod tests;
