//! Made-up but plausible results of the built-in plan: five settings, four workloads, six blocks.

use std::collections::BTreeMap;

use latput_knobs::{Knob, Place, State, Value};
use latput_stats::Histogram;
use latput_trial::observation::{
    CpuObservation, CpuTime, DatagramObservation, HostObservation, InterfaceCounters,
    NapiObservation, ProbeObservation, Role, TrafficObservation,
};
use latput_trial::results::{HostFacts, LabelledSetting, Row};
use latput_trial::{Check, Observation, Probe, Results, Traffic, Workload};
use latput_units::{BitsPerSecond, Bytes, CpuId, Nanos, SeededRng};

const TIMEOUTS_US: [u64; 5] = [0, 20, 50, 125, 500];
const BLOCKS: u32 = 6;
const WINDOW_S: f64 = 2.0;

/// Figures of one trial of a workload under a setting; the rest follows from them.
struct TrialFigures {
    latency_us: f64,
    transactions_per_s: f64,
    goodput_bps: f64,
    probe_us: f64,
    /// Busy share of the CPUs of the system under test and of the generator.
    busy: [f64; 2],
}

/// The results of the built-in plan, the same on every call.
pub(crate) fn build_demo_results() -> Results {
    let settings: Vec<LabelledSetting> = TIMEOUTS_US.iter().map(|&us| build_setting(us)).collect();
    let workloads = build_workloads();
    let mut rows = Vec::new();
    for block in 0..BLOCKS {
        let mut order: Vec<(usize, usize)> = (0..settings.len())
            .flat_map(|setting| (0..workloads.len()).map(move |workload| (setting, workload)))
            .collect();
        let mut rng = SeededRng::from_seed_and_index(7, u64::from(block));
        rng.shuffle(&mut order);
        for (setting, workload) in order {
            let started_unix_ms = 1_763_750_000_000 + 2_500 * rows.len() as u64;
            let observation = simulate_observation(setting, &workloads[workload], block, &mut rng);
            rows.push(Row { block, setting, workload, started_unix_ms, observation });
        }
    }
    Results {
        name: "moderation trade-off".to_owned(),
        goal: Some("minimize latency_ns_p99 where throughput_bps >= 0.95 today".to_owned()),
        confidence: 0.99,
        half_width: 0.025,
        testbed: "lab".to_owned(),
        latput_version: "0.1.0".to_owned(),
        seed: 7,
        hosts: vec![
            build_host_facts("b", Role::Sut, "CPU 1"),
            build_host_facts("a", Role::Generator, "CPU 0"),
        ],
        settings,
        workloads,
        planned_trials: rows.len() as u64,
        rows,
        notes: vec!["stopped after 6 blocks: the time limit of 4 minutes was reached".to_owned()],
        confirmed_from: None,
        source: None,
        today: Vec::new(),
        findings: Vec::new(),
        beside: false,
    }
}

fn build_setting(us: u64) -> LabelledSetting {
    let mut knobs = BTreeMap::from([(Knob::GroFlushTimeout, Value::Time(Nanos::from_us(us)))]);
    knobs.insert(Knob::NapiDeferHardIrqs, Value::Count(if us == 0 { 0 } else { 100 }));
    LabelledSetting {
        label: format!("gro-flush-timeout={us}us"),
        by_role: BTreeMap::from([(Role::Sut, knobs.clone()), (Role::Generator, knobs)]),
    }
}

fn build_workloads() -> Vec<Workload> {
    let rr = Traffic::tcp_rr;
    let workload =
        |name: &str, traffic, probe| Workload { probe, ..Workload::plain(name, traffic) };
    vec![
        workload("tcp_rr", rr(0), None),
        workload("tcp_rr burst=16", rr(16), None),
        workload(
            "tcp_stream",
            Traffic::tcp_stream(Bytes::new(32_768), 1),
            Some(Probe { rate_hz: 1000 }),
        ),
        workload(
            "udp_stream",
            Traffic::udp_stream(Bytes::new(1470), BitsPerSecond::new(500_000_000)),
            None,
        ),
    ]
}

