//! The kinds of traffic: their fields and facts, and the conversion of a kind to a [`Traffic`] and back.
//!
//! A new kind touches five files: here a variant of [`Traffic`], a row in [`KINDS`] and an arm in each `match`; its packets
//! in `overrun.rs`; in `latput-load` an arm in `kind.rs` and a loop below it; its model in `latput-sim`'s `workload.rs`.

use latput_units::{BitsPerSecond, Bytes, IntoMap, Nanos, spelling};
use serde::{Deserialize, Serialize};

use super::facts::{BULK, EXCHANGE, KindFacts, PayloadFlow, Shape, TrafficMaker, TrafficProtocol};
use super::field::{Division, Field, FieldError};
use super::traffic_parts::{Arrivals, Direction, Think};
use super::values::Values;
use crate::metric::Metric;

/// The largest message on TCP.
const LARGEST_MESSAGE: u64 = 16 << 20;
/// The largest payload of a datagram: 65535 - 20 (IPv4 header) - 8 (UDP or ICMP header).
const LARGEST_DATAGRAM: u64 = 65_507;

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
    /// Programs of the user's own, which the workload's `program` names.
    Command,
    /// Traffic that flows anyway: none of it is latput's. The workload's `live` is its scope.
    Live,
}

const fn one() -> u32 {
    1
}

const fn yes() -> bool {
    true
}

/// A kind of traffic.
#[derive(Clone, Copy, Debug)]
pub struct WorkloadKind {
    /// Its name in plans and on the command line.
    pub name: &'static str,
    /// The description of the traffic, for people.
    pub about: &'static str,
    /// The unit of its count, in the plural.
    pub unit: &'static str,
    /// Its facts.
    pub facts: KindFacts,
    /// Its own fields, in the order of a workload's name.
    pub fields: &'static [Field],
    /// Builds the traffic from values of the fields.
    pub(super) build: fn(&Values) -> Traffic,
}

const CONNECTIONS: Field =
    Field::count("connections", 1, (1, 10_000), "connections, spread over the threads")
        .divided(Division::Parts);
const THREADS: Field =
    Field::count("threads", 1, (1, 256), "threads at each end").divided(Division::AtLeastOne);
const NODELAY: Field = Field::switch("nodelay", true, "whether `TCP_NODELAY` is set at both ends");
const RATE_PER_S: Field = Field::per_second(
    "rate_per_s",
    None,
    (1, 100_000_000),
    "open loop: requests per second over all connections",
)
.divided(Division::Parts);
const GAPS: Field = Field::distribution("gaps", "open loop: gaps between requests");
const RATE: Field =
    Field::bit_rate("rate", "offered payload rate over all connections").divided(Division::Parts);

const fn message(name: &'static str, default: u64, about: &'static str) -> Field {
    Field::bytes(name, default, (1, LARGEST_MESSAGE), about)
}

const fn datagram(name: &'static str, default: u64, least: u64, about: &'static str) -> Field {
    Field::bytes(name, default, (least, LARGEST_DATAGRAM), about)
}

const fn burst(most: u64) -> Field {
    Field::count("burst", 0, (0, most), "requests in flight on each connection beside the first")
}

const BULK_FIELDS: &[Field] = &[
    message("message_bytes", 32_768, "size of one send"),
    CONNECTIONS,
    THREADS,
    RATE,
    Field::switch("vectored", true, "whether one call may send on several connections"),
];

fn bulk(values: &Values, direction: Direction) -> Traffic {
    Traffic::TcpBulk {
        direction,
        message_bytes: values.bytes("message_bytes"),
        connections: values.small("connections"),
        threads: values.small("threads"),
        rate: values.rate(),
        vectored: values.is_on("vectored"),
    }
}

/// The kind whose traffic is made by programs.
pub const COMMAND: &str = "command";

/// The kind of traffic that is there anyway.
pub const LIVE: &str = "live";

