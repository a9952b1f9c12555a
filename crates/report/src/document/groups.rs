//! Live traffic by port or by peer in the document.

use std::collections::BTreeMap;

use latput_model::ConnectionGroups;
use latput_model::compare::FigureComparison;
use latput_model::groups::TOLD;
use latput_stats as stats;
use latput_trial::observation::{HostObservation, Observation};
use latput_trial::{Metric, Results, Traffic};
use latput_units::IntoMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Estimate, convert_estimate};

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
    pub(super) fn from_results(results: &Results) -> Option<Self> {
        let found = ConnectionGroups::from_results(results)?;
        let named = |(metric, value): (&Metric, &stats::Estimate)| {
            Some((metric.name().to_owned(), convert_estimate(value)?))
        };
        let compared = |setting: usize, it: &FigureComparison| GroupComparison {
            setting,
            group: it.workload_idx,
            metric: it.metric.name().to_owned(),
            ratio: it.ratio.as_ref().and_then(convert_estimate),
            p_value: it.p_value.filter(|p_value| p_value.is_finite()),
            verdict: it.verdict.name().to_owned(),
        };
        let groups = found.groups.iter().map(|group| GroupDocument {
            group: group.name.clone(),
            connections_count: group.connections,
            today: group.today.iter().filter_map(named).into_map(),
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
pub(super) fn collect_run_groups(
    traffic: Option<&Traffic>,
    observation: &Observation,
) -> BTreeMap<String, RunGroup> {
    let groups = observation.hosts.iter().flat_map(|host| {
        host.tcp_groups.iter().map(move |(group, seen)| {
            let alone = HostObservation::of_connections(host, seen);
            let alone = Observation { hosts: vec![alone], ..Observation::default() };
            let figure = |metric: &Metric| {
                let value = metric.value(traffic?, &alone)?;
                value.is_finite().then(|| (metric.name().to_owned(), value))
            };
            let run = RunGroup {
                connections_count: seen.connections,
                retransmitted_count: seen.retransmitted,
                acked_bytes: seen.acked_bytes,
                received_bytes: seen.received_bytes,
                metrics: TOLD.iter().filter_map(figure).into_map(),
            };
            (group.to_string(), run)
        })
    });
    groups.into_map()
}
