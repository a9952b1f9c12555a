//! The messages over an agent's stdin and stdout: one JSON document a line, a request and then its
//! answer, bounded in length, versioned.

use std::io::{self, BufRead, Write};
use std::sync::LazyLock;
use std::time::Duration;

use latput_knobs::{ChangeOutcome, Knob, Refusal, Setting, State};
use latput_linux::look::LookTexts;
use latput_load::{Key, ProbeOutcome, ReceiverOutcome, SenderOutcome, SliceLayout};
use latput_peers::{Peer, PeerResult};
use latput_trial::nic::Nic;
use latput_trial::observation::{HostObservation, Role};
use latput_trial::overrun::ReceiveSide;
use latput_trial::results::HostFacts;
use latput_trial::{Probe, Surroundings, Workload};
use latput_units::{CpuSet, Nanos};
use rustix::rand::GetRandomFlags;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::host_view::HostView;
use crate::live::{LiveBlock, LiveSeen};
use crate::text::replace_control_chars;

/// Version of the protocol; both ends must have the same.
pub const SCHEMA: u32 = 22;
/// Most bytes of a request, and of an answer to [`Request::Go`], [`Request::Peer`], [`Request::Live`], [`Request::Read`],
/// [`Request::Record`] or [`Request::Survey`]. The largest valid answer is a stint of slices, each with its histogram: some
/// 10 KB a slice.
pub const MAX_LINE_BYTES: usize = 16 << 20;
/// Most bytes of an answer to any other request. The largest valid one explains why values of
/// thousands of queues could not be put back.
pub const MAX_ANSWER_BYTES: usize = 1 << 20;
/// Default lease: after this time without a message from its controller an agent puts its host back
/// and ends.
pub const LEASE: Nanos = Nanos::from_s(10);

/// Most time to wait for a link that went down: the negotiation of 10GBASE-T takes some 5 s, a
/// switch port with spanning tree 30 s.
pub const LINK_WITHIN: Duration = Duration::from_secs(30);

/// Length of the span in which an end traces CPU time before a slice, with attaching and detaching.
pub const TURN: Nanos = Nanos::from_ms(24);

/// The rounds of a stint that have such a span before their slices: one for the system under test, one for all others.
pub const TRACED_ROUNDS: u32 = 2;

/// Why a window may end before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EarlyEnd {
    /// It does not.
    Never,
    /// The traffic has a count: the window ends with it, 0.6% late at most, or 15 ms.
    AtCount,
    /// The traffic may break. Then nothing is measured any more, and nothing is gained by looking often.
    AtBreak,
}

impl EarlyEnd {
    /// Time to the next look whether it is there, `elapsed` after the first. A look takes CPU time from the traffic.
    /// Three processes look, one after the other: so a window that ends with a count ends 0.6% late at most, or 15 ms.
    pub fn next_look(self, elapsed: Nanos) -> Nanos {
        let (soonest, latest) = (Nanos::from_ms(5), Nanos::from_ms(50));
        match self {
            Self::Never | Self::AtBreak => latest,
            Self::AtCount => Nanos::from_ns(elapsed.as_ns() / 500).clamp(soonest, latest),
        }
    }
}

