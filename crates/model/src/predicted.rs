//! Compares a simulation of a plan with the measured rows: the errors of its figures and the order
//! of its settings.

use std::collections::BTreeSet;

use latput_stats::Estimate;
use latput_stats::order::quantile_of_sorted;
use latput_trial::results::LabelledSetting;
use latput_trial::{Metric, Results, Workload};
use latput_units::text::format_count;

use crate::runs::{RunTable, busy_cells};

/// The compared figures: rate, latency and CPU cost.
const COMPARED: &[Metric] = &[
    Metric::TransactionsPerS,
    Metric::ThroughputBps,
    Metric::LatencyNsP50,
    Metric::LatencyNsP99,
    Metric::ProbeNsMean,
    Metric::SutServiceDemandUs,
    Metric::GeneratorServiceDemandUs,
];
/// The fewest settings that have a rank correlation.
const RANKED: usize = 3;

/// Every figure that is both measured and predicted.
#[derive(Clone, Debug, PartialEq)]
pub struct PredictionReport {
    /// Testbed of the predictions.
    pub by: String,
    /// One column for each workload and figure.
    pub columns: Vec<PredictionColumn>,
    /// Errors by figure, over the cells that were not fitted.
    pub errors: Vec<PredictionErrors>,
    /// Parts that could not be compared, in sentences.
    pub remarks: Vec<String>,
}

/// One figure in one workload.
#[derive(Clone, Debug, PartialEq)]
pub struct PredictionColumn {
    /// Index of the workload in the measured results.
    pub workload: usize,
    /// The figure.
    pub metric: Metric,
    /// The settings with both values, in the measured order.
    pub points: Vec<PredictedPoint>,
    /// Rank correlation; `None` of fewer than three settings, or where the measurement tells no two
    /// apart.
    pub rank: Option<RankCorrelation>,
}

/// Measured and predicted value of one cell's figure.
#[derive(Clone, Debug, PartialEq)]
pub struct PredictedPoint {
    /// Index of the setting in the measured results.
    pub setting: usize,
    /// Estimate over the measured runs.
    pub measured: Estimate,
    /// Mean or median of the simulated runs.
    pub predicted: f64,
    /// Whether the model was fitted to this cell.
    pub is_fitted: bool,
}

impl PredictedPoint {
    /// Predicted over measured value, minus 1; `None` where 0 was measured.
    pub fn error_ratio(&self) -> Option<f64> {
        (self.measured.value > 0.0).then(|| self.predicted / self.measured.value - 1.0)
    }
}

/// Kendall's tau between measured and predicted settings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RankCorrelation {
    /// Tau over all pairs of settings.
    pub tau: f64,
    /// Tau over the pairs that the measurement tells apart; `None` where it tells none.
    pub tau_apart: Option<f64>,
    /// Number of pairs.
    pub pairs: usize,
    /// Number of pairs that the measurement tells apart, each at its confidence.
    pub apart: usize,
}

/// Absolute relative errors of one figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PredictionErrors {
    /// The figure; the rates of both kinds of workload are one.
    pub metric: Metric,
    /// Number of cells.
    pub cells: usize,
    /// Median of the absolute relative errors.
    pub median_ratio: f64,
    /// 90th percentile of the absolute relative errors.
    pub p90_ratio: f64,
}

