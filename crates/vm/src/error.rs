//! Errors of a guest, each with its subject and the remedy.

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
        /// The problem, and the available values.
        problem: String,
    },
    /// Something that a guest is made of is not on this host.
    #[error("{what}: {mend}")]
    Missing {
        /// The missing thing, and the places that were searched.
        what: String,
        /// How to get it.
        mend: String,
    },
    /// A file or program of this host failed.
    #[error("cannot {operation}: {source}")]
    Io {
        /// The attempted operation: `read /boot/vmlinuz-6.1`.
        operation: String,
        /// Why not.
        source: io::Error,
    },
    /// A file of the kernel package is not what it should be.
    #[error("{path}: {problem}")]
    Damaged {
        /// The file.
        path: String,
        /// The problem.
        problem: String,
    },
    /// The guest did not come up.
    #[error("the guest {problem}; its console ends with: {console}")]
    Boot {
        /// The observed behaviour.
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
