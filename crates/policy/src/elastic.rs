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
//! there, so that contrast is had instead of patience. What is never seen is accepted. Two looks keep that
//! honest: before a walk ends without any delay, bulk is tried on a far rung, since its rate may fall and then
//! rise with the delay; and from where it has ended, looks down go where most was seen, since what each step
//! hides adds up. A rate that jumps is a new load, within a few polls if it jumps far: the walk starts from
//! the bottom, unless the load does what one of the last few did there: then what was learnt of that one holds again.
//!
//! Two rates are watched: all bytes, and small packets that go the way of much larger traffic. Requests
//! beside bulk are a thousandth of its bytes, but they are counted apart, and so they have an elasticity of
//! their own. Two bounds hold whatever the rates say: the longest delay that the owner allows, and what
//! half of the ring absorbs at the packet rate seen.

mod jump;
mod load;
mod memory;
mod slot;
#[cfg(test)]
mod tests;
mod walk;

use jump::Run;
use latput_units::Nanos;
use load::{JUMP, Load, Rung, distance};
use memory::{Memory, Remembered};
use slot::{SLOT_POLLS, Seen, Slot};
use walk::{NOT_WAITING, POLLS_TOO, REST, Test, Walk};

use crate::ladder::{Bounds, RUNGS};
use crate::{Decision, Moderation, Observation};

/// After this long without a full slot the load is as good as gone.
const IDLE: Nanos = Nanos::from_ms(40);
/// What tells of at least so many polls at once is a daemon's sample, and no driver's poll.
const SAMPLE_POLLS: u32 = 4;
/// One in so many of the usual packets is as good as none.
const NOTHING: f64 = 8.0;
/// A part of a sample that loses more than that, by so many times its error, need not be waited out.
const BEYOND_DOUBT: f64 = 4.0;

/// The policy of one queue.
#[derive(Clone, Debug, PartialEq)]
pub struct Elastic {
    bounds: Bounds,
    rung: usize,
    /// The delay that was decided last.
    given: Nanos,
    slot: Slot,
    /// Polls that are off.
    run: Run,
    /// When the previous step was.
    last: Option<Nanos>,
    /// The usual gap between two polls.
    pace: Nanos,
    /// How long a sample of many polls is.
    sample: Nanos,
    /// For how long hardly anything has come.
    quiet: Nanos,
    load: Load,
    /// Whether it was taken for one of before, and no slot has shown it yet.
    is_guess: bool,
    /// What the last slot showed, if it did not fit its rung,
    strange: Option<Seen>,
    /// and how many in a row did not.
    strangers: u32,
    walk: Walk,
    /// Slots of the next rest.
    rest: u32,
    /// Which neighbour is looked at after it.
    up: bool,
    /// Where the walk has ended, once a slot there was as it should be.
    rested: Option<usize>,
    memory: Memory,
}

