//! The BSD hosts: ping and idle time by moderation frequency, and device polling against interrupts.

use latput_policy::e1000::throttle_interval;
use latput_sim::SimulationOutcome;
use latput_sim::machine::DriverMode;
use latput_sim::profile::SystemProfile;
use latput_sim::scenario::{GapDistribution, Host, Load, Network, Scenario, TrafficKind};
use latput_sim::vector::Throttle;
use latput_stats::Histogram;
use latput_trial::observation::Role;
use latput_units::{Bytes, Nanos};

use super::{NetworkExperiment, OTHER, ReportedFigures, SUT, SimulatedFigure, build_host};
use crate::row::{CsvRow, RowError, whole_number};
use crate::system::SystemCatalog;

/// Payload of iperf's datagrams.
const DATAGRAM: u64 = 1_470;
/// Length of iperf's reads and writes.
const IPERF_BUFFER: Bytes = Bytes::new(8_192);
/// Duration of the run with a printed transfer, times the size of a megabit in `MByte`.
const MBYTES_OF_10_S: f64 = 10.0 / 8.0 / 1.048_576;

/// Pings per second of a run.
const MOST_PINGS_HZ: f64 = 997.0;
const PINGS_OF_A_PERIOD: f64 = 97.0;

fn build_scenario(profile: &SystemProfile, loads: Vec<Load>) -> Scenario {
    let generator = profile.generator.as_ref().unwrap_or(&profile.sut);
    Scenario {
        seed: 0,
        warmup: Nanos::from_ms(300),
        duration: Nanos::from_ms(1_500),
        hosts: vec![
            build_host("sut", Role::Sut, &profile.sut),
            build_host("other", Role::Generator, generator),
        ],
        network: Network {
            rate: profile.network.rate,
            latency: profile.network.latency,
            latency_jitter_ratio: profile.network.latency_jitter_ratio,
            mtu: profile.network.mtu,
            switch: None,
        },
        loads,
    }
}

/// A row of the mail on moderation frequency.
pub(super) fn ping_idle(
    row: &CsvRow<'_>,
    systems: &SystemCatalog,
) -> Result<NetworkExperiment, RowError> {
    let profile = systems.expect_profile("dragonfly-em");
    let quantity = row.text("quantity");
    let throttle = parse_moderation(row)?;
    let stream = |connections| {
        Load::new(OTHER, SUT, TrafficKind::Stream { message: IPERF_BUFFER, connections })
    };
    let (loads, reading) = match (row.text("section"), quantity) {
        ("ping", "round trip time" | "round trip time, small packet, best case") => {
            let unit = if row.text("unit") == "us" { 1e3 } else { 1.0 };
            let rate_hz = pings_per_second(throttle);
            (
                vec![Load::new(OTHER, SUT, TrafficKind::Probe { rate_hz })],
                ReportedFigures::Ping(unit),
            )
        }
        ("idle", "CPU idle") => (vec![stream(1)], ReportedFigures::Idle),
        ("idle", text) if text.starts_with("iperf throughput") => {
            (vec![stream(1)], ReportedFigures::Payload(1.0))
        }
        (
            "iperf_p10",
            "throughput" | "sum of stream throughputs" | "mean per-stream throughput",
        ) => {
            let is_sum = row.text("stream_id") == "SUM" || quantity.starts_with("sum");
            (vec![stream(10)], ReportedFigures::Payload(if is_sum { 1.0 } else { 0.1 }))
        }
        ("iperf_p10", "transfer") => {
            let is_sum = row.text("stream_id") == "SUM";
            let factor = if is_sum { MBYTES_OF_10_S / 1_024.0 } else { MBYTES_OF_10_S / 10.0 };
            (vec![stream(10)], ReportedFigures::Payload(factor))
        }
        (section, _) => {
            let text = format!("`{quantity}` of section `{section}` is no measurement of a run");
            return Err(row.not_simulated("quantity", text));
        }
    };
    let mut scenario = build_scenario(profile, loads);
    if row.text("section") == "iperf_p10" {
        scenario.network.rate = latput_units::BitsPerSecond::new(1_000_000_000);
    } else {
        // The 63.5 KByte window and the bus limit the stream to 700 Mbit/s at every setting.
        for host in &mut scenario.hosts {
            host.stack.receive_buffer = Bytes::new(65_024);
        }
    }
    for host in &mut scenario.hosts {
        host.nic.coalescing.throttle = throttle.unwrap_or(host.nic.coalescing.throttle);
    }
    Ok(NetworkExperiment { scenario, reading })
}

/// A ping rate that covers all phases of the throttle and does not overflow a ring in one period.
fn pings_per_second(throttle: Option<Throttle>) -> f64 {
    let interval = throttle.map_or(Nanos::ZERO, |throttle| throttle.interval());
    (PINGS_OF_A_PERIOD / interval.as_secs_f64()).min(MOST_PINGS_HZ)
}

/// The column `moderation_hz`; `None` for the default.
fn parse_moderation(row: &CsvRow<'_>) -> Result<Option<Throttle>, RowError> {
    let text = row.text("moderation_hz");
    let best_case = row.text("quantity").contains("best case");
    Ok(match text {
        "max" | "0" => Some(Throttle::None),
        "" if best_case => Some(Throttle::None),
        "" | "default" => None,
        _ => {
            let wanted =
                "must be a frequency from 1 to 1000000, 0 or `max` for none, `default` or empty";
            let hz = whole_number::<u32>(text).filter(|hz| (1..=1_000_000).contains(hz));
            let hz =
                hz.ok_or_else(|| row.field_error("moderation_hz", format!("`{text}` {wanted}")))?;
            Some(Throttle::Gate { interval: throttle_interval(hz) })
        }
    })
}

