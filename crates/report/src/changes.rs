//! The change of the objective under each setting: the figures that the answer is made of, for every output.

use comfy_table::Table;
use latput_model::{ObjectiveChange, Recommendation};
use latput_stats::Estimate;
use latput_units::text::{signed_change, signed_interval};

use crate::format::interval_bounds;
use crate::lines::wrap_text;
use crate::plain::render_plain_table;
use crate::screen::Screen;
use crate::view::ReportView;

/// The indent of the lines under a recommendation.
const INDENT: &str = "  ";

/// A row to each setting but the first.
#[derive(Debug)]
pub(crate) struct ObjectiveChanges {
    /// Explanation of the figures, in a sentence or two.
    pub(crate) caption: String,
    /// The names of the columns: setting, workloads, all of them, interval, verdict. The last is empty.
    pub(crate) header: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
}

/// The changes that a recommendation weighs; `None` without one, and where nothing could be compared.
pub(crate) fn collect_objective_changes(view: &ReportView<'_>) -> Option<ObjectiveChanges> {
    let advice = view.summary.recommendation.as_ref()?;
    if advice.changes.iter().all(|change| change.ratio.is_none()) {
        return None;
    }
    let by_workload = advice.changes.iter().flat_map(|change| change.by_workload.keys().copied());
    let mut workloads: Vec<usize> = by_workload.collect();
    workloads.sort_unstable();
    workloads.dedup();
    if workloads.len() < 2 {
        workloads.clear(); // the column of all says it
    }
    let all = if workloads.is_empty() { "change" } else { "all" };
    let names = workloads.iter().map(|workload| view.workload_name(*workload));
    let header = ["setting".to_owned()].into_iter().chain(names);
    let header = header.chain([all, "interval", ""].map(str::to_owned)).collect();
    let rows =
        advice.changes.iter().map(|change| build_change_row(view, change, &workloads)).collect();
    Some(ObjectiveChanges { caption: format_caption(advice, view.short_label(0)), header, rows })
}

fn format_caption(advice: &Recommendation, first: &str) -> String {
    format!(
        "Change of {} against `{first}`, by which the answer is given: the mean over pairs of trials in one block \
         (geometric, outliers left out).",
        advice.objective
    )
}

fn build_change_row(
    view: &ReportView<'_>,
    change: &ObjectiveChange,
    workloads: &[usize],
) -> Vec<String> {
    let said = |ratio: Option<f64>| ratio.map_or_else(|| "-".to_owned(), signed_change);
    let of_interval = |ratio: &Estimate| {
        let (low, high) = interval_bounds(ratio)?;
        Some(signed_interval(low, high))
    };
    let mut row = vec![view.short_label(change.setting).to_owned()];
    row.extend(workloads.iter().map(|workload| said(change.by_workload.get(workload).copied())));
    row.push(said(change.ratio.as_ref().map(|ratio| ratio.value)));
    row.push(change.ratio.as_ref().and_then(of_interval).unwrap_or_default());
    row.push(change.verdict.describe().to_owned());
    row
}

/// The section of a terminal's report; empty where there is nothing to tell.
pub(crate) fn render_objective_changes(view: &ReportView<'_>, screen: Screen) -> String {
    let Some(ObjectiveChanges { caption, header, rows }) = collect_objective_changes(view) else {
        return String::new();
    };
    let figures = header.len() - 2;
    let mut table = Table::new();
    table.set_header(header);
    table.add_rows(rows);
    let columns = screen.columns.saturating_sub(INDENT.len());
    let mut text = String::from("\n") + &wrap_text(&caption, INDENT, screen.columns);
    for line in render_plain_table(table, 1..=figures, columns) {
        text += format!("{INDENT}{line}").trim_end();
        text.push('\n');
    }
    text
}
