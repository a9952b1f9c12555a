//! `rss-imbalance`: the card puts most packets into few of its queues.

use std::collections::BTreeMap;

use crate::evidence::Evidence;
use crate::finding::{Confidence, Finding, Judgement, Rule};
use crate::measures::cpus::{FULL, find_fullest_cpu, idle_of_others, kernel_share};
use crate::measures::losses::{count_ring_drops, loses_in_ring, loss_rate};
use crate::measures::queues::{count_channels, count_queue_packets, count_table_entries};
use crate::measures::traffic::InterfaceTraffic;
use crate::source::EvidenceSource;

/// The part of the packets that counts as most.
const MOST: f64 = 0.9;
/// A CPU with less time in interrupts and softirqs makes nobody wait.
const LEAST_KERNEL_SHARE: f64 = 0.5;
/// With less idle time elsewhere spreading gains nothing.
const LEAST_IDLE: f64 = 0.3;
/// The part of all bytes from which on one flow is the reason (`elephant-flow`).
const ELEPHANT: f64 = 0.5;
/// The busiest part of the table, in multiples of an equal one, that is uneven.
const UNEVEN: f64 = 2.0;

/// The row.
pub(crate) const RULE: Rule = Rule {
    id: "rss-imbalance",
    subject: "flows over the receive queues",
    mechanism: "The card hashes most flows to few queues, whose CPUs are full while the other queues and their CPUs idle.",
    judge,
};

fn judge(rule: &Rule, evidence: &Evidence<'_>) -> Judgement {
    let Some(queues) = count_queue_packets(evidence) else {
        return Judgement::Unseen(EvidenceSource::Driver);
    };
    let Some(cpus) = evidence.cpus() else { return Judgement::Unseen(EvidenceSource::Cpus) };
    let is_idle = InterfaceTraffic::from_evidence(evidence).is_idle();
    let channels = count_channels(evidence).map(|(now, _)| now);
    // Drivers print counters of queues that are not used now.
    let number = channels.unwrap_or(queues.len() as u64).min(queues.len() as u64);
    let Some((cpu, shares)) = find_fullest_cpu(evidence) else { return Judgement::Healthy };
    let (few, part) = busiest_queues(&queues);
    let is_table = is_table_uneven(evidence, number);
    // A hash leaves some queues with more than others by chance; a table that does so is set.
    let most_busy =
        if is_table == Some(true) { number as f64 / 2.0 } else { (number as f64 / 4.0).ceil() };
    let is_uneven = number >= 2 && few as f64 <= most_busy && few as u64 != number;
    let kernel = kernel_share(&shares);
    let is_harm = kernel >= LEAST_KERNEL_SHARE && idle_of_others(cpus, &[cpu]) >= LEAST_IDLE;
    if !is_uneven || !is_harm || is_idle {
        return Judgement::Healthy;
    }
    let cause = match (is_table, flows_are_many(evidence, number)) {
        (Some(true), _) => Cause::Table,
        (_, Some(true)) => Cause::Hash,
        (_, None) if kernel >= FULL => Cause::Unknown,
        // One flow, or too few to spread: no fault of the hash.
        (_, Some(false) | None) => return Judgement::Healthy,
    };
    let sentence = format!(
        "{few} of {number} receive queues took {:.0}% of the packets; CPU {cpu} spends {:.0}% of its time on them{}",
        part * 100.0,
        kernel * 100.0,
        cause.describe()
    );
    let waits = kernel * (1.0 - 1.0 / number as f64);
    let mut finding = Finding::new(rule, cause.confidence(), sentence)
        .with("busy_queues", few as u64)
        .with("queues", number)
        .with("kernel_share", kernel)
        .with("share_of_packets", part)
        // As for a queue of one server: the part that it is busy is waiting, of which an n-th is left.
        .explaining_latency(waits)
        .with_change(evidence, &format!("'rss-table=equal {number}'"));
    if kernel >= FULL && loses_in_ring(evidence) {
        let drops = count_ring_drops(evidence).unwrap_or(0);
        finding = finding.explaining_loss(loss_rate(evidence, drops));
    }
    Judgement::Fault(finding)
}

/// The reason why queues are uneven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    Table,
    Hash,
    Unknown,
}

impl Cause {
    const fn describe(self) -> &'static str {
        match self {
            Self::Table => ": the indirection table is uneven",
            Self::Hash => {
                ": the table is not the reason, and flows are many, so that the hash tells them apart too little: \
                 `ethtool -N IFACE rx-flow-hash udp4 sdfn`"
            }
            Self::Unknown => {
                ": the hash or one elephant flow; the flows (`ss -tin`) would tell them apart"
            }
        }
    }

    const fn confidence(self) -> Confidence {
        match self {
            Self::Table => Confidence::Certain,
            Self::Hash => Confidence::Likely,
            Self::Unknown => Confidence::Hint,
        }
    }
}

