//! pgbench, the benchmark of `PostgreSQL`.

use latput_trial::Metric;
use latput_trial::figures::{ProgramFigures, Text};
use latput_trial::metric::{PreferredDirection, Unit};

use super::found::{
    FigureCollector, MS, leading_number, number_after_label, parse_measurement, text_after_label,
    to_count,
};
use crate::read_error::ReadError;
use crate::rules::check_closed_loop_latency;

/// Half of the last digit that it prints of a mean.
const STEP_NS: f64 = 500.0;

pub(super) fn read(text: &Text) -> Result<ProgramFigures, ReadError> {
    let mut found = FigureCollector::default();
    // 200/200 where a number was asked for.
    let processed = text_after_label(text, "number of transactions actually processed:")?;
    let done = processed.map_or(Ok(None), leading_number)?.and_then(to_count);
    let asked = processed.and_then(|text| text.split_once('/'));
    let asked = asked.map_or(Ok(None), |(_, asked)| leading_number(asked))?;
    found.set_transactions(done)?;
    let (rate, rate_of_clients) = parse_rates(text)?;
    found.add_required(Metric::TransactionsPerS, rate, "`tps =` without connection times")?;
    let latency = |label: &str| -> Result<Option<f64>, ReadError> {
        let value = text_after_label(text, label)?.map(|rest| {
            let rest = rest.strip_prefix("(including failures)").unwrap_or(rest);
            rest.trim_start_matches(['=', ':', ' '])
        });
        Ok(value.map(|value| parse_measurement(value, "ms")).transpose()?.map(|ms| ms * MS))
    };
    let mean = latency("latency average")?;
    found.add_required(Metric::LatencyNsMean, mean, "`latency average`")?;
    let stddev = latency("latency stddev")?;
    found.add_custom("latency_stddev_ns", Unit::Nanoseconds, PreferredDirection::Lower, stddev)?;
    found.set_window(done.zip(rate).map(|(done, rate)| done as f64 / rate))?;
    // Since PostgreSQL 15. A client that was aborted leaves transactions undone, which no version counts as failed.
    let failed = number_after_label(text, "number of failed transactions:")?.and_then(to_count);
    let undone = asked.and_then(to_count).zip(done).map(|(asked, done)| asked.saturating_sub(done));
    found.set_errors(failed.max(undone))?;
    let clients = number_after_label(text, "number of clients:")?;
    // With `-R` the latency has the wait for a client in it.
    let clients = clients.filter(|_| !text.as_str().contains("rate limit schedule lag:"));
    if let Some(((clients, rate), mean)) = clients.zip(rate_of_clients).zip(mean) {
        let tried = failed.zip(done).map_or(0.0, |(failed, done)| failed as f64 / done as f64);
        // A measured latency is no longer than the clients' time. Else it is computed, in some versions with failed ones.
        let most = if stddev.is_some() { f64::INFINITY } else { rate * (1.0 + tried) };
        check_closed_loop_latency(clients, [rate, most], mean, STEP_NS)?;
    }
    found.finish()
}

/// The rate without connection times, and the one that pgbench computes the mean latency from where it measures none.
/// Versions before 14 print a rate with connection times too, first.
fn parse_rates(text: &Text) -> Result<(Option<f64>, Option<f64>), ReadError> {
    let lines = || text.as_str().lines().filter(|line| line.trim_start().starts_with("tps = "));
    let is_wanted = |line: &&str| {
        line.contains("without initial connection time")
            || line.contains("excluding connections establishing")
    };
    let number = |line: Option<&str>| {
        let rate = line.and_then(|line| line.trim_start().strip_prefix("tps = "));
        rate.map_or(Ok(None), leading_number)
    };
    Ok((number(lines().find(is_wanted))?, number(lines().next())?))
}
