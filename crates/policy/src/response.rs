//! Moderation by measured response: the longest delay that does not slow the load down.
//!
//! What delay costs depends on who waits for whom. A closed loop (request/response, a short TCP window)
//! slows down when delay grows: its rate is its latency seen from the other side. An open loop and bulk
//! with window to spare do not: there delay only saves interrupts. Frame sizes cannot tell these apart,
//! but an experiment can: change the delay a little, and see whether the rate follows. The elasticity
//! `d ln rate / d ln delay` is -1 where every delay is waited for, 0 where none is, and above 0 where
//! interrupts took the CPU that the work needed.
//!
//! The policy searches a ladder of delays, each twice the one below. It starts at the bottom, the safe side
//! for a load it does not know. A sequential test compares a step with the highest step known to be good,
//! on slots of a few milliseconds that alternate between the two. Where scatter hides a loss at one step,
//! the policy tests a higher one: a closed loop loses more there. A loss that is never seen is accepted.
//! Two more tests correct that. Before a search ends without any delay, bulk is tested on a far step, since
//! its rate may fall and then rise with the delay. And after the search, tests of lower steps go where the
//! rate was highest, since hidden losses of single steps add up. A rate that jumps is a new load; a far
//! jump is seen within a few polls. The search then starts from the bottom, unless the load behaves there
//! as one of the last few did: then the results for that one are restored.
//!
//! Two rates are watched: all bytes, and small packets that go the way of much larger traffic. Requests
//! beside bulk are a thousandth of its bytes, but they are counted apart, and so they have an elasticity of
//! their own. Two bounds hold whatever the rates say: the longest delay that the owner allows, and what
//! half of the ring absorbs at the packet rate seen.

mod jump;
mod load;
mod memory;
mod params;
mod search;
mod slot;
#[cfg(test)]
mod tests;

use jump::{Expected, RateJump};
use latput_units::Nanos;
use load::{Load, Step, distance};
use memory::{Memory, Remembered};
pub use params::Params;
use search::{DelaySearch, Test};
use slot::{Seen, Slot};

use crate::ladder::{Bounds, STEPS};
use crate::{Decision, Moderation, Observation};

/// The policy of one queue.
#[derive(Clone, Debug, PartialEq)]
pub struct ResponsePolicy {
    bounds: Bounds,
    params: Params,
    step: usize,
    /// The delay of the last decision.
    applied: Nanos,
    slot: Slot,
    /// Detects a jump of the rate.
    jump: RateJump,
    /// When the previous step was.
    last: Option<Nanos>,
    /// The usual gap between two polls.
    pace: Nanos,
    /// How long a sample of many polls is.
    sample: Nanos,
    /// For how long almost no packet has come.
    idle_for: Nanos,
    load: Load,
    /// Whether its figures are those of an earlier load, and no slot has confirmed them yet.
    is_restored: bool,
    /// The last slot, if it did not fit its step.
    outlier: Option<Seen>,
    /// How many slots in a row did not fit.
    outlier_slots: u32,
    search: DelaySearch,
    /// Slots that the next hold lasts.
    hold_slots: u32,
    /// Which neighbour is tested after it: the longer delay, or the shorter.
    up: bool,
    /// The step at which the search has ended, once a slot there has confirmed it.
    settled_at: Option<usize>,
    memory: Memory,
}

impl ResponsePolicy {
    /// Starts without a delay.
    pub fn new(bounds: Bounds) -> Self {
        Self::with_params(bounds, Params::DEFAULT)
    }

    /// The same with other constants.
    pub fn with_params(bounds: Bounds, params: Params) -> Self {
        Self {
            bounds,
            params,
            step: 0,
            applied: Nanos::ZERO,
            slot: Slot::after_change(bounds.vectors, &params),
            jump: RateJump::default(),
            last: None,
            pace: Nanos::ZERO,
            sample: Nanos::ZERO,
            idle_for: Nanos::ZERO,
            load: Load::new(&params),
            is_restored: false,
            outlier: None,
            outlier_slots: 0,
            search: DelaySearch::Test(Test::new(0, 1, STEPS)),
            hold_slots: params.hold_slots_first,
            up: false,
            settled_at: None,
            memory: Memory::default(),
        }
    }

