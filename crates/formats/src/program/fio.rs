//! fio with `--output-format=json` or `json+`: all jobs and directions together.

use latput_stats::Histogram;
use latput_trial::Metric;
use latput_trial::figures::{ProgramFigures, Text};
use latput_units::Nanos;
use serde_json::{Map, Value};

use super::found::{Found, count, number};

const DIRECTIONS: [&str; 3] = ["read", "write", "trim"];

/// One direction of one job that did anything.
struct JobPart<'a> {
    of: &'a Value,
    latency: &'a Value,
    samples: f64,
}

pub(super) fn read(text: &Text) -> Result<ProgramFigures, String> {
    let document = text.json()?;
    let jobs = document["jobs"].as_array().ok_or("it has no `jobs`: is it fio's JSON?")?;
    for job in jobs {
        if let Some(error) = job["error"].as_i64().filter(|error| *error != 0) {
            let name: String =
                job["jobname"].as_str().unwrap_or("?").escape_debug().take(40).collect();
            return Err(format!("job `{name}` ended with error {error} (errno)"));
        }
    }
    let directions = jobs.iter().flat_map(|job| DIRECTIONS.map(|direction| &job[direction]));
    let parts: Vec<JobPart<'_>> = directions.filter_map(part).collect();
    if parts.is_empty() {
        return Err("no job completed an operation".to_owned());
    }
    let sum =
        |pointer: &str| -> Option<f64> { parts.iter().map(|part| number(part.of, pointer)).sum() };
    let mut found = Found::default();
    found.need(Metric::ThroughputBps, sum("/bw_bytes").map(|bytes| bytes * 8.0), "`bw_bytes`")?;
    found.need(Metric::TransactionsPerS, sum("/iops"), "`iops`")?;
    found.transactions(sum("/total_ios").and_then(count));
    let longest_ms =
        parts.iter().filter_map(|part| number(part.of, "/runtime")).fold(0.0, f64::max);
    found.window(Some(longest_ms / 1e3));
    latency(&mut found, &parts)?;
    Ok(found.finish())
}

fn part(of: &Value) -> Option<JobPart<'_>> {
    let latency = &of["clat_ns"];
    let samples = number(latency, "/N")?;
    (samples > 0.0).then_some(JobPart { of, latency, samples })
}

fn latency(found: &mut Found, parts: &[JobPart<'_>]) -> Result<(), String> {
    let samples: f64 = parts.iter().map(|part| part.samples).sum();
    let means = parts.iter().map(|part| Some(number(part.latency, "/mean")? * part.samples));
    let mean = means.sum::<Option<f64>>().map(|sum| sum / samples);
    found.need(Metric::LatencyNsMean, mean, "the mean of `clat_ns`")?;
    let maxima = parts.iter().map(|part| number(part.latency, "/max"));
    let max = maxima.collect::<Option<Vec<f64>>>().map(|all| all.into_iter().fold(0.0, f64::max));
    found.need(Metric::LatencyNsMax, max, "the maximum of `clat_ns`")?;
    if let [one] = parts
        && let Some(percentiles) = one.latency["percentile"].as_object()
    {
        for (percent, value) in percentiles {
            let known = percent.parse::<f64>().ok().zip(value.as_f64());
            let (percent, value) = known.ok_or("a percentile is no number")?;
            found.percentile(percent, value)?;
        }
    }
    let bins: Option<Vec<&Map<String, Value>>> =
        parts.iter().map(|part| part.latency["bins"].as_object()).collect();
    if let Some(bins) = bins {
        found.histogram(histogram(&bins)?);
    }
    Ok(())
}

/// The bins of all parts: a value in nanoseconds, and its count.
fn histogram(bins: &[&Map<String, Value>]) -> Result<Histogram, String> {
    let mut histogram = Histogram::new();
    for (value, samples) in bins.iter().copied().flatten() {
        let known = value.parse().ok().zip(samples.as_u64());
        let (value, samples): (u64, u64) = known.ok_or("a bin is no pair of whole numbers")?;
        histogram.record_n(Nanos::from_ns(value), samples);
    }
    Ok(histogram)
}
