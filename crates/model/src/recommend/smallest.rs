//! The smallest effects that a run could have proven, for all figures of its goal.

use std::collections::BTreeSet;

use latput_stats::paired::Center;
use latput_stats::{Untrimmed, mean, order, paired, untrimmed};
use latput_trial::Metric;
use latput_trial::metric::PreferredDirection;
use latput_units::IntoSet;

use super::GoalJudge;
use super::comparison::TestedClaim;
use crate::goal::{BoundSide, GoalCondition, LimitReference};
use crate::runs::AVERAGE;

/// A run that could not have proven a difference of this share in the objective has no answer. A fifth is
/// what people change settings for; `docs/tune.md` tells it.
pub const LARGEST_MISSED: f64 = 0.20;
/// The normal deviate of 80%, the chance that an effect of the reported size is proven: the
/// convention of Cohen, "Statistical Power Analysis for the Behavioral Sciences", 1988.
pub(crate) const Z_OF_POWER: f64 = 0.841_621;
/// Factor of the number of blocks in the second figure; it halves the standard error.
const TIMES: usize = 4;
/// More blocks than these are no advice: at 3 s each, a run of an hour.
const MOST_BLOCKS: usize = 1200;

/// The smallest effect that about four of five runs like this one prove, at the one-sided level of
/// its test, corrected for all other comparisons. The noise is the median over the settings other
/// than the first.
#[derive(Clone, Debug, PartialEq)]
pub struct SmallestEffect {
    /// Indices of the workloads, each with the metric there. Several are tested together: as the
    /// geometric mean (over workloads) or product (of figures) of an objective.
    pub figures: Vec<(usize, Metric)>,
    /// The limit as in the goal; `None` for the objective.
    pub limit: Option<String>,
    /// The figure over the first setting's (for a limit: over the limit): 0.88 if 12% less, 1.12
    /// if 12% more could have been proven.
    pub ratio: f64,
    /// The same ratio with four times the blocks.
    pub ratio_in_four_times: f64,
    /// The fewest blocks of a run that could prove a change by [`LARGEST_MISSED`], counted as the run's own blocks are: with
    /// those that do not count, and those of the first setting alone. `None` beyond 1200 pairs.
    pub blocks_wanted: Option<usize>,
}

