//! `reordering`: packets overtake each other, and TCP sends again what was not lost.

use crate::evidence::{Evidence, percent, share_of};
use crate::finding::{Confidence, Finding, Judgement, Rule};
use crate::source::EvidenceSource;

/// The least part of segments that are sent needlessly for it to be harm.
const LEAST_NEEDLESS: f64 = 0.0005;
/// The least part of retransmissions that are needless. Under loss most are not.
const LEAST_OF_RESENT: f64 = 0.3;
/// The least part of segments that overtake others. A busy pair of namespaces has up to a fifth of it.
const LEAST_EVENT_SHARE: f64 = 0.0005;
/// The fewest events that say anything.
const LEAST_EVENTS: u64 = 10;
/// The least part of received segments that come behind others which they should precede.
const LEAST_BEHIND: f64 = 0.02;
/// The least part of them, or of all received segments, that come twice. One late segment has those of several round trips
/// behind it; of a lost one the first copy never comes.
const LEAST_TWICE_OF_BEHIND: f64 = 0.05;
const LEAST_TWICE: f64 = 0.005;
/// The least part of what was sent again that came after all, and that later segments had asked for.
const LEAST_LATE_OF_RESENT: f64 = 0.8;

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
    let needless = evidence.needless_retransmits().unwrap_or(0).min(resent);
    let undone = evidence
        .protocol_sum(&["TcpExt.TCPFullUndo", "TcpExt.TCPPartialUndo", "TcpExt.TCPDSACKUndo"])
        .unwrap_or(0);
    let share = share_of(needless, sent);
    let is_harm = share >= LEAST_NEEDLESS && share_of(needless, resent) >= LEAST_OF_RESENT;
    let is_frequent = events >= LEAST_EVENTS && share_of(events, sent) >= LEAST_EVENT_SHARE;
    // A segment that is later than its second copy is no event. After a timeout all in flight is sent again.
    let fast = evidence.protocol("TcpExt.TCPFastRetrans").unwrap_or(0);
    let are_late = share >= LEAST_TWICE
        && share_of(needless, resent) >= LEAST_LATE_OF_RESENT
        && share_of(fast, resent) >= LEAST_LATE_OF_RESENT;
    if !(is_frequent || are_late) || needless < LEAST_EVENTS || !is_harm {
        return None;
    }
    let sentence = if is_frequent {
        format!(
            "packets overtook each other {events} times, {needless} segments ({} of those sent) were sent again needlessly, and \
             {undone} slow-downs were taken back",
            percent(share)
        )
    } else {
        format!(
            "{needless} segments ({} of those sent) were sent again, and came after all: others overtook them by more than a round trip",
            percent(share)
        )
    };
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

/// Segments to this host that came behind a gap, and those of which a second copy came.
pub(crate) struct GapCounts {
    pub(crate) behind: u64,
    pub(crate) received: u64,
    twice: u64,
}

impl GapCounts {
    /// Reads them; `None` where the counters are missing.
    pub(crate) fn from_evidence(evidence: &Evidence<'_>) -> Option<Self> {
        let twice = ["TcpExt.TCPDSACKOldSent", "TcpExt.TCPDSACKOfoSent"];
        Some(Self {
            behind: evidence.protocol("TcpExt.TCPOFOQueue")?,
            received: evidence.protocol("Tcp.InSegs")?,
            twice: evidence.protocol_sum(&twice).unwrap_or(0),
        })
    }

    /// The part of the received segments that came behind a gap.
    pub(crate) fn share(&self) -> f64 {
        share_of(self.behind, self.received)
    }

    /// Whether so many came twice that the gaps were of late segments, not of lost ones.
    pub(crate) fn are_of_late_segments(&self) -> bool {
        self.twice as f64 >= self.behind as f64 * LEAST_TWICE_OF_BEHIND
            || share_of(self.twice, self.received) >= LEAST_TWICE
    }
}

/// Segments to this host that arrive out of order, and whose second copies arrive too.
fn judge_received(rule: &Rule, evidence: &Evidence<'_>) -> Option<Finding> {
    let gaps = GapCounts::from_evidence(evidence)?;
    let (behind, twice, share) = (gaps.behind, gaps.twice, gaps.share());
    if share < LEAST_BEHIND || twice < LEAST_EVENTS || !gaps.are_of_late_segments() {
        return None;
    }
    let sentence = format!(
        "{behind} segments ({} of those received) came out of order, and {twice} came twice because the sender took that for loss",
        percent(share)
    );
    let found = Finding::new(rule, Confidence::Likely, sentence)
        .with("segments_out_of_order", behind)
        .with("segments_twice", twice)
        .explaining_latency(share_of(twice, gaps.received))
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
    fn segments_behind_second_copies_are_found() {
        let late = |fast| {
            PlantedLooks::new().tcp(&[("OutSegs", 0, 26_528), ("RetransSegs", 0, 542)]).tcp_ext(&[
                ("TCPSACKReorder", 0, 0),
                ("TCPDSACKRecvSegs", 0, 541),
                ("TCPDSACKRecv", 0, 541),
                ("TCPFastRetrans", 0, fast),
            ])
        };
        let found = late(542).find(&RULE);
        assert!(
            found.sentence.starts_with("541 segments (2.0% of those sent)"),
            "{}",
            found.sentence
        );
        assert_eq!(late(10).judge(&RULE), Judgement::Healthy, "timeouts");
    }

    #[test]
    fn reordering_without_harm_is_healthy() {
        assert_eq!(sent(0, 0).judge(&RULE), Judgement::Healthy);
        assert_eq!(sent(5000, 60).judge(&RULE), Judgement::Healthy, "that is loss");
        // A bulk transfer between two namespaces of kernel 6.18.
        let bulk = PlantedLooks::new()
            .tcp(&[("OutSegs", 0, 4_097_560), ("RetransSegs", 0, 2467)])
            .tcp_ext(&[("TCPSACKReorder", 0, 38), ("TCPDSACKRecvSegs", 0, 2242)]);
        assert_eq!(bulk.judge(&RULE), Judgement::Healthy);
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
    fn rare_late_segments_are_reordering() {
        // One of 50 is 20 ms late: nearly all others come behind a gap, and each late one comes twice.
        let looks = |twice| {
            PlantedLooks::new().tcp(&[("InSegs", 0, 26_000)]).tcp_ext(&[
                ("TCPSACKReorder", 0, 0),
                ("TCPOFOQueue", 0, 25_000),
                ("TCPDSACKOldSent", 0, twice),
            ])
        };
        assert!((number(&looks(500).find(&RULE), "segments_twice") - 500.0).abs() < 1e-9);
        assert_eq!(looks(20).judge(&RULE), Judgement::Healthy, "that is loss");
    }

    #[test]
    fn missing_counters_are_unseen() {
        let looks = PlantedLooks::new().tcp(&[("OutSegs", 0, 5), ("RetransSegs", 0, 0)]);
        assert_eq!(looks.judge(&RULE), Judgement::Unseen(EvidenceSource::Protocols));
    }
}
