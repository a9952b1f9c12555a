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
//! hides adds up. A rate that jumps is a new load: the walk starts from the bottom, within two slots, unless
//! the load does what one of the last few did there: then what was learnt of that one holds again.
//!
//! Two rates are watched: all bytes, and small packets that go the way of much larger traffic. Requests
//! beside bulk are a thousandth of its bytes, but they are counted apart, and so they have an elasticity of
//! their own. Two bounds hold whatever the rates say: the longest delay that the owner allows, and what
//! half of the ring absorbs at the packet rate seen.

mod memory;
mod slot;
#[cfg(test)]
mod tests;

use latput_units::Nanos;
use memory::{Memory, Remembered};
use slot::{SLOT_POLLS, Seen, Slot};

use crate::ladder::{Bounds, RUNGS};
use crate::{Decision, Moderation, Observation};

/// After this long without a full slot the load is as good as gone.
const IDLE: Nanos = Nanos::from_ms(40);
/// One in so many of the usual packets is as good as none.
const NOTHING: f64 = 8.0;
/// The scatter that a load has until it shows its own: of its bytes, and of small packets beside bulk.
const SCATTER_AT_FIRST: [f64; 2] = [0.03, 0.05];
/// A rate this far from what its rung had, as a logarithm, is another load (if it comes twice).
const JUMP: [f64; 2] = [0.18, 0.4];
/// So much (a factor of 1.8) is seen before a slot is full, after so many polls and so much time.
const EARLY_JUMP: f64 = 0.6;
const EARLY_POLLS: u32 = 8;
const EARLY_LEAST: Nanos = Nanos::from_us(300);
/// Small packets that come up beside bulk, or are gone, are as far off as this many jumps.
const COME_OR_GONE: f64 = 2.0;
/// Slots that a sequential test takes, if they also take this long: what it cannot decide by then is
/// accepted. A closed loop tells in two slots, and what scatters more does not wait for each delay.
const LONGEST_TEST: u32 = 6;
const TEST_LEAST: Nanos = Nanos::from_ms(12);
/// At its end a test accepts a loss of so many times its error beyond the one allowed.
const BENEFIT: f64 = 1.0;
/// Rungs that a walk climbs at once, while none was found to be too high.
const STRIDE: usize = 3;
/// A loss up to this share of what a load would lose that waits for each delay is no sign of waiting.
const NOT_WAITING: f64 = 0.5;
/// A part of a sample that loses more than that, by so many times its error, need not be waited out.
const BEYOND_DOUBT: f64 = 4.0;
/// Polls of fewer packets than this batch nothing.
const ALONE: f64 = 1.5;
/// Weight of the newest slot in a rung's estimate, once it has more than its inverse.
const NEWEST: f64 = 1.0 / 12.0;
/// What was seen in earlier looks at a rung counts as so many slots: old, but one slot that scatters by more than
/// the loss it is to show would be misled again at each look.
const LOOKED: u32 = 2;
/// Slots between two looks at the neighbouring rungs, at first and at most.
const REST: [u32; 2] = [12, 400];

/// The policy of one queue.
#[derive(Clone, Debug, PartialEq)]
pub struct Elastic {
    bounds: Bounds,
    rung: usize,
    /// The delay that was decided last.
    given: Nanos,
    slot: Slot,
    /// When the previous step was.
    last: Option<Nanos>,
    /// The usual gap between two polls.
    pace: Nanos,
    /// How long a sample of many polls is.
    sample: Nanos,
    /// For how long hardly anything has come.
    quiet: Nanos,
    load: Load,
    /// What the last slot showed, if it did not fit its rung.
    strange: Option<Seen>,
    walk: Walk,
    /// Slots of the next rest.
    rest: u32,
    /// Which neighbour is looked at after it.
    up: bool,
    /// Where the walk has ended, once a slot there was as it should be.
    rested: Option<usize>,
    memory: Memory,
}

/// What is known of the load of now.
#[derive(Clone, Debug, PartialEq)]
struct Load {
    /// What each rung was seen to do.
    rungs: [Rung; RUNGS],
    /// Scatter of a slot's rates, as logarithms: bytes, and small packets beside bulk.
    scatter: [f64; 2],
    /// Slots that they were learnt from.
    learnt: u32,
    /// Most packets per second seen.
    peak_pps: f64,
    /// Whether small packets go beside bulk.
    talks: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Rung {
    /// Means of the logarithms.
    seen: Seen,
    slots: u32,
    /// What was given up of the rate on the way to this rung, beyond doubt.
    spent: f64,
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
    /// Only a look from this rung, where the walk has ended.
    from: Option<usize>,
    slots: u32,
    /// When its first slot began.
    start: Option<Nanos>,
}

impl Test {
    fn new(low: usize, high: usize, ceiling: usize) -> Self {
        Self { low, high, ceiling, from: None, slots: 0, start: None }
    }
}

/// What a test says so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Good,
    Bad,
    Open,
    /// Over, and still not clearly bad.
    Unclear,
}

