//! One decision at a time, from rates that are set by hand: 100 000 packets/s of 100 byte without a delay, on rungs
//! of 0, 4, 8, 16, 32, 64 and 100 us.

use super::*;
use crate::Moderation;
use crate::response::{DelayBounds, SlotRates};

/// The loss that is allowed.
const ALLOWED: f64 = 0.02;
/// Of two steps with eight slots each: the first scatter, halved.
const ERROR: f64 = 0.015;
const PPS: f64 = 1e5;

/// A policy whose steps from 0 on lost so much (logarithm) beside no delay, in eight slots each.
fn make_policy(losses: &[f64]) -> ResponsePolicy {
    let mut policy = ResponsePolicy::new(DelayBounds::default());
    for (step, loss) in policy.load.steps.iter_mut().zip(losses) {
        step.slots = 8;
        step.seen = SlotRates {
            bytes_log: (100.0 * PPS).ln() - loss,
            packets_log: PPS.ln() - loss,
            ..SlotRates::default()
        };
    }
    policy
}

fn is_near(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-9
}

fn make_hold(step: usize, slots: u32) -> DelaySearch {
    DelaySearch::Hold { step, slots }
}

/// The steps and the ceiling of the test that goes on.
fn current_test(policy: &ResponsePolicy) -> Option<(usize, usize, usize)> {
    match policy.search {
        DelaySearch::Test(StepTest { low, high, ceiling, .. }) => Some((low, high, ceiling)),
        DelaySearch::Hold { .. } => None,
    }
}

/// Begins a test at its higher step; the next slot is its last, if `is_over`.
fn on_test(policy: &mut ResponsePolicy, test: StepTest, is_over: bool) -> Decision {
    policy.step = test.high;
    let slots = if is_over { 5 } else { 2 };
    let test = StepTest { slots, start: Some(Nanos::ZERO), ..test };
    policy.continue_test(test, if is_over { Nanos::from_ms(12) } else { Nanos::from_ms(11) })
}

#[test]
fn request_loss_is_normal_posterior() {
    let params = ResponseParams::DEFAULT;
    let check = |seen, mean: f64, error: f64| {
        let found = posterior_loss(seen, 0.4, &params);
        assert!(is_near(found.0, mean) && is_near(found.1, error), "{seen:?}: {found:?}");
    };
    // The prior is 0.4 with an error of 0.1.
    check(None, 0.4, 0.1);
    check(Some((0.2, 0.1)), 0.3, 0.1 / 2.0_f64.sqrt());
    // Precisions of 100 and 25.
    check(Some((0.1, 0.2)), (0.4 * 100.0 + 0.1 * 25.0) / 125.0, 1.0 / 125.0_f64.sqrt());
    check(Some((9.0, 0.1)), 0.6, 0.1 / 2.0_f64.sqrt());
    check(Some((-9.0, 0.1)), 0.0, 0.1 / 2.0_f64.sqrt());
    assert!(is_near(posterior_loss(Some((0.0, 0.0)), 0.0, &params).0, 0.0));
}

#[test]
fn closed_loop_loses_by_round_trip() {
    let policy = make_policy(&[0.0, 0.0, 0.0, 0.0]);
    assert!(is_near(policy.closed_loop_loss(0, 1), (14.0_f64 / 10.0).ln()));
    assert!(is_near(policy.closed_loop_loss(1, 3), (22.0_f64 / 10.0).ln()));
}

#[test]
fn byte_loss_is_beyond_allowance() {
    let mut policy = make_policy(&[0.0, 0.1]);
    policy.load.steps[1].slots = 2;
    let [bytes, small] = policy.estimate_excess_losses(0, 1);
    assert!(is_near(bytes.0, 0.1 - ALLOWED) && is_near(bytes.1, 0.03 * (0.125_f64 + 0.5).sqrt()));
    assert_eq!(small, (f64::NEG_INFINITY, 0.0), "there are no small packets");
    policy.load.steps[0].spent = 0.015;
    assert!(is_near(policy.estimate_excess_losses(0, 1)[0].0, 0.1 - 0.005));
}

