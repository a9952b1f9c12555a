//! iperf3's JSON: one or several documents (`--json`), or lines of events (`--json-stream`).

use latput_trial::observation::{CpuMethod, ProgramCpu, Role, TrafficObservation};
use latput_trial::{Metric, Observation};
use latput_units::Nanos;
use serde_json::{Deserializer, Value};

use crate::parsed::{Problem, Test, workload};

/// Every test of a file.
pub(crate) fn tests(bytes: &[u8]) -> Result<Vec<Test>, Problem> {
    let mut tests = Vec::new();
    // `--json-stream` prints the parts of a test one after another.
    let mut streamed: Option<Value> = None;
    let text = std::str::from_utf8(bytes)
        .map_err(|error| Problem::new(format!("it is not text: {error}")))?;
    for value in Deserializer::from_str(text).into_iter::<Value>() {
        let value = value.map_err(|error| {
            let cut = if error.is_eof() { "it ends too early: " } else { "" };
            Problem::new(format!("{cut}{error}"))
        })?;
        let at = format!("test {}", tests.len() + 1);
        match value["event"].as_str() {
            None => tests.push(test(&value).map_err(|text| Problem::at(at, text))?),
            Some("start") => streamed = Some(serde_json::json!({ "start": value["data"] })),
            Some("end") => {
                let mut whole = streamed.take().ok_or_else(|| {
                    Problem::at(&at, "an `end` event without its `start`: the file is cut")
                })?;
                whole["end"] = value["data"].clone();
                tests.push(test(&whole).map_err(|text| Problem::at(at, text))?);
            }
            Some("error") => {
                let text = value["data"].as_str().unwrap_or("no reason is given");
                return Err(Problem::at(at, format!("the test failed: {text}")));
            }
            Some(_) => {}
        }
    }
    if streamed.is_some() {
        let at = format!("test {}", tests.len() + 1);
        return Err(Problem::at(at, "the `end` event is missing: the file is cut"));
    }
    Ok(tests)
}

fn test(value: &Value) -> Result<Test, String> {
    if let Some(text) = value["error"].as_str() {
        return Err(format!("the test failed: {text}"));
    }
    let (start, end) = (&value["start"], &value["end"]);
    let asked = &start["test_start"];
    let protocol = asked["protocol"]
        .as_str()
        .ok_or("it has no start.test_start.protocol: is it JSON of iperf3 3.1 or later?")?;
    let udp = match protocol {
        "TCP" => false,
        "UDP" => true,
        other => return Err(format!("latput has no workload for {other}")),
    };
    if end["streams"].as_array().is_none_or(Vec::is_empty) && end["sum_received"].is_null() {
        return Err("it has no figures of its end: the test was cut short".to_owned());
    }
    let both = end["sum_received_bidir_reverse"].is_object() || truth(&asked["bidir"]);
    let reverse = truth(&asked["reverse"]);
    let kind = match (udp, both, reverse) {
        (true, false, false) => "udp_stream",
        (true, ..) => return Err("latput has no workload for UDP from the server".to_owned()),
        (false, true, _) => "tcp_bidir",
        (false, false, true) => "tcp_maerts",
        (false, false, false) => "tcp_stream",
    };
    let mut observation = Observation { traffic: traffic(end, udp), ..Observation::default() };
    if both {
        let sum = |key: &str| number(&end[key], "bits_per_second");
        let parts = sum("sum_received").zip(sum("sum_received_bidir_reverse"));
        let (to, from) = parts.ok_or("it has no figures of both directions")?;
        observation.reported_metrics.insert(Metric::ThroughputBps, to + from);
        observation.reported_metrics.insert(Metric::ThroughputToSutBps, to);
        observation.reported_metrics.insert(Metric::ThroughputFromSutBps, from);
    }
    if udp {
        datagrams(end, &mut observation);
    }
    // The document of a server names the server itself as the host.
    let is_client = start["connecting_to"].is_object();
    let roles = if is_client { [Role::Generator, Role::Sut] } else { [Role::Sut, Role::Generator] };
    for (role, end_name) in roles.into_iter().zip(["host", "remote"]) {
        observation.programs.extend(cpu(end, role, end_name));
    }
    let fact = |key: &str| Some((key.to_owned(), start[key].as_str()?.to_owned()));
    Ok(Test {
        workload: workload(kind, &fields(asked, udp)?)?,
        started_unix_ms: started(&start["timestamp"]),
        observation,
        facts: ["version", "system_info"].into_iter().filter_map(fact).collect(),
        notes: Vec::new(),
    })
}

