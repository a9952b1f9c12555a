//! A comparison in the Kernel Test Anything Protocol, version 1 (Documentation/dev-tools/ktap.rst): a test for each
//! workload under each pair of settings, a subtest for each figure. One that is proven worse is `not ok`, and one that
//! cannot be judged is skipped.

use std::fmt::Write;

use latput_model::Comparison;
use latput_model::compare::{FigureComparison, Verdict};
use latput_trial::Results;

use crate::comparison::{by_workload, place, sentence};
use crate::printable::printable;

const VERSION: &str = "KTAP version 1";

/// The comparisons as KTAP. `base` has the workloads' units.
pub fn ktap(comparisons: &[Comparison], base: &Results) -> String {
    let tests: Vec<(String, Vec<&FigureComparison>)> = comparisons
        .iter()
        .flat_map(|comparison| {
            let workloads = by_workload(comparison).into_iter();
            workloads.filter_map(|(_, figures)| {
                Some((place(comparisons, comparison, figures.first()?), figures))
            })
        })
        .collect();
    let mut text = format!("{VERSION}\n1..{}\n", tests.len());
    for (number, (name, figures)) in (1..).zip(&tests) {
        let _ = writeln!(text, "  {VERSION}\n  1..{}", figures.len());
        for (number, figure) in (1..).zip(figures) {
            text += &subtest(number, figure, base);
        }
        let is_worse = figures.iter().any(|figure| figure.verdict == Verdict::Worse);
        let result = if is_worse { "not ok" } else { "ok" };
        let all_skipped = figures.iter().all(|figure| figure.verdict == Verdict::NotJudged);
        let skip = if all_skipped { " # SKIP too few trials" } else { "" };
        let _ = writeln!(text, "{result} {number} {}{skip}", described(name));
    }
    text
}

fn subtest(number: usize, figure: &FigureComparison, base: &Results) -> String {
    let name = figure.metric.name();
    let sentence = sentence(figure, base);
    let (result, directive) = match figure.verdict {
        Verdict::Worse => ("not ok", ""),
        Verdict::NotJudged => ("ok", " # SKIP too few trials"),
        _ => ("ok", ""),
    };
    format!("  # {name}: {sentence}\n  {result} {number} {name}{directive}\n")
}

/// A description may have any characters but `#`.
fn described(name: &str) -> String {
    printable(name).replace('#', "_")
}
