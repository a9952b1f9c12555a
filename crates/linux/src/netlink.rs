//! A small netlink codec: messages, attributes and a blocking request/answer socket.
//!
//! One codec serves the families that latput speaks (rtnetlink, ethtool, netdev, `sock_diag`). It trusts
//! nothing that it reads: a short, long or nonsensical answer is an error, never a panic.

pub(crate) mod message;
pub(crate) mod notices;
pub(crate) mod socket;
pub(crate) mod uapi;

pub(crate) use message::{Attribute, Attributes, Request};
pub(crate) use socket::{Generic, Protocol, Socket};

/// A netlink request that did not end well.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NetlinkError {
    /// The socket itself failed.
    #[error("cannot {request}: netlink socket")]
    Socket {
        /// The request, as a verb phrase: `set mtu of lat0`.
        request: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The kernel said no.
    #[error("cannot {request}: {}", refusal_text(*.errno, .text.as_deref(), *.offset))]
    Refused {
        /// The request.
        request: String,
        /// The error number, positive.
        errno: i32,
        /// The kernel's own words (extended acknowledgement), where it gave any.
        text: Option<String>,
        /// Offset in the request of the attribute that it complains of, where it gave one.
        offset: Option<u32>,
    },
    /// The answer makes no sense.
    #[error("cannot {request}: {source}")]
    Malformed {
        /// The request.
        request: String,
        /// The problem of the answer.
        #[source]
        source: Malformed,
    },
    /// The kernel did not answer in time, or its answer never came to an end.
    #[error("cannot {request}: no complete answer from the kernel within 5 s")]
    Timeout {
        /// The request.
        request: String,
    },
}

impl NetlinkError {
    /// The kernel's error number, where there is one.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Socket { source, .. } => source.raw_os_error(),
            Self::Refused { errno, .. } => Some(*errno),
            Self::Malformed { .. } | Self::Timeout { .. } => None,
        }
    }

    /// The cause without the request: the kernel's words, or the text of the error number.
    pub fn reason(&self) -> String {
        match self {
            Self::Socket { source, .. } => source.to_string(),
            Self::Refused { errno, text, offset, .. } => {
                refusal_text(*errno, text.as_deref(), *offset)
            }
            Self::Malformed { source, .. } => source.to_string(),
            Self::Timeout { .. } => "no complete answer from the kernel within 5 s".to_owned(),
        }
    }
}

/// Bytes that are not what the netlink protocol says they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed netlink answer: {what}")]
pub struct Malformed {
    /// The problem.
    pub what: &'static str,
}

pub(crate) const fn malformed(what: &'static str) -> Malformed {
    Malformed { what }
}

fn refusal_text(errno: i32, text: Option<&str>, offset: Option<u32>) -> String {
    let errno_text = crate::errno::errno_text(errno);
    match (text, offset) {
        (Some(text), Some(offset)) => format!("{text} (attribute at byte {offset}): {errno_text}"),
        (Some(text), None) => format!("{text}: {errno_text}"),
        (None, Some(offset)) => format!("{errno_text} (attribute at byte {offset})"),
        (None, None) => errno_text,
    }
}
