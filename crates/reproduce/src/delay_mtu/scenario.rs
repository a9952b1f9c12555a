//! The scenario of one run: hosts at a switch and their loads.

use latput_policy::e1000::throttle_interval;
use latput_sim::profile::SystemProfile;
use latput_sim::scenario::{
    GapDistribution, Host, Load, Network, Scenario, TrafficKind, TrafficOptions, Transport,
};
use latput_sim::vector::{InterruptDelay, Throttle};
use latput_sim::{InvalidValue, SimulationOutcome};
use latput_trial::observation::Role;
use latput_units::{BitsPerSecond, Bytes, Nanos, SeededRng};

use super::{SweepCell, SweepModeration, SweepResult, SweepTraffic, UNIT};
use crate::experiment::build_host;

/// Links of the ten senders (T040, T045).
const SLOW_LINK: BitsPerSecond = BitsPerSecond::new(100_000_000);
/// Rate of the driver's dynamic throttle when one side only receives: 2000 + 6000 |rx - tx| / (rx +
/// tx).
const DYNAMIC_HZ: u32 = 8_000;
/// Ethernet header in interface counters.
const LINK_HEADER: u64 = 14;
/// Default socket buffer of Linux 2.4 for datagrams.
const DATAGRAM_SOCKET: Bytes = Bytes::new(65_535);
/// One send of the TCP loads (T050).
const TCP_MESSAGE: Bytes = Bytes::new(16_000);
/// One NFS read of Linux 2.4, and its request.
const NFS_READ: Bytes = Bytes::new(8_192);
const NFS_REQUEST: Bytes = Bytes::new(150);
/// Read-ahead requests of each process, beside the one it waits for.
const NFS_AHEAD: u32 = 1;
/// The profile of the measured host.
pub const PROFILE: &str = "p4-e1000";
/// Service time of a server's disk and file system for one read. Disks matter for the result (T055)
/// but are not described. Set by hand: with this value the three servers just fill the client's
/// link, and its loss begins near the published delay (T072).
pub(crate) const NFS_SERVER: Nanos = Nanos::from_us(100);

pub(super) fn run(
    cell: &SweepCell,
    profile: &SystemProfile,
    seed: u64,
) -> Result<SweepResult, InvalidValue> {
    let scenario = build_scenario(cell, profile, seed);
    let outcome = latput_sim::run(&scenario)?;
    Ok(collect_result(cell, &scenario, &outcome))
}

fn build_scenario(cell: &SweepCell, profile: &SystemProfile, seed: u64) -> Scenario {
    let others = match cell.flow {
        SweepTraffic::Udp10 | SweepTraffic::Tcp10 => 10,
        SweepTraffic::Tcp3 | SweepTraffic::Nfs | SweepTraffic::NfsSlowDisk => 3,
    };
    let generator = profile.generator.as_ref().unwrap_or(&profile.sut);
    let mut hosts = vec![build_measured_host(cell, profile)];
    hosts.extend((0..others).map(|_| {
        let mut other = build_host("other", Role::Generator, generator);
        if matches!(cell.flow, SweepTraffic::Udp10 | SweepTraffic::Tcp10) {
            other.nic.link = Some(SLOW_LINK);
        }
        other
    }));
    Scenario {
        seed: SeededRng::from_seed_and_index(seed, 0).next_u64(),
        warmup: Nanos::from_ms(100),
        duration: Nanos::from_ms(200),
        hosts,
        network: Network {
            rate: profile.network.rate,
            latency: profile.network.latency,
            latency_jitter_ratio: profile.network.latency_jitter_ratio,
            mtu: Bytes::new(cell.mtu),
            switch: profile.network.switch_buffer,
        },
        loads: (1..=others).map(|other| build_load(cell, other)).collect(),
    }
}

