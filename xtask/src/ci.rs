//! `cargo xtask ci`: every check and test in order, each a named step.

mod build;
mod documents;
mod group;
mod printed;
mod silence;
mod steps;
mod tally;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Result, bail};

use crate::workspace::Workspace;
pub use build::cargo_test;
use group::StepResult;
use steps::{GROUPS, SLOW, Step};
pub use tally::Tally;
use tally::TestFailure;

/// Steps to run, and when to stop.
#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub struct Options {
    /// Go on after a step that fails.
    #[arg(long)]
    keep_going: bool,
    /// Run this step only; may be given more than once.
    #[arg(long, value_name = "STEP")]
    only: Vec<String>,
    /// Also the steps that take hours.
    #[arg(long)]
    full: bool,
    /// Also say how long the slowest tests took.
    #[arg(long)]
    timings: bool,
    /// Name the steps and stop.
    #[arg(long)]
    list: bool,
    /// Write what came of all steps to this file in the place of the closing lines.
    #[arg(long, value_name = "FILE", hide = true)]
    tally: Option<PathBuf>,
}

/// Runs the chosen steps; the last line counts the tests.
pub fn run(workspace: &Workspace, options: &Options) -> Result<ExitCode> {
    let chosen = select_steps(&options.only, options.full)?;
    if options.list {
        for step in chosen {
            println!("{:<10} {}", step.name, step.about);
        }
        return Ok(ExitCode::SUCCESS);
    }
    // On our own machines a missing tool or right is worth a line; in CI it is a hole.
    let strict = std::env::var("CI").is_ok_and(|value| value == "true" || value == "1");
    let none_yet = || Tally::new(options.timings);
    let mut total = none_yet();
    let mut closing = Vec::new();
    let begun = Instant::now();
    for group in GROUPS.iter().chain(SLOW) {
        let run = |step| run_step(workspace, step, none_yet(), strict);
        let apart = |step| group::run_apart(workspace, step, options.timings);
        for StepResult { step, tally, seconds } in
            group::run(group, &chosen, options.keep_going, apart, run)
        {
            let verdict = format_verdict(&tally);
            let counts = format!("{} passed, {} failed", tally.passed, tally.failed);
            closing.push(format!("{:<10} {verdict:<6} {seconds:>7.1} s  {counts}", step.name));
            total.add(tally);
        }
        if total.failed > 0 && !options.keep_going {
            break;
        }
    }
    if let Some(file) = &options.tally {
        std::fs::write(file, serde_json::to_vec(&total)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    println!("\n{}", closing.join("\n"));
    println!("{:<10} {:<6} {:>7.1} s", "all", "", begun.elapsed().as_secs_f64());
    Ok(if print_summary(&total) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Prints what came of all steps; whether all is well.
fn print_summary(total: &Tally) -> bool {
    let mut slowest: Vec<_> = total.times.iter().flatten().collect();
    slowest.sort_by(|one, other| other.seconds.total_cmp(&one.seconds));
    for (idx, test) in slowest.iter().take(SLOWEST).enumerate() {
        println!("slow {:>2}   {:>8.1} s  {}", idx + 1, test.seconds, test.name);
    }
    for arm in &total.skipped {
        println!("skipped: {arm}");
    }
    for test in &total.unsteady {
        println!("unsteady: {} failed beside others and passed alone", test.name);
        println!("    {}", test.said.join("\n    "));
    }
    for test in &total.failures {
        println!("failed: {}\n    {}", test.name, test.said.join("\n    "));
    }
    let unsteady = total.unsteady.len();
    println!(
        "{} passed, {} failed, {} skipped, {unsteady} passed only when run alone",
        total.passed,
        total.failed,
        total.skipped.len()
    );
    // The last lines are what a reader of a cut log sees.
    if unsteady > UNSTEADY_MOST {
        println!(
            "error: {unsteady} tests passed only when run alone, and at most {UNSTEADY_MOST} may: {}",
            list_names(&total.unsteady)
        );
    }
    if total.failed > 0 {
        println!("error: {} failed: {}", total.failed, list_names(&total.failures));
    }
    total.failed == 0 && unsteady <= UNSTEADY_MOST
}

fn list_names(tests: &[TestFailure]) -> String {
    let names: Vec<&str> = tests.iter().map(|test| test.name.as_str()).collect();
    names.join(", ")
}

/// Number of the slowest tests that are named.
const SLOWEST: usize = 20;
/// A machine that stops for a second may break a test that measures, or two that ran side by side. More are tests that are
/// not robust.
const UNSTEADY_MOST: usize = 2;

fn all_steps() -> impl Iterator<Item = &'static Step> {
    GROUPS.iter().chain(SLOW).flat_map(|group| group.iter()).flat_map(|lane| lane.steps)
}

/// A slow step runs where it is named, or with `full`.
fn select_steps(only: &[String], full: bool) -> Result<Vec<&'static Step>> {
    let names: Vec<&str> = all_steps().map(|step| step.name).collect();
    if let Some(unknown) = only.iter().find(|name| !names.contains(&name.as_str())) {
        bail!("no step is called `{unknown}`; the steps are {}", names.join(", "));
    }
    let usual: usize = GROUPS.iter().flat_map(|group| group.iter()).map(|it| it.steps.len()).sum();
    if only.is_empty() {
        return Ok(all_steps().take(if full { names.len() } else { usual }).collect());
    }
    Ok(all_steps().filter(|step| only.iter().any(|name| name == step.name)).collect())
}

/// A step without a test counts as one that passed or failed. If `strict`, every arm that was skipped is a failure.
fn run_step(
    workspace: &Workspace,
    step: &'static Step,
    mut tally: Tally,
    strict: bool,
) -> StepResult {
    println!("\n== {}: {}", step.name, step.about);
    let started = Instant::now();
    if let Err(error) = (step.run)(workspace, &mut tally) {
        println!("error: {error:#}");
        tally.record_failed_step(step.name, &format!("{error:#}"));
    } else if (tally.passed, tally.failed, tally.skipped.len()) == (0, 0, 0) {
        tally.passed = 1;
    }
    if strict {
        for arm in &tally.skipped {
            println!("error: skipped in CI: {arm}");
        }
        for arm in std::mem::take(&mut tally.skipped) {
            tally.record_failure(&format!("skipped in CI: {arm}"), "");
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    println!("== {}: {} after {seconds:.1} s", step.name, format_verdict(&tally));
    if tally.failed > 0 {
        println!("   repeat it with: cargo xtask ci --only {}", step.name);
    }
    StepResult { step, tally, seconds }
}

fn format_verdict(tally: &Tally) -> &'static str {
    if tally.failed > 0 { "FAILED" } else { "ok" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_step_is_refused_with_list() {
        let error = select_steps(&["tests".into()], false).unwrap_err().to_string();
        assert!(error.contains("`tests`") && error.contains("fmt, tidy"), "{error}");
        assert_eq!(select_steps(&["tidy".into(), "fmt".into()], true).unwrap().len(), 2);
    }

    #[test]
    fn slow_steps_run_when_asked_for() {
        let names = |chosen: Vec<&Step>| chosen.iter().map(|step| step.name).collect::<Vec<_>>();
        let usual = names(select_steps(&[], false).unwrap());
        let full = names(select_steps(&[], true).unwrap());
        assert_eq!(full[..usual.len()], usual);
        assert!(full[usual.len()..].contains(&"mutants"), "{full:?}");
        assert_eq!(names(select_steps(&["mutants".into()], false).unwrap()), ["mutants"]);
    }

    #[test]
    fn in_ci_a_skipped_arm_is_a_failure() {
        let run: steps::Run = |_, tally| {
            tally.record_line("skipped: needs root");
            Ok(())
        };
        check_step(run, false, 0, "");
        check_step(run, true, 1, "skipped in CI: needs root");
    }

    #[test]
    fn step_that_fails_without_a_test_counts_once() {
        let run: steps::Run = |_, _| anyhow::bail!("no such program");
        check_step(run, false, 1, "step one");
        let run: steps::Run = |_, tally| {
            tally.record_line("test result: FAILED. 1 passed; 2 failed; 0 ignored;");
            anyhow::bail!("tests failed")
        };
        check_step(run, false, 2, "");
    }

    #[test]
    fn few_tests_may_pass_only_alone() {
        let of = |unsteady, failed| {
            let mut tally = Tally::new(false);
            tally.unsteady.resize(unsteady, TestFailure::default());
            tally.failed = failed;
            tally
        };
        assert!(print_summary(&of(0, 0)) && print_summary(&of(UNSTEADY_MOST, 0)));
        assert!(!print_summary(&of(UNSTEADY_MOST + 1, 0)) && !print_summary(&of(0, 1)));
    }

    #[track_caller]
    fn check_step(run: steps::Run, strict: bool, failed: usize, named: &str) {
        let step = Box::leak(Box::new(steps::step("one", "one", run)));
        let workspace =
            Workspace { root: "here".into(), target: "there".into(), packages: Vec::new() };
        let ended = run_step(&workspace, step, Tally::default(), strict);
        assert_eq!(ended.tally.failed, failed);
        assert_eq!(list_names(&ended.tally.failures), named);
    }
}
