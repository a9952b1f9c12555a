//! oha with `--output-format json`, in seconds.

use latput_trial::Metric;
use latput_trial::figures::{ProgramFigures, Text};
use serde_json::Value;

use super::found::{FigureCollector, S, json_number};
use crate::read_error::ReadError;

pub(super) fn read(text: &Text) -> Result<ProgramFigures, ReadError> {
    let document = text.json()?;
    let answers = parse_counts(&document["statusCodeDistribution"]);
    let answered = answers.iter().fold(0, |sum: u64, (_, count)| sum.saturating_add(*count));
    let seconds = |pointer: &str| json_number(&document, pointer).map(|seconds| seconds * S);
    let mut found = FigureCollector::default();
    let broken = parse_counts(&document["errorDistribution"]);
    // Requests under way at the end are no failures, and oha does not count them.
    let broken =
        broken.iter().filter(|(why, _)| why != "aborted due to deadline").map(|(_, count)| *count);
    let broken = broken.fold(0, u64::saturating_add);
    let rate = json_number(&document, "/summary/requestsPerSec");
    found.add_answered_rate(rate, answered, broken, "`summary.requestsPerSec`")?;
    found.add_required(Metric::LatencyNsMean, seconds("/summary/average"), "`summary.average`")?;
    found.add_required(Metric::LatencyNsMax, seconds("/summary/slowest"), "`summary.slowest`")?;
    found.set_min_latency(seconds("/summary/fastest"));
    found.set_window(json_number(&document, "/summary/total"))?;
    for (name, percent) in [("p50", 50.0), ("p90", 90.0), ("p99", 99.0), ("p99.9", 99.9)] {
        if let Some(value) = seconds(&format!("/latencyPercentiles/{name}")) {
            found.add_percentile(percent, value)?;
        }
    }
    let is_good = |code: &str| code.starts_with(['2', '3']);
    let bad = answers.iter().filter(|(code, _)| !is_good(code)).map(|(_, count)| *count);
    found.set_errors(Some(bad.fold(broken, u64::saturating_add)))?;
    found.finish()
}

fn parse_counts(of: &Value) -> Vec<(String, u64)> {
    let entries = of.as_object().into_iter().flatten();
    entries.filter_map(|(name, count)| Some((name.clone(), count.as_u64()?))).collect()
}
