//! The kinds of workload that have a metric.

use super::{Metric, MetricRow, MetricScope};
use crate::workload::{KINDS, PayloadFlow, Shape, TrafficMaker, TrafficProtocol, WorkloadKind};

impl MetricScope {
    /// Whether workloads of this kind have the metric.
    fn has(self, kind: &WorkloadKind) -> bool {
        let facts = &kind.facts;
        match self {
            Self::All => true,
            Self::Goodput => facts.shape != Shape::Transactions,
            Self::BothWays => facts.payload == PayloadFlow::Both,
            Self::Latency => facts.has_latency,
            Self::OpenLoop => kind.fields.iter().any(|field| field.name == "rate_per_s"),
            Self::Datagrams => {
                matches!(facts.protocol, Some(TrafficProtocol::Udp | TrafficProtocol::Icmp))
            }
            Self::DatagramStream => facts.shape == Shape::Datagrams,
            Self::Tcp => facts.protocol == Some(TrafficProtocol::Tcp),
            Self::Live => facts.maker == TrafficMaker::Host,
        }
    }
}

impl MetricRow {
    /// The kinds of workload that have it, in their order.
    pub fn workloads(&self) -> Vec<&'static str> {
        KINDS.iter().filter(|kind| self.scope.has(kind)).map(|kind| kind.name).collect()
    }
}

impl Metric {
    /// Whether workloads of this kind can have it. A plan can give each workload a custom one.
    pub fn is_reported_by(self, kind: &WorkloadKind) -> bool {
        self.row().scope.has(kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scope_has_its_kinds() {
        let kinds = |metric: Metric| metric.row().workloads();
        let streams = ["tcp_stream", "tcp_maerts", "tcp_bidir", "udp_stream", "fetch"];
        assert_eq!(kinds(Metric::ThroughputBps), streams);
        assert_eq!(kinds(Metric::ThroughputToSutBps), ["tcp_bidir"]);
        let timed = ["tcp_rr", "tcp_crr", "udp_rr", "fetch", "rpc_read", "ping", "command"];
        assert_eq!(kinds(Metric::LatencyNsP99), timed);
        assert_eq!(kinds(Metric::LatencyUncorrectedNsP99), ["tcp_rr", "udp_rr"]);
        assert_eq!(kinds(Metric::LossRatio), ["udp_stream", "udp_rr", "ping"]);
        assert_eq!(kinds(Metric::JitterNs), ["udp_stream"]);
        let tcp =
            ["tcp_rr", "tcp_crr", "tcp_stream", "tcp_maerts", "tcp_bidir", "fetch", "rpc_read"];
        assert_eq!(kinds(Metric::RetransmitsPerS), tcp);
        assert_eq!(kinds(Metric::TcpRttNsP99), ["live"]);
        assert_eq!(kinds(Metric::SutCpuBusyRatio).len(), KINDS.len());
    }
}
