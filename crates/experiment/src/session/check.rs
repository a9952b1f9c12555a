//! Checks whether a run would start: opens its testbed, asks every host for the knobs and levels, and
//! puts nothing in force.

use std::collections::BTreeSet;

use latput_trial::Plan;
use latput_trial::live::Live;
use latput_trial::plan::{Design, OnUnsupported};
use latput_trial::results::{HostFacts, LabelledSetting};
use latput_units::Nanos;

use super::{Before, Run, before, count, design, first_of, search_budget, trial_time};
use crate::error::Error;
use crate::live::Guard;
use crate::refusal::plan_search;
use crate::runner::{TrialRunner, Wanted};
use crate::unsupported::{By, without_unsupported};

/// A run that would start.
#[derive(Clone, Debug, PartialEq)]
pub struct Checked {
    /// The design of its trials.
    pub design: Design,
    /// Number of settings, with the hosts' own values; of a search those that it chooses from.
    pub settings: u64,
    /// The first setting, which has the hosts' own values; `None` where they are not known.
    pub first: Option<LabelledSetting>,
    /// Number of workloads.
    pub workloads: u64,
    /// The fewest and the most trials. Settings that take turns in slices have their time, not their number.
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

/// Checks a run. An error means that it would not start.
pub fn check(run: &Run<'_>) -> Result<Checked, Error> {
    let mut runner = run.testbed.open(run.plan, None, run.stop)?;
    match checked(run, &mut *runner) {
        Ok(checked) => runner.close(run.stop, &mut |_| {}).map(|()| checked),
        Err(error) => Err(runner.abandon(error, run.stop, &mut |_| {})),
    }
}

fn checked(run: &Run<'_>, runner: &mut dyn TrialRunner) -> Result<Checked, Error> {
    let mut plan = run.plan.clone();
    let mut remarks = run.testbed.notes.clone();
    if plan.method.on_unsupported == OnUnsupported::Skip {
        let (reduced, skipped) = without_unsupported(run.plan, runner, By::Asking, run.stop)?;
        plan = reduced;
        remarks.extend(skipped);
    }
    let design = design(&plan, runner)?;
    let run = &Run { plan: &plan, ..*run };
    let Before { today, refused, seen } = before(run, runner)?;
    remarks.extend(seen.iter().map(|found| format!("{}: {}", found.name, found.sentence())));
    for load in &plan.workloads {
        let programs = load.program.iter().flat_map(|program| program.described());
        remarks.extend(programs.map(|said| format!("workload `{}` {said}", load.name)));
    }
    let settings = plan.settings_from(&today);
    check_parts(run, &settings[usize::from(!today.is_empty())..], runner)?;
    let is_simulated = runner.is_simulated();
    let each = trial_time(&plan, is_simulated);
    let (workloads, method) = (plan.workloads.len() as u64, &plan.method);
    let block = (settings.len() as u64).saturating_mul(workloads);
    if let Some(live) = plan.live() {
        let remarks = [remarks, live_remarks(live)].concat();
        return Ok(on_live(&plan, live, (settings.len(), runner.hosts()), remarks));
    }
    let trials = if design == Design::Search {
        let search = plan_search(&plan, first_of(&plan, &today).as_ref(), &refused)?;
        let confirmed = 2 * u64::from(search.confirmations());
        let explored = search_budget(&plan, &search, each) as u64;
        (confirmed * workloads, (explored + confirmed) * workloads)
    } else {
        (
            block.saturating_mul(method.repetitions_min.into()),
            block.saturating_mul(method.repetitions_max.into()),
        )
    };
    let time =
        |trials: u64| Nanos::from(each * count(usize::try_from(trials).unwrap_or(usize::MAX)));
    let shortest = time(trials.0);
    let longest = match method.budget {
        Some(budget) => time(trials.1).min(budget).max(shortest),
        None => time(trials.1),
    };
    let hosts = if is_simulated { Vec::new() } else { runner.hosts() };
    Ok(Checked {
        design,
        settings: settings.len() as u64,
        first: first_of(&plan, &today),
        workloads,
        trials,
        time: (shortest, longest),
        is_simulated,
        hosts: hosts.iter().map(|host| format!("{} {}", host.host, host.interface)).collect(),
        remarks,
    })
}

/// A run on live traffic.
fn on_live(
    plan: &Plan,
    live: &Live,
    (settings, hosts): (usize, Vec<HostFacts>),
    remarks: Vec<String>,
) -> Checked {
    let PlannedRuns { settings, trials, time } = PlannedRuns::of_live(plan, live, settings);
    Checked {
        design: Design::Blocks,
        settings,
        first: None,
        workloads: 1,
        trials,
        time,
        is_simulated: false,
        hosts: hosts.iter().map(|host| format!("{} {}", host.host, host.interface)).collect(),
        remarks,
    }
}

/// What a plan comes to: its settings, runs and time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedRuns {
    /// Number of settings that are run.
    pub settings: u64,
    /// The fewest and the most runs.
    pub trials: (u64, u64),
    /// About the shortest and the longest time: its blocks, and the time until its budget is used up.
    pub time: (Nanos, Nanos),
}

