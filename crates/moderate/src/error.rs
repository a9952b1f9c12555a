//! Why an interface is not, or no longer, held.

use std::io;

use latput_knobs::{ApplyError, ChangeOutcome, Refusal, RestoreError};
use latput_units::text::quote_word;

use crate::goal::GoalError;

/// Why an interface is not, or no longer, held.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The goal says nothing, or two things.
    #[error(transparent)]
    Goal(#[from] GoalError),
    /// The kernel could not be read.
    #[error(transparent)]
    Kernel(#[from] latput_linux::Error),
    /// A change failed, and was put back unless it says otherwise.
    #[error(transparent)]
    Apply(#[from] ApplyError),
    /// The moderated knobs could not be put back.
    #[error(transparent)]
    Restore(#[from] RestoreError),
    /// A knob could not be read.
    #[error(transparent)]
    Unreadable(latput_knobs::KernelError),
    /// The checkpoint could not be kept.
    #[error(transparent)]
    Store(#[from] latput_knobs::StoreError),
    /// Nothing on the interface delays its interrupts or polls.
    #[error("{interface}: has no knob that moderates it: {reasons}")]
    NoDelayKnob {
        /// The interface.
        interface: String,
        /// The problem of each knob.
        reasons: String,
    },
    /// The longest delay is shorter than the shortest that the interface can have.
    #[error(
        "{interface}: cannot be held at most {most}: the least delay of its {knob} is {least}: give a longer --max-delay"
    )]
    TooShort {
        /// The interface.
        interface: String,
        /// The request.
        most: latput_units::Nanos,
        /// The knob.
        knob: &'static str,
        /// Its least.
        least: latput_units::Nanos,
    },
    /// The interface went away.
    #[error("{interface}: the interface is gone")]
    Gone {
        /// The interface.
        interface: String,
    },
    /// Changes fail again and again.
    #[error("{interface}: {times} changes in a row failed, the last because: {last}")]
    KeepsFailing {
        /// The interface.
        interface: String,
        /// How many.
        times: u32,
        /// The last error, in words.
        last: String,
    },
    /// Another latput has its lock.
    #[error(
        "{interface}: another latput (pid {pid}) holds it: ask how it is with `latput moderate {} --status`, or end it \
         first",
        quote_word(interface)
    )]
    Locked {
        /// The interface.
        interface: String,
        /// The other process.
        pid: u32,
    },
    /// Another latput is watching or holding it.
    #[error(
        "{interface}: another latput already answers at {path}: ask it with --status, or end it first"
    )]
    AlreadyHeld {
        /// The interface.
        interface: String,
        /// Its socket.
        path: String,
    },
    /// Nobody is there to be asked.
    #[error(
        "{interface}: no `latput moderate` runs here (no answer at {path}): start `latput moderate {}`",
        quote_word(interface)
    )]
    NotHeld {
        /// The interface.
        interface: String,
        /// Where the socket would be.
        path: String,
    },
    /// Metrics at an address that they are not given out at.
    #[error(
        "--metrics {given}: {problem}: give `unix:PATH` or a loopback address such as `127.0.0.1:9711`"
    )]
    MetricsAddress {
        /// As given.
        given: String,
        /// The problem.
        problem: String,
    },
    /// A socket could not be made or spoken to.
    #[error("{path}: cannot {operation}: {source}")]
    Socket {
        /// Its path or address.
        path: String,
        /// The attempted operation.
        operation: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// The one that was asked gave no status.
    #[error("{path}: the answer is not a status of latput: {reason}")]
    BadStatus {
        /// The socket.
        path: String,
        /// The problem.
        reason: String,
    },
}

impl Error {
    /// The outcome for the interface.
    pub fn outcome(&self) -> ChangeOutcome {
        match self {
            Self::Goal(_) | Self::TooShort { .. } | Self::MetricsAddress { .. } => {
                ChangeOutcome::Refused(Refusal::Usage)
            }
            Self::Kernel(error) => error.outcome(),
            Self::Apply(error) => error.outcome(),
            Self::Restore(error) => error.outcome(),
            Self::Socket { source, .. } => {
                ChangeOutcome::refused(source.kind() == io::ErrorKind::PermissionDenied)
            }
            Self::Unreadable(_)
            | Self::Store(_)
            | Self::NoDelayKnob { .. }
            | Self::Gone { .. }
            | Self::KeepsFailing { .. }
            | Self::Locked { .. }
            | Self::AlreadyHeld { .. }
            | Self::NotHeld { .. }
            | Self::BadStatus { .. } => ChangeOutcome::Refused(Refusal::Failure),
        }
    }
}
