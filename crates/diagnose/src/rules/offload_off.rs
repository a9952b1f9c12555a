//! `offload-off`: bulk is handled packet by packet because an offload is off.

use crate::evidence::{CpuShares, Evidence};
use crate::finding::{Confidence, Finding, Judgement, Rule};
use crate::measures::cpus::{FULL, kernel_share, share_of_busy};
use crate::measures::traffic::InterfaceTraffic;
use crate::source::EvidenceSource;

/// Fewer packets a second cost less than 2% of a CPU.
const LEAST_PER_S: f64 = 20_000.0;
/// A mean packet that is larger than any frame of 9 KB was joined by the card or the hypervisor.
const JOINED_BYTES: f64 = 9200.0;

/// The row.
pub(crate) const RULE: Rule = Rule {
    id: "offload-off",
    subject: "offloads of bulk",
    mechanism: "Without this offload the kernel walks its whole stack, or touches each byte, for every packet of 1,500 bytes \
                in place of one of up to 64 KB.",
    judge,
};

/// An offload, as `ethtool -k` and latput name it, and the CPU time that a packet costs without it, in microseconds: a walk
/// through the stack about 1, the sum or copy of 1,500 bytes about 0.3.
struct Offload {
    feature: &'static str,
    /// The feature that the knob sets, where the one above is on as soon as any of several is.
    part: Option<&'static str>,
    knob: &'static str,
    is_received: bool,
    cost_us: f64,
}

const OFFLOADS: [Offload; 6] = [
    offload("generic-receive-offload", "gro", true, 1.0),
    offload("rx-checksumming", "rx-checksum", true, 0.3),
    Offload {
        part: Some("tx-tcp-segmentation"),
        ..offload("tcp-segmentation-offload", "tso", false, 0.5)
    },
    offload("generic-segmentation-offload", "gso", false, 1.0),
    offload("tx-checksumming", "tx-checksum", false, 0.3),
    offload("scatter-gather", "sg", false, 0.3),
];

const fn offload(
    feature: &'static str,
    knob: &'static str,
    is_received: bool,
    cost_us: f64,
) -> Offload {
    Offload { feature, part: None, knob, is_received, cost_us }
}

fn judge(rule: &Rule, evidence: &Evidence<'_>) -> Judgement {
    let Some(features) = evidence.settings("-k") else {
        return Judgement::Unseen(EvidenceSource::Settings);
    };
    let traffic = InterfaceTraffic::from_evidence(evidence);
    if !traffic.has_bytes() {
        return Judgement::Unseen(EvidenceSource::Interface);
    }
    let received = traffic.received_per_s().filter(|_| traffic.is_bulk_received());
    let sent = traffic.sent_per_s().filter(|_| traffic.is_bulk_sent());
    let is_large = |rate: &f64| *rate >= LEAST_PER_S;
    let (received, sent) = (received.filter(is_large), sent.filter(is_large));
    let is_joined = traffic.mean_received_bytes().is_some_and(|mean| mean > JOINED_BYTES);
    let matters = |offload: &&Offload| {
        let rate = if offload.is_received { received } else { sent };
        rate.is_some() && !(offload.is_received && is_joined)
    };
    // `off [fixed]` is the device's nature, and no setting: it is told beside another that is off.
    let is_off = |offload: &&Offload| {
        let own = offload.part.and_then(|part| features.get(part));
        own.or_else(|| features.get(offload.feature))
            .is_some_and(|value| value.starts_with("off") && !value.contains("[fixed]"))
    };
    let off: Vec<&Offload> = OFFLOADS.iter().filter(matters).filter(is_off).collect();
    if off.is_empty() {
        return Judgement::Healthy;
    }
    let names: Vec<&str> = off.iter().map(|offload| offload.feature).collect();
    let changes: Vec<String> = off.iter().map(|offload| format!("{}=on", offload.knob)).collect();
    let rate = received.unwrap_or(0.0) + sent.unwrap_or(0.0);
    let sentence = format!(
        "{} {} off, while {rate:.0} full packets a second are handled one by one",
        names.join(", "),
        if names.len() == 1 { "is" } else { "are" }
    );
    let cost_us: f64 = off
        .iter()
        .map(|offload| {
            let rate = if offload.is_received { received } else { sent };
            offload.cost_us * rate.unwrap_or(0.0)
        })
        .sum();
    let mut finding = Finding::new(rule, Confidence::Likely, sentence)
        .with("off", names.join(","))
        .with("packets_per_s", rate)
        .with_change(evidence, &changes.join(" "));
    let window = evidence.window_s().unwrap_or_default();
    if let Some(share) = share_of_busy(evidence, cost_us / 1e6 * window) {
        finding = finding.explaining_cpu(share);
        if is_busy_with_packets(evidence) {
            // Packets wait for that CPU, and this part of its time need not be.
            finding = finding.explaining_latency(share);
        }
    }
    Judgement::Fault(finding)
}

