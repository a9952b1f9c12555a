//! What a controller asks of its broker, and what that answers: the whole list.

use std::net::IpAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use latput_units::CpuSet;
use serde::{Deserialize, Serialize};

/// Most bytes of an operation or a reply. The longest way to a host is a command line of some KB.
pub(super) const MAX_BYTES: usize = 64 << 10;

/// How latput is started on a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Way {
    /// The command in front; empty for this host.
    pub via: Vec<String>,
    /// The latput there.
    pub program: String,
}

/// What a run may ask for: fixed before its controller reads the first byte of a stranger.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Permitted {
    /// The ways to its hosts.
    pub ways: Vec<Way>,
    /// Whether it makes the lab. The ways to its hosts then come with it.
    pub lab: bool,
    /// Whether its workloads run programs on hosts.
    pub programs: bool,
}

/// What latput is started for on a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum HostCall {
    /// To be its agent, or to look at it.
    Agent,
    /// To run programs.
    Programs,
    /// To put the host back in its agent's place.
    Restore,
}

impl HostCall {
    /// The arguments of latput.
    pub(crate) const fn args(self) -> &'static [&'static str] {
        match self {
            Self::Agent => &["agent", "--stdio"],
            Self::Programs => &["program", "--stdio"],
            // Without the interface, which may have another name by now.
            Self::Restore => &["restore"],
        }
    }

    /// Gives a command the pipes of such a process.
    pub(crate) fn pipe(self, command: &mut Command) -> &mut Command {
        let pipe = || match self {
            Self::Restore => Stdio::null(),
            Self::Agent | Self::Programs => Stdio::piped(),
        };
        command.stdin(pipe()).stdout(pipe()).stderr(Stdio::piped())
    }
}

/// An operation of a broker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Operation {
    /// Start latput on a host. Its pipes come with the reply.
    Start { way: Way, call: HostCall },
    /// Say how a process has ended.
    HowEnded { id: u64 },
    /// Kill a process and its children.
    Kill { id: u64 },
    /// Let a process end by itself.
    Leave { id: u64 },
    /// Make the lab.
    MakeLab,
    /// Remove the lab.
    RemoveLab,
}

/// What a broker answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Reply {
    /// The process runs; the pipes that it has, in the order stdin, stdout, stderr, come with this.
    Started { id: u64 },
    /// The kernel's error number.
    NotStarted { errno: i32 },
    /// The process runs.
    Running,
    /// It has ended: `exit status: 1`.
    Ended { how: String },
    /// It is done.
    Done,
    /// The hosts of the lab, the generator first.
    Lab(Vec<LabPlace>),
    /// The lab could not be made.
    NoLab { problem: String, permission: bool },
    /// It is not on the list of this run.
    Refused { why: String },
}

/// A host of the lab.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LabPlace {
    pub(crate) name: String,
    /// The file by which processes of this machine enter its namespace.
    pub(crate) namespace: PathBuf,
    pub(crate) address: IpAddr,
    pub(crate) cpus: CpuSet,
}
