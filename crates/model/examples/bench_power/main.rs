//! What chance the recommendation has to prove a known effect, and to claim one that is not there, on
//! noise recorded from the lab: `cargo xtask bench-power`.
//!
//! Settings are equal in the recordings; a known factor is multiplied into one of five. Every judgement
//! is made by the library itself, from rows as a run would have them.

#![expect(clippy::print_stdout, reason = "a benchmark talks to whoever runs it")]

mod noise;
#[path = "../../src/synthetic.rs"]
#[expect(dead_code, reason = "shared with the tests of the library")]
mod synthetic;

use std::process::ExitCode;

use latput_model::Summary;
use latput_trial::{Results, Workload};
use latput_units::Rng;
use noise::{Blocks, read, resample};
use synthetic::{Figures, results, rr, stream};

const SETTINGS: [&str; 5] = ["a", "b", "c", "d", "e"];
/// The setting that differs.
const CHANGED: usize = 2;
const SEED: u64 = 0x90e5;
/// Rounds of slices that fit into 200 s: two workloads of five settings and 250 ms.
const ROUNDS: usize = 80;

/// One row of the table.
struct Case {
    name: &'static str,
    goal: &'static str,
    /// What is multiplied into the changed setting's rate, tail and demand; `None`: nothing differs.
    factors: Option<[f64; 3]>,
    /// The wanted share of runs that prove it.
    at_least: Option<f64>,
}

const P99: &str = "minimize latency_ns_p99 where throughput_bps >= 0.95 today";
const RATE: &str = "maximize rate where rate >= 0.95 today";
const DEMAND: &str = "minimize sut_service_demand_us where rate >= 0.95 today";

const CASES: [Case; 10] = [
    Case { name: "p99 -10 %", goal: P99, factors: Some([1.0, 0.9, 1.0]), at_least: None },
    Case { name: "p99 -20 %", goal: P99, factors: Some([1.0, 0.8, 1.0]), at_least: Some(0.7) },
    Case { name: "p99 -30 %", goal: P99, factors: Some([1.0, 0.7, 1.0]), at_least: Some(0.95) },
    Case {
        name: "rate +11 %",
        goal: RATE,
        factors: Some([1.0 / 0.9, 1.0, 1.0]),
        at_least: Some(0.9),
    },
    Case { name: "rate +25 %", goal: RATE, factors: Some([1.25, 1.0, 1.0]), at_least: None },
    Case {
        name: "demand -10 %",
        goal: DEMAND,
        factors: Some([1.0, 1.0, 0.9]),
        at_least: Some(0.8),
    },
    Case { name: "demand -20 %", goal: DEMAND, factors: Some([1.0, 1.0, 0.8]), at_least: None },
    Case { name: "none, p99", goal: P99, factors: None, at_least: None },
    Case { name: "none, rate", goal: RATE, factors: None, at_least: None },
    Case { name: "none, demand", goal: DEMAND, factors: None, at_least: None },
];

/// The most that may be claimed where nothing differs.
const MOST_FALSE: f64 = 0.01;

fn main() -> ExitCode {
    let draws: u64 = std::env::args().nth(1).map_or(400, |text| text.parse().expect("draws"));
    let slices = include_str!("../../../../data/noise/slices.csv");
    let blocks = include_str!("../../../../data/noise/blocks.csv");
    let noise = |csv| [read(csv, "tcp_rr"), read(csv, "tcp_stream")];
    println!("seed {SEED}, {draws} resampled runs of each; 95 % intervals in brackets (Wilson)");
    println!("{:14} {:8} {:>22} {:>22}", "true effect", "goal", "8 blocks of 1 s", "slices");
    let designs = [(noise(blocks), 8), (noise(slices), ROUNDS)];
    let mut is_met = true;
    for case in &CASES {
        let shares = designs.each_ref().map(|(noise, count)| share(case, noise, *count, draws));
        let is_null = case.factors.is_none();
        let wanted = match case.at_least {
            Some(least) => format!(">= {:.0} %", least * 100.0),
            None if is_null => format!("<= {:.0} %", MOST_FALSE * 100.0),
            None => String::new(),
        };
        println!(
            "{:14} {wanted:8} {:>22} {:>22}",
            case.name,
            words(shares[0], draws),
            words(shares[1], draws)
        );
        is_met &= case.at_least.is_none_or(|least| shares[1] >= least);
        // A share is too large only where its interval says so.
        is_met &= !is_null || shares.iter().all(|&one| wilson(one, draws).0 <= MOST_FALSE);
    }
    if is_met { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// How often the changed setting is proven, or of the null any.
fn share(case: &Case, noise: &[Blocks; 2], count: usize, draws: u64) -> f64 {
    let is_null = case.factors.is_none();
    let hits = (0..draws).filter(|&draw| {
        let mut rng = Rng::split(SEED, draw);
        let drawn = noise.each_ref().map(|blocks| resample(blocks, count, &mut rng));
        let advice =
            Summary::of(&made(case, &drawn)).recommendation.expect("a goal that can be judged");
        advice.is_proven() && (is_null || advice.setting == CHANGED)
    });
    hits.count() as f64 / draws as f64
}

/// A results file with these runs.
fn made(case: &Case, drawn: &[Blocks; 2]) -> Results {
    let workloads: [Workload; 2] = [rr("tcp_rr"), stream("tcp_stream")];
    let [rate, tail, demand] = case.factors.unwrap_or([1.0; 3]);
    let blocks = u32::try_from(drawn[0].len()).expect("some hundred rounds");
    let mut calls = 0;
    let mut made = results(&SETTINGS, &workloads, blocks, |setting, workload| {
        // Blocks are the outer loop, then settings, then workloads.
        let block = calls / (SETTINGS.len() * workloads.len());
        calls += 1;
        let run = &drawn[workload][block][setting];
        let of = |name: &str| *run.get(name).expect("recorded");
        let by = |factor: f64| if setting == CHANGED { factor } else { 1.0 };
        let (rate_name, tail_name) =
            [("transactions_per_s", "latency_ns_p99"), ("throughput_bps", "probe_ns_p99")]
                [workload];
        Figures {
            rate: of(rate_name) * by(rate),
            p99_us: Some(of(tail_name) / 1e3 * by(tail)),
            service_demand_us: of("sut_service_demand_us") * by(demand),
        }
    });
    made.goal = Some(case.goal.to_owned());
    made
}

fn words(share: f64, draws: u64) -> String {
    let (low, high) = wilson(share, draws);
    format!("{:.1} % [{:.1}, {:.1}]", share * 100.0, low * 100.0, high * 100.0)
}

/// Wilson's interval of a share at 95 % (J. Am. Stat. Assoc. 22, 1927).
fn wilson(share: f64, draws: u64) -> (f64, f64) {
    let (n, z) = (draws as f64, 1.959_964_f64);
    let center = (share + z * z / (2.0 * n)) / (1.0 + z * z / n);
    let half = z / (1.0 + z * z / n) * (share * (1.0 - share) / n + z * z / (4.0 * n * n)).sqrt();
    ((center - half).max(0.0), (center + half).min(1.0))
}
