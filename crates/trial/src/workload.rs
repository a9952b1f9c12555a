//! The traffic of a trial: its kind, sockets, CPU binding and probe.

mod field;
mod fields;
mod kinds;

use latput_units::{BitsPerSecond, Bytes, CpuSet, Nanos};
use serde::{Deserialize, Serialize};

pub use self::field::{Division, Field, FieldError, FieldUnit};
pub use self::fields::{COUNT, PROBE_HZ, SOCKET_FIELDS, from_fields};
pub use self::kinds::{KINDS, Shape, WorkloadKind};

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
        }
    }
}

/// The traffic between the load generator and the system under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Traffic {
    /// Request and response on TCP. Closed loop: a response releases the next request. With
    /// `arrivals`, open loop: requests leave when they are due, independent of responses.
    TcpRr {
        /// Size of a request.
        request_bytes: Bytes,
        /// Size of a response.
        response_bytes: Bytes,
        /// Requests in flight on each connection beside the first (netperf's "first burst"); not with
        /// `arrivals`.
        burst: u32,
        /// Connections, spread over the threads.
        connections: u32,
        /// Threads at each end.
        #[serde(default = "one")]
        threads: u32,
        /// Whether `TCP_NODELAY` is set at both ends.
        nodelay: bool,
        /// Arrivals of an open loop over all connections; `None` for a closed loop.
        #[serde(default)]
        arrivals: Option<Arrivals>,
    },
    /// Connect, request, response, close: one connection for each transaction.
    TcpCrr {
        /// Size of a request.
        request_bytes: Bytes,
        /// Size of a response.
        response_bytes: Bytes,
        /// Transactions in flight, spread over the threads.
        connections: u32,
        /// Threads at each end.
        threads: u32,
        /// Whether `TCP_NODELAY` is set at both ends.
        nodelay: bool,
    },
    /// Bulk on TCP: `tcp_stream`, `tcp_maerts` and `tcp_bidir` by their direction.
    TcpBulk {
        /// Direction of the payload.
        direction: Direction,
        /// Size of one send.
        message_bytes: Bytes,
        /// Connections, spread over the threads; for `tcp_bidir`, so many each way.
        connections: u32,
        /// Threads at each end.
        threads: u32,
        /// Offered payload rate over all connections (each way); `None` means as fast as possible.
        rate: Option<BitsPerSecond>,
        /// Whether a thread that sends on several connections at full speed may pass the kernel
        /// several messages with one call (`sendmsg(2)`). Older files lack this field.
        #[serde(default)]
        vectored: bool,
    },
    /// Datagrams from the generator to the system under test.
    UdpStream {
        /// Payload of one datagram.
        datagram_bytes: Bytes,
        /// Offered payload rate over all senders, evenly spaced; `None` means as fast as possible.
        rate: Option<BitsPerSecond>,
        /// Senders, each with its own socket (and so its own flow).
        #[serde(default = "one")]
        connections: u32,
        /// Threads at each end.
        #[serde(default = "one")]
        threads: u32,
        /// Whether the kernel may cut datagrams from one large send (`UDP_SEGMENT`) and join them
        /// on receipt (`UDP_GRO`), if it can.
        #[serde(default = "yes")]
        segmentation: bool,
    },
    /// Request and response on UDP. After `timeout` a request counts as lost and the next one goes.
    UdpRr {
        /// Size of a request.
        request_bytes: Bytes,
        /// Size of a response.
        response_bytes: Bytes,
        /// Requests in flight on each socket beside the first.
        burst: u32,
        /// Sockets, spread over the threads.
        connections: u32,
        /// Threads at each end.
        threads: u32,
        /// How long a response may take before its transaction counts as lost.
        timeout: Nanos,
        /// Arrivals of an open loop over all sockets; `None` for a closed loop.
        arrivals: Option<Arrivals>,
    },
    /// Connections that each download an object from the system under test repeatedly.
    Fetch {
        /// Size of the object.
        object_bytes: Bytes,
        /// Connections, spread over the threads.
        connections: u32,
        /// Threads at each end.
        threads: u32,
    },
    /// NFS-like reads: client processes, each with one connection and several reads outstanding,
    /// from a server with a think time.
    RpcRead {
        /// Client processes, each with its own thread and connection.
        clients: u32,
        /// Reads that each client keeps outstanding.
        outstanding: u32,
        /// Data of one read. A call and the head of its reply have 128 byte each, about as in a
        /// READ of NFS version 3 (RFC 1813).
        read_bytes: Bytes,
        /// Server think time of a read.
        think: Think,
    },
    /// Only ICMP echo at a fixed rate.
    Ping {
        /// Echo requests per second, evenly spaced, independent of replies.
        rate_hz: u32,
        /// Payload of a request.
        payload_bytes: Bytes,
    },
}

const fn one() -> u32 {
    1
}

const fn yes() -> bool {
    true
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

/// The direction of bulk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// The generator to the system under test: `tcp_stream`.
    #[default]
    ToSut,
    /// The system under test to the generator: `tcp_maerts` (netperf's name: stream, backwards).
    FromSut,
    /// Both at once, on separate connections: `tcp_bidir`.
    Both,
}

/// The distribution of times between events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Distribution {
    /// Constant.
    Fixed,
    /// Exponential: a Poisson process, which cannot lock onto a timer's phase.
    #[default]
    Exponential,
}

/// The arrivals of an open loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrivals {
    /// Requests per second, over all connections.
    pub rate_per_s: u32,
    /// Distribution of the gaps between requests.
    pub gaps: Distribution,
}

/// Time a server takes before it answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Think {
    /// Mean; zero means no think time.
    pub mean: Nanos,
    /// Distribution of the think time.
    pub distribution: Distribution,
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
