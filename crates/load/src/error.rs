//! Errors of the traffic between two ends, each with its remedy.

use std::io;
use std::net::SocketAddr;

use latput_units::text::format_count;
use latput_units::{Bytes, CpuSet, Nanos};

use crate::slices::SliceLayout;

/// A reason why traffic could not start or had to end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Nothing listens at the peer's port.
    #[error("{peer} refuses the connection: start the reflector there first, and check its port")]
    Refused {
        /// The reflector's address.
        peer: SocketAddr,
    },
    /// No route to the peer.
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
    /// The reflector closed a connection in the handshake.
    #[error(
        "{peer} closed the connection in the handshake: the key is of another run, or all connections of its test are taken"
    )]
    NotWelcome {
        /// The reflector's address.
        peer: SocketAddr,
    },
    /// The answering program is not a reflector with the run's key.
    #[error(
        "what listens at {peer} is not this run's reflector, or of another version: check the port"
    )]
    NotReflector {
        /// The peer's address.
        peer: SocketAddr,
    },
    /// The other end closed before the end of the window.
    #[error(
        "{peer} went away {before_end} before the end of the measurement: see that host's agent for the reason"
    )]
    PeerGone {
        /// The other end.
        peer: SocketAddr,
        /// Rest of the window (including the warm-up, if that was not over).
        before_end: Nanos,
    },
    /// The connections are open but no data arrived in the whole window.
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
        /// The listening address.
        address: SocketAddr,
    },
    /// The address is not one of this host's.
    #[error("{address} is not an address of this host: check the testbed's address")]
    AddressNotHere {
        /// The listening address.
        address: SocketAddr,
    },
    /// The generator did not connect in time.
    #[error(
        "{shown} of {} came in time ({auth_failures} with a wrong key): check that the generator runs and has this run's key",
        format_count(*wanted, "connection")
    )]
    NotReady {
        /// Connections that proved the key.
        shown: usize,
        /// Connections of the workload.
        wanted: usize,
        /// Connections that did not prove the key.
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
    /// The kernel refuses to send ICMP echo.
    #[error(
        "no permission for ICMP echo: run as root, grant CAP_NET_RAW, or widen the sysctl net.ipv4.ping_group_range"
    )]
    ProbePermission {
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
    /// The connections need more open files than this process may have.
    #[error(
        "{connections} connections need {wanted} open files and this process may have {limit}: raise the hard limit (`ulimit -Hn`, LimitNOFILE= of its systemd unit), or use fewer connections"
    )]
    TooFewDescriptors {
        /// Connections at this end.
        connections: usize,
        /// Open files needed, including those open now.
        wanted: u64,
        /// The hard limit.
        limit: u64,
    },
    /// Every local port toward the peer is in use.
    #[error(
        "no local port is left for a connection to {peer}: widen the sysctl net.ipv4.ip_local_port_range, set net.ipv4.tcp_tw_reuse = 1, or wait a minute for closed connections to be forgotten"
    )]
    NoPortLeft {
        /// The reflector's address.
        peer: SocketAddr,
    },
    /// The kernel lacks the congestion control.
    #[error(
        "this host has no congestion control `{name}`: choose one of the sysctl net.ipv4.tcp_available_congestion_control, or load its module (modprobe tcp_{name})"
    )]
    NoCongestionControl {
        /// The congestion control of the workload.
        name: String,
    },
    /// A socket option that needs more rights.
    #[error("no permission for {option}: run as root or grant CAP_NET_ADMIN{otherwise}")]
    OptionPermission {
        /// The option.
        option: &'static str,
        /// An alternative to the option, or an empty text.
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
        /// Size that the workload asks for.
        asked: Bytes,
        /// Size that the kernel granted.
        granted: Bytes,
        /// The sysctl that limits it.
        sysctl: &'static str,
    },
    /// The workload names CPUs that this host may not use.
    #[error(
        "the workload binds this end to CPUs {asked}, but this host's are {host}: choose among them, or change the testbed's `cpus`"
    )]
    NotItsCpus {
        /// CPUs of the workload.
        asked: CpuSet,
        /// CPUs of the host.
        host: CpuSet,
    },
    /// The connections do not belong to this traffic.
    #[error(
        "{peer} did not number its connections as this version does: install the same latput on both"
    )]
    MixedConnections {
        /// The generator.
        peer: SocketAddr,
    },
    /// A traffic thread got its first CPU time after the start of the window.
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
    /// The length or the start of a window is out of range.
    #[error(
        "cannot measure {length} after a warm-up of {warm_up}: the window must last between 1 ns and a day, and start within a day from now"
    )]
    BadWindow {
        /// The requested warm-up.
        warm_up: Nanos,
        /// The requested length.
        length: Nanos,
    },
    /// The slices are out of range.
    #[error(
        "cannot cut a window into {} slices of {} without the first {} of each: a slice must be longer than its cut, and there are 1 to 1000 of them in at most a day",
        slices.count, slices.length, slices.cut
    )]
    BadSlices {
        /// The requested slices.
        slices: SliceLayout,
    },
    /// A workload that ends after a count cannot be measured in slices.
    #[error(
        "a workload with a `count` cannot be measured in slices: give it a duration instead, or measure it in trials of its own"
    )]
    CountInSlices,
    /// The traffic is made by programs.
    #[error("a `command` workload is traffic of programs, which this end does not make")]
    NotOurs,
    /// The peer is a third-party program, which does not support slices.
    #[error("traffic with a program that is not latput's cannot be measured in slices")]
    ForeignSlices,
    /// The kernel refuses to bind the threads to the CPUs.
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
    /// The request is impossible on any host.
    Invalid,
    /// The process needs more rights.
    Permission,
    /// The other end or the path to it failed; a retry may help.
    Peer,
    /// The caller stopped the traffic.
    Stopped,
    /// This host failed.
    System,
}

impl Error {
    /// The class of the error.
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::BadTraffic(_)
            | Self::BadWindow { .. }
            | Self::BadSlices { .. }
            | Self::CountInSlices
            | Self::NotOurs
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
            Self::Refused { .. }
            | Self::NoRoute { .. }
            | Self::NoAnswer { .. }
            | Self::NotWelcome { .. }
            | Self::NotReflector { .. }
            | Self::PeerGone { .. }
            | Self::Stalled { .. }
            | Self::NotReady { .. }
            | Self::MixedConnections { .. } => ErrorKind::Peer,
        }
    }

    /// Whether established traffic broke, so that a retry may succeed.
    pub fn is_transient(&self) -> bool {
        use io::ErrorKind::{HostUnreachable, NetworkDown, NetworkUnreachable};

        match self {
            Self::PeerGone { .. } | Self::Stalled { .. } | Self::LateThread { .. } => true,
            // The link went down: without a route the connections would not have been established.
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
    fn down_link_may_come_up() {
        let said = |errno: rustix::io::Errno| Error::io("send", errno).is_transient();
        assert!(said(rustix::io::Errno::NETUNREACH));
        assert!(said(rustix::io::Errno::HOSTUNREACH));
        assert!(!said(rustix::io::Errno::PERM));
        assert!(!Error::Stopped.is_transient());
    }
}
