//! The comparison as a table: medians, and ratios paired within rounds with their intervals.

use std::fmt::Write as _;

use anyhow::{Result, ensure};
use latput_stats::order::middle;
use latput_stats::{Estimate, paired};

use super::program::{PeerWorkload, ProgramKind, WorkUnit};
use crate::goal::{GoalVerdict, format_estimate};

const CONFIDENCE: f64 = 0.95;
/// The peer whose rate at depth 1 is to be reached: neither program does more than the calls that it must.
const GOAL: (&str, ProgramKind) = ("rr", ProgramKind::Netperf);
/// The least ratio of rates: 1.00, to within 1%.
const LEAST_RATE: f64 = 0.99;

/// One run of one program.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PeerSample {
    /// Which round.
    pub round: u32,
    /// Program of the row.
    pub program: ProgramKind,
    /// Load of the row.
    pub load: PeerWorkload,
    /// Transactions or bits per second.
    pub rate: f64,
    /// CPU time of the whole machine, microseconds per transaction or KB.
    pub cpu_us: f64,
    /// Packets that the sending host sent for each transaction, datagram or KB.
    pub packets: f64,
    /// Share of datagrams that were lost.
    pub loss_ratio: Option<f64>,
}

/// The table; a ratio above 1 means that latput does more, or needs more CPU.
pub fn render_table(samples: &[PeerSample]) -> String {
    let percent = CONFIDENCE * 100.0;
    let mut table = format!(
        "\n{:<17} {:<9} {:>14} {:<6} {:>9} {:<15} rate latput/peer [{percent}%]  CPU latput/peer [{percent}%]\n",
        "workload", "program", "median rate", "", "CPU", ""
    );
    for load in PeerWorkload::all() {
        for &program in ProgramKind::ALL {
            let of = || select(samples, load, program);
            let rate = middle(of().map(|sample| sample.rate));
            let cost = middle(of().map(|sample| sample.cpu_us));
            let (Some(rate), Some(cost)) = (rate, cost) else { continue };
            let (rate_unit, cost_unit) = load.unit_labels();
            let ratio = |figure: fn(&PeerSample) -> f64| match program {
                ProgramKind::Latput => String::new(),
                _ => paired_ratio(samples, load, program, figure)
                    .map_or_else(|| "unknown".to_owned(), format_estimate),
            };
            let (rates, costs) = (ratio(|sample| sample.rate), ratio(|sample| sample.cpu_us));
            let packets = middle(of().map(|sample| sample.packets));
            let packets = packets
                .filter(|_| load.unit() == WorkUnit::Transactions)
                .map_or_else(String::new, |it| format!("  packets sent {it:.2}"));
            let lost = middle(of().filter_map(|sample| sample.loss_ratio));
            let lost = lost.map_or_else(String::new, |it| format!("  lost {:.1}%", it * 100.0));
            let row = format!(
                "{:<17} {program:<9} {rate:>14.0} {rate_unit:<6} {cost:>9.3} {cost_unit:<15} {rates:<24}  {costs:<24}{packets}{lost}",
                load.label
            );
            writeln!(table, "{}", row.trim_end()).expect("a string takes all");
        }
    }
    table
}

fn select(
    samples: &[PeerSample],
    load: PeerWorkload,
    program: ProgramKind,
) -> impl Iterator<Item = &PeerSample> {
    samples.iter().filter(move |it| it.load == load && it.program == program)
}

/// Ours over theirs, paired by round.
fn paired_ratio(
    samples: &[PeerSample],
    load: PeerWorkload,
    peer: ProgramKind,
    figure: fn(&PeerSample) -> f64,
) -> Option<Estimate> {
    let pair = |our: &PeerSample| {
        let their = select(samples, load, peer).find(|their| their.round == our.round)?;
        Some((figure(their), figure(our)))
    };
    let pairs: Vec<(f64, f64)> =
        select(samples, load, ProgramKind::Latput).filter_map(pair).collect();
    paired::ratio(&pairs, CONFIDENCE)
}

/// Prints the goal beside its figure; nothing where the peer or the workload was left out.
///
/// # Errors
///
/// The whole interval is below the goal.
pub fn check_goal(samples: &[PeerSample]) -> Result<()> {
    let (name, peer) = GOAL;
    let load = PeerWorkload::all().find(|load| load.name == name).expect("the goal has a workload");
    let Some(rate) = paired_ratio(samples, load, peer, |sample| sample.rate) else {
        return Ok(());
    };
    let verdict = judge_rate(rate.low, rate.high);
    println!(
        "\n{}: rate latput/{peer} {}, wanted >= {LEAST_RATE}: {}",
        load.label,
        format_estimate(rate),
        verdict.describe("rounds")
    );
    ensure!(verdict != GoalVerdict::Missed, "the rate at depth 1 is below that of {peer}");
    Ok(())
}

fn judge_rate(low: f64, high: f64) -> GoalVerdict {
    GoalVerdict::of_interval((low, high), &(LEAST_RATE..=f64::INFINITY))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_paired_within_rounds() {
        // The machine is four times as fast in round 2; latput is 1.1 times as fast in both.
        let sample = |round, program, rate, cpu_us| PeerSample {
            round,
            program,
            load: PeerWorkload::all().next().unwrap(),
            rate,
            cpu_us,
            packets: 1.0,
            loss_ratio: None,
        };
        let table = render_table(&[
            sample(1, ProgramKind::Latput, 1100.0, 9.0),
            sample(1, ProgramKind::Netperf, 1000.0, 18.0),
            sample(2, ProgramKind::Netperf, 4000.0, 4.0),
            sample(2, ProgramKind::Latput, 4400.0, 2.0),
        ]);
        assert!(table.contains("1.100 [1.100, 1.100]"), "{table}");
        assert!(table.contains("0.500 [0.500, 0.500]"), "{table}");
        assert!(table.contains("2750"), "{table}");
        assert!(!table.contains("iperf3"), "{table}");
    }

    #[test]
    fn goal_is_missed_by_whole_interval() {
        for (low, high, expected) in
            [(0.995, 1.02, "met"), (0.95, 1.01, "open: too few rounds"), (0.9, 0.98, "missed")]
        {
            assert_eq!(judge_rate(low, high).describe("rounds"), expected);
        }
    }

    #[test]
    fn cost_below_clock_grain_has_no_ratio() {
        let sample = |program, cpu_us| PeerSample {
            round: 1,
            program,
            load: PeerWorkload::all().nth(5).unwrap(),
            rate: 1e9,
            cpu_us,
            packets: 1.0,
            loss_ratio: None,
        };
        let table =
            render_table(&[sample(ProgramKind::Latput, 1.0), sample(ProgramKind::Iperf3, 0.0)]);
        assert!(table.contains("unknown"), "{table}");
    }
}
