//! The recommendation: the best setting that keeps the goal's conditions and is proven better than
//! the first one, or the first one itself.
//!
//! Nothing is claimed without an interval. A setting is chosen only if the difference to the first
//! setting is proven after Holm's correction over all other settings (also those that the conditions
//! rule out: which ones those are depends on the same noisy figures). Where the first setting itself
//! breaks a condition, the claim is not a better objective but that the other setting does better in
//! what the first one breaks, and the correction is over those comparisons. Claims go one way only
//! and their tests look both ways, which leaves half of the chance of error to either kind of claim:
//! together they stay within it.

use std::collections::BTreeMap;

use latput_stats::{Estimate, paired};
use latput_trial::{Metric, Results};

use crate::goal::{Bound, Direction, Goal};
use crate::runs::Runs;
use crate::summary::Recommendation;

mod condition;
mod reason;

use condition::Kept;

/// Judges every setting by `goal`; the error says why that cannot be done.
pub(crate) fn recommend(
    results: &Results,
    runs: &Runs<'_>,
    goal: &Goal,
) -> Result<Recommendation, String> {
    let judge = Judge { results, runs, goal, objective: objective(results, runs, goal)? };
    let kept = judge.kept()?;
    let verdict = judge.verdict(&kept);
    Ok(Recommendation {
        goal: goal.text.clone(),
        setting: verdict.setting(),
        proven: matches!(verdict, Verdict::Change { .. }),
        against_first: match &verdict {
            Verdict::Change { to, .. } => judge.objective_ratios()[to].ratio.clone(),
            _ => None,
        },
        reason: judge.reason(&kept, &verdict),
    })
}

/// The objective: for each of its figures the workloads that have it, with the metric there.
type Objective = Vec<Vec<(usize, Metric)>>;

/// Everything that a recommendation rests on.
struct Judge<'a> {
    results: &'a Results,
    runs: &'a Runs<'a>,
    goal: &'a Goal,
    objective: Objective,
}

/// One comparison with the first setting, corrected for all those made beside it.
#[derive(Clone, Debug)]
struct Comparison {
    /// The paired ratio to the first setting at the corrected confidence; `None` where no block has
    /// both, or a figure was 0.
    ratio: Option<Estimate>,
    /// Whether it is proven to differ.
    proven: bool,
}

/// What was found.
enum Verdict {
    /// `to` is proven better, or to keep what the first setting breaks.
    Change { to: usize },
    /// Nothing is proven better than the first setting; `nearest` is the best other candidate.
    Stay { nearest: Option<usize> },
    /// No setting keeps the conditions; `nearest` misses them by least.
    NoneKeeps { nearest: usize },
}

impl Verdict {
    fn setting(&self) -> usize {
        if let Self::Change { to } = self { *to } else { 0 }
    }
}

fn objective(results: &Results, runs: &Runs<'_>, goal: &Goal) -> Result<Objective, String> {
    let first = results.settings.first().ok_or("the results have no setting")?;
    let of_figure = |figure: &crate::goal::Figure| {
        let mut cells = figure.of(&results.workloads);
        cells.retain(|&(workload, metric)| !runs.figures(0, workload, metric).is_empty());
        if cells.is_empty() {
            return Err(format!("`{}` has no {figure} in any run", first.label));
        }
        Ok(cells)
    };
    goal.objective.iter().map(of_figure).collect()
}

