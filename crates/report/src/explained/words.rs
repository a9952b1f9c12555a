//! The words of `latput explain`.

use std::collections::BTreeSet;

use comfy_table::Table;
use latput_model::ShortLabels;
use latput_model::explain::{CellExplanation, WorkUnit};
use latput_model::fit::CostModel;
use latput_model::stage::PathStage;
use latput_units::IntoSet;
use latput_units::text::format_number;

use super::cells::RunExplanation;
use crate::format::format_percent;
use crate::lines::wrap_text;
use crate::plain::{render_plain_table, render_table};
use crate::printable::make_printable;

/// A stage that differs by less between settings, as a share of the shortest time, gets no sentence.
const LEAST_DIFFERENCE: f64 = 0.05;

impl RunExplanation<'_> {
    /// The text of `latput explain`, for lines of `columns`.
    pub fn to_text(&self, columns: usize) -> String {
        let labels = ShortLabels::from_results(self.results);
        let mut paragraphs = vec![render_cells(self, &labels, columns)];
        let knobs = format!("Settings of {}.", make_printable(&labels.knobs));
        let mut add = |text: &str| paragraphs.push(wrap_text(text, "", columns));
        add(&[knobs, describe_columns(self)].join(" "));
        let differences = describe_differences(self, &labels);
        if !differences.is_empty() {
            add(&differences.join(" "));
        }
        let missing: BTreeSet<&str> =
            self.cells.iter().flat_map(|cell| cell.missing.iter().copied()).into_set();
        if !missing.is_empty() {
            let missing: Vec<&str> = missing.into_iter().collect();
            add(&format!("Not told apart. {}.", missing.join(". ")));
        }
        for model in &self.models {
            add(&describe_model(model));
        }
        paragraphs.push(render_effects(self, columns));
        paragraphs.retain(|text| !text.is_empty());
        paragraphs.iter().map(|text| text.trim_end()).collect::<Vec<_>>().join("\n\n") + "\n"
    }
}

/// The stages that some cell has, in their order.
fn shown_stages(cells: &[CellExplanation]) -> Vec<PathStage> {
    let is_shown = |stage: &PathStage| {
        cells.iter().any(|cell| is_unknown(cell, *stage) || find_part(cell, *stage).is_some())
    };
    PathStage::ALL.into_iter().filter(is_shown).collect()
}

fn find_part(cell: &CellExplanation, stage: PathStage) -> Option<f64> {
    cell.parts.iter().find(|part| part.stage == stage).map(|part| part.ns)
}

/// Whether the plan lacks what a stage needs to be told apart from the rest.
fn is_unknown(cell: &CellExplanation, stage: PathStage) -> bool {
    cell.missing.iter().any(|why| why.split(':').next() == Some(stage.name()))
}

