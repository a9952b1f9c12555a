//! qperf, one test of it: `tcp_lat`, `udp_lat`, `tcp_bw`, `udp_bw` and their like.

use latput_trial::Metric;
use latput_trial::figures::{Commas, ProgramFigures, Text, read_number};
use latput_trial::metric::{PreferredDirection, Unit};

use super::found::{FigureCollector, text_after_label};
use crate::read_error::ReadError;

/// Units of times in nanoseconds, of bandwidths in bits per second.
const TIMES: &[(&str, f64)] = &[("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("sec", 1e9)];
const BANDWIDTHS: &[(&str, f64)] = &[
    ("bytes/sec", 8.0),
    ("KB/sec", 8e3),
    ("MB/sec", 8e6),
    ("GB/sec", 8e9),
    ("TB/sec", 8e12),
    ("bits/sec", 1.0),
    ("Kb/sec", 1e3),
    ("Mb/sec", 1e6),
    ("Gb/sec", 1e9),
    ("Tb/sec", 1e12),
];

pub(super) fn read(text: &Text) -> Result<ProgramFigures, ReadError> {
    let is_head = |line: &&str| {
        line.strip_suffix(':').is_some_and(|name| !name.is_empty() && !name.contains([' ', ':']))
    };
    let tests = text.as_str().lines().filter(is_head).count();
    if tests > 1 {
        return Err(format!("it has {tests} tests, where one is needed").into());
    }
    let mut found = FigureCollector::default();
    // Half of a round trip: its messages go one way.
    let latency = parse_value(text, "latency", TIMES)?.map(|ns| 2.0 * ns);
    found.add_optional(Metric::LatencyNsMean, latency)?;
    // `bw` is the receiver's, as `recv_bw` is where the test can lose data.
    let received = parse_value(text, "bw", BANDWIDTHS)?;
    let received =
        received.map_or_else(|| parse_value(text, "recv_bw", BANDWIDTHS), |bw| Ok(Some(bw)))?;
    found.add_optional(Metric::ThroughputBps, received)?;
    let sent = parse_value(text, "send_bw", BANDWIDTHS)?;
    found.add_custom("sent_bps", Unit::BitsPerS, PreferredDirection::Higher, sent)?;
    if latency.is_none() && received.is_none() {
        return Err("`latency` or `bw` is not there".into());
    }
    found.finish()
}

/// The value of a line `    NAME  =  1,234 UNIT`. qperf itself sets commas between thousands, in every locale.
fn parse_value(text: &Text, name: &str, units: &[(&str, f64)]) -> Result<Option<f64>, ReadError> {
    let is_of = |label: &str| label.trim_start().starts_with('=');
    let Some(rest) = text_after_label(text, name)?.filter(|rest| is_of(rest)) else {
        return Ok(None);
    };
    let mut words = rest.trim_start_matches(['=', ' ']).split_whitespace();
    let number = read_number(words.next().unwrap_or_default(), Commas::Thousands)?;
    let unit = words.next().unwrap_or_default();
    let known = units.iter().find(|(known, _)| *known == unit);
    let (_, factor) = known.ok_or_else(|| format!("`{name}` has no unit that qperf prints"))?;
    Ok(Some(number * factor))
}
