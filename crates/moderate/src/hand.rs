//! What touches the interface: a session that is put back at the end, or eyes only.

use std::path::Path;

use latput_knobs::{ApplyError, Restored, Session, Setting, State, StoreError, transaction};
use latput_linux::{FileCheckpoints, LinuxKernel, checkpoint};

use crate::error::Error;

/// What touches the interface.
#[derive(Debug)]
pub(crate) enum Hand {
    /// It is held.
    Holds(Box<Session<LinuxKernel, FileCheckpoints>>),
    /// It is only looked at.
    Looks(Box<LinuxKernel>),
}

impl Hand {
    /// Claims the interface. What an earlier latput left unfinished, as after `kill -9`, is put back
    /// first.
    pub(crate) fn claim(folder: &Path, interface: &str) -> Result<Self, Error> {
        match open(folder, interface) {
            Err(Error::Apply(ApplyError::Unfinished { checkpoint })) => {
                let mut store = FileCheckpoints::new(folder);
                let origin = checkpoint::context()?;
                let mut kernel = LinuxKernel::open()?;
                let pid = checkpoint.pid;
                transaction::restore(&mut kernel, &mut store, &origin, &checkpoint)?;
                tracing::warn!(interface, pid, "put back what an earlier latput left unfinished");
                drop(store);
                open(folder, interface)
            }
            Err(Error::Apply(ApplyError::Checkpoint(StoreError::Locked { pid, .. }))) => {
                Err(Error::Locked { interface: interface.to_owned(), pid })
            }
            other => other,
        }
    }

    /// Only looks.
    pub(crate) fn look() -> Result<Self, Error> {
        Ok(Self::Looks(Box::new(LinuxKernel::open()?)))
    }

    pub(crate) fn kernel(&self) -> &LinuxKernel {
        match self {
            Self::Holds(session) => session.kernel(),
            Self::Looks(kernel) => kernel,
        }
    }

    /// Brings the interface to a setting, if it is held, and says what its knobs hold then.
    pub(crate) fn apply(&mut self, setting: &Setting) -> Result<State, ApplyError> {
        match self {
            Self::Holds(session) => session.apply(setting).map(|applied| applied.found),
            Self::Looks(_) => Ok(State::default()),
        }
    }

    /// Puts everything back.
    pub(crate) fn close(self) -> Result<Restored, Error> {
        match self {
            Self::Holds(session) => Ok(session.close()?),
            Self::Looks(_) => Ok(Restored::NothingToDo),
        }
    }
}

fn open(folder: &Path, interface: &str) -> Result<Hand, Error> {
    let (kernel, origin) = (LinuxKernel::open()?, checkpoint::context()?);
    let session = Session::open(kernel, FileCheckpoints::new(folder), &origin, interface)?;
    Ok(Hand::Holds(Box::new(session)))
}