/// A column of the table: its name and its stages.
type StageColumn = (&'static str, Vec<PathStage>);

/// One table: a row for each cell, a column for each stage. Where that is too wide, all CPU time is in one column.
fn render_cells(explained: &RunExplanation<'_>, labels: &ShortLabels, columns: usize) -> String {
    let stages = shown_stages(&explained.cells);
    let each: Vec<StageColumn> = stages.iter().map(|stage| (stage.name(), vec![*stage])).collect();
    let table = build_table(explained, labels, &each);
    let widths = table.column_max_content_widths();
    let width: usize = widths.iter().map(|width| usize::from(*width) + 2).sum();
    if width <= columns + 2 {
        return render_plain_table(table, 1..=widths.len(), columns).join("\n");
    }
    let mut merged: Vec<StageColumn> = Vec::new();
    for (name, of) in each {
        match merged.last_mut() {
            Some((_, cpu)) if of.iter().chain(cpu.iter()).all(|stage| stage.is_cpu()) => {
                cpu.extend(of);
            }
            _ if of.iter().all(|stage| stage.is_cpu()) => merged.push(("CPU", of)),
            _ => merged.push((name, of)),
        }
    }
    let table = build_table(explained, labels, &merged);
    let last = merged.len() + 3;
    render_plain_table(table, 1..=last, columns).join("\n")
}

fn build_table(
    explained: &RunExplanation<'_>,
    labels: &ShortLabels,
    stages: &[StageColumn],
) -> Table {
    let us = |ns: f64| format_number(ns / 1e3);
    let mut table = Table::new();
    let names = stages.iter().map(|(name, _)| *name);
    table.set_header(["setting", "time"].into_iter().chain(names).chain(["beside", "busy"]));
    let mut workload = None;
    let mut cells: Vec<&CellExplanation> = explained.cells.iter().collect();
    cells.sort_by_key(|cell| (cell.workload, cell.setting));
    for cell in cells {
        if workload.replace(cell.workload) != Some(cell.workload) {
            table.add_row([make_printable(&explained.results.workloads[cell.workload].name)]);
        }
        let time = cell.whole_ns.map_or_else(String::new, us);
        let mut row = vec![make_printable(&labels.labels[cell.setting]), time];
        row.extend(stages.iter().map(|(_, of)| {
            let known: Vec<f64> = of.iter().filter_map(|stage| find_part(cell, *stage)).collect();
            match known.is_empty() {
                false => us(known.iter().sum()),
                true if of.iter().any(|stage| is_unknown(cell, *stage)) => "?".to_owned(),
                true => String::new(),
            }
        }));
        let beside = (cell.beside_ns > 0.0).then(|| us(cell.beside_ns));
        let busy = cell.busiest_cpu_ratio.map(|ratio| format!("{:.0}%", 100.0 * ratio));
        row.extend([beside, busy].map(Option::unwrap_or_default));
        table.add_row(row);
    }
    table
}

/// The meaning of the columns.
fn describe_columns(explained: &RunExplanation<'_>) -> String {
    let has = |unit: WorkUnit| explained.cells.iter().any(|cell| cell.unit == unit);
    let whole = match (has(WorkUnit::Transaction), has(WorkUnit::Kilobyte)) {
        (true, true) => {
            "Microseconds of a round trip (mean) or, of a stream, of 1024 bytes at its goodput"
        }
        (false, true) => "Microseconds of 1024 bytes at the goodput",
        _ => "Microseconds of a round trip (mean)",
    };
    let is_divided = |cell: &CellExplanation| find_part(cell, PathStage::Cpu).is_none();
    let model = if explained.cells.iter().any(is_divided) {
        " The CPU time of both ends (of a stream, of the end that uses more) is measured; the stages from interrupt to \
         send are modelled: the cost model divides it."
    } else {
        ""
    };
    format!(
        "{whole}. Moderation and queueing are compared with the setting that has the least delay and the workload that \
         has one request in flight.{model} Rest is what is left: the wire, and waits without CPU time. Beside is CPU \
         time that does not fit into the time, at least: both ends and the wire work at once."
    )
}

/// A sentence for each workload on the stage that differs most between its settings.
fn describe_differences(explained: &RunExplanation<'_>, labels: &ShortLabels) -> Vec<String> {
    let workloads = explained.cells.iter().map(|cell| cell.workload).into_set();
    let sentence = |workload: usize| {
        let cells: Vec<&CellExplanation> =
            explained.cells.iter().filter(|cell| cell.workload == workload).collect();
        let shortest = cells.iter().filter_map(|cell| cell.whole_ns).min_by(f64::total_cmp)?;
        let ends = |stage: PathStage| {
            let ns = |cell: &&CellExplanation| find_part(cell, stage).unwrap_or(0.0);
            let order = |a: &&&CellExplanation, b: &&&CellExplanation| ns(a).total_cmp(&ns(b));
            let (least, most) = (cells.iter().min_by(order)?, cells.iter().max_by(order)?);
            Some((stage, (ns(least), least.setting), (ns(most), most.setting)))
        };
        let widest = PathStage::ALL
            .into_iter()
            .filter_map(ends)
            .max_by(|a, b| (a.2.0 - a.1.0).total_cmp(&(b.2.0 - b.1.0)));
        let (stage, (least, at_least), (most, at_most)) = widest?;
        if most - least < LEAST_DIFFERENCE * shortest {
            return None;
        }
        let label = |setting: usize| make_printable(&labels.labels[setting]);
        Some(format!(
            "{}: the settings differ most in {}, {} us under {} and {} us under {}.",
            make_printable(&explained.results.workloads[workload].name),
            stage.name(),
            format_number(least / 1e3),
            label(at_least),
            format_number(most / 1e3),
            label(at_most)
        ))
    };
    workloads.into_iter().filter_map(sentence).collect()
}

/// How well the costs predict.
fn describe_model(model: &CostModel) -> String {
    let hosts: Vec<String> = model.hosts.iter().map(|of| make_printable(&of.host)).collect();
    let hosts = hosts.join(", ");
    let Some((median, p90)) = model.error_quantile(0.5).zip(model.error_quantile(0.9)) else {
        return format!("No cost model of {hosts}: too few settings. Its CPU time is not divided.");
    };
    let [median, p90] = [median, p90].map(format_percent);
    format!(
        "The cost model of {hosts} misses the CPU time of settings that were left out of it by {median} (median), {p90} \
         (90th percentile)."
    )
}

/// Renders the savings of changes of knobs.
fn render_effects(explained: &RunExplanation<'_>, columns: usize) -> String {
    if explained.effects.is_empty() {
        let text = "No effect of a knob is predicted: the costs miss too much, or there are none. `latput model fit` \
                    names the knobs to vary.";
        return wrap_text(text, "", columns);
    }
    let header = ["workload", "half as many", "by", "CPU time saved, predicted"];
    let rows = explained.effects.iter().map(|effect| {
        [
            make_printable(&explained.results.workloads[effect.workload].name),
            effect.term.plural().to_owned(),
            effect.change.to_owned(),
            format!(
                "{:.0}%, {:.0} to {:.0}",
                100.0 * effect.saved_ratio,
                100.0 * effect.saved_ratio_low,
                100.0 * effect.saved_ratio_high
            ),
        ]
    });
    render_table(header, rows, 3..=3, columns)
}
