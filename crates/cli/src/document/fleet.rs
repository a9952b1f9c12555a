//! The JSON of `latput fleet`.

use std::collections::BTreeMap;

use latput_fleet::confirm::{ConfirmPlan, JointVerdict, PairRun};
use latput_fleet::drift::KnobDrift;
use latput_fleet::journal::HostEntry;
use latput_fleet::judge::{HostState, JudgedHost, KnobDifference};
use latput_fleet::pairs::{describe_differences, explain_verdict};
use latput_fleet::rollout::{HostReport, RolloutEnded};
use latput_fleet::{FleetHost, HostOutcomes, RolloutReport};
use latput_model::PairsSummary;
use latput_model::pairs::PairsSetting;
use latput_stats::Estimate;
use latput_units::Nanos;
use schemars::JsonSchema;
use serde::Serialize;

/// The output of `latput fleet show`, `verify` and `drift`.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FleetDocument {
    /// Version of this document's schema: 1.
    schema: u32,
    /// `show`, `verify` or `drift`.
    action: String,
    /// Time that the look took, in milliseconds.
    took_ms: u64,
    /// The number of hosts in each state, by group.
    groups: BTreeMap<String, BTreeMap<String, usize>>,
    /// Every host, in the order of the inventory.
    hosts: Vec<FleetHostPart>,
    /// Of `show`: the values of each knob of each group. Of `drift`: those knobs in which hosts of a group differ.
    values: Vec<FleetKnobPart>,
}

/// A host.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FleetHostPart {
    /// Its name.
    name: String,
    /// Its group.
    group: String,
    /// How it is reached, in one word.
    target: String,
    /// The interface.
    interface: String,
    /// `same`, `drifted`, `other` (another host or interface than is meant), `failed` (its latput cannot), `unreachable`,
    /// `timed-out` or `not-asked` (interrupted). Where nothing is wanted, `same` is a host that was read.
    state: String,
    /// The reason; empty where the state is `same`.
    why: String,
    /// The driver of the interface; `null` where that is not known.
    driver: Option<String>,
    /// Maker of a change of the interface that is under way, or waits to be confirmed; `null`: nobody.
    waiting: Option<String>,
    /// The wanted values that are not there.
    differences: Vec<FleetDifference>,
}

/// A wanted value that is not there.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FleetDifference {
    /// The knob.
    knob: String,
    /// `device`, `rx-0` and so on; empty if the knob could not be read.
    place: String,
    /// The wanted value.
    wanted: String,
    /// The value of now; `null` if it could not be read.
    value: Option<String>,
    /// Why it could not be read.
    problem: Option<String>,
}

/// The values of a knob in a group.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FleetKnobPart {
    /// The group.
    group: String,
    /// The knob.
    knob: String,
    /// The values, the most frequent first.
    values: Vec<FleetValuePart>,
}

/// A value with the hosts that have it.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FleetValuePart {
    /// The value; of a knob whose places differ, each place with its value.
    value: String,
    /// The names of the hosts.
    hosts: Vec<String>,
}

impl FleetDocument {
    pub(crate) fn new(
        action: &str,
        judged: &[JudgedHost],
        values: &[KnobDrift],
        took: Nanos,
    ) -> Self {
        let mut groups: BTreeMap<String, BTreeMap<String, usize>> = BTreeMap::new();
        for JudgedHost { host, state, .. } in judged {
            let of_group = groups.entry(host.group.clone()).or_default();
            *of_group.entry(state.name().to_owned()).or_default() += 1;
        }
        let values = values.iter().map(|knob| FleetKnobPart {
            group: knob.group.clone(),
            knob: knob.knob.clone(),
            values: knob
                .values
                .iter()
                .map(|(value, hosts)| FleetValuePart { value: value.clone(), hosts: hosts.clone() })
                .collect(),
        });
        Self {
            schema: 1,
            action: action.to_owned(),
            took_ms: took.as_ns() / 1_000_000,
            groups,
            hosts: judged.iter().map(host_part).collect(),
            values: values.collect(),
        }
    }
}

