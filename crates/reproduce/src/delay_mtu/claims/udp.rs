//! Claims on the line, its losses and disks, and on datagrams of ten senders.

use super::curve::{
    KEPT, find_cheapest_delay, find_plateau, is_near, max_value, min_value, never_rises,
};
use super::{BUSY, ClaimChecker, ClaimVerdict, RATE, SWEEP, format_by_mtu, make_verdict};
use crate::delay_mtu::{MTUS, SweepTraffic};

impl ClaimChecker<'_> {
    /// Arrival rate, losses, disks.
    pub(super) fn check_arrivals_and_losses(&self) -> Vec<ClaimVerdict> {
        let rate = max_value(
            &self.figure_by_delay(SweepTraffic::Udp10, 1_500, SWEEP, |seen| seen.frames_per_s),
        );
        let published = self.published.claimed_value("T006");
        let lost = |flow: SweepTraffic| -> u64 {
            let of = |mtu: &u64| -> f64 {
                let curve = self.figure_by_delay(flow, *mtu, SWEEP, |seen| seen.lost as f64);
                curve.iter().map(|point| point.1).sum()
            };
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
            let lost = MTUS.iter().map(of).sum::<f64>() as u64;
            lost
        };
        let (udp, tcp) = (lost(SweepTraffic::Udp10), lost(SweepTraffic::Tcp10));
        let fast = self.result_at_delay(SweepTraffic::Nfs, 1_500, 40).link_mbps;
        let slow = self.result_at_delay(SweepTraffic::NfsSlowDisk, 1_500, 40).link_mbps;
        let none = "none in the slides' sweep";
        vec![
            make_verdict(
                "T006",
                format!("within 1% of {published}"),
                format!("{rate:.0}"),
                (rate / published - 1.0).abs() < 0.01,
            ),
            make_verdict("T043", none, udp.to_string(), udp == 0),
            make_verdict("T048", none, tcp.to_string(), tcp == 0),
            make_verdict(
                "T055",
                "servers that take twice as long give less",
                format!("{fast:.0} and {slow:.0} Mbit/s"),
                slow < KEPT * fast,
            ),
        ]
    }

    /// Claims on datagrams.
    pub(super) fn check_udp(&self) -> Vec<ClaimVerdict> {
        let rate = |mtu| self.figure_by_delay(SweepTraffic::Udp10, mtu, 2_000, RATE);
        let by = self.published.claimed_value("T058");
        let reached = MTUS.iter().all(|mtu| find_plateau(&rate(*mtu)).0 as f64 <= by);
        let busy = |mtu| self.figure_by_delay(SweepTraffic::Udp10, mtu, 2_800, BUSY);
        let until = self.published.claimed_value("T059");
        let falls = MTUS.iter().all(|mtu| never_rises(&busy(*mtu), 0.3));
        let harmed =
            MTUS.iter().any(|mtu| rate(*mtu).windows(2).any(|pair| pair[1].1 < 0.995 * pair[0].1));
        let cpu = |mtu, delay| self.result_at_delay(SweepTraffic::Udp10, mtu, delay).busy_us_per_mb;
        let quadrupled = [10, 20, 40, 80, 160].map(|delay| {
            let from = cpu(1_500, delay);
            (from - cpu(6_000, delay), from - cpu(1_500, 4 * delay))
        });
        let given = |mtu, delay| self.result_at_delay(SweepTraffic::Udp10, mtu, delay).goodput_mbps;
        let (size_gain, delay_gain) =
            (given(6_000, 10) - given(1_500, 10), given(1_500, 640) - given(1_500, 10));
        vec![
            make_verdict(
                "T058",
                format!("99.7% of the best by {by} units"),
                format_by_mtu(&MTUS, |mtu| find_plateau(&rate(mtu)).0.to_string()),
                reached,
            ),
            make_verdict(
                "T059",
                format!("never rises; least within a factor of two of {until} at MTU 1500"),
                format!("least from {}", find_cheapest_delay(&busy(1_500))),
                falls && is_near(find_cheapest_delay(&busy(1_500)), until),
            ),
            make_verdict(
                "T060",
                "no longer delay has less",
                format_by_mtu(&MTUS, |mtu| {
                    format!("{:.1} to {:.1} Mbit/s", min_value(&rate(mtu)), max_value(&rate(mtu)))
                }),
                !harmed,
            ),
            make_verdict(
                "T061",
                "four times the MTU saves more CPU than four times the delay, and gives more payload",
                format!(
                    "saved {:.0} and {:.0} us/MB at 10, {:.0} and {:.0} at 160; gained {size_gain:.1} and \
                     {delay_gain:.1} Mbit/s",
                    quadrupled[0].0, quadrupled[0].1, quadrupled[4].0, quadrupled[4].1
                ),
                quadrupled.iter().all(|it| it.0 > it.1) && size_gain > delay_gain,
            ),
        ]
    }
}
