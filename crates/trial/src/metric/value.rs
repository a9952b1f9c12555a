//! Computes each metric from an observation.

use super::Metric;
use crate::observation::{
    CpuTime, HostObservation, InterfaceCounters, Observation, Role, TrafficObservation,
};
use crate::workload::Traffic;

impl Metric {
    /// The share of round trips that do not exceed this percentile; `None` for other figures.
    pub const fn quantile(self) -> Option<f64> {
        match self {
            Self::LatencyNsP50 | Self::ProbeNsP50 | Self::TcpRttNsP50 | Self::TcpRttSampleNsP50 => {
                Some(0.5)
            }
            Self::LatencyNsP90 => Some(0.9),
            Self::LatencyNsP99 | Self::ProbeNsP99 | Self::TcpRttNsP99 | Self::TcpRttSampleNsP99 => {
                Some(0.99)
            }
            Self::LatencyNsP999 => Some(0.999),
            _ => None,
        }
    }

    /// Observations that a percentile of latency needs, so that one of them is beyond it; `None` for other figures.
    pub const fn needed_observations(self) -> Option<u64> {
        match self {
            Self::LatencyNsP99 | Self::ProbeNsP99 => Some(100),
            Self::LatencyNsP999 => Some(1000),
            _ => None,
        }
    }

    /// The metric's value in one observation; `None` if the workload lacks it or the host could not
    /// measure it.
    pub fn value(self, traffic: &Traffic, observation: &Observation) -> Option<f64> {
        if let Some(reported) = observation.reported_metrics.get(&self) {
            return Some(*reported);
        }
        if !self.is_reported_by(traffic.kind()) {
            return None;
        }
        let flow = &observation.traffic;
        let latency =
            |quantile: f64| flow.latency.as_ref()?.quantile(quantile).map(|t| t.as_ns() as f64);
        let uncorrected =
            |quantile: f64| Some(flow.latency_raw.as_ref()?.quantile(quantile)?.as_ns() as f64);
        let probe = observation.probe.as_ref();
        let rtt = probe.map(|probe| &probe.rtt);
        let datagrams = flow.datagrams.as_ref();
        let host = |role| observation.hosts.iter().find(|host| host.role == role);
        let generators = || observation.hosts.iter().filter(|host| host.role == Role::Generator);
        let sut_per_s = |count: fn(&HostObservation) -> Option<u64>| {
            let sut = host(Role::Sut)?;
            rate(count(sut)? as f64, sut.window.as_secs_f64())
        };
        match self {
            Self::Custom(custom) => observation.figures.get(&custom).copied(),
            Self::ThroughputBps => flow.goodput_bps(traffic),
            Self::ThroughputToSutBps => Some(flow.goodput_each_way_bps(traffic)?.0),
            Self::ThroughputFromSutBps => Some(flow.goodput_each_way_bps(traffic)?.1),
            Self::TransactionsPerS => {
                rate(flow.transactions? as f64, flow.sender_window.as_secs_f64())
            }
            Self::LatencyNsMean => flow.latency.as_ref()?.mean_ns(),
            Self::LatencyNsP50 => latency(0.5),
            Self::LatencyNsP90 => latency(0.9),
            Self::LatencyNsP99 => latency(0.99),
            Self::LatencyNsP999 => latency(0.999),
            Self::LatencyNsMax => flow.latency.as_ref()?.max().map(|t| t.as_ns() as f64),
            Self::LatencyUncorrectedNsP50 => uncorrected(0.5),
            Self::LatencyUncorrectedNsP99 => uncorrected(0.99),
            Self::ProbeNsMin => rtt?.min().map(|t| t.as_ns() as f64),
            Self::ProbeNsMean => rtt?.mean_ns(),
            Self::ProbeNsP50 => rtt?.quantile(0.5).map(|t| t.as_ns() as f64),
            Self::ProbeNsP99 => rtt?.quantile(0.99).map(|t| t.as_ns() as f64),
            Self::ProbeNsMax => rtt?.max().map(|t| t.as_ns() as f64),
            Self::ProbeNsMdev => rtt?.stdev_ns(),
            Self::ProbeLossRatio => {
                rate((probe?.sent - probe?.received.min(probe?.sent)) as f64, probe?.sent as f64)
            }
            Self::LossRatio => rate(datagrams?.lost as f64, datagrams?.sent as f64),
            Self::ReorderedRatio => rate(datagrams?.reordered as f64, datagrams?.received as f64),
            Self::JitterNs => Some(datagrams?.jitter_ns),
            Self::RetransmitsPerS => {
                rate(flow.retransmits? as f64, flow.sender_window.as_secs_f64())
            }
            Self::SutCpuBusyRatio => host(Role::Sut)?.busy_ratio(),
            Self::GeneratorCpuBusyRatio => {
                let time: CpuTime = generators().map(HostObservation::cpu).sum();
                rate(time.busy().as_secs_f64(), time.total().as_secs_f64())
            }
            Self::SutServiceDemandUs => service_demand_us(traffic, observation, [host(Role::Sut)?]),
            Self::GeneratorServiceDemandUs => service_demand_us(traffic, observation, generators()),
            Self::SutNetperfDemandUs => demand_us(traffic, flow, [host(Role::Sut)?], netperf_busy),
            Self::GeneratorNetperfDemandUs => demand_us(traffic, flow, generators(), netperf_busy),
            Self::GeneratorMaxPerS => rate(work_per_s(traffic, flow)?, flow.busiest_ratio?),
            Self::SutPollsPerS => sut_per_s(|sut| Some(sut.napi?.polls)),
            Self::SutPacketsPerPoll => {
                let napi = host(Role::Sut)?.napi?;
                rate(napi.packets as f64, napi.polls.checked_sub(napi.empty_polls)? as f64)
            }
            Self::SutRxPps => sut_per_s(|sut| Some(sut.interface.rx_packets)),
            Self::SutTxPps => sut_per_s(|sut| Some(sut.interface.tx_packets)),
            _ => of_live(self, host(Role::Sut)?),
        }
    }
}

