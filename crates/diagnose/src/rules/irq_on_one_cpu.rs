//! `irq-on-one-cpu`: one CPU takes all receive interrupts, and others idle.

use crate::evidence::Evidence;
use crate::finding::{Confidence, Finding, Judgement, Rule};
use crate::measures::cpus::{FULL, idle_of_others, kernel_share};
use crate::measures::losses::{count_ring_drops, loses_in_ring, loss_rate};
use crate::measures::queues::{count_all, count_by_cpu, count_channels, find_receive_interrupts};
use crate::measures::traffic::InterfaceTraffic;
use crate::source::EvidenceSource;

/// The part of the interrupts that is all of them.
const ALL: f64 = 0.95;
/// The part of the interrupts that makes a queue one that is used.
const USED: f64 = 0.05;
/// Fewer interrupts tell nothing of where they go.
const LEAST_INTERRUPTS: u64 = 100;
/// A CPU with less time in interrupts and softirqs makes nobody wait: of those that come 40% would find it busy.
const LEAST_KERNEL_SHARE: f64 = 0.4;
/// The same for a card with one queue, as most guests have: more queues cost memory and interrupts.
const LEAST_OF_ONE_QUEUE: f64 = 0.6;
/// With less idle time elsewhere there is nowhere to go.
const LEAST_IDLE: f64 = 0.3;
/// The packets a second that fill a good part of a CPU, where nobody counts CPU time.
const MANY_PER_S: f64 = 100_000.0;

/// The row.
pub(crate) const RULE: Rule = Rule {
    id: "irq-on-one-cpu",
    subject: "interrupts over the CPUs",
    mechanism: "All receive interrupts go to one CPU, which does the work of all queues alone: packets wait for it while \
                others idle.",
    judge,
};

/// All interrupts on one CPU.
struct Concentration {
    cpu: u32,
    queues: u64,
    change: &'static str,
}

fn judge(rule: &Rule, evidence: &Evidence<'_>) -> Judgement {
    if find_receive_interrupts(evidence).is_none() {
        return Judgement::Unseen(EvidenceSource::Interrupts);
    }
    let traffic = InterfaceTraffic::from_evidence(evidence);
    let found = find_concentration(evidence).filter(|_| !traffic.is_idle());
    let Some(Concentration { cpu, queues, change }) = found else { return Judgement::Healthy };
    let Some(cpus) = evidence.cpus() else {
        return match traffic.received_per_s() {
            Some(rate) if rate >= MANY_PER_S => {
                let sentence = format!(
                    "the interrupts of all {queues} receive queues arrive on CPU {cpu}, for {rate:.0} packets a second; \
                     /proc/stat would tell how full it is"
                );
                let finding = Finding::new(rule, Confidence::Hint, sentence)
                    .with("cpu", u64::from(cpu))
                    .with("queues", queues);
                Judgement::Fault(finding.with_change(evidence, change))
            }
            _ => Judgement::Unseen(EvidenceSource::Cpus),
        };
    };
    let Some(kernel) = cpus.get(&cpu).map(kernel_share) else { return Judgement::Healthy };
    let idle = idle_of_others(cpus, &[cpu]);
    // RPS or threads may spread the work though the interrupts are on one CPU.
    let most_elsewhere = cpus
        .iter()
        .filter(|(other, _)| **other != cpu)
        .map(|(_, shares)| kernel_share(shares))
        .fold(0.0, f64::max);
    let least = if queues > 1 { LEAST_KERNEL_SHARE } else { LEAST_OF_ONE_QUEUE };
    let is_harm = kernel >= least && idle >= LEAST_IDLE && most_elsewhere < kernel / 2.0;
    if cpus.len() < 2 || !is_harm {
        return Judgement::Healthy;
    }
    let sentence = format!(
        "the interrupts of all {queues} receive queues arrive on CPU {cpu}, which spends {:.0}% of its time on them; the other {} idle {:.0}%",
        kernel * 100.0,
        cpus.len() - 1,
        idle * 100.0
    );
    // As in a queue of one server: of the time in it, the part that it is busy is waiting. Spread over n, an n-th is left.
    let spread = cpus.len().min(8) as f64;
    let mut finding = Finding::new(rule, Confidence::Likely, sentence)
        .with("cpu", u64::from(cpu))
        .with("queues", queues)
        .with("kernel_share", kernel)
        .with("idle_share_of_others", idle)
        .explaining_latency(kernel * (1.0 - 1.0 / spread))
        .with_change(evidence, change);
    if kernel >= FULL && loses_in_ring(evidence) {
        let drops = count_ring_drops(evidence).unwrap_or(0);
        finding = finding.explaining_loss(loss_rate(evidence, drops));
    }
    Judgement::Fault(finding)
}

