//! iperf3's messages: states, parameters and results, as in `src/iperf_api.c` of iperf 3.1 to 3.21.
//! Pure parsers, which trust no value.

use latput_formats::iperf3::{read_count, read_number};
use latput_trial::workload::SocketOptions;
use latput_units::Bytes;
use serde_json::{Map, Value, json};

/// States of the control connection, one signed byte each (`src/iperf_api.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlState {
    /// 1: streams are about to begin.
    TestStart,
    /// 2: streams run.
    TestRunning,
    /// 4, from the client: its sending or receiving time is over.
    TestEnd,
    /// 9: the server waits for the parameters.
    ParamExchange,
    /// 10: the server waits for the streams.
    CreateStreams,
    /// 11: the server was stopped.
    ServerTerminate,
    /// 12, from the client: it was stopped.
    ClientTerminate,
    /// 13: results go both ways, the client's first.
    ExchangeResults,
    /// 14: the server is done.
    DisplayResults,
    /// 16, from the client: it is done.
    IperfDone,
    /// -1: another test is running.
    AccessDenied,
    /// -2: followed by an error number of iperf and one of the system.
    ServerError,
}

impl ControlState {
    const ALL: [(Self, i8); 12] = [
        (Self::TestStart, 1),
        (Self::TestRunning, 2),
        (Self::TestEnd, 4),
        (Self::ParamExchange, 9),
        (Self::CreateStreams, 10),
        (Self::ServerTerminate, 11),
        (Self::ClientTerminate, 12),
        (Self::ExchangeResults, 13),
        (Self::DisplayResults, 14),
        (Self::IperfDone, 16),
        (Self::AccessDenied, -1),
        (Self::ServerError, -2),
    ];

    /// The byte on the wire.
    pub fn to_byte(self) -> u8 {
        let (_, code) = Self::ALL.iter().find(|(state, _)| *state == self).expect("all are there");
        code.cast_unsigned()
    }

    /// The state that a byte names.
    pub fn from_byte(byte: u8) -> Option<Self> {
        let code = byte.cast_signed();
        Self::ALL.iter().find(|(_, known)| *known == code).map(|(state, _)| *state)
    }
}

/// The parameters of a test, as the client sends them.
#[derive(Clone, Debug, PartialEq)]
pub struct TestParameters<'a> {
    /// UDP, or TCP.
    pub udp: bool,
    /// Seconds of warm-up that both ends leave out.
    pub omit_s: u64,
    /// Duration at the client in seconds, rounded up.
    pub time_s: u64,
    /// Streams (each way, of a bidirectional test).
    pub parallel: u32,
    /// Whether the server sends.
    pub reverse: bool,
    /// Whether both ends send, on separate streams.
    pub bidirectional: bool,
    /// Size of one send or datagram.
    pub length: Bytes,
    /// Payload rate of one UDP stream in bit/s; 0 for no limit.
    pub bandwidth_bps: u64,
    /// Buffers and congestion control.
    pub sockets: &'a SocketOptions,
    /// The CPU to which the server binds itself.
    pub server_cpu: Option<u32>,
}

impl TestParameters<'_> {
    /// The JSON document.
    pub fn to_json(&self) -> String {
        let mut map = Map::new();
        let mut set = |key: &str, value: Value| drop(map.insert(key.to_owned(), value));
        set(if self.udp { "udp" } else { "tcp" }, json!(true));
        set("omit", json!(self.omit_s));
        set("time", json!(self.time_s));
        set("num", json!(0));
        set("blockcount", json!(0));
        set("parallel", json!(self.parallel));
        set("len", json!(self.length.get()));
        set("pacing_timer", json!(1000));
        set("client_version", json!(concat!("latput ", env!("CARGO_PKG_VERSION"))));
        if self.reverse {
            set("reverse", json!(true));
        }
        if self.bidirectional {
            set("bidirectional", json!(true));
        }
        if self.bandwidth_bps > 0 {
            set("bandwidth", json!(self.bandwidth_bps));
        }
        if self.udp {
            set("udp_counters_64bit", json!(1));
        }
        if let Some(bytes) = self.sockets.receive_buffer {
            set("window", json!(bytes.get()));
        }
        if let Some(name) = &self.sockets.congestion {
            set("congestion", json!(name));
        }
        if let Some(cpu) = self.server_cpu {
            set("server_affinity", json!(cpu));
        }
        Value::Object(map).to_string()
    }
}

