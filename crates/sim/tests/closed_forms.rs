//! Whole simulations whose result is known in closed form (issue "belief", first rung).

#[path = "common/scenarios.rs"]
mod scenarios;

use latput_sim::machine::{CpuCosts, DriverMode, NetworkStack};
use latput_sim::scenario::{GapDistribution, Load, Network, TrafficKind, Transport};
use latput_sim::vector::Coalescing;
use latput_units::{BitsPerSecond, Bytes, Nanos};
use scenarios::{
    datagrams, free, goodput_bps, hold_off, near, rate, requests, run, rx_delay, stream,
};

const TCP: Transport = Transport::Tcp { nodelay: true };

#[test]
fn hold_off_sets_interrupt_rate_and_batch() {
    for pps in [8e3, 5e4, 2e5] {
        let load = pps * 125e-6;
        let batch = load + f64::exp(-load);
        let wait_ns = pps * 125e-6 * 125e3 / 2.0 / batch;
        check_moderation(hold_off(125), pps, pps / batch, wait_ns);
    }
}

#[test]
fn first_packet_delay_sets_rate_and_batch() {
    for pps in [8e3, 5e4, 2e5] {
        let load = pps * 125e-6;
        let wait_ns = 125e3 * (1.0 + load / 2.0) / (1.0 + load);
        check_moderation(rx_delay(125), pps, pps / (1.0 + load), wait_ns);
    }
}

#[test]
fn transaction_takes_longer_of_hold_and_trip() {
    for (us, expected) in [(125, 8_000.0), (50, 20_000.0), (1, 23_810.0)] {
        check_requests(hold_off(us), expected);
    }
}

#[test]
fn transaction_waits_for_delay_at_both_ends() {
    // The round trip without moderation is 42 us.
    for us in [8, 32, 128] {
        check_requests(rx_delay(us), 1e6 / (42.0 + 2.0 * us as f64));
    }
}

#[test]
fn window_limited_stream_fills_its_window() {
    // 45 segments of 1448 bytes fit the 65536-byte window and take less time than the delay, which each
    // end adds to the round trip. The receiver reads all at once: after smaller reads the offered window
    // lags behind.
    let traffic = TrafficKind::Stream { message: Bytes::new(65_536), connections: 1 };
    for us in [700, 1_000, 2_000] {
        let mut scenario = free(vec![Load::new(0, 1, traffic)]);
        scenario.duration = Nanos::from_s(3);
        scenario.network.rate = BitsPerSecond::new(1_000_000_000);
        for host in &mut scenario.hosts {
            host.nic.coalescing = rx_delay(us);
            // A completion's interrupt would bring waiting packets along before their delay is over.
            host.nic.coalescing.tx.delay = Nanos::from_s(10);
            host.stack.receive_buffer = Bytes::new(65_536);
        }
        let round_trip = 2.0 * us as f64 * 1e-6 + 2.0 * 1e-6 + 12.3e-6 + 0.7e-6;
        let expected = 45.0 * 1_448.0 * 8.0 / round_trip;
        near(goodput_bps(&run(&scenario), 0), expected, 0.01, &format!("{us} us"));
    }
}

#[test]
fn unlimited_stream_fills_the_line() {
    let mut scenario = free(vec![stream()]);
    scenario.network.rate = BitsPerSecond::new(1_000_000_000);
    let expected = 1e9 * 1_448.0 / 1_538.0;
    near(goodput_bps(&run(&scenario), 0), expected, 0.001, "goodput");
}

#[test]
fn ring_overflows_beyond_its_descriptors() {
    // 256 descriptors at 1 Mpps last for 256 us; a first-packet delay of T collects T x 1 Mpps + 1.
    for (us, lost_ratio) in [(250, 0.0), (512, 1.0 - 256.0 / 513.0)] {
        let mut scenario = free(vec![datagrams(1e6, GapDistribution::Even)]);
        scenario.duration = Nanos::from_ms(200);
        scenario.hosts[1].nic.coalescing = rx_delay(us);
        scenario.hosts[1].stack.receive_buffer = Bytes::new(10_000_000);
        let outcome = run(&scenario);
        let nic = outcome.hosts[1].nic_totals();
        let arrived = nic.rx_packets + nic.rx_dropped;
        let seen = nic.rx_dropped as f64 / arrived as f64;
        assert!((seen - lost_ratio).abs() < 0.005, "{us} us: lost {seen}, expected {lost_ratio}");
    }
}

