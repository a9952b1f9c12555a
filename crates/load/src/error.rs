//! What can go wrong between two ends of traffic, each with its mend.

use std::io;
use std::net::SocketAddr;

use latput_units::{Bytes, CpuSet, Nanos};

use crate::clock::Slices;

/// Why traffic could not start or had to end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Nothing listens at the peer's port.
    #[error("{peer} refuses the connection: start the reflector there first, and check its port")]
    Refused {
        /// The reflector's address.
        peer: SocketAddr,
    },
    /// No way to the peer.
    #[error("no route to {peer}: check the address and the interface that leads there")]
    NoRoute {
        /// The reflector's address.
        peer: SocketAddr,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
    /// The peer does not answer.
    #[error(
        "{peer} did not answer within {waited}: check that it is up and no firewall is between"
    )]
    NoAnswer {
        /// The reflector's address.
        peer: SocketAddr,
        /// How long we waited.
        waited: Nanos,
    },
    /// The reflector closed a connection instead of welcoming it.
    #[error(
        "{peer} closed the connection in the handshake: the key is of another run, or all connections of its test are taken"
    )]
    NotWelcome {
        /// The reflector's address.
        peer: SocketAddr,
    },
    /// Whatever answered is not a reflector that has the run's key.
    #[error(
        "what listens at {peer} is not this run's reflector, or of another version: check the port"
    )]
    NotReflector {
        /// Its address.
        peer: SocketAddr,
    },
    /// The other end went away before the window was over.
    #[error(
        "{peer} went away {before_end} before the end of the measurement: see that host's agent for the reason"
    )]
    PeerGone {
        /// The other end.
        peer: SocketAddr,
        /// How much of the window was left (the warm-up included, if it went that early).
        before_end: Nanos,
    },
    /// The connections stand but nothing came through in the whole window.
    #[error(
        "nothing came through from {peer} in the whole window: check for loss, an MTU mismatch or a firewall on the path"
    )]
    Stalled {
        /// The other end.
        peer: SocketAddr,
    },
    /// The port is taken.
    #[error("{address} is in use: choose another port, or 0 for any")]
    PortInUse {
        /// Where we wanted to listen.
        address: SocketAddr,
    },
    /// The address is not one of this host's.
    #[error("{address} is not an address of this host: check the testbed's address")]
    AddressNotHere {
        /// Where we wanted to listen.
        address: SocketAddr,
    },
    /// The generator did not come.
    #[error(
        "{shown} of {wanted} connections came in time ({auth_failures} with a wrong key): check that the generator runs and has this run's key"
    )]
    NotReady {
        /// Connections that showed the key.
        shown: usize,
        /// Connections that the traffic has.
        wanted: usize,
        /// Connections that showed another key.
        auth_failures: u64,
    },
    /// A datagram does not fit one packet.
    #[error(
        "a datagram of {bytes} does not fit the path's MTU: make it smaller, or the MTU larger"
    )]
    DatagramTooBig {
        /// Payload of one datagram.
        bytes: Bytes,
    },
    /// The kernel lets us send no ICMP echo.
    #[error(
        "no permission for ICMP echo: run as root, grant CAP_NET_RAW, or widen the sysctl net.ipv4.ping_group_range"
    )]
    ProbePermission {
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
    /// More connections than this process may have open files.
    #[error(
        "{connections} connections need {wanted} open files and this process may have {limit}: raise the hard limit (`ulimit -Hn`, LimitNOFILE= of its systemd unit), or use fewer connections"
    )]
    TooFewDescriptors {
        /// Connections of this end.
        connections: usize,
        /// Open files that it takes, those of now included.
        wanted: u64,
        /// The hard limit.
        limit: u64,
    },
    /// Every local port towards the peer is taken.
    #[error(
        "no local port is left for a connection to {peer}: widen the sysctl net.ipv4.ip_local_port_range, set net.ipv4.tcp_tw_reuse = 1, or wait a minute for closed connections to be forgotten"
    )]
    NoPortLeft {
        /// The reflector's address.
        peer: SocketAddr,
    },
    /// The kernel has no such congestion control.
    #[error(
        "this host has no congestion control `{name}`: choose one of the sysctl net.ipv4.tcp_available_congestion_control, or load its module (modprobe tcp_{name})"
    )]
    NoCongestionControl {
        /// What was asked for.
        name: String,
    },
    /// A socket option that needs more rights.
    #[error("no permission for {option}: run as root or grant CAP_NET_ADMIN{otherwise}")]
    OptionPermission {
        /// The option.
        option: &'static str,
        /// Another way, or nothing.
        otherwise: &'static str,
    },
    /// The kernel has no such socket option.
    #[error("this kernel does not know {option}: leave it out of the workload")]
    NoOption {
        /// The option.
        option: &'static str,
    },
    /// A socket buffer larger than the host allows.
    #[error(
        "{option} of {asked} is more than this host allows ({granted}): raise the sysctl {sysctl}, or run as root"
    )]
    BufferTooLarge {
        /// `SO_SNDBUF` or `SO_RCVBUF`.
        option: &'static str,
        /// What the workload wants.
        asked: Bytes,
        /// What the kernel gave.
        granted: Bytes,
        /// The limit's name.
        sysctl: &'static str,
    },
    /// CPUs of the workload that are not the host's.
    #[error(
        "the workload binds this end to CPUs {asked}, but this host's are {host}: choose among them, or change the testbed's `cpus`"
    )]
    NotItsCpus {
        /// Asked for.
        asked: CpuSet,
        /// The host's.
        host: CpuSet,
    },
    /// The connections that came are not those of the traffic.
    #[error(
        "{peer} did not number its connections as this version does: install the same latput on both"
    )]
    MixedConnections {
        /// The generator.
        peer: SocketAddr,
    },
    /// A traffic thread got no CPU until its window had begun.
    #[error(
        "a traffic thread started {late_by} after its window had begun: the host is overloaded, or the warm-up too short"
    )]
    LateThread {
        /// How late.
        late_by: Nanos,
    },
    /// A field of the workload is out of range.
    #[error(transparent)]
    BadTraffic(#[from] latput_trial::workload::FieldError),
    /// A window that cannot be.
    #[error(
        "cannot measure {length} after a warm-up of {warm_up}: the window must last between 1 ns and a day, and start within a day from now"
    )]
    BadWindow {
        /// Asked for before the window.
        warm_up: Nanos,
        /// Asked for as window.
        length: Nanos,
    },
    /// Slices that a window cannot be cut into.
    #[error(
        "cannot cut a window into {} slices of {} without the first {} of each: a slice must be longer than its cut, and there are 1 to 1000 of them in at most a day",
        slices.count, slices.length, slices.cut
    )]
    BadSlices {
        /// Asked for.
        slices: Slices,
    },
    /// The workload ends when it has counted so many, but the window has slices.
    #[error(
        "a workload with a `count` cannot be measured in slices: give it a duration instead, or measure it in trials of its own"
    )]
    CountInSlices,
    /// The far end is another program, which knows of no slices.
    #[error("traffic with a program that is not latput's cannot be measured in slices")]
    ForeignSlices,
    /// The threads cannot be held to the CPUs.
    #[error(
        "cannot bind traffic to CPUs {cpus}: name CPUs that are online and allowed for this process"
    )]
    Affinity {
        /// The CPUs.
        cpus: CpuSet,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
    /// The stop flag was raised.
    #[error("stopped before the end of the measurement")]
    Stopped,
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
    /// The request cannot be met by anyone: change it.
    Invalid,
    /// More rights are needed.
    Permission,
    /// The other end, or the way to it; trying again may help.
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
            Self::BadTraffic(_)
            | Self::BadWindow { .. }
            | Self::BadSlices { .. }
            | Self::CountInSlices
            | Self::ForeignSlices
            | Self::DatagramTooBig { .. }
            | Self::NotItsCpus { .. } => ErrorKind::Invalid,
            Self::ProbePermission { .. } | Self::OptionPermission { .. } => ErrorKind::Permission,
            Self::Stopped => ErrorKind::Stopped,
            Self::PortInUse { .. }
            | Self::AddressNotHere { .. }
            | Self::Affinity { .. }
            | Self::TooFewDescriptors { .. }
            | Self::NoPortLeft { .. }
            | Self::NoCongestionControl { .. }
            | Self::NoOption { .. }
            | Self::BufferTooLarge { .. }
            | Self::LateThread { .. }
            | Self::Io { .. } => ErrorKind::System,
            _ => ErrorKind::Peer,
        }
    }

    /// Whether the traffic was up and broke, so that the same may go well another time.
    pub fn is_transient(&self) -> bool {
        use io::ErrorKind::{HostUnreachable, NetworkDown, NetworkUnreachable};

        match self {
            Self::PeerGone { .. } | Self::Stalled { .. } | Self::LateThread { .. } => true,
            // A link that went down: without a way there nothing would have come so far.
            Self::Io { source, .. } => {
                matches!(source.kind(), HostUnreachable | NetworkDown | NetworkUnreachable)
            }
            _ => false,
        }
    }

    pub(crate) fn io(doing: &'static str, source: impl Into<io::Error>) -> Self {
        Self::Io { doing, source: source.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_is_down_may_come_up_again() {
        let said = |errno: rustix::io::Errno| Error::io("send", errno).is_transient();
        assert!(said(rustix::io::Errno::NETUNREACH));
        assert!(said(rustix::io::Errno::HOSTUNREACH));
        assert!(!said(rustix::io::Errno::PERM));
        assert!(!Error::Stopped.is_transient());
    }
}
