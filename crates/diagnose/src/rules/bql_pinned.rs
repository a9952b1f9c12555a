//! `bql-pinned`: a limit of the bytes in a transmit queue keeps the driver from adapting it.

use std::collections::BTreeMap;

use crate::evidence::Evidence;
use crate::finding::{Confidence, Finding, Judgement, Rule};
use crate::source::EvidenceSource;

/// A limit of fewer bytes than one large packet (GSO, 64 KiB) lets the card run dry between interrupts.
const SMALL_LIMIT: u64 = 65_536;
/// The part of its limit from which a queue is full.
const FULL: f64 = 0.8;
/// The longest time that bytes which are always allowed may take on the link, in milliseconds. BQL itself keeps far less.
const MOST_ALWAYS_MS: f64 = 1.0;

/// The row.
pub(crate) const RULE: Rule = Rule {
    id: "bql-pinned",
    subject: "byte limits of transmit queues",
    mechanism: "The kernel adapts how many bytes a transmit queue may hold; a limit that is set by hand starves the card if it \
                is low, and fills its ring, where no queue discipline helps, if it is high.",
    judge,
};

/// The byte limits of a transmit queue (`byte_queue_limits`).
#[derive(Clone, Copy, Debug, Default)]
struct QueueLimits {
    limit: u64,
    least: u64,
    most: u64,
    in_flight: u64,
}

fn judge(rule: &Rule, evidence: &Evidence<'_>) -> Judgement {
    let queues = read_limits(evidence);
    if queues.is_empty() {
        return Judgement::Unseen(EvidenceSource::Interface);
    }
    if evidence.sent_packets() == Some(0) {
        return Judgement::Healthy;
    }
    let low = queues.iter().find(|(_, queue)| is_low(queue, evidence));
    if let Some((number, queue)) = low {
        return Judgement::Fault(describe_low(rule, evidence, *number, queue));
    }
    let Some(speed_mbit) = evidence.link_speed_mbit() else { return Judgement::Healthy };
    // Megabits a second are bits a microsecond.
    let time_ms = |bytes: u64| bytes as f64 * 8.0 / speed_mbit / 1000.0;
    let is_high = |queue: &QueueLimits| {
        queue.least >= queue.limit
            && queue.in_flight as f64 >= queue.least as f64 * FULL
            && time_ms(queue.least) > MOST_ALWAYS_MS
    };
    let Some((number, queue)) = queues.iter().find(|(_, queue)| is_high(queue)) else {
        return Judgement::Healthy;
    };
    let wait_ms = time_ms(queue.in_flight);
    let sentence = format!(
        "transmit queue {number} of {} may always hold {} bytes (limit_min), and holds {}: {wait_ms:.1} ms of the link",
        evidence.interface_name(),
        queue.least,
        queue.in_flight
    );
    Judgement::Fault(
        Finding::new(rule, Confidence::Likely, sentence)
            .with("limit_min_bytes", queue.least)
            .with("in_flight_bytes", queue.in_flight)
            .with("wait_ms", wait_ms)
            .explaining_latency(latency_share(evidence, wait_ms))
            .with_change(evidence, "bql-limit-min=0"),
    )
}

/// The part of the round trips that such a wait makes up; all of them where none is known to be longer.
fn latency_share(evidence: &Evidence<'_>, wait_ms: f64) -> f64 {
    let active = evidence.active_connections().unwrap_or_default();
    let longest = active.iter().filter_map(|one| one.now.figure("rtt")).fold(wait_ms, f64::max);
    wait_ms / longest
}

/// Whether somebody limited a queue to less than a large packet, and packets wait for it.
fn is_low(queue: &QueueLimits, evidence: &Evidence<'_>) -> bool {
    let waits = evidence.qdiscs().is_some_and(|rows| {
        rows.iter().any(|row| (row.now.backlog > 0 && row.backlog_before > 0) || row.requeues > 0)
    });
    let is_full = queue.in_flight as f64 >= queue.limit as f64 * FULL;
    queue.most < SMALL_LIMIT && queue.limit >= queue.most && (waits || is_full)
}

