//! The runs of a results file by setting, workload and block, and what a cell of them comes to. Every figure is read once.

use std::collections::{BTreeMap, BTreeSet};

use latput_stats::paired::Average;
use latput_stats::{Contrast, Estimate, Histogram, mean, order, paired};
use latput_trial::metric::{PreferredDirection, Summary as Summarised};
use latput_trial::{Metric, Results, Row, Traffic};
use latput_units::text::{format_count, is_or_are};
use latput_units::{IntoMap, IntoSet};

use crate::goal::{Goal, GoalMeasure};

/// The runs of results, or those of them that count.
#[derive(Debug)]
pub(crate) struct RunTable<'a> {
    /// Runs by setting and workload, then by block.
    cells: BTreeMap<(usize, usize), BTreeMap<u32, CellRun<'a>>>,
    /// Rows that could not be used, in sentences.
    pub(crate) remarks: Vec<String>,
}

/// One run.
#[derive(Clone, Debug)]
pub(crate) struct CellRun<'a> {
    pub(crate) row: &'a Row,
    pub(crate) figures: BTreeMap<Metric, f64>,
}

impl CellRun<'_> {
    fn without_void_figures(&self) -> Self {
        let mut run = self.clone();
        run.figures.retain(|metric, _| !run.row.observation.voids_figure(*metric));
        run
    }
}

impl<'a> RunTable<'a> {
    /// The runs that count in comparisons: without those that are unfit, and without the figures of CPU time that a
    /// failed check voids. A cell without such runs is empty.
    pub(crate) fn from_results(results: &'a Results) -> Self {
        Self::from_all_rows(results).fit_runs(results.beside)
    }

    /// Sorts the rows of `results`, fit or not. Rows with an unknown setting or workload are left out, and of
    /// two runs of one cell in one block the later counts; a remark tells of both.
    pub(crate) fn from_all_rows(results: &'a Results) -> Self {
        let own = results.custom_metrics().into_iter().map(Metric::Custom);
        let all: Vec<Metric> = Metric::ALL.iter().copied().chain(own).collect();
        Self::with_figures(results, |_| &all)
    }

    /// Like [`Self::from_results`], with only the figures of the stopping rule: reading quantiles from every
    /// histogram is the main cost.
    pub(crate) fn of_stopping_rule(results: &'a Results) -> Self {
        let own = own_rates(results.custom_metrics().into_iter().map(Metric::Custom));
        Self::with_figures(results, |traffic| [&stopping_rule(traffic)[..], &own].concat())
            .fit_runs(results.beside)
    }

    /// Like [`Self::from_all_rows`], with only these figures.
    pub(crate) fn of_figures(results: &'a Results, figures: &[Metric]) -> Self {
        Self::with_figures(results, |_| figures)
    }

    /// Like [`Self::from_results`], with only the figures of a goal.
    pub(crate) fn of_goal(results: &'a Results, goal: &Goal) -> Self {
        let figures =
            goal.objective.iter().chain(goal.conditions.iter().map(|condition| &condition.figure));
        let measures: Vec<GoalMeasure> = figures.map(|figure| figure.measure).collect();
        let of_traffic = |traffic: &Traffic| {
            measures.iter().map(|m| m.metric_for(traffic)).collect::<Vec<Metric>>()
        };
        Self::with_figures(results, of_traffic).fit_runs(results.beside)
    }