#[test]
fn small_packets_beside_bulk_lose_by_themselves() {
    let mut policy = make_policy(&[0.0, 0.1]);
    policy.load.scatter[1] = 0.06;
    let mut loss = |small: [Option<f64>; 2], bytes: f64, is_sampled: bool| {
        policy.load.is_sampled = is_sampled;
        policy.sample = if is_sampled { Nanos::from_ms(50) } else { Nanos::ZERO };
        policy.load.learnt = 9;
        for (step, small_log) in policy.load.steps.iter_mut().zip(small) {
            step.seen.small_log = small_log;
        }
        policy.load.steps[1].seen.bytes_log = policy.load.steps[0].seen.bytes_log - bytes;
        let [_, (loss, error)] = policy.estimate_excess_losses(0, 1);
        assert!(error <= 0.0 || is_near(error, 2.0 * ERROR));
        loss
    };
    let log = 1e4_f64.ln();
    assert!(is_near(loss([Some(log), Some(log - 0.3)], 0.1, false), 0.3 - ALLOWED));
    assert!(is_near(loss([Some(log), Some(log - 0.3)], -0.1, false), 0.2 - ALLOWED), "bulk gained");
    assert!(is_near(loss([Some(log), None], 0.0, false), 0.4 - ALLOWED), "they have gone");
    assert!(loss([None, Some(log)], 0.0, false) < -1e9, "they were not there");
    // Requests lose at most twice what waiting for 4 us costs 10 000/s.
    let most = 2.0 * 1.04_f64.ln();
    assert!(is_near(loss([Some(log), Some(log - 0.3)], 0.1, true), most - ALLOWED));
    assert!(is_near(loss([Some(log), Some(log - 0.05)], 0.1, true), 0.05 - ALLOWED));
    assert!(is_near(loss([Some(log), Some(log - 0.3)], -0.01, true), most - 0.01 - ALLOWED));
}

#[test]
fn requests_wait_until_shown_otherwise() {
    let mut policy = make_policy(&[0.0, 0.0]);
    policy.load.requests = Some(2e4);
    let waits = 1.08_f64.ln();
    let [_, small] = policy.estimate_excess_losses(0, 1);
    assert!(is_near(small.0, waits - ALLOWED) && is_near(small.1, waits / 4.0));
    assert!(policy.delays_requests(0, 1));
    assert!(!policy.delays_requests(1, 1));
    // Gains of bulk beyond its error count for the delay.
    policy.load.steps[1].seen.bytes_log += 0.1;
    let [_, gained] = policy.estimate_excess_losses(0, 1);
    assert!(is_near(gained.0, waits - (0.1 - ERROR) - ALLOWED));
    assert!(!policy.delays_requests(0, 1));
    policy.load.steps[1].seen.bytes_log -= 0.2;
    assert!(
        is_near(policy.estimate_excess_losses(0, 1)[1].0, waits - ALLOWED),
        "a loss of bulk is its own"
    );
    // Seen without any loss, and exactly so.
    for step in &mut policy.load.steps[..2] {
        step.seen.small_log = Some(2e4_f64.ln());
    }
    let error = policy.load.scatter[1] / 2.0;
    let precisions = [(4.0 / waits).powi(2), error.powi(-2)];
    let mean = waits * precisions[0] / (precisions[0] + precisions[1]);
    assert!(is_near(policy.estimate_excess_losses(0, 1)[1].0, mean - ALLOWED));
}

