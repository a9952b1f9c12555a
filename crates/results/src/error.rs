//! Errors of results files.

use std::path::PathBuf;

use latput_knobs::{ChangeOutcome, Refusal};

/// An error of a results file.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The results file cannot be used.
    #[error("{}: {problem}", path.display())]
    ResultsDb {
        /// The file.
        path: PathBuf,
        /// The problem and the remedy.
        problem: String,
        /// Whether another file is to be named, or a right is missing.
        refusal: Refusal,
    },
    /// Shards cannot be merged.
    #[error("{}", problems.join("; "))]
    Merge {
        /// Fault of each file or shard, and the remedy.
        problems: Vec<String>,
    },
    /// Ctrl-C or a termination signal.
    #[error("interrupted")]
    Interrupted,
}

impl Error {
    /// The outcome for the hosts.
    pub fn outcome(&self) -> ChangeOutcome {
        ChangeOutcome::Refused(match self {
            Self::ResultsDb { refusal, .. } => *refusal,
            Self::Merge { .. } => Refusal::Usage,
            Self::Interrupted => Refusal::Failure,
        })
    }
}
