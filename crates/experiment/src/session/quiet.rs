//! Waits for a quieter moment after trials that were disturbed.

use std::time::{Duration, Instant};

use latput_runner::Error;
use latput_runner::trials::TrialRunner;
use latput_trial::Surroundings;
use latput_trial::surroundings::{BUSY_LIMIT, STEAL_LIMIT};
use latput_units::Nanos;
use latput_units::text::format_count;

use super::RunSession;

/// Longest wait after one stint or block.
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// The hosts are looked at this long at a time.
const LOOK: Nanos = Nanos::from_s(1);
/// Part of the budget that all waits may take,
const SHARE_OF_BUDGET: u32 = 4;
/// or this time without a budget.
const USUAL_PATIENCE: Duration = Duration::from_secs(60);

/// How long a run may still wait for quiet, and what it has looked at.
#[derive(Debug)]
pub(super) struct WaitBudget {
    /// The time that all further waits may take together.
    left: Duration,
    /// The trials before this one were looked at.
    since: usize,
}

impl RunSession<'_> {
    /// The patience of a run that begins.
    pub(super) fn initial_wait_budget(&self) -> WaitBudget {
        let budget = self.run.plan.method.budget.map(Nanos::as_duration);
        let left = budget.map_or(USUAL_PATIENCE, |budget| budget / SHARE_OF_BUDGET);
        WaitBudget { left, since: self.results.rows.len() }
    }

    /// Waits until the hosts are quiet, before more trials, if most of the latest do not count: not for long, and not beyond
    /// `patience`, which it uses up.
    pub(super) fn wait_for_quiet(
        &mut self,
        runner: &mut dyn TrialRunner,
        patience: &mut WaitBudget,
    ) -> Result<(), Error> {
        let latest = &self.results.rows[patience.since.min(self.results.rows.len())..];
        patience.since = self.results.rows.len();
        let beside = self.results.beside;
        let unfit = latest.iter().filter(|row| !row.observation.is_fit(beside)).count();
        if 2 * unfit <= latest.len() || self.is_simulated {
            return Ok(());
        }
        let begun = Instant::now();
        let most = LONGEST_WAIT.min(patience.left);
        let mut is_told = false;
        while begun.elapsed() + LOOK.as_duration() <= most {
            if !is_told {
                let trials = format_count(latest.len(), "trial");
                self.progress.report_remark(&format!(
                    "disturbed: {unfit} of the last {trials}; waiting up to {} s for quiet",
                    most.as_secs()
                ));
                is_told = true;
            }
            if runner.watch_surroundings(LOOK, self.run.stop)?.iter().all(is_quiet) {
                break;
            }
        }
        patience.left = patience.left.saturating_sub(begun.elapsed());
        Ok(())
    }
}

fn is_quiet(host: &Surroundings) -> bool {
    host.busy_ratio <= BUSY_LIMIT && host.steal_ratio <= STEAL_LIMIT
}

#[cfg(test)]
mod tests;
