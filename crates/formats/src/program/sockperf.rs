//! sockperf: `ping-pong`, `under-load` and `throughput`.

use latput_trial::Metric;
use latput_trial::figures::{ProgramFigures, Text};
use latput_trial::metric::{PreferredDirection, Unit};

use super::found::{Found, US, after, count, leading, measured};
use crate::read_error::ReadError;

/// sockperf's megabyte.
const MEGABYTE: f64 = 1024.0 * 1024.0;

pub(super) fn read(text: &Text) -> Result<ProgramFigures, ReadError> {
    let mut found = Found::default();
    let rate = after(text, "sockperf: Summary: Message Rate is ")?.and_then(leading);
    if rate.is_some() {
        found.own("messages_per_s", Unit::PerS, PreferredDirection::Higher, rate)?;
        // BandWidth is 6.893 MBps (55.141 Mbps)
        let sent = after(text, "sockperf: Summary: BandWidth is ")?
            .ok_or("`BandWidth is` is not there")?;
        let bits = measured(sent, "MBps")? * MEGABYTE * 8.0;
        // The sender's figure: what arrived is not known here.
        found.own("sent_bps", Unit::BitsPerS, PreferredDirection::Higher, Some(bits))?;
        return found.finish();
    }
    let round_trip = after(text, "sockperf: Summary: Round trip is ")?;
    let half = after(text, "sockperf: Summary: Latency is ")?;
    // sockperf calls half of the round trip its latency.
    let trips = if round_trip.is_some() { US } else { 2.0 * US };
    valid_duration(&mut found, text)?;
    let mean = round_trip.or(half).map(|mean| measured(mean, "usec")).transpose()?;
    found.need(Metric::LatencyNsMean, mean.map(|us| us * trips), "`Summary: Latency is`")?;
    let least = after(text, "sockperf: ---> <MIN> observation =")?.and_then(leading);
    found.least(least.map(|us| us * trips));
    let max = after(text, "sockperf: ---> <MAX> observation =")?.and_then(leading);
    found.may(Metric::LatencyNsMax, max.map(|us| us * trips))?;
    for line in text.as_str().lines() {
        let Some(rest) = line.strip_prefix("sockperf: ---> percentile ") else { continue };
        let pair =
            rest.split_once('=').and_then(|(percent, us)| Some((leading(percent)?, leading(us)?)));
        let (percent, us) = pair.ok_or("a percentile is not a number")?;
        found.percentile(percent, us * trips)?;
    }
    found.finish()
}

/// `[Valid Duration] RunTime=0.550 sec; SentMessages=36731; ReceivedMessages=36731`
fn valid_duration(found: &mut Found, text: &Text) -> Result<(), ReadError> {
    let window = after(text, "sockperf: [Valid Duration]")?.unwrap_or_default();
    let part = |name: &str| {
        let part = window.split(';').find_map(|part| part.trim().strip_prefix(name));
        part.and_then(leading)
    };
    let (seconds, received) = (part("RunTime="), part("ReceivedMessages="));
    found.transactions(received.and_then(count))?;
    found.window(seconds)?;
    let rate = received.zip(seconds).filter(|(_, seconds)| *seconds > 0.0);
    found.may(Metric::TransactionsPerS, rate.map(|(received, seconds)| received / seconds))?;
    let dropped = after(text, "sockperf: # dropped messages =")?.and_then(leading);
    found.errors(dropped.and_then(count))
}
