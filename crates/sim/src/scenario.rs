//! The description of a run: hosts, network, traffic and duration.

use latput_policy::Policy;
use latput_trial::observation::Role;
use latput_units::{BitsPerSecond, Bytes, Nanos};

use crate::machine::{Machine, NetworkStack, Nic};

/// The complete input of one run. The same scenario gives the same outcome, bit by bit.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Seed of every random draw: start phases, arrival times, jitter.
    pub seed: u64,
    /// Time before the measured window.
    pub warmup: Nanos,
    /// Length of the measured window.
    pub duration: Nanos,
    /// The hosts; loads name them by index.
    pub hosts: Vec<Host>,
    /// The network between the hosts.
    pub network: Network,
    /// The traffic between the hosts.
    pub loads: Vec<Load>,
}

/// One host.
#[derive(Clone, Debug, PartialEq)]
pub struct Host {
    /// Its name in the outcome.
    pub name: String,
    /// Its role in the trial.
    pub role: Role,
    /// Processor and costs.
    pub machine: Machine,
    /// NIC and driver.
    pub nic: Nic,
    /// Network stack.
    pub stack: NetworkStack,
    /// Policies that adapt the moderation of each vector during the run.
    pub adaptive: AdaptivePolicies,
}

impl Default for Host {
    /// One core without costs.
    fn default() -> Self {
        Self {
            name: String::from("host"),
            role: Role::Sut,
            machine: Machine::default(),
            nic: Nic::default(),
            stack: NetworkStack::default(),
            adaptive: AdaptivePolicies::default(),
        }
    }
}

/// Policies. Each vector has a copy unless they share one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AdaptivePolicies {
    /// Adapts the throttle's interval.
    pub throttle: Option<Policy>,
    /// Whether one copy samples all vectors of the host and decides for all: a daemon, or a device
    /// with one register.
    pub shares_throttle: bool,
    /// Adapts the receive delay and frames.
    pub rx: Option<Policy>,
    /// Adapts the transmit delay and frames.
    pub tx: Option<Policy>,
    /// Time from a decision to its effect (DIM's worker).
    pub latency: Nanos,
}

impl AdaptivePolicies {
    /// Whether there is any policy.
    pub fn is_active(&self) -> bool {
        self.throttle.is_some() || self.rx.is_some() || self.tx.is_some()
    }
}

/// Equal links: two hosts back to back, or each host at a switch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Network {
    /// Rate of every link.
    pub rate: BitsPerSecond,
    /// One-way latency of every packet size: propagation, DMA, and other constant parts.
    pub latency: Nanos,
    /// The latency varies uniformly upwards by this share of itself, without reordering.
    pub latency_jitter_ratio: f64,
    /// Largest IP packet.
    pub mtu: Bytes,
    /// Buffer per port of a store-and-forward switch; `None` for a cable between two hosts.
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
    /// The kind of traffic.
    pub traffic: TrafficKind,
    /// The core that the process at `from` is bound to.
    pub from_core: Option<u32>,
    /// The core that the process at `to` is bound to.
    pub to_core: Option<u32>,
    /// Its start, from the start of the run.
    pub start: Nanos,
    /// The time after which it sends nothing new.
    pub stop: Option<Nanos>,
    /// Options of its traffic.
    pub form: TrafficOptions,
    /// An earlier load whose counts include this one's: threads of one workload.
    pub counted_with: Option<usize>,
}

/// Options of a load's traffic. The default has none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a property of one traffic by itself")]
pub struct TrafficOptions {
    /// Open loop: the times at which requests (or a stream's messages) leave.
    pub arrivals: Option<ArrivalProcess>,
    /// Whether think times are exponentially distributed.
    pub think_varies: bool,
    /// Requests and responses on UDP: the timeout after which a transaction is lost and the next
    /// request leaves; zero means none.
    pub timeout: Nanos,
    /// Requests and responses on TCP: one connection per transaction.
    pub connects: bool,
    /// Datagrams: the next call follows at once if the send buffer has room; the rate is ignored.
    pub floods: bool,
    /// Units (transactions, datagrams, messages) after which the window ends early.
    pub count: Option<u64>,
    /// Probes: payload of an echo request; ping's 56 bytes if absent.
    pub payload: Option<Bytes>,
    /// Streams: partial segments wait while data is in flight (Nagle; no `TCP_NODELAY`).
    pub gathers: bool,
}

/// An open loop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ArrivalProcess {
    /// Requests per second over all connections of the load.
    pub rate_hz: f64,
    /// Distribution of the gaps.
    pub spacing: GapDistribution,
}

impl Load {
    /// Traffic of unbound processes for the whole run.
    pub const fn new(from: usize, to: usize, traffic: TrafficKind) -> Self {
        Self {
            from,
            to,
            traffic,
            from_core: None,
            to_core: None,
            start: Nanos::ZERO,
            stop: None,
            form: TrafficOptions {
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

    /// The same traffic within a span of the run.
    pub const fn with_time_span(mut self, start: Nanos, stop: Nanos) -> Self {
        self.start = start;
        self.stop = Some(stop);
        self
    }
}

/// The gaps between an open-loop sender's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GapDistribution {
    /// Evenly.
    Even,
    /// Exponentially distributed gaps.
    Poisson,
}

/// The transport of requests and responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// One datagram per message. Lost ones are not repeated.
    Udp,
    /// A byte stream.
    Tcp {
        /// Whether small messages leave at once.
        nodelay: bool,
    },
}

/// The kind of traffic between two hosts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TrafficKind {
    /// Datagrams at a rate.
    Datagrams {
        /// Payload of one.
        size: Bytes,
        /// Datagrams per second.
        rate_pps: f64,
        /// Even or Poisson.
        spacing: GapDistribution,
        /// Datagrams of one send call (`sendmmsg`). The gaps between calls grow with it.
        group: u32,
        /// Most datagrams of one receive call (`recvmmsg`).
        receive_batch: u32,
    },
    /// Requests and responses, with a fixed number in flight.
    RequestResponse {
        /// The transport of the messages.
        transport: Transport,
        /// Size of a request.
        request: Bytes,
        /// Size of a response.
        response: Bytes,
        /// Requests in flight on each connection, beside the first (netperf's burst).
        burst: u32,
        /// Connections, all of one process at each end.
        connections: u32,
        /// Time until the server answers, without CPU use (a disk, another server).
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
