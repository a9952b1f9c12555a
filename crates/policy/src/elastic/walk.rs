//! The walk along the ladder: sequential tests of two rungs, rests, and looks around.

use latput_units::Nanos;

use super::Elastic;
use crate::Decision;
use crate::ladder::RUNGS;

/// Slots that a sequential test takes, if they also take this long: what it cannot decide by then is
/// accepted. A closed loop tells in two slots, and what scatters more does not wait for each delay.
const LONGEST_TEST: u32 = 6;
const TEST_LEAST: Nanos = Nanos::from_ms(12);
/// At its end a test accepts a loss of so many times its error beyond the one allowed.
const BENEFIT: f64 = 1.0;
/// Rungs that a walk climbs at once, while none was found to be too high.
const STRIDE: usize = 3;
/// A loss up to this share of what a load would lose that waits for each delay is no sign of waiting.
pub(super) const NOT_WAITING: f64 = 0.5;
/// And one up to so many times that may be: each delay ends with a poll, which may take as long.
pub(super) const POLLS_TOO: f64 = 2.0;
/// How far what requests beside bulk lose may be from that, before it is seen, as a share of it.
const DOUBT: f64 = 0.25;
/// What was seen in earlier looks at a rung counts as so many slots: old, but one slot that scatters by more than
/// the loss it is to show would be misled again at each look.
const LOOKED: u32 = 2;
/// Slots between two looks at the neighbouring rungs, at first and at most.
pub(super) const REST: [u32; 2] = [12, 400];
/// And at most where requests keep the delay short, which may go without a change of the bulk that they were beside.
const REST_BESIDE: u32 = 50;

/// What is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Walk {
    /// Is `high` as good as `low`, which is good? Slots alternate between them.
    Test(Test),
    /// `rung` holds for so many more slots; then the one above (or below) is looked at.
    Rest { rung: usize, slots: u32 },
}

/// A sequential test of two rungs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Test {
    pub(super) low: usize,
    pub(super) high: usize,
    /// The lowest rung that is known to be too high.
    pub(super) ceiling: usize,
    /// Only a look from this rung, where the walk has ended.
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
enum Verdict {
    Good,
    Bad,
    Open,
    /// Over, and still not clearly bad.
    Unclear,
}

/// What requests lose that would lose `waits` if each waited for each delay, and the error of that: the mean of a
/// normal prior around it and of what was `seen` with its error, by their precisions.
fn believed(seen: Option<(f64, f64)>, waits: f64) -> (f64, f64) {
    let doubt = DOUBT * waits;
    let Some((seen, error)) = seen else { return (waits, doubt) };
    let weight = doubt * doubt / (doubt * doubt + error * error).max(f64::MIN_POSITIVE);
    let seen = seen.clamp(-waits, POLLS_TOO * waits);
    (waits + (seen - waits) * weight, error * weight.sqrt())
}

impl Elastic {
    /// What a load loses from `low` to `high` that waits for each delay, as a logarithm.
    pub(super) fn each_waits(&self, low: usize, high: usize) -> f64 {
        self.waits(self.load.rungs[low].seen.packets_log.exp(), low, high)
    }

    /// The same of so many packets per second.
    fn waits(&self, pps: f64, low: usize, high: usize) -> f64 {
        let [short, long] = [low, high].map(|rung| self.bounds.delay(rung).as_secs_f64());
        (pps * (long - short)).ln_1p()
    }

