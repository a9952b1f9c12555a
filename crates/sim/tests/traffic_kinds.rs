//! Every kind of traffic that a plan can ask for, on hosts where everything is free, against what its
//! definition says.
#![allow(clippy::unwrap_used, reason = "a test")]

use latput_sim::SystemProfile;
use latput_sim::machine::AdaptiveModeration;
use latput_sim::outcome::SimulationOutcome;
use latput_sim::profile::{HostProfile, NetworkProfile};
use latput_sim::scenario::Scenario;
use latput_sim::vector::Throttle;
use latput_trial::Workload;
use latput_trial::workload::from_fields;
use latput_units::{BitsPerSecond, Bytes, Nanos};

/// One way, much longer than any frame takes.
const LATENCY: Nanos = Nanos::from_us(50);
const SECONDS: f64 = 0.2;

#[test]
fn connection_per_transaction_takes_two_trips() {
    let seen = run("kind=tcp_crr connections=4", |_| {});
    near(rate(&seen), 4.0 / (4.0 * LATENCY.as_secs_f64()), 0.02);
    // Three segments open, three close, two carry data; acknowledgements may come beside them.
    let packets: u64 = seen.hosts.iter().map(|host| host.nic_totals().tx_packets).sum();
    let each = packets as f64 / seen.loads[0].received as f64;
    assert!((8.0..10.1).contains(&each), "{each} packets per transaction");
}

#[test]
fn bulk_flows_where_its_name_says() {
    let line = 1e10 * 1_448.0 / 1_538.0;
    for (kind, expected) in [("tcp_stream", line), ("tcp_maerts", line), ("tcp_bidir", 2.0 * line)]
    {
        let seen = run(&format!("kind={kind} connections=2"), |_| {});
        let goodput_bps = 8.0 * seen.per_second(seen.loads[0].received_bytes);
        // Acknowledgements of the other way wait in the same queues and take their part of the line.
        near(goodput_bps, expected, if kind == "tcp_bidir" { 0.15 } else { 0.05 });
    }
    let towards = |kind: &str| {
        let seen = run(&format!("kind={kind}"), |_| {});
        seen.hosts[1].nic_totals().rx_bytes > seen.hosts[1].nic_totals().tx_bytes
    };
    assert!(towards("tcp_stream") && !towards("tcp_maerts"));
}

#[test]
fn stream_with_a_rate_keeps_it() {
    for threads in [1, 3] {
        let fields = format!("kind=tcp_stream rate=100Mbps connections=3 threads={threads}");
        let seen = run(&fields, |_| {});
        near(8.0 * seen.per_second(seen.loads[0].received_bytes), 1e8, 0.02);
    }
}

#[test]
fn open_loop_latency_counts_from_due_time() {
    for kind in ["tcp_rr", "udp_rr"] {
        let fields = format!("kind={kind} rate_per_s=20000 connections=4 threads=2");
        let calm = run(&fields, |_| {});
        near(rate(&calm), 20_000.0, 0.05);
        let raw = calm.loads[0].raw_latency.as_ref().expect("an open loop has raw latencies");
        near(mean_us(raw), 100.0, 0.05);
        near(mean_us(&calm.loads[0].latency), 100.0, 0.05);
        // A client that needs 60 us per request falls behind 20000/s on one core: late, not slow.
        let busy = run(&fields, |profile| {
            let client = profile.generator.insert(profile.sut.clone());
            client.machine.costs.user = Nanos::from_us(60);
        });
        let raw = busy.loads[0].raw_latency.as_ref().expect("an open loop has raw latencies");
        assert!(mean_us(&busy.loads[0].latency) > 10.0 * mean_us(raw), "{kind}");
    }
}

#[test]
fn lost_datagram_requests_are_counted_and_replaced() {
    // 65 requests at once into a ring of 16: the others are lost, and asked again after the timeout.
    let seen = run("kind=udp_rr burst=64 timeout=1ms", |profile| {
        profile.sut.nic.rx_ring = 16;
        profile.sut.machine.costs.rx_packet = Nanos::from_us(5);
        profile.generator = Some(HostProfile::default());
    });
    let load = &seen.loads[0];
    assert!(load.lost > 100, "{} lost", load.lost);
    assert!(load.received > 1_000, "{} answered", load.received);
    let none = run("kind=udp_rr burst=64 timeout=1ms", |_| {});
    assert_eq!(none.loads[0].lost, 0);
    near(rate(&none), 65.0 / (2.0 * LATENCY.as_secs_f64()), 0.1);
}

