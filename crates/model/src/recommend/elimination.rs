//! Settings that need no more trials: they are worse in the objective, or break a limit.

use latput_stats::paired;
use latput_trial::Results;

use super::comparison::{LogRatios, TestedClaim};
use super::{GoalJudge, LimitCheck};
use crate::goal::{Goal, OptimizeDirection};
use crate::runs::RunTable;
use crate::words;

/// A setting that needs no more trials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EliminatedSetting {
    /// Index into the settings.
    pub setting: usize,
    /// The reason, as a sentence with figures.
    pub why: String,
}

/// The settings that can be left out of later blocks; never the first one.
///
/// Each is proven short of a limit of `goal`, or proven worse in its objective than the first
/// setting or than the leader. The leader is the best of those that are proven to keep every limit.
/// A setting that was left out before is named again. The error is the reason why the goal cannot
/// be judged.
///
/// A run eliminates several times. `share` is this elimination's part of the results' chance of
/// error. The shares add up to at most one. Then at most that share of runs leaves out a setting
/// that is as good as any. This holds however the eliminations depend on each other (Bonferroni).
/// Limits have half of it, the objective the other half. The limits' half is corrected after Holm
/// over all settings and limits. The objective's half is divided again: one part for the pairs with
/// the first setting, one for all pairs of others, since any could have been the leader.
///
/// Elimination does not raise the chance of a false change at the end. The final test of each
/// setting is on its own pairs with the first one, and is corrected over all settings of the plan.
/// A setting that is behind the first one when it is dropped stays behind it. A wrong elimination
/// costs power.
pub fn find_eliminated(
    results: &Results,
    goal: &Goal,
    share: f64,
) -> Result<Vec<EliminatedSetting>, String> {
    eliminated_by(results, &RunTable::of_goal(results, goal), goal, share)
}

fn eliminated_by(
    results: &Results,
    runs: &RunTable,
    goal: &Goal,
    share: f64,
) -> Result<Vec<EliminatedSetting>, String> {
    let confidence = 1.0 - (1.0 - results.confidence) * share / 2.0;
    let judge = GoalJudge { confidence, ..GoalJudge::new(results, runs, goal)? };
    let kept = judge.check_limits()?;
    let ratios = judge.objective_ratios();
    let is_safe = |setting: &usize| kept[setting].iter().all(|kept| kept.proven && !kept.broken);
    let leader = judge.by_score(&ratios, &is_safe).first().copied();
    let worse = judge.worse_than(leader.filter(|leader| *leader != 0));
    let why = |setting: usize| {
        let broken = kept[&setting].iter().find(|kept| kept.broken && kept.value.is_some());
        let limit = broken.map(|kept: &LimitCheck<'_>| judge.short_words(setting, kept));
        limit.or_else(|| worse.iter().find(|one| one.setting == setting).map(|one| one.why.clone()))
    };
    Ok(judge
        .other_settings()
        .filter_map(|setting| Some(EliminatedSetting { setting, why: why(setting)? }))
        .collect())
}

impl GoalJudge<'_> {
    /// The settings proven worse in the objective than the first one, or than `leader`, another one.
    fn worse_than(&self, leader: Option<usize>) -> Vec<EliminatedSetting> {
        let others = self.other_settings().len();
        let pairs_of_others = others * others.saturating_sub(1);
        let families = if pairs_of_others == 0 { 1.0 } else { 2.0 };
        let confidence = 1.0 - (1.0 - self.confidence) / families;
        let mut worse = self.worse_than_base(0, others, confidence);
        if let Some(leader) = leader {
            worse.extend(self.worse_than_base(leader, pairs_of_others, confidence));
        }
        worse
    }

    /// The settings proven worse in the objective than `base`, in a family of so many tests.
    fn worse_than_base(
        &self,
        base: usize,
        tests: usize,
        confidence: f64,
    ) -> Vec<EliminatedSetting> {
        let claim = match self.goal.direction {
            OptimizeDirection::Minimize => TestedClaim::More,
            OptimizeDirection::Maximize => TestedClaim::Less,
        };
        let others: Vec<usize> = self.other_settings().filter(|other| *other != base).collect();
        let logs: Vec<Option<LogRatios>> =
            others.iter().map(|other| self.objective_logs(base, *other)).collect();
        let mut p_values: Vec<_> = logs.iter().map(|logs| logs.as_ref()?.p_value(claim)).collect();
        // The tests against other possible leaders count as failed ones.
        p_values.resize(tests, Some(1.0));
        let corrected = paired::holm(&p_values, confidence);
        let worse = others.into_iter().zip(logs).zip(corrected);
        let worse = worse.filter_map(|((other, logs), corrected)| {
            let confidence = 1.0 - 2.0 * (1.0 - corrected.confidence);
            let ratio = logs.filter(|_| corrected.proven)?.ratio(confidence)?;
            let change = words::format_change(ratio.value);
            let interval = words::format_interval(&ratio);
            let setting = self.quoted_label(other);
            let base = self.quoted_label(base);
            let objective = self.objective_name();
            let why = format!(
                "{setting} is proven worse than {base}: {objective} is {change} ({interval})"
            );
            Some(EliminatedSetting { setting: other, why })
        });
        worse.collect()
    }

    fn short_words(&self, setting: usize, kept: &LimitCheck<'_>) -> String {
        format!("{} is proven {}", self.quoted_label(setting), self.missed_words(kept))
    }
}

