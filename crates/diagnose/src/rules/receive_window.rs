//! `receive-window`: the window that the peer offers is too small for the path.

use crate::evidence::{Evidence, count_connections, percent};
use crate::finding::{Confidence, Finding, Judgement, Rule};
use crate::source::EvidenceSource;

/// The least part of the time with data to send that is harm.
const LEAST_SHARE: f64 = 0.3;

/// The row.
pub(crate) const RULE: Rule = Rule {
    id: "receive-window",
    subject: "the peers' receive windows",
    mechanism: "A sender may have no more data on its way than the window that the peer offers: on a long path a small window \
                leaves it idle for most of each round trip.",
    judge,
};

fn judge(rule: &Rule, evidence: &Evidence<'_>) -> Judgement {
    if evidence.lacks(EvidenceSource::Sockets) {
        return Judgement::Unseen(EvidenceSource::Sockets);
    }
    let Some(limited) = evidence.limited_time("rwnd_limited") else { return Judgement::Healthy };
    let share = limited.share();
    if share < LEAST_SHARE {
        return Judgement::Healthy;
    }
    let worst = limited.worst.now;
    // Probes are sent when a window is closed for longer than a timeout: the peer's program does not read.
    let probes = evidence.protocol("TcpExt.TCPWinProbe").unwrap_or(0);
    let is_closed =
        probes > 0 || limited.worst.has_closed_window() || evidence.is_held(&limited.worst);
    let confidence = if is_closed { Confidence::Hint } else { Confidence::Likely };
    let why = if is_closed {
        "; windows that are closed, or full for far longer than the path takes, say that the peer's program reads slowly"
    } else {
        ""
    };
    let peer = if worst.peer.is_empty() { "the peer" } else { worst.peer.as_str() };
    let sentence = format!(
        "the window of the peer stood against {} of TCP for {} of the time in which connections had data to send{why}",
        count_connections(limited.connections),
        percent(share)
    );
    let mut found = Finding::new(rule, confidence, sentence)
        .with("busy_ms", limited.busy_ms)
        .with("rwnd_limited_ms", limited.limited_ms)
        .with("connections", limited.connections)
        .with("window_probes", probes)
        .explaining_latency(share)
        .with_remedy(format!(
            "at {peer}: raise the third value of net.ipv4.tcp_rmem, or net.core.rmem_max where the program sets SO_RCVBUF, and see \
             that net.ipv4.tcp_window_scaling is 1; if data stands in Recv-Q there, its program reads too slowly"
        ))
        .with_proof("ss -tin");
    for (name, of_ss) in [("rtt_ms", "rtt"), ("window_bytes", "snd_wnd")] {
        if let Some(figure) = worst.figure(of_ss) {
            found = found.with(name, figure);
        }
    }
    Judgement::Fault(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::testing::{PlantedLooks, number};

    fn row(rtt: &str, busy: u32, limited: u32) -> String {
        format!(
            "ESTAB 0 64000 10.0.0.1:50000 10.0.0.2:5201\n\t cubic rtt:{rtt}/1 minrtt:20 mss:1448 unacked:90 bytes_acked:{busy} \
             snd_wnd:65536 busy:{busy}ms rwnd_limited:{limited}ms(5.0%)\n"
        )
    }

    #[test]
    fn limited_time_is_found_with_share() {
        let looks =
            PlantedLooks::new().sockets(&row("20.5", 100_000, 0), &row("20.5", 110_000, 9000));
        let found = looks.find(&RULE);
        assert_eq!(
            (found.confidence, found.explains.latency_share),
            (Confidence::Likely, Some(0.9))
        );
        assert!((number(&found, "window_bytes") - 65_536.0).abs() < 1e-9);
        assert!(found.remedy.unwrap().starts_with("at 10.0.0.2:5201: raise the third value"));
    }

    #[test]
    fn closed_windows_are_the_readers() {
        let looks = PlantedLooks::new()
            .sockets(&row("20.5", 100_000, 0), &row("20.5", 110_000, 9000))
            .tcp_ext(&[("TCPWinProbe", 0, 9)]);
        assert_eq!(looks.find(&RULE).confidence, Confidence::Hint);
    }

    #[test]
    fn little_or_old_time_is_healthy() {
        let little = PlantedLooks::new().sockets(&row("20", 0, 0), &row("20", 10_000, 900));
        assert_eq!(little.judge(&RULE), Judgement::Healthy);
        let old =
            PlantedLooks::new().sockets(&row("20", 900_000, 800_000), &row("20", 910_000, 800_000));
        assert_eq!(old.judge(&RULE), Judgement::Healthy);
    }

    #[test]
    fn missing_connections_are_unseen() {
        let looks = PlantedLooks::new().seconds(5);
        assert_eq!(looks.judge(&RULE), Judgement::Unseen(EvidenceSource::Sockets));
    }
}
