//! The answer: findings by what they explain, what is healthy, and what was not seen.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::Serialize;

use crate::evidence::Evidence;
use crate::finding::{Confidence, Finding, Judgement};
use crate::rules::RULES;
use crate::snapshot::Snapshot;

/// The version of the JSON document.
pub const SCHEMA: u32 = 1;

/// A finding with its place.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct RankedFinding {
    /// 1 explains most.
    pub rank: usize,
    /// What was found.
    #[serde(flatten)]
    pub finding: Finding,
    /// Whether it was tried: `hypothesis` until then.
    pub verdict: &'static str,
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
    /// What is wrong, the first explains most.
    pub findings: Vec<RankedFinding>,
    /// What was looked at and shows no fault.
    pub healthy: Vec<&'static str>,
    /// What was not there or could not be read.
    pub unseen: Vec<String>,
}

/// Judges a snapshot by every rule.
pub fn diagnose(snapshot: &Snapshot) -> Diagnosis {
    let evidence = Evidence::from_snapshot(snapshot);
    let (mut findings, mut healthy, mut unseen) = (Vec::new(), Vec::new(), BTreeSet::new());
    for rule in RULES {
        match (rule.judge)(rule, &evidence) {
            Judgement::Fault(finding) => findings.push(finding),
            Judgement::Healthy => healthy.push(rule.subject),
            Judgement::Unseen(source) => drop(unseen.insert(source)),
        }
    }
    // A stable sort: of equals the table's order counts.
    findings.sort_by(|one, other| weigh(other).total_cmp(&weigh(one)));
    let ranked = |(finding, rank)| RankedFinding { rank, finding, verdict: "hypothesis" };
    let unreadable = evidence.unreadable().iter().map(|name| format!("{name}: of no known form"));
    Diagnosis {
        schema: SCHEMA,
        interface: snapshot.interface.clone(),
        window_s: evidence.window_s(),
        findings: findings.into_iter().zip(1..).map(ranked).collect(),
        healthy,
        unseen: unseen
            .into_iter()
            .map(|source| source.describe().to_owned())
            .chain(unreadable)
            .collect(),
    }
}

/// The weight of a finding in the order: what it explains of losses, waits and CPU time, less where it is a hint only.
/// A loss costs a connection a timeout, so that it weighs more than a wait, and a wait more than CPU time.
fn weigh(finding: &Finding) -> f64 {
    let explains = finding.explains;
    let harm = [
        (explains.loss_share, 3.0),
        (explains.latency_share, 2.0),
        (explains.cpu_share, 1.0),
    ];
    let harm: f64 = harm.into_iter().map(|(share, weight)| share.unwrap_or(0.0) * weight).sum();
    let sure = match finding.confidence {
        Confidence::Hint => 0.3,
        Confidence::Likely => 0.8,
        Confidence::Certain => 1.0,
    };
    harm * sure
}
