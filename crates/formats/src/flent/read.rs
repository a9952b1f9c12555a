//! Reader of flent's data files, versions 3 and 4.
//!
//! It reads `raw_values`, since flent interpolates `results` to a common step.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use latput_trial::observation::{ProbeObservation, TrafficObservation};
use latput_trial::{Metric, Observation, Workload};
use latput_units::text::{format_count, is_or_are};
use latput_units::{IntoMap, Nanos};
use serde_json::Value;

use super::series::{SeriesPoint, build_histogram, count_absent, parse_points};
use super::{PING, unix_ms};
use crate::parsed::{ParseProblem, ParsedTest, ParsedTests, parse_documents, workload_from_fields};
use crate::read_error::ReadError;
use crate::rules::{DeliveryCounts, StatedFigures};

/// Versions of the format that are read.
const VERSIONS: RangeInclusive<u64> = 3..=4;
/// Most share by which the mean that flent states may differ from that of the values: the program that measured also
/// counts what moved before the first value and behind the last.
const MEANS_APART: f64 = 0.1;
/// Most flows that an error names.
const MOST_NAMED: usize = 8;

/// The single test of a file, or the runs of one that latput has written.
pub(crate) fn parse_tests(text: &str) -> Result<ParsedTests, ParseProblem> {
    let found = parse_documents(text).map_err(|error| ParseProblem::new(error.to_string()))?;
    let mut all = found.documents.into_iter();
    let document = match (all.next(), all.next()) {
        (Some(document), None) => document.map_err(ParseProblem::new)?,
        (None, _) => return Err(ParseProblem::new("it has no JSON document")),
        (Some(_), Some(_)) => {
            return Err(ParseProblem::new("it has several JSON documents, and flent writes one"));
        }
    };
    check_version(&document)?;
    if let Some(own) = super::own::parse_tests(&document) {
        return own;
    }
    let mut tests = ParsedTests { notes: found.notes, ..ParsedTests::default() };
    tests.push(parse_test(&document));
    Ok(tests)
}

/// Refuses the versions of the format that are not read.
fn check_version(document: &Value) -> Result<(), ParseProblem> {
    let problem = match document["version"].as_u64() {
        Some(version) if VERSIONS.contains(&version) => return Ok(()),
        Some(version) => {
            let (oldest, newest) = (VERSIONS.start(), VERSIONS.end());
            let remedy = if version > *newest {
                "this file is newer: look for a newer latput"
            } else {
                "this file is older: open and save it with a newer flent"
            };
            format!(
                "version {version} of the format: latput reads {oldest} to {newest}, and {remedy}"
            )
        }
        None => "there is none: is it a flent file?".to_owned(),
    };
    Err(ParseProblem::at_place("version", problem))
}

fn parse_test(document: &Value) -> Result<ParsedTest, ReadError> {
    let metadata = &document["metadata"];
    let raw = document["raw_values"].as_object().ok_or("it has no raw_values")?;
    let mut series: BTreeMap<&str, Vec<SeriesPoint>> =
        raw.iter().map(|(name, values)| (name.as_str(), parse_points(values))).into_map();
    // A flow that was asked for and gave nothing has no raw values, or its metadata only.
    for name in document["results"].as_object().into_iter().flatten().map(|(name, _)| name) {
        series.entry(name).or_default();
    }
    for name in metadata["SERIES_META"].as_object().into_iter().flatten().map(|(name, _)| name) {
        if SeriesKind::from_name(name).is_load() {
            series.entry(name).or_default();
        }
    }
    // The known series would be a part of the load only.
    let others =
        series.keys().copied().filter(|name| SeriesKind::from_name(name) == SeriesKind::Other);
    let others: Vec<&str> = others.collect();
    if !others.is_empty() {
        return Err(unknown_series_error(metadata, others.into_iter()).into());
    }
    let flows = |kind: SeriesKind| -> Vec<FlowSeries<'_>> {
        let named = series.iter().filter(|(name, _)| SeriesKind::from_name(name) == kind);
        named.map(|(name, points)| FlowSeries { name, points }).collect()
    };
    let load = NamedFlows {
        up: flows(SeriesKind::TcpUpload),
        down: flows(SeriesKind::TcpDownload),
        udp: flows(SeriesKind::UdpUpload),
    };
    let pings = flows(SeriesKind::Ping);
    let ping = pings.iter().find(|flow| flow.name == PING && !flow.points.is_empty());
    let mut notes: Vec<String> =
        raw.iter().filter_map(|(name, of)| absent_note(name, of)).collect();
    for flow in load.all_flows().chain(ping) {
        flow.compare_with(&metadata["SERIES_META"][flow.name])?;
    }
    if pings.len() > usize::from(ping.is_some()) {
        notes.push(format!("of flent's pings only `{PING}` is imported"));
    }
    let Some(workload) = load.build_workload()? else {
        let ping = ping.ok_or_else(|| unknown_series_error(metadata, series.keys().copied()))?;
        return ping_alone(metadata, ping.points, notes);
    };
    notes.push("flent names no size of sends: latput's default is shown".to_owned());
    let mut observation = Observation::default();
    load.add_goodput(&mut observation, &mut notes);
    let arrival = ping.map(|ping| {
        let is_whole = count_absent(&raw[ping.name]) == 0;
        let command = metadata["SERIES_META"][ping.name]["COMMAND"].as_str();
        let sent = command.and_then(count_sent).filter(|_| is_whole);
        add_probe(ping.points, sent, &mut observation, &mut notes)
    });
    let mut test = build_test(metadata, workload, observation, notes);
    test.beside.arrivals.extend(arrival.flatten());
    test.into_checked()
}

