//! A comparison as `JUnit` XML: a suite for each pair of settings, a test case for each figure of a workload. A figure
//! that the gate fails has failed, and one that cannot be judged is skipped.

use std::fmt::Write;

use latput_model::Comparison;
use latput_model::compare::FigureComparison;
use latput_trial::Results;

use crate::comparison::sentence;
use crate::gate::{Gate, GateAnswer, JudgedFigure};
use crate::printable::printable;

/// The comparisons as one XML document. `base` has the workloads' units.
pub fn junit(comparisons: &[Comparison], base: &Results, gate: Gate) -> String {
    let mut text = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n".to_owned();
    let _ = writeln!(
        text,
        "<testsuites name=\"latput\"{}>",
        counts(GateAnswer::new(gate, comparisons))
    );
    for comparison in comparisons {
        // Two runs of one setting: that they are two, the figures say.
        let name = if comparison.other == comparison.base {
            comparison.other.clone()
        } else {
            format!("{} against {}", comparison.other, comparison.base)
        };
        let counts = counts(GateAnswer::of_figures(gate, &comparison.figures));
        let _ = writeln!(text, "  <testsuite name=\"{}\"{counts}>", escaped(&name));
        for figure in &comparison.figures {
            text += &case(comparison, figure, base, gate);
        }
        text += "  </testsuite>\n";
    }
    text + "</testsuites>\n"
}

fn counts(GateAnswer { all, failed, skipped, .. }: GateAnswer) -> String {
    format!(" tests=\"{all}\" failures=\"{failed}\" errors=\"0\" skipped=\"{skipped}\"")
}

fn case(comparison: &Comparison, figure: &FigureComparison, base: &Results, gate: Gate) -> String {
    let class = format!("{}.{}", comparison.other, figure.workload);
    let head = format!(
        "    <testcase classname=\"{}\" name=\"{}\"",
        escaped(&class),
        figure.metric.name()
    );
    let sentence = sentence(figure, base);
    match gate.judge(figure) {
        JudgedFigure::Failed(kind, why) => {
            let sentence = escaped(&(sentence + &why));
            format!(
                "{head}>\n      <failure type=\"{kind}\" message=\"{sentence}\"/>\n    </testcase>\n"
            )
        }
        JudgedFigure::Skipped => {
            let sentence = escaped(&sentence);
            format!("{head}>\n      <skipped message=\"{sentence}\"/>\n    </testcase>\n")
        }
        JudgedFigure::Passed => {
            let sentence = escaped(&sentence);
            format!("{head}>\n      <system-out>{sentence}</system-out>\n    </testcase>\n")
        }
    }
}

/// Text as XML content and as an attribute's value.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for c in printable(text).chars() {
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
