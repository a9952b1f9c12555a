//! The parts of round trips and of kilobytes, and what of CPU time runs beside them.

use latput_knobs::{Knob, Setting, Value};
use latput_trial::{Traffic, Workload};
use latput_units::Nanos;

use super::*;
use crate::fit::fit_cost_models;
use crate::synthetic::{SyntheticFigures, build_results, rr_workload, stream_workload};

/// Results of one request in flight and of seventeen, under delays of 0 and 50 us; each end uses the given CPU time of a
/// transaction, in microseconds.
fn delayed_results(trip_us: [[f64; 2]; 2], cpu_us: f64) -> Results {
    let loads =
        [Workload::plain("one", Traffic::tcp_rr(0)), Workload::plain("many", Traffic::tcp_rr(16))];
    let mut made = build_results(&["0", "50"], &loads, 6, |setting, workload| {
        round_trip_figures(trip_us[setting][workload], cpu_us)
    });
    set_knobs(&mut made, &[&[delay_knob(0)], &[delay_knob(50)]]);
    add_generator(&mut made, cpu_us);
    made
}

/// Round trips of this mean: 0.51 of their 99th percentile.
fn round_trip_figures(mean_us: f64, service_demand_us: f64) -> SyntheticFigures {
    SyntheticFigures { rate: 1000.0, p99_us: Some(mean_us / 0.51), service_demand_us }
}

/// A generator like the system under test, with CPU time of its own.
fn add_generator(made: &mut Results, cpu_us: f64) {
    for row in &mut made.rows {
        let mut generator = row.observation.hosts[0].clone();
        generator.role = Role::Generator;
        // A thousand transactions a second.
        generator.cpus[0].time.system = Nanos::from_secs_f64(cpu_us / 1e3);
        row.observation.hosts.push(generator);
    }
}

/// One setting for each list of knobs; those of the SUT.
fn set_knobs(made: &mut Results, values: &[&[(Knob, Value)]]) {
    for (set, values) in made.settings.iter_mut().zip(values) {
        set.by_role.insert(Role::Sut, values.iter().cloned().collect::<Setting>());
    }
}

fn delay_knob(us: u64) -> (Knob, Value) {
    (Knob::RxUsecs, Value::Time(Nanos::from_us(us)))
}

fn find_cell(made: &Results, at: (usize, usize)) -> CellExplanation {
    let explained = explain_cells(made, &[]);
    explained.into_iter().find(|cell| (cell.setting, cell.workload) == at).unwrap()
}

/// Checks the parts of a cell, in microseconds.
#[track_caller]
fn check_parts(cell: &CellExplanation, expected: &[(PathStage, f64)]) {
    let found: Vec<(PathStage, f64)> =
        cell.parts.iter().filter(|part| part.ns > 1.0).map(|part| (part.stage, part.ns)).collect();
    assert_eq!(found.len(), expected.len(), "{cell:?}");
    for ((stage, ns), (wanted, us)) in found.into_iter().zip(expected) {
        assert!(stage == *wanted && (ns / 1e3 - us).abs() < 0.03 * us + 0.5, "{cell:?}");
    }
    let sum: f64 = cell.parts.iter().map(|part| part.ns).sum();
    assert!((sum - cell.whole_ns.unwrap()).abs() < 1e-3, "{cell:?}");
}

#[test]
fn parts_of_round_trip_add_up() {
    let made = delayed_results([[30.0, 100.0], [80.0, 150.0]], 4.0);
    let one = find_cell(&made, (0, 0));
    check_parts(&one, &[(PathStage::Cpu, 8.0), (PathStage::Rest, 22.0)]);
    assert!(one.beside_ns.abs() < 1e-6 && one.unit == WorkUnit::Transaction, "{one:?}");
    let delayed = find_cell(&made, (1, 0));
    let parts = [(PathStage::Moderation, 50.0), (PathStage::Cpu, 8.0), (PathStage::Rest, 22.0)];
    check_parts(&delayed, &parts);
    let many = find_cell(&made, (1, 1));
    let parts = [
        (PathStage::Moderation, 50.0),
        (PathStage::Queueing, 70.0),
        (PathStage::Cpu, 8.0),
        (PathStage::Rest, 22.0),
    ];
    check_parts(&many, &parts);
    assert_eq!(many.parts[0].basis, PartBasis::Compared);
    assert!(many.parts[0].interval.is_some() && many.missing.is_empty(), "{many:?}");
}

