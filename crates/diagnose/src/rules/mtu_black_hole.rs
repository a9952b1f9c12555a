//! `mtu-black-hole`: small packets pass, large ones vanish without a message.

use crate::evidence::{Evidence, SocketGrowth, count_connections, share_of};
use crate::finding::{Confidence, Finding, Judgement, Rule};
use crate::source::EvidenceSource;

/// Segments of fewer bytes pass every path (IPv6 needs 1280 bytes, RFC 8200).
const SMALLEST_LARGE: f64 = 1220.0;
/// Timeouts in a row from which a connection stands still.
const LEAST_BACKOFF: f64 = 2.0;
/// The most large segments that were ever acknowledged on a connection whose large segments vanish.
const MOST_ACKED_SEGMENTS: f64 = 10.0;

/// The fewest probes, and timeouts, that say anything.
const LEAST_SEARCHES: u64 = 5;

/// The row.
pub(crate) const RULE: Rule = Rule {
    id: "mtu-black-hole",
    subject: "large packets on their path",
    mechanism: "A router drops packets that are too large for its next link, and the message that says so is lost: connections \
                open and small requests pass, but each large segment is sent again and again.",
    judge,
};

fn judge(rule: &Rule, evidence: &Evidence<'_>) -> Judgement {
    let probes = evidence.protocol("TcpExt.TCPMTUPFail").unwrap_or(0);
    let searches = judge_searches(rule, evidence);
    let Some(all) = evidence.connections() else {
        // Failed probes alone are part of a search that may well succeed.
        return searches.map_or(Judgement::Unseen(EvidenceSource::Sockets), Judgement::Fault);
    };
    let stalled: Vec<&SocketGrowth<'_>> = all.iter().filter(|one| is_stalled(one)).collect();
    if stalled.is_empty() {
        return searches.map_or(Judgement::Healthy, Judgement::Fault);
    }
    let told = evidence.protocol_sum(&["Icmp.InDestUnreachs", "Icmp6.InPktTooBigs"]).unwrap_or(0);
    let timeouts = evidence.protocol("TcpExt.TCPTimeouts").unwrap_or(0);
    let moving = all.iter().filter(|one| one.moved_bytes() > 0.0).count();
    // One connection may have a peer that went away; several, or probes that fail, rather have a path.
    let is_likely = told == 0 && (stalled.len() > 1 || probes > 0);
    let size = stalled.iter().filter_map(|one| one.now.figure("mss")).fold(0.0, f64::max);
    let sentence = format!(
        "{} sent segments of {size:.0} bytes again and again without an answer, after small ones had passed; \
         {moving} others move data{}",
        count_connections(stalled.len() as u64),
        if is_likely {
            ""
        } else {
            ". A peer that went away looks alike: `ping -M do -s 1472 PEER` tells"
        }
    );
    let confidence = if is_likely { Confidence::Likely } else { Confidence::Hint };
    let found = Finding::new(rule, confidence, sentence)
        .with("stalled_connections", stalled.len() as u64)
        .with("segment_bytes", size)
        .with("timeouts", timeouts)
        .with("failed_probes", probes)
        .with("unreachable_messages", told)
        // A connection that stands still waits all of the time.
        .explaining_latency(stalled.len() as f64 / (stalled.len() + moving) as f64);
    Judgement::Fault(add_remedy(found, evidence))
}

/// Searches for the path's size, where the kernel begins one only for a connection whose segments time out again and again
/// (`tcp_mtu_probing` 1, `tcp_mtu_probing()` of `net/ipv4/tcp_timer.c`).
fn judge_searches(rule: &Rule, evidence: &Evidence<'_>) -> Option<Finding> {
    if evidence.sysctl("net/ipv4/tcp_mtu_probing") != Some("1") {
        return None;
    }
    let failed = evidence.protocol("TcpExt.TCPMTUPFail").unwrap_or(0);
    let passed = evidence.protocol("TcpExt.TCPMTUPSuccess").unwrap_or(0);
    let timeouts = evidence.protocol("TcpExt.TCPTimeouts").unwrap_or(0);
    if failed + passed < LEAST_SEARCHES || timeouts < LEAST_SEARCHES {
        return None;
    }
    let sentence = format!(
        "TCP searched for a smaller size of segments after {timeouts} timeouts: {passed} probes passed, {failed} were lost, so that \
         large segments vanish on some path"
    );
    let resent = evidence.protocol("Tcp.RetransSegs").zip(evidence.protocol("Tcp.OutSegs"));
    let mut found = Finding::new(rule, Confidence::Likely, sentence)
        .with("timeouts", timeouts)
        .with("failed_probes", failed)
        .with("passed_probes", passed);
    if let Some((resent, sent)) = resent {
        // Before its search begins a connection sends the same segment again and again.
        found = found.explaining_loss(share_of(resent, sent));
    }
    Some(add_remedy(found, evidence))
}

