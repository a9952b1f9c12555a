//! The trade-off tables for a pull request, an issue or a wiki.

use std::fmt::Write;

use latput_model::ResultsSummary;
use latput_trial::Results;

use crate::changes::{ObjectiveChanges, collect_objective_changes};
use crate::effects::{TITLE, compare_settings, describe_comparison as sentence_of};
use crate::format;
use crate::next;
use crate::printable::{make_printable, markdown_escaped as escaped};
use crate::table::format_headline;
use crate::view::{ReportView, finite_estimate, is_too_wide};

/// The recommendation, one table for each workload, and the remarks.
pub fn render_markdown(results: &Results, summary: &ResultsSummary) -> String {
    let view = ReportView::new(results, summary);
    let mut text = format!("# {}\n\n", escaped(&results.name));
    if let Some(shortage) = view.describe_shortage() {
        let _ = writeln!(text, "{shortage}\n");
    }
    text += &render_recommendation(&view);
    let effects = compare_settings(results);
    if !effects.is_empty() {
        let _ = writeln!(text, "## {TITLE}\n");
        for comparison in &effects {
            let _ = writeln!(text, "- {}", escaped(&sentence_of(comparison)));
        }
        text.push('\n');
    }
    for (idx, _) in view.measured_workloads() {
        text += &workload_table(&view, idx);
    }
    let marks = "`>` recommended, `*` not beaten on rate, latency and CPU cost at once, `~` interval \
                 wider than asked for, `!` a check failed";
    if !summary.cells.is_empty() {
        let confidence = view.describe_confidence();
        let lopsided = if view.shows_lopsided_interval() {
            ", (a to b) is the interval itself, where its halves differ"
        } else {
            ""
        };
        let _ = writeln!(text, "{marks}; ± is half the {confidence}{lopsided}.\n");
    }
    for remark in crate::remarks::collect_remarks(&view) {
        let _ = writeln!(text, "## {}\n\n{}\n", escaped(&remark.title), escaped(&remark.digest));
        for line in &remark.full {
            let _ = writeln!(text, "- {}", escaped(line));
        }
        text.push('\n');
    }
    text
}

fn render_recommendation(view: &ReportView<'_>) -> String {
    let (Some(headline), Some((words, label))) = (&view.summary.headline, view.short_answer())
    else {
        return String::new();
    };
    let label = label.map_or_else(String::new, |label| format!(" {}", escaped(&label)));
    let mut text = format!("**{words}{label}**\n\n{}\n\n", escaped(&format_headline(headline)));
    if let Some(advice) = &view.summary.recommendation {
        let reason: Vec<String> = advice.reason.iter().map(|line| escaped(line)).collect();
        let _ = writeln!(text, "Goal: {}.\n\n{}\n", escaped(&advice.goal), reason.join(" "));
    }
    let commands = view.recommended_commands();
    for command in &commands {
        // Four spaces make code; a fence could be closed by a hostile name.
        let _ = writeln!(text, "    {}", make_printable(&command.line));
    }
    if !commands.is_empty() {
        for line in next::build_next_lines(view.results) {
            let _ = writeln!(text, "    {}: {}", line.name, make_printable(&line.to_text()));
        }
    }
    text.push('\n');
    text + &changes_table(view)
}

fn changes_table(view: &ReportView<'_>) -> String {
    let Some(ObjectiveChanges { caption, header, rows }) = collect_objective_changes(view) else {
        return String::new();
    };
    let line = |cells: &[String]| {
        let cells: Vec<String> = cells.iter().map(|cell| escaped(cell)).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let rule = format!("|---|{}---|\n", "---:|".repeat(header.len() - 2));
    let rows: String = rows.iter().map(|row| line(row)).collect();
    format!("{}\n\n{}{rule}{rows}\n", escaped(&caption), line(&header))
}

fn workload_table(view: &ReportView<'_>, idx: usize) -> String {
    let Some(workload) = view.results.workloads.get(idx) else { return String::new() };
    let metrics = view.main_metrics(idx);
    let mut text = format!("## {}\n\n| | {} |", escaped(&workload.name), escaped(&view.knobs));
    for &metric in &metrics {
        let scale = view.choose_scale(idx, metric);
        let _ = write!(text, " {} {} |", metric.column(), scale.unit);
    }
    let _ = writeln!(text, " trials |\n|---|---|{}", "---:|".repeat(metrics.len() + 1));
    for cell in view.workload_cells(idx) {
        let marks = crate::table::cell_marks(view, cell.setting, idx).replace('*', "\\*");
        let _ = write!(text, "| {marks} | {} |", escaped(view.short_label(cell.setting)));
        for &metric in &metrics {
            let scale = view.choose_scale(idx, metric);
            let figure = finite_estimate(cell, metric).map_or_else(String::new, |estimate| {
                scale.number(estimate.value) + &format::interval_behind(estimate, &scale)
            });
            let wide = if is_too_wide(cell, metric) { " ~" } else { "" };
            let _ = write!(text, " {figure}{wide} |");
        }
        let _ = writeln!(text, " {} |", cell.runs);
    }
    text.push('\n');
    text
}
