//! fping with `-c` or `-C`, of one target. It prints replies to standard output and its summary to standard error.

use latput_stats::Histogram;
use latput_trial::Metric;
use latput_trial::figures::{ProgramFigures, Text};
use latput_units::Nanos;

use super::found::{Found, MS, S, count, leading, measured};
use crate::read_error::ReadError;
use crate::rules::Arrival;

/// Counts of its target.
#[derive(Clone, Copy, Debug)]
struct Counted {
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
    let mut all: Vec<Counted> = Vec::new();
    for (_, rest) in lines() {
        if let Some(summary) = rest.trim().strip_prefix("xmt/rcv/%loss = ") {
            // 20/19/5%, min/avg/max = 0.040/0.052/0.166
            all.push(summarized(summary).ok_or("its summary has another form")?);
        } else if rest.starts_with('[') && !rest.contains("timed out") {
            // [0], 64 bytes, 0.166 ms (0.166 avg, 0% loss)
            let time = rest.split(',').nth(2).unwrap_or_default();
            record(&mut histogram, measured(time.split('(').next().unwrap_or_default(), "ms")?)?;
        } else if let Some(times) = listed(rest) {
            let sent = times.len() as f64;
            all.push(Counted { sent, received: 0.0, stated_loss: None, times_ms: None });
            let received: Vec<f64> = times.into_iter().flatten().collect();
            for ms in &received {
                record(&mut histogram, *ms)?;
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
    let mut found = Found::default();
    let arrival = Arrival::packets(counted.sent, counted.received);
    found.arrival(Arrival { stated_loss: counted.stated_loss, ..arrival })?;
    found.transactions(count(counted.received))?;
    if let Some([least, mean, max]) = counted.times_ms {
        found.least(Some(least * MS));
        found.need(Metric::LatencyNsMean, Some(mean * MS), "the mean")?;
        found.need(Metric::LatencyNsMax, Some(max * MS), "the maximum")?;
    } else {
        let max = histogram.max().map(|ns| ns.as_ns() as f64);
        found.need(Metric::LatencyNsMean, histogram.mean_ns(), "the mean")?;
        found.need(Metric::LatencyNsMax, max, "the maximum")?;
    }
    if !text.is_cut() {
        found.histogram(histogram);
    }
    found.finish()
}

fn summarized(summary: &str) -> Option<Counted> {
    let (counts, times) = summary.split_once(',').unwrap_or((summary, ""));
    let mut counts = counts.split('/').map(leading);
    let (sent, received) = (counts.next()??, counts.next()??);
    let stated_loss = counts.next().flatten().map(|percent| percent / 100.0);
    let times_ms = match times.trim().strip_prefix("min/avg/max = ") {
        None => None,
        Some(times) => {
            let times: Option<Vec<f64>> = times.split('/').map(leading).collect();
            Some(<[f64; 3]>::try_from(times?).ok()?)
        }
    };
    Some(Counted { sent, received, stated_loss, times_ms })
}

/// The times in milliseconds that `-C` lists; `None` for a `-`, which was not answered.
fn listed(rest: &str) -> Option<Vec<Option<f64>>> {
    let time = |word: &str| match word {
        "-" => Some(None),
        word => word.parse().ok().map(Some),
    };
    let times: Option<Vec<_>> = rest.split_whitespace().map(time).collect();
    times.filter(|times| !times.is_empty())
}

fn record(histogram: &mut Histogram, ms: f64) -> Result<(), String> {
    if !ms.is_finite() || ms < 0.0 {
        return Err("the time of a reply is not a number".to_owned());
    }
    histogram.record(Nanos::from_secs_f64(ms * MS / S));
    Ok(())
}