#[test]
fn requests_wait_where_delay_costs_more() {
    let mut policy = make_policy(&[0.0, 0.0]);
    policy.load.requests = Some(2e4);
    assert!(policy.delays_requests(0, 1));
    policy.load.steps[0].slots = 0;
    assert!(!policy.delays_requests(0, 1), "nothing to compare with");
    policy.load.steps[0].slots = 8;
    // Small packets that are not known to be requests may be the ends of bulk's messages.
    policy.load.requests = None;
    policy.load.steps[0].seen.small_log = Some(2e4_f64.ln());
    policy.load.steps[1].seen.small_log = Some(1e4_f64.ln());
    assert!(policy.estimate_excess_losses(0, 1)[1].0 > 0.5 && !policy.delays_requests(0, 1));
    // No delay costs nothing, which is within even the bounds of an owner who allows no loss.
    policy.load.requests = Some(2e4);
    policy.bounds.loss_ratio = 0.0;
    assert!(policy.delays_requests(0, 1) && !policy.delays_requests(0, 0));
}

#[test]
fn step_is_judged_once_loss_is_clear() {
    use TestResult::{Bad, Good, Open, Unclear};
    let test = StepTest::new(0, 1, STEPS);
    let below = StepTest { from: Some(1), ..test };
    let above = StepTest { from: Some(0), ..test };
    // Standard errors beyond the allowed loss; each half of one to both sides of a limit.
    for (errors, first, last, from_below, from_above) in [
        (-1.1, Good, Good, Good, Good),
        (-0.9, Open, Good, Good, Open),
        (0.9, Open, Good, Good, Open),
        (1.1, Open, Unclear, Open, Bad),
        (1.9, Open, Unclear, Open, Bad),
        (2.1, Bad, Bad, Bad, Bad),
    ] {
        let policy = make_policy(&[0.0, ALLOWED + errors * ERROR]);
        assert_eq!(policy.result_of(test, false), first, "{errors}");
        assert_eq!(policy.result_of(test, true), last, "{errors}");
        assert_eq!(policy.result_of(below, false), from_below, "{errors} below");
        assert_eq!(policy.result_of(above, false), from_above, "{errors} above");
    }
}

#[test]
fn few_good_samples_may_be_chance() {
    let chance = |loss: f64, slots: [u32; 2], is_sampled: bool, from: Option<usize>| {
        let mut policy = make_policy(&[0.0, loss]);
        policy.sample = if is_sampled { Nanos::from_ms(50) } else { Nanos::ZERO };
        for (step, slots) in policy.load.steps.iter_mut().zip(slots) {
            step.slots = slots;
        }
        policy.may_be_chance(StepTest { from, ..StepTest::new(0, 1, STEPS) })
    };
    // A closed loop loses 0.336, and half of that is a sign of one.
    assert!(chance(0.16, [2, 8], true, None) && chance(0.16, [8, 2], true, None));
    assert!(!chance(0.17, [2, 8], true, None), "a closed loop");
    assert!(!chance(0.16, [3, 3], true, None), "three samples show the scatter");
    assert!(!chance(0.16, [2, 8], false, None), "a slot of polls shows it by itself");
    assert!(!chance(0.16, [2, 8], true, Some(0)), "a neighbour");
    let mut policy = make_policy(&[0.0, 0.1]);
    policy.sample = Nanos::from_ms(50);
    policy.load.steps[1].slots = 2;
    policy.load.requests = Some(1e5);
    assert!(!policy.may_be_chance(StepTest::new(0, 1, STEPS)), "requests wait");
}

#[test]
fn test_visits_best_lower_and_highest_steps() {
    let policy = make_policy(&[0.02, 0.01, 0.02, 0.03, 0.02, 0.5, 0.05]);
    assert_eq!(policy.best_below(4), 1);
    assert_eq!(policy.best_below(1), 0, "none below had more: three lower, or none");
    // 6 lost 0.02 more than is allowed, at errors of 0.015; 5 far more.
    assert_eq!(policy.best_above(3), 6);
    assert_eq!(policy.best_above(1), 6);
    let mut steep = policy.clone();
    steep.load.steps[6].seen.bytes_log -= 0.05;
    assert_eq!(steep.best_above(1), 4);
    steep.load.steps[4].slots = 0;
    assert_eq!((steep.best_above(1), steep.best_above(3)), (3, 4));
    let mut even = policy;
    even.load.steps.iter_mut().for_each(|step| step.seen.bytes_log = 1.0);
    assert_eq!(even.best_below(5), 2, "three lower");
    even.load.steps[0].seen.bytes_log = 2.0;
    even.load.steps[0].slots = 0;
    assert_eq!(even.best_below(5), 2, "a rate that was not measured");
}

