//! Judgement of the runs: their answers, the false ones among them, and whether the goals are met.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::{Context, Result, bail, ensure};
use latput_stats::share::wilson;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{QUIET, SavedRun, load};
use crate::goal::{GoalVerdict, format_share};

/// Objective of the built-in plan.
const METRIC: &str = "latency_ns_p99";
/// Most answers that are false.
const MOST_FALSE: f64 = 0.01;
/// The least share of runs with an answer, beside stressors that take so many percent of a CPU all the time. Above the
/// limit of other work no slice is fit, so only runs with `--beside` can have an answer, which is the third (ADR 019).
const LEAST_ANSWERS: [(u32, f64, bool); 2] = [(10, 0.8, false), (30, 0.3, true)];

/// Answer of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct RunAnswer {
    /// `set`, `stay`, `no_answer`, or `refused`.
    kind: String,
    /// The setting that it says to set.
    setting: Option<u64>,
    /// Of each setting the 99th percentile over today's, the geometric mean over the workloads.
    ratios: BTreeMap<u64, f64>,
    /// Its own words.
    sentence: String,
}

impl RunAnswer {
    /// Of the document of a run.
    pub(super) fn from_report(report: &Value) -> Result<Self> {
        let word = |name: &str| report["headline"][name].as_str().map(str::to_owned);
        let kind = word("kind").context("the report has no headline")?;
        let setting = match kind.as_str() {
            "set" => Some(report["recommendation"]["setting"].as_u64().context("it sets nothing")?),
            _ => None,
        };
        let mut logs: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
        for cell in report["cells"].as_array().context("the report has no cells")? {
            let ratio = cell["against_first_ratio"][METRIC]["value"].as_f64();
            if let (Some(setting), Some(ratio)) = (cell["setting"].as_u64(), ratio) {
                logs.entry(setting).or_default().push(ratio.ln());
            }
        }
        let ratios =
            logs.into_iter().map(|(setting, logs)| (setting, geometric_mean(logs))).collect();
        Ok(Self { kind, setting, ratios, sentence: word("sentence").unwrap_or_default() })
    }

    /// Of a run that was not begun.
    pub(super) fn from_refusal(why: &str) -> Self {
        let (kind, sentence) = ("refused".to_owned(), why.to_owned());
        Self { kind, setting: None, ratios: BTreeMap::new(), sentence }
    }

    fn is_answer(&self) -> bool {
        matches!(self.kind.as_str(), "set" | "stay")
    }

    fn format_short(&self) -> String {
        match self.setting {
            Some(setting) => format!("{} {setting}", self.kind),
            None => self.kind.clone(),
        }
    }
}

impl fmt::Display for RunAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.format_short(), self.sentence)
    }
}

/// Answer that judges the other runs.
#[derive(Debug, PartialEq)]
struct ReferenceAnswer {
    /// Whether to stay.
    stays: bool,
    /// As in [`RunAnswer`]; of several runs the geometric mean.
    ratios: BTreeMap<u64, f64>,
}

impl ReferenceAnswer {
    /// The answer that these runs agree on; `None` where none has one.
    fn from_runs<'a>(runs: impl Iterator<Item = &'a RunAnswer>) -> Result<Option<Self>> {
        let answers: Vec<&RunAnswer> = runs.filter(|said| said.is_answer()).collect();
        let Some(first) = answers.first() else { return Ok(None) };
        let stays = |said: &RunAnswer| said.setting.is_none();
        if let Some(other) = answers.iter().find(|said| stays(said) != stays(first)) {
            bail!(
                "the runs that judge contradict each other: {} and {}",
                first.format_short(),
                other.format_short()
            );
        }
        let settings = first.ratios.keys().copied();
        let ratios = settings.map(|setting| {
            let logs = answers.iter().filter_map(|said| Some(said.ratios.get(&setting)?.ln()));
            (setting, geometric_mean(logs.collect()))
        });
        Ok(Some(Self { stays: stays(first), ratios: ratios.collect() }))
    }

    /// Whether it speaks against what a run says.
    fn contradicts(&self, said: &RunAnswer) -> bool {
        match (said.kind.as_str(), said.setting) {
            ("stay", _) => !self.stays,
            ("set", Some(setting)) => {
                self.stays || self.ratios.get(&setting).is_none_or(|ratio| *ratio >= 1.0)
            }
            _ => false,
        }
    }
}