#[test]
fn cpu_time_above_the_round_trip_is_beside() {
    let made = delayed_results([[39.0, 39.0], [39.0, 39.0]], 22.0);
    let one = find_cell(&made, (0, 0));
    check_parts(&one, &[(PathStage::Cpu, 39.0)]);
    assert!((one.beside_ns / 1e3 - 5.0).abs() < 0.5, "{one:?}");
    assert!((one.sut_cpu_ns.unwrap() / 1e3 - 22.0).abs() < 0.1, "{one:?}");
}

#[test]
fn time_saving_delay_is_no_part() {
    let made = delayed_results([[20.0, 80.0], [70.0, 60.0]], 4.0);
    let many = find_cell(&made, (1, 1));
    let parts = [(PathStage::Queueing, 40.0), (PathStage::Cpu, 8.0), (PathStage::Rest, 12.0)];
    check_parts(&many, &parts);
}

#[test]
fn unvaried_plan_names_what_it_lacks() {
    let loads = [Workload::plain("many", Traffic::tcp_rr(16))];
    let made = build_results(&["as it is"], &loads, 3, |_, _| round_trip_figures(100.0, 5.0));
    let cell = find_cell(&made, (0, 0));
    // The generator's CPU time is in the rest.
    check_parts(&cell, &[(PathStage::Cpu, 5.0), (PathStage::Rest, 95.0)]);
    let lacks = |stage: &str| cell.missing.iter().any(|why| why.starts_with(stage));
    assert!(lacks("moderation:") && lacks("queueing:") && lacks("CPU time:"), "{cell:?}");
}

#[test]
fn cpu_time_shared_with_other_work_is_unknown() {
    let mut made = delayed_results([[30.0, 100.0], [80.0, 150.0]], 4.0);
    for row in &mut made.rows {
        let (name, detail) = ("other-work".to_owned(), String::new());
        let passed = row.block == 0;
        row.observation.checks.push(latput_trial::Check { name, passed, detail });
    }
    let one = find_cell(&made, (0, 0));
    assert!(one.is_shared && one.sut_cpu_ns.is_none(), "{one:?}");
    check_parts(&one, &[(PathStage::Rest, 30.0)]);
}

#[test]
fn kilobyte_is_of_the_busier_end() {
    let mut made = build_results(&["a"], &[stream_workload("bulk")], 4, |_, _| SyntheticFigures {
        rate: 8.0 * 1024.0 * 1e6 / 10.0, // 10 us for a kilobyte
        p99_us: None,
        service_demand_us: 6.0,
    });
    for row in &mut made.rows {
        let mut generator = row.observation.hosts[0].clone();
        generator.role = Role::Generator;
        generator.cpus[0].time.system = Nanos::from_ms(900);
        row.observation.hosts.push(generator);
    }
    let cell = find_cell(&made, (0, 0));
    assert_eq!(cell.unit, WorkUnit::Kilobyte);
    check_parts(&cell, &[(PathStage::Cpu, 9.0), (PathStage::Rest, 1.0)]);
    assert!((cell.beside_ns / 1e3 - 6.0).abs() < 0.1, "the other end: {cell:?}");
}

#[test]
fn stages_share_the_measured_cpu_time() {
    let loads = [Workload::plain("many", Traffic::tcp_rr(16))];
    let labels = ["a", "b", "c", "d", "e", "f"];
    let mut made = build_results(&labels, &loads, 2, |setting, _| {
        round_trip_figures(100.0, 2.0 + (setting % 3) as f64)
    });
    // 2 us of a packet, and 1 us of each interrupt.
    for row in &mut made.rows {
        let host = &mut row.observation.hosts[0];
        host.interface.rx_packets = 1000;
        host.interrupts = 1000 * (row.setting as u64 % 3);
    }
    let models = fit_cost_models(&made, |_| true, 0.95).unwrap();
    let explained = explain_cells(&made, &models);
    let cell = explained.iter().find(|cell| cell.setting == 2).unwrap();
    let part = |stage| cell.parts.iter().find(|part| part.stage == stage).unwrap();
    let (interrupt, all) = (part(PathStage::Interrupt), cell.sut_cpu_ns.unwrap());
    assert_eq!(interrupt.basis, PartBasis::Modelled);
    assert!((interrupt.ns / all - 0.5).abs() < 0.02, "{cell:?}");
    assert!(cell.parts.iter().all(|part| part.stage != PathStage::Cpu), "{cell:?}");
    let effects = predict_effects(&made, &models);
    let saved = effects.iter().find(|it| it.term == CostTerm::Interrupt).unwrap();
    // In the middle setting a third of the time is interrupts'.
    assert!((saved.saved_ratio - 1.0 / 6.0).abs() < 0.01, "{saved:?}");
    assert!(saved.saved_ratio_low <= saved.saved_ratio && saved.saved_ratio_high <= 0.5);
    assert!(effects.iter().all(|it| it.term != CostTerm::PacketReceived), "of one byte each");
    assert!(predict_effects(&made, &[]).is_empty());
    made.workloads[0].traffic = Traffic::tcp_rr(0);
    assert!(predict_effects(&made, &models).is_empty(), "one request needs its interrupt");
}

