//! `listen-queue`: connections that a listening socket has no room for are dropped.

use crate::evidence::{Evidence, percent, share_of};
use crate::finding::{Confidence, Finding, Judgement, Rule};
use crate::source::EvidenceSource;

/// The fewest drops among a million connections that are harm: each waits a second or more.
const LEAST_PER_MILLION: f64 = 100.0;
/// The fewest drops that say anything: one or two are a burst that passed.
const LEAST_DROPS: u64 = 3;

/// The row.
pub(crate) const RULE: Rule = Rule {
    id: "listen-queue",
    subject: "listen queues",
    mechanism: "A connection for which the queue of its listening socket has no room is dropped, and the client tries again \
                after 1, 3, 7 seconds: the program accepts too slowly, or its backlog is too short for bursts.",
    judge,
};

fn judge(rule: &Rule, evidence: &Evidence<'_>) -> Judgement {
    let Some(overflows) = evidence.protocol("TcpExt.ListenOverflows") else {
        return Judgement::Unseen(EvidenceSource::Protocols);
    };
    // The queue of half-open connections has a limit of its own.
    let half_open = evidence
        .protocol_sum(&["TcpExt.TCPReqQFullDrop", "TcpExt.TCPReqQFullDoCookies"])
        .unwrap_or(0);
    let dropped = overflows + half_open;
    let opened = evidence.protocol("Tcp.PassiveOpens");
    let share = opened.map(|opened| share_of(dropped, dropped + opened));
    let is_harm = share.is_none_or(|share| share * 1e6 >= LEAST_PER_MILLION);
    if dropped < LEAST_DROPS || !is_harm {
        return Judgement::Healthy;
    }
    let of_all = share.map(|share| format!(" ({} of all)", percent(share))).unwrap_or_default();
    let sentence = format!(
        "{dropped} attempts to connect{of_all} found the queue of their listening socket full"
    );
    let remedy = if half_open > overflows {
        let now = now(evidence, "net/ipv4/tcp_max_syn_backlog");
        format!(
            "raise net.ipv4.tcp_max_syn_backlog{now}, which limits half-open connections; SYN floods count here too"
        )
    } else {
        describe_backlog(evidence)
    };
    let mut found = Finding::new(rule, Confidence::Certain, sentence)
        .with("listen_overflows", overflows)
        .with("request_queue_full", half_open)
        .with_remedy(remedy)
        .with_proof("nstat -z TcpExtListenOverflows TcpExtTCPReqQFullDrop; ss -ltn");
    if let Some(opened) = opened {
        found = found.with("accepted", opened);
    }
    if let Some(share) = share {
        // Each attempt that was dropped waits a second, more than any other wait of a connection.
        found = found.explaining_loss(share).explaining_latency(share);
    }
    Judgement::Fault(found)
}

fn now(evidence: &Evidence<'_>, name: &str) -> String {
    evidence.sysctl(name).map(|is| format!(" (now {is})")).unwrap_or_default()
}

/// Names the limit: the backlog is the smaller of what the program asks for and of `somaxconn`.
fn describe_backlog(evidence: &Evidence<'_>) -> String {
    let now = now(evidence, "net/core/somaxconn");
    let most: Option<u64> =
        evidence.sysctl("net/core/somaxconn").and_then(|text| text.parse().ok());
    // Of a listening socket the receive queue is what waits, the send queue the backlog.
    let full =
        ["ss_-ltn", "ss_-tln"].into_iter().find_map(|name| evidence.text(name)).and_then(|text| {
            text.lines().filter(|line| line.starts_with("LISTEN")).find_map(|line| {
                let words: Vec<&str> = line.split_whitespace().collect();
                let [_, waiting, backlog, local, ..] = words[..] else { return None };
                let (waiting, backlog): (u64, u64) = (waiting.parse().ok()?, backlog.parse().ok()?);
                (backlog > 0 && waiting >= backlog).then(|| (backlog, local.to_owned()))
            })
        });
    match (full, most) {
        (Some((backlog, local)), Some(most)) if backlog < most => format!(
            "let the program listen on {local} with a longer backlog: it asks for {backlog}, net.core.somaxconn would allow {most}"
        ),
        (Some((backlog, local)), _) => format!(
            "raise net.core.somaxconn{now} and restart the program on {local}: its backlog is {backlog}; or let it accept faster"
        ),
        (None, _) => format!(
            "raise net.core.somaxconn{now} or the backlog that the program gives listen(), whichever is smaller (`ss -ltn` \
             tells: Send-Q), and restart the program; or let it accept faster"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::testing::{PlantedLooks, number};

    #[test]
    fn overflows_are_found_with_share() {
        let looks = PlantedLooks::new()
            .tcp(&[("PassiveOpens", 100, 1000)])
            .tcp_ext(&[("ListenOverflows", 50, 150), ("ListenDrops", 50, 150)])
            .same("proc/sys/net/core/somaxconn", "128\n");
        let found = looks.find(&RULE);
        assert!((number(&found, "listen_overflows") - 100.0).abs() < 1e-9);
        assert_eq!(found.explains.loss_share, Some(0.1));
        assert!(found.remedy.unwrap().contains("net.core.somaxconn (now 128)"));
    }

    #[test]
    fn short_backlog_of_program_is_named() {
        let looks = PlantedLooks::new()
            .tcp_ext(&[("ListenOverflows", 0, 100)])
            .same("proc/sys/net/core/somaxconn", "4096\n")
            .same("ss_-ltn", "State Recv-Q Send-Q Local\nLISTEN 6 5 0.0.0.0:80 0.0.0.0:*\n");
        let found = looks.find(&RULE);
        assert!(found.remedy.unwrap().contains("0.0.0.0:80 with a longer backlog: it asks for 5"));
        assert_eq!(found.explains.loss_share, None);
    }

    #[test]
    fn half_open_queue_has_its_own_limit() {
        let looks = PlantedLooks::new()
            .tcp(&[("PassiveOpens", 0, 900)])
            .tcp_ext(&[("ListenOverflows", 0, 0), ("TCPReqQFullDrop", 0, 90)]);
        assert!(looks.find(&RULE).remedy.unwrap().contains("tcp_max_syn_backlog"));
    }

    #[test]
    fn old_or_rare_overflows_are_healthy() {
        let old = PlantedLooks::new().tcp_ext(&[("ListenOverflows", 9_000_000, 9_000_000)]);
        assert_eq!(old.judge(&RULE), Judgement::Healthy);
        let single = PlantedLooks::new().tcp(&[("PassiveOpens", 0, 600)]).tcp_ext(&[(
            "ListenOverflows",
            5,
            6,
        )]);
        assert_eq!(single.judge(&RULE), Judgement::Healthy);
        let rare = PlantedLooks::new().tcp(&[("PassiveOpens", 0, 100_000)]).tcp_ext(&[(
            "ListenOverflows",
            0,
            1,
        )]);
        assert_eq!(rare.judge(&RULE), Judgement::Healthy);
    }

    #[test]
    fn missing_counters_are_unseen() {
        let looks = PlantedLooks::new().tcp(&[("PassiveOpens", 0, 5)]);
        assert_eq!(looks.judge(&RULE), Judgement::Unseen(EvidenceSource::Protocols));
    }
}