impl GoalJudge<'_> {
    /// The effects of the objective, then of each limit in each of its workloads; figures with
    /// fewer than two blocks are left out.
    pub(super) fn smallest_effects(&self) -> Result<Vec<SmallestEffect>, String> {
        let mut smallest: Vec<SmallestEffect> = self.smallest_objective().into_iter().collect();
        let made = self.draft_checks()?.1.into_iter().flatten().count();
        for condition in &self.goal.conditions {
            for cell in self.find_cells(condition)? {
                smallest.extend(self.smallest_limit(condition, cell, made));
            }
        }
        Ok(smallest)
    }

    fn smallest_objective(&self) -> Option<SmallestEffect> {
        let centers: Vec<Center> = self
            .other_settings()
            .filter_map(|other| self.objective_logs(0, other)?.center())
            .collect();
        let level = (1.0 - self.objective_confidence()) / centers.len().max(1) as f64;
        let figures = self.objective.iter().flatten().copied().collect();
        let found = find_smallest_effect(&centers, level, self.better_objective(), figures, None)?;
        Some(self.count_run_blocks(found, &centers))
    }

    /// Counts the wanted blocks as those of the run are. Not every block has a pair that counts, and on live traffic each has
    /// one of a single setting. A longer run has them in the same proportion, beside as many of the first setting alone.
    fn count_run_blocks(&self, found: SmallestEffect, centers: &[Center]) -> SmallestEffect {
        let rows = || self.results.rows.iter();
        let all: BTreeSet<u32> = rows().map(|row| row.block).into_set();
        let compared: BTreeSet<u32> =
            rows().filter(|row| row.setting != 0).map(|row| row.block).into_set();
        let counted = centers.iter().map(|center| center.runs).max().unwrap_or(1).max(1);
        let in_run = |wanted: usize| {
            (all.len() - compared.len()) + (compared.len() * wanted).div_ceil(counted)
        };
        SmallestEffect { blocks_wanted: found.blocks_wanted.map(in_run), ..found }
    }

    /// The effect of a limited figure. `made` is the number of comparisons with limits that are
    /// corrected for each other.
    fn smallest_limit(
        &self,
        condition: &GoalCondition,
        cell: (usize, Metric),
        made: usize,
    ) -> Option<SmallestEffect> {
        let (workload, metric) = cell;
        let center_of = |setting: usize| {
            if condition.reference.is_some() {
                return self.figure_logs(setting, workload, metric)?.center();
            }
            let own = self.runs.figures(setting, workload, metric).into_iter();
            let logs: Option<Vec<f64>> =
                own.map(|(_, value)| paired::log_ratio(1.0, value)).collect();
            Center::from_logs(&logs?, AVERAGE)
        };
        let centers: Vec<Center> = self.other_settings().filter_map(center_of).collect();
        let is_worse_if_short = (condition.bound == BoundSide::AtLeast)
            == (metric.preferred_direction() == PreferredDirection::Higher);
        // Short of the best means short of some setting, which is corrected for their number.
        let bases = match condition.reference {
            Some(LimitReference::Best) if is_worse_if_short => {
                let is_measured =
                    |base: &usize| !self.runs.figures(*base, workload, metric).is_empty();
                self.settings().filter(is_measured).count()
            }
            _ => 1,
        };
        let level = (1.0 - self.confidence) / (made.max(1) * bases.max(1)) as f64;
        let claim = match condition.bound {
            BoundSide::AtLeast => TestedClaim::Less,
            BoundSide::AtMost => TestedClaim::More,
        };
        let limit = Some(condition.to_string());
        let found = find_smallest_effect(&centers, level, claim, vec![cell], limit)?;
        Some(self.count_run_blocks(found, &centers))
    }
}

/// The effect from each setting's ratio, with the wanted blocks of such ratios; `None` without ratios or without a `level`.
fn find_smallest_effect(
    centers: &[Center],
    level: f64,
    claim: TestedClaim,
    figures: Vec<(usize, Metric)>,
    limit: Option<String>,
) -> Option<SmallestEffect> {
    if !(level > 0.0 && level < 0.5) {
        return None;
    }
    let sign = if claim == TestedClaim::Less { -1.0 } else { 1.0 };
    let blocks = centers.iter().map(|center| center.runs).max()?;
    let effect = |more: usize| {
        let of_mean = |error: f64, freedom: usize| {
            let error = error / usual_share(freedom) / (more as f64 / blocks as f64).sqrt();
            provable_effect(error, (freedom * more / blocks).max(1), level)
        };
        let of_setting = |center: &Center| {
            let trimmed = of_mean(center.error, center.degrees_of_freedom);
            let Some(all) = center.untrimmed.as_ref().filter(|_| more < untrimmed::ENOUGH) else {
                return trimmed;
            };
            let (error, freedom) = all.plain_error();
            let plain = of_mean(error, freedom);
            // The rank test of more blocks is not known.
            let ranks = if more == blocks { rank_effect(center, all, level) } else { plain };
            trimmed.max(plain.min(ranks))
        };
        let effects: Vec<f64> = centers.iter().map(of_setting).collect();
        Some(order::median(&effects, 0.5)?.value)
    };
    let ratio = |blocks: usize| Some((sign * effect(blocks)?).exp());
    let largest = (1.0 + sign * LARGEST_MISSED).ln().abs();
    // More blocks prove smaller effects: the first that is small enough is found by halving. Mostly these are enough.
    let is_small = |blocks: usize| effect(blocks).is_some_and(|it| it <= largest);
    let most = if is_small(blocks) { blocks } else { MOST_BLOCKS };
    let candidates: Vec<usize> = (blocks..=most).collect();
    let first = candidates.partition_point(|&more| !is_small(more));
    Some(SmallestEffect {
        ratio: ratio(blocks)?,
        ratio_in_four_times: ratio(blocks * TIMES)?,
        blocks_wanted: candidates.get(first).copied(),
        figures,
        limit,
    })
}

