//! Verdict of the pairs on the setting.

use std::fmt::Write as _;

use latput_model::pairs::PairsSetting;
use latput_model::{PairsSummary, PairsVerdict};
use latput_units::text::format_percent;

use super::super::pairs::{describe_differences, why_of};
use super::measure::{ConfirmPlan, PairRun, PairState};
use crate::document::fleet::{ConfirmPairPart, PairRatio};
use crate::exit::ExitReason;

/// Joint verdict of the pairs that have ended.
#[derive(Debug)]
pub(super) struct JointVerdict {
    /// The setting on these pairs; `None` of fewer than two.
    setting: Option<PairsSetting>,
    /// The words of these pairs.
    words: Vec<String>,
    /// Other differences between them, in sentences.
    differences: Vec<String>,
    /// Whether they are all.
    is_whole: bool,
}

impl JointVerdict {
    /// Judges the pairs. The error says why they cannot be compared.
    pub(super) fn from_runs(runs: &[PairRun]) -> Result<Self, String> {
        let done = runs.iter().filter_map(|run| Some((run.word.clone(), run.results()?.clone())));
        let (words, results): (Vec<String>, Vec<_>) = done.unzip();
        let is_whole = words.len() == runs.len();
        if results.len() < 2 {
            return Ok(Self { setting: None, words, differences: Vec::new(), is_whole });
        }
        let summary = PairsSummary::from_results(&results)?;
        let differences = describe_differences(&words, &summary);
        let setting = summary.settings.into_iter().next();
        Ok(Self { setting, words, differences, is_whole })
    }

    /// `confirmed`, `unstable`, `worse` or `unproven`; `None` while a pair is missing.
    pub(super) fn verdict_name(&self) -> Option<&'static str> {
        self.complete_setting().map(|setting| match &setting.verdict {
            PairsVerdict::Stable => "confirmed",
            other => other.name(),
        })
    }

    fn complete_setting(&self) -> Option<&PairsSetting> {
        self.setting.as_ref().filter(|_| self.is_whole)
    }

    /// The reason of the verdict, or what is missing.
    pub(super) fn explain_verdict(&self, runs: &[PairRun]) -> String {
        if let Some(setting) = self.complete_setting() {
            return why_of(&self.words, setting);
        }
        if let Some(ready) = to_be_measured(runs) {
            return format!(
                "{ready} of {} pairs are to be measured: the same command without --check does it",
                runs.len()
            );
        }
        let missing = runs.len() - self.words.len();
        format!(
            "{missing} of {} pairs are missing. Fix what is named above and run the command again: it resumes",
            runs.len()
        )
    }

    /// Other differences between the pairs that have ended, in sentences.
    pub(super) fn differences(&self) -> Vec<String> {
        self.differences.clone()
    }

    /// The ratio over all pairs that have ended.
    pub(super) fn ratio(&self) -> Option<f64> {
        self.setting.as_ref().map(|setting| setting.ratio)
    }

    /// The chance that their ratios lie so far apart if all are one.
    pub(super) fn p_value(&self) -> Option<f64> {
        self.setting.as_ref().map(|setting| setting.p_value)
    }

    /// The share of their scatter that their errors do not explain.
    pub(super) fn inconsistency(&self) -> Option<f64> {
        self.setting.as_ref().map(|setting| setting.inconsistency)
    }

    /// The exit code.
    pub(super) fn exit_code(&self, runs: &[PairRun]) -> ExitReason {
        let is_stranded = |run: &PairRun| {
            run.failure().is_some_and(|failure| failure.code == ExitReason::Stranded)
        };
        if runs.iter().any(is_stranded) {
            return ExitReason::Stranded;
        }
        match self.complete_setting().map(|setting| &setting.verdict) {
            None if to_be_measured(runs).is_some() => ExitReason::Done,
            None => ExitReason::Partial,
            Some(PairsVerdict::Stable) => ExitReason::Done,
            Some(PairsVerdict::Worse(..)) => ExitReason::Worse,
            Some(PairsVerdict::Unstable | PairsVerdict::Unproven(_)) => ExitReason::Failed,
        }
    }

    /// Every pair, for JSON.
    pub(super) fn document_pairs(&self, runs: &[PairRun]) -> Vec<ConfirmPairPart> {
        let part = |run: &PairRun| ConfirmPairPart {
            pair: run.word.clone(),
            file: run.file.display().to_string(),
            outcome: outcome_name(run).to_owned(),
            why: run.failure().map(|failure| failure.why.clone()).unwrap_or_default(),
            trials: match &run.state {
                PairState::Done(results) => results.rows.len(),
                PairState::CutShort(_, trials) => *trials,
                _ => 0,
            },
            ratio: self.ratio_of(run),
        };
        runs.iter().map(part).collect()
    }

    fn ratio_of(&self, run: &PairRun) -> Option<PairRatio> {
        let place = self.words.iter().position(|word| *word == run.word)?;
        Some(PairRatio::from_estimate(self.setting.as_ref()?.ratios.get(place)?))
    }

    /// All of it, for people.
    pub(super) fn render_text(&self, confirming: &ConfirmPlan, runs: &[PairRun]) -> String {
        let goal = confirming.plan.goal.as_deref().unwrap_or_default();
        let mut text = format!(
            "{}: ratio of `{}` to today's setting on each pair\n",
            latput_report::make_printable(goal),
            latput_report::make_printable(&confirming.label)
        );
        for run in runs {
            let said = match (self.ratio_of(run), run.failure()) {
                (Some(ratio), _) => format!(
                    "{:.3} ({:.3} to {:.3} at {})",
                    ratio.ratio,
                    ratio.low,
                    ratio.high,
                    format_percent(ratio.confidence)
                ),
                (None, Some(failure)) => format!("{}: {}", outcome_name(run), failure.why),
                (None, None) => outcome_name(run).to_owned(),
            };
            let _ = writeln!(text, "  {}: {}", run.word, latput_report::make_printable(&said));
        }
        for differs in &self.differences {
            let _ = writeln!(text, "  {differs}");
        }
        let verdict = self.verdict_name().unwrap_or("no verdict");
        let _ = writeln!(text, "{verdict}: {}", self.explain_verdict(runs));
        text
    }
}

