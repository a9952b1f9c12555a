//! `nagle-delayed-ack`: a small segment waits for an acknowledgement that the other end delays.

use crate::evidence::{Evidence, SocketGrowth, count_connections};
use crate::finding::{Confidence, Finding, Judgement, Rule};
use crate::source::EvidenceSource;

/// The shortest delay of acknowledgements, in milliseconds (`TCP_DELACK_MIN`; others use up to 200).
const SHORTEST_DELAY_MS: f64 = 40.0;
/// The longest delay of acknowledgements that hosts use, in milliseconds.
const LONGEST_DELAY_MS: f64 = 220.0;
/// The smoothed round trip is less than the delay where some acknowledgements come at once.
const LEAST_OF_DELAY: f64 = 0.5;
/// A round trip of so many times the shortest one has a wait in it that is not the path's.
const LEAST_STRETCH: f64 = 5.0;
/// The longest path (ms) of which a round trip with such a wait can be told from a path that varies.
const LONGEST_PATH_MS: f64 = 5.0;
/// The fewest requests of a connection that say anything.
const LEAST_REQUESTS: f64 = 5.0;
/// Delayed acknowledgements of a request that was sent in two pieces.
const LEAST_DELAYED: f64 = 0.5;
/// Pieces of a request.
const LEAST_PIECES: f64 = 1.7;

/// The row.
pub(crate) const RULE: Rule = Rule {
    id: "nagle-delayed-ack",
    subject: "Nagle and delayed acknowledgements",
    mechanism: "A program that writes a request in two pieces without TCP_NODELAY waits with the second one for the \
                acknowledgement of the first, which the other end delays by 40 ms.",
    judge,
};

fn judge(rule: &Rule, evidence: &Evidence<'_>) -> Judgement {
    let Some(active) = evidence.active_connections() else {
        return Judgement::Unseen(EvidenceSource::Sockets);
    };
    let window_s = evidence.window_s();
    if active.is_empty() {
        return Judgement::Healthy;
    }
    let delayed = evidence.protocol("TcpExt.DelayedACKs").unwrap_or(0);
    let waiting: Vec<&SocketGrowth<'_>> =
        active.iter().filter(|one| waits_for_acknowledgement(one, window_s)).collect();
    if let Some(first) = waiting.first() {
        let rtt_ms = first.now.figure("rtt").unwrap_or(SHORTEST_DELAY_MS);
        let sentence = format!(
            "acknowledgements of {} take {rtt_ms:.0} ms although their path takes {:.2} ms: small segments wait for \
             delayed acknowledgements of the peer",
            count_connections(waiting.len() as u64),
            first.now.figure("minrtt").unwrap_or(0.0)
        );
        let share = waiting.len() as f64 / active.len() as f64;
        return Judgement::Fault(
            Finding::new(rule, Confidence::Likely, sentence)
                .with("connections", waiting.len() as u64)
                .with("rtt_ms", rtt_ms)
                .with("delayed_acks", delayed)
                .explaining_latency(share * (1.0 - 1.0 / LEAST_STRETCH))
                .with_remedy("let the program on this host set TCP_NODELAY, or write each request at once (writev, TCP_CORK)")
                .with_proof("ss -tin; strace -f -e trace=write,sendto,setsockopt -p PID"),
        );
    }
    let of_receiver = window_s.and_then(|window| judge_receiver(rule, &active, delayed, window));
    of_receiver.map_or(Judgement::Healthy, Judgement::Fault)
}

/// Whether the round trip of a sender of few segments is that of delayed acknowledgements.
fn waits_for_acknowledgement(connection: &SocketGrowth<'_>, window_s: Option<f64>) -> bool {
    let figure = |name: &str| connection.now.figure(name);
    let (Some(rtt), Some(shortest)) = (figure("rtt"), figure("minrtt")) else { return false };
    let sent = connection.grown("data_segs_out");
    // Of a queue that is full many more segments are under way in a round trip.
    let in_round_trip = match window_s {
        Some(window_s) => sent / window_s * rtt / 1000.0,
        None => connection.seen().filter_map(|look| look.figure("unacked")).fold(0.0, f64::max),
    };
    (SHORTEST_DELAY_MS * LEAST_OF_DELAY..=LONGEST_DELAY_MS).contains(&rtt)
        && shortest <= LONGEST_PATH_MS
        && rtt >= shortest * LEAST_STRETCH
        && sent >= LEAST_REQUESTS
        && in_round_trip <= 3.0
        && connection.grown("bytes_retrans") <= 0.0
        && holds_back(connection)
}

