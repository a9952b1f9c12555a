//! The summary of a results file, from which tables, pictures and exports are made.

use std::collections::{BTreeMap, BTreeSet};

use latput_stats::outlier::{self, Spread};
use latput_stats::{Estimate, Histogram, Method};
use latput_trial::{Metric, Results, Row};
use latput_units::text::{self, format_count};
use latput_units::{IntoMap, IntoSet};

use crate::fitness::RunFitness;
use crate::goal::Goal;
use crate::recommend::{Headline, recommend_from_runs};
pub use crate::recommend::{ProvenBy, Recommendation};
pub use crate::runs::CellSummary;
use crate::runs::{CellRun, RunTable, extract_confirmation, own_rates, stopping_rule};
use crate::{pareto, words};

/// The summary of a results file.
#[derive(Clone, Debug, PartialEq)]
pub struct ResultsSummary {
    /// Every setting under every workload with at least one run.
    pub cells: Vec<CellSummary>,
    /// Indices of the settings that no other setting beats on every workload's rate, latency and
    /// CPU cost at once, by their estimates.
    pub pareto: Vec<usize>,
    /// The recommended setting, if the results have a goal that can be judged.
    pub recommendation: Option<Recommendation>,
    /// The answer to the goal in one sentence; `None` without a goal.
    pub headline: Option<Headline>,
    /// Runs far from their cell's others.
    pub outliers: Vec<OutlierRun>,
    /// Failed checks of trials, counted by name and cell.
    pub failed_checks: Vec<FailedCheck>,
    /// netperf's kind of warning, one for each cell in which the interval of the rate or of an
    /// end's CPU utilisation is wider than wanted.
    pub too_wide: Vec<String>,
    /// How many runs count, and what disturbed the others.
    pub fitness: RunFitness,
    /// Parts of the results or of their goal that could not be used, in sentences.
    pub warnings: Vec<String>,
}

/// One run far from the others of its cell.
#[derive(Clone, Debug, PartialEq)]
pub struct OutlierRun {
    /// Index into the settings.
    pub setting: usize,
    /// Index into the workloads.
    pub workload: usize,
    /// The run's block.
    pub block: u32,
    /// The outlying figure.
    pub metric: Metric,
    /// Its value in this run.
    pub value: f64,
    /// The median of the cell's runs.
    pub median: f64,
}

/// Checks of one name that failed in one cell.
#[derive(Clone, Debug, PartialEq)]
pub struct FailedCheck {
    /// Index into the settings.
    pub setting: usize,
    /// Index into the workloads.
    pub workload: usize,
    /// The check's name.
    pub name: String,
    /// Number of runs in which it failed.
    pub runs: usize,
    /// Detail of the first failure.
    pub detail: String,
}