/// Compares `predicted` with `measured`. `fitted` has the cells (setting and workload) that the
/// model was fitted to; they count in no error.
pub fn compare_prediction(
    measured: &Results,
    predicted: &Results,
    fitted: &BTreeSet<(usize, usize)>,
) -> PredictionReport {
    let (ours, theirs) = (RunTable::from_all_rows(measured), RunTable::from_all_rows(predicted));
    let mut remarks = ours.remarks.clone();
    let busy = busy_cells(measured);
    let mut columns = Vec::new();
    for (workload, load) in measured.workloads.iter().enumerate() {
        let Some(other) = predicted.workloads.iter().position(|other| is_same(load, other)) else {
            remarks.push(format!("`{}` was not predicted", load.name));
            continue;
        };
        for &metric in COMPARED {
            let point = |(setting, set): (usize, &LabelledSetting)| {
                let same = |other: &LabelledSetting| {
                    other.by_role == set.by_role && other.label == set.label
                };
                let at = predicted.settings.iter().position(same)?;
                if is_cpu(metric) && busy.contains(&(setting, workload)) {
                    return None;
                }
                Some(PredictedPoint {
                    setting,
                    measured: ours.estimate_figure(
                        setting,
                        workload,
                        metric,
                        measured.confidence,
                    )?,
                    predicted: theirs
                        .estimate_figure(at, other, metric, measured.confidence)?
                        .value,
                    is_fitted: fitted.contains(&(setting, workload)),
                })
            };
            let points: Vec<PredictedPoint> =
                measured.settings.iter().enumerate().filter_map(point).collect();
            if !points.is_empty() {
                let rank = rank_correlation(&ours, workload, metric, &points, measured.confidence);
                columns.push(PredictionColumn { workload, metric, points, rank });
            }
        }
    }
    if !busy.is_empty() {
        remarks.push(format!(
            "CPU figures of {} are left out: other work ran on those CPUs (check `other-work`)",
            format_count(busy.len(), "cell")
        ));
    }
    let errors = prediction_errors(&columns);
    PredictionReport { by: predicted.testbed.clone(), columns, errors, remarks }
}

fn is_same(a: &Workload, b: &Workload) -> bool {
    (&a.name, &a.traffic) == (&b.name, &b.traffic)
}

fn is_cpu(metric: Metric) -> bool {
    matches!(metric, Metric::SutServiceDemandUs | Metric::GeneratorServiceDemandUs)
}

fn rank_correlation(
    runs: &RunTable<'_>,
    workload: usize,
    metric: Metric,
    points: &[PredictedPoint],
    confidence: f64,
) -> Option<RankCorrelation> {
    if points.len() < RANKED {
        return None;
    }
    let mut sum = 0_i32;
    let mut sum_apart = 0_i32;
    let mut pairs = 0;
    let mut apart = 0;
    for (idx, a) in points.iter().enumerate() {
        for b in &points[..idx] {
            let measured = a.measured.value.total_cmp(&b.measured.value) as i32;
            let agrees = measured * (a.predicted.total_cmp(&b.predicted) as i32);
            let ratio = runs.paired_ratio((b.setting, a.setting), workload, metric, confidence);
            let is_apart = ratio.is_some_and(|ratio| ratio.excludes(1.0));
            sum += agrees;
            pairs += 1;
            if is_apart {
                sum_apart += agrees;
                apart += 1;
            }
        }
    }
    let tau = |sum: i32, pairs: usize| f64::from(sum) / pairs as f64;
    let tau_apart = (apart > 0).then(|| tau(sum_apart, apart));
    Some(RankCorrelation { tau: tau(sum, pairs), tau_apart, pairs, apart })
}

/// The errors of each figure, with the rates of transactions and of bulk together.
fn prediction_errors(columns: &[PredictionColumn]) -> Vec<PredictionErrors> {
    let as_one =
        |metric| if metric == Metric::ThroughputBps { Metric::TransactionsPerS } else { metric };
    let of_metric = |&metric: &Metric| {
        let own = columns.iter().filter(|column| as_one(column.metric) == metric);
        let points = own.flat_map(|column| &column.points).filter(|point| !point.is_fitted);
        let mut sizes: Vec<f64> =
            points.filter_map(PredictedPoint::error_ratio).map(f64::abs).collect();
        sizes.sort_by(f64::total_cmp);
        Some(PredictionErrors {
            metric,
            cells: sizes.len(),
            median_ratio: quantile_of_sorted(&sizes, 0.5)?,
            p90_ratio: quantile_of_sorted(&sizes, 0.9)?,
        })
    };
    COMPARED
        .iter()
        .filter(|metric| **metric != Metric::ThroughputBps)
        .filter_map(of_metric)
        .collect()
}

#[cfg(test)]
mod tests {
    use latput_units::SeededRng;

    use super::*;
    use crate::synthetic::{
        SyntheticFigures, build_results, noise_factor, rr_workload, stream_workload,
    };

    const LABELS: [&str; 4] = ["t=0us", "t=20us", "t=50us", "t=125us"];

