//! `reordering`: packets overtake each other, and TCP sends again what was not lost.

use crate::evidence::{Evidence, percent, share_of};
use crate::finding::{Confidence, Finding, Judgement, Rule};
use crate::source::EvidenceSource;

/// The least part of segments that are sent needlessly for it to be harm.
const LEAST_NEEDLESS: f64 = 0.0005;
/// The least part of retransmissions that are needless. Under loss most are not.
const LEAST_OF_RESENT: f64 = 0.3;
/// The fewest events that say anything.
const LEAST_EVENTS: u64 = 10;
/// The least part of received segments that come behind others which they should precede.
const LEAST_BEHIND: f64 = 0.02;

/// The row.
pub(crate) const RULE: Rule = Rule {
    id: "reordering",
    subject: "order of packets",
    mechanism: "Packets of a flow that overtake each other look like loss: TCP sends again what was not lost and slows down, and \
                GRO cannot join what is out of order.",
    judge,
};

fn judge(rule: &Rule, evidence: &Evidence<'_>) -> Judgement {
    let events = evidence.protocol_sum(&[
        "TcpExt.TCPSACKReorder",
        "TcpExt.TCPTSReorder",
        "TcpExt.TCPRenoReorder",
        "TcpExt.TCPFACKReorder",
    ]);
    let Some(events) = events else { return Judgement::Unseen(EvidenceSource::Protocols) };
    let of_sender = judge_sent(rule, evidence, events);
    of_sender
        .or_else(|| judge_received(rule, evidence))
        .map_or(Judgement::Healthy, Judgement::Fault)
}

/// Segments of this host that arrive out of order.
fn judge_sent(rule: &Rule, evidence: &Evidence<'_>, events: u64) -> Option<Finding> {
    let sent = evidence.protocol("Tcp.OutSegs")?;
    let resent = evidence.protocol("Tcp.RetransSegs")?;
    let needless = evidence
        .protocol_sum(&["TcpExt.TCPDSACKRecv", "TcpExt.TCPDSACKOfoRecv"])
        .unwrap_or(0)
        .min(resent);
    let undone = evidence
        .protocol_sum(&["TcpExt.TCPFullUndo", "TcpExt.TCPPartialUndo", "TcpExt.TCPDSACKUndo"])
        .unwrap_or(0);
    let share = share_of(needless, sent);
    let is_harm = share >= LEAST_NEEDLESS && share_of(needless, resent) >= LEAST_OF_RESENT;
    if events < LEAST_EVENTS || needless < LEAST_EVENTS || !is_harm {
        return None;
    }
    let sentence = format!(
        "packets overtook each other {events} times, {needless} segments ({} of those sent) were sent again needlessly, and {undone} \
         slow-downs were taken back",
        percent(share)
    );
    let found = Finding::new(rule, Confidence::Likely, sentence)
        .with("reorderings", events)
        .with("needless_retransmits", needless)
        .with("retransmitted_segments", resent)
        .with("slowdowns_undone", undone)
        // The resent segments were not lost: their part of all is the work, and the waits that TCP took for loss.
        .explaining_latency(share)
        .with_proof("nstat -z TcpExtTCPSACKReorder TcpExtTCPDSACKRecv");
    Some(add_remedy(found, evidence))
}

/// Segments to this host that arrive out of order, and whose second copies arrive too.
fn judge_received(rule: &Rule, evidence: &Evidence<'_>) -> Option<Finding> {
    let behind = evidence.protocol("TcpExt.TCPOFOQueue")?;
    let received = evidence.protocol("Tcp.InSegs")?;
    let twice = evidence.protocol_sum(&["TcpExt.TCPDSACKOldSent", "TcpExt.TCPDSACKOfoSent"])?;
    let share = share_of(behind, received);
    if share < LEAST_BEHIND || twice < LEAST_EVENTS || (twice as f64) < behind as f64 * 0.05 {
        return None;
    }
    let sentence = format!(
        "{behind} segments ({} of those received) came out of order, and {twice} came twice because the sender took that for loss",
        percent(share)
    );
    let found = Finding::new(rule, Confidence::Likely, sentence)
        .with("segments_out_of_order", behind)
        .with("segments_twice", twice)
        .explaining_latency(share_of(twice, received))
        .with_proof("nstat -z TcpExtTCPOFOQueue TcpExtTCPDSACKOldSent");
    Some(add_remedy(found, evidence))
}

fn add_remedy(found: Finding, evidence: &Evidence<'_>) -> Finding {
    match evidence.sysfs("bonding/mode") {
        Some(mode) if mode.starts_with("balance-rr") => found
            .with("bonding_mode", mode)
            .with_remedy("the bond sends packets in turns (balance-rr): use mode 802.3ad or balance-xor, which keep a flow on a link"),
        _ => found.with_remedy(
            "let whoever spreads packets of one flow over several links or queues keep the flow together (bond mode, ECMP by \
             packet, a tunnel's source port); until then net.ipv4.tcp_reordering tolerates more",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::testing::{PlantedLooks, number};

    fn sent(resent: u64, twice: u64) -> PlantedLooks {
        PlantedLooks::new()
            .tcp(&[("OutSegs", 0, 100_000), ("RetransSegs", 7_000_000, 7_000_000 + resent)])
            .tcp_ext(&[
                ("TCPSACKReorder", 10, 4010),
                ("TCPDSACKRecv", 0, twice),
                ("TCPDSACKUndo", 0, 30),
            ])
    }

    #[test]
    fn needless_retransmits_are_found() {
        let found =
            sent(500, 450).same("sys/class/net/eth0/bonding/mode", "balance-rr 0\n").find(&RULE);
        assert!((number(&found, "needless_retransmits") - 450.0).abs() < 1e-9);
        assert!(found.sentence.contains("0.45% of those sent"), "{}", found.sentence);
        assert!(found.remedy.unwrap().contains("802.3ad"));
    }

    #[test]
    fn reordering_without_harm_is_healthy() {
        assert_eq!(sent(0, 0).judge(&RULE), Judgement::Healthy);
        assert_eq!(sent(5000, 60).judge(&RULE), Judgement::Healthy, "that is loss");
    }

    #[test]
    fn receiver_sees_second_copies() {
        let looks = PlantedLooks::new().tcp(&[("InSegs", 0, 100_000)]).tcp_ext(&[
            ("TCPSACKReorder", 0, 0),
            ("TCPOFOQueue", 0, 30_000),
            ("TCPDSACKOldSent", 0, 4000),
        ]);
        assert!((number(&looks.find(&RULE), "segments_twice") - 4000.0).abs() < 1e-9);
    }

    #[test]
    fn missing_counters_are_unseen() {
        let looks = PlantedLooks::new().tcp(&[("OutSegs", 0, 5), ("RetransSegs", 0, 0)]);
        assert_eq!(looks.judge(&RULE), Judgement::Unseen(EvidenceSource::Protocols));
    }
}