fn host_part(JudgedHost { host, state, look }: &JudgedHost) -> FleetHostPart {
    let differences = match state {
        HostState::Drifted(differences) => differences.iter().map(difference_part).collect(),
        HostState::Same
        | HostState::Other(_)
        | HostState::Failed(_)
        | HostState::Unreachable(_)
        | HostState::TimedOut(_)
        | HostState::NotAsked => Vec::new(),
    };
    FleetHostPart {
        name: host.name.clone(),
        group: host.group.clone(),
        target: host.reach.clone(),
        interface: host.interface.clone(),
        state: state.name().to_owned(),
        why: state.explanation(),
        driver: look.as_ref().map(|found| found.driver.clone()),
        waiting: look.as_ref().and_then(|found| Some(found.waiting.as_ref()?.by.clone())),
        differences,
    }
}

fn difference_part(found: &KnobDifference) -> FleetDifference {
    FleetDifference {
        knob: found.knob.name().to_owned(),
        place: found.place.clone(),
        wanted: found.wanted.clone(),
        value: found.value.clone(),
        problem: found.problem.clone(),
    }
}

/// The output of `latput fleet apply`.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RolloutDocument {
    /// Version of this document's schema: 1.
    schema: u32,
    /// Name in the journals of the hosts.
    name: String,
    /// `confirmed`, `put-back`, `nothing-to-do` or `dry-run`.
    ended: String,
    /// The broken guard, if all was put back.
    broken: Option<String>,
    /// The hosts of each stage.
    stages: Vec<Vec<String>>,
    /// Every host, in the order of the inventory.
    hosts: Vec<RolloutHostPart>,
}

/// Ending of a host.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RolloutHostPart {
    /// Its name.
    name: String,
    /// Its group.
    group: String,
    /// How it is reached, in one word.
    target: String,
    /// The interface.
    interface: String,
    /// `confirmed`, `put-back`, `stranded`, `would-change`, `would-refuse` or `refused`. `same`: it had the wanted values.
    /// `left-out`: it answered, and could not be used. `failed`, `unreachable`, `timed-out`, `not-asked`: no answer, as in
    /// `latput fleet verify`. `unchanged`: its stage did not come. `went-back`: it was confirmed too late. `goes-back`: it
    /// was not reached. It goes back by itself.
    outcome: String,
    /// The reason; empty where the outcome says all.
    why: String,
    /// The number of the change in the host's journal, for `latput undo` there; `null` where that is not known.
    journal: Option<u64>,
    /// The latest time at which it goes back by itself, in milliseconds since 1970 (UTC); `null` where it does not.
    back_by_unix_ms: Option<u64>,
}

impl RolloutDocument {
    pub(crate) fn new(report: &RolloutReport) -> Self {
        let host = |report: &HostReport| RolloutHostPart {
            name: report.host.name.clone(),
            group: report.host.group.clone(),
            target: report.host.reach.clone(),
            interface: report.host.interface.clone(),
            outcome: report.outcome.name().to_owned(),
            why: report.why.clone(),
            journal: report.journal,
            back_by_unix_ms: report.back_by_unix_ms,
        };
        let (ended, broken) = match &report.ended {
            RolloutEnded::Nothing => ("nothing-to-do", None),
            RolloutEnded::Rehearsed => ("dry-run", None),
            RolloutEnded::Confirmed => ("confirmed", None),
            RolloutEnded::Broken(why) => ("put-back", Some(why.clone())),
        };
        Self {
            schema: 1,
            name: report.name.clone(),
            ended: ended.to_owned(),
            broken,
            stages: report.stages.clone(),
            hosts: report.hosts.iter().map(host).collect(),
        }
    }
}

/// The output of `latput fleet pairs`.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PairsDocument {
    /// Version of this document's schema: 1.
    schema: u32,
    /// The results of each pair.
    files: Vec<String>,
    /// The goal of all.
    goal: String,
    /// The confidence of the verdicts, all settings together.
    confidence: f64,
    /// The setting that the others are compared with.
    base: String,
    /// The other settings that all results have.
    settings: Vec<PairsSettingPart>,
    /// The label of the setting that holds on every pair; `null`: none does.
    recommended: Option<String>,
    /// The facts of hosts in which a pair differs from the first, such as the driver, in sentences.
    differences: Vec<String>,
}

