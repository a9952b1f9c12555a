//! Moderation by measured response: the longest delay that does not slow the load down.
//!
//! The cost of delay depends on who waits for whom. A closed loop (request/response, a short TCP window)
//! slows down when delay grows: its rate is the inverse of its latency. An open loop, and bulk with window to
//! spare, do not: there delay only saves interrupts. Frame sizes cannot tell these apart. An experiment can:
//! change the delay a little, and see whether the rate follows. The elasticity `d ln rate / d ln delay` is -1
//! for a closed loop, 0 for an open one, and above 0 where interrupts took the CPU that the work needed.
//!
//! The policy searches a ladder of delays, each twice the one below. It starts at the bottom, the safe side
//! for a load it does not know. A sequential test compares a step with the highest step known to be good,
//! on slots of a few milliseconds that alternate between the two. Where scatter hides a loss at one step,
//! the policy tests a higher one: a closed loop loses more there. A loss that is never seen is accepted.
//! Two more tests correct that. Before a search ends without any delay, bulk is tested at a far step, since
//! its rate may fall and then rise with the delay. After the search, tests of lower steps go where the rate was
//! highest, since hidden losses of single steps add up.
//!
//! A rate that jumps is a new load; a large jump is seen within a few polls. The search then starts from the
//! bottom. If the load has the rates of one of the last few there, the state of that load is restored.
//!
//! Two rates are watched: all bytes, and small packets in the direction of much larger traffic. Requests beside
//! bulk are a thousandth of its bytes, so that they are counted apart. Two bounds always hold: the longest
//! delay that the owner allows, and what half of the ring absorbs at the packet rate seen.
//!
//! All tuning constants are in [`ResponseParams`].

mod jump;
mod load;
mod memory;
mod params;
mod search;
mod slot;
#[cfg(test)]
mod tests;

use jump::{ExpectedLoad, RateJump};
use latput_units::Nanos;
use load::{LoadProfile, StepRates, load_distance};
use memory::{LoadMemory, RememberedLoad};
pub use params::ResponseParams;
use search::{DelaySearch, StepTest};
use slot::{SlotRates, TrafficSlot};

use crate::ladder::{DelayBounds, STEPS};
use crate::{Decision, Moderation, QueueObservation};

/// The policy of one queue.
#[derive(Clone, Debug, PartialEq)]
pub struct ResponsePolicy {
    bounds: DelayBounds,
    params: ResponseParams,
    step: usize,
    /// The delay of the last decision.
    applied: Nanos,
    slot: TrafficSlot,
    /// Detects a jump of the rate.
    jump: RateJump,
    /// Time of the previous call of `step`.
    last: Option<Nanos>,
    /// Length of a daemon's sample; zero for a driver's polls.
    sample: Nanos,
    /// How long the load has been idle.
    idle_for: Nanos,
    load: LoadProfile,
    /// Whether `load` was restored from memory and no slot has confirmed it yet.
    is_restored: bool,
    /// The last slot, if it deviated from its step.
    outlier: Option<SlotRates>,
    /// Number of slots in a row that deviated.
    outlier_slots: u32,
    search: DelaySearch,
    /// Slots of the next hold.
    hold_slots: u32,
    /// Whether the longer delay is tested after it, and not the shorter.
    up: bool,
    /// The step at which the search ended, once a slot there has confirmed it.
    settled_at: Option<usize>,
    memory: LoadMemory,
}

impl ResponsePolicy {
    /// Starts without a delay.
    pub fn new(bounds: DelayBounds) -> Self {
        Self::with_params(bounds, ResponseParams::DEFAULT)
    }

    /// The same with other constants.
    pub fn with_params(bounds: DelayBounds, params: ResponseParams) -> Self {
        Self {
            bounds,
            params,
            step: 0,
            applied: Nanos::ZERO,
            slot: TrafficSlot::after_change(bounds.vectors, &params),
            jump: RateJump::default(),
            last: None,
            sample: Nanos::ZERO,
            idle_for: Nanos::ZERO,
            load: LoadProfile::new(&params),
            is_restored: false,
            outlier: None,
            outlier_slots: 0,
            search: DelaySearch::Test(StepTest::new(0, 1, STEPS)),
            hold_slots: params.hold_slots_first,
            up: false,
            settled_at: None,
            memory: LoadMemory::default(),
        }
    }

    /// The delay of the step that holds.
    pub fn current_moderation(&self) -> Moderation {
        Moderation::from_delay(self.bounds.capped_delay(self.step, self.load.peak_pps))
    }

    /// Whether the current delay is on trial, and longer than the one found good. A daemon may then give a part of the
    /// next sample early: a closed loop shows its loss at once, and its requests are spared the rest.
    pub fn is_on_trial(&self) -> bool {
        matches!(self.search, DelaySearch::Test(StepTest { high, from, .. })
            if self.step == high && from != Some(high))
    }