/// Names the values of a series that count as absent.
fn absent_note(name: &str, values: &Value) -> Option<String> {
    let count = Some(count_absent(values)).filter(|count| *count > 0)?;
    let of = if SeriesKind::from_name(name) == SeriesKind::Counters { return None } else { name };
    Some(format!(
        "flent: {} of `{of}` {} not 0 or more, and absent",
        format_count(count, "value"),
        is_or_are(count)
    ))
}

/// The flows of a test by their names, with those that moved nothing.
struct NamedFlows<'a> {
    up: Vec<FlowSeries<'a>>,
    down: Vec<FlowSeries<'a>>,
    udp: Vec<FlowSeries<'a>>,
}

impl<'a> NamedFlows<'a> {
    fn all_flows(&self) -> impl Iterator<Item = &FlowSeries<'a>> {
        self.up.iter().chain(&self.down).chain(&self.udp)
    }

    /// The workload that was asked for; `None` without any flow. Fails where no flow of a direction moved anything.
    fn build_workload(&self) -> Result<Option<Workload>, ReadError> {
        let (kind, flows) = match (self.up.len(), self.down.len(), self.udp.len()) {
            (0, 0, 0) => return Ok(None),
            (0, 0, flows) => ("udp_stream", flows),
            (flows, 0, 0) => ("tcp_stream", flows),
            (0, flows, 0) => ("tcp_maerts", flows),
            (up, down, 0) => ("tcp_bidir", up.max(down)),
            _ => {
                return Err(
                    "it has TCP and UDP load at once, and latput has no such workload".into()
                );
            }
        };
        for flows in [&self.up, &self.down, &self.udp] {
            if !flows.is_empty() && !flows.iter().any(FlowSeries::has_moved) {
                let names: Vec<String> =
                    flows.iter().take(MOST_NAMED).map(|flow| format!("`{}`", flow.name)).collect();
                let problem = format!("no data arrived: nothing is in {}", names.join(", "));
                return Err(ReadError::Failed(problem));
            }
        }
        Ok(Some(workload_from_fields(kind, &[("connections", flows.to_string())])?))
    }

    /// Adds the rates, and names the flows that moved nothing.
    fn add_goodput(&self, observation: &mut Observation, notes: &mut Vec<String>) {
        for flow in self.all_flows().filter(|flow| !flow.has_moved()) {
            notes.push(format!("flent: `{}` has no values above 0", flow.name));
        }
        let [up, down, udp] = [&self.up, &self.down, &self.udp]
            .map(|flows| flows.iter().filter_map(FlowSeries::weighted_mean).sum::<f64>() * 1e6);
        let reported = &mut observation.reported_metrics;
        if !self.up.is_empty() && !self.down.is_empty() {
            reported.insert(Metric::ThroughputToSutBps, up);
            reported.insert(Metric::ThroughputFromSutBps, down);
        }
        if self.udp.is_empty() {
            reported.insert(Metric::ThroughputBps, up + down);
        } else {
            notes.push(format!(
                "flent's UDP upload is the sender's rate ({:.0} Mbit/s); the file does not have the receiver's",
                udp / 1e6
            ));
        }
    }
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
    const fn is_load(self) -> bool {
        matches!(self, Self::TcpUpload | Self::TcpDownload | Self::UdpUpload)
    }

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
    fn weighted_mean(&self) -> Option<f64> {
        let lengths: Option<Vec<f64>> = self.points.iter().map(|point| point.seconds).collect();
        let lengths = lengths.unwrap_or_else(|| vec![1.0; self.points.len()]);
        let sum: f64 = self.points.iter().zip(&lengths).map(|(point, s)| point.val * s).sum();
        (!self.points.is_empty()).then(|| sum / lengths.iter().sum::<f64>())
    }

    fn has_moved(&self) -> bool {
        self.points.iter().any(|point| point.val > 0.0)
    }

    /// Refuses values of another unit than that of the series, and those that contradict the mean that the file states.
    fn compare_with(&self, stated: &Value) -> Result<(), ReadError> {
        let is_ping = SeriesKind::from_name(self.name) == SeriesKind::Ping;
        let unit = if is_ping { "ms" } else { "Mbits/s" };
        if let Some(other) = stated["UNITS"].as_str().filter(|other| *other != unit) {
            let other: String = other.escape_debug().take(40).collect();
            let problem = format!("`{}` is in {other}, and flent has it in {unit}", self.name);
            return Err(problem.into());
        }
        // netperf states the mean at its end.
        let is_netperfs = stated["RUNNER"].as_str().is_some_and(|it| it.starts_with("Netperf"));
        let has_end = ["MEAN_VALUE", "ELAPSED_TIME"].iter().any(|key| !stated[key].is_null());
        if is_netperfs && self.has_moved() && !has_end {
            let problem = format!("`{}` was cut short: netperf did not reach its end", self.name);
            return Err(ReadError::Failed(problem));
        }
        let known = self.weighted_mean().zip(stated["MEAN_VALUE"].as_f64());
        let Some((mean, stated)) = known else { return Ok(()) };
        if (mean - stated).abs() <= MEANS_APART * mean.max(stated) {
            return Ok(());
        }
        Err(ReadError::Contradiction(format!(
            "the values of `{}` have the mean {mean:.3}, but the file states {stated:.3}",
            self.name
        )))
    }
}

