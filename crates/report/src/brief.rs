//! One measured workload in five lines: what, rate, latency, CPU, and whether the figures can be trusted.

use latput_model::{CellSummary, ResultsSummary};
use latput_trial::metric::Scale;
use latput_trial::{Metric, Results};

use crate::lines::wrap_hanging;
use crate::screen::Screen;
use crate::single::only_cell;
use crate::table::render_terminal;
use crate::view::{ReportView, finite_estimate};
use crate::{failed, format};

/// Width of the names before the lines.
const NAME_WIDTH: usize = 8;

/// The five lines of `latput measure`, and the plan's own figures and the run's notes if it has any. Results with several cells, or with none, are shown in full.
pub fn render_brief(results: &Results, summary: &ResultsSummary, screen: Screen) -> String {
    let view = ReportView::new(results, summary);
    let only = only_cell(&view).and_then(|(setting, workload)| view.find_cell(setting, workload));
    let Some(cell) = only else { return render_terminal(results, summary, screen) };
    let trials = format::format_count(cell.runs, "trial");
    let setting = view.full_label(cell.setting);
    let workload = view.workload_name(cell.workload);
    let rate = view.rate_metric(cell.workload);
    let own = view.custom_metrics(cell.workload);
    let has_rate = finite_estimate(cell, rate).is_some();
    let rate = own.first().filter(|_| !has_rate).copied().unwrap_or(rate);
    let mut lines = vec![
        ("what", format!("{workload} on {}, {setting}: {trials}", results.testbed)),
        ("rate", format_figure(&view, cell, rate).unwrap_or_else(|| "not known".to_owned())),
        ("latency", format_latency(&view, cell)),
        ("CPU", format_cpu(&view, cell)),
        ("trust", assess_trust(&view, cell, rate)),
    ];
    if !own.is_empty() {
        lines.insert(2, ("figures", format_figures(&view, cell, &own).join(", ")));
    }
    lines.extend(results.notes_to_show().map(|note| ("note", note.clone())));
    let indent = " ".repeat(NAME_WIDTH + 1);
    lines
        .iter()
        .map(|(name, line)| {
            wrap_hanging(line, &format!("{name:<NAME_WIDTH$}"), &indent, screen.columns)
        })
        .collect()
}

/// `49.8 us (38.1 to 63.2)`.
fn format_figure(view: &ReportView<'_>, cell: &CellSummary, metric: Metric) -> Option<String> {
    let estimate = finite_estimate(cell, metric)?;
    let scale = Scale::choose(metric, &view.workload_traffic(cell.workload), estimate.value);
    let value = scale.with_unit(estimate.value);
    let Some((low, high)) = format::interval_bounds(estimate) else { return Some(value) };
    Some(format!("{value} ({} to {})", scale.number(low), scale.number(high)))
}

/// The figures that are there, each after its name in tables.
fn format_figures(view: &ReportView<'_>, cell: &CellSummary, metrics: &[Metric]) -> Vec<String> {
    let named = |&metric: &Metric| {
        Some(format!("{} {}", metric.column(), format_figure(view, cell, metric)?))
    };
    metrics.iter().filter_map(named).collect()
}

fn format_latency(view: &ReportView<'_>, cell: &CellSummary) -> String {
    let of_transactions = [Metric::LatencyNsP50, Metric::LatencyNsP99];
    let of_probe = [Metric::ProbeNsP50, Metric::ProbeNsP99];
    let of_datagrams = [Metric::LossRatio, Metric::JitterNs];
    let of_live = [Metric::TcpRttNsP50, Metric::TcpRttNsP99];
    let found = [&of_transactions, &of_probe, &of_datagrams, &of_live]
        .map(|metrics| format_figures(view, cell, metrics))
        .into_iter()
        .find(|figures| !figures.is_empty());
    found.map_or_else(|| "not measured: add probe_hz=100".to_owned(), |figures| figures.join(", "))
}

fn format_cpu(view: &ReportView<'_>, cell: &CellSummary) -> String {
    let ends = [
        ("SUT", Metric::SutCpuBusyRatio, Metric::SutServiceDemandUs),
        ("generator", Metric::GeneratorCpuBusyRatio, Metric::GeneratorServiceDemandUs),
    ];
    let of_end = |(end, busy, demand): (&str, Metric, Metric)| {
        let busy = format_figure(view, cell, busy)?;
        let demand =
            format_figure(view, cell, demand).map_or_else(String::new, |it| format!(", {it}"));
        Some(format!("{end} {busy}{demand}"))
    };
    let known: Vec<String> = ends.into_iter().filter_map(of_end).collect();
    if known.is_empty() { "not known of either end".to_owned() } else { known.join("; ") }
}

/// `yes`, or the reasons why not.
fn assess_trust(view: &ReportView<'_>, cell: &CellSummary, rate: Metric) -> String {
    let results = view.results;
    let wanted = format!(
        "±{} at {}",
        format::format_percent(results.half_width),
        format::format_percent(results.confidence)
    );
    let mut doubts = Vec::new();
    let of_rate = cell.too_wide.iter().find(|metric| **metric == rate);
    if let Some(&wide) = of_rate.or(cell.too_wide.first()) {
        let reached =
            finite_estimate(cell, wide).and_then(latput_stats::Estimate::half_width_ratio);
        doubts.push(match reached {
            Some(ratio) => {
                let subject = if wide == Metric::SutCpuBusyRatio {
                    "CPU use of the SUT".to_owned()
                } else if wide == Metric::GeneratorCpuBusyRatio {
                    "CPU use of the generator".to_owned()
                } else if wide == rate {
                    "rate".to_owned()
                } else {
                    format!("figure `{}`", wide.name())
                };
                let reached = format::rough_percent(ratio);
                format!("The {subject} is known to ±{reached}, not to {wanted}.")
            }
            None if cell.runs == 1 => "One trial has no interval: run more.".to_owned(),
            None => format!("{} give no interval.", format::format_count(cell.runs, "trial")),
        });
    }
    for check in &view.summary.failed_checks {
        doubts.extend(failed::describe_failures(view, &[check]));
    }
    if doubts.is_empty() {
        format!("yes: rate and CPU are within {wanted}, and no check failed")
    } else {
        format!("no: {} More: -v.", doubts.join(" "))
    }
}