fn geometric_mean(logs: Vec<f64>) -> f64 {
    (logs.iter().sum::<f64>() / logs.len() as f64).exp()
}

/// Counts of the runs beside a load, or beside several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct AnswerCounts {
    runs: u64,
    answers: u64,
    wrong: u64,
}

impl AnswerCounts {
    fn add(&mut self, other: Self) {
        self.runs += other.runs;
        self.answers += other.answers;
        self.wrong += other.wrong;
    }
}

/// A share that is to be reached, or not to be passed.
struct ShareGoal {
    name: String,
    count: u64,
    of: u64,
    limit: f64,
    is_least: bool,
}

impl ShareGoal {
    /// Judges the interval of the share.
    fn judge_interval(&self) -> GoalVerdict {
        let goal = if self.is_least { self.limit..=1.0 } else { 0.0..=self.limit };
        GoalVerdict::of_interval(wilson(self.count, self.of), &goal)
    }
}

/// Prints a row to a load, then each goal beside its figure.
///
/// # Errors
///
/// A goal is missed; or nothing judges.
pub(super) fn print_table(runs: &[SavedRun], seconds: u32) -> Result<()> {
    let of = |name: &str, is_long: bool| -> Vec<&RunAnswer> {
        let is_meant = |run: &&SavedRun| run.load == name && run.is_long == is_long;
        runs.iter().filter(is_meant).map(|run| &run.said).collect()
    };
    let quiet = of(QUIET, false);
    let by_quiet = ReferenceAnswer::from_runs(quiet.iter().copied())?;
    println!("\nthe built-in plan in {seconds} s; 95% intervals (Wilson)");
    println!("{:14} {:>26} {:>26}   said", "load", "answers", "contradicted");
    if !quiet.is_empty() {
        let said = summarize_answers(&quiet);
        let AnswerCounts { answers, runs, .. } = count_answers(&quiet, None);
        println!("{QUIET:14} {:>26} {:>26}   {said}", format_share(answers, runs), "-");
    }
    let (mut all, mut by_percent) = (AnswerCounts::default(), BTreeMap::<u32, AnswerCounts>::new());
    for load in load::all_loads() {
        let (name, said) = (load.name(), of(&load.name(), false));
        if said.is_empty() {
            continue;
        }
        let long = of(&name, true);
        let truth =
            ReferenceAnswer::from_runs(long.iter().copied()).with_context(|| name.clone())?;
        let counts =
            count_answers(&said, truth.as_ref().or(by_quiet.as_ref().filter(|_| long.is_empty())));
        all.add(counts);
        if let Some(percent) = load.cpu_percent {
            by_percent.entry(percent).or_default().add(counts);
        }
        let AnswerCounts { runs, answers, wrong } = counts;
        println!(
            "{name:14} {:>26} {:>26}   {}",
            format_share(answers, runs),
            format_share(wrong, runs),
            summarize_answers(&said)
        );
    }
    let has_judge =
        by_quiet.is_some() || runs.iter().any(|run| run.is_long && run.said.is_answer());
    ensure!(has_judge, "no run that judges has an answer: give more --seconds, on a quiet machine");
    println!();
    let mut goals = vec![ShareGoal {
        name: "contradicted".to_owned(),
        count: all.wrong,
        of: all.runs,
        limit: MOST_FALSE,
        is_least: false,
    }];
    let has_beside = runs.iter().any(|run| run.beside);
    for (percent, limit, takes_beside) in LEAST_ANSWERS {
        let AnswerCounts { runs, answers, .. } =
            by_percent.get(&percent).copied().unwrap_or_default();
        let name = format!("answers at {percent}%");
        if takes_beside && !has_beside {
            println!("{name:18} {:>26}   a goal of --beside", format_share(answers, runs));
            continue;
        }
        goals.push(ShareGoal { name, count: answers, of: runs, limit, is_least: true });
    }
    check_goals(&goals)
}

/// Prints the goals; an error where one is missed.
fn check_goals(goals: &[ShareGoal]) -> Result<()> {
    for goal in goals {
        let sign = if goal.is_least { ">=" } else { "<=" };
        let limit = format!("{sign} {:.0}%", 100.0 * goal.limit);
        let share = format_share(goal.count, goal.of);
        println!(
            "{:18} {share:>26}   wanted {limit:8} {}",
            goal.name,
            goal.judge_interval().describe("runs")
        );
    }
    let missed = goals.iter().filter(|goal| goal.judge_interval() == GoalVerdict::Missed);
    let missed: Vec<&str> = missed.map(|goal| goal.name.as_str()).collect();
    ensure!(missed.is_empty(), "missed: {}", missed.join(", "));
    Ok(())
}

