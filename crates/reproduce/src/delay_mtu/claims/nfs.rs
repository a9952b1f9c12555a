//! Claims on NFS. Requests wait for each answer, so a delay lowers the rate at once.

use super::curve::{KEPT, at, cheapest, is_near, least, most, onset, plateau, reaches};
use super::{BATCH, BUSY, CPU, Ends, LARGE, RATE, SWEEP, Verdict, by_mtu, units, verdict};
use crate::delay_mtu::{MTUS, SweepTraffic};

impl Ends<'_> {
    /// Claims on rates and batches.
    pub(super) fn reading(&self) -> Vec<Verdict> {
        let rate = |mtu| self.curve(SweepTraffic::Nfs, mtu, 960, RATE);
        let number = |id| self.published.number(id);
        let growth = |mtu| {
            let curve = self.curve(SweepTraffic::Nfs, mtu, SWEEP, BATCH);
            at(&curve, SWEEP) / at(&curve, 40)
        };
        let near = |id, mtus: &[u64]| {
            verdict(
                id,
                format!("99.7% of the best within a factor of two of {}", number(id)),
                by_mtu(mtus, |mtu| {
                    let (first, last) = plateau(&rate(mtu));
                    format!("{first} to {last}")
                }),
                mtus.iter().all(|mtu| reaches(plateau(&rate(*mtu)), number(id))),
            )
        };
        vec![
            verdict(
                "T069",
                "16 times the delay gives less than 8 times the packets",
                by_mtu(&MTUS, |mtu| format!("{:.1} times", growth(mtu))),
                MTUS.iter().all(|mtu| growth(*mtu) < 8.0),
            ),
            near("T070", &LARGE),
            near("T071", &MTUS[..1]),
            verdict(
                "T072",
                "a twentieth lost within a factor of two of 80",
                by_mtu(&MTUS, |mtu| units(onset(&rate(mtu)))),
                MTUS.iter()
                    .all(|mtu| onset(&rate(*mtu)).is_some_and(|at| is_near(at, number("T072")))),
            ),
        ]
    }

    /// Claims on CPU time.
    pub(super) fn reading_cpu(&self) -> Vec<Verdict> {
        let rate = |mtu| self.curve(SweepTraffic::Nfs, mtu, 960, RATE);
        let cpu = |mtu| self.curve(SweepTraffic::Nfs, mtu, 960, CPU);
        let drops = |mtu, figure| {
            let curve = self.curve(SweepTraffic::Nfs, mtu, SWEEP, figure);
            at(&curve, SWEEP) / at(&curve, 160)
        };
        let joint = |mtu: &u64| {
            let (rate, cpu) = (rate(*mtu), cpu(*mtu));
            rate.iter().any(|(delay, seen)| {
                *seen >= KEPT * most(&rate) && at(&cpu, *delay) <= 1.05 * least(&cpu)
            })
        };
        let least_at = self.published.number("T074");
        vec![
            verdict(
                "T073",
                "from 160 to 640 CPU falls as the rate does, more than its time for a MB",
                by_mtu(&MTUS, |mtu| {
                    let [rate, busy, cpu] = [RATE, BUSY, CPU].map(|it| 100.0 * drops(mtu, it));
                    format!("rate to {rate:.0}%, CPU to {busy:.0}%, of a MB to {cpu:.0}%")
                }),
                MTUS.iter().all(|mtu| {
                    drops(*mtu, BUSY) < KEPT
                        && drops(*mtu, BUSY) < drops(*mtu, CPU)
                        && drops(*mtu, RATE) < drops(*mtu, CPU)
                }),
            ),
            verdict(
                "T074",
                "least CPU for a MB within a factor of two of 320",
                by_mtu(&MTUS, |mtu| cheapest(&cpu(mtu)).to_string()),
                MTUS.iter().all(|mtu| is_near(cheapest(&cpu(*mtu)), least_at)),
            ),
            verdict(
                "T075",
                "no delay has 95% of the best rate within 5% of the least CPU",
                by_mtu(&MTUS, |mtu| String::from(if joint(&mtu) { "one has" } else { "none" })),
                !MTUS.iter().any(joint),
            ),
        ]
    }
}
