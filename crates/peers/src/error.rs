//! Errors of third-party peers, each with its remedy.

use std::io;
use std::net::SocketAddr;

use latput_units::Nanos;

/// A reason why a third-party peer could not be measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An invalid peer URL.
    #[error("`{text}`: {problem}, such as `iperf3://192.0.2.7` or `netperf://[2001:db8::7]:12865`")]
    Url {
        /// The text of the URL.
        text: String,
        /// The problem.
        problem: &'static str,
    },
    /// The program does not support the workload.
    #[error("{program} at the far end: {problem}")]
    Unsupported {
        /// `iperf3`, `netperf`.
        program: &'static str,
        /// The unsupported feature and the remedy.
        problem: String,
    },
    /// The host name has no address.
    #[error("`{host}` has no address: check the name")]
    Resolve {
        /// The name.
        host: String,
        /// The name servers asked, and their answer.
        #[source]
        source: latput_names::Error,
    },
    /// Nothing listens at the address.
    #[error("{peer} refuses the connection: start `{command}` there, and check the port")]
    Refused {
        /// Its address.
        peer: SocketAddr,
        /// The command that would listen.
        command: &'static str,
    },
    /// No route to the peer.
    #[error("no route to {peer}: check the address and the interface that leads there")]
    NoRoute {
        /// Its address.
        peer: SocketAddr,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// The peer does not answer.
    #[error(
        "{peer} did not answer within {waited} ({waiting_for}): check that it runs the right program and that no firewall is between"
    )]
    NoAnswer {
        /// Its address.
        peer: SocketAddr,
        /// The awaited message.
        waiting_for: &'static str,
        /// The time waited.
        waited: Nanos,
    },
    /// iperf3 runs another test; it serves one at a time.
    #[error(
        "the iperf3 server at {peer} is busy with another test: try again when that has ended, or start a second server on another port"
    )]
    Busy {
        /// Its address.
        peer: SocketAddr,
    },
    /// The server reported an error.
    #[error("{peer} says: {text}")]
    Refusal {
        /// Its address.
        peer: SocketAddr,
        /// The server's text, or the meaning of its error number.
        text: String,
    },
    /// The server was stopped.
    #[error("the server at {peer} was stopped in the middle of the test")]
    Terminated {
        /// Its address.
        peer: SocketAddr,
    },
    /// The server is too old for this protocol.
    #[error("{peer} is too old: {problem}")]
    TooOld {
        /// Its address.
        peer: SocketAddr,
        /// The missing feature, and the version that has it.
        problem: String,
    },
    /// The answer is of another program, or damaged.
    #[error("what listens at {peer} does not speak {program}'s protocol: {problem}")]
    Malformed {
        /// Its address.
        peer: SocketAddr,
        /// The expected program.
        program: &'static str,
        /// The unexpected answer.
        problem: String,
    },
    /// The peer closed a connection too early.
    #[error("{peer} went away ({doing}): see that program's output for the reason")]
    PeerGone {
        /// Its address.
        peer: SocketAddr,
        /// The operation in progress.
        doing: &'static str,
    },
    /// The stop flag was raised.
    #[error("stopped before the end of the measurement")]
    Stopped,
    /// The traffic failed at this end.
    #[error(transparent)]
    Traffic(latput_load::Error),
    /// Any other error of the kernel.
    #[error("cannot {doing}")]
    Io {
        /// The failed operation.
        doing: &'static str,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
}

/// The class of an [`Error`], which says what a caller can do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The request is wrong.
    Usage,
    /// The far end or the path to it failed.
    Peer,
    /// The caller stopped the trial.
    Stopped,
    /// This host failed.
    System,
}

impl Error {
    /// The class of the error.
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Url { .. } | Self::Unsupported { .. } => ErrorKind::Usage,
            Self::Stopped => ErrorKind::Stopped,
            Self::Io { .. } => ErrorKind::System,
            Self::Traffic(error) => match error.kind() {
                latput_load::ErrorKind::Invalid => ErrorKind::Usage,
                latput_load::ErrorKind::Stopped => ErrorKind::Stopped,
                latput_load::ErrorKind::Peer => ErrorKind::Peer,
                _ => ErrorKind::System,
            },
            _ => ErrorKind::Peer,
        }
    }

    /// Whether established traffic broke, so that a retry may succeed.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Traffic(error) if error.is_transient())
    }

    pub(crate) fn io(doing: &'static str, source: impl Into<io::Error>) -> Self {
        Self::Io { doing, source: source.into() }
    }
}

impl From<latput_load::Error> for Error {
    /// Converts errors of the traffic. Those of latput's far end become those of a third-party
    /// peer.
    fn from(error: latput_load::Error) -> Self {
        match error {
            latput_load::Error::PeerGone { peer, .. } => {
                Self::PeerGone { peer, doing: "in the middle of the traffic" }
            }
            latput_load::Error::Stopped => Self::Stopped,
            other => Self::Traffic(other),
        }
    }
}
