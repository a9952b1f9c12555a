//! Errors between latput and the kernel.

use std::io;
use std::path::PathBuf;

use latput_knobs::{ChangeOutcome, Refusal};

use crate::netlink::NetlinkError;

/// A failed operation, naming the thing it was about.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A system call or a file operation failed.
    #[error("cannot {operation}")]
    System {
        /// The attempted operation, with the path or name: `mount sysfs on /sys`.
        operation: String,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// A netlink request failed.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// A kernel file does not read as expected.
    #[error("{file}: expected {expected}, found `{found}`")]
    Parse {
        /// The file.
        file: String,
        /// The expected content.
        expected: String,
        /// The start of what is there.
        found: String,
    },
    /// A counter went backwards between two samples, so their difference means nothing.
    #[error("{counter} went backwards, from {earlier} to {later}: repeat the trial")]
    Backwards {
        /// The counter, with its file.
        counter: String,
        /// Value in the earlier sample.
        earlier: u64,
        /// Value in the later sample.
        later: u64,
    },
    /// A capability is missing.
    #[error(
        "{purpose} needs {capability}: run it as root, or grant it with `setcap` or systemd's `AmbientCapabilities=`"
    )]
    Capability {
        /// The purpose.
        purpose: String,
        /// Which: `CAP_NET_ADMIN`.
        capability: &'static str,
    },
    /// There is no interface of this name.
    #[error("{}", latput_knobs::format_no_interface(name))]
    NoInterface {
        /// The name.
        name: String,
    },
    /// A name that no interface can have.
    #[error("`{name}` cannot be the name of an interface: 1 to 15 bytes, no `/`, no white space")]
    InterfaceName {
        /// The name.
        name: String,
    },
    /// The named lab exists already.
    #[error("there is a lab already ({path}): remove it with `latput lab down`")]
    LabExists {
        /// Its namespace file.
        path: PathBuf,
    },
    /// The permissions of a file forbid it to its owner.
    #[error(
        "its owner, user {user}, may not use {}, and latput reads files with the rights of a user, also as root: \
         `chmod u+rwX {}`",
        path.display(),
        path.display()
    )]
    FileOfOneUser {
        /// The user to whom all files of the command belong.
        user: u32,
        /// The file or folder.
        path: PathBuf,
    },
    /// The files of a command belong to several users.
    #[error(
        "no single user may use all these files: {refusals}. latput reads files with the rights of one user, also \
         as root. Copy them to a folder of one user"
    )]
    FilesOfSeveralUsers {
        /// Each user who was tried, and what it may not use.
        refusals: String,
    },
    /// Anything else, in a sentence.
    #[error("{0}")]
    Other(String),
}

impl Error {
    /// Wraps a failed system call; `operation` completes "cannot ...".
    pub(crate) fn system(operation: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self::System { operation: operation.into(), source: source.into() }
    }

    /// A kernel file that does not read as expected; keeps the start of what was found.
    pub(crate) fn parse(file: impl Into<String>, expected: impl Into<String>, found: &str) -> Self {
        let found = found.trim_end().chars().take(80).collect();
        Self::Parse { file: file.into(), expected: expected.into(), found }
    }

    /// The error with its causes.
    pub(crate) fn describe(&self) -> String {
        let mut text = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            text = format!("{text}: {error}");
            cause = error.source();
        }
        text
    }

    /// The kernel's error number, where there is one.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::System { source, .. } => source.raw_os_error(),
            Self::Netlink(error) => error.errno(),
            Self::NoInterface { .. } => Some(libc::ENODEV),
            _ => None,
        }
    }

    /// Whether the process lacked a permission (exit code 3).
    pub fn is_permission(&self) -> bool {
        matches!(self, Self::Capability { .. })
            || matches!(self.errno(), Some(libc::EPERM | libc::EACCES))
    }

    /// The outcome where it kept something from being changed.
    pub fn outcome(&self) -> ChangeOutcome {
        match self {
            Self::NoInterface { .. }
            | Self::InterfaceName { .. }
            | Self::FileOfOneUser { .. }
            | Self::FilesOfSeveralUsers { .. } => ChangeOutcome::Refused(Refusal::Usage),
            Self::System { .. }
            | Self::Netlink(_)
            | Self::Parse { .. }
            | Self::Backwards { .. }
            | Self::Capability { .. }
            | Self::LabExists { .. }
            | Self::Other(_) => ChangeOutcome::refused(self.is_permission()),
        }
    }
}

/// Refuses names that the kernel would refuse, and those that would leave `/sys/class/net`
/// (`dev_valid_name`, `net/core/dev.c`).
pub(crate) fn check_interface_name(name: &str) -> Result<(), Error> {
    let is_valid = (1..=15).contains(&name.len())
        && name != "."
        && name != ".."
        && !name.chars().any(|c| c == '/' || c == ':' || c == '\0' || c.is_whitespace());
    if is_valid {
        Ok(())
    } else {
        Err(Error::InterfaceName { name: name.chars().take(40).collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_outside_sysfs_are_refused() {
        for name in
            ["", ".", "..", "a/b", "../../etc", "eth 0", "eth0:1", "sixteen-bytes-xx", "a\0"]
        {
            assert!(check_interface_name(name).is_err(), "{name:?}");
        }
        for name in ["lo", "eth0", "fifteen-bytes-x", "a.b"] {
            assert!(check_interface_name(name).is_ok(), "{name:?}");
        }
    }

    #[test]
    fn permission_is_told_from_the_rest() {
        let error = |errno| Error::system("try", io::Error::from_raw_os_error(errno));
        assert!(error(libc::EPERM).is_permission());
        assert!(error(libc::EACCES).is_permission());
        assert!(!error(libc::ENOENT).is_permission());
    }
}
