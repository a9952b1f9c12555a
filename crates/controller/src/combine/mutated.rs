//! Hosts may answer with any number that the protocol allows: the answers are joined, checked and
//! summed without a panic.

use std::collections::BTreeMap;

use latput_knobs::{Place, parse_assignment};
use latput_load::{DatagramsReceived, DatagramsSent};
use latput_trial::observation::{
    CpuAccounting, CpuObservation, CpuSource, CpuTime, InterfaceCounters, KernelEvents,
    NapiObservation, Role,
};
use latput_trial::results::LabelledSetting;
use latput_trial::{Plan, Results, Row};
use latput_units::{BitsPerSecond, Bytes, CpuId, SeededRng};
use serde_json::{Value, json};

use super::*;

const ROUNDS: usize = 500;
/// Extreme counts and their neighbours.
const NUMBERS: [u64; 8] = [0, 1, 2, 1 << 53, i64::MAX as u64, 1 << 63, u64::MAX - 1, u64::MAX];

#[test]
fn arbitrary_host_figures_never_panic() {
    let plan = make_plan();
    let honest = serde_json::to_value(make_host_results()).unwrap();
    let mut rng = SeededRng::from_seed(1);
    let mut understood = 0;
    let mut joined_rounds = 0;
    for round in 0..ROUNDS {
        let mut answer = honest.clone();
        for _ in 0..=rng.next_below(8) {
            mutate_value(&mut answer, &mut rng);
        }
        let Ok(finished) = serde_json::from_value::<Vec<HostTrialResult>>(answer) else { continue };
        understood += 1;
        let workload = &plan.workloads[round % plan.workloads.len()];
        let Ok(observations) = make_trial_context(workload).join_observations(finished) else {
            continue;
        };
        joined_rounds += 1;
        let rows = (0..).zip(observations).map(|(block, observation)| {
            for metric in observation.metrics() {
                let _number_or_none = metric.value(&workload.traffic, &observation);
            }
            Row { block, setting: 0, workload: 0, started_unix_ms: 0, observation }
        });
        let rows = rows.collect();
        if round % 20 > 0 {
            continue; // a summary takes its time
        }
        let _summary =
            latput_model::ResultsSummary::from_results(&make_results(&plan, workload, rows));
    }
    // Most answers get far enough: the test is not empty.
    assert!(understood > ROUNDS / 2 && joined_rounds > ROUNDS / 3, "{understood} {joined_rounds}");
}

/// Changes one leaf, or the length of one list.
fn mutate_value(value: &mut Value, rng: &mut SeededRng) {
    let pick = |rng: &mut SeededRng, count: usize| rng.next_below(count);
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            let at = pick(rng, fields.len());
            mutate_value(fields.values_mut().nth(at).unwrap(), rng);
        }
        Value::Array(items) if items.is_empty() || rng.next_below(30) == 0 => {
            if let Some(last) = items.last().cloned() {
                if rng.next_below(2) == 0 { items.push(last) } else { drop(items.pop()) }
            }
        }
        Value::Array(items) => {
            let at = pick(rng, items.len());
            mutate_value(&mut items[at], rng);
        }
        Value::Number(number) if number.is_i64() && number.as_i64() < Some(0) => {
            *value = json!(if rng.next_below(2) == 0 { i64::MIN } else { i64::MAX });
        }
        Value::Number(number) if number.is_f64() => {
            let edges = [0.0, -1.0, f64::MAX, f64::MIN_POSITIVE];
            *value = json!(edges[pick(rng, edges.len())]);
        }
        Value::Number(_) => *value = json!(NUMBERS[pick(rng, NUMBERS.len())]),
        Value::Null => {}
        other => {
            if rng.next_below(4) == 0 {
                *other = Value::Null;
            }
        }
    }
}

fn make_plan() -> Plan {
    let text = r#"
        schema = 1
        [[workload]]
        kind = "tcp_rr"
        [[workload]]
        name = "open"
        kind = "tcp_rr"
        rate_per_s = 1000
        [[workload]]
        kind = "tcp_stream"
        rate = "10Mbps"
        [[workload]]
        kind = "tcp_bidir"
        [[workload]]
        kind = "udp_stream"
        rate = "10Mbps"
        [[workload]]
        kind = "udp_rr"
        [[workload]]
        kind = "fetch"
        object_bytes = 65536
    "#;
    Plan::parse("built in", text).unwrap()
}

fn make_results(plan: &Plan, workload: &Workload, rows: Vec<Row>) -> Results {
    Results {
        confidence: plan.method.confidence,
        half_width: plan.method.half_width,
        settings: vec![LabelledSetting { label: "today".to_owned(), by_role: BTreeMap::new() }],
        workloads: vec![workload.clone()],
        rows,
        ..Results::default()
    }
}

fn make_trial_context(workload: &Workload) -> TrialContext<'_> {
    let offset = ClockOffset {
        offset_ns: -5,
        uncertainty: Nanos::from_us(9),
        round_trip: Nanos::from_us(18),
    };
    TrialContext {
        workload,
        duration: Nanos::from_s(1),
        slices: Some(SliceLayout::new(Nanos::from_ms(250), Nanos::from_ms(10), 2)),
        parts: vec![(0, workload.clone()), (1, workload.clone())],
        clocks: vec![offset; 3],
        boot_ids: ["one", "one", "two"].map(str::to_owned).to_vec(),
    }
}