impl Judge<'_> {
    fn verdict(&self, kept: &BTreeMap<usize, Vec<Kept>>) -> Verdict {
        let keeps = |setting: usize| kept[&setting].iter().all(|kept| kept.met);
        let mut candidates: Vec<(usize, f64)> = kept
            .keys()
            .filter(|&&setting| keeps(setting))
            .filter_map(|&setting| Some((setting, self.score(setting)?)))
            .collect();
        candidates.sort_by(|a, b| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0)));
        let others =
            || candidates.iter().map(|(setting, _)| *setting).filter(|setting| *setting != 0);
        if candidates.is_empty() {
            let miss =
                |setting: &usize| kept[setting].iter().map(Kept::missed_by).fold(0.0, f64::max);
            let nearest = kept.keys().copied().min_by(|a, b| miss(a).total_cmp(&miss(b)));
            return Verdict::NoneKeeps { nearest: nearest.unwrap_or(0) };
        }
        let proven = if keeps(0) {
            let ratios = self.objective_ratios();
            others().find(|setting| self.is_proven_better(&ratios[setting]))
        } else {
            others().find(|&setting| self.proves_what_first_breaks(kept, setting))
        };
        proven
            .map_or_else(|| Verdict::Stay { nearest: others().next() }, |to| Verdict::Change { to })
    }

    /// The objective as the mean of logarithms of ratios to the first setting, from the estimates of
    /// cells (medians for tails, so that one odd run does not decide); less is better. `None` where a
    /// figure is missing or has no ratio.
    fn score(&self, setting: usize) -> Option<f64> {
        let log = |&(workload, metric): &(usize, Metric)| {
            let value = |setting| Some(self.estimate(setting, workload, metric)?.value);
            paired::log_ratio(value(0)?, value(setting)?)
        };
        let of_figure = |cells: &Vec<(usize, Metric)>| {
            let logs: Option<Vec<f64>> = cells.iter().map(log).collect();
            Some(logs?.iter().sum::<f64>() / cells.len() as f64)
        };
        let logs: Option<Vec<f64>> = self.objective.iter().map(of_figure).collect();
        let sum: f64 = logs?.iter().sum();
        Some(if self.goal.direction == Direction::Minimize { sum } else { -sum })
    }

    /// The objective's ratio of every other setting to the first, in the blocks in which both have
    /// all of it.
    fn objective_ratios(&self) -> BTreeMap<usize, Comparison> {
        let settings: Vec<usize> = (1..self.results.settings.len()).collect();
        let logs = settings.iter().map(|&setting| self.objective_logs(setting)).collect();
        settings.into_iter().zip(self.corrected(logs)).collect()
    }

    fn objective_logs(&self, setting: usize) -> Option<Vec<f64>> {
        let cells = || self.objective.iter().flatten();
        let mut sums: BTreeMap<u32, (usize, f64)> = BTreeMap::new();
        for of_figure in &self.objective {
            for &(workload, metric) in of_figure {
                for (block, log) in self.runs.log_ratios(0, setting, workload, metric)? {
                    let sum = sums.entry(block).or_default();
                    sum.0 += 1;
                    sum.1 += log / of_figure.len() as f64;
                }
            }
        }
        let whole = sums.into_values().filter(|(count, _)| *count == cells().count());
        Some(whole.map(|(_, log)| log).collect())
    }

    /// Comparisons made beside each other, each from its blocks' logarithms of ratios.
    fn corrected(&self, logs: Vec<Option<Vec<f64>>>) -> Vec<Comparison> {
        let p_values: Vec<Option<f64>> =
            logs.iter().map(|logs| paired::p_value(logs.as_ref()?)).collect();
        let corrected = paired::holm(&p_values, self.results.confidence);
        let compare = |(logs, holm): (Option<Vec<f64>>, paired::Corrected)| Comparison {
            ratio: logs.and_then(|logs| paired::ratio_of_logs(&logs, holm.confidence)),
            proven: holm.proven,
        };
        logs.into_iter().zip(corrected).map(compare).collect()
    }

    fn is_proven_better(&self, comparison: &Comparison) -> bool {
        let is_better = |ratio: &Estimate| match self.goal.direction {
            Direction::Minimize => ratio.value < 1.0,
            Direction::Maximize => ratio.value > 1.0,
        };
        comparison.proven && comparison.ratio.as_ref().is_some_and(is_better)
    }

    /// Whether `setting` is proven to do better than the first in everything that the first breaks.
    fn proves_what_first_breaks(&self, kept: &BTreeMap<usize, Vec<Kept>>, setting: usize) -> bool {
        self.broken_by_first(kept).iter().all(|(broken, comparisons)| {
            let is_better = |ratio: &Estimate| match broken.condition.bound {
                Bound::AtLeast => ratio.value > 1.0,
                Bound::AtMost => ratio.value < 1.0,
            };
            let comparison = &comparisons[&setting];
            comparison.proven && comparison.ratio.as_ref().is_some_and(is_better)
        })
    }

    /// What the first setting breaks, each with the comparison of every other setting to it.
    fn broken_by_first<'k>(
        &self,
        kept: &'k BTreeMap<usize, Vec<Kept<'k>>>,
    ) -> Vec<(&'k Kept<'k>, BTreeMap<usize, Comparison>)> {
        let broken: Vec<&Kept> = kept[&0].iter().filter(|kept| !kept.met).collect();
        let settings: Vec<usize> = (1..self.results.settings.len()).collect();
        let mut logs = Vec::new();
        for broken in &broken {
            for &setting in &settings {
                let ratios = self.runs.log_ratios(0, setting, broken.workload, broken.metric);
                logs.push(ratios.map(|ratios| ratios.into_values().collect()));
            }
        }
        let mut comparisons = self.corrected(logs).into_iter();
        let of_one = |broken| {
            let compared = comparisons.by_ref().take(settings.len());
            (broken, settings.iter().copied().zip(compared).collect())
        };
        broken.into_iter().map(of_one).collect()
    }

    fn estimate(&self, setting: usize, workload: usize, metric: Metric) -> Option<Estimate> {
        self.runs.estimate(setting, workload, metric, self.results.confidence)
    }
}
