//! The fit of rows whose costs are known, and the rows that it refuses.

use latput_knobs::{Knob, Setting, Value};
use latput_trial::observation::{
    ContextSwitches, CpuObservation, CpuTime, HostObservation, InterfaceCounters, NapiObservation,
    Observation,
};
use latput_trial::results::{HostFacts, LabelledSetting};
use latput_trial::{Row, Traffic, Workload};
use latput_units::{CpuId, Nanos, SeededRng};

use super::*;

/// Counters of a made-up host in a second; `None`: it cannot tell.
#[derive(Clone, Copy, Debug)]
struct HostCounts {
    bytes: u64,
    packets: u64,
    interrupts: u64,
    polls: Option<u64>,
}

/// Nanoseconds of a byte, a packet, an interrupt, a poll and a second.
type Costs = [f64; 5];

const COSTS: Costs = [0.5, 900.0, 4000.0, 700.0, 2e6];

/// The terms of [`COSTS`].
const TERMS: [CostTerm; 5] = [
    CostTerm::ByteReceived,
    CostTerm::PacketReceived,
    CostTerm::Interrupt,
    CostTerm::Poll,
    CostTerm::Background,
];

#[test]
fn costs_that_a_plan_varies_are_found() {
    let models = fit_cells(&varied_cells(), COSTS, 0.005);
    for (term, wanted) in TERMS.into_iter().zip(COSTS).take(4) {
        let Some(cost) = models[0].cost(term) else { panic!("{:?}", models[0].terms) };
        assert!(cost.ns_low <= cost.ns && cost.ns <= cost.ns_high, "{term:?} {cost:?}");
        assert!((cost.ns / wanted - 1.0).abs() < 0.15, "{term:?} {cost:?}");
    }
    assert!(models[0].error_quantile(0.9).unwrap() < 0.05 && models[0].is_predictive());
    assert!(models[0].condition_number.unwrap() < 30.0, "{:?}", models[0].condition_number);
}

#[test]
fn plan_without_variation_costs_one_term() {
    let alike =
        [HostCounts { bytes: 150_000_000, packets: 100_000, interrupts: 8_000, polls: None }];
    let model = &fit_cells(&alike.repeat(6), COSTS, 0.02)[0];
    let known: Vec<CostTerm> =
        CostTerm::ALL.into_iter().filter(|term| model.cost(*term).is_some()).collect();
    assert_eq!(known, [CostTerm::Interrupt], "the first of what moves together");
    let refusal = |term: CostTerm| model.terms[term as usize].finding.clone().unwrap_err();
    let packet = refusal(CostTerm::PacketReceived);
    assert_eq!(packet.why, CostObstacle::MovesWith(CostTerm::Interrupt));
    assert!(packet.vary.contains("`mtu`"), "{packet:?}");
    assert_eq!(refusal(CostTerm::Poll).why, CostObstacle::NotCounted);
    assert_eq!(refusal(CostTerm::PacketSent).why, CostObstacle::TooRare);
    assert!(refusal(CostTerm::PacketSent).vary.is_empty());
}

#[test]
fn saturated_cpus_say_nothing_of_costs() {
    let saturated = &fit_cells(&varied_cells(), [0.0, 0.0, 0.0, 0.0, 9.9e8], 0.000_2)[0];
    assert!(saturated.is_explained_by_background(), "{saturated:?}");
    assert!(!fit_cells(&varied_cells(), COSTS, 0.01)[0].is_explained_by_background());
    assert!(!fit_cells(&varied_cells()[..1], COSTS, 0.0)[0].is_explained_by_background());
}

#[test]
fn one_cell_is_too_few() {
    let one =
        [HostCounts { bytes: 150_000_000, packets: 100_000, interrupts: 8_000, polls: Some(1) }];
    let model = &fit_cells(&one, COSTS, 0.0)[0];
    assert!(model.terms.iter().all(|fitted| fitted.finding.is_err()), "{model:?}");
    assert_eq!((model.condition_number, model.error_quantile(0.5)), (None, None));
    assert!(!model.is_predictive());
}

/// The kernel and the machine of a host, as the results tell them.
fn make_facts(host: &str, role: Role, kernel: &str) -> HostFacts {
    let facts = ["kernel", "kernel build", "cpu model", "online cpus", "memory"];
    HostFacts {
        host: host.to_owned(),
        role,
        facts: facts.map(|name| (name.to_owned(), kernel.to_owned())).to_vec(),
        ..HostFacts::default()
    }
}

