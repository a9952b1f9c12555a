//! Looks at a run that goes on: when it is judged, and each look's share of the chance of error.
//!
//! Who looks again and again for a proof finds one by chance in the end. So the looks of a run are planned before its first
//! trial, and all have the same level, as those of Pocock, "Group sequential methods in the design and analysis of clinical
//! trials", Biometrika 64, 1977. The level counts on what neighbouring looks have in common
//! ([`latput_stats::sequential`]). Looks come at growing distances: a proof that is missed comes within a third of the
//! time again.

use latput_stats::sequential;
use latput_trial::Results;

use super::condition::LimitCheck;
use super::{GoalJudge, GoalVerdict};
use crate::goal::Goal;
use crate::recommend::Headline;
use crate::runs::{RunTable, extract_confirmation};

/// Blocks before the first look: with fewer, the t distribution proves only changes by a factor.
const FIRST: u32 = 4;

/// The number of blocks to the next look, after so many blocks. Looks grow apart by a third.
pub fn blocks_to_next_look(blocks: u32) -> u32 {
    if blocks < FIRST { FIRST - blocks } else { (blocks / 3).max(3) }
}

/// The planned looks at a run.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedLooks {
    /// The number of blocks at each look, ascending.
    after: Vec<u32>,
    /// The confidence of each look.
    confidence: f64,
    /// Each look's share of the chance of error.
    error_share: f64,
}

impl PlannedLooks {
    /// The looks at a run of at most so many blocks, which have `confidence` together. The last is at its end.
    pub fn new(most: u32, confidence: f64) -> Self {
        let mut after: Vec<u32> = Vec::new();
        let mut next = FIRST;
        while next < most {
            after.push(next);
            next = next.saturating_add(blocks_to_next_look(next));
        }
        after.push(most.max(1));
        let error = 1.0 - confidence;
        let of_look = sequential::look_error(&after, error);
        // A confidence of 1 leaves nothing to be shared.
        let error_share = if error > 0.0 { of_look / error } else { 1.0 };
        Self { after, confidence: 1.0 - of_look, error_share }
    }

    /// Whether a look is due between so many blocks and so many.
    pub fn is_due(&self, before: u32, now: u32) -> bool {
        self.after.iter().any(|after| (before + 1..=now).contains(after))
    }

    /// The number of looks.
    pub const fn count(&self) -> usize {
        self.after.len()
    }

    /// Each look's share of the chance of error.
    pub const fn error_share(&self) -> f64 {
        self.error_share
    }

    /// The confidence of each look.
    pub const fn look_confidence(&self) -> f64 {
        self.confidence
    }
}

/// The answer of a run that goes on.
#[derive(Clone, Debug, PartialEq)]
pub struct EarlyAnswer {
    /// The answer: to set a setting, or to stay since every other is ruled out.
    pub headline: Headline,
    /// The label of the setting, as in tables.
    pub label: String,
    /// The ratio of the objective that runs as long as this one prove in four of five cases.
    pub smallest_ratio: Option<f64>,
}

/// The answer that this look proves at the results' confidence times its `share` of the error; `None` where it proves
/// none. A setting is the answer only if it is also proven to keep every limit.
pub fn early_answer(
    results: &Results,
    goal: &Goal,
    share: f64,
) -> Result<Option<EarlyAnswer>, String> {
    let fresh = extract_confirmation(results);
    let results = fresh.as_ref().map_or(results, |(fresh, _)| fresh);
    if results.confirmed_from.is_some() && fresh.is_none() {
        return Ok(None); // nothing of the winner was run afresh
    }
    decide_early_answer(results, &RunTable::of_goal(results, goal), goal, share)
}

fn decide_early_answer(
    results: &Results,
    runs: &RunTable<'_>,
    goal: &Goal,
    share: f64,
) -> Result<Option<EarlyAnswer>, String> {
    let confidence = 1.0 - (1.0 - results.confidence) * share;
    let judge = GoalJudge { confidence, ..GoalJudge::new(results, runs, goal)? };
    let kept = judge.check_limits()?;
    let verdict = judge.decide_verdict(&kept);
    let is_safe = |kept: &LimitCheck<'_>| kept.proven && !kept.broken;
    let is_proven = match &verdict {
        GoalVerdict::Change { to, .. } => kept[to].iter().all(is_safe),
        GoalVerdict::Stay { .. } => judge.why_all_are_out(&kept).is_some(),
        GoalVerdict::NoneKeeps { .. } => false,
    };
    if !is_proven {
        return Ok(None);
    }
    let smallest = judge.smallest_effects()?;
    let headline = judge.build_headline(&kept, &verdict, &smallest);
    let of_objective = smallest.iter().find(|effect| effect.limit.is_none());
    let smallest_ratio = of_objective.map(|effect| effect.ratio);
    let label = judge.quoted_label(verdict.setting());
    let is_answer = matches!(headline, Headline::Set(_) | Headline::Stay(_));
    Ok(is_answer.then_some(EarlyAnswer { headline, label, smallest_ratio }))
}