    /// The delay of the step that holds.
    pub fn current(&self) -> Moderation {
        Moderation::delay(self.bounds.within(self.step, self.load.peak_pps))
    }

    /// Whether the delay of now is on trial, and longer than the one found good. Who samples seldom may give a part of
    /// the next sample early: where each delay is waited for, that is seen at once, and the requests are spared the rest.
    pub fn is_on_trial(&self) -> bool {
        matches!(self.search, DelaySearch::Test(Test { low, high, from, .. })
            if self.step == high && high > low && from != Some(high))
    }

    /// One completed poll, or a sample of many: `interrupts` says of how many.
    pub fn step(&mut self, observation: &Observation) -> Decision {
        let now = observation.now;
        let Some(before) = self.last.replace(now) else { return Decision::Keep };
        let is_sampled = self.is_sampled();
        if !self.slot.add(observation, before, (!is_sampled).then_some(self.pace), &self.params) {
            return Decision::Keep;
        }
        let polls = observation.interrupts.max(1);
        let gap = now.saturating_sub(before);
        let elapsed = self.slot.elapsed(now);
        // Slots are compared that were seen for as long.
        let is_part = elapsed.saturating_mul(2) < self.sample;
        let is_full = if is_part {
            self.is_on_trial_harmful(now)
        } else {
            self.slot.is_full(now, self.patience(), is_sampled, &self.params)
        };
        // A poll after a long gap is the first of something new; a sample of a daemon is always long.
        let packets = f64::from(observation.rx.packets);
        let is_nothing = gap > self.params.idle_after && packets < self.next_to_nothing(gap);
        // Under a delay that is on trial too few for a slot are a result_of: it would wait for one for good.
        let is_tried = matches!(self.search, DelaySearch::Test(_)) && self.step > 0;
        let is_first =
            polls == 1 || is_nothing || (is_tried && packets < f64::from(self.params.slot_polls));
        if (gap > self.params.idle_after && is_first)
            || (elapsed > self.params.idle_after && !is_full && !is_sampled)
        {
            self.idle_for = self.idle_for.saturating_add(gap);
            // One sample of a daemon may be empty because the machine stood still.
            if self.idle_for.saturating_mul(2) < self.sample.saturating_mul(3) {
                if is_nothing {
                    self.slot = Slot::from(now);
                }
                return Decision::Keep;
            }
            self.idle_for = Nanos::ZERO;
            return self.handle_idle();
        }
        self.idle_for = Nanos::ZERO;
        if polls >= self.params.sample_polls && !self.is_on_trial() {
            self.sample = gap;
        }
        let step = self.load.steps[self.step];
        let expected = Expected { delay: self.applied, seen: step.seen };
        if !is_sampled
            && step.slots > 0
            && self.jump.add(observation, before, &expected, &mut self.load, &self.params)
        {
            return self.forget("the rate jumped: another load");
        }
        if !is_full {
            return Decision::Keep;
        }
        let slot = std::mem::replace(&mut self.slot, Slot::from(now));
        self.pace = Nanos::from_ns(elapsed.as_ns() / u64::from(slot.polls));
        let Some(seen) = slot.seen(now, self.load.has_small_packets, &self.params) else {
            return Decision::Keep;
        };
        self.load.peak_pps = self.load.peak_pps.max(seen.busiest_pps);
        let decision = self.learn(&seen, polls >= 4 * self.params.slot_polls, now);
        if decision == Decision::Keep && self.current().delay < self.applied {
            return self.change("the ring would overrun");
        }
        decision
    }

