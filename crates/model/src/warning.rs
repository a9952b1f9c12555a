//! netperf's warning for each cell whose intervals are wider than wanted.

use latput_stats::{Estimate, Method};
use latput_trial::Results;
use latput_units::text::{self, format_count};

use crate::cell::{CellSummary, own_rates, stopping_rule};
use crate::words;

/// The warning for one cell: the wanted confidence, and the reached one of each figure of the
/// stopping rule (netperf warns of the same three).
pub(crate) fn too_wide(results: &Results, cell: &CellSummary) -> Option<String> {
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
