//! iperf3's JSON: one or several documents (`--json`), or lines of events (`--json-stream`).

use std::fmt::Write as _;

use latput_trial::observation::{CpuMethod, ProgramCpu, Role, TrafficObservation};
use latput_trial::{Metric, Observation};
use latput_units::Nanos;
use serde_json::Value;

use crate::parsed::{
    ParseProblem, ParsedTest, ParsedTests, check_rate, parse_documents, workload_from_fields,
};
use crate::read_error::ReadError;
use crate::rules::{BIN, COUNTING, DeliveryCounts, StatedFigures};

/// Most connections that a note names.
const MOST_NAMED: usize = 8;

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
}

impl StreamedTest {
    fn handle_event(&mut self, document: &Value, tests: &mut ParsedTests) {
        let data = &document["data"];
        match document["event"].as_str() {
            Some("start") => {
                self.finish_test(tests);
                *self = Self { start: Some(data.clone()), has_failed: false };
            }
            Some("error") => {
                let text = data.as_str().unwrap_or("no reason is given");
                tests.push(Err(failed_test_error(text)));
                *self = Self { start: None, has_failed: true };
            }
            Some("end") if self.has_failed => self.has_failed = false,
            Some("end") => tests.push(match self.start.take() {
                Some(start) => parse_test(&serde_json::json!({ "start": start, "end": data })),
                None => Err("an `end` event without its `start`: the file is cut".into()),
            }),
            _ => {}
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
    let both = end["sum_received_bidir_reverse"].is_object() || is_enabled(&asked["bidir"]);
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
    check_sums(end)?;
    let mut observation =
        Observation { traffic: parse_traffic(end, udp, both, writer), ..Observation::default() };
    if both {
        let sum = |key: &str| read_number(&end[key], "bits_per_second");
        let parts = sum("sum_received").zip(sum("sum_received_bidir_reverse"));
        let (to, from) = parts.ok_or("it has no figures of both directions")?;
        observation.reported_metrics.insert(Metric::ThroughputBps, to + from);
        observation.reported_metrics.insert(Metric::ThroughputToSutBps, to);
        observation.reported_metrics.insert(Metric::ThroughputFromSutBps, from);
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
    let notes =
        missing_connections(asked, end).into_iter().chain(ended_early(asked, end)).collect();
    let test = ParsedTest {
        workload: workload_from_fields(kind, &workload_fields(asked, udp)?)?,
        setting: None,
        started_unix_ms: parse_start_ms(&start["timestamp"]),
        identity: start["cookie"].as_str().filter(|it| !it.is_empty()).map(str::to_owned),
        record: None,
        observation,
        beside: StatedFigures { arrivals, ..StatedFigures::default() },
        facts: ["version", "system_info"].into_iter().filter_map(fact).chain(options).collect(),
        notes,
    };
    test.into_checked()
}

/// Compares bytes, time and rate of each sum.
fn check_sums(end: &Value) -> Result<(), ReadError> {
    for name in ["sum_sent", "sum_received", "sum_sent_bidir_reverse", "sum_received_bidir_reverse"]
    {
        let of = |key: &str| read_number(&end[name], key);
        check_rate(of("bytes"), of("seconds"), of("bits_per_second"))?;
    }
    Ok(())
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

/// Names the connections that were asked for and moved nothing, or have no figures.
fn missing_connections(asked: &Value, end: &Value) -> Option<String> {
    let wanted = asked["num_streams"].as_u64()?;
    let streams = end["streams"].as_array()?;
    let bytes = |stream: &Value| {
        let of = |part: &str| read_count(&stream[part], "bytes");
        of("receiver").or_else(|| of("udp")).or_else(|| of("sender"))
    };
    let is_sending = |stream: &&Value| bytes(stream).is_some_and(|bytes| bytes > 0);
    let idle = (1..).zip(streams).filter(|(_, stream)| bytes(stream) == Some(0));
    let idle: Vec<String> = idle.map(|(number, _)| format!("{number}")).take(MOST_NAMED).collect();
    let missing = wanted.saturating_sub(streams.len() as u64);
    if missing > 0 {
        Some(format!("iperf3: {missing} of {wanted} connections have no figures at the end"))
    } else if !idle.is_empty() && streams.iter().any(|stream| is_sending(&stream)) {
        let numbers = idle.join(", ");
        Some(format!("iperf3: of {wanted} connections these moved no data: {numbers}"))
    } else {
        None
    }
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
mod tests {
    use super::*;

    /// Cut down from what Debian's iperf 3.12 wrote.
    const TCP: &str = r#"{"start":{"connecting_to":{"host":"192.0.2.7","port":5201},
        "version":"iperf 3.12","system_info":"Linux a 6.1.0","timestamp":{"timesecs":1795304069},
        "test_start":{"protocol":"TCP","num_streams":2,"blksize":131072,"omit":0,"duration":1,"reverse":0,
        "target_bitrate":0}},"intervals":[],"end":{"streams":[{"sender":{},"receiver":{}}],
        "sum_sent":{"seconds":2.0,"bytes":2000,"retransmits":14},
        "sum_received":{"seconds":2.0,"bytes":1000,"bits_per_second":4000},
        "cpu_utilization_percent":{"host_total":53.7,"host_user":1.1,"host_system":52.6,
        "remote_total":51.8,"remote_user":0.5,"remote_system":51.3}}}"#;

    const UDP: &str = r#"{"start":{"connecting_to":{},"test_start":{"protocol":"UDP","num_streams":1,
        "blksize":1470,"reverse":0,"target_bitrate":1000000}},"end":{"streams":[{"udp":{}}],
        "sum":{"seconds":1,"bytes":125000,"jitter_ms":0.022,"lost_packets":1,"packets":100,"lost_percent":1}}}"#;

