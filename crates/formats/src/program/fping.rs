//! fping with `-c` or `-C`, of one target. It prints replies to standard output and its summary to standard error.

use latput_stats::Histogram;
use latput_trial::Metric;
use latput_trial::figures::{ProgramFigures, Text};
use latput_units::Nanos;

use super::found::{
    FigureCollector, MS, S, leading_number, parse_measurement, to_count, whole_number,
};
use crate::read_error::ReadError;
use crate::rules::DeliveryCounts;

/// Counts of its target.
#[derive(Clone, Copy, Debug)]
struct TargetCounts {
    sent: f64,
    received: f64,
    /// The share that it says was lost.
    stated_loss: Option<f64>,
    /// Minimum, mean and maximum in milliseconds.
    times_ms: Option<[f64; 3]>,
}

pub(super) fn read(text: &Text) -> Result<ProgramFigures, ReadError> {
    let lines = || text.as_str().lines().filter_map(|line| line.split_once(" : "));
    let mut histogram = Histogram::new();
    let mut all: Vec<TargetCounts> = Vec::new();
    for (_, rest) in lines() {
        if let Some(summary) = rest.trim().strip_prefix("xmt/rcv/%loss = ") {
            // 20/19/5%, min/avg/max = 0.040/0.052/0.166
            all.push(parse_summary(summary)?.ok_or("its summary has another form")?);
        } else if rest.starts_with('[') && !rest.contains("timed out") {
            // [0], 64 bytes, 0.166 ms (0.166 avg, 0% loss)
            let time = rest.split(", ").nth(2).unwrap_or_default();
            record_time(
                &mut histogram,
                parse_measurement(time.split('(').next().unwrap_or_default(), "ms")?,
            )?;
        } else if let Some(times) = parse_times(rest)? {
            let sent = times.len() as f64;
            all.push(TargetCounts { sent, received: 0.0, stated_loss: None, times_ms: None });
            let received: Vec<f64> = times.into_iter().flatten().collect();
            // It lists the times of its lines once more.
            histogram = Histogram::new();
            for ms in &received {
                record_time(&mut histogram, *ms)?;
            }
            if let Some(last) = all.last_mut() {
                last.received = received.len() as f64;
            }
        }
    }
    let counted = match &all[..] {
        [one] => *one,
        [] => return Err("`xmt/rcv/%loss` is not there".into()),
        _ => return Err(format!("it has {} targets, where one is needed", all.len()).into()),
    };
    if counted.sent <= 0.0 || counted.received <= 0.0 {
        return Err(ReadError::Failed("no echo was answered".to_owned()));
    }
    let mut found = FigureCollector::default();
    let arrival = DeliveryCounts::from_packets(counted.sent, counted.received);
    found.add_arrival(DeliveryCounts { stated_loss: counted.stated_loss, ..arrival })?;
    found.set_transactions(to_count(counted.received))?;
    if let Some([least, mean, max]) = counted.times_ms {
        found.set_min_latency(Some(least * MS));
        found.add_required(Metric::LatencyNsMean, Some(mean * MS), "the mean")?;
        found.add_required(Metric::LatencyNsMax, Some(max * MS), "the maximum")?;
    } else {
        let max = histogram.max().map(|ns| ns.as_ns() as f64);
        found.add_required(Metric::LatencyNsMean, histogram.mean_ns(), "the mean")?;
        found.add_required(Metric::LatencyNsMax, max, "the maximum")?;
    }
    if !text.is_cut() {
        found.add_replies(histogram, counted.received)?;
    }
    found.finish()
}

fn parse_summary(summary: &str) -> Result<Option<TargetCounts>, ReadError> {
    let (counts, times) = summary.split_once(", ").unwrap_or((summary, ""));
    let counts = parse_parts(counts)?.unwrap_or_default();
    let [sent, received, ..] = counts[..] else { return Ok(None) };
    let stated_loss = counts.get(2).map(|percent| percent / 100.0);
    let times_ms = match times.trim().strip_prefix("min/avg/max = ").map(parse_parts) {
        None => None,
        Some(times) => match <[f64; 3]>::try_from(times?.unwrap_or_default()) {
            Ok(times) => Some(times),
            Err(_) => return Ok(None),
        },
    };
    Ok(Some(TargetCounts { sent, received, stated_loss, times_ms }))
}

/// The numbers between slashes; `None` if one of them is no number.
fn parse_parts(text: &str) -> Result<Option<Vec<f64>>, ReadError> {
    text.split('/').map(leading_number).collect()
}

/// The times in milliseconds that `-C` lists, `None` for a `-`, which was not answered. `None` of another text.
fn parse_times(rest: &str) -> Result<Option<Vec<Option<f64>>>, ReadError> {
    let is_time = |word: &str| word == "-" || word.starts_with(|it: char| it.is_ascii_digit());
    if rest.trim().is_empty() || !rest.split_whitespace().all(is_time) {
        return Ok(None);
    }
    let mut times = Vec::new();
    for word in rest.split_whitespace() {
        let time = whole_number(word)?;
        if time.is_none() && word != "-" {
            return Ok(None);
        }
        times.push(time);
    }
    Ok(Some(times))
}

fn record_time(histogram: &mut Histogram, ms: f64) -> Result<(), String> {
    if !ms.is_finite() || ms < 0.0 {
        return Err("the time of a reply is not a number".to_owned());
    }
    histogram.record(Nanos::from_secs_f64(ms * MS / S));
    Ok(())
}
