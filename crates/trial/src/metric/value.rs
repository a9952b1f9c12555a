//! Computes each metric from an observation.

use latput_stats::Histogram;

use super::Metric;
use crate::observation::{
    CpuTime, HostObservation, InterfaceCounters, Observation, Role, TcpObservation,
    TrafficObservation,
};
use crate::workload::Traffic;

impl Metric {
    /// The metric's value in one observation; `None` if the workload lacks it or the host could not
    /// measure it.
    pub fn value(self, traffic: &Traffic, observation: &Observation) -> Option<f64> {
        if let Some(reported) = observation.reported_metrics.get(&self) {
            return Some(*reported);
        }
        if !self.is_reported_by(traffic.descriptor()) {
            return None;
        }
        let flow = &observation.traffic;
        ObservedFigures { traffic, observation, flow }.compute(self)
    }
}

/// An observation under a kind of traffic, from which figures are computed.
#[derive(Clone, Copy)]
struct ObservedFigures<'a> {
    traffic: &'a Traffic,
    observation: &'a Observation,
    flow: &'a TrafficObservation,
}

impl<'a> ObservedFigures<'a> {
    #[expect(clippy::too_many_lines, reason = "a table: one arm to a metric")]
    fn compute(self, metric: Metric) -> Option<f64> {
        let Self { traffic, observation, flow } = self;
        let latency = flow.latency.as_ref();
        let uncorrected = flow.latency_raw.as_ref();
        let probe = observation.probe.as_ref();
        let rtt = probe.map(|probe| &probe.rtt);
        let datagrams = flow.datagrams.as_ref();
        match metric {
            Metric::Custom(custom) => observation.figures.get(&custom).copied(),
            Metric::ThroughputBps => flow.goodput_bps(traffic),
            Metric::ThroughputToSutBps => Some(flow.goodput_each_way_bps(traffic)?.0),
            Metric::ThroughputFromSutBps => Some(flow.goodput_each_way_bps(traffic)?.1),
            Metric::TransactionsPerS => {
                rate(flow.transactions? as f64, flow.sender_window.as_secs_f64())
            }
            Metric::LatencyNsMean => latency?.mean_ns(),
            Metric::LatencyNsP50 => quantile(latency?, 0.5),
            Metric::LatencyNsP90 => quantile(latency?, 0.9),
            Metric::LatencyNsP99 => quantile(latency?, 0.99),
            Metric::LatencyNsP999 => quantile(latency?, 0.999),
            Metric::LatencyNsMax => latency?.max().map(|time| time.as_ns() as f64),
            Metric::LatencyUncorrectedNsP50 => quantile(uncorrected?, 0.5),
            Metric::LatencyUncorrectedNsP99 => quantile(uncorrected?, 0.99),
            Metric::ProbeNsMin => rtt?.min().map(|time| time.as_ns() as f64),
            Metric::ProbeNsMean => rtt?.mean_ns(),
            Metric::ProbeNsP50 => quantile(rtt?, 0.5),
            Metric::ProbeNsP99 => quantile(rtt?, 0.99),
            Metric::ProbeNsMax => rtt?.max().map(|time| time.as_ns() as f64),
            Metric::ProbeNsMdev => rtt?.stdev_ns(),
            Metric::ProbeLossRatio => {
                rate((probe?.sent - probe?.received.min(probe?.sent)) as f64, probe?.sent as f64)
            }
            Metric::LossRatio => rate(datagrams?.lost as f64, datagrams?.sent as f64),
            Metric::ReorderedRatio => rate(datagrams?.reordered as f64, datagrams?.received as f64),
            Metric::JitterNs => Some(datagrams?.jitter_ns),
            Metric::RetransmitsPerS => {
                rate(flow.retransmits? as f64, flow.sender_window.as_secs_f64())
            }
            Metric::SutCpuBusyRatio => self.sut()?.busy_ratio(),
            Metric::GeneratorCpuBusyRatio => {
                let time: CpuTime = self.generators().map(HostObservation::cpu).sum();
                rate(time.busy().as_secs_f64(), time.total().as_secs_f64())
            }
            Metric::SutServiceDemandUs => service_demand_us(traffic, observation, [self.sut()?]),
            Metric::GeneratorServiceDemandUs => {
                service_demand_us(traffic, observation, self.generators())
            }
            Metric::SutNetperfDemandUs => demand_us(traffic, flow, [self.sut()?], netperf_busy),
            Metric::GeneratorNetperfDemandUs => {
                demand_us(traffic, flow, self.generators(), netperf_busy)
            }
            Metric::GeneratorMaxPerS => rate(work_per_s(traffic, flow)?, flow.busiest_ratio?),
            Metric::SutPollsPerS => self.sut_per_s(|sut| Some(sut.napi?.polls)),
            Metric::SutPacketsPerPoll => {
                let napi = self.sut()?.napi?;
                rate(napi.packets as f64, napi.polls.checked_sub(napi.empty_polls)? as f64)
            }
            Metric::SutRxPps => self.sut_per_s(|sut| Some(sut.interface.rx_packets)),
            Metric::SutTxPps => self.sut_per_s(|sut| Some(sut.interface.tx_packets)),
            Metric::SutPacketCpuNs => {
                let InterfaceCounters { rx_packets, tx_packets, .. } = self.sut()?.interface;
                rate(self.sut_busy_ns()?, sum(rx_packets, tx_packets))
            }
            Metric::SutKbCpuNs => {
                let InterfaceCounters { rx_bytes, tx_bytes, .. } = self.sut()?.interface;
                rate(self.sut_busy_ns()?, sum(rx_bytes, tx_bytes) / 1024.0)
            }
            Metric::SutInterruptsPerS => self.sut_per_s(|sut| Some(sut.interrupts)),
            Metric::SutDropsPerS => self.sut_per_s(|sut| {
                Some(sut.interface.rx_dropped.saturating_add(sut.interface.tx_dropped))
            }),
            Metric::TcpRttNsMin => self.tcp()?.min_rtt.map(|time| time.as_ns() as f64),
            Metric::TcpRttNsMean => self.tcp()?.rtt.mean_ns(),
            Metric::TcpRttNsP50 => quantile(&self.tcp()?.rtt, 0.5),
            Metric::TcpRttNsP99 => quantile(&self.tcp()?.rtt, 0.99),
            Metric::TcpRttNsMdev => self.tcp()?.rtt_deviation.mean_ns(),
            Metric::TcpRttSampleNsMean => self.tcp()?.rtt_samples.mean_ns(),
            Metric::TcpRttSampleNsP50 => quantile(&self.tcp()?.rtt_samples, 0.5),
            Metric::TcpRttSampleNsP99 => quantile(&self.tcp()?.rtt_samples, 0.99),
            Metric::TcpRetransmitsPerS => {
                self.sut_per_s(|sut| Some(sut.tcp.as_ref()?.retransmitted))
            }
            Metric::TcpThroughputBps => {
                let tcp = self.tcp()?;
                let bits = 8.0 * sum(tcp.acked_bytes, tcp.received_bytes);
                rate(bits, self.sut()?.window.as_secs_f64())
            }
            Metric::TcpDeliveryBpsMean => {
                let tcp = self.tcp()?;
                rate(8.0 * tcp.delivery_bytes_per_s_sum as f64, tcp.deliveries as f64)
            }
            Metric::TcpEndedPerS => self.sut_per_s(|sut| sut.tcp.as_ref()?.ended),
        }
    }

    fn sut(self) -> Option<&'a HostObservation> {
        self.observation.hosts.iter().find(|host| host.role == Role::Sut)
    }

    fn generators(self) -> impl Iterator<Item = &'a HostObservation> {
        self.observation.hosts.iter().filter(|host| host.role == Role::Generator)
    }

    fn tcp(self) -> Option<&'a TcpObservation> {
        self.sut()?.tcp.as_ref()
    }

    fn sut_busy_ns(self) -> Option<f64> {
        Some(self.sut()?.cpu().busy().as_ns() as f64)
    }

    fn sut_per_s(self, count: fn(&HostObservation) -> Option<u64>) -> Option<f64> {
        let sut = self.sut()?;
        rate(count(sut)? as f64, sut.window.as_secs_f64())
    }
}

/// The time that this share of `times` does not exceed, in nanoseconds.
fn quantile(times: &Histogram, share: f64) -> Option<f64> {
    times.quantile(share).map(|time| time.as_ns() as f64)
}

fn sum(one: u64, other: u64) -> f64 {
    one.saturating_add(other) as f64
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