/// The number of the `idx`th stream: 1, 3, 4, 5 ..., as `iperf_add_stream` counts.
pub const fn stream_id(idx: u64) -> u64 {
    if idx == 0 { 1 } else { idx + 2 }
}

/// This end's counts of one stream, which the server prints.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct OwnStream {
    /// Bytes sent or received after the warm-up.
    pub bytes: u64,
    /// Datagrams in the whole test.
    pub packets: u64,
    /// Seconds after the warm-up.
    pub seconds: f64,
}

/// The JSON document of this end's results.
pub fn own_results(streams: &[OwnStream], cpu_percent: f64) -> String {
    let streams: Vec<Value> = (0..)
        .zip(streams)
        .map(|(idx, stream)| {
            json!({
                "id": stream_id(idx),
                "bytes": stream.bytes,
                "retransmits": -1,
                "jitter": 0,
                "errors": 0,
                "omitted_errors": 0,
                "packets": stream.packets,
                "omitted_packets": 0,
                "start_time": 0,
                "end_time": stream.seconds,
            })
        })
        .collect();
    json!({
        "cpu_util_total": cpu_percent,
        "cpu_util_user": 0,
        "cpu_util_system": cpu_percent,
        "sender_has_retransmits": 0,
        "streams": streams,
    })
    .to_string()
}

/// The server's results of a test.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Iperf3Results {
    /// CPU time of the server's process over wall time, percent of one CPU: all, user, system.
    pub cpu_percent: Option<[f64; 3]>,
    /// Its streams, in the order in which they were opened.
    pub streams: Vec<StreamResult>,
}

/// The server's counts of one stream.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StreamResult {
    /// Bytes after the warm-up.
    pub bytes: u64,
    /// Retransmitted segments, if the server sent and its kernel has a count.
    pub retransmits: Option<u64>,
    /// Jitter in seconds (RFC 1889).
    pub jitter_s: f64,
    /// Datagrams missing by number, without those of the warm-up if the server reports them.
    pub lost: u64,
    /// Datagrams by number, with the same exception.
    pub packets: u64,
    /// Seconds after the warm-up.
    pub seconds: f64,
}

impl Iperf3Results {
    /// Parses the server's document. The error describes the problem.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        let document: Value = serde_json::from_slice(bytes)
            .map_err(|error| format!("its results are no JSON: {error}"))?;
        let streams = document["streams"].as_array().ok_or("its results have no streams")?;
        let percent = |key: &str| read_number(&document, key);
        let cpu_percent = percent("cpu_util_total")
            .zip(percent("cpu_util_user"))
            .zip(percent("cpu_util_system"))
            .map(|((total, user), system)| [total, user, system]);
        let streams = streams.iter().map(StreamResult::parse).collect::<Result<_, String>>()?;
        Ok(Self { cpu_percent, streams })
    }
}