impl ResultsSummary {
    /// Summarises `results`. Figures that they lack are absent, and a goal that cannot be judged
    /// gives a warning.
    pub fn from_results(results: &Results) -> Self {
        let all = RunTable::from_all_rows(results);
        let (runs, shown) = (all.fit_runs(results.beside), all.shown_runs(results.beside));
        let fitness = RunFitness::from_results(results);
        let mut warnings = runs.remarks.clone();
        if !(results.confidence > 0.0 && results.confidence < 1.0) {
            let confidence = results.confidence;
            warnings.push(format!(
                "the confidence {confidence} is not between 0 and 1: nothing has an interval"
            ));
        }
        let cells: Vec<CellSummary> = shown
            .cells()
            .map(|(at, of_cell)| summarize_cell(results, (&runs, &shown), at, of_cell))
            .collect();
        let mut unjudged = None;
        let goal = results.goal.as_ref().filter(|_| !results.is_observed());
        let recommendation = goal.and_then(|text| {
            let goal = Goal::parse_kept(text).map_err(|error| error.to_string());
            goal.and_then(|goal| match extract_confirmation(results) {
                None => recommend_from_runs(results, &runs, &goal),
                Some((fresh, settings)) => {
                    let judged =
                        recommend_from_runs(&fresh, &RunTable::from_results(&fresh), &goal)?;
                    Ok(judged.with_settings(&settings))
                }
            })
            .map_err(|why| {
                unjudged = Some(fitness.unjudged_headline(&why));
                warnings.push(format!("no recommendation: {why}"));
            })
            .ok()
        });
        let with_runs = runs.cells().filter(|(_, of_cell)| !of_cell.is_empty());
        let fit: BTreeSet<(usize, usize)> = with_runs.map(|(at, _)| at).into_set();
        let headline = match &recommendation {
            Some(advice) => Some(advice.headline.clone()),
            None => unjudged,
        };
        Self {
            headline,
            pareto: pareto::pareto_front(results, &cells, |cell| {
                fit.contains(&(cell.setting, cell.workload))
            }),
            recommendation,
            outliers: find_outliers(results, &shown),
            failed_checks: failed_checks(&all),
            too_wide: cells.iter().filter_map(|cell| too_wide_warning(results, cell)).collect(),
            warnings,
            cells,
            fitness,
        }
    }
}

/// The indices of the workloads that need more runs: some setting has no interval or a wider one
/// than wanted. Equals [`CellSummary::narrow_enough`] over a whole summary, but reads no histogram.
pub fn too_wide(results: &Results) -> Vec<usize> {
    let runs = RunTable::of_stopping_rule(results);
    let is_wide = |&(setting, workload): &(usize, usize)| {
        let estimate = |metric| runs.estimate_figure(setting, workload, metric, results.confidence);
        let own = own_rates(runs.custom_metrics(workload));
        !metrics_too_wide(results, workload, &own, estimate).is_empty()
    };
    let wide = runs.cells().map(|(at, _)| at).filter(is_wide);
    wide.map(|(_, workload)| workload).into_set().into_iter().collect()
}

/// Half width of an interval of CPU utilisation that is always narrow enough, whatever its share of
/// the figure: the kernel counts CPU time in ticks of 10 ms, half a percentage point of a window of
/// 2 s. (netperf has no such floor, and there an idle host never satisfies the rule.)
const CPU_RESOLUTION: f64 = 0.005;

/// The figures of the stopping rule that are not known well enough. A rate without an estimate
/// counts, unless the workload has rates of its `own`; a host that cannot measure its CPU time does not.
fn metrics_too_wide(
    results: &Results,
    workload: usize,
    own: &[Metric],
    estimate: impl Fn(Metric) -> Option<Estimate>,
) -> Vec<Metric> {
    if !results.workloads[workload].traffic.facts().maker.repeats_load() {
        return Vec::new(); // a load that drifts has no rate to be known; pairs are compared
    }
    let [rate, sut, generator] = stopping_rule(&results.workloads[workload].traffic);
    let has_rate = own.is_empty() || estimate(rate).is_some();
    let rates = if has_rate { &[rate][..] } else { own };
    let is_too_wide = |metric: &Metric| match estimate(*metric) {
        None => rates.contains(metric),
        Some(known) => {
            let half_width = known.half_width_ratio();
            let is_narrow = half_width.is_some_and(|ratio| ratio <= results.half_width);
            let is_cpu = !rates.contains(metric);
            let is_at_resolution =
                known.method != Method::Single && known.half_width() <= CPU_RESOLUTION;
            !(is_narrow || is_cpu && is_at_resolution)
        }
    };
    [rates, &[sut, generator]].concat().into_iter().filter(is_too_wide).collect()
}

