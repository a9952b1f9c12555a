//! Power of the recommendation: its chance to prove a known effect, and to claim one that is not there, on noise
//! recorded from the lab. `cargo xtask bench-power` runs it.
//!
//! Settings are equal in the recordings; known factors are multiplied into them. Whole runs are made of
//! stretches of a recording, and every judgement in them is made by the library itself.

#![expect(clippy::print_stdout, reason = "a benchmark talks to whoever runs it")]

mod before;
mod coverage;
mod noise;
mod run;
#[path = "../../src/synthetic.rs"]
#[expect(dead_code, reason = "shared with the tests of the library")]
mod synthetic;

use std::process::ExitCode;

use before::OldRuleGoal;
use latput_model::Goal;
use latput_stats::share::wilson;
use latput_units::SeededRng;
use noise::NoiseRecording;
use run::Truth;

const SETTINGS: [&str; 5] = ["a", "b", "c", "d", "e"];
/// The setting that differs.
const CHANGED: usize = 2;
const SEED: u64 = 0x90e5;
/// The most that may be claimed where nothing differs, and of the best settings that may be dropped.
const MOST_FALSE: f64 = 0.01;
/// Draws where nothing is to be found, as a multiple of the others: rare errors need many.
const DRAWS_OF_NULL: u64 = 5;

/// One row of the table.
struct PowerCase {
    name: &'static str,
    goal: &'static str,
    /// Of the rule before.
    aim: OldRuleGoal,
    truth: Truth,
    /// The wanted share of runs that prove it; of a case without a better setting, nothing.
    at_least: Option<f64>,
}

const P99: &str = "minimize latency_ns_p99 where throughput_bps >= 0.95 today";
const RATE: &str = "maximize rate where rate >= 0.95 today";
const DEMAND: &str = "minimize sut_service_demand_us where rate >= 0.95 today";

const fn make_case(
    name: &'static str,
    goal: &'static str,
    figure: usize,
    factors: [f64; 5],
    at_least: Option<f64>,
) -> PowerCase {
    let mut truth = [[1.0; 3]; 5];
    let mut setting = 0;
    while setting < 5 {
        truth[setting][figure] = factors[setting];
        setting += 1;
    }
    PowerCase {
        name,
        goal,
        aim: OldRuleGoal { figure, limits_bulk_only: figure == 1 },
        truth,
        at_least,
    }
}

const fn factors_with_change(factor: f64) -> [f64; 5] {
    let mut factors = [1.0; 5];
    factors[CHANGED] = factor;
    factors
}

const CASES: [PowerCase; 9] = [
    make_case("p99 -10%", P99, 1, factors_with_change(0.9), None),
    make_case("p99 -20%", P99, 1, factors_with_change(0.8), Some(0.7)),
    make_case("p99 -30%", P99, 1, factors_with_change(0.7), Some(0.95)),
    make_case("rate +11%", RATE, 0, factors_with_change(1.0 / 0.9), Some(0.9)),
    make_case("demand -10%", DEMAND, 2, factors_with_change(0.9), Some(0.8)),
    make_case("none, p99", P99, 1, factors_with_change(1.0), None),
    make_case("none, rate", RATE, 0, factors_with_change(1.0), None),
    make_case("none, demand", DEMAND, 2, factors_with_change(1.0), None),
    make_case("p99: two +50%", P99, 1, [1.0, 1.0, 1.0, 1.5, 1.5], None),
];

impl PowerCase {
    /// Whether no setting is better than the first.
    fn is_null(&self) -> bool {
        is_same(&self.truth[CHANGED], &[1.0; 3])
    }

    /// Whether a change to `setting` is what should be proven, or where nothing should be, any change.
    fn is_expected_change(&self, setting: usize) -> bool {
        self.is_null() || setting == CHANGED
    }

    /// The settings that are as good as the best, but for the first, which is never dropped.
    fn best_settings(&self) -> impl Iterator<Item = usize> {
        (1..SETTINGS.len()).filter(|&one| is_same(&self.truth[one], &self.truth[CHANGED]))
    }
}

