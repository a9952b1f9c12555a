//! Errors of a run, and the state that they leave the hosts in.

use latput_knobs::{ChangeOutcome, Refusal};
use latput_trial::plan::PlanError;
use latput_units::Nanos;
use latput_units::text::format_count;

/// An error of a run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The plan cannot be run.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The plan cannot be searched.
    #[error("the plan cannot be searched: {problem}")]
    Search {
        /// The missing or excessive part.
        problem: String,
    },
    /// The optimiser that suggests settings has failed.
    #[error("the optimiser {problem}")]
    Optimiser {
        /// Fault of the host, and the remedy.
        problem: String,
    },
    /// The testbed supports no part of the plan.
    #[error("{problem}")]
    Unsupported {
        /// The unsupported parts.
        problem: String,
    },
    /// The plan wants slices, which the testbed does not support.
    #[error("this testbed cannot change settings in slices; use `design = \"blocks\"`")]
    NoSlices,
    /// Live traffic is not on this testbed.
    #[error(
        "live traffic is that of one host. Name its interface: `latput tune eth0 --live`, or \
         `netns://NAME%eth0`, `ssh://root@server%eth0` on another host"
    )]
    NoLiveTraffic,
    /// Live traffic cannot be compared with itself.
    #[error("live traffic: {problem}")]
    LiveTraffic {
        /// The problem and the remedy.
        problem: String,
    },
    /// The trials cannot be divided among shards.
    #[error("--shard {shard}: {problem}")]
    Shard {
        /// The shard that was asked for, such as `3/16`.
        shard: String,
        /// The reason and the remedy.
        problem: String,
    },
    /// A search that was to run no trial is not over.
    #[error("block {block} of the search is next: {}", format_count(*trials, "trial"))]
    SearchGoesOn {
        /// The block, counted from 0.
        block: u32,
        /// Number of its trials that are not there.
        trials: usize,
    },
    /// The budget has no room for an answer.
    #[error(
        "the budget of {budget} is too short: the plan needs at least {least}. Give `--budget {least}` or more, or vary \
         less"
    )]
    Budget {
        /// The budget.
        budget: Nanos,
        /// The least that would do, in whole seconds.
        least: Nanos,
    },
    /// A setting would lose packets.
    #[error("setting `{setting}` is refused: {problem}")]
    Overrun {
        /// The setting's label.
        setting: String,
        /// The arithmetic and the remedy.
        problem: String,
    },
    /// No interfaces could be chosen between two hosts.
    #[error("{between}: {problem}")]
    NoWay {
        /// The two hosts.
        between: String,
        /// The obstacle, and its remedy.
        problem: String,
    },
    /// The simulator does not support a part of the plan.
    #[error("{testbed}: {problem}")]
    Simulator {
        /// `sim:SYSTEM`.
        testbed: String,
        /// The problem and the remedy.
        problem: String,
    },
    /// A thread of the simulator panicked.
    #[error("the simulator crashed in a trial: this is a bug in latput")]
    SimulatorDied,
    /// An agent refused or failed.
    #[error("host `{host}`: {message}")]
    Host {
        /// The host.
        host: String,
        /// The agent's message.
        message: String,
        /// The outcome for the host.
        outcome: ChangeOutcome,
        /// Whether only the traffic broke, so that the host is ready for another trial.
        is_transient: bool,
    },
    /// Some hosts may still be changed.
    #[error("{}", describe_changed_hosts(hosts, cause.as_deref()))]
    Changed {
        /// The hosts.
        hosts: Vec<LeftChanged>,
        /// The error that ended the run before.
        cause: Option<Box<Error>>,
    },
    /// A host could not be reached.
    #[error(transparent)]
    Reach(latput_reach::Error),
    /// The results file cannot be used.
    #[error(transparent)]
    Results(latput_results::Error),
    /// The two ends' reports on a trial do not match.
    #[error("workload `{workload}`: {problem}")]
    Traffic {
        /// The workload.
        workload: String,
        /// The problem.
        problem: String,
    },
    /// A program of a `command` workload failed.
    #[error("host `{host}`: {problem}")]
    Program {
        /// The host that ran it.
        host: String,
        /// The program, how it ended, and what it said last.
        problem: String,
        /// Whether another attempt may succeed.
        is_transient: bool,
    },
    /// The third-party program at the far end cannot be used so.
    #[error(transparent)]
    Peer(#[from] latput_peers::Error),
    /// There was no trial with the third-party program at the far end.
    #[error("{message}")]
    PeerTrial {
        /// Message of the agent.
        message: String,
        /// Whether the request was wrong.
        outcome: ChangeOutcome,
        /// Whether only the traffic broke, so that another trial may succeed.
        is_transient: bool,
    },
    /// Trials failed again and again in the same way.
    #[error("{cause} (the same {times} times)")]
    Repeated {
        /// How often in a row.
        times: u32,
        /// The error of each time.
        cause: Box<Error>,
    },
    /// The run ended normally, but some trials are missing because their traffic broke each time.
    #[error("lost: {}; the last: {why}", format_count(*trials, "trial"))]
    TrialsLost {
        /// Number of missing trials.
        trials: usize,
        /// The error of the last one.
        why: String,
    },
    /// Other work on the hosts would spoil the run.
    #[error(
        "the hosts are not quiet. Nothing was changed. {}. Stop it, or wait for quiet (`--quiet-within 2min`), \
         or start anyway (`--as-it-is`; disturbed trials do not count), or make it part of the case \
         (`--beside`)",
        found.join("; ")
    )]
    NotQuiet {
        /// The disturbances, with the processes, in sentences.
        found: Vec<String>,
    },
    /// Ctrl-C or a termination signal.
    #[error("interrupted")]
    Interrupted,
}

