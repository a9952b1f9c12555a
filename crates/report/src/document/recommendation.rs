//! The recommendation in a document.

use std::collections::BTreeMap;

use latput_trial::{Metric, Results};
use latput_units::IntoMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Estimate, MetricOfWorkload, convert_estimate, finite_or_none};
use crate::next;
use crate::view::ReportView;

/// A way to apply a recommendation, to take it back or to keep it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NextStep {
    /// `apply`, `undo` or `keep`.
    pub name: String,
    /// The command line, or why there is none.
    pub line: String,
}

/// A recommendation with its reason.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Recommendation {
    /// The goal in full.
    pub goal: String,
    /// Index into `settings`.
    pub setting: usize,
    /// Whether it is proven better than the first setting.
    pub proven: bool,
    /// The kind of proof: `objective`, or `limit` if the first setting is proven to break a limit
    /// and this one to do better there (its objective may be worse); `null` without a proof.
    #[serde(default)]
    pub proven_by: Option<String>,
    /// The objective over the first setting's; `null` if the first is recommended.
    pub against_first_ratio: Option<Estimate>,
    /// The reason, in sentences.
    pub reason: Vec<String>,
    /// The smallest effects that this run could have proven: of the objective, then of each limit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub smallest_effects: Vec<SmallestEffect>,
    /// The objective under every setting but the first, as the answer weighs it; empty where the hosts were not quiet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<ObjectiveChange>,
    /// How to apply it, take it back and keep it over a reboot; empty if it changes nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub next: Vec<NextStep>,
    /// The command lines that apply it. `IFACE` stands for the reader's interface if the measured
    /// one was the lab's.
    pub commands: Vec<String>,
}

/// The objective of one setting over the first setting's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ObjectiveChange {
    /// Index into `settings`.
    pub setting: usize,
    /// The ratio in each workload of the objective, by the workload's name: the geometric mean over the blocks that have both,
    /// without outliers.
    pub by_workload_ratio: BTreeMap<String, f64>,
    /// The ratio that decides, over all workloads, with the interval at the confidence of the decision; `null` where the
    /// settings cannot be compared.
    pub ratio: Option<Estimate>,
    /// `proven better`, `proven worse`, `no difference shown`, `proven short of a limit of the goal`, `banned for breaking a
    /// guard` or `figures are missing`.
    pub verdict: String,
}

/// The smallest effect that four of five runs with as many blocks and as much noise prove.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SmallestEffect {
    /// The tested figures: one, or all parts of an objective, which are tested together.
    pub figures: Vec<MetricOfWorkload>,
    /// The limit, as in the goal; `null` for the objective.
    pub limit: Option<String>,
    /// The figure over the first setting's, or over the limit: 0.88 if 12% less could have been
    /// proven. `null` if it is too large for a number.
    pub effect_ratio: Option<f64>,
    /// The same ratio with four times the blocks.
    pub effect_in_four_times_ratio: Option<f64>,
}

/// The recommendation of a summary; `None` without a goal that could be judged.
pub(super) fn build_recommendation(view: &ReportView<'_>) -> Option<Recommendation> {
    let advice = view.summary.recommendation.as_ref()?;
    let changes = advice.changes.iter().map(|change| objective_change(view.results, change));
    Some(Recommendation {
        goal: advice.goal.clone(),
        setting: advice.setting,
        proven: advice.is_proven(),
        proven_by: advice.proven_by.map(|by| by.name().to_owned()),
        against_first_ratio: advice.against_first.as_ref().and_then(convert_estimate),
        reason: advice.reason.clone(),
        smallest_effects: advice.smallest.iter().map(smallest_effect).collect(),
        changes: changes.collect(),
        next: next_steps(view),
        commands: view.recommended_commands().into_iter().map(|c| c.line).collect(),
    })
}

fn objective_change(results: &Results, change: &latput_model::ObjectiveChange) -> ObjectiveChange {
    let name = |workload: usize| results.workloads[workload].name.clone();
    let ratios = change.by_workload.iter().filter(|(_, ratio)| ratio.is_finite());
    ObjectiveChange {
        setting: change.setting,
        by_workload_ratio: ratios.map(|(workload, ratio)| (name(*workload), *ratio)).into_map(),
        ratio: change.ratio.as_ref().and_then(convert_estimate),
        verdict: change.verdict.describe().to_owned(),
    }
}

fn next_steps(view: &ReportView<'_>) -> Vec<NextStep> {
    if view.recommended_commands().is_empty() {
        return Vec::new();
    }
    let step =
        |line: &next::NextLine| NextStep { name: line.name.to_owned(), line: line.to_text() };
    next::build_next_lines(view.results).iter().map(step).collect()
}

fn smallest_effect(one: &latput_model::SmallestEffect) -> SmallestEffect {
    let figure = |&(workload, metric): &(usize, Metric)| MetricOfWorkload {
        workload,
        metric: metric.name().to_owned(),
    };
    SmallestEffect {
        figures: one.figures.iter().map(figure).collect(),
        limit: one.limit.clone(),
        effect_ratio: finite_or_none(one.ratio),
        effect_in_four_times_ratio: finite_or_none(one.ratio_in_four_times),
    }
}
