//! Facts of a kind of traffic: all that other code needs to know of it beside its fields.
//!
//! Code asks for a fact instead of a kind, so that a new kind is right everywhere once its row is.

use crate::metric::Metric;

/// The facts of a kind of traffic.
#[derive(Clone, Copy, Debug)]
pub struct KindFacts {
    /// The program that makes the traffic.
    pub maker: TrafficMaker,
    /// The protocol of its packets; `None` where programs of others choose it.
    pub protocol: Option<TrafficProtocol>,
    /// Whether each unit has a connection of its own, which is gone when the counts are read.
    pub connects: bool,
    /// The ends that get its payload.
    pub payload: PayloadFlow,
    /// Whether it is made of transactions, bulk or datagrams.
    pub shape: Shape,
    /// Whether the round-trip time of each unit is measured.
    pub has_latency: bool,
    /// The field with the payload of a unit; `None` for kinds that are not counted in bytes.
    pub unit_bytes: Option<&'static str>,
    /// The figure of its work per second.
    pub rate: Metric,
    /// The figure of the tail of its times.
    pub tail: Metric,
    /// The figure of its CPU cost.
    pub cost: Metric,
    /// The figures by which settings are judged.
    pub judged: [Metric; 4],
    /// The columns of its table, most important first.
    pub shown: &'static [Metric],
}

/// The program that makes the traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrafficMaker {
    /// The load generator and its reflector.
    Latput,
    /// Programs of the user's own, which a trial starts.
    Programs,
    /// The host's own work: traffic that is there anyway.
    Host,
}

impl TrafficMaker {
    /// Whether each trial has the same load, so that more of them tell its rate better.
    pub const fn repeats_load(self) -> bool {
        match self {
            Self::Latput | Self::Programs => true,
            Self::Host => false,
        }
    }
}

/// The protocol of traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrafficProtocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// ICMP echo, which the prober sends.
    Icmp,
}

impl TrafficProtocol {
    /// Whether the traffic threads have sockets with options.
    pub const fn has_sockets(self) -> bool {
        match self {
            Self::Tcp | Self::Udp => true,
            Self::Icmp => false,
        }
    }
}

/// The ends that get the payload of traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PayloadFlow {
    /// The system under test; of requests and responses the requests count.
    ToSut,
    /// The generators.
    FromSut,
    /// Both, on separate connections.
    Both,
    /// The generators, for requests that are no payload.
    OnRequest,
}

impl PayloadFlow {
    /// Whether the system under test gets payload.
    pub const fn reaches_sut(self) -> bool {
        match self {
            Self::ToSut | Self::Both => true,
            Self::FromSut | Self::OnRequest => false,
        }
    }

    /// Whether the generators get payload.
    pub const fn reaches_generators(self) -> bool {
        match self {
            Self::FromSut | Self::Both | Self::OnRequest => true,
            Self::ToSut => false,
        }
    }
}

/// The shape of a kind of traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Requests and responses: the rate is transactions per second, and each has a latency.
    Transactions,
    /// Bytes on TCP without a pause: the wire or a CPU is the limit.
    Bulk,
    /// Datagrams in one direction; lost ones are not sent again.
    Datagrams,
}

/// The facts of requests and responses on TCP.
pub(super) const EXCHANGE: KindFacts = KindFacts {
    maker: TrafficMaker::Latput,
    protocol: Some(TrafficProtocol::Tcp),
    connects: false,
    payload: PayloadFlow::ToSut,
    shape: Shape::Transactions,
    has_latency: true,
    unit_bytes: None,
    rate: Metric::TransactionsPerS,
    tail: Metric::LatencyNsP99,
    cost: Metric::SutServiceDemandUs,
    judged: [
        Metric::TransactionsPerS,
        Metric::LatencyNsP99,
        Metric::ProbeNsP99,
        Metric::SutServiceDemandUs,
    ],
    shown: &[
        Metric::TransactionsPerS,
        Metric::LatencyNsP50,
        Metric::LatencyNsP99,
        Metric::SutCpuBusyRatio,
        Metric::SutServiceDemandUs,
    ],
};

/// The facts of bulk on TCP to the system under test.
pub(super) const BULK: KindFacts = KindFacts {
    shape: Shape::Bulk,
    has_latency: false,
    unit_bytes: Some("message_bytes"),
    rate: Metric::ThroughputBps,
    tail: Metric::ProbeNsP99,
    judged: [
        Metric::ThroughputBps,
        Metric::LatencyNsP99,
        Metric::ProbeNsP99,
        Metric::SutServiceDemandUs,
    ],
    shown: &[
        Metric::ThroughputBps,
        Metric::ProbeNsP50,
        Metric::ProbeNsP99,
        Metric::SutCpuBusyRatio,
        Metric::SutServiceDemandUs,
    ],
    ..EXCHANGE
};

#[cfg(test)]
mod tests {
    use super::super::KINDS;

    #[test]
    fn facts_name_own_fields_and_metrics() {
        for kind in KINDS {
            let facts = &kind.facts;
            let has_field = |name: &str| kind.fields.iter().any(|field| field.name == name);
            assert!(facts.unit_bytes.is_none_or(has_field), "{}", kind.name);
            for metric in [facts.rate, facts.tail, facts.cost].iter().chain(facts.shown) {
                assert!(metric.is_reported_by(kind), "{}: {metric}", kind.name);
            }
            assert_eq!(facts.judged[0], facts.rate, "{}", kind.name);
        }
    }
}
