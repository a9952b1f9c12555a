//! The trade-off set: the settings that no other setting beats.

use std::collections::BTreeMap;

use latput_trial::metric::PreferredDirection;
use latput_trial::{Metric, Results};

use crate::runs::CellSummary;

/// Differences of estimates up to this share are ignored.
const TOLERANCE: f64 = 0.01;

/// Logarithms of a setting's rate (negative), tail latency and CPU cost under every workload: less
/// is better everywhere, and differences are ratios.
type Costs = BTreeMap<(usize, Metric), f64>;

/// The indices of the settings that no other beats. One beats another if it is better by more than
/// 1% in some figure and worse in none.
///
/// Only settings with every figure that any setting has can be compared, each from trials that
/// count (`is_fit` for a cell). Where that leaves one of several, nothing can. They are taken in the
/// order of their mean cost, least first, and each is kept unless one already kept beats it. With a
/// tolerance three settings may beat each other in a ring; comparing all pairs would then keep
/// none.
pub(crate) fn pareto_front(
    results: &Results,
    cells: &[CellSummary],
    is_fit: impl Fn(&CellSummary) -> bool,
) -> Vec<usize> {
    let mut settings: BTreeMap<usize, Costs> = BTreeMap::new();
    for cell in cells {
        let costs = settings.entry(cell.setting).or_default();
        if !is_fit(cell) {
            continue;
        }
        let facts = results.workloads[cell.workload].traffic.facts();
        for metric in [facts.rate, facts.tail, facts.cost] {
            if let Some(estimate) = cell.metrics.get(&metric) {
                costs.insert((cell.workload, metric), log_cost(metric, estimate.value));
            }
        }
    }
    let figures = settings.values().map(BTreeMap::len).max().unwrap_or(0);
    let tried = settings.len();
    let mut complete: Vec<(usize, Costs)> =
        settings.into_iter().filter(|(_, costs)| figures > 0 && costs.len() == figures).collect();
    if complete.len() < tried.min(2) {
        return Vec::new();
    }
    let total = |costs: &Costs| costs.values().sum::<f64>();
    complete.sort_by(|a, b| total(&a.1).total_cmp(&total(&b.1)).then(a.0.cmp(&b.0)));
    let mut kept: Vec<(usize, Costs)> = Vec::new();
    for candidate in complete {
        if !kept.iter().any(|other| dominates(&other.1, &candidate.1)) {
            kept.push(candidate);
        }
    }
    let mut front: Vec<usize> = kept.into_iter().map(|(setting, _)| setting).collect();
    front.sort_unstable();
    front
}

fn log_cost(metric: Metric, value: f64) -> f64 {
    let log = value.max(f64::MIN_POSITIVE).ln();
    if metric.preferred_direction() == PreferredDirection::Higher { -log } else { log }
}

/// Whether `a` is better than `b` in some figure and worse in none.
fn dominates(a: &Costs, b: &Costs) -> bool {
    let step = TOLERANCE.ln_1p();
    let differences = || a.iter().filter_map(|(figure, cost)| Some(cost - b.get(figure)?));
    differences().all(|difference| difference <= step) && differences().any(|d| d < -step)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ResultsSummary;
    use crate::synthetic::{
        SyntheticFigures, build_results, reported_results, rr_workload, stream_workload,
    };

    #[test]
    fn dominated_setting_is_not_in_set() {
        // Rate, tail, CPU cost.
        check_front(&[(1.0, 50.0, 2.0), (1.0, 60.0, 3.0), (0.5, 50.0, 1.0)], &[0, 2]);
        check_front(&[(1.0, 50.0, 2.0), (2.0, 40.0, 1.0)], &[1]);
    }

    #[test]
    fn differences_below_a_percent_are_ignored() {
        check_front(&[(1.0, 50.0, 2.0), (1.005, 49.8, 1.99)], &[0, 1]);
        check_front(&[(1.0, 50.0, 2.0), (0.995, 45.0, 2.01)], &[1]);
    }

    #[test]
    fn ring_of_winners_leaves_set_non_empty() {
        // Each is 1.8% better than the next in one figure and 0.9% worse in two.
        let ring = [
            (1.0, 50.0, 2.0),
            (1.0 / 1.018, 50.0 / 1.009, 2.0 / 1.009),
            (1.0 / 1.009, 50.0 * 1.009, 2.0 / 1.018),
        ];
        assert!(!find_front(&ring).is_empty());
        check_front(&[(1.0, 50.0, 2.0); 3], &[0, 1, 2]);
    }

    #[test]
    fn setting_without_some_figure_cannot_be_compared() {
        let mut results =
            build_results(&["a", "b"], &[rr_workload("rr"), stream_workload("s")], 2, |_, _| {
                make_figures((1.0, 50.0, 2.0))
            });
        results.rows.retain(|row| row.setting == 0 || row.workload == 0);
        assert!(ResultsSummary::from_results(&results).pareto.is_empty(), "nothing is compared");
    }

    #[test]
    fn unfit_trials_have_no_trade_off() {
        let mut results = build_results(&["a", "b", "c"], &[rr_workload("rr")], 2, |setting, _| {
            make_figures((1.0, 50.0 - setting as f64, 2.0))
        });
        let disturb = |results: &mut Results, from: usize| {
            for row in results.rows.iter_mut().filter(|row| row.setting >= from) {
                row.observation.checks.push(latput_trial::Check {
                    name: latput_trial::check::OTHER_WORK.to_owned(),
                    passed: false,
                    detail: String::new(),
                });
            }
        };
        disturb(&mut results, 2);
        assert_eq!(ResultsSummary::from_results(&results).pareto, [1], "`c` is not compared");
        disturb(&mut results, 0);
        assert!(ResultsSummary::from_results(&results).pareto.is_empty());
        results.beside = true;
        assert_eq!(ResultsSummary::from_results(&results).pareto, [2]);
    }

    fn make_figures((rate, p99_us, service_demand_us): (f64, f64, f64)) -> SyntheticFigures {
        SyntheticFigures { rate: rate * 1e6, p99_us: Some(p99_us), service_demand_us }
    }

    fn find_front(settings: &[(f64, f64, f64)]) -> Vec<usize> {
        let labels = vec!["x"; settings.len()];
        let results = build_results(&labels, &[rr_workload("rr")], 1, |setting, _| {
            make_figures(settings[setting])
        });
        ResultsSummary::from_results(&results).pareto
    }

    #[track_caller]
    fn check_front(settings: &[(f64, f64, f64)], expected: &[usize]) {
        assert_eq!(find_front(settings), expected);
    }

    #[test]
    fn gain_of_exact_tolerance_does_not_win() {
        let costs = |cost| Costs::from([((0, Metric::LatencyNsP99), cost)]);
        let step = TOLERANCE.ln_1p();
        assert!(!dominates(&costs(0.0), &costs(step)));
        assert!(dominates(&costs(0.0), &costs(step * 1.001)));
    }

    #[test]
    fn runs_without_figures_have_no_trade_off() {
        let made = reported_results(
            &[rr_workload("rr")],
            2,
            &[(Metric::LatencyNsP99, &[&[f64::NAN], &[f64::NAN]])],
        );
        let summary = ResultsSummary::from_results(&made);
        assert_eq!((summary.cells.len(), summary.pareto), (2, vec![]));
    }
}
