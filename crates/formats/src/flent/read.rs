//! Reader of flent's data files, versions 3 and 4.
//!
//! It reads `raw_values`, since flent interpolates `results` to a common step.

use std::collections::BTreeMap;

use latput_trial::figures::JsonDocuments;
use latput_trial::observation::{ProbeObservation, TrafficObservation};
use latput_trial::{Metric, Observation};
use latput_units::{IntoMap, Nanos};
use serde_json::Value;

use super::series::{SeriesPoint, histogram, points};
use super::{PING, unix_ms};
use crate::parsed::{Problem, Test, Tests, workload};
use crate::read_error::ReadError;

/// Most share by which the mean that flent states may differ from that of the values: the program that measured also
/// counts what moved before the first value and behind the last.
const MEANS_APART: f64 = 0.1;

/// The single test of a file, or the runs of one that latput has written.
pub(crate) fn tests(text: &str) -> Result<Tests, Problem> {
    let found = JsonDocuments::parse(text);
    let mut documents = found.documents.into_iter();
    let document = match (documents.next(), documents.next()) {
        (Some(document), None) => document.map_err(Problem::new)?,
        (None, _) => return Err(Problem::new("it has no JSON document")),
        (Some(_), Some(_)) => {
            return Err(Problem::new("it has several JSON documents, and flent writes one"));
        }
    };
    match document["version"].as_u64() {
        Some(3 | 4) => {}
        Some(other) => {
            let text = format!(
                "version {other} of the format: latput reads 3 and 4; open and save it with a newer flent"
            );
            return Err(Problem::at("version", text));
        }
        None => return Err(Problem::at("version", "there is none: is it a flent file?")),
    }
    if let Some(own) = super::own::tests(&document) {
        return own;
    }
    let mut tests = Tests { notes: found.notes, ..Tests::default() };
    tests.push(test(&document));
    Ok(tests)
}

