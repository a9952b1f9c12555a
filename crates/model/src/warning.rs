//! netperf's warning that the wanted confidence was not met, for each cell.

use latput_stats::{Estimate, Method};
use latput_trial::{Metric, Results};

use crate::goal::Measure;
use crate::summary::Cell;
use crate::words;

/// The warning on a cell whose rate has a wider interval than was asked for: what was asked, what
/// was reached, and how wide the CPU figures of both ends are (netperf warns of these three).
pub(crate) fn too_wide(results: &Results, cell: &Cell) -> Option<String> {
    if cell.narrow_enough {
        return None;
    }
    let metric = Measure::Rate.of(&results.workloads[cell.workload].traffic);
    let rate = cell.metrics.get(&metric)?;
    let setting = &results.settings[cell.setting].label;
    let workload = &results.workloads[cell.workload].name;
    let asked = format!(
        "+/- {} at {}",
        words::percent(results.half_width),
        words::percent(results.confidence)
    );
    let place = format!("`{setting}` under `{workload}`");
    if rate.method == Method::Single {
        return Some(format!("{place}: one run has no interval, asked was {asked}"));
    }
    let cpu = |metric| half_width(cell.metrics.get(&metric));
    Some(format!(
        "{place}: the wanted confidence was not met in {} runs: asked was {asked}, reached {metric} {}; \
         CPU of the system under test {}, of the generator {}",
        rate.runs,
        half_width(Some(rate)),
        cpu(Metric::SutCpuBusyRatio),
        cpu(Metric::GeneratorCpuBusyRatio),
    ))
}

fn half_width(estimate: Option<&Estimate>) -> String {
    let ratio = estimate.and_then(Estimate::half_width_ratio);
    ratio.map_or_else(|| "not known".to_owned(), |ratio| format!("+/- {}", words::percent(ratio)))
}
