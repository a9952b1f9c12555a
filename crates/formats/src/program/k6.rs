//! k6: the summary of `--summary-export`, or of `handleSummary`. Times are in milliseconds.

use latput_trial::Metric;
use latput_trial::figures::{ProgramFigures, Text};
use serde_json::Value;

use super::found::{Found, MS, count};

pub(super) fn read(text: &Text) -> Result<ProgramFigures, String> {
    let document = text.json()?;
    let metrics = &document["metrics"];
    // `handleSummary` has the figures of a metric one level deeper.
    let figure = |metric: &str, name: &str| {
        let of = &metrics[metric];
        let values = if of["values"].is_object() { &of["values"] } else { of };
        values[name].as_f64()
    };
    let duration = |name: &str| figure("http_req_duration", name).map(|ms| ms * MS);
    let mut found = Found::default();
    found.need(Metric::TransactionsPerS, figure("http_reqs", "rate"), "`http_reqs.rate`")?;
    found.need(Metric::LatencyNsMean, duration("avg"), "`http_req_duration.avg`")?;
    found.may(Metric::LatencyNsMax, duration("max"))?;
    for (name, percent) in
        [("med", 50.0), ("p(50)", 50.0), ("p(90)", 90.0), ("p(99)", 99.0), ("p(99.9)", 99.9)]
    {
        if let Some(value) = duration(name) {
            found.percentile(percent, value)?;
        }
    }
    let requests = figure("http_reqs", "count");
    found.transactions(requests.and_then(count));
    let seconds = requests.zip(figure("http_reqs", "rate")).map(|(count, rate)| count / rate);
    found.window(seconds);
    // Samples of this rate that are true, which means failed.
    found.errors(figure("http_req_failed", "passes").and_then(count))?;
    let state: &Value = &document["state"]["testRunDurationMs"];
    if let Some(ms) = state.as_f64() {
        found.window(Some(ms / 1e3));
    }
    Ok(found.finish())
}