fn describe_low(rule: &Rule, evidence: &Evidence<'_>, number: u32, queue: &QueueLimits) -> Finding {
    let sentence = format!(
        "transmit queue {number} of {} may hold no more than {} bytes (limit_max), less than one large packet, and packets wait \
         for it",
        evidence.interface_name(),
        queue.most
    );
    Finding::new(rule, Confidence::Likely, sentence)
        .with("limit_max_bytes", queue.most)
        .with("in_flight_bytes", queue.in_flight)
        .with_change(evidence, "bql-limit-max=1879048192")
}

/// The limits of each transmit queue of the last look, by its number.
fn read_limits(evidence: &Evidence<'_>) -> BTreeMap<u32, QueueLimits> {
    let start = format!("sys/class/net/{}/queues/tx-", evidence.interface_name());
    let mut found = BTreeMap::<u32, QueueLimits>::new();
    let [_, after] = evidence.looks();
    for (rest, text) in after.texts_below(&start) {
        let Some((number, file)) = rest.split_once("/byte_queue_limits/") else { continue };
        let (Ok(number), Ok(bytes)) = (number.parse(), text.trim().parse()) else { continue };
        let queue = found.entry(number).or_default();
        match file {
            "limit" => queue.limit = bytes,
            "limit_min" => queue.least = bytes,
            "limit_max" => queue.most = bytes,
            "inflight" => queue.in_flight = bytes,
            _ => {}
        }
    }
    // A driver without BQL has limits of 0.
    found.retain(|_, queue| queue.limit > 0 && queue.most > 0);
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::testing::{PlantedLooks, number};

    fn limits(limit: &str, least: &str, most: &str, in_flight: &str) -> PlantedLooks {
        let name = |file: &str| format!("sys/class/net/eth0/queues/tx-0/byte_queue_limits/{file}");
        PlantedLooks::new()
            .same(&name("limit"), limit)
            .same(&name("limit_min"), least)
            .same(&name("limit_max"), most)
            .same(&name("inflight"), in_flight)
            .same("sys/class/net/eth0/speed", "1000\n")
            .text("sys/class/net/eth0/statistics/tx_packets", "5\n", "90000\n")
    }

    #[test]
    fn low_limit_is_found_by_queue() {
        let found = limits("3000\n", "0\n", "3000\n", "2900\n").find(&RULE);
        assert!((number(&found, "limit_max_bytes") - 3000.0).abs() < 1e-9);
        assert_eq!(
            found.remedy.as_deref(),
            Some("latput set eth0 bql-limit-max=1879048192 --dry-run")
        );
    }

    #[test]
    fn high_least_limit_is_found_with_wait() {
        let found = limits("1000000\n", "1000000\n", "1879048192\n", "950000\n").find(&RULE);
        assert!((number(&found, "wait_ms") - 7.6).abs() < 1e-9);
        assert!(found.remedy.unwrap().contains("bql-limit-min=0"));
    }

    #[test]
    fn adapted_limit_is_healthy() {
        assert_eq!(
            limits("3000\n", "0\n", "1879048192\n", "2990\n").judge(&RULE),
            Judgement::Healthy
        );
        assert_eq!(limits("3000\n", "0\n", "3000\n", "0\n").judge(&RULE), Judgement::Healthy);
    }

    #[test]
    fn missing_or_unused_limits_are_unseen() {
        let none = PlantedLooks::new().seconds(5);
        assert_eq!(none.judge(&RULE), Judgement::Unseen(EvidenceSource::Interface));
        assert_eq!(
            limits("0\n", "0\n", "1879048192\n", "0\n").judge(&RULE),
            Judgement::Unseen(EvidenceSource::Interface)
        );
    }
}
