//! A comparison as `JUnit` XML: a suite for each pair of settings, a test case for each figure of a workload. A figure
//! that the gate fails has failed, and one that cannot be judged is skipped.

use std::fmt::Write;

use latput_model::Comparison;
use latput_model::compare::FigureComparison;
use latput_trial::Results;

use crate::comparison::describe_figure;
use crate::gate::{Gate, GateAnswer, JudgedFigure};
use crate::printable::make_printable;

/// The comparisons as one XML document. `base` has the workloads' units.
pub fn render_junit(comparisons: &[Comparison], base: &Results, gate: Gate) -> String {
    let mut text = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n".to_owned();
    let _ = writeln!(
        text,
        "<testsuites name=\"latput\"{}>",
        format_counts(GateAnswer::new(gate, comparisons))
    );
    for comparison in comparisons {
        // Two runs of one setting: that they are two, the figures say.
        let name = if comparison.other == comparison.base {
            comparison.other.clone()
        } else {
            format!("{} against {}", comparison.other, comparison.base)
        };
        let counts = format_counts(GateAnswer::of_figures(gate, &comparison.figures));
        let _ = writeln!(text, "  <testsuite name=\"{}\"{counts}>", escape_xml(&name));
        for figure in &comparison.figures {
            text += &render_test_case(comparison, figure, base, gate);
        }
        text += "  </testsuite>\n";
    }
    text + "</testsuites>\n"
}

fn format_counts(GateAnswer { all, failed, skipped, .. }: GateAnswer) -> String {
    format!(" tests=\"{all}\" failures=\"{failed}\" errors=\"0\" skipped=\"{skipped}\"")
}

fn render_test_case(
    comparison: &Comparison,
    figure: &FigureComparison,
    base: &Results,
    gate: Gate,
) -> String {
    let class = format!("{}.{}", comparison.other, figure.workload);
    let head = format!(
        "    <testcase classname=\"{}\" name=\"{}\"",
        escape_xml(&class),
        figure.metric.name()
    );
    let sentence = describe_figure(figure, base);
    match gate.judge_figure(figure) {
        JudgedFigure::Failed(kind, why) => {
            let sentence = escape_xml(&(sentence + &why));
            format!(
                "{head}>\n      <failure type=\"{kind}\" message=\"{sentence}\"/>\n    </testcase>\n"
            )
        }
        JudgedFigure::Skipped => {
            let sentence = escape_xml(&sentence);
            format!("{head}>\n      <skipped message=\"{sentence}\"/>\n    </testcase>\n")
        }
        JudgedFigure::Passed => {
            let sentence = escape_xml(&sentence);
            format!("{head}>\n      <system-out>{sentence}</system-out>\n    </testcase>\n")
        }
    }
}

/// Text as XML content and as an attribute's value.
fn escape_xml(text: &str) -> String {
    let mut escaped = String::new();
    for c in make_printable(text).chars() {
        match c {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            '\'' => escaped += "&apos;",
            // No XML 1.0 document may have these.
            '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}