#[test]
fn good_step_is_followed_by_higher() {
    let mut policy = make_policy(&[0.0, 0.012 + ERROR]);
    on_test(&mut policy, StepTest::new(0, 1, STEPS), true);
    assert_eq!((current_test(&policy), policy.step), (Some((1, 4, STEPS)), 4), "three rungs up");
    assert!(is_near(policy.load.steps[1].spent, 0.012), "beyond its error");
    // The owner's longest delay is rung 6.
    let mut policy = self::make_policy(&[0.0, 0.0, 0.0, 0.0, 0.0]);
    on_test(&mut policy, StepTest::new(1, 4, STEPS), true);
    assert_eq!(current_test(&policy), Some((4, 6, STEPS)));
    // Rung 4 is known to be too high: the middle.
    let mut policy = self::make_policy(&[0.0, 0.0]);
    policy.load.steps[0].spent = 0.01;
    on_test(&mut policy, StepTest::new(0, 1, 4), true);
    assert_eq!(current_test(&policy), Some((1, 2, 4)));
    assert!(is_near(policy.load.steps[1].spent, 0.01), "nothing was lost on this way");
    // Nothing is between.
    let mut policy = self::make_policy(&[0.0, 0.0, 0.0]);
    on_test(&mut policy, StepTest::new(0, 1, 2), true);
    assert_eq!((policy.search, policy.step), (make_hold(1, 12), 1));
    // The ring allows rung 3, and the middle is rung 4.
    let mut policy = self::make_policy(&[0.0; 3]);
    policy.load.peak_pps = 1e7;
    on_test(&mut policy, StepTest::new(1, 2, 6), true);
    assert_eq!((policy.search, policy.step), (make_hold(2, 12), 2));
    // At most the allowance is spent, and a neighbour below spends nothing.
    let mut policy = self::make_policy(&[0.0, 0.02 + ERROR]);
    policy.load.steps[0].spent = 0.0;
    policy.load.steps[1].spent = 0.003;
    on_test(&mut policy, StepTest { from: Some(1), ..StepTest::new(0, 1, 2) }, false);
    assert!(is_near(policy.load.steps[1].spent, 0.003));
}

#[test]
fn bad_step_leads_to_middle_or_end() {
    // Rung 4 loses, rung 1 is good.
    let mut policy = make_policy(&[0.0, 0.0, 0.0, 0.0, 0.9]);
    policy.hold_slots = 48;
    on_test(&mut policy, StepTest::new(1, 4, STEPS), false);
    assert_eq!((current_test(&policy), policy.step, policy.hold_slots), (Some((1, 2, 4)), 2, 48));
    // The test of a lower neighbour: what held was bad, so that the next hold is short.
    let mut policy = self::make_policy(&[0.0, 0.0, 0.0, 0.0, 0.9]);
    policy.hold_slots = 48;
    on_test(&mut policy, StepTest { from: Some(4), ..StepTest::new(1, 4, 5) }, false);
    assert_eq!((current_test(&policy), policy.hold_slots), (Some((1, 2, 4)), 12));
    // Next to each other.
    let mut policy = self::make_policy(&[0.0, 0.9]);
    policy.hold_slots = 48;
    on_test(&mut policy, StepTest { from: Some(1), ..StepTest::new(0, 1, 2) }, false);
    assert_eq!((policy.search, policy.step, policy.hold_slots), (make_hold(0, 12), 0, 24));
    // A higher neighbour: the step holds on, and twice as long the next time.
    let mut policy = self::make_policy(&[0.0, 0.0, 0.9, 0.0, 0.9]);
    policy.hold_slots = 48;
    on_test(&mut policy, StepTest { from: Some(1), ..StepTest::new(1, 4, STEPS) }, false);
    assert_eq!((policy.search, policy.step, policy.hold_slots), (make_hold(1, 48), 1, 96));
}