    #[test]
    fn errors_are_of_unfitted_cells() {
        let live = make_results(&LABELS, 8, [40e3, 30e3, 20e3, 10e3], 0.01);
        // 20us and 50us are in the wrong order; the worst error is on the fitted cell.
        let model = make_results(&LABELS, 1, [80e3, 20e3, 22e3, 11e3], 0.0);
        let found = compare_prediction(&live, &model, &BTreeSet::from([(0, 0), (0, 1)]));
        let rates = found.errors.iter().find(|it| it.metric == Metric::TransactionsPerS).unwrap();
        assert_eq!(rates.cells, 6, "three of each workload: {rates:?}");
        assert!((rates.median_ratio - 0.1).abs() < 0.02, "{rates:?}");
        assert!((0.3..0.35).contains(&rates.p90_ratio), "{rates:?}");
        let column = find_column(&found, Metric::TransactionsPerS);
        assert!(column.points[0].is_fitted && !column.points[1].is_fitted);
        let rank = column.rank.unwrap();
        assert_eq!((rank.pairs, rank.apart), (6, 6));
        assert!((rank.tau - 4.0 / 6.0).abs() < 1e-9, "{rank:?}");
    }

    #[test]
    fn indistinct_settings_count_in_no_rank() {
        let live = make_results(&LABELS[..3], 8, [30e3, 30.01e3, 10e3, 0.0], 0.05);
        let model = make_results(&LABELS[..3], 1, [31e3, 30e3, 10e3, 0.0], 0.0);
        let rank = find_column(
            &compare_prediction(&live, &model, &BTreeSet::new()),
            Metric::TransactionsPerS,
        )
        .rank
        .unwrap();
        assert_eq!((rank.pairs, rank.apart, rank.tau_apart), (3, 2, Some(1.0)));
    }

    #[test]
    fn unpredicted_and_shared_cpus_are_told() {
        let mut live = make_results(&LABELS, 2, [4e3, 3e3, 2e3, 1e3], 0.0);
        for row in &mut live.rows {
            row.observation.checks.push(latput_trial::Check {
                name: "other-work".to_owned(),
                passed: row.setting != 0,
                detail: String::new(),
            });
        }
        let mut model = make_results(&LABELS, 1, [4e3, 3e3, 2e3, 1e3], 0.0);
        model.workloads[1].name = "another".to_owned();
        let found = compare_prediction(&live, &model, &BTreeSet::new());
        assert_eq!(find_column(&found, Metric::SutServiceDemandUs).points.len(), 3);
        assert_eq!(
            find_column(&found, Metric::TransactionsPerS).points.len(),
            4,
            "a rate is no CPU figure"
        );
        assert_eq!(found.remarks.len(), 2, "{:?}", found.remarks);
        let nothing =
            compare_prediction(&live, &make_results(&["u=1"], 1, [1.0; 4], 0.0), &BTreeSet::new());
        assert!(nothing.columns.is_empty() && nothing.errors.is_empty());
    }

    #[track_caller]
    fn find_column(found: &PredictionReport, metric: Metric) -> PredictionColumn {
        found.columns.iter().find(|column| column.metric == metric).unwrap().clone()
    }

    fn make_results(labels: &[&str], blocks: u32, rates: [f64; 4], sd: f64) -> Results {
        let mut rng = SeededRng::from_seed(3);
        build_results(
            labels,
            &[rr_workload("rr"), stream_workload("stream")],
            blocks,
            |setting, _| SyntheticFigures {
                rate: rates[setting] * noise_factor(&mut rng, sd),
                p99_us: Some(50.0),
                service_demand_us: 2.0,
            },
        )
    }

    #[test]
    fn rank_needs_two_settings_that_differ() {
        let alike = make_results(&LABELS[..3], 4, [2e3; 4], 0.0);
        let found = compare_prediction(&alike, &alike, &BTreeSet::new());
        let rank = find_column(&found, Metric::TransactionsPerS).rank.unwrap();
        assert_eq!((rank.pairs, rank.apart, rank.tau_apart), (3, 0, None));
        let error = |value: f64| {
            let measured = Estimate::single(value);
            PredictedPoint { setting: 0, measured, predicted: 3.0, is_fitted: false }.error_ratio()
        };
        assert_eq!((error(2.0), error(0.0)), (Some(0.5), None));
    }
}
