//! Packets of slices: what latput's counters of the interface say, and what was on the wire in the same window, which
//! begins when the host says.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::capture::PacketCapture;
use crate::peers::lab::{Lab, SERVER};

/// How far the count of nine slices in ten may be from the wire's.
const GOAL: f64 = 0.01;
const WARMUP_MS: u64 = 200;
const ENDS_WITHIN: Duration = Duration::from_secs(1800);

/// Requests at random times: an even stream would count the same in any window.
const PLAN: &str = r#"schema = 1
name = "slices on the wire"
[factors]
"sut.gro-flush-timeout + sut.napi-defer-hard-irqs" = [["0us", 0], ["100us", 100]]
[[workload]]
kind = "tcp_rr"
rate_per_s = 3000
gaps = "exponential"
[method]
design = "slices"
"#;

/// How far the counts of slices are from the wire's.
#[derive(Debug)]
pub struct SliceErrors {
    /// Of what the system under test received and sent: each slice's error as a share, ascending, without its sign.
    errors: [Vec<f64>; 2],
}

/// A run of slices: what latput said of each, in their order, and what was on the wire.
#[derive(Debug)]
pub struct RecordedSlices {
    pub slices: Vec<SliceCounts>,
    pub wire: WireTimes,
}

/// Runs the plan under tcpdump.
pub fn measure_slices(lab: &Lab, repetitions: u32) -> Result<SliceErrors> {
    let RecordedSlices { slices, wire } = record_slices(lab, PLAN, repetitions)?;
    compute_errors(&slices, &wire)
}

/// Runs a plan, of which the part `[method]` comes last, under tcpdump.
pub fn record_slices(lab: &Lab, plan_text: &str, repetitions: u32) -> Result<RecordedSlices> {
    let path = |name: &str| lab.scratch.join(name).display().to_string();
    let (plan, results) = (path("plan.toml"), path("results.db"));
    let method = format!(
        "warmup = \"{WARMUP_MS}ms\"\nrepetitions = {{ min = {repetitions}, max = {repetitions} }}\n"
    );
    std::fs::write(&plan, format!("{plan_text}{method}")).context("cannot write the plan")?;
    let _unless_there_is_none = std::fs::remove_file(&results);
    let latput = |words: &[&str]| lab.run_latput(words, Instant::now() + ENDS_WITHIN);
    let capture = PacketCapture::start(lab, SERVER)?;
    let testbed = lab.testbed.display().to_string();
    latput(&["run", &plan, "--on", &testbed, "-o", &results])?;
    let packets = capture.stop_capture(lab)?;
    let slices = parse_slices(&latput(&["report", &results, "--format", "json"])?)?;
    let at = |from_sut: bool| {
        let those = packets.iter().filter(|packet| packet.from_sut == from_sut);
        those.map(|packet| packet.at_us).collect()
    };
    Ok(RecordedSlices { slices, wire: WireTimes { at_us: [at(false), at(true)] } })
}

/// When packets passed: those to the system under test, and those from it; microseconds since 1970.
#[derive(Debug)]
pub struct WireTimes {
    pub at_us: [Vec<u64>; 2],
}

impl WireTimes {
    /// Packets of one way in a window.
    pub fn count_packets(&self, way: usize, from_us: u64, length_us: u64) -> u64 {
        let before = |at_us| self.at_us[way].partition_point(|packet| *packet < at_us);
        (before(from_us + length_us) - before(from_us)) as u64
    }
}

/// Counts of latput in one slice.
#[derive(Clone, Copy, Debug)]
pub struct SliceCounts {
    pub setting: usize,
    pub window_started_us: u64,
    pub window_us: u64,
    /// Packets received and sent by the system under test.
    pub counts: [u64; 2],
}

fn parse_slices(json: &str) -> Result<Vec<SliceCounts>> {
    #[derive(Deserialize)]
    struct SliceReport {
        runs: Vec<SliceRun>,
    }
    #[derive(Deserialize)]
    struct SliceRun {
        setting: usize,
        hosts: Vec<SliceHost>,
    }
    #[derive(Deserialize)]
    struct SliceHost {
        role: String,
        window_started_unix_ns: u64,
        window_ns: u64,
        rx_packets_count: u64,
        tx_packets_count: u64,
    }
    let SliceReport { runs } = serde_json::from_str(json).context("cannot read the report")?;
    ensure!(!runs.is_empty(), "the results have no slices");
    let slice = |run: &SliceRun| -> Result<SliceCounts> {
        let sut = run.hosts.iter().find(|host| host.role == "sut").context("no SUT")?;
        Ok(SliceCounts {
            setting: run.setting,
            window_started_us: sut.window_started_unix_ns / 1000,
            window_us: sut.window_ns / 1000,
            counts: [sut.rx_packets_count, sut.tx_packets_count],
        })
    };
    let mut slices: Vec<SliceCounts> = runs.iter().map(slice).collect::<Result<_>>()?;
    slices.sort_by_key(|slice| slice.window_started_us);
    Ok(slices)
}

