//! `slow-peer`: the other end answers slowly, or does not read.

use crate::evidence::{Evidence, SocketGrowth, count_connections, percent};
use crate::finding::{Confidence, Finding, Judgement, Rule};
use crate::parse::sockets::TcpSocket;
use crate::source::EvidenceSource;

/// The least part of looks at connections that wait for the other end.
const LEAST_WAITING: f64 = 0.75;
/// The fewest looks at connections that say anything.
const LEAST_LOOKS: usize = 4;
/// The fewest looks at connections that make it likely.
const LIKELY_LOOKS: usize = 10;
/// The shortest wait (ms) for an answer that is harm, on average. ss(8) tells them to the tick of a kernel, 1 to 10 ms.
const SHORTEST_WAIT_MS: f64 = 10.0;
/// A wait of so many round trips is not the path's.
const LEAST_ROUND_TRIPS: f64 = 5.0;
/// The least part of the time with data to send in which the peer's window was closed.
const LEAST_CLOSED: f64 = 0.3;
/// The fewest probes of closed windows that say anything.
const LEAST_PROBES: u64 = 3;

/// The row.
pub(crate) const RULE: Rule = Rule {
    id: "slow-peer",
    subject: "answers of the peers",
    mechanism: "The other end has the request, and takes its time to answer, or does not read what it is sent: no setting of this \
                host changes that.",
    judge,
};

fn judge(rule: &Rule, evidence: &Evidence<'_>) -> Judgement {
    let Some(active) = evidence.active_connections() else {
        return Judgement::Unseen(EvidenceSource::Sockets);
    };
    let by_window = judge_closed_windows(rule, evidence);
    by_window.or_else(|| judge_answers(rule, &active)).map_or(Judgement::Healthy, Judgement::Fault)
}

/// A peer that does not read: its window is closed until a probe finds it open.
fn judge_closed_windows(rule: &Rule, evidence: &Evidence<'_>) -> Option<Finding> {
    let probes = evidence.protocol("TcpExt.TCPWinProbe").unwrap_or(0);
    let limited = evidence.limited_time("rwnd_limited")?;
    let is_closed = probes >= LEAST_PROBES || limited.worst.has_closed_window();
    let is_held = evidence.is_held(&limited.worst);
    if !(is_closed || is_held) || limited.share() < LEAST_CLOSED {
        return None;
    }
    let share = limited.share();
    let worst = limited.worst.now;
    let figure = |name: &str| worst.figure(name).unwrap_or(0.0);
    let how = if is_closed {
        "did not read: their windows were closed, and".to_owned()
    } else {
        format!(
            "accept data {:.0} ms after it was sent, over a path of {:.2} ms: their windows",
            figure("rtt"),
            figure("minrtt")
        )
    };
    let sentence = format!(
        "the peers of {} {how} stood against sending for {} of the time",
        count_connections(limited.connections),
        percent(share)
    );
    Some(
        Finding::new(rule, Confidence::Likely, sentence)
            .with("window_probes", probes)
            .with("rwnd_limited_ms", limited.limited_ms)
            .with("waiting_bytes", worst.send_queue)
            .explaining_latency(share)
            .with_remedy(format!(
                "look at the program at {}: data stands in its Recv-Q (`ss -tin` there)",
                name(worst)
            ))
            .with_proof("nstat -z TcpExtTCPWinProbe; at the peer: ss -tin"),
    )
}