#[test]
fn single_queue_waits_as_m_d_1() {
    // Each packet needs 10 us in softirq and nothing else; interrupts are free.
    for utilisation in [0.3, 0.6, 0.8] {
        let mut scenario = free(vec![datagrams(utilisation * 1e5, GapDistribution::Poisson)]);
        scenario.duration = Nanos::from_secs_f64(20.0 / utilisation);
        // The receiving process has a core of its own, or packets would wait for the softirq to end.
        scenario.loads[0].to_core = Some(1);
        scenario.hosts[1].machine.cores = 2;
        scenario.hosts[1].machine.costs =
            CpuCosts { rx_packet: Nanos::from_us(10), ..CpuCosts::default() };
        let outcome = run(&scenario);
        let base_ns = 1_000.0 + 10_000.0 + 9.0;
        let wait_ns = outcome.loads[0].latency.mean_ns().unwrap() - base_ns;
        let expected = 10_000.0 * utilisation / (2.0 * (1.0 - utilisation));

        near(wait_ns, expected, 0.01, &format!("wait at {utilisation}"));
        let busy =
            outcome.hosts[1].cpu_totals().softirq.as_secs_f64() / scenario.duration.as_secs_f64();
        near(busy, utilisation, 0.01, "utilisation");
    }
}

#[test]
fn device_polling_waits_half_a_tick() {
    let mut scenario = free(vec![datagrams(5e4, GapDistribution::Poisson)]);
    scenario.warmup = Nanos::from_ms(500);
    scenario.hosts[1].nic.driver = DriverMode::Polling;
    let outcome = run(&scenario);
    let wait_ns = outcome.loads[0].latency.mean_ns().unwrap() - 1_009.0;
    near(wait_ns, 500_000.0, 0.01, "wait");

    scenario.loads = vec![datagrams(5e5, GapDistribution::Even)];
    scenario.hosts[1].stack.receive_buffer = Bytes::new(10_000_000);
    near(rate(&run(&scenario), 0), 150_000.0, 0.01, "cap");
}

#[test]
fn overload_without_napi_starves_the_process() {
    // 2 us per interrupt and 1 us per packet come first: what is left of each second, at 3 us each.
    for (kpps, expected) in [(100.0, 100_000.0), (200.0, 133_333.0), (300.0, 33_333.0)] {
        let mut scenario = livelock(kpps * 1e3);
        scenario.hosts[1].nic.coalescing = Coalescing::default();
        near(rate(&run(&scenario), 0), expected, 0.001, &format!("{kpps} kpps"));
    }
    let outcome = run(&livelock(4e5));
    assert!(rate(&outcome, 0) < 500.0, "livelock: {}", rate(&outcome, 0));
}

fn livelock(pps: f64) -> latput_sim::Scenario {
    let mut scenario = free(vec![datagrams(pps, GapDistribution::Even)]);
    scenario.warmup = Nanos::from_ms(100);
    let host = &mut scenario.hosts[1];
    host.nic.driver = DriverMode::Interrupt;
    host.nic.rx_ring = 4_096;
    host.machine.costs = CpuCosts {
        interrupt: Nanos::from_us(2),
        backlog_packet: Nanos::from_us(1),
        syscall: Nanos::from_us(3),
        ..CpuCosts::default()
    };
    scenario
}

#[track_caller]
fn check_moderation(coalescing: Coalescing, pps: f64, interrupts_hz: f64, wait_ns: f64) {
    let mut scenario = free(vec![datagrams(pps, GapDistribution::Poisson)]);
    scenario.duration = Nanos::from_secs_f64(1e6 / pps);
    scenario.hosts[1].nic.coalescing = coalescing;
    scenario.hosts[1].stack =
        NetworkStack { receive_buffer: Bytes::new(10_000_000), ..NetworkStack::default() };
    let outcome = run(&scenario);
    let nic = outcome.hosts[1].nic_totals();
    near(outcome.per_second(nic.interrupts), interrupts_hz, 0.01, "interrupts");
    near(nic.rx_packets as f64 / nic.interrupts as f64, pps / interrupts_hz, 0.01, "batch");
    // 1 us of latency and 9.36 ns of wire for 130 bytes.
    let waited = outcome.loads[0].latency.mean_ns().expect("packets arrived") - 1_009.4;
    near(waited, wait_ns, 0.01, "wait");
}

#[track_caller]
fn check_requests(coalescing: Coalescing, expected: f64) {
    for transport in [TCP, Transport::Udp] {
        let mut scenario = free(vec![requests(transport, 0)]);
        scenario.network = Network { latency: Nanos::from_us(20), ..scenario.network };
        for host in &mut scenario.hosts {
            host.nic.coalescing = coalescing;
            // Completions interrupt on their own account otherwise, and two hosts can lock in phase.
            host.nic.coalescing.tx.delay = Nanos::from_s(10);
            host.machine.costs.syscall = Nanos::from_ns(500);
        }
        near(rate(&run(&scenario), 0), expected, 0.002, &format!("{transport:?}"));
    }
}
