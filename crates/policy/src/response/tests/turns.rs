//! Loads that take turns.

use super::*;

#[test]
fn search_continues_when_its_load_returns() {
    // The search of this stream takes 45 ms; each turn has 30.
    let turns: Vec<[f64; 2]> = (0..10).map(drive_turns).collect();
    let mean = |which: usize| turns.iter().map(|turn| turn[which]).sum::<f64>() / 10.0;
    assert!(mean(0) > 0.6, "the stream had a long delay for {turns:?} of its time");
    assert!(mean(1) < 0.1, "requests had one for {turns:?} of theirs");
}

#[test]
fn load_is_mistaken_at_most_twice() {
    // Both have 50 000 packets/s without a delay. Under 100 us one keeps them and the other has a sixth.
    let mut policy = make_policy();
    drive_policy(&mut policy, 0.2, |_| 50_000.0);
    let delays = drive_from(&mut policy, 0.2, 0.1, |delay| 1.0 / (20e-6 + delay));
    let wrong = delays.iter().filter(|delay| **delay == Nanos::from_us(100)).count();
    assert!(wrong <= 2, "{delays:?}");
    assert!(last_delay(&delays) <= Nanos::from_us(4), "{delays:?}");
}

#[test]
fn mixed_slot_does_not_raise_scatter() {
    let mut policy = make_policy();
    drive_policy(&mut policy, 0.2, |_| 50_000.0);
    assert_eq!(policy.current_moderation().delay, Nanos::from_us(100));
    let usual = policy.load.steps[policy.step].seen;
    for deviation in [0.25, 0.55, 0.55] {
        let bytes_log = usual.bytes_log + deviation;
        policy.learn_slot(&SlotRates { bytes_log, ..usual }, false, Nanos::from_ms(200));
    }
    assert_eq!(policy.current_moderation().delay, Nanos::ZERO, "one load has swallowed the other");
}

#[test]
fn bursts_of_half_a_millisecond_are_one_load() {
    let bounds = DelayBounds { most: Nanos::from_us(256), ring: 4096, ..DelayBounds::default() };
    let changes = |params: ResponseParams| {
        let mut policy = ResponsePolicy::with_params(bounds, params);
        let changes = (0..2000).map(|turn: u32| {
            let pps = if turn.is_multiple_of(2) { 100e3 } else { 400e3 };
            drive_from(&mut policy, f64::from(turn) * 500e-6, 500e-6, |_| pps).len() - 1
        });
        changes.skip(1000).sum::<usize>()
    };
    assert!(changes(ResponseParams::DEFAULT) <= 10, "{}", changes(ResponseParams::DEFAULT));
    // Without the likelihood each burst is another load, and without a first jitter too.
    assert!(changes(ResponseParams { jump_neg_log: 0.0, ..ResponseParams::DEFAULT }) > 100);
    assert!(changes(ResponseParams { jitter_first: 0.0, ..ResponseParams::DEFAULT }) > 100);
}

/// 0.6 s of turns of 30 ms: a Poisson stream of 50 000 packets/s, and one request in flight (20 us). Returns the share
/// of its time in the last half that each had under more than 100 us.
fn drive_turns(seed: u64) -> [f64; 2] {
    let turn = 0.03;
    let mut policy =
        ResponsePolicy::new(DelayBounds { most: Nanos::from_us(256), ..DelayBounds::default() });
    let mut rng = latput_units::SeededRng::from_seed(seed);
    let mut gap = move || -rng.next_uniform().max(1e-12).ln() / 50e3;
    let mut now = 0.0_f64;
    let mut due = 0.0_f64;
    let mut shares = [0.0; 2];
    while now < 0.6 {
        let which = usize::from((now / turn).floor() % 2.0 > 0.5);
        let delay = policy.current_moderation().delay.as_secs_f64();
        // A hold-off: at once after a quiet time.
        let (at, packets, packet_bytes) = if which == 0 {
            let at = due.max(now + delay).max(now + 2e-6);
            let mut packets = 0;
            while due <= at {
                packets += 1;
                due += gap();
            }
            (at, packets, 1500)
        } else {
            due = now;
            (now + delay.max(20e-6), 1, 66)
        };
        if now > 0.3 && delay > 100e-6 {
            shares[which] += (at - now) / 0.15;
        }
        now = at;
        policy.step(&QueueObservation {
            now: Nanos::from_secs_f64(now),
            rx: TrafficCounts { packets, bytes: packets * packet_bytes },
            interrupts: 1,
            ..QueueObservation::default()
        });
    }
    shares
}