    /// Takes in one completed poll, or a sample of `interrupts` polls.
    pub fn step(&mut self, observation: &QueueObservation) -> Decision {
        let now = observation.now;
        let Some(before) = self.last.replace(now) else { return Decision::Keep };
        let is_sampled = self.is_sampled();
        if !self.slot.add(observation, before, (!is_sampled).then_some(self.applied), &self.params)
        {
            return Decision::Keep;
        }
        let gap = now.saturating_sub(before);
        if gap > self.params.idle_after
            && let Some(decision) = self.take_gap(observation, gap)
        {
            return decision;
        }
        self.idle_for = Nanos::ZERO;
        // Only slots of similar length are compared.
        let is_part = self.slot.elapsed(now).saturating_mul(2) < self.sample;
        let is_full = if is_part {
            self.is_on_trial_harmful(now)
        } else {
            self.slot.is_full(now, self.expected_scatter(), is_sampled, &self.params)
        };
        let polls = observation.interrupts.max(1);
        if polls >= self.params.sample_polls && !self.is_on_trial() {
            self.sample = gap;
        }
        let step = self.load.steps[self.step];
        let expected = ExpectedLoad { delay: self.applied, seen: step.seen };
        if !is_sampled
            && step.slots > 0
            && self.jump.add(observation, before, &expected, &mut self.load, &self.params)
        {
            return self.forget_load("the rate jumped: another load");
        }
        if !is_full {
            return Decision::Keep;
        }
        let slot = std::mem::replace(&mut self.slot, TrafficSlot::from(now));
        let Some(seen) = slot.measure_rates(now, self.load.has_small_packets, &self.params) else {
            return Decision::Keep;
        };
        self.load.peak_pps = self.load.peak_pps.max(seen.busiest_pps);
        let decision = self.learn_slot(&seen, polls >= 4 * self.params.slot_polls, now);
        if decision == Decision::Keep && self.current_moderation().delay < self.applied {
            return self.change_delay("the ring would overrun");
        }
        decision
    }

    /// Takes in a poll after a gap in which a driver would have polled; `None` if it is like any other sample of a daemon.
    fn take_gap(&mut self, observation: &QueueObservation, gap: Nanos) -> Option<Decision> {
        let packets = f64::from(observation.rx.packets);
        let is_idle = packets < self.idle_packets(gap);
        // A delay on trial that leaves too few packets for a slot has failed: a slot would never fill.
        let is_tried = matches!(self.search, DelaySearch::Test(_)) && self.step > 0;
        let has_failed = is_tried && packets < f64::from(self.params.slot_polls);
        // A daemon's sample is always long.
        if observation.interrupts > 1 && !is_idle && !has_failed {
            return None;
        }
        self.idle_for = self.idle_for.saturating_add(gap);
        // One sample of a daemon may be empty because the machine was paused.
        if self.idle_for.saturating_mul(2) < self.sample.saturating_mul(3) {
            if is_idle {
                self.slot = TrafficSlot::from(observation.now);
            }
            return Some(Decision::Keep);
        }
        self.idle_for = Nanos::ZERO;
        Some(self.handle_idle())
    }

    /// Whether the observations are a daemon's samples of many polls, and not a driver's polls.
    fn is_sampled(&self) -> bool {
        self.sample > Nanos::ZERO
    }

    /// Fewer packets than this in a span count as idle: a share of the usual number, and never more than a slot
    /// needs. A slow load's samples may be small by chance, or because the machine was paused.
    fn idle_packets(&self, span: Nanos) -> f64 {
        let seen = |step: &StepRates| (step.slots > 0).then(|| step.seen.packets_log.exp());
        let usual = seen(&self.load.steps[self.step])
            .or_else(|| self.load.steps.iter().filter_map(seen).reduce(f64::max));
        let few = usual.map(|pps| pps * span.as_secs_f64() * self.params.idle_ratio);
        few.unwrap_or(f64::INFINITY).min(f64::from(self.params.slot_polls))
    }

    /// Almost no packet came. If a delay is on trial, the delay is the cause.
    fn handle_idle(&mut self) -> Decision {
        match self.search {
            DelaySearch::Test(StepTest { low, high, .. }) if self.step == high => {
                self.slot = TrafficSlot::after_change(self.bounds.vectors, &self.params);
                if high == low + 1 {
                    return self.hold_step(low, "the traffic stops with more delay");
                }
                let middle = usize::midpoint(low, high);
                self.test_steps(low, middle, high, "the traffic stops: a shorter delay")
            }
            _ => self.forget_load("idle: back to the safe side"),
        }
    }