/// The fewest queues with most of the packets, and their part.
fn busiest_queues(queues: &BTreeMap<u32, u64>) -> (usize, f64) {
    let all: u64 = queues.values().sum();
    let mut counts: Vec<u64> = queues.values().copied().collect();
    counts.sort_unstable_by(|one, other| other.cmp(one));
    let mut sum = 0;
    for (count, number) in counts.iter().zip(1..) {
        sum += count;
        if sum as f64 >= all as f64 * MOST {
            return (number, sum as f64 / all.max(1) as f64);
        }
    }
    (counts.len(), 1.0)
}

/// Whether the indirection table itself prefers queues.
fn is_table_uneven(evidence: &Evidence<'_>, queues: u64) -> Option<bool> {
    let table = count_table_entries(evidence)?;
    let all: u64 = table.values().sum();
    let most = table.values().max().copied().unwrap_or(0);
    Some(most as f64 * queues as f64 >= all as f64 * UNEVEN)
}

/// Whether there are more flows than queues and none of them has most of the bytes.
fn flows_are_many(evidence: &Evidence<'_>, queues: u64) -> Option<bool> {
    let connections = evidence.lasting_connections()?;
    let received = connections.iter().map(|connection| connection.grown("bytes_received"));
    let alive: Vec<f64> = received.filter(|bytes| *bytes > 0.0).collect();
    let (all, most) = (alive.iter().sum::<f64>(), alive.iter().copied().fold(0.0, f64::max));
    // Connections that are forwarded, or of UDP, are not among them.
    if alive.is_empty() {
        return None;
    }
    Some(alive.len() as u64 >= 2 * queues && most < all * ELEPHANT)
}

/// Whether this is the fault, so that what follows from it can say less.
pub(crate) fn is_fault(evidence: &Evidence<'_>) -> bool {
    matches!(judge(&RULE, evidence), Judgement::Fault(_))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measures::fixture::{Fixture, is_near};

    const BULK: [u64; 2] = [1_000_000, 1_000_000_000];
    const FULL_CPU: &[[u64; 5]] = &[[0, 0, 0, 80, 0], [0; 5], [0; 5], [5, 0, 0, 0, 0]];

    fn host(packets: [u64; 4], cpus: &[[u64; 5]]) -> Fixture {
        let names = [
            "rx_queue_0_packets",
            "rx_queue_1_packets",
            "rx_queue_2_packets",
            "rx_queue_3_packets",
        ];
        let counters: Vec<(&str, u64)> = names.into_iter().zip(packets).collect();
        Fixture::new()
            .traffic(BULK, [9, 900])
            .driver(&counters)
            .cpus(cpus)
            .softnet(&[[1_000_000, 0, 0]])
    }

    const UNEVEN_PACKETS: [u64; 4] = [950_000, 50_000, 0, 0];

    #[test]
    fn uneven_table_is_certain() {
        let table =
            "RX flow hash indirection table for eth0 with 4 RX ring(s):\n    0:  0 0 0 0 0 0 0 0\n";
        let found = host(UNEVEN_PACKETS, FULL_CPU).fixed("ethtool_-x_eth0", table).fault(&RULE);
        assert!(
            found.sentence.starts_with("1 of 4 receive queues took 95% of the packets"),
            "{found:?}"
        );
        assert_eq!(found.confidence, Confidence::Certain);
        assert!(is_near(found.explains.latency_share, 0.6));
        assert_eq!(found.remedy.unwrap(), "latput set eth0 'rss-table=equal 4' --dry-run");
    }

    #[test]
    fn unknown_flows_make_a_hint() {
        let full = host(UNEVEN_PACKETS, &[[0, 0, 5, 90, 0], [0; 5]]);
        assert_eq!(full.fault(&RULE).confidence, Confidence::Hint);
        host(UNEVEN_PACKETS, FULL_CPU).assert_healthy(&RULE);
        let text = |bytes: u64| {
            format!(
                "State Recv-Q Send-Q Local Peer\nESTAB 0 0 a:1 b:2\n\t rtt:1/1 bytes_received:{bytes}\n"
            )
        };
        let elephant = host(UNEVEN_PACKETS, FULL_CPU).grown("ss_-tin", &text(1), &text(900_000));
        elephant.assert_healthy(&RULE);
    }

    #[test]
    fn even_or_idle_queues_are_silent() {
        host([300_000, 250_000, 250_000, 200_000], FULL_CPU).assert_healthy(&RULE);
        host(UNEVEN_PACKETS, &[[0, 0, 0, 20, 0], [0; 5]]).assert_healthy(&RULE);
        Fixture::new().traffic(BULK, BULK).assert_unseen(&RULE, EvidenceSource::Driver);
    }
}