    fn with_figures<M: AsRef<[Metric]>>(
        results: &'a Results,
        wanted: impl Fn(&Traffic) -> M,
    ) -> Self {
        let mut cells: BTreeMap<_, BTreeMap<_, _>> = BTreeMap::new();
        let mut strays = 0;
        let mut repeats = 0;
        for row in &results.rows {
            let workload = results.workloads.get(row.workload);
            let (Some(workload), true) = (workload, row.setting < results.settings.len()) else {
                strays += 1;
                continue;
            };
            let figure = |metric: &Metric| {
                let value = metric.value(&workload.traffic, &row.observation)?;
                value.is_finite().then_some((*metric, value))
            };
            let wanted = wanted(&workload.traffic);
            let run =
                CellRun { row, figures: wanted.as_ref().iter().filter_map(figure).into_map() };
            let cell = cells.entry((row.setting, row.workload)).or_default();
            repeats += u32::from(cell.insert(row.block, run).is_some());
        }
        let mut remarks = Vec::new();
        if strays > 0 {
            remarks.push(format!(
                "{} {} left out: the setting or workload is not in the results",
                format_count(strays, "trial"),
                is_or_are(strays)
            ));
        }
        if repeats > 0 {
            remarks.push(format!(
                "{} ran twice in one block; the later one counts",
                format_count(repeats, "trial")
            ));
        }
        Self { cells, remarks }
    }

    /// Those that count in comparisons; `beside` where other work is part of the case.
    pub(crate) fn fit_runs(&self, beside: bool) -> Self {
        self.filter_cells(|cell| {
            let fit = cell.iter().filter(|(_, run)| run.row.observation.is_fit(beside));
            fit.map(|(block, run)| (*block, run.without_void_figures())).into_map()
        })
    }

    /// Those that tables show: the fit ones of a cell, or all where none is fit.
    pub(crate) fn shown_runs(&self, beside: bool) -> Self {
        self.filter_cells(|cell| {
            let is_fit = |run: &CellRun<'_>| run.row.observation.is_fit(beside);
            let any = cell.values().any(is_fit);
            let shown = cell.iter().filter(|(_, run)| !any || is_fit(run));
            shown.map(|(block, run)| (*block, run.clone())).into_map()
        })
    }

    fn filter_cells(
        &self,
        filter: impl Fn(&BTreeMap<u32, CellRun<'a>>) -> BTreeMap<u32, CellRun<'a>>,
    ) -> Self {
        let cells = self.cells.iter().map(|(cell, runs)| (*cell, filter(runs))).into_map();
        Self { cells, remarks: self.remarks.clone() }
    }

    /// The metrics of the plan's own that any run of a workload has, by name.
    pub(crate) fn custom_metrics(&self, workload: usize) -> BTreeSet<Metric> {
        let runs = self.cells.iter().filter(|((_, of), _)| *of == workload);
        let figures = runs.flat_map(|(_, runs)| runs.values()).flat_map(|run| run.figures.keys());
        figures.copied().filter(|metric| matches!(metric, Metric::Custom(_))).into_set()
    }

    /// Replaces one figure of every run by a drawn value, in the order of settings, workloads and
    /// blocks.
    #[cfg(test)]
    pub(crate) fn replace_figures(&mut self, metric: Metric, mut draw: impl FnMut(usize) -> f64) {
        for ((setting, _), runs) in &mut self.cells {
            for run in runs.values_mut() {
                run.figures.insert(metric, draw(*setting));
            }
        }
    }

    /// Those of the first `blocks`.
    #[cfg(test)]
    pub(crate) fn up_to(&self, blocks: u32) -> Self {
        let part = |runs: &BTreeMap<u32, CellRun<'a>>| {
            runs.range(..blocks).map(|(block, run)| (*block, run.clone())).collect()
        };
        let cells = self.cells.iter().map(|(cell, runs)| (*cell, part(runs))).collect();
        Self { cells, remarks: self.remarks.clone() }
    }

    /// The cells with runs, each with its runs in the order of blocks.
    pub(crate) fn cells(
        &self,
    ) -> impl Iterator<Item = ((usize, usize), &BTreeMap<u32, CellRun<'a>>)> {
        self.cells.iter().map(|(cell, runs)| (*cell, runs))
    }

