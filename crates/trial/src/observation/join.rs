//! Joins what one host counted in two windows, as if they were one.

use std::collections::BTreeMap;

use latput_units::IntoMap;

use super::{
    CpuAccounting, CpuObservation, CpuTime, HostObservation, InterfaceCounters, KernelEvents,
    NapiObservation, TcpObservation,
};
use crate::live::TcpGroup;

impl HostObservation {
    /// The counts of both windows of one host and setting. What is not a count, such as the values of knobs, is this window's.
    /// A count that one of them lacks is absent.
    #[must_use]
    pub fn joined(self, other: &Self) -> Self {
        let CpuAccounting { source, ticks, busy_by_idle, traced } = self.accounting;
        Self {
            window: self.window.saturating_add(other.window),
            cpus: by_cpu(self.cpus, &other.cpus),
            accounting: CpuAccounting {
                source: source.max(other.accounting.source),
                ticks: by_cpu(ticks, &other.accounting.ticks),
                busy_by_idle: both(busy_by_idle, other.accounting.busy_by_idle)
                    .map(|(one, two)| one.saturating_add(two)),
                traced: both(traced, other.accounting.traced)
                    .map(|(one, two)| one.saturating_add(two)),
            },
            other_cpus: self.other_cpus + other.other_cpus,
            machine: self.machine + other.machine,
            napi_threads_cpu: both(self.napi_threads_cpu, other.napi_threads_cpu)
                .map(|(one, two)| one.saturating_add(two)),
            sampling_cpu: self.sampling_cpu.saturating_add(other.sampling_cpu),
            tracing_cpu: both(self.tracing_cpu, other.tracing_cpu)
                .map(|(one, two)| one.saturating_add(two)),
            napi: both(self.napi, other.napi).map(|(one, two)| NapiObservation {
                polls: one.polls.saturating_add(two.polls),
                packets: one.packets.saturating_add(two.packets),
                empty_polls: one.empty_polls.saturating_add(two.empty_polls),
            }),
            softirqs: self.softirqs.saturating_add(other.softirqs),
            interrupts: self.interrupts.saturating_add(other.interrupts),
            events: events(&self.events, &other.events),
            interface: interface(self.interface, other.interface),
            packets_per_interval: [self.packets_per_interval, other.packets_per_interval.clone()]
                .concat(),
            tcp_retransmitted: self.tcp_retransmitted.saturating_add(other.tcp_retransmitted),
            udp_receive_buffer_errors: self
                .udp_receive_buffer_errors
                .saturating_add(other.udp_receive_buffer_errors),
            wall_clock_step_ns: self.wall_clock_step_ns.saturating_add(other.wall_clock_step_ns),
            tcp: both(self.tcp, other.tcp.as_ref()).map(|(one, two)| one.joined(two)),
            tcp_groups: groups(self.tcp_groups, &other.tcp_groups),
            ..self
        }
    }
}

impl TcpObservation {
    /// The readings of both.
    #[must_use]
    pub fn joined(mut self, other: &Self) -> Self {
        let ended = match (self.readings, other.readings) {
            (0, _) => other.ended,
            (_, 0) => self.ended,
            _ => both(self.ended, other.ended).map(|(one, two)| one.saturating_add(two)),
        };
        self.rtt.merge(&other.rtt);
        self.rtt_deviation.merge(&other.rtt_deviation);
        self.rtt_samples.merge(&other.rtt_samples);
        Self {
            readings: self.readings.saturating_add(other.readings),
            connections: self.connections.max(other.connections),
            min_rtt: self.min_rtt.into_iter().chain(other.min_rtt).min(),
            retransmitted: self.retransmitted.saturating_add(other.retransmitted),
            acked_bytes: self.acked_bytes.saturating_add(other.acked_bytes),
            received_bytes: self.received_bytes.saturating_add(other.received_bytes),
            delivery_bytes_per_s_sum: self
                .delivery_bytes_per_s_sum
                .saturating_add(other.delivery_bytes_per_s_sum),
            deliveries: self.deliveries.saturating_add(other.deliveries),
            ended,
            seen: self.seen.saturating_add(other.seen),
            opened: self.opened.saturating_add(other.opened),
            ..self
        }
    }
}

/// A group that had no connection in one of the windows has the other's counts.
fn groups(
    mut one: BTreeMap<TcpGroup, TcpObservation>,
    other: &BTreeMap<TcpGroup, TcpObservation>,
) -> BTreeMap<TcpGroup, TcpObservation> {
    for (group, seen) in other {
        let joined = one.remove(group).unwrap_or_default().joined(seen);
        one.insert(*group, joined);
    }
    one
}

