//! Packets of slices: what latput's counters of the interface say, and what was on the wire in the same window.
//!
//! Results say when a slice's trial was begun, and not when its window was: connecting, warming up and the cut come
//! before. That time is the same for all slices of a stint. Half of the slices give it: with it their counts are
//! nearest to the wire's. The other half is judged by it.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::capture::Capture;
use crate::peers::lab::{Lab, SERVER};

/// How far the count of nine slices in ten may be from the wire's.
const GOAL: f64 = 0.01;
const WARMUP_MS: u64 = 200;
/// Most that connecting and the cut take, beside the warm-up.
const BEFORE_MS: u64 = 500;
/// Of the search for that time.
const STEP_US: u64 = 250;
/// Fewer are not judged by the other half.
const SLICES_AT_LEAST: usize = 4;
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
pub struct Slices {
    /// Of what the system under test received and sent: each slice's error as a share, ascending, without its sign.
    errors: [Vec<f64>; 2],
    /// From the beginning of a trial to its first window, the shortest and the longest of all stints.
    before_us: (u64, u64),
}

/// Runs the plan under tcpdump.
pub fn compare(lab: &Lab, repetitions: u32) -> Result<Slices> {
    let path = |name: &str| lab.scratch.join(name).display().to_string();
    let (plan, results) = (path("plan.toml"), path("results.db"));
    let method = format!(
        "warmup = \"{WARMUP_MS}ms\"\nrepetitions = {{ min = {repetitions}, max = {repetitions} }}\n"
    );
    std::fs::write(&plan, format!("{PLAN}{method}")).context("cannot write the plan")?;
    let _unless_there_is_none = std::fs::remove_file(&results);
    let latput = |words: &[&str]| {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        lab.start_latput(&words)?.finish(&lab.stop, Instant::now() + ENDS_WITHIN)
    };
    let capture = Capture::start(lab, SERVER)?;
    let testbed = lab.testbed.display().to_string();
    latput(&["run", &plan, "--on", &testbed, "-o", &results])?;
    let packets = capture.finish(lab)?;
    let stints = stints(&latput(&["report", &results, "--format", "json"])?)?;
    let at = |from_sut: bool| {
        let those = packets.iter().filter(|packet| packet.from_sut == from_sut);
        those.map(|packet| packet.at_us).collect()
    };
    judge(&stints, &Wire { at_us: [at(false), at(true)] })
}

/// When packets passed: those to the system under test, and those from it; microseconds since 1970.
#[derive(Debug)]
struct Wire {
    at_us: [Vec<u64>; 2],
}

impl Wire {
    fn count(&self, way: usize, from_us: u64, length_us: u64) -> u64 {
        let before = |at_us| self.at_us[way].partition_point(|packet| *packet < at_us);
        (before(from_us + length_us) - before(from_us)) as u64
    }
}

/// What latput counted in one slice.
#[derive(Clone, Copy, Debug)]
struct Slice {
    /// The beginning of its trial, which is earlier than the window.
    begun_us: u64,
    window_us: u64,
    /// Packets received and sent by the system under test.
    counts: [u64; 2],
}

/// The slices of each stint: those that follow each other without a gap.
fn stints(json: &str) -> Result<Vec<Vec<Slice>>> {
    #[derive(Deserialize)]
    struct Document {
        runs: Vec<Run>,
    }
    #[derive(Deserialize)]
    struct Run {
        started_unix_ms: u64,
        hosts: Vec<Host>,
    }
    #[derive(Deserialize)]
    struct Host {
        role: String,
        window_ns: u64,
        rx_packets_count: u64,
        tx_packets_count: u64,
    }
    let Document { mut runs } = serde_json::from_str(json).context("cannot read the report")?;
    runs.sort_by_key(|run| run.started_unix_ms);
    let mut stints: Vec<Vec<Slice>> = Vec::new();
    let mut length_us = None;
    for run in &runs {
        let sut = run.hosts.iter().find(|host| host.role == "sut").context("no SUT")?;
        let begun_us = run.started_unix_ms * 1000;
        let counts = [sut.rx_packets_count, sut.tx_packets_count];
        let slice = Slice { begun_us, window_us: sut.window_ns / 1000, counts };
        let last = stints.last_mut().and_then(|stint| Some((stint.last()?.begun_us, stint)));
        match last {
            Some((last_us, stint))
                if *length_us.get_or_insert(begun_us - last_us) == begun_us - last_us =>
            {
                stint.push(slice);
            }
            _ => stints.push(vec![slice]),
        }
    }
    stints.retain(|stint| stint.len() >= SLICES_AT_LEAST);
    ensure!(!stints.is_empty(), "the results have no slices");
    Ok(stints)
}

