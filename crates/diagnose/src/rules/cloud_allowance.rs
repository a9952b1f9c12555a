//! `cloud-allowance`: the cloud holds packets back because the machine has used up its share.

use crate::evidence::Evidence;
use crate::finding::{Confidence, Finding, Judgement, Rule};
use crate::measures::losses::is_harm;
use crate::measures::traffic::InterfaceTraffic;
use crate::source::EvidenceSource;

/// Allowances of the ena driver and their limits in words.
const ALLOWANCES: [(&str, &str); 5] = [
    ("bw_in_allowance_exceeded", "bandwidth in"),
    ("bw_out_allowance_exceeded", "bandwidth out"),
    ("pps_allowance_exceeded", "packets per second"),
    ("conntrack_allowance_exceeded", "tracked connections"),
    ("linklocal_allowance_exceeded", "packets per second to DNS, time and metadata"),
];

/// Packets beyond these cost a connection or a look-up a timeout each.
const COSTLY: [&str; 2] = ["conntrack_allowance_exceeded", "linklocal_allowance_exceeded"];
/// The fewest of those that are harm.
const LEAST_COSTLY: u64 = 10;

/// The row.
pub(crate) const RULE: Rule = Rule {
    id: "cloud-allowance",
    subject: "allowances of the cloud",
    mechanism: "The cloud shapes each machine to the share of its type: packets above it wait in its hypervisor or are dropped, \
                which no counter of the kernel shows.",
    judge,
};

fn judge(rule: &Rule, evidence: &Evidence<'_>) -> Judgement {
    let grown = ALLOWANCES.map(|(name, words)| evidence.driver(&[name]).map(|by| (by, words)));
    if grown.iter().all(Option::is_none) {
        return Judgement::Unseen(EvidenceSource::Driver);
    }
    let traffic = InterfaceTraffic::from_evidence(evidence);
    let exceeded: u64 = grown.iter().flatten().map(|(by, _)| by).sum();
    let worst = grown.into_iter().flatten().max_by_key(|(by, _)| *by);
    let costly = evidence.driver(&COSTLY).unwrap_or(0);
    let is_felt =
        (is_harm(exceeded, traffic.packets()) || costly >= LEAST_COSTLY) && !traffic.is_idle();
    let Some((most, words)) = worst.filter(|_| is_felt) else { return Judgement::Healthy };
    let packets = traffic.packets().unwrap_or(0) + exceeded;
    let rate = exceeded as f64 / packets.max(1) as f64;
    let sentence = format!(
        "the cloud held back or dropped {exceeded} packets beyond the machine's allowance, {most} for {words}"
    );
    Judgement::Fault(
        Finding::new(rule, Confidence::Certain, sentence)
            .with("exceeded_packets", exceeded)
            .with("limit", words)
            .explaining_loss(rate)
            .with_remedy(
                "a larger type of machine, or fewer and larger packets (MTU 9001 inside the network); no setting of this host",
            ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measures::fixture::{Fixture, is_near};

    const TRAFFIC: [u64; 2] = [1_000_000, 100_000_000];

    fn host(exceeded: u64) -> Fixture {
        let counters = [
            ("bw_in_allowance_exceeded", 10),
            ("pps_allowance_exceeded", exceeded),
            ("conntrack_allowance_available", 0),
        ];
        Fixture::new().traffic(TRAFFIC, TRAFFIC).driver(&counters)
    }

    #[test]
    fn exceeded_allowance_names_its_limit() {
        let found = host(40_000).fault(&RULE);
        assert!(found.sentence.ends_with("40000 for packets per second"), "{found:?}");
        assert!(is_near(found.explains.loss_share, 0.0196));
    }

    #[test]
    fn few_or_old_excesses_are_silent() {
        host(0).assert_healthy(&RULE);
        host(90).assert_healthy(&RULE);
        let other = Fixture::new().traffic(TRAFFIC, TRAFFIC).driver(&[("rx_drops", 9)]);
        other.assert_unseen(&RULE, EvidenceSource::Driver);
    }
}
