//! Published figures with their predictions, and accuracy targets.

use schemars::JsonSchema;
use serde::Serialize;

use crate::label::{Label, RowCounts};

/// One published figure.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReproducedFigure {
    /// The file, without its ending.
    pub file: String,
    /// The table, run or section in it.
    pub table: String,
    /// The row of the file, from 1.
    pub row: usize,
    /// The row in words.
    pub what: String,
    /// The column.
    pub column: String,
    /// The profile that predicts it.
    pub profile: String,
    /// Origin of its row: fitted, hand-set or predicted.
    pub label: Label,
    /// The published value.
    pub published: f64,
    /// The predicted value.
    pub predicted: f64,
    /// Lower end of the 90% range over seeds and start phases.
    pub predicted_lo: f64,
    /// Upper end of the range.
    pub predicted_hi: f64,
    /// Predicted over published, minus one. For columns in per cent of CPU time or loss: the
    /// difference in points over 100.
    pub error_ratio: f64,
    /// Why no sound model should reproduce it, if it is listed as an anomaly.
    pub anomaly: Option<String>,
}

/// Errors of one column of one table.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TableErrors {
    /// The file.
    pub file: String,
    /// The table, or empty for all of the file.
    pub table: String,
    /// `rate`, `cpu`, `time`, `points` or `count`.
    pub scale: String,
    /// Number of figures.
    pub figures: usize,
    /// Median of the absolute errors.
    pub median_error_ratio: f64,
    /// Their 90th percentile.
    pub p90_error_ratio: f64,
}

/// One accuracy target.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Target")]
pub struct AccuracyTarget {
    /// The name of the target.
    pub name: String,
    /// Origin of its rows together.
    pub label: Label,
    /// Number of rows by origin.
    pub rows: RowCounts,
    /// The limit.
    pub wanted: String,
    /// The result.
    pub seen: String,
    /// Whether it holds.
    pub holds: bool,
    /// The result for the predicted rows alone, if there are other rows.
    pub predicted_alone: Option<Judged>,
    /// The profiles of its rows.
    pub profiles: Vec<String>,
}

/// The result of a target.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Judged {
    /// The limit.
    pub wanted: String,
    /// The result.
    pub seen: String,
    /// Whether it holds.
    pub holds: bool,
}

/// The scale of a column in documents.
pub fn scale_name(figure: &ReproducedFigure) -> &'static str {
    let column = figure.column.as_str();
    if column.starts_with("util") || column.starts_with("sd_") {
        "cpu"
    } else if column.starts_with("cpu_") || column == "loss_pct" || figure.what.contains("CPU idle")
    {
        "points"
    } else if column == "interrupts_per_s" {
        "count"
    } else if column.ends_with("_ms")
        || column.starts_with("latency_us_")
        || figure.what.contains("round trip")
    {
        "time"
    } else {
        "rate"
    }
}
