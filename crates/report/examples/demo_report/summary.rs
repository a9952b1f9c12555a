//! A plain summary of made-up results, good enough to draw.

use std::collections::BTreeMap;

use latput_model::summary::{FailedCheck, Outlier};
use latput_model::{Cell, Recommendation, Summary};
use latput_stats::{Estimate, Histogram, Method};
use latput_trial::{Metric, Results, Row};

/// Means and medians with intervals of the right order of size; the recommendation is the second
/// setting.
pub(crate) fn summarise(results: &Results) -> Summary {
    let mut cells = Vec::new();
    for workload in 0..results.workloads.len() {
        for setting in 0..results.settings.len() {
            let rows = rows(results, setting, workload);
            if !rows.is_empty() {
                cells.push(cell(results, &rows));
            }
        }
    }
    let bundled = |row: &&Row| row.observation.checks.iter().any(|check| !check.passed);
    let bundled = results.rows.iter().filter(bundled).collect::<Vec<_>>();
    let failed = bundled.first().map(|row| FailedCheck {
        setting: row.setting,
        workload: row.workload,
        name: "packets-per-transaction".to_owned(),
        runs: bundled.len(),
        detail: "0.41 packets per transaction: transactions were bundled".to_owned(),
    });
    let against_first = cells
        .iter()
        .find(|c| c.setting == 1 && c.workload == 1)
        .and_then(|c| c.against_first.get(&Metric::LatencyNsP99).cloned());
    let is_whole = against_first.is_some();
    let outlier = Outlier {
        setting: 3,
        workload: 0,
        block: 4,
        metric: Metric::LatencyNsP50,
        value: 199_000.0,
        median: 148_000.0,
    };
    Summary {
        cells,
        pareto: if is_whole { vec![0, 1, 2] } else { vec![] },
        recommendation: is_whole.then(|| Recommendation {
            goal: "minimize latency_ns_p99 where throughput_bps >= 0.95 best".to_owned(),
            setting: 1,
            proven: true,
            against_first,
            reason: vec![
                "gro-flush-timeout=20us has the lowest p99 of tcp_rr burst=16 among the settings \
                 that keep 95 % of the best goodput."
                    .to_owned(),
                "It costs tcp_rr with one transaction in flight a p50 of 66 us instead of 21 us."
                    .to_owned(),
            ],
        }),
        outliers: if is_whole { vec![outlier] } else { vec![] },
        failed_checks: failed.into_iter().collect(),
        warnings: if is_whole {
            vec![
                "the desired 99 % confidence of +/- 2.5 % was not reached for transactions_per_s of \
                 tcp_rr at gro-flush-timeout=500us: the interval is +/- 5.1 % after 6 runs"
                    .to_owned(),
            ]
        } else {
            vec![]
        },
    }
}

fn rows(results: &Results, setting: usize, workload: usize) -> Vec<&Row> {
    let rows = results.rows.iter();
    rows.filter(|row| row.setting == setting && row.workload == workload).collect()
}

fn cell(results: &Results, rows: &[&Row]) -> Cell {
    let (setting, workload) = (rows[0].setting, rows[0].workload);
    let traffic = &results.workloads[workload].traffic;
    let values = |metric: Metric, rows: &[&Row]| -> Vec<f64> {
        rows.iter().filter_map(|row| metric.value(traffic, &row.observation)).collect()
    };
    let first = self::rows(results, 0, workload);
    let mut metrics = BTreeMap::new();
    let mut against_first = BTreeMap::new();
    for &metric in Metric::ALL {
        let own = values(metric, rows);
        if own.is_empty() {
            continue;
        }
        metrics.insert(metric, spread(&own, Method::StudentT));
        let base = values(metric, &first);
        if setting != 0 && own.iter().chain(&base).all(|value| *value > 0.0) {
            let ratios: Vec<f64> = own.iter().zip(&base).map(|(own, base)| own / base).collect();
            against_first.insert(metric, spread(&ratios, Method::PairedLogRatio));
        }
    }
    let merged = |pick: fn(&Row) -> Option<&Histogram>| {
        rows.iter().filter_map(|row| pick(row)).fold(None, |sum: Option<Histogram>, histogram| {
            let mut sum = sum.unwrap_or_default();
            sum.merge(histogram);
            Some(sum)
        })
    };
    let rate = metrics.get(&Metric::TransactionsPerS).or(metrics.get(&Metric::ThroughputBps));
    let width = rate.and_then(Estimate::half_width_ratio);
    Cell {
        setting,
        workload,
        runs: rows.len(),
        narrow_enough: width.is_some_and(|width| width <= results.half_width),
        metrics,
        against_first,
        latency: merged(|row| row.observation.traffic.latency.as_ref()),
        probe: merged(|row| row.observation.probe.as_ref().map(|probe| &probe.rtt)),
    }
}

/// Mean and the half width of a 99 % interval of six values (Student's t of 5 degrees: 4.03).
fn spread(values: &[f64], method: Method) -> Estimate {
    let runs = values.len();
    let value = values.iter().sum::<f64>() / runs as f64;
    if runs < 2 {
        let method = Method::Single;
        return Estimate { value, low: value, high: value, confidence: 0.0, method, runs };
    }
    let variance = values.iter().map(|v| (v - value).powi(2)).sum::<f64>() / (runs - 1) as f64;
    let half = 4.03 * (variance / runs as f64).sqrt();
    Estimate { value, low: value - half, high: value + half, confidence: 0.99, method, runs }
}