/// The mean of pings and the range of nine in ten, in milliseconds times `unit`.
pub(super) fn summarize_pings(latency: &Histogram, unit: f64) -> Option<SimulatedFigure> {
    let at = |q: f64| Some(latency.quantile(q)?.as_ms_f64() * unit);
    let value = latency.mean_ns()? * 1e-6 * unit;
    Some(SimulatedFigure { value, within: Some((at(0.05)?, at(0.95)?)) })
}

/// One report of iperf: its load, its host, and whether it uses datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IperfReport {
    load: usize,
    host: usize,
    kind: ReportKind,
    is_polling: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReportKind {
    Stream,
    Sent,
    Received,
}

/// A row on device polling. The measured system is the server.
pub(super) fn device_polling(
    row: &CsvRow<'_>,
    systems: &SystemCatalog,
) -> Result<NetworkExperiment, RowError> {
    let profile = systems.expect_profile("freebsd-em");
    let one_of = |column: &str, values: [&str; 2]| match row.text(column) {
        text if text == values[0] => Ok(false),
        text if text == values[1] => Ok(true),
        text => {
            let wanted = format!("`{text}` must be `{}` or `{}`", values[0], values[1]);
            Err(row.field_error(column, wanted))
        }
    };
    let is_polling = one_of("polling", ["off", "on"])?;
    let host = if one_of("role", ["server", "client"])? { OTHER } else { SUT };
    let is_reply = one_of("direction", ["client_to_server", "server_to_client"])?;
    let stream = |from, to| {
        Load::new(from, to, TrafficKind::Stream { message: IPERF_BUFFER, connections: 1 })
    };
    let (loads, kind) = match row.text("test") {
        "tcp_uni" => (vec![stream(OTHER, SUT)], ReportKind::Stream),
        "tcp_bidir" => (vec![stream(OTHER, SUT), stream(SUT, OTHER)], ReportKind::Stream),
        "udp_uni" => {
            let is_sent = row.text("what").starts_with("sent");
            let kind = if is_sent { ReportKind::Sent } else { ReportKind::Received };
            (vec![build_datagram_load(row)?], kind)
        }
        test => {
            let wanted = "must be `tcp_uni`, `tcp_bidir` or `udp_uni`";
            return Err(row.field_error("test", format!("`{test}` {wanted}")));
        }
    };
    let load = usize::from(is_reply);
    if load >= loads.len() {
        let problem = "only test `tcp_bidir` has this direction";
        return Err(row.field_error("direction", problem));
    }
    let mut scenario = build_scenario(profile, loads);
    if is_polling {
        scenario.hosts.iter_mut().for_each(poll);
    }
    let report = IperfReport { load, host, kind, is_polling };
    Ok(NetworkExperiment { scenario, reading: ReportedFigures::Iperf(report) })
}

fn build_datagram_load(row: &CsvRow<'_>) -> Result<Load, RowError> {
    let offered = row.parse_figure("offered_mbit_s")?.unwrap_or(500.0);
    if offered <= 0.0 {
        let problem = format!("`{offered}` must be more than 0 Mbit/s, or empty for 500");
        return Err(row.field_error("offered_mbit_s", problem));
    }
    let traffic = TrafficKind::Datagrams {
        size: Bytes::new(DATAGRAM),
        rate_pps: (offered * 1e6 / 8.0 / DATAGRAM as f64).clamp(1.0, 1e6),
        spacing: GapDistribution::Even,
        group: 1,
        receive_batch: 1,
    };
    Ok(Load::new(OTHER, SUT, traffic))
}

/// Lets the kernel poll the NIC on its clock tick. There are no interrupts to throttle.
fn poll(host: &mut Host) {
    host.nic.driver = DriverMode::Polling;
    host.nic.coalescing.throttle = Throttle::None;
}

impl IperfReport {
    pub(super) fn read(&self, outcome: &SimulationOutcome) -> Vec<Option<SimulatedFigure>> {
        let load = &outcome.loads[self.load];
        let mbit = |datagrams: u64| 8e-6 * DATAGRAM as f64 * outcome.per_second(datagrams);
        let rate = match self.kind {
            ReportKind::Stream => 8e-6 * outcome.per_second(load.received_bytes),
            ReportKind::Sent => mbit(load.sent),
            ReportKind::Received => mbit(load.received),
        };
        let is_received = self.kind == ReportKind::Received;
        let loss = 100.0 * (1.0 - load.received as f64 / load.sent.max(1) as f64).max(0.0);
        let cpu = outcome.hosts[self.host].cpu_totals();
        let total = (cpu.user + cpu.system + cpu.irq + cpu.softirq + cpu.idle).as_secs_f64();
        let share = |time: Nanos| 100.0 * time.as_secs_f64() / total;
        // The network thread handles polled packets; `top` counts it as system time.
        let (system, interrupt) = if self.is_polling {
            (share(cpu.system + cpu.softirq), share(cpu.irq))
        } else {
            (share(cpu.system), share(cpu.irq + cpu.softirq))
        };
        let of_received = |value: f64| is_received.then_some(SimulatedFigure::from_value(value));
        vec![
            Some(SimulatedFigure::from_value(rate)),
            of_received(loss),
            Some(SimulatedFigure::from_value(share(cpu.user))),
            Some(SimulatedFigure::from_value(system)),
            Some(SimulatedFigure::from_value(interrupt)),
            Some(SimulatedFigure::from_value(share(cpu.idle))),
            of_received(load.jitter_ns * 1e-6),
        ]
    }
}
