//! The figures of one run for a history over runs.

use latput_stats::Estimate;
use latput_trial::{Metric, Results};

use crate::runs::RunTable;

/// One figure of a setting under a workload, over the trials of its run.
#[derive(Clone, Debug, PartialEq)]
pub struct RunFigure {
    /// Index into the settings.
    pub setting: usize,
    /// Index into the workloads.
    pub workload: usize,
    /// The figure.
    pub metric: Metric,
    /// Its estimate.
    pub estimate: Estimate,
}

/// The figures of a run, by setting and workload; with no `wanted` metric the ones that a workload is judged by: rate,
/// tail, CPU cost and the plan's own. What a run does not have is left out.
pub fn run_figures(results: &Results, wanted: &[Metric]) -> Vec<RunFigure> {
    let runs = RunTable::from_all_rows(results).shown_runs(results.beside);
    let mut figures = Vec::new();
    for ((setting, workload), _) in runs.cells() {
        let judged = results.workloads[workload].traffic.facts().judged.into_iter();
        let judged: Vec<Metric> = judged.chain(runs.custom_metrics(workload)).collect();
        for &metric in if wanted.is_empty() { &judged[..] } else { wanted } {
            let estimate = runs.estimate_figure(setting, workload, metric, results.confidence);
            figures.extend(estimate.map(|estimate| RunFigure {
                setting,
                workload,
                metric,
                estimate,
            }));
        }
    }
    figures
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::{SyntheticFigures, build_results, rr_workload, stream_workload};

    #[test]
    fn run_gives_the_wanted_parts_it_has() {
        let made = build_results(
            &["off", "on"],
            &[rr_workload("rr"), stream_workload("s")],
            3,
            |setting, _| SyntheticFigures {
                rate: 1000.0 * (1 + setting) as f64,
                p99_us: Some(50.0),
                service_demand_us: 2.0,
            },
        );
        let rate = run_figures(&made, &[Metric::TransactionsPerS]);
        let found: Vec<(usize, usize)> = rate.iter().map(|it| (it.setting, it.workload)).collect();
        assert_eq!(found, [(0, 0), (1, 0)], "a stream has no transactions");
        assert!((rate[1].estimate.value - 2000.0).abs() < 1e-6, "{:?}", rate[1]);
        let judged = run_figures(&made, &[]);
        let of =
            |workload| judged.iter().filter(move |it| (it.setting, it.workload) == (0, workload));
        assert_eq!((of(0).count(), of(1).count()), (3, 3));
    }
}
