//! The parts of CPU time, and what decides whether a part of a round trip is known.

use latput_trial::{Traffic, Workload};
use latput_units::Bytes;

use super::*;
use crate::fit::{CostRefusal, FittedTerm, TermCost};
use crate::synthetic::{SyntheticFigures, build_results, rr_workload};

fn make_cost(ns: f64) -> TermCost {
    TermCost { ns, ns_low: 0.5 * ns, ns_high: 2.0 * ns, share: 0.5 }
}

fn make_refusal(why: CostObstacle) -> Result<TermCost, CostRefusal> {
    Err(CostRefusal { why, vary: String::new() })
}

fn make_model(findings: [Result<TermCost, CostRefusal>; 5]) -> CostModel {
    let terms = CostTerm::ALL.into_iter().zip(findings);
    CostModel {
        host: "b".to_owned(),
        role: Role::Sut,
        cells: 9,
        confidence: 0.9,
        condition_number: None,
        terms: terms.map(|(term, finding)| FittedTerm { term, finding }).collect(),
        errors: Vec::new(),
    }
}

fn make_figures(busy: f64) -> CellFigures {
    let counts = [Some(1000.0), Some(10.0), Some(4.0), None, Some(1.0)];
    CellFigures { setting: 0, workload: 0, busy, counts }
}

#[test]
fn cpu_part_is_cost_times_count() {
    let none = || make_refusal(CostObstacle::NotCounted);
    let model =
        make_model([none(), Ok(make_cost(30.0)), Ok(make_cost(100.0)), Ok(make_cost(7.0)), none()]);
    let part = |ns, ns_low, ns_high| TimePart::Known { ns, ns_low, ns_high, confidence: 0.9 };
    // Polls were not counted. The upper end of interrupts, 800, is more than the whole.
    let expected = vec![
        (CostTerm::Packet, part(300.0, 150.0, 600.0)),
        (CostTerm::Interrupt, part(400.0, 200.0, 700.0)),
    ];
    assert_eq!(split_cpu_time(Some(&model), Some(&make_figures(700.0)), false), expected);
    let unknown = |why| {
        vec![
            (CostTerm::Packet, TimePart::Unknown(why)),
            (CostTerm::Interrupt, TimePart::Unknown(why)),
        ]
    };
    assert_eq!(split_cpu_time(Some(&model), Some(&make_figures(700.0)), true), unknown(OTHER_WORK));
    // The least, 150 and 200, must fit.
    assert_eq!(
        split_cpu_time(Some(&model), Some(&make_figures(349.0)), false),
        unknown(OTHER_COSTS)
    );
    assert_eq!(
        split_cpu_time(Some(&model), Some(&make_figures(350.0)), false)[0].1,
        part(300.0, 150.0, 350.0)
    );
    assert_eq!(split_cpu_time(None, Some(&make_figures(700.0)), false), []);
    assert_eq!(split_cpu_time(Some(&model), None, false), []);
}

#[test]
fn indistinct_term_may_need_another_plan() {
    let of = |why| {
        let found = find_indistinct_terms(&make_model([
            make_refusal(why),
            Ok(make_cost(30.0)),
            make_refusal(why),
            make_refusal(why),
            make_refusal(why),
        ]));
        found == [CostTerm::Byte, CostTerm::Interrupt]
    };
    assert!(
        of(CostObstacle::MovesWith(CostTerm::Packet))
            && of(CostObstacle::Uncertain)
            && of(CostObstacle::TooFewCells)
    );
    assert!(!of(CostObstacle::NotCounted) && !of(CostObstacle::NeverHappened));
}

