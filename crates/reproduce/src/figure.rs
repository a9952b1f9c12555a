//! A published figure beside its prediction, and what is asked of many of them.

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
    /// What its row is: fitted, hand-set or predicted.
    pub label: Label,
    /// As published.
    pub published: f64,
    /// As predicted.
    pub predicted: f64,
    /// Lower end of the 90 % band over seeds and start phases.
    pub predicted_lo: f64,
    /// Upper end.
    pub predicted_hi: f64,
    /// Predicted over published, less one; for columns in per cent of CPU time or loss, the difference in
    /// points over 100.
    pub error_ratio: f64,
    /// Why no sound model should follow it, if it is listed as an anomaly.
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
    /// `rate`, `cpu`, `time` or `points`.
    pub scale: String,
    /// How many figures.
    pub figures: usize,
    /// Median of the absolute errors.
    pub median_error_ratio: f64,
    /// Their 90th percentile.
    pub p90_error_ratio: f64,
}

/// One demand on the predictions.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Target")]
pub struct AccuracyTarget {
    /// What.
    pub name: String,
    /// What its rows are, together.
    pub label: Label,
    /// How many rows are of each sort.
    pub rows: RowCounts,
    /// At most.
    pub wanted: String,
    /// Seen.
    pub seen: String,
    /// Whether it holds.
    pub holds: bool,
    /// The same of the predicted rows alone, where there are others beside them.
    pub predicted_alone: Option<Judged>,
    /// The profiles behind it.
    pub profiles: Vec<String>,
}

/// What a demand comes to.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Judged {
    /// At most.
    pub wanted: String,
    /// Seen.
    pub seen: String,
    /// Whether it holds.
    pub holds: bool,
}

/// The scale of a column, as documents call it.
pub fn scale_name(figure: &ReproducedFigure) -> &'static str {
    let column = figure.column.as_str();
    if column.starts_with("util") || column.starts_with("sd_") {
        "cpu"
    } else if column.starts_with("cpu_") || column == "loss_pct" || figure.what.contains("CPU idle")
    {
        "points"
    } else if column.ends_with("_ms") || figure.what.contains("round trip") {
        "time"
    } else {
        "rate"
    }
}
