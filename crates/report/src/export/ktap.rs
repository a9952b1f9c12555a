//! A comparison in the Kernel Test Anything Protocol, version 1 (Documentation/dev-tools/ktap.rst): a test for each
//! workload under each pair of settings, a subtest for each figure. One that the gate fails is `not ok`, and one that
//! cannot be judged is skipped.

use std::fmt::Write;

use latput_model::Comparison;
use latput_model::compare::FigureComparison;
use latput_trial::Results;

use crate::comparison::{describe_figure, format_place, group_by_workload};
use crate::gate::{Gate, GateAnswer, JudgedFigure};
use crate::printable::make_printable;

const VERSION: &str = "KTAP version 1";

/// The comparisons as KTAP. `base` has the workloads' units.
pub fn render_ktap(comparisons: &[Comparison], base: &Results, gate: Gate) -> String {
    let tests: Vec<(String, Vec<&FigureComparison>)> = comparisons
        .iter()
        .flat_map(|comparison| {
            let workloads = group_by_workload(comparison).into_iter();
            workloads.filter_map(|(_, figures)| {
                Some((format_place(comparisons, comparison, figures.first()?), figures))
            })
        })
        .collect();
    let mut text = format!("{VERSION}\n1..{}\n", tests.len());
    for (number, (name, figures)) in (1..).zip(&tests) {
        let _ = writeln!(text, "  {VERSION}\n  1..{}", figures.len());
        for (number, figure) in (1..).zip(figures) {
            text += &render_subtest(number, figure, base, gate);
        }
        let answer = GateAnswer::from_figures(gate, figures.iter().copied());
        let result = if answer.failed > 0 { "not ok" } else { "ok" };
        let skip = if answer.is_unjudged() { " # SKIP too few trials" } else { "" };
        let _ = writeln!(text, "{result} {number} {}{skip}", escape_description(name));
    }
    text
}

fn render_subtest(number: usize, figure: &FigureComparison, base: &Results, gate: Gate) -> String {
    let name = figure.metric.name();
    let mut sentence = describe_figure(figure, base);
    let (result, directive) = match gate.judge_figure(figure) {
        JudgedFigure::Failed(_, why) => {
            sentence += &why;
            ("not ok", "")
        }
        JudgedFigure::Skipped => ("ok", " # SKIP too few trials"),
        JudgedFigure::Passed => ("ok", ""),
    };
    format!("  # {name}: {sentence}\n  {result} {number} {name}{directive}\n")
}

/// A description may have any characters but `#`.
fn escape_description(name: &str) -> String {
    make_printable(name).replace('#', "_")
}
