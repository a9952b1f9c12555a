//! ping of iputils and of busybox.

use latput_stats::Histogram;
use latput_trial::Metric;
use latput_trial::figures::{ProgramFigures, Text};
use latput_units::Nanos;

use super::found::{FigureCollector, MS, S, leading_number, parse_measurement, to_count};
use crate::read_error::ReadError;
use crate::rules::DeliveryCounts;

pub(super) fn read(text: &Text) -> Result<ProgramFigures, ReadError> {
    let mut found = FigureCollector::default();
    let summary = text.as_str().lines().find(|line| line.contains("packets transmitted"));
    let summary = summary.ok_or("`packets transmitted` is not there")?;
    // 20 packets transmitted, 20 received, 0% packet loss, time 474ms
    let part = |word: &str| {
        let part = summary.split(", ").find(|part| part.contains(word));
        part.map_or(Ok(None), leading_number)
    };
    let (sent, received) = (part("transmitted")?, part("received")?);
    let (sent, received) = sent.zip(received).ok_or("its packet counts are not numbers")?;
    if received <= 0.0 || sent <= 0.0 {
        return Err(ReadError::Failed("no echo was answered".to_owned()));
    }
    let stated_loss = part("packet loss")?.map(|percent| percent / 100.0);
    found.add_arrival(DeliveryCounts {
        stated_loss,
        ..DeliveryCounts::from_packets(sent, received)
    })?;
    found.set_transactions(to_count(received))?;
    // rtt min/avg/max/mdev = 0.034/0.045/0.147/0.024 ms
    let times = text.as_str().lines().find_map(|line| {
        let (name, times) = line.split_once('=')?;
        name.contains("min/avg/max").then_some(times)
    });
    let times = times.ok_or("`min/avg/max` is not there")?;
    parse_measurement(times.rsplit('/').next().unwrap_or_default(), "ms")?;
    let times: Vec<Option<f64>> = times.split('/').map(leading_number).collect::<Result<_, _>>()?;
    let mut times = times.into_iter().map(|ms| ms.map(|ms| ms * MS));
    found.set_min_latency(times.next().flatten());
    found.add_required(Metric::LatencyNsMean, times.next().flatten(), "the mean")?;
    found.add_required(Metric::LatencyNsMax, times.next().flatten(), "the maximum")?;
    if !text.is_cut() {
        found.add_replies(parse_replies(text)?, received)?;
    }
    found.finish()
}

/// The round trips of the lines `64 bytes from ...: icmp_seq=1 ttl=64 time=0.147 ms`.
fn parse_replies(text: &Text) -> Result<Histogram, ReadError> {
    let mut histogram = Histogram::new();
    for line in text.as_str().lines().filter(|line| line.contains(" bytes from ")) {
        let Some((_, time)) = line.split_once("time=") else { continue };
        let ms = parse_measurement(time, "ms")?;
        if !ms.is_finite() || ms < 0.0 {
            return Err("the time of a reply is not a number".into());
        }
        histogram.record(Nanos::from_secs_f64(ms * MS / S));
    }
    Ok(histogram)
}
