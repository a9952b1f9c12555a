//! pgbench, the benchmark of `PostgreSQL`.

use latput_trial::Metric;
use latput_trial::figures::{ProgramFigures, Text};
use latput_trial::metric::{PreferredDirection, Unit};

use super::found::{Found, MS, after, count, leading, measured};
use crate::read_error::ReadError;

pub(super) fn read(text: &Text) -> Result<ProgramFigures, ReadError> {
    let mut found = Found::default();
    // 200/200 where a number was asked for.
    let processed = after(text, "number of transactions actually processed:")?;
    let done = processed.and_then(leading).and_then(count);
    let asked =
        processed.and_then(|text| text.split_once('/')).and_then(|(_, asked)| leading(asked));
    found.transactions(done)?;
    let rate = rate(text);
    found.need(Metric::TransactionsPerS, rate, "`tps =` without connection times")?;
    let latency = |label: &str| -> Result<Option<f64>, String> {
        let value = after(text, label)?.map(|rest| rest.trim_start_matches(['=', ':', ' ']));
        Ok(value.map(|value| measured(value, "ms")).transpose()?.map(|ms| ms * MS))
    };
    found.need(Metric::LatencyNsMean, latency("latency average")?, "`latency average`")?;
    let stddev = latency("latency stddev")?;
    found.own("latency_stddev_ns", Unit::Nanoseconds, PreferredDirection::Lower, stddev)?;
    found.window(done.zip(rate).map(|(done, rate)| done as f64 / rate))?;
    // Since PostgreSQL 15. A client that was aborted leaves transactions undone, which no version counts as failed.
    let failed = after(text, "number of failed transactions:")?;
    let failed = failed.and_then(leading).and_then(count);
    let undone = asked.and_then(count).zip(done).map(|(asked, done)| asked.saturating_sub(done));
    found.errors(failed.max(undone))?;
    found.finish()
}

/// Versions before 14 print a rate with connection times too.
fn rate(text: &Text) -> Option<f64> {
    let is_wanted = |line: &&str| {
        line.contains("without initial connection time")
            || line.contains("excluding connections establishing")
    };
    let mut rates = text.as_str().lines().filter(is_wanted);
    leading(rates.next()?.trim_start().strip_prefix("tps = ")?)
}