fn test(document: &Value) -> Result<Test, ReadError> {
    let metadata = &document["metadata"];
    let raw = document["raw_values"].as_object().ok_or("it has no raw_values")?;
    let mut series: BTreeMap<&str, Vec<SeriesPoint>> =
        raw.iter().map(|(name, values)| (name.as_str(), points(values))).into_map();
    // A flow that was asked for and gave nothing has no raw values.
    for name in document["results"].as_object().into_iter().flatten().map(|(name, _)| name) {
        series.entry(name).or_default();
    }
    // The known series would be a part of the load only.
    let others =
        series.keys().copied().filter(|name| SeriesKind::from_name(name) == SeriesKind::Other);
    let others: Vec<&str> = others.collect();
    if !others.is_empty() {
        return Err(unknown(metadata, others.into_iter()).into());
    }
    let flows = |kind: SeriesKind| -> Vec<FlowSeries<'_>> {
        let named = series.iter().filter(|(name, _)| SeriesKind::from_name(name) == kind);
        named.map(|(name, points)| FlowSeries { name, points }).collect()
    };
    let moved = |flows: &[FlowSeries<'_>]| flows.iter().any(|flow| !flow.points.is_empty());
    let [up, down, udp] = [SeriesKind::TcpUpload, SeriesKind::TcpDownload, SeriesKind::UdpUpload]
        .map(|kind| Some(flows(kind)).filter(|flows| moved(flows)).unwrap_or_default());
    let ping = series.get(PING).filter(|points| !points.is_empty());
    let all_pings = flows(SeriesKind::Ping).len();
    let mut notes = vec!["flent names no size of sends: latput's default is shown".to_owned()];
    if all_pings > usize::from(ping.is_some()) {
        notes.push(format!("of flent's pings only `{PING}` is imported"));
    }
    let mut observation = Observation::default();
    let count = |flows: usize| ("connections", flows.to_string());
    let workload = match (up.len(), down.len(), udp.len()) {
        (0, 0, 0) => {
            let ping = ping.ok_or_else(|| unknown(metadata, series.keys().copied()))?;
            notes.remove(0);
            return ping_alone(metadata, ping, notes);
        }
        (0, 0, flows) => workload("udp_stream", &[count(flows)])?,
        (flows, 0, 0) => workload("tcp_stream", &[count(flows)])?,
        (0, flows, 0) => workload("tcp_maerts", &[count(flows)])?,
        (up, down, 0) => workload("tcp_bidir", &[count(up.max(down))])?,
        _ => {
            return Err("it has TCP and UDP load at once, and latput has no such workload".into());
        }
    };
    for flow in up.iter().chain(&down).chain(&udp) {
        flow.compare_with(&metadata["SERIES_META"][flow.name]["MEAN_VALUE"])?;
        if flow.points.is_empty() {
            notes.push(format!("flent: `{}` has no values", flow.name));
        }
    }
    let bps =
        |flows: &[FlowSeries<'_>]| flows.iter().filter_map(FlowSeries::mean).sum::<f64>() * 1e6;
    if !up.is_empty() && !down.is_empty() {
        observation.reported_metrics.insert(Metric::ThroughputToSutBps, bps(&up));
        observation.reported_metrics.insert(Metric::ThroughputFromSutBps, bps(&down));
    }
    if udp.is_empty() {
        let all = bps(&up) + bps(&down);
        observation.reported_metrics.insert(Metric::ThroughputBps, all);
    } else {
        notes.push(format!(
            "flent's UDP upload is the sender's rate ({:.0} Mbit/s); the file does not have the receiver's",
            bps(&udp) / 1e6
        ));
    }
    if let Some(ping) = ping {
        probe(ping, &mut observation);
    }
    finish(metadata, workload, observation, notes).checked()
}

/// Subject of a test's series, by its name: flent's tests give it no other mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SeriesKind {
    TcpUpload,
    TcpDownload,
    UdpUpload,
    Ping,
    /// Computed of the others.
    Derived,
    /// Counters of a host.
    Counters,
    /// Load of another kind, or what nobody knows.
    Other,
}

impl SeriesKind {
    fn from_name(name: &str) -> Self {
        let starts = |prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix));
        let last = name.rsplit(' ').next().unwrap_or_default();
        if starts(&["cpu_stats_", "netstat_", "qdisc_stats_", "wifi_stats_"]) {
            return Self::Counters;
        }
        if ["sum", "total", "totals", "avg", "fairness"].contains(&last) {
            return Self::Derived;
        }
        match name {
            _ if starts(&["TCP upload"]) => Self::TcpUpload,
            _ if starts(&["TCP download"]) => Self::TcpDownload,
            _ if starts(&["UDP upload"]) => Self::UdpUpload,
            _ if starts(&["Ping (ms)"]) => Self::Ping,
            _ => Self::Other,
        }
    }
}

/// A flow's series.
#[derive(Clone, Copy, Debug)]
struct FlowSeries<'a> {
    name: &'a str,
    points: &'a [SeriesPoint],
}

impl FlowSeries<'_> {
    /// The mean of its values; of intervals with lengths, weighted by those.
    fn mean(&self) -> Option<f64> {
        let lengths: Option<Vec<f64>> = self.points.iter().map(|point| point.seconds).collect();
        let lengths = lengths.unwrap_or_else(|| vec![1.0; self.points.len()]);
        let sum: f64 = self.points.iter().zip(&lengths).map(|(point, s)| point.val * s).sum();
        (!self.points.is_empty()).then(|| sum / lengths.iter().sum::<f64>())
    }

    /// Refuses values that contradict the mean that the file states.
    fn compare_with(&self, stated: &Value) -> Result<(), ReadError> {
        let Some((mean, stated)) = self.mean().zip(stated.as_f64()) else { return Ok(()) };
        if (mean - stated).abs() <= MEANS_APART * mean.max(stated) {
            return Ok(());
        }
        Err(ReadError::Contradiction(format!(
            "the values of `{}` have the mean {mean:.1}, but the file states {stated:.1}",
            self.name
        )))
    }
}

