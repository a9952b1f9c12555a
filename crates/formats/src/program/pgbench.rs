//! pgbench, the benchmark of `PostgreSQL`.

use latput_trial::Metric;
use latput_trial::figures::{ProgramFigures, Text};
use latput_trial::metric::{PreferredDirection, Unit};

use super::found::{
    FigureCollector, MS, leading_number, number_after_label, parse_measurement, text_after_label,
    to_count,
};
use crate::read_error::ReadError;

pub(super) fn read(text: &Text) -> Result<ProgramFigures, ReadError> {
    let mut found = FigureCollector::default();
    // 200/200 where a number was asked for.
    let processed = text_after_label(text, "number of transactions actually processed:")?;
    let done = processed.map_or(Ok(None), leading_number)?.and_then(to_count);
    let asked = processed.and_then(|text| text.split_once('/'));
    let asked = asked.map_or(Ok(None), |(_, asked)| leading_number(asked))?;
    found.set_transactions(done)?;
    let rate = parse_rate(text)?;
    found.add_required(Metric::TransactionsPerS, rate, "`tps =` without connection times")?;
    let latency = |label: &str| -> Result<Option<f64>, ReadError> {
        let value =
            text_after_label(text, label)?.map(|rest| rest.trim_start_matches(['=', ':', ' ']));
        Ok(value.map(|value| parse_measurement(value, "ms")).transpose()?.map(|ms| ms * MS))
    };
    found.add_required(Metric::LatencyNsMean, latency("latency average")?, "`latency average`")?;
    let stddev = latency("latency stddev")?;
    found.add_custom("latency_stddev_ns", Unit::Nanoseconds, PreferredDirection::Lower, stddev)?;
    found.set_window(done.zip(rate).map(|(done, rate)| done as f64 / rate))?;
    // Since PostgreSQL 15. A client that was aborted leaves transactions undone, which no version counts as failed.
    let failed = number_after_label(text, "number of failed transactions:")?.and_then(to_count);
    let undone = asked.and_then(to_count).zip(done).map(|(asked, done)| asked.saturating_sub(done));
    found.set_errors(failed.max(undone))?;
    found.finish()
}

/// Versions before 14 print a rate with connection times too.
fn parse_rate(text: &Text) -> Result<Option<f64>, ReadError> {
    let is_wanted = |line: &&str| {
        line.contains("without initial connection time")
            || line.contains("excluding connections establishing")
    };
    let mut rates = text.as_str().lines().filter(is_wanted);
    let rate = rates.next().and_then(|line| line.trim_start().strip_prefix("tps = "));
    rate.map_or(Ok(None), leading_number)
}
