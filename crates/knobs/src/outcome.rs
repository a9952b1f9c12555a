//! The outcome of a change: one type from the transaction to the exit code.

use serde::{Deserialize, Serialize};

/// The outcome of a change, or of a request that might have made one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeOutcome {
    /// All was so already, and nothing was written.
    Unchanged,
    /// It was made, and read back.
    Done,
    /// It was not made, and nothing was changed.
    Refused(Refusal),
    /// It failed on the way, and everything is as it was.
    RolledBack,
    /// It failed on the way, and something is not as it was.
    Stranded,
}

/// Why nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// The command, plan or file is wrong.
    Usage,
    /// A privilege is missing.
    Permission,
    /// Anything else.
    Failure,
}

impl ChangeOutcome {
    /// Nothing was changed, for lack of a privilege or for another reason.
    pub const fn refused(is_permission: bool) -> Self {
        Self::Refused(if is_permission { Refusal::Permission } else { Refusal::Failure })
    }
}
