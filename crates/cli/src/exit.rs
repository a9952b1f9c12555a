//! Exit codes: one table, and the errors that map to it.

use std::fmt;
use std::process::ExitCode;

use latput_runner::error::LeftChanged;
use latput_agent::{agent, keeper};
use latput_knobs::{ChangeOutcome, Refusal, transaction};

/// The table in `--help`.
pub(crate) const TABLE: &str = "\
Exit codes:
  0  done; a run with a goal was judged, even if it was too noisy for an answer
  1  failed, and the machine is unchanged
  2  wrong usage: command line, plan or testbed file; a named file, run or setting that is not there, or that latput \
     cannot read
  3  not permitted (the message says which privilege is missing)
  4  the change was refused and rolled back
  5  stranded: a rollback failed or a checkpoint is left; the message says how to finish
  6  partial: trials or hosts of a fleet are missing; or no answer, because the hosts were not quiet, \
     no fit trial has the goal's figure, or too few pairs are fit; also `apply` and `keep` of such a run; \
     `keep --check` could not read a value
  7  proven worse: a figure of `latput report --compare A B --fail-on worse`, or the setting of `latput fleet confirm`
  8  a host of a fleet does not have the wanted values, or differs from its twins (`latput fleet verify`, `drift`); \
     a kept value is not in force, or its file is not whole or does not win (`latput keep --check`)";

/// The exit code of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExitReason {
    Done = 0,
    Failed = 1,
    Usage = 2,
    Permission = 3,
    RolledBack = 4,
    Stranded = 5,
    Partial = 6,
    Worse = 7,
    Drifted = 8,
}

impl ExitReason {
    /// The word for it in JSON, and what to do then beside what the message says.
    pub(crate) const fn kind_and_remedy(self) -> (&'static str, &'static str) {
        match self {
            Self::Done => ("done", "nothing"),
            Self::Failed => {
                ("failed", "fix what the message names and repeat the command: nothing was changed")
            }
            Self::Usage => {
                ("usage", "change what the message names; `--help` lists what a command takes")
            }
            Self::Permission => {
                ("permission", "run as root, or grant the privilege that the message names")
            }
            Self::RolledBack => (
                "rolled_back",
                "fix what the message names and repeat the command: everything was put back",
            ),
            Self::Stranded => {
                ("stranded", "run the commands of `left`, or `latput restore` if there are none")
            }
            Self::Partial => (
                "partial",
                "repeat the command: it resumes; for a run without an answer, follow the message",
            ),
            Self::Worse => ("worse", "see the figures that are proven worse"),
            Self::Drifted => {
                ("drifted", "see the named hosts or knobs, or run `latput fleet apply`")
            }
        }
    }
}

/// A run that ended early, with the hosts that it left changed.
#[derive(Debug)]
pub(crate) struct CutShort {
    pub(crate) message: String,
    pub(crate) left: Vec<LeftChanged>,
}

impl fmt::Display for CutShort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for CutShort {}

/// An error with its exit code.
#[derive(Debug)]
pub(crate) struct CliError {
    pub(crate) code: ExitReason,
    pub(crate) error: anyhow::Error,
}

impl CliError {
    pub(crate) fn new(code: ExitReason, message: impl Into<String>) -> Self {
        Self { code, error: anyhow::Error::msg(message.into()) }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(ExitReason::Usage, message)
    }

    /// The error with its causes.
    pub(crate) fn message(&self) -> String {
        format!("{:#}", self.error)
    }
}

impl From<ExitReason> for ExitCode {
    fn from(code: ExitReason) -> Self {
        Self::from(code as u8)
    }
}

impl From<ChangeOutcome> for ExitReason {
    fn from(outcome: ChangeOutcome) -> Self {
        match outcome {
            ChangeOutcome::Unchanged | ChangeOutcome::Done => Self::Done,
            ChangeOutcome::Refused(Refusal::Failure) => Self::Failed,
            ChangeOutcome::Refused(Refusal::Usage) => Self::Usage,
            ChangeOutcome::Refused(Refusal::Permission) => Self::Permission,
            ChangeOutcome::RolledBack => Self::RolledBack,
            ChangeOutcome::Stranded => Self::Stranded,
        }
    }
}

impl From<latput_results::Error> for CliError {
    fn from(error: latput_results::Error) -> Self {
        Self { code: error.outcome().into(), error: error.into() }
    }
}

impl From<latput_reach::Error> for CliError {
    fn from(error: latput_reach::Error) -> Self {
        Self { code: error.outcome().into(), error: error.into() }
    }
}

impl From<latput_runner::Error> for CliError {
    fn from(error: latput_runner::Error) -> Self {
        Self { code: error.outcome().into(), error: error.into() }
    }
}

impl From<agent::AgentError> for CliError {
    fn from(error: agent::AgentError) -> Self {
        let code = match error {
            agent::AgentError::Host(_) => ExitReason::Stranded,
            agent::AgentError::Line(_)
            | agent::AgentError::Rights(_)
            | agent::AgentError::Keeper(_) => ExitReason::Failed,
        };
        Self { code, error: error.into() }
    }
}

impl From<keeper::KeeperError> for CliError {
    fn from(error: keeper::KeeperError) -> Self {
        let code = match error {
            keeper::KeeperError::Host(_) => ExitReason::Stranded,
            keeper::KeeperError::Start(_) | keeper::KeeperError::AgentKilled(_) => {
                ExitReason::Failed
            }
        };
        Self { code, error: error.into() }
    }
}

impl From<transaction::ApplyError> for CliError {
    fn from(error: transaction::ApplyError) -> Self {
        Self { code: error.outcome().into(), error: error.into() }
    }
}

impl From<transaction::RestoreError> for CliError {
    fn from(error: transaction::RestoreError) -> Self {
        Self { code: error.outcome().into(), error: error.into() }
    }
}

impl From<latput_knobs::StoreError> for CliError {
    fn from(error: latput_knobs::StoreError) -> Self {
        let code = if error.is_permission() { ExitReason::Permission } else { ExitReason::Failed };
        Self { code, error: error.into() }
    }
}

impl From<latput_vm::Error> for CliError {
    fn from(error: latput_vm::Error) -> Self {
        let code = if matches!(error, latput_vm::Error::Spec { .. }) {
            ExitReason::Usage
        } else {
            ExitReason::Failed
        };
        Self { code, error: error.into() }
    }
}

impl From<latput_linux::Error> for CliError {
    fn from(error: latput_linux::Error) -> Self {
        Self { code: error.outcome().into(), error: error.into() }
    }
}

impl From<latput_linux::files::FileError> for CliError {
    fn from(error: latput_linux::files::FileError) -> Self {
        let code = if error.permission { ExitReason::Permission } else { ExitReason::Failed };
        Self { code, error: error.into() }
    }
}

impl From<latput_moderate::Error> for CliError {
    fn from(error: latput_moderate::Error) -> Self {
        Self { code: error.outcome().into(), error: error.into() }
    }
}

impl From<std::io::Error> for CliError {
    fn from(error: std::io::Error) -> Self {
        let is_denied = error.kind() == std::io::ErrorKind::PermissionDenied;
        let code = if is_denied { ExitReason::Permission } else { ExitReason::Failed };
        Self { code, error: error.into() }
    }
}
