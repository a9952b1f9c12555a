//! Steps that wait for most of their time, each in a process of its own beside the others.

use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result};

use super::Ended;
use super::steps::Step;
use super::tally::{Tally, count_before};

/// Runs all of them at once. What each said is shown whole once it has ended, in their order.
pub fn run(steps: &[&Step]) -> Vec<Ended> {
    std::thread::scope(|scope| {
        let running: Vec<_> = steps.iter().map(|step| scope.spawn(|| run_one(step))).collect();
        let ended = running.into_iter().map(|it| it.join().expect("to run a step does not panic"));
        let show = |(said, ended): (String, Ended)| {
            println!("{said}");
            ended
        };
        ended.map(show).collect()
    })
}

fn run_one(step: &Step) -> (String, Ended) {
    let started = Instant::now();
    let (said, tally) = ask(step).unwrap_or_else(|error| {
        let mut tally = Tally::default();
        tally.failed = 1;
        (format!("error: {error:#}"), tally)
    });
    (said, (tally, started.elapsed().as_secs_f64()))
}

/// Runs `cargo xtask ci --only STEP`.
fn ask(step: &Step) -> Result<(String, Tally)> {
    let xtask = std::env::current_exe().context("cannot find this program")?;
    let mut said = Vec::new();
    // How it ended is in its last line too.
    let command = &mut Command::new(xtask);
    let ended = Tally::default().run_to(command.args(["ci", "--only", step.name]), &mut said);
    let said = String::from_utf8_lossy(&said);
    let (own, mut tally) = read(&said);
    if ended.is_err() {
        tally.failed = tally.failed.max(1);
    }
    Ok((own.to_owned(), tally))
}

/// What the step itself said, and the counts of what `ci` says after it.
fn read(said: &str) -> (&str, Tally) {
    let (own, after) = said.rsplit_once("\n\n").unwrap_or((said, ""));
    let mut tally = Tally::default();
    for line in after.lines() {
        if let Some(arm) = line.strip_prefix("skipped: ") {
            tally.skipped.push(arm.to_owned());
        } else if line.ends_with(" passed only alone") {
            tally.passed = count_before(line, " passed");
            tally.failed = count_before(line, " failed");
        }
    }
    (own, tally)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_step_says_is_told_from_what_ci_counts() {
        let own =
            "\n== one: first\nerror: no such file\n\n2 passed in 3 s\n== one: FAILED after 3.0 s";
        let counts = "one       FAILED     3.0 s  2 passed, 1 failed\nall                  3.0 s\nskipped: needs chromium\n\
                      2 passed, 1 failed, 0 passed only alone\n";
        let output = format!("{own}\n\n{counts}");
        let (said, tally) = read(&output);
        assert_eq!(said, own);
        assert_eq!((tally.passed, tally.failed), (2, 1));
        assert_eq!(tally.skipped, ["needs chromium"]);
    }
}
