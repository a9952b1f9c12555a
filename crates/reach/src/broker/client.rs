//! The controller's end of the line to its broker.

use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use latput_linux::confine::{self, Barriers, UsedFiles};
use latput_linux::process;
use latput_protocol::passing::{create_socket_pair, receive_message, send_message};
use latput_vm::GuestCommand;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::sockopt::{Timeout, set_socket_timeout};

use super::message::{
    BrokerOperation, BrokerReply, GuestPlace, HostCall, LabPlace, LaunchCommand, MAX_BYTES,
    RunPermissions,
};
use crate::child::Pipes;
use crate::error::Error;

/// The hidden command of latput that is a broker.
pub const COMMAND: &str = "broker";
/// Most time of a reply: the lab is made within seconds.
const REPLY_WITHIN: Duration = Duration::from_secs(60);

static BROKER: OnceLock<BrokerLine> = OnceLock::new();

/// The broker of this process, if it has one.
pub(crate) fn get_broker() -> Option<&'static BrokerLine> {
    BROKER.get()
}

/// Starts the broker of this run, and gives up the rights of this process for good, but for using
/// `files`. A process without capabilities stays as it is, and has no broker. To be called once, before a thread is
/// started and before anything that a stranger wrote is read. `on_loss` is called when the broker has gone.
///
/// Returns what then keeps this process from the host's files; `None` without a broker.
pub fn start(
    permitted: &RunPermissions,
    files: &UsedFiles<'_>,
    on_loss: impl FnOnce() + Send + 'static,
) -> Result<Option<Barriers>, Error> {
    if !confine::has_capabilities() {
        return Ok(None);
    }
    let failed = |problem: String| Error::Broker { problem };
    let line = spawn(permitted).map_err(|error| failed(format!("cannot be started: {error}")))?;
    let barriers = confine::keep_files(files)?;
    let watched = line.try_clone().map_err(|error| failed(error.to_string()))?;
    thread::spawn(move || {
        // Nothing comes unasked, so that only an end of the line wakes this.
        while poll(&mut [PollFd::new(&watched, PollFlags::empty())], None).is_err() {}
        on_loss();
    });
    let _only = BROKER.set(BrokerLine(Mutex::new(Some(line))));
    Ok(Some(barriers))
}

/// Starts the broker's process from this program's own file, and tells it what this run may ask for.
fn spawn(permitted: &RunPermissions) -> io::Result<OwnedFd> {
    let (line, brokers_line) = create_socket_pair()?;
    set_socket_timeout(&line, Timeout::Recv, Some(REPLY_WITHIN))?;
    let mut command = Command::new("/proc/self/exe");
    command.arg0("latput").args([COMMAND, "--line", &brokers_line.as_raw_fd().to_string()]);
    // In a group of its own: Ctrl-C and Ctrl-Z are for the controller.
    command.stdin(Stdio::piped()).stdout(Stdio::null()).process_group(0);
    let mut child = process::hand_over(&mut command, vec![brokers_line]).spawn()?;
    let mut to = child.stdin.take().expect("stdin is piped");
    to.write_all(&serde_json::to_vec(permitted)?)?;
    Ok(line)
}

/// The line to a broker; `None` once it is broken.
#[derive(Debug)]
pub(crate) struct BrokerLine(Mutex<Option<OwnedFd>>);

impl BrokerLine {
    fn send_operation(
        &self,
        operation: &BrokerOperation,
    ) -> io::Result<(BrokerReply, Vec<OwnedFd>)> {
        let mut line = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let asked = match &*line {
            Some(line) => {
                send_message(line, operation, &[]).and_then(|()| receive_message(line, MAX_BYTES))
            }
            None => Err(io::Error::from(io::ErrorKind::BrokenPipe)),
        };
        if asked.is_err() {
            *line = None; // a late reply would be taken for the next one
        }
        asked
    }

    /// Starts latput on a host; the id of the process, and its pipes.
    pub(super) fn start(&self, way: LaunchCommand, call: &HostCall) -> io::Result<(u64, Pipes)> {
        let (id, [first, second, third]) =
            self.start_process(&BrokerOperation::Start { way, call: call.clone() })?;
        match call {
            HostCall::Restore(_) => Ok((id, [None, None, first])),
            _ => Ok((id, [first, second, third])),
        }
    }

    /// Starts a command of the user's own on this host; as [`Self::start`].
    pub(super) fn start_guard(&self, words: &[String]) -> io::Result<(u64, Pipes)> {
        self.start_process(&BrokerOperation::StartGuard { words: words.to_vec() })
    }

