//! A comparison of two sets of runs, for a terminal, for Markdown and as a JSON document.

use std::fmt::Write;

use comfy_table::Table;
use latput_model::Comparison;
use latput_model::compare::{FigureComparison, OriginDifference, Verdict};
use latput_trial::Results;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::compared::{method, row};
use crate::document::{Estimate, estimate};
use crate::lines::wrapped;
use crate::plain::plain;
use crate::printable::markdown_escaped as escaped;
use crate::printable::printable;
use crate::screen::Screen;

/// The version of the document's schema.
pub const SCHEMA: u32 = 1;

/// The differences between two sets of runs, with their confidence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ComparisonDocument {
    /// Version of this schema: 1.
    pub schema: u32,
    /// Label of the base setting.
    pub base: String,
    /// Label of the other setting.
    pub other: String,
    /// Whether runs were compared in pairs: of one block, or of one plan run twice in one order.
    pub paired: bool,
    /// Confidence that no claim is false, such as 0.99.
    pub confidence: f64,
    /// Differences below this share do not matter; 0: every difference matters.
    pub smallest_effect_ratio: f64,
    /// Every figure of every workload that both sides have.
    pub figures: Vec<FigureDocument>,
    /// Parts that could not be compared.
    pub remarks: Vec<String>,
    /// What besides the settings differs between the two runs: day, latput, testbed, hosts, kernels, NICs.
    #[serde(default)]
    pub origin: Vec<OriginDocument>,
}

/// One thing besides the settings that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OriginDocument {
    /// `date`, `latput`, `testbed` or `hosts`; or a fact of a host, such as `kernel of sut`.
    pub what: String,
    /// Its value in the first run.
    pub first: String,
    /// Its value in the second.
    pub second: String,
}

/// The comparison of one figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FigureDocument {
    /// The workload's name.
    pub workload: String,
    /// The figure's name.
    pub metric: String,
    /// Estimate of the base over its runs, as in the report of the base alone.
    pub base: Option<Estimate>,
    /// Estimate of the other side over its runs.
    pub other: Option<Estimate>,
    /// The base's figure as it is compared: the geometric mean of the runs that the ratio is made of.
    pub base_compared: f64,
    /// The other side's figure as it is compared.
    pub other_compared: f64,
    /// `other_compared / base_compared`, with its interval at the level of Holm's correction over all comparisons
    /// of the command; `null` where a figure is 0.
    pub ratio: Option<Estimate>,
    /// The chance of a difference at least this large without a true one, not corrected.
    pub p_value: Option<f64>,
    /// The largest loss, as a share, that is not ruled out at the confidence, one-sided and not corrected: 0.02 if a loss
    /// of 2% may hide. `null` with too few runs, or where nothing bounds it.
    #[serde(default)]
    pub largest_loss_ratio: Option<f64>,
    /// `better`, `worse`, `equivalent`, `no difference shown` or `not judged`.
    pub verdict: String,
}

impl ComparisonDocument {
    /// The document of this comparison.
    pub fn new(comparison: &Comparison) -> Self {
        let figure = |figure: &FigureComparison| FigureDocument {
            workload: figure.workload.clone(),
            metric: figure.metric.name().to_owned(),
            base: estimate(&figure.base),
            other: estimate(&figure.other),
            base_compared: figure.compared.0,
            other_compared: figure.compared.1,
            ratio: figure.ratio.as_ref().and_then(estimate),
            p_value: figure.p_value,
            largest_loss_ratio: figure.largest_loss.filter(|loss| *loss < f64::MAX),
            verdict: figure.verdict.name().to_owned(),
        };
        let origin = |it: &OriginDifference| OriginDocument {
            what: it.what.clone(),
            first: it.first.clone(),
            second: it.second.clone(),
        };
        Self {
            schema: SCHEMA,
            base: comparison.base.clone(),
            other: comparison.other.clone(),
            paired: comparison.paired,
            confidence: comparison.method.confidence,
            smallest_effect_ratio: comparison.method.smallest_effect,
            figures: comparison.figures.iter().map(figure).collect(),
            remarks: comparison.remarks.clone(),
            origin: comparison.origin.iter().map(origin).collect(),
        }
    }

