//! `pause-by-peer`: the other end of the link tells this host to stop sending.

use crate::evidence::Evidence;
use crate::finding::{Confidence, Finding, Judgement, Rule};
use crate::measures::pauses::{PauseDirection, count_pauses, find_pauses};
use crate::measures::traffic::InterfaceTraffic;
use crate::source::EvidenceSource;

/// The row.
pub(crate) const RULE: Rule = Rule {
    id: "pause-by-peer",
    subject: "pauses by the other end of the link",
    mechanism: "The switch or host at the other end cannot take more and sends PAUSE frames; the card stands still and \
                nothing is dropped, so that no error counter shows it.",
    judge,
};

fn judge(rule: &Rule, evidence: &Evidence<'_>) -> Judgement {
    if count_pauses(evidence, PauseDirection::Received).is_none() {
        return Judgement::Unseen(EvidenceSource::Driver);
    }
    let is_idle = InterfaceTraffic::from_evidence(evidence).is_idle();
    let pauses = find_pauses(evidence, PauseDirection::Received).filter(|_| !is_idle);
    let Some(pauses) = pauses else { return Judgement::Healthy };
    let sentence = format!("the peer pauses us: {} were received", pauses.describe());
    let interface = evidence.interface_name();
    let mut finding = Finding::new(rule, Confidence::Certain, sentence)
        .with("received_pause_frames", pauses.frames)
        .with_remedy(format!(
            "at the other end: its receive ring, its CPUs, its slot, or the port behind a switch; `latput set {interface} \
             pause-rx=off --dry-run` here would turn the waits into drops there"
        ));
    if let Some(rate) = pauses.per_s {
        finding = finding.with("received_pause_frames_per_s", rate);
    }
    if let Some(share) = pauses.share {
        // While it stands still all that is to be sent waits.
        finding = finding.with("paused_share", share).explaining_latency(share);
    }
    Judgement::Fault(finding)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measures::fixture::{Fixture, is_near};

    const BULK: [u64; 2] = [900_000, 900_000_000];

    #[test]
    fn received_pauses_blame_the_peer() {
        let counters =
            [("rx_pause_ctrl_phy", 9_000_000), ("tx_pause_ctrl_phy", 0), ("rx_discards_phy", 0)];
        let found = Fixture::new().driver(&counters).fault(&RULE);
        assert!(
            found.sentence.starts_with("the peer pauses us: 9000000 PAUSE frames"),
            "{found:?}"
        );
        assert!(is_near(found.explains.latency_share, 1.0));
    }

    #[test]
    fn old_or_sent_pauses_are_silent() {
        let of = |received, sent| [("rx_pause_ctrl_phy", received), ("tx_pause_ctrl_phy", sent)];
        Fixture::new().traffic(BULK, BULK).driver(&of(0, 90_000)).assert_healthy(&RULE);
        Fixture::new().traffic(BULK, BULK).driver(&of(12, 0)).assert_healthy(&RULE);
        let none = Fixture::new().traffic(BULK, BULK).driver(&[("rx_bytes", 1)]);
        none.assert_unseen(&RULE, EvidenceSource::Driver);
    }
}
