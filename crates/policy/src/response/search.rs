//! The search along the ladder: sequential tests of two steps, rests, and looks around.

use latput_units::Nanos;

use super::{Params, ResponsePolicy};
use crate::Decision;
use crate::ladder::STEPS;

/// What is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DelaySearch {
    /// Is `high` as good as `low`, which is good? Slots alternate between them.
    Test(Test),
    /// `step` holds for so many more slots; then the one above (or below) is looked at.
    Hold { step: usize, slots: u32 },
}

/// A sequential test of two steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Test {
    pub(super) low: usize,
    pub(super) high: usize,
    /// The lowest step that is known to be too high.
    pub(super) ceiling: usize,
    /// Only a look from this step, where the search has ended.
    pub(super) from: Option<usize>,
    pub(super) slots: u32,
    /// When its first slot began.
    pub(super) start: Option<Nanos>,
}

impl Test {
    pub(super) fn new(low: usize, high: usize, ceiling: usize) -> Self {
        Self { low, high, ceiling, from: None, slots: 0, start: None }
    }
}

/// What a test says so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TestResult {
    Good,
    Bad,
    Open,
    /// Over, and still not clearly bad.
    Unclear,
}

/// What requests lose that would lose `waits` if each waited for each delay, and the error of that: the mean of a
/// normal prior around it and of what was `seen` with its error, by their precisions.
fn posterior_loss(seen: Option<(f64, f64)>, waits: f64, params: &Params) -> (f64, f64) {
    let doubt = params.prior_error_ratio * waits;
    let Some((seen, error)) = seen else { return (waits, doubt) };
    let weight = doubt * doubt / (doubt * doubt + error * error).max(f64::MIN_POSITIVE);
    let seen = seen.clamp(-waits, params.closed_loop_most * waits);
    (waits + (seen - waits) * weight, error * weight.sqrt())
}

impl ResponsePolicy {
    /// What a load loses from `low` to `high` that waits for each delay, as a logarithm.
    pub(super) fn closed_loop_loss(&self, low: usize, high: usize) -> f64 {
        self.closed_loop_loss_at(self.load.steps[low].seen.packets_log.exp(), low, high)
    }

    /// The same of so many packets per second.
    fn closed_loop_loss_at(&self, pps: f64, low: usize, high: usize) -> f64 {
        let [short, long] = [low, high].map(|step| self.bounds.delay(step).as_secs_f64());
        (pps * (long - short)).ln_1p()
    }

