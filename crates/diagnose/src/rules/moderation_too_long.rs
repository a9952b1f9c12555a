//! `moderation-too-long`: requests wait for an interrupt that the card holds back.

use crate::evidence::{Evidence, InterruptGrowth};
use crate::finding::{Confidence, Finding, Judgement, Rule};
use crate::measures::coalescing::ReceiveModeration;
use crate::measures::queues::{count_all, find_receive_interrupts};
use crate::measures::traffic::{InterfaceTraffic, median_round_trip_us};
use crate::source::EvidenceSource;

/// Shorter delays are what drivers begin with (50 us on i40e and ice), and less than a wake-up from deep sleep.
const LEAST_DELAY_US: f64 = 60.0;
/// Below this rate nobody waits for long in sum.
const LEAST_PER_S: f64 = 200.0;
/// The same where nobody tells how long the window was.
const LEAST_PACKETS: u64 = 1000;
/// A smaller part of the waits is not felt.
const LEAST_SHARE: f64 = 0.1;
/// Bulk has more packets an interrupt; asked where nobody counts bytes.
const MOST_PACKETS_AN_INTERRUPT: f64 = 16.0;
/// From here on the driver does not obey, and `knob-ignored` speaks.
const IGNORED: f64 = 2.0;

/// The row.
pub(crate) const RULE: Rule = Rule {
    id: "moderation-too-long",
    subject: "interrupt delay for waiting requests",
    mechanism: "The interrupt of a lone packet is held back until the delay is over, so that each request and each answer \
                waits for it with nothing to do.",
    judge,
};

fn judge(rule: &Rule, evidence: &Evidence<'_>) -> Judgement {
    let Some(moderation) = ReceiveModeration::from_evidence(evidence) else {
        return Judgement::Unseen(EvidenceSource::Settings);
    };
    let traffic = InterfaceTraffic::from_evidence(evidence);
    let long = moderation.longest_wait().filter(|(_, delay)| *delay >= LEAST_DELAY_US);
    let Some((knob, delay_us)) = long.filter(|_| !traffic.is_idle() && !traffic.is_bulk()) else {
        return Judgement::Healthy;
    };
    let Some(received) = traffic.received else {
        return Judgement::Unseen(EvidenceSource::Interface);
    };
    let received_per_s = traffic.received_per_s();
    let lines = find_receive_interrupts(evidence);
    let interrupts = lines.as_ref().map(|lines| count_all(lines));
    let packets_each = interrupts.map(|interrupts| received as f64 / interrupts.max(1) as f64);
    let is_dense = packets_each.is_some_and(|each| each > MOST_PACKETS_AN_INTERRUPT);
    let is_rare = received_per_s.map_or(received < LEAST_PACKETS, |rate| rate < LEAST_PER_S);
    if is_rare || (!traffic.has_bytes() && is_dense) {
        return Judgement::Healthy;
    }
    let occupied = lines.as_ref().and_then(|lines| busiest_timer(lines, delay_us, evidence));
    let round_trip_us = median_round_trip_us(evidence);
    // Of a connection the kernel measures the round trip. Without it: the part of the window in which the timer of the
    // busiest queue ran, in which at least one packet waited.
    let share = round_trip_us.map(|whole| delay_us / whole).or(occupied);
    if share.is_none() && received_per_s.is_none() {
        return Judgement::Unseen(EvidenceSource::Sockets);
    }
    let is_ignored = occupied.is_some_and(|occupied| occupied > IGNORED);
    if is_ignored || share.is_some_and(|share| share < LEAST_SHARE) {
        return Judgement::Healthy;
    }
    let sentence = format!(
        "{knob} holds back the interrupt of each packet for {delay_us:.0} us, while {} arrive{}",
        received_per_s.map_or_else(
            || format!("{received} small packets"),
            |rate| format!("{rate:.0} small packets a second")
        ),
        round_trip_us
            .map(|whole| format!("; a round trip takes {whole:.0} us"))
            .unwrap_or_default()
    );
    let confidence = if share.is_some() { Confidence::Likely } else { Confidence::Hint };
    let mut finding = Finding::new(rule, confidence, sentence)
        .with("delay_us", delay_us)
        .with("received_packets", received)
        .with_change(
            evidence,
            if knob == "rx-usecs" { "rx-usecs=8us" } else { "gro-flush-timeout=0us" },
        );
    if let Some(rate) = received_per_s {
        finding = finding.with("received_per_s", rate);
    }
    if let Some(each) = packets_each {
        finding = finding.with("packets_per_interrupt", each);
    }
    if let Some(whole) = round_trip_us {
        finding = finding.with("round_trip_us", whole);
    }
    if let Some(share) = share {
        finding = finding.explaining_latency(share);
    }
    Judgement::Fault(finding)
}

