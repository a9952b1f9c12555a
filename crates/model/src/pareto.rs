//! The trade-off set: the settings among which only a goal can choose.

use std::collections::BTreeMap;

use latput_trial::metric::Better;
use latput_trial::{Metric, Results, Traffic};

use crate::goal::Measure;
use crate::summary::Cell;

/// Differences of estimates up to this share do not count.
const TOLERANCE: f64 = 0.01;

/// A setting's rate, tail latency and CPU cost under every workload, as the logarithm of each (the
/// negative for a rate): less is better everywhere, and differences are ratios.
type Costs = BTreeMap<(usize, Metric), f64>;

/// The settings that no other beats, by index. One beats another if by more than 1 % it is better
/// somewhere and worse nowhere.
///
/// Only settings that have every figure that any setting has can be compared. They are taken by their
/// mean cost, least first, and each is kept unless one already kept beats it: with a tolerance, three
/// settings may beat each other in a ring, and then asking each against all would keep none.
pub(crate) fn front(results: &Results, cells: &[Cell]) -> Vec<usize> {
    let mut settings: BTreeMap<usize, Costs> = BTreeMap::new();
    for cell in cells {
        let costs = settings.entry(cell.setting).or_default();
        for metric in compared(&results.workloads[cell.workload].traffic) {
            if let Some(estimate) = cell.metrics.get(&metric) {
                costs.insert((cell.workload, metric), cost(metric, estimate.value));
            }
        }
    }
    let figures = settings.values().map(BTreeMap::len).max().unwrap_or(0);
    let mut complete: Vec<(usize, Costs)> =
        settings.into_iter().filter(|(_, costs)| figures > 0 && costs.len() == figures).collect();
    let total = |costs: &Costs| costs.values().sum::<f64>();
    complete.sort_by(|a, b| total(&a.1).total_cmp(&total(&b.1)).then(a.0.cmp(&b.0)));
    let mut kept: Vec<(usize, Costs)> = Vec::new();
    for candidate in complete {
        if !kept.iter().any(|other| beats(&other.1, &candidate.1)) {
            kept.push(candidate);
        }
    }
    let mut front: Vec<usize> = kept.into_iter().map(|(setting, _)| setting).collect();
    front.sort_unstable();
    front
}

fn compared(traffic: &Traffic) -> [Metric; 3] {
    let tail = match traffic {
        Traffic::TcpRr { .. } => Metric::LatencyNsP99,
        _ => Metric::ProbeNsP99,
    };
    [Measure::Rate.of(traffic), tail, Metric::SutServiceDemandUs]
}

fn cost(metric: Metric, value: f64) -> f64 {
    let log = value.max(f64::MIN_POSITIVE).ln();
    if metric.better() == Better::Higher { -log } else { log }
}

/// Whether `a` is better than `b` somewhere and worse nowhere.
fn beats(a: &Costs, b: &Costs) -> bool {
    let step = TOLERANCE.ln_1p();
    let differences = || a.iter().filter_map(|(figure, cost)| Some(cost - b.get(figure)?));
    differences().all(|difference| difference <= step) && differences().any(|d| d < -step)
}
