//! Runs of the lab in which the effect of one setting is known.
//!
//! The answering host polls its queue by a timer (`gro-flush-timeout`, with interrupts deferred for longer than
//! any gap). A request waits for the next poll, and the next request follows at once. So a round trip takes as long as the timer, where that is
//! longer than the way itself, and another timer is another time: netem's delay, made by the knob that is on
//! trial. Three more settings differ from today's by some nanoseconds.
//!
//! A 99th percentile is some 140 us longer than the timer on the machine that the timers were chosen on. So the effect is
//! near its name, and the table has what was measured.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use latput_stats::order::middle;
use latput_stats::share::wilson;
use serde_json::Value;

use crate::goal::format_share;
use crate::peers::lab::{INTERFACE, Lab, SERVER};
use crate::workspace::{Workspace, make_folder};

/// Polls that find nothing before interrupts are back: never, under this load.
const POLLS: u32 = 1000;
/// Settings like today's in each run.
const LIKE_TODAY: u32 = 3;
/// The setting with the effect: the first that the plan lists, after today's.
const CHANGED: u64 = 1;
/// Time of a run beside its budget.
const OVERHEAD: Duration = Duration::from_secs(120);
/// The most of the runs that may set what is like today's.
const MOST_FALSE: f64 = 0.01;

/// A known effect, and how often it should be proven.
struct EffectCase {
    name: &'static str,
    goal: &'static str,
    /// The metric of the goal.
    metric: &'static str,
    /// Microseconds of the timer: today's and the other.
    timers: [u32; 2],
    /// The wanted share of runs that set it.
    at_least: Option<f64>,
}

const P99: &str = "minimize latency_ns_p99";
const RATE: &str = "maximize rate";
const DEMAND: &str = "minimize sut_service_demand_us where rate >= 0.5 today";

const CASES: [EffectCase; 6] = [
    EffectCase::new("p99 -10%", P99, "latency_ns_p99", [200, 166], None),
    EffectCase::new("p99 -20%", P99, "latency_ns_p99", [200, 132], Some(0.7)),
    EffectCase::new("p99 -30%", P99, "latency_ns_p99", [200, 98], Some(0.95)),
    EffectCase::new("rate +11%", RATE, "transactions_per_s", [200, 180], Some(0.9)),
    EffectCase::new("demand, a longer timer", DEMAND, "sut_service_demand_us", [20, 30], Some(0.8)),
    EffectCase::new("none", P99, "latency_ns_p99", [200, 200], None),
];

/// Result of one run.
#[derive(Debug, PartialEq)]
struct LabRun {
    /// The setting that the run says to set, if it does.
    set: Option<u64>,
    /// The other timer's figure over today's.
    ratio: Option<f64>,
}

impl EffectCase {
    const fn new(
        name: &'static str,
        goal: &'static str,
        metric: &'static str,
        timers: [u32; 2],
        at_least: Option<f64>,
    ) -> Self {
        Self { name, goal, metric, timers, at_least }
    }

    fn has_effect(&self) -> bool {
        self.timers[0] != self.timers[1]
    }

    fn render_plan(&self, seconds: u32) -> String {
        let [today, other] = self.timers.map(|microseconds| 1000 * microseconds);
        let other = if self.has_effect() { other } else { today + LIKE_TODAY + 1 };
        let like_today = (1..=LIKE_TODAY).map(|more| today + more);
        let levels: Vec<String> = std::iter::once(other)
            .chain(like_today)
            .map(|level| format!("\"{level}ns\""))
            .collect();
        format!(
            "schema = 1\nname = \"power\"\ngoal = \"{}\"\n[factors]\n\"sut.gro-flush-timeout\" = [{}]\n[[workload]]\n\
             kind = \"tcp_rr\"\n[method]\nwarmup = \"200ms\"\nduration = \"1s\"\nconfidence = 0.99\n\
             half_width = 0.025\nbudget = \"{seconds}s\"\n",
            self.goal,
            levels.join(", ")
        )
    }

    fn run(&self, lab: &Lab, seconds: u32) -> Result<LabRun> {
        let timer = format!("gro-flush-timeout={}us", self.timers[0]);
        let polls = format!("napi-defer-hard-irqs={POLLS}");
        lab.output_of(SERVER, [&lab.latput_path(), "set", INTERFACE, &timer, &polls])?;
        let deadline = Instant::now() + Duration::from_secs(seconds.into()) + OVERHEAD;
        let (run, results) = lab.start_plan("power", &self.render_plan(seconds), &[])?;
        run.wait_for_output(&lab.stop, deadline)?;
        came_of(&lab.read_report(&results, deadline)?, self.metric)
    }
}

