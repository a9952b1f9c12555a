//! How much a change between slices disturbs the traffic, on the wire.
//!
//! Both settings are alike, so only the change itself can be seen. Where two slices of one setting follow each other,
//! nothing changes: the same time between slices is looked at there.

use std::fmt;

use anyhow::{Result, ensure};

use super::slices::{Recorded, Slice, Wire, record};
use crate::peers::lab::Lab;

/// How many packets may be missing between slices because of a change.
const GOAL: f64 = 0.05;
/// Longer times between slices are those between connections.
const LONGEST_US: u64 = 100_000;
/// Normal quantile of a two-sided interval at 99 %.
const Z: f64 = 2.576;

/// As many requests as can be answered: what the change costs cannot be caught up.
const PLAN: &str = r#"schema = 1
name = "changes on the wire"
[factors]
"sut.gro-flush-timeout + sut.napi-defer-hard-irqs" = [["20us", 100], ["21us", 100]]
[[workload]]
kind = "tcp_rr"
burst = 16
[method]
design = "slices"
"#;

/// Packets per second between two slices, as a share of those in the slices before and behind.
#[derive(Debug, Default, PartialEq)]
pub struct Changes {
    /// Where the setting changes.
    changed: Vec<f64>,
    /// Where it stays.
    kept: Vec<f64>,
    /// The time between slices, microseconds, all of them together.
    between_us: u64,
}

/// Runs the plan under tcpdump.
pub fn compare(lab: &Lab, repetitions: u32) -> Result<Changes> {
    let Recorded { slices, wire } = record(lab, PLAN, repetitions)?;
    judge(&slices, &wire)
}

fn judge(slices: &[Slice], wire: &Wire) -> Result<Changes> {
    let mut found = Changes::default();
    for pair in slices.windows(2) {
        let [before, behind] = [pair[0], pair[1]];
        let from_us = before.window_started_us + before.window_us;
        let length_us = behind.window_started_us.saturating_sub(from_us);
        if length_us == 0 || length_us > LONGEST_US {
            continue;
        }
        let packets = |from_us, length_us| wire.count(0, from_us, length_us) as f64;
        let of_slice = |slice: Slice| packets(slice.window_started_us, slice.window_us);
        let around =
            (of_slice(before) + of_slice(behind)) / (before.window_us + behind.window_us) as f64;
        ensure!(around > 0.0, "tcpdump saw nothing in two slices");
        let share = packets(from_us, length_us) / length_us as f64 / around;
        if before.setting == behind.setting { &mut found.kept } else { &mut found.changed }
            .push(share);
        found.between_us += length_us;
    }
    ensure!(found.changed.len() > 2 && found.kept.len() > 2, "too few slices follow each other");
    Ok(found)
}

impl Changes {
    /// Share of the packets between slices that a change costs, and half of its 99 % interval.
    fn lost(&self) -> (f64, f64) {
        let [changed, kept] = [&self.changed, &self.kept].map(|shares| mean(shares));
        (kept.0 - changed.0, Z * changed.1.hypot(kept.1))
    }

    /// Whether a change costs few packets.
    pub fn is_good(&self) -> bool {
        self.lost().0 <= GOAL
    }
}

/// The mean and its standard error.
fn mean(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
    (mean, (squares / (count - 1.0) / count).sqrt())
}

impl fmt::Display for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [changed, kept] = [&self.changed, &self.kept].map(|shares| mean(shares));
        let (lost, half) = self.lost();
        let count = self.changed.len() + self.kept.len();
        let between_ms = self.between_us as f64 / 1e3 / count as f64;
        let mark = if self.is_good() { "" } else { " !" };
        write!(
            f,
            "packets between slices ({between_ms:.0} ms) against those in them: {:.3} where the setting changes ({}), {:.3} where it \
             stays ({})\n  a change costs {:.1} % of them, 99 % within {:.1} to {:.1} %   goal: at most {:.0} %{mark}",
            changed.0,
            self.changed.len(),
            kept.0,
            self.kept.len(),
            lost * 100.0,
            (lost - half) * 100.0,
            (lost + half) * 100.0,
            GOAL * 100.0
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STARTED_US: u64 = 1_795_559_986_000_000;

    /// Slices of 225 ms every 250 ms, two settings as A B B A; a packet each 100 us, and none for so long behind a
    /// change.
    fn judged(silent_us: u64) -> Changes {
        let start = |idx: u64| STARTED_US + idx * 250_000;
        let setting = |idx: u64| usize::from(matches!(idx % 4, 1 | 2));
        let slice = |idx: u64| Slice {
            setting: setting(idx),
            window_started_us: start(idx) + 25_000,
            window_us: 225_000,
            counts: [0, 0],
        };
        let slices: Vec<Slice> = (0..40).map(slice).collect();
        let is_silent = |at_us: u64| {
            let (idx, since) = ((at_us - STARTED_US) / 250_000, (at_us - STARTED_US) % 250_000);
            idx > 0 && setting(idx) != setting(idx - 1) && since < silent_us
        };
        let packets = (0..100_000).map(|idx| STARTED_US + idx * 100).filter(|at| !is_silent(*at));
        judge(&slices, &Wire { at_us: [packets.collect(), Vec::new()] }).unwrap()
    }

    #[test]
    fn what_a_change_costs_is_seen_and_what_is_everywhere_is_not() {
        let none = judged(0);
        assert!(none.is_good() && none.lost().0.abs() < 1e-6, "{none}");
        assert_eq!((none.changed.len(), none.kept.len()), (20, 19));
        let (lost, half) = judged(5_000).lost();
        assert!((lost - 0.2).abs() < 0.01 && half < 0.01, "{lost} {half}");
        assert!(!judged(5_000).is_good() && judged(1_000).is_good());
    }

    #[test]
    fn slices_of_two_connections_are_not_neighbours() {
        let slice =
            |at_us| Slice { setting: 0, window_started_us: at_us, window_us: 10, counts: [0, 0] };
        let wire = Wire { at_us: [vec![0, 5, 200_005], Vec::new()] };
        assert!(judge(&[slice(0), slice(200_000)], &wire).unwrap_err().to_string().contains("few"));
    }
}
