//! What can go wrong with a stock peer or a foreign file, each with its mend.

use std::io;
use std::net::SocketAddr;

use latput_units::Nanos;

/// Why a stock peer could not be measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A target that looks like a peer but is invalid.
    #[error("`{text}`: {problem}, such as `iperf3://192.0.2.7` or `netperf://[2001:db8::7]:12865`")]
    Url {
        /// What was read.
        text: String,
        /// What is wrong.
        problem: &'static str,
    },
    /// The program cannot do the workload, or latput cannot ask it to.
    #[error("{program} at the far end: {problem}")]
    Unsupported {
        /// `iperf3`, `netperf`.
        program: &'static str,
        /// What it cannot do and how to mend it.
        problem: String,
    },
    /// The name has no address.
    #[error("`{host}` has no address: check the name")]
    Resolve {
        /// The name.
        host: String,
        /// The resolver's answer, where it gave one.
        #[source]
        source: Option<io::Error>,
    },
    /// Nothing listens there.
    #[error("{peer} refuses the connection: start `{command}` there, and check the port")]
    Refused {
        /// Its address.
        peer: SocketAddr,
        /// What would listen.
        command: &'static str,
    },
    /// No way there.
    #[error("no route to {peer}: check the address and the interface that leads there")]
    NoRoute {
        /// Its address.
        peer: SocketAddr,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
    /// It does not answer.
    #[error(
        "{peer} did not answer within {waited} ({waiting_for}): check that it runs the right program and that no firewall is between"
    )]
    NoAnswer {
        /// Its address.
        peer: SocketAddr,
        /// What we waited for.
        waiting_for: &'static str,
        /// How long.
        waited: Nanos,
    },
    /// iperf3 serves one test at a time.
    #[error(
        "the iperf3 server at {peer} is busy with another test: try again when that has ended, or start a second server on another port"
    )]
    Busy {
        /// Its address.
        peer: SocketAddr,
    },
    /// The server says that it failed.
    #[error("{peer} says: {text}")]
    Refusal {
        /// Its address.
        peer: SocketAddr,
        /// In its words, or those that its number stands for.
        text: String,
    },
    /// The server was stopped by its owner.
    #[error("the server at {peer} was stopped in the middle of the test")]
    Terminated {
        /// Its address.
        peer: SocketAddr,
    },
    /// The server is of a version that does not speak this protocol.
    #[error("{peer} is too old: {problem}")]
    TooOld {
        /// Its address.
        peer: SocketAddr,
        /// What was missing, and which version has it.
        problem: String,
    },
    /// Whatever answered is another program, or damaged.
    #[error("what listens at {peer} does not speak {program}'s protocol: {problem}")]
    Malformed {
        /// Its address.
        peer: SocketAddr,
        /// The program that should be there.
        program: &'static str,
        /// What came instead.
        problem: String,
    },
    /// It closed a connection before its time.
    #[error("{peer} went away ({doing}): see that program's output for the reason")]
    PeerGone {
        /// Its address.
        peer: SocketAddr,
        /// What we were doing.
        doing: &'static str,
    },
    /// The stop flag was raised.
    #[error("stopped before the end of the measurement")]
    Stopped,
    /// The traffic failed at this end.
    #[error(transparent)]
    Traffic(latput_load::Error),
    /// Any other answer of the kernel.
    #[error("cannot {doing}")]
    Io {
        /// What we were doing.
        doing: &'static str,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
}

/// What a caller can do about an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The request must be another.
    Usage,
    /// The far end, or the way to it.
    Peer,
    /// The caller asked for it.
    Stopped,
    /// This host.
    System,
}

impl Error {
    /// What a caller can do about it.
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

    /// Whether the traffic broke at this end, so that the same may go well another time.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Traffic(error) if error.is_transient())
    }

    pub(crate) fn io(doing: &'static str, source: impl Into<io::Error>) -> Self {
        Self::Io { doing, source: source.into() }
    }
}

impl From<latput_load::Error> for Error {
    /// What is said of a latput far end is said here of a stock one.
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
