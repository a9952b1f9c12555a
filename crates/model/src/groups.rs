//! Live traffic by port or by peer: what today's setting has in each group of connections, and what the others change there.
//!
//! They are looks, not goals: the guards and the goal are about all connections together. The comparisons are those of
//! [`crate::compare_settings`], with the same correction for their number.

use std::collections::BTreeMap;

use latput_stats::Estimate;
use latput_trial::live::{GroupBy, MOST_GROUPS, TcpGroup};
use latput_trial::observation::HostObservation;
use latput_trial::{Metric, Observation, Results, Row, Traffic, Workload};
use latput_units::IntoMap;

use crate::compare::{CompareMethod, Comparison, SMALLEST_EFFECT, compare_figures};
use crate::runs::RunTable;

/// The figures of a group that are compared. The shortest round trip is of a connection's last minutes, in which other
/// settings were in force too.
pub const COMPARED: &[Metric] = &[
    Metric::TcpRttNsP50,
    Metric::TcpRttNsP99,
    Metric::TcpRttNsMean,
    Metric::TcpRetransmitsPerS,
    Metric::TcpThroughputBps,
];
/// The figures of a group that are told of today.
pub const TOLD: &[Metric] = &[
    Metric::TcpRttNsMin,
    Metric::TcpRttNsP50,
    Metric::TcpRttNsMean,
    Metric::TcpRttNsP99,
    Metric::TcpRttSampleNsP50,
    Metric::TcpRttSampleNsP99,
    Metric::TcpRetransmitsPerS,
    Metric::TcpThroughputBps,
    Metric::TcpEndedPerS,
];

/// The groups of all runs.
#[derive(Clone, Debug, PartialEq)]
pub struct ConnectionGroups {
    /// Property by which connections are grouped.
    pub by: GroupBy,
    /// Traffic whose connections they are.
    pub traffic: Traffic,
    /// Those with the most payload, and the others at the end.
    pub groups: Vec<ConnectionGroup>,
    /// Each other setting, by its index, against today's. A group stands in the place of a workload, and has its index in
    /// `groups`.
    pub comparisons: Vec<(usize, Comparison)>,
}

/// One group under today's setting.
#[derive(Clone, Debug, PartialEq)]
pub struct ConnectionGroup {
    /// Its name: `local:443`, `remote:5432`, `10.0.0.7` or `others`.
    pub name: String,
    /// Most connections of a reading, under any setting.
    pub connections: u64,
    /// The figures of [`TOLD`] that it has.
    pub today: BTreeMap<Metric, Estimate>,
}

impl ConnectionGroups {
    /// The groups of these results; `None` if live traffic was not told apart.
    pub fn from_results(results: &Results) -> Option<Self> {
        let groups = busiest_groups(results);
        let by = groups.keys().find_map(|group| group.by())?;
        let traffic = find_grouped_traffic(results)?;
        let ordered = in_order(&groups);
        let apart = split_by_group(results, traffic, &ordered);
        let runs = RunTable::from_results(&apart);
        let told = |(idx, group): (usize, &TcpGroup)| ConnectionGroup {
            name: group.to_string(),
            connections: groups[group].connections,
            today: TOLD
                .iter()
                .filter_map(|metric| {
                    Some((*metric, runs.estimate_figure(0, idx, *metric, results.confidence)?))
                })
                .into_map(),
        };
        let others: Vec<usize> = (1..results.settings.len()).collect();
        let pairs: Vec<(usize, usize)> = others.iter().map(|other| (0, *other)).collect();
        let method =
            CompareMethod { confidence: results.confidence, smallest_effect: SMALLEST_EFFECT };
        let compared = compare_figures(&apart, &apart, &pairs, COMPARED, method);
        Some(Self {
            by,
            traffic,
            groups: ordered.iter().enumerate().map(told).collect(),
            comparisons: others
                .into_iter()
                .zip(compared)
                .filter(|(_, comparison)| !comparison.figures.is_empty())
                .collect(),
        })
    }
}

/// Sum of a group over all runs.
#[derive(Clone, Copy, Debug, Default)]
struct GroupTotals {
    connections: u64,
    payload_bytes: u64,
}