fn build_host_facts(host: &str, role: Role, cpus: &str) -> HostFacts {
    let facts = [
        ("kernel", "6.18.0-1-amd64"),
        ("driver", "veth"),
        ("cpu model", "Example CPU @ 2.60GHz"),
        ("cpus", cpus),
        ("governor", "performance"),
        ("boot-id", "4c8b9a70-0d52-4f3c-9a77-3b6a0a6f5f10"),
    ];
    HostFacts {
        host: host.to_owned(),
        role,
        interface: format!("latput-{host}"),
        facts: facts.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
    }
}

fn choose_figures(setting: usize, workload: &Workload) -> TrialFigures {
    let us = TIMEOUTS_US[setting] as f64;
    match workload.traffic {
        Traffic::TcpRr { burst: 0, .. } => {
            let latency_us = [78.0, 66.0, 84.0, 148.0, 520.0][setting];
            TrialFigures {
                latency_us,
                transactions_per_s: 1e6 / (latency_us * 1.03),
                goodput_bps: 0.0,
                probe_us: 0.0,
                busy: [0.62 - us.min(60.0) * 0.004, 0.66 - us.min(60.0) * 0.0035],
            }
        }
        Traffic::TcpRr { .. } => {
            let latency_us = [118.0, 104.0, 121.0, 190.0, 560.0][setting];
            TrialFigures {
                latency_us,
                transactions_per_s: 17e6 / (latency_us * 1.04),
                goodput_bps: 0.0,
                probe_us: 0.0,
                busy: [0.97 - us / 900.0, 0.98 - us / 1100.0],
            }
        }
        Traffic::TcpBulk { .. } => TrialFigures {
            latency_us: 0.0,
            transactions_per_s: 0.0,
            goodput_bps: [9.41e9, 9.62e9, 9.18e9, 7.3e9, 3.2e9][setting],
            probe_us: [74.0, 88.0, 127.0, 214.0, 640.0][setting],
            busy: [0.94 - us / 1400.0, 0.81 - us / 1200.0],
        },
        _ => TrialFigures {
            latency_us: 0.0,
            transactions_per_s: 0.0,
            goodput_bps: 500e6,
            probe_us: 0.0,
            busy: [0.44 - us.min(200.0) / 1500.0, 0.52],
        },
    }
}

fn simulate_observation(
    setting: usize,
    workload: &Workload,
    block: u32,
    rng: &mut SeededRng,
) -> Observation {
    let mut shape = choose_figures(setting, workload);
    // One run that something else disturbed, so that the report has an outlier to show.
    let is_disturbed = setting == 3 && block == 4 && workload.name == "tcp_rr";
    let wobble = if setting == 4 { 0.05 } else { 0.012 };
    let factor = 1.0 + wobble * sample_normal(rng) + if is_disturbed { 0.35 } else { 0.0 };
    shape.latency_us *= factor;
    shape.transactions_per_s /= factor;
    shape.goodput_bps /= 1.0 + wobble * 0.6 * sample_normal(rng).abs();
    let traffic = simulate_traffic(&shape, workload, TIMEOUTS_US[setting], rng);
    let probe = workload.probe.map(|_| {
        let rtt = sample_histogram(shape.probe_us * factor, 1998, rng);
        ProbeObservation { sent: 2000, received: 1998, rtt }
    });
    let packets = (traffic.received_bytes / 1448).max(traffic.transactions.unwrap_or(0));
    let state = |us: u64| {
        State(BTreeMap::from([
            ((Knob::GroFlushTimeout, Place::Device), Value::Time(Nanos::from_us(us))),
            ((Knob::NapiDeferHardIrqs, Place::Device), Value::Count(if us == 0 { 0 } else { 100 })),
            ((Knob::Threaded, Place::Device), Value::Switch(true)),
            ((Knob::Mtu, Place::Device), Value::Count(1500)),
        ]))
    };
    let mut hosts = vec![
        simulate_host(
            "b",
            Role::Sut,
            1,
            shape.busy[0] * (1.0 + 0.01 * sample_normal(rng)),
            packets,
        ),
        simulate_host(
            "a",
            Role::Generator,
            0,
            shape.busy[1] * (1.0 + 0.01 * sample_normal(rng)),
            packets,
        ),
    ];
    for host in &mut hosts {
        host.state = state(TIMEOUTS_US[setting]);
    }
    let bundled = workload.name == "tcp_rr burst=16" && setting == 4;
    let checks = vec![
        Check {
            name: "packets-per-transaction".to_owned(),
            passed: !bundled,
            detail: "a transaction sent 0.410 packets and received 0.410".to_owned(),
        },
        Check {
            name: "cpu-parts-add-up".to_owned(),
            passed: true,
            detail: "parts 3.99 s, machine 4.00 s".to_owned(),
        },
    ];
    Observation { traffic, probe, hosts, checks, ..Observation::default() }
}