/// Requests of this host that are acknowledged and not answered, by samples: each look at each connection is one.
fn judge_answers(rule: &Rule, active: &[SocketGrowth<'_>]) -> Option<Finding> {
    let is_client = |one: &&SocketGrowth<'_>| {
        one.is_server() == Some(false)
            && one.takes_turns()
            && one.grown("bytes_received") > 0.0
            && one.grown("bytes_acked") > 0.0
    };
    let clients: Vec<&SocketGrowth<'_>> = active.iter().filter(is_client).collect();
    let looks: Vec<&TcpSocket> = clients.iter().flat_map(|one| one.seen()).collect();
    let waits: Vec<f64> = looks.iter().filter_map(|look| measure_wait(look)).collect();
    let share = waits.len() as f64 / looks.len().max(1) as f64;
    if looks.len() < LEAST_LOOKS || share < LEAST_WAITING {
        return None;
    }
    // A look falls into the middle of a wait, on average.
    let wait_ms = waits.iter().sum::<f64>() / waits.len() as f64 * 2.0;
    if wait_ms < SHORTEST_WAIT_MS {
        return None;
    }
    let confidence =
        if looks.len() >= LIKELY_LOOKS { Confidence::Likely } else { Confidence::Hint };
    let first = clients.first()?.now;
    let sentence = format!(
        "in {} of {} looks at connections of this host's clients the peer had the request and had not answered: it takes about \
         {wait_ms:.0} ms, the path {:.1} ms",
        waits.len(),
        looks.len(),
        first.figure("rtt").unwrap_or(0.0)
    );
    Some(
        Finding::new(rule, confidence, sentence)
            .with("looks_waiting", waits.len() as u64)
            .with("looks", looks.len() as u64)
            .with("answer_ms", wait_ms)
            .explaining_latency(share)
            .with_remedy(format!(
                "look at the program at {}: its CPU time, its own requests, its disks",
                name(first)
            ))
            .with_proof("latput diagnose there: `latput diagnose ssh://PEER`"),
    )
}

/// Milliseconds since a request that is acknowledged and has no answer yet.
fn measure_wait(look: &TcpSocket) -> Option<f64> {
    let (sent, received) = (look.figure("lastsnd")?, look.figure("lastrcv")?);
    // Within a tick the order is told by the segments: one more was sent than received.
    let is_ahead = look
        .figure("data_segs_out")
        .zip(look.figure("data_segs_in"))
        .is_some_and(|(requests, answers)| (requests - answers - 1.0).abs() < 0.5);
    let is_last = sent < received || (sent <= received && is_ahead);
    let is_waiting = is_last && look.send_queue == 0 && look.receive_queue == 0;
    let of_path = look.figure("rtt").unwrap_or(0.0) * LEAST_ROUND_TRIPS;
    (is_waiting && sent >= of_path && sent > 0.0).then_some(sent)
}

