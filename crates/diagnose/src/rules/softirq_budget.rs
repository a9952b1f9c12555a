//! `softirq-budget`: rounds of the receive softirq end with packets left, and that has an effect.

use crate::evidence::Evidence;
use crate::finding::{Confidence, Finding, Judgement, Rule};
use crate::measures::cpus::is_receiver_full;
use crate::measures::losses::{count_ring_drops, loses_in_ring, loss_rate};
use crate::measures::traffic::InterfaceTraffic;
use crate::source::EvidenceSource;

/// The kernel's own limits of a round: packets, and microseconds (two ticks of 1 ms; longer ticks allow more).
const DEFAULT_PACKETS: u64 = 300;
const DEFAULT_USECS: u64 = 2000;
/// Rounds that are cut short, of a thousand packets. At the default budget a busy CPU has up to 3.3; fewer than 1 is the
/// ordinary end of a burst (netdata#984, #1076).
const LEAST_PER_THOUSAND: f64 = 1.0;

/// The row.
pub(crate) const RULE: Rule = Rule {
    id: "softirq-budget",
    subject: "the budget of the receive softirq",
    mechanism: "A round of the receive softirq that has used up its packets or its time leaves the rest to ksoftirqd, which \
                waits for its turn among the programs.",
    judge,
};

fn judge(rule: &Rule, evidence: &Evidence<'_>) -> Judgement {
    let Some(rows) = evidence.softnet() else { return Judgement::Unseen(EvidenceSource::Softnet) };
    let squeezed: u64 = rows.values().map(|row| row.squeezed).sum();
    let processed: u64 = rows.values().map(|row| row.processed).sum();
    let per_thousand = squeezed as f64 * 1000.0 / processed.max(1) as f64;
    let number = |name: &str| evidence.sysctl(name)?.parse::<u64>().ok();
    let (packets, usecs) =
        (number("net/core/netdev_budget"), number("net/core/netdev_budget_usecs"));
    let is_small = packets.is_some_and(|packets| packets < DEFAULT_PACKETS)
        || usecs.is_some_and(|usecs| usecs < DEFAULT_USECS);
    let loses = loses_in_ring(evidence);
    // The counter grows on each busy host. It is a fault if a limit is lower than the kernel's, or if the ring overflows
    // though the CPU has time left; on a full CPU a larger budget has no effect.
    let is_felt = per_thousand >= LEAST_PER_THOUSAND && (is_small || loses);
    let is_idle = InterfaceTraffic::from_evidence(evidence).is_idle();
    if !is_felt || is_idle || is_receiver_full(evidence) {
        return Judgement::Healthy;
    }
    let limit = |value: Option<u64>, unit: &str| value.map(|value| format!("{value}{unit}"));
    let limits: Vec<String> =
        [limit(packets, " packets"), limit(usecs, " us")].into_iter().flatten().collect();
    let sentence = format!(
        "{squeezed} rounds of the receive softirq ended with packets left, {per_thousand:.1} for 1000 packets{}{}",
        if limits.is_empty() {
            String::new()
        } else {
            format!(" (a round has {})", limits.join(", "))
        },
        if is_small {
            ""
        } else {
            "; a larger budget would tell whether the lost packets are its effect"
        }
    );
    let confidence = if is_small { Confidence::Likely } else { Confidence::Hint };
    let doubled = (packets.unwrap_or(DEFAULT_PACKETS) * 2).max(2 * DEFAULT_PACKETS);
    let longer = (usecs.unwrap_or(DEFAULT_USECS) * 2).max(2 * DEFAULT_USECS);
    let change = format!("netdev-budget={doubled} netdev-budget-usecs={longer}us");
    // Each round that is cut short lets the packets behind it wait; a round has at most the budget's packets.
    let rounds = processed as f64 / packets.unwrap_or(DEFAULT_PACKETS).max(1) as f64;
    let mut finding = Finding::new(rule, confidence, sentence)
        .with("squeezed", squeezed)
        .with("squeezed_per_thousand_packets", per_thousand)
        .with_change(evidence, &change);
    if is_small {
        // With the kernel's own limits the next round comes at once.
        let cut_short = squeezed as f64 / (rounds + squeezed as f64).max(1.0);
        finding = finding.explaining_latency(cut_short);
    }
    if loses {
        let drops = count_ring_drops(evidence).unwrap_or(0);
        finding = finding.with("ring_drops", drops).explaining_loss(loss_rate(evidence, drops));
    }
    if let Some(packets) = packets {
        finding = finding.with("netdev_budget", packets);
    }
    if let Some(usecs) = usecs {
        finding = finding.with("netdev_budget_usecs", usecs);
    }
    Judgement::Fault(finding)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measures::fixture::{Fixture, is_near};

    const TRAFFIC: [u64; 2] = [1_000_000, 1_000_000_000];

    fn host(squeezed: u64, budget: &str) -> Fixture {
        Fixture::new()
            .traffic(TRAFFIC, TRAFFIC)
            .softnet(&[[1_000_000, 0, squeezed]])
            .fixed("proc/sys/net/core/netdev_budget", budget)
            .fixed("proc/sys/net/core/netdev_budget_usecs", "2000\n")
    }

    #[test]
    fn small_budget_is_found() {
        let found = host(20_000, "30\n").fault(&RULE);
        assert!(found.sentence.contains("20.0 for 1000 packets (a round has 30 packets, 2000 us)"));
        assert_eq!(found.confidence, Confidence::Likely);
        assert!(is_near(found.explains.latency_share, 0.375), "{found:?}");
        let remedy = "latput set eth0 netdev-budget=600 netdev-budget-usecs=4000us --dry-run";
        assert_eq!(found.remedy.unwrap(), remedy);
    }

    #[test]
    fn default_budget_with_losses_is_hint() {
        let losing = host(3000, "300\n").driver(&[("rx_missed_errors", 9000)]);
        assert_eq!(losing.fault(&RULE).confidence, Confidence::Hint);
        let full = host(3000, "30\n").cpus(&[[0, 0, 1, 98, 0]]);
        full.assert_healthy(&RULE);
    }

    #[test]
    fn growing_counter_without_effect_is_silent() {
        host(3000, "300\n").assert_healthy(&RULE);
        host(50, "30\n").assert_healthy(&RULE);
        Fixture::new().traffic(TRAFFIC, TRAFFIC).assert_unseen(&RULE, EvidenceSource::Softnet);
    }
}
