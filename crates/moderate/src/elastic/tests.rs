//! Loads with known answers, and what the policy makes of them.

use std::collections::BTreeMap;

use super::*;
use crate::Counts;

#[test]
fn a_closed_loop_is_not_delayed() {
    // One transaction in flight: its rate is 1 / (round trip + delay).
    let delays = drive(&mut policy(), 0.5, |delay| 1.0 / (100e-6 + delay));
    assert_eq!(last(&delays), Nanos::ZERO);
}

#[test]
fn an_open_loop_gets_the_longest_delay_allowed_within_a_tenth_of_a_second() {
    let delays = drive(&mut policy(), 0.1, |_| 50_000.0);
    assert_eq!(last(&delays), Nanos::from_us(100));
}

#[test]
fn a_window_is_given_as_much_delay_as_it_does_not_wait_for() {
    // 64 packets per round trip: the line is full up to a delay of 28 us.
    let rate = |delay: f64| (64.0 / (100e-6 + delay)).min(500_000.0);
    let bounds = Bounds { ring: 4096, ..Bounds::default() };
    let delays = drive(&mut Elastic::new(bounds), 0.5, rate);
    assert_eq!(last(&delays), Nanos::from_us(16));
}

#[test]
fn a_new_load_finds_no_delay_within_fifty_milliseconds() {
    let mut policy = policy();
    drive(&mut policy, 0.3, |_| 50_000.0);
    let delays = drive_from(&mut policy, 0.3, 0.05, |delay| 1.0 / (100e-6 + delay));
    assert!(delays.contains(&Nanos::ZERO), "{delays:?}");
    assert!(last(&delays) <= Nanos::from_us(4), "{delays:?}");
}

#[test]
fn the_ring_bounds_the_delay() {
    // 10 M packets/s: 128 descriptors hold 12.8 us.
    let delays = drive(&mut policy(), 0.3, |_| 10e6);
    assert!(delays.iter().all(|delay| *delay <= Nanos::from_us(16)), "{delays:?}");
    assert_eq!(last(&delays), Nanos::from_us(8));
}

#[test]
fn idle_asks_for_nothing_and_forgets() {
    let mut policy = policy();
    drive(&mut policy, 0.3, |_| 50_000.0);
    let late = Observation { now: Nanos::from_s(2), ..Observation::default() };
    let decision = (0..4).map(|_| policy.step(&late)).find(|d| *d != Decision::Keep);
    let Some(Decision::Change { target, .. }) = decision else { panic!("{decision:?}") };
    assert_eq!(target.delay, Nanos::ZERO);
}

#[test]
fn samples_of_fifty_milliseconds_are_enough() {
    // As a daemon sees a queue: each sample a slot of hundreds of polls.
    for (closed, expected) in [(true, 0), (false, 100)] {
        let mut policy = policy();
        let mut now = Nanos::ZERO;
        let mut right = 0;
        for sample in 0..100 {
            now = now + Nanos::from_ms(50);
            let delay = policy.current().delay.as_secs_f64();
            let rate = if closed { 1.0 / (100e-6 + delay) } else { 50_000.0 };
            let packets = u32::try_from(Nanos::from_secs_f64(rate * 50e-12).as_ns()).unwrap();
            policy.step(&Observation {
                now,
                rx: Counts { packets, bytes: packets * 100 },
                interrupts: 500,
                ..Observation::default()
            });
            let is_right = policy.current().delay == Nanos::from_us(expected);
            right += u32::from(sample >= 40 && is_right);
        }
        // The rest are looks at the neighbouring delay.
        assert!(right >= 45, "closed {closed}: right in {right} of 60");
    }
}

#[test]
fn samples_without_traffic_change_nothing() {
    let mut policy = policy();
    for at in 1..100 {
        let now = Nanos::from_ms(50 * at);
        assert_eq!(policy.step(&Observation { now, ..Observation::default() }), Decision::Keep);
    }
}

fn policy() -> Elastic {
    Elastic::new(Bounds::default())
}

fn last(delays: &[Nanos]) -> Nanos {
    *delays.last().expect("at least the first")
}

fn drive(policy: &mut Elastic, seconds: f64, rate: impl Fn(f64) -> f64) -> Vec<Nanos> {
    drive_from(policy, 0.0, seconds, rate)
}

/// Polls as a hold-off makes them, of packets of 100 byte at the rate that the delay (in seconds)
/// allows; every delay that held, in order.
fn drive_from(
    policy: &mut Elastic,
    start: f64,
    seconds: f64,
    rate: impl Fn(f64) -> f64,
) -> Vec<Nanos> {
    let mut now = start;
    let mut due = 0.0;
    let mut delays = vec![policy.current().delay];
    while now < start + seconds {
        let delay = policy.current().delay.as_secs_f64();
        let rate = rate(delay);
        let gap = delay.max(1.0 / rate).max(2e-6);
        now += gap;
        due += rate * gap;
        let packets = due.floor();
        due -= packets;
        let packets = u32::try_from(Nanos::from_secs_f64(packets / 1e9).as_ns()).unwrap();
        let observation = Observation {
            now: Nanos::from_secs_f64(now),
            rx: Counts { packets, bytes: packets * 100 },
            interrupts: 1,
            ..Observation::default()
        };
        if let Decision::Change { target, .. } = policy.step(&observation) {
            delays.push(target.delay);
        }
    }
    delays
}

/// An open loop with exponential gaps that is there in every other span of `turn` (always, if zero);
/// the changes, each with its time, and the share of the time with traffic at each delay.
fn drive_poisson(
    policy: &mut Elastic,
    seconds: f64,
    pps: f64,
    turn: f64,
) -> (Vec<(f64, Nanos, &'static str)>, BTreeMap<u64, f64>) {
    let mut rng = latput_units::Rng::from_seed(7);
    let mut next = 0.0;
    let mut arrival = move || {
        next -= rng.uniform().max(1e-12).ln() / pps;
        if turn > 0.0 && (next / turn) as u64 % 2 == 1 {
            next = ((next / turn).floor() + 1.0) * turn;
        }
        next
    };
    let (mut now, mut due) = (0.0_f64, arrival());
    let (mut changes, mut shares) = (Vec::new(), BTreeMap::new());
    while now < seconds {
        let delay = policy.current().delay.as_secs_f64();
        // A hold-off: at once after a quiet time.
        let at = due.max(now + delay).max(now + 2e-6);
        let is_pause = at - now > 2e-3;
        *shares.entry(policy.current().delay.as_ns() / 1000).or_insert(0.0) +=
            if is_pause { 0.0 } else { (at - now) / seconds };
        now = at;
        let mut packets = 0;
        while due <= now {
            packets += 1;
            due = arrival();
        }
        let observation = Observation {
            now: Nanos::from_secs_f64(now),
            rx: Counts { packets, bytes: packets * 1500 },
            interrupts: 1,
            ..Observation::default()
        };
        if let Decision::Change { target, reason } = policy.step(&observation) {
            changes.push((now, target.delay, reason));
        }
    }
    (changes, shares)
}

#[test]
fn look_at_poisson() {
    for (pps, turn) in [(50e3, 0.0), (100e3, 0.1), (100e3, 0.01)] {
        let bounds = Bounds { most: Nanos::from_us(256), ..Bounds::default() };
        let mut policy = Elastic::new(bounds);
        let (changes, shares) = drive_poisson(&mut policy, 0.7, pps, turn);
        println!("{pps} {turn}: {shares:?}");
        for (at, delay, reason) in changes {
            println!("   {:.4} {delay} {reason}", at);
        }
    }
}
