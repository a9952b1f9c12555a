//! What can go wrong in a run, and what became of the hosts.

use std::path::PathBuf;

use latput_knobs::{ChangeOutcome, Refusal};
use latput_trial::plan::PlanError;

/// A run that did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The plan cannot be run.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A plan that cannot be searched.
    #[error("the plan cannot be searched: {problem}")]
    Search {
        /// What is missing, or too much.
        problem: String,
    },
    /// The testbed has nothing of what the plan asks for.
    #[error("{problem}")]
    Unsupported {
        /// What is not supported.
        problem: String,
    },
    /// The plan wants slices, and the testbed has none.
    #[error(
        "settings cannot take turns in slices on this testbed: agents on hosts or the lab can; use `design = \"blocks\"`"
    )]
    NoSlices,
    /// A setting that would lose packets.
    #[error("setting `{setting}` is refused: {problem}")]
    Overrun {
        /// Its label.
        setting: String,
        /// The arithmetic and the remedy.
        problem: String,
    },
    /// The testbed file cannot be used.
    #[error("{file}: {problem}")]
    TestbedFile {
        /// The file as it was named.
        file: String,
        /// What is wrong and how to mend it.
        problem: String,
    },
    /// The lab could not be built.
    #[error("the lab could not be built: {problem}")]
    Lab {
        /// What the kernel said and how to mend it.
        problem: String,
        /// Whether it was for want of privilege.
        permission: bool,
    },
    /// The simulator cannot do what the plan asks.
    #[error("{testbed}: {problem}")]
    Simulator {
        /// `sim:SYSTEM`.
        testbed: String,
        /// What it cannot do and how to mend it.
        problem: String,
    },
    /// The guest of a `vm` testbed could not be had, or was lost.
    #[error("{testbed}: {problem}")]
    Guest {
        /// `vm:DRIVER`.
        testbed: String,
        /// What happened, and how to mend it.
        problem: String,
    },
    /// A thread of the simulator ended in its work.
    #[error("the simulator ended in a trial: this is a fault of latput")]
    SimulatorDied,
    /// An agent could not be started or spoken to.
    #[error("host `{host}`: {problem}")]
    Agent {
        /// The host.
        host: String,
        /// What happened.
        problem: String,
    },
    /// An agent refused or failed.
    #[error("host `{host}`: {message}")]
    Host {
        /// The host.
        host: String,
        /// What the agent says.
        message: String,
        /// What became of the host.
        outcome: ChangeOutcome,
        /// Whether only the traffic broke, and the host is ready for another trial.
        is_transient: bool,
    },
    /// Some hosts may still be changed.
    #[error("{}", changed(hosts, cause.as_deref()))]
    Changed {
        /// The hosts.
        hosts: Vec<LeftChanged>,
        /// What ended the run before.
        cause: Option<Box<Error>>,
    },
    /// The results file cannot be used.
    #[error("{}: {problem}", path.display())]
    ResultsDb {
        /// The file.
        path: PathBuf,
        /// What is wrong and how to mend it.
        problem: String,
    },
    /// The two ends' accounts of a trial do not fit together.
    #[error("workload `{workload}`: {problem}")]
    Traffic {
        /// The workload.
        workload: String,
        /// What is wrong.
        problem: String,
    },
    /// A stock program at the far end could not be measured against.
    #[error(transparent)]
    Peer(latput_peers::Error),
    /// The run went to its end, and trials are missing whose traffic broke each time.
    #[error("{trials} trials were lost, the last for this: {why}")]
    TrialsLost {
        /// How many.
        trials: usize,
        /// Of the last one.
        why: String,
    },
    /// Ctrl-C or a termination signal.
    #[error("interrupted")]
    Interrupted,
}

/// A host that nobody could put back in time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftChanged {
    /// Its name in the testbed.
    pub host: String,
    /// Why it may still be changed.
    pub why: String,
    /// What puts it back.
    pub command: String,
}

fn changed(hosts: &[LeftChanged], cause: Option<&Error>) -> String {
    let hosts = hosts.iter().map(|LeftChanged { host, why, command }| {
        format!("host `{host}` may still be changed ({why}): run `{command}`")
    });
    cause.map(ToString::to_string).into_iter().chain(hosts).collect::<Vec<_>>().join("; ")
}

impl Error {
    /// Whether a trial's traffic broke with every host ready for another trial.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Host { is_transient, .. } => *is_transient,
            Self::Peer(error) => error.is_transient(),
            _ => false,
        }
    }

    /// What became of the hosts.
    pub const fn outcome(&self) -> ChangeOutcome {
        let refusal = match self {
            Self::Changed { .. } => return ChangeOutcome::Stranded,
            Self::Host { outcome, .. } => return *outcome,
            Self::Plan(_)
            | Self::Search { .. }
            | Self::Unsupported { .. }
            | Self::NoSlices
            | Self::Overrun { .. }
            | Self::TestbedFile { .. }
            | Self::Simulator { .. } => Refusal::Usage,
            Self::Peer(error) => match error.kind() {
                latput_peers::ErrorKind::Usage => Refusal::Usage,
                _ => Refusal::Failure,
            },
            Self::Lab { permission: true, .. } => Refusal::Permission,
            _ => Refusal::Failure,
        };
        ChangeOutcome::Refused(refusal)
    }
}

impl From<latput_peers::Error> for Error {
    fn from(error: latput_peers::Error) -> Self {
        match error {
            latput_peers::Error::Stopped => Self::Interrupted,
            other => Self::Peer(other),
        }
    }
}