/// A figure of traffic that is not latput's, on the host that has it.
fn of_live(metric: Metric, sut: &HostObservation) -> Option<f64> {
    let seconds = sut.window.as_secs_f64();
    let InterfaceCounters { rx_packets, rx_bytes, tx_packets, tx_bytes, rx_dropped, tx_dropped } =
        sut.interface;
    let sum = |one: u64, other: u64| one.saturating_add(other) as f64;
    let busy_ns = sut.cpu().busy().as_ns() as f64;
    let tcp = sut.tcp.as_ref();
    let rtt = |quantile: f64| tcp?.rtt.quantile(quantile).map(|time| time.as_ns() as f64);
    let sample =
        |quantile: f64| tcp?.rtt_samples.quantile(quantile).map(|time| time.as_ns() as f64);
    match metric {
        Metric::SutPacketCpuNs => rate(busy_ns, sum(rx_packets, tx_packets)),
        Metric::SutKbCpuNs => rate(busy_ns, sum(rx_bytes, tx_bytes) / 1024.0),
        Metric::SutInterruptsPerS => rate(sut.interrupts as f64, seconds),
        Metric::SutDropsPerS => rate(sum(rx_dropped, tx_dropped), seconds),
        Metric::TcpRttNsMin => tcp?.min_rtt.map(|time| time.as_ns() as f64),
        Metric::TcpRttNsMean => tcp?.rtt.mean_ns(),
        Metric::TcpRttNsP50 => rtt(0.5),
        Metric::TcpRttNsP99 => rtt(0.99),
        Metric::TcpRttNsMdev => tcp?.rtt_deviation.mean_ns(),
        Metric::TcpRttSampleNsMean => tcp?.rtt_samples.mean_ns(),
        Metric::TcpRttSampleNsP50 => sample(0.5),
        Metric::TcpRttSampleNsP99 => sample(0.99),
        Metric::TcpRetransmitsPerS => rate(tcp?.retransmitted as f64, seconds),
        Metric::TcpThroughputBps => rate(8.0 * sum(tcp?.acked_bytes, tcp?.received_bytes), seconds),
        Metric::TcpDeliveryBpsMean => {
            rate(8.0 * tcp?.delivery_bytes_per_s_sum as f64, tcp?.deliveries as f64)
        }
        Metric::TcpEndedPerS => rate(tcp?.ended? as f64, seconds),
        _ => None,
    }
}