#[test]
fn unclear_loss_is_tested_higher() {
    let unclear = ALLOWED + 1.5 * ERROR;
    // At the end of a test.
    let mut policy = make_policy(&[0.0, unclear]);
    on_test(&mut policy, StepTest::new(0, 1, STEPS), true);
    assert_eq!((current_test(&policy), policy.step), (Some((0, 4, STEPS)), 4));
    // Where a higher step is known to be bad there is the middle only, and next to each other none.
    let mut policy = self::make_policy(&[0.0, 0.0, 0.0, unclear]);
    on_test(&mut policy, StepTest::new(0, 3, 5), true);
    assert_eq!(current_test(&policy), Some((0, 1, 3)));
    let mut policy = self::make_policy(&[0.0, unclear]);
    on_test(&mut policy, StepTest::new(0, 1, 2), true);
    assert_eq!(policy.search, make_hold(0, 12));
    // A neighbour's test ends.
    let mut policy = self::make_policy(&[0.0, unclear]);
    on_test(&mut policy, StepTest { from: Some(0), ..StepTest::new(0, 1, STEPS) }, true);
    assert_eq!(policy.search, make_hold(0, 12));
    // The longest delay: there is nothing above.
    let mut policy = self::make_policy(&[0.0, 0.0, 0.0, 0.0, 0.0, 0.0, unclear]);
    on_test(&mut policy, StepTest::new(2, 6, STEPS), true);
    assert_eq!(current_test(&policy), Some((2, 4, 6)));
}

#[test]
fn open_test_climbs_without_loss() {
    let mut policy = make_policy(&[0.0, ALLOWED + 0.5 * ERROR]);
    on_test(&mut policy, StepTest::new(0, 1, STEPS), false);
    assert_eq!(
        current_test(&policy),
        Some((0, 4, STEPS)),
        "within an error: a longer delay tells more"
    );
    let lossy = ALLOWED + 1.5 * ERROR;
    let mut policy = self::make_policy(&[0.0, lossy]);
    let decision = on_test(&mut policy, StepTest::new(0, 1, STEPS), false);
    assert_eq!((current_test(&policy), policy.step), (Some((0, 1, STEPS)), 0));
    let target = Moderation::from_delay(Nanos::ZERO);
    assert_eq!(decision, Decision::Change { target, reason: "a test of a neighbouring delay" });
    let DelaySearch::Test(test) = policy.search else { panic!("{:?}", policy.search) };
    assert_eq!((test.slots, test.start), (3, Some(Nanos::ZERO)));
    policy.continue_test(test, Nanos::from_ms(11));
    assert_eq!(policy.step, 1, "and back");
    // Below a ceiling, at the first slot, or at the longest delay there is no climb.
    let mut policy = self::make_policy(&[0.0, ALLOWED]);
    on_test(&mut policy, StepTest::new(0, 1, 2), false);
    assert_eq!(current_test(&policy), Some((0, 1, 2)));
    let mut policy = self::make_policy(&[0.0, ALLOWED]);
    policy.step = 1;
    policy.continue_test(StepTest::new(0, 1, STEPS), Nanos::from_ms(9));
    assert_eq!((current_test(&policy), policy.step), (Some((0, 1, STEPS)), 0));
    let DelaySearch::Test(test) = policy.search else { panic!("{:?}", policy.search) };
    assert_eq!((test.slots, test.start), (1, Some(Nanos::from_ms(9))), "the test begins");
}

