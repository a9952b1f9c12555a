//! The comparison as a table: medians, and ratios paired within rounds with their intervals.

use std::fmt::Write as _;

use anyhow::{Result, ensure};
use latput_stats::order::middle;
use latput_stats::{Estimate, paired};

use super::load::{Load, Work};
use super::program::Kind;
use crate::goal::Verdict;

const CONFIDENCE: f64 = 0.95;
/// The peer whose rate at depth 1 is to be reached: neither program does more than the calls that it must.
const GOAL: (Load, Kind) = (Load::Rr, Kind::Netperf);
/// The least ratio of rates: 1.00, to within 1%.
const LEAST_RATE: f64 = 0.99;

/// One run of one program.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Which round.
    pub round: u32,
    /// Program of the row.
    pub program: Kind,
    /// Load of the row.
    pub load: Load,
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
pub fn compare(samples: &[Sample]) -> String {
    let percent = CONFIDENCE * 100.0;
    let mut table = format!(
        "\n{:<17} {:<9} {:>14} {:<6} {:>9} {:<15} rate latput/peer [{percent}%]  CPU latput/peer [{percent}%]\n",
        "workload", "program", "median rate", "", "CPU", ""
    );
    for &load in Load::ALL {
        let of =
            |program| samples.iter().filter(move |it| it.load == load && it.program == program);
        for &program in Kind::ALL {
            let rate = middle(of(program).map(|sample| sample.rate));
            let cost = middle(of(program).map(|sample| sample.cpu_us));
            let (Some(rate), Some(cost)) = (rate, cost) else { continue };
            let (rate_unit, cost_unit) = load.units();
            let ours: Vec<&Sample> = of(Kind::Latput).collect();
            let theirs: Vec<&Sample> = of(program).collect();
            let (rates, costs) = if program == Kind::Latput {
                (String::new(), String::new())
            } else {
                let rate = |sample: &Sample| sample.rate;
                let cost = |sample: &Sample| sample.cpu_us;
                (ratio(&ours, &theirs, rate), ratio(&ours, &theirs, cost))
            };
            let packets = match load.work() {
                Work::Transactions => middle(of(program).map(|sample| sample.packets)),
                Work::Bulk | Work::Datagrams => None,
            };
            let packets = packets.map_or_else(String::new, |it| format!("  packets sent {it:.2}"));
            let lost = middle(of(program).filter_map(|sample| sample.loss_ratio));
            let lost = lost.map_or_else(String::new, |it| format!("  lost {:.1}%", it * 100.0));
            let row = format!(
                "{load:<17} {program:<9} {rate:>14.0} {rate_unit:<6} {cost:>9.3} {cost_unit:<15} {rates:<24}  {costs:<24}{packets}{lost}"
            );
            writeln!(table, "{}", row.trim_end()).expect("a string takes all");
        }
    }
    table
}

/// Ours over theirs, in words.
fn ratio(ours: &[&Sample], theirs: &[&Sample], figure: impl Fn(&Sample) -> f64) -> String {
    paired_ratio(ours, theirs, figure).map_or_else(
        || "unknown".to_owned(),
        |it| format!("{:.3} [{:.3}, {:.3}]", it.value, it.low, it.high),
    )
}

/// Ours over theirs, paired by round.
fn paired_ratio(
    ours: &[&Sample],
    theirs: &[&Sample],
    figure: impl Fn(&Sample) -> f64,
) -> Option<Estimate> {
    let pair = |our: &&Sample| {
        let their = theirs.iter().find(|their| their.round == our.round)?;
        Some((figure(their), figure(our)))
    };
    let pairs: Vec<(f64, f64)> = ours.iter().filter_map(pair).collect();
    paired::ratio(&pairs, CONFIDENCE)
}

/// Prints the goal beside its figure; nothing where the peer or the workload was left out.
///
/// # Errors
///
/// The whole interval is below the goal.
pub fn judge(samples: &[Sample]) -> Result<()> {
    let (load, peer) = GOAL;
    let of = |program| {
        let samples = samples.iter().filter(|it| it.load == load && it.program == program);
        samples.collect::<Vec<_>>()
    };
    let (ours, theirs) = (of(Kind::Latput), of(peer));
    let Some(rate) = paired_ratio(&ours, &theirs, |sample| sample.rate) else { return Ok(()) };
    let verdict = verdict(rate.low, rate.high);
    println!(
        "\n{load}: rate latput/{peer} {:.3} [{:.3}, {:.3}], wanted >= {LEAST_RATE}: {}",
        rate.value,
        rate.low,
        rate.high,
        verdict.describe("rounds")
    );
    ensure!(verdict != Verdict::Missed, "the rate at depth 1 is below that of {peer}");
    Ok(())
}

fn verdict(low: f64, high: f64) -> Verdict {
    Verdict::of_interval((low, high), &(LEAST_RATE..=f64::INFINITY))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_paired_within_rounds() {
        // The machine is four times as fast in round 2; latput is 1.1 times as fast in both.
        let sample = |round, program, rate, cpu_us| Sample {
            round,
            program,
            load: Load::Rr,
            rate,
            cpu_us,
            packets: 1.0,
            loss_ratio: None,
        };
        let table = compare(&[
            sample(1, Kind::Latput, 1100.0, 9.0),
            sample(1, Kind::Netperf, 1000.0, 18.0),
            sample(2, Kind::Netperf, 4000.0, 4.0),
            sample(2, Kind::Latput, 4400.0, 2.0),
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
            assert_eq!(verdict(low, high).describe("rounds"), expected);
        }
    }

    #[test]
    fn cost_below_clock_grain_has_no_ratio() {
        let sample = |program, cpu_us| Sample {
            round: 1,
            program,
            load: Load::Stream,
            rate: 1e9,
            cpu_us,
            packets: 1.0,
            loss_ratio: None,
        };
        let table = compare(&[sample(Kind::Latput, 1.0), sample(Kind::Iperf3, 0.0)]);
        assert!(table.contains("unknown"), "{table}");
    }
}
