//! The trade-off tables for a pull request, an issue or a wiki.

use std::fmt::Write;

use latput_model::Summary;
use latput_trial::Results;

use crate::changes::{Changes, changes};
use crate::effects::{TITLE, effects, sentence as sentence_of};
use crate::format;
use crate::next;
use crate::printable::{markdown_escaped as escaped, printable};
use crate::table::sentence;
use crate::view::{View, estimate, is_too_wide};

/// The recommendation, one table for each workload, and the remarks.
pub fn markdown(results: &Results, summary: &Summary) -> String {
    let view = View::new(results, summary);
    let mut text = format!("# {}\n\n", escaped(&results.name));
    if let Some(shortage) = view.shortage() {
        let _ = writeln!(text, "{shortage}\n");
    }
    text += &recommendation(&view);
    let effects = effects(results);
    if !effects.is_empty() {
        let _ = writeln!(text, "## {TITLE}\n");
        for comparison in &effects {
            let _ = writeln!(text, "- {}", escaped(&sentence_of(comparison)));
        }
        text.push('\n');
    }
    for (idx, _) in view.workloads() {
        text += &workload_table(&view, idx);
    }
    let marks = "`>` recommended, `*` not beaten on rate, latency and CPU cost at once, `~` interval \
                 wider than asked for, `!` a check failed";
    if !summary.cells.is_empty() {
        let confidence = view.confidence();
        let _ = writeln!(text, "{marks}; ± is half the {confidence}.\n");
    }
    for remark in crate::remarks::remarks(&view) {
        let _ = writeln!(text, "## {}\n\n{}\n", escaped(&remark.title), escaped(&remark.digest));
        for line in &remark.full {
            let _ = writeln!(text, "- {}", escaped(line));
        }
        text.push('\n');
    }
    text
}

fn recommendation(view: &View<'_>) -> String {
    let (Some(headline), Some((words, label))) = (&view.summary.headline, view.verdict()) else {
        return String::new();
    };
    let label = label.map_or_else(String::new, |label| format!(" {}", escaped(&label)));
    let mut text = format!("**{words}{label}**\n\n{}\n\n", escaped(&sentence(headline)));
    if let Some(advice) = &view.summary.recommendation {
        let reason: Vec<String> = advice.reason.iter().map(|line| escaped(line)).collect();
        let _ = writeln!(text, "Goal: {}.\n\n{}\n", escaped(&advice.goal), reason.join(" "));
    }
    let commands = view.recommended_commands();
    for command in &commands {
        // Four spaces make code; a fence could be closed by a hostile name.
        let _ = writeln!(text, "    {}", printable(&command.line));
    }
    if !commands.is_empty() {
        for line in next::lines(view.results) {
            let _ = writeln!(text, "    {}: {}", line.name, printable(&line.text()));
        }
    }
    text.push('\n');
    text + &changes_table(view)
}

fn changes_table(view: &View<'_>) -> String {
    let Some(Changes { caption, header, rows }) = changes(view) else { return String::new() };
    let line = |cells: &[String]| {
        let cells: Vec<String> = cells.iter().map(|cell| escaped(cell)).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let rule = format!("|---|{}---|\n", "---:|".repeat(header.len() - 2));
    let rows: String = rows.iter().map(|row| line(row)).collect();
    format!("{}\n\n{}{rule}{rows}\n", escaped(&caption), line(&header))
}

fn workload_table(view: &View<'_>, idx: usize) -> String {
    let Some(workload) = view.results.workloads.get(idx) else { return String::new() };
    let metrics = view.main_metrics(idx);
    let mut text = format!("## {}\n\n| | {} |", escaped(&workload.name), escaped(&view.knobs));
    for &metric in &metrics {
        let scale = view.scale(idx, metric);
        let _ = write!(text, " {} {} |", metric.column(), scale.unit);
    }
    let _ = writeln!(text, " runs |\n|---|---|{}", "---:|".repeat(metrics.len() + 1));
    for cell in view.cells(idx) {
        let marks = crate::table::marks(view, cell.setting, idx).replace('*', "\\*");
        let _ = write!(text, "| {marks} | {} |", escaped(view.label(cell.setting)));
        for &metric in &metrics {
            let scale = view.scale(idx, metric);
            let figure = estimate(cell, metric).map_or_else(String::new, |estimate| {
                let half = format::half_width(estimate, &scale);
                let half = half.map_or_else(String::new, |half| format!(" ±{half}"));
                format!("{}{half}", scale.number(estimate.value))
            });
            let wide = if is_too_wide(cell, metric) { " ~" } else { "" };
            let _ = write!(text, " {figure}{wide} |");
        }
        let _ = writeln!(text, " {} |", cell.runs);
    }
    text.push('\n');
    text
}
