//! `qdisc-drops`: a queue discipline drops packets that this host wants to send.

use crate::evidence::{Evidence, QdiscGrowth, percent, share_of};
use crate::finding::{Confidence, Finding, Judgement, Rule};
use crate::source::EvidenceSource;

/// The least part of packets that is harm: at 0.1% a flow has no more than 39 packets in flight (Mathis et al. 1997:
/// 1.22 / sqrt(p)).
const LEAST_SHARE: f64 = 0.001;
/// The least part where drops are how the discipline tells flows to slow down.
const LEAST_MANAGED_SHARE: f64 = 0.01;
/// The fewest drops that say anything.
const LEAST_DROPS: u64 = 10;
/// Disciplines that drop to keep their queue short.
const MANAGED: &[&str] = &["fq_codel", "codel", "cake", "fq_pie", "pie", "red", "sfq", "choke"];

/// The row.
pub(crate) const RULE: Rule = Rule {
    id: "qdisc-drops",
    subject: "drops of queue disciplines",
    mechanism: "A queue discipline that is full, or whose rate is below what is sent, drops packets on this host: TCP sends \
                them again and slows down, datagrams are lost.",
    judge,
};

fn judge(rule: &Rule, evidence: &Evidence<'_>) -> Judgement {
    let Some(rows) = evidence.qdiscs() else { return Judgement::Unseen(EvidenceSource::Qdiscs) };
    let dropped = evidence.dropped_by_qdiscs().unwrap_or(0);
    let Some(worst) = find_dropper(rows) else { return Judgement::Healthy };
    // A root and its leaves count the same packets.
    let sent = rows.iter().map(|row| row.packets).max().unwrap_or(0);
    let share = share_of(dropped, dropped + sent);
    let is_managed = MANAGED.contains(&worst.now.kind.as_str());
    let least = if is_managed { LEAST_MANAGED_SHARE } else { LEAST_SHARE };
    if dropped < LEAST_DROPS || share < least {
        return Judgement::Healthy;
    }
    let name = evidence.interface_name();
    let kind = worst.now.kind.as_str();
    let sentence =
        format!("{kind} of {name} dropped {dropped} packets ({} of those to send)", percent(share));
    let confidence = if is_managed { Confidence::Likely } else { Confidence::Certain };
    let found = Finding::new(rule, confidence, sentence)
        .with("drops", dropped)
        .with("sent_packets", sent)
        .with("overlimits", worst.overlimits)
        .with("kind", kind)
        .explaining_loss(share);
    Judgement::Fault(add_remedy(found, evidence, worst))
}

/// The discipline with most drops; of equals a leaf, whose kind and limits are what bit.
fn find_dropper(rows: &[QdiscGrowth]) -> Option<&QdiscGrowth> {
    rows.iter().filter(|row| row.drops > 0).max_by_key(|row| (row.drops, !row.now.root))
}

fn add_remedy(found: Finding, evidence: &Evidence<'_>, worst: &QdiscGrowth) -> Finding {
    let kind = worst.now.kind.as_str();
    let limit = worst.now.options.get("limit").and_then(serde_json::Value::as_u64);
    let has_rate = matches!(kind, "tbf" | "htb" | "hfsc" | "cbs" | "cake")
        || worst.now.options.get("rate").is_some();
    let name = evidence.interface_name();
    if has_rate && worst.overlimits > 0 {
        return found
            .with_change(evidence, "qdisc=fq_codel")
            .with_remedy(format!(
                "raise the rate of {kind}, against which packets stood {} times, or do without it: latput set {name} \
                 qdisc=fq_codel --dry-run",
                worst.overlimits
            ));
    }
    if kind == "netem" {
        return found.with_remedy(format!(
            "netem drops on purpose, or at its limit: latput set {name} qdisc=fq_codel --dry-run takes it away"
        ));
    }
    if MANAGED.contains(&kind) {
        return found.with_remedy(format!(
            "more is sent than the link takes, and {kind} keeps its queue short: send less, or let flows mark instead \
             (net.ipv4.tcp_ecn=1); a longer queue would only add delay"
        ));
    }
    match limit {
        // A byte queue's limit is in bytes, all others' in packets.
        Some(limit) if kind == "bfifo" => {
            found.with_change(evidence, "qdisc=fq_codel").with("limit_bytes", limit)
        }
        Some(limit) if kind == "pfifo" => {
            found.with_change(evidence, "qdisc=fq_codel").with("limit_packets", limit)
        }
        Some(limit) => {
            let longer = limit.saturating_mul(4);
            found
                .with("limit_packets", limit)
                .with_change(evidence, "qdisc=fq_codel")
                .with_remedy(format!("latput set {name} 'qdisc={kind} limit={longer}' --dry-run"))
        }
        None => found.with_change(evidence, "txqueuelen=10000"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::testing::{PlantedLooks, number};

    fn looks(kind: &str, options: &str, [sent, drops, over]: [u64; 3]) -> PlantedLooks {
        let text = |at: u64| {
            format!(
                r#"[{{"kind":"{kind}","handle":"1:","dev":"eth0","root":true,"options":{{{options}}},"bytes":{},
                "packets":{},"drops":{},"overlimits":{},"requeues":0,"backlog":0,"qlen":0}}]"#,
                at * sent * 1500,
                1_000_000 + at * sent,
                5_000_000 + at * drops,
                7_000 + at * over
            )
        };
        PlantedLooks::new().text("tc_-s_-j_qdisc", &text(0), &text(1))
    }

    #[test]
    fn full_queue_is_found_with_limit() {
        let found = looks("pfifo", r#""limit":10"#, [9900, 100, 0]).find(&RULE);
        assert_eq!(found.explains.loss_share, Some(0.01));
        assert!((number(&found, "limit_packets") - 10.0).abs() < 1e-9);
        assert_eq!(found.remedy.as_deref(), Some("latput set eth0 qdisc=fq_codel --dry-run"));
    }

    #[test]
    fn low_rate_is_named() {
        let found = looks("tbf", r#""rate":1250000,"limit":3000"#, [900, 100, 800]).find(&RULE);
        assert!(
            found
                .remedy
                .unwrap()
                .starts_with("raise the rate of tbf, against which packets stood 800 times")
        );
        assert_eq!(
            found.prove.as_deref(),
            Some("latput tune eth0 --live --factor qdisc=fq_codel --disruptive qdisc")
        );
    }

    #[test]
    fn few_drops_of_fq_codel_are_healthy() {
        let managed = looks("fq_codel", r#""limit":10240"#, [100_000, 500, 0]);
        assert_eq!(managed.judge(&RULE), Judgement::Healthy);
        assert!(matches!(looks("fq_codel", "", [9000, 1000, 0]).judge(&RULE), Judgement::Fault(_)));
    }

    #[test]
    fn large_counter_that_stands_is_healthy() {
        assert_eq!(looks("pfifo_fast", "", [100_000, 0, 0]).judge(&RULE), Judgement::Healthy);
        assert_eq!(looks("pfifo_fast", "", [100_000, 9, 0]).judge(&RULE), Judgement::Healthy);
    }

    #[test]
    fn missing_output_of_tc_is_unseen() {
        let looks = PlantedLooks::new().same("proc/uptime", "5 5\n");
        assert_eq!(looks.judge(&RULE), Judgement::Unseen(EvidenceSource::Qdiscs));
    }
}