fn summarize_cell(
    results: &Results,
    (runs, shown): (&RunTable<'_>, &RunTable<'_>),
    (setting, workload): (usize, usize),
    runs_of_cell: &BTreeMap<u32, CellRun<'_>>,
) -> CellSummary {
    let of = |runs: &RunTable<'_>, metric| {
        runs.estimate_figure(setting, workload, metric, results.confidence)
    };
    let estimate = |metric| of(shown, metric);
    let against_first = |metric| {
        let ratio = runs.paired_ratio((0, setting), workload, metric, results.confidence)?;
        (setting != 0).then_some(ratio)
    };
    let known: BTreeSet<Metric> =
        runs_of_cell.values().flat_map(|run| run.figures.keys().copied()).into_set();
    let of_all = |figure: &dyn Fn(Metric) -> Option<Estimate>| {
        known.iter().filter_map(|&metric| Some((metric, figure(metric)?))).into_map()
    };
    let metrics: BTreeMap<Metric, Estimate> = of_all(&estimate);
    let too_wide =
        metrics_too_wide(results, workload, &own_rates(known.iter().copied()), |metric| {
            of(runs, metric)
        });
    let rows = || runs_of_cell.values().map(|run| run.row);
    CellSummary {
        setting,
        workload,
        runs: runs_of_cell.len(),
        against_first: of_all(&against_first),
        latency: merge_histograms(
            rows().filter_map(|row| row.observation.traffic.latency.as_ref()),
        ),
        probe: merge_histograms(
            rows().filter_map(|row| Some(&row.observation.probe.as_ref()?.rtt)),
        ),
        too_wide,
        metrics,
    }
}

/// netperf's warning for one cell whose intervals are wider than wanted: the wanted confidence, and the reached one of each figure of the
/// stopping rule (netperf warns of the same three).
fn too_wide_warning(results: &Results, cell: &CellSummary) -> Option<String> {
    if cell.narrow_enough() {
        return None;
    }
    let [rate, sut, generator] = stopping_rule(&results.workloads[cell.workload].traffic);
    let metric = if cell.metrics.contains_key(&rate) {
        rate
    } else {
        let own = own_rates(cell.metrics.keys().copied());
        let widest = own.iter().find(|metric| cell.too_wide.contains(metric)).or(own.first());
        *widest?
    };
    let rate = cell.metrics.get(&metric)?;
    let setting = &results.settings[cell.setting].label;
    let workload = &results.workloads[cell.workload].name;
    let wanted = format!(
        "+/- {} at {}",
        text::format_percent(results.half_width),
        text::format_percent(results.confidence)
    );
    let place = format!("`{setting}` under `{workload}`");
    if rate.method == Method::Single {
        return Some(format!("{place}: one trial has no interval (wanted: {wanted})"));
    }
    let reached = |metric| {
        let mark = if cell.too_wide.contains(&metric) { " (too wide)" } else { "" };
        format!("{}{mark}", half_width(cell.metrics.get(&metric)))
    };
    Some(format!(
        "{place}: the wanted confidence was not met in {}: wanted {wanted}, reached {metric} {}; \
         CPU of the system under test {}, of the generator {}",
        format_count(rate.runs, "trial"),
        reached(metric),
        reached(sut),
        reached(generator),
    ))
}

fn half_width(estimate: Option<&Estimate>) -> String {
    let ratio = estimate.and_then(Estimate::half_width_ratio);
    ratio.map_or_else(
        || "not known".to_owned(),
        |ratio| format!("+/- {}", words::format_percent(ratio)),
    )
}

fn merge_histograms<'a>(mut histograms: impl Iterator<Item = &'a Histogram>) -> Option<Histogram> {
    let mut all = histograms.next()?.clone();
    histograms.for_each(|histogram| all.merge(histogram));
    Some(all)
}