    /// One figure of a cell by block, from the runs that have it.
    pub(crate) fn figures(
        &self,
        setting: usize,
        workload: usize,
        metric: Metric,
    ) -> Vec<(u32, f64)> {
        let runs = self.cells.get(&(setting, workload)).into_iter().flatten();
        runs.filter_map(|(block, run)| Some((*block, *run.figures.get(&metric)?))).collect()
    }

    /// The estimate of one figure of a cell over its runs; `None` where no run has it.
    pub(crate) fn estimate_figure(
        &self,
        setting: usize,
        workload: usize,
        metric: Metric,
        confidence: f64,
    ) -> Option<Estimate> {
        let figures = self.figures(setting, workload, metric);
        let values: Vec<f64> = figures.into_iter().map(|(_, value)| value).collect();
        let estimate = match metric.row().summary {
            Summarised::Mean => mean::mean(&values, confidence),
            Summarised::Median => order::median(&values, confidence),
        };
        estimate.map(|estimate| cut_to_possible(metric, estimate))
    }

    /// The figures `(base, other)` of two settings in one workload, by block. Blocks that only one of them has do
    /// not count.
    pub(crate) fn paired_figures(
        &self,
        (base, other): (usize, usize),
        workload: usize,
        metric: Metric,
    ) -> BTreeMap<u32, (f64, f64)> {
        let others: BTreeMap<u32, f64> = self.figures(other, workload, metric).into_map();
        let bases = self.figures(base, workload, metric).into_iter();
        bases.filter_map(|(block, base)| Some((block, (base, *others.get(&block)?)))).into_map()
    }

    /// Logarithms of the ratio `other / base` by block; `None` where a figure has no ratio (it is 0).
    pub(crate) fn log_ratios(
        &self,
        cells: (usize, usize),
        workload: usize,
        metric: Metric,
    ) -> Option<BTreeMap<u32, f64>> {
        let pairs = self.paired_figures(cells, workload, metric).into_iter();
        let logs = pairs.map(|(block, (a, b))| Some((block, paired::log_ratio(a, b)?)));
        Some(logs.collect::<Option<Vec<_>>>()?.into_map())
    }

    /// Two settings in one workload, compared in pairs: both figures and `other / base`.
    pub(crate) fn contrast_pairs(
        &self,
        cells: (usize, usize),
        workload: usize,
        metric: Metric,
        confidence: f64,
    ) -> Option<Contrast> {
        let pairs: Vec<(f64, f64)> =
            self.paired_figures(cells, workload, metric).into_values().collect();
        Contrast::paired(&pairs, AVERAGE, confidence)
    }

    /// The paired ratio `other / base` of two settings in one workload.
    pub(crate) fn paired_ratio(
        &self,
        cells: (usize, usize),
        workload: usize,
        metric: Metric,
        confidence: f64,
    ) -> Option<Estimate> {
        Some(self.contrast_pairs(cells, workload, metric, confidence)?.ratio().clone())
    }
}

/// Cuts the interval to the metric's possible range: at least 0, and at most 1 for a share.
/// Student's t ignores this range; the true value is always inside, so no confidence is lost.
fn cut_to_possible(metric: Metric, estimate: Estimate) -> Estimate {
    let most = metric.row().unit.most();
    // A kernel's counters may give a share just above 1; the figure stays inside its interval.
    let value = estimate.value;
    let (low, high) = (estimate.low.max(0.0).min(value), estimate.high.min(most).max(value));
    Estimate { low, high, ..estimate }
}

