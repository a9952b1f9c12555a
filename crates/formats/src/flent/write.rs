//! Writer of flent's data files (version 4): one file for each setting under each workload, which
//! flent can tabulate and plot.
//!
//! flent plots by the names of its own tests and their series, so the files use those of the
//! nearest test. Each run is one point of the time axis. latput keeps round trips as a histogram
//! without times, so equally likely values stand at the start of their run.

use latput_stats::Histogram;
use latput_trial::workload::{PayloadFlow, Shape};
use latput_trial::{Metric, Observation, Results, Row, Workload};
use serde_json::{Map, Value, json};

use super::{PING, format_utc};

/// Values that represent the round trips of one run.
const VALUES: u64 = 1000;

/// One data file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlentFile {
    /// The workload's name.
    pub workload: String,
    /// The setting's label.
    pub setting: String,
    /// flent's test.
    pub test: &'static str,
    /// JSON text. flent reads it packed with gzip, in a file whose name ends in `.flent.gz`.
    pub text: String,
}

impl FlentFile {
    /// The workload and the setting in words.
    pub fn title(&self) -> String {
        format_title(&self.workload, &self.setting)
    }
}

fn format_title(workload: &str, setting: &str) -> String {
    format!("{workload}, {setting}")
}

/// The data files, none without runs.
pub fn write(results: &Results) -> Vec<FlentFile> {
    let mut files = Vec::new();
    for (workload_idx, workload) in results.workloads.iter().enumerate() {
        for (setting_idx, setting) in results.settings.iter().enumerate() {
            let rows: Vec<&Row> = results
                .rows
                .iter()
                .filter(|row| (row.workload, row.setting) == (workload_idx, setting_idx))
                .collect();
            if rows.is_empty() {
                continue;
            }
            let text = render_file(results, workload, &setting.label, &rows);
            let (workload, setting) = (workload.name.clone(), setting.label.clone());
            let test = flent_test(&results.workloads[workload_idx]).test;
            files.push(FlentFile { workload, setting, test, text });
        }
    }
    files
}

/// flent's test, its goodput series with the sums that its plots use, and its parameters.
pub(super) struct FlentTest {
    pub(super) test: &'static str,
    pub(super) goodput: &'static [(&'static str, Metric)],
    streams: Option<&'static str>,
    note: String,
}

impl FlentTest {
    /// Whether the round trips are those of the load, and not of a probe beside it.
    pub(super) fn is_of_load(&self) -> bool {
        self.test == "ping"
    }
}

const UPLOAD: &[(&str, Metric)] =
    &[("TCP upload::1", Metric::ThroughputBps), ("TCP upload sum", Metric::ThroughputBps)];
const DOWNLOAD: &[(&str, Metric)] =
    &[("TCP download::1", Metric::ThroughputBps), ("TCP download sum", Metric::ThroughputBps)];
const BOTH_WAYS: &[(&str, Metric)] =
    &[("TCP upload", Metric::ThroughputToSutBps), ("TCP download", Metric::ThroughputFromSutBps)];

pub(super) fn flent_test(workload: &Workload) -> FlentTest {
    let traffic = &workload.traffic;
    let goodput = |test, goodput, streams| FlentTest {
        test,
        goodput,
        streams,
        note: match traffic.value("connections") {
            None | Some(1) => "one connection".to_owned(),
            Some(count) => format!("the series is the sum of {count} connections"),
        },
    };
    let round_trips = |note| FlentTest { test: "ping", goodput: &[], streams: None, note };
    let facts = traffic.facts();
    match facts.shape {
        Shape::Bulk => match facts.payload {
            PayloadFlow::ToSut => goodput("tcp_nup", UPLOAD, Some("upload_streams")),
            PayloadFlow::FromSut | PayloadFlow::OnRequest => {
                goodput("tcp_ndown", DOWNLOAD, Some("download_streams"))
            }
            PayloadFlow::Both => goodput("tcp_bidirectional", BOTH_WAYS, None),
        },
        Shape::Datagrams => goodput("udp_flood", &[("UDP upload", Metric::ThroughputBps)], None),
        Shape::Transactions if traffic.is_echo() => round_trips("ICMP echo".to_owned()),
        Shape::Transactions => round_trips(format!(
            "the series `{PING}` holds the round trips of {}: flent has no test with such a series",
            traffic.kind()
        )),
    }
}

/// Name of the test parameter that says whose figures they are: flent keeps parameters that it does not know.
pub(super) const OWN: &str = "latput";
/// Key of the run that a raw value is of.
pub(super) const RUN: &str = "run";

/// The setting and the workload, as text: flent's parameters are texts.
fn format_own_parameter(workload: &Workload, setting: &str) -> String {
    json!({ "setting": setting, "workload": workload }).to_string()
}