#[cfg(test)]
mod tests {
    use latput_trial::Metric;
    use latput_units::SeededRng;

    use super::*;
    use crate::synthetic::{
        SyntheticFigures, build_results, noise_factor, reported_results, rr_workload,
        stream_workload,
    };

    #[test]
    fn eliminated_settings_have_reasons_first_stays() {
        let found = left_out(8, 0.02, [40.0, 100.0, 40.1, 20.0], [1.0, 1.0, 1.0, 0.5]);
        assert_eq!(found.iter().map(|one| one.setting).collect::<Vec<_>>(), [1, 3]);
        for (why, part) in found.iter().zip(["`b` is proven worse than `a`", "`d` is proven 4"]) {
            assert!(why.why.starts_with(part), "{}", why.why);
        }
    }

    #[test]
    fn setting_behind_leader_is_eliminated() {
        let found = left_out(8, 0.02, [100.0, 80.0, 40.0, 99.0], [1.0; 4]);
        let settings: Vec<usize> = found.iter().map(|one| one.setting).collect();
        assert_eq!(settings, [1, 3], "{found:?}");
        assert!(found[0].why.starts_with("`b` is proven worse than `c`"), "{found:?}");
        // Not where the leader is not known to keep the limit: it may be ruled out yet.
        let found = left_out(8, 0.02, [100.0, 80.0, 40.0, 99.0], [1.0, 1.0, 0.95, 1.0]);
        assert!(found.iter().all(|one| one.setting != 1), "{found:?}");
    }

    #[test]
    fn equal_settings_are_hardly_ever_eliminated() {
        assert_eq!(left_out(1, 0.5, [100.0, 800.0, 4.0, 99.0], [1.0; 4]), []);
        let many = wrongly_left_out(31, 300, 0.99, &[8]);
        assert!(many <= 8, "{many} of 300 at an error of 1 in 100");
    }

    #[test]
    fn several_looks_keep_the_error_rate() {
        let many = wrongly_left_out(37, 300, 0.9, &[5, 10, 15, 20, 25, 30, 35, 40]);
        // 30 and 2.5 standard deviations of a binomial count.
        assert!(many <= 43, "{many} of 300 at an error of 1 in 10");
    }

    /// How many of `draws` runs without a difference leave a setting out in a look after any of so many blocks.
    fn wrongly_left_out(seed: u64, draws: usize, confidence: f64, looks: &[u32]) -> usize {
        let mut rng = SeededRng::from_seed(seed);
        let goal = "minimize probe_ns_p99 where throughput_bps >= 0.95 today";
        let goal = Goal::parse(goal).unwrap();
        let blocks = *looks.last().unwrap();
        let mut made =
            build_results(&["a", "b", "c", "d"], &[stream_workload("s")], blocks, |_, _| {
                SyntheticFigures::default()
            });
        made.confidence = confidence;
        let mut runs = RunTable::of_goal(&made, &goal);
        let share = 1.0 / looks.len() as f64;
        let drawn = (0..draws).filter(|_| {
            for metric in [Metric::ProbeNsP99, Metric::ThroughputBps] {
                runs.replace_figures(metric, |_| 1e5 * noise_factor(&mut rng, 0.3));
            }
            let is_left_out = |&blocks: &u32| {
                !eliminated_by(&made, &runs.up_to(blocks), &goal, share).unwrap().is_empty()
            };
            looks.iter().any(is_left_out)
        });
        drawn.count()
    }

    #[track_caller]
    fn left_out(blocks: u32, sd: f64, p99_us: [f64; 4], rate: [f64; 4]) -> Vec<EliminatedSetting> {
        let made = make_results(blocks, &mut SeededRng::from_seed(7), sd, p99_us, rate);
        find_eliminated(&made, &make_goal(), 1.0).unwrap()
    }

    fn make_goal() -> Goal {
        Goal::parse("minimize latency_ns_p99 where throughput_bps >= 0.95 today").unwrap()
    }

    fn make_results(
        blocks: u32,
        rng: &mut SeededRng,
        sd: f64,
        p99_us: [f64; 4],
        rate: [f64; 4],
    ) -> Results {
        let workloads = [rr_workload("rr"), stream_workload("s")];
        build_results(&["a", "b", "c", "d"], &workloads, blocks, |setting, _| SyntheticFigures {
            rate: 1e9 * rate[setting] * noise_factor(rng, sd),
            p99_us: Some(p99_us[setting] * noise_factor(rng, sd)),
            service_demand_us: 2.0,
        })
    }

    #[test]
    fn pairs_with_the_first_share_a_quarter() {
        let latencies: &[&[f64]] = &[&[4e4], &[1e5], &[4e4]];
        let made = reported_results(&[rr_workload("rr")], 5, &[(Metric::LatencyNsP99, latencies)]);
        let goal = Goal::parse("minimize latency_ns_p99").unwrap();
        // Two pairs with the first: 1% / 2 / 2 / 2 on one side is 99.75% on both.
        for (share, confidence) in [(1.0, "99.75%"), (0.5, "99.88%")] {
            let [found] = &find_eliminated(&made, &goal, share).unwrap()[..] else { panic!() };
            assert_eq!(
                found.why,
                format!(
                    "`b` is proven worse than `a`: latency_ns_p99 is 2.50 times as high (interval 2.50 to 2.50 \
                     times as high at {confidence})"
                )
            );
        }
    }
}
