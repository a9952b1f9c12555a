//! Claims on TCP: ten slow senders and three fast ones.

use super::curve::{BEST, at, cheapest, is_near, least, most, onset, plateau, reaches};
use super::{BUSY, CPU, Curve, Ends, LARGE, RATE, SWEEP, Verdict, by_mtu, units, verdict};
use crate::delay_mtu::{MTUS, Moderation, SweepResult, SweepTraffic};

impl Ends<'_> {
    fn ten(&self, mtu: u64) -> Curve {
        self.curve(SweepTraffic::Tcp10, mtu, 4_000, RATE)
    }

    fn fixed(&self, mtu: u64) -> &SweepResult {
        self.delayed(SweepTraffic::Tcp10, mtu, SWEEP)
    }

    /// Claims on the rates of ten senders.
    pub(super) fn ten_rates(&self) -> Vec<Verdict> {
        let share = |flow| {
            let curve = self.curve(flow, 1_500, SWEEP, RATE);
            at(&curve, 10) / most(&curve)
        };
        let (tcp, udp) = (share(SweepTraffic::Tcp10), share(SweepTraffic::Udp10));
        let number = |id| self.published.number(id);
        let link = |mtu| most(&self.ten(mtu));
        let near = |id, mtus: &[u64], told: &dyn Fn(u64) -> (u64, u64)| {
            let published = number(id);
            verdict(
                id,
                format!("99.7% of the best within a factor of two of {published}"),
                by_mtu(mtus, |mtu| format!("{} to {}", told(mtu).0, told(mtu).1)),
                mtus.iter().all(|mtu| reaches(told(*mtu), published)),
            )
        };
        let best = |mtu| plateau(&self.ten(mtu));
        vec![
            verdict(
                "T062",
                "a share of the best at delay 10 of less than 99.7% of UDP's, MTU 1500",
                format!("{:.1}% and {:.1}%", 100.0 * tcp, 100.0 * udp),
                tcp < BEST * udp,
            ),
            verdict(
                "T064",
                "more than 993 with the largest MTU",
                by_mtu(&LARGE, |mtu| format!("{:.1}", link(mtu))),
                link(6_000) > number("T064"),
            ),
            verdict(
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
    pub(super) fn ten_delays(&self) -> Vec<Verdict> {
        let number = |id| self.published.number(id);
        let busy = |mtu| self.curve(SweepTraffic::Tcp10, mtu, SWEEP, BUSY);
        let spot = |delay: u64| {
            [SweepTraffic::Udp10, SweepTraffic::Tcp10].iter().all(|flow| {
                MTUS.iter().all(|mtu| {
                    let rate = self.curve(*flow, *mtu, SWEEP, RATE);
                    let cpu = self.curve(*flow, *mtu, SWEEP, CPU);
                    at(&rate, delay) >= 0.97 * most(&rate) && at(&cpu, delay) <= 1.05 * least(&cpu)
                })
            })
        };
        let spots: Vec<u64> = [320, 480, 640].into_iter().filter(|delay| spot(*delay)).collect();
        let decay = number("T078");
        let acks = self.fixed(1_500).packets_per_ack;
        vec![
            verdict(
                "T063",
                "least within a factor of two of 480",
                by_mtu(&MTUS, |mtu| cheapest(&busy(mtu)).to_string()),
                MTUS.iter().all(|mtu| is_near(cheapest(&busy(*mtu)), number("T063"))),
            ),
            verdict(
                "T068",
                "97% of the best rate and within 5% of the least CPU, both loads, within a factor of two of 640",
                format!("{spots:?}"),
                !spots.is_empty(),
            ),
            verdict(
                "T078",
                "a twentieth lost within a factor of two of 2000",
                by_mtu(&MTUS, |mtu| units(onset(&self.ten(mtu)))),
                MTUS.iter().all(|mtu| onset(&self.ten(*mtu)).is_some_and(|at| is_near(at, decay))),
            ),
            verdict(
                "T081",
                "5 or 6 packets to an acknowledgement at 640 and MTU 1500",
                format!("{acks:.1}"),
                (4.5..6.5).contains(&acks),
            ),
        ]
    }

    /// The driver's dynamic mode beside the delay of 640 units.
    pub(super) fn dynamic(&self) -> Vec<Verdict> {
        let dynamic = |mtu| self.sweep.at(SweepTraffic::Tcp10, mtu, Moderation::Dynamic);
        let pair = |figure: fn(&SweepResult) -> f64| {
            by_mtu(&MTUS, |mtu| {
                format!("{:.1}, {:.1}", figure(dynamic(mtu)), figure(self.fixed(mtu)))
            })
        };
        vec![
            verdict(
                "T108",
                "less than 99.7% of that at 640, every MTU",
                pair(RATE),
                MTUS.iter().all(|mtu| dynamic(*mtu).link_mbps < BEST * self.fixed(*mtu).link_mbps),
            ),
            verdict(
                "T109",
                "higher than at 640, every MTU",
                pair(BUSY),
                MTUS.iter().all(|mtu| dynamic(*mtu).busy_percent > self.fixed(*mtu).busy_percent),
            ),
        ]
    }

    /// Claims on three senders.
    pub(super) fn three(&self) -> Vec<Verdict> {
        let rate = |mtu| self.curve(SweepTraffic::Tcp3, mtu, 2_000, RATE);
        let (decay, good) = (self.published.number("T077"), self.published.number("T079"));
        let cpu = |mtu| {
            let curve = self.curve(SweepTraffic::Tcp3, mtu, 960, CPU);
            at(&curve, 480) / least(&curve)
        };
        let kept = |mtu| at(&rate(mtu), 480) / most(&rate(mtu));
        let narrower = |mtu: &u64| {
            onset(&rate(*mtu)).unwrap_or(u64::MAX) < onset(&self.ten(*mtu)).unwrap_or(u64::MAX)
        };
        vec![
            verdict(
                "T076",
                "its loss begins sooner",
                by_mtu(&MTUS, |mtu| {
                    format!("{} and {}", units(onset(&rate(mtu))), units(onset(&self.ten(mtu))))
                }),
                MTUS.iter().all(narrower),
            ),
            verdict(
                "T077",
                "a twentieth lost within a factor of two of 320",
                by_mtu(&MTUS, |mtu| units(onset(&rate(mtu)))),
                MTUS.iter().all(|mtu| onset(&rate(*mtu)).is_some_and(|at| is_near(at, decay))),
            ),
            verdict(
                "T079",
                format!("CPU for a MB at {good} within 10% of the least"),
                by_mtu(&MTUS, |mtu| format!("{:+.1}%", 100.0 * (cpu(mtu) - 1.0))),
                MTUS.iter().all(|mtu| cpu(*mtu) <= 1.10),
            ),
            verdict(
                "T080",
                "at 480 still 85% of the best rate",
                by_mtu(&MTUS, |mtu| format!("{:.0}%", 100.0 * kept(mtu))),
                MTUS.iter().all(|mtu| kept(*mtu) >= 0.85 && cpu(*mtu) <= 1.10),
            ),
        ]
    }
}
