//! Predicted and measured figures, for a terminal and as a JSON document; `html` shows them too.

use comfy_table::Table;
use latput_model::{PredictionReport, ShortLabels, predicted};
use latput_trial::Results;
use latput_trial::metric::Scale;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::document::{Estimate, convert_estimate};
use crate::format;
use crate::lines::wrap_text;
use crate::plain::render_plain_table;
use crate::printable::make_printable;
use crate::screen::Screen;

/// The version of the document's schema.
pub const SCHEMA: u32 = 1;

/// Predicted and measured figures, with the errors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PredictionDocument {
    /// Version of this schema: 1.
    pub schema: u32,
    /// Testbed of the predictions, such as `sim:twin`.
    pub by: String,
    /// Testbed of the measurements.
    pub measured_on: String,
    /// Each figure of each workload.
    pub columns: Vec<ColumnDocument>,
    /// Errors over the cells that the model was not fitted to, by figure.
    pub errors: Vec<ErrorsDocument>,
    /// Parts that could not be compared.
    pub remarks: Vec<String>,
}

/// One figure under one workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ColumnDocument {
    /// The workload's name.
    pub workload: String,
    /// The figure's name.
    pub metric: String,
    /// The figure under each setting.
    pub points: Vec<PointDocument>,
    /// Kendall's tau between measured and predicted settings; `null` with fewer than three.
    pub kendall_tau: Option<f64>,
    /// Kendall's tau over the pairs of settings that the measurement tells apart; `null` without
    /// such pairs.
    pub kendall_tau_apart: Option<f64>,
    /// Number of pairs of settings that the measurement tells apart.
    pub pairs_apart: usize,
}

/// One cell's figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PointDocument {
    /// The setting's label.
    pub setting: String,
    /// Estimate over the measured runs.
    pub measured: Option<Estimate>,
    /// Predicted value, in the metric's own unit.
    pub predicted: f64,
    /// Predicted over measured value, minus 1; `null` where 0 was measured.
    pub error_ratio: Option<f64>,
    /// Whether the model was fitted to this cell.
    pub fitted: bool,
}

/// Absolute relative errors of one figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ErrorsDocument {
    /// `rate`, or the figure's name.
    pub figure: String,
    /// Number of cells.
    pub cells: usize,
    /// Median of the absolute relative errors.
    pub median_ratio: f64,
    /// 90th percentile of the absolute relative errors.
    pub p90_ratio: f64,
}

impl PredictionDocument {
    /// The document of this prediction of `measured`.
    pub fn new(prediction: &PredictionReport, measured: &Results) -> Self {
        let point = |point: &predicted::PredictedPoint| PointDocument {
            setting: measured.settings[point.setting].label.clone(),
            measured: convert_estimate(&point.measured),
            predicted: point.predicted,
            error_ratio: point.error_ratio(),
            fitted: point.is_fitted,
        };
        let column = |column: &predicted::PredictionColumn| ColumnDocument {
            workload: measured.workloads[column.workload].name.clone(),
            metric: column.metric.name().to_owned(),
            points: column.points.iter().map(point).collect(),
            kendall_tau: column.rank.map(|rank| rank.tau),
            kendall_tau_apart: column.rank.and_then(|rank| rank.tau_apart),
            pairs_apart: column.rank.map_or(0, |rank| rank.apart),
        };
        let errors = |errors: &predicted::PredictionErrors| ErrorsDocument {
            figure: figure_name(errors).to_owned(),
            cells: errors.cells,
            median_ratio: errors.median_ratio,
            p90_ratio: errors.p90_ratio,
        };
        Self {
            schema: SCHEMA,
            by: prediction.by.clone(),
            measured_on: measured.testbed.clone(),
            columns: prediction.columns.iter().map(column).collect(),
            errors: prediction.errors.iter().map(errors).collect(),
            remarks: prediction.remarks.clone(),
        }
    }

    /// The JSON Schema (draft 2020-12) of the document, for `docs/` and for tests.
    pub fn json_schema() -> serde_json::Value {
        schemars::schema_for!(Self).to_value()
    }
}

/// The JSON document, schema 1, with a line feed at its end.
pub fn render_json(prediction: &PredictionReport, measured: &Results) -> String {
    let text = serde_json::to_string(&PredictionDocument::new(prediction, measured));
    text.expect("a document has text keys and finite numbers only, so it always serialises") + "\n"
}