/// Runs every case so many times, in turn, and prints the table.
///
/// # Errors
///
/// A goal is missed, beyond what so few runs leave open.
pub(super) fn run(workspace: &Workspace, runs: u32, seconds: u32) -> Result<()> {
    let latput = workspace.build_latput()?;
    let folder = workspace.target.join("bench-power");
    make_folder(&folder)?;
    let lab = Lab::up(&latput, &folder)?;
    let mut found: [Vec<LabRun>; CASES.len()] = std::array::from_fn(|_| Vec::new());
    for _ in 0..runs {
        for (case, found) in CASES.iter().zip(&mut found) {
            let run = case.run(&lab, seconds)?;
            println!("{}: {run:?}", case.name);
            found.push(run);
        }
    }
    print_table(&found, seconds)
}

fn print_table(found: &[Vec<LabRun>], seconds: u32) -> Result<()> {
    println!(
        "\n{seconds} s of tcp_rr, today's setting and {} others; 95% intervals (Wilson)\n",
        LIKE_TODAY + 1
    );
    println!("{:24} {:>8} {:>24} {:>24}   measured", "effect", "goal", "proven", "false changes");
    let mut missed = Vec::new();
    for (case, runs) in CASES.iter().zip(found) {
        let [proven, wrong] = count_outcomes(case, runs);
        let count = runs.len() as u64;
        let goal = case.at_least.map(|least| format!(">= {:.0}%", 100.0 * least));
        let mut ratios: Vec<f64> = runs.iter().filter_map(|run| run.ratio).collect();
        ratios.sort_unstable_by(f64::total_cmp);
        println!(
            "{:24} {:>8} {:>24} {:>24}   {}",
            case.name,
            goal.unwrap_or_default(),
            if case.has_effect() { format_share(proven, count) } else { "-".to_owned() },
            format_share(wrong, count),
            match &ratios[..] {
                [] => "-".to_owned(),
                some => format!(
                    "{:.3} ({:.3} to {:.3})",
                    middle(some.iter().copied()).expect("there is one"),
                    some[0],
                    some[some.len() - 1]
                ),
            }
        );
        if case.at_least.is_some_and(|least| wilson(proven, count).1 < least) {
            missed.push(case.name);
        }
        if wilson(wrong, count).0 > MOST_FALSE {
            missed.push("false changes");
        }
    }
    ensure!(missed.is_empty(), "missed: {}", missed.join(", "));
    Ok(())
}

/// Runs that set what has the effect, and runs that set another.
fn count_outcomes(case: &EffectCase, runs: &[LabRun]) -> [u64; 2] {
    let is_right = |run: &&LabRun| case.has_effect() && run.set == Some(CHANGED);
    let proven = runs.iter().filter(is_right).count();
    let set = runs.iter().filter(|run| run.set.is_some()).count();
    [proven as u64, (set - proven) as u64]
}

/// Reads the result from the document of a run.
fn came_of(report: &Value, metric: &str) -> Result<LabRun> {
    let kind = report["headline"]["kind"].as_str().context("the report has no headline")?;
    let cells = report["cells"].as_array().context("the report has no cells")?;
    let cell = cells.iter().find(|cell| cell["setting"] == CHANGED);
    let set = match kind {
        "set" => Some(report["recommendation"]["setting"].as_u64().context("it sets nothing")?),
        _ => None,
    };
    let ratio = cell.and_then(|cell| cell["against_first_ratio"][metric]["value"].as_f64());
    Ok(LabRun { set, ratio })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn outcome_is_read_from_document() {
        let report = |kind: &str, setting: u64| {
            json!({
                "headline": { "kind": kind },
                "recommendation": { "setting": setting },
                "cells": [
                    { "setting": 0, "against_first_ratio": {} },
                    { "setting": 1, "against_first_ratio": { "rate": { "value": 1.1 } } },
                ],
            })
        };
        let run = |kind, setting| came_of(&report(kind, setting), "rate").unwrap();
        assert_eq!(run("set", 1), LabRun { set: Some(1), ratio: Some(1.1) });
        assert_eq!(run("stay", 0).set, None);
        assert!(came_of(&json!({}), "rate").is_err());
        let runs = [run("set", 1), run("set", 3), run("stay", 0)];
        assert_eq!(count_outcomes(&CASES[0], &runs), [1, 1]);
        let none = CASES.iter().find(|case| !case.has_effect()).unwrap();
        assert_eq!(
            count_outcomes(none, &runs),
            [0, 2],
            "where nothing is better every change is false"
        );
    }
}