fn compute_errors(slices: &[SliceCounts], wire: &WireTimes) -> Result<SliceErrors> {
    let error = |way: usize, slice: &SliceCounts| {
        let seen = wire.count_packets(way, slice.window_started_us, slice.window_us);
        ensure!(seen > 0, "tcpdump saw nothing in a slice");
        Ok((slice.counts[way] as f64 / seen as f64 - 1.0).abs())
    };
    let errors = |way| -> Result<Vec<f64>> {
        let mut errors: Vec<f64> =
            slices.iter().map(|slice| error(way, slice)).collect::<Result<_>>()?;
        errors.sort_by(f64::total_cmp);
        Ok(errors)
    };
    Ok(SliceErrors { errors: [errors(0)?, errors(1)?] })
}

impl SliceErrors {
    /// Whether nine in ten are near enough.
    pub fn is_good(&self) -> bool {
        self.errors.iter().all(|errors| find_percentile(errors, 90) <= GOAL)
    }
}

/// The error that so many percent of ascending errors do not exceed.
fn find_percentile(errors: &[f64], percent: usize) -> f64 {
    let rank = (errors.len() * percent).div_ceil(100).saturating_sub(1);
    errors.get(rank).copied().unwrap_or(f64::NAN)
}

impl fmt::Display for SliceErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.errors[0].len();
        write!(f, "packets counted in a slice against the wire's, {count} slices")?;
        for (name, errors) in ["received", "sent"].iter().zip(&self.errors) {
            let [median, most, worst] =
                [50, 90, 100].map(|percent| find_percentile(errors, percent) * 100.0);
            let mark = if find_percentile(errors, 90) <= GOAL { "" } else { " !" };
            write!(
                f,
                "\n  {name:<8} median error {median:.2}%, nine in ten within {most:.2}%, worst {worst:.2}%   \
                 goal: nine in ten within {:.0}%{mark}",
                GOAL * 100.0
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use latput_units::SeededRng;

    use super::*;

    const STARTED_US: u64 = 1_795_559_986_000_000;

    #[test]
    fn wrong_counts_and_wrong_windows_are_seen() {
        let mut rng = SeededRng::from_seed(7);
        let mut at_us = [Vec::new(), Vec::new()];
        for way in &mut at_us {
            // 3000 a second, at random times.
            way.extend((0..36_000).map(|_| STARTED_US + rng.next_below(12_000_000) as u64));
            way.sort_unstable();
        }
        let wire = WireTimes { at_us };
        let slices = |more: u64, late_us: u64| -> Vec<SliceCounts> {
            let slice = |idx: u64| {
                let window_started_us = STARTED_US + idx * 250_000 + 237_000;
                let counts =
                    [0, 1].map(|way| wire.count_packets(way, window_started_us, 225_000) + more);
                let window_started_us = window_started_us + late_us;
                SliceCounts { setting: 0, window_started_us, window_us: 225_000, counts }
            };
            (0..40).map(slice).collect()
        };
        let good = compute_errors(&slices(0, 0), &wire).unwrap();
        assert!(good.is_good() && find_percentile(&good.errors[0], 100) == 0.0, "{good}");
        // 15 of 750 packets.
        assert!(!compute_errors(&slices(15, 0), &wire).unwrap().is_good());
        assert!(!compute_errors(&slices(0, 25_000), &wire).unwrap().is_good());
    }

    #[test]
    fn slices_are_read_from_a_report() {
        let run = r#"{"setting": 1, "hosts": [{"role": "sut", "window_started_unix_ns": 1795559986000000999,
            "window_ns": 225128750, "rx_packets_count": 826, "tx_packets_count": 694}]}"#;
        let found = parse_slices(&format!(r#"{{"runs": [{run}, {run}]}}"#)).unwrap();
        assert_eq!((found.len(), found[0].setting), (2, 1));
        assert_eq!((found[1].window_started_us, found[0].counts), (STARTED_US, [826, 694]));
        assert!(parse_slices(r#"{"runs": []}"#).is_err());
    }
}
