//! `moderation-too-short`: bulk raises an interrupt for almost every packet.

use crate::evidence::Evidence;
use crate::finding::{Confidence, Finding, Judgement, Rule};
use crate::measures::coalescing::{INTERRUPT_US, ReceiveModeration};
use crate::measures::cpus::{find_fullest_cpu, kernel_share, share_of_busy};
use crate::measures::queues::{count_all, find_receive_interrupts};
use crate::measures::traffic::InterfaceTraffic;
use crate::source::EvidenceSource;

/// A longer delay leaves fewer than 50,000 interrupts a second.
const LONG_ENOUGH_US: f64 = 20.0;
/// Fewer interrupts cost less than 6% of a CPU at 2 us each.
const LEAST_PER_S: f64 = 30_000.0;
/// With more packets an interrupt there is little left to save.
const MOST_PACKETS_AN_INTERRUPT: f64 = 5.0;
/// With less time in interrupts and softirqs nothing is short.
const LEAST_KERNEL_SHARE: f64 = 0.2;

/// The row.
pub(crate) const RULE: Rule = Rule {
    id: "moderation-too-short",
    subject: "interrupt rate of bulk",
    mechanism: "Each interrupt costs some microseconds of CPU, whatever it brings, and bulk gains nothing from packets \
                that are told one by one.",
    judge,
};

fn judge(rule: &Rule, evidence: &Evidence<'_>) -> Judgement {
    let traffic = InterfaceTraffic::from_evidence(evidence);
    if !traffic.has_bytes() {
        return Judgement::Unseen(EvidenceSource::Interface);
    }
    let Some(lines) = find_receive_interrupts(evidence) else {
        return Judgement::Unseen(EvidenceSource::Interrupts);
    };
    let Some((cpu, shares)) = find_fullest_cpu(evidence) else {
        return Judgement::Unseen(EvidenceSource::Cpus);
    };
    let Some((received, window)) = traffic.received.zip(evidence.window_s()) else {
        return Judgement::Unseen(EvidenceSource::Interface);
    };
    let moderation = ReceiveModeration::from_evidence(evidence);
    let is_long = moderation.is_some_and(|moderation| {
        moderation.is_adaptive || moderation.delay_us.is_some_and(|delay| delay >= LONG_ENOUGH_US)
    });
    let interrupts = count_all(&lines);
    let per_s = interrupts as f64 / window;
    let packets_each = received as f64 / interrupts.max(1) as f64;
    let is_harm = per_s >= LEAST_PER_S
        && packets_each <= MOST_PACKETS_AN_INTERRUPT
        && kernel_share(&shares) >= LEAST_KERNEL_SHARE;
    if is_long || !is_harm || !traffic.is_bulk() {
        return Judgement::Healthy;
    }
    let now_us = moderation.and_then(|moderation| moderation.delay_us);
    let sentence = format!(
        "bulk raises {per_s:.0} interrupts a second, one for {packets_each:.1} packets; CPU {cpu} spends {:.0}% of its time on them{}",
        kernel_share(&shares) * 100.0,
        now_us.map(|now| format!(" (rx-usecs is {now:.0} us)")).unwrap_or_default()
    );
    let confidence = if now_us.is_some() { Confidence::Likely } else { Confidence::Hint };
    let mut finding = Finding::new(rule, confidence, sentence)
        .with("interrupts_per_s", per_s)
        .with("packets_per_interrupt", packets_each)
        .with("kernel_share", kernel_share(&shares))
        .with_change(evidence, "rx-usecs=50us");
    // At 50 us a queue has at most 20,000 interrupts a second; the rest is saved.
    let saved = (per_s - 20_000.0 * lines.len() as f64).max(per_s / 2.0);
    if let Some(share) = share_of_busy(evidence, saved * INTERRUPT_US / 1e6 * window) {
        finding = finding.explaining_cpu(share);
    }
    Judgement::Fault(finding)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measures::fixture::{Fixture, is_near};

    const BULK: [u64; 2] = [800_000, 1_200_000_000];

    fn host(delay_us: u32, interrupts: u64) -> Fixture {
        let text = format!("Adaptive RX: off  TX: off\nrx-usecs: {delay_us}\nrx-frames: 0\n");
        Fixture::new()
            .fixed("ethtool_-c_eth0", &text)
            .interrupts(&[("eth0-TxRx-0", &[interrupts, 0])])
            .cpus(&[[0, 0, 10, 40, 0], [0, 50, 0, 0, 0]])
    }

    #[test]
    fn interrupts_of_bulk_are_found() {
        let found = host(0, 700_000).traffic(BULK, [400_000, 26_400_000]).fault(&RULE);
        assert!(found.sentence.starts_with("bulk raises 70000 interrupts a second"), "{found:?}");
        // 50,000 interrupts of 2 us are a tenth of a CPU, of one that is busy.
        assert!(is_near(found.explains.cpu_share, 0.1));
        assert_eq!(found.remedy.unwrap(), "latput set eth0 rx-usecs=50us --dry-run");
    }

    #[test]
    fn interrupts_of_requests_are_silent() {
        let requests = [800_000, 80_000_000];
        host(0, 700_000).traffic(requests, requests).assert_healthy(&RULE);
        host(0, 20_000).traffic(BULK, [9, 900]).assert_healthy(&RULE);
        host(50, 700_000).traffic(BULK, [9, 900]).assert_healthy(&RULE);
    }

    #[test]
    fn missing_interrupts_are_unseen() {
        Fixture::new().traffic(BULK, BULK).assert_unseen(&RULE, EvidenceSource::Interrupts);
    }
}