fn finish(
    metadata: &Value,
    workload: latput_trial::Workload,
    observation: Observation,
    notes: Vec<String>,
) -> Test {
    let text = |key: &str| metadata[key].as_str().map(str::to_owned);
    let facts = ["NAME", "TITLE", "KERNEL_NAME", "KERNEL_RELEASE"];
    let name = |key: &str| format!("flent_{}", key.to_lowercase());
    Test {
        workload,
        setting: None,
        started_unix_ms: text("T0").or_else(|| text("TIME")).and_then(|time| unix_ms(&time)),
        identity: text("BATCH_UUID").zip(text("T0")).map(|(batch, time)| format!("{batch} {time}")),
        observation,
        facts: facts.iter().filter_map(|key| Some((name(key), text(key)?))).collect(),
        notes,
    }
}

/// A test with a ping only. Its round trips are those of the load.
fn ping_alone(
    metadata: &Value,
    ping: &[SeriesPoint],
    notes: Vec<String>,
) -> Result<Test, ReadError> {
    let step = metadata["STEP_SIZE"].as_f64().filter(|step| (1e-4..=1.0).contains(step));
    let rate = step.map_or(5.0, |step| (1.0 / step).round()); // flent's own step is 0.2 s
    let workload = workload("ping", &[("rate_hz", format!("{rate:.0}"))])?;
    let mut observation = Observation::default();
    let rtt = histogram(ping);
    let (first, last) = (ping.first(), ping.last());
    let seconds = first.zip(last).map_or(0.0, |(first, last)| last.t - first.t);
    observation.traffic = TrafficObservation {
        sender_window: Nanos::from_secs_f64(seconds),
        transactions: Some(rtt.count()),
        latency: Some(rtt),
        ..TrafficObservation::default()
    };
    finish(metadata, workload, observation, notes).checked()
}

/// A ping beside the load. Loss is known only for numbered pings.
fn probe(ping: &[SeriesPoint], observation: &mut Observation) {
    let rtt = histogram(ping);
    let numbers: Option<Vec<u64>> = ping.iter().map(|point| point.seq).collect();
    let range = numbers.and_then(|numbers| {
        let (first, last) = (numbers.iter().min()?, numbers.iter().max()?);
        last.checked_sub(*first)?.checked_add(1)
    });
    if let Some(sent) = range.filter(|sent| *sent >= rtt.count()) {
        observation.probe = Some(ProbeObservation { sent, received: rtt.count(), rtt });
        return;
    }
    let ns = |time: Option<Nanos>| time.map(|time| time.as_ns() as f64);
    let figures = [
        (Metric::ProbeNsMin, ns(rtt.min())),
        (Metric::ProbeNsMean, rtt.mean_ns()),
        (Metric::ProbeNsP99, ns(rtt.quantile(0.99))),
        (Metric::ProbeNsMax, ns(rtt.max())),
        (Metric::ProbeNsMdev, rtt.stdev_ns()),
    ];
    let known = figures.into_iter().filter_map(|(metric, value)| Some((metric, value?)));
    observation.reported_metrics.extend(known);
}

