//! Reader of the data files that latput itself has written for flent: each has one setting, one workload and several runs.

use std::collections::BTreeMap;

use latput_stats::Histogram;
use latput_trial::{Metric, Observation, Workload};
use serde_json::Value;

use super::PING;
use super::series::{SeriesPoint, build_histogram, parse_points};
use super::write::{OWN, RUN, flent_test};
use crate::parsed::{ParseProblem, ParsedTest, ParsedTests, with_sendable_sizes};
use crate::rules::StatedFigures;

/// Most characters of a setting's label, and most runs.
const LABEL_CHARS_MOST: usize = 1000;
const RUNS_MOST: u64 = 10_000;

/// Figures of the round trips of a load and of a probe. The file has some of them, equally likely: not the extremes.
const OF_LOAD: RoundTrips = RoundTrips {
    mean: Metric::LatencyNsMean,
    quantiles: &[
        (Metric::LatencyNsP50, 0.5),
        (Metric::LatencyNsP90, 0.9),
        (Metric::LatencyNsP99, 0.99),
    ],
};
const OF_PROBE: RoundTrips = RoundTrips {
    mean: Metric::ProbeNsMean,
    quantiles: &[(Metric::ProbeNsP50, 0.5), (Metric::ProbeNsP99, 0.99)],
};

struct RoundTrips {
    mean: Metric,
    quantiles: &'static [(Metric, f64)],
}

/// The setting and the workload that a file of latput names.
struct RunOrigin {
    setting: String,
    workload: Workload,
}

/// The runs of a file that latput has written; `None` if another program did.
pub(super) fn parse_tests(document: &Value) -> Option<Result<ParsedTests, ParseProblem>> {
    let text = document["metadata"]["TEST_PARAMETERS"][OWN].as_str()?;
    Some(parse_origin(text).and_then(|origin| parse_runs(document, &origin)))
}

fn parse_origin(text: &str) -> Result<RunOrigin, ParseProblem> {
    let problem = |text: String| ParseProblem::at_place(format!("TEST_PARAMETERS.{OWN}"), text);
    let mut value: Value =
        serde_json::from_str(text).map_err(|error| problem(error.to_string()))?;
    let setting = value["setting"].as_str().unwrap_or_default().to_owned();
    if setting.is_empty() || setting.chars().count() > LABEL_CHARS_MOST {
        return Err(problem("it names no setting".to_owned()));
    }
    let workload: Workload = serde_json::from_value(value["workload"].take())
        .map_err(|error| problem(format!("workload: {error}")))?;
    if !workload.traffic.is_of_latput() {
        let kind = workload.traffic.kind();
        return Err(problem(format!(
            "the figures of {kind} are not in a flent file: import a report"
        )));
    }
    with_sendable_sizes(&workload.traffic)
        .check()
        .map_err(|error| problem(format!("workload: {error}")))?;
    Ok(RunOrigin { setting, workload })
}

/// The raw values of one run, by series.
type RunSeries = BTreeMap<String, Vec<Value>>;

/// Every run that has a value.
fn parse_runs(document: &Value, origin: &RunOrigin) -> Result<ParsedTests, ParseProblem> {
    let mut runs: BTreeMap<u64, RunSeries> = BTreeMap::new();
    for (name, values) in document["raw_values"].as_object().into_iter().flatten() {
        for value in values.as_array().into_iter().flatten() {
            let run = value[RUN].as_u64().filter(|run| *run < RUNS_MOST);
            let run = run.ok_or_else(|| {
                ParseProblem::at_place("raw_values", format!("a value of `{name}` has no `{RUN}`"))
            })?;
            runs.entry(run).or_default().entry(name.clone()).or_default().push(value.clone());
        }
    }
    let mut tests = ParsedTests::default();
    for (run, mut series) in runs {
        tests.push(build_test(document, origin, (run, &mut series)).into_checked());
    }
    Ok(tests)
}

fn build_test(
    document: &Value,
    origin: &RunOrigin,
    (run, series): (u64, &mut RunSeries),
) -> ParsedTest {
    let test_of = flent_test(&origin.workload);
    let mut of_run = |name: &str| -> Vec<SeriesPoint> {
        parse_points(&Value::Array(series.remove(name).unwrap_or_default()))
    };
    let mut observation = Observation::default();
    let reported = &mut observation.reported_metrics;
    let mut started = None;
    for (name, metric) in test_of.goodput {
        if let [point] = of_run(name).as_slice() {
            reported.insert(*metric, point.val * 1e6);
            started = Some(point.t);
        }
    }
    let ways = [Metric::ThroughputToSutBps, Metric::ThroughputFromSutBps];
    if let [Some(to), Some(from)] = ways.map(|metric| reported.get(&metric).copied()) {
        reported.insert(Metric::ThroughputBps, to + from);
    }
    let pings = of_run(PING);
    if let Some(first) = pings.first() {
        let stated =
            usize::try_from(run).ok().and_then(|run| document["results"][PING][run].as_f64());
        let figures = if test_of.is_of_load() { OF_LOAD } else { OF_PROBE };
        round_trips(&build_histogram(&pings), stated, &figures, reported);
        started = started.or(Some(first.t));
    }
    // Runs without a time are placed from the beginning of 1970 on.
    let began = document["metadata"]["T0"].as_str().and_then(super::unix_ms);
    let is_timed = began.is_some_and(|began| began > 0);
    let note = document["metadata"]["NOTE"].as_str().unwrap_or_default();
    ParsedTest {
        workload: origin.workload.clone(),
        setting: Some(origin.setting.clone()),
        started_unix_ms: started.filter(|_| is_timed).and_then(unix_ms),
        identity: None,
        writer: None,
        record: None,
        observation,
        beside: StatedFigures::default(),
        facts: Vec::new(),
        notes: vec![format!("from a flent file of latput: {note}")],
    }
}