fn name(socket: &TcpSocket) -> &str {
    if socket.peer.is_empty() { "the peer" } else { &socket.peer }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::testing::{PlantedLooks, number};

    /// Connections of a client, each with its times since it sent and received.
    fn rows(count: u32, bytes: u64, sent: u32, received: u32) -> String {
        let row = |port: u32| {
            format!(
                "ESTAB 0 0 10.0.0.1:{} 10.0.0.2:80\n\t cubic rtt:0.2/0.1 bytes_acked:{bytes} bytes_received:{bytes} \
                 lastsnd:{sent} lastrcv:{received} lastack:{sent}\n",
                40_000 + port
            )
        };
        (0..count).map(row).collect()
    }

    #[test]
    fn unanswered_requests_are_found() {
        let looks = PlantedLooks::new().sockets(&rows(8, 100, 40, 130), &rows(8, 9000, 60, 170));
        let found = looks.find(&RULE);
        assert!((number(&found, "answer_ms") - 100.0).abs() < 1e-9);
        assert_eq!(
            (found.confidence, found.explains.latency_share),
            (Confidence::Likely, Some(1.0))
        );
        assert!(found.remedy.unwrap().contains("10.0.0.2:80"));
    }

    #[test]
    fn requests_ahead_break_ties() {
        let ahead = |text: String, by: u32| {
            text.replace("lastsnd", &format!("data_segs_out:{} data_segs_in:90 lastsnd", 90 + by))
        };
        let looks = |by: u32| {
            PlantedLooks::new().sockets(&rows(8, 100, 28, 28), &ahead(rows(8, 9000, 40, 40), by))
        };
        assert_eq!(looks(0).judge(&RULE), Judgement::Healthy);
        let both = PlantedLooks::new()
            .sockets(&ahead(rows(8, 100, 28, 28), 1), &ahead(rows(8, 9000, 40, 40), 1));
        assert!((number(&both.find(&RULE), "answer_ms") - 68.0).abs() < 1e-9);
    }

    #[test]
    fn closed_window_needs_no_probe() {
        // A reader that sleeps for 10 ms after each 64 KiB, kernel 6.18.
        let row = |busy: u32, limited: u32, unsent: u32, sent: &str| {
            format!(
                "ESTAB 0 {unsent} 10.0.0.1:39056 10.0.0.2:8001\n\t bbr rtt:10.4/0.4 mss:1448 bytes_acked:{busy} busy:{busy}ms \
                 rwnd_limited:{limited}ms(86%){sent} notsent:{unsent} minrtt:0.003\n"
            )
        };
        let looks = PlantedLooks::new()
            .sockets(&row(2116, 1812, 4_103_992, " unacked:90"), &row(6548, 5668, 2_764_928, ""));
        assert!((looks.find(&RULE).explains.latency_share.unwrap() - 0.87).abs() < 0.01);
        // Open at both looks, and full.
        let looks = PlantedLooks::new().sockets(
            &row(1420, 868, 1_981_776, " lastack:4 unacked:44 snd_wnd:63488"),
            &row(4420, 2700, 2_078_808, " lastsnd:4 lastack:4 unacked:40 snd_wnd:57344"),
        );
        let found = looks.find(&RULE);
        assert!(found.sentence.contains("accept data 10 ms after it was sent"), "{found:?}");
        assert!((found.explains.latency_share.unwrap() - 0.61).abs() < 0.01);
        // Of kernel 6.18, too: the reader's delay is in the mean round trip, and a tick in the time since the last segment.
        let looks = PlantedLooks::new().sockets(
            &row(1424, 1140, 3_523_792, " lastsnd:12 lastack:4"),
            &row(4428, 3352, 3_546_472, " unacked:118 lastack:12"),
        );
        assert!((looks.find(&RULE).explains.latency_share.unwrap() - 0.74).abs() < 0.01);
    }

    #[test]
    fn closed_windows_are_found() {
        let row = |busy: u32| {
            format!(
                "ESTAB 0 900000 10.0.0.1:40000 10.0.0.2:80\n\t cubic rtt:0.2/0.1 minrtt:0.2 bytes_acked:{busy} busy:{busy}ms \
                 rwnd_limited:{busy}ms(99%)\n"
            )
        };
        let looks = PlantedLooks::new().sockets(&row(1000), &row(11_000)).tcp_ext(&[(
            "TCPWinProbe",
            70,
            110,
        )]);
        assert!((number(&looks.find(&RULE), "window_probes") - 40.0).abs() < 1e-9);
    }

    #[test]
    fn answered_or_idle_connections_are_healthy() {
        let answered = PlantedLooks::new().sockets(&rows(8, 100, 40, 40), &rows(8, 9000, 60, 59));
        assert_eq!(answered.judge(&RULE), Judgement::Healthy);
        let idle =
            PlantedLooks::new().sockets(&rows(8, 100, 9000, 19_000), &rows(8, 100, 19_000, 29_000));
        assert_eq!(idle.judge(&RULE), Judgement::Healthy);
        let fast = PlantedLooks::new().sockets(&rows(8, 100, 1, 2), &rows(8, 9000, 2, 4));
        assert_eq!(fast.judge(&RULE), Judgement::Healthy);
    }

    #[test]
    fn thinking_clients_are_not_slow_peers() {
        let swap = |text: String| {
            text.replace("10.0.0.1:4000", "10.0.0.1:800")
                .replace("10.0.0.2:80\n", "10.0.0.2:50000\n")
        };
        let looks =
            PlantedLooks::new().sockets(&swap(rows(8, 1, 40, 130)), &swap(rows(8, 900, 60, 170)));
        assert_eq!(looks.judge(&RULE), Judgement::Healthy);
    }

    #[test]
    fn missing_connections_are_unseen() {
        let looks = PlantedLooks::new().seconds(5);
        assert_eq!(looks.judge(&RULE), Judgement::Unseen(EvidenceSource::Sockets));
    }
}
