//! The answer: findings by what they explain, what is healthy, and what was not seen.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::Serialize;

use crate::evidence::Evidence;
use crate::finding::{Confidence, Finding, Judgement};
use crate::proof::{Proof, Verdict};
use crate::rules::{ANSWERS, RULES};
use crate::snapshot::Snapshot;
use crate::stages::{StageRecord, StageSummary};

/// The version of the JSON document.
pub const SCHEMA: u32 = 1;

/// A finding with its place.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct RankedFinding {
    /// 1 explains most.
    pub rank: usize,
    /// The finding.
    #[serde(flatten)]
    pub finding: Finding,
    /// Verdict of the trial: `hypothesis` until then.
    pub verdict: Verdict,
    /// The figures of the trial.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proof: Option<Proof>,
    /// The reason why it was not tried although a trial was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub untried: Option<String>,
}

impl RankedFinding {
    /// A finding that nobody has tried.
    pub const fn new(rank: usize, finding: Finding) -> Self {
        Self { rank, finding, verdict: Verdict::Hypothesis, proof: None, untried: None }
    }
}

/// The answer for a snapshot.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Diagnosis {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The interface that was judged.
    pub interface: String,
    /// Seconds between the looks; absent where nobody tells.
    pub window_s: Option<f64>,
    /// The faults, the first explains most.
    pub findings: Vec<RankedFinding>,
    /// Subjects that were looked at and show no fault.
    pub healthy: Vec<&'static str>,
    /// The waits of packets by stage, in the order of their way; none where they were not traced.
    pub stages: Vec<StageSummary>,
    /// Sources that were not there or could not be read.
    pub unseen: Vec<String>,
}

/// Judges a snapshot by every rule. Where nothing is found, the answer (`idle`, `no-fault`) is the only finding.
pub fn diagnose(snapshot: &Snapshot) -> Diagnosis {
    let evidence = Evidence::from_snapshot(snapshot);
    let (mut findings, mut healthy, mut unseen) = (Vec::new(), Vec::new(), BTreeSet::new());
    // Without a packet no counter of the host says anything about this interface.
    let is_silent = evidence.packets() == Some(0);
    for rule in RULES.iter().filter(|_| !is_silent) {
        match (rule.judge)(rule, &evidence) {
            Judgement::Fault(finding) => findings.push(finding),
            Judgement::Healthy => healthy.push(rule.subject),
            // A source that is there may lack the one counter: most drivers do.
            Judgement::Unseen(source) if evidence.lacks(source) => drop(unseen.insert(source)),
            Judgement::Unseen(_) => {}
        }
    }
    if findings.is_empty() {
        findings.extend(find_answer(&evidence));
    }
    // A stable sort: of equals the table's order counts.
    findings.sort_by(|one, other| weigh(other).total_cmp(&weigh(one)));
    let ranked = |(finding, rank)| RankedFinding::new(rank, finding);
    let unreadable = evidence.unreadable().iter().map(|name| format!("{name}: of no known form"));
    Diagnosis {
        schema: SCHEMA,
        interface: snapshot.interface.clone(),
        window_s: evidence.window_s(),
        findings: findings.into_iter().zip(1..).map(ranked).collect(),
        healthy,
        stages: snapshot.stages.as_ref().map(StageRecord::summarise).unwrap_or_default(),
        unseen: unseen
            .into_iter()
            .map(|source| source.describe().to_owned())
            .chain(unreadable)
            .chain(snapshot.stages.iter().flat_map(list_unseen_stages))
            .collect(),
    }
}

/// Parts that a record of the stages lacks, in sentences.
fn list_unseen_stages(record: &StageRecord) -> Vec<String> {
    let mut unseen = record.unseen.clone();
    if let Some(sum) = record.sum_way().filter(|sum| !sum.is_plausible()) {
        unseen.push(format!(
            "what the stages leave out: they add up to {:.0} us, more than the turnaround's {:.0} us",
            sum.here_ns / 1000.0,
            sum.whole_ns / 1000.0
        ));
    }
    unseen
}

/// The answer where nothing is wrong.
fn find_answer(evidence: &Evidence<'_>) -> Option<Finding> {
    ANSWERS.iter().find_map(|rule| match (rule.judge)(rule, evidence) {
        Judgement::Fault(finding) => Some(finding),
        Judgement::Healthy | Judgement::Unseen(_) => None,
    })
}

/// The weight of a finding whose harm cannot be told, before it is known how sure it is.
const UNKNOWN_HARM: f64 = 0.05;

/// The weight of a finding in the order: what it explains of losses, waits and CPU time, less where it is a hint only.
pub(crate) fn weigh(finding: &Finding) -> f64 {
    let harm: f64 = finding.explains.weighed().map(|(_, weight)| weight).sum();
    let sure = match finding.confidence {
        Confidence::Hint => 0.3,
        Confidence::Likely => 0.8,
        Confidence::Certain => 1.0,
    };
    harm.max(UNKNOWN_HARM) * sure
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Rule;
    use crate::rules::testing::PlantedLooks;

    const PACKETS: &str = "sys/class/net/eth0/statistics/rx_packets";

    fn ids(looks: &PlantedLooks) -> Vec<&'static str> {
        diagnose(&looks.snapshot()).findings.iter().map(|ranked| ranked.finding.id).collect()
    }

    #[test]
    fn healthy_host_has_no_fault() {
        let looks = PlantedLooks::new().text(PACKETS, "900000000\n", "900090000\n").tcp_ext(&[(
            "ListenOverflows",
            9_000_000,
            9_000_000,
        )]);
        assert_eq!(ids(&looks), ["no-fault"]);
        let healthy = diagnose(&looks.snapshot()).healthy;
        assert!(healthy.contains(&"listen queues"), "{healthy:?}");
    }

    #[test]
    fn silent_interface_is_idle_only() {
        let looks = PlantedLooks::new().text(PACKETS, "900000000\n", "900000000\n").tcp_ext(&[(
            "ListenOverflows",
            0,
            9_000_000,
        )]);
        assert_eq!(ids(&looks), ["idle"]);
        assert!(diagnose(&looks.snapshot()).healthy.is_empty());
    }

    #[test]
    fn fault_leaves_no_room_for_answers() {
        let looks = PlantedLooks::new().udp(&[("OutDatagrams", 0, 50), ("SndbufErrors", 0, 50)]);
        assert_eq!(ids(&looks), ["udp-send-buffer"]);
    }

    #[test]
    fn rules_have_names_of_their_own() {
        let all: Vec<&Rule> = RULES.iter().chain(ANSWERS).copied().collect();
        let ids: BTreeSet<&str> = all.iter().map(|rule| rule.id).collect();
        let subjects: BTreeSet<&str> = all.iter().map(|rule| rule.subject).collect();
        assert_eq!((ids.len(), subjects.len()), (all.len(), all.len()));
        assert!(all.iter().all(|rule| rule.mechanism.ends_with('.')));
    }
}
