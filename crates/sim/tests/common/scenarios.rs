//! Scenarios that several test files start from.
#![allow(dead_code, reason = "each test file uses some of these")]
#![allow(unreachable_pub, reason = "shared between test crates")]

use latput_sim::machine::{CpuCosts, Machine};
use latput_sim::outcome::SimulationOutcome;
use latput_sim::scenario::{
    GapDistribution, Host, Load, Network, Scenario, TrafficKind, Transport,
};
use latput_sim::vector::{Coalescing, InterruptDelay, Throttle};
use latput_units::{BitsPerSecond, Bytes, Nanos};

pub const SIZE: Bytes = Bytes::new(64);

#[track_caller]
pub fn run(scenario: &Scenario) -> SimulationOutcome {
    latput_sim::run(scenario).expect("the scenario is sound")
}

/// A cable that is never the bottleneck, hosts on which everything is free.
pub fn free(loads: Vec<Load>) -> Scenario {
    Scenario {
        seed: 1,
        warmup: Nanos::from_ms(20),
        duration: Nanos::from_s(1),
        hosts: vec![Host::default(), Host::default()],
        network: Network { rate: BitsPerSecond::new(100_000_000_000), ..Network::default() },
        loads,
    }
}

pub fn datagrams(rate_pps: f64, spacing: GapDistribution) -> Load {
    let (group, receive_batch) = (1, 1);
    Load::new(0, 1, TrafficKind::Datagrams { size: SIZE, rate_pps, spacing, group, receive_batch })
}

pub fn requests(transport: Transport, burst: u32) -> Load {
    let traffic = TrafficKind::RequestResponse {
        transport,
        request: Bytes::new(1),
        response: Bytes::new(1),
        burst,
        connections: 1,
        think: Nanos::ZERO,
    };
    Load::new(0, 1, traffic)
}

pub fn stream() -> Load {
    Load::new(0, 1, TrafficKind::Stream { message: Bytes::new(32_768), connections: 1 })
}

pub fn hold_off(us: u64) -> Coalescing {
    let throttle = Throttle::HoldOff { interval: Nanos::from_us(us) };
    Coalescing { throttle, ..Coalescing::default() }
}

pub fn rx_delay(us: u64) -> Coalescing {
    let rx = InterruptDelay { delay: Nanos::from_us(us), ..InterruptDelay::default() };
    Coalescing { rx, ..Coalescing::default() }
}

/// Costs of a present-day server, roughly.
pub fn modern() -> Machine {
    Machine {
        cores: 2,
        costs: CpuCosts {
            interrupt: Nanos::from_ns(800),
            poll: Nanos::from_ns(200),
            rx_packet: Nanos::from_ns(350),
            tx_completion: Nanos::from_ns(60),
            tx_packet: Nanos::from_ns(400),
            ack: Nanos::from_ns(300),
            syscall: Nanos::from_ns(300),
            user: Nanos::from_ns(100),
            copy_per_kib: Nanos::from_ns(60),
            wake: Nanos::from_ns(700),
            ..CpuCosts::default()
        },
        ..Machine::default()
    }
}

pub fn rate(outcome: &SimulationOutcome, load: usize) -> f64 {
    outcome.per_second(outcome.loads[load].received)
}

pub fn goodput_bps(outcome: &SimulationOutcome, load: usize) -> f64 {
    8.0 * outcome.per_second(outcome.loads[load].received_bytes)
}

#[track_caller]
pub fn near(seen: f64, expected: f64, tolerance: f64, what: &str) {
    assert!((seen / expected - 1.0).abs() < tolerance, "{what}: {seen}, expected {expected}");
}
