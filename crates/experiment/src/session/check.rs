//! Checks whether a run would start: opens its testbed, asks every host for the knobs and levels, and
//! puts nothing in force.

use latput_runner::Error;
use latput_runner::trials::TrialRunner;
use latput_trial::Plan;
use latput_trial::live::Live;
use latput_trial::plan::{Design, OnUnsupported};
use latput_trial::results::{HostFacts, LabelledSetting};
use latput_units::Nanos;

use super::opened::{
    InitialReadings, build_today_setting, choose_design, planned_runs, read_hosts,
    refuse_small_budget,
};
use super::planned::PlannedRuns;
use super::{RunInputs, quiet};
use crate::unsupported::{SupportCheckMethod, drop_unsupported_parts};

/// Most settings that a check lists.
pub const MOST_LABELS: usize = 20;

/// A run that would start.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckReport {
    /// The design of its trials.
    pub design: Design,
    /// Number of settings, with the hosts' own values; of a search those that it chooses from.
    pub settings: u64,
    /// The labels of the first settings, at most [`MOST_LABELS`].
    pub labels: Vec<String>,
    /// The first setting, which has the hosts' own values; `None` where they are not known.
    pub first: Option<LabelledSetting>,
    /// Number of workloads.
    pub workloads: u64,
    /// The fewest and the most trials; a slice is one.
    pub trials: (u64, u64),
    /// About the shortest and the longest time.
    pub time: (Nanos, Nanos),
    /// Whether that time is simulated.
    pub is_simulated: bool,
    /// The hosts with their interfaces; empty in the simulator.
    pub hosts: Vec<String>,
    /// Parts that would be skipped, and what could disturb the trials, in sentences.
    pub remarks: Vec<String>,
}

/// Checks a run, with the look at its hosts that it would begin with. An error means that it would not start.
pub fn check_run(run: &RunInputs<'_>) -> Result<CheckReport, Error> {
    let mut runner = run.testbed.open(run.plan, None, run.stop)?;
    match check_opened_run(run, &mut *runner) {
        Ok(checked) => runner.close(run.stop, &mut |_| {}).map(|()| checked),
        Err(error) => Err(runner.abort_run(error, run.stop, &mut |_| {})),
    }
}

fn check_opened_run(
    run: &RunInputs<'_>,
    runner: &mut dyn TrialRunner,
) -> Result<CheckReport, Error> {
    refuse_small_budget(run, runner)?;
    let mut plan = run.plan.clone();
    let mut remarks = run.testbed.notes.clone();
    let (seen, would) = quiet::check_quiet_start(run, runner)?;
    remarks.extend(would);
    remarks.extend(seen.iter().map(|found| format!("{}: {}", found.name, found.sentence())));
    if plan.method.on_unsupported == OnUnsupported::Skip {
        let (reduced, skipped) =
            drop_unsupported_parts(run.plan, runner, SupportCheckMethod::Asking, run.stop)?;
        plan = reduced;
        remarks.extend(skipped);
    }
    let design = choose_design(&plan, runner)?;
    let run = &RunInputs { plan: &plan, ..*run };
    let InitialReadings { today, refused } = read_hosts(run, runner)?;
    for load in &plan.workloads {
        let programs = load.program.iter().flat_map(|program| program.described());
        remarks.extend(programs.map(|said| format!("workload `{}` {said}", load.name)));
    }
    let settings = plan.settings_from(&today);
    let is_simulated = runner.is_simulated();
    if let Some(live) = plan.live() {
        let remarks = [remarks, live_remarks(live)].concat();
        return Ok(on_live(&plan, live, (&settings, runner.host_facts()), remarks));
    }
    let runs = planned_runs(run, design, (settings.len(), is_simulated), &today, &refused)?;
    runs.check_budget(&plan)?;
    let hosts = if is_simulated { Vec::new() } else { runner.host_facts() };
    Ok(CheckReport {
        design,
        settings: settings.len() as u64,
        labels: list_labels(&settings),
        first: build_today_setting(&plan, &today),
        workloads: plan.workloads.len() as u64,
        trials: runs.trials,
        time: runs.time,
        is_simulated,
        hosts: hosts.iter().map(|host| format!("{} {}", host.host, host.interface)).collect(),
        remarks,
    })
}

/// The labels of the first of many settings.
pub fn list_labels(settings: &[LabelledSetting]) -> Vec<String> {
    settings.iter().take(MOST_LABELS).map(|setting| setting.label.clone()).collect()
}

/// A run on live traffic.
fn on_live(
    plan: &Plan,
    live: &Live,
    (listed, hosts): (&[LabelledSetting], Vec<HostFacts>),
    remarks: Vec<String>,
) -> CheckReport {
    let runs = PlannedRuns::of_live(plan, live, listed.len());
    let PlannedRuns { settings, trials, time, .. } = runs;
    CheckReport {
        design: Design::Blocks,
        settings,
        labels: list_labels(listed),
        first: None,
        workloads: 1,
        trials,
        time,
        is_simulated: false,
        hosts: hosts.iter().map(|host| format!("{} {}", host.host, host.interface)).collect(),
        remarks,
    }
}

/// Protections of live traffic, and the times at which it is left alone.
pub fn live_remarks(live: &Live) -> Vec<String> {
    let guards = match live.guards.as_slice() {
        _ if live.observe => "observes only: no setting is tried".to_owned(),
        [] => "no guard protects the live traffic: give `guard` or --guard".to_owned(),
        guards => format!("guards: {}", guards.join("; ")),
    };
    let hours = live.hours.map(|hours| format!("outside of {hours} it waits, and its time stops"));
    let runs = live.command().map(|command| {
        let user = command.user.as_deref().unwrap_or("nobody");
        format!(
            "runs on the host as {user}, or as latput's user there if that is not root: {}",
            command.in_words()
        )
    });
    [guards].into_iter().chain(hours).chain(runs).collect()
}