#[test]
fn reads_wait_for_the_server_to_think() {
    for (distribution, clients) in [("fixed", 1), ("exponential", 4)] {
        let fields = format!(
            "name=reads kind=rpc_read clients={clients} outstanding=4 read_bytes=8192 think=400us \
             think_distribution={distribution}"
        );
        let seen = run(&fields, |_| {});
        let expected = f64::from(clients) * 4.0 / 510e-6;
        near(rate(&seen), expected, 0.06);
        near(mean_us(&seen.loads[0].latency), 510.0, 0.06);
        near(seen.per_second(seen.loads[0].received_bytes), 8_192.0 * expected, 0.06);
    }
}

#[test]
fn objects_are_fetched_again_and_again() {
    let seen = run("kind=fetch object_bytes=100000 connections=10 threads=2", |_| {});
    assert!(8.0 * seen.per_second(seen.loads[0].received_bytes) > 3e9);
    near(seen.loads[0].received_bytes as f64 / seen.loads[0].received as f64, 1e5, 0.05);
}

#[test]
fn echo_takes_a_round_trip() {
    let (scenario, seen) = both("kind=ping rate_hz=1000 payload_bytes=100", |_| {});
    let observation = seen.build_observation(&scenario, 0);
    assert_eq!(observation.probe, None, "nothing is beside it");
    near(observation.traffic.transactions.expect("echoes are counted") as f64, 200.0, 0.02);
    near(mean_us(&seen.loads[0].latency), 100.0, 0.02);
    let bytes = seen.hosts[0].nic_totals().tx_bytes / seen.hosts[0].nic_totals().tx_packets;
    assert_eq!(bytes, 142);
}

#[test]
fn unlimited_datagrams_fill_the_line() {
    for senders in [1, 3] {
        let seen =
            run(&format!("kind=udp_stream datagram_bytes=1400 connections={senders}"), |_| {});
        near(8.0 * seen.per_second(seen.loads[0].received_bytes), 1e10 * 1_400.0 / 1_466.0, 0.02);
        assert_eq!(
            seen.hosts[0].nic_totals().tx_dropped,
            0,
            "a full send buffer blocks, it does not drop"
        );
    }
}

#[test]
fn count_ends_the_window() {
    for fields in ["kind=tcp_rr", "kind=tcp_stream", "kind=udp_stream rate=50Mbps"] {
        let seen = run(&format!("{fields} count=500"), |_| {});
        let load = &seen.loads[0];
        let units = match fields {
            "kind=tcp_stream" => load.received_bytes / 32_768,
            _ => load.received,
        };
        assert!((500..=532).contains(&units), "{fields}: {units}");
        assert!(seen.window.as_secs_f64() < SECONDS, "{fields}: {}", seen.window);
        for core in seen.hosts.iter().flat_map(|host| &host.cores) {
            assert_eq!(core.total(), seen.window);
        }
    }
}

#[test]
fn generators_share_workload_beside_observer() {
    let rack = |profile: &mut SystemProfile| {
        profile.generators = 3;
        profile.observer = Some(HostProfile::default());
        profile.network.switch_buffer = Some(Bytes::new(1 << 20));
    };
    let (scenario, outcome) = both("kind=tcp_bidir connections=8 probe_hz=1000", rack);
    let from: Vec<_> = scenario.loads.iter().map(|load| (load.from, load.to)).collect();
    assert_eq!(from, [(0, 1), (1, 0), (2, 1), (1, 2), (3, 1), (1, 3), (4, 1)]);
    let seen = outcome.build_observation(&scenario, 0);
    assert_eq!(seen.hosts.len(), 5);
    assert!(seen.probe.unwrap().received > 0);
    let back = seen.traffic.reverse.unwrap().received_bytes;
    let sut = outcome.hosts[1].nic_totals();
    near(back as f64 / sut.tx_bytes as f64, 0.95, 0.05);
    near(seen.traffic.received_bytes as f64 / sut.rx_bytes as f64, 0.95, 0.05);
    let (scenario, outcome) = both("kind=ping rate_hz=1000", rack);
    assert_eq!((scenario.loads.len(), scenario.loads[0].from), (1, 4));
    assert!(outcome.loads[0].received > 0);
}