fn both<T, U>(one: Option<T>, other: Option<U>) -> Option<(T, U)> {
    one.zip(other)
}

fn events(one: &KernelEvents, other: &KernelEvents) -> KernelEvents {
    let sum = |_, one: u64, two: u64| Ok::<u64, std::convert::Infallible>(one.saturating_add(two));
    let Ok(joined) = one.combine(other, sum);
    joined
}

fn interface(one: InterfaceCounters, other: InterfaceCounters) -> InterfaceCounters {
    InterfaceCounters {
        rx_packets: one.rx_packets.saturating_add(other.rx_packets),
        rx_bytes: one.rx_bytes.saturating_add(other.rx_bytes),
        tx_packets: one.tx_packets.saturating_add(other.tx_packets),
        tx_bytes: one.tx_bytes.saturating_add(other.tx_bytes),
        rx_dropped: one.rx_dropped.saturating_add(other.rx_dropped),
        tx_dropped: one.tx_dropped.saturating_add(other.tx_dropped),
    }
}

/// The times of the CPUs that both have.
fn by_cpu(one: Vec<CpuObservation>, other: &[CpuObservation]) -> Vec<CpuObservation> {
    let others: BTreeMap<_, CpuTime> = other.iter().map(|it| (it.cpu, it.time)).into_map();
    let joined = one.into_iter().filter_map(|CpuObservation { cpu, time }| {
        Some(CpuObservation { cpu, time: time + *others.get(&cpu)? })
    });
    joined.collect()
}

#[cfg(test)]
mod tests {
    use latput_stats::Histogram;
    use latput_units::{CpuId, Nanos};

    use super::*;

    #[test]
    fn counts_add_up_or_are_absent() {
        let part = |ms: u64, busy_ms: u64, packets: u64| {
            let mut rtt = Histogram::new();
            rtt.record_n(Nanos::from_us(ms), packets);
            let time = CpuTime { user: Nanos::from_ms(busy_ms), ..CpuTime::default() };
            HostObservation {
                host: "a".to_owned(),
                window: Nanos::from_ms(ms),
                cpus: vec![CpuObservation { cpu: CpuId(0), time }],
                interface: InterfaceCounters { rx_packets: packets, ..Default::default() },
                napi_threads_cpu: Some(Nanos::from_ms(busy_ms)),
                events: KernelEvents { segments: Some(packets), ..KernelEvents::default() },
                tcp: Some(TcpObservation {
                    readings: 3,
                    rtt,
                    connections: packets,
                    ..Default::default()
                }),
                ..HostObservation::default()
            }
        };
        let joined = part(100, 10, 5).joined(&part(300, 20, 7));
        assert_eq!((joined.window, joined.cpu().busy()), (Nanos::from_ms(400), Nanos::from_ms(30)));
        assert_eq!(joined.interface.rx_packets, 12);
        assert_eq!((joined.events.segments, joined.events.idle_sleeps), (Some(12), None));
        let tcp = joined.tcp.unwrap();
        assert_eq!((tcp.readings, tcp.connections, tcp.rtt.count()), (6, 7, 12));
        let group = |port, packets| {
            let seen = part(1, 1, packets).tcp.unwrap();
            HostObservation { tcp_groups: [(TcpGroup::Local(port), seen)].into(), ..part(1, 1, 1) }
        };
        let groups = group(80, 3).joined(&group(443, 4)).joined(&group(443, 5)).tcp_groups;
        let counts: Vec<u64> = groups.values().map(|seen| seen.rtt.count()).collect();
        assert_eq!(counts, [3, 9], "a group that one lacks has the other's counts");
        let ended = |readings, ended| TcpObservation { readings, ended, ..Default::default() };
        let of = |one: TcpObservation, other: TcpObservation| one.joined(&other).ended;
        assert_eq!(of(ended(2, Some(3)), ended(1, Some(4))), Some(7));
        assert_eq!(of(TcpObservation::default(), ended(1, Some(4))), Some(4));
        assert_eq!(of(ended(2, Some(3)), ended(1, None)), None);
        let lacking = HostObservation { napi_threads_cpu: None, ..part(1, 1, 1) };
        assert_eq!(part(1, 1, 1).joined(&lacking).napi_threads_cpu, None);
    }
}