/// Every kind.
pub const KINDS: &[WorkloadKind] = &[
    WorkloadKind {
        name: "tcp_rr",
        about: "request and response on TCP",
        unit: "transactions",
        facts: KindFacts {
            shown: &[
                Metric::TransactionsPerS,
                Metric::LatencyNsP50,
                Metric::LatencyNsP99,
                Metric::LatencyUncorrectedNsP99, // what a closed loop would have seen of the tail
                Metric::SutCpuBusyRatio,
                Metric::SutServiceDemandUs,
            ],
            ..EXCHANGE
        },
        fields: &[
            message("request_bytes", 1, "size of a request"),
            message("response_bytes", 1, "size of a response"),
            burst(65_535),
            CONNECTIONS,
            THREADS,
            NODELAY,
            RATE_PER_S,
            GAPS,
        ],
        build: |values| Traffic::TcpRr {
            request_bytes: values.bytes("request_bytes"),
            response_bytes: values.bytes("response_bytes"),
            burst: values.small("burst"),
            connections: values.small("connections"),
            threads: values.small("threads"),
            nodelay: values.is_on("nodelay"),
            arrivals: values.arrivals(),
        },
    },
    WorkloadKind {
        name: "tcp_crr",
        about: "connect, request, response, close; `connections` are transactions at the same time",
        unit: "transactions",
        facts: KindFacts { connects: true, ..EXCHANGE },
        fields: &[
            message("request_bytes", 1, "size of a request"),
            message("response_bytes", 1, "size of a response"),
            CONNECTIONS,
            THREADS,
            NODELAY,
        ],
        build: |values| Traffic::TcpCrr {
            request_bytes: values.bytes("request_bytes"),
            response_bytes: values.bytes("response_bytes"),
            connections: values.small("connections"),
            threads: values.small("threads"),
            nodelay: values.is_on("nodelay"),
        },
    },
    WorkloadKind {
        name: "tcp_stream",
        about: "bulk on TCP from the generator to the system under test",
        unit: "messages",
        facts: BULK,
        fields: BULK_FIELDS,
        build: |values| bulk(values, Direction::ToSut),
    },
    WorkloadKind {
        name: "tcp_maerts",
        about: "bulk on TCP from the system under test to the generator",
        unit: "messages",
        facts: KindFacts { payload: PayloadFlow::FromSut, ..BULK },
        fields: BULK_FIELDS,
        build: |values| bulk(values, Direction::FromSut),
    },
    WorkloadKind {
        name: "tcp_bidir",
        about: "bulk on TCP both ways at once; `connections` and `rate` are of each way",
        unit: "messages",
        facts: KindFacts {
            payload: PayloadFlow::Both,
            shown: &[
                Metric::ThroughputBps,
                Metric::ThroughputToSutBps,
                Metric::ThroughputFromSutBps,
                Metric::ProbeNsP50,
                Metric::ProbeNsP99,
                Metric::SutCpuBusyRatio,
                Metric::SutServiceDemandUs,
            ],
            ..BULK
        },
        fields: BULK_FIELDS,
        build: |values| bulk(values, Direction::Both),
    },
    WorkloadKind {
        name: "udp_stream",
        about: "datagrams to the system under test, evenly spaced; a connection is a flow",
        unit: "datagrams",
        facts: KindFacts {
            protocol: Some(TrafficProtocol::Udp),
            shape: Shape::Datagrams,
            unit_bytes: Some("datagram_bytes"),
            shown: &[
                Metric::ThroughputBps,
                Metric::LossRatio,
                Metric::JitterNs,
                Metric::ReorderedRatio,
                Metric::SutCpuBusyRatio,
                Metric::SutServiceDemandUs,
            ],
            ..BULK
        },
        fields: &[
            // At least sequence number and time; the default fits a frame of 1500 bytes over IPv4 and IPv6.
            datagram("datagram_bytes", 1_448, 18, "payload of a datagram"),
            RATE,
            CONNECTIONS,
            THREADS,
            Field::switch(
                "segmentation",
                true,
                "whether the kernel cuts large sends and joins what it receives",
            ),
        ],
        build: |values| Traffic::UdpStream {
            datagram_bytes: values.bytes("datagram_bytes"),
            rate: values.rate(),
            connections: values.small("connections"),
            threads: values.small("threads"),
            segmentation: values.is_on("segmentation"),
        },
    },
    WorkloadKind {
        name: "udp_rr",
        about: "request and response on UDP; a connection is a flow",
        unit: "transactions",
        facts: KindFacts {
            protocol: Some(TrafficProtocol::Udp),
            shown: &[
                Metric::TransactionsPerS,
                Metric::LatencyNsP50,
                Metric::LatencyNsP99,
                Metric::LatencyUncorrectedNsP99,
                Metric::LossRatio,
                Metric::SutCpuBusyRatio,
                Metric::SutServiceDemandUs,
            ],
            ..EXCHANGE
        },
        fields: &[
            datagram("request_bytes", 64, 32, "size of a request"),
            datagram("response_bytes", 64, 32, "size of a response"),
            burst(1_023),
            CONNECTIONS,
            THREADS,
            Field::time(
                "timeout",
                Nanos::from_ms(200),
                (Nanos::from_ms(1), Nanos::from_s(10)),
                "time until a transaction counts as lost",
            ),
            RATE_PER_S,
            GAPS,
        ],
        build: |values| Traffic::UdpRr {
            request_bytes: values.bytes("request_bytes"),
            response_bytes: values.bytes("response_bytes"),
            burst: values.small("burst"),
            connections: values.small("connections"),
            threads: values.small("threads"),
            timeout: Nanos::from_ns(values.number("timeout")),
            arrivals: values.arrivals(),
        },
    },
    WorkloadKind {
        name: "fetch",
        about: "each connection downloads an object from the system under test again and again",
        unit: "objects",
        facts: KindFacts {
            payload: PayloadFlow::OnRequest,
            has_latency: true,
            unit_bytes: Some("object_bytes"),
            ..BULK
        },
        fields: &[
            Field::bytes("object_bytes", 1_000_000, (1, 1 << 40), "size of the object"),
            CONNECTIONS,
            THREADS,
        ],
        build: |values| Traffic::Fetch {
            object_bytes: values.bytes("object_bytes"),
            connections: values.small("connections"),
            threads: values.small("threads"),
        },
    },
    WorkloadKind {
        name: "rpc_read",
        about: "NFS-like reads by clients, each a thread and a connection",
        unit: "reads",
        facts: KindFacts { payload: PayloadFlow::OnRequest, ..EXCHANGE },
        fields: &[
            Field::count("clients", 3, (1, 256), "clients").divided(Division::Parts),
            Field::count("outstanding", 8, (1, 1_024), "reads in flight of each client"),
            message("read_bytes", 32_768, "data of a read"),
            Field::time(
                "think",
                Nanos::ZERO,
                (Nanos::ZERO, Nanos::from_s(1)),
                "time that the server takes before it answers",
            ),
            Field::distribution("think_distribution", "spread of `think`"),
        ],
        build: |values| Traffic::RpcRead {
            clients: values.small("clients"),
            outstanding: values.small("outstanding"),
            read_bytes: values.bytes("read_bytes"),
            think: Think {
                mean: Nanos::from_ns(values.number("think")),
                distribution: values.distribution("think_distribution"),
            },
        },
    },
    WorkloadKind {
        name: "ping",
        about: "ICMP echo and nothing else",
        unit: "echoes",
        facts: KindFacts { protocol: Some(TrafficProtocol::Icmp), ..EXCHANGE },
        fields: &[
            Field::per_second("rate_hz", Some(1_000), (1, 10_000), "echo requests per second"),
            datagram("payload_bytes", 56, 16, "payload of a request"),
        ],
        build: |values| Traffic::Ping {
            rate_hz: values.small("rate_hz"),
            payload_bytes: values.bytes("payload_bytes"),
        },
    },
    WorkloadKind {
        name: COMMAND,
        about: "your own benchmark and its server: `--command`, or `command = [...]` in a plan",
        unit: "transactions",
        facts: KindFacts { maker: TrafficMaker::Programs, protocol: None, ..EXCHANGE },
        fields: &[],
        build: |_| Traffic::Command,
    },
    WorkloadKind {
        name: LIVE,
        about: "the existing traffic of one host; latput sends none: `latput tune eth0 --live`",
        unit: "transactions",
        facts: KindFacts {
            maker: TrafficMaker::Host,
            protocol: None,
            has_latency: false,
            rate: Metric::TcpThroughputBps,
            tail: Metric::TcpRttNsP99,
            cost: Metric::SutPacketCpuNs,
            judged: [
                Metric::TcpThroughputBps,
                Metric::TcpRttNsP99,
                Metric::SutCpuBusyRatio,
                Metric::SutPacketCpuNs,
            ],
            shown: &[
                Metric::TcpThroughputBps,
                Metric::TcpRttNsP50,
                Metric::TcpRttNsP99,
                Metric::SutCpuBusyRatio,
                Metric::SutPacketCpuNs,
            ],
            ..EXCHANGE
        },
        fields: &[],
        build: |_| Traffic::Live,
    },
];

