//! fio with `--output-format=json` or `json+`: all jobs and directions together.

use latput_stats::Histogram;
use latput_trial::Metric;
use latput_trial::figures::{ProgramFigures, Text};
use latput_units::Nanos;
use serde_json::{Map, Value};

use super::found::{Found, count, number};
use crate::read_error::ReadError;
use crate::rules;

const DIRECTIONS: [&str; 3] = ["read", "write", "trim"];
/// The clients' sum in `client_stats`, which has a line of each client too.
const ALL_CLIENTS: &str = "All clients";
/// Shorter runs have their time in too few of fio's milliseconds to compare with.
const COMPARABLE_MS: f64 = 100.0;

/// One direction of one job that did anything.
struct JobPart<'a> {
    of: &'a Value,
    /// Completion latency, or the whole one where completion was not measured; `None` where neither was.
    latency: Option<&'a Value>,
    samples: f64,
}

pub(super) fn read(text: &Text) -> Result<ProgramFigures, ReadError> {
    let document = last_of_series(text)?;
    let jobs = jobs(&document)?;
    for job in &jobs {
        if let Some(error) = job["error"].as_i64().filter(|error| *error != 0) {
            return Err(ReadError::Failed(format!(
                "job `{}` ended with error {error} (errno)",
                name(job)
            )));
        }
    }
    let directions = jobs.iter().flat_map(|job| DIRECTIONS.map(|direction| &job[direction]));
    let parts: Vec<JobPart<'_>> = directions.filter_map(part).collect();
    if parts.is_empty() {
        return Err(ReadError::Failed("no job completed an operation".to_owned()));
    }
    let idle = |job: &&&Value| DIRECTIONS.iter().all(|direction| part(&job[direction]).is_none());
    if let Some(job) = jobs.iter().find(idle) {
        let name = name(job);
        return Err(ReadError::Failed(format!("job `{name}` completed no operation")));
    }
    for part in &parts {
        let known = number(part.of, "/io_bytes").zip(number(part.of, "/bw_bytes"));
        let ms = number(part.of, "/runtime").filter(|ms| *ms >= COMPARABLE_MS);
        if let Some(((bytes, rate), ms)) = known.zip(ms) {
            rules::check_bytes(bytes, ms / 1e3, rate * 8.0)?;
        }
    }
    let sum =
        |pointer: &str| -> Option<f64> { parts.iter().map(|part| number(part.of, pointer)).sum() };
    let mut found = Found::default();
    found.transactions(sum("/total_ios").and_then(count))?;
    found.need(Metric::ThroughputBps, sum("/bw_bytes").map(|bytes| bytes * 8.0), "`bw_bytes`")?;
    found.need(Metric::TransactionsPerS, sum("/iops"), "`iops`")?;
    // A document without the bytes was cut down by somebody, and its time may be of something else.
    let ms = |part: &JobPart<'_>| number(part.of, "/io_bytes").and(number(part.of, "/runtime"));
    let longest_ms = parts.iter().filter_map(ms).fold(0.0, f64::max);
    found.window(Some(longest_ms / 1e3))?;
    let of_parts: Option<Vec<(&Value, f64)>> =
        parts.iter().map(|part| Some((part.latency?, part.samples))).collect();
    if let Some(of_parts) = of_parts {
        latency(&mut found, &of_parts)?;
    }
    found.finish()
}

/// The document to read: with `--status-interval` fio prints one again and again, and the last is the result.
fn last_of_series(text: &Text) -> Result<Value, ReadError> {
    let found = text.json_documents();
    let is_of_fio = |value: &Value| value["jobs"].is_array() || value["client_stats"].is_array();
    let mut last: Option<Value> = None;
    for document in found.documents {
        let document = document.map_err(|problem| format!("its JSON is invalid: {problem}"))?;
        if !is_of_fio(&document) {
            continue;
        }
        if let Some(before) = &last
            && !follows(before, &document)
        {
            return Err("it has several results that are not a series of one run".into());
        }
        last = Some(document);
    }
    last.ok_or_else(|| {
        let is_terse =
            |line: &str| line.split(';').nth(1).is_some_and(|version| version.starts_with("fio-"));
        if text.as_str().lines().any(is_terse) {
            "it is fio's terse output".into()
        } else {
            "it has no `jobs`: is it fio's JSON?".into()
        }
    })
}

/// Whether a document tells of the same jobs as the one before, which have done as much or more since.
fn follows(before: &Value, after: &Value) -> bool {
    let (Ok(before), Ok(after)) = (jobs(before), jobs(after)) else { return false };
    let done = |job: &Value| -> f64 {
        DIRECTIONS.iter().filter_map(|direction| number(&job[direction], "/total_ios")).sum()
    };
    before.len() == after.len()
        && before
            .iter()
            .zip(&after)
            .all(|(before, after)| name(before) == name(after) && done(before) <= done(after))
}

/// The jobs of a document; with `--client` those of each client.
fn jobs(document: &Value) -> Result<Vec<&Value>, ReadError> {
    let all = document["jobs"].as_array().or_else(|| document["client_stats"].as_array());
    let all = all.ok_or("it has no `jobs`: is it fio's JSON?")?;
    Ok(all.iter().filter(|job| job["jobname"] != ALL_CLIENTS).collect())
}

fn name(job: &Value) -> String {
    job["jobname"].as_str().unwrap_or("?").escape_debug().take(40).collect()
}

fn part(of: &Value) -> Option<JobPart<'_>> {
    let samples = |latency: &Value| number(latency, "/N").filter(|samples| *samples > 0.0);
    let latency = [&of["clat_ns"], &of["lat_ns"]]
        .into_iter()
        .find_map(|latency| Some((latency, samples(latency)?)));
    let is_active = number(of, "/total_ios").is_some_and(|done| done > 0.0) || latency.is_some();
    is_active.then_some(JobPart {
        of,
        latency: latency.map(|(latency, _)| latency),
        samples: latency.map_or(0.0, |(_, samples)| samples),
    })
}

/// Latency of parts, each with its number of samples.
fn latency(found: &mut Found, parts: &[(&Value, f64)]) -> Result<(), ReadError> {
    let samples: f64 = parts.iter().map(|(_, samples)| samples).sum();
    let means = parts.iter().map(|(of, samples)| Some(number(of, "/mean")? * samples));
    let mean = means.sum::<Option<f64>>().map(|sum| sum / samples);
    found.need(Metric::LatencyNsMean, mean, "the mean of `clat_ns`")?;
    let all = |pointer: &str| -> Option<Vec<f64>> {
        parts.iter().map(|(of, _)| number(of, pointer)).collect()
    };
    let max = all("/max").map(|all| all.into_iter().fold(0.0, f64::max));
    found.need(Metric::LatencyNsMax, max, "the maximum of `clat_ns`")?;
    found.least(all("/min").map(|all| all.into_iter().fold(f64::INFINITY, f64::min)));
    if let [(one, _)] = parts
        && let Some(percentiles) = one["percentile"].as_object()
    {
        for (percent, value) in percentiles {
            let known = percent.parse::<f64>().ok().zip(value.as_f64());
            let (percent, value) = known.ok_or("a percentile is not a number")?;
            found.percentile(percent, value)?;
        }
    }
    let bins: Option<Vec<&Map<String, Value>>> =
        parts.iter().map(|(of, _)| of["bins"].as_object()).collect();
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
        let (value, samples): (u64, u64) = known.ok_or("a bin is not a pair of whole numbers")?;
        histogram.record_n(Nanos::from_ns(value), samples);
    }
    Ok(histogram)
}
