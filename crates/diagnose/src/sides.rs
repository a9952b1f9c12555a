//! Several hosts at once: which of them has the fault.
//!
//! Each host is judged alone. Then findings that follow from one of another host are put behind it, where both hosts see a
//! connection between them: a slow reader on one is a closed receive window on the other.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::Serialize;

use crate::diagnosis::{Diagnosis, RankedFinding, SCHEMA, diagnose, weigh};
use crate::evidence::Evidence;
use crate::rules::ANSWERS;
use crate::snapshot::Snapshot;

/// Findings of one end, each with those of the other end that cause it.
const CAUSES: &[(&str, &[&str])] = &[
    ("receive-window", &["slow-application", "tcp-receive-buffer"]),
    (
        "slow-peer",
        &[
            "slow-application",
            "cpu-quota",
            "steal",
            "cpu-full-of-softirq",
            "napi-thread-starved",
            "irq-on-one-cpu",
            "irq-on-application-cpu",
            "moderation-too-long",
            "idle-states",
            "qdisc-bloat",
        ],
    ),
    (
        "loss-on-path",
        &[
            "ring-too-small",
            "backlog-drops",
            "tcp-receive-buffer",
            "softirq-budget",
            "conntrack",
            "tunnel-checksum",
            "qdisc-drops",
            "irq-on-one-cpu",
            "rss-imbalance",
            "cpu-full-of-softirq",
        ],
    ),
    ("spurious-timeout", &["qdisc-bloat", "steal", "cpu-quota", "pause-by-us"]),
    ("pause-by-peer", &["pause-by-us"]),
];

/// A finding of another host that causes this one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RemoteCause {
    /// The other host.
    pub host: String,
    /// The finding there.
    pub id: &'static str,
    /// Connections between the two hosts that both see.
    pub connections: usize,
}

/// A finding with its host.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct HostFinding {
    /// The host.
    pub host: String,
    /// The finding there, with its place among those of all hosts.
    #[serde(flatten)]
    pub found: RankedFinding,
    /// The finding of another host that it follows from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub caused_by: Option<RemoteCause>,
}

/// A host beside its findings.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct DiagnosedHost {
    /// Its name.
    pub host: String,
    /// The interface that was judged.
    pub interface: String,
    /// Seconds between the looks.
    pub window_s: Option<f64>,
    /// Subjects that were looked at and show no fault.
    pub healthy: Vec<&'static str>,
    /// Sources that were not there or could not be read.
    pub unseen: Vec<String>,
}

/// The answer for several hosts.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct HostsDiagnosis {
    /// The version of the document.
    pub schema: u32,
    /// The faults of all hosts, the first explains most.
    pub findings: Vec<HostFinding>,
    /// The hosts, in the order of the command line.
    pub hosts: Vec<DiagnosedHost>,
}

/// A finding on its way into the order.
struct PlacedFinding {
    /// The host's index.
    host: usize,
    found: RankedFinding,
    weight: f64,
    cause: Option<usize>,
}

/// Judges each host, and then which side has the fault. Each host has a name of its own.
pub fn diagnose_hosts(hosts: &[(String, Snapshot)]) -> HostsDiagnosis {
    let ends: Vec<BTreeSet<[String; 2]>> =
        hosts.iter().map(|(_, snapshot)| list_connections(snapshot)).collect();
    let (mut placed, mut diagnosed) = (Vec::new(), Vec::new());
    for (host, (name, snapshot)) in hosts.iter().enumerate() {
        let Diagnosis { interface, window_s, findings, healthy, unseen, .. } = diagnose(snapshot);
        let place = |found: RankedFinding| {
            let weight = if is_answer(&found) { 0.0 } else { weigh(&found.finding) };
            PlacedFinding { host, found, weight, cause: None }
        };
        placed.extend(findings.into_iter().map(place));
        diagnosed.push(DiagnosedHost { host: name.clone(), interface, window_s, healthy, unseen });
    }
    find_causes(&mut placed, &ends);
    let mut order: Vec<usize> = (0..placed.len()).collect();
    // A stable sort: of equals the cause is first, then the order of the hosts counts.
    order.sort_by(|&one, &other| {
        let (one, other) = (&placed[one], &placed[other]);
        other.weight.total_cmp(&one.weight).then(one.cause.is_some().cmp(&other.cause.is_some()))
    });
    let findings = order.iter().zip(1..).map(|(&at, rank)| {
        let PlacedFinding { host, found, cause, .. } = &placed[at];
        let caused_by = cause.map(|cause| RemoteCause {
            host: hosts[placed[cause].host].0.clone(),
            id: placed[cause].found.finding.id,
            connections: count_shared(&ends[*host], &ends[placed[cause].host]),
        });
        let found = RankedFinding { rank, ..found.clone() };
        HostFinding { host: hosts[*host].0.clone(), found, caused_by }
    });
    HostsDiagnosis { schema: SCHEMA, findings: findings.collect(), hosts: diagnosed }
}

/// Whether a finding says that nothing is wrong.
fn is_answer(found: &RankedFinding) -> bool {
    ANSWERS.iter().any(|rule| rule.id == found.finding.id)
}

/// Finds for each finding the one of another host that causes it, which then weighs at least as much.
fn find_causes(placed: &mut [PlacedFinding], ends: &[BTreeSet<[String; 2]>]) {
    for symptom in 0..placed.len() {
        let (host, id) = (placed[symptom].host, placed[symptom].found.finding.id);
        let Some((_, causes)) = CAUSES.iter().find(|(known, _)| *known == id) else { continue };
        let is_cause = |at: &usize| {
            let other = &placed[*at];
            causes.contains(&other.found.finding.id)
                && count_shared(&ends[host], &ends[other.host]) > 0
        };
        let heaviest = (0..placed.len())
            .filter(is_cause)
            .max_by(|&one, &other| placed[one].weight.total_cmp(&placed[other].weight));
        if let Some(cause) = heaviest {
            placed[symptom].cause = Some(cause);
            placed[cause].weight = placed[cause].weight.max(placed[symptom].weight);
        }
    }
}