    #[test]
    fn tcp_test_has_figures_of_both_ends() {
        let test = parse_one(TCP);
        assert_eq!(test.workload.name, "tcp_stream message_bytes=131072 connections=2");
        let flow = &test.observation.traffic;
        assert_eq!(
            (flow.sent_bytes, flow.received_bytes, flow.retransmits),
            (2000, 1000, Some(14))
        );
        let goodput = Metric::ThroughputBps.value(&test.workload.traffic, &test.observation);
        assert_eq!(goodput, Some(4000.0));
        assert_eq!(test.started_unix_ms, Some(1_795_304_069_000));
        let [client, server] = test.observation.programs.as_slice() else { panic!("two ends") };
        assert_eq!((client.role, server.role), (Role::Generator, Role::Sut));
        assert_eq!((client.method, server.busy_ratio), (CpuMethod::Process, 0.518));
        let busy = Metric::SutCpuBusyRatio.value(&test.workload.traffic, &test.observation);
        assert_eq!(busy, None, "a process's CPU time is not the host's");
    }

    #[test]
    fn server_document_swaps_the_ends() {
        let test = parse_one(&TCP.replace("connecting_to", "accepted_connection"));
        assert_eq!(test.observation.programs[0].role, Role::Sut);
    }

    #[test]
    fn directions_are_told_apart() {
        assert_eq!(
            parse_one(&TCP.replace("\"reverse\":0", "\"reverse\":1")).workload.traffic.kind(),
            "tcp_maerts"
        );
        let both = TCP
            .replace("\"cpu_", "\"sum_received_bidir_reverse\":{\"bits_per_second\":6000},\"cpu_");
        let test = parse_one(&both);
        assert_eq!(test.workload.traffic.kind(), "tcp_bidir");
        assert_eq!(test.observation.reported_metrics.get(&Metric::ThroughputBps), Some(&10_000.0));
    }

    #[test]
    fn old_udp_has_a_loss_and_no_goodput() {
        let test = parse_one(UDP);
        assert_eq!(test.workload.name, "udp_stream datagram_bytes=1470 rate=1Mbps");
        let value = |metric: Metric| metric.value(&test.workload.traffic, &test.observation);
        assert_eq!(value(Metric::ThroughputBps), None, "the bytes are the sender's");
        assert_eq!(
            (value(Metric::LossRatio), value(Metric::JitterNs)),
            (Some(0.01), Some(22_000.0))
        );
        assert_eq!(value(Metric::ReorderedRatio), None);
    }

