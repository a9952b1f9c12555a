//! `ring-too-small`: packets arrive while no receive descriptor is free.

use crate::evidence::Evidence;
use crate::finding::{Confidence, Finding, Judgement, Rule};
use crate::measures::cpus::is_receiver_full;
use crate::measures::losses::{count_ring_drops, is_harm, loss_rate};
use crate::measures::traffic::InterfaceTraffic;
use crate::source::EvidenceSource;

/// The row.
pub(crate) const RULE: Rule = Rule {
    id: "ring-too-small",
    subject: "the receive ring",
    mechanism: "A burst that is larger than the receive ring, or that arrives while no CPU polls it, finds no free descriptor \
                and is dropped by the card.",
    judge,
};

fn judge(rule: &Rule, evidence: &Evidence<'_>) -> Judgement {
    let Some(drops) = count_ring_drops(evidence) else {
        return Judgement::Unseen(EvidenceSource::Driver);
    };
    let traffic = InterfaceTraffic::from_evidence(evidence);
    if traffic.is_idle() || !is_harm(drops, traffic.received) {
        return Judgement::Healthy;
    }
    let lost = traffic.received.map(|received| drops as f64 / (received + drops) as f64);
    let ring = evidence.limit("-g", "RX");
    let is_full = is_receiver_full(evidence);
    let is_largest = ring.is_some_and(|(now, most)| most.is_some_and(|most| now >= most));
    let lost_words = lost.map(|lost| format!(" ({:.2}% of those received)", lost * 100.0));
    let ring_words = ring.map(|(now, most)| {
        let most = most.map(|most| format!(" of at most {most}")).unwrap_or_default();
        format!(": it has {now}{most}")
    });
    let doubt = if is_full {
        "; its CPU is full of softirqs, which a larger ring does not mend"
    } else if is_largest {
        "; a shorter interrupt delay, more queues or another CPU would empty it sooner"
    } else {
        ""
    };
    let sentence = format!(
        "{drops} packets{} found no free descriptor in the receive ring{}{doubt}",
        lost_words.unwrap_or_default(),
        ring_words.unwrap_or_default()
    );
    let is_sure = !is_full && !is_largest && ring.is_some();
    let confidence = if is_sure { Confidence::Likely } else { Confidence::Hint };
    let mut finding = Finding::new(rule, confidence, sentence)
        .with("ring_drops", drops)
        .explaining_loss(loss_rate(evidence, drops));
    if let Some(lost) = lost {
        finding = finding.with("lost_share", lost);
    }
    if let Some((now, most)) = ring {
        finding = finding.with("rx_ring", now);
        if let Some(most) = most {
            finding = finding.with("rx_ring_most", most);
        }
    }
    let change = if is_largest { "combined-channels=max" } else { "rx-ring=max" };
    Judgement::Fault(finding.with_change(evidence, change))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measures::fixture::{Fixture, is_near};

    fn rings(now: u32) -> Fixture {
        let text = format!(
            "Ring parameters for eth0:\nPre-set maximums:\nRX: 4096\nTX: 4096\nCurrent hardware settings:\nRX: {now}\nTX: 512\n"
        );
        Fixture::new().fixed("ethtool_-g_eth0", &text).traffic([990_000, 900_000_000], [5, 500])
    }

    #[test]
    fn drops_of_small_ring_are_found() {
        let found = rings(512)
            .driver(&[("rx_no_dma_resources", 10_000), ("rx_missed_errors", 0)])
            .fault(&RULE);
        assert!(found.sentence.starts_with("10000 packets (1.00% of those received)"), "{found:?}");
        assert!(found.sentence.ends_with("it has 512 of at most 4096"));
        assert!(is_near(found.explains.loss_share, 0.01));
        assert_eq!(found.confidence, Confidence::Likely);
        assert_eq!(found.remedy.unwrap(), "latput set eth0 rx-ring=max --dry-run");
    }

    #[test]
    fn drops_of_full_cpu_are_doubted() {
        let found = rings(512)
            .driver(&[("rx_out_of_buffer", 10_000)])
            .cpus(&[[0, 0, 2, 97, 0]])
            .softnet(&[[990_000, 0, 0]])
            .fault(&RULE);
        assert_eq!(found.confidence, Confidence::Hint);
        let largest = rings(4096).driver(&[("rx_out_of_buffer", 10_000)]).fault(&RULE);
        assert_eq!(largest.confidence, Confidence::Hint);
    }

    #[test]
    fn few_or_old_drops_are_silent() {
        rings(512).driver(&[("rx_missed_errors", 0)]).assert_healthy(&RULE);
        rings(512).driver(&[("rx_missed_errors", 20)]).assert_healthy(&RULE);
        rings(512).assert_unseen(&RULE, EvidenceSource::Driver);
    }
}