impl Elastic {
    /// Starts without a delay.
    pub fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            rung: 0,
            given: Nanos::ZERO,
            slot: Slot::after_change(bounds.vectors),
            run: Run::default(),
            last: None,
            pace: Nanos::ZERO,
            sample: Nanos::ZERO,
            quiet: Nanos::ZERO,
            load: Load::new(),
            is_guess: false,
            strange: None,
            strangers: 0,
            walk: Walk::Test(Test::new(0, 1, RUNGS)),
            rest: REST[0],
            up: false,
            rested: None,
            memory: Memory::default(),
        }
    }

    /// The delay of the rung that holds.
    pub fn current(&self) -> Moderation {
        Moderation::delay(self.bounds.within(self.rung, self.load.peak_pps))
    }

    /// Whether the delay of now is on trial, and longer than the one found good. Who samples seldom may give a part of
    /// the next sample early: where each delay is waited for, that is seen at once, and the requests are spared the rest.
    pub fn is_on_trial(&self) -> bool {
        matches!(self.walk, Walk::Test(Test { low, high, from, .. })
            if self.rung == high && high > low && from != Some(high))
    }

    /// One completed poll, or a sample of many: `interrupts` says of how many.
    pub fn step(&mut self, observation: &Observation) -> Decision {
        let now = observation.now;
        let Some(before) = self.last.replace(now) else { return Decision::Keep };
        let is_sampled = self.is_sampled();
        if !self.slot.add(observation, before, (!is_sampled).then_some(self.pace)) {
            return Decision::Keep;
        }
        let polls = observation.interrupts.max(1);
        let gap = now.saturating_sub(before);
        let elapsed = self.slot.elapsed(now);
        // Slots are compared that were seen for as long.
        let is_part = elapsed.saturating_mul(2) < self.sample;
        let is_full = if is_part {
            self.is_waited_for(now)
        } else {
            self.slot.is_full(now, self.patience(), is_sampled)
        };
        // A poll after a long gap is the first of something new; a sample of a daemon is always long.
        let packets = f64::from(observation.rx.packets);
        let is_nothing = gap > IDLE && packets < self.next_to_nothing(gap);
        // Under a delay that is on trial too few for a slot are a verdict: it would wait for one for good.
        let is_tried = matches!(self.walk, Walk::Test(_)) && self.rung > 0;
        let is_first = polls == 1 || is_nothing || (is_tried && packets < f64::from(SLOT_POLLS));
        if (gap > IDLE && is_first) || (elapsed > IDLE && !is_full && !is_sampled) {
            self.quiet = self.quiet.saturating_add(gap);
            // One sample of a daemon may be empty because the machine stood still.
            if self.quiet.saturating_mul(2) < self.sample.saturating_mul(3) {
                if is_nothing {
                    self.slot = Slot::from(now);
                }
                return Decision::Keep;
            }
            self.quiet = Nanos::ZERO;
            return self.miss();
        }
        self.quiet = Nanos::ZERO;
        if polls >= SAMPLE_POLLS && !self.is_on_trial() {
            self.sample = gap;
        }
        let rung = self.load.rungs[self.rung];
        if !is_sampled
            && rung.slots > 0
            && self.run.add(observation, before, self.given, &rung.seen, &mut self.load)
        {
            return self.forget("the rate jumped: another load");
        }
        if !is_full {
            return Decision::Keep;
        }
        let slot = std::mem::replace(&mut self.slot, Slot::from(now));
        self.pace = Nanos::from_ns(elapsed.as_ns() / u64::from(slot.polls));
        let Some(seen) = slot.seen(now, self.load.talks) else { return Decision::Keep };
        self.load.peak_pps = self.load.peak_pps.max(seen.busiest_pps);
        let decision = self.learn(&seen, polls >= 4 * SLOT_POLLS, now);
        if decision == Decision::Keep && self.current().delay < self.given {
            return self.change("the ring would overrun");
        }
        decision
    }

    /// Whether a daemon tells of the load, which has told of many polls at once, and no driver.
    fn is_sampled(&self) -> bool {
        self.sample > Nanos::ZERO
    }

    /// So few packets in a span that the load is as good as gone: an eighth of what it usually has, and never more
    /// than a slot needs. A slow load's samples are small by chance, or because the machine stood still.
    fn next_to_nothing(&self, span: Nanos) -> f64 {
        let seen = |rung: &Rung| (rung.slots > 0).then(|| rung.seen.packets_log.exp());
        let usual = seen(&self.load.rungs[self.rung])
            .or_else(|| self.load.rungs.iter().filter_map(seen).reduce(f64::max));
        let few = usual.map(|pps| pps * span.as_secs_f64() / NOTHING);
        few.unwrap_or(f64::INFINITY).min(f64::from(SLOT_POLLS))
    }

    /// Hardly anything came. What stops under a delay that is on trial was stopped by it.
    fn miss(&mut self) -> Decision {
        match self.walk {
            Walk::Test(Test { low, high, .. }) if self.rung == high && high > low => {
                self.slot = Slot::after_change(self.bounds.vectors);
                if high == low + 1 {
                    return self.settle(low, "the traffic stops with more delay");
                }
                let middle = usize::midpoint(low, high);
                self.look(low, middle, high, "the traffic stops: a shorter delay")
            }
            _ => self.forget("idle: back to the safe side"),
        }
    }

    /// Whether a part of a sample shows beyond doubt that the delay on trial is waited for.
    fn is_waited_for(&self, now: Nanos) -> bool {
        let Walk::Test(Test { low, high, .. }) = self.walk else { return false };
        let good = &self.load.rungs[low];
        if !self.is_on_trial() || good.slots == 0 {
            return false;
        }
        let Some(seen) = self.slot.seen(now, self.load.talks) else { return false };
        let loss = good.seen.bytes_log - seen.bytes_log;
        let doubt = BEYOND_DOUBT * self.load.scatter[0].hypot(self.slot.by_chance());
        let each_waits = self.each_waits(low, high);
        // Each end of a timer costs a poll too. More than that was lost to something else: the machine stood still.
        let waiting = NOT_WAITING * each_waits..=POLLS_TOO * each_waits + doubt;
        loss > self.bounds.loss_ratio + doubt && waiting.contains(&loss)
    }

    /// The scatter that slots are made long for. Whether a strange one was the first of another load is to be
    /// known soon.
    fn patience(&self) -> f64 {
        if self.strange.is_some() { 0.0 } else { self.load.scatter[0] }
    }

    /// Takes in one slot; that of a `coarse` sample needs no second one to be believed.
    fn learn(&mut self, seen: &Seen, coarse: bool, now: Nanos) -> Decision {
        self.load.is_sampled = self.is_sampled();
        let first = self.load.rungs[0];
        let has_grown = first.slots == 1 && seen.bytes_log - first.seen.bytes_log > JUMP[0];
        if self.is_sampled() && self.rung == 0 && has_grown {
            // A load begins within a sample, which shows a part of its rate, and may grow for some.
            self.load.rungs[0] = Rung::default();
        }
        let rung = self.load.rungs[self.rung];
        if rung.slots > 0 {
            // A driver's polls count frames, a daemon's samples what was made of them.
            let apart = |other: &Seen| distance(seen, other, &self.load, !self.is_sampled());
            let off = apart(&rung.seen);
            if off > 1.0 {
                // Two that agree are another load; two that do not are unrest.
                let agree = self.strange.is_some_and(|last| apart(&last) < 0.5 * off);
                // An estimate of one slot under a delay may itself be off.
                let is_known = self.rung == 0 || rung.slots > 1;
                if agree || (coarse && is_known && off > 2.0) {
                    return self.forget("the rate jumped: another load");
                }
                // The first of another load is partly of the one before.
                self.strange = Some(*seen);
                self.strangers += 1;
                if self.strangers > 2 {
                    self.load.scatter_by(seen, &rung.seen, 0.2);
                }
                return Decision::Keep;
            }
            self.load.scatter_by(seen, &rung.seen, 0.1);
            // What did not come twice was unrest of this load.
            if let Some(strange) = self.strange.take() {
                self.load.scatter_by(&strange, &rung.seen, 0.1);
            }
        }
        (self.strange, self.strangers) = (None, 0);
        self.is_guess &= rung.slots == 0;
        self.load.talks |= seen.small_log.is_some();
        self.load.take_requests(seen);
        if self.load.rungs.iter().all(|rung| rung.slots == 0) {
            self.load.scatter[0] = self.load.scatter[0].max(seen.error);
        }
        self.load.rungs[self.rung].take(seen);
        if self.rung == 0
            && self.rested.is_none()
            && let Some(known) = self.memory.recall(seen)
        {
            return self.remember(known);
        }
        // One may be off.
        if self.is_sampled()
            && self.rung == 0
            && self.rested.is_none()
            && self.load.rungs[0].slots < 2
        {
            return Decision::Keep;
        }
        self.walk_on(now)
    }

    /// The load is one of before: what was learnt of it holds, until a slot says otherwise.
    fn remember(&mut self, known: Remembered) -> Decision {
        let Remembered { mut load, rung, mut walk, mut rest } = known;
        load.peak_pps = load.peak_pps.max(self.load.peak_pps);
        if load.requests.is_some() {
            // Those beside it may have gone, or be new.
            load.requests = self.load.requests;
            rest = REST[0];
            self.up = true;
            if let Walk::Rest { slots, .. } = &mut walk {
                *slots = REST[0].min(*slots);
            }
        }
        (self.load, self.walk, self.rest) = (load, walk, rest);
        self.is_guess = true;
        self.go(rung.min(self.highest()), "a load of before is back")
    }

    /// The highest rung that the bounds allow.
    fn highest(&self) -> usize {
        self.bounds.reach(self.load.peak_pps)
    }

    fn go(&mut self, rung: usize, reason: &'static str) -> Decision {
        if rung == self.rung {
            return Decision::Keep;
        }
        self.rung = rung;
        self.change(reason)
    }

    fn change(&mut self, reason: &'static str) -> Decision {
        let target = self.current();
        self.given = target.delay;
        self.slot = Slot::after_change(self.bounds.vectors);
        self.run = Run::default();
        Decision::Change { target, reason }
    }

    /// Another load: what was learnt holds no longer, but is kept for when the load comes back.
    fn forget(&mut self, reason: &'static str) -> Decision {
        let mut new = Self::new(self.bounds);
        std::mem::swap(self, &mut new);
        let Self { rung, given, last, sample, load, is_guess, walk, rested, rest, memory, .. } =
            new;
        (self.rung, self.given, self.last, self.memory) = (rung, given, last, memory);
        self.sample = sample;
        let (rung, walk) = match (walk, rested) {
            (Walk::Rest { rung, .. }, _) => (rung, walk),
            // A look is not gone on with.
            (Walk::Test(_), Some(rung)) => (rung, Walk::Rest { rung, slots: REST[0] }),
            (Walk::Test(_), None) => (rung, walk),
        };
        // What was taken for a load of before and did something else is no load.
        if !is_guess {
            self.memory.keep(Remembered { load, rung, walk, rest });
        }
        self.go(0, reason)
    }
}