impl StreamResult {
    fn parse(value: &Value) -> Result<Self, String> {
        let wanted = |key: &str| {
            read_count(value, key).ok_or_else(|| format!("a stream of its results has no `{key}`"))
        };
        let (packets, lost) = (wanted("packets")?, wanted("errors")?);
        let left_out =
            read_count(value, "omitted_packets").zip(read_count(value, "omitted_errors"));
        let (packets, lost) = left_out.map_or((packets, lost), |(omitted, omitted_errors)| {
            (packets.saturating_sub(omitted), lost.saturating_sub(omitted_errors))
        });
        let start = read_number(value, "start_time").unwrap_or(0.0);
        let end =
            read_number(value, "end_time").ok_or("a stream of its results has no `end_time`")?;
        Ok(Self {
            bytes: wanted("bytes")?,
            retransmits: read_count(value, "retransmits"),
            jitter_s: read_number(value, "jitter").unwrap_or(0.0),
            lost,
            packets,
            seconds: (end - start).max(0.0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Results that Debian's iperf 3.12 sent after a TCP test with one stream.
    const TCP: &str = r#"{"cpu_util_total":39.08,"cpu_util_user":1.87,"cpu_util_system":37.21,
        "sender_has_retransmits":1.8446744073709552e+19,"congestion_used":"bbr","streams":[{"id":1,
        "bytes":1481637888,"retransmits":1.8446744073709552e+19,"jitter":0,"errors":0,"packets":0,
        "start_time":0,"end_time":1.000764}]}"#;

    #[test]
    fn states_are_signed_bytes() {
        for (state, code) in ControlState::ALL {
            assert_eq!(ControlState::from_byte(state.to_byte()), Some(state), "{code}");
        }
        assert_eq!(ControlState::from_byte(0xff), Some(ControlState::AccessDenied));
        assert_eq!(ControlState::from_byte(0xfe), Some(ControlState::ServerError));
        for unknown in [0, 3, 5, 17, 0x80] {
            assert_eq!(ControlState::from_byte(unknown), None);
        }
    }

    #[test]
    fn debian_12_server_output_is_read() {
        let results = Iperf3Results::parse(TCP.as_bytes()).unwrap();
        assert_eq!(results.cpu_percent, Some([39.08, 1.87, 37.21]));
        let [stream] = results.streams.as_slice() else { panic!("{results:?}") };
        assert_eq!((stream.bytes, stream.retransmits), (1_481_637_888, None), "-1 is unknown");
        assert!((stream.seconds - 1.000_764).abs() < 1e-9);
    }

    #[test]
    fn warm_up_datagrams_are_left_out() {
        let text = |more: &str| {
            format!(
                r#"{{"streams":[{{"bytes":10,"packets":1250,"errors":5,"jitter":1e-5,"end_time":1{more}}}]}}"#
            )
        };
        let of = |more| Iperf3Results::parse(text(more).as_bytes()).unwrap().streams[0];
        assert_eq!((of("").packets, of("").lost), (1250, 5));
        let newer = of(r#","omitted_packets":625,"omitted_errors":5"#);
        assert_eq!((newer.packets, newer.lost), (625, 0));
        let hostile = of(r#","omitted_packets":99999,"omitted_errors":99999"#);
        assert_eq!((hostile.packets, hostile.lost), (0, 0));
    }

    #[test]
    fn hostile_results_are_refused_and_never_panic() {
        check_refused("", "no JSON");
        check_refused("[1,2", "no JSON");
        check_refused("{}", "no streams");
        check_refused(r#"{"streams":[1]}"#, "no `packets`");
        check_refused(r#"{"streams":[{"packets":-1,"errors":0}]}"#, "no `packets`");
        check_refused(r#"{"streams":[{"packets":"x"}]}"#, "no `packets`");
        check_refused(r#"{"streams":[{"packets":1,"errors":0,"bytes":1}]}"#, "no `end_time`");
        check_refused(
            r#"{"streams":[{"packets":1,"errors":0,"end_time":1,"bytes":1e300}]}"#,
            "bytes",
        );
        check_refused(&"[".repeat(10_000), "no JSON");
        for end in 0..TCP.len() {
            drop(Iperf3Results::parse(&TCP.as_bytes()[..end]));
        }
    }

    #[test]
    fn parameters_name_only_what_is_asked_for() {
        let sockets = SocketOptions::default();
        let mut parameters = TestParameters {
            udp: false,
            omit_s: 1,
            time_s: 2,
            parallel: 4,
            reverse: true,
            bidirectional: false,
            length: Bytes::new(32_768),
            bandwidth_bps: 0,
            sockets: &sockets,
            server_cpu: None,
        };
        let value: Value = serde_json::from_str(&parameters.to_json()).unwrap();
        assert_eq!((&value["tcp"], &value["reverse"]), (&json!(true), &json!(true)));
        assert_eq!((&value["parallel"], &value["omit"]), (&json!(4), &json!(1)));
        for absent in ["udp", "bidirectional", "window", "congestion", "bandwidth"] {
            assert_eq!(value.get(absent), None, "{absent}");
        }
        parameters.udp = true;
        let value: Value = serde_json::from_str(&parameters.to_json()).unwrap();
        assert_eq!((&value["udp"], &value["udp_counters_64bit"]), (&json!(true), &json!(1)));
    }

    #[test]
    fn streams_are_numbered_as_iperf3_does() {
        assert_eq!((0..5).map(stream_id).collect::<Vec<_>>(), [1, 3, 4, 5, 6]);
    }

    #[track_caller]
    fn check_refused(text: &str, part: &str) {
        let problem = Iperf3Results::parse(text.as_bytes()).unwrap_err();
        assert!(problem.contains(part), "{text}: {problem}");
    }
}
