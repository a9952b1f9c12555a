//! Why a program's output or a test of a file gives no figures.

use latput_trial::figures::NumberError;

/// A program's output that gives no figures.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// It has another form than the parser reads; the options that it needs may be missing.
    #[error("{0}")]
    Form(String),
    /// It has a number that can be read in two ways.
    #[error("{0}")]
    Ambiguous(#[from] NumberError),
    /// The program did nothing that has figures.
    #[error("{0}")]
    Failed(String),
    /// Two of its figures contradict each other.
    #[error("{0}")]
    Contradiction(String),
}

impl ReadError {
    /// The error of a test in which no transaction was completed.
    pub(crate) fn nothing_done() -> Self {
        Self::Failed("no request was answered".to_owned())
    }
}

impl From<String> for ReadError {
    fn from(problem: String) -> Self {
        Self::Form(problem)
    }
}

impl From<&str> for ReadError {
    fn from(problem: &str) -> Self {
        Self::Form(problem.to_owned())
    }
}
