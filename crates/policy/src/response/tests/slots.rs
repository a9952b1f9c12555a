//! Lessons of one slot: scatter, an outlier, another load, and what comes back from memory.

use super::*;

const LOG: f64 = 16.0;

fn is_near(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-9
}

/// A slot that is so far from the usual.
fn make_slot_rates(deviation: f64) -> SlotRates {
    SlotRates { bytes_log: LOG + deviation, packets_log: 11.0 + deviation, ..SlotRates::default() }
}

/// A driver's policy that holds `step` and has seen `slots` slots there, and without a delay.
fn make_settled_policy(step: usize, slots: u32) -> ResponsePolicy {
    let mut policy = make_policy();
    for known in [0, step] {
        policy.load.steps[known].seen = make_slot_rates(0.0);
        policy.load.steps[known].slots = slots;
    }
    (policy.step, policy.settled_at) = (step, Some(step));
    policy.search = DelaySearch::Hold { step, slots: 100 };
    policy
}

/// Whether the last of these slots was another load.
fn is_new_load_detected(policy: &mut ResponsePolicy, deviations: &[f64], coarse: bool) -> bool {
    for deviation in deviations {
        policy.learn_slot(&make_slot_rates(*deviation), coarse, Nanos::from_s(1));
    }
    policy.settled_at.is_none()
}

#[test]
fn agreeing_outliers_are_another_load() {
    // The limit is 0.18.
    assert!(!is_new_load_detected(&mut make_settled_policy(0, 8), &[0.17, 0.17], false));
    assert!(!is_new_load_detected(&mut make_settled_policy(0, 8), &[0.2], false));
    assert!(is_new_load_detected(&mut make_settled_policy(0, 8), &[0.2, 0.39], false));
    assert!(!is_new_load_detected(&mut make_settled_policy(0, 8), &[0.2, 0.41], false));
    assert!(is_new_load_detected(&mut make_settled_policy(0, 8), &[-0.2, -0.3], false));
    assert!(!is_new_load_detected(&mut make_settled_policy(0, 8), &[0.2, -0.2], false));
    assert!(
        !is_new_load_detected(&mut make_settled_policy(0, 8), &[0.2, 0.0, 0.2], false),
        "not in a row"
    );
}

#[test]
fn long_sample_alone_is_another_load() {
    assert!(
        is_new_load_detected(&mut make_settled_policy(0, 8), &[0.4], true)
            && !is_new_load_detected(&mut make_settled_policy(0, 8), &[0.35], true)
    );
    assert!(!is_new_load_detected(&mut make_settled_policy(0, 8), &[0.4], false));
    assert!(is_new_load_detected(&mut make_settled_policy(0, 1), &[0.4], true));
    assert!(
        is_new_load_detected(&mut make_settled_policy(3, 2), &[0.4], true)
            && !is_new_load_detected(&mut make_settled_policy(3, 1), &[0.4], true)
    );
}

#[test]
fn frames_separate_loads_for_drivers() {
    for (sample_ms, is_another) in [(0, true), (50, false)] {
        let mut policy = make_settled_policy(0, 8);
        policy.sample = Nanos::from_ms(sample_ms);
        policy.load.learnt = 9;
        for _ in 0..2 {
            let merged = SlotRates { packets_log: 11.4, ..make_slot_rates(0.0) };
            policy.learn_slot(&merged, false, Nanos::from_s(1));
        }
        assert_eq!(policy.settled_at.is_none(), is_another, "{sample_ms}");
    }
}

#[test]
fn scatter_is_learnt_from_usual_slots() {
    let mut policy = make_settled_policy(0, 8);
    policy.learn_slot(&make_slot_rates(0.2), false, Nanos::from_s(1));
    policy.learn_slot(&make_slot_rates(-0.2), false, Nanos::from_s(1));
    assert!(is_near(policy.load.scatter[0], 0.03), "two may be another load's");
    assert!(is_near(policy.expected_scatter(), 0.0), "slots are short meanwhile");
    policy.learn_slot(&make_slot_rates(0.2), false, Nanos::from_s(1));
    assert!(is_near(policy.load.scatter[0], 0.03 + (0.25 - 0.03) / 4.0));
    assert!(is_near(policy.load.steps[0].seen.bytes_log, LOG) && policy.load.steps[0].slots == 8);
    // A usual slot, and then the outlier before it: it did not come twice.
    let mut policy = make_settled_policy(0, 8);
    policy.learn_slot(&make_slot_rates(0.2), false, Nanos::from_s(1));
    policy.learn_slot(&make_slot_rates(0.1), false, Nanos::from_s(1));
    let usual = 0.03 + (0.125 - 0.03) / 4.0;
    assert!(is_near(policy.load.scatter[0], usual + (0.25 - usual) / 5.0));
    assert_eq!((policy.outlier, policy.outlier_slots), (None, 0));
    assert!(is_near(policy.expected_scatter(), policy.load.scatter[0]));
    assert_eq!(policy.load.steps[0].slots, 9);
    // Many slots on each counts by a tenth, and outliers by a fifth.
    let mut policy = make_settled_policy(0, 8);
    policy.load.learnt = 100;
    policy.learn_slot(&make_slot_rates(0.1), false, Nanos::from_s(1));
    assert!(is_near(policy.load.scatter[0], 0.03 + (0.125 - 0.03) / 10.0));
    let mut policy = make_settled_policy(0, 8);
    policy.load.learnt = 100;
    assert!(!is_new_load_detected(&mut policy, &[0.2, -0.2, 0.2], false));
    assert!(is_near(policy.load.scatter[0], 0.03 + (0.25 - 0.03) / 5.0));
}