/// The groups with the most payload under today's setting: a file of another program may have any number.
fn busiest_groups(results: &Results) -> BTreeMap<TcpGroup, GroupTotals> {
    let mut sums: BTreeMap<TcpGroup, GroupTotals> = BTreeMap::new();
    for row in &results.rows {
        let hosts = row.observation.hosts.iter();
        for (group, seen) in hosts.flat_map(|host| &host.tcp_groups) {
            let sum = sums.entry(*group).or_default();
            sum.connections = sum.connections.max(seen.connections);
            if row.setting == 0 {
                let payload = seen.acked_bytes.saturating_add(seen.received_bytes);
                sum.payload_bytes = sum.payload_bytes.saturating_add(payload);
            }
        }
    }
    let kept: Vec<TcpGroup> = in_order(&sums);
    sums.retain(|group, _| kept.contains(group));
    sums
}

/// The groups by payload, with the others at the end.
fn in_order(sums: &BTreeMap<TcpGroup, GroupTotals>) -> Vec<TcpGroup> {
    let mut named: Vec<TcpGroup> =
        sums.keys().copied().filter(|it| *it != TcpGroup::Others).collect();
    named.sort_by_key(|group| std::cmp::Reverse(sums[group].payload_bytes));
    named.truncate(MOST_GROUPS);
    named.extend(sums.contains_key(&TcpGroup::Others).then_some(TcpGroup::Others));
    named
}

/// The traffic of the first run whose connections are told apart.
fn find_grouped_traffic(results: &Results) -> Option<Traffic> {
    let is_grouped =
        |row: &&Row| row.observation.hosts.iter().any(|host| !host.tcp_groups.is_empty());
    let row = results.rows.iter().find(is_grouped)?;
    Some(results.workloads.get(row.workload)?.traffic)
}

/// The results with a workload for each group, whose runs have the group's figures only.
fn split_by_group(results: &Results, traffic: Traffic, groups: &[TcpGroup]) -> Results {
    let runs = |row: &Row| {
        let of_group = |(workload, group): (usize, &TcpGroup)| {
            let hosts = row.observation.hosts.iter();
            let (host, seen) =
                hosts.clone().find_map(|host| Some((host, host.tcp_groups.get(group)?)))?;
            let alone = HostObservation::of_connections(host, seen);
            let observation = Observation { hosts: vec![alone], ..Default::default() };
            let (block, setting, started_unix_ms) = (row.block, row.setting, row.started_unix_ms);
            Some(Row { block, setting, workload, started_unix_ms, observation })
        };
        groups.iter().enumerate().filter_map(of_group).collect::<Vec<Row>>()
    };
    let workload = |group: &TcpGroup| Workload::plain(group.to_string(), traffic);
    Results {
        workloads: groups.iter().map(workload).collect(),
        rows: results.rows.iter().flat_map(runs).collect(),
        ..crate::pairs::with_settings(results, results.settings.clone())
    }
}

#[cfg(test)]
mod tests {
    use latput_stats::Histogram;
    use latput_trial::observation::TcpObservation;
    use latput_units::{Nanos, SeededRng};

    use super::*;
    use crate::compare::ComparisonVerdict;
    use crate::synthetic::{SyntheticFigures, build_results, noise_factor};

    /// Live traffic whose port 443 has these times today's round trips under setting `b`.
    fn made_up(effect: f64, blocks: u32) -> Results {
        let mut rng = SeededRng::from_seed(3);
        let live = Workload::plain("live", Traffic::Live);
        let mut found =
            build_results(&["a", "b"], &[live], blocks, |_, _| SyntheticFigures::default());
        for row in &mut found.rows {
            let host = &mut row.observation.hosts[0];
            let ports = [(TcpGroup::Local(443), 1000, effect), (TcpGroup::Remote(80), 10, 1.0)];
            for (group, bytes, effect) in ports {
                let times = if row.setting == 1 { effect } else { 1.0 };
                let mut rtt = Histogram::new();
                rtt.record_n(
                    Nanos::from_secs_f64(2e-4 * times * noise_factor(&mut rng, 0.01)),
                    100,
                );
                rtt.pack();
                let seen = TcpObservation {
                    readings: 20,
                    connections: 4,
                    acked_bytes: bytes,
                    rtt,
                    ..Default::default()
                };
                host.tcp_groups.insert(group, seen);
            }
        }
        found
    }

    fn group_verdicts(found: &ConnectionGroups, group: usize) -> Vec<(Metric, ComparisonVerdict)> {
        let (setting, comparison) = &found.comparisons[0];
        assert_eq!(*setting, 1);
        let of_group = comparison.figures.iter().filter(|it| it.workload_idx == group);
        of_group.map(|it| (it.metric, it.verdict)).collect()
    }

