//! Exit codes: one table, and the failures that map to it.

use std::process::ExitCode;

use latput_experiment::ErrorKind;
use latput_knobs::transaction;

/// The table as `--help` shows it.
pub(crate) const TABLE: &str = "\
Exit codes:
  0  done
  1  failed, and the machine is unchanged
  2  wrong usage: command line, plan or testbed file
  3  not permitted (the message says which privilege is missing)
  4  the change was refused on the way and has been rolled back
  5  stranded: a rollback failed; the message says what is left and how to finish
  6  partial result: some trials are missing";

/// Why a command did not do what was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    Failed = 1,
    Usage = 2,
    Permission = 3,
    RolledBack = 4,
    Stranded = 5,
    Partial = 6,
}

/// An error on its way to the exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: Code,
    pub(crate) error: anyhow::Error,
}

impl Failure {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, error: anyhow::Error::msg(message.into()) }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Code::Usage, message)
    }

    /// The error with its causes, for people.
    pub(crate) fn words(&self) -> String {
        format!("latput: error: {:#}", self.error)
    }
}

impl From<Code> for ExitCode {
    fn from(code: Code) -> Self {
        Self::from(code as u8)
    }
}

impl From<latput_experiment::Error> for Failure {
    fn from(error: latput_experiment::Error) -> Self {
        let code = match error.kind() {
            ErrorKind::Failed => Code::Failed,
            ErrorKind::Usage => Code::Usage,
            ErrorKind::Permission => Code::Permission,
            ErrorKind::RolledBack => Code::RolledBack,
            ErrorKind::Stranded => Code::Stranded,
        };
        Self { code, error: error.into() }
    }
}

impl From<latput_experiment::agent::Error> for Failure {
    fn from(error: latput_experiment::agent::Error) -> Self {
        let code = match error {
            latput_experiment::agent::Error::Line(_) => Code::Failed,
            latput_experiment::agent::Error::Host(_) => Code::Stranded,
        };
        Self { code, error: error.into() }
    }
}

impl From<transaction::ErrorKind> for Code {
    fn from(kind: transaction::ErrorKind) -> Self {
        match kind {
            transaction::ErrorKind::Unchanged => Self::Failed,
            transaction::ErrorKind::Permission => Self::Permission,
            transaction::ErrorKind::RolledBack => Self::RolledBack,
            transaction::ErrorKind::Stranded => Self::Stranded,
        }
    }
}

impl From<transaction::ApplyError> for Failure {
    fn from(error: transaction::ApplyError) -> Self {
        Self { code: error.kind().into(), error: error.into() }
    }
}

impl From<transaction::RestoreError> for Failure {
    fn from(error: transaction::RestoreError) -> Self {
        Self { code: error.kind().into(), error: error.into() }
    }
}

impl From<latput_vm::Error> for Failure {
    fn from(error: latput_vm::Error) -> Self {
        let code =
            if matches!(error, latput_vm::Error::Spec { .. }) { Code::Usage } else { Code::Failed };
        Self { code, error: error.into() }
    }
}

impl From<latput_linux::Error> for Failure {
    fn from(error: latput_linux::Error) -> Self {
        let code = if error.is_permission() { Code::Permission } else { Code::Failed };
        Self { code, error: error.into() }
    }
}

impl From<latput_linux::files::FileError> for Failure {
    fn from(error: latput_linux::files::FileError) -> Self {
        Self { code: Code::Failed, error: error.into() }
    }
}

impl From<latput_moderate::Error> for Failure {
    fn from(error: latput_moderate::Error) -> Self {
        use latput_moderate::ErrorKind as Kind;
        let code = match error.kind() {
            Kind::Failed => Code::Failed,
            Kind::Usage => Code::Usage,
            Kind::Permission => Code::Permission,
            Kind::RolledBack => Code::RolledBack,
            Kind::Stranded => Code::Stranded,
        };
        Self { code, error: error.into() }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self { code: Code::Failed, error: error.into() }
    }
}
