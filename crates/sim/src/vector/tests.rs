//! The vector against closed forms under Poisson arrivals, served at once.

use latput_units::SeededRng;

use super::*;

const PACKETS: u64 = 1_000_000;
const T_S: f64 = 125e-6;
const T: Nanos = Nanos::from_us(125);

/// Interrupts per second, packets per interrupt, mean wait for the interrupt in seconds.
struct ThrottleRun {
    rate_hz: f64,
    batch: f64,
    wait_s: f64,
}

#[test]
fn hold_off_follows_its_closed_form() {
    for rate in [1e3, 8e3, 5e4, 2e5] {
        let load = rate * T_S;
        let batch = load + (-load).exp();
        let coalescing = build_coalescing(Throttle::HoldOff { interval: T });
        assert_throttle_run(coalescing, rate, rate / batch, batch, rate * T_S * T_S / 2.0 / batch);
    }
}

#[test]
fn first_packet_delay_follows_its_closed_form() {
    for rate in [1e3, 8e3, 5e4, 2e5] {
        let load = rate * T_S;
        let coalescing = Coalescing {
            rx: InterruptDelay { delay: T, ..InterruptDelay::default() },
            ..Coalescing::default()
        };
        let wait = T_S * (1.0 + load / 2.0) / (1.0 + load);
        assert_throttle_run(coalescing, rate, rate / (1.0 + load), 1.0 + load, wait);
    }
}

#[test]
fn restarting_delay_follows_its_closed_form() {
    for rate in [1e3, 8e3, 1.6e4] {
        let load = rate * T_S;
        let rx = InterruptDelay { delay: T, restarts: true, ..InterruptDelay::default() };
        let coalescing = Coalescing { rx, ..Coalescing::default() };
        // Every packet waits for the end of the group: E = (e^x - 1)/rate for the first, and the mean
        // over the packets of a group follows from the group being a renewal process.
        let batch = load.exp();
        let seen = run(coalescing, rate);
        assert_near(seen.batch, batch, "batch");
        assert_near(seen.rate_hz, rate / batch, "rate");
    }
}

#[test]
fn frames_or_delay_follows_its_closed_form() {
    for (rate, frames) in [(8e3, 2_u32), (5e4, 5), (2e5, 10), (2e5, 64)] {
        let rx = InterruptDelay { delay: T, frames, ..InterruptDelay::default() };
        let coalescing = Coalescing { rx, ..Coalescing::default() };
        let batch = 1.0 + expected_min_poisson(rate * T_S, frames - 1);
        let seen = run(coalescing, rate);
        assert_near(seen.batch, batch, "batch");
        assert_near(seen.rate_hz, rate / batch, "rate");
    }
}

#[test]
fn irq_values_hold_while_interrupt_is_served() {
    let rx = InterruptDelay {
        delay: Nanos::from_us(50),
        frames: 8,
        delay_irq: Some(Nanos::from_us(10)),
        frames_irq: Some(2),
        ..InterruptDelay::default()
    };
    // With a status block causes act while masked; without one they wait for the end of the polls.
    for status_block in [true, false] {
        let coalescing = Coalescing { rx, status_block, ..Coalescing::default() };
        let mut vector = InterruptVector::new(coalescing, 0, 0);
        vector.add_received(1, |_| 1_000);
        assert_eq!(vector.next_event(1_000), 51_000);
        assert_eq!(vector.fire(51_000), VectorAction::Interrupt);
        vector.add_received(1, |_| 60_000);
        let due = if status_block { 70_000 } else { NEVER };
        assert_eq!(vector.next_event(60_000), due);
        vector.add_received(1, |_| 62_000);
        let due = if status_block { 62_000 } else { NEVER };
        assert_eq!(vector.next_event(62_000), due);
        vector.unmask(false);
        assert_eq!(vector.next_event(65_000), 65_000);
        vector.fire(65_000);
        vector.unmask(true);
        vector.add_received(1, |_| 100_000);
        assert_eq!(vector.next_event(100_000), 150_000);
    }
}

#[test]
fn fewer_frames_than_wait_already_are_enough() {
    let rx =
        InterruptDelay { delay: T, frames: 100, frames_irq: Some(3), ..InterruptDelay::default() };
    let mut vector =
        InterruptVector::new(Coalescing { rx, status_block: true, ..Coalescing::default() }, 0, 0);
    vector.add_received(1, |_| 0);
    vector.fire(125_000);
    vector.unmask(true);
    vector.add_received(10, |_| 130_000);
    vector.masked = true;
    vector.add_received(1, |_| 131_000);
    assert_eq!(vector.next_event(131_000), 131_000);
}

#[test]
fn intervals_round_down_to_register_units() {
    // 8000 interrupts a second are 488 units of 256 ns: 8004.6 a second.
    let mut coalescing = build_coalescing(Throttle::HoldOff { interval: T });
    coalescing.throttle_unit = Nanos::from_ns(256);
    coalescing.rx = InterruptDelay { delay: Nanos::from_us(32), ..InterruptDelay::default() };
    coalescing.delay_unit = Nanos::from_ns(1_024);
    let vector = InterruptVector::new(coalescing, 0, 0);
    assert_eq!(vector.coalescing().throttle.interval(), Nanos::from_ns(488 * 256));
    assert_eq!(vector.coalescing().rx.delay, Nanos::from_ns(31 * 1_024));
}

