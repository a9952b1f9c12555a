//! k6: the summary of `--summary-export`, of `handleSummary`, or the machine-readable one of k6 1.5 and later. Times are
//! in milliseconds.

use latput_trial::Metric;
use latput_trial::figures::{ProgramFigures, Text};
use serde_json::Value;

use super::found::{FigureCollector, MS, to_count};
use crate::read_error::ReadError;

/// The metric of times, and that of the times of answers that were as expected.
const DURATION: &str = "http_req_duration";
const ANSWERED: &str = "http_req_duration{expected_response:true}";

/// One of the forms of the summary.
struct SummaryForm<'a> {
    metrics: &'a Value,
    /// The length of the test in seconds, where the document says it.
    seconds: Option<f64>,
}

impl<'a> SummaryForm<'a> {
    fn new(document: &'a Value) -> Self {
        if document["results"]["metrics"].is_array() {
            let seconds = document["config"]["duration"].as_f64();
            return Self { metrics: &document["results"]["metrics"], seconds };
        }
        let ms = document["state"]["testRunDurationMs"].as_f64();
        Self { metrics: &document["metrics"], seconds: ms.map(|ms| ms / 1e3) }
    }

    /// A figure of a metric. The machine-readable summary lists metrics by name, and `handleSummary` has their figures one
    /// level deeper.
    fn find_figure(&self, metric: &str, name: &str) -> Option<f64> {
        let of = match self.metrics.as_array() {
            Some(list) => list.iter().find(|it| it["name"] == metric)?,
            None => &self.metrics[metric],
        };
        let values = if of["values"].is_object() { &of["values"] } else { of };
        values[name].as_f64()
    }
}

pub(super) fn read(text: &Text) -> Result<ProgramFigures, ReadError> {
    let document = text.json()?;
    let summary = SummaryForm::new(&document);
    // Samples of this rate that are true, which means failed.
    let failed =
        ["passes", "matches"].iter().find_map(|it| summary.find_figure("http_req_failed", it));
    let failed = failed.and_then(to_count);
    let tried = summary.find_figure("http_reqs", "count");
    let printed = summary.find_figure("http_reqs", "rate");
    let derived = tried.zip(summary.seconds).map(|(count, seconds)| count / seconds);
    // A request that got no answer counts with a time of 0.
    let unanswered = match summary.find_figure(DURATION, "min") {
        Some(0.0) => failed.unwrap_or(0),
        _ => 0,
    };
    let name = if unanswered > 0 { ANSWERED } else { DURATION };
    let duration = |of: &str| summary.find_figure(name, of).map(|ms| ms * MS);
    let mut found = FigureCollector::default();
    if let Some(tried) = tried.and_then(to_count) {
        let answered = tried.saturating_sub(unanswered);
        found.add_answered_rate(printed.or(derived), answered, unanswered, "`http_reqs.rate`")?;
    } else {
        found.add_required(Metric::TransactionsPerS, printed.or(derived), "`http_reqs.rate`")?;
    }
    found.add_required(Metric::LatencyNsMean, duration("avg"), "`http_req_duration.avg`")?;
    found.set_min_latency(duration("min"));
    found.add_optional(Metric::LatencyNsMax, duration("max"))?;
    for (name, percent) in
        [("med", 50.0), ("p(50)", 50.0), ("p(90)", 90.0), ("p(99)", 99.0), ("p(99.9)", 99.9)]
    {
        if let Some(value) = duration(name) {
            found.add_percentile(percent, value)?;
        }
    }
    let seconds = tried.zip(printed).map(|(count, rate)| count / rate);
    found.set_window(summary.seconds.or(seconds))?;
    found.set_errors(failed)?;
    found.finish()
}