    pub(super) fn continue_search(&mut self, now: Nanos) -> Decision {
        match self.search {
            DelaySearch::Test(test) => self.test(test, now),
            DelaySearch::Hold { step, slots } => {
                self.settled_at = Some(step);
                let highest = self.highest();
                if step > highest {
                    return self.settle(highest, "the ring would overrun");
                }
                if self.delays_requests(0, step) {
                    return match usize::midpoint(0, step) {
                        0 => self.settle(0, "requests wait for each delay"),
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

    /// The load may have changed too little to be another: below the rate may have become better,
    /// above it may no longer fall.
    fn check_neighbour(&mut self, step: usize) -> Decision {
        let highest = self.highest();
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
        let test = Test::new(step.min(other), step.max(other), ceiling);
        self.search = DelaySearch::Test(Test { from: Some(step), ..test });
        self.move_to(other, "a look at a neighbouring delay")
    }

    /// Where most was seen below a step, if that was more than there: by chance, or what the steps of the search
    /// have hidden one by one. Else as far down as a search strides up.
    fn best_below(&self, step: usize) -> usize {
        let seen = |step: &usize| self.load.steps[*step].seen.bytes_log;
        let better =
            (0..step).filter(|it| self.load.steps[*it].slots > 0 && seen(it) > seen(&step));
        let best = better.max_by(|a, b| seen(a).total_cmp(&seen(b)));
        best.unwrap_or(step.saturating_sub(self.params.climb_steps))
    }

    /// The highest step that was tried and not seen to lose beyond doubt: what has kept the search below may have been
    /// chance. Else the next one.
    fn best_above(&self, step: usize) -> usize {
        let is_unclear = |high: &usize| {
            let losses = self.losses(step, *high);
            self.load.steps[*high].slots > 0
                && losses.iter().all(|(loss, error)| *loss <= 2.0 * error)
        };
        (step + 1..=self.highest()).rev().find(is_unclear).unwrap_or(step + 1)
    }

    /// The sequential test: is the rate at `high` within the loss of that at `low`?
    fn test(&mut self, mut test: Test, now: Nanos) -> Decision {
        test.slots += 1;
        let start = *test.start.get_or_insert(now);
        self.search = DelaySearch::Test(test);
        let Test { low, high, ceiling, slots, .. } = test;
        let highest = self.highest();
        if high > highest {
            if low >= highest {
                return self.settle(highest, "the longest delay allowed");
            }
            return self.test_steps(low, highest, ceiling, "the longest delay allowed");
        }
        let [a, b] = [low, high].map(|step| self.load.steps[step].slots);
        if a == 0 || b == 0 {
            return self.move_to(if a == 0 { low } else { high }, "a look at a neighbouring delay");
        }
        let is_over =
            slots >= self.params.test_slots && now.saturating_sub(start) >= self.params.test_least;
        match self.result_of(test, is_over) {
            TestResult::Good => self.accept(test),
            // Nothing was seen beyond doubt: a load that waits for each delay loses more with a longer one.
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
                self.settle(low, "the rate falls with more delay")
            }
            TestResult::Bad | TestResult::Unclear => {
                if test.from == Some(high) {
                    self.hold_slots = self.params.hold_slots_first;
                }
                let middle = usize::midpoint(low, high);
                self.test_steps(low, middle, high, "the rate falls: a shorter delay")
            }
            TestResult::Open => {
                let [bytes, small] = self.losses(low, high);
                let is_free = bytes.0 <= bytes.1 && small.0 <= small.1;
                if ceiling == STEPS && high < highest && is_free && slots >= 2 {
                    let higher = (high + self.params.climb_steps).min(highest);
                    let reason = "the rate scatters: a longer delay tells more";
                    return self.test_steps(low, higher, ceiling, reason);
                }
                let other = if self.step == low { high } else { low };
                self.move_to(other, "a look at a neighbouring delay")
            }
        }
    }

    /// Bulk may lose by a little delay and gain by a long one: it pays for each timer, and batches come only
    /// with more of them. Before the search ends without any delay, one look goes further up, if the traffic is
    /// mostly full frames and loses far less than what waits for each delay would.
    fn probe_far(&mut self, test: Test) -> Option<Decision> {
        let Test { low, high, ceiling, from, .. } = test;
        let far = self.params.climb_steps.min(self.highest());
        let [_, small] = self.losses(low, high);
        let is_bulk_alone = self.load.steps[low].seen.is_bulk && small.0 <= small.1;
        let is_first = low == 0 && high == 1 && from != Some(high) && ceiling == STEPS;
        if !is_first || far <= high || !is_bulk_alone || self.loses_like_closed_loop(low, high) {
            return None;
        }
        self.load.steps[far].slots = self.load.steps[far].slots.min(2);
        self.search = DelaySearch::Test(Test { from: Some(low), ..Test::new(low, far, STEPS) });
        Some(self.move_to(far, "bulk loses a little: a look at a long delay"))
    }

    /// What `high` loses beyond what may be lost, and the error of that: of bytes, and of small packets (or of the
    /// requests among them, if they are known) beside bulk, less what their loss has won for the bulk.
    fn losses(&self, low: usize, high: usize) -> [(f64, f64); 2] {
        let (a, b) = (&self.load.steps[low], &self.load.steps[high]);
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
            // What is taken for granted is made up only by what is seen.
            let gained = (-bytes - bytes_error).max(0.0);
            return beside((loss - gained - allowed, error));
        }
        let small = match seen {
            // A sample counts the ends of bulk's messages as small packets too, and there are fewer of them where more
            // is sent at once: beyond what waiting costs, it is not requests that are lost.
            (Some(a), Some(b)) if self.is_sampled() => {
                (a - b).min(
                    self.params.closed_loop_most * self.closed_loop_loss_at(a.exp(), low, high),
                ) + bytes.min(0.0)
            }
            (Some(a), Some(b)) => a - b + bytes.min(0.0),
            (Some(_), None) => self.load.limit(1, &self.params),
            _ => return beside((f64::NEG_INFINITY, 0.0)),
        };
        beside((small - allowed, small_error))
    }

    fn result_of(&self, test: Test, is_over: bool) -> TestResult {
        let losses = self.losses(test.low, test.high);
        let all = |is_good: &dyn Fn(f64, f64) -> bool| {
            losses.iter().all(|(loss, error)| is_good(*loss, *error))
        };
        // What was found good is given up only for what is seen, and a look up that promises nothing ends
        // with its first slot.
        let is_look_down = test.from == Some(test.high);
        let is_look_up = test.from == Some(test.low);
        let most = if is_over || is_look_down { self.params.accept_errors } else { -1.0 };
        if all(&|loss, error| loss <= most * error) {
            return TestResult::Good;
        }
        let is_bad = !all(&|loss, error| loss <= if is_look_up { error } else { 2.0 * error });
        match (is_bad, is_over) {
            (true, _) if self.may_be_chance(test) => TestResult::Open,
            (true, _) => TestResult::Bad,
            (false, true) => TestResult::Unclear,
            (false, false) => TestResult::Open,
        }
    }

    /// Whether a loss may be the load's own scatter: a sample of a daemon does not show it, so that it has to be learnt
    /// from several. What waits for each delay loses more.
    fn may_be_chance(&self, test: Test) -> bool {
        let Test { low, high, .. } = test;
        let [a, b] = [low, high].map(|step| self.load.steps[step].slots);
        self.is_sampled()
            && test.from.is_none()
            && a.min(b) < self.params.test_slots / 2
            && !self.loses_like_closed_loop(low, high)
            && !self.delays_requests(low, high)
    }

    /// Whether the requests beside bulk lose too much from `low` to `high`.
    fn delays_requests(&self, low: usize, high: usize) -> bool {
        let are_known = self.load.requests.is_some() && self.load.steps[low].slots > 0;
        if !are_known || high <= low {
            return false;
        }
        let [_, (loss, error)] = self.losses(low, high);
        loss > 2.0 * error
    }

    /// Whether `high` is seen to lose beside `low` what a load does that waits for each delay.
    fn loses_like_closed_loop(&self, low: usize, high: usize) -> bool {
        let [a, b] = [low, high].map(|step| self.load.steps[step].seen.bytes_log);
        a - b > self.params.closed_loop_least * self.closed_loop_loss(low, high)
    }

    /// `high` is good: higher, if there may be something better.
    fn accept(&mut self, test: Test) -> Decision {
        let Test { low, high, ceiling, from, .. } = test;
        if from != Some(high) {
            let allowed = self.bounds.loss_ratio;
            let spent = self.load.steps[low].spent;
            let more = self.losses(low, high).map(|(loss, error)| loss + allowed - spent - error);
            self.load.steps[high].spent = (spent + more[0].max(more[1]).max(0.0)).min(allowed);
        }
        let highest = self.highest();
        let next = if ceiling == STEPS {
            (high + self.params.climb_steps).min(highest)
        } else {
            usize::midpoint(high, ceiling)
        };
        if next <= high || next > highest || next >= ceiling {
            return self.settle(high, "the rate does not fall with this delay");
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
        self.search = DelaySearch::Test(Test::new(low, high, ceiling));
        self.move_to(high, reason)
    }

    /// Rests at `step`: longer each time, so that looking around costs less and less.
    pub(super) fn settle(&mut self, step: usize, reason: &'static str) -> Decision {
        // The first look after the first search goes where it was kept below by chance, if it may have been.
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
