//! Errors of reaching a host.

use latput_knobs::{ChangeOutcome, Refusal};

/// An error of reaching a host.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The testbed file cannot be used.
    #[error("{file}: {problem}")]
    TestbedFile {
        /// The file as given.
        file: String,
        /// The problem and the remedy.
        problem: String,
    },
    /// A word that should name a host does not, or several words do not fit together.
    #[error("{target}: {problem}")]
    Target {
        /// The word or words.
        target: String,
        /// The fault, and its remedy.
        problem: String,
    },
    /// The lab could not be built.
    #[error("the lab could not be built: {problem}")]
    Lab {
        /// The kernel's error and the remedy.
        problem: String,
        /// Whether privileges are missing.
        permission: bool,
    },
    /// The guest of a `vm` testbed could not be started, or was lost.
    #[error("{testbed}: {problem}")]
    Guest {
        /// `vm:DRIVER`.
        testbed: String,
        /// The problem and the remedy.
        problem: String,
    },
    /// The process that has this run's rights could not be made.
    #[error("the broker (the process that starts agents with this user's rights): {problem}")]
    Broker {
        /// The problem.
        problem: String,
    },
    /// The rights of this process could not be given up.
    #[error(transparent)]
    Rights(#[from] latput_linux::Error),
    /// An agent could not be started or reached.
    #[error("host `{host}`: {problem}")]
    Agent {
        /// The host.
        host: String,
        /// The problem.
        problem: String,
        /// Whether its latput lacked a privilege there.
        permission: bool,
    },
    /// Ctrl-C or a termination signal.
    #[error("interrupted")]
    Interrupted,
}

impl Error {
    /// The outcome for the hosts.
    pub fn outcome(&self) -> ChangeOutcome {
        ChangeOutcome::Refused(match self {
            Self::Rights(error) => return error.outcome(),
            Self::TestbedFile { .. } | Self::Target { .. } => Refusal::Usage,
            Self::Lab { permission: true, .. } | Self::Agent { permission: true, .. } => {
                Refusal::Permission
            }
            _ => Refusal::Failure,
        })
    }
}