#[cfg(test)]
mod tests {
    use latput_trial::Metric;
    use latput_units::SeededRng;

    use super::*;
    use crate::synthetic::{
        SyntheticFigures, build_results, noise_factor, rr_workload, stream_workload,
    };

    #[test]
    fn looks_grow_apart_and_share_the_error() {
        let looks = PlannedLooks::new(134, 0.99);
        assert_eq!(looks.after, [4, 7, 10, 13, 17, 22, 29, 38, 50, 66, 88, 117, 134]);
        let share = looks.error_share();
        assert!(share > 1.0 / 13.0 && share < 1.0 / 7.0, "{share}");
        assert!((looks.look_confidence() - (1.0 - 0.01 * share)).abs() < 1e-12);
        assert!(looks.is_due(0, 4) && !looks.is_due(7, 9) && looks.is_due(9, 11));
        assert!(!looks.is_due(134, 200));
        for few in 0..=4 {
            let looks = PlannedLooks::new(few, 0.9);
            assert_eq!(looks.after, [few.max(1)]);
            assert!((looks.error_share() - 1.0).abs() < 1e-12);
        }
    }

    #[test]
    fn clear_winner_is_an_early_answer() {
        let found = find_early_answer(4, 0.02, [100.0, 50.0, 99.0], [1.0; 3]).unwrap();
        let Headline::Set(sentence) = &found.headline else { panic!("{found:?}") };
        assert!(sentence.starts_with("`b` is proven better"), "{sentence}");
        assert!(found.smallest_ratio.is_some_and(|ratio| ratio > 0.5 && ratio < 1.0), "{found:?}");
    }

    #[test]
    fn unproven_limit_withholds_the_answer() {
        // `b` halves the latency, and whether it keeps 95% of the rate is not known yet.
        assert_eq!(find_early_answer(4, 0.02, [100.0, 50.0, 99.0], [1.0, 0.96, 1.0]), None);
        assert_eq!(
            find_early_answer(4, 0.02, [100.0, 99.5, 99.0], [1.0; 3]),
            None,
            "no difference"
        );
    }

    #[test]
    fn settings_all_proven_worse_mean_stay() {
        let found = find_early_answer(4, 0.02, [50.0, 200.0, 300.0], [1.0; 3]).unwrap();
        assert!(matches!(found.headline, Headline::Stay(_)), "{found:?}");
    }

    #[test]
    fn all_looks_err_as_one() {
        let goal = Goal::parse("minimize probe_ns_p99 where throughput_bps >= 0.5 today").unwrap();
        let blocks = 42;
        let looks = PlannedLooks::new(blocks, 0.9);
        let mut made =
            build_results(&["a", "b", "c", "d"], &[stream_workload("s")], blocks, |_, _| {
                SyntheticFigures::default()
            });
        made.confidence = 0.9;
        let mut runs = RunTable::of_goal(&made, &goal);
        let mut rng = SeededRng::from_seed(41);
        let draws = 400;
        let (mut wrong, mut wrong_unshared) = (0, 0);
        for _ in 0..draws {
            runs.replace_figures(Metric::ProbeNsP99, |_| 1e5 * noise_factor(&mut rng, 0.1));
            runs.replace_figures(Metric::ThroughputBps, |_| 1e9 * noise_factor(&mut rng, 0.01));
            let answers = |share: f64| {
                let of = |blocks: &u32| {
                    decide_early_answer(&made, &runs.up_to(*blocks), &goal, share)
                        .unwrap()
                        .is_some()
                };
                looks.after.iter().any(of)
            };
            wrong += u32::from(answers(looks.error_share()));
            wrong_unshared += u32::from(answers(1.0));
        }
        // 40 and 2.5 standard deviations of a binomial count.
        assert!(wrong <= 55, "{wrong} of {draws} at an error of 1 in 10");
        assert!(
            wrong_unshared > 70,
            "{wrong_unshared} of {draws}: looks would not inflate the error"
        );
    }

    #[track_caller]
    fn find_early_answer(
        blocks: u32,
        sd: f64,
        p99_us: [f64; 3],
        rate: [f64; 3],
    ) -> Option<EarlyAnswer> {
        let mut rng = SeededRng::from_seed(7);
        let made = build_results(
            &["a", "b", "c"],
            &[rr_workload("rr"), stream_workload("s")],
            blocks,
            |setting, _| SyntheticFigures {
                rate: 1e9 * rate[setting] * noise_factor(&mut rng, sd.min(0.002)),
                p99_us: Some(p99_us[setting] * noise_factor(&mut rng, sd)),
                service_demand_us: 2.0,
            },
        );
        let goal = "minimize latency_ns_p99 where throughput_bps >= 0.95 today";
        let goal = Goal::parse(goal).unwrap();
        early_answer(&made, &goal, PlannedLooks::new(134, 0.99).error_share()).unwrap()
    }
}