#[test]
fn part_is_cut_to_what_can_be() {
    let part = |ns| TimePart::Known { ns, ns_low: ns - 30.0, ns_high: ns + 30.0, confidence: 0.9 };
    let cut = |ns, ns_low, ns_high| TimePart::Known { ns, ns_low, ns_high, confidence: 0.9 };
    assert_eq!(part(0.0).clamp_to_whole(100.0, CPU_BESIDE), cut(0.0, 0.0, 30.0));
    assert_eq!(part(100.0).clamp_to_whole(100.0, CPU_BESIDE), cut(100.0, 70.0, 100.0));
    assert_eq!(part(-0.1).clamp_to_whole(100.0, CPU_BESIDE), TimePart::Unknown(BELOW_NOTHING));
    assert_eq!(part(100.1).clamp_to_whole(100.0, CPU_BESIDE), TimePart::Unknown(CPU_BESIDE));
}

/// A workload has its own model, of its kind; those without rows have none.
#[test]
fn each_traffic_kind_has_own_costs() {
    let loads = [
        rr_workload("one"),
        crate::synthetic::udp_workload("paced"),
        crate::synthetic::stream_workload("bulk"),
    ];
    let figures = SyntheticFigures { rate: 1e6, p99_us: Some(100.0), service_demand_us: 5.0 };
    let mut made = build_results(&["a", "b"], &loads, 3, |_, _| figures);
    made.rows.retain(|row| row.workload != 1);
    let kinds = |wanted: &[usize]| {
        fit_models(&made, |load| wanted.contains(&load))
            .map(|it| it.into_keys().collect::<Vec<_>>())
    };
    assert_eq!(kinds(&[0, 1]), Ok(vec![loads[0].traffic.kind()]));
    assert_eq!(kinds(&[0, 1, 2]).unwrap().len(), 2);
    assert_eq!(kinds(&[1]), Err(FitError::NoHosts));
    // The cells of a model are those of its kind alone, and of what is wanted.
    let one = fit_models(&made, |load| load == 0).unwrap();
    assert!(one.values().all(|model| model.cells == 2), "{one:?}");
    let other = [rr_workload("one"), rr_workload("two")];
    let made = build_results(&["a", "b"], &other, 3, |_, _| figures);
    assert!(fit_models(&made, |load| load == 0).unwrap().values().all(|model| model.cells == 2));
    // They reach the explanation, with the terms that nothing tells apart.
    let explained = explain_cells(&made, &fit_models(&made, |_| true).unwrap());
    assert!(
        explained
            .iter()
            .all(|it| it.not_told_apart.contains(&CostTerm::Interrupt) || !it.cpu.is_empty())
    );
}

#[test]
fn busiest_cpu_is_that_of_the_middle_run() {
    let mut made =
        build_results(&["a"], &[rr_workload("one")], 4, |_, _| SyntheticFigures::default());
    // Of 1 s: three runs with a second CPU that does more, and one without any time.
    for (row, busy_ms) in made.rows.iter_mut().zip([100, 300, 900, 0]) {
        let host = &mut row.observation.hosts[0];
        let mut second = host.cpus[0];
        host.cpus[0].time.system = Nanos::from_ms(50);
        host.cpus[0].time.idle = Nanos::from_ms(950);
        second.time.system = Nanos::from_ms(busy_ms);
        second.time.idle = Nanos::from_ms(1000 - busy_ms);
        host.cpus.push(second);
    }
    made.rows[3].observation.hosts[0]
        .cpus
        .iter_mut()
        .for_each(|cpu| cpu.time = latput_trial::observation::CpuTime::default());
    assert_eq!(busiest_cpu_ratio(&made, 0, 0), Some(0.3));
    made.rows.truncate(0);
    assert_eq!(busiest_cpu_ratio(&made, 0, 0), None);
}

/// One setting for each list of knobs; those of the SUT.
fn set_knobs(made: &mut Results, values: &[&[(Knob, Value)]]) {
    for (set, values) in made.settings.iter_mut().zip(values) {
        set.by_role.insert(Role::Sut, values.iter().cloned().collect());
    }
}