/// The effect that a one-sided t test at `level` proves with a chance of 80%, in the unit of
/// `error`: the noncentrality `t (1 - 1 / 4f) + z sqrt(1 + t^2 / 2f)` of Abramowitz and Stegun,
/// "Handbook of Mathematical Functions", 26.7.10, with the critical `t` and normal `z`. The simpler
/// `t(1 - level) + t(0.8)` is too small: with 8 blocks 65% of the runs proved the effect that it
/// gave.
fn provable_effect(error: f64, degrees_of_freedom: usize, level: f64) -> f64 {
    let t = mean::critical_t(1.0 - 2.0 * level, degrees_of_freedom);
    let freedom = degrees_of_freedom as f64;
    error * (t * (1.0 - 0.25 / freedom) + Z_OF_POWER * (1.0 + t * t / 2.0 / freedom).sqrt())
}

/// The effect that a rank test at `level` proves: as far as its interval reaches from the average on the side that reaches
/// farther, and the same share of the error for a chance of 80% as normal figures need.
fn rank_effect(center: &Center, all: &Untrimmed, level: f64) -> f64 {
    let (low, high) = all.rank_bounds(1.0 - 2.0 * level);
    (center.log - low).max(high - center.log) + Z_OF_POWER * center.error
}

/// The median of a standard error over its true value: half of all errors from few blocks are
/// smaller than that. The cube root of a chi square is nearly normal (Wilson and Hilferty,
/// Proceedings of the National Academy of Sciences 17, 1931).
fn usual_share(degrees_of_freedom: usize) -> f64 {
    (1.0 - 2.0 / 9.0 / degrees_of_freedom as f64).powf(1.5)
}

#[cfg(test)]
mod tests {
    use latput_trial::Results;
    use latput_units::SeededRng;

    use super::*;
    use crate::goal::Goal;
    use crate::recommend::Recommendation;
    use crate::recommend::recommend_from_runs;
    use crate::runs::RunTable;
    use crate::synthetic::{
        SyntheticFigures, build_results, noise_factor, reported_results, rr_workload,
        stream_workload,
    };

    const MOST: &str = "maximize throughput_bps";
    const LIMITED: &str = "minimize latency_ns_p99 where throughput_bps >= 0.95 today";

    #[test]
    fn provable_effect_is_that_of_the_noncentral_t() {
        // The noncentrality at which scipy's `nct.sf(t.isf(level, freedom), freedom, it)` is 0.8.
        let of_scipy = [
            (3, 0.01, 5.8683),
            (4, 0.01 / 3.0, 6.5437),
            (5, 0.00125, 6.9934),
            (9, 0.01, 3.7482),
            (11, 0.01 / 3.0, 4.285),
            (44, 0.00125, 4.078),
        ];
        for (freedom, level, expected) in of_scipy {
            let found = provable_effect(1.0, freedom, level);
            assert!(
                (found / expected - 1.0).abs() < 0.015,
                "{freedom} {level}: {found} {expected}"
            );
        }
    }

    #[test]
    fn told_effect_is_found_in_four_of_five() {
        for blocks in [5, 8, 20] {
            let mut rng = SeededRng::from_seed(17);
            let mut told: Vec<f64> = (0..100)
                .map(|_| {
                    judge_results(MOST, &stream_results(blocks, 1.0, &mut rng)).smallest[0].ratio
                })
                .collect();
            told.sort_by(f64::total_cmp);
            let effect = told[50];
            let proves = |_: &u32| {
                judge_results(MOST, &stream_results(blocks, effect, &mut rng)).setting == 2
            };
            let proven = (0..400).filter(proves).count();
            assert!((288..=352).contains(&proven), "{blocks} blocks: {proven} of 400 at {effect}");
        }
    }

