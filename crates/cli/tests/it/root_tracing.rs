//! Tests that the cost of tracing is counted and printed beside the CPU figures.

use latput_testkit::{isolate, needs};
use serde_json::Value;

use crate::Place;

const MEASURE: [&str; 11] = [
    "measure",
    "lab",
    "--workload",
    "tcp_rr",
    "--duration",
    "300ms",
    "--repetitions",
    "1..1",
    "-o",
    "r.db",
    "-v",
];
const NAME: &str = "sampling-cost";

#[needs("root")]
#[test]
fn traced_window_reports_tracing_cost() {
    isolate();
    let place = Place::new();
    // The switch that has windows traced, as where the kernel's record of idle time cannot be read.
    let ran = place.run_with(("LATPUT_BPF", "window"), &MEASURE);
    ran.expect(0, &["latput's counting takes"]);
    let report = place.report_json("r.db");
    let hosts = report["runs"][0]["hosts"].as_array().unwrap();
    if hosts.iter().any(|host| host["cpu_source"] != "trace") {
        eprintln!("skipped: CPU time is not traced here");
        return;
    }
    for host in hosts {
        let number = |name: &str| host[name].as_f64().unwrap();
        let share = number("tracing_cpu_ns") / number("window_ns");
        println!("tracing took {:.2}% of a CPU", 100.0 * share);
        assert!(share > 0.0 && share < 2.0, "{host}");
    }
    let db = rusqlite::Connection::open(place.path("r.db")).unwrap();
    let query = "SELECT json_extract(observation, '$.checks') FROM trial";
    let checks: String = db.query_row(query, [], |row| row.get(0)).unwrap();
    let checks: Vec<Value> = serde_json::from_str(&checks).unwrap();
    let costs: Vec<&Value> = checks.iter().filter(|check| check["name"] == NAME).collect();
    assert_eq!(costs.len(), hosts.len());
    for check in costs {
        assert!(check["detail"].as_str().unwrap().contains("and tracing"), "{check}");
    }
}

#[needs("root")]
#[test]
fn untraced_window_reports_no_tracing_cost() {
    isolate();
    let place = Place::new();
    place.run(&MEASURE).expect(0, &["latput's counting takes"]);
    let report = place.report_json("r.db");
    for host in report["runs"][0]["hosts"].as_array().unwrap() {
        if host["cpu_source"] == "record" {
            assert!(host["tracing_cpu_ns"].is_null(), "{host}");
        }
    }
}

/// Two settings that do the same, in slices.
const SLICES: &str = r#"
schema = 1
name = "turns"
[factors]
"gro-flush-timeout" = ["0us", "1us"]
[[workload]]
kind = "tcp_rr"
[method]
design = "slices"
repetitions = { min = 2, max = 2 }
warmup = "200ms"
duration = "500ms"
"#;

#[needs("root")]
#[test]
fn ends_trace_before_different_slices() {
    isolate();
    let place = Place::new();
    std::fs::write(place.path("plan.toml"), SLICES).unwrap();
    // The switch that compares slices with a span before them with their neighbours.
    let run = ["run", "plan.toml", "--on", "lab", "-o", "r.db", "--as-it-is"];
    place.run_with(("LATPUT_BPF", "turns"), &run).expect(0, &[]);
    let report = place.report_json("r.db");
    let (mut traced, mut plain) = (0, 0);
    for run in report["runs"].as_array().unwrap() {
        let hosts = run["hosts"].as_array().unwrap();
        if hosts.iter().any(|host| host["cpu_source"] != "record") {
            eprintln!("skipped: the kernel's record of idle time cannot be read here");
            return;
        }
        match hosts.iter().filter(|host| host["traced_beside_ns"].is_u64()).count() {
            0 => plain += 1,
            1 => traced += 1,
            _ => panic!("both ends traced before one slice: {run}"),
        }
    }
    println!("{traced} slices with a span before them, {plain} without");
    assert!(traced > 0 && plain > 0, "{traced} {plain}");
}