#[test]
fn gate_delays_packet_half_its_period() {
    // Poisson arrivals see the gate at a uniform phase, whatever the load.
    for rate in [1e3, 5e4] {
        let load = rate * T_S;
        let busy = 1.0 - (-load).exp();
        let coalescing = build_coalescing(Throttle::Gate { interval: T });
        assert_throttle_run(coalescing, rate, busy / T_S, load / busy, T_S / 2.0);
    }
}

#[test]
fn hold_off_interrupts_idle_line_at_once() {
    for (coalescing, expected) in [
        (build_coalescing(Throttle::HoldOff { interval: T }), 1_000_000),
        (
            Coalescing {
                rx: InterruptDelay { delay: T, ..InterruptDelay::default() },
                ..Coalescing::default()
            },
            1_125_000,
        ),
        (build_coalescing(Throttle::Gate { interval: T }), 1_000_060),
    ] {
        let mut vector = InterruptVector::new(coalescing, 60, 0);
        vector.add_received(1, |_| 1_000_000);
        assert_eq!(vector.next_event(1_000_000), expected, "{coalescing:?}");
    }
}

#[test]
fn absolute_limit_ends_restarted_delay() {
    let rx = InterruptDelay {
        delay: T,
        restarts: true,
        absolute: Nanos::from_us(300),
        ..InterruptDelay::default()
    };
    let mut vector = InterruptVector::new(Coalescing { rx, ..Coalescing::default() }, 0, 0);
    for packet in 0..10 {
        vector.add_received(1, |_| packet * 50_000);
        if vector.next_event(packet * 50_000) <= (packet + 1) * 50_000 {
            assert_eq!(vector.next_event(packet * 50_000), 300_000);
            return;
        }
    }
    panic!("the vector never became due");
}

#[test]
fn only_latched_cause_outlives_the_poll() {
    for (latched, expected) in [(true, 10), (false, NEVER)] {
        let mut vector =
            InterruptVector::new(Coalescing { latched, ..Coalescing::default() }, 0, 0);
        vector.add_received(1, |_| 0);
        assert_eq!(vector.fire(0), VectorAction::Interrupt);
        vector.add_received(1, |_| 5);
        assert_eq!(vector.next_event(5), NEVER, "masked");
        vector.unmask(true);
        assert_eq!(vector.next_event(10), expected, "latched: {latched}");
    }
}

#[test]
fn status_block_is_written_while_masked() {
    let rx = InterruptDelay { delay: T, ..InterruptDelay::default() };
    let coalescing = Coalescing { rx, status_block: true, ..Coalescing::default() };
    let mut vector = InterruptVector::new(coalescing, 0, 0);
    vector.mask();
    vector.add_received(1, |_| 0);
    assert_eq!(vector.next_event(0), 125_000);
    assert_eq!(vector.fire(125_000), VectorAction::StatusOnly);
}

#[test]
fn slow_clock_stretches_every_interval() {
    let vector = InterruptVector::new(
        build_coalescing(Throttle::HoldOff { interval: Nanos::from_ms(1) }),
        0,
        8_000,
    );
    assert_eq!(vector.coalescing().throttle.interval(), Nanos::from_us(1_008));
}

fn build_coalescing(throttle: Throttle) -> Coalescing {
    Coalescing { throttle, ..Coalescing::default() }
}

/// E[min(N, most)] for N Poisson with mean `load`.
fn expected_min_poisson(load: f64, most: u32) -> f64 {
    let mut probability = (-load).exp();
    let mut not_more = 0.0;
    let mut expectation = 0.0;
    for count in 0..most {
        not_more += probability;
        expectation += 1.0 - not_more;
        probability *= load / f64::from(count + 1);
    }
    expectation
}

#[track_caller]
fn assert_throttle_run(coalescing: Coalescing, rate: f64, rate_hz: f64, batch: f64, wait_s: f64) {
    let seen = run(coalescing, rate);
    assert_near(seen.rate_hz, rate_hz, "rate");
    assert_near(seen.batch, batch, "batch");
    assert_near(seen.wait_s, wait_s, "wait");
}

#[track_caller]
fn assert_near(seen: f64, expected: f64, what: &str) {
    assert!((seen / expected - 1.0).abs() < 0.01, "{what}: {seen}, expected {expected}");
}

/// A million Poisson arrivals, each interrupt served and unmasked at once.
fn run(coalescing: Coalescing, rate: f64) -> ThrottleRun {
    let mut rng = SeededRng::from_seed(1);
    let mut vector = InterruptVector::new(coalescing, 17, 0);
    let (mut now, mut interrupts, mut waited) = (0, 0_u64, 0_u64);
    // How many wait, the sum of their arrival times, and when they will be served.
    let (mut waiting, mut arrivals, mut due) = (0_u64, 0_u64, NEVER);
    for _ in 0..PACKETS {
        now += Nanos::from_secs_f64(-(1.0 - rng.next_uniform()).ln() / rate).as_ns();
        if due <= now {
            waited += waiting * due - arrivals;
            (waiting, arrivals) = (0, 0);
            vector.fire(due);
            vector.unmask(true);
            interrupts += 1;
        }
        vector.add_received(1, |_| now);
        (waiting, arrivals) = (waiting + 1, arrivals + now);
        due = vector.next_event(now);
    }
    let served = (PACKETS - waiting) as f64;
    let seconds = now as f64 / 1e9;
    ThrottleRun {
        rate_hz: interrupts as f64 / seconds,
        batch: served / interrupts as f64,
        wait_s: waited as f64 / served / 1e9,
    }
}
