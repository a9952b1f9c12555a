//! A comparison as one HTML file that works offline and has no scripts.

use latput_model::Comparison;
use latput_model::compare::FigureComparison;
use latput_trial::Results;
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, UndefinedBehavior, Value};
use serde::Serialize;

use super::STYLE;
use crate::compared::{describe_method, format_figure_row};
use crate::comparison::{
    CHANGED_HEADER, collect_changed_rows, collect_remarks, describe_origin_differences,
    format_heading, group_by_workload, summarize_verdicts,
};
use crate::gate::{Gate, GateAnswer};
use crate::view::capitalize_first;

const TEMPLATE: &str = include_str!("../../assets/comparison.html");

/// One pair of settings.
#[derive(Serialize)]
struct SettingPair {
    title: String,
    /// How they were compared.
    heading: String,
    /// Each workload with its rows.
    workloads: Vec<(String, Vec<Vec<String>>)>,
}

/// The comparisons of one command, with what a gate says of them if there is one. `base` has the workloads' units.
pub fn comparison_html(comparisons: &[Comparison], base: &Results, gate: Option<Gate>) -> String {
    let row_of = |figure: &FigureComparison| {
        let judged = gate.map(|gate| gate.judge_figure(figure).describe());
        format_figure_row(figure, base).into_iter().chain(judged).collect()
    };
    let pair = |comparison: &Comparison| SettingPair {
        title: format!("{} against {}", comparison.other, comparison.base),
        heading: capitalize_first(&(format_heading(comparison) + ".")),
        workloads: group_by_workload(comparison)
            .into_iter()
            .map(|(name, figures)| (name, figures.into_iter().map(row_of).collect()))
            .collect(),
    };
    let notes: Vec<String> = collect_remarks(comparisons)
        .into_iter()
        .map(str::to_owned)
        .chain(describe_origin_differences(comparisons))
        .collect();
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    let pairs: Vec<SettingPair> = comparisons.iter().map(pair).collect();
    let context = minijinja::context! {
        style => STYLE,
        title => base.name.clone(),
        conclusion => summarize_verdicts(comparisons),
        gate => gate.map(|gate| GateAnswer::new(gate, comparisons).sentence()),
        method => describe_method(comparisons),
        notes,
        header => CHANGED_HEADER,
        changed => collect_changed_rows(comparisons, base),
        pairs => Value::from(Serde(&pairs)),
    };
    let text = environment
        .render_named_str("comparison.html", TEMPLATE, context)
        .expect("the template is part of the program and a test renders every branch of it");
    text.replace(|c: char| c.is_control() && c != '\n', "?")
}
