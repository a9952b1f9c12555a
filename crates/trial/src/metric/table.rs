//! The declaration of every metric: a variant of [`Metric`] and its row, in the order of tables.
//!
//! `value.rs` computes them from an observation.

use serde::{Deserialize, Serialize};

use super::{
    CustomMetric, MetricRow, MetricScope, MetricSource, Needs, PreferredDirection, Summary, Unit,
};

/// Declares [`Metric`] and the place of each built-in one in the table.
macro_rules! metrics {
    ($($(#[$attribute:meta])* $name:ident,)*) => {
        /// One figure of an observation; its row defines it.
        ///
        /// Built-in metrics come before custom ones, in the order of tables. In files a built-in one
        /// is its name, and a custom one an object with its definition.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        #[expect(missing_docs, reason = "each is defined in its row, once")]
        pub enum Metric {
            $($(#[$attribute])* $name,)*
            Custom(CustomMetric),
        }

        enum Place {
            $($name,)*
        }

        impl Metric {
            /// Every built-in metric, in the order of tables.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The place in the table; custom metrics come after all others.
            pub(super) const fn place(self) -> usize {
                match self {
                    $(Self::$name => Place::$name as usize,)*
                    Self::Custom(_) => Self::ALL.len(),
                }
            }
        }
    };
}

metrics! {
    ThroughputBps,
    ThroughputToSutBps,
    ThroughputFromSutBps,
    TransactionsPerS,
    LatencyNsMean,
    LatencyNsP50,
    LatencyNsP90,
    LatencyNsP99,
    LatencyNsP999,
    LatencyNsMax,
    #[serde(alias = "latency_raw_ns_p50")]
    LatencyUncorrectedNsP50,
    #[serde(alias = "latency_raw_ns_p99")]
    LatencyUncorrectedNsP99,
    ProbeNsMin,
    ProbeNsMean,
    ProbeNsP50,
    ProbeNsP99,
    ProbeNsMax,
    ProbeNsMdev,
    ProbeLossRatio,
    LossRatio,
    ReorderedRatio,
    JitterNs,
    RetransmitsPerS,
    SutCpuBusyRatio,
    GeneratorCpuBusyRatio,
    SutServiceDemandUs,
    GeneratorServiceDemandUs,
    SutNetperfDemandUs,
    GeneratorNetperfDemandUs,
    #[serde(alias = "generator_ceiling_per_s")]
    GeneratorMaxPerS,
    SutPollsPerS,
    SutPacketsPerPoll,
    SutRxPps,
    SutTxPps,
    SutPacketCpuNs,
    SutKbCpuNs,
    SutInterruptsPerS,
    SutDropsPerS,
    TcpRttNsMin,
    TcpRttNsMean,
    TcpRttNsP50,
    TcpRttNsP99,
    TcpRttNsMdev,
    TcpRttSampleNsMean,
    TcpRttSampleNsP50,
    TcpRttSampleNsP99,
    TcpRetransmitsPerS,
    TcpThroughputBps,
    TcpDeliveryBpsMean,
    TcpEndedPerS,
}

/// Metric names of earlier versions. Files with them are read; goals with them are refused with the
/// new name.
pub const FORMER_NAMES: &[(&str, Metric)] = &[
    ("latency_raw_ns_p50", Metric::LatencyUncorrectedNsP50),
    ("latency_raw_ns_p99", Metric::LatencyUncorrectedNsP99),
    ("generator_ceiling_per_s", Metric::GeneratorMaxPerS),
];

/// A row with empty texts, whose other columns the metrics of a family share.
const fn family(
    unit: Unit,
    preferred: PreferredDirection,
    summary: Summary,
    scope: MetricScope,
) -> MetricRow {
    let [name, column, phrase, definition] = [""; 4];
    let (needs, source) = (Needs::Nothing, MetricSource::Counts);
    let (quantile, needed_observations) = (None, None);
    MetricRow {
        name,
        column,
        phrase,
        definition,
        unit,
        preferred,
        summary,
        scope,
        needs,
        source,
        quantile,
        needed_observations,
    }
}

/// The shared part of rows of times.
const TIME: MetricRow =
    family(Unit::Nanoseconds, PreferredDirection::Lower, Summary::Median, MetricScope::All);
/// The shared part of rows of round-trip times.
const LATENCY: MetricRow = MetricRow { scope: MetricScope::Latency, ..TIME };
/// The shared part of rows of round-trip times of an open loop from the actual send.
const UNCORRECTED: MetricRow =
    MetricRow { scope: MetricScope::OpenLoop, needs: Needs::Arrivals, ..TIME };
/// The shared part of rows of the probe's round-trip times.
const PROBE: MetricRow = MetricRow { needs: Needs::Probe, ..TIME };
/// The shared part of rows of service demand.
const DEMAND: MetricRow =
    MetricRow { unit: Unit::MicrosecondsPerWork, source: MetricSource::CpuTime, ..TIME };
/// The shared part of rows of goodput.
const GOODPUT: MetricRow =
    family(Unit::BitsPerS, PreferredDirection::Higher, Summary::Mean, MetricScope::Goodput);
/// The shared part of rows of shares.
const SHARE: MetricRow =
    family(Unit::Ratio, PreferredDirection::Lower, Summary::Mean, MetricScope::All);
/// The shared part of rows of counts per second or poll.
const COUNT: MetricRow =
    family(Unit::PerS, PreferredDirection::Neither, Summary::Mean, MetricScope::All);
/// The shared part of rows of the kernel's round-trip times.
const TCP_RTT: MetricRow =
    MetricRow { scope: MetricScope::Live, source: MetricSource::Connections, ..TIME };
/// The shared part of rows of CPU time for packets or bytes.
const PACKET_CPU: MetricRow =
    MetricRow { scope: MetricScope::Live, source: MetricSource::CpuTime, ..TIME };

/// The rows, in the order of the type.
pub(super) const TABLE: [MetricRow; Metric::ALL.len()] = [
    MetricRow {
        name: "throughput_bps",
        column: "goodput",
        phrase: "goodput at the receiver",
        definition: "Goodput: payload bits that receiving applications got / time of their window; of tcp_bidir both ways together.",
        ..GOODPUT
    },
    MetricRow {
        name: "throughput_to_sut_bps",
        column: "to SUT",
        phrase: "goodput towards the SUT",
        definition: "The part of goodput that the system under test got.",
        scope: MetricScope::BothWays,
        ..GOODPUT
    },
    MetricRow {
        name: "throughput_from_sut_bps",
        column: "from SUT",
        phrase: "goodput away from the SUT",
        definition: "The part of goodput that the generators got.",
        scope: MetricScope::BothWays,
        ..GOODPUT
    },
    MetricRow {
        name: "transactions_per_s",
        column: "trans",
        phrase: "transactions per second",
        definition: "Completed transactions (objects of a fetch, echoes of a ping) / time of the generator's window.",
        preferred: PreferredDirection::Higher,
        scope: MetricScope::Latency,
        ..COUNT
    },
    MetricRow {
        name: "latency_ns_mean",
        column: "mean",
        phrase: "mean round-trip time",
        definition: "Mean round-trip time of the transactions; of an open loop from when each request was due.",
        ..LATENCY
    },
    MetricRow {
        name: "latency_ns_p50",
        column: "p50",
        phrase: "median round-trip time",
        definition: "Round-trip time that 50% of the transactions do not exceed; of an open loop from when each request was due.",
        quantile: Some(0.5),
        ..LATENCY
    },
    MetricRow {
        name: "latency_ns_p90",
        column: "p90",
        phrase: "90th percentile of round-trip time",
        definition: "Round-trip time that 90% of the transactions do not exceed; of an open loop from when each request was due.",
        quantile: Some(0.9),
        ..LATENCY
    },
    MetricRow {
        name: "latency_ns_p99",
        column: "p99",
        phrase: "99th percentile of round-trip time",
        definition: "Round-trip time that 99% of the transactions do not exceed; of an open loop from when each request was due.",
        quantile: Some(0.99),
        needed_observations: Some(100),
        ..LATENCY
    },
    MetricRow {
        name: "latency_ns_p999",
        column: "p99.9",
        phrase: "99.9th percentile of round-trip time",
        definition: "Round-trip time that 99.9% of the transactions do not exceed; of an open loop from when each request was due.",
        quantile: Some(0.999),
        needed_observations: Some(1000),
        ..LATENCY
    },
    MetricRow {
        name: "latency_ns_max",
        column: "max",
        phrase: "longest round-trip time",
        definition: "Longest round-trip time; of an open loop from when its request was due.",
        ..LATENCY
    },
    MetricRow {
        name: "latency_uncorrected_ns_p50",
        column: "uncorrected p50",
        phrase: "round-trip time from the actual send, median",
        definition: "Of an open loop, round-trip time from when a request was sent (not due) that 50% do not exceed: waiting before the send is left out.",
        ..UNCORRECTED
    },
    MetricRow {
        name: "latency_uncorrected_ns_p99",
        column: "uncorrected p99",
        phrase: "round-trip time from the actual send that 99% do not exceed",
        definition: "Of an open loop, round-trip time from when a request was sent (not due) that 99% do not exceed: waiting before the send is left out.",
        ..UNCORRECTED
    },
    MetricRow {
        name: "probe_ns_min",
        column: "ping min",
        phrase: "shortest ping beside the traffic",
        definition: "Shortest round-trip time of the probe (ICMP echo beside the traffic).",
        ..PROBE
    },
    MetricRow {
        name: "probe_ns_mean",
        column: "ping avg",
        phrase: "mean ping beside the traffic",
        definition: "Mean round-trip time of the probe.",
        ..PROBE
    },
    MetricRow {
        name: "probe_ns_p50",
        column: "ping p50",
        phrase: "median ping beside the traffic",
        definition: "Round-trip time that 50% of the probe's echoes do not exceed.",
        quantile: Some(0.5),
        ..PROBE
    },
    MetricRow {
        name: "probe_ns_p99",
        column: "ping p99",
        phrase: "99th percentile of ping beside the traffic",
        definition: "Round-trip time that 99% of the probe's echoes do not exceed.",
        quantile: Some(0.99),
        needed_observations: Some(100),
        ..PROBE
    },
    MetricRow {
        name: "probe_ns_max",
        column: "ping max",
        phrase: "longest ping beside the traffic",
        definition: "Longest round-trip time of the probe.",
        ..PROBE
    },
    MetricRow {
        name: "probe_ns_mdev",
        column: "ping mdev",
        phrase: "standard deviation of ping beside the traffic",
        definition: "Standard deviation of the probe's round-trip times, as ping(8) prints mdev.",
        summary: Summary::Mean,
        ..PROBE
    },
    MetricRow {
        name: "probe_loss_ratio",
        column: "ping loss",
        phrase: "pings without an answer",
        definition: "Echo requests of the probe without an answer / echo requests sent.",
        needs: Needs::Probe,
        ..SHARE
    },
    MetricRow {
        name: "loss_ratio",
        column: "loss",
        phrase: "datagrams lost",
        definition: "Datagrams sent in the window that never arrived / sent; of udp_rr and ping, requests without an answer / sent.",
        scope: MetricScope::Datagrams,
        ..SHARE
    },
    MetricRow {
        name: "reordered_ratio",
        column: "reorder",
        phrase: "datagrams out of order",
        definition: "Datagrams that came after a later one / received (RFC 4737, section 3.3).",
        scope: MetricScope::DatagramStream,
        ..SHARE
    },
    MetricRow {
        name: "jitter_ns",
        column: "jitter",
        phrase: "interarrival jitter (RFC 3550)",
        definition: "Interarrival jitter at the end of the window (RFC 3550, section 6.4.1).",
        summary: Summary::Mean,
        scope: MetricScope::DatagramStream,
        ..LATENCY
    },
    MetricRow {
        name: "retransmits_per_s",
        column: "retrans",
        phrase: "TCP segments sent again per second",
        definition: "TCP segments that both ends sent again (tcpi_total_retrans) / time of the generator's window.",
        preferred: PreferredDirection::Lower,
        scope: MetricScope::Tcp,
        ..COUNT
    },
    MetricRow {
        name: "sut_cpu_busy_ratio",
        column: "CPU",
        phrase: "busy share of the SUT's CPUs",
        definition: "Busy CPU time / CPU time of all CPUs of the system under test; stolen time is not busy time.",
        source: MetricSource::CpuTime,
        ..SHARE
    },
    MetricRow {
        name: "generator_cpu_busy_ratio",
        column: "gen CPU",
        phrase: "busy share of the generator's CPUs",
        definition: "Busy CPU time / CPU time of all CPUs of all generators; stolen time is not busy time.",
        source: MetricSource::CpuTime,
        ..SHARE
    },
    MetricRow {
        name: "sut_service_demand_us",
        column: "demand",
        phrase: "service demand of the SUT",
        definition: "Busy CPU time of the system under test / transactions, or / KB (1024 byte) of goodput where the workload has no transactions.",
        ..DEMAND
    },
    MetricRow {
        name: "generator_service_demand_us",
        column: "gen demand",
        phrase: "service demand of the generator",
        definition: "Busy CPU time of all generators / transactions, or / KB (1024 byte) of goodput where the workload has no transactions.",
        ..DEMAND
    },
    MetricRow {
        name: "sut_netperf_demand_us",
        column: "netperf demand",
        phrase: "service demand of the SUT as netperf counts it, by ticks",
        definition: "Service demand of the system under test as netperf counts it: (1 - idle ticks / ticks) x CPUs / rate, iowait and steal busy (netperf, src/netlib.c).",
        ..DEMAND
    },
    MetricRow {
        name: "generator_netperf_demand_us",
        column: "gen netperf demand",
        phrase: "service demand of the generator as netperf counts it, by ticks",
        definition: "Service demand of all generators as netperf counts it: (1 - idle ticks / ticks) x CPUs / rate, iowait and steal busy (netperf, src/netlib.c).",
        ..DEMAND
    },
    MetricRow {
        name: "generator_max_per_s",
        column: "gen max",
        phrase: "what the generator could do at most, at this cost",
        definition: "Rate (transactions, or bits of goodput) / busy share of the generators' busiest traffic thread: what they could reach at this cost.",
        unit: Unit::WorkPerS,
        summary: Summary::Median,
        ..COUNT
    },
    MetricRow {
        name: "sut_polls_per_s",
        column: "polls",
        phrase: "NAPI polls per second on the SUT",
        definition: "NAPI polls / time of the window, on the system under test.",
        ..COUNT
    },
    MetricRow {
        name: "sut_packets_per_poll",
        column: "pkts/poll",
        phrase: "packets per NAPI poll on the SUT",
        definition: "Packets that NAPI polls of the system under test took / polls that took any.",
        unit: Unit::PacketsPerPoll,
        ..COUNT
    },
    MetricRow {
        name: "sut_rx_pps",
        column: "packets in",
        phrase: "packets in per second on the SUT",
        definition: "Packets that the system under test's interface received / time of the window.",
        unit: Unit::PacketsPerS,
        ..COUNT
    },
    MetricRow {
        name: "sut_tx_pps",
        column: "packets out",
        phrase: "packets out per second on the SUT",
        definition: "Packets that the system under test's interface sent / time of the window.",
        unit: Unit::PacketsPerS,
        ..COUNT
    },
    MetricRow {
        name: "sut_packet_cpu_ns",
        column: "CPU/packet",
        phrase: "CPU time for a packet on the SUT",
        definition: "Busy CPU time of the system under test / packets of its interface, in and out.",
        ..PACKET_CPU
    },
    MetricRow {
        name: "sut_kb_cpu_ns",
        column: "CPU/KB",
        phrase: "CPU time for a KB on the SUT",
        definition: "Busy CPU time of the system under test / KB (1024 byte) of its interface, in and out, with headers.",
        ..PACKET_CPU
    },
    MetricRow {
        name: "sut_interrupts_per_s",
        column: "interrupts",
        phrase: "interrupts per second on the SUT",
        definition: "Hardware interrupts on the CPUs of the system under test / time of the window.",
        preferred: PreferredDirection::Lower,
        scope: MetricScope::Live,
        ..COUNT
    },
    MetricRow {
        name: "sut_drops_per_s",
        column: "drops",
        phrase: "packets dropped per second on the SUT",
        definition: "Packets that the interface of the system under test dropped, in and out / time of the window.",
        preferred: PreferredDirection::Lower,
        scope: MetricScope::Live,
        ..COUNT
    },
    MetricRow {
        name: "tcp_rtt_ns_min",
        column: "TCP min",
        phrase: "shortest TCP round trip",
        definition: "Shortest round trip that a live TCP connection has had of late (tcpi_min_rtt).",
        ..TCP_RTT
    },
    MetricRow {
        name: "tcp_rtt_ns_mean",
        column: "TCP mean",
        phrase: "mean TCP round-trip time",
        definition: "Mean of the smoothed round-trip times of live TCP connections (tcpi_rtt), read many times in the window.",
        ..TCP_RTT
    },
    MetricRow {
        name: "tcp_rtt_ns_p50",
        column: "TCP p50",
        phrase: "median TCP round-trip time",
        definition: "Smoothed round-trip time that 50% of the readings of live TCP connections do not exceed (tcpi_rtt).",
        quantile: Some(0.5),
        ..TCP_RTT
    },
    MetricRow {
        name: "tcp_rtt_ns_p99",
        column: "TCP p99",
        phrase: "99th percentile of TCP round-trip time",
        definition: "Smoothed round-trip time that 99% of the readings of live TCP connections do not exceed (tcpi_rtt).",
        quantile: Some(0.99),
        ..TCP_RTT
    },
    MetricRow {
        name: "tcp_rtt_ns_mdev",
        column: "TCP mdev",
        phrase: "mean deviation of TCP round-trip times",
        definition: "Mean of the deviations of live TCP connections' round-trip times (tcpi_rttvar).",
        summary: Summary::Mean,
        ..TCP_RTT
    },
    MetricRow {
        name: "tcp_rtt_sample_ns_mean",
        column: "sample mean",
        phrase: "mean of the samples of TCP round trips",
        definition: "Mean of all round-trip samples that the kernel took of live TCP connections, to 1 us, by BPF (tcp_probe).",
        ..TCP_RTT
    },
    MetricRow {
        name: "tcp_rtt_sample_ns_p50",
        column: "sample p50",
        phrase: "median of the samples of TCP round trips",
        definition: "Time that 50% of the kernel's round-trip samples of live TCP connections do not exceed, to 1 us, by BPF (tcp_probe).",
        quantile: Some(0.5),
        ..TCP_RTT
    },
    MetricRow {
        name: "tcp_rtt_sample_ns_p99",
        column: "sample p99",
        phrase: "99th percentile of the samples of TCP round trips",
        definition: "Time that 99% of the kernel's round-trip samples of live TCP connections do not exceed, to 1 us, by BPF (tcp_probe).",
        quantile: Some(0.99),
        ..TCP_RTT
    },
    MetricRow {
        name: "tcp_retransmits_per_s",
        column: "TCP retrans",
        phrase: "TCP segments sent again per second by live connections",
        definition: "Segments that live TCP connections sent again (tcpi_total_retrans) / time of the window.",
        preferred: PreferredDirection::Lower,
        scope: MetricScope::Live,
        source: MetricSource::Connections,
        ..COUNT
    },
    MetricRow {
        name: "tcp_throughput_bps",
        column: "TCP goodput",
        phrase: "payload of live TCP connections per second",
        definition: "Payload bits that live TCP connections received and had acknowledged (tcpi_bytes_received, tcpi_bytes_acked) / time of the window.",
        scope: MetricScope::Live,
        source: MetricSource::Connections,
        ..GOODPUT
    },
    MetricRow {
        name: "tcp_delivery_bps_mean",
        column: "TCP delivery",
        phrase: "mean delivery rate of a live TCP connection",
        definition: "Mean of the delivery rates that the kernel measured of live TCP connections (tcpi_delivery_rate).",
        scope: MetricScope::Live,
        source: MetricSource::Connections,
        ..GOODPUT
    },
    MetricRow {
        name: "tcp_ended_per_s",
        column: "TCP ended",
        phrase: "live TCP connections that ended per second",
        definition: "Live TCP connections that ended in the window, by the kernel's notices / time of the window.",
        scope: MetricScope::Live,
        source: MetricSource::Connections,
        ..COUNT
    },
];