#[test]
fn hosts_of_one_kernel_are_fitted_together() {
    let of = |kernels: [&str; 2]| {
        let mut made = make_results(&varied_cells(), COSTS, 0.005, 1);
        for row in &mut made.rows {
            let mut generator = row.observation.hosts[0].clone();
            (generator.host, generator.role) = ("a".to_owned(), Role::Generator);
            row.observation.hosts.push(generator);
        }
        made.hosts = vec![
            make_facts("a", Role::Generator, kernels[0]),
            make_facts("b", Role::Sut, kernels[1]),
        ];
        fit_cost_models(&made, |_| true, 0.95).unwrap()
    };
    let together = of(["6.18", "6.18"]);
    assert_eq!((together.len(), together[0].hosts.len(), together[0].cells), (1, 2, 32));
    assert_eq!(together[0].errors.len(), 32);
    assert_eq!(of(["6.18", "6.12"]).len(), 2);
}

#[test]
fn implausible_cost_is_told() {
    let cost = |ns_low, ns_high| TermCost { ns: ns_low, ns_low, ns_high, share: 0.5 };
    assert!(cost(2e3, 3e3).is_plausible(CostTerm::Interrupt));
    assert!(cost(39e3, 90e3).is_plausible(CostTerm::Interrupt), "the interval reaches into it");
    assert!(!cost(50e3, 90e3).is_plausible(CostTerm::Interrupt));
    assert!(!cost(0.0, 200.0).is_plausible(CostTerm::Interrupt));
}

#[test]
fn odd_run_among_five_moves_nothing() {
    let mut results = make_results(&varied_cells(), COSTS, 0.0, 1);
    for row in results.rows.iter_mut().filter(|row| row.block == 2) {
        row.observation.hosts[0].cpus[0].time.system = Nanos::from_s(30);
    }
    let models = fit_cost_models(&results, |_| true, 0.99).unwrap();
    let packet = models[0].cost(CostTerm::PacketReceived).unwrap();
    assert!((packet.ns / COSTS[1] - 1.0).abs() < 0.02, "{packet:?}");
}

#[test]
fn what_the_plan_varies_is_advised_last() {
    let alike =
        [HostCounts { bytes: 150_000_000, packets: 100_000, interrupts: 8_000, polls: None }];
    let mut results = make_results(&alike.repeat(6), COSTS, 0.02, 1);
    for (idx, set) in results.settings.iter_mut().enumerate() {
        let value = Value::Time(Nanos::from_us(idx as u64));
        set.by_role.insert(Role::Sut, Setting::from([(Knob::RxUsecs, value)]));
    }
    let host = [ModelHost { host: "b".to_owned(), role: Role::Sut }];
    let vary = |results: &Results| {
        suggestions::suggest_factor(CostTerm::Interrupt, CostObstacle::Uncertain, results, &host)
    };
    assert_eq!(vary(&results), "`gro-flush-timeout` with `napi-defer-hard-irqs`");
    for (idx, set) in results.settings.iter_mut().enumerate() {
        let value = Value::Time(Nanos::from_us(idx as u64));
        set.by_role.entry(Role::Sut).or_default().insert(Knob::GroFlushTimeout, value);
    }
    assert_eq!(vary(&results), "the workloads' `burst`, `connections` or `rate`");
    results.workloads.push(Workload::plain("many", Traffic::tcp_rr(16)));
    results.workloads.push(Workload::plain("one", Traffic::tcp_rr(0)));
    assert!(vary(&results).contains("`rx-usecs` more widely"), "{}", vary(&results));
}

#[test]
fn hostless_results_and_bad_confidences_are_refused() {
    let mut empty = make_results(&varied_cells(), COSTS, 0.0, 1);
    assert_eq!(fit_cost_models(&empty, |_| true, 1.0), Err(FitError::Confidence));
    assert_eq!(fit_cost_models(&empty, |_| false, 0.9), Err(FitError::NoHosts));
    empty.rows.iter_mut().for_each(|row| row.observation.hosts.clear());
    assert_eq!(fit_cost_models(&empty, |_| true, 0.9), Err(FitError::NoHosts));
    empty.rows.iter_mut().for_each(|row| row.setting = usize::MAX);
    assert_eq!(fit_cost_models(&empty, |_| true, 0.9), Err(FitError::NoHosts));
}

/// Packet sizes, interrupt rates, polls and loads of every kind.
fn varied_cells() -> Vec<HostCounts> {
    let mut cells = Vec::new();
    for (k, size) in [64, 500, 1_500, 9_000].into_iter().enumerate() {
        for (l, per_interrupt) in [1, 5, 25, 100].into_iter().enumerate() {
            let packets = [1_000, 20_000, 50_000, 100_000][(k + l) % 4];
            let interrupts = packets / per_interrupt;
            let polls = Some(interrupts + packets / [3, 40, 9][(k + 2 * l) % 3]);
            cells.push(HostCounts { bytes: size * packets, packets, interrupts, polls });
        }
    }
    cells
}

