//! `pcie-limit`: the card's slot carries less than the card could.

use crate::evidence::Evidence;
use crate::finding::{Confidence, Finding, Judgement, Rule};
use crate::measures::losses::{count_port_discards, is_harm, loss_rate};
use crate::measures::traffic::InterfaceTraffic;
use crate::source::EvidenceSource;

/// Above this part of a slot's bits a second packets wait: headers of the bus and descriptors take 15 to 25% of them.
const NARROW: f64 = 0.6;

/// The row.
pub(crate) const RULE: Rule = Rule {
    id: "pcie-limit",
    subject: "the card's slot",
    mechanism: "The PCIe link of the card runs with fewer lanes or at a lower speed than the card has, so that packets wait in \
                its buffer, and are dropped there while CPUs idle.",
    judge,
};

/// The link of a slot.
#[derive(Clone, Copy, Debug, PartialEq)]
struct SlotLink {
    giga_transfers: f64,
    lanes: f64,
}

impl SlotLink {
    /// Reads `8.0 GT/s PCIe` and `16`.
    fn from_texts(speed: &str, width: &str) -> Option<Self> {
        let giga_transfers = speed.split_whitespace().next()?.parse().ok()?;
        let lanes = width.trim_start_matches('x').parse().ok()?;
        (giga_transfers > 0.0 && lanes > 0.0).then_some(Self { giga_transfers, lanes })
    }

    /// Bits a second in one direction, after the line code: 8 of 10 bits up to 5 GT/s, 128 of 130 above.
    fn bits_per_s(self) -> f64 {
        let code = if self.giga_transfers <= 5.0 { 0.8 } else { 128.0 / 130.0 };
        self.giga_transfers * 1e9 * self.lanes * code
    }

    fn describe(self) -> String {
        format!("{} lanes at {:.1} GT/s", self.lanes, self.giga_transfers)
    }
}

fn judge(rule: &Rule, evidence: &Evidence<'_>) -> Judgement {
    let link = |of: &str| {
        let text = |what: &str| evidence.sysfs(&format!("device/{of}_link_{what}"));
        SlotLink::from_texts(text("speed")?, text("width")?)
    };
    let (Some(now), Some(most)) = (link("current"), link("max")) else {
        return Judgement::Unseen(EvidenceSource::Slot);
    };
    let traffic = InterfaceTraffic::from_evidence(evidence);
    let discards = count_port_discards(evidence).unwrap_or(0);
    let loses = is_harm(discards, traffic.received);
    let used = traffic.bits_per_s().map(|rate| rate / now.bits_per_s());
    let wire = evidence.link_speed_mbit();
    // A card in an older slot is no fault where the slot carries the link.
    let is_narrow = wire.is_none_or(|speed| now.bits_per_s() * 0.85 < speed * 1e6);
    let is_below = now.bits_per_s() < most.bits_per_s() * 0.99;
    let is_used = used.is_some_and(|used| used >= NARROW);
    if !is_narrow || traffic.is_idle() || !(is_used || loses) || !is_below {
        return Judgement::Healthy;
    }
    let use_words = used.map(|used| format!("; {:.0}% of it is in use", used * 100.0));
    let loss_words = if loses {
        format!("; {discards} packets were dropped in the card's buffer")
    } else {
        String::new()
    };
    let sentence = format!(
        "the card's slot has {} ({:.1} Gbit/s), the card could {}{}{loss_words}",
        now.describe(),
        now.bits_per_s() / 1e9,
        most.describe(),
        use_words.unwrap_or_default()
    );
    let mut finding = Finding::new(rule, Confidence::Likely, sentence)
        .with("slot_bits_per_s", now.bits_per_s())
        .with("card_bits_per_s", most.bits_per_s())
        .with("port_discards", discards)
        .with_remedy(
            "seat the card again, or in a slot with all lanes (lspci -vv: LnkCap and LnkSta); a bifurcated slot or a riser is set \
             in the firmware",
        );
    if let Some(used) = used {
        // As in a queue of one server: of the time in it, the part that it is busy is waiting.
        finding = finding.with("used_share", used).explaining_latency(used);
    }
    if loses {
        finding = finding.explaining_loss(loss_rate(evidence, discards));
    }
    Judgement::Fault(finding)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measures::fixture::{Fixture, is_near};

    fn host(width: &str, bytes: u64) -> Fixture {
        Fixture::new()
            .traffic([bytes / 1500, bytes], [9, 900])
            .sysfs("speed", "40000\n")
            .sysfs("device/current_link_speed", "8.0 GT/s PCIe\n")
            .sysfs("device/current_link_width", width)
            .sysfs("device/max_link_speed", "8.0 GT/s PCIe\n")
            .sysfs("device/max_link_width", "8\n")
    }

    #[test]
    fn narrow_slot_in_use_is_found() {
        let found = host("2\n", 15_000_000_000).fault(&RULE);
        assert!(found.sentence.contains("2 lanes at 8.0 GT/s (15.8 Gbit/s)"), "{found:?}");
        assert!(is_near(found.explains.latency_share, 12.0 / 15.7538));
        let losing = host("2\n", 1_500_000_000).driver(&[("rx_discards_phy", 9000)]).fault(&RULE);
        assert!(is_near(losing.explains.loss_share, 9.0 / 1009.0));
    }

    #[test]
    fn slot_that_suffices_is_silent() {
        host("2\n", 1_500_000_000).assert_healthy(&RULE);
        host("8\n", 45_000_000_000).assert_healthy(&RULE);
        host("2\n", 15_000_000_000).sysfs("speed", "10000\n").assert_healthy(&RULE);
        Fixture::new().traffic([9, 900], [9, 900]).assert_unseen(&RULE, EvidenceSource::Slot);
    }
}