/// A host that could not be put back in time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftChanged {
    /// Its name in the testbed.
    pub host: String,
    /// The reason why it may still be changed.
    pub why: String,
    /// The command that puts it back.
    pub command: String,
}

fn describe_changed_hosts(hosts: &[LeftChanged], cause: Option<&Error>) -> String {
    let hosts = hosts.iter().map(|LeftChanged { host, why, command }| {
        format!("host `{host}` may still be changed ({why}): run `{command}`")
    });
    cause.map(ToString::to_string).into_iter().chain(hosts).collect::<Vec<_>>().join("; ")
}

impl From<latput_reach::Error> for Error {
    fn from(error: latput_reach::Error) -> Self {
        match error {
            latput_reach::Error::Interrupted => Self::Interrupted,
            error => Self::Reach(error),
        }
    }
}

impl From<latput_results::Error> for Error {
    fn from(error: latput_results::Error) -> Self {
        match error {
            latput_results::Error::Interrupted => Self::Interrupted,
            error => Self::Results(error),
        }
    }
}

impl Error {
    /// Whether a trial's traffic broke while every host stayed ready for another trial.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Host { is_transient, .. }
            | Self::Program { is_transient, .. }
            | Self::PeerTrial { is_transient, .. } => *is_transient,
            _ => false,
        }
    }

    /// The outcome for the hosts.
    pub fn outcome(&self) -> ChangeOutcome {
        let refusal = match self {
            Self::Changed { .. } => return ChangeOutcome::Stranded,
            Self::Reach(error) => return error.outcome(),
            Self::Results(error) => return error.outcome(),
            Self::Repeated { cause, .. } => return cause.outcome(),
            Self::Host { outcome, .. } | Self::PeerTrial { outcome, .. } => return *outcome,
            Self::Plan(_)
            | Self::Search { .. }
            | Self::Optimiser { .. }
            | Self::Unsupported { .. }
            | Self::NoSlices
            | Self::NoLiveTraffic
            | Self::Shard { .. }
            | Self::Overrun { .. }
            | Self::Budget { .. }
            | Self::Simulator { .. } => Refusal::Usage,
            Self::Peer(error) => match error.kind() {
                latput_peers::ErrorKind::Usage => Refusal::Usage,
                latput_peers::ErrorKind::Peer
                | latput_peers::ErrorKind::Stopped
                | latput_peers::ErrorKind::System => Refusal::Failure,
            },
            Self::LiveTraffic { .. }
            | Self::SearchGoesOn { .. }
            | Self::NoWay { .. }
            | Self::SimulatorDied
            | Self::Traffic { .. }
            | Self::Program { .. }
            | Self::TrialsLost { .. }
            | Self::NotQuiet { .. }
            | Self::Interrupted => Refusal::Failure,
        };
        ChangeOutcome::Refused(refusal)
    }
}
