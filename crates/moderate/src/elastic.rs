//! Moderation by measured response: the longest delay that does not slow the load down.
//!
//! What delay costs depends on who waits for whom. A closed loop (request/response, a short TCP window)
//! slows down when delay grows: its rate is its latency seen from the other side. An open loop and bulk
//! with window to spare do not: there delay only saves interrupts. Frame sizes cannot tell these apart,
//! but an experiment can: change the delay a little, and see whether the rate follows. The elasticity
//! `d ln rate / d ln delay` is -1 where every delay is waited for, 0 where none is, and above 0 where
//! interrupts took the CPU that the work needed.
//!
//! The policy walks a ladder of delays, each twice the one below. It starts at the bottom, the safe side
//! for a load it does not know. A rung is compared with the highest that is known to be good, by a
//! sequential test on slots of a few milliseconds that alternate between the two. What the scatter of
//! the load hides at one rung is looked for at a higher one: a load that waits for each delay loses more
//! there, so that contrast is had instead of patience. What is never seen is accepted. A rate that
//! jumps is a new load: everything learnt is forgotten and the walk starts from the bottom, within two
//! slots. Two bounds hold whatever the rates say: the longest delay that the owner allows, and what
//! half of the ring absorbs at the packet rate seen.

use latput_units::Nanos;

use crate::ladder::{Bounds, RUNGS};
use crate::{Decision, Moderation, Observation};

/// A slot has at least this many polls...
const SLOT_POLLS: u32 = 24;
/// ...and lasts at least this long, so that a few interrupts of a burst do not decide,
const SLOT_LEAST: Nanos = Nanos::from_us(600);
/// but after this long fewer polls do.
const SLOT_MOST: Nanos = Nanos::from_ms(6);
/// A slot's rate should scatter by no more than this: slots of restless loads are longer, up to
/// [`LONGER`] times.
const STEADY: f64 = 0.02;
const LONGER: f64 = 8.0;
/// After this long without a full slot the load is as good as gone.
const IDLE: Nanos = Nanos::from_ms(40);
/// Polls after a change that belong to the old delay.
const SETTLING_POLLS: u32 = 3;
/// A sample of this many polls is the new delay's, whatever few at its start are not.
const COARSE_POLLS: u32 = 8 * SETTLING_POLLS;
/// The scatter that a load has until it shows its own.
const SCATTER_AT_FIRST: f64 = 0.03;
/// A rate this far from what its rung had, as a logarithm, is another load (if it comes twice).
const JUMP: f64 = 0.18;
/// So much (a factor of 1.8) is seen before a slot is full, after so many polls and so much time.
const EARLY_JUMP: f64 = 0.6;
const EARLY_POLLS: u32 = 8;
const EARLY_LEAST: Nanos = Nanos::from_us(300);
/// Slots that a sequential test takes, if they also take this long: what it cannot decide by then is
/// accepted. A closed loop tells in two slots, and what scatters more does not wait for each delay.
const LONGEST_TEST: u32 = 6;
const TEST_LEAST: Nanos = Nanos::from_ms(12);
/// Rungs that a walk climbs at once, while none was found to be too high.
const STRIDE: usize = 3;
/// Weight of the newest slot in a rung's estimate, once it has more than its inverse.
const NEWEST: f64 = 1.0 / 12.0;
/// Slots between two looks at the neighbouring rungs, at first and at most.
const REST: [u32; 2] = [12, 400];

/// The policy of one queue.
#[derive(Clone, Debug, PartialEq)]
pub struct Elastic {
    bounds: Bounds,
    rung: usize,
    slot: Slot,
    /// When the previous step was.
    last: Option<Nanos>,
    /// What each rung was seen to do under this load.
    rungs: [Rung; RUNGS],
    /// Scatter of a slot's rate, as a logarithm.
    scatter: f64,
    /// The rate of the last slot, if it did not fit its rung.
    strange: Option<f64>,
    /// Most packets per second seen under this load.
    peak_pps: f64,
    walk: Walk,
    /// Slots of the next rest.
    rest: u32,
    /// Which neighbour is looked at after it.
    up: bool,
}

