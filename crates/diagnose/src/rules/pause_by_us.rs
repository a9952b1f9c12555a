//! `pause-by-us`: this host tells the other end of the link to stop sending.

use crate::evidence::Evidence;
use crate::finding::{Confidence, Finding, Judgement, Rule};
use crate::measures::cpus::is_receiver_full;
use crate::measures::pauses::{PauseDirection, count_pauses, find_pauses};
use crate::measures::traffic::InterfaceTraffic;
use crate::source::EvidenceSource;

/// The row.
pub(crate) const RULE: Rule = Rule {
    id: "pause-by-us",
    subject: "pauses by this host",
    mechanism: "The card's receive buffer fills because descriptors are missing or the slot is slow, and it sends PAUSE \
                frames; the other end stands still, and with it all other traffic of its port.",
    judge,
};

fn judge(rule: &Rule, evidence: &Evidence<'_>) -> Judgement {
    if count_pauses(evidence, PauseDirection::Sent).is_none() {
        return Judgement::Unseen(EvidenceSource::Driver);
    }
    let is_idle = InterfaceTraffic::from_evidence(evidence).is_idle();
    let pauses = find_pauses(evidence, PauseDirection::Sent).filter(|_| !is_idle);
    let Some(pauses) = pauses else { return Judgement::Healthy };
    let ring = evidence.limit("-g", "RX").and_then(|(now, most)| Some((now, most?)));
    let smaller = ring.filter(|(now, most)| now < most);
    let cause = if is_receiver_full(evidence) {
        "its CPU is full of softirqs".to_owned()
    } else if let Some((now, most)) = smaller {
        format!("its receive ring has {now} of at most {most} descriptors")
    } else {
        "its ring, its CPU or its slot is too slow: a full CPU shows in /proc/stat, the slot in `pcie-limit`".to_owned()
    };
    let sentence = format!("this host pauses its peer: {} were sent; {cause}", pauses.describe());
    let mut finding =
        Finding::new(rule, Confidence::Certain, sentence).with("sent_pause_frames", pauses.frames);
    if let Some(rate) = pauses.per_s {
        finding = finding.with("sent_pause_frames_per_s", rate);
    }
    if let Some((now, most)) = ring {
        finding = finding.with("rx_ring", now).with("rx_ring_most", most);
    }
    if let Some(share) = pauses.share {
        // While the other end stands still all that it has for us waits.
        finding = finding.with("paused_share", share).explaining_latency(share);
    }
    let change = if smaller.is_some() { "rx-ring=max" } else { "combined-channels=max" };
    Judgement::Fault(finding.with_change(evidence, change))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measures::fixture::{Fixture, is_near};

    const BULK: [u64; 2] = [900_000, 900_000_000];

    fn host(received: u64, sent: u64) -> Fixture {
        let rings = "Ring parameters for eth0:\nPre-set maximums:\nRX: 8192\nCurrent hardware settings:\nRX: 512\n";
        Fixture::new()
            .traffic(BULK, [9, 900])
            .sysfs("speed", "25000\n")
            .fixed("ethtool_-g_eth0", rings)
            .driver(&[("link_xoff_tx.nic", sent), ("link_xoff_rx.nic", received)])
    }

    #[test]
    fn sent_pauses_blame_this_host() {
        let found = host(0, 5000).fault(&RULE);
        assert!(found.sentence.contains("5000 PAUSE frames (500 a second)"), "{found:?}");
        assert!(found.sentence.ends_with("has 512 of at most 8192 descriptors"));
        assert!(is_near(found.explains.latency_share, 0.3355));
        assert_eq!(found.remedy.unwrap(), "latput set eth0 rx-ring=max --dry-run");
    }

    #[test]
    fn received_or_few_pauses_are_silent() {
        host(50_000, 0).assert_healthy(&RULE);
        host(0, 30).assert_healthy(&RULE);
        Fixture::new().traffic(BULK, BULK).assert_unseen(&RULE, EvidenceSource::Driver);
    }
}