fn build_test(
    metadata: &Value,
    workload: Workload,
    observation: Observation,
    notes: Vec<String>,
) -> ParsedTest {
    let text = |key: &str| metadata[key].as_str().map(str::to_owned);
    let facts = ["NAME", "TITLE", "KERNEL_NAME", "KERNEL_RELEASE"];
    let name = |key: &str| format!("flent_{}", key.to_lowercase());
    ParsedTest {
        workload,
        setting: None,
        started_unix_ms: text("T0").or_else(|| text("TIME")).and_then(|time| unix_ms(&time)),
        identity: text("BATCH_UUID").zip(text("T0")).map(|(batch, time)| format!("{batch} {time}")),
        writer: None,
        record: None,
        observation,
        beside: StatedFigures::default(),
        facts: facts.iter().filter_map(|key| Some((name(key), text(key)?))).collect(),
        notes,
    }
}

/// A test with a ping only. Its round trips are those of the load.
fn ping_alone(
    metadata: &Value,
    ping: &[SeriesPoint],
    notes: Vec<String>,
) -> Result<ParsedTest, ReadError> {
    let step = metadata["STEP_SIZE"].as_f64().filter(|step| (1e-4..=1.0).contains(step));
    let rate = step.map_or(5.0, |step| (1.0 / step).round()); // flent's own step is 0.2 s
    let workload = workload_from_fields("ping", &[("rate_hz", format!("{rate:.0}"))])?;
    let mut observation = Observation::default();
    let rtt = build_histogram(ping);
    let (first, last) = (ping.first(), ping.last());
    let between = first.zip(last).map_or(0.0, |(first, last)| last.t - first.t);
    // Each ping has the time to the next one, and the last one has it too.
    let count = ping.len() as f64;
    let seconds = if count > 1.0 { between * count / (count - 1.0) } else { between };
    observation.traffic = TrafficObservation {
        sender_window: Nanos::from_secs_f64(seconds),
        transactions: Some(rtt.count()),
        latency: Some(rtt),
        ..TrafficObservation::default()
    };
    build_test(metadata, workload, observation, notes).into_checked()
}

/// The count of requests that the command line of a ping asks for: `fping -D -p 200 -c 60 -t 24000 192.0.2.7`.
fn count_sent(command: &str) -> Option<u64> {
    let words: Vec<&str> = command.split_whitespace().collect();
    let is_count = |word: &str| ["-c", "-C", "--count"].contains(&word);
    let counts = words.windows(2).filter(|pair| is_count(pair[0]));
    let mut known = counts.filter_map(|pair| pair[1].parse().ok());
    known.find(|count| *count > 0)
}