#[track_caller]
fn fit_cells(cells: &[HostCounts], costs: Costs, noise: f64) -> Vec<CostModel> {
    fit_cost_models(&make_results(cells, costs, noise, 1), |_| true, 0.99).unwrap()
}

/// Five runs of every cell, each a setting of its own, on a host with these costs and so much noise in its
/// CPU time.
fn make_results(cells: &[HostCounts], costs: Costs, noise: f64, seed: u64) -> Results {
    let mut rng = SeededRng::from_seed(seed);
    let mut rows = Vec::new();
    for block in 0..5 {
        for (setting, cell) in cells.iter().enumerate() {
            let counts = [cell.bytes, cell.packets, cell.interrupts, cell.polls.unwrap_or(0), 1];
            let exact: f64 = counts.iter().zip(costs).map(|(n, cost)| *n as f64 * cost).sum();
            let busy = exact * (noise * rng.next_normal()).exp();
            let observation =
                Observation { hosts: vec![make_host(cell, busy)], ..Observation::default() };
            rows.push(Row { block, setting, workload: 0, started_unix_ms: 0, observation });
        }
    }
    let labelled = |k: usize| LabelledSetting {
        label: format!("{k}"),
        by_role: std::collections::BTreeMap::new(),
    };
    Results {
        settings: (0..cells.len()).map(labelled).collect(),
        rows,
        ..crate::synthetic::build_results(
            &[],
            &[Workload::plain("w", Traffic::tcp_rr(0))],
            0,
            |_, _| crate::synthetic::SyntheticFigures::default(),
        )
    }
}

#[test]
fn counts_are_per_second_of_the_window() {
    let cell = HostCounts { bytes: 6_000, packets: 400, interrupts: 80, polls: Some(20) };
    let mut made = make_results(&[cell], [0.0, 1e6, 0.0, 0.0, 0.0], 0.0, 1);
    for row in &mut made.rows {
        row.observation.hosts[0].window = Nanos::from_s(4);
        row.observation.hosts[0].cpus[0].time.system = Nanos::from_ms(200);
    }
    let cells = &cells::kernel_cells(&made, |_| true)[0].cells;
    assert_eq!(cells.len(), 1);
    let counts = TERMS.map(|term| cells[0].counts[term as usize]);
    assert_eq!(counts, [1500.0, 100.0, 20.0, 5.0, 1.0].map(Some));
    assert!((cells[0].busy - 5e7).abs() < 1.0, "{}", cells[0].busy);
}

#[test]
fn cell_takes_its_middle_run() {
    let cell = HostCounts { bytes: 6_000, packets: 400, interrupts: 80, polls: Some(20) };
    let mut made = make_results(&[cell], COSTS, 0.0, 1);
    for (row, interrupts) in made.rows.iter_mut().zip([80, 10, 20, 40]) {
        row.observation.hosts[0].interrupts = interrupts;
    }
    made.rows.truncate(4);
    let interrupts = |made: &Results| {
        let (_, cell) = collect_host_cells(made).into_iter().next()?;
        cell.counts[CostTerm::Interrupt as usize]
    };
    assert_eq!(interrupts(&made), Some(30.0));
    // A run without a window, or without CPU time, tells of no rate or of no cost.
    made.rows[0].observation.hosts[0].window = Nanos::ZERO;
    assert_eq!(interrupts(&made), Some(20.0));
    made.rows[3].observation.hosts[0].cpus.clear();
    assert_eq!(interrupts(&made), Some(15.0));
}

#[test]
fn rows_of_unknown_settings_are_left_out() {
    let cell = HostCounts { bytes: 6_000, packets: 400, interrupts: 80, polls: Some(20) };
    let mut made = make_results(&[cell], COSTS, 0.0, 1);
    let (mut of_setting, mut of_workload) = (made.rows[0].clone(), made.rows[0].clone());
    of_setting.setting = made.settings.len();
    of_workload.workload = made.workloads.len();
    made.rows.extend([of_setting, of_workload]);
    let cells = &cells::kernel_cells(&made, |_| true)[0].cells;
    assert_eq!(
        cells.iter().map(|cell| (cell.setting, cell.workload)).collect::<Vec<_>>(),
        [(0, 0)]
    );
}

