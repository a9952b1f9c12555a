//! A process that was started for a host or for a guard, here or at the broker.

use std::fs::File;
use std::io;
use std::process::Command;

use super::client::{BrokerLine, get_broker};
use super::command::HostCommand;
use super::message::{HostCall, LaunchCommand, pipe_all};
use crate::child::{OwnProcess, Pipes};
use crate::error::Error;
use crate::host_spec::HostSpec;

/// A process that this one has asked for. Dropping it does not kill it.
#[derive(Debug)]
pub struct HostProcess(ProcessOwner);

/// Process that has started it.
#[derive(Debug)]
enum ProcessOwner {
    /// This process.
    Own(OwnProcess),
    /// The broker, which knows it by this id, while it is of interest.
    Broker(&'static BrokerLine, Option<u64>),
}

/// A process with its stdin, stdout and stderr.
pub type Started = (HostProcess, [File; 3]);

impl HostProcess {
    /// Starts latput on a host, for one command about an interface.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a command that could be taken for another one, the broker's refusal, or the system's.
    pub fn start_command(way: &LaunchCommand, command: HostCommand) -> io::Result<Started> {
        command.check_words().map_err(|why| io::Error::new(io::ErrorKind::InvalidInput, why))?;
        with_pipes(Self::start_at(way.clone(), &HostCall::Command(command))?)
    }

    /// Starts a command of the user's own on this host.
    ///
    /// # Errors
    ///
    /// The broker's refusal, or the system's.
    pub fn start_guard(words: &[String]) -> io::Result<Started> {
        with_pipes(match get_broker() {
            Some(broker) => Self::from_broker(broker, broker.start_guard(words)?),
            None => Self::spawn(pipe_all(Command::new(&words[0]).args(&words[1..])))?,
        })
    }

    /// Starts a command line before this process has a broker, which reads the rest itself.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn start_here(command: &mut Command) -> io::Result<Started> {
        with_pipes(Self::spawn(pipe_all(command))?)
    }

    /// Starts latput on a host; its stdin, stdout and stderr, as far as the call has them.
    pub fn start(spec: &HostSpec, call: &HostCall) -> io::Result<(Self, [Option<File>; 3])> {
        Self::start_at(spec.launch_command(), call)
    }

    /// The same for a call with three pipes.
    pub fn start_piped(spec: &HostSpec, call: &HostCall) -> Result<Started, Error> {
        Self::start(spec, call).and_then(with_pipes).map_err(|error| Error::Agent {
            host: spec.name.clone(),
            problem: format!("cannot start `{}`: {error}", spec.to_shell_line(&call.to_args())),
            permission: false,
        })
    }

    fn start_at(way: LaunchCommand, call: &HostCall) -> io::Result<(Self, [Option<File>; 3])> {
        match get_broker() {
            Some(broker) => Ok(Self::from_broker(broker, broker.start(way, call)?)),
            None => Self::spawn(call.attach_pipes(way.to_command().args(call.to_args()))),
        }
    }

    fn from_broker(
        broker: &'static BrokerLine,
        (id, pipes): (u64, Pipes),
    ) -> (Self, [Option<File>; 3]) {
        (Self(ProcessOwner::Broker(broker, Some(id))), pipes.map(|pipe| pipe.map(File::from)))
    }

    fn spawn(command: &mut Command) -> io::Result<(Self, [Option<File>; 3])> {
        let (process, pipes) = OwnProcess::start(command)?;
        Ok((Self(ProcessOwner::Own(process)), pipes.map(|pipe| pipe.map(File::from))))
    }

    /// Whether it has ended.
    pub fn has_ended(&self) -> bool {
        match &self.0 {
            ProcessOwner::Own(process) => process.has_ended(),
            ProcessOwner::Broker(..) => self.how_it_ended().is_some(),
        }
    }

    /// Its exit code; `None` while it runs, and after a signal.
    pub fn exit_code(&self) -> Option<i32> {
        self.how_it_ended()?.strip_prefix("exit status: ")?.parse().ok()
    }

    /// `exit status: 1` or `signal: 9`; `None` while it runs.
    pub fn how_it_ended(&self) -> Option<String> {
        match &self.0 {
            ProcessOwner::Own(process) => process.how_it_ended(),
            ProcessOwner::Broker(client, Some(id)) => client.how_it_ended(*id),
            ProcessOwner::Broker(_, None) => Some("it is not known how".to_owned()),
        }
    }

    /// Kills it and its children, also those that it has left behind.
    pub fn kill(&mut self) {
        match &mut self.0 {
            ProcessOwner::Own(process) => process.kill(),
            ProcessOwner::Broker(client, id) => {
                id.take().iter().for_each(|&id| client.kill_process(id));
            }
        }
    }

    /// Leaves it running.
    pub fn leave_running(&mut self) {
        match &mut self.0 {
            ProcessOwner::Own(process) => process.leave_running(),
            ProcessOwner::Broker(client, id) => {
                id.take().iter().for_each(|&id| client.release_process(id));
            }
        }
    }
}

/// A process that has all three pipes. They are missing where this process has too many open files.
fn with_pipes((mut process, pipes): (HostProcess, [Option<File>; 3])) -> io::Result<Started> {
    if let [Some(input), Some(output), Some(errors)] = pipes {
        return Ok((process, [input, output, errors]));
    }
    process.kill();
    Err(rustix::io::Errno::MFILE.into())
}
