//! How fast the simulator is: packets per second of CPU time, by scenario.
//!
//! `cargo run --release -p latput-sim --example speed [SCENARIO] [PACKETS]`; run under
//! `valgrind --tool=callgrind` for instructions per packet, which need no quiet machine.
#![allow(clippy::print_stdout, clippy::disallowed_methods, reason = "a program that measures time")]

#[path = "../tests/common/scenarios.rs"]
mod scenarios;

use latput_sim::outcome::QueueOutcome;
use latput_sim::scenario::{
    ArrivalProcess, GapDistribution, Load, Scenario, TrafficKind, Transport,
};
use latput_units::{BitsPerSecond, Bytes, Nanos};
use scenarios::{datagrams, free, hold_off, modern, requests, run};

const NAMES: [&str; 13] = [
    "udp",
    "udp-batched",
    "udp-poisson",
    "rr",
    "rr-1",
    "tcp",
    "tcp-tso",
    "tcp-10",
    "tcp-1000",
    "tcp-10000",
    "peer-bulk",
    "peer-rr",
    "peer-both",
];

pub(crate) fn main() {
    // `cargo bench` adds `--bench`.
    let mut arguments = std::env::args().skip(1).filter(|argument| !argument.starts_with("--"));
    let wanted = arguments.next().unwrap_or_else(|| String::from("all"));
    let packets: f64 =
        arguments.next().map_or(3e6, |text| text.parse().expect("a number of packets"));
    for name in NAMES.into_iter().filter(|name| wanted == "all" || wanted == *name) {
        let scenario = build_scenario(name, packets);
        let began = cpu_seconds();
        let outcome = run(&scenario);
        let seconds = cpu_seconds() - began;
        let seen: u64 = match name {
            // As the peer counts: packets that carry data.
            "peer-bulk" => outcome.loads[0].received_bytes / 1_448,
            "peer-both" => outcome.loads[0].received_bytes / 1_448 + 2 * outcome.loads[1].received,
            // Each packet once, where it ended: received, or dropped.
            _ => {
                let ended = |nic: QueueOutcome| nic.rx_packets + nic.rx_dropped + nic.tx_dropped;
                let of_hosts: u64 = outcome.hosts.iter().map(|host| ended(host.nic_totals())).sum();
                of_hosts + outcome.switch_dropped
            }
        };
        println!(
            "{name:12} {:8.2} Mpackets/s  {:5.1} events/packet  {:6.2} Mevents/s  {seen} packets",
            seen as f64 / seconds / 1e6,
            outcome.events as f64 / seen as f64,
            outcome.events as f64 / seconds / 1e6,
        );
    }
}

/// CPU time of this process, which other work on the machine does not stretch.
fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let on_cpu_ns = text.split(' ').next().and_then(|field| field.parse::<f64>().ok());
    on_cpu_ns.expect("the kernel counts the CPU time of processes") / 1e9
}

fn build_scenario(name: &str, packets: f64) -> Scenario {
    let stream = |connections| {
        Load::new(0, 1, TrafficKind::Stream { message: Bytes::new(32_768), connections })
    };
    let asked = || {
        let mut load = requests(Transport::Udp, 0);
        let (rate_hz, spacing) = (1e5, GapDistribution::Even);
        load.form.arrivals = Some(ArrivalProcess { rate_hz, spacing });
        load
    };
    let (loads, expected_pps) = match name {
        "udp" => (vec![datagrams(5e5, GapDistribution::Even)], 5e5),
        // As latput's own engine sends and receives at high rates.
        "udp-batched" => {
            let (size, spacing) = (Bytes::new(64), GapDistribution::Even);
            let traffic = TrafficKind::Datagrams {
                size,
                rate_pps: 1e6,
                spacing,
                group: 32,
                receive_batch: 32,
            };
            (vec![Load::new(0, 1, traffic)], 1e6)
        }
        // As `xtask/src/sim_peers/ns3.cc` has it: 128 KiB windows; 100 000 requests a second.
        "peer-bulk" => (vec![stream(1)], 8.1e5),
        "peer-rr" => (vec![asked()], 2e5),
        "peer-both" => (vec![stream(1), asked()], 9e5),
        "udp-poisson" => (vec![datagrams(5e5, GapDistribution::Poisson)], 5e5),
        "rr" => (vec![requests(Transport::Tcp { nodelay: true }, 16)], 4e5),
        "rr-1" => (vec![requests(Transport::Tcp { nodelay: true }, 0)], 1e5),
        "tcp" | "tcp-tso" => (vec![stream(1)], 6e5),
        "tcp-10" => (vec![stream(10)], 6e5),
        "tcp-1000" => (vec![stream(1_000)], 6e5),
        _ => (vec![stream(10_000)], 6e5),
    };
    let mut scenario = free(loads);
    scenario.warmup = Nanos::ZERO;
    scenario.duration = Nanos::from_secs_f64(packets / expected_pps);
    scenario.network.rate = BitsPerSecond::new(10_000_000_000);
    for host in &mut scenario.hosts {
        host.machine = modern();
        host.nic.coalescing = hold_off(if name.starts_with("udp") { 125 } else { 20 });
        host.stack.delivery_batch = 8;
        host.stack.gro = name == "tcp-tso";
        host.stack.tso = name == "tcp-tso";
        if name.starts_with("peer") {
            host.stack.receive_buffer = Bytes::new(131_072);
            host.stack.send_buffer = Bytes::new(131_072);
        }
    }
    scenario
}