/// Where nothing judges, nothing is contradicted.
fn count_answers(said: &[&RunAnswer], truth: Option<&ReferenceAnswer>) -> AnswerCounts {
    let is_wrong = |said: &&&RunAnswer| truth.is_some_and(|truth| truth.contradicts(said));
    AnswerCounts {
        runs: said.len() as u64,
        answers: said.iter().filter(|said| said.is_answer()).count() as u64,
        wrong: said.iter().filter(is_wrong).count() as u64,
    }
}

/// `2 x set 1, no_answer`.
fn summarize_answers(said: &[&RunAnswer]) -> String {
    let mut counts = BTreeMap::<String, u32>::new();
    for said in said {
        *counts.entry(said.format_short()).or_default() += 1;
    }
    let words = counts.into_iter().map(|(word, count)| match count {
        1 => word,
        _ => format!("{count} x {word}"),
    });
    words.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn make_answer(kind: &str, setting: u64, ratio: f64) -> RunAnswer {
        let cell = |workload, ratio| json!({ "setting": 1, "workload": workload, "against_first_ratio": { METRIC: { "value": ratio } } });
        let report = json!({
            "headline": { "kind": kind, "sentence": "why" },
            "recommendation": { "setting": setting },
            "cells": [{ "setting": 0, "against_first_ratio": {} }, cell(0, ratio * 2.0), cell(1, ratio / 2.0)],
        });
        RunAnswer::from_report(&report).unwrap()
    }

    #[test]
    fn run_is_read_from_its_document() {
        let set = make_answer("set", 1, 0.8);
        assert_eq!((set.kind.as_str(), set.setting), ("set", Some(1)));
        assert!((set.ratios[&1] - 0.8).abs() < 1e-9, "{set:?}");
        assert_eq!(make_answer("stay", 0, 1.0).setting, None);
        assert!(RunAnswer::from_report(&json!({})).is_err());
    }

    #[test]
    fn answers_beyond_quiet_runs_are_contradicted() {
        let stays =
            ReferenceAnswer::from_runs([make_answer("stay", 0, 1.5)].iter()).unwrap().unwrap();
        let sets =
            ReferenceAnswer::from_runs([make_answer("set", 2, 0.7)].iter()).unwrap().unwrap();
        let sets_other =
            ReferenceAnswer::from_runs([make_answer("set", 2, 1.2)].iter()).unwrap().unwrap();
        for (truth, run, is_wrong) in [
            (&stays, make_answer("set", 1, 0.8), true),
            (&stays, make_answer("stay", 0, 1.0), false),
            (&sets, make_answer("stay", 0, 1.0), true),
            (&sets, make_answer("set", 1, 0.8), false),
            (&sets_other, make_answer("set", 1, 0.8), true),
            (&sets, make_answer("set", 3, 0.8), true),
            (&stays, make_answer("no_answer", 0, 0.5), false),
            (&sets, RunAnswer::from_refusal("busy"), false),
        ] {
            assert_eq!(truth.contradicts(&run), is_wrong, "{truth:?} {run:?}");
        }
    }

    #[test]
    fn disagreeing_judges_judge_nothing() {
        let runs = [make_answer("stay", 0, 1.0), make_answer("set", 1, 0.9)];
        assert!(
            ReferenceAnswer::from_runs(runs.iter()).unwrap_err().to_string().contains("contradict")
        );
        assert_eq!(
            ReferenceAnswer::from_runs([make_answer("no_answer", 0, 1.0)].iter()).unwrap(),
            None
        );
    }

    #[test]
    fn goal_is_missed_by_whole_interval() {
        let verdict = |count, of, limit, is_least| {
            let name = String::new();
            ShareGoal { name, count, of, limit, is_least }.judge_interval().describe("runs")
        };
        assert_eq!(verdict(0, 10, 0.01, false), "open: too few runs");
        assert_eq!(verdict(0, 400, 0.01, false), "met");
        assert_eq!(verdict(3, 10, 0.01, false), "missed");
        assert_eq!(verdict(10, 10, 0.3, true), "met");
        assert_eq!(verdict(2, 20, 0.8, true), "missed");
        assert_eq!(verdict(0, 0, 0.8, true), "open: too few runs");
    }
}