#[test]
fn adaptive_driver_moves_profile_moderation() {
    let interrupts = |adaptation, is_on, throttle| {
        let outcome = run("kind=tcp_stream", |profile| {
            let nic = &mut profile.sut.nic;
            nic.coalescing.throttle = throttle;
            (nic.adaptation, nic.adaptive_rx) = (Some(adaptation), is_on);
        });
        outcome.per_second(outcome.hosts[1].nic_totals().interrupts)
    };
    let interval = Nanos::from_us(500);
    for (adaptation, throttle) in [
        (AdaptiveModeration::E1000, Throttle::HoldOff { interval }),
        (AdaptiveModeration::Igb, Throttle::HoldOff { interval }),
        (AdaptiveModeration::Ixgbe, Throttle::HoldOff { interval }),
        (AdaptiveModeration::Dim, Throttle::None),
    ] {
        let [on, off] = [true, false].map(|is_on| interrupts(adaptation, is_on, throttle));
        assert!((on - off).abs() > 0.2 * off, "{adaptation:?}: {on} and {off}");
    }
}

#[test]
fn socket_options_and_bindings_reach_the_hosts() {
    let (scenario, _) = both(
        "name=bound kind=tcp_stream connections=3 threads=3 congestion=reno receive_buffer_bytes=65536 \
         busy_poll=20us sut_cpus=1-2 generator_cpus=0",
        |profile| profile.sut.machine.cores = 4,
    );
    for host in &scenario.hosts {
        assert_eq!(host.stack.congestion, latput_sim::machine::CongestionControl::Reno);
        assert_eq!(host.stack.receive_buffer, Bytes::new(65_536));
        assert_eq!(host.stack.busy_poll, Nanos::from_us(20));
    }
    let cores: Vec<_> = scenario.loads.iter().map(|load| (load.from_core, load.to_core)).collect();
    assert_eq!(cores, [(Some(0), Some(1)), (Some(0), Some(2)), (Some(0), Some(1))]);
}

#[test]
fn unsimulated_parts_are_refused_by_name() {
    check("kind=tcp_stream congestion=bbr", "congestion is bbr, must be `reno` or `cubic`");
    check("kind=tcp_rr sut_cpus=9", "load.0.to_core is 9");
    check("kind=udp_stream datagram_bytes=9000 rate=1Gbps", "load.0.size is 9000");
}

#[track_caller]
fn check(fields: &str, message: &str) {
    let error = profile().build_scenario(&workload(fields), 1, Nanos::from_ms(1)).unwrap_err();
    assert!(error.to_string().contains(message), "{error}");
}

fn run(fields: &str, change: impl Fn(&mut SystemProfile)) -> SimulationOutcome {
    both(fields, change).1
}

#[track_caller]
fn both(fields: &str, change: impl Fn(&mut SystemProfile)) -> (Scenario, SimulationOutcome) {
    let mut profile = profile();
    change(&mut profile);
    let duration = Nanos::from_secs_f64(SECONDS);
    let scenario = profile.build_scenario(&workload(fields), 1, duration).expect("sound");
    let outcome = latput_sim::run(&scenario).expect("sound");
    (scenario, outcome)
}

#[track_caller]
fn workload(fields: &str) -> Workload {
    let pairs = fields.split_whitespace().map(|pair| pair.split_once('=').expect("a pair"));
    from_fields(&pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect())
        .unwrap_or_else(|error| panic!("{fields}: {error}"))
}

fn profile() -> SystemProfile {
    SystemProfile {
        schema: 1,
        name: String::from("free"),
        source: String::from("nothing costs anything"),
        sut: HostProfile::default(),
        generator: None,
        generators: 1,
        observer: None,
        network: NetworkProfile {
            rate: BitsPerSecond::new(10_000_000_000),
            latency: LATENCY,
            latency_jitter_ratio: 0.0,
            mtu: Bytes::new(1_500),
            switch_buffer: None,
        },
    }
}

fn rate(outcome: &SimulationOutcome) -> f64 {
    outcome.per_second(outcome.loads[0].received)
}

fn mean_us(histogram: &latput_stats::Histogram) -> f64 {
    histogram.mean_ns().expect("something was recorded") / 1e3
}

#[track_caller]
fn near(seen: f64, expected: f64, tolerance: f64) {
    assert!((seen / expected - 1.0).abs() < tolerance, "{seen}, expected {expected}");
}
