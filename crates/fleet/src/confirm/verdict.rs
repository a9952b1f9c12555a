//! Verdict of the pairs on the setting.

use std::fmt::Write as _;

use latput_model::pairs::PairsSetting;
use latput_model::{PairsSummary, PairsVerdict};
use latput_report::make_printable;
use latput_stats::Estimate;
use latput_units::text::{format_count, is_or_are};

use super::{ConfirmPlan, PairRun, PairState};
use crate::context::{Error, FleetEnding};
use crate::pairs::{describe_differences, explain_verdict, ratio_in_words};

/// Joint verdict of the pairs that have ended.
#[derive(Debug)]
pub struct JointVerdict {
    /// The setting on these pairs; `None` of fewer than two.
    pub setting: Option<PairsSetting>,
    /// The words of these pairs.
    words: Vec<String>,
    /// Other differences between them, in sentences.
    pub differences: Vec<String>,
    /// Whether they are all.
    is_whole: bool,
}

impl JointVerdict {
    /// Judges the pairs. The error says why they cannot be compared.
    pub fn from_runs(runs: &[PairRun]) -> Result<Self, Error> {
        let done = runs.iter().filter_map(|run| Some((run.word.clone(), run.results()?.clone())));
        let (words, results): (Vec<String>, Vec<_>) = done.unzip();
        let is_whole = words.len() == runs.len();
        if results.len() < 2 {
            return Ok(Self { setting: None, words, differences: Vec::new(), is_whole });
        }
        let summary = PairsSummary::from_results(&results).map_err(Error::Usage)?;
        let differences = describe_differences(&words, &summary);
        let setting = summary.settings.into_iter().next();
        Ok(Self { setting, words, differences, is_whole })
    }

    /// `confirmed`, `unstable`, `worse` or `unproven`; `None` while a pair is missing.
    pub fn name(&self) -> Option<&'static str> {
        self.setting_if_all_ended().map(|setting| match &setting.verdict {
            PairsVerdict::Stable => "confirmed",
            other => other.name(),
        })
    }

    fn setting_if_all_ended(&self) -> Option<&PairsSetting> {
        self.setting.as_ref().filter(|_| self.is_whole)
    }

    /// The reason of the verdict, or what is missing.
    pub fn explain(&self, runs: &[PairRun]) -> String {
        if let Some(setting) = self.setting_if_all_ended() {
            return explain_verdict(&self.words, setting);
        }
        if let Some(ready) = count_ready_pairs(runs) {
            return format!(
                "{ready} of {} {} to be measured: the same command without --check does it",
                format_count(runs.len(), "pair"),
                is_or_are(ready)
            );
        }
        let missing = runs.len() - self.words.len();
        format!(
            "{missing} of {} {} missing. Fix what is named above and run the command again: it resumes",
            format_count(runs.len(), "pair"),
            is_or_are(missing)
        )
    }

    /// How the command ended.
    pub fn ending(&self, runs: &[PairRun]) -> FleetEnding {
        if runs.iter().any(PairRun::is_stranded) {
            return FleetEnding::Stranded;
        }
        match self.setting_if_all_ended().map(|setting| &setting.verdict) {
            None if count_ready_pairs(runs).is_some() => FleetEnding::Done,
            None => FleetEnding::Partial,
            Some(PairsVerdict::Stable) => FleetEnding::Done,
            Some(PairsVerdict::Worse(..)) => FleetEnding::Worse,
            Some(PairsVerdict::Unstable | PairsVerdict::Unproven(_)) => FleetEnding::Unproven,
        }
    }

    /// The ratio on a pair, where it is compared with another.
    pub fn find_pair_ratio(&self, run: &PairRun) -> Option<&Estimate> {
        let place = self.words.iter().position(|word| *word == run.word)?;
        self.setting.as_ref()?.ratios.get(place)
    }

    /// All of it, for people.
    pub fn render_text(&self, confirming: &ConfirmPlan, runs: &[PairRun]) -> String {
        let goal = confirming.plan.goal.as_deref().unwrap_or_default();
        let mut text = format!(
            "{}: ratio of `{}` to today's setting on each pair\n",
            make_printable(goal),
            make_printable(&confirming.label)
        );
        for run in runs {
            let said = match (self.find_pair_ratio(run), run.failure()) {
                (Some(ratio), _) => ratio_in_words(ratio),
                (None, Some(failure)) => format!("{}: {}", run.outcome_name(), failure.why),
                (None, None) => run.outcome_name().to_owned(),
            };
            let _ = writeln!(text, "  {}: {}", run.word, make_printable(&said));
        }
        for differs in &self.differences {
            let _ = writeln!(text, "  {differs}");
        }
        let verdict = self.name().unwrap_or("no verdict");
        let _ = writeln!(text, "{verdict}: {}", self.explain(runs));
        text
    }
}