    #[test]
    fn told_limit_breaks_in_four_of_five() {
        let goal = "maximize throughput_bps where throughput_bps >= 0.95 today";
        let mut rng = SeededRng::from_seed(19);
        let mut told: Vec<f64> = (0..100)
            .map(|_| judge_results(goal, &stream_results(20, 1.0, &mut rng)).smallest[1].ratio)
            .collect();
        told.sort_by(f64::total_cmp);
        let short = 0.95 * told[50];
        let goal = Goal::parse(goal).unwrap();
        let breaks = |_: &u32| {
            let made = stream_results(20, short, &mut rng);
            let runs = RunTable::of_goal(&made, &goal);
            let judge = GoalJudge::new(&made, &runs, &goal).unwrap();
            judge.check_limits().unwrap()[&2][0].broken
        };
        let broken = (0..400).filter(breaks).count();
        assert!((288..=352).contains(&broken), "{broken} of 400 at {short}");
    }

    #[test]
    fn four_times_the_blocks_prove_smaller() {
        let mut rng = SeededRng::from_seed(23);
        let mut of_blocks = |blocks: u32| {
            let all = (0..60).map(|_| {
                judge_results(MOST, &stream_results(blocks, 1.0, &mut rng)).smallest[0].clone()
            });
            let all: Vec<SmallestEffect> = all.collect();
            let middle = |mut values: Vec<f64>| {
                values.sort_by(f64::total_cmp);
                values[values.len() / 2].ln()
            };
            (
                middle(all.iter().map(|one| one.ratio).collect()),
                middle(all.iter().map(|one| one.ratio_in_four_times).collect()),
            )
        };
        let (told, real) = (of_blocks(10).1, of_blocks(40).0);
        assert!((told / real - 1.0).abs() < 0.1, "{told} told, {real} with the blocks");
    }

    #[test]
    fn objective_and_limits_tell_their_side() {
        let told = judge_results(LIMITED, &mixed_results(10)).smallest;
        let figures: Vec<_> = told.iter().map(|one| one.figures.as_slice()).collect();
        assert_eq!(figures, [[(0, Metric::LatencyNsP99)], [(1, Metric::ThroughputBps)]]);
        assert_eq!(
            (told[0].limit.as_deref(), told[1].limit.as_deref()),
            (None, Some("throughput_bps >= 0.95 today"))
        );
        for one in &told {
            assert!(0.5 < one.ratio && one.ratio < one.ratio_in_four_times, "{one:?}");
            assert!(one.ratio_in_four_times < 1.0, "{one:?}");
        }
        let told = judge_results(
            "minimize latency_ns_p99 where latency_ns_p99 <= 60000",
            &mixed_results(10),
        )
        .smallest;
        assert!(told[1].ratio > told[1].ratio_in_four_times && told[1].ratio_in_four_times > 1.0);
        // A limit of the best is corrected for every setting that may be the best.
        let best = judge_results(&LIMITED.replace("today", "best"), &mixed_results(10)).smallest;
        assert!(
            best[1].ratio < judge_results(LIMITED, &mixed_results(10)).smallest[1].ratio,
            "{best:?}"
        );
        // Parts of one objective are tested together, and told together.
        let told = judge_results("maximize rate", &mixed_results(10)).smallest;
        assert_eq!((told.len(), told[0].figures.len()), (1, 2));
    }

    #[test]
    fn single_and_missing_runs_tell_nothing() {
        assert_eq!(judge_results(LIMITED, &mixed_results(1)).smallest, []);
        let mut made = mixed_results(10);
        made.rows.retain(|row| row.setting == 0);
        assert_eq!(judge_results(LIMITED, &made).smallest, []);
        made = mixed_results(10);
        made.rows.retain(|row| row.setting == 0 || row.workload == 1);
        let told = judge_results(LIMITED, &made).smallest;
        assert_eq!(told.iter().map(|one| one.limit.is_some()).collect::<Vec<_>>(), [true]);
    }

