//! `cpu-full-of-softirq`: a CPU that receives packets has no time left.

use crate::evidence::Evidence;
use crate::finding::{Confidence, Finding, Judgement, Rule};
use crate::measures::cpus::{FULL, find_fullest_cpu, idle_of_others, kernel_share, list_idle_cpus};
use crate::measures::losses::{
    count_backlog_drops, count_ring_drops, is_harm, loses_in_ring, loss_rate,
};
use crate::measures::queues::count_channels;
use crate::measures::traffic::InterfaceTraffic;
use crate::rules::{irq_on_one_cpu, rss_imbalance};
use crate::source::EvidenceSource;

/// With less idle time elsewhere there is nowhere to go.
const LEAST_IDLE: f64 = 0.3;

/// The row.
pub(crate) const RULE: Rule = Rule {
    id: "cpu-full-of-softirq",
    subject: "time of the CPUs for softirqs",
    mechanism: "A CPU that spends nearly all of its time in interrupts and softirqs cannot receive more: packets wait in the \
                ring until it overflows, and programs there do not run.",
    judge,
};

fn judge(rule: &Rule, evidence: &Evidence<'_>) -> Judgement {
    let Some(cpus) = evidence.cpus() else { return Judgement::Unseen(EvidenceSource::Cpus) };
    let fullest = find_fullest_cpu(evidence).filter(|(_, shares)| kernel_share(shares) >= FULL);
    let traffic = InterfaceTraffic::from_evidence(evidence);
    let Some((cpu, shares)) = fullest.filter(|_| !traffic.is_idle()) else {
        return Judgement::Healthy;
    };
    let kernel = kernel_share(&shares);
    let idle = idle_of_others(cpus, &[cpu]);
    let ring_drops = count_ring_drops(evidence).filter(|_| loses_in_ring(evidence));
    let backlog_drops =
        count_backlog_drops(evidence).filter(|drops| is_harm(*drops, traffic.received));
    let lost = ring_drops.unwrap_or(0) + backlog_drops.unwrap_or(0);
    let losses = if lost > 0 { format!("; {lost} packets were dropped") } else { String::new() };
    let elsewhere = if idle >= LEAST_IDLE {
        format!("the other {} idle {:.0}%", cpus.len() - 1, idle * 100.0)
    } else {
        "the others are busy too".to_owned()
    };
    let sentence = format!(
        "CPU {cpu} spends {:.0}% of its time in interrupts and softirqs, {elsewhere}{losses}",
        kernel * 100.0
    );
    // A CPU that is full by the placement of interrupts or flows explains no more than that.
    let is_effect = irq_on_one_cpu::is_fault(evidence) || rss_imbalance::is_fault(evidence);
    let part = if is_effect { 0.5 } else { 1.0 };
    let confidence = if lost > 0 && !is_effect { Confidence::Certain } else { Confidence::Likely };
    let mut finding = Finding::new(rule, confidence, sentence)
        .with("cpu", u64::from(cpu))
        .with("kernel_share", kernel)
        .with("idle_share_of_others", idle)
        .with("dropped_packets", lost)
        // As in a queue of one server: of the time in it, the part that it is busy is waiting.
        .explaining_latency(kernel * part);
    if lost > 0 {
        finding = finding.explaining_loss(loss_rate(evidence, lost) * part);
    }
    let could_be_more =
        count_channels(evidence).is_some_and(|(now, most)| most.is_some_and(|most| now < most));
    Judgement::Fault(match list_idle_cpus(cpus) {
        Some(_) if could_be_more => finding.with_change(evidence, "combined-channels=max"),
        Some(idle) => finding.with_change(evidence, &format!("rps-cpus={idle}")),
        None => finding.with_change(evidence, "gro=on rx-usecs=50us"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measures::fixture::{Fixture, is_near};

    const TRAFFIC: [u64; 2] = [5_000_000, 500_000_000];

    fn host(softirq: u64) -> Fixture {
        Fixture::new()
            .traffic(TRAFFIC, [9, 900])
            .softnet(&[[5_000_000, 0, 0], [0, 0, 0]])
            .cpus(&[[0, 2, 1, softirq, 0], [20, 0, 0, 0, 0]])
    }

    #[test]
    fn full_cpu_is_found() {
        let found = host(94).fault(&RULE);
        assert!(found.sentence.starts_with("CPU 0 spends 95% of its time"), "{found:?}");
        assert!(is_near(found.explains.latency_share, 0.95));
        assert_eq!(found.remedy.as_deref(), Some("latput set eth0 rps-cpus=1 --dry-run"));
        let losing = host(94).driver(&[("rx_missed_errors", 50_000)]).fault(&RULE);
        assert_eq!(losing.confidence, Confidence::Certain);
        assert!(is_near(losing.explains.loss_share, 5.0 / 505.0));
    }

    #[test]
    fn busy_cpu_with_room_is_silent() {
        host(70).assert_healthy(&RULE);
        host(94).traffic([0, 0], [0, 0]).assert_healthy(&RULE);
        Fixture::new().traffic(TRAFFIC, TRAFFIC).assert_unseen(&RULE, EvidenceSource::Cpus);
    }
}