/// Adds the mean that the file states, and the percentiles of the values.
fn round_trips(
    rtt: &Histogram,
    mean_ms: Option<f64>,
    figures: &RoundTrips,
    reported: &mut BTreeMap<Metric, f64>,
) {
    let mean_ns = mean_ms.map(|ms| ms * 1e6).or_else(|| rtt.mean_ns());
    reported.extend(mean_ns.map(|ns| (figures.mean, ns)));
    for (metric, quantile) in figures.quantiles {
        reported.extend(rtt.quantile(*quantile).map(|time| (*metric, time.as_ns() as f64)));
    }
}

/// A time in seconds since 1970, in milliseconds.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the range is tested, and the time is rounded to milliseconds"
)]
fn unix_ms(seconds: f64) -> Option<u64> {
    (1.0..1e11).contains(&seconds).then(|| (seconds * 1e3).round() as u64)
}

#[cfg(test)]
mod tests {
    use latput_trial::Traffic;
    use serde_json::json;

    use super::*;

    /// A file of a setting with two runs of a stream, the second without a probe.
    fn make_document() -> Value {
        let workload =
            Workload::plain("load", Traffic::tcp_stream(latput_units::Bytes::new(1000), 4));
        let own = json!({ "setting": "50us", "workload": workload }).to_string();
        json!({
            "version": 4,
            "metadata": { "TEST_PARAMETERS": { "latput": own }, "T0": "1970-01-01T00:16:40.0Z" },
            "results": { PING: [1.5, null] },
            "raw_values": {
                "TCP upload::1": [
                    { "t": 1000.0, "val": 8.0, "run": 0 },
                    { "t": 1002.5, "val": 9.0, "run": 1 }
                ],
                PING: [{ "t": 1000.0, "val": 1.0, "run": 0 }, { "t": 1000.0, "val": 2.0, "run": 0 }]
            }
        })
    }

    #[test]
    fn each_run_has_its_setting_and_workload() {
        let read = parse_tests(&make_document()).unwrap().unwrap();
        let [Ok(first), Ok(second)] = read.tests.as_slice() else { panic!("{read:?}") };
        for test in [first, second] {
            assert_eq!(test.setting.as_deref(), Some("50us"));
            assert_eq!(test.workload.traffic.value("connections"), Some(4));
        }
        let figure =
            |test: &ParsedTest, metric| test.observation.reported_metrics.get(&metric).copied();
        assert_eq!(figure(first, Metric::ThroughputBps), Some(8e6));
        assert_eq!(figure(first, Metric::ProbeNsMean), Some(1.5e6));
        assert_eq!(figure(second, Metric::ThroughputBps), Some(9e6));
        assert_eq!(figure(second, Metric::ProbeNsMean), None);
        assert_eq!(
            (first.started_unix_ms, second.started_unix_ms),
            (Some(1_000_000), Some(1_002_500))
        );
        assert!(!first.is_same(second));
    }

    #[test]
    fn edited_files_are_refused() {
        let refused = |edit: &dyn Fn(&mut Value), said: &str| {
            let mut document = make_document();
            edit(&mut document);
            let problem = parse_tests(&document).unwrap().unwrap_err().to_string();
            assert!(problem.contains(said), "{problem}");
        };
        let parameter = |text: &str| {
            let text = text.to_owned();
            move |it: &mut Value| it["metadata"]["TEST_PARAMETERS"]["latput"] = json!(text)
        };
        refused(&parameter("{"), "EOF");
        refused(&parameter("{}"), "names no setting");
        refused(&parameter(r#"{"setting":"a"}"#), "workload");
        let of = |traffic: Value| {
            let workload = json!({ "name": "w", "traffic": traffic, "probe": null });
            json!({ "setting": "a", "workload": workload }).to_string()
        };
        let kind = |traffic: Traffic| of(serde_json::to_value(traffic).unwrap());
        refused(&parameter(&kind(Traffic::Live)), "live are not in a flent file");
        refused(
            &parameter(&kind(Traffic::Ping {
                rate_hz: 0,
                payload_bytes: latput_units::Bytes::new(1),
            })),
            "rate_hz",
        );
        refused(&|it| it["raw_values"][PING][0]["run"] = json!(1e9), "has no `run`");
        let mut other = make_document();
        other["metadata"]["TEST_PARAMETERS"] = json!({});
        assert!(parse_tests(&other).is_none());
    }
}