fn find_outliers(results: &Results, runs: &RunTable<'_>) -> Vec<OutlierRun> {
    let mut found = Vec::new();
    for ((setting, workload), _) in runs.cells() {
        let own = runs.custom_metrics(workload);
        let judged = results.workloads[workload].traffic.facts().judged;
        for metric in judged.into_iter().chain(own) {
            let (blocks, values): (Vec<u32>, Vec<f64>) =
                runs.figures(setting, workload, metric).into_iter().unzip();
            let median = Spread::from_values(&values).map_or(0.0, |spread| spread.median);
            found.extend(outlier::outliers(&values).into_iter().map(|run| OutlierRun {
                setting,
                workload,
                block: blocks[run],
                metric,
                value: values[run],
                median,
            }));
        }
    }
    found
}

fn failed_checks(runs: &RunTable<'_>) -> Vec<FailedCheck> {
    let mut found = Vec::new();
    for ((setting, workload), runs_of_cell) in runs.cells() {
        let mut by_name: BTreeMap<&str, (usize, &str)> = BTreeMap::new();
        for run in runs_of_cell.values() {
            for (name, detail) in failed_check_details(run.row) {
                by_name.entry(name).or_insert((0, detail)).0 += 1;
            }
        }
        found.extend(by_name.into_iter().map(|(name, (runs, detail))| FailedCheck {
            setting,
            workload,
            name: name.to_owned(),
            runs,
            detail: detail.to_owned(),
        }));
    }
    found
}

/// The names of a run's failed checks, each once, with the detail of its first failure.
fn failed_check_details(row: &Row) -> BTreeMap<&str, &str> {
    let failed = row.observation.checks.iter().filter(|check| !check.passed);
    // Reversed, so that the first check of a name stays.
    failed.rev().map(|check| (check.name.as_str(), check.detail.as_str())).into_map()
}

#[cfg(test)]
mod tests {
    use latput_trial::Check;
    use latput_trial::observation::{CpuObservation, CpuTime, HostObservation, Role};
    use latput_units::{CpuId, Nanos, SeededRng};

    use super::*;
    use crate::synthetic::{
        SyntheticFigures, build_results, noise_factor, reported_results, rr_workload,
        stream_workload, udp_workload,
    };

    #[test]
    fn cell_has_every_figure_with_interval() {
        let summary = ResultsSummary::from_results(&steady_results(6));
        assert_eq!(summary.cells.len(), 6);
        let cell = &summary.cells[0];
        let method = |metric| cell.metrics.get(&metric).map(|estimate| estimate.method);
        assert_eq!(method(Metric::TransactionsPerS), Some(Method::StudentT));
        assert_eq!(method(Metric::LatencyNsP99), Some(Method::OrderStatistic));
        assert_eq!(method(Metric::ThroughputBps), None);
        assert_eq!(cell.latency.as_ref().map(Histogram::count), Some(600));
        assert_eq!((cell.runs, cell.narrow_enough()), (6, true));
        assert!(summary.warnings.is_empty(), "{:?}", summary.warnings);
        assert!(summary.too_wide.is_empty(), "{:?}", summary.too_wide);
    }

    #[test]
    fn settings_are_compared_with_the_first_within_blocks() {
        let summary = ResultsSummary::from_results(&steady_results(6));
        assert!(summary.cells[0].against_first.is_empty());
        let cell =
            summary.cells.iter().find(|cell| cell.setting == 1 && cell.workload == 1).unwrap();
        let ratio = &cell.against_first[&Metric::ThroughputBps];
        assert_eq!((ratio.method, ratio.runs), (Method::PairedLogRatio, 6));
        assert!(ratio.low < 0.8 && 0.8 < ratio.high && !ratio.excludes(0.8), "{ratio:?}");
    }

    #[test]
    fn one_run_reports_missing_interval() {
        let summary = ResultsSummary::from_results(&steady_results(1));
        for cell in &summary.cells {
            assert!(cell.metrics.values().all(|estimate| estimate.method == Method::Single));
            assert!(!cell.narrow_enough());
        }
        assert_eq!(summary.too_wide.len(), 6);
        assert!(
            summary.too_wide[0].contains("one trial has no interval"),
            "{:?}",
            summary.too_wide
        );
    }

