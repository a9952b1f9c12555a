//! A whole run, described: hosts, the network between them, the traffic, and for how long.

use latput_policy::Policy;
use latput_trial::observation::Role;
use latput_units::{BitsPerSecond, Bytes, Nanos};

use crate::machine::{Machine, Nic, Stack};

/// Everything that one run depends on. The same scenario gives the same outcome, bit by bit.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Of every random draw: start phases, arrival times, jitter.
    pub seed: u64,
    /// Not measured.
    pub warmup: Nanos,
    /// Measured, after the warm-up.
    pub duration: Nanos,
    /// The hosts; loads name them by index.
    pub hosts: Vec<Host>,
    /// What is between them.
    pub network: Network,
    /// What they send each other.
    pub loads: Vec<Load>,
}

/// One host.
#[derive(Clone, Debug, PartialEq)]
pub struct Host {
    /// Its name in the outcome.
    pub name: String,
    /// Its part in the trial.
    pub role: Role,
    /// Processor and costs.
    pub machine: Machine,
    /// NIC and driver.
    pub nic: Nic,
    /// Network stack.
    pub stack: Stack,
    /// What moves the moderation of each vector while the run goes on.
    pub adaptive: Adaptive,
}

impl Default for Host {
    /// One core on which everything is free.
    fn default() -> Self {
        Self {
            name: String::from("host"),
            role: Role::Sut,
            machine: Machine::default(),
            nic: Nic::default(),
            stack: Stack::default(),
            adaptive: Adaptive::default(),
        }
    }
}

/// Policies, each copied to every vector unless they share one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Adaptive {
    /// Moves the throttle's interval.
    pub throttle: Option<Policy>,
    /// One copy of it hears of all vectors of the host and decides for all of them: a daemon, or a device
    /// with one register.
    pub shares_throttle: bool,
    /// Moves the receive delay and frames.
    pub rx: Option<Policy>,
    /// Moves the transmit delay and frames.
    pub tx: Option<Policy>,
    /// From a decision to its effect (DIM's worker).
    pub latency: Nanos,
}

impl Adaptive {
    /// Whether any policy moves anything.
    pub fn is_active(&self) -> bool {
        self.throttle.is_some() || self.rx.is_some() || self.tx.is_some()
    }
}

/// Links, all alike: two hosts joined back to back, or each host to a switch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Network {
    /// Rate of every link.
    pub rate: BitsPerSecond,
    /// One way, whatever the size: propagation, DMA, and what else nobody can influence.
    pub latency: Nanos,
    /// The latency varies uniformly upwards by this share of itself, without reordering.
    pub latency_jitter_ratio: f64,
    /// Largest IP packet.
    pub mtu: Bytes,
    /// A store-and-forward switch with this much buffer per port; `None` is a cable between two hosts.
    pub switch: Option<Bytes>,
}

impl Default for Network {
    fn default() -> Self {
        Self {
            rate: BitsPerSecond::new(1_000_000_000),
            latency: Nanos::from_us(1),
            latency_jitter_ratio: 0.0,
            mtu: Bytes::new(1_500),
            switch: None,
        }
    }
}

/// Traffic between two hosts.
#[derive(Clone, Debug, PartialEq)]
pub struct Load {
    /// The host that starts it.
    pub from: usize,
    /// The host that answers or receives.
    pub to: usize,
    /// What.
    pub traffic: Traffic,
    /// The core that the process at `from` is bound to.
    pub from_core: Option<u32>,
    /// The core that the process at `to` is bound to.
    pub to_core: Option<u32>,
    /// When it begins, from the start of the run.
    pub start: Nanos,
    /// When it sends nothing new any more.
    pub stop: Option<Nanos>,
    /// What is beyond the plain form of its traffic.
    pub form: Form,
    /// Its figures are counted with those of this earlier load: threads of one workload.
    pub counted_with: Option<usize>,
}

/// What is beyond the plain form of a traffic. The default is the plain form.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a property of one traffic by itself")]
pub struct Form {
    /// Requests (or a stream's messages) leave at these times, whatever came back.
    pub arrivals: Option<Arrivals>,
    /// Think times are exponentially distributed about their mean.
    pub think_varies: bool,
    /// Requests and responses on UDP: after this time a transaction is lost and the next request goes;
    /// zero: it is waited for.
    pub timeout: Nanos,
    /// Requests and responses on TCP: a connection to each transaction.
    pub connects: bool,
    /// Datagrams: the next call as soon as the last is done and the send buffer has room; the rate is not
    /// looked at.
    pub floods: bool,
    /// The measured window ends early once so many units are done: transactions, datagrams, messages.
    pub count: Option<u64>,
    /// Probes: payload of an echo request, if not ping's 56 bytes.
    pub payload: Option<Bytes>,
    /// Streams: what does not fill a segment waits while anything is in flight (Nagle; no `TCP_NODELAY`).
    pub gathers: bool,
}

/// An open loop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arrivals {
    /// How many a second, over all connections of the load.
    pub rate_hz: f64,
    /// Even or Poisson.
    pub spacing: Spacing,
}

impl Load {
    /// Traffic of unbound processes, from the start of the run to its end.
    pub const fn new(from: usize, to: usize, traffic: Traffic) -> Self {
        Self {
            from,
            to,
            traffic,
            from_core: None,
            to_core: None,
            start: Nanos::ZERO,
            stop: None,
            form: Form {
                arrivals: None,
                think_varies: false,
                timeout: Nanos::ZERO,
                connects: false,
                floods: false,
                count: None,
                payload: None,
                gathers: false,
            },
            counted_with: None,
        }
    }

    /// The same traffic in this span of the run only.
    pub const fn between(mut self, start: Nanos, stop: Nanos) -> Self {
        self.start = start;
        self.stop = Some(stop);
        self
    }
}

/// How an open-loop sender spaces its packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spacing {
    /// Evenly.
    Even,
    /// Exponentially distributed gaps.
    Poisson,
}

/// The transport of requests and responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// One datagram per message; what is lost stays lost.
    Udp,
    /// A byte stream.
    Tcp {
        /// Send small messages at once.
        nodelay: bool,
    },
}

/// What flows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Traffic {
    /// Datagrams at a rate, whatever comes back.
    Datagrams {
        /// Payload of one.
        size: Bytes,
        /// Datagrams per second.
        rate_pps: f64,
        /// Even or Poisson.
        spacing: Spacing,
        /// Datagrams of one send call, sent together (`sendmmsg`); the gaps between calls grow with it.
        group: u32,
        /// Most datagrams of one receive call (`recvmmsg`).
        receive_batch: u32,
    },
    /// A request, a response, the next request: a fixed number in flight.
    RequestResponse {
        /// Of the messages.
        transport: Transport,
        /// Size of a request.
        request: Bytes,
        /// Size of a response.
        response: Bytes,
        /// In flight beside the first, on each connection (netperf's first burst).
        burst: u32,
        /// Connections, all of one process at each end.
        connections: u32,
        /// How long the server waits before it answers, without using its CPU (a disk, another server).
        think: Nanos,
    },
    /// Bytes as fast as TCP carries them.
    Stream {
        /// Size of one send.
        message: Bytes,
        /// Connections, all of one process at each end.
        connections: u32,
    },
    /// Echo requests at an even pace, answered by the far kernel.
    Probe {
        /// Per second.
        rate_hz: f64,
    },
    /// A process at `from` that computes without end and sends nothing.
    Compute,
}
