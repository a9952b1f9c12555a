//! Whether a setting keeps a goal's conditions, with confidence.
//!
//! A setting is called short of a limit only if that is proven: a one-sided test of the blocks'
//! figures against the limit, corrected over all settings and limits. `best` is the setting with
//! the best true figure. It is unknown, and the best of noisy figures is too good. So a setting is
//! short of a share of the best if it is short of that share of *some* setting: each is tested, and
//! the tests are corrected for their number.

use std::collections::BTreeMap;

use latput_stats::contrast::middle;
use latput_stats::{Estimate, Method, paired};
use latput_trial::Metric;
use latput_trial::metric::PreferredDirection;
use latput_units::IntoMap;

use super::GoalJudge;
use crate::goal::{BoundSide, GoalCondition, LimitReference};
use crate::runs::AVERAGE;

/// Every setting under every condition before correction, and the p-values that it is short of the
/// limit.
type DraftChecks<'a> = (Vec<(usize, LimitCheck<'a>)>, Vec<Option<f64>>);

/// One condition on one setting in one workload.
#[derive(Debug)]
pub(super) struct LimitCheck<'a> {
    pub(super) condition: &'a GoalCondition,
    pub(super) workload: usize,
    pub(super) metric: Metric,
    /// The setting's figure as it is compared with the limit; `None` if it was not measured.
    pub(super) value: Option<f64>,
    /// The limit in the metric's unit, over the same blocks; `None` if the reference was not measured.
    pub(super) limit: Option<f64>,
    /// Whether the setting is ruled out: it is proven short of the limit, or has no figure.
    pub(super) broken: bool,
    /// Whether it is proven to keep the limit.
    pub(super) proven: bool,
    /// The interval of the figure's ratio to the reference's, or of the figure itself for an
    /// absolute limit. `None` where there is no interval, or the setting is itself the reference.
    pub(super) interval: Option<Estimate>,
}

impl LimitCheck<'_> {
    /// Distance of the figure on the wrong side of its limit, as the logarithm of a ratio; 0 if the
    /// limit is not proven to be broken.
    pub(super) fn miss_distance(&self) -> f64 {
        match (self.broken, self.value, self.limit) {
            (false, ..) => 0.0,
            // Of two signs, and of 0 and 0, there is none: NaN, and the smaller number is the other.
            (true, Some(value), Some(limit)) => (value / limit).ln().abs().min(f64::INFINITY),
            _ => f64::INFINITY,
        }
    }
}

/// The p-values of both claims; `None` where there is nothing to test.
#[derive(Clone, Copy, Debug)]
struct PValues {
    /// Claim: the setting is short of the limit.
    short: Option<f64>,
    /// Claim: it keeps the limit.
    keeps: Option<f64>,
    /// The setting that the limit is a share of; of several the one that decides. `None` for an absolute limit.
    base: Option<usize>,
}

impl PValues {
    /// The values of a setting that is compared with itself, without chance.
    fn from_certain(keeps: bool, base: Option<usize>) -> Self {
        let p = |claim: bool| Some(if claim { 0.0 } else { 1.0 });
        Self { short: p(!keeps), keeps: p(keeps), base }
    }

    /// The values of a paired test, from each block's distance inside its limit.
    fn new(margins: &[f64], base: Option<usize>) -> Self {
        let outside: Vec<f64> = margins.iter().map(|margin| -margin).collect();
        let touches = margins.len() > 1 && margins.iter().all(|margin| *margin == 0.0);
        let keeps = if touches { Some(0.0) } else { paired::p_below(&outside, AVERAGE) };
        Self { short: paired::p_below(margins, AVERAGE), keeps, base }
    }
}

/// The setting that another is most surely short of, if its figure is short of any: a test that proves it says then
/// the same as the figures.
fn strictest_base(each: &[PValues]) -> Option<usize> {
    let short = each.iter().filter_map(|p| Some((p.short.filter(|short| *short < 0.5)?, p.base)));
    short.min_by(|a, b| a.0.total_cmp(&b.0))?.1
}

