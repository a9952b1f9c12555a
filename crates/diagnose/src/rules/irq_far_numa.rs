//! `irq-far-numa`: packets are received on CPUs far from the card.

use std::collections::BTreeSet;

use crate::evidence::Evidence;
use crate::finding::{Confidence, Finding, Judgement, Rule};
use crate::measures::cpus::{kernel_share, share_of_busy};
use crate::measures::queues::{count_all, count_by_cpu, find_receive_interrupts};
use crate::measures::traffic::InterfaceTraffic;
use crate::parse::interrupts::parse_cpu_list;
use crate::source::EvidenceSource;

/// The part of the interrupts that is far on purpose or by neglect: drivers that use all CPUs of two nodes have a half.
const LEAST_FAR: f64 = 0.75;
/// Below both rates the longer way costs less than a few percent of a CPU.
const LEAST_PER_S: f64 = 50_000.0;
const LEAST_BITS_PER_S: f64 = 2e9;
/// The part of the receive work that is waiting for the other node's memory (esnet/iperf#2031 and Pktgen-DPDK#283 saw
/// rates a fifth to a third lower).
const COST: f64 = 0.25;

/// The row.
pub(crate) const RULE: Rule = Rule {
    id: "irq-far-numa",
    subject: "interrupts near the card",
    mechanism: "The card writes packets to the memory of its own node, and a CPU of another node reads each of them over the \
                link between the nodes.",
    judge,
};

fn judge(rule: &Rule, evidence: &Evidence<'_>) -> Judgement {
    let Some(node) = evidence.sysfs("device/numa_node").and_then(|text| text.parse::<i32>().ok())
    else {
        return Judgement::Unseen(EvidenceSource::Slot);
    };
    // -1: the machine has one node, or its firmware does not tell.
    if node < 0 {
        return Judgement::Healthy;
    }
    let list = evidence
        .text(&format!("sys/devices/system/node/node{node}/cpulist"))
        .or_else(|| evidence.sysfs("device/local_cpulist"));
    let Some(near) = list.and_then(parse_cpu_list) else {
        return Judgement::Unseen(EvidenceSource::Slot);
    };
    let near: BTreeSet<u32> = near.into_iter().collect();
    let Some(lines) = find_receive_interrupts(evidence) else {
        return Judgement::Unseen(EvidenceSource::Interrupts);
    };
    let all = count_all(&lines);
    let far_cpus: Vec<(u32, u64)> =
        count_by_cpu(&lines).into_iter().filter(|(cpu, _)| !near.contains(cpu)).collect();
    let far: u64 = far_cpus.iter().map(|(_, count)| count).sum();
    let share = far as f64 / all.max(1) as f64;
    let traffic = InterfaceTraffic::from_evidence(evidence);
    let is_busy = traffic.received_per_s().is_some_and(|rate| rate >= LEAST_PER_S)
        || traffic.bits_per_s().is_some_and(|rate| rate >= LEAST_BITS_PER_S);
    if share < LEAST_FAR || near.is_empty() || !is_busy {
        return Judgement::Healthy;
    }
    let list = list.map(str::trim).unwrap_or_default();
    let sentence = format!(
        "{:.0}% of {all} receive interrupts came to CPUs outside of the card's node {node} (CPUs {list})",
        share * 100.0
    );
    let mut finding = Finding::new(rule, Confidence::Likely, sentence)
        .with("far_share", share)
        .with("numa_node", f64::from(node))
        .with_change(evidence, &format!("smp-affinity={list}"));
    let cpus = evidence.cpus();
    let busy = cpus.map(|cpus| {
        far_cpus.iter().filter_map(|(cpu, _)| cpus.get(cpu)).map(kernel_share).sum::<f64>()
    });
    let seconds = busy.zip(evidence.window_s()).map(|(busy, window)| busy * window * COST);
    if let Some(share) = seconds.and_then(|seconds| share_of_busy(evidence, seconds)) {
        finding = finding.explaining_cpu(share);
    }
    Judgement::Fault(finding)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measures::fixture::{Fixture, is_near};

    const BULK: [u64; 2] = [3_000_000, 4_500_000_000];

    fn host(node: &str, counts: &[u64]) -> Fixture {
        Fixture::new()
            .traffic(BULK, [9, 900])
            .sysfs("device/numa_node", node)
            .fixed("sys/devices/system/node/node1/cpulist", "2-3\n")
            .interrupts(&[("eth0-TxRx-0", counts)])
            .cpus(&[[0, 0, 0, 80, 0], [20, 0, 0, 0, 0], [0; 5], [0; 5]])
    }

    #[test]
    fn interrupts_on_far_node_are_found() {
        let found = host("1\n", &[95_000, 0, 5000, 0]).fault(&RULE);
        assert!(found.sentence.starts_with("95% of 100000 receive interrupts"), "{found:?}");
        assert!(is_near(found.explains.cpu_share, 0.2));
        assert_eq!(found.remedy.unwrap(), "latput set eth0 smp-affinity=2-3 --dry-run");
    }

    #[test]
    fn near_or_nodeless_card_is_silent() {
        host("1\n", &[0, 0, 50_000, 50_000]).assert_healthy(&RULE);
        host("1\n", &[25_000, 25_000, 25_000, 25_000]).assert_healthy(&RULE);
        host("-1\n", &[95_000, 0, 0, 0]).assert_healthy(&RULE);
        host("1\n", &[95_000, 0, 0, 0]).traffic([900, 90_000], [9, 900]).assert_healthy(&RULE);
        Fixture::new().traffic(BULK, BULK).assert_unseen(&RULE, EvidenceSource::Slot);
    }
}