    #[test]
    fn contradicting_counts_are_refused() {
        let refused = |text: &str, with: &str, part: &str| {
            assert!(text.contains(with.split('>').next().unwrap()), "{with}");
            let (from, to) = with.split_once('>').unwrap();
            check_refused(&text.replace(from, to), "test 1: ", part);
        };
        let lost = "\"lost_packets\":1>\"lost_packets\":50";
        refused(UDP, lost, "50 of 100 packets arrived, a loss of 50.0%, but it states 1.0%");
        let many = "\"lost_packets\":1,\"packets\":100,\"lost_percent\":1>\"lost_packets\":250,\"packets\":100,\"lost_percent\":250";
        refused(UDP, many, "250 packets were lost of 100 sent");
        let share = "\"lost_packets\":1,\"packets\":100,\"lost_percent\":1>\"lost_percent\":250";
        refused(UDP, share, "`loss_ratio` is 2.5000, above its largest possible value");
        refused(TCP, "\"bytes\":2000>\"bytes\":900", "1000 bytes arrived of 900 sent");
    }

    #[test]
    fn test_that_ended_early_is_named() {
        let early = parse_one(&TCP.replace("\"duration\":1", "\"duration\":20"));
        let said = "iperf3: the test was asked to last 20 s and lasted 2.0 s";
        assert!(early.notes.iter().any(|note| note == said), "{:?}", early.notes);
        assert_eq!(parse_one(TCP).notes.iter().filter(|note| note.contains("lasted")).count(), 0);
    }

    #[test]
    fn several_documents_and_event_streams_are_read() {
        assert_eq!(parse_tests(&format!("{TCP}\n{UDP}\n")).unwrap().tests.len(), 2);
        let whole: Value = serde_json::from_str(TCP).unwrap();
        let line = |event: &str, data: &Value| {
            serde_json::json!({"event": event, "data": data}).to_string()
        };
        let start = line("start", &whole["start"]);
        let end = line("end", &whole["end"]);
        let interval = line("interval", &Value::Null);
        let text = format!("{start}\n{interval}\n{end}\n");
        assert_eq!(parse_one(&text).observation, parse_one(TCP).observation);
        check_refused(&format!("{start}\n{interval}\n"), "test 1: ", "`end` event is missing");
        check_refused(&end, "test 1: ", "without its `start`");
        check_refused(&line("error", &"no route".into()), "test 1: ", "no route");
    }

    #[test]
    fn broken_documents_are_refused_with_the_place() {
        check_refused(
            "{",
            "test 1: ",
            "it ends too early: EOF while parsing an object at line 1 column 1",
        );
        check_refused(&TCP[..TCP.len() / 2], "test 1: ", "it ends too early");
        check_refused("{}", "test 1: ", "start.test_start.protocol");
        check_refused(r#"{"error":"unable to connect"}"#, "test 1: ", "the test failed: unable");
        check_refused(&format!("{UDP}{{\"start\":1}}"), "test 2: ", "protocol");
        check_refused(&TCP.replace("\"TCP\"", "\"SCTP\""), "test 1: ", "no workload for SCTP");
        check_refused(&TCP.replace("131072", "-5"), "test 1: ", "`blksize`");
        check_refused(&TCP.replace("131072", "99999999999"), "test 1: ", "message_bytes");
        check_refused(&"{\"a\":".repeat(100_000), "test 1: ", "recursion limit");
        let hostile = TCP.replace("2.0", "1e999").replace("53.7", "-1");
        drop(parse_tests(&hostile));
    }

    fn parse_one(text: &str) -> ParsedTest {
        let mut tests = parse_tests(text).unwrap().tests;
        assert_eq!(tests.len(), 1);
        tests.remove(0).unwrap()
    }

    #[track_caller]
    fn check_refused(text: &str, place: &str, part: &str) {
        let problem = parse_tests(text).unwrap().tests.into_iter().find_map(Result::err).unwrap();
        let text = problem.error.to_string();
        assert!(problem.place == place && text.contains(part), "{problem:?}");
    }
}
