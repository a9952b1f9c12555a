//! Tests of the reader of iperf3's files.

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
    assert_eq!((flow.sent_bytes, flow.received_bytes, flow.retransmits), (2000, 1000, Some(14)));
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
    let both =
        TCP.replace("\"cpu_", "\"sum_received_bidir_reverse\":{\"bits_per_second\":6000},\"cpu_");
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
    assert_eq!((value(Metric::LossRatio), value(Metric::JitterNs)), (Some(0.01), Some(22_000.0)));
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
fn test_without_goodput_has_note() {
    let server = TCP.replace("connecting_to", "accepted_connection");
    for (text, said) in [
        (
            TCP.replace("\"sum_received\":{\"seconds\":2.0", "\"sum_received\":{\"seconds\":0"),
            "`seconds` of its",
        ),
        (
            TCP.replace("\"bytes\":1000,\"bits_per_second\":4000", "\"bytes\":1e299"),
            "`bytes` of its",
        ),
        (TCP.replace("\"sum_received\"", "\"other\""), "it has no `sum_received`"),
        (
            server
                .replace("\"reverse\":0", "\"reverse\":1")
                .replace(":1000,\"bits_per_second\":4000", ":0"),
            OF_SERVER,
        ),
        (UDP.to_owned(), "the sender's bytes alone"),
    ] {
        let test = parse_one(&text);
        let goodput = Metric::ThroughputBps.value(&test.workload.traffic, &test.observation);
        assert_eq!(goodput, None, "{said}");
        let is_said = |note: &String| note.starts_with(UNKNOWN) && note.contains(said);
        assert_eq!(test.notes.iter().filter(|note| is_said(note)).count(), 1, "{:?}", test.notes);
    }
    assert!(parse_one(TCP).notes.iter().all(|note| !note.contains("goodput")));
}

#[test]
fn server_of_both_directions_has_one() {
    let both = TCP.replace("connecting_to", "accepted_connection").replace(
        "\"cpu_",
        "\"sum_received_bidir_reverse\":{\"bytes\":0,\"bits_per_second\":0},\"cpu_",
    );
    let test = parse_one(&both);
    let value = |metric: Metric| metric.value(&test.workload.traffic, &test.observation);
    assert_eq!(test.workload.traffic.kind(), "tcp_bidir");
    assert_eq!(value(Metric::ThroughputToSutBps), Some(4000.0));
    assert_eq!((value(Metric::ThroughputFromSutBps), value(Metric::ThroughputBps)), (None, None));
    assert!(test.notes.iter().any(|note| note.contains(OF_SERVER)), "{:?}", test.notes);
    let client = both.replace("accepted_connection", "connecting_to");
    check_refused(&client, "test 1: ", "no data arrived from the system under test");
}

#[test]
fn missing_connection_is_named() {
    let connected = r#""connected":[{"socket":5},{"socket":7},{"socket":9}],"version""#;
    let three =
        TCP.replace("\"version\"", connected).replace("\"num_streams\":2", "\"num_streams\":3");
    let stream = |socket: u8| format!("{{\"sender\":{{\"socket\":{socket}}},\"receiver\":{{}}}}");
    let with =
        |streams: &[String]| three.replace("{\"sender\":{},\"receiver\":{}}", &streams.join(","));
    for (text, named) in
        [(with(&[stream(5), stream(9)]), "2"), (with(&[stream(9)]), "1, 2"), (TCP.to_owned(), "2")]
    {
        let test = parse_one(&text);
        let said = format!("these have no figures at the end: {named}");
        assert!(test.notes.iter().any(|note| note.ends_with(&said)), "{:?}", test.notes);
        let connections = if named == "2" && text == TCP { 2 } else { 3 };
        assert_eq!(test.workload.traffic.value("connections"), Some(connections));
    }
}

#[test]
fn mixed_streams_of_clients_are_left_out() {
    let event = |event: &str, text: &str| {
        let whole: Value = serde_json::from_str(text).unwrap();
        serde_json::json!({ "event": event, "data": whole[event] }).to_string()
    };
    let one = TCP.replace("\"num_streams\":2", "\"num_streams\":1");
    let two = TCP.replace("\"streams\":[", "\"streams\":[{\"sender\":{}},");
    let lines =
        [event("start", &two), event("start", &one), event("end", &two), event("end", &one)];
    let tests = parse_tests(&[&lines.join("\n"), "\n", TCP].concat()).unwrap().tests;
    let said: Vec<String> = tests
        .iter()
        .map(|test| test.as_ref().map_or_else(ToString::to_string, |_| "read".to_owned()))
        .collect();
    assert_eq!(said.len(), 4, "{said:?}");
    assert!(said[0].starts_with("test 1: events of several clients are mixed"), "{said:?}");
    assert!(said[1].starts_with("test 2: its end has 2 streams and its start 1"), "{said:?}");
    assert!(said[2].starts_with("test 3: an `end` event without its `start`"), "{said:?}");
    assert_eq!(said[3], "read");
    // As many streams do not make it the right client's.
    let same = [event("start", TCP), event("start", TCP), event("end", TCP), event("end", TCP)];
    let mixed = parse_tests(&same.join("\n")).unwrap().tests;
    assert!(mixed.iter().all(Result::is_err), "{mixed:?}");
    assert!(mixed[1].as_ref().unwrap_err().to_string().contains("events of several clients"));
    let cut = [event("start", TCP), event("start", TCP), event("end", TCP)];
    assert!(parse_tests(&cut.join("\n")).unwrap().tests[1].is_ok());
}

#[test]
fn several_documents_and_event_streams_are_read() {
    assert_eq!(parse_tests(&format!("{TCP}\n{UDP}\n")).unwrap().tests.len(), 2);
    let whole: Value = serde_json::from_str(TCP).unwrap();
    let line =
        |event: &str, data: &Value| serde_json::json!({"event": event, "data": data}).to_string();
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
