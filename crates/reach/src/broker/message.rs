//! Requests of a controller to its broker, and the answers: the whole list.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use latput_protocol::control::ControllerId;
use latput_units::CpuSet;
use latput_units::printable::shell_word;
use latput_vm::GuestSpec;
use serde::{Deserialize, Serialize};

use super::command::HostCommand;

/// Most bytes of an operation or a reply. The longest way to a host is a command line of some KB.
pub(super) const MAX_BYTES: usize = 64 << 10;

/// How latput is started on a host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LaunchCommand {
    /// The command in front; empty for this host.
    pub via: Vec<String>,
    /// The latput there.
    pub program: String,
}

impl LaunchCommand {
    /// The command line that runs latput there with these arguments.
    pub fn to_command_line(&self, args: &[impl AsRef<str>]) -> Vec<String> {
        let args = args.iter().map(|arg| arg.as_ref().to_owned());
        self.via.iter().cloned().chain([self.program.clone()]).chain(args).collect()
    }

    /// The same for people, quoted for a shell of this host.
    pub fn to_shell_line(&self, args: &[impl AsRef<str>]) -> String {
        let words = self.to_command_line(args);
        let own = std::env::current_exe().unwrap_or_default();
        let is_own = |word: &String| Path::new(word) == own;
        // Behind another program, the same path may be another host's.
        let has_name = is_own(&words[0]);
        let word = |word: &String| {
            if has_name && is_own(word) { "latput".to_owned() } else { shell_word(word) }
        };
        words.iter().map(word).collect::<Vec<_>>().join(" ")
    }

    /// The command that runs latput there, without arguments yet.
    pub(super) fn to_command(&self) -> Command {
        let words = self.to_command_line(&[] as &[&str]);
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        command
    }
}

/// Permissions of a run: fixed before its controller reads the first byte of a stranger.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunPermissions {
    /// The ways to its hosts.
    pub ways: Vec<LaunchCommand>,
    /// Whether it makes the lab. The ways to its hosts then come with it.
    pub lab: bool,
    /// The guest that it boots. The ways to its hosts then come with it.
    pub guest: Option<GuestSpec>,
    /// Whether its workloads run programs on hosts.
    pub programs: bool,
    /// The interfaces that commands are about.
    pub interfaces: BTreeSet<HostInterface>,
    /// Whether commands may change them.
    pub changes: bool,
    /// A results file, which is not yet read, may name the hosts.
    pub hosts_of_results: Option<HostsOfResults>,
    /// The user's own commands on this host.
    pub guards: BTreeSet<Vec<String>>,
}

/// Hosts of a results file: they are taken as `broker/admit.rs` says, once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostsOfResults {
    /// The latput to bring to them.
    pub bring: Option<PathBuf>,
}

/// An interface of a host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostInterface {
    /// The way to the host.
    pub way: LaunchCommand,
    /// Its name there; `None`: any, because it is found out there.
    pub name: Option<String>,
}

/// Purpose of a latput that is started on a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HostCall {
    /// To be its agent, or to look at it.
    Agent,
    /// To run programs.
    Programs,
    /// To put the host back in the place of this controller's agent.
    Restore(ControllerId),
    /// For one command about an interface.
    Command(HostCommand),
}

impl HostCall {
    /// The arguments of latput.
    pub fn to_args(&self) -> Vec<String> {
        let of_two = |words: [&str; 2]| words.map(str::to_owned).to_vec();
        match self {
            Self::Agent => of_two(["agent", "--stdio"]),
            Self::Programs => of_two(["program", "--stdio"]),
            // Without the interface, which may have another name by now. What waits for somebody's word is theirs.
            Self::Restore(controller) => {
                of_two(["restore", &format!("--made-by={}", controller.agents_name())])
            }
            Self::Command(command) => command.to_args(),
        }
    }

    /// Gives a command the pipes of such a process.
    pub(crate) fn attach_pipes<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        match self {
            Self::Restore(_) => {
                command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped())
            }
            Self::Agent | Self::Programs | Self::Command(_) => pipe_all(command),
        }
    }
}

/// Gives a command three pipes.
pub(super) fn pipe_all(command: &mut Command) -> &mut Command {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped())
}

/// An operation of a broker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum BrokerOperation {
    /// Start latput on a host. Its pipes come with the reply.
    Start { way: LaunchCommand, call: HostCall },
    /// Start a command of the user's own on this host. Its pipes come with the reply.
    StartGuard { words: Vec<String> },
    /// Say how a process has ended.
    HowEnded { id: u64 },
    /// Kill a process and its children.
    Kill { id: u64 },
    /// Let a process end by itself.
    Leave { id: u64 },
    /// Take the hosts that the results call by this word.
    Admit { word: String },
    /// Make the lab.
    MakeLab,
    /// Remove the lab.
    RemoveLab,
    /// Boot the guest.
    BootGuest,
    /// Say whether commands can be run in the guest.
    IsGuestReady,
    /// Start a command in the guest. The files of its line come with the reply.
    RunInGuest { words: Vec<String> },
    /// Say whether the guest ends, and what its console ends with.
    LookAtGuest,
    /// End the guest.
    EndGuest,
}

/// Answer of a broker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum BrokerReply {
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
    /// Commands can be run in the guest.
    Guest(GuestPlace),
    /// The guest ends or has ended, and what its console ends with.
    GuestConsole { is_ending: bool, end: String },
    /// The guest could not be booted or reached.
    NoGuest { problem: String },
    /// It is not on the list of this run.
    Refused { why: String },
}

/// A host of the lab.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LabPlace {
    /// Its name.
    pub name: String,
    /// The file by which processes of this machine enter its namespace.
    pub namespace: PathBuf,
    /// Its address.
    pub address: IpAddr,
    /// Its CPUs.
    pub cpus: CpuSet,
}

/// A guest that has booted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GuestPlace {
    /// The folder by which processes of this machine find it.
    pub(crate) folder: PathBuf,
    /// The guest in a line.
    pub(crate) description: String,
}