fn render_file(results: &Results, workload: &Workload, setting: &str, rows: &[&Row]) -> String {
    let test_of = flent_test(workload);
    let began = rows.iter().map(|row| row.started_unix_ms).min().unwrap_or(0);
    // Imported runs may lack times. They are then placed one second apart in their order.
    let is_timed = rows.iter().all(|row| row.started_unix_ms > 0);
    let offset_s = |idx: usize, row: &Row| {
        if is_timed { (row.started_unix_ms - began) as f64 / 1e3 } else { idx as f64 }
    };
    let times: Vec<f64> = rows.iter().enumerate().map(|(idx, row)| offset_s(idx, row)).collect();
    let length =
        rows.iter().map(|row| window_seconds(&row.observation)).fold(0.0, f64::max).ceil().max(1.0);

    let mut series = FlentSeries { times, began_s: began as f64 / 1e3, ..FlentSeries::default() };
    for (name, metric) in test_of.goodput {
        let goodput = |row: &&Row| {
            let bps = metric.value(&workload.traffic, &row.observation)?;
            Some(bps / 1e6).filter(|mbps| mbps.is_finite())
        };
        let is_sum = name.ends_with("sum");
        series.add(name, "Mbits/s", is_sum, &rows.iter().map(goodput).collect::<Vec<_>>());
    }
    let of_load = test_of.is_of_load();
    series.add_pings(rows, |row| {
        let flow = row.observation.traffic.latency.as_ref().filter(|_| of_load);
        flow.or_else(|| row.observation.probe.as_ref().map(|probe| &probe.rtt))
    });
    let total = series.times.iter().copied().fold(0.0, f64::max) + length;
    let time = format_utc(began);
    let mut parameters = json!({ OWN: format_own_parameter(workload, setting) });
    if let Some(name) = test_of.streams {
        parameters[name] = json!("1");
    }
    let metadata = json!({
        "NAME": test_of.test,
        "TITLE": format_title(&workload.name, setting),
        "NOTE": format!("{}; written by latput {}", test_of.note, results.latput_version),
        "HOST": results.testbed,
        "HOSTS": [results.testbed],
        "LOCAL_HOST": results.hosts.first().map_or("", |host| host.host.as_str()),
        "TIME": time,
        "T0": time,
        "LENGTH": length,
        "TOTAL_LENGTH": total,
        "STEP_SIZE": length,
        "TEST_PARAMETERS": parameters,
        "IP_VERSION": null,
        "DATA_FILENAME": null,
        "BATCH_NAME": null,
        "BATCH_TIME": null,
        "BATCH_TITLE": null,
        "BATCH_UUID": null,
        "SERIES_META": series.meta,
    });
    let document = json!({
        "version": 4,
        "metadata": metadata,
        "x_values": series.times,
        "results": series.results,
        "raw_values": series.raw,
    });
    document.to_string()
}

/// The series of a file.
#[derive(Default)]
struct FlentSeries {
    /// Start of each run, seconds since the first.
    times: Vec<f64>,
    /// Start of the first run, seconds since 1970.
    began_s: f64,
    results: Map<String, Value>,
    raw: Map<String, Value>,
    meta: Map<String, Value>,
}

impl FlentSeries {
    /// Adds one value for each run; `None` is absent. flent computes sums itself and keeps no raw
    /// values for them.
    fn add(&mut self, name: &str, units: &str, is_computed: bool, values: &[Option<f64>]) {
        let points = self.times.iter().zip(values).enumerate();
        let raw = points.filter_map(|(run, (t, value))| {
            Some(json!({ "t": self.began_s + t, "val": (*value)?, RUN: run }))
        });
        let raw: Vec<Value> = raw.collect();
        if raw.is_empty() {
            return;
        }
        let known: Vec<f64> = values.iter().copied().flatten().collect();
        let mean = known.iter().sum::<f64>() / known.len() as f64;
        self.results.insert(name.to_owned(), json!(values));
        self.meta.insert(
            name.to_owned(),
            json!({ "UNITS": units, "MEAN_VALUE": mean, "RUNNER": "latput" }),
        );
        if !is_computed {
            self.raw.insert(name.to_owned(), Value::Array(raw));
        }
    }

    /// Adds round trips: the mean of each run, and values that represent all of them.
    fn add_pings<'a>(&mut self, rows: &[&'a Row], rtt: impl Fn(&'a Row) -> Option<&'a Histogram>) {
        let ms = |ns: f64| ns / 1e6;
        let means: Vec<Option<f64>> = rows.iter().map(|row| rtt(row)?.mean_ns().map(ms)).collect();
        self.add(PING, "ms", false, &means);
        if !self.raw.contains_key(PING) {
            return;
        }
        let mut raw = Vec::new();
        for (run, (t, row)) in self.times.iter().zip(rows).enumerate() {
            let Some(rtt) = rtt(row) else { continue };
            let values = rtt.count().min(VALUES);
            for idx in 0..values {
                let quantile = (idx as f64 + 0.5) / values as f64;
                if let Some(time) = rtt.quantile(quantile) {
                    let value = time.as_ms_f64();
                    raw.push(json!({ "t": self.began_s + t, "val": value, RUN: run }));
                }
            }
        }
        self.raw.insert(PING.to_owned(), Value::Array(raw));
    }
}

