//! `adaptive-flutter`: adaptive moderation jumps between its points.

use crate::evidence::Evidence;
use crate::finding::{Confidence, Finding, Judgement, Rule};
use crate::measures::coalescing::ReceiveModeration;
use crate::measures::queues::{count_all, find_receive_interrupts};
use crate::measures::traffic::{InterfaceTraffic, median_round_trip_us};
use crate::source::EvidenceSource;

/// The least factor between two delays that is a jump: neighbours in the kernel's DIM profiles differ by up to 8, from 1 to
/// 8 us; from there on by 8 and 2 (1, 8, 64, 128, 256 us).
const LEAST_FACTOR: f64 = 4.0;
/// The longer delay of a jump that is felt.
const LEAST_DELAY_US: f64 = 32.0;
/// Below this rate adaptive moderation has too few packets to settle, and few wait.
const LEAST_PER_S: f64 = 1000.0;
/// The same where nobody tells how long the window was.
const LEAST_PACKETS: u64 = 10_000;

/// The row.
pub(crate) const RULE: Rule = Rule {
    id: "adaptive-flutter",
    subject: "adaptive moderation",
    mechanism: "Adaptive moderation that jumps between a short and a long delay serves neither: requests wait at the long \
                one, bulk burns CPU at the short one.",
    judge,
};

fn judge(rule: &Rule, evidence: &Evidence<'_>) -> Judgement {
    let Some([before, after]) = ReceiveModeration::from_looks(evidence) else {
        return Judgement::Unseen(EvidenceSource::Settings);
    };
    let traffic = InterfaceTraffic::from_evidence(evidence);
    // An interrupt has one packet at least.
    let interrupts = || find_receive_interrupts(evidence).map(|lines| count_all(&lines));
    let packets = traffic.received.or_else(interrupts).unwrap_or(0);
    let is_busy = evidence
        .window_s()
        .map_or(packets >= LEAST_PACKETS, |window| packets as f64 / window >= LEAST_PER_S);
    let (Some(then), Some(now)) = (before.delay_us, after.delay_us) else {
        return Judgement::Healthy;
    };
    let (short, long) = (then.min(now).max(1.0), then.max(now));
    let is_jump = long >= LEAST_DELAY_US && long / short >= LEAST_FACTOR;
    if !before.is_adaptive || !after.is_adaptive || !is_jump || !is_busy {
        return Judgement::Healthy;
    }
    let sentence = format!(
        "adaptive moderation moved the receive delay from {then:.0} to {now:.0} us within the window; a load that changed as much \
         would do the same: a second look tells"
    );
    let kept = if traffic.is_bulk() { long } else { short };
    let mut finding = Finding::new(rule, Confidence::Hint, sentence)
        .with("delay_before_us", then)
        .with("delay_after_us", now)
        .with_change(evidence, &format!("adaptive-rx=off rx-usecs={kept:.0}us"));
    if let Some(whole) = median_round_trip_us(evidence).filter(|_| !traffic.is_bulk()) {
        finding = finding.explaining_latency((long - short) / whole);
    }
    Judgement::Fault(finding)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measures::fixture::Fixture;

    const REQUESTS: [u64; 2] = [100_000, 9_000_000];

    fn host(then: u32, now: u32, switch: &str) -> Fixture {
        let text = |delay| format!("Adaptive RX: {switch}  TX: {switch}\nrx-usecs: {delay}\n");
        Fixture::new().grown("ethtool_-c_eth0", &text(then), &text(now)).traffic(REQUESTS, REQUESTS)
    }

    #[test]
    fn delay_that_jumps_is_a_hint() {
        let found = host(256, 8, "on").fault(&RULE);
        assert!(found.sentence.contains("from 256 to 8 us"), "{found:?}");
        assert_eq!(found.confidence, Confidence::Hint);
        let remedy = "latput set eth0 adaptive-rx=off rx-usecs=8us --dry-run";
        assert_eq!(found.remedy.unwrap(), remedy);
    }

    #[test]
    fn delay_that_moves_little_is_silent() {
        host(64, 64, "on").assert_healthy(&RULE);
        host(1, 8, "on").assert_healthy(&RULE);
        host(256, 8, "off").assert_healthy(&RULE);
        Fixture::new().traffic(REQUESTS, REQUESTS).assert_unseen(&RULE, EvidenceSource::Settings);
    }
}
