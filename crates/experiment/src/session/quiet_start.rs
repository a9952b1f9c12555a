//! Whether the hosts are quiet enough for the first trial.

use std::thread;
use std::time::{Duration, Instant};

use latput_runner::Error;
use latput_runner::trials::TrialRunner;
use latput_trial::surroundings::{collect_findings, find_disturbances};
use latput_trial::{Finding, Surroundings};
use latput_units::Nanos;

use super::{RunInputs, RunProgress};
use crate::testbed::TestbedKind;

/// How long the hosts are looked at before the first trial, and again where they were busy: a spike is over by then.
const LOOK: Nanos = Nanos::from_s(1);
/// The first look takes at most this part of the plan's shortest time,
const LOOK_SHARE: u64 = 10;
/// and is long enough for clock ticks of 10 ms.
const SHORTEST_LOOK: Nanos = Nanos::from_ms(200);
/// Between two looks while quiet is waited for.
const PAUSE: Duration = Duration::from_secs(1);
/// Steps of a pause, so that Ctrl-C ends it.
const STEP: Duration = Duration::from_millis(100);

/// Whether a run needs quiet hosts to begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QuietPolicy {
    /// It begins anyhow: what disturbs it is told.
    #[default]
    Anyhow,
    /// It waits for quiet up to this time, and does not begin without.
    Within(Nanos),
}

/// Finds disturbances of this moment; nothing is refused.
pub(super) fn findings_now(
    run: &RunInputs<'_>,
    runner: &mut dyn TrialRunner,
) -> Result<Vec<Finding>, Error> {
    Ok(collect_findings(&look_once(run, runner)?))
}

/// Looks at the hosts, of which nothing was changed yet. Looks twice before it refuses.
pub(super) fn wait_for_quiet_start(
    run: &RunInputs<'_>,
    runner: &mut dyn TrialRunner,
    progress: &mut dyn RunProgress,
) -> Result<Vec<Surroundings>, Error> {
    let mut hosts = look_once(run, runner)?;
    let QuietPolicy::Within(within) = run.quiet else { return Ok(hosts) };
    if matches!(run.testbed.kind, TestbedKind::Guest(_)) {
        return Ok(hosts); // emulated: its speed says nothing
    }
    let deadline = Instant::now() + within.as_duration();
    let mut is_told = false;
    while !find_disturbances(&hosts).is_empty() {
        hosts = runner.watch_surroundings(LOOK, run.stop)?;
        let found = find_disturbances(&hosts);
        if found.is_empty() {
            break;
        }
        if Instant::now() >= deadline {
            return Err(Error::NotQuiet { found });
        }
        if !is_told {
            progress.report_remark(&format!(
                "waiting up to {within} for quiet hosts: {}",
                found.join("; ")
            ));
            is_told = true;
        }
        sleep_unless_stopped(run)?;
    }
    if is_told {
        progress.report_remark("the hosts are quiet");
    }
    Ok(hosts)
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