/// Whether a CPU has no time left, and most of it goes to the kernel's work for packets.
fn is_busy_with_packets(evidence: &Evidence<'_>) -> bool {
    let is_full = |shares: &CpuShares| shares.busy() >= FULL && kernel_share(shares) >= FULL / 2.0;
    evidence.cpus().is_some_and(|cpus| cpus.values().any(is_full))
}

/// Whether it is found, so that a CPU that is full may be full because of it.
pub(crate) fn is_fault(evidence: &Evidence<'_>) -> bool {
    matches!(judge(&RULE, evidence), Judgement::Fault(_))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measures::fixture::{Fixture, is_near};

    const BULK: [u64; 2] = [800_000, 1_200_000_000];
    const ACKNOWLEDGEMENTS: [u64; 2] = [400_000, 26_400_000];

    fn host(gro: &str, tso: &str) -> Fixture {
        let text = format!(
            "Features for eth0:\nrx-checksumming: off [fixed]\ntx-checksumming: on\nscatter-gather: on\n\
             tcp-segmentation-offload: {tso}\ngeneric-segmentation-offload: on\ngeneric-receive-offload: {gro}\n"
        );
        Fixture::new().fixed("ethtool_-k_eth0", &text).cpus(&[[20, 20, 10, 50, 0], [0; 5]])
    }

    #[test]
    fn bulk_without_gro_is_found() {
        let found = host("off", "off").traffic(BULK, ACKNOWLEDGEMENTS).fault(&RULE);
        let expected = "generic-receive-offload is off, while 80000 full packets a second are handled one by one";
        assert_eq!(found.sentence, expected);
        assert!(is_near(found.explains.cpu_share, 0.08));
        assert_eq!(found.remedy.unwrap(), "latput set eth0 gro=on --dry-run");
    }

    #[test]
    fn sender_without_tso_is_found() {
        let found = host("off", "off").traffic(ACKNOWLEDGEMENTS, BULK).fault(&RULE);
        assert_eq!(found.remedy.unwrap(), "latput set eth0 tso=on --dry-run");
    }

    #[test]
    fn group_that_is_on_hides_no_part() {
        let text = "Features for eth0:\ntcp-segmentation-offload: on\n\ttx-tcp-segmentation: off\n\t\
                    tx-tcp-accecn-segmentation: on\ngeneric-segmentation-offload: off\n";
        let looks = Fixture::new().fixed("ethtool_-k_eth0", text).cpus(&[[20, 20, 10, 50, 0]]);
        let found = looks.traffic(ACKNOWLEDGEMENTS, BULK).fault(&RULE);
        assert_eq!(found.remedy.unwrap(), "latput set eth0 tso=on gso=on --dry-run");
    }

    #[test]
    fn offloads_that_do_nothing_are_silent() {
        host("on", "on").traffic(BULK, BULK).assert_healthy(&RULE);
        host("off", "off").traffic(ACKNOWLEDGEMENTS, ACKNOWLEDGEMENTS).assert_healthy(&RULE);
        host("off", "on").traffic([400_000, 8_000_000_000], [9, 900]).assert_healthy(&RULE);
        host("off [fixed]", "off [fixed]").traffic(BULK, BULK).assert_healthy(&RULE);
        Fixture::new().traffic(BULK, BULK).assert_unseen(&RULE, EvidenceSource::Settings);
    }
}
