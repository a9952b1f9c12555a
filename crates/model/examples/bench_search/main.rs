//! How few trials the search needs, on simulated hosts whose best setting is known.
//!
//! `cargo xtask bench-search` runs this and the peer that it is compared with. `SET tabulate FILE` computes
//! what every host does under every setting; `SET cases FILE` prints them as the peer reads them; `SET run
//! FILE SEEDS` searches, and prints one JSON line for each search. A set is `known`, `held-out` or `recorded`; the tables of the
//! last are what `recorded tabulate FILE REPORT` makes of a run on real hosts.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a benchmark talks to whoever runs it"
)]

mod cases;
mod table;
mod trials;

use std::sync::atomic::{AtomicUsize, Ordering};

use cases::{CaseSet, GOALS, GoalTerms};
use serde_json::json;
use table::FigureTable;
use trials::SearchCase;

/// Trials that every method gets, in percent of the grid.
const BUDGET_PERCENT: usize = 30;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let set = match words.first() {
        Some(&"held-out") => CaseSet::HeldOut,
        Some(&"recorded") => CaseSet::Recorded,
        _ => CaseSet::Known,
    };
    match words.get(1..).unwrap_or_default() {
        ["tabulate", file] => table::write_tables(set, file),
        ["tabulate", file, report] => table::of_report(file, report),
        ["cases", file] => println!("{}", describe_cases(set, &table::read(file))),
        ["run", file, seeds] => {
            run(set, &table::read(file), seeds.parse().expect("a number of seeds"));
        }
        _ => {
            panic!(
                "usage: bench_search known|held-out|recorded tabulate FILE [REPORT] | cases FILE | run FILE SEEDS"
            )
        }
    }
}

/// Every host under every workload with every goal.
fn make_cases(set: CaseSet, tables: &[FigureTable]) -> Vec<SearchCase<'_>> {
    let mut found = Vec::new();
    for table in tables {
        for (name, goal) in GOALS {
            let Some(plan) = set.find_plan(table, goal) else { continue };
            let wanted = GoalTerms::from_plan(&plan);
            found.push(SearchCase {
                name: format!("{}/{}/{name}", table.system, table.workload),
                table,
                truth: table.compute_answer(&wanted),
                settings: plan.settings(),
                cost: wanted.cost,
                plan,
            });
        }
    }
    found
}

/// Describes the cases to a program that is not ours.
fn describe_cases(set: CaseSet, tables: &[FigureTable]) -> String {
    let cases = make_cases(set, tables);
    let described = cases.iter().map(|case| {
        let ordered = |factor: &latput_trial::plan::Factor| {
            let name = factor.targets[0].knob.name();
            name != "rps-cpus"
        };
        let axes = case.plan.factors.iter();
        let axes: Vec<_> =
            axes.map(|factor| json!([factor.levels.len(), ordered(factor)])).collect();
        json!({
            "case": case.name, "axes": axes, "figures": case.table.figures, "cost": case.cost,
            "least_rate": case.truth.least_rate, "near": case.truth.near,
            "costs": case.truth.cost, "best": case.truth.best,
            "budget": trial_budget(case),
        })
    });
    json!(described.collect::<Vec<_>>()).to_string()
}

fn trial_budget(case: &SearchCase<'_>) -> usize {
    case.settings.len() * BUDGET_PERCENT / 100
}

fn run(set: CaseSet, tables: &[FigureTable], seeds: u64) {
    let cases = make_cases(set, tables);
    let todo: Vec<(usize, u64)> =
        (0..cases.len()).flat_map(|case| (1..=seeds).map(move |seed| (case, seed))).collect();
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..thread_count() {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(&(case, seed)) = todo.get(at) else { return };
                    if at.is_multiple_of(todo.len().div_ceil(20)) {
                        eprintln!("search {at} of {}", todo.len());
                    }
                    let case = &cases[case];
                    for ended in [
                        case.run_search(seed, trial_budget(case)),
                        case.run_random(seed, trial_budget(case)),
                    ] {
                        println!("{}", json!(ended));
                    }
                }
            });
        }
    });
}

/// Cores of this machine.
pub(crate) fn thread_count() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