/// A message from controller to agent.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// Look at the host; before [`Request::Open`], any number of times.
    Look(InspectRequest),
    /// Record what a diagnosis reads of the host and one of its interfaces; before [`Request::Open`], any number of times.
    Record {
        /// The interface.
        interface: String,
    },
    /// Open the host; before all requests that follow.
    Open(OpenRequest),
    /// Answer once the interface's link is up, if it was up at the start: a cable may be pulled,
    /// and some knobs take a link down for seconds.
    Link,
    /// Read knobs.
    Read {
        /// The knobs.
        knobs: Vec<Knob>,
    },
    /// Tell what the interface is, and what can be set of it.
    Survey,
    /// Watch the host, which has no traffic of a trial, and tell what could disturb one.
    Watch {
        /// How long.
        span: Nanos,
    },
    /// Set knobs, in the session that is put back at the end.
    Set {
        /// The wanted values; may be empty.
        setting: Setting,
    },
    /// Check whether knobs could be set, without a write.
    Rehearse {
        /// The wanted values.
        setting: Setting,
    },
    /// Answer at once with `CLOCK_MONOTONIC`; also before [`Request::Open`].
    Clock,
    /// Be the far end of the next traffic: open a data port for each generator.
    Receive {
        /// The part of each generator.
        parts: Vec<GeneratorPart>,
    },
    /// Be the near end of the next traffic: connect.
    Send {
        /// The traffic to make, and the probe beside it.
        workload: Workload,
        /// The key of the connections.
        key: Key,
        /// Address of the far end's interface.
        peer: std::net::IpAddr,
        /// The far end's data port.
        port: u16,
    },
    /// Send the next trial's probe from this host, which has no traffic.
    Probe {
        /// The probe.
        probe: Probe,
        /// Address of its target.
        peer: std::net::IpAddr,
    },
    /// Start the traffic and the counters, or only the counters if no traffic was prepared.
    Go {
        /// Start on this host's own `CLOCK_MONOTONIC`.
        at: Nanos,
        /// Duration of traffic before the window.
        warmup: Nanos,
        /// Duration of the window.
        duration: Nanos,
        /// Report each interval of the window with [`Answer::Progress`]; `None` means no reports.
        interval: Option<Nanos>,
        /// Settings that take turns in the window; its length is then theirs.
        turns: Option<SettingTurns>,
        /// Whether [`Request::EndWindow`] may come, and how soon it is to be heard.
        early_end: EarlyEnd,
    },
    /// End the window of the last [`Request::Go`] now; it has no answer of its own. The traffic of this window is not the
    /// agent's.
    EndWindow,
    /// Make the traffic of a trial with a third-party program at the far end, and count over its window.
    Peer(Box<PeerTrial>),
    /// Count live traffic under today's setting, under another, and under today's again.
    Live(Box<LiveBlock>),
    /// Drop the prepared traffic.
    Abort,
    /// The controller is alive; sent three times in each lease. An agent answers [`Answer::Alive`]
    /// at once, whatever it is doing.
    Ping,
    /// Put every knob back and end.
    Close,
}

impl Request {
    /// Whether it may change knobs.
    pub fn changes_knobs(&self) -> bool {
        match self {
            Self::Set { setting } => !setting.is_empty(),
            Self::Live(block) => !block.setting.is_empty(),
            Self::Go { turns, .. } => {
                turns.iter().flat_map(|turns| &turns.settings).any(|setting| !setting.is_empty())
            }
            _ => false,
        }
    }

    /// Most bytes of the lines before the next request.
    pub const fn max_answer_bytes(&self) -> usize {
        match self {
            Self::Go { .. }
            | Self::Peer(_)
            | Self::Live(_)
            | Self::Read { .. }
            | Self::Record { .. }
            | Self::Survey => MAX_LINE_BYTES,
            _ => MAX_ANSWER_BYTES,
        }
    }
}

/// Settings that take turns while traffic flows, one in each slice of the window.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SettingTurns {
    /// The layout of the slices.
    pub slices: SliceLayout,
    /// This host's part of each setting; empty if it is left alone.
    pub settings: Vec<Setting>,
    /// For each slice, the index of its setting in `settings`.
    pub order: Vec<usize>,
}

impl SettingTurns {
    /// Whether each slice has a setting.
    pub fn is_whole(&self) -> bool {
        usize::try_from(self.slices.count).is_ok_and(|count| count == self.order.len())
            && self.order.iter().all(|&turn| turn < self.settings.len())
    }
}

/// One generator's traffic, as the far end expects it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GeneratorPart {
    /// The traffic to expect.
    pub workload: Workload,
    /// The key that a connection must prove.
    pub key: Key,
}

/// A trial with a third-party program at the far end.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PeerTrial {
    /// The program.
    pub peer: Peer,
    /// Its address.
    pub address: std::net::SocketAddr,
    /// The traffic to make.
    pub workload: Workload,
    /// Duration of traffic before the window.
    pub warmup: Nanos,
    /// Duration of the window.
    pub duration: Nanos,
}

