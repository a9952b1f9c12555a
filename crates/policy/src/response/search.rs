//! The search along the ladder: sequential tests of two steps, holds, and tests of neighbours after a hold.

#[cfg(test)]
mod tests;

use latput_units::Nanos;

use super::{ResponseParams, ResponsePolicy};
use crate::Decision;
use crate::ladder::STEPS;

/// The phase of the search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DelaySearch {
    /// Is `high` as good as `low`, which is good? Slots alternate between them.
    Test(StepTest),
    /// `step` holds for `slots` more slots. Then a step above or below it is tested.
    Hold { step: usize, slots: u32 },
}

/// A sequential test of two steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StepTest {
    pub(super) low: usize,
    /// Above `low`.
    pub(super) high: usize,
    /// The lowest step that is known to be too high.
    pub(super) ceiling: usize,
    /// The step that held before, if this is a test of its neighbour.
    pub(super) from: Option<usize>,
    pub(super) slots: u32,
    /// When its first slot began.
    pub(super) start: Option<Nanos>,
}

impl StepTest {
    pub(super) fn new(low: usize, high: usize, ceiling: usize) -> Self {
        Self { low, high, ceiling, from: None, slots: 0, start: None }
    }
}

/// The result of a test so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TestResult {
    Good,
    Bad,
    Open,
    /// Over, and still not clearly bad.
    Unclear,
}

/// The loss of requests and its standard error, as logarithms: the posterior of a normal prior and a measurement. The
/// prior's mean is `waits`, the loss of a closed loop. `seen` is the measured loss and its error.
fn posterior_loss(seen: Option<(f64, f64)>, waits: f64, params: &ResponseParams) -> (f64, f64) {
    let prior_error = params.prior_error_ratio * waits;
    let Some((seen, error)) = seen else { return (waits, prior_error) };
    let prior_variance = prior_error * prior_error;
    let weight = prior_variance / (prior_variance + error * error).max(f64::MIN_POSITIVE);
    let seen = seen.clamp(-waits, params.closed_loop_most * waits);
    (waits + (seen - waits) * weight, error * weight.sqrt())
}

impl ResponsePolicy {
    /// The rate that a closed loop loses from `low` to `high`, as a logarithm, at the packet rate seen at `low`.
    pub(super) fn closed_loop_loss(&self, low: usize, high: usize) -> f64 {
        self.closed_loop_loss_at(self.load.steps[low].seen.packets_log.exp(), low, high)
    }

    /// The same at `pps` packets per second.
    fn closed_loop_loss_at(&self, pps: f64, low: usize, high: usize) -> f64 {
        let [short, long] = [low, high].map(|step| self.bounds.step_delay(step).as_secs_f64());
        (pps * (long - short)).ln_1p()
    }

    pub(super) fn continue_search(&mut self, now: Nanos) -> Decision {
        match self.search {
            DelaySearch::Test(test) => self.continue_test(test, now),
            DelaySearch::Hold { step, slots } => {
                self.settled_at = Some(step);
                let highest = self.highest_step();
                if step > highest {
                    return self.hold_step(highest, "the ring would overrun");
                }
                if self.delays_requests(0, step) {
                    return match usize::midpoint(0, step) {
                        0 => self.hold_step(0, "requests wait for each delay"),
                        middle => {
                            self.test_steps(0, middle, step, "requests wait: a shorter delay")
                        }
                    };
                }
                let Some(slots) = slots.checked_sub(1) else { return self.check_neighbour(step) };
                self.search = DelaySearch::Hold { step, slots };
                Decision::Keep
            }
        }
    }

    /// Tests a step above or below the one that holds, in turn: the load may have changed too little to count as
    /// another.
    fn check_neighbour(&mut self, step: usize) -> Decision {
        let highest = self.highest_step();
        if highest == 0 {
            self.search = DelaySearch::Hold { step, slots: self.hold_slots };
            return Decision::Keep;
        }
        let is_up = step == 0 || (self.up && step < highest);
        self.up = !is_up;
        let other = if is_up { self.best_above(step) } else { self.best_below(step) };
        self.load.steps[other].slots =
            self.load.steps[other].slots.min(self.params.neighbour_slots);
        let ceiling = if other > step { STEPS } else { step + 1 };
        let test = StepTest::new(step.min(other), step.max(other), ceiling);
        self.search = DelaySearch::Test(StepTest { from: Some(step), ..test });
        self.move_to(other, "a test of a neighbouring delay")
    }

    /// The lower step with the highest rate, if that rate is above the rate at `step`: losses too small to see at each
    /// step of the search add up. Otherwise `climb_steps` lower.
    fn best_below(&self, step: usize) -> usize {
        let seen = |step: &usize| self.load.steps[*step].seen.bytes_log;
        let better =
            (0..step).filter(|it| self.load.steps[*it].slots > 0 && seen(it) > seen(&step));
        let best = better.max_by(|a, b| seen(a).total_cmp(&seen(b)));
        best.unwrap_or(step.saturating_sub(self.params.climb_steps))
    }