#[test]
fn first_slot_error_may_set_scatter() {
    for (error, scatter) in [(0.1, 0.1), (0.01, 0.03)] {
        let mut policy = make_policy();
        policy.learn_slot(&SlotRates { error, ..make_slot_rates(0.0) }, false, Nanos::from_s(1));
        assert!(is_near(policy.load.scatter[0], scatter));
        policy.learn_slot(
            &SlotRates { error: 0.9, ..make_slot_rates(0.0) },
            false,
            Nanos::from_s(1),
        );
        assert!(policy.load.scatter[0] <= scatter, "later ones show it by how far they are apart");
    }
}

#[test]
fn lone_first_sample_is_dropped() {
    let second = |sample_ms: u64, step: usize, deviation: f64| {
        let mut policy = make_settled_policy(step, 1);
        policy.sample = Nanos::from_ms(sample_ms);
        policy.learn_slot(&make_slot_rates(deviation), false, Nanos::from_s(1));
        let StepRates { seen, slots, .. } = policy.load.steps[0];
        (((seen.bytes_log - LOG) * 1e6).round() / 1e6, slots)
    };
    assert_eq!(second(50, 0, 0.5), (0.5, 1), "a part of a sample");
    assert_eq!(second(50, 0, 0.1), (0.05, 2), "the mean");
    assert_eq!(second(50, 0, -0.5), (-0.25, 2), "less is no beginning");
    assert_eq!(second(0, 0, 0.5), (0.0, 1), "polls are whole: an outlier");
    assert_eq!(second(50, 3, 0.5), (0.0, 1), "another step's slot");
    let mut policy = make_settled_policy(0, 2);
    policy.sample = Nanos::from_ms(50);
    policy.learn_slot(&make_slot_rates(0.5), false, Nanos::from_s(1));
    assert_eq!(policy.load.steps[0].slots, 3, "two are a beginning already");
}

#[test]
fn daemon_tests_delay_from_second_sample() {
    for (sample_ms, slots) in [(0, 1), (50, 2)] {
        let mut policy = make_policy();
        policy.sample = Nanos::from_ms(sample_ms);
        let moved: Vec<usize> = (0..slots)
            .map(|_| {
                policy.learn_slot(&make_slot_rates(0.0), false, Nanos::from_s(1));
                policy.step
            })
            .collect();
        assert_eq!(moved.last(), Some(&1), "{moved:?}");
        assert!(moved[..moved.len() - 1].iter().all(|step| *step == 0), "{moved:?}");
    }
    // Under a delay one is enough, and where the search ended before.
    let mut policy = make_settled_policy(0, 8);
    policy.sample = Nanos::from_ms(50);
    (policy.step, policy.search) = (1, DelaySearch::Test(StepTest::new(0, 1, STEPS)));
    policy.settled_at = None;
    policy.learn_slot(&make_slot_rates(0.0), false, Nanos::from_s(1));
    assert!(matches!(policy.search, DelaySearch::Test(StepTest { slots: 1, .. })));
    let mut policy = make_settled_policy(0, 0);
    policy.sample = Nanos::from_ms(50);
    policy.learn_slot(&make_slot_rates(0.0), false, Nanos::from_s(1));
    assert_eq!(policy.search, DelaySearch::Hold { step: 0, slots: 99 });
}

#[test]
fn small_packets_once_seen_are_looked_for() {
    let mut policy = make_settled_policy(0, 0);
    let beside = SlotRates { small_log: Some(7.0), ..make_slot_rates(0.0) };
    for _ in 0..2 {
        policy.learn_slot(&beside, false, Nanos::from_s(1));
        assert!(policy.load.has_small_packets);
    }
}