/// One end of a trial with a third-party program, and what that program told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PeerFinished {
    /// The traffic, and the program's own figures.
    pub result: PeerResult,
    /// The counters of this host.
    pub host: HostObservation,
    /// Knobs that changed during the trial, in sentences.
    pub drift: Vec<String>,
}

/// Scope of a look at a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InspectRequest {
    /// [`SCHEMA`] of the controller.
    pub schema: u32,
    /// Version of the controller, for messages.
    pub version: String,
    /// Addresses to say the way to.
    pub toward: Vec<std::net::IpAddr>,
    /// Say of this interface which knobs can be set, and how busy the host is.
    pub interface: Option<String>,
}

/// The role and the limits of an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpenRequest {
    /// [`SCHEMA`] of the controller.
    pub schema: u32,
    /// Version of the controller, for messages.
    pub version: String,
    /// The controller, by which the agent's changes are known.
    pub controller: ControllerId,
    /// The host's name in the testbed.
    pub host: String,
    /// Its role.
    pub role: Role,
    /// The measured interface.
    pub interface: String,
    /// The address that the data ports are bound to.
    pub address: std::net::IpAddr,
    /// This host's CPUs; `None` means all.
    pub cpus: Option<CpuSet>,
    /// Whether the interface's NAPI threads are bound to the host's CPUs; new threads start
    /// unbound.
    pub binds_napi_threads: bool,
    /// Whether knobs will be set; only then are privileges and the checkpoint needed.
    pub will_set: bool,
    /// Whether settings may take the interface's link down and up.
    pub link_reset: LinkReset,
    /// Lease: after this time without a message the agent puts its host back and ends.
    pub lease: Nanos,
}

/// Number of a controller: two on one host put back only what their own agents have changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ControllerId(u64);

impl ControllerId {
    /// The number of this process, drawn once.
    ///
    /// # Panics
    ///
    /// The kernel gives no random bytes.
    pub fn of_this_process() -> Self {
        static DRAWN: LazyLock<ControllerId> = LazyLock::new(|| {
            let mut bytes = [0; 8];
            let filled = rustix::rand::getrandom(&mut bytes, GetRandomFlags::empty());
            assert_eq!(filled, Ok(bytes.len()), "getrandom(2) gives up to 256 bytes at once");
            ControllerId(u64::from_ne_bytes(bytes))
        });
        *DRAWN
    }

    /// Name of its agents in their checkpoints, as `--made-by` takes it: `agent/0123456789abcdef`.
    pub fn agents_name(self) -> String {
        format!("agent/{:016x}", self.0)
    }
}

/// Whether settings may take a link down and up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkReset {
    /// They may not.
    #[default]
    Refused,
    /// They may, unless the link carries the control connection.
    Allowed,
    /// They may, even if the link carries the control connection.
    AllowedOnControl,
}

