//! Comparisons of settings with the first one, block by block, with correction for their number.

use std::collections::BTreeMap;

use latput_stats::paired::Center;
use latput_stats::{Estimate, paired};
use latput_trial::Metric;
use latput_units::IntoMap;

use super::GoalJudge;
use crate::runs::AVERAGE;

/// Logarithms of ratios to another setting, of each workload by block, in the order of the workloads. Their averages are
/// added.
pub(super) struct LogRatios {
    parts: Vec<BTreeMap<u32, f64>>,
}

/// The number and the sum of the logarithms, by block.
type Sums = BTreeMap<u32, (usize, f64)>;

/// The claim that a comparison tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TestedClaim {
    /// The figure is smaller.
    Less,
    /// The figure is larger.
    More,
    /// The figure differs.
    Differs,
}

/// One comparison with the first setting, corrected for all others of its family.
#[derive(Clone, Debug)]
pub(super) struct CorrectedComparison {
    /// The paired ratio to the first setting, at the confidence at which its interval excludes 1
    /// exactly if the claim or its opposite is proven. `None` where no block has both figures, or a
    /// figure was 0.
    pub(super) ratio: Option<Estimate>,
    /// Whether the claim is proven.
    pub(super) proven: bool,
}

impl LogRatios {
    /// `None` where a workload has fewer than two blocks.
    pub(super) fn center(&self) -> Option<Center> {
        Center::of_sum(&self.parts, AVERAGE)
    }

    /// The variance of one block in a workload, without outliers where they are trimmed; `None` with fewer than two
    /// blocks.
    pub(super) fn block_variance(&self, part: usize) -> Option<f64> {
        let center = Center::of_sum(std::slice::from_ref(self.parts.get(part)?), AVERAGE)?;
        Some(center.error.powi(2) * center.runs as f64)
    }

    pub(super) fn p_value(&self, claim: TestedClaim) -> Option<f64> {
        let center = self.center()?;
        Some(match claim {
            TestedClaim::Less => center.p_below(),
            TestedClaim::More => center.p_above(),
            TestedClaim::Differs => center.p_value(),
        })
    }

    /// The ratio, without an interval where a workload has only one block.
    pub(super) fn ratio(&self, confidence: f64) -> Option<Estimate> {
        if let Some(center) = self.center() {
            return center.ratio(confidence);
        }
        let means: Option<Vec<f64>> = self.workload_averages().collect();
        Some(Estimate::single(means?.iter().sum::<f64>().exp()))
    }

    /// The ratio in each workload. Their geometric mean is the value of [`Self::ratio`].
    pub(super) fn workload_ratios(&self) -> Vec<Option<f64>> {
        let workloads = self.parts.len() as f64;
        self.workload_averages().map(|average| Some((average? * workloads).exp())).collect()
    }

    /// The average logarithm of each workload; `None` without a block.
    fn workload_averages(&self) -> impl Iterator<Item = Option<f64>> {
        self.parts.iter().map(|part| {
            let logs: Vec<f64> = part.values().copied().collect();
            Some(paired::ratio_of_logs(&logs, AVERAGE, 0.5)?.value.ln())
        })
    }
}

impl GoalJudge<'_> {
    /// The objective's ratio of every other setting to the first, in the blocks in which both have
    /// all of its figures, with the claim that it is better.
    pub(super) fn objective_ratios(&self) -> BTreeMap<usize, CorrectedComparison> {
        let others: Vec<usize> = self.other_settings().collect();
        let logs = others.iter().map(|&setting| self.objective_logs(0, setting)).collect();
        let compared =
            correct_comparisons(logs, self.better_objective(), self.objective_confidence());
        others.into_iter().zip(compared).into_map()
    }

    /// The logarithms of the objective's ratio `other / base`: in each workload the blocks in which
    /// both have all of its figures.
    pub(super) fn objective_logs(&self, base: usize, other: usize) -> Option<LogRatios> {
        let mut workloads: BTreeMap<usize, (usize, Sums)> = BTreeMap::new();
        for of_figure in &self.objective {
            for &(workload, metric) in of_figure {
                let (figures, sums) = workloads.entry(workload).or_default();
                *figures += 1;
                for (block, log) in self.runs.log_ratios((base, other), workload, metric)? {
                    let sum = sums.entry(block).or_default();
                    sum.0 += 1;
                    sum.1 += log / of_figure.len() as f64;
                }
            }
        }
        let part = |(figures, sums): (usize, Sums)| {
            let whole = sums.into_iter().filter(|(_, (count, _))| *count == figures);
            whole.map(|(block, (_, log))| (block, log)).into_map()
        };
        Some(LogRatios { parts: workloads.into_values().map(part).collect() })
    }

    /// The ratios of one figure of a setting to the first setting's.
    pub(super) fn figure_logs(
        &self,
        setting: usize,
        workload: usize,
        metric: Metric,
    ) -> Option<LogRatios> {
        Some(LogRatios { parts: vec![self.runs.log_ratios((0, setting), workload, metric)?] })
    }
}

/// Comparisons of one family, each from its blocks' logarithms of ratios. The chance that any false
/// claim is called proven is at most `1 - confidence`.
pub(super) fn correct_comparisons(
    logs: Vec<Option<LogRatios>>,
    claim: TestedClaim,
    confidence: f64,
) -> Vec<CorrectedComparison> {
    let p_values: Vec<_> = logs.iter().map(|logs| logs.as_ref()?.p_value(claim)).collect();
    let corrected = paired::holm(&p_values, confidence);
    let sides = if claim == TestedClaim::Differs { 1.0 } else { 2.0 };
    let compare = |(logs, holm): (Option<LogRatios>, paired::Corrected)| CorrectedComparison {
        ratio: logs.and_then(|logs| logs.ratio(1.0 - sides * (1.0 - holm.confidence))),
        proven: holm.proven,
    };
    logs.into_iter().zip(corrected).map(compare).collect()
}