#[test]
fn parts_of_noisy_runs_never_exceed_the_whole() {
    let mut rng = latput_units::SeededRng::from_seed(7);
    let mut parts = 0;
    for _ in 0..60 {
        let mut draw = |size: f64| size * crate::synthetic::noise_factor(&mut rng, 0.8);
        let trips = [[draw(30.0), draw(100.0)], [draw(60.0), draw(120.0)]];
        let made = delayed_results(trips, draw(10.0));
        for cell in explain_cells(&made, &fit_cost_models(&made, |_| true, 0.95).unwrap()) {
            let whole = cell.whole_ns.unwrap();
            let sum: f64 = cell.parts.iter().map(|part| part.ns).sum();
            assert!((sum / whole - 1.0).abs() < 1e-9 && cell.beside_ns >= 0.0, "{cell:?}");
            for part in &cell.parts {
                let ends = part.interval.map_or([part.ns; 2], |it| [it.ns_low, it.ns_high]);
                assert!(
                    [0.0, ends[0], part.ns, ends[1], whole * 1.000_001].is_sorted(),
                    "{part:?}"
                );
                parts += 1;
            }
        }
    }
    assert!(parts > 500, "{parts}");
}

#[test]
fn moderation_is_compared_with_least_delay_setting() {
    let mtu = |mtu| (Knob::Mtu, Value::Count(mtu));
    let mut made = build_results(&["a", "b", "c", "d"], &[rr_workload("one")], 6, |setting, _| {
        round_trip_figures([150.0, 100.0, 90.0, 70.0][setting], 1.0)
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
    let moderation = |setting| {
        let cell = find_cell(&made, (setting, 0));
        let part = cell.parts.iter().find(|part| part.stage == PathStage::Moderation);
        (part.map(|part| (part.ns / 1e4).round()), cell.missing.len())
    };
    assert_eq!((moderation(0), moderation(1)), ((Some(6.0), 1), (Some(1.0), 1)));
    // Those with the least delay have none to compare with.
    assert_eq!((moderation(2), moderation(3)), ((None, 2), (None, 2)));
}

#[test]
fn delay_that_the_host_had_counts() {
    let mut made = delayed_results([[30.0, 100.0], [80.0, 150.0]], 4.0);
    set_knobs(&mut made, &[&[], &[]]);
    for row in &mut made.rows {
        let us = 7 * row.setting as u64;
        let key = ((Knob::RxUsecs, latput_knobs::Place::Device), Value::Time(Nanos::from_us(us)));
        row.observation.hosts[0].state.0.extend([key]);
    }
    assert!(find_cell(&made, (0, 0)).parts.iter().all(|it| it.stage != PathStage::Moderation));
    let delayed = find_cell(&made, (1, 0));
    assert_eq!(delayed.parts[0].stage, PathStage::Moderation, "{delayed:?}");
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
    for cpu in &mut made.rows[3].observation.hosts[0].cpus {
        cpu.time = CpuTime::default();
    }
    assert_eq!(busiest_cpu_ratio(&made, 0, 0), Some(0.3));
    made.rows.truncate(0);
    assert_eq!(busiest_cpu_ratio(&made, 0, 0), None);
}

#[test]
fn one_request_matches_by_kind_and_size() {
    let crr = |connections, request| Traffic::TcpCrr {
        request_bytes: latput_units::Bytes::new(request),
        response_bytes: latput_units::Bytes::new(1),
        connections,
        threads: connections,
        nodelay: true,
    };
    assert_eq!(crr(8, 64).with_one_request(), Some(crr(1, 64)));
    assert_eq!(crate::synthetic::udp_workload("paced").traffic.with_one_request(), None);
}