fn is_same(a: &[f64; 3], b: &[f64; 3]) -> bool {
    a.iter().zip(b).all(|(a, b)| a.total_cmp(b).is_eq())
}

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let draws: u64 = args.next().map_or(400, |text| text.parse().expect("draws"));
    let is_of_intervals = args.next().is_some_and(|text| text == "intervals");
    let csv = |name| match name {
        "blocks" => include_str!("../../../../data/noise/blocks.csv"),
        "trials" => include_str!("../../../../data/noise/trials.csv"),
        _ => include_str!("../../../../data/noise/slices.csv"),
    };
    let [blocks, trials, slices] =
        ["blocks", "trials", "slices"].map(|name| noise::read(csv(name)));
    if is_of_intervals {
        coverage::print_table(&[("disturbed", &trials), ("quiet", &slices)], draws);
        return ExitCode::SUCCESS;
    }
    println!(
        "seed {SEED}, {draws} runs of each ({} where nothing is better); 95% intervals (Wilson)\n",
        draws * DRAWS_OF_NULL
    );
    println!(
        "{:15} {:8} {:>20} {:>20} {:>20}   best dropped: disturbed, quiet",
        "true effect", "goal", "before, disturbed", "now, disturbed", "now, quiet"
    );
    let mut is_met = true;
    for case in &CASES {
        let draws = if case.is_null() { draws * DRAWS_OF_NULL } else { draws };
        let before = count_draws(draws, |rng| {
            let change = before::run(&blocks, &case.truth, &case.aim, rng);
            [change.is_some_and(|setting| case.is_expected_change(setting)), false]
        });
        let goal = Goal::parse(case.goal).expect("a goal");
        let [disturbed, quiet] = [&trials, &slices].map(|noise: &Vec<NoiseRecording>| {
            count_draws(draws, |rng| {
                let outcome = run::run(noise, &case.truth, &goal, rng);
                let is_dropped = case.best_settings().any(|best| outcome.dropped.contains(&best));
                [outcome.change.is_some_and(|setting| case.is_expected_change(setting)), is_dropped]
            })
        });
        let wanted = match case.at_least {
            Some(least) => format!(">= {:.0}%", least * 100.0),
            None if case.is_null() => format!("<= {:.0}%", MOST_FALSE * 100.0),
            None => String::new(),
        };
        println!(
            "{:15} {wanted:8} {:>20} {:>20} {:>20}   {}, {}",
            case.name,
            format_share(before[0], draws),
            format_share(disturbed[0], draws),
            format_share(quiet[0], draws),
            format_share(disturbed[1], draws),
            format_share(quiet[1], draws)
        );
        // The goal of proofs holds for real slices; the other recording has CPU time in ticks.
        is_met &= case.at_least.is_none_or(|least| quiet[0] as f64 >= least * draws as f64);
        for [found, dropped] in [disturbed, quiet] {
            // A share is too large only where its interval says so.
            let is_rare = |count| wilson(count, draws).0 <= MOST_FALSE;
            is_met &= is_rare(dropped) && (!case.is_null() || is_rare(found));
        }
    }
    if is_met { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// How many of `draws` have each of two properties.
fn count_draws(draws: u64, draw: impl Fn(&mut SeededRng) -> [bool; 2] + Sync) -> [u64; 2] {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let part = |first: u64| {
        (first..draws).step_by(threads).fold([0, 0], |sum: [u64; 2], index| {
            let found = draw(&mut SeededRng::from_seed_and_index(SEED, index));
            [sum[0] + u64::from(found[0]), sum[1] + u64::from(found[1])]
        })
    };
    let part = &part;
    std::thread::scope(|scope| {
        let parts: Vec<_> =
            (0..threads as u64).map(|first| scope.spawn(move || part(first))).collect();
        parts.into_iter().fold([0, 0], |sum, part| {
            let found = part.join().expect("no draw panics");
            [sum[0] + found[0], sum[1] + found[1]]
        })
    })
}

fn format_share(count: u64, draws: u64) -> String {
    let (low, high) = wilson(count, draws);
    let share = count as f64 / draws as f64;
    format!("{:.1}% [{:.1}, {:.1}]", share * 100.0, low * 100.0, high * 100.0)
}
