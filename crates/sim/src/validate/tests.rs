//! Impossible values, named with their ranges; runs without an end in sight, or too large.

use latput_units::{BitsPerSecond, Bytes};

use super::*;
use crate::bus::Bus;
use crate::scenario::{Load, Spacing};

#[test]
fn plain_scenario_passes() {
    assert_eq!(plain().check(), Ok(()));
}

#[test]
fn impossible_values_are_named_with_range() {
    type Spoil = fn(&mut Bus);
    check("duration", |s| s.duration = Nanos::ZERO);
    check("warmup", |s| s.warmup = Nanos::from_s(60 * 86_400));
    check("hosts", |s| s.hosts.push(Host::default()));
    check("network.rate", |s| s.network.rate = BitsPerSecond::new(0));
    check("network.mtu", |s| s.network.mtu = Bytes::new(20));
    check("host.1.machine.cores", |s| s.hosts[1].machine.cores = 0);
    check("host.0.machine.costs.jitter_ratio", |s| {
        s.hosts[0].machine.costs.jitter_ratio = f64::NAN;
    });
    check("host.0.machine.costs.wake_ns", |s| s.hosts[0].machine.costs.wake = Nanos::from_s(2));
    check("host.0.nic.queues", |s| s.hosts[0].nic.queues = 0);
    check("host.0.nic.rx_ring", |s| s.hosts[0].nic.rx_ring = 0);
    check("host.0.nic.irq_cores", |s| s.hosts[0].nic.irq_cores = vec![1]);
    check("host.0.nic.fifo_bytes", |s| s.hosts[0].nic.bus = Some(Bus::default()));
    check("host.0.nic.bus", |s| {
        (s.hosts[0].nic.bus, s.hosts[0].nic.handover) = (Some(Bus::default()), true);
    });
    let on_bus: [(&str, Spoil); 4] = [
        ("clock_ns", |bus| bus.clock = Nanos::ZERO),
        ("width_bytes", |bus| bus.width = Bytes::new(0)),
        ("write_clocks", |bus| bus.write_clocks = 1_001),
        ("read_clocks", |bus| bus.read_clocks = u32::MAX),
    ];
    for (key, spoil) in on_bus {
        let mut scenario = plain();
        let mut bus = Bus::default();
        spoil(&mut bus);
        (scenario.hosts[0].nic.bus, scenario.hosts[0].nic.fifo) = (Some(bus), Bytes::new(50_000));
        assert_eq!(scenario.check().unwrap_err().key, format!("host.0.nic.bus.{key}"));
    }
    check("host.0.stack.delivery_batch", |s| s.hosts[0].stack.delivery_batch = 65);
    check("host.0.stack.rps_cores", |s| s.hosts[0].stack.rps_cores = vec![7]);
    check("load.0.to", |s| s.loads[0].to = 0);
    check("load.0.from", |s| s.loads[0].from = 2);
    check("load.0.to_core", |s| s.loads[0].to_core = Some(1));
    check("load.0.size", |s| s.loads[0].traffic = datagrams(1_473, 1e5));
    check("load.0.rate_pps", |s| s.loads[0].traffic = datagrams(64, f64::INFINITY));
}

#[test]
fn endless_run_is_refused_with_estimate() {
    let mut scenario = plain();
    scenario.duration = Nanos::from_s(30 * 86_400);
    let error = scenario.check().unwrap_err();
    assert_eq!(
        error.to_string(),
        "packets to simulate is 2.6e11, must be at most 1e11: shorten the run or slow the link"
    );
}

#[test]
fn planned_times_fit_the_clock() {
    let mut scenario = plain();
    scenario.network.rate = BitsPerSecond::new(10_000);
    scenario.network.mtu = Bytes::new(65_535);
    assert_eq!(scenario.check(), Ok(()));
    scenario.hosts[1].nic.tx_ring = 1 << 20;
    assert_eq!(scenario.check().unwrap_err().key, "host.1.nic.tx_ring");
    let mut scenario = plain();
    scenario.duration = Nanos::from_ns(crate::agenda::NEVER - 1);
    assert_eq!(scenario.check().unwrap_err().key, "duration");
}

#[test]
fn oversized_run_is_refused_with_estimate() {
    let mut scenario = plain();
    scenario.hosts[0].nic.rx_ring = 1 << 20;
    scenario.hosts[0].nic.queues = 1_000;
    assert!(scenario.check().unwrap_err().to_string().starts_with("memory in bytes is 5.0e10"));
}

#[track_caller]
fn check(key: &str, spoil: fn(&mut Scenario)) {
    let mut scenario = plain();
    spoil(&mut scenario);
    assert_eq!(scenario.check().unwrap_err().key, key);
}

fn plain() -> Scenario {
    Scenario {
        seed: 1,
        warmup: Nanos::ZERO,
        duration: Nanos::from_s(1),
        hosts: vec![Host::default(), Host::default()],
        network: Network::default(),
        loads: vec![Load::new(0, 1, datagrams(64, 1e5))],
    }
}

fn datagrams(size: u64, rate_pps: f64) -> Traffic {
    let size = Bytes::new(size);
    Traffic::Datagrams { size, rate_pps, spacing: Spacing::Even, group: 1, receive_batch: 1 }
}