fn delay_knob(us: u64) -> (Knob, Value) {
    (Knob::RxUsecs, Value::Time(Nanos::from_us(us)))
}

/// Round trips of this mean: 0.51 of their 99th percentile.
fn round_trip_figures(mean_us: f64) -> SyntheticFigures {
    SyntheticFigures { rate: 1000.0, p99_us: Some(mean_us / 0.51), service_demand_us: 1.0 }
}

fn find_part(
    explained: &[CellExplanation],
    at: (usize, usize),
    stage: RoundTripStage,
) -> &TimePart {
    let cell = explained.iter().find(|it| (it.setting, it.workload) == at).unwrap();
    &cell.time.iter().find(|(of, _)| *of == stage).unwrap().1
}

#[test]
fn timer_is_compared_with_least_delay_setting() {
    let mtu = |mtu| (Knob::Mtu, Value::Count(mtu));
    let mut made = build_results(&["a", "b", "c", "d"], &[rr_workload("one")], 6, |setting, _| {
        round_trip_figures([150.0, 100.0, 90.0, 70.0][setting])
    });
    // d has another MTU: its round trip says nothing of the delay. Nothing is shorter than c's 20 us.
    set_knobs(
        &mut made,
        &[
            &[delay_knob(80), mtu(1500)],
            &[delay_knob(50), mtu(1500)],
            &[delay_knob(20), mtu(1500)],
            &[delay_knob(20), mtu(9000)],
        ],
    );
    let explained = explain_cells(&made, &BTreeMap::new());
    let ns = |setting| find_part(&explained, (setting, 0), RoundTripStage::Timer).known_ns();
    for (setting, expected) in [(0, 60e3), (1, 10e3)] {
        assert!((ns(setting).unwrap() - expected).abs() < 3e3, "{setting}: {:?}", ns(setting));
    }
    // Those with the least delay have none to compare with.
    assert_eq!((ns(2), ns(3)), (None, None));
}

#[test]
fn extra_delay_of_host_counts_for_setting() {
    let mut made =
        build_results(&["a", "b"], &[rr_workload("one")], 2, |_, _| round_trip_figures(50.0));
    for row in made.rows.iter_mut().filter(|row| row.setting == 1) {
        let key = ((Knob::RxUsecs, latput_knobs::Place::Device), Value::Time(Nanos::from_us(7)));
        row.observation.hosts[0].state.0.extend([key]);
    }
    let runs = RunTable::from_results(&made);
    let busy = BTreeSet::new();
    let cell = CellContext { results: &made, runs: &runs, busy: &busy, setting: 0, workload: 0 };
    assert_eq!((cell.longest_delay(0), cell.longest_delay(1)), (None, Some(Nanos::from_us(7))));
}

#[test]
fn parts_above_the_whole_are_unknown() {
    // Of 100 us with many in flight the delay takes `timer`; without it the queue takes `queue`.
    let found = |timer: f64, queue: f64| {
        let loads = [rr_workload("one"), Workload::plain("many", Traffic::tcp_rr(16))];
        let mut made = build_results(&["a", "b"], &loads, 6, |setting, workload| {
            let without = 100.0 - timer;
            round_trip_figures(
                [[without - queue, without], [without - queue + 1.0, 100.0]][setting][workload],
            )
        });
        // Both ends of one request work for 40 us of it.
        for row in &mut made.rows {
            let mut generator = row.observation.hosts[0].clone();
            generator.role = Role::Generator;
            generator.cpus[0].time.system = Nanos::from_ms(39);
            row.observation.hosts.push(generator);
        }
        set_knobs(&mut made, &[&[delay_knob(0)], &[delay_knob(50)]]);
        let explained = explain_cells(&made, &BTreeMap::new());
        [RoundTripStage::Timer, RoundTripStage::Queueing, RoundTripStage::Cpu]
            .map(|stage| find_part(&explained, (1, 1), stage).known_ns())
    };
    // 30 + 40 + 40, of which 10 too many are in the rest's place: within a tenth.
    for (part, expected) in found(30.0, 35.0).into_iter().zip([30e3, 35e3, 40e3]) {
        assert!(part.is_some_and(|ns| (ns - expected).abs() < 2e3), "{part:?} for {expected}");
    }
    assert_eq!(found(50.0, 40.0), [None; 3], "50 + 40 + 40 of 100");
}