/// How many pairs are ready, where nothing keeps any pair from being measured. Only `--check` leaves it so.
fn to_be_measured(runs: &[PairRun]) -> Option<usize> {
    let is_ready = |run: &&PairRun| matches!(run.state, PairState::Ready(_));
    let ready = runs.iter().filter(is_ready).count();
    let done = runs.iter().filter(|run| run.results().is_some()).count();
    (ready > 0 && ready + done == runs.len()).then_some(ready)
}

fn outcome_name(run: &PairRun) -> &'static str {
    match run.state {
        PairState::Done(_) => "done",
        PairState::Ready(_) => "ready",
        PairState::CutShort(..) => "cut-short",
        PairState::Failed(_) => "failed",
        PairState::NotRun => "not-run",
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use latput_experiment::session::{self, QuietPolicy, RunInputs};
    use latput_results::ResultsDb;
    use latput_experiment::{RunPart, Testbed};
    use latput_load::Stop;
    use latput_model::pairs::confirming_plan;
    use latput_trial::{Plan, Results};

    use super::super::measure::PairFailure;
    use super::*;
    use crate::progress::ProgressDisplay;

    /// A run of two MTUs on a simulated system. Large frames help bulk where the link is fast.
    fn simulate_run(system: &str, seed: u64, goal: &str, mtus: [u32; 2]) -> (Plan, Results) {
        let text = format!(
            "schema = 1\ngoal = \"{goal}\"\n[factors]\nmtu = [{}, {}]\n[[workload]]\nkind = \"tcp_stream\"\n[method]\n\
             repetitions = {{ min = 6, max = 6 }}\nwarmup = \"5ms\"\nduration = \"50ms\"\nseed = {seed}\n",
            mtus[0], mtus[1]
        );
        let plan = Plan::parse("plan.toml", &text).unwrap();
        let testbed = Testbed::from_system(system, &plan).unwrap();
        let stop = Stop::new();
        let run = RunInputs {
            plan: &plan,
            plan_text: &text,
            testbed: &testbed,
            part: RunPart::Whole,
            quiet: QuietPolicy::Anyhow,
            interval: None,
            stop: &stop,
        };
        let mut db = ResultsDb::in_memory().unwrap();
        let ended = session::run(&run, &mut db, &mut ProgressDisplay::new()).unwrap();
        (plan, ended.results)
    }

    fn make_pair(word: &str, state: PairState) -> PairRun {
        PairRun { word: word.to_owned(), file: PathBuf::from("x.db"), state }
    }

    fn make_failure(code: ExitReason) -> PairFailure {
        PairFailure { why: "it is down".to_owned(), code }
    }

    fn simulate_pairs(
        systems: [&str; 3],
        goal: &str,
        mtus: [u32; 2],
    ) -> (ConfirmPlan, Vec<PairRun>) {
        let mut of_pairs = Vec::new();
        let mut plan = None;
        for (number, system) in (0..).zip(systems) {
            let (its_plan, results) = simulate_run(system, number, goal, mtus);
            plan = Some(confirming_plan(&its_plan, &results, 1).unwrap());
            of_pairs.push(make_pair(&format!("s{number},c{number}"), PairState::Done(results)));
        }
        let label = format!("mtu={}", mtus[1]);
        (ConfirmPlan { label, plan: plan.unwrap(), plan_text: String::new() }, of_pairs)
    }

    #[track_caller]
    fn check_verdict(
        systems: [&str; 3],
        goal: &str,
        mtus: [u32; 2],
        (verdict, code, why): (&str, ExitReason, &str),
    ) {
        let (confirming, runs) = simulate_pairs(systems, goal, mtus);
        let judgement = JointVerdict::from_runs(&runs).unwrap();
        let text = judgement.render_text(&confirming, &runs);
        assert_eq!(judgement.verdict_name(), Some(verdict), "{text}");
        assert_eq!(judgement.exit_code(&runs), code);
        let last = text.lines().last().unwrap();
        assert!(last.starts_with(verdict) && last.contains(why), "{text}");
        assert!(text.lines().skip(1).take(3).all(|line| line.contains(" to ")), "{text}");
        assert!(judgement.document_pairs(&runs).iter().all(|part| part.ratio.is_some()));
    }

    const FAST: &str = "server-10g";

    #[test]
    fn each_verdict_has_exit_code_and_reason() {
        let more = "maximize throughput_bps";
        check_verdict(
            [FAST; 3],
            more,
            [1500, 9000],
            ("confirmed", ExitReason::Done, "proven better on every pair"),
        );
        let other = [FAST, FAST, "hs22-ixgbe"];
        check_verdict(
            other,
            more,
            [1500, 9000],
            ("unstable", ExitReason::Failed, "the pairs differ"),
        );
        let less = "minimize throughput_bps";
        check_verdict([FAST; 3], less, [1500, 9000], ("worse", ExitReason::Worse, "s0,c0: "));
        check_verdict(
            [FAST; 3],
            more,
            [1500, 1499],
            ("unproven", ExitReason::Failed, "does not prove it"),
        );
    }

    #[test]
    fn missing_pair_leaves_no_verdict() {
        let (confirming, mut runs) =
            simulate_pairs([FAST; 3], "maximize throughput_bps", [1500, 9000]);
        for (state, outcome, code) in [
            (PairState::NotRun, "not-run", ExitReason::Partial),
            (PairState::Failed(make_failure(ExitReason::Failed)), "failed", ExitReason::Partial),
            (
                PairState::CutShort(make_failure(ExitReason::Failed), 3),
                "cut-short",
                ExitReason::Partial,
            ),
            (
                PairState::CutShort(make_failure(ExitReason::Stranded), 3),
                "cut-short",
                ExitReason::Stranded,
            ),
        ] {
            runs[1].state = state;
            let judgement = JointVerdict::from_runs(&runs).unwrap();
            assert_eq!((judgement.verdict_name(), judgement.exit_code(&runs)), (None, code));
            let parts = judgement.document_pairs(&runs);
            assert_eq!(parts[1].outcome, outcome);
            assert!(parts[0].ratio.is_some() && parts[1].ratio.is_none());
            let text = judgement.render_text(&confirming, &runs);
            assert!(text.contains("no verdict: 1 of 3 pairs are missing"), "{text}");
            assert!(text.contains(&format!("s1,c1: {outcome}")), "{text}");
        }
        runs[0].state = PairState::NotRun;
        let judgement = JointVerdict::from_runs(&runs).unwrap();
        assert!(judgement.ratio().is_none(), "one pair is no comparison");
        assert!(judgement.document_pairs(&runs).iter().all(|part| part.ratio.is_none()));
    }
}
