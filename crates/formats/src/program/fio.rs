//! fio with `--output-format=json` or `json+`: all jobs and directions together.

use std::collections::BTreeMap;

use latput_stats::Histogram;
use latput_trial::Metric;
use latput_trial::figures::{ProgramFigures, Text};
use latput_trial::metric::{PreferredDirection, Unit};
use latput_units::Nanos;
use serde_json::{Map, Value};

use super::found::{FigureCollector, json_number, to_count};
use crate::parsed::parse_documents;
use crate::read_error::ReadError;
use crate::rules;

const DIRECTIONS: [&str; 3] = ["read", "write", "trim"];
/// The clients' sum in `client_stats`, which has a line of each client too.
const ALL_CLIENTS: &str = "All clients";
/// Shorter runs have their time in too few of fio's milliseconds to compare with.
const COMPARABLE_MS: f64 = 100.0;

/// Options that let a job wait for those before it.
const WAITING: [&str; 3] = ["stonewall", "wait_for_previous", "wait_for"];
/// Seconds by which the beginning of a run may seem to move: fio counts whole seconds.
const CLOCK_S: f64 = 1.05;

/// One direction of one job that did anything.
struct JobPart<'a> {
    of: &'a Value,
    /// Completion latency, or the whole one where completion was not measured; `None` where neither was.
    latency: Option<&'a Value>,
    samples: f64,
}

pub(super) fn read(text: &Text) -> Result<ProgramFigures, ReadError> {
    let document = last_of_series(text)?;
    let jobs = list_jobs(&document)?;
    for job in &jobs {
        if let Some(error) = job["error"].as_i64().filter(|error| *error != 0) {
            return Err(ReadError::Failed(format!(
                "job `{}` ended with error {error} (errno)",
                name(job)
            )));
        }
    }
    check_together(&document, &jobs)?;
    let directions = jobs.iter().flat_map(|job| DIRECTIONS.map(|direction| &job[direction]));
    let parts: Vec<JobPart<'_>> = directions.filter_map(active_part).collect();
    if parts.is_empty() {
        return Err(ReadError::Failed("no job completed an operation".to_owned()));
    }
    let idle =
        |job: &&&Value| DIRECTIONS.iter().all(|direction| active_part(&job[direction]).is_none());
    if let Some(job) = jobs.iter().find(idle) {
        let name = name(job);
        return Err(ReadError::Failed(format!("job `{name}` completed no operation")));
    }
    for part in &parts {
        let known = json_number(part.of, "/io_bytes").zip(json_number(part.of, "/bw_bytes"));
        let ms = json_number(part.of, "/runtime").filter(|ms| *ms >= COMPARABLE_MS);
        if let Some(((bytes, rate), ms)) = known.zip(ms) {
            rules::check_rate_against_bytes(bytes, ms / 1e3, rate * 8.0)?;
        }
    }
    let sum = |pointer: &str| -> Option<f64> {
        parts.iter().map(|part| json_number(part.of, pointer)).sum()
    };
    let mut found = FigureCollector::default();
    if jobs.iter().any(|job| sends_datagrams(&document, job)) {
        // The sender's figures: what arrived is not known here.
        let sent = sum("/bw_bytes").map(|bytes| bytes * 8.0);
        found.add_custom("sent_bps", Unit::BitsPerS, PreferredDirection::Higher, sent)?;
        let messages = sum("/iops");
        found.add_custom("messages_per_s", Unit::PerS, PreferredDirection::Higher, messages)?;
        return found.finish();
    }
    found.set_transactions(sum("/total_ios").and_then(to_count))?;
    found.add_required(
        Metric::ThroughputBps,
        sum("/bw_bytes").map(|bytes| bytes * 8.0),
        "`bw_bytes`",
    )?;
    found.add_required(Metric::TransactionsPerS, sum("/iops"), "`iops`")?;
    // A document without the bytes was cut down by somebody, and its time may be of something else.
    let ms = |part: &JobPart<'_>| {
        json_number(part.of, "/io_bytes").and(json_number(part.of, "/runtime"))
    };
    let longest_ms = parts.iter().filter_map(ms).fold(0.0, f64::max);
    found.set_window(Some(longest_ms / 1e3))?;
    let of_parts: Option<Vec<(&Value, f64)>> =
        parts.iter().map(|part| Some((part.latency?, part.samples))).collect();
    if let Some(of_parts) = of_parts {
        add_latency(&mut found, &of_parts)?;
    }
    found.finish()
}