#[test]
fn test_ends_after_slots_and_time() {
    let unclear = ALLOWED + 1.5 * ERROR;
    for (slots, ms, is_over) in [(5, 12, true), (4, 99, false), (5, 11, false)] {
        let mut policy = make_policy(&[0.0, unclear]);
        policy.step = 1;
        let test = StepTest { slots, start: Some(Nanos::ZERO), ..StepTest::new(0, 1, 2) };
        policy.continue_test(test, Nanos::from_ms(ms));
        assert_eq!(current_test(&policy).is_none(), is_over, "{slots} {ms}");
    }
}

#[test]
fn step_without_slots_gets_one_first() {
    for slots in [0, 2] {
        let mut policy = make_policy(&[0.0]);
        policy.continue_test(StepTest { slots, ..StepTest::new(0, 1, STEPS) }, Nanos::ZERO);
        assert_eq!((current_test(&policy), policy.step), (Some((0, 1, STEPS)), 1), "{slots}");
    }
    let mut policy = self::make_policy(&[0.0, 0.0]);
    policy.load.steps[0].slots = 0;
    policy.step = 1;
    policy.continue_test(StepTest::new(0, 1, STEPS), Nanos::ZERO);
    assert_eq!(policy.step, 0);
}

#[test]
fn ring_bounds_a_test() {
    // Half of the ring lasts 12.8 us at 10 million packets/s: rung 3 is the highest.
    let mut policy = make_policy(&[0.0; 7]);
    policy.load.peak_pps = 1e7;
    assert_eq!(policy.highest_step(), 3);
    policy.step = 4;
    policy.continue_test(StepTest::new(1, 4, 6), Nanos::ZERO);
    assert_eq!((current_test(&policy), policy.step), (Some((1, 3, 6)), 3));
    policy.continue_test(StepTest::new(3, 5, STEPS), Nanos::ZERO);
    assert_eq!((policy.search, policy.step), (make_hold(3, 12), 3));
    policy.search = make_hold(5, 7);
    policy.continue_search(Nanos::ZERO);
    assert_eq!(policy.search, make_hold(3, 24));
}

#[test]
fn unwaiting_bulk_is_tested_three_rungs_up() {
    let far = |change: &dyn Fn(&mut ResponsePolicy, &mut StepTest)| {
        let mut policy = make_policy(&[0.0, 0.1, 0.0, 0.2]);
        policy.load.steps[0].seen.is_bulk = true;
        let mut test = StepTest::new(0, 1, STEPS);
        change(&mut policy, &mut test);
        policy.step = test.high;
        let went = policy.probe_far(test).is_some();
        assert_eq!(went, policy.step == 3 && current_test(&policy) == Some((0, 3, STEPS)));
        assert!(!went || policy.load.steps[3].slots == 2, "what was seen there is old");
        went
    };
    assert!(far(&|_, _| ()));
    assert!(!far(&|policy, _| policy.load.steps[0].seen.is_bulk = false), "small packets");
    assert!(!far(&|policy, _| policy.load.steps[1].seen.bytes_log -= 0.1), "a closed loop");
    assert!(!far(&|_, test| test.from = Some(1)), "the delay held, and is bad");
    assert!(!far(&|_, test| test.ceiling = 2), "higher up it was bad");
    assert!(!far(&|policy, test| (test.low, test.high, policy.step) = (1, 2, 2)), "not the first");
    assert!(!far(&|policy, _| policy.load.peak_pps = 2.5e7), "the ring allows one rung");
    assert!(!far(&|policy, _| policy.load.requests = Some(1e5)), "requests wait");
    // It is one test: where its first slot loses, the search ends without a delay.
    let mut policy = make_policy(&[0.0, 0.1, 0.0, 0.2]);
    policy.load.steps[0].seen.is_bulk = true;
    policy.step = 1;
    policy.probe_far(StepTest::new(0, 1, STEPS));
    policy.continue_search(Nanos::ZERO);
    assert_eq!((policy.search, policy.step), (make_hold(0, 12), 0));
}