#[test]
fn rr_parts_above_tolerance_are_refused_together() {
    let mut made =
        build_results(&["a"], &[rr_workload("one")], 6, |_, _| round_trip_figures(100.0));
    let generator_ms = |made: &mut Results, us_of_blocks: &dyn Fn(u32) -> u64| {
        for row in &mut made.rows {
            row.observation.hosts.truncate(1);
            let mut generator = row.observation.hosts[0].clone();
            generator.role = Role::Generator;
            // A thousand transactions a second: so many microseconds of each.
            generator.cpus[0].time.system = Nanos::from_us(1000 * us_of_blocks(row.block));
            row.observation.hosts.push(generator);
        }
    };
    // Always 40 us of 100: the rest is 59.
    generator_ms(&mut made, &|_| 39);
    let explained = explain_cells(&made, &BTreeMap::new());
    let of = |explained: &[CellExplanation], stage| find_part(explained, (0, 0), stage).known_ns();
    assert!((of(&explained, RoundTripStage::Cpu).unwrap() - 40e3).abs() < 1e3);
    assert!((of(&explained, RoundTripStage::Rest).unwrap() - 60e3).abs() < 3e3);
    // Always 150 us: both ends work on, and there is no rest.
    generator_ms(&mut made, &|_| 149);
    let explained = explain_cells(&made, &BTreeMap::new());
    assert_eq!(of(&explained, RoundTripStage::Rest), Some(0.0));
    assert_eq!(*find_part(&explained, (0, 0), RoundTripStage::Cpu), TimePart::Unknown(CPU_BESIDE));
    // Now and then: the rest's interval reaches both sides of nothing.
    generator_ms(&mut made, &|block| if block < 3 { 149 } else { 29 });
    let explained = explain_cells(&made, &BTreeMap::new());
    assert_ne!(of(&explained, RoundTripStage::Rest), Some(0.0), "{explained:?}");
}

#[test]
fn one_request_matches_by_kind_and_size() {
    let crr = |connections, request| Traffic::TcpCrr {
        request_bytes: Bytes::new(request),
        response_bytes: Bytes::new(1),
        connections,
        threads: connections,
        nodelay: true,
    };
    assert_eq!(crr(8, 64).with_one_request(), Some(crr(1, 64)));
    let udp = |burst, connections| Traffic::UdpRr {
        request_bytes: Bytes::new(64),
        response_bytes: Bytes::new(1),
        burst,
        connections,
        threads: connections,
        timeout: Nanos::from_ms(200),
        arrivals: None,
    };
    assert_eq!(udp(16, 4).with_one_request(), Some(udp(0, 1)));
    assert_eq!(crate::synthetic::udp_workload("paced").traffic.with_one_request(), None);
}

#[test]
fn rate_of_five_is_no_mode() {
    let of =
        |hz| find_longest_delay(&Setting::from([(Knob::InterruptThrottleRate, Value::Count(hz))]));
    assert_eq!((of(4), of(5)), (None, Some(Nanos::from_ms(200))));
    let stages = [
        RoundTripStage::Timer,
        RoundTripStage::Queueing,
        RoundTripStage::Cpu,
        RoundTripStage::Rest,
    ];
    assert_eq!(stages.map(RoundTripStage::name), ["timer", "queueing", "cpu", "rest"]);
    assert_eq!(
        stages.map(RoundTripStage::describe).map(|words| words.split(' ').next().unwrap()),
        ["moderation", "queueing", "CPU", "wire,"]
    );
}
