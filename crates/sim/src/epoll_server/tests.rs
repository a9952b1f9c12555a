//! Effects of the settings on a whole server: on polls, interrupts, time and answers.

use super::*;
use crate::SystemProfile;

const MILLI: u64 = 1_000_000;

/// The published server with a setting in nanoseconds, at a load of all queues together.
fn build_server(rate_hz: Option<f64>, napi: [u64; 2], epoll: EpollSettings) -> EpollServer {
    let profile = SystemProfile::find_shipped("memcached-mlx5").unwrap();
    let generator = profile.generator.as_ref().unwrap();
    let [timeout, suspend] = napi.map(Nanos::from_ns);
    EpollServer {
        seed: 3,
        warmup: Nanos::from_ms(20),
        duration: Nanos::from_ms(60),
        machine: profile.sut.machine,
        napi: NapiSettings {
            defer_hard_irqs: if timeout > Nanos::ZERO { 100 } else { 0 },
            gro_flush_timeout: timeout,
            irq_suspend_timeout: suspend,
        },
        epoll,
        latency: profile.network.latency,
        latency_jitter_ratio: profile.network.latency_jitter_ratio,
        client_hold: generator.nic.coalescing.rx.delay,
        nic: profile.sut.nic,
        connections: 3_840,
        rate_hz,
    }
}

const fn polling(busy_poll_us: u64) -> EpollSettings {
    EpollSettings {
        busy_poll: Nanos::from_us(busy_poll_us),
        budget: 64,
        prefers: true,
        never_sleeps: false,
    }
}

#[test]
fn same_seed_gives_the_same_outcome() {
    let server = build_server(Some(300_000.0), [20_000, 20 * MILLI], polling(0));
    let [one, two] = [server.run(), server.run()];
    assert_eq!((one.counts, one.cpu), (two.counts, two.cpu));
    let other = EpollServer { seed: 4, ..server }.run();
    assert_ne!(one.counts, other.counts);
}

#[test]
fn open_loop_is_answered_as_offered() {
    let outcome = build_server(Some(400_000.0), [0, 0], EpollSettings::default()).run();
    let rate = outcome.per_second(outcome.counts.transactions);
    assert!((390_000.0..410_000.0).contains(&rate), "{rate}");
    // Each request and each acknowledgement is one packet.
    let packets = outcome.counts.rx_packets as f64 / outcome.counts.transactions as f64;
    assert!((1.98..2.02).contains(&packets), "{packets}");
    assert!(outcome.counts.busy_polls == 0 && outcome.counts.timers == 0);
}

#[test]
fn time_is_never_used_twice() {
    for rate in [Some(200_000.0), None] {
        let outcome = build_server(rate, [20_000, 20 * MILLI], polling(0)).run();
        let cpu = outcome.cpu;
        let used = (cpu.user + cpu.system + cpu.softirq + cpu.irq).as_secs_f64();
        let share = used / (outcome.duration.as_secs_f64() * 8.0);
        assert!(share <= 1.001, "{share}");
        assert!(rate.is_some() || share > 0.99, "a closed loop fills the cores: {share}");
    }
}

#[test]
fn deferral_replaces_interrupts_by_timers() {
    let plain = build_server(Some(200_000.0), [0, 0], EpollSettings::default()).run();
    let deferred = build_server(Some(200_000.0), [10_000, 0], EpollSettings::default()).run();
    assert!(deferred.counts.interrupts * 50 < plain.counts.interrupts, "{:?}", deferred.counts);
    assert!(deferred.counts.timers > 20 * plain.counts.timers.max(1));
}

#[test]
fn suspension_under_load_leaves_polls_to_application() {
    let outcome = build_server(None, [20_000, 20 * MILLI], polling(0)).run();
    let counts = outcome.counts;
    assert!(counts.busy_polls > 20 * counts.softirq_polls, "{counts:?}");
    assert!(counts.interrupts < counts.transactions / 1_000, "{counts:?}");
    let deferred = build_server(None, [20_000, 0], EpollSettings::default()).run();
    assert!(counts.transactions > deferred.counts.transactions);
}

#[test]
fn suspension_without_deferral_masks_nothing() {
    let plain = build_server(Some(200_000.0), [0, 0], EpollSettings::default()).run();
    let suspended = build_server(Some(200_000.0), [0, 20 * MILLI], polling(0)).run();
    assert!(suspended.counts.interrupts * 2 > plain.counts.interrupts, "{:?}", suspended.counts);
    assert!(suspended.counts.busy_polls > 0);
}

#[test]
fn thread_that_never_sleeps_uses_its_core() {
    let settings = EpollSettings { never_sleeps: true, ..polling(1_000) };
    let outcome = build_server(Some(200_000.0), [5 * MILLI, 0], settings).run();
    assert!(outcome.accounted_busy_ratio() > 0.99, "{}", outcome.accounted_busy_ratio());
    assert_eq!(outcome.counts.interrupts, 0);
}
