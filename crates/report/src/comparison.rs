//! A comparison of two sets of runs, for a terminal and for Markdown.

use std::fmt::Write;

use comfy_table::Table;
use latput_model::Comparison;
use latput_model::compare::{ComparisonVerdict, FigureComparison, OriginDifference};
use latput_trial::Results;

use crate::compared::{describe_method, format_figure_row};
use crate::lines::wrap_text;
use crate::plain::render_plain_table;
use crate::printable::make_printable;
use crate::printable::markdown_escaped as escaped;
use crate::screen::Screen;

/// The comparisons of one command: the answer first, then every figure in a table for each workload. `base` has the
/// workloads' units.
pub fn render_terminal(comparisons: &[Comparison], base: &Results, screen: Screen) -> String {
    let mut text = wrap_text(&summarize_verdicts(comparisons), "", screen.columns);
    let changed = collect_changed_rows(comparisons, base);
    if !changed.is_empty() {
        let mut table = Table::new();
        table.set_header(CHANGED_HEADER);
        table.add_rows(changed.iter().map(|row| row.each_ref().map(|text| make_printable(text))));
        text += &(render_plain_table(table, 2..=5, screen.columns).join("\n") + "\n");
    }
    let method = describe_method(comparisons);
    if !method.is_empty() {
        text += &wrap_text(&method, "", screen.columns);
    }
    for remark in collect_remarks(comparisons) {
        text += &wrap_text(&format!("note: {remark}"), "", screen.columns);
    }
    if let Some(origin) = describe_origin_differences(comparisons) {
        text += &wrap_text(&format!("note: {origin}"), "", screen.columns);
    }
    for comparison in comparisons {
        text += &("\n".to_owned() + &wrap_text(&format_heading(comparison), "", screen.columns));
        for (workload, figures) in group_by_workload(comparison) {
            let mut table = Table::new();
            let name = make_printable(&workload);
            table.set_header([name.as_str(), "first", "second", "change", "interval", ""]);
            table.add_rows(figures.into_iter().map(|figure| format_figure_row(figure, base)));
            text += &("\n".to_owned()
                + &render_plain_table(table, 1..=4, screen.columns).join("\n")
                + "\n");
        }
    }
    text
}