/// A table for each workload, the ranks, and the errors over all.
pub fn render_terminal(
    prediction: &PredictionReport,
    measured: &Results,
    screen: Screen,
) -> String {
    let heading = format!("{} on {}, beside {}", measured.name, measured.testbed, prediction.by);
    let mut text = wrap_text(&heading, "", screen.columns) + "\n";
    let labels = ShortLabels::from_results(measured).labels;
    for columns in prediction.columns.chunk_by(|a, b| a.workload == b.workload) {
        let mut table = Table::new();
        let name = make_printable(&measured.workloads[columns[0].workload].name);
        table.set_header([name.as_str(), "", "measured", "predicted", "error"]);
        for line in columns.iter().flat_map(|column| build_rows(column, measured, &labels)) {
            table.add_row(line);
        }
        text += &(render_plain_table(table, 2..=4, screen.columns).join("\n") + "\n");
        for column in columns {
            text += &format_rank(column)
                .map_or_else(String::new, |ranks| wrap_text(&ranks, "  ", screen.columns));
        }
        text.push('\n');
    }
    for line in summarize_prediction(prediction) {
        text += &wrap_text(&line, "", screen.columns);
    }
    text
}

/// The rows of one figure, with its name in the first.
fn build_rows(
    column: &predicted::PredictionColumn,
    measured: &Results,
    labels: &[String],
) -> Vec<[String; 5]> {
    let traffic = &measured.workloads[column.workload].traffic;
    let sizes = column.points.iter().flat_map(|point| [point.measured.value, point.predicted]);
    let scale = Scale::choose(column.metric, traffic, sizes.fold(0.0, f64::max));
    let line = |(idx, point): (usize, &predicted::PredictedPoint)| {
        let name = if idx == 0 { column.metric.column() } else { "" };
        let interval = format::interval_behind(&point.measured, &scale);
        let mark = if point.is_fitted { "*" } else { "" };
        [
            name.to_owned(),
            format!("{}{mark}", make_printable(&labels[point.setting])),
            scale.add_unit(&format!("{}{interval}", scale.number(point.measured.value))),
            scale.with_unit(point.predicted),
            format_error(point),
        ]
    };
    column.points.iter().enumerate().map(line).collect()
}

/// The error of a prediction, as text.
pub(crate) fn format_error(point: &predicted::PredictedPoint) -> String {
    point.error_ratio().map_or_else(|| "n/a".to_owned(), |error| format::format_change(1.0 + error))
}

/// The rank correlation as text; `None` without one.
pub(crate) fn format_rank(column: &predicted::PredictionColumn) -> Option<String> {
    let rank = column.rank?;
    let of_apart = match rank.tau_apart {
        Some(tau) if rank.apart < rank.pairs => {
            format!(", {tau:.2} over the {} with a proven difference", rank.apart)
        }
        Some(_) => String::new(),
        None => ", none with a proven difference".to_owned(),
    };
    let name = column.metric.column();
    Some(format!(
        "{name}: Kendall tau {:.2} over {} of settings{of_apart}",
        rank.tau,
        format::format_count(rank.pairs, "pair")
    ))
}

/// The errors over all cells, and the remarks.
pub(crate) fn summarize_prediction(prediction: &PredictionReport) -> Vec<String> {
    let mut lines: Vec<String> = prediction
        .errors
        .iter()
        .map(|errors| {
            format!(
                "{}: error at most {} in half of {}, at most {} in nine of ten",
                figure_name(errors),
                format::rough_percent(errors.median_ratio),
                format::format_count(errors.cells, "cell"),
                format::rough_percent(errors.p90_ratio)
            )
        })
        .collect();
    let is_fitted =
        |column: &predicted::PredictionColumn| column.points.iter().any(|point| point.is_fitted);
    if prediction.columns.iter().any(is_fitted) {
        lines.push("* the model was fitted to this cell; it is left out of the errors".to_owned());
    }
    if lines.is_empty() {
        lines.push("Nothing to compare: no figure is in both.".to_owned());
    }
    lines.extend(prediction.remarks.iter().map(|remark| format!("note: {remark}")));
    lines
}

/// The name of a figure; transactions and bits per second are both `rate`.
fn figure_name(errors: &predicted::PredictionErrors) -> &'static str {
    let metric = errors.metric;
    if metric == latput_trial::Metric::TransactionsPerS { "rate" } else { metric.column() }
}