fn add_remedy(found: Finding, evidence: &Evidence<'_>) -> Finding {
    let name = evidence.interface_name();
    let found = found.with_change(evidence, "mtu=1400");
    if evidence.sysctl("net/ipv4/tcp_mtu_probing").is_some_and(|value| value != "0") {
        return found;
    }
    found.with_remedy(format!(
        "sysctl net.ipv4.tcp_mtu_probing=1 lets TCP find the size itself; or latput set {name} mtu=1400 --dry-run; and let the \
         firewall pass ICMP \"fragmentation needed\""
    ))
}

/// Whether a connection has sent little more than its beginning, and stands at a large segment.
fn is_stalled(connection: &SocketGrowth<'_>) -> bool {
    let now = connection.now;
    let figure = |name: &str| now.figure(name).unwrap_or(0.0);
    let size = figure("mss");
    let waits = figure("unacked") >= 1.0 && now.send_queue as f64 >= size;
    // A search for the path's size lowers the segments, after it was stuck.
    size >= SMALLEST_LARGE
        && waits
        && figure("backoff") >= LEAST_BACKOFF
        && figure("bytes_acked") <= size * MOST_ACKED_SEGMENTS
        && connection.grown("bytes_acked") <= size
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::testing::{PlantedLooks, number};

    fn stalled(port: u32) -> String {
        format!(
            "ESTAB 0 28960 10.0.0.1:{port} 10.0.0.2:443\n\t cubic wscale:7,7 rto:6528 backoff:5 rtt:0.4/0.1 mss:1448 pmtu:1500 \
             cwnd:1 bytes_sent:15000 bytes_retrans:8688 bytes_acked:518 unacked:10 retrans:1/6 lost:10\n"
        )
    }

    const MOVING: &str =
        "ESTAB 0 0 10.0.0.1:40009 10.0.0.3:443\n\t cubic rtt:1/1 mss:1448 bytes_acked:900000\n";

    #[test]
    fn stalled_large_segments_are_found() {
        let texts = stalled(40_001) + &stalled(40_002);
        let looks = PlantedLooks::new().sockets(&texts, &(texts.clone() + MOVING));
        let found = looks.find(&RULE);
        assert!((number(&found, "stalled_connections") - 2.0).abs() < 1e-9);
        assert_eq!(found.confidence, Confidence::Likely);
        assert!((found.explains.latency_share.unwrap() - 2.0 / 3.0).abs() < 1e-9);
        assert!(found.remedy.unwrap().contains("tcp_mtu_probing=1"));
    }

    #[test]
    fn single_connection_is_a_hint() {
        let looks = PlantedLooks::new().sockets(&stalled(40_001), &stalled(40_001));
        let found = looks.find(&RULE);
        assert_eq!(found.confidence, Confidence::Hint);
        assert!(found.sentence.contains("went away"));
    }

    #[test]
    fn loss_after_much_data_is_healthy() {
        let lossy = stalled(40_001).replace("bytes_acked:518", "bytes_acked:90000000");
        let looks = PlantedLooks::new().sockets(&lossy, &lossy);
        assert_eq!(looks.judge(&RULE), Judgement::Healthy);
        let moving = PlantedLooks::new().sockets(MOVING, MOVING);
        assert_eq!(moving.judge(&RULE), Judgement::Healthy);
    }

    #[test]
    fn searches_after_timeouts_are_found() {
        let counters =
            [("TCPMTUPFail", 5, 195), ("TCPMTUPSuccess", 9, 99), ("TCPTimeouts", 0, 300)];
        let looks = |probing: &str| {
            PlantedLooks::new()
                .tcp_ext(&counters)
                .same("proc/sys/net/ipv4/tcp_mtu_probing", probing)
        };
        assert!((number(&looks("1\n").find(&RULE), "passed_probes") - 90.0).abs() < 1e-9);
        // With 2 every connection searches.
        assert_eq!(looks("2\n").judge(&RULE), Judgement::Unseen(EvidenceSource::Sockets));
    }

    #[test]
    fn missing_connections_are_unseen() {
        let looks = PlantedLooks::new().tcp_ext(&[("TCPMTUPFail", 0, 5)]);
        assert_eq!(looks.judge(&RULE), Judgement::Unseen(EvidenceSource::Sockets));
    }
}
