//! The slides on receive delay and MTU (`coalescing_mtu.csv`): each claim that is an order or an onset, by its
//! id, on simulated runs. An onset must be met within a factor of two.
//!
//! The costs are the slides' own (T090 to T092: 1 ns a byte, 4 us a packet, 14 us an interrupt), the driver is
//! one before NAPI (T016), and one window stands for all TCP runs: what buffers the hosts had is not said.

use latput_sim::machine::{Costs, Driver, Machine, Nic, Stack};
use latput_sim::scenario::{Host, Load, Network, Scenario, Spacing, Traffic, Transport};
use latput_sim::vector::{Coalescing, Delay};
use latput_trial::observation::Role;
use latput_units::{BitsPerSecond, Bytes, Nanos};

/// One delay unit of the e1000 registers (T033).
const UNIT_NS: u64 = 1_024;
/// What a sender may have in flight.
const WINDOW: Bytes = Bytes::new(22_000);
const DELAYS: [u64; 11] = [10, 20, 40, 80, 160, 320, 480, 640, 1_000, 2_000, 4_000];
const GIGABIT: BitsPerSecond = BitsPerSecond::new(1_000_000_000);

/// What one run showed.
#[derive(Clone, Copy, Debug)]
struct Seen {
    goodput_mbps: f64,
    busy_percent: f64,
    busy_us_per_kb: f64,
    packets_per_interrupt: f64,
}

#[test]
fn udp_reaches_its_most_by_160_and_no_delay_harms_it() {
    let seen = DELAYS.map(|delay| udp(1_500, delay));
    let most = seen.iter().map(|it| it.goodput_mbps).fold(0.0, f64::max);
    assert!(seen[5].goodput_mbps > 0.99 * most, "T058, within a factor of two: {seen:?}");
    let falls = seen.windows(2).any(|it| it[1].goodput_mbps < 0.99 * it[0].goodput_mbps);
    assert!(!falls, "T060: {seen:?}");
    check_cpu_never_rises("T059, T106", &seen[..10]);
}

#[test]
fn larger_frames_save_more_than_longer_delays() {
    let small = [udp(1_500, 160), udp(1_500, 640)];
    let large = [udp(6_000, 160), udp(6_000, 640)];
    let by_mtu = small[0].busy_us_per_kb - large[0].busy_us_per_kb;
    let by_delay = small[0].busy_us_per_kb - small[1].busy_us_per_kb;
    assert!(by_mtu > by_delay, "T061, T088: {small:?} {large:?}");
    for (small, large) in small.iter().zip(&large) {
        let no_harm =
            large.goodput_mbps > small.goodput_mbps && large.busy_percent < small.busy_percent;
        assert!(no_harm, "T105: {small:?} {large:?}");
    }
}

#[test]
fn ten_tcp_senders_keep_their_rate_six_times_as_long_as_three() {
    let (ten, three) =
        (DELAYS.map(|delay| tcp(10, 1_500, delay)), DELAYS.map(|delay| tcp(3, 1_500, delay)));
    check_onset("T078", onset(&ten), 2_000);
    check_onset("T077", onset(&three), 320);
    assert!(onset(&three) < onset(&ten), "T076: {three:?} {ten:?}");
    let most = three.iter().map(|it| it.goodput_mbps).fold(0.0, f64::max);
    assert!(three[6].goodput_mbps > 0.85 * most, "T080, 480 is usable: {three:?}");
    assert!(
        ten[7].goodput_mbps > 0.97 * ten[5].goodput_mbps,
        "T068, 640 is near the most: {ten:?}"
    );
    check_cpu_never_rises("T106", &ten);
    check_cpu_never_rises("T106", &three);
}

#[test]
fn requests_lose_early_and_their_idle_cpu_is_no_merit() {
    let seen = DELAYS.map(nfs);
    let best =
        (0..DELAYS.len()).max_by(|a, b| seen[*a].goodput_mbps.total_cmp(&seen[*b].goodput_mbps));
    assert!(DELAYS[best.unwrap()] <= 80, "T070, T071, within a factor of two: {seen:?}");
    check_onset("T072", onset(&seen), 80);
    assert!(seen[7].busy_percent < seen[2].busy_percent, "T073: {seen:?}");
    // Sixteen times the delay is far from sixteen times the packets.
    let ratio = seen[7].packets_per_interrupt / seen[2].packets_per_interrupt;
    assert!(ratio < 8.0, "T069: {seen:?}");
}

