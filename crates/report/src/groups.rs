//! Live traffic by port or by peer, for a terminal and in the JSON document.

use std::collections::BTreeMap;

use comfy_table::Table;
use latput_model::ConnectionGroups;
use latput_model::compare::{FigureComparison, Verdict};
use latput_model::groups::TOLD;
use latput_stats as stats;
use latput_trial::metric::Scale;
use latput_trial::observation::{HostObservation, Observation, Role};
use latput_trial::{Metric, Results, Traffic};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::comparison;
use crate::document::{Estimate, estimate};
use crate::plain::plain;
use crate::table::{Screen, wrapped};
use crate::view::View;

/// The connections of live traffic by port or by peer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GroupsDocument {
    /// `port` or `peer`.
    pub by: String,
    /// Those with the most payload, and the others at the end.
    pub groups: Vec<GroupDocument>,
    /// Each other setting over today's, in each group. They are looks, not goals.
    pub comparisons: Vec<GroupComparison>,
}

/// Some of the connections.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GroupDocument {
    /// `local:443` (a port that the host listens on), `remote:5432`, an address, or `others`.
    pub group: String,
    /// Most connections at a time, under any setting.
    pub connections_count: u64,
    /// Its figures under today's setting.
    pub today: BTreeMap<String, Estimate>,
}

/// One figure of a group under a setting, over today's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GroupComparison {
    /// Index into `settings`.
    pub setting: usize,
    /// Index into `groups`.
    pub group: usize,
    /// The figure's name.
    pub metric: String,
    /// The setting's figure over today's, paired within blocks, with its interval at the level of Holm's correction over all
    /// of `comparisons`; `null` where a figure is 0.
    pub ratio: Option<Estimate>,
    /// The chance of a difference at least this large without a true one, not corrected.
    pub p_value: Option<f64>,
    /// `better`, `worse`, `equivalent`, `no difference shown` or `not judged`.
    pub verdict: String,
}

/// One group in one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunGroup {
    /// Most connections of a reading.
    pub connections_count: u64,
    /// Segments sent again.
    pub retransmitted_count: u64,
    /// Payload that the other ends acknowledged.
    pub acked_bytes: u64,
    /// Payload received.
    pub received_bytes: u64,
    /// Its figures, by their names.
    pub metrics: BTreeMap<String, f64>,
}

impl GroupsDocument {
    pub(crate) fn of(results: &Results) -> Option<Self> {
        let found = ConnectionGroups::of(results)?;
        let named = |(metric, value): (&Metric, &stats::Estimate)| {
            Some((metric.name().to_owned(), estimate(value)?))
        };
        let compared = |setting: usize, it: &FigureComparison| GroupComparison {
            setting,
            group: it.workload_idx,
            metric: it.metric.name().to_owned(),
            ratio: it.ratio.as_ref().and_then(estimate),
            p_value: it.p_value.filter(|p_value| p_value.is_finite()),
            verdict: it.verdict.name().to_owned(),
        };
        let groups = found.groups.iter().map(|group| GroupDocument {
            group: group.name.clone(),
            connections_count: group.connections,
            today: group.today.iter().filter_map(named).collect(),
        });
        let comparisons = found.comparisons.iter().flat_map(|(setting, comparison)| {
            comparison.figures.iter().map(|figure| compared(*setting, figure))
        });
        Some(Self {
            by: found.by.name().to_owned(),
            groups: groups.collect(),
            comparisons: comparisons.collect(),
        })
    }
}

/// The groups of one run's host under test.
pub(crate) fn of_run(observation: &Observation) -> BTreeMap<String, RunGroup> {
    let groups = observation.hosts.iter().flat_map(|host| {
        host.tcp_groups.iter().map(move |(group, seen)| {
            let alone = HostObservation {
                role: Role::Sut,
                window: host.window,
                tcp: Some(seen.clone()),
                ..HostObservation::default()
            };
            let alone = Observation { hosts: vec![alone], ..Observation::default() };
            let figure = |metric: &Metric| {
                let value = metric.value(&Traffic::Live, &alone)?;
                value.is_finite().then(|| (metric.name().to_owned(), value))
            };
            let run = RunGroup {
                connections_count: seen.connections,
                retransmitted_count: seen.retransmitted,
                acked_bytes: seen.acked_bytes,
                received_bytes: seen.received_bytes,
                metrics: TOLD.iter().filter_map(figure).collect(),
            };
            (group.to_string(), run)
        })
    });
    groups.collect()
}

/// Today's figures of each group, and what the other settings change there. Nothing without groups.
pub(crate) fn section(view: &View<'_>, screen: Screen) -> String {
    let Some(found) = ConnectionGroups::of(view.results) else { return String::new() };
    let by = found.by.name();
    let mut text = format!("By {by}, under today's setting\n");
    text += &(plain(todays(&found), 1..=TOLD.len() + 1).join("\n") + "\n\n");
    for (setting, comparison) in &found.comparisons {
        text += &format!("By {by}, {} against today\n", view.full_label(*setting));
        let mut table = Table::new();
        table.set_header(["", "", "today", "setting", "change", "interval", ""]);
        for figure in comparison.figures.iter().filter(|it| is_shown(it)) {
            let [name, first, second, change, interval, verdict] =
                comparison::row(figure, view.results);
            let group = figure.workload.clone();
            table.add_row([group, name, first, second, change, interval, verdict]);
        }
        text += &(plain(table, 2..=5).join("\n") + "\n\n");
    }
    if !found.comparisons.is_empty() {
        let all: Vec<_> = found.comparisons.iter().map(|(_, one)| one.clone()).collect();
        let rule = format!(
            "Groups are looks, not goals: {}. p99, and what else is better or worse; the JSON has all.",
            comparison::method(&all)
        );
        text += &(wrapped(&rule, "", screen.columns) + "\n");
    }
    text
}

/// The tail of each group, and what has changed besides.
fn is_shown(figure: &FigureComparison) -> bool {
    figure.metric == Metric::TcpRttNsP99
        || matches!(figure.verdict, Verdict::Better | Verdict::Worse)
}

fn todays(found: &ConnectionGroups) -> Table {
    let values = |metric: &Metric| {
        let all = found.groups.iter().filter_map(|group| group.today.get(metric));
        all.map(|estimate| estimate.value).filter(|value| value.is_finite()).fold(0.0, f64::max)
    };
    let scales: Vec<Scale> =
        TOLD.iter().map(|metric| Scale::of(*metric, &Traffic::Live, values(metric))).collect();
    let mut table = Table::new();
    let names = TOLD
        .iter()
        .zip(&scales)
        .map(|(metric, scale)| format!("{}\n{}", metric.column(), scale.unit));
    table.set_header([String::new(), "conns".to_owned()].into_iter().chain(names));
    for group in &found.groups {
        let figures = TOLD.iter().zip(&scales).map(|(metric, scale)| {
            group.today.get(metric).map_or("-".to_owned(), |it| scale.number(it.value))
        });
        let first = [group.name.clone(), group.connections.to_string()];
        table.add_row(first.into_iter().chain(figures));
    }
    table
}