impl PlannedRuns {
    /// The fewest blocks in which every setting has its repetitions, after those that tell the noise.
    fn least_blocks(plan: &Plan, live: &Live, settings: usize, needs_noise: bool) -> u64 {
        let noise = if needs_noise { super::live::noise_blocks(live) } else { 0 };
        let others = if live.observe { 0 } else { settings.saturating_sub(1) as u64 };
        u64::from(noise).saturating_add(others.saturating_mul(plan.method.repetitions_min.into()))
    }

    /// Of a plan on live traffic with so many settings, with today's.
    pub fn of_live(plan: &Plan, live: &Live, settings: usize) -> Self {
        let noise = u64::from(super::live::noise_blocks(live));
        let shortest_blocks = Self::least_blocks(plan, live, settings, true);
        let pairs = shortest_blocks - noise;
        let block = super::live::block_length(live);
        let shortest = block.saturating_mul(shortest_blocks);
        let budget = plan.method.budget.unwrap_or_else(|| super::live::USUAL_BUDGET.into());
        let longest = if live.observe { shortest } else { budget.max(shortest) };
        let blocks_in = |time: Nanos| time.as_ns() / block.as_ns().max(1);
        Self {
            settings: if live.observe { 1 } else { settings as u64 },
            trials: (noise + 2 * pairs, noise + 2 * blocks_in(longest).saturating_sub(noise)),
            time: (shortest, longest),
        }
    }
}

/// Refuses a budget in which not every setting of live traffic has its fewest blocks: the end of such a run would tell
/// nothing of any.
pub(super) fn live_budget(plan: &Plan, live: &Live, settings: usize) -> Result<(), Error> {
    let Some(budget) = plan.method.budget.filter(|_| !live.observe) else { return Ok(()) };
    let needs_noise = plan.goal.is_some()
        || live.guards.iter().any(|text| Guard::parse(text).is_ok_and(|guard| guard.is_of_today));
    let blocks = PlannedRuns::least_blocks(plan, live, settings, needs_noise);
    let exact = super::live::block_length(live).saturating_mul(blocks);
    if exact <= budget {
        return Ok(());
    }
    let least = Nanos::from_s(exact.as_ns().div_ceil(Nanos::from_s(1).as_ns()));
    Err(Error::Budget { settings, least, budget })
}

/// What protects live traffic, and when it is left alone.
pub fn live_remarks(live: &Live) -> Vec<String> {
    let guards = match live.guards.as_slice() {
        [] => "no guard protects the live traffic: give `guard` or --guard".to_owned(),
        guards => format!("guards: {}", guards.join("; ")),
    };
    let hours = live.hours.map(|hours| format!("it waits outside of {hours}, beside its time"));
    let runs = live.command().map(|command| {
        let user = command.user.as_deref().unwrap_or("nobody");
        format!(
            "runs on the host as {user}, or as latput's user there if that is not root: {}",
            command.in_words()
        )
    });
    [guards].into_iter().chain(hours).chain(runs).collect()
}

/// Asks for the settings and the workloads of a plan that refuses what is not supported.
fn check_parts(
    run: &Run<'_>,
    settings: &[LabelledSetting],
    runner: &mut dyn TrialRunner,
) -> Result<(), Error> {
    let Plan { method, workloads, .. } = run.plan;
    for setting in covering(settings) {
        let found = runner.unsupported(Wanted::Rehearsed(&setting.by_role), method, run.stop)?;
        if let Some(why) = found {
            return Err(Error::Unsupported {
                problem: format!("setting `{}`: {why}", setting.label),
            });
        }
    }
    for load in workloads {
        if let Some(why) = runner.unsupported(Wanted::Load(load), method, run.stop)? {
            return Err(Error::Unsupported { problem: format!("workload `{}`: {why}", load.name) });
        }
    }
    Ok(())
}

/// Settings that together have every level of every knob: asking for all of a large plan would take long.
fn covering(settings: &[LabelledSetting]) -> impl Iterator<Item = &LabelledSetting> {
    let mut known = BTreeSet::new();
    settings.iter().filter(move |setting| {
        let levels = setting.by_role.iter().flat_map(|(role, of_role)| {
            of_role.iter().map(move |(knob, value)| (*role, *knob, value.clone()))
        });
        levels.filter(|level| known.insert(level.clone())).count() > 0
    })
}

#[cfg(test)]
mod tests {
    use latput_trial::Plan;

    use super::*;

    #[test]
    fn few_settings_cover_every_level() {
        let text = "schema = 1\n[factors]\nmtu = [1500, 9000]\nrx-usecs = [\"10us\", \"20us\", \"50us\"]\n\
                    [[workload]]\nkind = \"tcp_rr\"\n";
        let settings = Plan::parse("p.toml", text).unwrap().settings();
        let labels: Vec<&str> = covering(&settings).map(|set| set.label.as_str()).collect();
        assert!(settings.len() == 6 && labels.len() == 4, "{labels:?}");
        for level in ["mtu=1500", "mtu=9000", "=10us", "=20us", "=50us"] {
            assert!(labels.iter().any(|label| label.contains(level)), "{level} of {labels:?}");
        }
    }
}