fn judge(stints: &[Vec<Slice>], wire: &Wire) -> Result<Slices> {
    let mut slices = Slices { errors: [Vec::new(), Vec::new()], before_us: (u64::MAX, 0) };
    for stint in stints {
        for half in 0..2 {
            let every_other =
                |from| stint.iter().skip(from).step_by(2).copied().collect::<Vec<_>>();
            let before_us = nearest(&every_other(1 - half), wire);
            let (least, most) = slices.before_us;
            slices.before_us = (least.min(before_us), most.max(before_us));
            for slice in every_other(half) {
                for (way, errors) in slices.errors.iter_mut().enumerate() {
                    let seen = wire.count(way, slice.begun_us + before_us, slice.window_us);
                    ensure!(seen > 0, "tcpdump saw nothing in a slice");
                    errors.push((slice.counts[way] as f64 / seen as f64 - 1.0).abs());
                }
            }
        }
    }
    for errors in &mut slices.errors {
        errors.sort_by(f64::total_cmp);
    }
    Ok(slices)
}

/// The time from the beginning of a trial to its window by which the counts differ least from the wire's.
fn nearest(slices: &[Slice], wire: &Wire) -> u64 {
    let apart = |before_us: &u64| {
        let of_slice = |slice: &Slice| {
            let of_way = |way| {
                let seen = wire.count(way, slice.begun_us + before_us, slice.window_us);
                seen.abs_diff(slice.counts[way])
            };
            of_way(0) + of_way(1)
        };
        slices.iter().map(of_slice).sum::<u64>()
    };
    let steps = (0..=BEFORE_MS * 1000 / STEP_US).map(|step| WARMUP_MS * 1000 + step * STEP_US);
    steps.min_by_key(apart).expect("there are steps")
}

impl Slices {
    /// Whether nine in ten are near enough.
    pub fn is_good(&self) -> bool {
        self.errors.iter().all(|errors| at(errors, 90) <= GOAL)
    }
}

/// The error that so many percent of ascending errors do not exceed.
fn at(errors: &[f64], percent: usize) -> f64 {
    let rank = (errors.len() * percent).div_ceil(100).saturating_sub(1);
    errors.get(rank).copied().unwrap_or(f64::NAN)
}

impl fmt::Display for Slices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.errors[0].len();
        writeln!(f, "packets counted in a slice against the wire's, {count} slices")?;
        for (name, errors) in ["received", "sent"].iter().zip(&self.errors) {
            let [median, most, worst] = [50, 90, 100].map(|percent| at(errors, percent) * 100.0);
            let mark = if at(errors, 90) <= GOAL { "" } else { " !" };
            writeln!(
                f,
                "  {name:<8} median error {median:.2} %, nine in ten within {most:.2} %, worst {worst:.2} %   \
                 goal: nine in ten within {:.0} %{mark}",
                GOAL * 100.0
            )?;
        }
        let (least, most) = self.before_us;
        let after_warmup = |us: u64| (us as f64 / 1e3) - WARMUP_MS as f64;
        write!(
            f,
            "  windows begin {:.1} to {:.1} ms after the warm-up would end if trials connected at once",
            after_warmup(least),
            after_warmup(most)
        )
    }
}

#[cfg(test)]
mod tests {
    use latput_units::Rng;

    use super::*;

    const BEGUN_US: u64 = 1_795_559_986_000_000;

    #[test]
    fn the_windows_of_a_stint_are_found_and_wrong_counts_are_seen() {
        let mut rng = Rng::from_seed(7);
        let mut at_us = [Vec::new(), Vec::new()];
        for way in &mut at_us {
            // 3000 a second, at random times.
            way.extend((0..36_000).map(|_| BEGUN_US + rng.below(12_000_000) as u64));
            way.sort_unstable();
        }
        let wire = Wire { at_us };
        let stint = |more: u64| -> Vec<Slice> {
            let slice = |idx: u64| {
                let begun_us = BEGUN_US + idx * 250_000;
                let counts = [0, 1].map(|way| wire.count(way, begun_us + 237_000, 225_000) + more);
                Slice { begun_us, window_us: 225_000, counts }
            };
            (0..40).map(slice).collect()
        };
        let good = judge(&[stint(0)], &wire).unwrap();
        assert!(good.is_good() && at(&good.errors[0], 100) == 0.0, "{good}");
        assert_eq!(good.before_us, (237_000, 237_000));
        // 15 of 750 packets.
        let bad = judge(&[stint(15)], &wire).unwrap();
        assert!(!bad.is_good(), "{bad}");
    }

    #[test]
    fn a_gap_between_slices_begins_a_stint() {
        let run = |ms: u64| {
            format!(
                r#"{{"started_unix_ms": {ms}, "hosts": [{{"role": "sut", "window_ns": 225128750,
                "rx_packets_count": 826, "tx_packets_count": 694}}]}}"#
            )
        };
        let runs: Vec<String> =
            [0, 250, 500, 750, 1400, 1650, 1900, 2150].into_iter().map(run).collect();
        let found = stints(&format!(r#"{{"runs": [{}]}}"#, runs.join(","))).unwrap();
        assert_eq!(found.iter().map(Vec::len).collect::<Vec<_>>(), [4, 4]);
        assert_eq!((found[1][0].begun_us, found[0][0].counts), (1_400_000, [826, 694]));
        assert!(stints(r#"{"runs": []}"#).is_err());
    }
}
