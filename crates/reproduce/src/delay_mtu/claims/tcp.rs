//! Claims on TCP: ten slow senders and three fast ones.

use super::curve::{
    BEST, find_cheapest_delay, find_loss_onset, find_plateau, is_near, is_range_near, max_value,
    min_value, value_at,
};
use super::{
    BUSY, CPU, ClaimChecker, ClaimVerdict, Curve, LARGE, RATE, SWEEP, format_by_mtu, format_delay,
    make_verdict,
};
use crate::delay_mtu::{MTUS, SweepModeration, SweepResult, SweepTraffic};

impl ClaimChecker<'_> {
    fn ten_sender_curve(&self, mtu: u64) -> Curve {
        self.figure_by_delay(SweepTraffic::Tcp10, mtu, 4_000, RATE)
    }

    fn ten_sender_result(&self, mtu: u64) -> &SweepResult {
        self.result_at_delay(SweepTraffic::Tcp10, mtu, SWEEP)
    }

    /// Claims on the rates of ten senders.
    pub(super) fn check_ten_sender_rates(&self) -> Vec<ClaimVerdict> {
        let share = |flow| {
            let curve = self.figure_by_delay(flow, 1_500, SWEEP, RATE);
            value_at(&curve, 10) / max_value(&curve)
        };
        let (tcp, udp) = (share(SweepTraffic::Tcp10), share(SweepTraffic::Udp10));
        let number = |id| self.published.claimed_value(id);
        let link = |mtu| max_value(&self.ten_sender_curve(mtu));
        let near = |id, mtus: &[u64], told: &dyn Fn(u64) -> (u64, u64)| {
            let published = number(id);
            make_verdict(
                id,
                format!("99.7% of the best within a factor of two of {published}"),
                format_by_mtu(mtus, |mtu| format!("{} to {}", told(mtu).0, told(mtu).1)),
                mtus.iter().all(|mtu| is_range_near(told(*mtu), published)),
            )
        };
        let best = |mtu| find_plateau(&self.ten_sender_curve(mtu));
        vec![
            make_verdict(
                "T062",
                "a share of the best at delay 10 of less than 99.7% of UDP's, MTU 1500",
                format!("{:.1}% and {:.1}%", 100.0 * tcp, 100.0 * udp),
                tcp < BEST * udp,
            ),
            make_verdict(
                "T064",
                "more than 993 with the largest MTU",
                format_by_mtu(&LARGE, |mtu| format!("{:.1}", link(mtu))),
                link(6_000) > number("T064"),
            ),
            make_verdict(
                "T065",
                "within 1% of 970 with MTU 1500, less than with the large ones",
                format!("{:.1}", link(1_500)),
                (link(1_500) / number("T065") - 1.0).abs() <= 0.01
                    && LARGE.iter().all(|mtu| link(1_500) < link(*mtu)),
            ),
            near("T066", &LARGE, &best),
            near("T067", &MTUS[..1], &best),
        ]
    }

    /// Claims on their CPU, acknowledgements and loss by delay.
    pub(super) fn check_ten_sender_delays(&self) -> Vec<ClaimVerdict> {
        let number = |id| self.published.claimed_value(id);
        let busy = |mtu| self.figure_by_delay(SweepTraffic::Tcp10, mtu, SWEEP, BUSY);
        let spot = |delay: u64| {
            [SweepTraffic::Udp10, SweepTraffic::Tcp10].iter().all(|flow| {
                MTUS.iter().all(|mtu| {
                    let rate = self.figure_by_delay(*flow, *mtu, SWEEP, RATE);
                    let cpu = self.figure_by_delay(*flow, *mtu, SWEEP, CPU);
                    value_at(&rate, delay) >= 0.97 * max_value(&rate)
                        && value_at(&cpu, delay) <= 1.05 * min_value(&cpu)
                })
            })
        };
        let spots: Vec<u64> = [320, 480, 640].into_iter().filter(|delay| spot(*delay)).collect();
        let decay = number("T078");
        let acks = self.ten_sender_result(1_500).packets_per_ack;
        vec![
            make_verdict(
                "T063",
                "least within a factor of two of 480",
                format_by_mtu(&MTUS, |mtu| find_cheapest_delay(&busy(mtu)).to_string()),
                MTUS.iter().all(|mtu| is_near(find_cheapest_delay(&busy(*mtu)), number("T063"))),
            ),
            make_verdict(
                "T068",
                "97% of the best rate and within 5% of the least CPU, both loads, within a factor of two of 640",
                format!("{spots:?}"),
                !spots.is_empty(),
            ),
            make_verdict(
                "T078",
                "a twentieth lost within a factor of two of 2000",
                format_by_mtu(&MTUS, |mtu| {
                    format_delay(find_loss_onset(&self.ten_sender_curve(mtu)))
                }),
                MTUS.iter().all(|mtu| {
                    find_loss_onset(&self.ten_sender_curve(*mtu))
                        .is_some_and(|at| is_near(at, decay))
                }),
            ),
            make_verdict(
                "T081",
                "5 or 6 packets to an acknowledgement at 640 and MTU 1500",
                format!("{acks:.1}"),
                (4.5..6.5).contains(&acks),
            ),
        ]
    }

    /// The driver's dynamic mode beside the delay of 640 units.
    pub(super) fn check_dynamic_mode(&self) -> Vec<ClaimVerdict> {
        let dynamic =
            |mtu| self.sweep.find_result(SweepTraffic::Tcp10, mtu, SweepModeration::Dynamic);
        let pair = |figure: fn(&SweepResult) -> f64| {
            format_by_mtu(&MTUS, |mtu| {
                format!("{:.1}, {:.1}", figure(dynamic(mtu)), figure(self.ten_sender_result(mtu)))
            })
        };
        vec![
            make_verdict(
                "T108",
                "less than 99.7% of that at 640, every MTU",
                pair(RATE),
                MTUS.iter().all(|mtu| {
                    dynamic(*mtu).link_mbps < BEST * self.ten_sender_result(*mtu).link_mbps
                }),
            ),
            make_verdict(
                "T109",
                "higher than at 640, every MTU",
                pair(BUSY),
                MTUS.iter().all(|mtu| {
                    dynamic(*mtu).busy_percent > self.ten_sender_result(*mtu).busy_percent
                }),
            ),
        ]
    }

    /// Claims on three senders.
    pub(super) fn check_three_senders(&self) -> Vec<ClaimVerdict> {
        let rate = |mtu| self.figure_by_delay(SweepTraffic::Tcp3, mtu, 2_000, RATE);
        let (decay, good) =
            (self.published.claimed_value("T077"), self.published.claimed_value("T079"));
        let cpu = |mtu| {
            let curve = self.figure_by_delay(SweepTraffic::Tcp3, mtu, 960, CPU);
            value_at(&curve, 480) / min_value(&curve)
        };
        let kept = |mtu| value_at(&rate(mtu), 480) / max_value(&rate(mtu));
        let narrower = |mtu: &u64| {
            find_loss_onset(&rate(*mtu)).unwrap_or(u64::MAX)
                < find_loss_onset(&self.ten_sender_curve(*mtu)).unwrap_or(u64::MAX)
        };
        vec![
            make_verdict(
                "T076",
                "its loss begins sooner",
                format_by_mtu(&MTUS, |mtu| {
                    format!(
                        "{} and {}",
                        format_delay(find_loss_onset(&rate(mtu))),
                        format_delay(find_loss_onset(&self.ten_sender_curve(mtu)))
                    )
                }),
                MTUS.iter().all(narrower),
            ),
            make_verdict(
                "T077",
                "a twentieth lost within a factor of two of 320",
                format_by_mtu(&MTUS, |mtu| format_delay(find_loss_onset(&rate(mtu)))),
                MTUS.iter()
                    .all(|mtu| find_loss_onset(&rate(*mtu)).is_some_and(|at| is_near(at, decay))),
            ),
            make_verdict(
                "T079",
                format!("CPU for a MB at {good} within 10% of the least"),
                format_by_mtu(&MTUS, |mtu| format!("{:+.1}%", 100.0 * (cpu(mtu) - 1.0))),
                MTUS.iter().all(|mtu| cpu(*mtu) <= 1.10),
            ),
            make_verdict(
                "T080",
                "at 480 still 85% of the best rate",
                format_by_mtu(&MTUS, |mtu| format!("{:.0}%", 100.0 * kept(mtu))),
                MTUS.iter().all(|mtu| kept(*mtu) >= 0.85 && cpu(*mtu) <= 1.10),
            ),
        ]
    }
}