/// The confirming runs of a search: the settings that were run afresh, today's first, with only
/// their fresh runs, and the index of each in the results.
pub(crate) fn extract_confirmation(results: &Results) -> Option<(Results, Vec<usize>)> {
    let from = results.confirmed_from?;
    let fresh = || results.rows.iter().filter(|row| row.block >= from);
    let mut indices: BTreeSet<usize> = fresh().map(|row| row.setting).into_set();
    indices.insert(0);
    let indices: Vec<usize> = indices.into_iter().collect();
    let settings = indices.iter().map(|idx| results.settings.get(*idx).cloned());
    let settings = settings.collect::<Option<Vec<_>>>().filter(|settings| settings.len() > 1)?;
    let place = |setting| indices.binary_search(&setting).ok();
    let rows = fresh().filter_map(|row| Some(Row { setting: place(row.setting)?, ..row.clone() }));
    Some((Results { settings, rows: rows.collect(), ..results.clone() }, indices))
}

/// Cells of which at least half of the runs shared their CPUs with other work.
pub(crate) fn busy_cells(results: &Results) -> BTreeSet<(usize, usize)> {
    let mut counts = BTreeMap::<(usize, usize), (usize, usize)>::new();
    for row in &results.rows {
        let (busy, all) = counts.entry((row.setting, row.workload)).or_default();
        *busy += usize::from(row.observation.has_failed("other-work"));
        *all += 1;
    }
    counts.into_iter().filter(|(_, (busy, all))| 2 * busy >= *all).map(|(cell, _)| cell).into_set()
}

/// The mean over blocks that compares any metric. Tails have outliers, and rates have them on a
/// machine with other work: with rates 11% apart in 80 rounds of recorded noise the trimmed mean
/// of one workload's sums proves 86%, the plain mean 33% (`cargo xtask bench-power --intervals`).
pub(crate) const AVERAGE: Average = Average::Trimmed;

/// One setting under one workload.
#[derive(Clone, Debug, PartialEq)]
pub struct CellSummary {
    /// Index into the settings of the results.
    pub setting: usize,
    /// Index into the workloads of the results.
    pub workload: usize,
    /// Number of runs.
    pub runs: usize,
    /// Estimate of each figure over all runs.
    pub metrics: BTreeMap<Metric, Estimate>,
    /// Ratio of each figure to the first setting's, paired within blocks. Absent for the first
    /// setting itself and where a figure was 0. The intervals are not corrected for their number:
    /// of a hundred at 99% one excludes 1 by chance. The recommendation corrects for that.
    pub against_first: BTreeMap<Metric, Estimate>,
    /// Round-trip times of all runs, merged.
    pub latency: Option<Histogram>,
    /// Round-trip times of the probe in all runs, merged.
    pub probe: Option<Histogram>,
    /// Figures of the stopping rule whose interval is wider than wanted.
    pub too_wide: Vec<Metric>,
}

impl CellSummary {
    /// Whether every interval of the stopping rule is as narrow as wanted.
    pub const fn narrow_enough(&self) -> bool {
        self.too_wide.is_empty()
    }
}

/// The figures of the stopping rule, as in netperf: throughput and the CPU utilisation of both
/// ends.
pub(crate) fn stopping_rule(traffic: &Traffic) -> [Metric; 3] {
    [traffic.facts().rate, Metric::SutCpuBusyRatio, Metric::GeneratorCpuBusyRatio]
}

/// The plan's own figures that take the place of the rate in the stopping rule where a workload has no rate: those of
/// which more is better, or else times. A count of errors is left out, because it may be 0 in every run.
pub(crate) fn own_rates(own: impl IntoIterator<Item = Metric>) -> Vec<Metric> {
    let own = own.into_iter().filter(|metric| matches!(metric, Metric::Custom(_)));
    let (higher, others): (Vec<Metric>, Vec<Metric>) =
        own.partition(|metric| metric.preferred_direction() == PreferredDirection::Higher);
    let times = others.into_iter().filter(|metric| metric.row().summary == Summarised::Median);
    if higher.is_empty() { times.collect() } else { higher }
}

#[cfg(test)]
mod tests {
    use latput_stats::Method;

    use super::*;
    use crate::synthetic::{SyntheticFigures, build_results, own_metric, rr_workload};

