//! Cost of a change between slices for the traffic, on the wire.
//!
//! Two settings are alike, so only the change itself can be seen. Where two slices of one setting follow each other,
//! nothing changes: the same times are looked at there.

use std::fmt;

use anyhow::{Result, ensure};
use latput_stats::mean::standard_error;

use super::slices::{RecordedSlices, SliceCounts, WireTimes, record_slices};
use crate::peers::lab::Lab;

/// How much traffic a change may cost within what is cut, milliseconds.
const GOAL_MS: f64 = 10.0;
/// How far the traffic behind the cut may be from that without a change.
const GOAL_BEHIND: f64 = 0.05;
/// Time that counts as just behind the cut.
const BEHIND_US: u64 = 25_000;
/// Longer times between slices are those between connections.
const LONGEST_US: u64 = 100_000;
/// Normal quantile of a two-sided interval at 99%.
const Z: f64 = 2.576;
/// The setting of before the run, which is not like the others.
const TODAY: usize = 0;

/// As many requests as can be answered: what a change costs cannot be caught up.
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

/// The traffic between slices and just behind, where the setting changes and where it stays.
#[derive(Debug, Default)]
pub struct ChangeCosts {
    changed: SliceBorders,
    kept: SliceBorders,
}

/// Borders between slices.
#[derive(Debug, Default)]
struct SliceBorders {
    /// How long each is, milliseconds.
    cut_ms: Vec<f64>,
    /// How much of that the slices around would not need for the packets in it, milliseconds.
    lost_ms: Vec<f64>,
    /// Packets per second just behind each, as a share of those in the slices around.
    behind: Vec<f64>,
}

/// Runs the plan under tcpdump.
pub fn measure_changes(lab: &Lab, repetitions: u32) -> Result<ChangeCosts> {
    let RecordedSlices { slices, wire } = record_slices(lab, PLAN, repetitions)?;
    compute_changes(&slices, &wire)
}

fn compute_changes(slices: &[SliceCounts], wire: &WireTimes) -> Result<ChangeCosts> {
    let mut found = ChangeCosts::default();
    for pair in slices.windows(2) {
        let [before, behind] = [pair[0], pair[1]];
        let is_kept = before.setting == behind.setting;
        if !is_kept && (before.setting == TODAY || behind.setting == TODAY) {
            continue;
        }
        let from_us = before.window_started_us + before.window_us;
        let cut_us = behind.window_started_us.saturating_sub(from_us);
        if cut_us == 0 || cut_us > LONGEST_US {
            continue;
        }
        let packets = |from_us, length_us| wire.count_packets(0, from_us, length_us) as f64;
        let of_slice = |slice: SliceCounts| packets(slice.window_started_us, slice.window_us);
        let packets_around = of_slice(before) + of_slice(behind);
        ensure!(packets_around > 0.0, "tcpdump saw nothing in two slices");
        let per_us = packets_around / (before.window_us + behind.window_us) as f64;
        let borders = if is_kept { &mut found.kept } else { &mut found.changed };
        borders.cut_ms.push(cut_us as f64 / 1e3);
        borders.lost_ms.push((cut_us as f64 - packets(from_us, cut_us) / per_us) / 1e3);
        let just_behind = packets(behind.window_started_us, BEHIND_US);
        borders.behind.push(just_behind / BEHIND_US as f64 / per_us);
    }
    let enough = |borders: &SliceBorders| borders.behind.len() > 2;
    ensure!(enough(&found.changed) && enough(&found.kept), "too few slices follow each other");
    Ok(found)
}

impl ChangeCosts {
    /// Cost of a change within the cut, in milliseconds of traffic, with half of its 99% interval.
    fn cost_ms(&self) -> (f64, f64) {
        mean_difference(&self.changed.lost_ms, &self.kept.lost_ms)
    }

    /// How much more traffic there is just behind a cut with a change, as a share, with half of its 99% interval.
    fn traffic_after_cut(&self) -> (f64, f64) {
        mean_difference(&self.changed.behind, &self.kept.behind)
    }

    /// Whether a change costs little, and nothing is proven to be left of it behind the cut.
    pub fn is_good(&self) -> bool {
        self.is_cheap() && self.is_over()
    }