fn make_host(cell: &HostCounts, busy_ns: f64) -> HostObservation {
    let system = Nanos::from_secs_f64(busy_ns / 1e9);
    let time = CpuTime { system, idle: Nanos::from_s(60), ..CpuTime::default() };
    HostObservation {
        host: "b".to_owned(),
        role: Role::Sut,
        window: Nanos::from_s(1),
        cpus: vec![CpuObservation { cpu: CpuId(0), time }],
        interrupts: cell.interrupts,
        napi: cell.polls.map(|polls| NapiObservation { polls, packets: 0, empty_polls: 0 }),
        interface: InterfaceCounters {
            rx_bytes: cell.bytes,
            rx_packets: cell.packets,
            ..InterfaceCounters::default()
        },
        ..HostObservation::default()
    }
}

#[test]
fn confidence_is_within_zero_and_one() {
    let made = make_results(&varied_cells(), COSTS, 0.01, 1);
    for bad in [0.0, 1.0, f64::NAN] {
        assert_eq!(fit_cost_models(&made, |_| true, bad), Err(FitError::Confidence));
    }
    let mut model = fit_cost_models(&made, |_| true, 0.9).unwrap().remove(0);
    let error = |error_ratio| CellError { host: 0, setting: 0, workload: 0, error_ratio };
    model.errors = [-0.4, 0.1, 0.3, -0.2].map(error).to_vec();
    let found = [0.0, 0.25, 0.5, 0.51, 1.0].map(|quantile| model.error_quantile(quantile));
    assert_eq!(found, [0.1, 0.1, 0.2, 0.3, 0.4].map(Some));
}

#[test]
fn counts_are_those_of_the_role() {
    let cell = HostCounts { bytes: 6_000, packets: 400, interrupts: 80, polls: Some(20) };
    let mut made = make_results(&[cell], COSTS, 0.0, 1);
    for row in &mut made.rows {
        let mut generator = row.observation.hosts[0].clone();
        (generator.host, generator.role) = ("a".to_owned(), Role::Generator);
        generator.interrupts = 7;
        row.observation.hosts.push(generator);
    }
    let cells = collect_host_cells(&made);
    let interrupts = |role| {
        let (_, cell) = cells.iter().find(|(host, _)| host.role == role).unwrap();
        cell.counts[CostTerm::Interrupt as usize]
    };
    assert_eq!((interrupts(Role::Sut), interrupts(Role::Generator)), (Some(80.0), Some(7.0)));
}

#[test]
fn suggested_knob_is_one_of_the_host() {
    let cell = HostCounts { bytes: 6_000, packets: 400, interrupts: 80, polls: Some(20) };
    let vary = |role: Role, knobs: &[Knob]| {
        let mut made = make_results(&[cell], COSTS, 0.0, 1);
        for host in made.rows.iter_mut().flat_map(|row| &mut row.observation.hosts) {
            host.role = role;
            let values =
                knobs.iter().map(|knob| ((*knob, latput_knobs::Place::Device), Value::Count(1)));
            host.state.0.extend(values);
        }
        let host = [ModelHost { host: "b".to_owned(), role: Role::Sut }];
        suggestions::suggest_factor(CostTerm::Interrupt, CostObstacle::Uncertain, &made, &host)
    };
    assert_eq!(vary(Role::Sut, &[]), "`rx-usecs`", "nothing is known of the host");
    assert_eq!(vary(Role::Sut, &[Knob::InterruptThrottleRate]), "`interrupt-throttle-rate`");
    let deferral = "`gro-flush-timeout` with `napi-defer-hard-irqs`";
    assert_eq!(vary(Role::Sut, &[Knob::GroFlushTimeout]), deferral);
    let both = [Knob::GroFlushTimeout, Knob::RxAbsIntDelay];
    assert_eq!(vary(Role::Sut, &both), "`rx-abs-int-delay`");
    assert_eq!(vary(Role::Generator, &both), "`rx-usecs`", "what another host has is no help");
}

#[test]
fn waits_are_of_traffic_and_napi_threads() {
    let cell = HostCounts { bytes: 6_000, packets: 400, interrupts: 80, polls: Some(20) };
    let mut made = make_results(&[cell], COSTS, 0.0, 1);
    let wait = |made: &Results| collect_host_cells(made)[0].1.counts[CostTerm::Wait as usize];
    assert_eq!(wait(&made), None);
    for row in &mut made.rows {
        let traffic = &mut row.observation.traffic;
        traffic.receiver_window = Nanos::from_s(2);
        traffic.receiver_switches = Some(ContextSwitches { waits: 600, preemptions: 20 });
        row.observation.hosts[0].events.napi_waits = Some(50);
    }
    assert_eq!(wait(&made), Some(350.0));
    made.rows.iter_mut().for_each(|row| row.observation.traffic.receiver_window = Nanos::ZERO);
    assert_eq!(wait(&made), None);
}
