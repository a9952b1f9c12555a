//! A comparison of two sets of runs, for a terminal, for Markdown and as a JSON document.

use std::fmt::Write;

use comfy_table::Table;
use latput_model::Comparison;
use latput_model::compare::{FigureComparison, Verdict};
use latput_trial::Results;
use latput_trial::metric::Scale;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::document::{Estimate, estimate};
use crate::export::escaped;
use crate::format;
use crate::plain::plain;
use crate::printable::printable;
use crate::table::{Screen, wrapped};

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
    /// Differences below this share do not matter; `null`: every difference matters.
    pub smallest_effect_ratio: Option<f64>,
    /// Every figure of every workload that both sides have.
    pub figures: Vec<FigureDocument>,
    /// Parts that could not be compared.
    pub remarks: Vec<String>,
}

/// The comparison of one figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FigureDocument {
    /// The workload's name.
    pub workload: String,
    /// The figure's name.
    pub metric: String,
    /// Estimate of the base over its runs.
    pub base: Option<Estimate>,
    /// Estimate of the other side over its runs.
    pub other: Option<Estimate>,
    /// `other / base`, with its interval at the level of Holm's correction; `null` where a figure
    /// is 0.
    pub ratio: Option<Estimate>,
    /// The chance of a difference at least this large without a true one, not corrected.
    pub p_value: Option<f64>,
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
            ratio: figure.ratio.as_ref().and_then(estimate),
            p_value: figure.p_value,
            verdict: figure.verdict.name().to_owned(),
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
        }
    }

    /// The JSON Schema (draft 2020-12) of the document, for `docs/` and for tests.
    pub fn json_schema() -> serde_json::Value {
        schemars::schema_for!(Self).to_value()
    }
}

/// The comparison as tables, one for each workload; `base` has the workloads' units.
pub fn terminal(comparison: &Comparison, base: &Results, screen: Screen) -> String {
    let mut text = wrapped(&heading(comparison), "", screen.columns) + "\n";
    for (workload, figures) in by_workload(comparison) {
        let mut table = Table::new();
        let name = printable(&workload);
        table.set_header([name.as_str(), "first", "second", "change", "interval", ""]);
        table.add_rows(figures.into_iter().map(|figure| row(figure, base)));
        text += &(plain(table, 1..=4).join("\n") + "\n\n");
    }
    text += &wrapped(&conclusion(comparison), "", screen.columns);
    for remark in &comparison.remarks {
        text += &wrapped(&format!("note: {remark}"), "", screen.columns);
    }
    text
}

/// The comparison as Markdown.
pub fn markdown(comparison: &Comparison, base: &Results) -> String {
    let mut text = format!("{}\n\n", escaped(&heading(comparison)));
    for (workload, figures) in by_workload(comparison) {
        let _ = writeln!(
            text,
            "## {}\n\n| | first | second | change | interval | |\n|---|---:|---:|---:|---:|---|",
            escaped(&workload)
        );
        for figure in figures {
            let _ = writeln!(text, "| {} |", row(figure, base).join(" | "));
        }
        text.push('\n');
    }
    let _ = writeln!(text, "{}", escaped(&conclusion(comparison)));
    for remark in &comparison.remarks {
        let _ = writeln!(text, "\nNote: {}", escaped(remark));
    }
    text
}

/// The JSON document, schema 1, with a line feed at its end.
pub fn json(comparison: &Comparison) -> String {
    let text = serde_json::to_string(&ComparisonDocument::new(comparison));
    text.expect("a document has text keys and finite numbers only, so it always serialises") + "\n"
}

fn heading(comparison: &Comparison) -> String {
    let Comparison { base, other, paired, method, figures, .. } = comparison;
    let how = if *paired { "in pairs" } else { "as two groups" };
    let judged = figures.iter().filter(|figure| figure.p_value.is_some()).count();
    let effect = method.smallest_effect.map_or_else(String::new, |effect| {
        format!("; differences below {} are of no interest", format::percent(effect))
    });
    format!(
        "first: {base}; second: {other}; compared {how}, {} sure of all {} together (Holm){effect}",
        format::percent(method.confidence),
        format::count(judged, "comparison"),
    )
}

/// The number of each verdict, in words.
fn conclusion(comparison: &Comparison) -> String {
    use Verdict::{Better, Equivalent, NoDifferenceShown, NotJudged, Worse};
    let of = |verdict: Verdict| {
        let count = comparison.figures.iter().filter(|figure| figure.verdict == verdict).count();
        (count > 0).then(|| format!("{count} {}", verdict.name()))
    };
    let verdicts = [Better, Worse, Equivalent, NoDifferenceShown, NotJudged];
    let counted: Vec<String> = verdicts.into_iter().filter_map(of).collect();
    if counted.is_empty() {
        return "The two have no figure in common.".to_owned();
    }
    format!("The second against the first: {}.", counted.join(", "))
}

/// The texts of one figure: name, base, other, change, interval and verdict.
fn row(figure: &FigureComparison, results: &Results) -> [String; 6] {
    let any = latput_trial::Traffic::tcp_rr(0);
    let traffic = results.workloads.get(figure.workload_idx).map_or(any, |w| w.traffic);
    let largest = figure.base.value.abs().max(figure.other.value.abs());
    let scale = Scale::of(figure.metric, &traffic, largest);
    let ratio = figure.ratio.as_ref();
    [
        figure.metric.column().to_owned(),
        scale.with_unit(figure.base.value),
        scale.with_unit(figure.other.value),
        ratio.map_or_else(|| "n/a".to_owned(), |ratio| format::change(ratio.value)),
        ratio.and_then(format::change_interval).unwrap_or_default(),
        figure.verdict.name().to_owned(),
    ]
}

fn by_workload(comparison: &Comparison) -> Vec<(String, Vec<&FigureComparison>)> {
    let mut groups: Vec<(String, Vec<&FigureComparison>)> = Vec::new();
    for figure in &comparison.figures {
        match groups.last_mut() {
            Some((workload, figures)) if *workload == figure.workload => figures.push(figure),
            _ => groups.push((figure.workload.clone(), vec![figure])),
        }
    }
    groups
}
