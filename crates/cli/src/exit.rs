//! Exit codes: one table, and the errors that map to it.

#![warn(clippy::wildcard_enum_match_arm)]

use std::fmt;
use std::process::ExitCode;

use latput_agent::{agent, keeper};
use latput_knobs::{ChangeOutcome, Refusal, transaction};
use latput_runner::error::LeftChanged;

/// An exit code. Help, JSON, its schema and the guide have its row.
#[derive(Debug)]
pub(crate) struct ExitRow {
    pub(crate) reason: ExitReason,
    /// The word for it in JSON.
    pub(crate) kind: &'static str,
    /// The meaning, in `--help` and the guide.
    pub(crate) meaning: &'static str,
    /// The remedy in JSON, beside what the message says.
    pub(crate) remedy: &'static str,
}

/// Makes the type and the table from the rows. The place of a row is its code.
macro_rules! exit_codes {
    ($($reason:ident = $kind:literal, $meaning:literal, $remedy:literal;)*) => {
        /// The reason for the exit code of the process.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum ExitReason {
            $($reason,)*
        }

        /// Every exit code, from 0.
        pub(crate) static EXIT_CODES: &[ExitRow] = &[
            $(ExitRow {
                reason: ExitReason::$reason,
                kind: $kind,
                meaning: $meaning,
                remedy: $remedy,
            },)*
        ];
    };
}

exit_codes! {
    Done = "done",
        "done; a run with a goal was judged, even if it was too noisy for an answer",
        "nothing";
    Failed = "failed",
        "failed, and the machine is unchanged",
        "fix what the message names and repeat the command: nothing was changed";
    Usage = "usage",
        "wrong usage: command line, plan or testbed file; a named file, run or setting that is not there, or that \
         latput cannot read",
        "change what the message names; `--help` lists what a command takes";
    Permission = "permission",
        "not permitted (the message says which privilege is missing)",
        "run as root, or grant the privilege that the message names";
    RolledBack = "rolled_back",
        "the change was refused and rolled back",
        "fix what the message names and repeat the command: everything was put back";
    Stranded = "stranded",
        "stranded: a rollback failed or a checkpoint is left; the message says how to finish",
        "run the commands of `left`, or `latput restore` if there are none";
    Partial = "partial",
        "partial: trials are missing, or a host of a fleet gave no answer or was left out; or no answer, because the hosts were not quiet, \
         no fit trial has the goal's figure, or too few pairs are fit; also `apply` and `keep` of such a run; \
         `keep --check` could not read a value",
        "repeat the command: it resumes; for a run without an answer, follow the message";
    Worse = "worse",
        "proven worse: a figure of `latput report --compare A B --fail-on worse`, or the setting of \
         `latput fleet confirm`",
        "see the figures that are proven worse";
    Drifted = "drifted",
        "a host of a fleet does not have the wanted values, or differs from others of its group (`latput fleet verify`, \
         `drift`); a kept value is not in force, or its file is not whole or does not win (`latput keep --check`)",
        "see the named hosts or knobs, or run `latput fleet apply`";
}

impl ExitReason {
    /// Its row.
    pub(crate) fn row(self) -> &'static ExitRow {
        &EXIT_CODES[self as usize]
    }

    /// The reason of this code.
    pub(crate) fn from_code(code: i32) -> Option<Self> {
        Some(EXIT_CODES.get(usize::try_from(code).ok()?)?.reason)
    }
}

/// The table in `--help`.
pub(crate) fn render_help_table() -> String {
    let line = |row: &ExitRow| format!("\n  {}  {}", row.reason as u8, row.meaning);
    "Exit codes:".to_owned() + &EXIT_CODES.iter().map(line).collect::<String>()
}

/// The words of errors in JSON.
pub(crate) fn error_kinds() -> Vec<&'static str> {
    let failures = EXIT_CODES.iter().filter(|row| row.reason != ExitReason::Done);
    failures.map(|row| row.kind).collect()
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

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use latput_fleet::fleet::HostErrorKind;
    use latput_testkit::blessed;

    use super::*;

    const GUIDE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/settings.md");
    const MARKS: [&str; 2] = [
        "<!-- exit codes: written by `LATPUT_BLESS=1 cargo test -p latput --bin latput -- exit` -->\n",
        "<!-- exit codes: end -->\n",
    ];

    #[test]
    fn guide_has_the_table_of_exit_codes() {
        let mut text = String::from("\n| exit code | `error.kind` | meaning |\n|---|---|---|\n");
        for ExitRow { reason, kind, meaning, .. } in EXIT_CODES {
            let _ = writeln!(text, "| {} | `{kind}` | {meaning} |", *reason as u8);
        }
        blessed::between(GUIDE, MARKS, &(text + "\n"));
    }

    #[test]
    fn fleet_reads_kinds_of_errors() {
        for ExitRow { reason, kind, .. } in EXIT_CODES {
            let read: HostErrorKind = serde_json::from_value((*kind).into()).unwrap();
            let expected = match reason {
                ExitReason::RolledBack => HostErrorKind::RolledBack,
                ExitReason::Stranded => HostErrorKind::Stranded,
                ExitReason::Done
                | ExitReason::Failed
                | ExitReason::Usage
                | ExitReason::Permission
                | ExitReason::Partial
                | ExitReason::Worse
                | ExitReason::Drifted => HostErrorKind::Other,
            };
            assert_eq!(read, expected, "{kind}");
        }
    }

    #[test]
    fn every_code_has_its_own_word() {
        for row in EXIT_CODES {
            assert_eq!(ExitReason::from_code(row.reason as i32), Some(row.reason));
        }
    }
}