/// What is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Walk {
    /// Is `high` as good as `low`, which is good? Slots alternate between them.
    Test(Test),
    /// `rung` holds for so many more slots; then the one above (or below) is looked at.
    Rest { rung: usize, slots: u32 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Test {
    low: usize,
    high: usize,
    /// The lowest rung that is known to be too high.
    ceiling: usize,
    slots: u32,
    /// When its first slot began.
    start: Option<Nanos>,
}

impl Test {
    fn new(low: usize, high: usize, ceiling: usize) -> Self {
        Self { low, high, ceiling, slots: 0, start: None }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Rung {
    /// Mean logarithm of the rate in bytes per second.
    rate_log: f64,
    slots: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Slot {
    start: Option<Nanos>,
    settling: u32,
    polls: u32,
    bytes: u64,
    packets: u64,
}

impl Elastic {
    /// Starts without a delay.
    pub fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            rung: 0,
            slot: Slot { settling: SETTLING_POLLS, ..Slot::default() },
            last: None,
            rungs: [Rung::default(); RUNGS],
            scatter: SCATTER_AT_FIRST,
            strange: None,
            peak_pps: 0.0,
            walk: Walk::Test(Test::new(0, 1, RUNGS)),
            rest: REST[0],
            up: false,
        }
    }

    /// The delay of the rung that holds.
    pub fn current(&self) -> Moderation {
        Moderation::delay(self.bounds.delay(self.rung))
    }

    /// One completed poll, or a sample of many: `interrupts` says of how many.
    pub fn step(&mut self, observation: &Observation) -> Decision {
        let now = observation.now;
        let before = self.last.replace(now).unwrap_or(now);
        let polls = observation.interrupts.max(1);
        if self.slot.settling > 0 {
            if polls < COARSE_POLLS {
                self.slot.settling = self.slot.settling.saturating_sub(polls);
                if self.slot.settling == 0 {
                    self.slot = Slot { start: Some(now), ..Slot::default() };
                }
                return Decision::Keep;
            }
            self.slot = Slot { start: Some(before), ..Slot::default() };
        }
        let elapsed = now.saturating_sub(self.slot.start.unwrap_or(now));
        self.slot.polls = self.slot.polls.saturating_add(polls);
        self.slot.bytes += u64::from(observation.rx.bytes) + u64::from(observation.tx.bytes);
        self.slot.packets += u64::from(observation.rx.packets);
        let gap = now.saturating_sub(before);
        let longer = (self.scatter / STEADY).powi(2).clamp(1.0, LONGER);
        let units = (self.slot.packets as f64).max(f64::from(self.slot.polls));
        let enough = self.slot.polls >= SLOT_POLLS && units >= f64::from(SLOT_POLLS) * longer;
        let late = elapsed.as_secs_f64() >= SLOT_MOST.as_secs_f64() * longer.sqrt();
        let is_full = (enough && elapsed >= SLOT_LEAST) || (late && self.slot.polls >= 6);
        if (gap > IDLE && polls < SLOT_POLLS) || (elapsed > IDLE && !is_full) {
            return self.forget("idle: back to the safe side");
        }
        if !is_full && !self.is_far_off(elapsed) {
            return Decision::Keep;
        }
        let seconds = elapsed.as_secs_f64();
        let (bytes, packets) =
            (self.slot.bytes as f64 / seconds, self.slot.packets as f64 / seconds);
        self.slot = Slot { start: Some(now), ..Slot::default() };
        if bytes <= 0.0 {
            return Decision::Keep;
        }
        self.peak_pps = self.peak_pps.max(packets);
        self.learn(bytes.ln(), polls >= 4 * SLOT_POLLS, now)
    }

    /// Whether a slot that is not full yet already shows another load: the sooner the better.
    fn is_far_off(&self, elapsed: Nanos) -> bool {
        let rung = &self.rungs[self.rung];
        if rung.slots == 0 || self.slot.polls < EARLY_POLLS || elapsed < EARLY_LEAST {
            return false;
        }
        let rate_log = (self.slot.bytes as f64 / elapsed.as_secs_f64()).max(1.0).ln();
        (rate_log - rung.rate_log).abs() > EARLY_JUMP.max(10.0 * self.scatter)
    }

    /// Takes in one slot's rate; that of a `coarse` sample needs no second one to be believed.
    fn learn(&mut self, rate_log: f64, coarse: bool, now: Nanos) -> Decision {
        let rung = &mut self.rungs[self.rung];
        if rung.slots > 0 {
            let off = (rate_log - rung.rate_log).abs();
            let limit = JUMP.max(5.0 * self.scatter);
            if off > limit {
                // Two that agree are another load; two that do not are unrest.
                let agree = self.strange.is_some_and(|last| (last - rate_log).abs() < 0.5 * off);
                if agree || (coarse && off > 2.0 * limit) {
                    return self.forget("the rate jumped: another load");
                }
                self.scatter += (off.min(0.5) - self.scatter) * 0.2;
                self.strange = Some(rate_log);
                return Decision::Keep;
            }
            // Mean absolute deviation x 1.25 is the standard deviation of a normal.
            self.scatter += (1.25 * off - self.scatter) * 0.1;
        }
        self.strange = None;
        rung.slots = rung.slots.saturating_add(1);
        let weight = NEWEST.max(1.0 / f64::from(rung.slots));
        rung.rate_log += (rate_log - rung.rate_log) * weight;
        self.walk_on(now)
    }

    fn walk_on(&mut self, now: Nanos) -> Decision {
        match self.walk {
            Walk::Test(test) => self.test(test, now),
            Walk::Rest { rung, slots: 0 } => self.look_around(rung),
            Walk::Rest { rung, slots } => {
                self.walk = Walk::Rest { rung, slots: slots - 1 };
                let highest = self.highest();
                if rung > highest {
                    return self.settle(highest, "the ring would overrun");
                }
                Decision::Keep
            }
        }
    }

    /// The load may have changed too little to be another: below the rate may have become better,
    /// above it may no longer fall.
    fn look_around(&mut self, rung: usize) -> Decision {
        let other = if self.up { Some(rung + 1) } else { rung.checked_sub(1) };
        self.up = !self.up;
        let Some(other) = other.filter(|other| *other <= self.highest()) else {
            self.walk = Walk::Rest { rung, slots: self.rest };
            return Decision::Keep;
        };
        // What was seen there long ago counts for little.
        self.rungs[other].slots = self.rungs[other].slots.min(2);
        let ceiling = if other > rung { RUNGS } else { rung + 1 };
        self.walk = Walk::Test(Test::new(rung.min(other), rung.max(other), ceiling));
        self.go(other, "a look at a neighbouring delay")
    }

    /// The sequential test: is the rate at `high` within the loss of that at `low`?
    fn test(&mut self, mut test: Test, now: Nanos) -> Decision {
        test.slots += 1;
        let start = *test.start.get_or_insert(now);
        self.walk = Walk::Test(test);
        let Test { low, high, ceiling, slots, .. } = test;
        let highest = self.highest();
        if high > highest {
            if low >= highest {
                return self.settle(highest, "the longest delay allowed");
            }
            return self.look(low, highest, ceiling, "the longest delay allowed");
        }
        let (a, b) = (self.rungs[low], self.rungs[high]);
        if a.slots == 0 || b.slots == 0 {
            return self
                .go(if a.slots == 0 { low } else { high }, "a look at a neighbouring delay");
        }
        let loss = a.rate_log - b.rate_log;
        let error = self.scatter * (1.0 / f64::from(a.slots) + 1.0 / f64::from(b.slots)).sqrt();
        let allowed = self.bounds.loss_ratio;
        let is_over = slots >= LONGEST_TEST && now.saturating_sub(start) >= TEST_LEAST;
        if loss + error < allowed || (is_over && loss <= allowed + 1.5 * error) {
            return self.accept(high, ceiling);
        }
        if loss - 2.0 * error > allowed || is_over {
            if high == low + 1 {
                self.rest = if ceiling == high + 1 { REST[0] } else { self.rest };
                return self.settle(low, "the rate falls with more delay");
            }
            let middle = usize::midpoint(low, high);
            return self.look(low, middle, high, "the rate falls: a shorter delay");
        }
        let is_free = ceiling == RUNGS && high < highest && loss <= allowed + error;
        if is_free && slots >= 2 {
            let higher = (high + STRIDE).min(highest);
            return self.look(low, higher, ceiling, "the rate scatters: a longer delay tells more");
        }
        self.go(if self.rung == low { high } else { low }, "a look at a neighbouring delay")
    }

    /// `rung` is good: higher, if there may be something better.
    fn accept(&mut self, rung: usize, ceiling: usize) -> Decision {
        let highest = self.highest();
        let next = if ceiling == RUNGS {
            (rung + STRIDE).min(highest)
        } else {
            usize::midpoint(rung, ceiling)
        };
        if next <= rung || next > highest || next >= ceiling {
            return self.settle(rung, "the rate does not fall with this delay");
        }
        self.look(rung, next, ceiling, "the rate did not fall: a longer delay")
    }

    fn look(&mut self, low: usize, high: usize, ceiling: usize, reason: &'static str) -> Decision {
        self.walk = Walk::Test(Test::new(low, high, ceiling));
        self.go(high, reason)
    }

    /// Rests at `rung`: longer each time, so that looking around costs less and less.
    fn settle(&mut self, rung: usize, reason: &'static str) -> Decision {
        self.walk = Walk::Rest { rung, slots: self.rest };
        self.rest = (self.rest * 2).min(REST[1]);
        self.go(rung, reason)
    }

    /// The highest rung that the bounds allow.
    fn highest(&self) -> usize {
        self.bounds.highest(self.peak_pps)
    }

    fn go(&mut self, rung: usize, reason: &'static str) -> Decision {
        if rung == self.rung {
            return Decision::Keep;
        }
        self.rung = rung;
        self.slot = Slot { settling: SETTLING_POLLS, ..Slot::default() };
        Decision::Change { target: self.current(), reason }
    }

    /// Another load: nothing learnt holds.
    fn forget(&mut self, reason: &'static str) -> Decision {
        let before = self.rung;
        *self = Self { last: self.last, ..Self::new(self.bounds) };
        self.rung = before;
        self.go(0, reason)
    }
}

#[cfg(test)]
mod tests {
    use latput_units::BitsPerSecond;

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
                tx: Counts::default(),
                interrupts: 1,
                link: BitsPerSecond::new(10_000_000_000),
            };
            if let Decision::Change { target, .. } = policy.step(&observation) {
                delays.push(target.delay);
            }
        }
        delays
    }
}