    #[test]
    fn dropped_settings_leave_others_unchanged() {
        let whole = judge_results(LIMITED, &mixed_results(20)).smallest;
        for blocks in [1, 3] {
            let mut made = mixed_results(20);
            made.rows.retain(|row| row.setting != 3 || row.block < blocks);
            let dropped = judge_results(LIMITED, &made).smallest;
            assert_eq!(dropped.len(), 2);
            for (one, all) in dropped.iter().zip(&whole) {
                let times = one.ratio.ln() / all.ratio.ln();
                assert!((0.6..1.6).contains(&times), "{blocks}: {one:?} {all:?}");
            }
        }
    }

    fn judge_results(goal: &str, made: &Results) -> Recommendation {
        let goal = Goal::parse(goal).unwrap();
        recommend_from_runs(made, &RunTable::of_goal(made, &goal), &goal).unwrap()
    }

    /// Four settings with 4% of noise, the third with `effect` times the rate of the others.
    fn stream_results(blocks: u32, effect: f64, rng: &mut SeededRng) -> Results {
        build_results(&["a", "b", "c", "d"], &[stream_workload("s")], blocks, |setting, _| {
            SyntheticFigures {
                rate: 1e9 * noise_factor(rng, 0.04) * if setting == 2 { effect } else { 1.0 },
                ..SyntheticFigures::default()
            }
        })
    }

    fn mixed_results(blocks: u32) -> Results {
        let mut rng = SeededRng::from_seed(29);
        build_results(
            &["a", "b", "c", "d"],
            &[rr_workload("rr"), stream_workload("s")],
            blocks,
            |_, _| SyntheticFigures {
                rate: 1e9 * noise_factor(&mut rng, 0.04),
                p99_us: Some(50.0 * noise_factor(&mut rng, 0.1)),
                service_demand_us: 2.0,
            },
        )
    }

    #[test]
    fn limit_of_best_has_its_correction() {
        // `d` has no figure, so that three settings may be the best.
        let values: &[&[f64]] = &[
            &[1e6; 5],
            &[1e6, 1.02e6, 0.98e6, 1.01e6, 0.99e6],
            &[1e6, 0.97e6, 1.03e6, 1e6, 1.01e6],
            &[f64::NAN],
        ];
        let made = reported_results(
            &[rr_workload("rr")],
            5,
            &[(Metric::LatencyNsP99, values), (Metric::ThroughputBps, values)],
        );
        let effect = |limit: &str, comparisons: usize| {
            let goal = Goal::parse(&format!("minimize latency_ns_p99 where {limit}")).unwrap();
            let runs = RunTable::of_goal(&made, &goal);
            let judge = GoalJudge::new(&made, &runs, &goal).unwrap();
            let condition = &goal.conditions[0];
            let cell = condition.figure.cells_in(&made.workloads)[0];
            judge.smallest_limit(condition, cell, comparisons).unwrap().ratio
        };
        // Worse than the best is worse than one of three; better than the best is better than each.
        for (limit, bases) in [
            ("throughput_bps >= 0.95", 3),
            ("throughput_bps <= 0.95", 1),
            ("latency_ns_p99 <= 1.05", 3),
            ("latency_ns_p99 >= 1.05", 1),
        ] {
            let [best, today] = ["best", "today"].map(|base| format!("{limit} {base}"));
            let (found, expected) = (effect(&best, 4), effect(&today, 4 * bases));
            assert!((found - expected).abs() < 1e-12, "{limit}: {found} {expected}");
        }
    }

    #[test]
    fn level_that_is_none_tells_nothing() {
        let center = Center::from_logs(&[0.1, 0.2, 0.15], AVERAGE).unwrap();
        let told = |level| {
            let centers = std::slice::from_ref(&center);
            find_smallest_effect(centers, level, TestedClaim::Less, Vec::new(), None).is_some()
        };
        assert_eq!([0.0, 0.001, 0.499, 0.5, f64::NAN].map(told), [false, true, true, false, false]);
    }
}