/// A message from agent to controller.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Answer {
    /// Answer to [`Request::Look`].
    Seen(Box<HostView>),
    /// Answer to [`Request::Record`].
    Recorded {
        /// `CLOCK_MONOTONIC` of this host at the beginning of the look.
        at: Nanos,
        /// The texts of files and of tools' outputs, by name.
        texts: LookTexts,
    },
    /// Answer to [`Request::Open`].
    Opened(Box<AgentInfo>),
    /// Answer to [`Request::Link`]: the link is up, or was down at the start.
    Linked,
    /// Answer to [`Request::Read`].
    Values {
        /// The values; a knob that cannot be read is absent.
        values: State,
    },
    /// Answer to [`Request::Survey`].
    Surveyed(Box<Nic>),
    /// Answer to [`Request::Watch`].
    Watched(Box<Surroundings>),
    /// Answer to [`Request::Set`]: every value was read back.
    Set,
    /// Answer to [`Request::Rehearse`]: nothing stands against it.
    Rehearsed,
    /// Answer to [`Request::Clock`].
    Clock {
        /// `CLOCK_MONOTONIC` of this host.
        now: Nanos,
    },
    /// Answer to [`Request::Receive`].
    Listening {
        /// The data port of each part, in the parts' order.
        ports: Vec<u16>,
    },
    /// Answer to [`Request::Send`]: connected and accepted.
    Connected,
    /// Answer to [`Request::Probe`]: the socket is open.
    Probing,
    /// Report on an interval during [`Request::Go`], before it has finished.
    Progress(HostInterval),
    /// Answer to [`Request::Go`], after the window and its drain.
    Finished(Box<HostTrialResult>),
    /// Answer to [`Request::Peer`], after the window and the program's results.
    PeerFinished(Box<PeerFinished>),
    /// Answer to [`Request::Peer`]: there was no trial with the program. This host is ready for another.
    PeerFailed(Failure),
    /// Answer to [`Request::Live`]. Today's setting is in force.
    Lived(Box<LiveSeen>),
    /// Answer to [`Request::Abort`].
    Aborted,
    /// Answer to [`Request::Ping`].
    Alive,
    /// Answer to [`Request::Close`], also sent before the agent ends for any other reason: every
    /// knob has its old value, or one that somebody else set.
    Closed {
        /// The reason, in words that follow "it ended because".
        why: String,
        /// Knobs that were left to somebody else since the last report, in sentences.
        #[serde(default)]
        left: Vec<String>,
    },
    /// The request failed.
    Failed(Failure),
}

/// The facts of an agent and its host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentInfo {
    /// [`SCHEMA`] of the agent.
    pub schema: u32,
    /// Version of the agent.
    pub version: String,
    /// The kernel's boot id: two hosts with the same one share a kernel.
    pub boot_id: String,
    /// Identity of its `CLOCK_MONOTONIC`: the boot id and the time namespace. Hosts with the same
    /// one share a clock.
    pub clock: String,
    /// This host's CPUs.
    pub cpus: CpuSet,
    /// Facts for the report.
    pub facts: HostFacts,
    /// The interface's receive side before any change.
    pub receive: ReceiveSide,
    /// Functions that are missing on this host, in sentences: no NAPI tracing, no CPU binding.
    pub notes: Vec<String>,
}

/// The identity of this process's `CLOCK_MONOTONIC`: that of its kernel, shifted by its time
/// namespace (`time_namespaces(7)`). A kernel without such namespaces has one clock for all.
pub fn clock_id(boot_id: &str) -> String {
    let namespace = std::fs::read_link("/proc/self/ns/time");
    let namespace = namespace.map_or_else(|_| String::new(), |link| link.display().to_string());
    format!("{boot_id} {namespace}").trim_end().to_owned()
}

/// One host's part of an interval of a running trial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostInterval {
    /// Its number, from 0.
    pub number: u32,
    /// Its end, after the start of the window.
    pub end: Nanos,
    /// Its length.
    pub length: Nanos,
    /// Units of work done in it, if this host makes the traffic: transactions, messages, datagrams,
    /// objects, reads.
    pub units: Option<u64>,
    /// Packets in.
    pub rx_packets: u64,
    /// Packets out.
    pub tx_packets: u64,
}

/// One host's part of a trial, or of each slice of one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostTrialResult {
    /// One for each slice of the window; one for a window without slices.
    pub slices: Vec<HostSlice>,
    /// Delay of the start request after this host's window began; zero if in time.
    pub late: Nanos,
    /// Knobs that changed during the trial, in sentences.
    pub drift: Vec<String>,
    /// Quotas and heat that held the host back, in sentences.
    pub held_back: Vec<String>,
    /// Knobs that were left to somebody else since the last report, in sentences.
    pub left: Vec<String>,
}

/// The counts of one host in a slice.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostSlice {
    /// The counters of the measured part.
    pub host: HostObservation,
    /// Duration of the change to the slice's setting, from the slice's start; zero without a
    /// change.
    pub change: Nanos,
    /// Counts of the sending end.
    pub sender: Option<SenderOutcome>,
    /// Counts of the receiving end: one for each prepared part, in their order.
    pub receivers: Vec<ReceiverOutcome>,
    /// Counts of a host that only probed.
    pub probe: Option<ProbeOutcome>,
}