/// The first delay at which a twentieth of the best rate so far is lost.
fn onset(seen: &[Seen]) -> u64 {
    let mut most: f64 = 0.0;
    for (delay, it) in DELAYS.iter().zip(seen) {
        most = most.max(it.goodput_mbps);
        if it.goodput_mbps < 0.95 * most {
            return *delay;
        }
    }
    u64::MAX
}

#[track_caller]
fn check_onset(claim: &str, seen: u64, published: u64) {
    assert!(
        (published / 2..=2 * published).contains(&seen),
        "{claim}: {seen}, not near {published}"
    );
}

#[track_caller]
fn check_cpu_never_rises(claim: &str, seen: &[Seen]) {
    let rises = seen.windows(2).any(|it| it[1].busy_percent > it[0].busy_percent + 1.0);
    assert!(!rises, "{claim}: {seen:?}");
}

fn udp(mtu: u64, delay: u64) -> Seen {
    let size = Bytes::new(mtu - 28);
    let rate_pps = 0.98e9 / 8.0 / (mtu + 38) as f64 / 10.0;
    let spacing = Spacing::Poisson;
    let traffic = Traffic::Datagrams { size, rate_pps, spacing, group: 1, receive_batch: 1 };
    run(10, mtu, delay, &traffic, false)
}

fn tcp(senders: usize, mtu: u64, delay: u64) -> Seen {
    let traffic = Traffic::Stream { message: Bytes::new(16_000), connections: 1 };
    run(senders, mtu, delay, &traffic, false)
}

/// Three readers of 8 KB, each with its server and a disk that is read ahead.
fn nfs(delay: u64) -> Seen {
    let traffic = Traffic::RequestResponse {
        transport: Transport::Tcp { nodelay: true },
        request: Bytes::new(150),
        response: Bytes::new(8_192),
        burst: 0,
        connections: 1,
        think: Nanos::from_us(300),
    };
    run(3, 1_500, delay, &traffic, true)
}

/// `others` send to the sink, or it asks them.
fn run(others: usize, mtu: u64, delay: u64, traffic: &Traffic, asks: bool) -> Seen {
    let mut hosts = vec![sink(delay)];
    hosts.extend((0..others).map(|_| sender()));
    let load = |other| {
        let (from, to) = if asks { (0, other) } else { (other, 0) };
        Load::new(from, to, *traffic)
    };
    let scenario = Scenario {
        seed: 1,
        warmup: Nanos::from_ms(60),
        duration: Nanos::from_ms(120),
        hosts,
        network: Network {
            rate: GIGABIT,
            latency: Nanos::from_us(20),
            latency_jitter_ratio: 0.1,
            mtu: Bytes::new(mtu),
            switch: Some(Bytes::new(4_000_000)),
        },
        loads: (1..=others).map(load).collect(),
    };
    let outcome = latput_sim::run(&scenario).unwrap();
    let each = if asks { 8_192 } else { mtu - 28 };
    let bytes: u64 = outcome
        .loads
        .iter()
        .map(|load| match traffic {
            Traffic::Stream { .. } => load.received_bytes,
            _ => load.received * each,
        })
        .sum();
    let (cpu, nic) = (outcome.hosts[0].cpu(), outcome.hosts[0].nic());
    let busy = (cpu.user + cpu.system + cpu.irq + cpu.softirq).as_secs_f64();
    let wall = busy + cpu.idle.as_secs_f64();
    let per_second = outcome.per_second(bytes);
    Seen {
        goodput_mbps: per_second * 8e-6,
        busy_percent: 100.0 * busy / wall,
        busy_us_per_kb: 1e6 * busy / wall / (per_second / 1_000.0),
        packets_per_interrupt: nic.rx_packets as f64 / nic.interrupts.max(1) as f64,
    }
}

fn sink(delay: u64) -> Host {
    let rx = Delay { delay: Nanos::from_ns(delay * UNIT_NS), ..Delay::default() };
    // T034, T035: transmit interrupts are delayed until others come.
    let tx = Delay { delay: Nanos::from_ns(65_000 * UNIT_NS), ..Delay::default() };
    let costs = Costs {
        interrupt: Nanos::from_us(14),
        rx_packet: Nanos::from_us(4),
        copy_per_kib: Nanos::from_ns(1_024),
        jitter_ratio: 0.2,
        ..Costs::default()
    };
    Host {
        machine: Machine { costs, ..Machine::default() },
        nic: Nic {
            driver: Driver::Interrupt,
            coalescing: Coalescing { rx, tx, ..Coalescing::default() },
            ..Nic::default()
        },
        stack: Stack { receive_buffer: WINDOW, ..Stack::default() },
        ..Host::default()
    }
}

fn sender() -> Host {
    Host { role: Role::Generator, ..Host::default() }
}
