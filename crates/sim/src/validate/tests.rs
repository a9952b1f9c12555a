//! Impossible values, named with their ranges; runs without an end in sight, or too large.

use latput_units::{BitsPerSecond, Bytes};

use super::*;
use crate::bus::Bus;
use crate::scenario::{GapDistribution, Load};

#[test]
fn plain_scenario_passes() {
    assert_eq!(build_valid_scenario().check(), Ok(()));
}

#[test]
fn impossible_values_are_named_with_range() {
    type Spoil = fn(&mut Bus);
    assert_invalid_key("duration", |s| s.duration = Nanos::ZERO);
    assert_invalid_key("warmup", |s| s.warmup = Nanos::from_s(60 * 86_400));
    assert_invalid_key("hosts", |s| s.hosts.push(Host::default()));
    assert_invalid_key("network.rate", |s| s.network.rate = BitsPerSecond::new(0));
    assert_invalid_key("network.mtu", |s| s.network.mtu = Bytes::new(20));
    assert_invalid_key("host.1.machine.cores", |s| s.hosts[1].machine.cores = 0);
    assert_invalid_key("host.0.machine.costs.jitter_ratio", |s| {
        s.hosts[0].machine.costs.jitter_ratio = f64::NAN;
    });
    assert_invalid_key("host.0.machine.costs.wake_ns", |s| {
        s.hosts[0].machine.costs.wake = Nanos::from_s(2);
    });
    assert_invalid_key("host.0.nic.queues", |s| s.hosts[0].nic.queues = 0);
    assert_invalid_key("host.0.nic.rx_ring", |s| s.hosts[0].nic.rx_ring = 0);
    assert_invalid_key("host.0.nic.irq_cores", |s| s.hosts[0].nic.irq_cores = vec![1]);
    assert_invalid_key("host.0.nic.fifo_bytes", |s| s.hosts[0].nic.bus = Some(Bus::default()));
    assert_invalid_key("host.0.nic.bus", |s| {
        (s.hosts[0].nic.bus, s.hosts[0].nic.handover) = (Some(Bus::default()), true);
    });
    let on_bus: [(&str, Spoil); 4] = [
        ("clock_ns", |bus| bus.clock = Nanos::ZERO),
        ("width_bytes", |bus| bus.width = Bytes::new(0)),
        ("write_clocks", |bus| bus.write_clocks = 1_001),
        ("read_clocks", |bus| bus.read_clocks = u32::MAX),
    ];
    for (key, spoil) in on_bus {
        let mut scenario = build_valid_scenario();
        let mut bus = Bus::default();
        spoil(&mut bus);
        (scenario.hosts[0].nic.bus, scenario.hosts[0].nic.fifo) = (Some(bus), Bytes::new(50_000));
        assert_eq!(scenario.check().unwrap_err().key, format!("host.0.nic.bus.{key}"));
    }
    assert_invalid_key("host.0.stack.delivery_batch", |s| s.hosts[0].stack.delivery_batch = 65);
    assert_invalid_key("host.0.stack.rps_cores", |s| s.hosts[0].stack.rps_cores = vec![7]);
    assert_invalid_key("load.0.to", |s| s.loads[0].to = 0);
    assert_invalid_key("load.0.from", |s| s.loads[0].from = 2);
    assert_invalid_key("load.0.to_core", |s| s.loads[0].to_core = Some(1));
    assert_invalid_key("load.0.size", |s| s.loads[0].traffic = build_datagram_traffic(1_473, 1e5));
    assert_invalid_key("load.0.rate_pps", |s| {
        s.loads[0].traffic = build_datagram_traffic(64, f64::INFINITY);
    });
}

#[test]
fn endless_run_is_refused_with_estimate() {
    let mut scenario = build_valid_scenario();
    scenario.duration = Nanos::from_s(30 * 86_400);
    let error = scenario.check().unwrap_err();
    assert_eq!(
        error.to_string(),
        "packets to simulate is 2.6e11, must be at most 1e11: shorten the run or slow the link"
    );
}

#[test]
fn planned_times_fit_the_clock() {
    let mut scenario = build_valid_scenario();
    scenario.network.rate = BitsPerSecond::new(10_000);
    scenario.network.mtu = Bytes::new(65_535);
    assert_eq!(scenario.check(), Ok(()));
    scenario.hosts[1].nic.tx_ring = 1 << 20;
    assert_eq!(scenario.check().unwrap_err().key, "host.1.nic.tx_ring");
    let mut scenario = build_valid_scenario();
    scenario.duration = Nanos::from_ns(crate::agenda::NEVER - 1);
    assert_eq!(scenario.check().unwrap_err().key, "duration");
}

#[test]
fn oversized_run_is_refused_with_estimate() {
    let mut scenario = build_valid_scenario();
    scenario.hosts[0].nic.rx_ring = 1 << 20;
    scenario.hosts[0].nic.queues = 1_000;
    assert!(scenario.check().unwrap_err().to_string().starts_with("memory in bytes is 5.0e10"));
}

#[track_caller]
fn assert_invalid_key(key: &str, spoil: fn(&mut Scenario)) {
    let mut scenario = build_valid_scenario();
    spoil(&mut scenario);
    assert_eq!(scenario.check().unwrap_err().key, key);
}

fn build_valid_scenario() -> Scenario {
    Scenario {
        seed: 1,
        warmup: Nanos::ZERO,
        duration: Nanos::from_s(1),
        hosts: vec![Host::default(), Host::default()],
        network: Network::default(),
        loads: vec![Load::new(0, 1, build_datagram_traffic(64, 1e5))],
    }
}

fn build_datagram_traffic(size: u64, rate_pps: f64) -> TrafficKind {
    let size = Bytes::new(size);
    TrafficKind::Datagrams {
        size,
        rate_pps,
        spacing: GapDistribution::Even,
        group: 1,
        receive_batch: 1,
    }
}
