//! `lro-forwarding`: the card joins packets that this host passes on.

use crate::evidence::Evidence;
use crate::finding::{Confidence, Finding, Judgement, Rule};
use crate::measures::losses::is_harm;
use crate::measures::traffic::InterfaceTraffic;
use crate::source::EvidenceSource;

/// The part of the received packets that is passed on where forwarding is what the host does.
const LEAST_FORWARDED: f64 = 0.01;

/// The row.
pub(crate) const RULE: Rule = Rule {
    id: "lro-forwarding",
    subject: "LRO of a host that forwards",
    mechanism: "LRO joins packets so that they cannot be cut again as they were; passed on, they are larger than the next \
                link's MTU, and are dropped or answered with `fragmentation needed`.",
    judge,
};

fn judge(rule: &Rule, evidence: &Evidence<'_>) -> Judgement {
    let Some(lro) = evidence.ethtool("-k", "large-receive-offload") else {
        return Judgement::Unseen(EvidenceSource::Settings);
    };
    let traffic = InterfaceTraffic::from_evidence(evidence);
    if !lro.starts_with("on") || traffic.is_idle() {
        return Judgement::Healthy;
    }
    let is_port = evidence.sysfs("brport/state").is_some();
    let Some(forwarded) = evidence.protocol("Ip.ForwDatagrams") else {
        return if is_port {
            Judgement::Healthy
        } else {
            Judgement::Unseen(EvidenceSource::Protocols)
        };
    };
    let count = |name: &str| evidence.protocol(name).unwrap_or(0);
    // "Fragmentation needed" is told in the same counter as "port unreachable": the kernel's own count comes first.
    let failed = count("Ip.FragFails");
    let received = traffic.received.unwrap_or(0);
    let mtu = evidence.sysfs("mtu").and_then(|text| text.parse::<f64>().ok());
    let mean = traffic.mean_received_bytes();
    let is_joined = mean.zip(mtu).is_some_and(|(mean, mtu)| mean > mtu + 18.0);
    let forwards = forwarded as f64 >= LEAST_FORWARDED * received as f64 && forwarded > 0;
    let is_failing = is_harm(failed, Some(forwarded));
    if !(forwards && (is_failing || is_joined)) {
        return Judgement::Healthy;
    }
    let effect = match (is_failing, mean) {
        (true, _) => format!("{failed} of them were too large for the next link"),
        (false, Some(mean)) => format!("a received packet has {mean:.0} bytes, more than the MTU"),
        (false, None) => "joined packets arrive".to_owned(),
    };
    let sentence =
        format!("large-receive-offload is on and {forwarded} packets were passed on: {effect}");
    let confidence = if is_failing { Confidence::Certain } else { Confidence::Hint };
    let mut finding = Finding::new(rule, confidence, sentence)
        .with("forwarded", forwarded)
        .with("fragmentation_failures", failed)
        .with_change(evidence, "lro=off");
    if is_failing {
        // Of what was to be forwarded; the joined packets have several segments each.
        let lost = failed as f64 / (forwarded + failed) as f64;
        finding = finding.with("lost_share", lost).explaining_loss(lost);
    }
    Judgement::Fault(finding)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measures::fixture::{Fixture, is_near};

    const TRAFFIC: [u64; 2] = [500_000, 500_000_000];

    fn host(lro: &str, forwarded: u64, failed: u64) -> Fixture {
        let features = format!("Features for eth0:\nlarge-receive-offload: {lro}\n");
        Fixture::new().traffic(TRAFFIC, TRAFFIC).fixed("ethtool_-k_eth0", &features).protocols(
            "snmp",
            "Ip",
            &[("ForwDatagrams", forwarded), ("FragFails", failed)],
        )
    }

    #[test]
    fn joined_packets_that_fail_are_found() {
        let found = host("on", 400_000, 9000).fault(&RULE);
        assert!(
            found.sentence.ends_with("9000 of them were too large for the next link"),
            "{found:?}"
        );
        assert!(is_near(found.explains.loss_share, 9.0 / 409.0));
        assert_eq!(found.remedy.unwrap(), "latput set eth0 lro=off --dry-run");
    }

    #[test]
    fn lro_without_forwarding_is_silent() {
        host("off [fixed]", 400_000, 9000).assert_healthy(&RULE);
        host("on", 0, 0).assert_healthy(&RULE);
        host("on", 400_000, 0).assert_healthy(&RULE);
        let unseen = Fixture::new().traffic(TRAFFIC, TRAFFIC);
        unseen.assert_unseen(&RULE, EvidenceSource::Settings);
    }
}