#[test]
fn returning_load_resumes() {
    let mut policy = make_settled_policy(3, 8);
    policy.hold_slots = 96;
    policy.load.peak_pps = 5e4;
    (policy.last, policy.sample) = (Some(Nanos::from_s(1)), Nanos::from_ms(50));
    policy.applied = policy.current_moderation().delay;
    let other = policy.forget_load("another");
    assert_eq!(other, Decision::Change { target: Moderation::default(), reason: "another" });
    assert_eq!((policy.step, policy.settled_at, policy.hold_slots), (0, None, 12));
    assert_eq!((policy.last, policy.sample), (Some(Nanos::from_s(1)), Nanos::from_ms(50)));
    policy.load.peak_pps = 7e4;
    let back = policy.learn_slot(&make_slot_rates(0.01), false, Nanos::from_s(1));
    assert!(matches!(back, Decision::Change { reason: "an earlier load is back", .. }));
    assert_eq!((policy.step, policy.hold_slots, policy.is_restored), (3, 96, true));
    assert_eq!(policy.search, DelaySearch::Hold { step: 3, slots: 100 });
    assert!(is_near(policy.load.peak_pps, 7e4), "the higher of both");
    // A slot confirms it, so that it is kept once more.
    policy.learn_slot(&make_slot_rates(0.0), false, Nanos::from_s(1));
    assert!(!policy.is_restored);
    policy.forget_load("another");
    policy.learn_slot(&make_slot_rates(0.0), false, Nanos::from_s(1));
    assert_eq!(policy.step, 3);
    // No slot confirmed it: it was mistaken for this one.
    policy.forget_load("another");
    for step in [0, 1] {
        policy.learn_slot(&make_slot_rates(0.0), false, Nanos::from_s(1));
        assert_eq!(policy.step, step, "the search begins");
    }
}

#[test]
fn higher_rate_bounds_the_return() {
    let mut policy = make_settled_policy(6, 8);
    policy.forget_load("another");
    policy.load.peak_pps = 1e7;
    policy.learn_slot(&make_slot_rates(0.0), false, Nanos::from_s(1));
    assert_eq!(policy.step, 3, "half of the ring lasts 12.8 us");
}

#[test]
fn higher_rate_shortens_the_delay_in_force() {
    let mut policy = make_settled_policy(3, 8);
    policy.last = Some(Nanos::from_s(1));
    policy.slot = TrafficSlot::from(Nanos::from_s(1));
    policy.applied = policy.current_moderation().delay;
    for step in [0, 3] {
        policy.load.steps[step].seen.bytes_log = 6.4e8_f64.ln();
    }
    // The same bytes, all of them in frames of 64 byte to one vector: 10 million a second.
    let mut sample = |ms: u64| {
        let now = Nanos::from_ms(1_000 + ms);
        let rx = TrafficCounts { packets: 100_000, bytes: 6_400_000 };
        let decision = policy.step(&QueueObservation {
            now,
            rx,
            interrupts: 95,
            ..QueueObservation::default()
        });
        (decision, policy.applied)
    };
    let (decision, applied) = sample(10);
    // Half of the ring lasts 12.8 us at 10 million packets/s.
    let within = Nanos::from_us(11)..=Nanos::from_ns(12_800);
    let target = Moderation::from_delay(applied);
    assert_eq!(decision, Decision::Change { target, reason: "the ring would overrun" });
    assert!(within.contains(&applied), "{applied}");
    assert_eq!(sample(20), (Decision::Keep, applied), "once");
}

#[test]
fn unfinished_search_resumes_but_not_neighbour_test() {
    let neighbour = StepTest { from: Some(2), ..StepTest::new(2, 3, STEPS) };
    for (settled_at, search, step) in [
        (Some(2), DelaySearch::Hold { step: 2, slots: 12 }, 2),
        (None, DelaySearch::Test(neighbour), 3),
    ] {
        let mut policy = make_settled_policy(3, 8);
        (policy.search, policy.settled_at) = (DelaySearch::Test(neighbour), settled_at);
        policy.forget_load("another");
        policy.learn_slot(&make_slot_rates(0.0), false, Nanos::from_s(1));
        assert_eq!((policy.search, policy.step), (search, step));
    }
}

#[test]
fn requests_beside_returning_bulk_restart() {
    let back = |requests: Option<f64>, slots: u32| {
        let mut policy = make_settled_policy(3, 8);
        (policy.load.requests, policy.hold_slots) = (requests, 96);
        policy.search = DelaySearch::Hold { step: 3, slots };
        policy.forget_load("another");
        policy.load.requests = Some(7.0);
        policy.learn_slot(&make_slot_rates(0.0), false, Nanos::from_s(1));
        (policy.load.requests, policy.search, policy.hold_slots, policy.up)
    };
    let hold = |slots| DelaySearch::Hold { step: 3, slots };
    assert_eq!(back(Some(2000.0), 90), (Some(7.0), hold(12), 12, true));
    assert_eq!(back(Some(2000.0), 5), (Some(7.0), hold(5), 12, true));
    assert_eq!(back(None, 90), (None, hold(90), 96, false));
}

#[test]
fn ninety_six_polls_are_a_coarse_sample() {
    for (polls, forgets) in [(95, false), (96, true)] {
        let mut policy = make_settled_policy(0, 8);
        policy.load.learnt = 9;
        policy.last = Some(Nanos::from_s(1));
        policy.slot = TrafficSlot::from(Nanos::from_s(1));
        // 0.4 more than usual.
        let bytes =
            u32::try_from(Nanos::from_secs_f64((LOG + 0.4).exp() * 10e-12).as_ns()).unwrap();
        policy.step(&QueueObservation {
            now: Nanos::from_ms(1_010),
            rx: TrafficCounts { packets: 600, bytes },
            interrupts: polls,
            ..QueueObservation::default()
        });
        assert_eq!(policy.settled_at.is_none(), forgets, "{polls}");
    }
}