    /// Whether the observations are a daemon's samples of many polls, and not a driver's polls.
    fn is_sampled(&self) -> bool {
        self.sample > Nanos::ZERO
    }

    /// Fewer packets than this in a span count as idle: 1/8 of the usual number, and never more than a slot
    /// needs. A slow load's samples are small by chance, or because the machine was paused.
    fn next_to_nothing(&self, span: Nanos) -> f64 {
        let seen = |step: &Step| (step.slots > 0).then(|| step.seen.packets_log.exp());
        let usual = seen(&self.load.steps[self.step])
            .or_else(|| self.load.steps.iter().filter_map(seen).reduce(f64::max));
        let few = usual.map(|pps| pps * span.as_secs_f64() * self.params.idle_ratio);
        few.unwrap_or(f64::INFINITY).min(f64::from(self.params.slot_polls))
    }

    /// Almost no packet came. Under a delay on trial, the delay is the cause.
    fn handle_idle(&mut self) -> Decision {
        match self.search {
            DelaySearch::Test(Test { low, high, .. }) if self.step == high && high > low => {
                self.slot = Slot::after_change(self.bounds.vectors, &self.params);
                if high == low + 1 {
                    return self.settle(low, "the traffic stops with more delay");
                }
                let middle = usize::midpoint(low, high);
                self.test_steps(low, middle, high, "the traffic stops: a shorter delay")
            }
            _ => self.forget("idle: back to the safe side"),
        }
    }

    /// Whether a partial sample already proves that the delay on trial slows a closed loop.
    fn is_on_trial_harmful(&self, now: Nanos) -> bool {
        let DelaySearch::Test(Test { low, high, .. }) = self.search else { return false };
        let good = &self.load.steps[low];
        if !self.is_on_trial() || good.slots == 0 {
            return false;
        }
        let Some(seen) = self.slot.seen(now, self.load.has_small_packets, &self.params) else {
            return false;
        };
        let loss = good.seen.bytes_log - seen.bytes_log;
        let doubt = self.params.early_errors * self.load.scatter[0].hypot(self.slot.by_chance());
        let closed_loop_loss = self.closed_loop_loss(low, high);
        // Each end of a timer costs a poll too. More than that was lost to something else: the machine stood still.
        let waiting = self.params.closed_loop_least * closed_loop_loss
            ..=self.params.closed_loop_most * closed_loop_loss + doubt;
        loss > self.bounds.loss_ratio + doubt && waiting.contains(&loss)
    }

    /// The scatter that decides how long slots are. After an outlier, slots are short: it may have been the
    /// first of another load.
    fn patience(&self) -> f64 {
        if self.outlier.is_some() { 0.0 } else { self.load.scatter[0] }
    }

