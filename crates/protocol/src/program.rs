//! The messages between a controller and the process that runs programs on a host: one JSON document a line, bounded.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use latput_trial::program::ProgramCommand;
use latput_units::{CpuSet, Nanos};
use serde::{Deserialize, Serialize};

use crate::figure_line::FigureLine;
use crate::text::replace_control_chars;

/// Version of these messages; both ends must have the same.
pub const SCHEMA: u32 = 3;
/// Most bytes that are kept of an output, half from its start and half from its end.
pub const MOST_KEPT: usize = 2 << 20;
/// Most files that are read after a program has ended.
pub const MOST_FILES: usize = 4;
/// Most outputs of a program: stdout, stderr and its files.
pub const MOST_OUTPUTS: usize = 2 + MOST_FILES;
/// Most bytes of an answer. A byte of an output may take three in a text of JSON.
pub const MAX_ANSWER_BYTES: usize = 3 * MOST_OUTPUTS * MOST_KEPT + (1 << 20);
/// Most bytes of a request.
pub const MAX_REQUEST_BYTES: usize = 1 << 20;
/// Lines of an output in an error.
const LAST_LINES: usize = 5;
/// Characters of such a line.
const LINE_CHARS: usize = 300;

/// A message to the process that runs programs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ProgramRequest {
    /// Before all others.
    Open {
        /// [`SCHEMA`] of the controller.
        schema: u32,
        /// Version of the controller, for messages.
        version: String,
        /// After this time without a message all programs are ended.
        lease: Nanos,
    },
    /// Start a program. [`ProgramAnswer::Ended`] follows, whatever happens.
    Start(Box<StartRequest>),
    /// Wait until a program that was started is ready.
    AwaitReady {
        /// The program.
        id: u32,
        /// Check that it is ready.
        ready: ReadyCheck,
        /// Most time to wait.
        within: Nanos,
    },
    /// End a program: SIGTERM, and SIGKILL after 2 s.
    End {
        /// The program.
        id: u32,
    },
    /// The controller is alive.
    Ping,
}

/// A program to start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StartRequest {
    /// Its number in later messages.
    pub id: u32,
    /// Start on this host's `CLOCK_MONOTONIC`; `None` means at once.
    pub at: Option<Nanos>,
    /// Program to run.
    pub program: ProgramSpec,
    /// Most time that it may run; `None` means until it is ended.
    pub timeout: Option<Nanos>,
    /// Files to read when it has ended, at most [`MOST_FILES`].
    pub files: Vec<String>,
    /// Bytes to keep of each output, at most [`MOST_KEPT`].
    pub keep: usize,
    /// A port on which nobody may listen yet.
    pub free_port: Option<(IpAddr, u16)>,
    /// Where to send what it writes, snapshot by snapshot. As root it then runs as `nobody` unless a user is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tell_on: Option<FigureLine>,
}

/// A program with its surroundings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProgramSpec {
    /// The program and its arguments; no shell sees them.
    pub words: Vec<String>,
    /// Environment variables beside those of latput.
    pub environment: BTreeMap<String, String>,
    /// The working folder; `None` is latput's.
    pub folder: Option<String>,
    /// The user to run as; `None` is latput's.
    pub user: Option<String>,
    /// The CPUs to run on; `None` is the host's.
    pub cpus: Option<CpuSet>,
}

impl From<&ProgramCommand> for ProgramSpec {
    /// Of a command that has no placeholders.
    fn from(command: &ProgramCommand) -> Self {
        let ProgramCommand { words, environment, folder, user, cpus } = command.clone();
        Self { words, environment, folder, user, cpus }
    }
}

/// Check that a server is ready.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ReadyCheck {
    /// It accepts a connection.
    Tcp {
        /// Address of the host's interface.
        address: IpAddr,
        /// Port.
        port: u16,
    },
    /// Its output matches.
    Output {
        /// A regular expression.
        regex: String,
    },
    /// A program ends with exit status 0.
    Command(ProgramSpec),
}

/// A message from the process that runs programs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ProgramAnswer {
    /// Answer to [`ProgramRequest::Open`].
    Opened {
        /// [`SCHEMA`] of this end.
        schema: u32,
        /// Version of this end.
        version: String,
    },
    /// A program runs.
    Started {
        /// The program.
        id: u32,
        /// `CLOCK_MONOTONIC` when it had been started.
        at: Nanos,
        /// Whether nothing of it can be left running.
        contained: bool,
    },
    /// Answer to [`ProgramRequest::AwaitReady`].
    Ready {
        /// The program.
        id: u32,
    },
    /// Answer to [`ProgramRequest::AwaitReady`]: it is not, or has ended.
    NotReady {
        /// The program.
        id: u32,
        /// The reason.
        why: String,
    },
    /// A program has ended, and so has everything that it had started.
    Ended {
        /// The program.
        id: u32,
        /// How, and what it said.
        ended: Box<ProgramOutcome>,
    },
    /// The controller is of another version, or a message is out of turn.
    Failed {
        /// The reason.
        message: String,
    },
}

/// The end of a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProgramOutcome {
    /// How it ended.
    pub ending: ExitCause,
    /// `CLOCK_MONOTONIC` when it had been started.
    pub began: Nanos,
    /// `CLOCK_MONOTONIC` when it had ended.
    pub ended: Nanos,
    /// Its standard output.
    pub stdout: KeptOutput,
    /// Its standard error.
    pub stderr: KeptOutput,
    /// The files that were asked for by path, or the reason why one cannot be read.
    pub files: BTreeMap<String, Result<KeptOutput, String>>,
}

/// The kept part of an output.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeptOutput {
    /// Its start, or all of it.
    pub head: String,
    /// Bytes that were dropped after its start.
    pub dropped: u64,
    /// Its end; empty if nothing was dropped.
    pub tail: String,
}

impl KeptOutput {
    /// The last lines, in one line without control characters; empty if there are none.
    pub fn last_lines(&self) -> String {
        let last = if self.dropped > 0 { &self.tail } else { &self.head };
        let lines = last.lines().rev().map(str::trim).filter(|line| !line.is_empty());
        let mut lines: Vec<&str> = lines.take(LAST_LINES).collect();
        lines.reverse();
        let cut = |line: &str| line.chars().take(LINE_CHARS).collect::<String>();
        replace_control_chars(&lines.into_iter().map(cut).collect::<Vec<_>>().join(" | "))
    }
}

/// How a program ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ExitCause {
    /// It could not be started.
    NotStarted {
        /// The reason.
        why: String,
    },
    /// It ended by itself.
    Exited {
        /// Exit status.
        status: i32,
    },
    /// A signal ended it.
    Signalled {
        /// Number of the signal.
        signal: i32,
    },
    /// It ran longer than it may, and was ended.
    TimedOut {
        /// Most time that it may run.
        timeout: Nanos,
    },
    /// It was ended as the controller asked.
    Told,
    /// The process that held it was killed; the kernel ended the program with it.
    Lost,
}

impl fmt::Display for ExitCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotStarted { why } => write!(f, "it could not be started: {why}"),
            Self::Exited { status } => write!(f, "it ended with exit status {status}"),
            Self::Signalled { signal } => write!(f, "signal {signal} ended it"),
            Self::TimedOut { timeout } => write!(f, "it ran longer than {timeout} and was ended"),
            Self::Told => f.write_str("it was ended"),
            Self::Lost => f.write_str("the process that held it was killed"),
        }
    }
}