/// The answers of two generators and the system under test, each with two slices and every figure
/// present.
fn make_host_results() -> Vec<HostTrialResult> {
    let roles = [Role::Generator, Role::Generator, Role::Sut];
    let host = |(idx, role): (u32, Role)| HostTrialResult {
        slices: vec![make_slice(idx, role), make_slice(idx, role)],
        late: Nanos::from_us(3),
        drift: Vec::new(),
        held_back: Vec::new(),
        left: Vec::new(),
    };
    (0..).zip(roles).map(host).collect()
}

fn make_slice(idx: u32, role: Role) -> HostSlice {
    let is_generator = role == Role::Generator;
    HostSlice {
        host: make_host_observation(idx, role),
        change: Nanos::from_us(7),
        sender: is_generator.then(make_sender_outcome),
        receivers: if is_generator {
            Vec::new()
        } else {
            vec![make_receiver_outcome(), make_receiver_outcome()]
        },
        probe: (idx == 1).then(make_probe_outcome),
    }
}

fn make_histogram() -> Histogram {
    let mut latency = Histogram::new();
    latency.record_n(Nanos::from_us(50), 900);
    latency.record_n(Nanos::from_ms(2), 100);
    latency
}

fn make_probe_outcome() -> latput_load::ProbeOutcome {
    latput_load::ProbeOutcome {
        sent: 50,
        received: 49,
        skipped: 1,
        stamped: 49,
        rtt: make_histogram(),
    }
}

fn make_sender_outcome() -> latput_load::SenderOutcome {
    let text = json!({
        "window": 240_000_000, "sent_bytes": 1000, "received_bytes": 1000, "transactions": 1000,
        "latency": make_histogram(), "latency_raw": make_histogram(),
        "schedule": {"due": 1000, "sent": 1000, "backlog": 1},
        "retransmits": 1, "cpu": 100_000_000, "busiest_cpu": 90_000_000, "datagrams": null,
        "exchange": {"sent": 10, "answered": 9, "lost": 1, "late": 1, "duplicates": 1, "foreign": 1},
        "probe": make_probe_outcome(),
    });
    let datagrams = DatagramsSent {
        sent: 10,
        bytes: Bytes::new(1000),
        offered: Some(BitsPerSecond::new(1_000_000)),
        group: 1,
        cut: 1,
        skipped: 0,
    };
    let sender = serde_json::from_value::<latput_load::SenderOutcome>(text).unwrap();
    latput_load::SenderOutcome { datagrams: Some(datagrams), ..sender }
}

fn make_receiver_outcome() -> ReceiverOutcome {
    ReceiverOutcome {
        window: Nanos::from_ms(240),
        received_bytes: 1000,
        sent_bytes: 1000,
        requests: Some(1000),
        retransmits: Some(1),
        cpu: Nanos::from_ms(50),
        switches: Some(ContextSwitches { waits: 900, preemptions: 10 }),
        auth_failures: 1,
        datagrams: Some(DatagramsReceived {
            received: 9,
            duplicates: 1,
            reordered: 1,
            jitter_ns: 5.5,
            dropped_by_kernel: Some(1),
            foreign: 1,
        }),
        foreign: 1,
    }
}

fn make_host_observation(idx: u32, role: Role) -> HostObservation {
    let part = Nanos::from_ms(40);
    let time = CpuTime {
        user: part,
        system: part,
        irq: part,
        softirq: part,
        steal: part,
        idle: part,
        iowait: part,
    };
    let cpus: Vec<CpuObservation> =
        [2 * idx, 2 * idx + 1].map(|cpu| CpuObservation { cpu: CpuId(cpu), time }).to_vec();
    let mut state = latput_knobs::State::default();
    for text in ["gro-flush-timeout=50us", "napi-defer-hard-irqs=100", "rx-usecs=50us"] {
        let (knob, value) = parse_assignment(text).unwrap();
        state.0.insert((knob, Place::Device), value);
    }
    HostObservation {
        host: format!("host{idx}"),
        role,
        window: Nanos::from_ms(240),
        accounting: CpuAccounting {
            source: CpuSource::Trace,
            ticks: cpus.clone(),
            busy_by_idle: Some(part),
            traced: Some(part),
        },
        cpus,
        other_cpus: time,
        machine: time,
        napi_threads_cpu: Some(part),
        sampling_cpu: Nanos::from_us(200),
        tracing_cpu: Some(Nanos::from_us(300)),
        other_work_cpu: Some(Nanos::from_us(100)),
        others: Vec::new(),
        napi: Some(NapiObservation { polls: 100, packets: 1000, empty_polls: 3 }),
        softirqs: 100,
        interrupts: 100,
        events: KernelEvents {
            timer_interrupts: Some(40),
            cpu_interrupts: Some(50),
            segments: Some(900),
            idle_polls: Some(30),
            idle_sleeps: Some(20),
            napi_waits: Some(60),
            napi_preemptions: Some(5),
        },
        interface: InterfaceCounters {
            rx_packets: 1000,
            rx_bytes: 60_000,
            tx_packets: 1000,
            tx_bytes: 60_000,
            rx_dropped: 1,
            tx_dropped: 1,
        },
        packets_per_interval: vec![100; 10],
        tcp_retransmitted: 1,
        udp_receive_buffer_errors: 1,
        wall_clock_step_ns: -5,
        tcp: None,
        tcp_groups: std::collections::BTreeMap::new(),
        window_started_unix_ns: Some(1_700_000_000_000_000_000),
        state,
    }
}