/// How many pairs are ready, where nothing keeps any pair from being measured. Only `--check` leaves it so.
fn count_ready_pairs(runs: &[PairRun]) -> Option<usize> {
    let is_ready = |run: &&PairRun| matches!(run.state, PairState::Ready(_));
    let ready = runs.iter().filter(is_ready).count();
    let done = runs.iter().filter(|run| run.results().is_some()).count();
    (ready > 0 && ready + done == runs.len()).then_some(ready)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use latput_experiment::session::{self, QuietPolicy, RunInputs, TrialDone};
    use latput_experiment::{RunPart, RunProgress, Testbed};
    use latput_load::Stop;
    use latput_model::pairs::confirming_plan;
    use latput_results::ResultsDb;
    use latput_runner::trials::{IntervalCounts, TrialProgress};
    use latput_trial::{Plan, Results};

    use super::super::PairFailure;
    use super::*;

    struct Silence;

    impl TrialProgress for Silence {
        fn report_remark(&mut self, _: &str) {}
        fn report_interval(&mut self, _: &IntervalCounts) {}
    }

    impl RunProgress for Silence {
        fn report_trial(&mut self, _: &TrialDone<'_>) {}
        fn report_end(&mut self) {}
    }

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
        let ended = session::run(&run, &mut db, &mut Silence).unwrap();
        (plan, ended.results)
    }

    fn make_pair(word: &str, state: PairState) -> PairRun {
        PairRun { word: word.to_owned(), file: PathBuf::from("x.db"), state }
    }

    fn make_failure(is_stranded: bool) -> PairFailure {
        PairFailure { why: "it is down".to_owned(), is_stranded }
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
        (verdict, ending, why): (&str, FleetEnding, &str),
    ) {
        let (confirming, runs) = simulate_pairs(systems, goal, mtus);
        let judgement = JointVerdict::from_runs(&runs).unwrap();
        let text = judgement.render_text(&confirming, &runs);
        assert_eq!(judgement.name(), Some(verdict), "{text}");
        assert_eq!(judgement.ending(&runs), ending);
        let last = text.lines().last().unwrap();
        assert!(last.starts_with(verdict) && last.contains(why), "{text}");
        assert!(text.lines().skip(1).take(3).all(|line| line.contains(" to ")), "{text}");
        assert!(runs.iter().all(|run| judgement.find_pair_ratio(run).is_some()));
    }

    const FAST: &str = "server-10g";

    #[test]
    fn each_verdict_has_ending_and_reason() {
        let more = "maximize throughput_bps";
        check_verdict(
            [FAST; 3],
            more,
            [1500, 9000],
            ("confirmed", FleetEnding::Done, "proven better on every pair"),
        );
        let other = [FAST, FAST, "hs22-ixgbe"];
        check_verdict(
            other,
            more,
            [1500, 9000],
            ("unstable", FleetEnding::Unproven, "the pairs differ"),
        );
        let less = "minimize throughput_bps";
        check_verdict([FAST; 3], less, [1500, 9000], ("worse", FleetEnding::Worse, "s0,c0: "));
        check_verdict(
            [FAST; 3],
            more,
            [1500, 1499],
            ("unproven", FleetEnding::Unproven, "does not prove it"),
        );
    }

    #[test]
    fn missing_pair_leaves_no_verdict() {
        let (confirming, mut runs) =
            simulate_pairs([FAST; 3], "maximize throughput_bps", [1500, 9000]);
        for (state, outcome, ending) in [
            (PairState::NotRun, "not-run", FleetEnding::Partial),
            (PairState::Failed(make_failure(false)), "failed", FleetEnding::Partial),
            (PairState::CutShort(make_failure(false), 3), "cut-short", FleetEnding::Partial),
            (PairState::CutShort(make_failure(true), 3), "cut-short", FleetEnding::Stranded),
        ] {
            runs[1].state = state;
            let judgement = JointVerdict::from_runs(&runs).unwrap();
            assert_eq!((judgement.name(), judgement.ending(&runs)), (None, ending));
            assert_eq!(runs[1].outcome_name(), outcome);
            assert!(judgement.find_pair_ratio(&runs[0]).is_some());
            assert!(judgement.find_pair_ratio(&runs[1]).is_none());
            let text = judgement.render_text(&confirming, &runs);
            assert!(text.contains("no verdict: 1 of 3 pairs is missing"), "{text}");
            assert!(text.contains(&format!("s1,c1: {outcome}")), "{text}");
        }
        runs[0].state = PairState::NotRun;
        let judgement = JointVerdict::from_runs(&runs).unwrap();
        assert!(judgement.setting.is_none(), "one pair is no comparison");
        assert!(runs.iter().all(|run| judgement.find_pair_ratio(run).is_none()));
    }
}
