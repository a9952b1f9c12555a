//! A comparison as `JUnit` XML: a suite for each pair of settings, a test case for each figure of a workload. A figure
//! that the gate fails has failed, and one that cannot be judged is skipped.

use std::fmt::Write;

use latput_model::Comparison;
use latput_model::compare::FigureComparison;
use latput_trial::Results;

use crate::comparison::describe_figure;
use crate::gate::{Gate, GateAnswer, JudgedFigure};
use crate::printable::make_printable;

/// The comparisons as one XML document. `base` has the workloads' units. Without a figure the one case has failed: a document
/// without cases would say that the gate has passed.
pub fn render_junit(comparisons: &[Comparison], base: &Results, gate: Gate) -> String {
    let mut text = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n".to_owned();
    let answer = GateAnswer::new(gate, comparisons);
    let unjudged = answer.why_failed().filter(|_| answer.all == 0);
    let _ =
        writeln!(text, "<testsuites name=\"latput\"{}>", format_counts(answer, unjudged.is_some()));
    for comparison in comparisons {
        // Two runs of one setting: that they are two, the figures say.
        let name = if comparison.other == comparison.base {
            comparison.other.clone()
        } else {
            format!("{} against {}", comparison.other, comparison.base)
        };
        let counts = format_counts(GateAnswer::from_figures(gate, &comparison.figures), false);
        let _ = writeln!(text, "  <testsuite name=\"{}\"{counts}>", escape_xml(&name));
        for figure in &comparison.figures {
            text += &render_test_case(comparison, figure, base, gate);
        }
        text += "  </testsuite>\n";
    }
    if let Some(why) = unjudged {
        let _ = write!(
            text,
            "  <testsuite name=\"gate\" tests=\"1\" failures=\"1\" errors=\"0\" skipped=\"0\">\n    <testcase \
             classname=\"gate\" name=\"judged\">\n      <failure type=\"unjudged\" message=\"{}\"/>\n    \
             </testcase>\n  </testsuite>\n",
            escape_xml(&why)
        );
    }
    text + "</testsuites>\n"
}

/// The counts of some figures, and of the case that says that there is none.
fn format_counts(GateAnswer { all, failed, skipped, .. }: GateAnswer, is_empty: bool) -> String {
    let (all, failed) = (all + usize::from(is_empty), failed + usize::from(is_empty));
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
