//! The JSON of `latput fleet`.

use std::collections::BTreeMap;

use latput_fleet::FleetHost;
use latput_fleet::journal::HostEntry;
use latput_fleet::judge::{HostState, JudgedHost, KnobDifference};
use latput_fleet::twins::TwinDrift;
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
        values: &[TwinDrift],
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
    pub(crate) schema: u32,
    /// Name in the journals of the hosts.
    pub(crate) name: String,
    /// `confirmed`, `put-back`, `nothing-to-do` or `dry-run`.
    pub(crate) ended: String,
    /// The broken guard, if all was put back.
    pub(crate) broken: Option<String>,
    /// The hosts of each stage.
    pub(crate) stages: Vec<Vec<String>>,
    /// Every host, in the order of the inventory.
    pub(crate) hosts: Vec<RolloutHostPart>,
}

/// Ending of a host.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RolloutHostPart {
    /// Its name.
    pub(crate) name: String,
    /// Its group.
    pub(crate) group: String,
    /// How it is reached, in one word.
    pub(crate) target: String,
    /// The interface.
    pub(crate) interface: String,
    /// `confirmed`, `put-back`, `stranded`, `would-change` or `would-refuse`. `same`: it had the wanted values. `left-out`: it could not
    /// be used. `unchanged`: its stage did not come. `goes-back`: it was not reached. It goes back by itself.
    pub(crate) outcome: String,
    /// The reason; empty where the outcome says all.
    pub(crate) why: String,
    /// The number of the change in the host's journal, for `latput undo` there; `null` where that is not known.
    pub(crate) journal: Option<u64>,
    /// The latest time at which it goes back by itself, in milliseconds since 1970 (UTC); `null` where it does not.
    pub(crate) back_by_unix_ms: Option<u64>,
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
pub(crate) struct PairRatio {
    /// The objective's ratio to the first setting's.
    pub(crate) ratio: f64,
    /// The lower end of its interval.
    pub(crate) low: f64,
    /// The upper end.
    pub(crate) high: f64,
    /// The confidence of the interval.
    pub(crate) confidence: f64,
}

impl PairsDocument {
    /// `differences` are sentences; `why` says the reason of a setting's verdict.
    pub(crate) fn new(
        files: &[String],
        summary: &PairsSummary,
        differences: Vec<String>,
        why: impl Fn(&PairsSetting) -> String,
    ) -> Self {
        let part = |setting: &PairsSetting| PairsSettingPart {
            label: setting.label.clone(),
            verdict: setting.verdict.name().to_owned(),
            why: why(setting),
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
            differences,
        }
    }
}

impl PairRatio {
    pub(crate) fn from_estimate(ratio: &Estimate) -> Self {
        let Estimate { value, low, high, confidence, .. } = *ratio;
        Self { ratio: value, low, high, confidence }
    }
}

/// The output of `latput fleet confirm`.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ConfirmDocument {
    /// Version of this document's schema: 1.
    pub(crate) schema: u32,
    /// The results that recommend the setting.
    pub(crate) results: String,
    /// The setting's label there.
    pub(crate) setting: String,
    /// The goal.
    pub(crate) goal: String,
    /// The confidence of the verdict.
    pub(crate) confidence: f64,
    /// `confirmed` (proven better than today's on every pair), `unstable` (the pairs differ by more than their intervals),
    /// `worse` (proven worse, or short of a limit, on a pair) or `unproven`; `null` while a pair is missing.
    pub(crate) verdict: Option<String>,
    /// The reason, or what is missing.
    pub(crate) why: String,
    /// The objective's ratio to today's over the pairs that have ended, weighted by their errors; `null` of fewer than two.
    pub(crate) ratio: Option<f64>,
    /// The chance that their ratios lie so far apart if all are one (Welch's test of Cochran's Q).
    pub(crate) p_value: Option<f64>,
    /// The share of the scatter between pairs that their errors do not explain (I^2), 0 to 1.
    pub(crate) inconsistency: Option<f64>,
    /// The facts of hosts in which a pair differs from the first, such as the driver, in sentences.
    pub(crate) differences: Vec<String>,
    /// Every pair, in the order in which they were named.
    pub(crate) pairs: Vec<ConfirmPairPart>,
}

/// A pair of hosts.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ConfirmPairPart {
    /// Its hosts, the system under test first, or its testbed file.
    pub(crate) pair: String,
    /// Its results file.
    pub(crate) file: String,
    /// `done`, `cut-short` (some trials are kept), `failed` (none is, or it cannot be compared), `not-run`, or with `--check` `ready`.
    pub(crate) outcome: String,
    /// Why it is not done; else empty.
    pub(crate) why: String,
    /// The trials that it has.
    pub(crate) trials: usize,
    /// The ratio on it; `null` where it is not done, or is the only one.
    pub(crate) ratio: Option<PairRatio>,
}

/// The output of `latput fleet undo`, `finish` and `keep`.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FleetDoneDocument {
    /// Version of this document's schema: 1.
    pub(crate) schema: u32,
    /// `undo`, `finish` or `keep`.
    pub(crate) action: String,
    /// The rollout that was undone or finished.
    pub(crate) rollout: Option<String>,
    /// Outcome of every host.
    pub(crate) hosts: Vec<FleetDoneHost>,
}

/// A host of a fleet, and what became of it.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FleetDoneHost {
    /// Its name.
    name: String,
    /// Its group.
    group: String,
    /// The interface.
    interface: String,
    /// `undone`, `in-part` (somebody else set values since), `would-undo`, `unchanged` (the rollout is not in force there);
    /// `confirmed`, `put-back`, `went-back` (it did before); `kept`, `would-write`, `removed`; `same`, `different`,
    /// `unknown` or `nothing-kept` (what is kept against what is in force); `left-out`, `refused`, `lost` (it is not known) or `stranded`.
    outcome: String,
    /// Why, or which files; empty if the outcome says all.
    why: String,
}

impl FleetDoneHost {
    pub(crate) fn new(host: &FleetHost, outcome: &str, why: &str) -> Self {
        let FleetHost { name, group, interface, .. } = host.clone();
        Self { name, group, interface, outcome: outcome.to_owned(), why: why.to_owned() }
    }
}

/// The output of `latput fleet log`.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FleetLogDocument {
    /// Version of this document's schema: 1.
    pub(crate) schema: u32,
    /// The hosts.
    pub(crate) hosts: Vec<FleetLogHost>,
}

/// The journal of a host.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FleetLogHost {
    /// Its name.
    name: String,
    /// The interface.
    interface: String,
    /// Why its journal is not known; `null` if it is.
    problem: Option<String>,
    /// The changes, the newest first.
    entries: Vec<FleetLogEntry>,
}

/// A change of a host.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FleetLogEntry {
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

impl FleetLogHost {
    pub(crate) fn new(
        host: &FleetHost,
        journal: &Result<Vec<HostEntry>, String>,
        newest: usize,
    ) -> Self {
        let entry = |entry: &HostEntry| FleetLogEntry {
            number: entry.number,
            at_unix_ms: entry.at_unix_ms,
            command: entry.command.clone(),
            user: entry.user.clone(),
            state: entry.state.clone(),
        };
        let entries = journal.iter().flatten().take(newest).map(entry).collect();
        let problem = journal.as_ref().err().cloned();
        Self { name: host.name.clone(), interface: host.interface.clone(), problem, entries }
    }
}
