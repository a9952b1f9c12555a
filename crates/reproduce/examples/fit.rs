//! Fits one profile with two threads, for work on profiles.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "a tool of development"
)]
use latput_reproduce::calibrate::{Cells, Plan, calibrate};
use latput_reproduce::{Experiment, Systems, Table};
use std::sync::atomic::{AtomicUsize, Ordering};
#[derive(serde::Deserialize)]
struct Plans {
    profile: Vec<Plan>,
}
fn run_all(jobs: &[(Experiment, u64)]) -> Vec<Vec<Option<latput_reproduce::experiment::Figure>>> {
    let next = AtomicUsize::new(0);
    let out = std::sync::Mutex::new(vec![Vec::new(); jobs.len()]);
    std::thread::scope(|s| {
        for _ in 0..2 {
            s.spawn(|| {
                loop {
                    let idx = next.fetch_add(1, Ordering::Relaxed);
                    let Some((e, seed)) = jobs.get(idx) else { break };
                    let r = e.run(*seed).unwrap_or_default();
                    out.lock().unwrap()[idx] = r;
                }
            });
        }
    });
    out.into_inner().unwrap()
}
fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let plans: Plans =
        toml::from_str(&std::fs::read_to_string("data/calibration.toml").unwrap()).unwrap();
    let plan = plans.profile.into_iter().find(|p| p.profile == args[0]).unwrap();
    let mut systems = Systems::shipped();
    let own = format!("data/systems/{}.toml", args[0]);
    systems.replace(toml::from_str(&std::fs::read_to_string(own).unwrap()).unwrap());
    let files = plan
        .cells
        .iter()
        .map(|f| {
            (
                f.clone(),
                Table::parse(&std::fs::read_to_string(format!("data/published/{f}")).unwrap())
                    .unwrap(),
            )
        })
        .collect();
    let cells = Cells::of(files, &plan.profile, &systems).unwrap();
    let fit = calibrate(
        &plan,
        &cells,
        &systems,
        args.iter().any(|a| a == "validate"),
        &run_all,
        &mut |s| eprintln!("{s}"),
    )
    .unwrap();
    for c in &fit.costs {
        println!("{:12} {:9.1} [{:.0}, {:.0}]", c.parameter.name(), c.value, c.low, c.high);
    }
    for (g, e) in &fit.in_sample {
        println!("{g:12} n={} {:.1} / {:.1}", e.count, 100.0 * e.median, 100.0 * e.p90);
    }
    println!("cv {:?} held {:?}", fit.cross_validated, fit.held_out);
    std::fs::write(&args[1], toml::to_string(&fit.profile).unwrap()).unwrap();
}
