//! The tables of the page: every figure with its interval, and the differences from the first
//! setting.

use latput_trial::Metric;
use latput_trial::metric::PreferredDirection;
use latput_trial::workload::KINDS;
use serde::Serialize;

use crate::format::{self, interval_bounds};
use crate::view::{ReportView, finite_estimate, is_too_wide};

/// One workload's table.
#[derive(Debug, Serialize)]
pub(crate) struct HtmlTable {
    pub(crate) workload: String,
    knobs: String,
    columns: Vec<HtmlColumn>,
    rows: Vec<HtmlRow>,
}

#[derive(Debug, Serialize)]
struct HtmlColumn {
    name: &'static str,
    unit: String,
    tip: String,
    /// `↑` if more is better, `↓` if less is; empty for a figure that only describes.
    better: &'static str,
    /// `main` is always shown, `more` only if all figures are wanted.
    group: &'static str,
}

#[derive(Debug, Serialize)]
struct HtmlRow {
    setting: usize,
    class: String,
    label: String,
    recommended: bool,
    pareto: bool,
    failed: bool,
    runs: usize,
    cells: Vec<HtmlCell>,
}

#[derive(Debug, Serialize)]
struct HtmlCell {
    /// The key for sorting; empty without a figure.
    key: String,
    text: String,
    interval: String,
    /// The confidence of the interval.
    tip: String,
    /// `better`, `worse`, `wide` or nothing.
    class: &'static str,
    mark: &'static str,
}

/// Every figure of a workload.
pub(crate) fn build_figures_table(view: &ReportView<'_>, workload: usize) -> HtmlTable {
    let metrics = view.workload_metrics(workload);
    build_table(view, workload, &metrics, |view, measured, metric| {
        let scale = view.choose_scale(workload, metric);
        let Some(estimate) = finite_estimate(measured, metric) else { return unknown_cell() };
        let is_wide = is_too_wide(measured, metric);
        HtmlCell {
            key: estimate.value.to_string(),
            text: scale.number(estimate.value),
            interval: interval_bounds(estimate).map_or_else(String::new, |(low, high)| {
                format!("{} – {}", scale.number(low), scale.number(high))
            }),
            tip: format::interval_kind(estimate),
            class: if is_wide { "wide" } else { "" },
            mark: if is_wide { "~" } else { "" },
        }
    })
}

/// Paired differences of a workload from the first setting; `None` without any.
pub(crate) fn build_differences_table(view: &ReportView<'_>, workload: usize) -> Option<HtmlTable> {
    let known = |metric: &Metric| {
        view.workload_cells(workload).iter().any(|cell| cell.against_first.contains_key(metric))
    };
    let metrics: Vec<Metric> = view.workload_metrics(workload).into_iter().filter(known).collect();
    let mut table = build_table(view, workload, &metrics, |_, measured, metric| {
        let change = |metric: Metric| {
            measured.against_first.get(&metric).filter(|ratio| ratio.value.is_finite())
        };
        let Some(ratio) = change(metric) else { return unknown_cell() };
        let text = format::format_change(ratio.value);
        let demand = demand_of(metric).and_then(change);
        // A change that prints as none gets no mark, even where it is proven.
        let is_shown = ratio.excludes(1.0)
            && text != format::format_change(1.0)
            && demand.is_none_or(|demand| (demand.value > 1.0) == (ratio.value > 1.0));
        let (class, mark) =
            match (metric.preferred_direction(), is_shown, ratio.value > 1.0) {
                (PreferredDirection::Neither, _, _) | (_, false, _) => ("", ""),
                (PreferredDirection::Higher, true, true)
                | (PreferredDirection::Lower, true, false) => ("better", "✓"),
                (PreferredDirection::Higher, true, false)
                | (PreferredDirection::Lower, true, true) => ("worse", "✗"),
            };
        HtmlCell {
            key: ratio.value.to_string(),
            text,
            interval: format::change_interval(ratio).unwrap_or_default(),
            tip: format::interval_kind(ratio),
            class,
            mark,
        }
    });
    table.rows.retain(|row| row.setting != 0);
    for column in &mut table.columns {
        column.unit.clear();
    }
    (!table.rows.is_empty() && !metrics.is_empty()).then_some(table)
}

/// The service demand that says what a busy CPU means: a CPU that is busier because more traffic flows is
/// no loss, and one that idles because less flows is no gain.
fn demand_of(metric: Metric) -> Option<Metric> {
    let demands = [
        (Metric::SutCpuBusyRatio, Metric::SutServiceDemandUs),
        (Metric::GeneratorCpuBusyRatio, Metric::GeneratorServiceDemandUs),
    ];
    demands.into_iter().find(|(busy, _)| *busy == metric).map(|(_, demand)| demand)
}

fn build_table(
    view: &ReportView<'_>,
    workload: usize,
    metrics: &[Metric],
    cell: impl Fn(&ReportView<'_>, &latput_model::CellSummary, Metric) -> HtmlCell,
) -> HtmlTable {
    let columns = metrics.iter().map(|&metric| HtmlColumn {
        name: metric.column(),
        unit: view.choose_scale(workload, metric).unit.to_owned(),
        tip: format!("{} ({metric})", metric.phrase()),
        better: match metric.preferred_direction() {
            PreferredDirection::Higher => "↑",
            PreferredDirection::Lower => "↓",
            PreferredDirection::Neither => "",
        },
        group: column_group(metric),
    });
    let rows = view.workload_cells(workload).into_iter().map(|measured| HtmlRow {
        setting: measured.setting,
        class: crate::chart::setting_class(measured.setting),
        label: view.short_label(measured.setting).to_owned(),
        recommended: view.is_recommended(measured.setting),
        pareto: view.is_pareto(measured.setting),
        failed: view.has_failed_check(measured.setting, workload),
        runs: measured.runs,
        cells: metrics.iter().map(|&metric| cell(view, measured, metric)).collect(),
    });
    HtmlTable {
        workload: view.workload_name(workload),
        knobs: view.knobs.clone(),
        columns: columns.collect(),
        rows: rows.collect(),
    }
}

fn unknown_cell() -> HtmlCell {
    HtmlCell {
        key: String::new(),
        text: "–".to_owned(),
        interval: String::new(),
        tip: "unknown".to_owned(),
        class: "",
        mark: "",
    }
}

/// The columns that the page shows first: the plan's own, and the main ones of any kind of workload.
fn column_group(metric: Metric) -> &'static str {
    let is_own = matches!(metric, Metric::Custom(_));
    let is_main = is_own || KINDS.iter().any(|kind| kind.facts.shown.contains(&metric));
    if is_main { "main" } else { "more" }
}