    #[test]
    fn wide_interval_warns_with_reached_width() {
        let mut results = steady_results(6);
        results.half_width = 0.000_1;
        let summary = ResultsSummary::from_results(&results);
        let warning = &summary.too_wide[0];
        for part in
            ["`off`", "`rr`", "not met", "+/- 0.01% at 99%", "transactions_per_s +/-", "CPU"]
        {
            assert!(warning.contains(part), "{part}: {warning}");
        }
    }

    #[test]
    fn stopping_rule_sees_what_the_summary_sees() {
        let wide_in_the_second = |blocks, half_width| {
            let mut results = steady_results(blocks);
            results.half_width = half_width;
            let row =
                results.rows.iter_mut().find(|row| (row.setting, row.workload) == (1, 1)).unwrap();
            row.observation.traffic.received_bytes /= 2;
            results
        };
        for (blocks, half_width, expected) in
            [(6, 0.025, vec![1]), (1, 0.025, vec![0, 1, 2]), (6, 10.0, vec![]), (0, 0.1, vec![])]
        {
            let results = wide_in_the_second(blocks.max(1), half_width);
            let results =
                if blocks == 0 { Results { rows: Vec::new(), ..results } } else { results };
            let summary = ResultsSummary::from_results(&results);
            let wide = summary.cells.iter().filter(|cell| !cell.narrow_enough());
            let of_summary: BTreeSet<usize> = wide.map(|cell| cell.workload).collect();
            assert_eq!(too_wide(&results), expected);
            assert_eq!(of_summary.into_iter().collect::<Vec<_>>(), expected);
        }
    }

    #[test]
    fn cpu_of_either_end_prolongs_runs() {
        check_cpu(|run| 0.5 + 0.04 * run, true);
        check_cpu(|_| 0.5, false);
        // A tenth of a percentage point on an idle host is what its kernel can tell, no more.
        check_cpu(|run| 0.004 + 0.0005 * run, false);
    }

    #[test]
    fn half_width_is_held_against_limit() {
        let rate = |half: f64| (1000.0, 1000.0 - half, 1000.0 + half);
        let steady = (0.5, 0.495, 0.505);
        check_rule(rate(24.0), steady, &[]);
        check_rule(rate(26.0), steady, &[Metric::TransactionsPerS]);
        // 0.012 of 0.5 is 2.4%, and more than the floor.
        check_rule(rate(10.0), (0.5, 0.488, 0.512), &[]);
        check_rule(rate(10.0), (0.5, 0.487, 0.513), &[Metric::SutCpuBusyRatio]);
    }

    #[test]
    fn half_point_of_cpu_is_narrow_enough() {
        let rate = (1000.0, 990.0, 1010.0);
        check_rule(rate, (0.01, 0.0052, 0.0148), &[]);
        check_rule(rate, (0.01, 0.0045, 0.0155), &[Metric::SutCpuBusyRatio]);
        check_rule(rate, (0.2, 0.16, 0.24), &[Metric::SutCpuBusyRatio]);
        // The floor is of CPU time, not of a rate.
        check_rule((0.01, 0.0052, 0.0148), (0.5, 0.5, 0.5), &[Metric::TransactionsPerS]);
    }

    /// Of one cell at +/- 2.5% whose rate and CPU share of the system under test are known as
    /// `(value, low, high)`, and whose generator tells nothing.
    #[track_caller]
    fn check_rule(rate: (f64, f64, f64), busy: (f64, f64, f64), expected: &[Metric]) {
        let known = |(value, low, high)| {
            let method = Method::StudentT;
            Some(Estimate { value, low, high, confidence: 0.99, method, runs: 6 })
        };
        let found = metrics_too_wide(&steady_results(1), 0, &[], |metric| match metric {
            Metric::TransactionsPerS => known(rate),
            Metric::SutCpuBusyRatio => known(busy),
            _ => None,
        });
        assert_eq!(found, expected, "{rate:?} {busy:?}");
    }