/// The CPU that takes all receive interrupts, if there are several queues or could be.
fn find_concentration(evidence: &Evidence<'_>) -> Option<Concentration> {
    let lines = find_receive_interrupts(evidence)?;
    let all = count_all(&lines);
    if all < LEAST_INTERRUPTS {
        return None;
    }
    let (cpu, most) = count_by_cpu(&lines).into_iter().max_by_key(|(_, count)| *count)?;
    let used = lines.iter().filter(|line| line.total() as f64 >= all as f64 * USED).count() as u64;
    if (most as f64) < all as f64 * ALL {
        return None;
    }
    let could_be_more = count_channels(evidence)
        .is_some_and(|(now, most)| now == 1 && most.is_some_and(|most| most > 1));
    match used {
        2.. => Some(Concentration { cpu, queues: used, change: "smp-affinity=hint" }),
        _ if could_be_more => {
            Some(Concentration { cpu, queues: used, change: "combined-channels=max" })
        }
        _ => None,
    }
}

/// Whether this is the fault, so that what follows from it can say less.
pub(crate) fn is_fault(evidence: &Evidence<'_>) -> bool {
    matches!(judge(&RULE, evidence), Judgement::Fault(_))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measures::fixture::{Fixture, is_near};

    const BULK: [u64; 2] = [2_000_000, 2_000_000_000];

    fn host(lines: &[(&str, &[u64])], softirq: u64) -> Fixture {
        Fixture::new()
            .traffic(BULK, [9, 900])
            .interrupts(lines)
            .cpus(&[[0, 5, 3, softirq, 0], [10, 0, 0, 0, 0]])
    }

    const ON_ONE: &[(&str, &[u64])] =
        &[("eth0-TxRx-0", &[50_000, 0]), ("eth0-TxRx-1", &[40_000, 3])];
    const SPREAD: &[(&str, &[u64])] =
        &[("eth0-TxRx-0", &[50_000, 0]), ("eth0-TxRx-1", &[0, 40_000])];
    const SINGLE: &[(&str, &[u64])] = &[("virtio0-input.0", &[90_000, 0])];

    #[test]
    fn two_queues_on_one_cpu_are_found() {
        let found = host(ON_ONE, 77).fault(&RULE);
        assert!(found.sentence.contains("all 2 receive queues arrive on CPU 0"), "{found:?}");
        assert!(found.sentence.contains("80% of its time on them; the other 1 idle 90%"));
        assert!(is_near(found.explains.latency_share, 0.4));
        assert_eq!(found.remedy.unwrap(), "latput set eth0 smp-affinity=hint --dry-run");
    }

    #[test]
    fn single_queue_asks_for_channels() {
        host(SINGLE, 77).assert_healthy(&RULE);
        let channels = "Channel parameters for eth0:\nPre-set maximums:\nCombined: 4\nCurrent hardware settings:\nCombined: 1\n";
        let found = host(SINGLE, 77).fixed("ethtool_-l_eth0", channels).fault(&RULE);
        assert_eq!(found.remedy.unwrap(), "latput set eth0 combined-channels=max --dry-run");
    }

    #[test]
    fn spread_or_idle_interrupts_are_silent() {
        host(SPREAD, 77).assert_healthy(&RULE);
        host(ON_ONE, 5).assert_healthy(&RULE);
        Fixture::new().traffic(BULK, BULK).assert_unseen(&RULE, EvidenceSource::Interrupts);
        let without_time = Fixture::new().interrupts(ON_ONE).traffic([9000, 900_000], [9, 900]);
        without_time.assert_unseen(&RULE, EvidenceSource::Cpus);
    }
}
