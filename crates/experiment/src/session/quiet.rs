//! Waits for quiet hosts: before the first trial, and after trials that were disturbed.

use std::thread;
use std::time::{Duration, Instant};

use latput_runner::Error;
use latput_runner::trials::TrialRunner;
use latput_trial::surroundings::{BUSY_LIMIT, STEAL_LIMIT, collect_findings, find_disturbances};
use latput_trial::{Finding, Surroundings};
use latput_units::Nanos;
use latput_units::text::format_count;

use super::{RunInputs, RunProgress, RunSession};
use crate::testbed::TestbedKind;

/// How long the hosts are looked at at a time.
const LOOK: Nanos = Nanos::from_s(1);
/// The first look takes at most this part of the plan's shortest time,
const LOOK_SHARE: u64 = 10;
/// and is long enough for clock ticks of 10 ms.
const SHORTEST_LOOK: Nanos = Nanos::from_ms(200);
/// Between two looks while quiet is waited for.
const PAUSE: Duration = Duration::from_secs(1);
/// Steps of a pause, so that Ctrl-C ends it.
const STEP: Duration = Duration::from_millis(100);
/// Longest wait after one stint or block.
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// Part of the budget that all waits may take,
const SHARE_OF_BUDGET: u32 = 4;
/// or this time without a budget.
const USUAL_PATIENCE: Duration = Duration::from_secs(60);

/// Whether a run needs quiet hosts to begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QuietPolicy {
    /// It begins anyhow: what disturbs it is told.
    #[default]
    Anyhow,
    /// It waits for quiet up to this time, and does not begin without.
    Within(Nanos),
}

/// A look at the hosts before the first trial.
struct InitialLook {
    hosts: Vec<Surroundings>,
    /// Disturbances that would spoil the run, in sentences; empty where it can begin.
    disturbances: Vec<String>,
}

/// Looks at the hosts as the start of a run does, and waits for nothing. Returns the findings, and what the run would do on
/// hosts that are not quiet; an error where it would be refused.
pub(super) fn check_quiet_start(
    run: &RunInputs<'_>,
    runner: &mut dyn TrialRunner,
) -> Result<(Vec<Finding>, Option<String>), Error> {
    let InitialLook { hosts, disturbances } = look_at_hosts(run, runner)?;
    let findings = collect_findings(&hosts);
    if disturbances.is_empty() {
        return Ok((findings, None));
    }
    let would = match run.quiet {
        QuietPolicy::Anyhow => "it would begin on hosts that are not quiet".to_owned(),
        QuietPolicy::Within(Nanos::ZERO) => return Err(Error::NotQuiet { found: disturbances }),
        QuietPolicy::Within(within) => {
            format!("it would wait up to {within} for quiet hosts, and is refused if they stay so")
        }
    };
    Ok((findings, Some(format!("{would}: {}", disturbances.join("; ")))))
}

/// Looks at the hosts, of which nothing was changed yet, and waits for quiet as long as the run may.
pub(super) fn wait_for_quiet_start(
    run: &RunInputs<'_>,
    runner: &mut dyn TrialRunner,
    progress: &mut dyn RunProgress,
) -> Result<Vec<Surroundings>, Error> {
    let QuietPolicy::Within(within) = run.quiet else { return look_once(run, runner) };
    let begun = Instant::now();
    let mut look = look_at_hosts(run, runner)?;
    let mut is_told = false;
    while !look.disturbances.is_empty() {
        if begun.elapsed() >= within.as_duration() {
            return Err(Error::NotQuiet { found: look.disturbances });
        }
        if !is_told {
            progress.report_remark(&format!(
                "waiting up to {within} for quiet hosts: {}",
                look.disturbances.join("; ")
            ));
            is_told = true;
        }
        sleep_unless_stopped(run)?;
        look = look_again(run, runner)?;
    }
    if is_told {
        progress.report_remark("the hosts are quiet");
    }
    Ok(look.hosts)
}

/// Looks at the hosts. A run that needs quiet ones looks again where they were busy: a spike is over by then.
fn look_at_hosts(run: &RunInputs<'_>, runner: &mut dyn TrialRunner) -> Result<InitialLook, Error> {
    let hosts = look_once(run, runner)?;
    let is_emulated = matches!(run.testbed.kind, TestbedKind::Guest(_)); // its speed says nothing
    let disturbances = if is_emulated { Vec::new() } else { find_disturbances(&hosts) };
    if disturbances.is_empty() || run.quiet == QuietPolicy::Anyhow {
        return Ok(InitialLook { hosts, disturbances });
    }
    look_again(run, runner)
}

fn look_again(run: &RunInputs<'_>, runner: &mut dyn TrialRunner) -> Result<InitialLook, Error> {
    let hosts = runner.watch_surroundings(LOOK, run.stop)?;
    let disturbances = find_disturbances(&hosts);
    Ok(InitialLook { hosts, disturbances })
}

fn look_once(
    run: &RunInputs<'_>,
    runner: &mut dyn TrialRunner,
) -> Result<Vec<Surroundings>, Error> {
    if run.plan.live().is_some() {
        return Ok(Vec::new()); // nothing is offered, and that the host is at work is the point
    }
    let share = Nanos::from_ns(run.plan.shortest_grid().as_ns() / LOOK_SHARE);
    runner.watch_surroundings(LOOK.min(share).max(SHORTEST_LOOK), run.stop)
}

fn sleep_unless_stopped(run: &RunInputs<'_>) -> Result<(), Error> {
    let end = Instant::now() + PAUSE;
    while Instant::now() < end {
        if run.stop.is_raised() {
            return Err(Error::Interrupted);
        }
        thread::sleep(STEP);
    }
    Ok(())
}

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
