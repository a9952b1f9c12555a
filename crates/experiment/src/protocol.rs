//! What goes over an agent's stdin and stdout: one JSON document a line, a request and then its
//! answer, bounded in length, versioned.

use std::io::{self, BufRead, Write};

use latput_knobs::{ChangeOutcome, Refusal, Setting};
use latput_load::{Key, ProbeOutcome, ReceiverOutcome, SenderOutcome, Slices};
use latput_trial::observation::{HostObservation, Role};
use latput_trial::overrun::ReceiveSide;
use latput_trial::results::HostFacts;
use latput_trial::{Probe, Workload};
use latput_units::{CpuSet, Nanos};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::interval::HostInterval;

/// Both ends must speak the same.
pub const SCHEMA: u32 = 7;
/// A longer request is refused, and a longer answer to [`Request::Go`]; the largest honest one is a stint of
/// slices, each with its histogram: some 10 KB a slice.
pub const MAX_LINE_BYTES: usize = 16 << 20;
/// A longer answer to any other request is refused. The largest honest one says why values of thousands of
/// queues could not be put back.
pub const MAX_ANSWER_BYTES: usize = 1 << 20;
/// An agent that hears nothing from its controller for so long puts its host back and ends, unless the testbed
/// says another time.
pub const LEASE: Nanos = Nanos::from_s(10);

/// Controller to agent.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// First of all: what this agent is to be.
    Open(Open),
    /// Answer once the interface's link is up, if it was when the agent began: a cable may be pulled, and some
    /// knobs take a link down for seconds.
    Link,
    /// Set knobs, as part of the one session that is put back at the end.
    Set {
        /// What is wanted; may be empty.
        setting: Setting,
    },
    /// Tell what `CLOCK_MONOTONIC` says, at once.
    Clock,
    /// Be the far end of the next traffic: open a data port for each generator.
    Receive {
        /// What to expect of each.
        parts: Vec<Part>,
    },
    /// Be the near end of the next traffic: connect.
    Send {
        /// What to make, and the probe beside it.
        workload: Workload,
        /// What to show.
        key: Key,
        /// Address of the far end's interface.
        peer: std::net::IpAddr,
        /// The far end's data port.
        port: u16,
    },
    /// Send the next trial's probe from here, where there is no traffic.
    Probe {
        /// What to send.
        probe: Probe,
        /// Where to.
        peer: std::net::IpAddr,
    },
    /// Start the traffic and the counters; where no traffic was prepared, the counters alone.
    Go {
        /// When, on this host's own `CLOCK_MONOTONIC`.
        at: Nanos,
        /// Traffic before the window.
        warmup: Nanos,
        /// The window.
        duration: Nanos,
        /// Tell of each interval of the window with [`Answer::Progress`]; `None`: of nothing.
        interval: Option<Nanos>,
        /// Settings that take turns in the window, whose length is then theirs.
        turns: Option<Turns>,
    },
    /// Forget the traffic that was prepared.
    Abort,
    /// The controller lives; sent three times in each lease. An agent answers [`Answer::Alive`] at once,
    /// whatever it is doing.
    Ping,
    /// Put every knob back and end.
    Close,
}

impl Request {
    /// Whether knobs may be changed by it.
    pub fn changes_knobs(&self) -> bool {
        match self {
            Self::Set { setting } => !setting.is_empty(),
            Self::Go { turns, .. } => {
                turns.iter().flat_map(|turns| &turns.settings).any(|setting| !setting.is_empty())
            }
            _ => false,
        }
    }

    /// The longest line that may come before the next request, in bytes.
    pub const fn max_answer_bytes(&self) -> usize {
        match self {
            Self::Go { .. } => MAX_LINE_BYTES,
            _ => MAX_ANSWER_BYTES,
        }
    }
}

/// Settings that take turns while traffic flows, one in each slice of the window.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Turns {
    /// How the window is cut.
    pub slices: Slices,
    /// What this host is set to; empty where it is left as it is.
    pub settings: Vec<Setting>,
    /// For each slice, the place of its setting in `settings`.
    pub order: Vec<usize>,
}

impl Turns {
    /// Whether each slice has a setting.
    pub fn is_whole(&self) -> bool {
        usize::try_from(self.slices.count).is_ok_and(|count| count == self.order.len())
            && self.order.iter().all(|&turn| turn < self.settings.len())
    }
}

/// One generator's traffic, as the far end expects it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// What to expect.
    pub workload: Workload,
    /// What a connection must show.
    pub key: Key,
}