/// The names of all kinds.
const NAMES: [&str; KINDS.len()] = {
    let mut names = [""; KINDS.len()];
    let mut idx = 0;
    while idx < KINDS.len() {
        names[idx] = KINDS[idx].name;
        idx += 1;
    }
    names
};

impl WorkloadKind {
    /// The kind of this name.
    ///
    /// # Errors
    ///
    /// No kind has this name; the error lists the kinds.
    pub fn find(name: &str) -> Result<&'static Self, FieldError> {
        KINDS.iter().find(|kind| kind.name == name).ok_or_else(|| {
            let meant = spelling::nearest_name(name, NAMES)
                .map_or(String::new(), |meant| format!(": did you mean `{meant}`?"));
            let problem = format!(
                "there is no workload of kind `{name}`; the kinds are {}{meant}",
                NAMES.join(", ")
            );
            FieldError::new("kind", problem)
        })
    }
}

impl Traffic {
    /// The names of all kinds.
    pub const KINDS: &[&str] = &NAMES;

    /// The name of its kind.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::TcpRr { .. } => "tcp_rr",
            Self::TcpCrr { .. } => "tcp_crr",
            Self::TcpBulk { direction: Direction::ToSut, .. } => "tcp_stream",
            Self::TcpBulk { direction: Direction::FromSut, .. } => "tcp_maerts",
            Self::TcpBulk { direction: Direction::Both, .. } => "tcp_bidir",
            Self::UdpStream { .. } => "udp_stream",
            Self::UdpRr { .. } => "udp_rr",
            Self::Fetch { .. } => "fetch",
            Self::RpcRead { .. } => "rpc_read",
            Self::Ping { .. } => "ping",
            Self::Command => COMMAND,
            Self::Live => LIVE,
        }
    }

    /// The row of its kind.
    pub fn descriptor(&self) -> &'static WorkloadKind {
        WorkloadKind::find(self.kind()).expect("every kind of traffic has a row")
    }

    /// The fields of its kind with their values, in order; `None` for a field that is off.
    #[expect(clippy::too_many_lines, reason = "a table: one arm to a kind")]
    pub fn values(&self) -> Vec<(&'static Field, Option<u64>)> {
        let small = |value: u32| Some(u64::from(value));
        let switch = |value: bool| Some(u64::from(value));
        let values = match *self {
            Self::TcpRr {
                request_bytes,
                response_bytes,
                burst,
                connections,
                threads,
                nodelay,
                arrivals,
            } => vec![
                Some(request_bytes.get()),
                Some(response_bytes.get()),
                small(burst),
                small(connections),
                small(threads),
                switch(nodelay),
                arrivals.map(|open| open.rate_per_s.into()),
                arrivals.map(|open| open.gaps.number()),
            ],
            Self::TcpCrr { request_bytes, response_bytes, connections, threads, nodelay } => vec![
                Some(request_bytes.get()),
                Some(response_bytes.get()),
                small(connections),
                small(threads),
                switch(nodelay),
            ],
            Self::TcpBulk { direction: _, message_bytes, connections, threads, rate, vectored } => {
                vec![
                    Some(message_bytes.get()),
                    small(connections),
                    small(threads),
                    rate.map(BitsPerSecond::get),
                    switch(vectored),
                ]
            }
            Self::UdpStream { datagram_bytes, rate, connections, threads, segmentation } => vec![
                Some(datagram_bytes.get()),
                rate.map(BitsPerSecond::get),
                small(connections),
                small(threads),
                switch(segmentation),
            ],
            Self::UdpRr {
                request_bytes,
                response_bytes,
                burst,
                connections,
                threads,
                timeout,
                arrivals,
            } => vec![
                Some(request_bytes.get()),
                Some(response_bytes.get()),
                small(burst),
                small(connections),
                small(threads),
                Some(timeout.as_ns()),
                arrivals.map(|open| open.rate_per_s.into()),
                arrivals.map(|open| open.gaps.number()),
            ],
            Self::Fetch { object_bytes, connections, threads } => {
                vec![Some(object_bytes.get()), small(connections), small(threads)]
            }
            Self::RpcRead { clients, outstanding, read_bytes, think } => vec![
                small(clients),
                small(outstanding),
                Some(read_bytes.get()),
                Some(think.mean.as_ns()),
                Some(think.distribution.number()),
            ],
            Self::Ping { rate_hz, payload_bytes } => {
                vec![small(rate_hz), Some(payload_bytes.get())]
            }
            Self::Command | Self::Live => Vec::new(),
        };
        self.descriptor().fields.iter().zip(values).collect()
    }

    /// The value of one field; `None` if the kind lacks it or it is off.
    pub fn value(&self, field: &str) -> Option<u64> {
        self.values().into_iter().find(|(own, _)| own.name == field)?.1
    }

    /// The same kind with each value that is on replaced by `change`.
    pub(crate) fn with_values(&self, change: impl Fn(&Field, u64) -> u64) -> Self {
        let changed = |(field, value): (&'static Field, Option<u64>)| {
            (field.name, value.map(|value| change(field, value)))
        };
        (self.descriptor().build)(&Values(self.values().into_iter().map(changed).into_map()))
    }

    /// The same with one request in flight; `None` for an open loop, and for kinds that have no such form.
    pub fn with_one_request(&self) -> Option<Self> {
        let is_closed = self.is_transactional() && self.arrivals().is_none();
        let has_connections = self.value("connections").is_some();
        let one = |field: &Field, value: u64| match field.name {
            "burst" => 0,
            "connections" | "threads" => 1,
            _ => value,
        };
        (is_closed && has_connections).then(|| self.with_values(one))
    }

    /// Refuses a value that is out of its field's range.
    ///
    /// # Errors
    ///
    /// The first such field.
    pub fn check(&self) -> Result<(), FieldError> {
        let given = self.values().into_iter();
        given
            .filter_map(|(field, value)| Some((field, value?)))
            .try_for_each(|(field, value)| field.check(value))
    }

    /// The facts of its kind.
    pub fn facts(&self) -> &'static KindFacts {
        &self.descriptor().facts
    }

    /// Whether it is made of requests and responses: then its rate is transactions per second, its
    /// service demand is per transaction, and each has a latency. Other kinds are judged by
    /// goodput.
    pub fn is_transactional(&self) -> bool {
        self.facts().shape == Shape::Transactions
    }

    /// Whether it moves bytes on TCP without a pause, limited by the wire or a CPU.
    pub fn is_bulk(&self) -> bool {
        self.facts().shape == Shape::Bulk
    }

    /// Whether latput makes it.
    pub fn is_of_latput(&self) -> bool {
        self.facts().maker == TrafficMaker::Latput
    }

    /// Whether it is ICMP echo, which the prober sends.
    pub fn is_echo(&self) -> bool {
        self.facts().protocol == Some(TrafficProtocol::Icmp)
    }

    /// Whether payload flows from the system under test to the generator.
    pub fn flows_back(&self) -> bool {
        self.facts().payload.reaches_generators()
    }

    /// Payload of one unit, for traffic that is counted in bytes.
    pub fn unit_bytes(&self) -> Option<u64> {
        self.value(self.facts().unit_bytes?)
    }

    /// The payload rate that it offers; `None` for as fast as possible, or without such a field.
    pub fn offered_rate(&self) -> Option<BitsPerSecond> {
        self.value("rate").map(BitsPerSecond::new)
    }

    /// The arrivals of an open loop; `None` for a closed loop.
    pub const fn arrivals(&self) -> Option<Arrivals> {
        match self {
            Self::TcpRr { arrivals, .. } | Self::UdpRr { arrivals, .. } => *arrivals,
            Self::TcpCrr { .. }
            | Self::TcpBulk { .. }
            | Self::UdpStream { .. }
            | Self::Fetch { .. }
            | Self::RpcRead { .. }
            | Self::Ping { .. }
            | Self::Command
            | Self::Live => None,
        }
    }
}