/// Adds a ping beside the load. Its loss is known only where its command tells how many were sent: the last replies of those
/// that are lost leave no gap in the numbers. Returns what arrived of them.
fn add_probe(
    ping: &[SeriesPoint],
    sent: Option<u64>,
    observation: &mut Observation,
    notes: &mut Vec<String>,
) -> Option<DeliveryCounts> {
    let rtt = build_histogram(ping);
    let numbers: Option<BTreeSet<u64>> = ping.iter().map(|point| point.seq).collect();
    let received = numbers.as_ref().map_or(rtt.count(), |numbers| numbers.len() as u64);
    if let Some(sent) = sent {
        observation.probe = Some(ProbeObservation { sent, received, rtt });
        let counts = DeliveryCounts::from_packets(sent as f64, received as f64);
        return Some(DeliveryCounts { counted: "pings", ..counts });
    }
    let ends = numbers.as_ref().and_then(|all| all.first().zip(all.last()));
    let gaps = ends.map_or(0, |(first, last)| (last - first).saturating_sub(received - 1));
    if gaps > 0 {
        notes.push(format!(
            "flent: {gaps} numbers of `{PING}` are missing; the file does not tell how many were sent, so its loss is absent"
        ));
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
    None
}

fn unknown_series_error<'a>(metadata: &Value, names: impl Iterator<Item = &'a str>) -> String {
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
        let test = parse_one(FILE);
        assert_eq!(test.workload.name, "tcp_stream connections=2");
        assert_eq!(test.observation.reported_metrics.get(&Metric::ThroughputBps), Some(&250e6));
        let mean = Metric::ProbeNsMean.value(&test.workload.traffic, &test.observation);
        assert!((mean.unwrap() - 1e6).abs() < 1e3, "{mean:?}");
        assert_eq!(test.started_unix_ms, Some(1_795_304_069_000));
    }

    #[test]
    fn flow_without_values_is_named_and_counted() {
        let test = parse_one(&FILE.replace("[999.0]", "[999.0],\"TCP upload::3\":[null]"));
        assert_eq!(test.workload.name, "tcp_stream connections=3");
        assert!(test.notes.contains(&"flent: `TCP upload::3` has no values above 0".to_owned()));
        assert!(
            test.notes
                .iter()
                .any(|note| note.contains("1 value of `TCP upload::2` is not 0 or more"))
        );
    }

    /// A test of an upload whose flows are all dead is no idle ping, nor one of both directions a download.
    #[test]
    fn load_without_data_is_lost() {
        let all_dead = FILE
            .replace(r#""TCP upload::1":[{"t":1.0,"val":100.0},{"t":1.2,"val":300.0}],"#, "")
            .replace(r#"{"t":1.0,"val":50.0}"#, r#"{"t":1.0,"val":0.0}"#);
        check_refused(&all_dead, "no data arrived: nothing is in `TCP upload::1`, `TCP upload::2`");
        let one_way = FILE.replace("[999.0]", "[999.0],\"TCP download BE\":[null]");
        check_refused(&one_way, "no data arrived: nothing is in `TCP download BE`");
        let meta = r#""SERIES_META":{"TCP upload::9":{},"ss_stats":{}},"STEP_SIZE""#;
        let test = parse_one(&FILE.replace("\"STEP_SIZE\"", meta));
        assert_eq!(test.workload.name, "tcp_stream connections=3");
    }

    #[test]
    fn stated_mean_and_unit_are_compared() {
        let stated = |name: &str, unit: &str, mean: f64| {
            let meta = format!(
                r#""SERIES_META":{{"{name}":{{"UNITS":"{unit}","MEAN_VALUE":{mean}}}}},"STEP_SIZE""#
            );
            FILE.replace("\"STEP_SIZE\"", &meta)
        };
        parse_one(&stated("Ping (ms) ICMP", "ms", 1.0));
        parse_one(&stated("TCP upload::1", "Mbits/s", 200.0));
        check_refused(
            &stated("Ping (ms) ICMP", "ms", 40.0),
            "the values of `Ping (ms) ICMP` have the mean 1.000, but the file states 40.000",
        );
        check_refused(
            &stated("TCP upload::1", "Gbits/s", 200.0),
            "`TCP upload::1` is in Gbits/s, and flent has it in Mbits/s",
        );
    }

    fn with_command(text: &str, command: &str) -> String {
        let meta = format!(r#""SERIES_META":{{"{PING}":{{"COMMAND":"{command}"}}}},"STEP_SIZE""#);
        text.replace("\"STEP_SIZE\"", &meta)
    }

    #[test]
    fn replies_are_compared_with_count_of_command() {
        let command =
            |count: u64| format!("/usr/bin/fping  -D -p 200 -c {count} -t 4000   192.0.2.7");
        for (count, loss) in [(60, 58.0 / 60.0), (4, 0.5), (2, 0.0)] {
            for text in [FILE, &FILE.replace(",\"seq\":1", "")] {
                let test = parse_one(&with_command(text, &command(count)));
                let probe = test.observation.probe.as_ref().unwrap();
                assert_eq!((probe.sent, probe.received), (count, 2));
                let read = Metric::ProbeLossRatio.value(&test.workload.traffic, &test.observation);
                assert!((read.unwrap() - loss).abs() < 1e-9, "{read:?} of {count}");
            }
        }
        check_refused(&with_command(FILE, &command(1)), "2 pings arrived of 1 sent");
    }

    #[test]
    fn loss_without_count_of_command_is_absent() {
        let deadline = with_command(FILE, "/usr/bin/ping -n -D -i 0.20 -w 12 -C 192.0.2.7");
        let broken = with_command(&FILE.replace("1.5,", "null,"), "fping -c 2 192.0.2.7");
        for text in [FILE, &FILE.replace(",\"seq\":1", ""), &deadline, &broken] {
            let test = parse_one(text);
            assert_eq!(test.observation.probe, None);
            let value = |metric: Metric| metric.value(&test.workload.traffic, &test.observation);
            assert_eq!(value(Metric::ProbeLossRatio), None);
            assert!(value(Metric::ProbeNsMean).is_some());
        }
        let notes = parse_one(FILE).notes;
        assert!(
            notes.iter().any(|note| note.contains("2 numbers of `Ping (ms) ICMP`")),
            "{notes:?}"
        );
    }

    #[test]
    fn directions_and_a_lonely_ping_have_their_workloads() {
        assert_eq!(
            parse_one(&FILE.replace("upload", "download")).workload.traffic.kind(),
            "tcp_maerts"
        );
        let both = parse_one(&FILE.replace("upload::2", "download::1"));
        assert_eq!(both.workload.traffic.kind(), "tcp_bidir");
        let ping = parse_one(&FILE.replace("TCP upload", "qdisc_stats_eth0"));
        assert_eq!(ping.workload.name, "ping rate_hz=5");
        assert_eq!(ping.observation.traffic.transactions, Some(2));
        let burst = FILE.replace("TCP upload::2", "Burst 0");
        check_refused(&burst, "does not know the series of this `tcp_nup` test: Burst 0");
    }

    #[test]
    fn other_version_is_refused_with_remedy() {
        for (version, said) in [
            ("2", "latput reads 3 to 4, and this file is older: open and save it"),
            ("5", "latput reads 3 to 4, and this file is newer"),
            ("9", "version 9 of the format"),
            ("\"4\"", "is it a flent file"),
        ] {
            let text = FILE.replace("\"version\":4", &format!("\"version\":{version}"));
            let problem = parse_tests(&text).unwrap_err();
            assert!(
                problem.place == "version: " && problem.to_string().contains(said),
                "{problem}"
            );
        }
    }

    #[test]
    fn broken_files_are_refused() {
        check_refused(&FILE[..300], "ends too early");
        check_refused("{}", "is it a flent file");
        check_refused(r#"{"version":4}"#, "no raw_values");
        check_refused(
            r#"{"version":4,"raw_values":{"CPU":[]},"metadata":{"NAME":"cpu"}}"#,
            "`cpu` test: CPU",
        );
        let hostile = FILE
            .replace("100.0", "-1e308")
            .replace("1.5", "1e308")
            .replace("\"seq\":4", "\"seq\":-4e30");
        drop(parse_tests(&hostile));
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

    fn parse_one(text: &str) -> ParsedTest {
        parse_tests(text).unwrap().tests.remove(0).unwrap()
    }

    #[track_caller]
    fn check_refused(text: &str, part: &str) {
        let read = parse_tests(text);
        let problem =
            read.map_or_else(|problem| problem, |mut read| read.tests.remove(0).unwrap_err());
        assert!(problem.to_string().contains(part), "{problem:?}");
    }
}
