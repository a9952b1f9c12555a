//! The summarising claims.

use super::curve::{BEST, max_value, never_rises};
use super::{BUSY, ClaimChecker, ClaimVerdict, RATE, SWEEP, make_verdict};
use crate::delay_mtu::{MTUS, SweepTraffic};

impl ClaimChecker<'_> {
    pub(super) fn check_summary(&self) -> Vec<ClaimVerdict> {
        const FLOWS: [SweepTraffic; 4] =
            [SweepTraffic::Udp10, SweepTraffic::Tcp10, SweepTraffic::Tcp3, SweepTraffic::Nfs];
        let fine = |flow: &SweepTraffic| {
            let delay = match flow {
                SweepTraffic::Udp10 | SweepTraffic::Tcp10 => SWEEP,
                SweepTraffic::Tcp3 => 320,
                SweepTraffic::Nfs | SweepTraffic::NfsSlowDisk => 40,
            };
            MTUS.windows(2).all(|pair| {
                let [small, large] =
                    [pair[0], pair[1]].map(|mtu| self.result_at_delay(*flow, mtu, delay));
                large.goodput_mbps >= 0.995 * small.goodput_mbps
                    && large.busy_us_per_mb <= small.busy_us_per_mb
            })
        };
        let falls = |flow: &SweepTraffic| {
            MTUS.iter().all(|mtu| never_rises(&self.figure_by_delay(*flow, *mtu, SWEEP, BUSY), 0.5))
        };
        let named = |is_good: &dyn Fn(&SweepTraffic) -> bool| {
            let bad: Vec<String> = FLOWS
                .iter()
                .filter(|flow| !is_good(flow))
                .map(|flow| format!("{flow:?}"))
                .collect();
            if bad.is_empty() { String::from("none") } else { bad.join(", ") }
        };
        let kept = |flow: SweepTraffic, end: u64| {
            let curve = self.figure_by_delay(flow, 1_500, end, RATE);
            curve.last().map_or(0.0, |last| last.1) / max_value(&curve)
        };
        let (udp, tcp3, nfs) = (
            kept(SweepTraffic::Udp10, 2_000),
            kept(SweepTraffic::Tcp3, 2_000),
            kept(SweepTraffic::Nfs, 960),
        );
        vec![
            make_verdict(
                "T105",
                "no load loses rate or needs more CPU for a MB, at the longest delay that costs it nothing by the slides (640, 320, 40)",
                format!("loads that do: {}", named(&fine)),
                FLOWS.iter().all(fine),
            ),
            make_verdict(
                "T106",
                "no load's CPU share rises by half a point",
                format!("loads that do: {}", named(&falls)),
                FLOWS.iter().all(falls),
            ),
            make_verdict(
                "T107",
                "some loads lose half of their rate, another nothing",
                format!(
                    "kept at their longest delay: UDP {:.0}%, three TCP {:.0}%, NFS {:.0}%",
                    100.0 * udp,
                    100.0 * tcp3,
                    100.0 * nfs
                ),
                udp > BEST && tcp3 < 0.5 && nfs < 0.5,
            ),
        ]
    }
}