    /// Asks that the hosts of a results file be taken; the error is why they are not.
    pub(super) fn admit_hosts(&self, word: &str) -> Result<(), String> {
        match self.send_operation(&BrokerOperation::Admit { word: word.to_owned() }) {
            Ok((BrokerReply::Done, _)) => Ok(()),
            Ok((other, _)) => Err(unexpected_reply(other).to_string()),
            Err(error) => Err(error.to_string()),
        }
    }

    fn start_process(&self, operation: &BrokerOperation) -> io::Result<(u64, Pipes)> {
        let (reply, files) = self.send_operation(operation)?;
        let mut files = files.into_iter();
        match reply {
            BrokerReply::Started { id } => Ok((id, [files.next(), files.next(), files.next()])),
            BrokerReply::NotStarted { errno } => Err(io::Error::from_raw_os_error(errno)),
            other => Err(unexpected_reply(other)),
        }
    }

    /// How a process has ended; `None` while it runs.
    pub(crate) fn how_it_ended(&self, id: u64) -> Option<String> {
        match self.send_operation(&BrokerOperation::HowEnded { id }) {
            Ok((BrokerReply::Running, _)) => None,
            Ok((BrokerReply::Ended { how }, _)) => Some(how),
            _ => Some("it is not known how".to_owned()),
        }
    }

    /// Kills a process and its children.
    pub(crate) fn kill_process(&self, id: u64) {
        let _gone = self.send_operation(&BrokerOperation::Kill { id });
    }

    /// Leaves a process running.
    pub(crate) fn release_process(&self, id: u64) {
        let _gone = self.send_operation(&BrokerOperation::Leave { id });
    }

    /// Makes the lab; the generator first.
    pub(crate) fn make_lab(&self) -> Result<[LabPlace; 2], Error> {
        let failed = |problem, permission| Error::Lab { problem, permission };
        match self.send_operation(&BrokerOperation::MakeLab) {
            Ok((BrokerReply::Lab(places), _)) => places
                .try_into()
                .map_err(|_| failed("it does not have two hosts".to_owned(), false)),
            Ok((BrokerReply::NoLab { problem, permission }, _)) => Err(failed(problem, permission)),
            Ok((other, _)) => Err(failed(unexpected_reply(other).to_string(), false)),
            Err(error) => Err(failed(error.to_string(), false)),
        }
    }

    /// Removes the lab.
    pub(crate) fn remove_lab(&self) {
        let _gone = self.send_operation(&BrokerOperation::RemoveLab);
    }

    /// Begins to boot the guest.
    pub(crate) fn boot_guest(&self) -> Result<(), String> {
        match self.of_guest(&BrokerOperation::BootGuest)? {
            (BrokerReply::Done, _) => Ok(()),
            (other, _) => Err(unexpected_reply(other).to_string()),
        }
    }

    /// The guest; `None` until commands can be run in it.
    pub(crate) fn poll_guest(&self) -> Result<Option<GuestPlace>, String> {
        match self.of_guest(&BrokerOperation::IsGuestReady)? {
            (BrokerReply::Guest(place), _) => Ok(Some(place)),
            (BrokerReply::Running, _) => Ok(None),
            (other, _) => Err(unexpected_reply(other).to_string()),
        }
    }

    /// Starts a command in the guest.
    pub(crate) fn run_in_guest(&self, words: &[String]) -> Result<GuestCommand, String> {
        let operation = BrokerOperation::RunInGuest { words: words.to_vec() };
        match self.of_guest(&operation)? {
            (BrokerReply::Done, files) => {
                let files = files.try_into().map_err(|_| "it has no line".to_owned())?;
                Ok(GuestCommand::of_files(files))
            }
            (other, _) => Err(unexpected_reply(other).to_string()),
        }
    }

    /// Whether the guest ends, and what its console ends with.
    pub(crate) fn look_at_guest(&self) -> (bool, String) {
        match self.of_guest(&BrokerOperation::LookAtGuest) {
            Ok((BrokerReply::GuestConsole { is_ending, end }, _)) => (is_ending, end),
            Ok((other, _)) => (false, unexpected_reply(other).to_string()),
            Err(problem) => (true, problem),
        }
    }

    /// Ends the guest.
    pub(crate) fn end_guest(&self) {
        let _gone = self.send_operation(&BrokerOperation::EndGuest);
    }

    fn of_guest(&self, operation: &BrokerOperation) -> Result<(BrokerReply, Vec<OwnedFd>), String> {
        match self.send_operation(operation) {
            Ok((BrokerReply::NoGuest { problem }, _)) => Err(problem),
            Ok(other) => Ok(other),
            Err(error) => Err(error.to_string()),
        }
    }
}

fn unexpected_reply(reply: BrokerReply) -> io::Error {
    io::Error::other(match reply {
        BrokerReply::Refused { why } => why,
        other => format!("the broker answered {other:?}"),
    })
}
