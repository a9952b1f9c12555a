//! The time of a run on live traffic: its budget, and what of it is spent.

use std::time::Duration;

use latput_model::live::FEWEST;
use latput_trial::Plan;
use latput_trial::live::Live;
use latput_units::Nanos;

use super::evidence::FIRST_CUT;
use crate::session::{RunSession, TimeSpent};

/// Blocks of today alone, from which the noise is known.
const NOISE_BLOCKS: u32 = 12;
/// The same where nothing else is done.
pub(super) const OBSERVED_BLOCKS: u32 = 20;
/// Most time of a run whose plan has no budget.
const USUAL_BUDGET: Nanos = Nanos::from_s(1800);
/// Time of a block beside its slices: to start it, and to read its answer.
const OVERHEAD: Nanos = Nanos::from_ms(100);

/// The time that a run may take.
#[derive(Clone, Copy, Debug)]
pub(in crate::session) struct RunTime {
    most: Nanos,
    /// Time that was waited for the plan's hours, which the budget does not have.
    outside: Duration,
}

impl RunTime {
    /// Of a plan: its budget, or what observing takes of it.
    pub(super) fn new(plan: &Plan, live: &Live) -> Self {
        let budget = compute_budget(plan);
        let observed = block_length(live).saturating_mul(observed_blocks(plan, live).into());
        let most = if live.observe { budget.min(observed) } else { budget };
        Self { most, outside: Duration::ZERO }
    }

    /// Returns the time spent, so long after the run has begun.
    pub(in crate::session) fn time_spent(self, elapsed: Duration) -> TimeSpent {
        TimeSpent { spent: elapsed.saturating_sub(self.outside).into(), most: self.most }
    }
}

impl RunSession<'_> {
    /// Whether a block with slices of this length and this cut ends within the budget.
    pub(super) fn has_time_for(&self, measured: Nanos, cut: Nanos) -> bool {
        let length = slices_length(measured, cut);
        self.run_time.is_none_or(|time| {
            let spent = time.time_spent(self.begun.elapsed()).spent;
            spent.saturating_add(length) <= compute_budget(self.run.plan)
        })
    }

    /// Leaves a wait out of the budget.
    pub(super) fn leave_out(&mut self, wait: Duration) {
        if let Some(time) = &mut self.run_time {
            time.outside += wait;
        }
    }
}

/// Longest time of a run.
pub(in crate::session) fn compute_budget(plan: &Plan) -> Nanos {
    plan.method.budget.unwrap_or(USUAL_BUDGET)
}

/// Blocks of today alone before anything is compared, if the noise is needed.
pub(in crate::session) fn noise_blocks(plan: &Plan, live: &Live) -> u32 {
    if live.observe { observed_blocks(plan, live) } else { NOISE_BLOCKS }
}

/// Blocks of a run that only observes: fewer than usual where the budget has no room for them, but never so few that they tell
/// nothing.
fn observed_blocks(plan: &Plan, live: &Live) -> u32 {
    let room = compute_budget(plan).as_ns() / block_length(live).as_ns().max(1);
    let room = u32::try_from(room).unwrap_or(u32::MAX);
    room.clamp(u32::try_from(FEWEST).unwrap_or(u32::MAX), OBSERVED_BLOCKS)
}

/// Length of a block, with its cuts and the pause after it.
pub(in crate::session) fn block_length(live: &Live) -> Nanos {
    slices_length(live.slice, FIRST_CUT).saturating_add(live.pause)
}

/// Length of a block with slices of this length, without the pause after it.
fn slices_length(measured: Nanos, cut: Nanos) -> Nanos {
    measured.saturating_add(cut).saturating_mul(2).saturating_add(OVERHEAD)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make_live_plan(workload: &str, budget: &str) -> (Plan, Live) {
        let text = format!(
            "schema = 1\n[[workload]]\nkind = \"live\"\nobserve = true\n{workload}\n[method]\n{budget}\n"
        );
        let plan = Plan::parse("live.toml", &text).unwrap();
        let live = plan.live().unwrap().clone();
        (plan, live)
    }

    #[test]
    fn observing_takes_as_many_blocks_as_fit() {
        for (budget, blocks) in
            [("", 20), ("budget = \"1h\"", 20), ("budget = \"25s\"", 5), ("budget = \"1s\"", 4)]
        {
            let (plan, live) = make_live_plan("slice = \"2s\"", budget);
            assert_eq!(noise_blocks(&plan, &live), blocks, "{budget}");
        }
    }

    #[test]
    fn waits_outside_are_not_spent() {
        let (plan, live) = make_live_plan("", "budget = \"25s\"");
        let mut time = RunTime::new(&plan, &live);
        time.outside = Duration::from_secs(100);
        let TimeSpent { spent, most } = time.time_spent(Duration::from_secs(110));
        assert_eq!(spent, Nanos::from_s(10));
        assert!(most <= Nanos::from_s(25) && most > Nanos::from_s(20), "{most}");
    }
}
