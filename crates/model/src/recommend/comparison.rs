//! Settings compared with the first one, block by block, and corrected for each other.

use std::collections::BTreeMap;

use latput_stats::paired::Average;
use latput_stats::{Estimate, paired};
use latput_trial::Metric;

use super::Judge;
use crate::runs::average;

/// Logarithms of ratios to the first setting, one for each block, and how they are averaged.
pub(super) struct Logs {
    pub(super) of_blocks: Vec<f64>,
    pub(super) average: Average,
}

/// One comparison with the first setting, corrected for all those made beside it.
#[derive(Clone, Debug)]
pub(super) struct Comparison {
    /// The paired ratio to the first setting at the corrected confidence; `None` where no block has
    /// both, or a figure was 0.
    pub(super) ratio: Option<Estimate>,
    /// Whether it is proven to differ.
    pub(super) proven: bool,
}

impl Judge<'_> {
    /// The objective's ratio of every other setting to the first, in the blocks in which both have
    /// all of it.
    pub(super) fn objective_ratios(&self) -> BTreeMap<usize, Comparison> {
        let settings: Vec<usize> = (1..self.results.settings.len()).collect();
        let logs = settings.iter().map(|&setting| self.objective_logs(setting)).collect();
        settings.into_iter().zip(self.corrected(logs)).collect()
    }

    /// Trimmed if any part is a tail.
    fn objective_logs(&self, setting: usize) -> Option<Logs> {
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
        let has_tail = cells().any(|&(_, metric)| average(metric) == Average::Trimmed);
        let average = if has_tail { Average::Trimmed } else { Average::Plain };
        Some(Logs { of_blocks: whole.map(|(_, log)| log).collect(), average })
    }

    /// One figure's ratios of a setting to the first.
    pub(super) fn logs(&self, setting: usize, workload: usize, metric: Metric) -> Option<Logs> {
        let logs = self.runs.log_ratios(0, setting, workload, metric)?;
        Some(Logs { of_blocks: logs.into_values().collect(), average: average(metric) })
    }

    /// Comparisons made beside each other, each from its blocks' logarithms of ratios.
    pub(super) fn corrected(&self, logs: Vec<Option<Logs>>) -> Vec<Comparison> {
        let p_value = |logs: &Logs| paired::p_value(&logs.of_blocks, logs.average);
        let p_values: Vec<_> = logs.iter().map(|logs| logs.as_ref().and_then(p_value)).collect();
        let corrected = paired::holm(&p_values, self.results.confidence);
        let ratio = |logs: Logs, confidence| {
            paired::ratio_of_logs(&logs.of_blocks, logs.average, confidence)
        };
        let compare = |(logs, holm): (Option<Logs>, paired::Corrected)| Comparison {
            ratio: logs.and_then(|logs| ratio(logs, holm.confidence)),
            proven: holm.proven,
        };
        logs.into_iter().zip(corrected).map(compare).collect()
    }
}
