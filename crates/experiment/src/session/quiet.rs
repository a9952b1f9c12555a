//! Waits for a quieter moment after trials that were disturbed.

use std::time::{Duration, Instant};

use latput_trial::Surroundings;
use latput_trial::surroundings::{BUSY_LIMIT, STEAL_LIMIT};
use latput_units::Nanos;

use super::Session;
use crate::error::Error;
use crate::runner::TrialRunner;

/// Longest wait after one stint or block.
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// The hosts are looked at this long at a time.
const LOOK: Nanos = Nanos::from_s(1);
/// Part of the budget that all waits may take,
const SHARE_OF_BUDGET: u32 = 4;
/// or this time without a budget.
const USUAL_PATIENCE: Duration = Duration::from_secs(60);

impl Session<'_> {
    /// The time that all waits of a run may take together.
    pub(super) fn patience(&self) -> Duration {
        let budget = self.run.plan.method.budget.map(Nanos::as_duration);
        budget.map_or(USUAL_PATIENCE, |budget| budget / SHARE_OF_BUDGET)
    }

    /// Waits until the hosts are quiet if most of the trials since `before` do not count, but not for long and not beyond
    /// `patience`, which it uses up.
    pub(super) fn wait_for_quiet(
        &mut self,
        runner: &mut dyn TrialRunner,
        before: usize,
        patience: &mut Duration,
    ) -> Result<(), Error> {
        let latest = &self.results.rows[before.min(self.results.rows.len())..];
        let beside = self.results.beside;
        let unfit = latest.iter().filter(|row| !row.observation.is_fit(beside)).count();
        if 2 * unfit <= latest.len() || self.is_simulated {
            return Ok(());
        }
        let begun = Instant::now();
        let most = LONGEST_WAIT.min(*patience);
        let mut is_told = false;
        while begun.elapsed() + LOOK.as_duration() <= most {
            if !is_told {
                let trials = latest.len();
                self.progress.remark(&format!(
                    "{unfit} of the last {trials} trials were disturbed: waiting up to {} s for quiet",
                    most.as_secs()
                ));
                is_told = true;
            }
            if runner.look(LOOK, self.run.stop)?.iter().all(is_quiet) {
                break;
            }
        }
        *patience = patience.saturating_sub(begun.elapsed());
        Ok(())
    }
}

fn is_quiet(host: &Surroundings) -> bool {
    host.busy_ratio <= BUSY_LIMIT && host.steal_ratio <= STEAL_LIMIT
}

#[cfg(test)]
mod tests;