    /// The highest step that was tested and lost at most two standard errors: chance may have kept the search below
    /// it. Otherwise the next step.
    fn best_above(&self, step: usize) -> usize {
        let is_unclear = |high: &usize| {
            let losses = self.estimate_excess_losses(step, *high);
            self.load.steps[*high].slots > 0
                && losses.iter().all(|(loss, error)| *loss <= 2.0 * error)
        };
        (step + 1..=self.highest_step()).rev().find(is_unclear).unwrap_or(step + 1)
    }

    /// The sequential test: is the rate at `high` within the loss of that at `low`?
    fn continue_test(&mut self, mut test: StepTest, now: Nanos) -> Decision {
        test.slots += 1;
        let start = *test.start.get_or_insert(now);
        self.search = DelaySearch::Test(test);
        let StepTest { low, high, ceiling, slots, .. } = test;
        let highest = self.highest_step();
        if high > highest {
            if low >= highest {
                return self.hold_step(highest, "the longest delay allowed");
            }
            return self.test_steps(low, highest, ceiling, "the longest delay allowed");
        }
        let [a, b] = [low, high].map(|step| self.load.steps[step].slots);
        if a == 0 || b == 0 {
            return self.move_to(if a == 0 { low } else { high }, "a test of a neighbouring delay");
        }
        let is_over =
            slots >= self.params.test_slots && now.saturating_sub(start) >= self.params.test_least;
        match self.result_of(test, is_over) {
            TestResult::Good => self.accept_step(test),
            // The loss is not significant. A closed loop loses more with a longer delay.
            TestResult::Unclear if test.from.is_none() && ceiling == STEPS && high < highest => {
                let higher = (high + self.params.climb_steps).min(highest);
                self.test_steps(
                    low,
                    higher,
                    ceiling,
                    "the rate scatters: a longer delay tells more",
                )
            }
            TestResult::Bad | TestResult::Unclear if high == low + 1 || test.from == Some(low) => {
                if let Some(far) = self.probe_far(test) {
                    return far;
                }
                self.hold_slots = if test.from == Some(high) {
                    self.params.hold_slots_first
                } else {
                    self.hold_slots
                };
                self.hold_step(low, "the rate falls with more delay")
            }
            TestResult::Bad | TestResult::Unclear => {
                if test.from == Some(high) {
                    self.hold_slots = self.params.hold_slots_first;
                }
                let middle = usize::midpoint(low, high);
                self.test_steps(low, middle, high, "the rate falls: a shorter delay")
            }
            TestResult::Open => {
                let [bytes, small] = self.estimate_excess_losses(low, high);
                let is_free = bytes.0 <= bytes.1 && small.0 <= small.1;
                if ceiling == STEPS && high < highest && is_free && slots >= 2 {
                    let higher = (high + self.params.climb_steps).min(highest);
                    let reason = "the rate scatters: a longer delay tells more";
                    return self.test_steps(low, higher, ceiling, reason);
                }
                let other = if self.step == low { high } else { low };
                self.move_to(other, "a test of a neighbouring delay")
            }
        }
    }

    /// Bulk may lose with a short delay and gain with a long one: each timer costs CPU, and only long delays make
    /// batches that pay for it. Before the search ends without a delay, one test goes further up. It does so only if
    /// the traffic is mostly full frames and loses far less than a closed loop would.
    fn probe_far(&mut self, test: StepTest) -> Option<Decision> {
        let StepTest { low, high, ceiling, from, .. } = test;
        let far = self.params.climb_steps.min(self.highest_step());
        let [_, small] = self.estimate_excess_losses(low, high);
        let is_bulk_alone = self.load.steps[low].seen.is_bulk && small.0 <= small.1;
        let is_first = low == 0 && high == 1 && from != Some(high) && ceiling == STEPS;
        if !is_first || far <= high || !is_bulk_alone || self.loses_like_closed_loop(low, high) {
            return None;
        }
        self.load.steps[far].slots = self.load.steps[far].slots.min(2);
        self.search =
            DelaySearch::Test(StepTest { from: Some(low), ..StepTest::new(low, far, STEPS) });
        Some(self.move_to(far, "bulk loses a little: a test of a long delay"))
    }

    /// The loss of `high` beyond the allowed loss and its standard error: of bytes, and of small packets beside bulk
    /// (of the requests among them, where they are known). What bulk gains counts against a loss of small packets.
    fn estimate_excess_losses(&self, low: usize, high: usize) -> [(f64, f64); 2] {
        let a = &self.load.steps[low];
        let b = &self.load.steps[high];
        let error = (1.0 / f64::from(a.slots) + 1.0 / f64::from(b.slots)).sqrt();
        let allowed = self.bounds.loss_ratio - a.spent;
        let [bytes_error, small_error] = self.load.scatter.map(|scatter| scatter * error);
        let bytes = a.seen.bytes_log - b.seen.bytes_log;
        let beside = |small| [(bytes - allowed, bytes_error), small];
        let seen = (a.seen.small_log, b.seen.small_log);
        if let Some(pps) = self.load.requests {
            let seen = seen.0.zip(seen.1).map(|(a, b)| (a - b, small_error));
            let (loss, error) =
                posterior_loss(seen, self.closed_loop_loss_at(pps, low, high), &self.params);
            // The loss may be a belief only, so that a gain counts only where it is significant.
            let gained = (-bytes - bytes_error).max(0.0);
            return beside((loss - gained - allowed, error));
        }
        let small = match seen {
            // A sample counts the ends of bulk's messages as small packets, and larger sends have fewer ends. Requests
            // lose no more than waiting costs.
            (Some(a), Some(b)) if self.is_sampled() => {
                (a - b).min(
                    self.params.closed_loop_most * self.closed_loop_loss_at(a.exp(), low, high),
                ) + bytes.min(0.0)
            }
            (Some(a), Some(b)) => a - b + bytes.min(0.0),
            (Some(_), None) => self.load.deviation_limit(1, &self.params),
            _ => return beside((f64::NEG_INFINITY, 0.0)),
        };
        beside((small - allowed, small_error))
    }

