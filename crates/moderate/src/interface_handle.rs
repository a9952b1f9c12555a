//! Access to the interface: a session that is put back at the end, or read-only.

use std::path::Path;

use latput_knobs::{ApplyError, Checkpoint, Restored, Session, Setting, State, transaction};
use latput_linux::{FileCheckpoints, LinuxKernel, checkpoint};

use crate::error::Error;

/// The name of daemons in their checkpoints.
const COMMAND: &str = "moderate";

/// Access to the interface.
#[derive(Debug)]
pub(crate) enum InterfaceHandle {
    /// May change knobs, and puts them back at the end.
    Session(Box<Session<LinuxKernel, FileCheckpoints>>),
    /// Only reads.
    ReadOnly(Box<LinuxKernel>),
}

impl InterfaceHandle {
    /// Claims the interface. What an earlier daemon left unfinished, as after `kill -9`, is put back
    /// first.
    pub(crate) fn claim(folder: &Path, interface: &str) -> Result<Self, Error> {
        match open(folder, interface) {
            Err(Error::Apply(ApplyError::Unfinished { checkpoint })) if is_ours(&checkpoint) => {
                let mut store = FileCheckpoints::new(folder);
                let origin = checkpoint::context()?;
                let mut kernel = LinuxKernel::open()?;
                let pid = checkpoint.pid;
                transaction::restore(&mut kernel, &mut store, &origin, &checkpoint)?;
                tracing::warn!(interface, pid, "put back what an earlier latput left unfinished");
                drop(store);
                open(folder, interface)
            }
            Err(Error::Apply(ApplyError::InUse { pid, .. })) => {
                Err(Error::Locked { interface: interface.to_owned(), pid })
            }
            other => other,
        }
    }

    /// Read-only access.
    pub(crate) fn open_read_only() -> Result<Self, Error> {
        Ok(Self::ReadOnly(Box::new(LinuxKernel::open()?)))
    }

    pub(crate) fn kernel(&self) -> &LinuxKernel {
        match self {
            Self::Session(session) => session.kernel(),
            Self::ReadOnly(kernel) => kernel,
        }
    }

    /// Applies a setting, unless read-only, and gives what the knobs hold then.
    pub(crate) fn apply_setting(&mut self, setting: &Setting) -> Result<State, ApplyError> {
        match self {
            Self::Session(session) => session.apply(setting).map(|applied| applied.found),
            Self::ReadOnly(_) => Ok(State::default()),
        }
    }

    /// Puts everything back.
    pub(crate) fn close(self) -> Result<Restored, Error> {
        match self {
            Self::Session(session) => Ok(session.close()?),
            Self::ReadOnly(_) => Ok(Restored::NothingToDo),
        }
    }
}

fn open(folder: &Path, interface: &str) -> Result<InterfaceHandle, Error> {
    let kernel = LinuxKernel::open()?;
    let mut origin = checkpoint::context()?;
    origin.by = origin.by.with_command(COMMAND);
    let session = Session::open(kernel, FileCheckpoints::new(folder), &origin, interface)?;
    Ok(InterfaceHandle::Session(Box::new(session)))
}

/// Whether a checkpoint is of a daemon; earlier versions gave it no name.
fn is_ours(checkpoint: &Checkpoint) -> bool {
    checkpoint.by.as_ref().is_none_or(|by| by.command.is_empty() || by.is_command(COMMAND))
}
