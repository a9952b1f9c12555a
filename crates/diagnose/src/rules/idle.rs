//! `idle`: there was no traffic to judge.

use crate::evidence::Evidence;
use crate::finding::{Confidence, Finding, Judgement, Rule};
use crate::source::EvidenceSource;

/// The packets a second, both ways, below which a host only talks to itself: neighbours, a clock, a shell.
const LEAST_RATE: f64 = 10.0;
/// The packets below which it does where nobody tells how long the window was.
const LEAST_PACKETS: u64 = 100;

/// The row.
pub(crate) const RULE: Rule = Rule {
    id: "idle",
    subject: "traffic",
    mechanism: "Without traffic no counter grows, and nothing waits: look again while it is slow.",
    judge,
};

fn judge(rule: &Rule, evidence: &Evidence<'_>) -> Judgement {
    let name = evidence.interface_name();
    let Some(packets) = evidence.packets() else {
        // Where nothing tells of packets, two looks that are the same tell of none.
        let [before, after] = evidence.looks();
        if before != after {
            return Judgement::Unseen(EvidenceSource::Interface);
        }
        let sentence = "idle: nothing to judge, no counter grew between the looks".to_owned();
        return Judgement::Fault(add_remedy(
            Finding::new(rule, Confidence::Likely, sentence),
            name,
        ));
    };
    let window_s = evidence.window_s();
    let is_idle = window_s
        .map_or(packets < LEAST_PACKETS, |window_s| (packets as f64) < LEAST_RATE * window_s);
    if !is_idle {
        return Judgement::Healthy;
    }
    let time = window_s.map(|window_s| format!(" in {window_s:.0} s")).unwrap_or_default();
    let sentence = format!("idle: nothing to judge, {packets} packets passed{time}");
    let found = Finding::new(rule, Confidence::Certain, sentence).with("packets", packets);
    Judgement::Fault(add_remedy(found, name))
}

fn add_remedy(found: Finding, name: &str) -> Finding {
    found.with_remedy(format!(
        "latput diagnose {name} --for 30s, while the traffic runs that is slow"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::testing::{PlantedLooks, number};

    fn looks(packets: u64) -> PlantedLooks {
        let name = "sys/class/net/eth0/statistics/rx_packets";
        PlantedLooks::new().text(name, "900000000\n", &format!("{}\n", 900_000_000 + packets))
    }

    #[test]
    fn few_packets_are_idle() {
        let found = looks(50).seconds(10).find(&RULE);
        assert!((number(&found, "packets") - 50.0).abs() < 1e-9);
        assert_eq!(found.sentence, "idle: nothing to judge, 50 packets passed in 10 s");
        assert!(matches!(looks(99).judge(&RULE), Judgement::Fault(_)));
    }

    #[test]
    fn traffic_is_not_idle() {
        assert_eq!(looks(500).seconds(10).judge(&RULE), Judgement::Healthy);
        assert_eq!(looks(5000).judge(&RULE), Judgement::Healthy);
    }

    #[test]
    fn unknown_traffic_is_unseen() {
        let grown = PlantedLooks::new().text("ethtool_-S_eth0", "rx_pause: 1\n", "rx_pause: 2\n");
        assert_eq!(grown.judge(&RULE), Judgement::Unseen(EvidenceSource::Interface));
        let same = PlantedLooks::new().same("ethtool_-S_eth0", "rx_pause: 132000000\n");
        assert_eq!(same.find(&RULE).confidence, Confidence::Likely);
    }
}
