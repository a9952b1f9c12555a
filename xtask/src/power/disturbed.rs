//! Answers of the built-in plan on the lab beside loads that nobody tuned on, against its answers on quiet hosts.
//!
//! Quiet runs and runs beside each load take turns. A load begins once the run has looked at its hosts: what is asked is
//! what a run makes of a disturbance that comes later. An answer is false where the quiet runs contradict it: it says to
//! set what they do not show to be better than today's, or to stay where they set. With `--beside` a run beside the load
//! that takes three times as long judges.

mod judge;
mod load;
mod tree;

use std::fs::File;
use std::hash::{DefaultHasher, Hasher};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use self::judge::{RunAnswer, print_table};
use self::load::BackgroundLoad;
use super::Options;
use crate::peers::lab::Lab;
use crate::workspace::{Workspace, make_folder};

const PLAN: &str = include_str!("../../../examples/built-in.toml");
/// The line of the plan that `--seconds` replaces.
const BUDGET: &str = "budget = \"200s\"";
/// A run has looked at its hosts by then: some 2 s, and the start of two agents.
const BEGINS_AFTER: Duration = Duration::from_secs(4);
/// Time of a run beside its budget.
const OVERHEAD: Duration = Duration::from_secs(120);
/// How much longer the run is that judges those beside a load.
const LONG: u32 = 3;
/// The name of runs without a load.
const QUIET: &str = "quiet";
/// Exit codes of a run that has an answer, and of one without.
const ENDED: [i32; 2] = [0, 6];
/// The exit code of a run that was refused.
const REFUSED: i32 = 1;

/// A run, as it is kept for `--resume`.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct SavedRun {
    /// The fingerprint of the latput that ran.
    binary: u64,
    seconds: u32,
    /// Whether the load was declared.
    beside: bool,
    /// Whether it judges the others.
    is_long: bool,
    load: String,
    said: RunAnswer,
}

/// The bench while it runs.
struct DisturbedBench<'a> {
    lab: Lab,
    options: &'a Options,
    binary: u64,
    /// The file of [`SavedRun`] runs.
    file: PathBuf,
    runs: Vec<SavedRun>,
}

/// Runs every load so many times, and prints what came of it.
///
/// # Errors
///
/// A goal is missed, beyond what so few runs leave open; or the quiet runs have no answer.
pub(super) fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    if options.beside_work.loads.iter().any(|name| name == "list") {
        for load in load::all_loads() {
            println!("{}", load.name());
        }
        return Ok(());
    }
    let mut loads = load::select_loads(&options.beside_work.loads)?;
    loads.retain(is_possible);
    let latput = workspace.given_latput(options.beside_work.binary.as_deref())?;
    let folder = workspace.target.join("bench-power");
    make_folder(&folder)?;
    let binary = hash_binary(&latput)?;
    let file = folder.join("disturbed.jsonl");
    let kept = if options.beside_work.resume { read(&file)? } else { Vec::new() };
    let is_same = |run: &SavedRun| {
        (run.binary, run.seconds, run.beside)
            == (binary, options.seconds, options.beside_work.beside)
    };
    let runs = kept.into_iter().filter(is_same).collect();
    let mut bench = DisturbedBench { lab: Lab::up(&latput, &folder)?, options, binary, file, runs };
    for _ in 0..options.runs {
        if !options.beside_work.beside {
            bench.run(None, false)?;
        }
        for load in &loads {
            if options.beside_work.beside && !bench.has_long(load) {
                bench.run(Some(load), true)?;
            }
            bench.run(Some(load), false)?;
        }
    }
    let DisturbedBench { runs, lab, .. } = bench;
    drop(lab);
    print_table(&runs, options.seconds)
}

/// Whether a load can be here; what is missing is told.
fn is_possible(load: &BackgroundLoad) -> bool {
    let limitation = load.find_limitation();
    if let Some(why) = limitation {
        println!("{}: skipped, {why}", load.name());
    }
    limitation.is_none()
}

impl DisturbedBench<'_> {
    fn has_long(&self, load: &BackgroundLoad) -> bool {
        self.runs.iter().any(|run| run.is_long && run.load == load.name())
    }

    /// One run, which is kept at once.
    fn run(&mut self, load: Option<&BackgroundLoad>, is_long: bool) -> Result<()> {
        let name = load.map_or_else(|| QUIET.to_owned(), BackgroundLoad::name);
        let seconds = self.options.seconds * if is_long { LONG } else { 1 };
        let said = self.measure_answer(load, seconds)?;
        println!("{name}{}: {said}", if is_long { ", long" } else { "" });
        let (seconds, beside) = (self.options.seconds, self.options.beside_work.beside);
        let kept = SavedRun { binary: self.binary, seconds, beside, is_long, load: name, said };
        let mut file = File::options()
            .create(true)
            .append(true)
            .open(&self.file)
            .with_context(|| format!("cannot open {}", self.file.display()))?;
        writeln!(file, "{}", serde_json::to_string(&kept)?).context("a run cannot be written")?;
        self.runs.push(kept);
        Ok(())
    }

    /// The answer of a run beside a load.
    fn measure_answer(&self, load: Option<&BackgroundLoad>, seconds: u32) -> Result<RunAnswer> {
        let lab = &self.lab;
        let longest = Duration::from_secs(seconds.into()) + OVERHEAD;
        let deadline = Instant::now() + longest;
        let more: &[&str] = if self.options.beside_work.beside { &["--beside"] } else { &[] };
        let (run, results) = lab.start_plan("disturbed", &plan_text(seconds)?, more)?;
        let id = run.id();
        lab.sleep_interruptible(BEGINS_AFTER)?;
        let beside = load.map(|load| load.start(lab, id, longest)).transpose()?;
        let ended = run.wait_for_exit(&lab.stop, deadline)?;
        drop(beside);
        match ended.status.code() {
            Some(code) if ENDED.contains(&code) => {
                RunAnswer::from_report(&lab.read_report(&results, deadline)?)
            }
            Some(REFUSED) => Ok(RunAnswer::from_refusal(ended.errors.trim())),
            _ => Err(anyhow::anyhow!("the run ended with {}: {}", ended.status, ended.errors)),
        }
    }
}

/// The built-in plan with another budget.
fn plan_text(seconds: u32) -> Result<String> {
    ensure!(PLAN.contains(BUDGET), "the built-in plan has not {BUDGET}");
    Ok(PLAN.replace(BUDGET, &format!("budget = \"{seconds}s\"")))
}

fn hash_binary(binary: &Path) -> Result<u64> {
    let mut hasher = DefaultHasher::new();
    hasher.write(&std::fs::read(binary).with_context(|| format!("{}", binary.display()))?);
    Ok(hasher.finish())
}

/// The runs of earlier calls; none where there is no file.
fn read(file: &Path) -> Result<Vec<SavedRun>> {
    let text = match std::fs::read_to_string(file) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        text => text.with_context(|| format!("cannot read {}", file.display()))?,
    };
    let run = |line| serde_json::from_str(line).with_context(|| format!("{}", file.display()));
    text.lines().map(run).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budget_of_the_plan_is_replaced() {
        let plan = plan_text(40).unwrap();
        assert!(plan.contains("budget = \"40s\"") && !plan.contains("200s"), "{plan}");
    }
}