/// The connections of a host: its own address and the other end's.
fn list_connections(snapshot: &Snapshot) -> BTreeSet<[String; 2]> {
    let evidence = Evidence::from_snapshot(snapshot);
    let all = evidence.connections().unwrap_or_default();
    all.iter().map(|one| [plain_address(&one.now.local), plain_address(&one.now.peer)]).collect()
}

/// Connections that one host sees from one end, and the other from the other. Connections of a host with itself do not count.
fn count_shared(one: &BTreeSet<[String; 2]>, other: &BTreeSet<[String; 2]>) -> usize {
    let is_shared = |[local, peer]: &&[String; 2]| {
        let is_own = one.contains(&[peer.clone(), local.clone()]);
        !is_own && other.contains(&[peer.clone(), local.clone()])
    };
    one.iter().filter(is_shared).count()
}

/// An address with its port, as the other end writes it: IPv4 in IPv6 as IPv4, and no zone (`%eth0`).
fn plain_address(text: &str) -> String {
    let (address, port) = text.rsplit_once(':').unwrap_or((text, ""));
    let address = address.split('%').next().unwrap_or(address);
    let address = address.trim_start_matches('[').trim_end_matches(']');
    let address =
        address.strip_prefix("::ffff:").filter(|rest| rest.contains('.')).unwrap_or(address);
    format!("{address} {port}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::RULES;
    use crate::rules::testing::PlantedLooks;

    /// Looks of a sender that waits for the window of its peer.
    fn sender(peer: &str) -> Snapshot {
        let row = |busy: u32| {
            format!(
                "ESTAB 0 400000 10.0.0.1:50000 {peer}\n\t cubic rtt:0.2/0.1 minrtt:0.2 mss:1448 notsent:400000 busy:{busy}ms \
                 rwnd_limited:{busy}ms(100.0%) bytes_acked:{busy}000\n"
            )
        };
        PlantedLooks::new().seconds(10).sockets(&row(1000), &row(10_000)).snapshot()
    }

    /// Looks of a host whose program does not read.
    fn reader() -> Snapshot {
        let row = |bytes: u64| {
            format!(
                "ESTAB 3000000 0 [::ffff:10.0.0.2]:5201 [::ffff:10.0.0.1]:50000\n\t cubic rtt:0.2/0.1 bytes_received:{bytes}\n"
            )
        };
        PlantedLooks::new().seconds(10).sockets(&row(1000), &row(9_001_000)).snapshot()
    }

    fn told(hosts: &[(&str, Snapshot)]) -> HostsDiagnosis {
        let hosts: Vec<(String, Snapshot)> =
            hosts.iter().map(|(name, looks)| ((*name).to_owned(), looks.clone())).collect();
        diagnose_hosts(&hosts)
    }

    #[test]
    fn slow_reader_explains_closed_window() {
        let found = told(&[("a", sender("10.0.0.2:5201")), ("b", reader())]);
        let first = &found.findings[0];
        assert_eq!(
            (first.host.as_str(), first.found.finding.id),
            ("b", "slow-application"),
            "{found:#?}"
        );
        let cause = RemoteCause { host: "b".to_owned(), id: "slow-application", connections: 1 };
        let symptom =
            found.findings.iter().find(|one| one.found.finding.id == "receive-window").unwrap();
        assert_eq!((symptom.host.as_str(), &symptom.caused_by), ("a", &Some(cause)));
        let ranks: Vec<usize> = found.findings.iter().map(|one| one.found.rank).collect();
        assert_eq!(ranks, (1..=ranks.len()).collect::<Vec<_>>());
    }

    #[test]
    fn hosts_without_connection_explain_nothing() {
        let found = told(&[("a", sender("10.0.0.9:5201")), ("b", reader())]);
        assert!(found.findings.iter().all(|one| one.caused_by.is_none()), "{found:#?}");
    }

    #[test]
    fn answers_come_after_faults_of_others() {
        let idle = PlantedLooks::new()
            .text("sys/class/net/eth0/statistics/rx_packets", "5\n", "5\n")
            .snapshot();
        let found = told(&[("a", idle), ("b", reader())]);
        let ids: Vec<&str> = found.findings.iter().map(|one| one.found.finding.id).collect();
        assert_eq!((ids[0], *ids.last().unwrap()), ("slow-application", "idle"));
        assert_eq!(found.hosts.len(), 2);
    }

    #[test]
    fn causes_are_names_of_findings() {
        let is_known = |id: &str| RULES.iter().any(|rule| rule.id == id);
        for (symptom, causes) in CAUSES {
            assert!(is_known(symptom) && causes.iter().all(|id| is_known(id)), "{symptom}");
        }
    }

    #[test]
    fn addresses_are_those_of_the_other_end() {
        for (text, plain) in [
            ("10.0.0.1:80", "10.0.0.1 80"),
            ("[::ffff:10.0.0.1]:80", "10.0.0.1 80"),
            ("10.0.0.1%eth0:80", "10.0.0.1 80"),
            ("[fe80::1%eth0]:80", "fe80::1 80"),
            ("[fe80::1]%eth0:80", "fe80::1 80"),
            ("[::1]:80", "::1 80"),
        ] {
            assert_eq!(plain_address(text), plain, "{text}");
        }
    }
}