    /// The JSON Schema (draft 2020-12) of the document, for `docs/` and for tests.
    pub fn json_schema() -> serde_json::Value {
        schemars::schema_for!(Self).to_value()
    }
}

/// The comparisons of one command: the answer first, then every figure in a table for each workload. `base` has the
/// workloads' units.
pub fn terminal(comparisons: &[Comparison], base: &Results, screen: Screen) -> String {
    let mut text = wrapped(&conclusion(comparisons), "", screen.columns);
    let changed = changed(comparisons, base);
    if !changed.is_empty() {
        let mut table = Table::new();
        table.set_header(CHANGED_HEADER);
        table.add_rows(changed.iter().map(|row| row.each_ref().map(|text| printable(text))));
        text += &(plain(table, 2..=5, screen.columns).join("\n") + "\n");
    }
    let method = method(comparisons);
    if !method.is_empty() {
        text += &wrapped(&method, "", screen.columns);
    }
    for remark in remarks(comparisons) {
        text += &wrapped(&format!("note: {remark}"), "", screen.columns);
    }
    if let Some(origin) = origin(comparisons) {
        text += &wrapped(&format!("note: {origin}"), "", screen.columns);
    }
    for comparison in comparisons {
        text += &("\n".to_owned() + &wrapped(&heading(comparison), "", screen.columns));
        for (workload, figures) in by_workload(comparison) {
            let mut table = Table::new();
            let name = printable(&workload);
            table.set_header([name.as_str(), "first", "second", "change", "interval", ""]);
            table.add_rows(figures.into_iter().map(|figure| row(figure, base)));
            text += &("\n".to_owned() + &plain(table, 1..=4, screen.columns).join("\n") + "\n");
        }
    }
    text
}

