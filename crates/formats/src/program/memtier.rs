//! `memtier_benchmark`: the row `Totals` of its table. Times are in milliseconds.

use latput_trial::Metric;
use latput_trial::figures::{ProgramFigures, Text};

use super::found::{FigureCollector, MS, whole_number};
use crate::read_error::ReadError;

pub(super) fn read(text: &Text) -> Result<ProgramFigures, ReadError> {
    let mut found = FigureCollector::default();
    let mut columns: Vec<&str> = Vec::new();
    let mut is_there = false;
    // With `-x` it prints the best and the worst run as well, and the average last.
    let all = text.as_str();
    let wanted = all.rfind("AGGREGATED AVERAGE RESULTS").map_or(all, |at| &all[at..]);
    for line in wanted.lines() {
        if line.starts_with("Type") && line.contains("Ops/sec") {
            // Names of columns have single spaces: `p99 Latency`.
            columns = line.split("  ").map(str::trim).filter(|name| !name.is_empty()).collect();
        } else if line.starts_with("Totals") {
            let fields: Vec<&str> = line.split_whitespace().collect();
            if fields.len() != columns.len() {
                return Err("the row `Totals` does not fit its header".into());
            }
            add_totals(&mut found, &columns, &fields)?;
            is_there = true;
        }
    }
    if is_there { found.finish() } else { Err("the row `Totals` is not there".into()) }
}

fn add_totals(
    found: &mut FigureCollector,
    columns: &[&str],
    fields: &[&str],
) -> Result<(), ReadError> {
    let value = |name: &str| {
        let at = columns.iter().position(|column| *column == name);
        at.map_or(Ok(None), |at| whole_number(fields[at]))
    };
    let ms = |name: &str| -> Result<Option<f64>, ReadError> { Ok(value(name)?.map(|ms| ms * MS)) };
    found.add_required(Metric::TransactionsPerS, value("Ops/sec")?, "Ops/sec")?;
    // Before 1.3 the column of means was called `Latency`.
    let mean = ms("Avg. Latency")?.or(ms("Latency")?);
    found.add_required(Metric::LatencyNsMean, mean, "Latency")?;
    found.add_optional(Metric::LatencyNsP50, ms("p50 Latency")?)?;
    found.add_optional(Metric::LatencyNsP99, ms("p99 Latency")?)?;
    found.add_optional(Metric::LatencyNsP999, ms("p99.9 Latency")?)
}
