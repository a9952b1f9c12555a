//! redis-benchmark and valkey-benchmark with `--csv` (6.2 and later).

use latput_trial::Metric;
use latput_trial::figures::{ProgramFigures, Text};

use super::found::{FigureCollector, MS, leading_number};
use crate::read_error::ReadError;

pub(super) fn read(text: &Text) -> Result<ProgramFigures, ReadError> {
    let mut found = FigureCollector::default();
    for (column, metric, factor) in [
        ("rps", Metric::TransactionsPerS, 1.0),
        ("avg_latency_ms", Metric::LatencyNsMean, MS),
        ("p50_latency_ms", Metric::LatencyNsP50, MS),
        ("p99_latency_ms", Metric::LatencyNsP99, MS),
        ("max_latency_ms", Metric::LatencyNsMax, MS),
    ] {
        let fields =
            text.column(column).ok_or_else(|| format!("CSV column `{column}` is not there"))?;
        if fields.len() > 1 {
            return Err(format!("it has {} tests, where one is needed", fields.len()).into());
        }
        let value = fields.first().map_or(Ok(None), |field| leading_number(field))?;
        found.add_required(metric, value.map(|value| value * factor), column)?;
    }
    found.finish()
}
