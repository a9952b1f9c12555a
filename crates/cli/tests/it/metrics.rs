//! `latput metrics`, and that workloads report what it says.

use std::collections::BTreeSet;

use crate::Place;

/// Each kind with fields under which it has all that it can have.
const WORKLOADS: &[(&str, &[&str])] = &[
    ("tcp_rr", &["rate_per_s=2000"]),
    ("tcp_crr", &[]),
    ("tcp_stream", &[]),
    ("tcp_maerts", &[]),
    ("tcp_bidir", &[]),
    ("udp_stream", &["rate=20Mbps"]),
    ("udp_rr", &["rate_per_s=2000"]),
    ("fetch", &["object_bytes=10000"]),
    ("rpc_read", &[]),
];

/// Metrics that not every host or testbed has: NAPI polls, and CPU time by ticks of 10 ms, of which a short window of light
/// traffic may have none.
const NOT_ALWAYS: &[&str] = &[
    "sut_polls_per_s",
    "sut_packets_per_poll",
    "sut_netperf_demand_us",
    "generator_netperf_demand_us",
];
/// Retransmissions are not known of connections that are gone.
const OF_CONNECTIONS_THAT_LAST: &str = "retransmits_per_s";

#[test]
fn metrics_list_has_units_and_definitions() {
    let place = Place::new();
    let all = place.run(&["metrics"]);
    all.expect(0, &["latency_ns_p99", "lower is better", "any workload", "RFC 3550"]);
    let of_bulk = place.run(&["metrics", "tcp_stream"]);
    of_bulk.expect(0, &["throughput_bps", "higher is better"]);
    assert!(!of_bulk.out.contains("latency_ns_p99"), "{}", of_bulk.out);
    place.run(&["metrics", "tcp_rrr"]).expect(2, &["tcp_rrr", "tcp_rr, "]);
}

#[test]
fn unknown_goal_metric_names_the_nearest() {
    let place = Place::new();
    place.write("plan.toml", "schema = 1\nname = \"p\"\n[[workload]]\nkind = \"tcp_rr\"\n");
    let run = |goal: &str| {
        place.run(&["run", "plan.toml", "--on", "sim:server-10g", "--goal", goal, "-o", "kept.db"])
    };
    run("minimize latncy_ns_p99").expect(2, &["`latency_ns_p99`", "`latput metrics`"]);
    run("minimize latency_raw_ns_p99").expect(2, &["`latency_uncorrected_ns_p99` now"]);
}

/// Over the loopback interface, which needs no root and has real traffic of every kind but `ping`.
#[test]
fn workload_reports_its_declared_metrics() {
    for (kind, fields) in WORKLOADS {
        let place = Place::new();
        let mut args = vec!["measure", "loopback", "--workload", kind];
        args.extend(*fields);
        args.extend(["--duration", "200ms", "--repetitions", "1", "-o", "kept.db", "--json"]);
        let ran = place.run(&args);
        let document: serde_json::Value = serde_json::from_str(&ran.expect(0, &[]).out).unwrap();
        let reported: BTreeSet<String> =
            document["runs"][0]["metrics"].as_object().unwrap().keys().cloned().collect();
        let listed = place.run(&["metrics", kind, "--json"]);
        let listed: serde_json::Value = serde_json::from_str(&listed.expect(0, &[]).out).unwrap();
        let metrics = listed["metrics"].as_array().unwrap();
        let declared: BTreeSet<String> = metrics
            .iter()
            .filter(|metric| metric["needs"] != "probe_hz")
            .map(|metric| metric["name"].as_str().unwrap().to_owned())
            .collect();
        let missing: Vec<&String> = declared.difference(&reported).collect();
        let is_known = |name: &str| {
            NOT_ALWAYS.contains(&name) || *kind == "tcp_crr" && name == OF_CONNECTIONS_THAT_LAST
        };
        assert!(missing.iter().all(|name| is_known(name)), "{kind} lacks {missing:?}");
        assert!(reported.is_subset(&declared), "{kind}: {reported:?} of {declared:?}");
    }
}
