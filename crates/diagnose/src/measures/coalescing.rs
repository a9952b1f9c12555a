//! How long an interrupt may be held back.

use crate::evidence::Evidence;
use crate::parse::settings::{Settings, parse_settings};

/// CPU time of an interrupt, in microseconds: handler, softirq, and the way back to the program. The model of a quiet lab
/// has 2.2 (docs/model.md); in a guest it is more.
pub(crate) const INTERRUPT_US: f64 = 2.0;

/// The receive moderation that `ethtool -c` prints, and that of NAPI.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct ReceiveModeration {
    pub(crate) is_adaptive: bool,
    /// `rx-usecs`; `None` where the driver has none.
    pub(crate) delay_us: Option<f64>,
    /// `rx-frames`; 0 is without.
    pub(crate) frames: f64,
    pub(crate) sent_delay_us: Option<f64>,
    pub(crate) sent_frames: f64,
    /// `gro_flush_timeout` where interrupts are deferred.
    pub(crate) deferred_us: Option<f64>,
}

impl ReceiveModeration {
    /// The moderation at the end. A driver without `ethtool -c`, such as veth, has that of NAPI.
    pub(crate) fn from_evidence(evidence: &Evidence<'_>) -> Option<Self> {
        let number = |name: &str| evidence.sysfs(name)?.parse::<f64>().ok();
        let polls = number("napi_defer_hard_irqs");
        let by_card = evidence.settings("-c").map(|settings| Self::from_settings(&settings));
        let mut moderation = by_card.or_else(|| polls.map(|_| Self::default()))?;
        let is_deferred = polls.is_some_and(|polls| polls > 0.0);
        let timeout_ns =
            number("gro_flush_timeout").filter(|timeout| is_deferred && *timeout > 0.0);
        moderation.deferred_us = timeout_ns.map(|timeout| timeout / 1000.0);
        Some(moderation)
    }

    /// The moderation of either look, as ethtool printed it.
    pub(crate) fn from_looks(evidence: &Evidence<'_>) -> Option<[Self; 2]> {
        let name = format!("ethtool_-c_{}", evidence.interface_name());
        let [before, after] = evidence.looks().map(|look| parse_settings(look.text(&name)?));
        Some([Self::from_settings(&before?), Self::from_settings(&after?)])
    }

    fn from_settings(settings: &Settings) -> Self {
        let number = |name: &str| settings.get(name)?.parse::<f64>().ok();
        Self {
            is_adaptive: settings.get("Adaptive RX").is_some_and(|value| value == "on"),
            delay_us: number("rx-usecs"),
            frames: number("rx-frames").unwrap_or(0.0),
            sent_delay_us: number("tx-usecs"),
            sent_frames: number("tx-frames").unwrap_or(0.0),
            deferred_us: None,
        }
    }

    /// The knob that holds a lone packet back longest, with its microseconds; `None` where the driver decides.
    pub(crate) fn longest_wait(&self) -> Option<(&'static str, f64)> {
        let by_card = self.delay_us.filter(|_| !self.is_adaptive && !is_one(self.frames));
        let by_card = by_card.map(|delay| ("rx-usecs", delay));
        let deferred = self.deferred_us.map(|delay| ("gro-flush-timeout", delay));
        let candidates = [by_card, deferred].into_iter().flatten();
        candidates.max_by(|(_, one), (_, other)| one.total_cmp(other))
    }

    /// The most interrupts a second that a vector can have if the driver obeys, for so many packets a second; without packets
    /// that are sent it serves received ones only.
    pub(crate) fn most_interrupts_per_s(&self, received: f64, sent: Option<f64>) -> Option<f64> {
        let delay_us = self.delay_us.filter(|delay| *delay > 0.0 && !self.is_adaptive)?;
        let by_frames = |frames: f64, packets: f64| {
            if frames > 0.0 { packets / frames } else { 0.0 }
        };
        let of_sent = match (sent, self.sent_delay_us) {
            (None, _) => 0.0,
            // Completions have no delay.
            (Some(sent), Some(delay)) if delay <= 0.0 => sent,
            (Some(sent), Some(delay)) => 1e6 / delay + by_frames(self.sent_frames, sent),
            (Some(_), None) => 1e6 / delay_us,
        };
        Some(1e6 / delay_us + by_frames(self.frames, received) + of_sent)
    }
}

/// Whether each packet raises the interrupt at once.
fn is_one(frames: f64) -> bool {
    (frames - 1.0).abs() < f64::EPSILON
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measures::fixture::Fixture;

    fn moderation(text: &str, timeout_ns: &str) -> ReceiveModeration {
        let snapshot = Fixture::new()
            .fixed("ethtool_-c_eth0", text)
            .fixed("sys/class/net/eth0/napi_defer_hard_irqs", "2\n")
            .fixed("sys/class/net/eth0/gro_flush_timeout", timeout_ns)
            .into_snapshot();
        ReceiveModeration::from_evidence(&Evidence::from_snapshot(&snapshot)).unwrap()
    }

    #[test]
    fn longest_wait_is_of_card_or_napi() {
        let fixed = "Adaptive RX: off  TX: off\nrx-usecs: 100\nrx-frames: 0\n";
        assert_eq!(moderation(fixed, "0\n").longest_wait(), Some(("rx-usecs", 100.0)));
        assert_eq!(
            moderation(fixed, "200000\n").longest_wait(),
            Some(("gro-flush-timeout", 200.0))
        );
        let adaptive = "Adaptive RX: on  TX: on\nrx-usecs: 100\n";
        assert_eq!(moderation(adaptive, "0\n").longest_wait(), None);
        let single = "Adaptive RX: off  TX: off\nrx-usecs: 100\nrx-frames: 1\n";
        assert_eq!(moderation(single, "0\n").longest_wait(), None);
    }

    #[test]
    fn most_interrupts_follow_both_directions() {
        let text = "Adaptive RX: off  TX: off\nrx-usecs: 100\nrx-frames: 10\ntx-usecs: 0\n";
        let most = |sent| moderation(text, "0\n").most_interrupts_per_s(50_000.0, sent).unwrap();
        assert!((most(Some(3000.0)) - 18_000.0).abs() < 1e-6);
        assert!((most(None) - 15_000.0).abs() < 1e-6);
    }
}