/// Whether a job sends UDP datagrams, which nobody acknowledges.
fn sends_datagrams(document: &Value, job: &Value) -> bool {
    let option = |name: &str| {
        let own = job["job options"][name].as_str();
        own.or_else(|| document["global options"][name].as_str()).unwrap_or_default()
    };
    let is_net = ["net", "netsplice"].contains(&option("ioengine"));
    is_net && option("protocol").starts_with("udp") && active_part(&job["write"]).is_some()
}

/// The document to read: with `--status-interval` fio prints one again and again, and the last is the result.
fn last_of_series(text: &Text) -> Result<Value, ReadError> {
    let found = parse_documents(text.as_str())?;
    let is_of_fio = |value: &Value| value["jobs"].is_array() || value["client_stats"].is_array();
    let mut last: Option<Value> = None;
    for document in found.documents {
        let document = document.map_err(|problem| format!("its JSON is invalid: {problem}"))?;
        if !is_of_fio(&document) {
            continue;
        }
        if let Some(before) = &last
            && !is_continuation(before, &document)
        {
            let problem = "it has several results that are not a series of one run";
            return Err(ReadError::Failed(problem.to_owned()));
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

/// Refuses jobs that ran one after another: their rates are of different times, and have no sum.
fn check_together(document: &Value, jobs: &[&Value]) -> Result<(), ReadError> {
    let is_set = |options: &Value| {
        WAITING.iter().any(|option| options.get(option).is_some_and(|value| *value != "0"))
    };
    let is_global = is_set(&document["global options"]);
    for (before, after) in jobs.iter().zip(jobs.iter().skip(1)) {
        if before["hostname"] != after["hostname"] {
            continue;
        }
        // The clones of one job have its name, and do not wait for each other.
        let is_other = name(before) != name(after);
        let is_waiting = is_other && (is_global || is_set(&after["job options"]));
        let is_apart = is_apart(before, after)
            .unwrap_or_else(|| before["groupid"] != after["groupid"] && has_turns(jobs));
        if is_waiting || is_apart {
            let (before, after) = (name(before), name(after));
            return Err(ReadError::Failed(format!(
                "job `{after}` did not run together with job `{before}`, so their rates have no sum: give each a fio of \
                 its own"
            )));
        }
    }
    Ok(())
}

/// Whether one of two jobs ran for a good part while the other did not, by their starts. Versions before 3.36 tell no
/// start.
fn is_apart(one: &Value, other: &Value) -> Option<bool> {
    let start = |job: &Value| json_number(job, "/job_start").filter(|start| *start > 0.0);
    let apart = (start(one)? - start(other)?).abs();
    let shorter = longest_ms(one).min(longest_ms(other));
    Some(apart > (shorter * rules::COUNTING).max(COMPARABLE_MS))
}

/// Whether the groups of jobs may have run in turn: fio begins a group with each job that waits, and does not print an
/// option without a value such as `stonewall`. Groups that ran together take less time than the sum of theirs.
fn has_turns(jobs: &[&Value]) -> bool {
    let mut longest: BTreeMap<Option<u64>, f64> = BTreeMap::new();
    for job in jobs {
        let of_group = longest.entry(job["groupid"].as_u64()).or_default();
        *of_group = of_group.max(longest_ms(job));
    }
    let elapsed = jobs.iter().filter_map(|job| json_number(job, "/elapsed")).fold(0.0, f64::max);
    elapsed * 1e3 >= longest.values().sum()
}

/// The longest time of a job's directions, in milliseconds.
fn longest_ms(job: &Value) -> f64 {
    let times = DIRECTIONS.iter().filter_map(|direction| json_number(&job[direction], "/runtime"));
    times.fold(0.0, f64::max)
}

/// The moment at which the run of a document began, in seconds, and the time since then.
fn run_start(document: &Value, job: &Value) -> Option<(f64, f64)> {
    let ms = json_number(document, "/timestamp_ms").map(|ms| ms / 1e3);
    let elapsed = json_number(job, "/elapsed")?;
    Some((ms.or_else(|| json_number(document, "/timestamp"))? - elapsed, elapsed))
}

/// Whether a job has done more since, or has the same figures as before.
fn is_grown(before: &Value, after: &Value) -> bool {
    let done = |job: &Value, direction: &str| {
        let count = |pointer: &str| json_number(&job[direction], pointer).unwrap_or(0.0);
        (count("/total_ios"), count("/clat_ns/N"))
    };
    DIRECTIONS.iter().all(|direction| {
        let ((earlier, earlier_samples), (later, samples)) =
            (done(before, direction), done(after, direction));
        let is_more = earlier < later || earlier_samples < samples;
        let is_same = before[direction]["clat_ns"] == after[direction]["clat_ns"];
        earlier <= later && (is_more || is_same)
    })
}

/// Whether a document tells of the same run as the one before: the same jobs with the same options, which began at the
/// same time and have done as much or more since.
fn is_continuation(before: &Value, after: &Value) -> bool {
    let is_same_run =
        |one: &Value, other: &Value| match run_start(before, one).zip(run_start(after, other)) {
            Some(((one, earlier), (other, later))) => {
                (one - other).abs() <= CLOCK_S && earlier <= later
            }
            None => true,
        };
    let is_same = |key: &str| before[key] == after[key];
    if !is_same("fio version") || !is_same("global options") {
        return false;
    }
    let (Ok(before), Ok(after)) = (list_jobs(before), list_jobs(after)) else { return false };
    before.len() == after.len()
        && before.iter().zip(&after).all(|(before, after)| {
            ["jobname", "groupid", "job options", "job_start"]
                .iter()
                .all(|key| before[key] == after[key])
                && is_grown(before, after)
                && is_same_run(before, after)
        })
}

/// The jobs of a document; with `--client` those of each client.
fn list_jobs(document: &Value) -> Result<Vec<&Value>, ReadError> {
    let all = document["jobs"].as_array().or_else(|| document["client_stats"].as_array());
    let all = all.ok_or("it has no `jobs`: is it fio's JSON?")?;
    Ok(all.iter().filter(|job| job["jobname"] != ALL_CLIENTS).collect())
}

fn name(job: &Value) -> String {
    job["jobname"].as_str().unwrap_or("?").escape_debug().take(40).collect()
}

fn active_part(of: &Value) -> Option<JobPart<'_>> {
    let samples = |latency: &Value| json_number(latency, "/N").filter(|samples| *samples > 0.0);
    let latency = [&of["clat_ns"], &of["lat_ns"]]
        .into_iter()
        .find_map(|latency| Some((latency, samples(latency)?)));
    let is_active =
        json_number(of, "/total_ios").is_some_and(|done| done > 0.0) || latency.is_some();
    is_active.then_some(JobPart {
        of,
        latency: latency.map(|(latency, _)| latency),
        samples: latency.map_or(0.0, |(_, samples)| samples),
    })
}

/// Latency of parts, each with its number of samples.
fn add_latency(found: &mut FigureCollector, parts: &[(&Value, f64)]) -> Result<(), ReadError> {
    let samples: f64 = parts.iter().map(|(_, samples)| samples).sum();
    let means = parts.iter().map(|(of, samples)| Some(json_number(of, "/mean")? * samples));
    let mean = means.sum::<Option<f64>>().map(|sum| sum / samples);
    found.add_required(Metric::LatencyNsMean, mean, "the mean of `clat_ns`")?;
    let all = |pointer: &str| -> Option<Vec<f64>> {
        parts.iter().map(|(of, _)| json_number(of, pointer)).collect()
    };
    let max = all("/max").map(|all| all.into_iter().fold(0.0, f64::max));
    found.add_required(Metric::LatencyNsMax, max, "the maximum of `clat_ns`")?;
    found.set_min_latency(all("/min").map(|all| all.into_iter().fold(f64::INFINITY, f64::min)));
    if let [(one, _)] = parts
        && let Some(percentiles) = one["percentile"].as_object()
    {
        for (percent, value) in percentiles {
            let known = percent.parse::<f64>().ok().zip(value.as_f64());
            let (percent, value) = known.ok_or("a percentile is not a number")?;
            found.add_percentile(percent, value)?;
        }
    }
    let bins: Option<Vec<&Map<String, Value>>> =
        parts.iter().map(|(of, _)| of["bins"].as_object()).collect();
    if let Some(bins) = bins {
        found.add_histogram(merge_bins(&bins)?);
    }
    Ok(())
}

/// The bins of all parts: a value in nanoseconds, and its count.
fn merge_bins(bins: &[&Map<String, Value>]) -> Result<Histogram, String> {
    let mut histogram = Histogram::new();
    for (value, samples) in bins.iter().copied().flatten() {
        let known = value.parse().ok().zip(samples.as_u64());
        let (value, samples): (u64, u64) = known.ok_or("a bin is not a pair of whole numbers")?;
        histogram.record_n(Nanos::from_ns(value), samples);
    }
    Ok(histogram)
}