/// The part of the window in which the timer of the busiest vector ran.
fn busiest_timer(
    lines: &[&InterruptGrowth],
    delay_us: f64,
    evidence: &Evidence<'_>,
) -> Option<f64> {
    let most = lines.iter().map(|line| line.total()).max()?;
    Some(most as f64 * delay_us / 1e6 / evidence.window_s()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measures::fixture::{Fixture, is_near};

    fn host(delay_us: u32) -> Fixture {
        let text = format!("Adaptive RX: off  TX: off\nrx-usecs: {delay_us}\nrx-frames: 0\n");
        Fixture::new().fixed("ethtool_-c_eth0", &text)
    }

    const REQUESTS: [u64; 2] = [32_000, 4_000_000];

    #[test]
    fn long_delay_with_requests_is_found() {
        let lines: &[(&str, &[u64])] = &[("eth0-TxRx-0", &[32_000, 0])];
        let found = host(250).traffic(REQUESTS, REQUESTS).interrupts(lines).fault(&RULE);
        assert!(found.sentence.contains("for 250 us, while 3200 small packets"), "{found:?}");
        assert!(is_near(found.explains.latency_share, 0.8));
        assert_eq!(found.remedy.unwrap(), "latput set eth0 rx-usecs=8us --dry-run");
        assert_eq!(found.confidence, Confidence::Likely);
    }

    #[test]
    fn deferred_interrupts_need_no_ethtool() {
        let pair = |timeout: &str| {
            let pair = Fixture::new().traffic(REQUESTS, REQUESTS);
            pair.sysfs("napi_defer_hard_irqs", "100\n").sysfs("gro_flush_timeout", timeout)
        };
        let way = |segments: u32| {
            format!(
                "State Recv-Q Send-Q Local Peer\nESTAB 0 0 a:1 b:2\n\t rtt:1.1/1 segs_in:{segments}\n"
            )
        };
        let found = pair("1000000\n").grown("ss_-tin", &way(1), &way(9)).fault(&RULE);
        assert_eq!(found.remedy.unwrap(), "latput set eth0 gro-flush-timeout=0us --dry-run");
        pair("0\n").grown("ss_-tin", &way(1), &way(9)).assert_healthy(&RULE);
    }

    #[test]
    fn long_delay_with_bulk_is_silent() {
        host(250).traffic([900_000, 1_350_000_000], [1000, 66_000]).assert_healthy(&RULE);
        host(250).traffic([0, 0], [0, 0]).assert_healthy(&RULE);
        host(50).traffic(REQUESTS, REQUESTS).assert_healthy(&RULE);
        let long_way = "State Recv-Q Send-Q Local Peer\nESTAB 0 0 a:1 b:2\n\t rtt:30/1 segs_in:";
        let [then, now] = [1, 9].map(|segments| format!("{long_way}{segments}\n"));
        host(250).traffic(REQUESTS, REQUESTS).grown("ss_-tin", &then, &now).assert_healthy(&RULE);
    }

    #[test]
    fn missing_settings_are_unseen() {
        Fixture::new().traffic(REQUESTS, REQUESTS).assert_unseen(&RULE, EvidenceSource::Settings);
    }
}