/// The reason why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Failure {
    /// The outcome for the host.
    pub outcome: ChangeOutcome,
    /// Whether only the traffic broke, so that the host is ready for another trial.
    pub is_transient: bool,
    /// The message for people.
    pub message: String,
}

/// A line that is no valid message.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    /// The other end closed the line.
    #[error("the other end closed the line")]
    Closed,
    /// The line is longer than the limit.
    #[error("a line of more than {limit} bytes, which is more than any honest message has")]
    TooLong {
        /// The limit, in bytes.
        limit: usize,
    },
    /// The other end, or the connection to it, has stopped.
    #[error("nothing for {0}")]
    Silent(Nanos),
    /// The message is of another version of latput.
    #[error(
        "a message of latput {version}, which speaks schema {schema}, and this one speaks {SCHEMA}"
    )]
    OtherVersion {
        /// Schema of the other end.
        schema: u32,
        /// Version of the other end.
        version: String,
    },
    /// The message does not fit the schema.
    #[error("a line that is not a message of schema {SCHEMA}: {problem} in `{start}`")]
    Malformed {
        /// The parser's message.
        problem: String,
        /// The start of the line.
        start: String,
    },
    /// Reading or writing the pipe failed.
    #[error("reading or writing the control line")]
    Io(#[source] io::Error),
}

/// Encodes one message as a line.
pub fn encode_line<T: Serialize>(message: &T) -> Vec<u8> {
    let mut line = serde_json::to_vec(message).expect("no message has a part that JSON has not");
    line.push(b'\n');
    line
}

/// Writes one message and flushes it.
pub fn write_line<T: Serialize>(to: &mut impl Write, message: &T) -> Result<(), LineError> {
    to.write_all(&encode_line(message)).and_then(|()| to.flush()).map_err(|error| {
        match error.kind() {
            io::ErrorKind::BrokenPipe => LineError::Closed,
            _ => LineError::Io(error),
        }
    })
}

/// Reads one message of [`MAX_LINE_BYTES`] at most.
pub fn read_line<T: DeserializeOwned>(from: &mut impl BufRead) -> Result<T, LineError> {
    read_line_within(from, || MAX_LINE_BYTES)
}

/// Reads one message. `limit` gives its most bytes, each time more bytes arrive.
pub fn read_line_within<T: DeserializeOwned>(
    from: &mut impl BufRead,
    limit: impl Fn() -> usize,
) -> Result<T, LineError> {
    let mut line = Vec::new();
    while line.last() != Some(&b'\n') {
        let available = match from.fill_buf() {
            Ok(available) => available,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(LineError::Io(error)),
        };
        if available.is_empty() {
            // A line that is cut in the middle means that the other end is gone.
            return Err(LineError::Closed);
        }
        let end = available.iter().position(|&byte| byte == b'\n').map(|at| at + 1);
        let taken = end.unwrap_or(available.len());
        let limit = limit();
        if line.len() + taken > limit {
            return Err(LineError::TooLong { limit });
        }
        line.extend_from_slice(&available[..taken]);
        from.consume(taken);
    }
    serde_json::from_slice(&line).map_err(|error| {
        other_version(&line).unwrap_or_else(|| LineError::Malformed {
            problem: error.to_string(),
            start: replace_control_chars(
                String::from_utf8_lossy(&line[..line.len().min(80)]).trim_end(),
            ),
        })
    })
}

/// The schema in the first message of either end, which every version sends. Its other fields may
/// be unknown here.
fn other_version(line: &[u8]) -> Option<LineError> {
    #[derive(Deserialize)]
    struct FirstMessage {
        #[serde(alias = "opened")]
        open: Version,
    }
    #[derive(Deserialize)]
    struct Version {
        schema: u32,
        version: String,
    }
    let first = serde_json::from_slice(line).map(|FirstMessage { open }| open);
    // Schemas up to 15 have the fields beside the message's name.
    let Version { schema, version } = first.or_else(|_| serde_json::from_slice(line)).ok()?;
    let version = replace_control_chars(&version).chars().take(40).collect();
    (schema != SCHEMA).then_some(LineError::OtherVersion { schema, version })
}