/// What an agent is to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Open {
    /// [`SCHEMA`] of the controller.
    pub schema: u32,
    /// Version of the controller, for messages.
    pub version: String,
    /// The host's name in the testbed.
    pub host: String,
    /// Its role.
    pub role: Role,
    /// The measured interface.
    pub interface: String,
    /// The address that the data ports are bound to.
    pub address: std::net::IpAddr,
    /// The CPUs that are this host's; `None`: all.
    pub cpus: Option<CpuSet>,
    /// Whether the interface's NAPI threads are held to the host's CPUs; they start unbound whenever
    /// they are made anew.
    pub binds_napi_threads: bool,
    /// Whether knobs will be set: only then are privileges and the checkpoint needed.
    pub will_set: bool,
    /// Whether settings may take the interface's link down and up.
    pub link_reset: LinkReset,
    /// The agent puts its host back and ends when it hears nothing for so long.
    pub lease: Nanos,
}

/// Whether settings may take a link down and up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkReset {
    /// No.
    #[default]
    Refused,
    /// Yes, unless it carries the connection that the agent is led through.
    Allowed,
    /// Also then.
    AllowedOnControl,
}

/// Agent to controller.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case", deny_unknown_fields)]
pub enum Answer {
    /// To [`Request::Open`].
    Opened(Box<Opened>),
    /// To [`Request::Link`]: it is up, or was not to begin with.
    Linked,
    /// To [`Request::Set`]: every value was read back.
    Set,
    /// To [`Request::Clock`].
    Clock {
        /// `CLOCK_MONOTONIC` of this host.
        now: Nanos,
    },
    /// To [`Request::Receive`].
    Listening {
        /// The data port of each part, in their order.
        ports: Vec<u16>,
    },
    /// To [`Request::Send`]: connected and accepted.
    Connected,
    /// To [`Request::Probe`]: the socket is open.
    Probing,
    /// To [`Request::Go`] as well, unasked, for each interval before it has finished.
    Progress(HostInterval),
    /// To [`Request::Go`], after the window and its drain.
    Finished(Box<Finished>),
    /// To [`Request::Abort`].
    Aborted,
    /// To [`Request::Ping`].
    Alive,
    /// To [`Request::Close`], and before the agent ends for any other reason: everything is as it was, or as
    /// somebody else wants it.
    Closed {
        /// Why, in words that follow "it ended because".
        why: String,
        /// Knobs that were left to somebody else since this was last told, in sentences.
        #[serde(default)]
        left: Vec<String>,
    },
    /// The request was not done.
    Failed(Failure),
}

/// What an agent is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Opened {
    /// [`SCHEMA`] of the agent.
    pub schema: u32,
    /// Version of the agent.
    pub version: String,
    /// The kernel's boot id: two hosts with the same one share a kernel.
    pub boot_id: String,
    /// Two hosts with the same one share a `CLOCK_MONOTONIC`: the boot id and the time namespace.
    pub clock: String,
    /// The CPUs that count as this host's.
    pub cpus: CpuSet,
    /// For the report.
    pub facts: HostFacts,
    /// What the interface can receive; before anything is set.
    pub receive: ReceiveSide,
    /// What this agent cannot do here, in sentences: no NAPI tracing, no CPU binding.
    pub notes: Vec<String>,
}

/// One host's part of a trial, or of each slice of one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Finished {
    /// One for each slice of the window; one for a window without slices.
    pub slices: Vec<HostSlice>,
    /// How long after its window began this host was told to start; zero if in time.
    pub late: Nanos,
    /// Knobs that changed during the trial, in sentences.
    pub drift: Vec<String>,
    /// Knobs that were left to somebody else since this was last told, in sentences.
    pub left: Vec<String>,
}

/// What one host counted in a slice.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostSlice {
    /// The counters of the measured part.
    pub host: HostObservation,
    /// How long the change to the slice's setting took, from the slice's start; zero where nothing changed.
    pub change: Nanos,
    /// From the end that sent.
    pub sender: Option<SenderOutcome>,
    /// From the end that received: one for each part that was prepared, in their order.
    pub receivers: Vec<ReceiverOutcome>,
    /// From a host that only probed.
    pub probe: Option<ProbeOutcome>,
}

/// Why a request was not done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Failure {
    /// What became of the host.
    pub outcome: ChangeOutcome,
    /// Whether only the traffic broke, and the host is ready for another trial.
    pub is_transient: bool,
    /// For people.
    pub message: String,
}

/// A line that is no message.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    /// The other end is gone.
    #[error("the other end closed the line")]
    Closed,
    /// More than the limit without an end.
    #[error("a line of more than {limit} bytes, which is more than any honest message has")]
    TooLong {
        /// The most that is read.
        limit: usize,
    },
    /// The other end, or the way to it, is stopped.
    #[error("nothing for {0}")]
    Silent(Nanos),
    /// A message of another latput.
    #[error(
        "a message of latput {version}, which speaks schema {schema}, and this one speaks {SCHEMA}"
    )]
    OtherVersion {
        /// The schema that the other end speaks.
        schema: u32,
        /// Its version.
        version: String,
    },
    /// Not a message of this schema.
    #[error("a line that is not a message of schema {SCHEMA}: {problem} in `{start}`")]
    Malformed {
        /// What the parser says.
        problem: String,
        /// How the line starts.
        start: String,
    },
    /// The pipe itself.
    #[error("reading or writing the control line")]
    Io(#[source] io::Error),
}

