//! `spurious-timeout`: TCP's timer ran out although nothing was lost.

use crate::evidence::{Evidence, percent};
use crate::finding::{Confidence, Finding, Judgement, Rule};
use crate::source::EvidenceSource;

/// The fewest needless timeouts that say anything.
const LEAST_COUNT: u64 = 5;
/// The least part of all timeouts that were needless for them to be the fault.
const LEAST_SHARE: f64 = 0.3;
/// The shortest timeout of the kernel (`TCP_RTO_MIN`), in seconds.
const SHORTEST_TIMEOUT_S: f64 = 0.2;

/// The row.
pub(crate) const RULE: Rule = Rule {
    id: "spurious-timeout",
    subject: "TCP timeouts",
    mechanism: "An acknowledgement that comes later than TCP's timeout makes it send again what was not lost and start slowly: the \
                path, a host or this host's own queue stood still for longer than the timeout.",
    judge,
};

fn judge(rule: &Rule, evidence: &Evidence<'_>) -> Judgement {
    let Some(found_out) = evidence.protocol("TcpExt.TCPSpuriousRTOs") else {
        return Judgement::Unseen(EvidenceSource::Protocols);
    };
    // Both count the same timeouts: found out by F-RTO, and taken back by time stamps or second copies.
    let undone = evidence.protocol("TcpExt.TCPLossUndo").unwrap_or(0);
    // The first copy had not left this host.
    let own = evidence.protocol("TcpExt.TCPSpuriousRtxHostQueues").unwrap_or(0);
    let needless = found_out.max(undone).max(own);
    let all = evidence
        .protocol_sum(&[
            "TcpExt.TCPTimeouts",
            "TcpExt.TCPLossFailures",
            "TcpExt.TCPSackFailures",
            "TcpExt.TCPSackRecoveryFail",
            "TcpExt.TCPRenoFailures",
            "TcpExt.TCPRenoRecoveryFail",
        ])
        .unwrap_or(0)
        .max(needless);
    let share = needless as f64 / all.max(1) as f64;
    if needless < LEAST_COUNT || share < LEAST_SHARE {
        return Judgement::Healthy;
    }
    let is_own = own * 2 >= needless;
    let place = if is_own { ": the first copies had not left this host's queues" } else { "" };
    let sentence = format!(
        "{needless} of {all} timeouts ({}) passed although nothing was lost{place}",
        percent(share)
    );
    let remedy = if is_own {
        "shorten what waits on this host: a long queue discipline, a CPU that is taken away (steal, quota), a paused link"
    } else {
        "look for what stands still for 200 ms and more: a hypervisor that takes CPUs away (steal), a CPU quota, a long queue on \
         the path, a radio link; until then `ip route change ... rto_min 1s` waits longer"
    };
    let mut found = Finding::new(rule, Confidence::Likely, sentence)
        .with("spurious_timeouts", needless)
        .with("timeouts", all)
        .with("still_in_own_queue", own)
        .with_remedy(remedy)
        .with_proof(
            "nstat -z TcpExtTCPSpuriousRTOs TcpExtTCPLossUndo TcpExtTCPSpuriousRtxHostQueues",
        );
    let active = evidence.active_connections().map_or(0, |active| active.len());
    if let Some(window_s) = evidence.window_s().filter(|_| active > 0) {
        // Each timeout is a wait of at least the shortest one, of the time of all active connections.
        let waited_s = needless as f64 * SHORTEST_TIMEOUT_S;
        found = found.explaining_latency(waited_s / (window_s * active as f64));
    }
    Judgement::Fault(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::testing::{PlantedLooks, number};

    fn planted(spurious: u64, own: u64, all: u64) -> PlantedLooks {
        PlantedLooks::new().tcp_ext(&[
            ("TCPTimeouts", 9000, 9000 + all),
            ("TCPSpuriousRTOs", 800, 800 + spurious),
            ("TCPLossUndo", 0, 0),
            ("TCPSpuriousRtxHostQueues", 50, 50 + own),
        ])
    }

    #[test]
    fn needless_timeouts_are_found() {
        let row = "ESTAB 0 0 10.0.0.1:50000 10.0.0.2:80\n\t cubic bytes_acked:";
        let looks =
            planted(20, 0, 25).seconds(10).sockets(&format!("{row}1\n"), &format!("{row}9\n"));
        let found = looks.find(&RULE);
        assert!((number(&found, "spurious_timeouts") - 20.0).abs() < 1e-9);
        assert!(found.sentence.starts_with("20 of 25 timeouts (80%)"), "{}", found.sentence);
        assert!((found.explains.latency_share.unwrap() - 0.4).abs() < 1e-9);
    }

    #[test]
    fn own_queue_is_named() {
        assert!(planted(5, 20, 25).find(&RULE).remedy.unwrap().contains("on this host"));
    }

    #[test]
    fn timeouts_by_loss_are_healthy() {
        assert_eq!(planted(5, 0, 200).judge(&RULE), Judgement::Healthy);
        assert_eq!(planted(0, 0, 0).judge(&RULE), Judgement::Healthy);
        assert_eq!(planted(2, 0, 2).judge(&RULE), Judgement::Healthy);
    }

    #[test]
    fn missing_counter_is_unseen() {
        let looks = PlantedLooks::new().tcp_ext(&[("TCPTimeouts", 0, 50)]);
        assert_eq!(looks.judge(&RULE), Judgement::Unseen(EvidenceSource::Protocols));
    }
}
