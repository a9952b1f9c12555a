//! Claims on NFS. Requests wait for each answer, so a delay lowers the rate at once.

use super::curve::{
    KEPT, find_cheapest_delay, find_loss_onset, find_plateau, is_near, is_range_near, max_value,
    min_value, value_at,
};
use super::{
    BATCH, BUSY, CPU, ClaimChecker, ClaimVerdict, LARGE, RATE, SWEEP, format_by_mtu, format_delay,
    make_verdict,
};
use crate::delay_mtu::{MTUS, SweepTraffic};

impl ClaimChecker<'_> {
    /// Claims on rates and batches.
    pub(super) fn check_nfs_rates(&self) -> Vec<ClaimVerdict> {
        let rate = |mtu| self.figure_by_delay(SweepTraffic::Nfs, mtu, 960, RATE);
        let number = |id| self.published.claimed_value(id);
        let growth = |mtu| {
            let curve = self.figure_by_delay(SweepTraffic::Nfs, mtu, SWEEP, BATCH);
            value_at(&curve, SWEEP) / value_at(&curve, 40)
        };
        let near = |id, mtus: &[u64]| {
            make_verdict(
                id,
                format!("99.7% of the best within a factor of two of {}", number(id)),
                format_by_mtu(mtus, |mtu| {
                    let (first, last) = find_plateau(&rate(mtu));
                    format!("{first} to {last}")
                }),
                mtus.iter().all(|mtu| is_range_near(find_plateau(&rate(*mtu)), number(id))),
            )
        };
        vec![
            make_verdict(
                "T069",
                "16 times the delay gives less than 8 times the packets",
                format_by_mtu(&MTUS, |mtu| format!("{:.1} times", growth(mtu))),
                MTUS.iter().all(|mtu| growth(*mtu) < 8.0),
            ),
            near("T070", &LARGE),
            near("T071", &MTUS[..1]),
            make_verdict(
                "T072",
                "a twentieth lost within a factor of two of 80",
                format_by_mtu(&MTUS, |mtu| format_delay(find_loss_onset(&rate(mtu)))),
                MTUS.iter().all(|mtu| {
                    find_loss_onset(&rate(*mtu)).is_some_and(|at| is_near(at, number("T072")))
                }),
            ),
        ]
    }

    /// Claims on CPU time.
    pub(super) fn check_nfs_cpu(&self) -> Vec<ClaimVerdict> {
        let rate = |mtu| self.figure_by_delay(SweepTraffic::Nfs, mtu, 960, RATE);
        let cpu = |mtu| self.figure_by_delay(SweepTraffic::Nfs, mtu, 960, CPU);
        let drops = |mtu, figure| {
            let curve = self.figure_by_delay(SweepTraffic::Nfs, mtu, SWEEP, figure);
            value_at(&curve, SWEEP) / value_at(&curve, 160)
        };
        let joint = |mtu: &u64| {
            let (rate, cpu) = (rate(*mtu), cpu(*mtu));
            rate.iter().any(|(delay, seen)| {
                *seen >= KEPT * max_value(&rate) && value_at(&cpu, *delay) <= 1.05 * min_value(&cpu)
            })
        };
        let least_at = self.published.claimed_value("T074");
        vec![
            make_verdict(
                "T073",
                "from 160 to 640 CPU falls as the rate does, more than its time for a MB",
                format_by_mtu(&MTUS, |mtu| {
                    let [rate, busy, cpu] = [RATE, BUSY, CPU].map(|it| 100.0 * drops(mtu, it));
                    format!("rate to {rate:.0}%, CPU to {busy:.0}%, of a MB to {cpu:.0}%")
                }),
                MTUS.iter().all(|mtu| {
                    drops(*mtu, BUSY) < KEPT
                        && drops(*mtu, BUSY) < drops(*mtu, CPU)
                        && drops(*mtu, RATE) < drops(*mtu, CPU)
                }),
            ),
            make_verdict(
                "T074",
                "least CPU for a MB within a factor of two of 320",
                format_by_mtu(&MTUS, |mtu| find_cheapest_delay(&cpu(mtu)).to_string()),
                MTUS.iter().all(|mtu| is_near(find_cheapest_delay(&cpu(*mtu)), least_at)),
            ),
            make_verdict(
                "T075",
                "no delay has 95% of the best rate within 5% of the least CPU",
                format_by_mtu(&MTUS, |mtu| {
                    String::from(if joint(&mtu) { "one has" } else { "none" })
                }),
                !MTUS.iter().any(joint),
            ),
        ]
    }
}