/// A claim that must hold against every setting.
fn combine_all(p_values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    p_values.collect::<Option<Vec<f64>>>()?.into_iter().reduce(f64::max)
}

/// A claim that must hold against at least one setting, corrected for their number (Bonferroni).
fn combine_any(p_values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let known: Vec<f64> = p_values.flatten().collect();
    let least = known.iter().copied().reduce(f64::min)?;
    Some((least * known.len() as f64).min(1.0))
}

impl GoalCondition {
    fn is_met(&self, figure: f64, limit: f64) -> bool {
        match self.bound {
            BoundSide::AtLeast => figure >= limit,
            BoundSide::AtMost => figure <= limit,
        }
    }

    /// Whether the first setting can break it: never where the limit is below the first setting's
    /// own figure.
    pub(super) fn is_breakable_by_first_setting(&self) -> bool {
        self.reference != Some(LimitReference::Today) || !self.is_met(1.0, self.number)
    }
}

impl<'a> GoalJudge<'a> {
    /// Every setting with every condition in every workload that has its figure. A condition on a
    /// named workload without that figure is an error; one on all workloads is then empty.
    pub(super) fn check_limits(&self) -> Result<BTreeMap<usize, Vec<LimitCheck<'a>>>, String> {
        let (drafts, p_values) = self.draft_checks()?;
        let mut kept: BTreeMap<usize, Vec<LimitCheck>> =
            self.settings().map(|setting| (setting, Vec::new())).into_map();
        let corrected = paired::holm(&p_values, self.confidence);
        for ((setting, draft), short) in drafts.into_iter().zip(corrected) {
            let broken = draft.broken || short.proven;
            kept.entry(setting).or_default().push(LimitCheck { broken, ..draft });
        }
        Ok(kept)
    }

    /// The comparisons over which Holm's correction of the limits is made.
    pub(super) fn draft_checks(&self) -> Result<DraftChecks<'a>, String> {
        let mut drafts = Vec::new();
        let mut p_values = Vec::new();
        for condition in &self.goal.conditions {
            for cell in self.find_cells(condition)? {
                for setting in self.settings() {
                    let p = self.p_values(condition, cell, setting);
                    let short = p.short;
                    let kept = self.draft_check(condition, cell, setting, &p);
                    let is_certain =
                        condition.reference == Some(LimitReference::Today) && setting == 0;
                    p_values.push(short.filter(|p| !is_certain || *p == 0.0));
                    drafts.push((setting, kept));
                }
            }
        }
        Ok((drafts, p_values))
    }

    /// The measured workloads of a condition, each with the metric there.
    pub(super) fn find_cells(
        &self,
        condition: &GoalCondition,
    ) -> Result<Vec<(usize, Metric)>, String> {
        let mut cells = condition.figure.cells_in(&self.results.workloads);
        let is_measured =
            |setting, (workload, metric)| !self.runs.figures(setting, workload, metric).is_empty();
        cells.retain(|&cell| self.settings().any(|setting| is_measured(setting, cell)));
        if cells.is_empty() && condition.figure.workload.is_some() {
            return Err(format!("no trial that counts has {}", condition.figure));
        }
        Ok(cells)
    }

    fn p_values(
        &self,
        condition: &GoalCondition,
        cell: (usize, Metric),
        setting: usize,
    ) -> PValues {
        let against = |base: Option<usize>| {
            if base == Some(setting) {
                return PValues::from_certain(condition.is_met(1.0, condition.number), base);
            }
            PValues::new(&self.limit_margins(condition, cell, setting, base), base)
        };
        match condition.reference {
            None => against(None),
            Some(LimitReference::Today) => against(Some(0)),
            Some(LimitReference::Best) => {
                let is_measured =
                    |base: &usize| !self.runs.figures(*base, cell.0, cell.1).is_empty();
                let each: Vec<PValues> =
                    self.settings().filter(is_measured).map(|base| against(Some(base))).collect();
                let (short, keeps) =
                    (|| each.iter().map(|p| p.short), || each.iter().map(|p| p.keeps));
                let is_worse_if_short = (condition.bound == BoundSide::AtLeast)
                    == (cell.1.preferred_direction() == PreferredDirection::Higher);
                let base = strictest_base(&each).or_else(|| self.best_setting(cell));
                if is_worse_if_short {
                    PValues { short: combine_any(short()), keeps: combine_all(keeps()), base }
                } else {
                    PValues { short: combine_all(short()), keeps: combine_any(keeps()), base }
                }
            }
        }
    }

    /// The distance of a setting's figure inside its limit in each block, as the logarithm of a
    /// ratio or, where a figure is 0, as a difference.
    fn limit_margins(
        &self,
        condition: &GoalCondition,
        cell: (usize, Metric),
        setting: usize,
        base: Option<usize>,
    ) -> Vec<f64> {
        let pairs = self.limits_and_figures(condition, cell, setting, base);
        let logs: Option<Vec<f64>> =
            pairs.iter().map(|&(limit, value)| paired::log_ratio(limit, value)).collect();
        let above =
            logs.unwrap_or_else(|| pairs.iter().map(|(limit, value)| value - limit).collect());
        match condition.bound {
            BoundSide::AtLeast => above,
            BoundSide::AtMost => above.into_iter().map(|margin| -margin).collect(),
        }
    }

    /// The limit and the setting's figure in each block. The limit is a share of `base`'s figure in the same block,
    /// or absolute.
    fn limits_and_figures(
        &self,
        condition: &GoalCondition,
        (workload, metric): (usize, Metric),
        setting: usize,
        base: Option<usize>,
    ) -> Vec<(f64, f64)> {
        if let Some(base) = base {
            let pairs = self.runs.paired_figures((base, setting), workload, metric).into_values();
            pairs.map(|(base, own)| (condition.number * base, own)).collect()
        } else {
            let own = self.runs.figures(setting, workload, metric).into_iter();
            own.map(|(_, own)| (condition.number, own)).collect()
        }
    }

    /// The setting with the best estimate.
    fn best_setting(&self, (workload, metric): (usize, Metric)) -> Option<usize> {
        let value = |setting| Some(self.estimate_figure(setting, workload, metric)?.value);
        let cost = |value: f64| {
            if metric.preferred_direction() == PreferredDirection::Higher { -value } else { value }
        };
        let costs = self.settings().filter_map(|s| Some((s, cost(value(s)?))));
        costs.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(setting, _)| setting)
    }

    /// One condition on one setting, before the correction for the other settings.
    fn draft_check(
        &self,
        condition: &'a GoalCondition,
        (workload, metric): (usize, Metric),
        setting: usize,
        p: &PValues,
    ) -> LimitCheck<'a> {
        let figures = self.limits_and_figures(condition, (workload, metric), setting, p.base);
        let (limit, value) = middle(&figures, AVERAGE).unzip();
        let confidence = self.confidence;
        let interval = match p.base {
            Some(base) if base == setting => None,
            Some(base) => self.runs.paired_ratio((base, setting), workload, metric, confidence),
            None => self.estimate_figure(setting, workload, metric),
        };
        // One side of the interval in the report.
        let level = (1.0 - confidence) / 2.0;
        LimitCheck {
            condition,
            workload,
            metric,
            value,
            limit,
            broken: value.is_none(),
            proven: p.keeps.is_some_and(|p| p < level),
            interval: interval.filter(|interval| interval.method != Method::Single),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::goal::Goal;
    use crate::runs::RunTable;
    use crate::synthetic::{reported_results, stream_workload};

    #[test]
    fn distance_from_limit_equals_breach() {
        let goal = Goal::parse("minimize latency_ns_p99 where throughput_bps >= 1e9").unwrap();
        let missed = |broken: bool, value: Option<f64>, limit: Option<f64>| {
            let kept = LimitCheck {
                condition: &goal.conditions[0],
                workload: 0,
                metric: Metric::ThroughputBps,
                value,
                limit,
                proven: false,
                broken,
                interval: None,
            };
            kept.miss_distance()
        };
        assert!((missed(true, Some(8.0), Some(2.0)) - 4.0_f64.ln()).abs() < 1e-12);
        assert!((missed(true, Some(2.0), Some(8.0)) - 4.0_f64.ln()).abs() < 1e-12);
        assert_eq!(missed(false, Some(8.0), Some(2.0)).to_bits(), 0);
        for (value, limit) in [
            (Some(0.0), Some(2.0)),
            (Some(2.0), Some(0.0)),
            (Some(0.0), Some(0.0)),
            (Some(-1.0), Some(2.0)),
            (Some(1.0), Some(-2.0)),
            (None, Some(1.0)),
            (Some(1.0), None),
        ] {
            assert!(missed(true, value, limit).is_infinite(), "{value:?} {limit:?}");
        }
    }

    #[test]
    fn claims_against_every_setting_and_against_any() {
        let some = |values: &[f64]| values.iter().copied().map(Some).collect::<Vec<_>>();
        assert_eq!(combine_all(some(&[0.1, 0.3, 0.2]).into_iter()), Some(0.3));
        assert_eq!(combine_all([Some(0.1), None].into_iter()), None);
        assert_eq!(combine_all(std::iter::empty()), None);
        let least = combine_any([Some(0.04), None, Some(0.01), Some(0.2)].into_iter()).unwrap();
        assert!((least - 0.03).abs() < 1e-12, "{least}");
        assert_eq!(combine_any(some(&[0.9, 0.8]).into_iter()), Some(1.0));
        assert_eq!(combine_any([None, None].into_iter()), None);
    }

    #[test]
    fn strictest_setting_is_most_surely_ahead() {
        let of =
            |short: f64, base: usize| PValues { short: Some(short), keeps: None, base: Some(base) };
        let none = PValues { short: None, keeps: None, base: Some(9) };
        assert_eq!(strictest_base(&[of(0.3, 4), of(0.1, 5), none, of(0.4, 6)]), Some(5));
        assert_eq!(strictest_base(&[of(0.5, 4), of(0.9, 5), none]), None);
        assert_eq!(strictest_base(&[]), None);
    }

    #[test]
    fn touching_margin_keeps_the_limit() {
        let of = |margins: &[f64]| PValues::new(margins, Some(3));
        let touching = of(&[0.0, 0.0]);
        assert_eq!(
            (touching.short, touching.keeps, touching.base),
            (Some(1.0), Some(0.0), Some(3))
        );
        let one = of(&[0.0]);
        assert_eq!((one.short, one.keeps), (None, None));
        let inside = of(&[0.1, 0.2, 0.3]);
        assert!(inside.keeps.unwrap() < 0.05 && inside.short.unwrap() > 0.95, "{inside:?}");
        let outside = of(&[-0.1, -0.2, -0.3]);
        assert!(outside.keeps.unwrap() > 0.95 && outside.short.unwrap() < 0.05, "{outside:?}");
        let itself = PValues::from_certain(false, None);
        assert_eq!((itself.short, itself.keeps), (Some(0.0), Some(1.0)));
        let itself = PValues::from_certain(true, None);
        assert_eq!((itself.short, itself.keeps), (Some(1.0), Some(0.0)));
    }

    #[test]
    fn first_setting_can_break_outside_limits() {
        for (text, can_break) in [
            ("throughput_bps >= 0.95 today", false),
            ("throughput_bps >= 1 today", false),
            ("throughput_bps >= 1.05 today", true),
            ("throughput_bps <= 1.05 today", false),
            ("throughput_bps <= 0.95 today", true),
            ("throughput_bps >= 0.95 best", true),
            ("throughput_bps >= 5", true),
        ] {
            let goal = Goal::parse(&format!("minimize latency_ns_p99 where {text}")).unwrap();
            assert_eq!(goal.conditions[0].is_breakable_by_first_setting(), can_break, "{text}");
        }
    }

    /// Runs `check` on three settings in two blocks, of which the last has no throughput.
    fn with_judge(
        limit: &str,
        check: impl FnOnce(&GoalJudge<'_>, &GoalCondition, (usize, Metric)),
    ) {
        let made = reported_results(
            &[stream_workload("s")],
            2,
            &[
                (Metric::LatencyNsP99, &[&[9e4], &[8e4], &[7e4]]),
                (Metric::ThroughputBps, &[&[1e9, 1.1e9], &[1.2e9, 1.3e9], &[f64::NAN]]),
                (Metric::LossRatio, &[&[0.0, 0.004], &[0.02, 0.01], &[0.0]]),
            ],
        );
        let goal = Goal::parse(&format!("minimize latency_ns_p99 where {limit}")).unwrap();
        let runs = RunTable::of_goal(&made, &goal);
        let judge = GoalJudge::new(&made, &runs, &goal).unwrap();
        let condition = &judge.goal.conditions[0];
        check(&judge, condition, condition.figure.cells_in(&made.workloads)[0]);
    }

    #[test]
    fn best_is_highest_rate_and_lowest_latency() {
        with_judge("throughput_bps >= 0.9 best", |judge, _, cell| {
            assert_eq!(judge.best_setting(cell), Some(1));
            assert_eq!(judge.best_setting((0, Metric::LatencyNsP99)), Some(2));
            assert_eq!(judge.best_setting((0, Metric::LossRatio)), None);
        });
    }

    #[test]
    fn margin_is_ratio_or_difference_at_zero() {
        let check = |limit: &str, setting: usize, expected: [f64; 2]| {
            with_judge(limit, |judge, condition, cell| {
                let found = judge.limit_margins(condition, cell, setting, None);
                let off = found.iter().zip(expected).map(|(a, b)| (a - b).abs());
                assert!(found.len() == 2 && off.fold(0.0, f64::max) < 1e-12, "{limit}: {found:?}");
            });
        };
        check("loss_ratio <= 0.01", 0, [0.01, 0.006]);
        check("loss_ratio <= 0.01", 1, [-2_f64.ln(), 0.0]);
        check("loss_ratio >= 0.01", 0, [-0.01, -0.006]);
        check("throughput_bps >= 1e9", 0, [0.0, 1.1_f64.ln()]);
    }

    #[test]
    fn limit_is_proven_at_one_side() {
        with_judge("throughput_bps >= 9e8", |judge, condition, cell| {
            let level = (1.0 - judge.confidence) / 2.0;
            for (keeps, proven) in
                [(Some(0.004_9), true), (Some(level), false), (Some(0.005_1), false), (None, false)]
            {
                let kept = judge.draft_check(
                    condition,
                    cell,
                    0,
                    &PValues { short: None, keeps, base: None },
                );
                assert_eq!(kept.proven, proven, "{keeps:?}");
            }
        });
    }

    #[test]
    fn reference_setting_has_no_interval() {
        with_judge("throughput_bps >= 0.9 today", |judge, _, _| {
            let kept = judge.check_limits().unwrap();
            assert_eq!(kept[&0][0].interval, None);
            let ratio = kept[&1][0].interval.as_ref().unwrap();
            // The root of 1.2 / 1.0 times 1.3 / 1.1.
            assert!((ratio.value - (1.2_f64 * 1.3 / 1.1).sqrt()).abs() < 1e-12, "{ratio:?}");
            assert!(kept[&2][0].broken, "what has no figure is ruled out");
        });
    }
}