    fn result_of(&self, test: StepTest, is_over: bool) -> TestResult {
        let losses = self.estimate_excess_losses(test.low, test.high);
        let all = |is_good: &dyn Fn(f64, f64) -> bool| {
            losses.iter().all(|(loss, error)| is_good(*loss, *error))
        };
        // The step that holds is left for a lower one only if its loss is significant. A test of a higher step ends
        // with its first slot if that shows no promise.
        let is_test_below = test.from == Some(test.high);
        let is_test_above = test.from == Some(test.low);
        let most = if is_over || is_test_below { self.params.accept_errors } else { -1.0 };
        if all(&|loss, error| loss <= most * error) {
            return TestResult::Good;
        }
        let is_bad = !all(&|loss, error| loss <= if is_test_above { error } else { 2.0 * error });
        match (is_bad, is_over) {
            (true, _) if self.may_be_chance(test) => TestResult::Open,
            (true, _) => TestResult::Bad,
            (false, true) => TestResult::Unclear,
            (false, false) => TestResult::Open,
        }
    }

    /// Whether a loss may be the load's own scatter. One sample of a daemon does not show the scatter; several do.
    /// A closed loop loses more than that.
    fn may_be_chance(&self, test: StepTest) -> bool {
        let StepTest { low, high, .. } = test;
        let [a, b] = [low, high].map(|step| self.load.steps[step].slots);
        self.is_sampled()
            && test.from.is_none()
            && a.min(b) < self.params.test_slots / 2
            && !self.loses_like_closed_loop(low, high)
            && !self.delays_requests(low, high)
    }

    /// Whether the requests beside bulk lose more than allowed from `low` to `high`.
    fn delays_requests(&self, low: usize, high: usize) -> bool {
        let are_known = self.load.requests.is_some() && self.load.steps[low].slots > 0;
        let [_, (loss, error)] = self.estimate_excess_losses(low, high);
        are_known && loss > 2.0 * error
    }

    /// Whether `high` loses as much beside `low` as a closed loop would.
    fn loses_like_closed_loop(&self, low: usize, high: usize) -> bool {
        let [a, b] = [low, high].map(|step| self.load.steps[step].seen.bytes_log);
        a - b > self.params.closed_loop_least * self.closed_loop_loss(low, high)
    }

    /// `high` is good. Tests a higher step, if there is one.
    fn accept_step(&mut self, test: StepTest) -> Decision {
        let StepTest { low, high, ceiling, from, .. } = test;
        if from != Some(high) {
            let allowed = self.bounds.loss_ratio;
            let spent = self.load.steps[low].spent;
            let more = self
                .estimate_excess_losses(low, high)
                .map(|(loss, error)| loss + allowed - spent - error);
            self.load.steps[high].spent = (spent + more[0].max(more[1]).max(0.0)).min(allowed);
        }
        let highest = self.highest_step();
        let next = if ceiling == STEPS {
            (high + self.params.climb_steps).min(highest)
        } else {
            usize::midpoint(high, ceiling)
        };
        if next <= high || next > highest || next >= ceiling {
            return self.hold_step(high, "the rate does not fall with this delay");
        }
        self.test_steps(high, next, ceiling, "the rate did not fall: a longer delay")
    }

    pub(super) fn test_steps(
        &mut self,
        low: usize,
        high: usize,
        ceiling: usize,
        reason: &'static str,
    ) -> Decision {
        self.search = DelaySearch::Test(StepTest::new(low, high, ceiling));
        self.move_to(high, reason)
    }

    /// Holds `step`, each time twice as long, so that tests of neighbours cost less and less.
    pub(super) fn hold_step(&mut self, step: usize, reason: &'static str) -> Decision {
        // Chance may have kept the first search below a better step: the first test goes there.
        self.up |= self.settled_at.is_none() && self.best_above(step) > step + 1;
        self.search = DelaySearch::Hold { step, slots: self.hold_slots };
        let has_requests = self.load.requests.is_some_and(|pps| pps >= 1.0);
        self.hold_slots = (self.hold_slots * 2).min(if has_requests {
            self.params.hold_slots_requests
        } else {
            self.params.hold_slots_most
        });
        self.move_to(step, reason)
    }
}