fn fields(asked: &Value, udp: bool) -> Result<Vec<(&'static str, String)>, String> {
    let whole = |key: &str| {
        asked[key].as_u64().ok_or_else(|| format!("its start.test_start has no number `{key}`"))
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

/// The sums of both ends. Before 3.7 UDP had one sum only, that of the sender.
fn traffic(end: &Value, udp: bool) -> TrafficObservation {
    let seconds = |sum: &Value| {
        let seconds = number(sum, "seconds").unwrap_or(0.0);
        Nanos::from_secs_f64(seconds)
    };
    let sent = if end["sum_sent"].is_object() { &end["sum_sent"] } else { &end["sum"] };
    let received = &end["sum_received"];
    let (sent_bytes, received_bytes) = (count(sent, "bytes"), count(received, "bytes"));
    TrafficObservation {
        sender_window: sent_bytes.map_or(Nanos::ZERO, |_| seconds(sent)),
        receiver_window: received_bytes.map_or(Nanos::ZERO, |_| seconds(received)),
        sent_bytes: sent_bytes.unwrap_or(0),
        received_bytes: received_bytes.unwrap_or(0),
        retransmits: count(sent, "retransmits").filter(|_| !udp),
        ..TrafficObservation::default()
    }
}

/// Reads loss and jitter, which are the receiver's in every version.
fn datagrams(end: &Value, observation: &mut Observation) {
    let sum = if end["sum_received"]["lost_percent"].is_number() {
        &end["sum_received"]
    } else {
        &end["sum"]
    };
    if let Some(percent) = number(sum, "lost_percent") {
        observation.reported_metrics.insert(Metric::LossRatio, (percent / 100.0).min(1.0));
    }
    if let Some(jitter_ms) = number(sum, "jitter_ms") {
        observation.reported_metrics.insert(Metric::JitterNs, jitter_ms * 1e6);
    }
}

fn cpu(end: &Value, role: Role, end_name: &str) -> Option<ProgramCpu> {
    let all = &end["cpu_utilization_percent"];
    let percent = |part: &str| number(all, &format!("{end_name}_{part}"));
    Some(process_cpu(role, percent("total")?, percent("user"), percent("system")))
}

fn started(timestamp: &Value) -> Option<u64> {
    let seconds = || timestamp["timesecs"].as_u64()?.checked_mul(1000);
    timestamp["timemillisecs"].as_u64().or_else(seconds).filter(|ms| *ms < 1 << 62)
}

/// A switch: a number, or a word in some versions.
fn truth(value: &Value) -> bool {
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
pub fn number(value: &Value, key: &str) -> Option<f64> {
    value[key].as_f64().filter(|number| (0.0..1e18).contains(number))
}

/// A count in iperf3's JSON. Before 3.14 it prints -1 for "unknown" as 2^64 - 1.
#[expect(clippy::cast_possible_truncation, reason = "bounded just before")]
pub fn count(value: &Value, key: &str) -> Option<u64> {
    const LARGEST: f64 = 9e15; // every whole number below is a float
    let known = |count: &u64| *count < u64::MAX / 2;
    value[key]
        .as_u64()
        .or_else(|| number(value, key).filter(|number| *number < LARGEST).map(|n| n as u64))
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
    fn a_tcp_test_has_both_ends_figures_and_their_cpu_by_its_method() {
        let test = one(TCP);
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
    fn a_server_document_has_the_ends_the_other_way_round() {
        let test = one(&TCP.replace("connecting_to", "accepted_connection"));
        assert_eq!(test.observation.programs[0].role, Role::Sut);
    }

    #[test]
    fn directions_are_told_apart() {
        assert_eq!(
            one(&TCP.replace("\"reverse\":0", "\"reverse\":1")).workload.traffic.kind(),
            "tcp_maerts"
        );
        let both = TCP
            .replace("\"cpu_", "\"sum_received_bidir_reverse\":{\"bits_per_second\":6000},\"cpu_");
        let test = one(&both);
        assert_eq!(test.workload.traffic.kind(), "tcp_bidir");
        assert_eq!(test.observation.reported_metrics.get(&Metric::ThroughputBps), Some(&10_000.0));
    }

    #[test]
    fn old_udp_has_a_loss_and_no_goodput() {
        let test = one(UDP);
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
    fn several_documents_and_event_streams_are_read() {
        assert_eq!(tests(format!("{TCP}\n{UDP}\n").as_bytes()).unwrap().len(), 2);
        let whole: Value = serde_json::from_str(TCP).unwrap();
        let line = |event: &str, data: &Value| {
            serde_json::json!({"event": event, "data": data}).to_string()
        };
        let start = line("start", &whole["start"]);
        let end = line("end", &whole["end"]);
        let interval = line("interval", &Value::Null);
        let text = format!("{start}\n{interval}\n{end}\n");
        assert_eq!(tests(text.as_bytes()).unwrap()[0].observation, one(TCP).observation);
        check_refused(&format!("{start}\n{interval}\n"), "test 1: ", "`end` event is missing");
        check_refused(&end, "test 1: ", "without its `start`");
        check_refused(&line("error", &"no route".into()), "test 1: ", "no route");
    }

    #[test]
    fn broken_documents_are_refused_with_the_place() {
        check_refused("{", "", "it ends too early: EOF while parsing an object at line 1 column 1");
        check_refused(&TCP[..TCP.len() / 2], "", "it ends too early");
        check_refused("{}", "test 1: ", "start.test_start.protocol");
        check_refused(r#"{"error":"unable to connect"}"#, "test 1: ", "the test failed: unable");
        check_refused(&format!("{UDP}{{\"start\":1}}"), "test 2: ", "protocol");
        check_refused(&TCP.replace("\"TCP\"", "\"SCTP\""), "test 1: ", "no workload for SCTP");
        check_refused(&TCP.replace("131072", "-5"), "test 1: ", "`blksize`");
        check_refused(&TCP.replace("131072", "99999999999"), "test 1: ", "message_bytes");
        check_refused(&"[".repeat(100_000), "", "recursion limit");
        check_refused("\u{fffd}", "", "expected value");
        assert!(tests(&[0xff, 0xfe]).is_err(), "no text");
        let hostile = TCP.replace("2.0", "1e999").replace("53.7", "-1");
        drop(tests(hostile.as_bytes()));
    }

    fn one(text: &str) -> Test {
        let mut tests = tests(text.as_bytes()).unwrap();
        assert_eq!(tests.len(), 1);
        tests.remove(0)
    }

    #[track_caller]
    fn check_refused(text: &str, place: &str, part: &str) {
        let problem = tests(text.as_bytes()).unwrap_err();
        assert!(problem.place == place && problem.text.contains(part), "{problem:?}");
    }
}
