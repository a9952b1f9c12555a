//! `irq-moved`: somebody moves the interface's interrupts between CPUs.

use crate::evidence::{Evidence, InterruptGrowth};
use crate::finding::{Confidence, Finding, Judgement, Rule};
use crate::measures::queues::{count_all, find_receive_interrupts};
use crate::measures::traffic::InterfaceTraffic;
use crate::source::EvidenceSource;

/// The part of a vector's interrupts on a second CPU that is a move, and no stray one while it was being moved.
const LEAST_PART: f64 = 0.05;
/// Fewer interrupts tell nothing.
const LEAST_INTERRUPTS: u64 = 1000;
/// A vector on more CPUs is handed round by the interrupt controller (lowest priority), not moved.
const MOST_CPUS: usize = 3;
/// Moved vectors with a smaller part of the interrupts disturb few packets.
const LEAST_SHARE: f64 = 0.25;

/// The row.
pub(crate) const RULE: Rule = Rule {
    id: "irq-moved",
    subject: "interrupts that stay where they are",
    mechanism: "After a move the new CPU has neither the queue's nor the connections' memory in its caches, packets of a flow \
                are handled on two CPUs at once, and a placement by hand is undone.",
    judge,
};

fn judge(rule: &Rule, evidence: &Evidence<'_>) -> Judgement {
    let Some(lines) = find_receive_interrupts(evidence) else {
        return Judgement::Unseen(EvidenceSource::Interrupts);
    };
    let all = count_all(&lines);
    let moved: Vec<&InterruptGrowth> =
        lines.into_iter().filter(|line| line.total() > 0 && is_moved(line)).collect();
    let share = count_all(&moved) as f64 / all.max(1) as f64;
    let is_idle = InterfaceTraffic::from_evidence(evidence).is_idle();
    let (Some(first), false) = (moved.first(), is_idle) else { return Judgement::Healthy };
    if all < LEAST_INTERRUPTS || share < LEAST_SHARE {
        return Judgement::Healthy;
    }
    let cpus: Vec<String> =
        first.counts.iter().map(|(cpu, by)| format!("CPU {cpu} ({by})")).collect();
    let sentence = format!(
        "{} receive interrupts with {:.0}% of the traffic were moved within the window, such as {} ({}): {}",
        moved.len(),
        share * 100.0,
        first.number,
        first.label.split(' ').next_back().unwrap_or_default(),
        cpus.join(", ")
    );
    let balancer = find_balancer(evidence);
    let confidence = if balancer.is_some() { Confidence::Certain } else { Confidence::Likely };
    let interface = evidence.interface_name();
    let mut finding = Finding::new(rule, confidence, sentence)
        .with("moved_interrupts", moved.len() as u64)
        .with("share_of_interrupts", share)
        .with_remedy(format!(
            "ban the interface's interrupts from irqbalance (IRQBALANCE_BANNED_INTERRUPTS, --banirq) or stop it, then place \
             them: latput set {interface} smp-affinity=hint --dry-run"
        ));
    if let Some(name) = balancer {
        finding = finding.with("balancer", name);
    }
    Judgement::Fault(finding)
}

/// Whether the affinity changed, or the interrupt came to a few CPUs in turn.
fn is_moved(line: &InterruptGrowth) -> bool {
    let [before, after] = &line.affinity;
    let is_set_anew = before.is_some() && after.is_some() && before != after;
    let least = line.total() as f64 * LEAST_PART;
    let cpus = line.counts.values().filter(|count| **count as f64 >= least).count();
    // A vector with one target that came to several was moved. Where the kernel tells no target, a controller may hand it
    // round, evenly.
    let has_one_target = after.as_ref().is_some_and(|cpus| cpus.len() == 1);
    let most = line.counts.values().max().copied().unwrap_or(0);
    let is_even = line.counts.values().all(|count| count * 2 >= most);
    let is_told = has_one_target || (after.is_none() && !is_even);
    is_set_anew || ((2..=MOST_CPUS).contains(&cpus) && is_told)
}

/// A program that moves interrupts, if the snapshot has names of programs.
fn find_balancer(evidence: &Evidence<'_>) -> Option<&'static str> {
    let [_, after] = evidence.looks();
    let mut names = after.texts_below("proc/").filter(|(name, _)| name.ends_with("/comm"));
    names.any(|(_, text)| text.trim() == "irqbalance").then_some("irqbalance")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measures::fixture::Fixture;

    const TRAFFIC: [u64; 2] = [500_000, 50_000_000];

    fn host(counts: &[u64], then: &str, now: &str) -> Fixture {
        Fixture::new().traffic(TRAFFIC, TRAFFIC).interrupts(&[("eth0-TxRx-0", counts)]).grown(
            "proc/irq/24/effective_affinity_list",
            then,
            now,
        )
    }

    #[test]
    fn moved_interrupt_names_its_cpus() {
        let found = host(&[60_000, 40_000], "0\n", "1\n").fault(&RULE);
        assert!(
            found.sentence.ends_with("24 (eth0-TxRx-0): CPU 0 (60000), CPU 1 (40000)"),
            "{found:?}"
        );
        assert_eq!(found.confidence, Confidence::Likely);
        let named = host(&[60_000, 40_000], "1\n", "1\n").fixed("proc/77/comm", "irqbalance\n");
        assert_eq!(named.fault(&RULE).confidence, Confidence::Certain);
    }

    #[test]
    fn interrupt_that_stays_is_silent() {
        host(&[90_000, 0], "0\n", "0\n").assert_healthy(&RULE);
        host(&[90_000, 12], "0\n", "0\n").assert_healthy(&RULE);
        host(&[5000, 5000, 5000, 5000], "0-3\n", "0-3\n").assert_healthy(&RULE);
        Fixture::new().traffic(TRAFFIC, TRAFFIC).assert_unseen(&RULE, EvidenceSource::Interrupts);
    }
}
