//! The shipped profiles: every one is read, makes sound scenarios, and refuses what it does not know;
//! the one with published figures comes near them.

#[path = "common/scenarios.rs"]
mod scenarios;

use std::path::Path;

use latput_sim::Profile;
use latput_sim::scenario::{Load, Transport};
use latput_sim::vector::Throttle;
use latput_trial::{Metric, Probe, Traffic, Workload};
use latput_units::{BitsPerSecond, Bytes, Nanos};
use scenarios::{rate, requests, run};

#[test]
fn every_shipped_profile_runs_every_kind_of_workload() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/systems");
    let mut seen = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let profile: Profile =
            toml::from_str(&text).unwrap_or_else(|error| panic!("{path:?}: {error}"));
        assert_eq!(Some(profile.name.as_str()), path.file_stem().and_then(|stem| stem.to_str()));
        for workload in workloads() {
            let scenario = profile.scenario(&workload, 1, Nanos::from_ms(50)).unwrap();
            let outcome = run(&scenario);
            let observation = outcome.observation(&scenario, 0);
            let what = format!("{} {}", profile.name, workload.name);
            assert!(
                observation.traffic.received_bytes > 0
                    || observation.traffic.transactions > Some(0),
                "{what}"
            );
            assert_eq!(observation.hosts.len(), 2, "{what}");
            assert!(
                Metric::SutServiceDemandUs.value(&workload.traffic, &observation).is_some(),
                "{what}"
            );
        }
        seen += 1;
    }
    assert!(seen >= 2);
}

#[test]
fn a_profile_with_an_unknown_key_or_schema_is_refused_by_name() {
    let text = rx1620();
    for (from, to, named) in [
        ("wake_ns = 2200", "wake_us = 2200", "wake_us"),
        ("cores = 2", "cores = -2", "-2"),
        ("kind = \"gate\"", "kind = \"door\"", "door"),
        ("[network]", "[net]", "net"),
        ("wake_ns = 2200", "wake_ns = \"2200\"", "2200"),
    ] {
        let error = toml::from_str::<Profile>(&text.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(error.contains(named), "{to}: {error}");
    }
    for (from, to, named) in [
        ("schema = 1", "schema = 2", "schema is 2, must be 1"),
        ("wake_ns = 2200", "wake_ns = 2_000_000_000", "host.1.machine.costs.wake_ns is 2s"),
        ("irq_cores = [1]", "irq_cores = [2]", "host.1.nic.irq_cores is 2, must be 0 to 1"),
    ] {
        let profile: Profile = toml::from_str(&text.replacen(from, to, 1)).unwrap();
        let error =
            profile.scenario(&workloads()[0], 1, Nanos::from_ms(1)).unwrap_err().to_string();
        assert!(error.contains(named), "{error}");
    }
}

/// Published transactions per second: throttled or not, first burst, instances, rate.
const CELLS: [(bool, u32, u32, f64); 24] = [
    (true, 0, 1, 8_000.0),
    (true, 1, 1, 16_000.0),
    (true, 1, 4, 64_000.0),
    (true, 4, 1, 39_830.0),
    (true, 4, 4, 107_720.0),
    (true, 8, 1, 60_639.0),
    (true, 8, 4, 151_140.0),
    (true, 16, 1, 68_530.0),
    (true, 16, 2, 135_910.0),
    (true, 32, 1, 88_130.0),
    (true, 32, 4, 217_460.0),
    (true, 64, 4, 219_820.0),
    (false, 0, 1, 16_230.0),
    (false, 0, 2, 31_577.0),
    (false, 0, 4, 50_580.0),
    (false, 1, 1, 26_270.0),
    (false, 1, 4, 89_710.0),
    (false, 2, 1, 36_920.0),
    (false, 2, 4, 114_630.0),
    (false, 4, 1, 51_350.0),
    (false, 8, 1, 69_000.0),
    (false, 8, 4, 151_620.0),
    (false, 32, 4, 162_590.0),
    (false, 64, 1, 76_140.0),
];

#[test]
fn published_request_response_rates_are_met_without_a_fit_to_this_simulator() {
    let profile: Profile = toml::from_str(&rx1620()).unwrap();
    let mut errors: Vec<(f64, String)> = Vec::new();
    for (throttled, burst, instances, published) in CELLS {
        let predicted = predict(&profile, throttled, burst, instances);
        let error = predicted / published - 1.0;
        let line = format!(
            "throttled {throttled} b{burst} n{instances}: {published} {predicted:.0} {:+.1} %",
            100.0 * error
        );
        println!("{line}");
        errors.push((error.abs(), line));
    }
    errors.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (median, p90) = (errors[CELLS.len() / 2].0, errors[CELLS.len() * 9 / 10].0);
    println!("median {median:.3}, 90th percentile {p90:.3}");
    assert!(median < 0.04 && p90 < 0.12, "{errors:#?}");
}

fn predict(profile: &Profile, throttled: bool, burst: u32, instances: u32) -> f64 {
    let mut scenario = profile.scenario(&workloads()[0], 7, Nanos::from_ms(300)).unwrap();
    // Two generators behind a switch, as published; the latency is that of both links together.
    scenario.network.switch = Some(Bytes::new(10_000_000));
    scenario.network.latency = Nanos::from_ns(scenario.network.latency.as_ns() / 2);
    scenario.hosts.push(scenario.hosts[0].clone());
    if !throttled {
        scenario.hosts[1].nic.coalescing.throttle = Throttle::None;
    }
    scenario.loads = (0..instances)
        .map(|instance| Load {
            from: if instance % 2 == 0 { 0 } else { 2 },
            ..requests(Transport::Tcp { nodelay: true }, burst)
        })
        .collect();
    let outcome = run(&scenario);
    (0..instances as usize).map(|load| rate(&outcome, load)).sum()
}

fn rx1620() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/systems/rx1620-e1000.toml");
    std::fs::read_to_string(path).unwrap()
}

fn workloads() -> Vec<Workload> {
    let rr = Traffic::TcpRr {
        request_bytes: Bytes::new(1),
        response_bytes: Bytes::new(1),
        burst: 0,
        connections: 1,
        nodelay: true,
    };
    let stream = Traffic::TcpStream { message_bytes: Bytes::new(32_768), connections: 1 };
    let udp = Traffic::UdpStream {
        datagram_bytes: Bytes::new(1_470),
        rate: BitsPerSecond::new(100_000_000),
    };
    [("tcp_rr", rr), ("tcp_stream", stream), ("udp_stream", udp)]
        .map(|(name, traffic)| Workload {
            name: name.to_owned(),
            traffic,
            probe: (name == "tcp_stream").then_some(Probe { rate_hz: 1_000 }),
        })
        .into()
}