    /// Six runs with this busy share of the generator in each.
    #[track_caller]
    fn check_cpu(busy: impl Fn(f64) -> f64, keeps_going: bool) {
        let mut results = steady_results(6);
        results.rows.retain(|row| (row.setting, row.workload) == (0, 0));
        for row in &mut results.rows {
            let block = f64::from(row.block);
            let host = |role, busy: f64| HostObservation {
                role,
                cpus: vec![CpuObservation {
                    cpu: CpuId(0),
                    time: CpuTime {
                        user: Nanos::from_secs_f64(busy),
                        idle: Nanos::from_secs_f64(1.0 - busy),
                        ..CpuTime::default()
                    },
                }],
                ..HostObservation::default()
            };
            row.observation.hosts = vec![host(Role::Generator, busy(block)), host(Role::Sut, 0.5)];
        }
        let summary = ResultsSummary::from_results(&results);
        let expected: &[Metric] = if keeps_going { &[Metric::GeneratorCpuBusyRatio] } else { &[] };
        assert_eq!(summary.cells[0].too_wide, expected);
        assert_eq!(too_wide(&results).is_empty(), !keeps_going);
        let warned = summary.too_wide.iter().any(|line| line.contains("generator +/-"));
        assert_eq!(warned, keeps_going, "{:?}", summary.too_wide);
    }

    #[test]
    fn odd_run_is_listed() {
        let mut results = steady_results(8);
        let row = results.rows.iter_mut().find(|row| row.block == 3 && row.setting == 1).unwrap();
        row.observation.traffic.latency.as_mut().unwrap().record_n(Nanos::from_ms(1), 50);
        let summary = ResultsSummary::from_results(&results);
        let [outlier] = summary.outliers.as_slice() else { panic!("{:?}", summary.outliers) };
        assert_eq!((outlier.setting, outlier.workload, outlier.block), (1, 0, 3));
        assert_eq!(outlier.metric, Metric::LatencyNsP99);
        assert!(outlier.value > 9e5 && outlier.median < 1e5, "{outlier:?}");
    }

    #[test]
    fn failed_checks_are_counted_by_cell() {
        let mut results = steady_results(3);
        let check = |name: &str, passed, detail: &str| Check {
            name: name.to_owned(),
            passed,
            detail: detail.to_owned(),
        };
        for row in results.rows.iter_mut().filter(|row| row.setting == 1 && row.workload == 2) {
            let detail = format!("block {}", row.block);
            row.observation.checks =
                vec![check("steal", row.block == 0, &detail), check("drops", true, "")];
        }
        let summary = ResultsSummary::from_results(&results);
        let [failed] = summary.failed_checks.as_slice() else {
            panic!("{:?}", summary.failed_checks)
        };
        assert_eq!((failed.setting, failed.workload, failed.runs), (1, 2, 2));
        assert_eq!((failed.name.as_str(), failed.detail.as_str()), ("steal", "block 1"));
    }

