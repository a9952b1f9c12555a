//! `loss-on-path`: segments are lost between the hosts, not on this one.

use crate::evidence::{Evidence, SocketGrowth, percent, share_of};
use crate::finding::{Confidence, Finding, Judgement, Rule};
use crate::rules::reordering::GapCounts;
use crate::source::EvidenceSource;

/// The least part of segments that is harm: at 0.1% a flow has no more than 39 segments in flight (Mathis et al. 1997:
/// 1.22 / sqrt(p)).
const LEAST_SHARE: f64 = 0.001;
/// The largest part of segments that a path loses. Of more the other end does not answer.
const MOST_SHARE: f64 = 0.3;
/// The fewest lost segments that say anything.
const LEAST_SEGMENTS: u64 = 20;
/// The least part of received segments behind a gap. One loss has all segments of its round trip behind it.
const LEAST_BEHIND_GAPS: f64 = 0.02;

/// BBR's second version keeps its rate below this part of lost packets (`bbr_loss_thresh`), its first below far more.
const BBR_IGNORES: f64 = 0.02;

/// The row.
pub(crate) const RULE: Rule = Rule {
    id: "loss-on-path",
    subject: "loss on the path",
    mechanism: "TCP takes a lost segment for a full queue: it sends it again a round trip later, or after a timeout of 200 ms and \
                more, and halves its rate.",
    judge,
};

fn judge(rule: &Rule, evidence: &Evidence<'_>) -> Judgement {
    let counters = evidence.protocol("Tcp.RetransSegs").zip(evidence.protocol("Tcp.OutSegs"));
    let Some((resent, sent)) = counters else {
        return Judgement::Unseen(EvidenceSource::Protocols);
    };
    let of_sender = judge_sent(rule, evidence, resent, sent);
    of_sender
        .or_else(|| judge_received(rule, evidence))
        .map_or(Judgement::Healthy, Judgement::Fault)
}

/// Loss of what this host sends.
fn judge_sent(rule: &Rule, evidence: &Evidence<'_>, resent: u64, sent: u64) -> Option<Finding> {
    let count = |names: &[&str]| evidence.protocol_sum(names).unwrap_or(0);
    // The peer had these twice: they were late or out of order, not lost. Of a timeout that was found out to be needless it
    // need not say so.
    let needless =
        evidence.needless_retransmits().unwrap_or(0).max(count(&["TcpExt.TCPSpuriousRTOs"]));
    // An attempt to connect without an answer may have no peer at all.
    let attempts = count(&["TcpExt.TCPSynRetrans"]);
    let by_qdiscs = evidence.dropped_by_qdiscs();
    let lost = resent.saturating_sub(needless + attempts + by_qdiscs.unwrap_or(0));
    let share = share_of(lost, sent);
    if lost < LEAST_SEGMENTS || !(LEAST_SHARE..=MOST_SHARE).contains(&share) {
        return None;
    }
    let timeouts = count(&["TcpExt.TCPTimeouts", "TcpExt.TCPLossFailures"]);
    // Peers do not tell of all: where most are needless, the others may be, too.
    let is_doubtful = needless.saturating_mul(2) >= resent;
    let confidence =
        if by_qdiscs.is_some() && !is_doubtful { Confidence::Likely } else { Confidence::Hint };
    let here = if by_qdiscs.is_some() {
        ""
    } else {
        "; drops of a queue discipline on this host look alike, `tc -s qdisc` tells"
    };
    let sentence = format!(
        "{lost} segments ({} of those sent) were lost between this host and its peers, {timeouts} timeouts passed{here}",
        percent(share)
    );
    let mut found = Finding::new(rule, confidence, sentence)
        .with("lost_segments", lost)
        .with("retransmitted_segments", resent)
        .with("sent_segments", sent)
        .with("timeouts", timeouts)
        .explaining_loss(share)
        .with_remedy(
            "look where: drops of the peer's card and queues, `ethtool -S` of the switch ports (CRC errors: a cable or optic), \
             a policer, a radio link; until then net.ipv4.tcp_congestion_control=bbr slows down less",
        )
        .with_proof("nstat -z TcpRetransSegs TcpExtTCPTimeouts; mtr -z PEER");
    // Of what was not lost no window was cut for long.
    if let Some(waits) = time_under_congestion(evidence, share).filter(|_| !is_doubtful) {
        found = found.explaining_latency(waits);
    }
    Some(found)
}

/// The part of the time with data to send in which connections that lost segments were held by neither window nor buffer:
/// their congestion window held them, which losses had cut. BBR does not cut it for so few.
fn time_under_congestion(evidence: &Evidence<'_>, loss: f64) -> Option<f64> {
    let active = evidence.active_connections()?;
    let busy: f64 = active.iter().map(|one| one.grown("busy")).sum();
    let held = |one: &SocketGrowth<'_>| {
        (one.grown("busy") - one.grown("rwnd_limited") - one.grown("sndbuf_limited")).max(0.0)
    };
    let ignores = |one: &SocketGrowth<'_>| {
        one.now.congestion_control.starts_with("bbr") && loss < BBR_IGNORES
    };
    let lossy = active.iter().filter(|one| one.grown("bytes_retrans") > 0.0 && !ignores(one));
    let held: f64 = lossy.map(held).sum();
    // A sum of nothing is -0.
    (busy > 0.0).then(|| held / busy + 0.0)
}

