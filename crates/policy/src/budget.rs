//! Moderation to a CPU budget: the least delay that keeps the host's CPU within it.
//!
//! Delay saves interrupts and with them CPU time, less with each doubling. The policy lengthens the
//! delay while the CPU is over its budget, and shortens it when the step below promises to stay
//! within: by what that step was seen to take, in proportion to the packets of now. A step that broke
//! the budget is tried again only when the load has fallen by enough, so that it does not swing.

use crate::ladder::{DelayBounds, STEPS};
use crate::{Decision, Moderation, QueueObservation};

/// Looks over the budget in a row before the delay grows: CPU time comes in ticks of 10 ms.
const OVER: u32 = 2;
/// Looks under it before a step that was never seen is tried below.
const UNDER: u32 = 4;
/// A step promises to keep the budget if it would take this share of it.
const PROMISE: f64 = 0.93;
/// Weight of the newest look in a step's estimate.
const NEWEST: f64 = 0.4;

/// The policy of one interface.
#[derive(Clone, Debug, PartialEq)]
pub struct BudgetPolicy {
    bounds: DelayBounds,
    /// The share of the host's CPU time that may be used.
    allowed_ratio: f64,
    step: usize,
    /// CPU share and packets per second that each step was last seen with.
    seen: [Option<(f64, f64)>; STEPS],
    over: u32,
    under: u32,
    is_met: bool,
}

impl BudgetPolicy {
    /// Starts without a delay.
    pub fn new(bounds: DelayBounds, allowed_ratio: f64) -> Self {
        Self {
            bounds,
            allowed_ratio,
            step: 0,
            seen: [None; STEPS],
            over: 0,
            under: 0,
            is_met: true,
        }
    }

    /// The delay of the step that holds.
    pub fn current_moderation(&self) -> Moderation {
        Moderation::from_delay(self.bounds.step_delay(self.step))
    }

    /// Whether the last look was within the budget.
    pub fn is_met(&self) -> bool {
        self.is_met
    }

    /// The CPU share that each delay was last seen with: the frontier of this load.
    pub fn frontier(&self) -> impl Iterator<Item = (Moderation, f64)> {
        self.seen.iter().enumerate().filter_map(|(step, seen)| {
            seen.map(|(cpu, _)| (Moderation::from_delay(self.bounds.step_delay(step)), cpu))
        })
    }

    /// One look: what came in `elapsed` since the previous one, and how busy the host was.
    pub fn step(
        &mut self,
        observation: &QueueObservation,
        elapsed: latput_units::Nanos,
        busy_ratio: f64,
    ) -> Decision {
        let seconds = elapsed.as_secs_f64();
        if seconds <= 0.0 {
            return Decision::Keep;
        }
        let pps = f64::from(observation.rx.packets) / seconds;
        let (cpu, packets) = self.seen[self.step].unwrap_or((busy_ratio, pps));
        let seen = (cpu + (busy_ratio - cpu) * NEWEST, packets + (pps - packets) * NEWEST);
        self.seen[self.step] = Some(seen);
        self.is_met = busy_ratio <= self.allowed_ratio;
        self.over = if self.is_met { 0 } else { self.over + 1 };
        let highest = self.bounds.highest_step(pps);
        if self.step > highest {
            return self.move_to(highest, "the ring would overrun");
        }
        if self.over >= OVER && self.step < highest && pps > 0.0 {
            return self.move_to(self.step + 1, "the CPU is over its budget: a longer delay");
        }
        self.under = if self.step > 0 && self.is_within_budget(self.step - 1, pps) {
            self.under + 1
        } else {
            0
        };
        if self.under >= UNDER {
            return self.move_to(self.step - 1, "a shorter delay stays within the CPU budget");
        }
        Decision::Keep
    }

    /// Whether a step would stay within the budget at this rate.
    fn is_within_budget(&self, step: usize, pps: f64) -> bool {
        let allowed = PROMISE * self.allowed_ratio;
        match self.seen[step] {
            Some((cpu, packets)) if packets > 0.0 => cpu * (pps / packets).min(1.0) <= allowed,
            Some((cpu, _)) => cpu <= allowed,
            None => self.seen[self.step].is_some_and(|(cpu, _)| cpu <= allowed),
        }
    }

    fn move_to(&mut self, step: usize, reason: &'static str) -> Decision {
        self.step = step;
        self.over = 0;
        self.under = 0;
        Decision::Change { target: self.current_moderation(), reason }
    }
}

#[cfg(test)]
mod tests {
    use latput_units::Nanos;

    use super::*;
    use crate::TrafficCounts;

    #[test]
    fn least_delay_within_budget_is_kept() {
        let mut policy = BudgetPolicy::new(DelayBounds::default(), 0.30);
        let delays = drive_policy(&mut policy, 40, 100_000);
        // 10% and 40% / (1 + delay / 8 us): 30% at 8 us.
        assert_eq!(delays.last(), Some(&Nanos::from_us(8)), "{delays:?}");
        assert!(policy.is_met());
        assert!(delays.len() <= 4, "it swings: {delays:?}");
    }

    #[test]
    fn lighter_load_gets_its_delay_back() {
        let mut policy = BudgetPolicy::new(DelayBounds::default(), 0.30);
        drive_policy(&mut policy, 40, 100_000);
        drive_policy(&mut policy, 40, 20_000);
        assert_eq!(policy.current_moderation().delay, Nanos::ZERO);
    }

    #[test]
    fn impossible_budget_ends_at_longest_delay() {
        let mut policy = BudgetPolicy::new(DelayBounds::default(), 0.05);
        drive_policy(&mut policy, 60, 100_000);
        assert_eq!(policy.current_moderation().delay, Nanos::from_us(100));
        assert!(!policy.is_met());
        assert!(policy.frontier().count() >= 6);
    }

    /// Looks of 250 ms at a host of which packets take the CPU in proportion, less with delay.
    fn drive_policy(policy: &mut BudgetPolicy, looks: u32, pps: u32) -> Vec<Nanos> {
        let elapsed = Nanos::from_ms(250);
        let mut delays = vec![policy.current_moderation().delay];
        for _ in 0..looks {
            let delay = policy.current_moderation().delay.as_us_f64();
            let share = f64::from(pps) / 100_000.0;
            let busy = share * (0.10 + 0.40 / (1.0 + delay / 8.0)) - 0.001;
            let rx = TrafficCounts { packets: pps / 4, bytes: pps * 25 };
            let observation = QueueObservation { rx, ..QueueObservation::default() };
            if let Decision::Change { target, .. } = policy.step(&observation, elapsed, busy) {
                delays.push(target.delay);
            }
        }
        delays
    }
}