    /// Whether a partial sample already proves that the delay on trial slows a closed loop.
    fn is_on_trial_harmful(&self, now: Nanos) -> bool {
        let DelaySearch::Test(StepTest { low, high, .. }) = self.search else { return false };
        let good = &self.load.steps[low];
        if !self.is_on_trial() || good.slots == 0 {
            return false;
        }
        let Some(seen) = self.slot.measure_rates(now, self.load.has_small_packets, &self.params)
        else {
            return false;
        };
        let loss = good.seen.bytes_log - seen.bytes_log;
        let error =
            self.params.early_errors * self.load.scatter[0].hypot(self.slot.poisson_error());
        let closed_loop_loss = self.closed_loop_loss(low, high);
        // Each timer costs a poll too. A larger loss has another cause: the machine was paused.
        let waiting = self.params.closed_loop_least * closed_loop_loss
            ..=self.params.closed_loop_most * closed_loop_loss + error;
        loss > self.bounds.loss_ratio + error && waiting.contains(&loss)
    }

    /// The scatter that sets the length of slots. After an outlier slots are short: it may have been the first of
    /// another load.
    fn expected_scatter(&self) -> f64 {
        if self.outlier.is_some() { 0.0 } else { self.load.scatter[0] }
    }

    /// Takes in one slot. A `coarse` one, a sample of many polls, can show another load by itself.
    fn learn_slot(&mut self, seen: &SlotRates, coarse: bool, now: Nanos) -> Decision {
        self.load.is_sampled = self.is_sampled();
        let first = self.load.steps[0];
        let has_grown =
            first.slots == 1 && seen.bytes_log - first.seen.bytes_log > self.params.jump_log[0];
        if self.is_sampled() && self.step == 0 && has_grown {
            // A load begins within a sample, which shows a part of its rate; its rate may also grow at first.
            self.load.steps[0] = StepRates::default();
        }
        let step = self.load.steps[self.step];
        if step.slots > 0 {
            // A driver's polls count frames. A daemon's samples count packets after merging.
            let apart = |other: &SlotRates| {
                load_distance(seen, other, &self.load, !self.is_sampled(), &self.params)
            };
            let deviation = apart(&step.seen);
            if deviation > 1.0 {
                // Two outliers that agree are another load. Two that do not are scatter.
                let agree = self.outlier.is_some_and(|last| apart(&last) < 0.5 * deviation);
                // A mean of one slot under a delay may itself be wrong.
                let is_known = self.step == 0 || step.slots > 1;
                if agree || (coarse && is_known && deviation > 2.0) {
                    return self.forget_load("the rate jumped: another load");
                }
                // The first slot of another load is partly of the previous one.
                self.outlier = Some(*seen);
                self.outlier_slots += 1;
                if self.outlier_slots > 2 {
                    self.load.scatter_by(seen, &step.seen, 0.2);
                }
                return Decision::Keep;
            }
            self.load.scatter_by(seen, &step.seen, 0.1);
            // An outlier that did not come twice was scatter of this load.
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
            && let Some(known) = self.memory.recall_load(seen, &self.params)
        {
            return self.restore_load(known);
        }
        // The first sample of a load may be wrong.
        if self.is_sampled()
            && self.step == 0
            && self.settled_at.is_none()
            && self.load.steps[0].slots < 2
        {
            return Decision::Keep;
        }
        self.continue_search(now)
    }

    /// Restores an earlier load. Its rates hold until a slot contradicts them.
    fn restore_load(&mut self, known: RememberedLoad) -> Decision {
        let RememberedLoad { mut load, step, mut search, mut hold_slots } = known;
        load.peak_pps = load.peak_pps.max(self.load.peak_pps);
        if load.requests.is_some() {
            // The requests beside this bulk may have gone, or be new.
            load.requests = self.load.requests;
            hold_slots = self.params.hold_slots_first;
            self.up = true;
            if let DelaySearch::Hold { slots, .. } = &mut search {
                *slots = self.params.hold_slots_first.min(*slots);
            }
        }
        (self.load, self.search, self.hold_slots) = (load, search, hold_slots);
        self.is_restored = true;
        self.move_to(step.min(self.highest_step()), "an earlier load is back")
    }

    /// The highest step that the bounds allow.
    fn highest_step(&self) -> usize {
        self.bounds.highest_capped_step(self.load.peak_pps)
    }

    fn move_to(&mut self, step: usize, reason: &'static str) -> Decision {
        if step == self.step {
            return Decision::Keep;
        }
        self.step = step;
        self.change_delay(reason)
    }

    fn change_delay(&mut self, reason: &'static str) -> Decision {
        let target = self.current_moderation();
        self.applied = target.delay;
        self.slot = TrafficSlot::after_change(self.bounds.vectors, &self.params);
        self.jump = RateJump::default();
        Decision::Change { target, reason }
    }

    /// Starts again for another load. This one is kept in memory.
    fn forget_load(&mut self, reason: &'static str) -> Decision {
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
        // A restored load that no slot confirmed is dropped.
        if !is_restored {
            self.memory.store_load(RememberedLoad { load, step, search, hold_slots }, &self.params);
        }
        self.move_to(0, reason)
    }
}