fn simulate_traffic(
    shape: &TrialFigures,
    workload: &Workload,
    us: u64,
    rng: &mut SeededRng,
) -> TrafficObservation {
    let window = Nanos::from_secs_f64(WINDOW_S);
    let mut observed = TrafficObservation {
        sender_window: window,
        receiver_window: window,
        ..TrafficObservation::default()
    };
    let whole = |value: f64| Nanos::from_secs_f64(value / 1e9).as_ns();
    match workload.traffic {
        Traffic::TcpRr { .. } => {
            let transactions = whole(shape.transactions_per_s * WINDOW_S);
            observed.transactions = Some(transactions);
            observed.sent_bytes = transactions;
            observed.received_bytes = transactions;
            observed.latency = Some(sample_histogram(shape.latency_us, transactions, rng));
        }
        Traffic::TcpBulk { .. } => {
            observed.received_bytes = whole(shape.goodput_bps / 8.0 * WINDOW_S);
            observed.sent_bytes = observed.received_bytes;
            observed.retransmits = Some(rng.next_below(4) as u64);
        }
        _ => {
            let sent = whole(shape.goodput_bps / 8.0 / 1470.0 * WINDOW_S);
            let lost = sent * us * (8 + rng.next_below(4) as u64) / 100_000;
            observed.sent_bytes = sent * 1470;
            observed.received_bytes = (sent - lost) * 1470;
            observed.offered_bps = Some(shape.goodput_bps);
            observed.datagrams = Some(DatagramObservation {
                sent,
                received: sent - lost,
                lost,
                reordered: rng.next_below(3) as u64,
                duplicates: 0,
                late: 0,
                jitter_ns: 1500.0 + us as f64 * 180.0 * (1.0 + 0.04 * sample_normal(rng)),
            });
        }
    }
    observed
}

/// A body around the median with a thin, long tail, as round-trip times have.
fn sample_histogram(median_us: f64, count: u64, rng: &mut SeededRng) -> Histogram {
    let mut histogram = Histogram::new();
    let drawn = count.clamp(1, 4_000);
    for _ in 0..drawn {
        let body = median_us * (0.13 * sample_normal(rng)).exp();
        let tail = if rng.next_uniform() < 0.006 {
            median_us * 0.9 / (rng.next_uniform() + 0.05)
        } else {
            0.0
        };
        histogram.record_n(Nanos::from_secs_f64((body + tail) / 1e6), count.div_ceil(drawn));
    }
    histogram
}

fn simulate_host(name: &str, role: Role, cpu: u32, busy: f64, packets: u64) -> HostObservation {
    let window = Nanos::from_secs_f64(WINDOW_S);
    let part = |share: f64| Nanos::from_secs_f64(busy.min(1.0) * share * WINDOW_S);
    let mut time = CpuTime {
        user: part(0.09),
        system: part(0.61),
        irq: part(0.02),
        softirq: part(0.27),
        steal: part(0.01),
        ..CpuTime::default()
    };
    time.idle = window.saturating_sub(time.busy());
    HostObservation {
        host: name.to_owned(),
        role,
        window,
        cpus: vec![CpuObservation { cpu: CpuId(cpu), time }],
        machine: time + time,
        napi_threads_cpu: Some(part(0.4)),
        sampling_cpu: Nanos::from_us(4200),
        napi: Some(NapiObservation { polls: packets / 3 + 1, packets, empty_polls: packets / 50 }),
        softirqs: packets / 3,
        interrupts: packets / 9,
        interface: InterfaceCounters {
            rx_packets: packets,
            rx_bytes: packets * 1500,
            tx_packets: packets,
            tx_bytes: packets * 66,
            rx_dropped: 0,
            tx_dropped: 0,
        },
        ..HostObservation::default()
    }
}

/// A normal deviate (Box and Muller 1958).
fn sample_normal(rng: &mut SeededRng) -> f64 {
    let radius = (-2.0 * (1.0 - rng.next_uniform()).ln()).sqrt();
    radius * (std::f64::consts::TAU * rng.next_uniform()).cos()
}