/// Whether the program waits for those acknowledgements: it sends requests in pieces, or data stood unsent. A request in one
/// piece is acknowledged late, too, where the answer takes long, and nobody waits for that.
fn holds_back(connection: &SocketGrowth<'_>) -> bool {
    let answers = connection.grown("data_segs_in");
    let unsent =
        connection.seen().any(|look| look.figure("notsent").is_some_and(|bytes| bytes > 0.0));
    unsent || (answers > 0.0 && connection.grown("data_segs_out") >= answers * LEAST_PIECES)
}

/// The other side: requests that come in two pieces, each with a delayed acknowledgement of this host between them. A
/// program that takes longer than 40 ms to answer also delays acknowledgements, of requests in one piece.
fn judge_receiver(
    rule: &Rule,
    active: &[SocketGrowth<'_>],
    delayed: u64,
    window_s: f64,
) -> Option<Finding> {
    let most = 1000.0 / SHORTEST_DELAY_MS * 1.1;
    let is_slow = |one: &&SocketGrowth<'_>| {
        let answers = one.grown("data_segs_out");
        answers >= LEAST_REQUESTS
            && answers / window_s <= most
            && answers / window_s >= 1000.0 / LONGEST_DELAY_MS
            && one.grown("data_segs_in") >= answers * LEAST_PIECES
            && one.grown("data_segs_in") <= answers * 4.0
    };
    let slow: Vec<&SocketGrowth<'_>> = active.iter().filter(is_slow).collect();
    let answers: f64 = slow.iter().map(|one| one.grown("data_segs_out")).sum();
    if slow.is_empty() || (delayed as f64) < answers * LEAST_DELAYED {
        return None;
    }
    let sentence = format!(
        "requests of {} come in pieces, {delayed} acknowledgements were delayed between them: {:.0} answers a second \
         for each connection",
        count_connections(slow.len() as u64),
        answers / window_s / slow.len() as f64
    );
    Some(
        Finding::new(rule, Confidence::Likely, sentence)
            .with("connections", slow.len() as u64)
            .with("delayed_acks", delayed)
            .with("answers", answers)
            .explaining_latency(slow.len() as f64 / active.len() as f64 * (1.0 - 1.0 / LEAST_STRETCH))
            .with_remedy(
                "let the peer's program set TCP_NODELAY, or write each request at once; on this host `ip route change ... quickack \
                 1` acknowledges at once",
            )
            .with_proof("nstat -z TcpExtDelayedACKs"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::testing::{PlantedLooks, number};

    fn row(rtt: &str, out: u32, into: u32) -> String {
        format!(
            "ESTAB 0 0 10.0.0.1:50000 10.0.0.2:80\n\t cubic rto:244 rtt:{rtt}/1 ato:40 minrtt:0.05 bytes_acked:{out} \
             bytes_received:{into} data_segs_out:{out} data_segs_in:{into}\n"
        )
    }

    fn looks(rtt: &str, out: u32, into: u32) -> PlantedLooks {
        PlantedLooks::new()
            .seconds(10)
            .sockets(&row(rtt, 1000, 1000), &row(rtt, 1000 + out, 1000 + into))
    }

    #[test]
    fn sender_with_delayed_round_trip_is_found() {
        let found = looks("40.2", 490, 245).find(&RULE);
        assert!((number(&found, "rtt_ms") - 40.2).abs() < 1e-9);
        assert!(found.remedy.unwrap().contains("this host set TCP_NODELAY"));
        let without_window =
            PlantedLooks::new().sockets(&row("40.2", 1000, 1000), &row("40.2", 1490, 1245));
        without_window.find(&RULE);
    }

    #[test]
    fn receiver_of_pieces_is_found() {
        let found = looks("0.1", 240, 480).tcp_ext(&[("DelayedACKs", 9, 249)]).find(&RULE);
        assert!((number(&found, "delayed_acks") - 240.0).abs() < 1e-9);
        assert!(found.remedy.unwrap().contains("the peer's program"));
    }

    #[test]
    fn slow_answers_are_not_nagle() {
        assert_eq!(looks("40.2", 200, 200).judge(&RULE), Judgement::Healthy);
        let whole = looks("0.1", 200, 200).tcp_ext(&[("DelayedACKs", 9, 209)]);
        assert_eq!(whole.judge(&RULE), Judgement::Healthy);
        let fast = looks("0.1", 90_000, 180_000).tcp_ext(&[("DelayedACKs", 9, 99_009)]);
        assert_eq!(fast.judge(&RULE), Judgement::Healthy);
    }

    #[test]
    fn bulk_with_a_queue_is_healthy() {
        assert_eq!(looks("45", 90_000, 0).judge(&RULE), Judgement::Healthy);
    }

    #[test]
    fn missing_connections_are_unseen() {
        let looks = PlantedLooks::new().tcp_ext(&[("DelayedACKs", 0, 5000)]);
        assert_eq!(looks.judge(&RULE), Judgement::Unseen(EvidenceSource::Sockets));
    }
}