    fn is_cheap(&self) -> bool {
        self.cost_ms().0 <= GOAL_MS
    }

    fn is_over(&self) -> bool {
        let (more, half) = self.traffic_after_cut();
        more.abs() - half <= GOAL_BEHIND
    }
}

/// The difference of two means, and half of its 99% interval.
fn mean_difference(one: &[f64], other: &[f64]) -> (f64, f64) {
    let means = [one, other].map(mean);
    let error = standard_error(one, means[0]).hypot(standard_error(other, means[1]));
    (means[0] - means[1], Z * error)
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

impl fmt::Display for ChangeCosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = |is_good: bool| if is_good { "" } else { " !" };
        let (cost, half) = self.cost_ms();
        let (more, behind_half) = self.traffic_after_cut();
        let percent = |share: f64| 100.0 * share;
        write!(
            f,
            "traffic at {} changes, against {} places without, between slices ({:.0} ms are cut)\n  \
             a change costs {cost:.1} ms of traffic in the cut, 99% within {:.1} to {:.1} ms   goal: at most {GOAL_MS:.0} ms{}\n  \
             in {} ms behind the cut {:+.1}% packets, 99% within {:+.1} to {:+.1}%   goal: within {:.0}%{}",
            self.changed.behind.len(),
            self.kept.behind.len(),
            mean(&self.changed.cut_ms),
            cost - half,
            cost + half,
            mark(self.is_cheap()),
            BEHIND_US / 1000,
            percent(more),
            percent(more - behind_half),
            percent(more + behind_half),
            percent(GOAL_BEHIND),
            mark(self.is_over()),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STARTED_US: u64 = 1_795_559_986_000_000;

    /// Slices of 225 ms every 250 ms, two settings as A B B A; a packet each 100 us, and none for so long behind a
    /// change, which comes 25 ms before the slice.
    fn simulate_changes(silent_us: u64) -> ChangeCosts {
        let start = |idx: u64| STARTED_US + idx * 250_000;
        let setting = |idx: u64| 1 + usize::from(matches!(idx % 4, 1 | 2));
        let slice = |idx: u64| SliceCounts {
            setting: setting(idx),
            window_started_us: start(idx) + 25_000,
            window_us: 225_000,
            counts: [0, 0],
        };
        let slices: Vec<SliceCounts> = (0..40).map(slice).collect();
        let is_silent = |at_us: u64| {
            let (idx, since) = ((at_us - STARTED_US) / 250_000, (at_us - STARTED_US) % 250_000);
            idx > 0 && setting(idx) != setting(idx - 1) && since < silent_us
        };
        let packets = (0..100_000).map(|idx| STARTED_US + idx * 100).filter(|at| !is_silent(*at));
        compute_changes(&slices, &WireTimes { at_us: [packets.collect(), Vec::new()] }).unwrap()
    }

    #[test]
    fn cost_of_change_is_seen_at_changes() {
        let none = simulate_changes(0);
        assert!(none.is_good() && none.cost_ms().0.abs() < 1e-6, "{none}");
        assert_eq!((none.changed.behind.len(), none.kept.behind.len()), (20, 19));
        let (cost, half) = simulate_changes(5_000).cost_ms();
        assert!((cost - 5.0).abs() < 0.1 && half < 0.1, "{cost} {half}");
        assert!(simulate_changes(5_000).is_good());
        assert!(!simulate_changes(15_000).is_cheap() && simulate_changes(15_000).is_over());
        // A tenth of the time behind the cut.
        assert!(!simulate_changes(27_500).is_over());
    }

    #[test]
    fn unlike_slices_are_not_compared() {
        let slice = |setting, at_us| SliceCounts {
            setting,
            window_started_us: at_us,
            window_us: 10,
            counts: [0, 0],
        };
        let wire = WireTimes { at_us: [vec![0, 5, 25, 200_005], Vec::new()] };
        for unlike in [[slice(1, 0), slice(1, 200_000)], [slice(0, 0), slice(1, 20)]] {
            assert!(compute_changes(&unlike, &wire).unwrap_err().to_string().contains("too few"));
        }
    }
}