    /// Takes in one slot; that of a `coarse` sample needs no second one to be believed.
    fn learn(&mut self, seen: &Seen, coarse: bool, now: Nanos) -> Decision {
        self.load.is_sampled = self.is_sampled();
        let first = self.load.steps[0];
        let has_grown =
            first.slots == 1 && seen.bytes_log - first.seen.bytes_log > self.params.jump_log[0];
        if self.is_sampled() && self.step == 0 && has_grown {
            // A load begins within a sample, which shows a part of its rate, and may grow for some.
            self.load.steps[0] = Step::default();
        }
        let step = self.load.steps[self.step];
        if step.slots > 0 {
            // A driver's polls count frames, a daemon's samples what was made of them.
            let apart =
                |other: &Seen| distance(seen, other, &self.load, !self.is_sampled(), &self.params);
            let off = apart(&step.seen);
            if off > 1.0 {
                // Two that agree are another load; two that do not are unrest.
                let agree = self.outlier.is_some_and(|last| apart(&last) < 0.5 * off);
                // An estimate of one slot under a delay may itself be off.
                let is_known = self.step == 0 || step.slots > 1;
                if agree || (coarse && is_known && off > 2.0) {
                    return self.forget("the rate jumped: another load");
                }
                // The first of another load is partly of the one before.
                self.outlier = Some(*seen);
                self.outlier_slots += 1;
                if self.outlier_slots > 2 {
                    self.load.scatter_by(seen, &step.seen, 0.2);
                }
                return Decision::Keep;
            }
            self.load.scatter_by(seen, &step.seen, 0.1);
            // What did not come twice was unrest of this load.
            if let Some(outlier) = self.outlier.take() {
                self.load.scatter_by(&outlier, &step.seen, 0.1);
            }
        }
        (self.outlier, self.outlier_slots) = (None, 0);
        self.is_restored &= step.slots == 0;
        self.load.has_small_packets |= seen.small_log.is_some();
        self.load.take_requests(seen, &self.params);
        if self.load.steps.iter().all(|step| step.slots == 0) {
            self.load.scatter[0] = self.load.scatter[0].max(seen.error);
        }
        self.load.steps[self.step].take(seen, &self.params);
        if self.step == 0
            && self.settled_at.is_none()
            && let Some(known) = self.memory.recall(seen, &self.params)
        {
            return self.restore(known);
        }
        // One may be off.
        if self.is_sampled()
            && self.step == 0
            && self.settled_at.is_none()
            && self.load.steps[0].slots < 2
        {
            return Decision::Keep;
        }
        self.continue_search(now)
    }

    /// Restores the figures of an earlier load. They hold until a slot contradicts them.
    fn restore(&mut self, known: Remembered) -> Decision {
        let Remembered { mut load, step, mut search, mut hold_slots } = known;
        load.peak_pps = load.peak_pps.max(self.load.peak_pps);
        if load.requests.is_some() {
            // Those beside it may have gone, or be new.
            load.requests = self.load.requests;
            hold_slots = self.params.hold_slots_first;
            self.up = true;
            if let DelaySearch::Hold { slots, .. } = &mut search {
                *slots = self.params.hold_slots_first.min(*slots);
            }
        }
        (self.load, self.search, self.hold_slots) = (load, search, hold_slots);
        self.is_restored = true;
        self.move_to(step.min(self.highest()), "an earlier load is back")
    }

    /// The highest step that the bounds allow.
    fn highest(&self) -> usize {
        self.bounds.reach(self.load.peak_pps)
    }

    fn move_to(&mut self, step: usize, reason: &'static str) -> Decision {
        if step == self.step {
            return Decision::Keep;
        }
        self.step = step;
        self.change(reason)
    }

    fn change(&mut self, reason: &'static str) -> Decision {
        let target = self.current();
        self.applied = target.delay;
        self.slot = Slot::after_change(self.bounds.vectors, &self.params);
        self.jump = RateJump::default();
        Decision::Change { target, reason }
    }

    /// Starts anew for another load. The figures of this one are kept in memory.
    fn forget(&mut self, reason: &'static str) -> Decision {
        let mut new = Self::with_params(self.bounds, self.params);
        std::mem::swap(self, &mut new);
        let Self {
            step,
            applied,
            last,
            sample,
            load,
            is_restored,
            search,
            settled_at,
            hold_slots,
            memory,
            ..
        } = new;
        (self.step, self.applied, self.last, self.memory) = (step, applied, last, memory);
        self.sample = sample;
        let (step, search) = match (search, settled_at) {
            (DelaySearch::Hold { step, .. }, _) => (step, search),
            // A test of a neighbour is not resumed.
            (DelaySearch::Test(_), Some(step)) => {
                (step, DelaySearch::Hold { step, slots: self.params.hold_slots_first })
            }
            (DelaySearch::Test(_), None) => (step, search),
        };
        // A restored load that no slot has confirmed is not kept.
        if !is_restored {
            self.memory.keep(Remembered { load, step, search, hold_slots }, &self.params);
        }
        self.move_to(0, reason)
    }
}
