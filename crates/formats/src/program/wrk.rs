//! wrk and wrk2, with or without `--latency`.

use latput_stats::Histogram;
use latput_trial::Metric;
use latput_trial::figures::{ProgramFigures, Text};
use latput_units::Nanos;

use super::found::{FigureCollector, MS, S, leading_number, text_after_label, time_ns, to_count};
use crate::read_error::ReadError;

/// The head of wrk2's percentile spectrum, by its first words.
const SPECTRUM: [&str; 3] = ["Value", "Percentile", "TotalCount"];

pub(super) fn read(text: &Text) -> Result<ProgramFigures, ReadError> {
    let mut found = FigureCollector::default();
    let rate = text_after_label(text, "Requests/sec:")?.and_then(leading_number);
    found.add_required(Metric::TransactionsPerS, rate, "`Requests/sec:`")?;
    add_latency(&mut found, text)?;
    for line in text.as_str().lines() {
        // 37147 requests in 1.10s, 8.50MB read
        if let Some((requests, rest)) = line.trim().split_once(" requests in ") {
            found.set_transactions(leading_number(requests).and_then(to_count))?;
            let seconds = rest.split(',').next().and_then(parse_time).map(|ns| ns / S);
            found.set_window(seconds)?;
        }
    }
    let refused = text_after_label(text, "Non-2xx or 3xx responses:")?
        .and_then(leading_number)
        .unwrap_or(0.0);
    // Socket errors: connect 0, read 0, write 0, timeout 5
    let broken = text_after_label(text, "Socket errors:")?.unwrap_or_default();
    let broken: f64 = broken.split_whitespace().filter_map(leading_number).sum();
    found.set_errors(to_count(refused + broken))?;
    if let Some(histogram) = parse_spectrum(text)? {
        found.add_histogram(histogram);
    }
    found.finish()
}

/// Mean, maximum and percentiles.
fn add_latency(found: &mut FigureCollector, text: &Text) -> Result<(), ReadError> {
    let mut is_distribution = false;
    let mut is_known = false;
    for line in text.as_str().lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            // Latency   284.22us  619.70us   5.60ms   91.77%
            ["Latency", mean, _, max, share] if share.ends_with('%') => {
                found.add_required(Metric::LatencyNsMean, parse_time(mean), "the mean latency")?;
                found.add_required(Metric::LatencyNsMax, parse_time(max), "the maximum latency")?;
                is_known = true;
            }
            ["Latency", "Distribution", ..] => is_distribution = true,
            // 99%   12.95ms
            [percent, value] if is_distribution && percent.ends_with('%') => {
                let value = parse_time(value).ok_or_else(|| format!("`{percent}` has no time"))?;
                found.add_percentile(leading_number(percent).unwrap_or(f64::NAN), value)?;
            }
            // A second distribution is of uncorrected latency.
            ["Detailed", ..] => break,
            _ => {}
        }
    }
    if is_known { Ok(()) } else { Err("the line `Latency` is not there".into()) }
}

/// Times of wrk: up to minutes (`1.20m`) and hours.
fn parse_time(text: &str) -> Option<f64> {
    let text = text.trim();
    let long = |unit: char, seconds: f64| {
        let number: f64 = text.strip_suffix(unit)?.parse().ok()?;
        Some(number * seconds * S)
    };
    long('m', 60.0).or_else(|| long('h', 3600.0)).or_else(|| time_ns(text))
}

/// The first percentile spectrum of wrk2, in milliseconds.
fn parse_spectrum(text: &Text) -> Result<Option<Histogram>, String> {
    let mut lines = text.as_str().lines();
    let is_head = |line: &str| line.split_whitespace().take(3).eq(SPECTRUM);
    if !lines.any(is_head) {
        return Ok(None);
    }
    let mut histogram = Histogram::new();
    let mut before = 0;
    for line in lines.take_while(|line| !line.trim_start().starts_with('#')) {
        if line.trim().is_empty() {
            continue;
        }
        let mut numbers = line.split_whitespace().map(str::parse::<f64>);
        let (Some(Ok(value_ms)), Some(Ok(_)), Some(Ok(total))) =
            (numbers.next(), numbers.next(), numbers.next())
        else {
            return Err("the percentile spectrum has a line of another form".to_owned());
        };
        let total = to_count(total).filter(|total| *total >= before);
        let (Some(total), true) = (total, value_ms.is_finite() && value_ms >= 0.0) else {
            return Err("the counts of the percentile spectrum do not grow".to_owned());
        };
        if total > before {
            histogram.record_n(Nanos::from_secs_f64(value_ms * MS / S), total - before);
        }
        before = total;
    }
    Ok(Some(histogram))
}
