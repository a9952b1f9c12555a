//! Live traffic by port or by peer: what today's setting has in each group, and what the others change there.

use std::fmt::Write;

use comfy_table::Table;
use latput_model::ConnectionGroups;
use latput_model::compare::{ComparisonVerdict, FigureComparison};
use latput_model::groups::TOLD;
use latput_trial::Metric;
use latput_trial::metric::Scale;

use super::Screen;
use crate::compared;
use crate::lines::wrap_text;
use crate::plain::render_plain_table;
use crate::view::ReportView;

/// Today's figures of each group, and what the other settings change there. Nothing without groups.
pub(super) fn render_groups(view: &ReportView<'_>, screen: Screen) -> String {
    let Some(found) = ConnectionGroups::from_results(view.results) else { return String::new() };
    let by = found.by.name();
    let mut text = format!("By {by}, under today's setting\n");
    let told = shown_metrics(&found);
    text +=
        &(render_plain_table(build_today_table(&found, &told), 1..=told.len() + 1, screen.columns)
            .join("\n")
            + "\n\n");
    for (setting, comparison) in &found.comparisons {
        let _ = writeln!(text, "By {by}, {} against today", view.full_label(*setting));
        let mut table = Table::new();
        table.set_header(["", "", "today", "setting", "change", "interval", ""]);
        for figure in comparison.figures.iter().filter(|it| is_shown(it)) {
            let [name, first, second, change, interval, verdict] =
                compared::format_figure_row(figure, view.results);
            let group = figure.workload.clone();
            table.add_row([group, name, first, second, change, interval, verdict]);
        }
        text += &(render_plain_table(table, 2..=5, screen.columns).join("\n") + "\n\n");
    }
    if !found.comparisons.is_empty() {
        let all: Vec<_> = found.comparisons.iter().map(|(_, one)| one.clone()).collect();
        let rule = format!(
            "The goal is about all traffic, not groups. Shown: p99, and better or worse figures. The JSON has \
             all. {}",
            compared::describe_method(&all)
        );
        text += &(wrap_text(&rule, "", screen.columns) + "\n");
    }
    text
}

/// The tail of each group, and what has changed besides.
fn is_shown(figure: &FigureComparison) -> bool {
    figure.metric == Metric::TcpRttNsP99
        || matches!(figure.verdict, ComparisonVerdict::Better | ComparisonVerdict::Worse)
}

/// The figures that any group has: samples of round trips cannot be traced everywhere.
fn shown_metrics(found: &ConnectionGroups) -> Vec<Metric> {
    let is_there = |metric: &Metric| found.groups.iter().any(|it| it.today.contains_key(metric));
    TOLD.iter().copied().filter(is_there).collect()
}

fn build_today_table(found: &ConnectionGroups, told: &[Metric]) -> Table {
    let values = |metric: &Metric| {
        let all = found.groups.iter().filter_map(|group| group.today.get(metric));
        all.map(|estimate| estimate.value).filter(|value| value.is_finite()).fold(0.0, f64::max)
    };
    let scales: Vec<Scale> =
        told.iter().map(|metric| Scale::choose(*metric, &found.traffic, values(metric))).collect();
    let mut table = Table::new();
    let names = told
        .iter()
        .zip(&scales)
        .map(|(metric, scale)| format!("{}\n{}", metric.column(), scale.unit));
    table.set_header([String::new(), "conns".to_owned()].into_iter().chain(names));
    for group in &found.groups {
        let figures = told.iter().zip(&scales).map(|(metric, scale)| {
            group.today.get(metric).map_or("-".to_owned(), |it| scale.number(it.value))
        });
        let first = [group.name.clone(), group.connections.to_string()];
        table.add_row(first.into_iter().chain(figures));
    }
    table
}
