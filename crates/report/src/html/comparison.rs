//! A comparison as one HTML file that works offline and has no scripts.

use latput_model::Comparison;
use latput_model::compare::FigureComparison;
use latput_trial::Results;
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, UndefinedBehavior, Value};
use serde::Serialize;

use super::STYLE;
use crate::compared::{method, row};
use crate::comparison::{
    CHANGED_HEADER, by_workload, changed, conclusion, heading, origin, remarks,
};
use crate::gate::{Gate, GateAnswer};
use crate::view::capitalised;

const TEMPLATE: &str = include_str!("../../assets/comparison.html");

/// One pair of settings.
#[derive(Serialize)]
struct Pair {
    title: String,
    /// How they were compared.
    heading: String,
    /// Each workload with its rows.
    workloads: Vec<(String, Vec<Vec<String>>)>,
}

/// The comparisons of one command, with what a gate says of them if there is one. `base` has the workloads' units.
pub fn comparison_html(comparisons: &[Comparison], base: &Results, gate: Option<Gate>) -> String {
    let row_of = |figure: &FigureComparison| {
        let judged = gate.map(|gate| gate.judge(figure).words());
        row(figure, base).into_iter().chain(judged).collect()
    };
    let pair = |comparison: &Comparison| Pair {
        title: format!("{} against {}", comparison.other, comparison.base),
        heading: capitalised(&(heading(comparison) + ".")),
        workloads: by_workload(comparison)
            .into_iter()
            .map(|(name, figures)| (name, figures.into_iter().map(row_of).collect()))
            .collect(),
    };
    let notes: Vec<String> =
        remarks(comparisons).into_iter().map(str::to_owned).chain(origin(comparisons)).collect();
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    let pairs: Vec<Pair> = comparisons.iter().map(pair).collect();
    let context = minijinja::context! {
        style => STYLE,
        title => base.name.clone(),
        conclusion => conclusion(comparisons),
        gate => gate.map(|gate| GateAnswer::new(gate, comparisons).sentence()),
        method => method(comparisons),
        notes,
        header => CHANGED_HEADER,
        changed => changed(comparisons, base),
        pairs => Value::from(Serde(&pairs)),
    };
    let text = environment
        .render_named_str("comparison.html", TEMPLATE, context)
        .expect("the template is part of the program and a test renders every branch of it");
    text.replace(|c: char| c.is_control() && c != '\n', "?")
}