/// One message as the bytes of a line.
pub fn line<T: Serialize>(message: &T) -> Vec<u8> {
    let mut line = serde_json::to_vec(message).expect("no message has a part that JSON has not");
    line.push(b'\n');
    line
}

/// Writes one message and flushes it.
pub fn write_line<T: Serialize>(to: &mut impl Write, message: &T) -> Result<(), LineError> {
    to.write_all(&line(message)).and_then(|()| to.flush()).map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => LineError::Closed,
        _ => LineError::Io(error),
    })
}

/// Reads one message of [`MAX_LINE_BYTES`] at most.
pub fn read_line<T: DeserializeOwned>(from: &mut impl BufRead) -> Result<T, LineError> {
    read_line_within(from, || MAX_LINE_BYTES)
}

/// Reads one message. `limit` is how many bytes it may have by what is known when they come.
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
            // A line that is cut in the middle is as good as none: the other end is gone.
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
            start: printable(String::from_utf8_lossy(&line[..line.len().min(80)]).trim_end()),
        })
    })
}

/// What another host says, without what a terminal would obey.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// The first message of each end says which schema it speaks, and will in any later version: what else
/// is in it may be unknown here.
fn other_version(line: &[u8]) -> Option<LineError> {
    #[derive(Deserialize)]
    struct First {
        schema: u32,
        version: String,
    }
    let First { schema, version } = serde_json::from_slice(line).ok()?;
    let version = printable(&version).chars().take(40).collect();
    (schema != SCHEMA).then_some(LineError::OtherVersion { schema, version })
}

/// A failure that left the host unchanged.
pub(crate) fn failed(message: impl Into<String>) -> Failure {
    refused(ChangeOutcome::Refused(Refusal::Failure), message)
}

/// A failure that is not of the traffic.
pub(crate) fn refused(outcome: ChangeOutcome, message: impl Into<String>) -> Failure {
    Failure { outcome, is_transient: false, message: message.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_survives_the_line() {
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
    fn garbage_unknown_fields_and_cut_lines_are_refused() {
        check("hello\n", "malformed");
        check("{\"request\":\"set\",\"setting\":{},\"more\":1}\n", "malformed");
        check("{\"request\":\"set\"}\n", "malformed");
        check("{\"request\":\"reboot\"}\n", "malformed");
        check("{\"request\":\"abort\"}", "closed");
        check("", "closed");
    }

    #[test]
    fn another_version_is_told_from_garbage_whatever_else_it_says() {
        check("{\"request\":\"open\",\"schema\":9,\"version\":\"9.1\",\"new\":[]}\n", "schema 9");
        check("{\"schema\":9,\"version\":\"9.1\"}\n", "schema 9");
        check(&format!("{{\"schema\":{SCHEMA},\"version\":\"9.1\"}}\n"), "malformed");
        check("{\"schema\":-1,\"version\":\"9.1\"}\n", "malformed");
    }

    #[test]
    fn a_line_without_end_is_refused_at_the_limit() {
        let mut endless = io::BufReader::new(io::repeat(b'x'));
        let too_long = |error: &LineError, most| matches!(error, LineError::TooLong { limit } if *limit == most);
        let error = read_line::<Request>(&mut endless).unwrap_err();
        assert!(too_long(&error, MAX_LINE_BYTES), "{error}");
        let error = read_line_within::<Request>(&mut endless, || 1000).unwrap_err();
        assert!(too_long(&error, 1000) && error.to_string().contains("1000 bytes"), "{error}");
        let whole = line(&Request::Abort);
        assert!(read_line_within::<Request>(&mut whole.as_slice(), || whole.len()).is_ok());
        let short = read_line_within::<Request>(&mut whole.as_slice(), || whole.len() - 1);
        assert!(too_long(&short.unwrap_err(), whole.len() - 1));
    }

    #[track_caller]
    fn check(line: &str, expected: &str) {
        let found = match read_line::<Request>(&mut line.as_bytes()) {
            Err(LineError::Malformed { .. }) => "malformed",
            Err(LineError::Closed) => "closed",
            Err(LineError::OtherVersion { schema: 9, .. }) => "schema 9",
            other => panic!("{other:?}"),
        };
        assert_eq!(found, expected, "{line}");
    }
}
