//! Every test of flent's distribution (`flent-tests.txt`, by `flent-tests.py`): imported with all of its load, or refused by
//! name. What is load, and of which kind, is known from flent's runners, not from the names that the reader goes by.

use latput_formats::{ImportFormat, import_files};
use latput_trial::Metric;
use serde_json::{Map, json};

const TESTS: &str = include_str!("flent-tests.txt");
/// Mbit/s of each flow.
const UPLOAD: f64 = 10.0;
const DOWNLOAD: f64 = 20.0;

/// The data sets of a test, and its load by flent's runners.
#[derive(Debug, Default)]
struct FlentTest {
    name: &'static str,
    sets: Vec<(String, &'static str)>,
    uploads: usize,
    downloads: usize,
    datagrams: usize,
    pings: usize,
    has_other_load: bool,
}

impl FlentTest {
    fn new(line: &'static str) -> Self {
        let mut fields = line.split('\t');
        let mut test = Self { name: fields.next().expect("a name"), ..Self::default() };
        for field in fields {
            let (set, runner) = field.rsplit_once('=').expect("a runner");
            let (start, last) = set.rsplit_once("1..").unwrap_or((set, ""));
            let names = match last.parse::<usize>() {
                Ok(last) => (1..=last).map(|number| format!("{start}{number}")).collect(),
                Err(_) => vec![set.to_owned()],
            };
            let count = names.len();
            match runner {
                "TCP_STREAM" => test.uploads += count,
                "TCP_MAERTS" => test.downloads += count,
                "iperf_csv" => test.datagrams += count,
                "ping" | "udp_rtt" | "TCP_RR" => test.pings += count,
                "average" | "sum" | "fairness" | "diff_min" | "null" => {}
                _ => test.has_other_load = true,
            }
            test.sets.extend(names.into_iter().map(|name| (name, runner)));
        }
        test
    }

    /// The data file of a run.
    fn build_file(&self) -> Vec<u8> {
        let (mut raw, mut results) = (Map::new(), Map::new());
        for (name, runner) in &self.sets {
            let val = match *runner {
                "TCP_MAERTS" => DOWNLOAD,
                "TCP_STREAM" | "iperf_csv" => UPLOAD,
                _ => 1.5,
            };
            results.insert(name.clone(), json!([val]));
            if !["average", "sum", "fairness", "diff_min", "null"].contains(runner) {
                raw.insert(name.clone(), json!([{"t": 1.0, "val": val}, {"t": 1.2, "val": val}]));
            }
        }
        let metadata = json!({"NAME": self.name, "T0": "2026-11-21T23:34:29.5Z"});
        let file = json!({"version": 4, "metadata": metadata, "x_values": [0.2], "results": results, "raw_values": raw});
        file.to_string().into_bytes()
    }

    /// The workload with its connections that stands for the load; `None` where there is none.
    fn expected_workload(&self) -> Option<String> {
        let of = |kind: &str, count: usize| Some(format!("{kind} connections={count}"));
        match (self.uploads, self.downloads, self.datagrams) {
            _ if self.has_other_load => None,
            (0, 0, 0) => Some("ping rate_hz=5".to_owned()).filter(|_| self.pings > 0),
            (0, 0, count) => of("udp_stream", count),
            (count, 0, 0) => of("tcp_stream", count),
            (0, count, 0) => of("tcp_maerts", count),
            (up, down, 0) => of("tcp_bidir", up.max(down)),
            _ => None,
        }
    }
}

#[test]
fn every_flent_test_imports_or_is_named() {
    let mut imported = Vec::new();
    let mut refused = Vec::new();
    for test in TESTS.lines().filter(|line| !line.starts_with('#')).map(FlentTest::new) {
        match import_files(ImportFormat::Flent, &[(test.name.to_owned(), test.build_file())]) {
            Ok(read) => {
                let [row] = &read.results.rows[..] else { panic!("{test:?}") };
                let workload = &read.results.workloads[row.workload];
                let wanted =
                    test.expected_workload().map(|name| name.replace(" connections=1", ""));
                let found = workload.name.replace(" connections=1", "");
                assert_eq!(Some(found), wanted, "{test:?}");
                let mbps = (UPLOAD * test.uploads as f64) + (DOWNLOAD * test.downloads as f64);
                let read = Metric::ThroughputBps.value(&workload.traffic, &row.observation);
                if let Some(bps) = read {
                    assert!((bps / 1e6 - mbps).abs() < 1e-6, "{bps} {test:?}");
                }
                assert!(read.is_some() || mbps == 0.0, "{test:?}");
                imported.push(test.name);
            }
            Err(error) => {
                let error = error.to_string();
                let is_named = error.contains(&format!("`{}` test", test.name));
                // Of datagrams the file has the sender's rate, and not every test has the ping that is imported.
                let is_named = is_named || error.contains("it has no figures");
                assert!(
                    is_named || error.contains("TCP and UDP load at once"),
                    "{test:?}: {error}"
                );
                refused.push(test.name);
            }
        }
    }
    for name in [
        "rrul",
        "rrul_be",
        "tcp_nup",
        "tcp_ndown",
        "tcp_upload_1000",
        "udp_flood",
        "ping",
        "rtt_fair",
    ] {
        assert!(imported.contains(&name), "{refused:?}");
    }
    assert_eq!(
        (imported.len(), refused.len()),
        (59, 25),
        "imported: {imported:?}\nrefused: {refused:?}"
    );
}