    #[test]
    fn harm_at_one_port_is_seen_there() {
        let found = ConnectionGroups::from_results(&made_up(1.2, 8)).unwrap();
        assert_eq!(found.by, GroupBy::Port);
        let names: Vec<&str> = found.groups.iter().map(|group| group.name.as_str()).collect();
        assert_eq!(names, ["local:443", "remote:80"]);
        let today = &found.groups[0].today[&Metric::TcpRttNsP99];
        assert!((today.value / 2e5 - 1.0).abs() < 0.02, "{today:?}");
        let p99 = |group: usize| {
            let all = group_verdicts(&found, group);
            all.iter().find(|(metric, _)| *metric == Metric::TcpRttNsP99).unwrap().1
        };
        assert_eq!(p99(0), ComparisonVerdict::Worse);
        assert_ne!(p99(1), ComparisonVerdict::Worse);
        assert_eq!(group_verdicts(&found, 0).len(), COMPARED.len());
    }

    /// Plain 99% intervals of eight groups would call something different in some 15% of the runs.
    #[test]
    fn many_looks_are_not_many_claims() {
        let mut rng = SeededRng::from_seed(9);
        let plain = made_up(1.0, 5);
        let mut claims = 0;
        for _ in 0..60 {
            let mut found = plain.clone();
            for row in &mut found.rows {
                let groups = (0..8).map(|port| {
                    let mut rtt = Histogram::new();
                    rtt.record(Nanos::from_secs_f64(2e-4 * noise_factor(&mut rng, 0.05)));
                    rtt.pack();
                    let acked_bytes =
                        Nanos::from_secs_f64(1e-3 * noise_factor(&mut rng, 0.05)).as_ns();
                    let seen = TcpObservation { acked_bytes, rtt, ..Default::default() };
                    (TcpGroup::Local(port), seen)
                });
                row.observation.hosts[0].tcp_groups = groups.collect();
            }
            let found = ConnectionGroups::from_results(&found).unwrap();
            let judged: Vec<_> = (0..8).flat_map(|group| group_verdicts(&found, group)).collect();
            assert_eq!(judged.len(), 8 * COMPARED.len());
            let is_claim = |(_, verdict): &(Metric, ComparisonVerdict)| {
                matches!(verdict, ComparisonVerdict::Better | ComparisonVerdict::Worse)
            };
            claims += u32::from(judged.iter().any(is_claim));
        }
        assert!(claims <= 2, "{claims} of 60 runs; less than one is expected");
    }

    #[test]
    fn groups_are_optional_and_bounded() {
        let live = Workload::plain("live", Traffic::Live);
        let plain = build_results(&["a"], &[live], 3, |_, _| SyntheticFigures::default());
        assert_eq!(ConnectionGroups::from_results(&plain), None);
        let mut many = made_up(1.0, 2);
        for row in &mut many.rows {
            let seen = row.observation.hosts[0].tcp_groups[&TcpGroup::Remote(80)].clone();
            let more = (1..500).map(|port| (TcpGroup::Local(port), seen.clone()));
            row.observation.hosts[0].tcp_groups.extend(more);
            row.observation.hosts[0].tcp_groups.insert(TcpGroup::Others, seen);
        }
        let found = ConnectionGroups::from_results(&many).unwrap();
        assert_eq!(found.groups.len(), MOST_GROUPS + 1);
        assert_eq!(found.groups[MOST_GROUPS].name, "others");
        // Only today: nothing is compared.
        many.settings.truncate(1);
        many.rows.retain(|row| row.setting == 0);
        assert_eq!(ConnectionGroups::from_results(&many).unwrap().comparisons, []);
    }

    #[test]
    fn order_is_by_the_payload_under_todays_setting() {
        let mut found = made_up(1.0, 2);
        for row in found.rows.iter_mut().filter(|row| row.setting == 1) {
            let groups = &mut row.observation.hosts[0].tcp_groups;
            groups.get_mut(&TcpGroup::Remote(80)).unwrap().acked_bytes = 1_000_000;
        }
        let names: Vec<String> =
            in_order(&busiest_groups(&found)).iter().map(TcpGroup::to_string).collect();
        assert_eq!(names, ["local:443", "remote:80"]);
    }
}