fn build_measured_host(cell: &SweepCell, profile: &SystemProfile) -> Host {
    let mut sink = build_host("sink", Role::Sut, &profile.sut);
    let coalescing = &mut sink.nic.coalescing;
    match cell.moderation {
        SweepModeration::Delay(units) => {
            coalescing.rx = InterruptDelay {
                delay: Nanos::from_ns(units * UNIT.as_ns()),
                ..InterruptDelay::default()
            };
        }
        SweepModeration::Dynamic => {
            coalescing.rx = InterruptDelay::default();
            coalescing.throttle = Throttle::Gate { interval: throttle_interval(DYNAMIC_HZ) };
        }
    }
    if cell.flow == SweepTraffic::Udp10 {
        sink.stack.receive_buffer = DATAGRAM_SOCKET;
    }
    sink
}

fn build_load(cell: &SweepCell, other: usize) -> Load {
    match cell.flow {
        SweepTraffic::Udp10 => {
            // As fast as the link allows (T049: as large as a packet carries).
            let traffic = TrafficKind::Datagrams {
                size: Bytes::new(cell.mtu - 28),
                rate_pps: 1.0,
                spacing: GapDistribution::Even,
                group: 1,
                receive_batch: 1,
            };
            let form = TrafficOptions { floods: true, ..TrafficOptions::default() };
            Load { form, ..Load::new(other, 0, traffic) }
        }
        SweepTraffic::Tcp10 | SweepTraffic::Tcp3 => {
            Load::new(other, 0, TrafficKind::Stream { message: TCP_MESSAGE, connections: 1 })
        }
        SweepTraffic::Nfs | SweepTraffic::NfsSlowDisk => {
            let slower = if cell.flow == SweepTraffic::NfsSlowDisk { 2 } else { 1 };
            let traffic = TrafficKind::RequestResponse {
                transport: Transport::Tcp { nodelay: true },
                request: NFS_REQUEST,
                response: NFS_READ,
                burst: NFS_AHEAD,
                connections: 1,
                think: Nanos::from_ns(slower * NFS_SERVER.as_ns()),
            };
            Load::new(0, other, traffic)
        }
    }
}

fn collect_result(
    cell: &SweepCell,
    scenario: &Scenario,
    outcome: &SimulationOutcome,
) -> SweepResult {
    let sink = &outcome.hosts[0];
    let (cpu, nic) = (sink.cpu_totals(), sink.nic_totals());
    let busy = (cpu.user + cpu.system + cpu.irq + cpu.softirq).as_secs_f64();
    let bytes: u64 = outcome
        .loads
        .iter()
        .map(|load| match cell.flow {
            SweepTraffic::Udp10 => load.received * (cell.mtu - 28),
            SweepTraffic::Tcp10 | SweepTraffic::Tcp3 => load.received_bytes,
            SweepTraffic::Nfs | SweepTraffic::NfsSlowDisk => load.received * NFS_READ.get(),
        })
        .sum();
    let dropped_in_sockets: u64 = outcome.loads.iter().map(|load| load.socket_dropped).sum();
    let lost = nic.rx_dropped + sink.backlog_dropped + dropped_in_sockets + outcome.switch_dropped;
    // Interface counters include the link layer's header.
    let packet_bytes = nic.rx_bytes - LINK_HEADER * nic.rx_packets;
    let kept = 1.0 - lost as f64 / (nic.rx_packets + lost).max(1) as f64;
    SweepResult {
        goodput_mbps: 8e-6 * outcome.per_second(bytes),
        link_mbps: 8e-6 * outcome.per_second(packet_bytes) * kept,
        frames_per_s: outcome.per_second(nic.rx_packets),
        busy_percent: 100.0 * busy / (busy + cpu.idle.as_secs_f64()),
        busy_us_per_mb: 1e6 * busy / (bytes.max(1) as f64 * 1e-6),
        packets_per_interrupt: nic.rx_packets as f64 / nic.interrupts.max(1) as f64,
        packets_per_ack: nic.rx_packets as f64 / nic.tx_packets.max(1) as f64,
        lost,
        observation: outcome.build_observation(scenario, 0),
    }
}