    #[test]
    fn intervals_stop_at_what_a_metric_can_be() {
        check_cut(Metric::SutCpuBusyRatio, (0.38, -0.18, 1.13), (0.0, 1.0));
        check_cut(Metric::SutServiceDemandUs, (606.0, -1558.0, 2770.0), (0.0, 2770.0));
        check_cut(Metric::ThroughputBps, (3e9, 1e9, 5e9), (1e9, 5e9));
        check_cut(Metric::LossRatio, (0.0, 0.0, 0.0), (0.0, 0.0));
        check_cut(Metric::SutCpuBusyRatio, (1.002, 0.9, 1.1), (0.9, 1.002));
    }

    #[test]
    fn later_run_of_a_cell_counts() {
        let mut rates = [1000.0, 2000.0, 3000.0].into_iter();
        let mut results = build_results(&["off"], &[rr_workload("rr")], 3, |_, _| {
            SyntheticFigures { rate: rates.next().unwrap(), ..SyntheticFigures::default() }
        });
        results.rows[2].block = 0;
        let runs = RunTable::from_results(&results);
        let expected = vec![(0, 3000.0), (1, 2000.0)];
        assert_eq!(runs.figures(0, 0, Metric::TransactionsPerS), expected);
        let rows: Vec<&Row> =
            runs.cells().flat_map(|(_, cell)| cell.values()).map(|r| r.row).collect();
        assert!(std::ptr::eq(rows[0], &raw const results.rows[2]), "the row is the later one too");
        assert_eq!(runs.remarks.len(), 1, "{:?}", runs.remarks);
    }

    #[track_caller]
    fn check_cut(metric: Metric, (value, low, high): (f64, f64, f64), expected: (f64, f64)) {
        let method = Method::StudentT;
        let estimate = Estimate { value, low, high, confidence: 0.99, method, runs: 6 };
        let cut = cut_to_possible(metric, estimate);
        assert_eq!((cut.low, cut.high, cut.value), (expected.0, expected.1, value));
    }

    #[test]
    fn row_beyond_last_setting_is_ignored() {
        let mut made = build_results(&["off", "on"], &[rr_workload("rr")], 1, |_, _| {
            SyntheticFigures::default()
        });
        made.rows[1].setting = 2;
        let runs = RunTable::from_results(&made);
        assert_eq!(runs.cells().map(|(cell, _)| cell).collect::<Vec<_>>(), [(0, 0)]);
        assert!(
            runs.remarks[0].starts_with("1 trial is left out: the setting or workload"),
            "{runs:?}"
        );
    }

    #[test]
    fn workload_has_metrics_of_its_runs() {
        let own = |name| own_metric(name, PreferredDirection::Higher, Summarised::Mean);
        let (one, two) = (own("runs_one"), own("runs_two"));
        let mut made =
            build_results(&["off"], &[rr_workload("rr"), rr_workload("other")], 2, |_, _| {
                SyntheticFigures::default()
            });
        for row in &mut made.rows {
            row.observation.figures = BTreeMap::from([([one, two][row.workload], 1.0)]);
        }
        let runs = RunTable::from_results(&made);
        assert_eq!(runs.custom_metrics(0), BTreeSet::from([Metric::Custom(one)]));
        assert_eq!(runs.custom_metrics(1), BTreeSet::from([Metric::Custom(two)]));
    }

    #[test]
    fn own_figures_replace_rates_by_direction() {
        use PreferredDirection::{Higher, Lower};
        let own = |name, better, summary| Metric::Custom(own_metric(name, better, summary));
        let work = own("cell_work", Higher, Summarised::Mean);
        let time = own("cell_time", Lower, Summarised::Median);
        let errors = own("cell_errors", Lower, Summarised::Mean);
        assert_eq!(own_rates([time, errors, work, Metric::ThroughputBps]), [work]);
        assert_eq!(own_rates([errors, time]), [time]);
        assert_eq!(own_rates([errors]), []);
    }
}
