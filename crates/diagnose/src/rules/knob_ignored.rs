//! `knob-ignored`: the driver takes a delay and raises more interrupts than it allows.

use crate::evidence::Evidence;
use crate::finding::{Confidence, Finding, Judgement, Rule};
use crate::measures::coalescing::{INTERRUPT_US, ReceiveModeration};
use crate::measures::cpus::share_of_busy;
use crate::measures::queues::{find_receive_interrupts, is_receive_only};
use crate::measures::traffic::InterfaceTraffic;
use crate::source::EvidenceSource;

/// How many times more interrupts than the delay allows are no rounding: drivers round to their own units by up to a third.
const LEAST_FACTOR: f64 = 1.5;
/// Fewer interrupts of a vector cost less than 0.4% of a CPU.
const LEAST_PER_S: f64 = 2000.0;

/// The row.
pub(crate) const RULE: Rule = Rule {
    id: "knob-ignored",
    subject: "obedience of the driver to its delay",
    mechanism: "The driver keeps the delay that is asked for and prints it, but the card interrupts as if it were another: \
                changing it changes nothing.",
    judge,
};

fn judge(rule: &Rule, evidence: &Evidence<'_>) -> Judgement {
    let Some(moderation) = ReceiveModeration::from_evidence(evidence) else {
        return Judgement::Unseen(EvidenceSource::Settings);
    };
    let Some(lines) = find_receive_interrupts(evidence) else {
        return Judgement::Unseen(EvidenceSource::Interrupts);
    };
    let traffic = InterfaceTraffic::from_evidence(evidence);
    let Some(window) = evidence.window_s() else {
        return Judgement::Unseen(EvidenceSource::Cpus);
    };
    // Where nobody counts packets there may be any number, each with an interrupt where the frames ask for it.
    let received_per_s = traffic.received_per_s().unwrap_or(f64::INFINITY);
    let sent_per_s = traffic.sent_per_s().unwrap_or(f64::INFINITY);
    let Some(busiest) = lines.iter().max_by_key(|line| line.total()) else {
        return Judgement::Healthy;
    };
    let sent_per_s = (!is_receive_only(&busiest.label)).then_some(sent_per_s);
    let Some(most) = moderation.most_interrupts_per_s(received_per_s, sent_per_s) else {
        return Judgement::Healthy;
    };
    let per_s = busiest.total() as f64 / window;
    if traffic.is_idle() || per_s < LEAST_PER_S || per_s < most * LEAST_FACTOR {
        return Judgement::Healthy;
    }
    let delay_us = moderation.delay_us.unwrap_or_default();
    let sentence = format!(
        "interrupt {} came {per_s:.0} times a second, {:.1} times as often as rx-usecs={delay_us:.0}us allows",
        busiest.number,
        per_s / most
    );
    let excess: f64 = lines.iter().map(|line| (line.total() as f64 - most * window).max(0.0)).sum();
    // The kernel's own timer holds interrupts back with any driver.
    let change = format!("napi-defer-hard-irqs=2 gro-flush-timeout={delay_us:.0}us");
    let mut finding = Finding::new(rule, Confidence::Likely, sentence)
        .with("delay_us", delay_us)
        .with("interrupts_per_s", per_s)
        .with("allowed_per_s", most)
        .with_change(evidence, &change);
    if let Some(share) = share_of_busy(evidence, excess * INTERRUPT_US / 1e6) {
        finding = finding.explaining_cpu(share);
    }
    Judgement::Fault(finding)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measures::fixture::{Fixture, is_near};

    fn host(delay_us: u32, frames: u32, interrupts: u64) -> Fixture {
        let text = format!(
            "Adaptive RX: off  TX: off\nrx-usecs: {delay_us}\nrx-frames: {frames}\ntx-usecs: {delay_us}\n"
        );
        Fixture::new()
            .fixed("ethtool_-c_eth0", &text)
            .traffic([900_000, 90_000_000], [900_000, 90_000_000])
            .interrupts(&[("eth0-TxRx-0", &[interrupts, 0])])
            .cpus(&[[0, 0, 0, 50, 0], [0, 0, 0, 0, 0]])
    }

    #[test]
    fn interrupts_beyond_delay_are_found() {
        let found = host(200, 0, 400_000).fault(&RULE);
        assert!(
            found.sentence.contains("40000 times a second, 4.0 times as often as rx-usecs=200us")
        );
        // 30,000 of 2 us a second, of half a CPU.
        assert!(is_near(found.explains.cpu_share, 0.12), "{found:?}");
    }

    #[test]
    fn receive_vectors_owe_nothing_to_sending() {
        let text = "Adaptive RX: off  TX: off\nrx-usecs: 200\nrx-frames: 0\ntx-usecs: 0\n";
        let host = |label: &str| {
            Fixture::new()
                .fixed("ethtool_-c_eth0", text)
                .traffic([900_000, 90_000_000], [900_000, 90_000_000])
                .interrupts(&[(label, &[400_000, 0])])
        };
        host("virtio0-input.0").fault(&RULE);
        let uncounted = Fixture::new()
            .fixed("ethtool_-c_eth0", text)
            .interrupts(&[("virtio0-input.0", &[400_000, 0])]);
        uncounted.fault(&RULE);
        host("eth0-TxRx-0").assert_healthy(&RULE);
    }

    #[test]
    fn interrupts_that_delay_allows_are_silent() {
        host(200, 0, 100_000).assert_healthy(&RULE);
        host(200, 0, 140_000).assert_healthy(&RULE);
        host(200, 2, 400_000).assert_healthy(&RULE);
        host(3, 0, 400_000).assert_healthy(&RULE);
        host(0, 0, 400_000).assert_healthy(&RULE);
        Fixture::new().assert_unseen(&RULE, EvidenceSource::Settings);
    }
}