fn unknown<'a>(metadata: &Value, names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.take(8).collect();
    format!(
        "latput does not know the series of this `{}` test: {}",
        metadata["NAME"].as_str().unwrap_or("nameless"),
        if names.is_empty() { "none".to_owned() } else { names.join(", ") }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"{"version":4,"metadata":{"NAME":"tcp_nup","T0":"2026-11-21T23:34:29.5Z","TITLE":"x",
        "STEP_SIZE":0.2},"x_values":[0.2],"results":{"TCP upload::1":[999.0]},"raw_values":{
        "TCP upload::1":[{"t":1.0,"val":100.0},{"t":1.2,"val":300.0}],
        "TCP upload::2":[{"t":1.0,"val":50.0},{"t":1.1,"val":null}],
        "TCP upload sum":[{"t":1.0,"val":9999.0}],
        "Ping (ms) ICMP":[{"t":1.0,"val":0.5,"seq":1},{"t":1.2,"val":1.5,"seq":4}]}}"#;

    #[test]
    fn flows_add_up_and_pings_are_the_probe() {
        let test = one(FILE);
        assert_eq!(test.workload.name, "tcp_stream connections=2");
        assert_eq!(test.observation.reported_metrics.get(&Metric::ThroughputBps), Some(&250e6));
        let probe = test.observation.probe.unwrap();
        assert_eq!((probe.sent, probe.received), (4, 2), "numbers 2 and 3 are missing");
        assert_eq!(test.started_unix_ms, Some(1_795_304_069_000));
    }

    #[test]
    fn flow_without_values_is_named_and_counted() {
        let test = one(&FILE.replace("[999.0]", "[999.0],\"TCP upload::3\":[null]"));
        assert_eq!(test.workload.name, "tcp_stream connections=3");
        assert!(test.notes.contains(&"flent: `TCP upload::3` has no values".to_owned()));
    }

    #[test]
    fn pings_without_numbers_have_no_loss() {
        let test = one(&FILE.replace(",\"seq\":1", ""));
        assert_eq!(test.observation.probe, None);
        let value = |metric: Metric| metric.value(&test.workload.traffic, &test.observation);
        assert_eq!(value(Metric::ProbeLossRatio), None);
        assert!((value(Metric::ProbeNsMean).unwrap() - 1e6).abs() < 1e3);
    }

    #[test]
    fn directions_and_a_lonely_ping_have_their_workloads() {
        assert_eq!(one(&FILE.replace("upload", "download")).workload.traffic.kind(), "tcp_maerts");
        let both = one(&FILE.replace("upload::2", "download::1"));
        assert_eq!(both.workload.traffic.kind(), "tcp_bidir");
        let ping = one(&FILE.replace("TCP upload", "qdisc_stats_eth0"));
        assert_eq!(ping.workload.name, "ping rate_hz=5");
        assert_eq!(ping.observation.traffic.transactions, Some(2));
        let burst = FILE.replace("TCP upload::2", "Burst 0");
        check_refused(&burst, "does not know the series of this `tcp_nup` test: Burst 0");
    }

    #[test]
    fn broken_files_are_refused() {
        check_refused(&FILE[..300], "ends too early");
        check_refused("{}", "is it a flent file");
        check_refused(&FILE.replace("\"version\":4", "\"version\":9"), "version 9");
        check_refused(r#"{"version":4}"#, "no raw_values");
        check_refused(
            r#"{"version":4,"raw_values":{"CPU":[]},"metadata":{"NAME":"cpu"}}"#,
            "`cpu` test: CPU",
        );
        let hostile = FILE
            .replace("100.0", "-1e308")
            .replace("1.5", "1e308")
            .replace("\"seq\":4", "\"seq\":-4e30");
        drop(tests(&hostile));
    }

    #[test]
    fn times_are_utc() {
        assert_eq!(unix_ms("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(unix_ms("2024-02-29T12:00:00.000000Z"), Some(1_709_208_000_000));
        for wrong in ["", "yesterday", "2024-13-01T00:00:00Z", "9999-01-01T00:00:00Z", "2024-01-01"]
        {
            assert_eq!(unix_ms(wrong), None, "{wrong}");
        }
    }

    fn one(text: &str) -> Test {
        tests(text).unwrap().tests.remove(0).unwrap()
    }

    #[track_caller]
    fn check_refused(text: &str, part: &str) {
        let read = tests(text);
        let problem =
            read.map_or_else(|problem| problem, |mut read| read.tests.remove(0).unwrap_err());
        assert!(problem.to_string().contains(part), "{problem:?}");
    }
}
