//! The traffic of a trial: its kind, sockets, CPU binding and probe.

#![warn(clippy::wildcard_enum_match_arm)]

mod facts;
mod field;
mod fields;
mod kinds;
mod traffic_parts;
mod values;

use latput_units::{BitsPerSecond, Bytes, CpuSet, Nanos};
use serde::{Deserialize, Serialize};

pub use self::facts::{KindFacts, PayloadFlow, Shape, TrafficMaker, TrafficProtocol};
pub use self::field::{Division, Field, FieldError, FieldUnit};
pub use self::fields::{
    COUNT, PROBE_HZ, SOCKET_FIELDS, build_live_workload, build_program_workload, from_fields,
};
pub use self::kinds::{COMMAND, KINDS, LIVE, Traffic, WorkloadKind};
pub use self::traffic_parts::{Arrivals, Direction, Distribution, Think};

use crate::live::Live;
use crate::program::Program;

/// One workload with its probe.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Workload {
    /// Short and unique in its plan: `tcp_rr burst=16`.
    pub name: String,
    /// The traffic between the load generator and the system under test.
    pub traffic: Traffic,
    /// Options of the traffic's sockets, at both ends.
    #[serde(default)]
    pub sockets: SocketOptions,
    /// The CPUs that the traffic threads of each end are bound to.
    #[serde(default)]
    pub binding: Binding,
    /// Ends the window early after this many units: transactions, messages, datagrams, objects or
    /// reads, over all connections.
    #[serde(default)]
    pub count: Option<u64>,
    /// A latency probe beside the traffic.
    pub probe: Option<Probe>,
    /// The programs of [`Traffic::Command`], and of no other traffic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<Box<Program>>,
    /// Scope of [`Traffic::Live`], and of no other traffic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub live: Option<Box<Live>>,
}

impl Workload {
    /// `traffic` with default sockets, on any CPU of each host, for the whole window and without a
    /// probe.
    pub fn plain(name: impl Into<String>, traffic: Traffic) -> Self {
        Self {
            name: name.into(),
            traffic,
            sockets: SocketOptions::default(),
            binding: Binding::default(),
            count: None,
            probe: None,
            program: None,
            live: None,
        }
    }
}

impl Traffic {
    /// A closed loop of 1-byte requests and responses on one connection, each in its own segment.
    pub const fn tcp_rr(burst: u32) -> Self {
        Self::TcpRr {
            request_bytes: Bytes::new(1),
            response_bytes: Bytes::new(1),
            burst,
            connections: 1,
            threads: 1,
            nodelay: true,
            arrivals: None,
        }
    }

    /// Bulk to the system under test at full speed, with one thread at each end.
    pub const fn tcp_stream(message_bytes: Bytes, connections: u32) -> Self {
        Self::TcpBulk {
            direction: Direction::ToSut,
            message_bytes,
            connections,
            threads: 1,
            rate: None,
            vectored: true,
        }
    }

    /// Datagrams from one sender at an offered payload rate.
    pub const fn udp_stream(datagram_bytes: Bytes, rate: BitsPerSecond) -> Self {
        Self::UdpStream {
            datagram_bytes,
            rate: Some(rate),
            connections: 1,
            threads: 1,
            segmentation: true,
        }
    }
}

/// Options of the traffic's sockets; `None` leaves the system's default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketOptions {
    /// `SO_SNDBUF` at both ends; the kernel doubles it (socket(7)).
    pub send_buffer: Option<Bytes>,
    /// `SO_RCVBUF` at both ends, set before the connection so that it bounds the TCP window.
    pub receive_buffer: Option<Bytes>,
    /// `TCP_CONGESTION`: `cubic`, `reno`, `bbr`.
    pub congestion: Option<String>,
    /// `SO_BUSY_POLL`: how long a blocking receive polls the device's queue.
    pub busy_poll: Option<Nanos>,
    /// `SO_PREFER_BUSY_POLL`: busy polling rather than softirq.
    pub prefer_busy_poll: bool,
    /// Busy polling of the threads that wait by epoll.
    #[serde(default)]
    pub epoll_busy_poll: Option<EpollBusyPoll>,
}

/// Busy polling by epoll, as `EPIOCSPARAMS` sets it (`ioctl_eventpoll(2)`, Linux 6.9).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EpollBusyPoll {
    /// How long a wait for events polls the device's queue.
    pub time: Nanos,
    /// Packets of one poll.
    pub budget: u16,
    /// Whether the queue's interrupts stay off while the thread polls (`prefer_busy_poll`). With `irq-suspend-timeout` they stay
    /// off until it finds nothing.
    pub prefers: bool,
}

/// The CPUs of the traffic threads; `None` means every CPU of the host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Binding {
    /// CPUs at the system under test.
    pub sut: Option<CpuSet>,
    /// CPUs at each generator.
    pub generator: Option<CpuSet>,
}

/// ICMP echo at a fixed rate beside the traffic: latency under load. The observer sends it, or the
/// generator if there is no observer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Probe {
    /// Echo requests per second, evenly spaced, independent of replies.
    pub rate_hz: u32,
}