/// A setting on all pairs.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PairsSettingPart {
    /// Its label.
    label: String,
    /// `stable`, `unstable` (the pairs differ by more than their intervals), `worse` (proven worse, or short of a limit, on
    /// a pair) or `unproven` (not proven better on every pair).
    verdict: String,
    /// The reason.
    why: String,
    /// The objective's ratio to the first setting's over all pairs, weighted by their errors.
    ratio: f64,
    /// The chance that the pairs' ratios lie so far apart if all are one (Welch's test of Cochran's Q).
    p_value: f64,
    /// The share of the scatter between pairs that their errors do not explain (I^2), 0 to 1.
    inconsistency: f64,
    /// Of each pair, in the order of `files`.
    pairs: Vec<PairRatio>,
}

/// The ratio on one pair, with its interval.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PairRatio {
    /// The objective's ratio to the first setting's.
    ratio: f64,
    /// The lower end of its interval.
    low: f64,
    /// The upper end.
    high: f64,
    /// The confidence of the interval.
    confidence: f64,
}

impl PairsDocument {
    pub(crate) fn new(files: &[String], summary: &PairsSummary) -> Self {
        let part = |setting: &PairsSetting| PairsSettingPart {
            label: setting.label.clone(),
            verdict: setting.verdict.name().to_owned(),
            why: explain_verdict(files, setting),
            ratio: setting.ratio,
            p_value: setting.p_value,
            inconsistency: setting.inconsistency,
            pairs: setting.ratios.iter().map(PairRatio::from_estimate).collect(),
        };
        Self {
            schema: 1,
            files: files.to_vec(),
            goal: summary.goal.clone(),
            confidence: summary.confidence,
            base: summary.base.clone(),
            settings: summary.settings.iter().map(part).collect(),
            recommended: summary.recommended.map(|at| summary.settings[at].label.clone()),
            differences: describe_differences(files, summary),
        }
    }
}

impl PairRatio {
    fn from_estimate(ratio: &Estimate) -> Self {
        let Estimate { value, low, high, confidence, .. } = *ratio;
        Self { ratio: value, low, high, confidence }
    }
}

/// The output of `latput fleet confirm`.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ConfirmDocument {
    /// Version of this document's schema: 1.
    schema: u32,
    /// The results that recommend the setting.
    results: String,
    /// The setting's label there.
    setting: String,
    /// The goal.
    goal: String,
    /// The confidence of the verdict.
    confidence: f64,
    /// `confirmed` (proven better than today's on every pair), `unstable` (the pairs differ by more than their intervals),
    /// `worse` (proven worse, or short of a limit, on a pair) or `unproven`; `null` while a pair is missing.
    verdict: Option<String>,
    /// The reason, or what is missing.
    why: String,
    /// The objective's ratio to today's over the pairs that have ended, weighted by their errors; `null` of fewer than two.
    ratio: Option<f64>,
    /// The chance that their ratios lie so far apart if all are one (Welch's test of Cochran's Q).
    p_value: Option<f64>,
    /// The share of the scatter between pairs that their errors do not explain (I^2), 0 to 1.
    inconsistency: Option<f64>,
    /// The facts of hosts in which a pair differs from the first, such as the driver, in sentences.
    differences: Vec<String>,
    /// Every pair, in the order in which they were named.
    pairs: Vec<ConfirmPairPart>,
}

/// A pair of hosts.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ConfirmPairPart {
    /// Its hosts, the system under test first, or its testbed file.
    pair: String,
    /// Its results file.
    file: String,
    /// `done`, `cut-short` (some trials are kept), `failed` (none is, or it cannot be compared), `not-run`, or with `--check` `ready`.
    outcome: String,
    /// Why it is not done; else empty.
    why: String,
    /// The trials that it has.
    trials: usize,
    /// The ratio on it; `null` where it is not done, or is the only one.
    ratio: Option<PairRatio>,
}

impl ConfirmDocument {
    /// The verdict of pairs on what `results` recommend.
    pub(crate) fn new(
        results: &str,
        confirming: &ConfirmPlan,
        runs: &[PairRun],
        verdict: &JointVerdict,
    ) -> Self {
        let pair = |run: &PairRun| ConfirmPairPart {
            pair: run.word.clone(),
            file: run.file.display().to_string(),
            outcome: run.outcome_name().to_owned(),
            why: run.why().to_owned(),
            trials: run.trials(),
            ratio: verdict.find_pair_ratio(run).map(PairRatio::from_estimate),
        };
        let setting = verdict.setting.as_ref();
        Self {
            schema: 1,
            results: results.to_owned(),
            setting: confirming.label.clone(),
            goal: confirming.plan.goal.clone().unwrap_or_default(),
            confidence: confirming.plan.method.confidence,
            verdict: verdict.name().map(str::to_owned),
            why: verdict.explain(runs),
            ratio: setting.map(|setting| setting.ratio),
            p_value: setting.map(|setting| setting.p_value),
            inconsistency: setting.map(|setting| setting.inconsistency),
            differences: verdict.differences.clone(),
            pairs: runs.iter().map(pair).collect(),
        }
    }
}