    #[test]
    fn damaged_results_are_summarised_without_crash() {
        let empty = build_results(&[], &[], 3, |_, _| SyntheticFigures::default());
        let summary =
            ResultsSummary::from_results(&Results { goal: Some("latency".to_owned()), ..empty });
        assert!(summary.cells.is_empty() && summary.pareto.is_empty());
        assert!(summary.warnings[0].contains("no recommendation"), "{:?}", summary.warnings);

        let nothing_measured =
            build_results(&["a", "b"], &[rr_workload("rr"), stream_workload("s")], 3, |_, _| {
                SyntheticFigures::default()
            });
        let summary = ResultsSummary::from_results(&Results {
            goal: Some("cpu".to_owned()),
            ..nothing_measured
        });
        assert_eq!(summary.cells.len(), 4);

        let mut damaged = steady_results(4);
        damaged.rows[0].setting = 99;
        damaged.rows[1].workload = usize::MAX;
        damaged.rows[2].block = damaged.rows[8].block;
        damaged.goal = Some("be quick".to_owned());
        let summary = ResultsSummary::from_results(&damaged);
        for part in ["2 trials are left out", "ran twice", "`be` at column 1"] {
            assert!(
                summary.warnings.iter().any(|w| w.contains(part)),
                "{part}: {:?}",
                summary.warnings
            );
        }
        for confidence in [0.0, 1.0, f64::NAN, 99.0] {
            damaged.confidence = confidence;
            damaged.goal = Some("balanced".to_owned());
            let summary = ResultsSummary::from_results(&damaged);
            assert!(
                summary.cells.iter().all(|cell| cell.metrics.is_empty() && !cell.narrow_enough())
            );
            assert!(!summary.recommendation.is_some_and(|recommended| recommended.is_proven()));
        }
    }

    /// `on` has 80% of the rate of `off` and otherwise the same, with 0.5% of noise.
    fn steady_results(blocks: u32) -> Results {
        let mut rng = SeededRng::from_seed(2);
        let workloads = [rr_workload("rr"), stream_workload("stream"), udp_workload("udp")];
        build_results(&["off", "on"], &workloads, blocks, |setting, workload| SyntheticFigures {
            rate: 1e6 * [1.0, 0.8][setting] * noise_factor(&mut rng, 0.005),
            p99_us: (workload != 2).then(|| 50.0 * noise_factor(&mut rng, 0.005)),
            service_demand_us: 2.0 * noise_factor(&mut rng, 0.005),
        })
    }

    #[test]
    fn confirmed_setting_is_judged_by_fresh_runs() {
        let search: &[f64] = &[5e5, 4e5, 3e5, 2e5, 1e5];
        // Block 0 is the search's; today's and `c` run afresh.
        let mut made = reported_results(
            &[rr_workload("rr")],
            4,
            &[(Metric::LatencyNsP99, &[&[9e5, 4e5, 4e5, 4e5], search, &[1e6, 1e5, 1e5, 1e5]])],
        );
        made.rows.retain(|row| row.setting != 1 || row.block == 0);
        made.goal = Some("latency".to_owned());
        assert_eq!(extract_confirmation(&made), None);
        made.confirmed_from = Some(1);
        let (fresh, settings) = extract_confirmation(&made).unwrap();
        assert_eq!(settings, [0, 2]);
        let labels: Vec<&str> = fresh.settings.iter().map(|set| &*set.label).collect();
        let rows: Vec<(u32, usize)> =
            fresh.rows.iter().map(|row| (row.block, row.setting)).collect();
        assert_eq!(labels, ["a", "c"]);
        assert_eq!(rows, [(1, 0), (1, 1), (2, 0), (2, 1), (3, 0), (3, 1)]);
        let advice = ResultsSummary::from_results(&made).recommendation.unwrap();
        assert_eq!((advice.setting, advice.is_proven()), (2, true));
        let ratio = advice.against_first.unwrap();
        assert!((ratio.value - 0.25).abs() < 1e-9 && ratio.runs == 3, "{ratio:?}");
        // Only today's ran afresh: nothing was confirmed.
        made.rows.retain(|row| row.setting != 2 || row.block == 0);
        assert_eq!(extract_confirmation(&made), None);
    }

    #[test]
    fn confidence_that_is_none_is_warned_of() {
        for (confidence, is_warned) in
            [(0.99, false), (0.01, false), (0.0, true), (1.0, true), (-1.0, true), (1.5, true)]
        {
            let warnings =
                ResultsSummary::from_results(&Results { confidence, ..steady_results(2) }).warnings;
            let warned = warnings.iter().any(|it| it.contains("nothing has an interval"));
            assert_eq!(warned, is_warned, "{confidence}: {warnings:?}");
        }
    }
}
