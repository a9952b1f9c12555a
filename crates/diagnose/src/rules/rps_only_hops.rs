//! `rps-only-hops`: packets are handed to other CPUs though nothing is gained.

use crate::evidence::Evidence;
use crate::finding::{Confidence, Finding, Judgement, Rule};
use crate::measures::cpus::{kernel_share, share_of_busy};
use crate::measures::queues::{count_by_cpu, find_receive_interrupts, is_virtual};
use crate::measures::traffic::{InterfaceTraffic, median_round_trip_us};
use crate::source::EvidenceSource;

/// Fewer hops a second cost less than a percent of a CPU.
const LEAST_PER_S: f64 = 5000.0;
/// The least part of the busy time, or of a request's round trip, that is felt.
const LEAST_COST: f64 = 0.04;
const LEAST_WAIT: f64 = 0.1;
/// The part of the packets that hop; an occasional one does no harm.
const LEAST_SHARE: f64 = 0.2;
/// Receive work of all CPUs, in CPUs, that a single one would do as well.
const LITTLE_WORK: f64 = 0.5;
/// A hop: the interrupt to another CPU, its softirq, and the cold caches there, in microseconds.
const HOP_US: f64 = 2.0;
/// The wait that a hop adds, in microseconds, while the other CPU is awake.
const HOP_WAIT_US: f64 = 5.0;

/// The row.
pub(crate) const RULE: Rule = Rule {
    id: "rps-only-hops",
    subject: "receive packet steering",
    mechanism: "RPS hands each packet to another CPU by an interrupt; where queues or CPUs suffice without it, that is only \
                a longer way.",
    judge,
};

fn judge(rule: &Rule, evidence: &Evidence<'_>) -> Judgement {
    let (Some(rows), Some(window)) = (evidence.softnet(), evidence.window_s()) else {
        return Judgement::Unseen(EvidenceSource::Softnet);
    };
    let Some(cpus) = evidence.cpus() else { return Judgement::Unseen(EvidenceSource::Cpus) };
    // A row counts the interrupts by which other CPUs told of packets: one for all that they hand over within a poll.
    let hops: u64 = rows.values().map(|row| row.received_rps).sum();
    let processed: u64 = rows.values().map(|row| row.processed).sum();
    let targets = rows.values().filter(|row| row.received_rps * 20 >= hops && hops > 0).count();
    let per_s = hops as f64 / window;
    let share = hops as f64 / processed.max(1) as f64;
    let work: f64 = cpus.values().map(kernel_share).sum();
    let receivers = find_receive_interrupts(evidence).map(|lines| {
        let counts = count_by_cpu(&lines);
        let all: u64 = counts.values().sum();
        counts.values().filter(|count| **count * 20 >= all && all > 0).count()
    });
    let is_enough = receivers.is_some_and(|receivers| receivers >= targets);
    let is_little = work < LITTLE_WORK;
    let traffic = InterfaceTraffic::from_evidence(evidence);
    let cost = share_of_busy(evidence, hops as f64 * HOP_US / 1e6);
    let wait = median_round_trip_us(evidence).map(|whole| HOP_WAIT_US / whole);
    let is_costly = cost.is_none_or(|cost| cost >= LEAST_COST)
        || (!traffic.is_bulk() && wait.is_some_and(|wait| wait >= LEAST_WAIT));
    let is_felt = per_s >= LEAST_PER_S && share >= LEAST_SHARE && is_costly && !traffic.is_idle();
    // Packets of a virtual pair come from the CPU that sent them: with RPS or without, they go to another CPU once.
    let is_not_ours = is_virtual(evidence) || is_other_interface(evidence);
    if !is_felt || !(is_enough || is_little) || is_not_ours {
        return Judgement::Healthy;
    }
    let reason = if is_enough {
        format!("as many CPUs ({}) take the interrupts", receivers.unwrap_or(0))
    } else {
        format!("all receive work is {:.0}% of one CPU", work * 100.0)
    };
    let sentence = format!(
        "RPS handed {per_s:.0} packets a second ({:.0}%) to {targets} CPUs, although {reason}",
        share * 100.0
    );
    let mut finding = Finding::new(rule, Confidence::Likely, sentence)
        .with("rps_hops_per_s", per_s)
        .with("share_of_packets", share)
        .with_change(evidence, "rps-cpus=none");
    if let Some(cost) = cost {
        finding = finding.explaining_cpu(cost);
    }
    if let Some(wait) = wait {
        finding = finding.explaining_latency(wait);
    }
    Judgement::Fault(finding)
}

/// Whether the interface's queues name no CPUs, so that the hops are of another interface.
fn is_other_interface(evidence: &Evidence<'_>) -> bool {
    let start = format!("sys/class/net/{}/queues/", evidence.interface_name());
    let [_, after] = evidence.looks();
    let mut masks =
        after.texts_below(&start).filter(|(name, _)| name.ends_with("/rps_cpus")).peekable();
    let is_empty = |mask: &str| mask.trim().chars().all(|c| matches!(c, '0' | ','));
    masks.peek().is_some() && masks.all(|(_, mask)| is_empty(mask))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measures::fixture::{Fixture, is_near};

    const TRAFFIC: [u64; 2] = [1_000_000, 100_000_000];

    fn host(hops: u64, softirq: u64, mask: &str) -> Fixture {
        Fixture::new()
            .traffic(TRAFFIC, TRAFFIC)
            .softnet_with_rps(&[[1_000_000, 0, 0, 0], [hops, 0, 0, hops]])
            .cpus(&[[0, 0, 5, softirq, 0], [45, 0, 0, 5, 0]])
            .sysfs("queues/rx-0/rps_cpus", mask)
    }

    #[test]
    fn hops_without_need_are_found() {
        let found = host(1_000_000, 10, "2\n").fault(&RULE);
        assert!(
            found.sentence.starts_with("RPS handed 100000 packets a second (50%) to 1 CPUs"),
            "{found:?}"
        );
        assert!(found.sentence.ends_with("although all receive work is 20% of one CPU"));
        // Two seconds of 6.5.
        assert!(is_near(found.explains.cpu_share, 2.0 / 6.5));
        assert_eq!(found.remedy.unwrap(), "latput set eth0 rps-cpus=none --dry-run");
    }

    #[test]
    fn needed_or_absent_hops_are_silent() {
        host(1_000_000, 85, "2\n").assert_healthy(&RULE);
        host(0, 10, "2\n").assert_healthy(&RULE);
        host(1_000_000, 10, "0\n").assert_healthy(&RULE);
        host(1_000_000, 10, "2\n")
            .fixed("ethtool_-S_eth0", "NIC statistics:\n     peer_ifindex: 2\n")
            .assert_healthy(&RULE);
        // 6,000 a second are 1.2% of one busy CPU.
        host(60_000, 10, "2\n").assert_healthy(&RULE);
        Fixture::new().traffic(TRAFFIC, TRAFFIC).assert_unseen(&RULE, EvidenceSource::Softnet);
    }
}
