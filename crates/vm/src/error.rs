//! What can go wrong with a guest, each with the thing it is about and the remedy.

use std::io;
use std::path::Path;

/// A guest that could not be had, or a command that could not be run in one.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The words after `vm:` name no guest.
    #[error("`vm:{name}` is no guest: {problem}")]
    Spec {
        /// As it was given.
        name: String,
        /// What is wrong, and what there is.
        problem: String,
    },
    /// Something that a guest is made of is not on this host.
    #[error("{what}: {mend}")]
    Missing {
        /// What is missing, and where it was looked for.
        what: String,
        /// How to get it.
        mend: String,
    },
    /// A file or program of this host failed.
    #[error("cannot {operation}: {source}")]
    Io {
        /// What was tried: `read /boot/vmlinuz-6.1`.
        operation: String,
        /// Why not.
        source: io::Error,
    },
    /// A file of the kernel package is not what it should be.
    #[error("{path}: {problem}")]
    Damaged {
        /// The file.
        path: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The guest did not come up.
    #[error("the guest {problem}; its console ends with: {console}")]
    Boot {
        /// What happened instead.
        problem: String,
        /// The last lines it said.
        console: String,
    },
    /// The guest is gone or does not answer.
    #[error("the line to the guest: {0}")]
    Line(String),
    /// A call of the guest's own kernel failed; seen on its console.
    #[error(transparent)]
    Kernel(#[from] latput_linux::Error),
}

impl Error {
    /// Wraps a failed file operation or program; `operation` completes "cannot ...".
    pub(crate) fn io(operation: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self::Io { operation: operation.into(), source: source.into() }
    }

    pub(crate) fn damaged(path: &Path, problem: impl Into<String>) -> Self {
        Self::Damaged { path: path.display().to_string(), problem: problem.into() }
    }
}