impl Load {
    fn new() -> Self {
        Self {
            rungs: [Rung::default(); RUNGS],
            scatter: SCATTER_AT_FIRST,
            learnt: 0,
            peak_pps: 0.0,
            talks: false,
        }
    }

    /// From where on a rate is another load's.
    fn limit(&self, which: usize) -> f64 {
        JUMP[which].max(5.0 * self.scatter[which])
    }
}

/// How far two slots are apart: over 1 they are of two loads.
fn distance(a: &Seen, b: &Seen, load: &Load) -> f64 {
    let bytes = (a.bytes_log - b.bytes_log).abs() / load.limit(0);
    let small = match (a.small_log, b.small_log) {
        (Some(a), Some(b)) => (a - b).abs() / load.limit(1),
        (None, None) => 0.0,
        _ => COME_OR_GONE,
    };
    bytes.max(small)
}

impl Elastic {
    /// Starts without a delay.
    pub fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            rung: 0,
            given: Nanos::ZERO,
            slot: Slot::after_change(bounds.vectors),
            last: None,
            pace: Nanos::ZERO,
            sample: Nanos::ZERO,
            quiet: Nanos::ZERO,
            load: Load::new(),
            strange: None,
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
        if !self.slot.add(observation, before, self.pace) {
            return Decision::Keep;
        }
        let polls = observation.interrupts.max(1);
        let gap = now.saturating_sub(before);
        let elapsed = self.slot.elapsed(now);
        // Slots are compared that were seen for as long.
        let is_part = polls > 1 && elapsed.saturating_mul(2) < self.sample;
        let is_full =
            if is_part { self.is_waited_for(now) } else { self.slot.is_full(now, self.patience()) };
        // A poll after a long gap is the first of something new; a sample of a daemon is always long.
        let is_first = polls == 1 || f64::from(observation.rx.packets) < self.next_to_nothing(gap);
        if (gap > IDLE && is_first) || (elapsed > IDLE && !is_full && !is_part) {
            self.quiet = self.quiet.saturating_add(gap);
            // One sample of a daemon may be empty because the machine stood still.
            if self.quiet.saturating_mul(2) < self.sample.saturating_mul(3) {
                self.slot = Slot::from(now);
                return Decision::Keep;
            }
            self.quiet = Nanos::ZERO;
            return self.miss();
        }
        self.quiet = Nanos::ZERO;
        if polls > 1 && !self.is_on_trial() {
            self.sample = gap;
        }
        if !is_full && !self.is_far_off(now) {
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

    /// So few packets in a span that the load is as good as gone: an eighth of what it usually has, and never more
    /// than a slot needs. A slow load's samples are small by chance, or because the machine stood still.
    fn next_to_nothing(&self, span: Nanos) -> f64 {
        // Under a delay that is on trial too few for a slot are a verdict: it would wait for one for good.
        if matches!(self.walk, Walk::Test(_)) && self.rung > 0 {
            return f64::from(SLOT_POLLS);
        }
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

    /// Whether a slot that is not full yet already shows another load: the sooner the better.
    fn is_far_off(&self, now: Nanos) -> bool {
        let rung = &self.load.rungs[self.rung];
        let elapsed = self.slot.elapsed(now);
        if rung.slots == 0 || self.slot.polls < EARLY_POLLS || elapsed < EARLY_LEAST {
            return false;
        }
        let Some(seen) = self.slot.seen(now, self.load.talks) else { return false };
        let off = (seen.bytes_log - rung.seen.bytes_log).abs();
        off > EARLY_JUMP.max(10.0 * self.patience())
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
        // More than each delay can cost was lost to something else: the machine stood still.
        let waiting = NOT_WAITING * each_waits..=each_waits + doubt;
        loss > self.bounds.loss_ratio + doubt && waiting.contains(&loss)
    }

    /// What a load loses from `low` to `high` that waits for each delay, as a logarithm.
    fn each_waits(&self, low: usize, high: usize) -> f64 {
        let pps = self.load.rungs[low].seen.packets_log.exp();
        let [short, long] = [low, high].map(|rung| self.bounds.delay(rung).as_secs_f64());
        (pps * (long - short)).ln_1p()
    }

    /// The scatter that slots are made long for. Whether a strange one was the first of another load is to be
    /// known soon.
    fn patience(&self) -> f64 {
        if self.strange.is_some() { 0.0 } else { self.load.scatter[0] }
    }

    /// Takes in one slot; that of a `coarse` sample needs no second one to be believed.
    fn learn(&mut self, seen: &Seen, coarse: bool, now: Nanos) -> Decision {
        let rung = self.load.rungs[self.rung];
        if rung.slots > 0 {
            let off = distance(seen, &rung.seen, &self.load);
            if off > 1.0 {
                // Two that agree are another load; two that do not are unrest.
                let agree =
                    self.strange.is_some_and(|last| distance(seen, &last, &self.load) < 0.5 * off);
                if agree || (coarse && off > 2.0) {
                    return self.forget("the rate jumped: another load");
                }
                // If they always did, that is no news.
                if self.rung > 0 && seen.batch < ALONE && rung.seen.batch >= ALONE {
                    return self.forget("packets come alone now: nothing to be saved");
                }
                if self.strange.replace(*seen).is_some() {
                    self.scatter_by(seen, &rung.seen, 0.2);
                }
                return Decision::Keep;
            }
            self.scatter_by(seen, &rung.seen, 0.1);
            // What did not come twice was unrest of this load.
            if let Some(strange) = self.strange.take() {
                self.scatter_by(&strange, &rung.seen, 0.1);
            }
        }
        self.strange = None;
        self.load.talks |= seen.small_log.is_some();
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
        self.walk_on(now)
    }

    /// Takes in by how much a slot was off what was expected.
    fn scatter_by(&mut self, seen: &Seen, expected: &Seen, weight: f64) {
        self.load.learnt = self.load.learnt.saturating_add(1);
        // What the first slot promised is soon outweighed.
        let weight = weight.max(1.0 / f64::from(self.load.learnt.saturating_add(3)));
        let bytes = Some((seen.bytes_log, expected.bytes_log));
        for (scatter, pair) in
            self.load.scatter.iter_mut().zip([bytes, seen.small_log.zip(expected.small_log)])
        {
            let Some((seen, expected)) = pair else { continue };
            // Mean absolute deviation x 1.25 is the standard deviation of a normal.
            let off = 1.25 * (seen - expected).abs().min(0.5);
            *scatter += (off - *scatter) * weight;
        }
    }

    /// The load is one of before: what was learnt of it holds, until a slot says otherwise.
    fn remember(&mut self, known: Remembered) -> Decision {
        let Remembered { mut load, rung, rest, left } = known;
        load.peak_pps = load.peak_pps.max(self.load.peak_pps);
        (self.load, self.rest) = (load, rest);
        let rung = rung.min(self.highest());
        self.walk = Walk::Rest { rung, slots: left };
        self.go(rung, "a load of before is back")
    }

    fn walk_on(&mut self, now: Nanos) -> Decision {
        match self.walk {
            Walk::Test(test) => self.test(test, now),
            Walk::Rest { rung, slots } => {
                self.rested = Some(rung);
                let highest = self.highest();
                if rung > highest {
                    return self.settle(highest, "the ring would overrun");
                }
                let Some(slots) = slots.checked_sub(1) else { return self.look_around(rung) };
                self.walk = Walk::Rest { rung, slots };
                Decision::Keep
            }
        }
    }

    /// The load may have changed too little to be another: below the rate may have become better,
    /// above it may no longer fall.
    fn look_around(&mut self, rung: usize) -> Decision {
        let highest = self.highest();
        if highest == 0 {
            self.walk = Walk::Rest { rung, slots: self.rest };
            return Decision::Keep;
        }
        let is_up = rung == 0 || (self.up && rung < highest);
        self.up = !is_up;
        let other = if is_up { self.best_above(rung) } else { self.best_below(rung) };
        self.load.rungs[other].slots = self.load.rungs[other].slots.min(LOOKED);
        let ceiling = if other > rung { RUNGS } else { rung + 1 };
        let test = Test::new(rung.min(other), rung.max(other), ceiling);
        self.walk = Walk::Test(Test { from: Some(rung), ..test });
        self.go(other, "a look at a neighbouring delay")
    }

    /// Where most was seen below a rung, if that was more than there: by chance, or what the steps of the walk
    /// have hidden one by one. Else as far down as a walk strides up.
    fn best_below(&self, rung: usize) -> usize {
        let seen = |rung: &usize| self.load.rungs[*rung].seen.bytes_log;
        let better =
            (0..rung).filter(|it| self.load.rungs[*it].slots > 0 && seen(it) > seen(&rung));
        let best = better.max_by(|a, b| seen(a).total_cmp(&seen(b)));
        best.unwrap_or(rung.saturating_sub(STRIDE))
    }

    /// The highest rung that was tried and not seen to lose beyond doubt: what has kept the walk below may have been
    /// chance. Else the next one.
    fn best_above(&self, rung: usize) -> usize {
        let is_unclear = |high: &usize| {
            let losses = self.losses(rung, *high);
            self.load.rungs[*high].slots > 0
                && losses.iter().all(|(loss, error)| *loss <= 2.0 * error)
        };
        (rung + 1..=self.highest()).rev().find(is_unclear).unwrap_or(rung + 1)
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
        let [a, b] = [low, high].map(|rung| self.load.rungs[rung].slots);
        if a == 0 || b == 0 {
            return self.go(if a == 0 { low } else { high }, "a look at a neighbouring delay");
        }
        let is_over = slots >= LONGEST_TEST && now.saturating_sub(start) >= TEST_LEAST;
        match self.verdict(test, is_over) {
            Verdict::Good => self.accept(test),
            // Nothing was seen beyond doubt: a load that waits for each delay loses more with a longer one.
            Verdict::Unclear if test.from.is_none() && ceiling == RUNGS && high < highest => {
                let higher = (high + STRIDE).min(highest);
                self.look(low, higher, ceiling, "the rate scatters: a longer delay tells more")
            }
            Verdict::Bad | Verdict::Unclear if high == low + 1 || test.from == Some(low) => {
                if let Some(far) = self.leap(test) {
                    return far;
                }
                self.rest = if test.from == Some(high) { REST[0] } else { self.rest };
                self.settle(low, "the rate falls with more delay")
            }
            Verdict::Bad | Verdict::Unclear => {
                if test.from == Some(high) {
                    self.rest = REST[0];
                }
                let middle = usize::midpoint(low, high);
                self.look(low, middle, high, "the rate falls: a shorter delay")
            }
            Verdict::Open => {
                let [bytes, small] = self.losses(low, high);
                let is_free = bytes.0 <= bytes.1 && small.0 <= small.1;
                if ceiling == RUNGS && high < highest && is_free && slots >= 2 {
                    let higher = (high + STRIDE).min(highest);
                    let reason = "the rate scatters: a longer delay tells more";
                    return self.look(low, higher, ceiling, reason);
                }
                let other = if self.rung == low { high } else { low };
                self.go(other, "a look at a neighbouring delay")
            }
        }
    }

    /// Bulk may lose by a little delay and gain by a long one: it pays for each timer, and batches come only
    /// with more of them. Before the walk ends without any delay, one look goes further up, if the traffic is
    /// mostly full frames and loses far less than what waits for each delay would.
    fn leap(&mut self, test: Test) -> Option<Decision> {
        let Test { low, high, ceiling, from, .. } = test;
        let far = STRIDE.min(self.highest());
        let (a, b) = (&self.load.rungs[low], &self.load.rungs[high]);
        let loss = a.seen.bytes_log - b.seen.bytes_log;
        let [_, small] = self.losses(low, high);
        let is_bulk_alone = a.seen.is_bulk && small.0 <= small.1;
        let is_first = low == 0 && high == 1 && from != Some(high) && ceiling == RUNGS;
        if !is_first
            || far <= high
            || !is_bulk_alone
            || loss > NOT_WAITING * self.each_waits(low, high)
        {
            return None;
        }
        self.load.rungs[far].slots = self.load.rungs[far].slots.min(2);
        self.walk = Walk::Test(Test { from: Some(low), ..Test::new(low, far, RUNGS) });
        Some(self.go(far, "bulk loses a little: a look at a long delay"))
    }

    /// What `high` loses beyond what may be lost, and the error of that: of bytes, and of small packets
    /// beside bulk, less what their loss has won for the bulk.
    fn losses(&self, low: usize, high: usize) -> [(f64, f64); 2] {
        let (a, b) = (&self.load.rungs[low], &self.load.rungs[high]);
        let error = (1.0 / f64::from(a.slots) + 1.0 / f64::from(b.slots)).sqrt();
        let allowed = self.bounds.loss_ratio - a.spent;
        let [bytes_error, small_error] = self.load.scatter.map(|scatter| scatter * error);
        let bytes = a.seen.bytes_log - b.seen.bytes_log;
        let small = match (a.seen.small_log, b.seen.small_log) {
            (Some(a), Some(b)) => a - b + bytes.min(0.0),
            (Some(_), None) => self.load.limit(1),
            _ => return [(bytes - allowed, bytes_error), (f64::NEG_INFINITY, 0.0)],
        };
        [(bytes - allowed, bytes_error), (small - allowed, small_error)]
    }

    fn verdict(&self, test: Test, is_over: bool) -> Verdict {
        let losses = self.losses(test.low, test.high);
        let all = |is_good: &dyn Fn(f64, f64) -> bool| {
            losses.iter().all(|(loss, error)| is_good(*loss, *error))
        };
        // What was found good is given up only for what is seen, and a look up that promises nothing ends
        // with its first slot.
        let is_look_down = test.from == Some(test.high);
        let is_look_up = test.from == Some(test.low);
        let most = if is_over || is_look_down { BENEFIT } else { -1.0 };
        if all(&|loss, error| loss <= most * error) {
            return Verdict::Good;
        }
        let is_bad = !all(&|loss, error| loss <= if is_look_up { error } else { 2.0 * error });
        match (is_bad, is_over) {
            (true, _) => Verdict::Bad,
            (false, true) => Verdict::Unclear,
            (false, false) => Verdict::Open,
        }
    }

    /// `high` is good: higher, if there may be something better.
    fn accept(&mut self, test: Test) -> Decision {
        let Test { low, high, ceiling, from, .. } = test;
        if from != Some(high) {
            let allowed = self.bounds.loss_ratio;
            let spent = self.load.rungs[low].spent;
            let more = self.losses(low, high).map(|(loss, error)| loss + allowed - spent - error);
            self.load.rungs[high].spent = (spent + more[0].max(more[1]).max(0.0)).min(allowed);
        }
        let highest = self.highest();
        let next = if ceiling == RUNGS {
            (high + STRIDE).min(highest)
        } else {
            usize::midpoint(high, ceiling)
        };
        if next <= high || next > highest || next >= ceiling {
            return self.settle(high, "the rate does not fall with this delay");
        }
        self.look(high, next, ceiling, "the rate did not fall: a longer delay")
    }

    fn look(&mut self, low: usize, high: usize, ceiling: usize, reason: &'static str) -> Decision {
        self.walk = Walk::Test(Test::new(low, high, ceiling));
        self.go(high, reason)
    }

    /// Rests at `rung`: longer each time, so that looking around costs less and less.
    fn settle(&mut self, rung: usize, reason: &'static str) -> Decision {
        // The first look after the first walk goes where it was kept below by chance, if it may have been.
        self.up |= self.rested.is_none() && self.best_above(rung) > rung + 1;
        self.walk = Walk::Rest { rung, slots: self.rest };
        self.rest = (self.rest * 2).min(REST[1]);
        self.go(rung, reason)
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
        Decision::Change { target, reason }
    }

    /// Another load: what was learnt holds no longer, but is kept for when the load comes back.
    fn forget(&mut self, reason: &'static str) -> Decision {
        let mut new = Self::new(self.bounds);
        std::mem::swap(self, &mut new);
        let Self { rung, given, last, sample, load, walk, rested, rest, memory, .. } = new;
        (self.rung, self.given, self.last, self.memory) = (rung, given, last, memory);
        self.sample = sample;
        if let Some(rung) = rested {
            let left = match walk {
                Walk::Rest { slots, .. } => slots,
                Walk::Test(_) => REST[0],
            };
            self.memory.keep(Remembered { load, rung, rest, left });
        }
        self.go(0, reason)
    }
}

impl Rung {
    fn take(&mut self, new: &Seen) {
        self.slots = self.slots.saturating_add(1);
        let weight = NEWEST.max(1.0 / f64::from(self.slots));
        let towards = |mean: &mut f64, new: f64| *mean += (new - *mean) * weight;
        towards(&mut self.seen.bytes_log, new.bytes_log);
        towards(&mut self.seen.packets_log, new.packets_log);
        towards(&mut self.seen.batch, new.batch);
        self.seen.is_bulk = new.is_bulk;
        match (&mut self.seen.small_log, new.small_log) {
            (Some(mean), Some(new)) => towards(mean, new),
            (mean, new) => *mean = new,
        }
    }
}
