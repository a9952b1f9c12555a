//! sockperf: `ping-pong`, `under-load` and `throughput`.

use latput_trial::Metric;
use latput_trial::figures::{ProgramFigures, Text};
use latput_trial::metric::{PreferredDirection, Unit};

use super::found::{
    FigureCollector, US, leading_number, number_after_label, parse_measurement, text_after_label,
    to_count,
};
use crate::read_error::ReadError;

/// sockperf's megabyte.
const MEGABYTE: f64 = 1024.0 * 1024.0;

pub(super) fn read(text: &Text) -> Result<ProgramFigures, ReadError> {
    let mut found = FigureCollector::default();
    let rate = number_after_label(text, "sockperf: Summary: Message Rate is ")?;
    if rate.is_some() {
        found.add_custom("messages_per_s", Unit::PerS, PreferredDirection::Higher, rate)?;
        // BandWidth is 6.893 MBps (55.141 Mbps)
        let sent = text_after_label(text, "sockperf: Summary: BandWidth is ")?
            .ok_or("`BandWidth is` is not there")?;
        let bits = parse_measurement(sent, "MBps")? * MEGABYTE * 8.0;
        // The sender's figure: what arrived is not known here.
        found.add_custom("sent_bps", Unit::BitsPerS, PreferredDirection::Higher, Some(bits))?;
        return found.finish();
    }
    let round_trip = text_after_label(text, "sockperf: Summary: Round trip is ")?;
    let half = text_after_label(text, "sockperf: Summary: Latency is ")?;
    // sockperf calls half of the round trip its latency.
    let trips = if round_trip.is_some() { US } else { 2.0 * US };
    valid_duration(&mut found, text)?;
    let mean = round_trip.or(half).map(|mean| parse_measurement(mean, "usec")).transpose()?;
    found.add_required(
        Metric::LatencyNsMean,
        mean.map(|us| us * trips),
        "`Summary: Latency is`",
    )?;
    let least = number_after_label(text, "sockperf: ---> <MIN> observation =")?;
    found.set_min_latency(least.map(|us| us * trips));
    let max = number_after_label(text, "sockperf: ---> <MAX> observation =")?;
    found.add_optional(Metric::LatencyNsMax, max.map(|us| us * trips))?;
    for line in text.as_str().lines() {
        let Some(rest) = line.strip_prefix("sockperf: ---> percentile ") else { continue };
        let (percent, us) = rest.split_once('=').unwrap_or_default();
        let pair = leading_number(percent)?.zip(leading_number(us)?);
        let (percent, us) = pair.ok_or("a percentile is not a number")?;
        found.add_percentile(percent, us * trips)?;
    }
    found.finish()
}

/// `[Valid Duration] RunTime=0.550 sec; SentMessages=36731; ReceivedMessages=36731`
fn valid_duration(found: &mut FigureCollector, text: &Text) -> Result<(), ReadError> {
    let window = text_after_label(text, "sockperf: [Valid Duration]")?.unwrap_or_default();
    let part = |name: &str| {
        let part = window.split(';').find_map(|part| part.trim().strip_prefix(name));
        part.map_or(Ok(None), leading_number)
    };
    let (seconds, received) = (part("RunTime=")?, part("ReceivedMessages=")?);
    found.set_transactions(received.and_then(to_count))?;
    found.set_window(seconds)?;
    let rate = received.zip(seconds).filter(|(_, seconds)| *seconds > 0.0);
    found.add_optional(
        Metric::TransactionsPerS,
        rate.map(|(received, seconds)| received / seconds),
    )?;
    let dropped = number_after_label(text, "sockperf: # dropped messages =")?;
    found.set_errors(dropped.and_then(to_count))
}