/// The comparisons as Markdown, for a pull request.
pub fn render_markdown(comparisons: &[Comparison], base: &Results) -> String {
    let mut text = format!("{}\n\n", escaped(&summarize_verdicts(comparisons)));
    let line = |row: &[String]| {
        let cells: Vec<String> = row.iter().map(|cell| escaped(cell)).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let changed = collect_changed_rows(comparisons, base);
    if !changed.is_empty() {
        text += &line(&CHANGED_HEADER.map(str::to_owned));
        text += "|---|---|---:|---:|---:|---:|---|\n";
        text.extend(changed.iter().map(|row| line(row)));
        text.push('\n');
    }
    let _ = writeln!(text, "{}", escaped(&describe_method(comparisons)));
    for remark in collect_remarks(comparisons) {
        let _ = writeln!(text, "\nNote: {}", escaped(remark));
    }
    if let Some(origin) = describe_origin_differences(comparisons) {
        let _ = writeln!(text, "\nNote: {}", escaped(&origin));
    }
    for comparison in comparisons {
        let _ = writeln!(text, "\n{}", escaped(&format_heading(comparison)));
        for (workload, figures) in group_by_workload(comparison) {
            let name = escaped(&workload);
            let head = "| | first | second | change | interval | |\n|---|---:|---:|---:|---:|---|";
            let _ = writeln!(text, "\n## {name}\n\n{head}");
            text.extend(figures.into_iter().map(|figure| line(&format_figure_row(figure, base))));
        }
    }
    text
}

pub(crate) const CHANGED_HEADER: [&str; 7] =
    ["workload", "figure", "first", "second", "change", "interval", ""];

/// The figures that are proven worse, then those that are proven better, with their workload and, of several pairs
/// of settings, the setting.
pub(crate) fn collect_changed_rows(comparisons: &[Comparison], base: &Results) -> Vec<[String; 7]> {
    let of = |wanted: ComparisonVerdict| {
        comparisons.iter().flat_map(move |comparison| {
            let figures = comparison.figures.iter().filter(move |it| it.verdict == wanted);
            figures.map(move |figure| {
                let [name, first, second, change, interval, verdict] =
                    format_figure_row(figure, base);
                let place = format_place(comparisons, comparison, figure);
                [place, name, first, second, change, interval, verdict]
            })
        })
    };
    of(ComparisonVerdict::Worse).chain(of(ComparisonVerdict::Better)).collect()
}

/// The workload of a figure; where several pairs of settings are compared, with the setting.
pub(crate) fn format_place(
    comparisons: &[Comparison],
    comparison: &Comparison,
    figure: &FigureComparison,
) -> String {
    match comparisons {
        [_] => figure.workload.clone(),
        _ => format!("{}, {}", figure.workload, comparison.other),
    }
}

pub(crate) fn format_heading(comparison: &Comparison) -> String {
    let Comparison { base, other, paired, .. } = comparison;
    let how = if *paired {
        "in pairs of one block; a figure is the geometric mean over the pairs"
    } else {
        "as two groups; a figure is the geometric mean of its trials"
    };
    format!("first: {base}; second: {other}; compared {how}; the change is their ratio")
}

/// The number of each verdict, in words.
pub(crate) fn summarize_verdicts(comparisons: &[Comparison]) -> String {
    use ComparisonVerdict::{Better, Equivalent, NoDifferenceShown, NotJudged, Worse};
    let of = |verdict: ComparisonVerdict| {
        let figures = comparisons.iter().flat_map(|comparison| &comparison.figures);
        let count = figures.filter(|figure| figure.verdict == verdict).count();
        (count > 0).then(|| format!("{count} {}", verdict.name()))
    };
    let verdicts = [Worse, Better, Equivalent, NoDifferenceShown, NotJudged];
    let counted: Vec<String> = verdicts.into_iter().filter_map(of).collect();
    if counted.is_empty() {
        let obstacle = comparisons.iter().find_map(|it| it.obstacle.as_deref());
        let why = obstacle.unwrap_or("no settings were given");
        return format!("Nothing to compare: {why}.");
    }
    format!("The second against the first: {}.", counted.join(", "))
}

/// Reasons why something could not be compared, each once.
pub(crate) fn collect_remarks(comparisons: &[Comparison]) -> Vec<&str> {
    let mut remarks: Vec<&str> = Vec::new();
    for remark in comparisons.iter().flat_map(|comparison| &comparison.remarks) {
        if !remarks.contains(&remark.as_str()) {
            remarks.push(remark);
        }
    }
    remarks
}

/// Differences between the runs besides their settings, in a line: `the two runs differ in kernel of sut (6.1.0, then
/// 6.12.5)`.
pub(crate) fn describe_origin_differences(comparisons: &[Comparison]) -> Option<String> {
    let differences = &comparisons.first()?.origin;
    let one = |it: &OriginDifference| format!("{} ({}, then {})", it.what, it.first, it.second);
    let all: Vec<String> = differences.iter().map(one).collect();
    (!all.is_empty()).then(|| format!("the runs differ in {}", all.join("; ")))
}

/// One figure in a sentence: `worse: 91.4 us, then 123 us: +34.6% (+20.1 to +50.8%)`.
pub fn describe_figure(figure: &FigureComparison, results: &Results) -> String {
    let [_, first, second, change, interval, verdict] = format_figure_row(figure, results);
    let interval = if interval.is_empty() { interval } else { format!(" ({interval})") };
    format!("{verdict}: {first}, then {second}: {change}{interval}")
}

/// The figures of each workload.
pub(crate) fn group_by_workload(comparison: &Comparison) -> Vec<(String, Vec<&FigureComparison>)> {
    let mut groups: Vec<(String, Vec<&FigureComparison>)> = Vec::new();
    for figure in &comparison.figures {
        match groups.last_mut() {
            Some((workload, figures)) if *workload == figure.workload => figures.push(figure),
            _ => groups.push((figure.workload.clone(), vec![figure])),
        }
    }
    groups
}