/// The comparisons as Markdown, for a pull request.
pub fn markdown(comparisons: &[Comparison], base: &Results) -> String {
    let mut text = format!("{}\n\n", escaped(&conclusion(comparisons)));
    let line = |row: &[String]| {
        let cells: Vec<String> = row.iter().map(|cell| escaped(cell)).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let changed = changed(comparisons, base);
    if !changed.is_empty() {
        text += &line(&CHANGED_HEADER.map(str::to_owned));
        text += "|---|---|---:|---:|---:|---:|---|\n";
        text.extend(changed.iter().map(|row| line(row)));
        text.push('\n');
    }
    let _ = writeln!(text, "{}", escaped(&method(comparisons)));
    for remark in remarks(comparisons) {
        let _ = writeln!(text, "\nNote: {}", escaped(remark));
    }
    if let Some(origin) = origin(comparisons) {
        let _ = writeln!(text, "\nNote: {}", escaped(&origin));
    }
    for comparison in comparisons {
        let _ = writeln!(text, "\n{}", escaped(&heading(comparison)));
        for (workload, figures) in by_workload(comparison) {
            let name = escaped(&workload);
            let head = "| | first | second | change | interval | |\n|---|---:|---:|---:|---:|---|";
            let _ = writeln!(text, "\n## {name}\n\n{head}");
            text.extend(figures.into_iter().map(|figure| line(&row(figure, base))));
        }
    }
    text
}

/// The JSON document, schema 1, with a line feed at its end.
pub fn json(comparison: &Comparison) -> String {
    let text = serde_json::to_string(&ComparisonDocument::new(comparison));
    text.expect("a document has text keys and finite numbers only, so it always serialises") + "\n"
}

pub(crate) const CHANGED_HEADER: [&str; 7] =
    ["workload", "figure", "first", "second", "change", "interval", ""];

/// The figures that are proven worse, then those that are proven better, with their workload and, of several pairs
/// of settings, the setting.
pub(crate) fn changed(comparisons: &[Comparison], base: &Results) -> Vec<[String; 7]> {
    let of = |wanted: Verdict| {
        comparisons.iter().flat_map(move |comparison| {
            let figures = comparison.figures.iter().filter(move |it| it.verdict == wanted);
            figures.map(move |figure| {
                let [name, first, second, change, interval, verdict] = row(figure, base);
                let place = place(comparisons, comparison, figure);
                [place, name, first, second, change, interval, verdict]
            })
        })
    };
    of(Verdict::Worse).chain(of(Verdict::Better)).collect()
}

/// The workload of a figure; where several pairs of settings are compared, with the setting.
pub(crate) fn place(
    comparisons: &[Comparison],
    comparison: &Comparison,
    figure: &FigureComparison,
) -> String {
    match comparisons {
        [_] => figure.workload.clone(),
        _ => format!("{}, {}", figure.workload, comparison.other),
    }
}

pub(crate) fn heading(comparison: &Comparison) -> String {
    let Comparison { base, other, paired, .. } = comparison;
    let how = if *paired {
        "in pairs of one block; a figure is the geometric mean over the pairs"
    } else {
        "as two groups; a figure is the geometric mean of its runs"
    };
    format!("first: {base}; second: {other}; compared {how}; the change is their ratio")
}

/// The number of each verdict, in words.
pub(crate) fn conclusion(comparisons: &[Comparison]) -> String {
    use Verdict::{Better, Equivalent, NoDifferenceShown, NotJudged, Worse};
    let of = |verdict: Verdict| {
        let figures = comparisons.iter().flat_map(|comparison| &comparison.figures);
        let count = figures.filter(|figure| figure.verdict == verdict).count();
        (count > 0).then(|| format!("{count} {}", verdict.name()))
    };
    let verdicts = [Worse, Better, Equivalent, NoDifferenceShown, NotJudged];
    let counted: Vec<String> = verdicts.into_iter().filter_map(of).collect();
    if counted.is_empty() {
        return "Nothing to compare: no workload is in both files.".to_owned();
    }
    format!("The second against the first: {}.", counted.join(", "))
}

/// What could not be compared, each once.
pub(crate) fn remarks(comparisons: &[Comparison]) -> Vec<&str> {
    let mut remarks: Vec<&str> = Vec::new();
    for remark in comparisons.iter().flat_map(|comparison| &comparison.remarks) {
        if !remarks.contains(&remark.as_str()) {
            remarks.push(remark);
        }
    }
    remarks
}

/// What besides the settings differs, in a line: `the two runs differ in kernel of sut (6.1.0, then 6.12.5)`.
pub(crate) fn origin(comparisons: &[Comparison]) -> Option<String> {
    let differences = &comparisons.first()?.origin;
    let one = |it: &OriginDifference| format!("{} ({}, then {})", it.what, it.first, it.second);
    let all: Vec<String> = differences.iter().map(one).collect();
    (!all.is_empty()).then(|| format!("the runs differ in {}", all.join("; ")))
}

/// One figure in a sentence: `worse: 91.4 us, then 123 us: +34.6% (+20.1 to +50.8%)`.
pub fn sentence(figure: &FigureComparison, results: &Results) -> String {
    let [_, first, second, change, interval, verdict] = row(figure, results);
    let interval = if interval.is_empty() { interval } else { format!(" ({interval})") };
    format!("{verdict}: {first}, then {second}: {change}{interval}")
}

/// The figures of each workload.
pub(crate) fn by_workload(comparison: &Comparison) -> Vec<(String, Vec<&FigureComparison>)> {
    let mut groups: Vec<(String, Vec<&FigureComparison>)> = Vec::new();
    for figure in &comparison.figures {
        match groups.last_mut() {
            Some((workload, figures)) if *workload == figure.workload => figures.push(figure),
            _ => groups.push((figure.workload.clone(), vec![figure])),
        }
    }
    groups
}
