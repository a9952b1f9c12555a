//! The shipped profiles: every one is read, makes sound scenarios, and refuses what it does not know;
//! the one with published figures comes near them.

#[path = "common/scenarios.rs"]
mod scenarios;

use std::path::Path;

use latput_sim::SystemProfile;
use latput_sim::scenario::{Host, Load, Scenario, Transport};
use latput_sim::vector::Throttle;
use latput_trial::{Metric, Probe, Traffic, Workload};
use latput_units::{BitsPerSecond, Bytes, Nanos};
use scenarios::{rate, requests, run};

#[test]
fn every_profile_runs_every_workload() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/systems");
    let mut seen = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let profile: SystemProfile =
            toml::from_str(&text).unwrap_or_else(|error| panic!("{path:?}: {error}"));
        assert_eq!(Some(profile.name.as_str()), path.file_stem().and_then(|stem| stem.to_str()));
        for workload in workloads() {
            let scenario = profile.build_scenario(&workload, 1, Nanos::from_ms(50)).unwrap();
            let outcome = run(&scenario);
            let observation = outcome.build_observation(&scenario, 0);
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
fn unknown_profile_key_is_refused_by_name() {
    let text = rx1620();
    for (from, to, named) in [
        ("wake_ns = ", "wake_us = ", "wake_us"),
        ("cores = 2", "cores = -2", "-2"),
        ("kind = \"gate\"", "kind = \"door\"", "door"),
        ("[network]", "[net]", "net"),
        ("wake_ns = ", "wake_ns = \"2487\" # ", "2487"),
    ] {
        let error =
            toml::from_str::<SystemProfile>(&text.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(error.contains(named), "{to}: {error}");
    }
    for (from, to, named) in [
        ("schema = 1", "schema = 2", "schema is 2, must be 1"),
        ("wake_ns = ", "wake_ns = 2_000_000_000 # ", "host.1.machine.costs.wake_ns is 2s"),
        ("irq_cores = [1]", "irq_cores = [2]", "host.1.nic.irq_cores is 2, must be 0 to 1"),
    ] {
        let profile: SystemProfile = toml::from_str(&text.replacen(from, to, 1)).unwrap();
        let error =
            profile.build_scenario(&workloads()[0], 1, Nanos::from_ms(1)).unwrap_err().to_string();
        assert!(error.contains(named), "{error}");
    }
}

/// One published cell: moderated or not, first burst, instances, transactions per second.
type Cell = (bool, u32, u32, f64);

/// Tables A04 and A05: an interrupt throttle of 8000/s and none.
const RX1620: [Cell; 24] = [
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

/// Tables A10 and A11: 20 us or 5 frames, and an interrupt for every frame.
const BL25P: [Cell; 26] = [
    (true, 0, 1, 11_720.0),
    (true, 0, 2, 23_450.0),
    (true, 0, 8, 80_860.0),
    (true, 1, 1, 22_120.0),
    (true, 1, 8, 150_940.0),
    (true, 2, 2, 62_520.0),
    (true, 2, 4, 124_820.0),
    (true, 4, 1, 51_260.0),
    (true, 4, 4, 198_480.0),
    (true, 8, 1, 81_420.0),
    (true, 8, 4, 279_820.0),
    (true, 16, 1, 163_990.0),
    (true, 16, 2, 250_930.0),
    (false, 0, 1, 21_790.0),
    (false, 0, 4, 71_720.0),
    (false, 0, 8, 127_470.0),
    (false, 1, 2, 69_740.0),
    (false, 1, 8, 206_200.0),
    (false, 2, 1, 51_570.0),
    (false, 2, 4, 176_230.0),
    (false, 4, 2, 158_310.0),
    (false, 4, 4, 226_170.0),
    (false, 8, 1, 137_150.0),
    (false, 8, 2, 188_650.0),
    (false, 32, 1, 139_620.0),
    (false, 64, 2, 195_450.0),
];

#[test]
fn rx1620_rates_are_met_without_fit() {
    let errors = errors(&rx1620(), &RX1620, 2, |host| {
        host.nic.coalescing.throttle = Throttle::None;
    });
    assert!(errors.median < 0.04 && errors.p90 < 0.12, "{errors:#?}");
}

#[test]
fn bl25p_rates_are_met_without_fit() {
    let errors = errors(&profile_text("bl25p-tg3"), &BL25P, 4, |host| {
        host.nic.coalescing.rx.frames = 1;
    });
    assert!(errors.median < 0.09 && errors.p90 < 0.16, "{errors:#?}");
}

#[derive(Debug)]
#[expect(dead_code, reason = "printed when a test fails")]
struct Errors {
    median: f64,
    p90: f64,
    cells: Vec<String>,
}

/// Relative errors of all cells; `unmoderate` makes the second setting out of the first, on every host.
fn errors(text: &str, cells: &[Cell], generators: u32, unmoderate: fn(&mut Host)) -> Errors {
    let profile: SystemProfile = toml::from_str(text).expect("the shipped profile is sound");
    let mut absolute = Vec::new();
    let mut lines = Vec::new();
    for &(moderated, burst, instances, published) in cells {
        let mut scenario = pair(&profile, burst, instances, generators);
        if !moderated {
            scenario.hosts.iter_mut().for_each(unmoderate);
        }
        let outcome = run(&scenario);
        let predicted: f64 = (0..instances as usize).map(|load| rate(&outcome, load)).sum();
        let error = predicted / published - 1.0;
        absolute.push(error.abs());
        lines.push(format!(
            "moderated {moderated} burst {burst} x {instances}: {published} {predicted:.0} {:+.1}%",
            100.0 * error
        ));
    }
    absolute.sort_by(f64::total_cmp);
    Errors { median: absolute[cells.len() / 2], p90: absolute[cells.len() * 9 / 10], cells: lines }
}

/// The system under test with several generators behind a switch, as published; the latency is that of
/// both links together.
fn pair(profile: &SystemProfile, burst: u32, instances: u32, generators: u32) -> Scenario {
    let mut scenario = profile
        .build_scenario(&workloads()[0], 7, Nanos::from_ms(300))
        .expect("the shipped profile is sound");
    scenario.network.switch = Some(Bytes::new(10_000_000));
    scenario.network.latency = Nanos::from_ns(scenario.network.latency.as_ns() / 2);
    for _ in 1..generators {
        scenario.hosts.push(scenario.hosts[0].clone());
    }
    scenario.loads = (0..instances)
        .map(|instance| Load {
            from: [0, 2, 3, 4][(instance % generators) as usize],
            ..requests(Transport::Tcp { nodelay: true }, burst)
        })
        .collect();
    scenario
}

fn rx1620() -> String {
    profile_text("rx1620-e1000")
}

fn profile_text(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/systems");
    std::fs::read_to_string(folder.join(format!("{name}.toml"))).expect("the profile is shipped")
}

fn workloads() -> Vec<Workload> {
    let rr = Traffic::tcp_rr(0);
    let stream = Traffic::tcp_stream(Bytes::new(32_768), 1);
    let udp = Traffic::udp_stream(Bytes::new(1_470), BitsPerSecond::new(100_000_000));
    [("tcp_rr", rr), ("tcp_stream", stream), ("udp_stream", udp)]
        .map(|(name, traffic)| Workload {
            probe: (name == "tcp_stream").then_some(Probe { rate_hz: 1_000 }),
            ..Workload::plain(name, traffic)
        })
        .into()
}