    pub(super) fn walk_on(&mut self, now: Nanos) -> Decision {
        match self.walk {
            Walk::Test(test) => self.test(test, now),
            Walk::Rest { rung, slots } => {
                self.rested = Some(rung);
                let highest = self.highest();
                if rung > highest {
                    return self.settle(highest, "the ring would overrun");
                }
                if self.keeps_requests_waiting(0, rung) {
                    return match usize::midpoint(0, rung) {
                        0 => self.settle(0, "requests wait for each delay"),
                        middle => self.look(0, middle, rung, "requests wait: a shorter delay"),
                    };
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
        let [_, small] = self.losses(low, high);
        let is_bulk_alone = self.load.rungs[low].seen.is_bulk && small.0 <= small.1;
        let is_first = low == 0 && high == 1 && from != Some(high) && ceiling == RUNGS;
        if !is_first || far <= high || !is_bulk_alone || self.loses_as_waiting(low, high) {
            return None;
        }
        self.load.rungs[far].slots = self.load.rungs[far].slots.min(2);
        self.walk = Walk::Test(Test { from: Some(low), ..Test::new(low, far, RUNGS) });
        Some(self.go(far, "bulk loses a little: a look at a long delay"))
    }

    /// What `high` loses beyond what may be lost, and the error of that: of bytes, and of small packets (or of the
    /// requests among them, if they are known) beside bulk, less what their loss has won for the bulk.
    fn losses(&self, low: usize, high: usize) -> [(f64, f64); 2] {
        let (a, b) = (&self.load.rungs[low], &self.load.rungs[high]);
        let error = (1.0 / f64::from(a.slots) + 1.0 / f64::from(b.slots)).sqrt();
        let allowed = self.bounds.loss_ratio - a.spent;
        let [bytes_error, small_error] = self.load.scatter.map(|scatter| scatter * error);
        let bytes = a.seen.bytes_log - b.seen.bytes_log;
        let beside = |small| [(bytes - allowed, bytes_error), small];
        let seen = (a.seen.small_log, b.seen.small_log);
        if let Some(pps) = self.load.requests {
            let seen = seen.0.zip(seen.1).map(|(a, b)| (a - b, small_error));
            let (loss, error) = believed(seen, self.waits(pps, low, high));
            // What is taken for granted is made up only by what is seen.
            let gained = (-bytes - bytes_error).max(0.0);
            return beside((loss - gained - allowed, error));
        }
        let small = match seen {
            // A sample counts the ends of bulk's messages as small packets too, and there are fewer of them where more
            // is sent at once: beyond what waiting costs, it is not requests that are lost.
            (Some(a), Some(b)) if self.is_sampled() => {
                (a - b).min(POLLS_TOO * self.waits(a.exp(), low, high)) + bytes.min(0.0)
            }
            (Some(a), Some(b)) => a - b + bytes.min(0.0),
            (Some(_), None) => self.load.limit(1),
            _ => return beside((f64::NEG_INFINITY, 0.0)),
        };
        beside((small - allowed, small_error))
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
            (true, _) if self.may_be_chance(test) => Verdict::Open,
            (true, _) => Verdict::Bad,
            (false, true) => Verdict::Unclear,
            (false, false) => Verdict::Open,
        }
    }

    /// Whether a loss may be the load's own scatter: a sample of a daemon does not show it, so that it has to be learnt
    /// from several. What waits for each delay loses more.
    fn may_be_chance(&self, test: Test) -> bool {
        let Test { low, high, .. } = test;
        let [a, b] = [low, high].map(|rung| self.load.rungs[rung].slots);
        self.is_sampled()
            && test.from.is_none()
            && a.min(b) < LONGEST_TEST / 2
            && !self.loses_as_waiting(low, high)
            && !self.keeps_requests_waiting(low, high)
    }

    /// Whether the requests beside bulk lose too much from `low` to `high`.
    fn keeps_requests_waiting(&self, low: usize, high: usize) -> bool {
        let are_known = self.load.requests.is_some() && self.load.rungs[low].slots > 0;
        if !are_known || high <= low {
            return false;
        }
        let [_, (loss, error)] = self.losses(low, high);
        loss > 2.0 * error
    }

    /// Whether `high` is seen to lose beside `low` what a load does that waits for each delay.
    fn loses_as_waiting(&self, low: usize, high: usize) -> bool {
        let [a, b] = [low, high].map(|rung| self.load.rungs[rung].seen.bytes_log);
        a - b > NOT_WAITING * self.each_waits(low, high)
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

    pub(super) fn look(
        &mut self,
        low: usize,
        high: usize,
        ceiling: usize,
        reason: &'static str,
    ) -> Decision {
        self.walk = Walk::Test(Test::new(low, high, ceiling));
        self.go(high, reason)
    }

    /// Rests at `rung`: longer each time, so that looking around costs less and less.
    pub(super) fn settle(&mut self, rung: usize, reason: &'static str) -> Decision {
        // The first look after the first walk goes where it was kept below by chance, if it may have been.
        self.up |= self.rested.is_none() && self.best_above(rung) > rung + 1;
        self.walk = Walk::Rest { rung, slots: self.rest };
        let has_requests = self.load.requests.is_some_and(|pps| pps >= 1.0);
        self.rest = (self.rest * 2).min(if has_requests { REST_BESIDE } else { REST[1] });
        self.go(rung, reason)
    }
}