/// The output of `latput fleet undo`, `finish` and `keep`.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FleetDoneDocument {
    /// Version of this document's schema: 1.
    schema: u32,
    /// `undo`, `finish` or `keep`.
    action: String,
    /// The rollout that was undone or finished.
    rollout: Option<String>,
    /// Outcome of every host.
    hosts: Vec<FleetDoneHost>,
}

/// A host of a fleet, and what became of it.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FleetDoneHost {
    /// Its name.
    name: String,
    /// Its group.
    group: String,
    /// The interface.
    interface: String,
    /// `undone`, `in-part` (somebody else set values since), `would-undo`, `unchanged` (the rollout is not in force there);
    /// `confirmed`, `put-back`, `went-back` (it did before); `kept`, `would-write`, `removed`; `same`, `different`,
    /// `unknown` or `nothing-kept` (what is kept against what is in force); `left-out`, `refused` or `stranded`; without an
    /// answer `failed`, `unreachable`, `timed-out` or `not-asked`, as in `latput fleet verify`.
    outcome: String,
    /// Why, or which files; empty if the outcome says all.
    why: String,
}

impl FleetDoneDocument {
    pub(crate) fn new(done: &HostOutcomes<'_>) -> Self {
        let hosts = done.hosts().map(|(host, outcome, why)| FleetDoneHost {
            name: host.name.clone(),
            group: host.group.clone(),
            interface: host.interface.clone(),
            outcome: outcome.name().to_owned(),
            why: why.to_owned(),
        });
        Self {
            schema: 1,
            action: done.action.to_owned(),
            rollout: done.rollout.clone(),
            hosts: hosts.collect(),
        }
    }
}

/// The output of `latput fleet log`.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FleetLogDocument {
    /// Version of this document's schema: 1.
    schema: u32,
    /// The hosts.
    hosts: Vec<FleetLogHost>,
}

/// The journal of a host.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FleetLogHost {
    /// Its name.
    name: String,
    /// The interface.
    interface: String,
    /// `read`; without an answer `failed`, `unreachable`, `timed-out` or `not-asked`, as in `latput fleet verify`.
    outcome: String,
    /// Why its journal is not known; `null` if it is.
    problem: Option<String>,
    /// The changes, the newest first.
    entries: Vec<FleetLogEntry>,
}

/// A change of a host.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FleetLogEntry {
    /// The number in the host's journal.
    number: u64,
    /// When it began, in milliseconds since 1970, on the host's clock.
    at_unix_ms: u64,
    /// The command, or the name of the rollout.
    command: String,
    /// Its maker.
    user: String,
    /// As in the document of `latput log`.
    state: String,
}

impl FleetLogDocument {
    /// The newest entries of each host's journal.
    pub(crate) fn new(
        hosts: &[FleetHost],
        journals: &[Result<Vec<HostEntry>, HostState>],
        newest: usize,
    ) -> Self {
        let entry = |entry: &HostEntry| FleetLogEntry {
            number: entry.number,
            at_unix_ms: entry.at_unix_ms,
            command: entry.command.clone(),
            user: entry.user.clone(),
            state: entry.state.clone(),
        };
        let host =
            |(host, journal): (&FleetHost, &Result<Vec<HostEntry>, HostState>)| FleetLogHost {
                name: host.name.clone(),
                interface: host.interface.clone(),
                outcome: journal.as_ref().map_or_else(HostState::name, |_| "read").to_owned(),
                problem: journal.as_ref().err().map(HostState::explanation),
                entries: journal.iter().flatten().take(newest).map(entry).collect(),
            };
        Self { schema: 1, hosts: hosts.iter().zip(journals).map(host).collect() }
    }
}