#[test]
fn hold_expires_into_neighbour_tests() {
    let mut policy = make_policy(&[0.05, 0.0, 0.0, 0.0, 0.9]);
    policy.step = 2;
    policy.search = make_hold(2, 1);
    assert_eq!(policy.continue_search(Nanos::ZERO), Decision::Keep);
    assert_eq!((policy.search, policy.settled_at), (make_hold(2, 0), Some(2)));
    policy.continue_search(Nanos::ZERO);
    // Below first; three lower, but not below none.
    let below = StepTest { from: Some(2), ..StepTest::new(0, 2, 3) };
    assert_eq!((policy.search, policy.step), (DelaySearch::Test(below), 0));
    assert_eq!(policy.load.steps[0].slots, 2, "its slots are old");
    policy.step = 2;
    policy.search = make_hold(2, 0);
    policy.continue_search(Nanos::ZERO);
    let above = StepTest { from: Some(2), ..StepTest::new(2, 3, STEPS) };
    assert_eq!((policy.search, policy.step), (DelaySearch::Test(above), 3));
    policy.step = 2;
    policy.search = make_hold(2, 0);
    policy.continue_search(Nanos::ZERO);
    assert_eq!(policy.step, 0, "and so on");
    // At the ends of the ladder there is one neighbour.
    for (step, up, other) in [(0, false, 1), (6, true, 3)] {
        let mut policy = self::make_policy(&[0.0, 0.9]);
        (policy.step, policy.search, policy.up) = (step, make_hold(step, 0), up);
        policy.load.steps[6] = policy.load.steps[0];
        policy.load.steps[0].slots = if step == 6 { 0 } else { 8 };
        policy.load.steps[6].slots = if step == 6 { 8 } else { 0 };
        policy.continue_search(Nanos::ZERO);
        assert_eq!(policy.step, other);
    }
    let mut policy = self::make_policy(&[0.0]);
    policy.load.peak_pps = 4e7;
    policy.search = make_hold(0, 0);
    assert_eq!(policy.continue_search(Nanos::ZERO), Decision::Keep);
    assert_eq!(policy.search, make_hold(0, 12), "the ring allows no delay at all");
}

#[test]
fn delaying_hold_is_halved_to_none() {
    let mut policy = make_policy(&[0.0; 5]);
    policy.load.requests = Some(1e5);
    policy.step = 4;
    policy.search = make_hold(4, 9);
    policy.continue_search(Nanos::ZERO);
    assert_eq!((current_test(&policy), policy.step), (Some((0, 2, 4)), 2));
    policy.step = 1;
    policy.search = make_hold(1, 9);
    policy.continue_search(Nanos::ZERO);
    assert_eq!((policy.search, policy.step), (make_hold(0, 12), 0));
}

#[test]
fn holds_double_up_to_their_bound() {
    let lengths = |requests: Option<f64>| {
        let mut policy = make_policy(&[0.0]);
        policy.load.requests = requests;
        let holds = (0..8).map(|_| {
            policy.hold_step(0, "");
            let DelaySearch::Hold { slots, .. } = policy.search else { panic!("no hold") };
            slots
        });
        holds.collect::<Vec<u32>>()
    };
    assert_eq!(lengths(None), [12, 24, 48, 96, 192, 384, 400, 400]);
    assert_eq!(lengths(Some(1.0)), [12, 24, 48, 50, 50, 50, 50, 50]);
    assert_eq!(lengths(Some(0.9)), lengths(None), "they have gone");
}

#[test]
fn first_test_goes_up_if_not_bad() {
    let up = |losses: &[f64], settled_at: Option<usize>| {
        let mut policy = make_policy(losses);
        policy.settled_at = settled_at;
        policy.hold_step(0, "");
        policy.up
    };
    assert!(up(&[0.0, 0.9, 0.0], None));
    assert!(!up(&[0.0, 0.0], None), "the next one is not higher up");
    assert!(!up(&[0.0, 0.9, 0.0], Some(0)), "it was tested already");
}
