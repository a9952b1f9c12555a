//! Trials of remedies on the lab: `latput diagnose --prove` under planted faults of which it is known that the remedy helps.

use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use super::cases::CASES;
use super::{Options, Question, Tools, plant};
use crate::goal::format_share;
use crate::peers::lab::INTERFACE;

/// Cases whose finding's remedy is a setting that the lab has.
const PROVABLE: [&str; 7] = [
    "interrupts put off",
    "interrupts put off, at the client",
    "small packets",
    "GRO off",
    "NAPI threads below a hog",
    "bursts of datagrams through slow rules",
    "small send buffers",
];
/// The least part of rightly judged findings.
const RIGHT: f64 = 28.0 / 30.0;
/// Longest time of one trial, as the flag takes it, and with the rest of the case.
const BUDGET: &str = "90s";
const WITHIN: Duration = Duration::from_secs(150);

/// Tries the remedies by turns, prints each verdict and the counts.
///
/// # Errors
///
/// A goal is missed.
pub(super) fn try_remedies(tools: &Tools<'_>, options: &Options) -> Result<()> {
    let (mut right, mut wrong, mut all) = (0, 0, 0);
    for _ in 0..options.rounds {
        for case in CASES.iter().filter(|case| PROVABLE.contains(&case.name)) {
            let Some(id) = case.expected.filter(|_| options.is_chosen(case.name)) else { continue };
            // Slices that the hypervisor disturbs are for latput to find out.
            let line = compose_trial(id, tools, options);
            let question = Question { line, within: WITHIN, most_stolen: 1.0 };
            let Some(said) = plant(case, "", tools, &question)? else { continue };
            let verdict = read_verdict(&said, id)?;
            println!("{:<40} {id:<20} {verdict}", case.name);
            all += 1;
            right += u64::from(verdict.starts_with("blamed"));
            wrong += u64::from(verdict.starts_with("cleared"));
        }
    }
    println!(
        "\nblamed rightly          {:<22} wanted >= {:.0}%",
        format_share(right, all),
        100.0 * RIGHT
    );
    println!("cleared wrongly         {:<22} wanted 0", format_share(wrong, all));
    let is_met = wrong == 0 && right as f64 >= RIGHT * all as f64;
    anyhow::ensure!(is_met, "a goal is missed");
    Ok(())
}

fn compose_trial(id: &str, tools: &Tools<'_>, options: &Options) -> String {
    let results = tools.scratch.join("proofs.db");
    let disruptive = ["tso", "gso", "gro", "threaded"].map(|knob| format!("--disruptive {knob}"));
    format!(
        "rm -f '{results}'; exec '{}' diagnose {INTERFACE} --for {} --prove {id} --budget {BUDGET} {} -o '{results}' --json",
        tools.binary.display(),
        options.window(),
        disruptive.join(" "),
        results = results.display(),
    )
}

/// The verdict on the finding, with its figures.
fn read_verdict(document: &str, id: &str) -> Result<String> {
    let document: Value = serde_json::from_str(document).context("the diagnosis is no JSON")?;
    let findings = document["findings"].as_array().context("there are no findings")?;
    let Some(found) = findings.iter().find(|found| found["id"] == id) else {
        return Ok("not found".to_owned());
    };
    let verdict = found["verdict"].as_str().unwrap_or("none");
    let details = [&found["proof"], &found["untried"]].map(|value| match value {
        Value::Null => String::new(),
        other => format!(" {other}"),
    });
    Ok(format!("{verdict}{}", details.concat()))
}