fn window_seconds(observation: &Observation) -> f64 {
    let flow = &observation.traffic;
    flow.sender_window.max(flow.receiver_window).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use latput_trial::observation::{FlowObservation, ProbeObservation, TrafficObservation};
    use latput_trial::results::LabelledSetting;
    use latput_trial::{Direction, Traffic};
    use latput_units::{Bytes, Nanos};

    use super::*;

    #[test]
    fn stream_with_probe_is_flents_upload() {
        let files = write(&make_results(Traffic::tcp_stream(Bytes::new(1000), 2)));
        let [file] = files.as_slice() else { panic!("{files:?}") };
        let value: Value = serde_json::from_str(&file.text).unwrap();
        assert_eq!((&value["version"], &value["metadata"]["NAME"]), (&json!(4), &json!("tcp_nup")));
        assert_eq!(value["x_values"], json!([0.0, 2.5]));
        assert_eq!(value["results"]["TCP upload::1"], json!([8.0, null]), "absent is not zero");
        assert_eq!(
            value["raw_values"]["TCP upload::1"],
            json!([{ "t": 1000.0, "val": 8.0, "run": 0 }])
        );
        assert_eq!(value["raw_values"].get("TCP upload sum"), None);
        let pings = value["raw_values"][PING].as_array().unwrap();
        assert_eq!(pings.len(), 3, "of the run that has any");
        assert_eq!(value["metadata"]["TIME"], "1970-01-01T00:16:40.000000Z");
        assert!(value["metadata"]["NOTE"].as_str().unwrap().contains("sum of 2 connections"));
    }

    #[test]
    fn what_is_written_is_read_back() {
        let files = write(&make_results(Traffic::tcp_stream(Bytes::new(1000), 1)));
        let read = super::super::parse_tests(&files[0].text).unwrap();
        let [Ok(test)] = read.tests.as_slice() else { panic!("{read:?}") };
        assert_eq!(test.workload.name, "load");
        assert_eq!(test.workload.traffic.kind(), "tcp_stream");
        assert_eq!(test.setting.as_deref(), Some("as it is"));
        assert_eq!(test.started_unix_ms, Some(1_000_000));
        assert_eq!(test.observation.reported_metrics.get(&Metric::ThroughputBps), Some(&8e6));
    }

    #[test]
    fn round_trips_name_their_load() {
        let mut results = make_results(Traffic::tcp_rr(0));
        for row in &mut results.rows {
            row.observation.traffic.latency = row.observation.probe.take().map(|probe| probe.rtt);
        }
        let value: Value = serde_json::from_str(&write(&results)[0].text).unwrap();
        assert_eq!(value["metadata"]["NAME"], "ping");
        assert!(value["metadata"]["NOTE"].as_str().unwrap().contains("round trips of tcp_rr"));
        assert_eq!(value["raw_values"][PING].as_array().unwrap().len(), 3);
    }

    #[test]
    fn flent_file_has_series_of_both_directions() {
        let mut results = make_results(Traffic::TcpBulk {
            direction: Direction::Both,
            message_bytes: Bytes::new(1),
            connections: 1,
            threads: 1,
            rate: None,
            vectored: true,
        });
        let flow = &mut results.rows[0].observation.traffic;
        flow.sender_window = Nanos::from_s(1);
        flow.reverse = Some(FlowObservation { sent_bytes: 0, received_bytes: 250_000 });
        let value: Value = serde_json::from_str(&write(&results)[0].text).unwrap();
        assert_eq!(value["metadata"]["NAME"], "tcp_bidirectional");
        assert_eq!(value["results"]["TCP upload"], json!([8.0, null]));
        assert_eq!(value["results"]["TCP download"], json!([2.0, null]));
        results.rows.clear();
        assert_eq!(write(&results), Vec::new());
    }

    /// Two runs, the second without any figure.
    fn make_results(traffic: Traffic) -> Results {
        let mut rtt = Histogram::new();
        rtt.record_n(Nanos::from_ms(1), 3);
        let observation = Observation {
            traffic: TrafficObservation {
                received_bytes: 1_000_000,
                receiver_window: Nanos::from_s(1),
                ..TrafficObservation::default()
            },
            probe: Some(ProbeObservation { sent: 3, received: 3, rtt }),
            ..Observation::default()
        };
        let row = |block, started_unix_ms, observation| Row {
            block,
            setting: 0,
            workload: 0,
            started_unix_ms,
            observation,
        };
        Results {
            name: "test".to_owned(),
            goal: None,
            confidence: 0.99,
            half_width: 0.025,
            testbed: "lab".to_owned(),
            latput_version: "0".to_owned(),
            seed: 0,
            hosts: Vec::new(),
            settings: vec![LabelledSetting {
                label: "as it is".to_owned(),
                by_role: BTreeMap::new(),
            }],
            workloads: vec![Workload::plain("load", traffic)],
            rows: vec![row(0, 1_000_000, observation), row(1, 1_002_500, Observation::default())],
            planned_trials: 2,
            confirmed_from: None,
            source: None,
            today: Vec::new(),
            findings: Vec::new(),
            beside: false,
            notes: Vec::new(),
        }
    }
}
