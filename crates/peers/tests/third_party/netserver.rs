//! An unmodified netserver, where there is one: in the `PATH`, or named by `LATPUT_NETSERVER`.

use latput_trial::Metric;
use latput_trial::observation::CpuMethod;

use crate::{ServerProcess, free_port, measure_workload, parse_workload};

#[test]
fn netserver_workloads_have_remote_cpu_time() {
    let Some((_server, url)) = start_server() else { return };
    for text in [
        "tcp_rr",
        "tcp_rr burst=16",
        "tcp_rr request_bytes=100 response_bytes=3000 connections=3 threads=2",
        "tcp_stream",
        "tcp_maerts connections=2",
        "udp_rr",
        "udp_rr burst=4",
    ] {
        let outcome =
            measure_workload(&url, text).unwrap_or_else(|error| panic!("{text}: {error}"));
        let busy = outcome.reported_metrics[&Metric::SutCpuBusyRatio];
        assert!((0.0..=1.1).contains(&busy), "{text}: {busy}");
        // A host that did nothing else may have been busy for less than a clock tick.
        let demand = outcome.reported_metrics[&Metric::SutServiceDemandUs];
        assert!((0.0..1e6).contains(&demand), "{text}: {demand} us");
        assert_eq!(outcome.programs[0].method, CpuMethod::Host);
        if parse_workload(text).traffic.is_transactional() {
            let latency = outcome.traffic.latency.unwrap();
            assert_eq!(Some(latency.count()), outcome.traffic.transactions, "{text}");
            assert!(latency.count() > 0, "{text}");
        } else {
            assert!(outcome.traffic.received_bytes > 0, "{text}");
        }
    }
}

fn start_server() -> Option<(ServerProcess, String)> {
    let program = std::env::var("LATPUT_NETSERVER").ok().or_else(|| {
        let path = std::env::var_os("PATH")?;
        let found = std::env::split_paths(&path).map(|folder| folder.join("netserver"));
        found.filter(|file| file.is_file()).map(|file| file.display().to_string()).next()
    });
    let Some(program) = program else {
        println!("skipped: no netserver in the PATH and none named by LATPUT_NETSERVER");
        return None;
    };
    let port = free_port().to_string();
    let server = ServerProcess::start(&program, &["-D", "-4", "-L", "127.0.0.1", "-p", &port]);
    Some((server, format!("netperf://127.0.0.1:{port}")))
}