/// Service demand: busy CPU time of the whole host per transaction, or per KB (1024 byte) of
/// goodput for bulk, in microseconds. The CPU times of several hosts are added: the cost of one end
/// of the traffic.
///
/// Busy time is by the row's source, without stolen time. netperf's figure of this name is
/// [`Metric::SutNetperfDemandUs`].
pub fn service_demand_us<'a>(
    traffic: &Traffic,
    observation: &Observation,
    hosts: impl IntoIterator<Item = &'a HostObservation>,
) -> Option<f64> {
    let busy =
        |host: &HostObservation| rate(host.cpu().busy().as_us_f64(), host.window.as_secs_f64());
    demand_us(traffic, &observation.traffic, hosts, busy)
}

/// netperf: utilisation [%] x 10000 / throughput x CPUs (`calc_service_demand_internal`, `src/netlib.c`), with
/// the utilisation of `src/netcpu_procstat.c`. In busy microseconds per second.
fn netperf_busy(host: &HostObservation) -> Option<f64> {
    let time = host.cpu_by_ticks();
    let total = time.total().as_secs_f64();
    let idle_share = rate(time.idle.as_secs_f64(), total)?;
    Some((1.0 - idle_share) * host.cpus.len() as f64 * 1e6)
}

/// Service demand where `busy` gives one host's busy microseconds per second.
fn demand_us<'a>(
    traffic: &Traffic,
    flow: &TrafficObservation,
    hosts: impl IntoIterator<Item = &'a HostObservation>,
    busy: fn(&HostObservation) -> Option<f64>,
) -> Option<f64> {
    let busy: Vec<f64> = hosts.into_iter().map(busy).collect::<Option<_>>()?;
    let busy_us_per_s = (!busy.is_empty()).then(|| busy.iter().sum::<f64>())?;
    let units = if traffic.is_transactional() { 1.0 } else { 8.0 * 1024.0 };
    rate(busy_us_per_s, work_per_s(traffic, flow)? / units)
}

/// Transactions per second, or bits of goodput per second for kinds without transactions.
fn work_per_s(traffic: &Traffic, flow: &TrafficObservation) -> Option<f64> {
    match flow.transactions.filter(|_| traffic.is_transactional()) {
        Some(transactions) => rate(transactions as f64, flow.sender_window.as_secs_f64()),
        None => flow.goodput_bps(traffic),
    }
}

/// `amount / base`; `None` where `base` is 0.
fn rate(amount: f64, base: f64) -> Option<f64> {
    (base > 0.0).then(|| amount / base)
}

#[cfg(test)]
mod tests {
    use latput_stats::Histogram;
    use latput_units::Nanos;

    use super::*;
    use crate::observation::ProbeObservation;

    /// 2000 round trips of 1 to 2000 ns, which a histogram keeps apart: of these a share `q` does not
    /// exceed `q * 2000` ns.
    #[test]
    fn each_percentile_is_the_one_of_its_name() {
        let mut rtt = Histogram::new();
        (1..=2000).for_each(|ns| rtt.record(Nanos::from_ns(ns)));
        let mut observation = Observation::default();
        observation.traffic.latency = Some(rtt.clone());
        observation.traffic.latency_raw = Some(rtt.clone());
        observation.probe = Some(ProbeObservation { sent: 2000, received: 2000, rtt });
        let traffic = Traffic::tcp_rr(0);
        for (name, expected) in [
            ("latency_ns_mean", 1000.5),
            ("latency_ns_p50", 1000.0),
            ("latency_ns_p90", 1800.0),
            ("latency_ns_p99", 1980.0),
            ("latency_ns_p999", 1998.0),
            ("latency_ns_max", 2000.0),
            ("latency_uncorrected_ns_p50", 1000.0),
            ("latency_uncorrected_ns_p99", 1980.0),
            ("probe_ns_min", 1.0),
            ("probe_ns_mean", 1000.5),
            ("probe_ns_p99", 1980.0),
            ("probe_ns_max", 2000.0),
        ] {
            let metric: Metric = name.parse().unwrap();
            assert_eq!(metric.value(&traffic, &observation), Some(expected), "{name}");
            if let Some(quantile) = metric.quantile() {
                assert!((quantile * 2000.0 - expected).abs() < 1e-9, "{name}: {quantile}");
            }
        }
    }
}