/// Loss of what this host receives: gaps that are filled later, without a second copy of what had come.
fn judge_received(rule: &Rule, evidence: &Evidence<'_>) -> Option<Finding> {
    let gaps = GapCounts::from_evidence(evidence)?;
    let (behind, share) = (gaps.behind, gaps.share());
    let is_lost_here = evidence.lost_on_receipt() as f64 >= behind as f64 * 0.01;
    if behind < LEAST_SEGMENTS
        || share < LEAST_BEHIND_GAPS
        || gaps.are_of_late_segments()
        || is_lost_here
    {
        return None;
    }
    let sentence = format!(
        "{behind} segments ({} of those received) came behind a gap: segments to this host are lost or overtaken on their way, \
         the sender's TcpRetransSegs and TCPSACKReorder tell which",
        percent(share)
    );
    Some(
        Finding::new(rule, Confidence::Hint, sentence)
            .with("segments_behind_gaps", behind)
            .with("received_segments", gaps.received)
            .explaining_latency(share)
            .with_remedy("look at the path from the sender to this host: drops of switch ports, a policer, a radio link")
            .with_proof("at the sender: nstat -z TcpRetransSegs TcpExtTCPSACKReorder"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::testing::{PlantedLooks, number};

    const QDISC: &str = r#"[{"kind":"fq_codel","dev":"eth0","root":true,"packets":5,"drops":0}]"#;

    fn planted(resent: u64) -> PlantedLooks {
        PlantedLooks::new()
            .tcp(&[
                ("InSegs", 0, 50_000),
                ("OutSegs", 0, 100_000),
                ("RetransSegs", 4_000_000, 4_000_000 + resent),
            ])
            .tcp_ext(&[("TCPTimeouts", 10, 40), ("TCPDSACKRecv", 0, 20), ("TCPSynRetrans", 0, 0)])
    }

    #[test]
    fn lost_segments_are_found_with_share() {
        let row = |control: &str, busy: u32, retrans: u32| {
            format!(
                "ESTAB 0 0 10.0.0.1:50000 10.0.0.2:80\n\t {control} bytes_acked:{busy} bytes_retrans:{retrans} busy:{busy}ms \
                 rwnd_limited:{}ms(20%)\n",
                busy / 5
            )
        };
        let looks = |control: &str| {
            planted(1020)
                .same("tc_-s_-j_qdisc", QDISC)
                .sockets(&row(control, 1000, 9), &row(control, 11_000, 99_000))
        };
        // BBR does not slow down for one segment in a hundred.
        assert_eq!(looks("bbr").find(&RULE).explains.latency_share, Some(0.0));
        let found = looks("cubic").find(&RULE);
        assert!((number(&found, "lost_segments") - 1000.0).abs() < 1e-9);
        assert_eq!((found.confidence, found.explains.loss_share), (Confidence::Likely, Some(0.01)));
        assert!((found.explains.latency_share.unwrap() - 0.8).abs() < 1e-9);
    }

    #[test]
    fn needless_retransmits_are_not_lost() {
        // A bulk transfer between two namespaces of kernel 6.18.
        let looks = PlantedLooks::new()
            .tcp(&[("InSegs", 0, 245_069), ("OutSegs", 0, 2_239_771), ("RetransSegs", 0, 2376)])
            .tcp_ext(&[("TCPDSACKRecv", 0, 67), ("TCPDSACKRecvSegs", 0, 2375)]);
        assert_eq!(looks.judge(&RULE), Judgement::Healthy);
    }

    #[test]
    fn unseen_qdisc_makes_it_a_hint() {
        assert_eq!(planted(1020).find(&RULE).confidence, Confidence::Hint);
    }

    #[test]
    fn drops_of_own_qdisc_are_not_path() {
        let later = QDISC.replace("\"drops\":0", "\"drops\":990");
        assert_eq!(
            planted(1020).text("tc_-s_-j_qdisc", QDISC, &later).judge(&RULE),
            Judgement::Healthy
        );
    }

    #[test]
    fn few_or_old_losses_are_healthy() {
        assert_eq!(planted(0).judge(&RULE), Judgement::Healthy);
        assert_eq!(planted(60).judge(&RULE), Judgement::Healthy);
    }

    #[test]
    fn gaps_of_received_segments_are_a_hint() {
        let looks = PlantedLooks::new()
            .tcp(&[("InSegs", 0, 100_000), ("OutSegs", 0, 50_000), ("RetransSegs", 0, 0)])
            .tcp_ext(&[("TCPOFOQueue", 0, 20_000), ("TCPDSACKOldSent", 0, 3)]);
        assert_eq!(looks.find(&RULE).confidence, Confidence::Hint);
        let dropped = "sys/class/net/eth0/statistics/rx_missed_errors";
        assert_eq!(looks.text(dropped, "0\n", "900\n").judge(&RULE), Judgement::Healthy);
    }

    #[test]
    fn missing_counters_are_unseen() {
        let looks = PlantedLooks::new().udp(&[("InDatagrams", 0, 5)]);
        assert_eq!(looks.judge(&RULE), Judgement::Unseen(EvidenceSource::Protocols));
    }
}