/// A failure that left the host unchanged.
pub fn make_failure(message: impl Into<String>) -> Failure {
    failure_with_outcome(ChangeOutcome::Refused(Refusal::Failure), message)
}

/// A failure that is not transient.
pub fn failure_with_outcome(outcome: ChangeOutcome, message: impl Into<String>) -> Failure {
    Failure { outcome, is_transient: false, message: message.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_survives_the_line() {
        let mut bytes = Vec::new();
        write_line(&mut bytes, &Request::Abort).unwrap();
        write_line(&mut bytes, &Answer::Listening { ports: vec![7, 8] }).unwrap();
        let mut from = bytes.as_slice();
        assert!(matches!(read_line(&mut from), Ok(Request::Abort)));
        let answer = read_line::<Answer>(&mut from).unwrap();
        assert_eq!(answer, Answer::Listening { ports: vec![7, 8] });
        assert!(matches!(read_line::<Answer>(&mut from), Err(LineError::Closed)));
    }

    #[test]
    fn count_end_is_checked_ever_less_often() {
        let next = |end: EarlyEnd, ms| end.next_look(Nanos::from_ms(ms)).as_ns() / 1_000_000;
        assert_eq!([0, 1_000, 5_000, 60_000].map(|ms| next(EarlyEnd::AtCount, ms)), [5, 5, 10, 50]);
        assert_eq!([0, 60_000].map(|ms| next(EarlyEnd::AtBreak, ms)), [50, 50]);
    }

    #[test]
    fn garbage_and_cut_lines_are_refused() {
        assert_line_error("hello\n", "malformed");
        assert_line_error("{\"set\":{\"setting\":{},\"more\":1}}\n", "malformed");
        assert_line_error("{\"set\":{}}\n", "malformed");
        assert_line_error("\"reboot\"\n", "malformed");
        assert_line_error("\"abort\"", "closed");
        assert_line_error("", "closed");
    }

    #[test]
    fn other_version_differs_from_garbage() {
        let of_99 = "{\"schema\":99,\"version\":\"9.1\",\"new\":[]}";
        for end in ["open", "opened"] {
            assert_line_error(&format!("{{\"{end}\":{of_99}}}\n"), "schema 99");
        }
        assert_line_error(&format!("{of_99}\n"), "schema 99");
        let same = format!("{{\"schema\":{SCHEMA},\"version\":\"9.1\"}}");
        assert_line_error(&format!("{{\"open\":{same}}}\n"), "malformed");
        assert_line_error(&format!("{same}\n"), "malformed");
        assert_line_error("{\"open\":{\"schema\":-1,\"version\":\"9.1\"}}\n", "malformed");
    }

    #[test]
    fn line_without_end_is_refused_at_the_limit() {
        let mut endless = io::BufReader::new(io::repeat(b'x'));
        let too_long = |error: &LineError, most| matches!(error, LineError::TooLong { limit } if *limit == most);
        let error = read_line::<Request>(&mut endless).unwrap_err();
        assert!(too_long(&error, MAX_LINE_BYTES), "{error}");
        let error = read_line_within::<Request>(&mut endless, || 1000).unwrap_err();
        assert!(too_long(&error, 1000) && error.to_string().contains("1000 bytes"), "{error}");
        let whole = encode_line(&Request::Abort);
        assert!(read_line_within::<Request>(&mut whole.as_slice(), || whole.len()).is_ok());
        let short = read_line_within::<Request>(&mut whole.as_slice(), || whole.len() - 1);
        assert!(too_long(&short.unwrap_err(), whole.len() - 1));
    }

    #[track_caller]
    fn assert_line_error(line: &str, expected: &str) {
        let found = match read_line::<Request>(&mut line.as_bytes()) {
            Err(LineError::Malformed { .. }) => "malformed",
            Err(LineError::Closed) => "closed",
            Err(LineError::OtherVersion { schema: 99, .. }) => "schema 99",
            other => panic!("{other:?}"),
        };
        assert_eq!(found, expected, "{line}");
    }
}
