//! Invariants of a trace.

use latput_units::{Bytes, Nanos};

use super::*;
use crate::scenario::{Host, Load, Network, TrafficKind, Transport};
use crate::vector::{Coalescing, Throttle};

#[test]
fn trace_changes_nothing_in_the_outcome() {
    let traced = record_trace(&build_scenario()).expect("sound");
    let mut plain = Simulation::new(&build_scenario()).expect("sound");
    plain.advance(build_scenario().warmup);
    let plain = plain.advance(build_scenario().duration);
    assert_eq!(
        SimulationOutcome { events: 0, ..traced.outcome },
        SimulationOutcome { events: 0, ..plain }
    );
}

#[test]
fn every_packet_is_captured_at_both_ends() {
    let trace = record_trace(&build_scenario()).expect("sound");
    let counted: u64 = trace
        .outcome
        .hosts
        .iter()
        .map(|host| host.nic_totals().rx_packets + host.nic_totals().tx_packets)
        .sum();
    assert!(counted > 100);
    assert_eq!(trace.packet_count() as u64, counted);
    let blocks = parse_block_kinds(&trace.to_pcapng());
    assert_eq!(blocks[0], 0x0a0d_0d0a);
    assert_eq!(blocks.iter().filter(|kind| **kind == 1).count(), 2);
    assert_eq!(blocks.iter().filter(|kind| **kind == 6).count() as u64, counted);
}

#[test]
fn timeline_has_arrow_per_waiting_packet() {
    let trace = record_trace(&build_scenario()).expect("sound");
    let text = trace.to_timeline();
    let count = |phase: &str| text.matches(&format!("\"ph\":\"{phase}\"")).count();
    assert!(count("s") > 50);
    assert!(count("f") <= count("s") && count("f") * 10 > count("s") * 9, "arrows end");
    assert!(text.contains("hardirq") && text.contains("softirq") && text.contains("client"));
    assert!(text.starts_with('{') && text.ends_with("]}\n") && !text.contains(",\n]"));
    assert_eq!(text.matches('{').count(), text.matches('}').count());
}

#[test]
fn long_run_is_cut_and_says_so() {
    let mut long = build_scenario();
    long.duration = Nanos::from_s(2);
    let trace = record_trace(&long).expect("sound");
    assert!(trace.is_cut());
    assert_eq!(trace.packet_count(), MOST_PACKETS);
}

/// The kinds of a file's blocks, each checked to have its length at both ends.
#[track_caller]
fn parse_block_kinds(mut file: &[u8]) -> Vec<u32> {
    let number = |at: usize, file: &[u8]| {
        u32::from_le_bytes(file[at..at + 4].try_into().expect("four bytes"))
    };
    let mut kinds = Vec::new();
    while !file.is_empty() {
        let length = number(4, file) as usize;
        assert_eq!(length % 4, 0);
        assert_eq!(number(length - 4, file) as usize, length);
        kinds.push(number(0, file));
        file = &file[length..];
    }
    kinds
}

fn build_scenario() -> Scenario {
    let traffic = TrafficKind::RequestResponse {
        transport: Transport::Tcp { nodelay: true },
        request: Bytes::new(1),
        response: Bytes::new(1),
        burst: 3,
        connections: 1,
        think: Nanos::ZERO,
    };
    let mut host = Host::default();
    let throttle = Throttle::HoldOff { interval: Nanos::from_us(20) };
    host.nic.coalescing = Coalescing { throttle, ..Coalescing::default() };
    host.machine.costs.interrupt = Nanos::from_us(1);
    host.machine.costs.rx_packet = Nanos::from_ns(500);
    host.machine.costs.syscall = Nanos::from_ns(300);
    Scenario {
        seed: 1,
        warmup: Nanos::from_ms(2),
        duration: Nanos::from_ms(2),
        hosts: vec![
            Host { name: String::from("generator"), ..host.clone() },
            Host { name: String::from("sut"), ..host },
        ],
        network: Network::default(),
        loads: vec![Load::new(0, 1, traffic)],
    }
}
