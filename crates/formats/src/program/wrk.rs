//! wrk and wrk2, with or without `--latency`.

use latput_stats::Histogram;
use latput_trial::Metric;
use latput_trial::figures::{ProgramFigures, Text};
use latput_units::Nanos;

use super::found::{
    FigureCollector, MS, S, leading_number, number_after_label, number_in_units, text_after_label,
    to_count, whole_number,
};
use crate::read_error::ReadError;

/// Units of times in nanoseconds.
const TIMES: &[(&str, f64)] = &[("us", 1e3), ("ms", 1e6), ("s", 1e9), ("m", 60e9), ("h", 3_600e9)];
/// The head of wrk2's percentile spectrum, by its first words.
const SPECTRUM: [&str; 3] = ["Value", "Percentile", "TotalCount"];

pub(super) fn read(text: &Text) -> Result<ProgramFigures, ReadError> {
    let mut found = FigureCollector::default();
    let rate = number_after_label(text, "Requests/sec:")?;
    found.add_required(Metric::TransactionsPerS, rate, "`Requests/sec:`")?;
    add_latency(&mut found, text)?;
    for line in text.as_str().lines() {
        // 37147 requests in 1.10s, 8.50MB read
        if let Some((requests, rest)) = line.trim().split_once(" requests in ") {
            found.set_transactions(leading_number(requests)?.and_then(to_count))?;
            let time = rest.split(", ").next().unwrap_or_default();
            found.set_window(number_in_units(time, TIMES)?.map(|ns| ns / S))?;
        }
    }
    let refused = number_after_label(text, "Non-2xx or 3xx responses:")?.unwrap_or(0.0);
    // Socket errors: connect 0, read 0, write 0, timeout 5
    let broken = text_after_label(text, "Socket errors:")?.unwrap_or_default();
    let broken = broken.split_whitespace().map(leading_number);
    let broken: f64 = broken.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().sum();
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
                let [mean, max] = [number_in_units(mean, TIMES)?, number_in_units(max, TIMES)?];
                found.add_required(Metric::LatencyNsMean, mean, "the mean latency")?;
                found.add_required(Metric::LatencyNsMax, max, "the maximum latency")?;
                is_known = true;
            }
            ["Latency", "Distribution", ..] => is_distribution = true,
            // 99%   12.95ms
            [percent, value] if is_distribution && percent.ends_with('%') => {
                let value = number_in_units(value, TIMES)?;
                let value = value.ok_or_else(|| format!("`{percent}` has no time"))?;
                found.add_percentile(leading_number(percent)?.unwrap_or(f64::NAN), value)?;
            }
            // A second distribution is of uncorrected latency.
            ["Detailed", ..] => break,
            _ => {}
        }
    }
    if is_known { Ok(()) } else { Err("the line `Latency` is not there".into()) }
}

/// The first percentile spectrum of wrk2, in milliseconds.
fn parse_spectrum(text: &Text) -> Result<Option<Histogram>, ReadError> {
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
        let numbers: Vec<Option<f64>> =
            line.split_whitespace().take(3).map(whole_number).collect::<Result<_, _>>()?;
        let [Some(value_ms), Some(_), Some(total)] = numbers[..] else {
            return Err("the percentile spectrum has a line of another form".into());
        };
        let total = to_count(total).filter(|total| *total >= before);
        let (Some(total), true) = (total, value_ms.is_finite() && value_ms >= 0.0) else {
            return Err("the counts of the percentile spectrum do not grow".into());
        };
        if total > before {
            histogram.record_n(Nanos::from_secs_f64(value_ms * MS / S), total - before);
        }
        before = total;
    }
    Ok(Some(histogram))
}
