//! An unmodified iperf3 server.

use latput_load::{Stop, Window};
use latput_peers::Error;
use latput_testkit::needs;
use latput_trial::Metric;
use latput_trial::observation::CpuMethod;
use latput_units::Nanos;

use crate::{AHEAD, ServerProcess, WINDOW, free_port, measure_workload, open, parse_workload};

#[needs("iperf3")]
#[test]
fn every_iperf3_direction_is_measured() {
    let (_server, url) = start_server();
    for text in [
        "tcp_stream",
        "tcp_stream connections=4 threads=2 message_bytes=16384",
        "tcp_maerts connections=2",
        "tcp_bidir connections=2",
        "tcp_stream send_buffer_bytes=65536 receive_buffer_bytes=65536",
        "udp_stream rate=20Mbps",
        "udp_stream rate=20Mbps connections=3 threads=2 datagram_bytes=500",
    ] {
        let outcome =
            measure_workload(&url, text).unwrap_or_else(|error| panic!("{text}: {error}"));
        let traffic = parse_workload(text).traffic;
        let observation = latput_trial::Observation {
            traffic: outcome.traffic.clone(),
            reported_metrics: outcome.reported_metrics.clone(),
            ..Default::default()
        };
        let goodput = Metric::ThroughputBps.value(&traffic, &observation).unwrap();
        assert!(goodput > 1e6, "{text}: {goodput} bit/s");
        let [cpu] = outcome.programs.as_slice() else { panic!("{text}: {:?}", outcome.programs) };
        assert_eq!(cpu.method, CpuMethod::Process);
        assert_eq!(outcome.traffic.datagrams, None, "its counts are not ours");
        if traffic.kind() == "udp_stream" {
            assert!(goodput < 40e6, "{text}: {goodput} bit/s of 20 Mbit/s");
            assert!(outcome.reported_metrics[&Metric::LossRatio] <= 1.0, "{outcome:?}");
            assert!(outcome.reported_metrics.contains_key(&Metric::JitterNs), "{outcome:?}");
        } else {
            assert!(outcome.traffic.retransmits.is_some(), "{text}");
        }
        let way = |metric: Metric| metric.value(&traffic, &observation);
        let ways = way(Metric::ThroughputToSutBps).zip(way(Metric::ThroughputFromSutBps));
        assert_eq!(ways.is_some(), text.starts_with("tcp_bidir"), "{text}: {ways:?}");
    }
}

#[needs("iperf3")]
#[test]
fn warm_up_is_rounded_to_whole_seconds() {
    let (_server, url) = start_server();
    let stop = Stop::new();
    let session = open(&url, &parse_workload("tcp_stream"), Nanos::from_ms(200), &stop).unwrap();
    assert_eq!(session.warmup(), Nanos::from_s(1));
    let window = Window::starting_in(session.warmup() + AHEAD, WINDOW).unwrap();
    let outcome = session.run(window, &stop).unwrap();
    let seconds = outcome.traffic.receiver_window.as_secs_f64();
    assert!(seconds < 1.5, "the server counted {seconds} s, the warm-up too");
}

#[needs("iperf3")]
#[test]
fn busy_server_says_so_then_frees() {
    let (_server, url) = start_server();
    let stop = Stop::new();
    let session = open(&url, &parse_workload("tcp_maerts"), Nanos::ZERO, &stop).unwrap();
    let peer = latput_peers::Peer::parse(&url).unwrap().unwrap();
    let address = peer.resolve().unwrap();
    let second = peer.open(address, &parse_workload("tcp_stream"), Nanos::ZERO, WINDOW, &stop);
    assert!(matches!(second, Err(Error::Busy { .. })), "{second:?}");

    let raised = Stop::new();
    raised.raise();
    let window = Window::starting_in(Nanos::ZERO, WINDOW).unwrap();
    let ended = session.run(window, &raised);
    assert!(matches!(ended, Err(Error::Stopped)), "{ended:?}");
    // It may need a moment to see that the test is over.
    let mut tries = 20;
    while let Err(error) = measure_workload(&url, "tcp_stream") {
        tries -= 1;
        assert!(tries > 0, "{error}");
        std::thread::sleep(std::time::Duration::from_millis(250));
    }
}

#[needs("iperf3")]
#[test]
fn server_lost_midway_is_an_error() {
    for text in ["tcp_stream", "tcp_maerts", "udp_stream rate=5Mbps"] {
        let (mut server, url) = start_server();
        let stop = Stop::new();
        let session = open(&url, &parse_workload(text), Nanos::ZERO, &stop).unwrap();
        let window = Window::starting_in(Nanos::from_ms(200), Nanos::from_s(2)).unwrap();
        let running = std::thread::spawn(move || session.run(window, &stop));
        std::thread::sleep(std::time::Duration::from_millis(100));
        server.kill();
        let error = running.join().unwrap().unwrap_err();
        let told = matches!(error, Error::PeerGone { .. } | Error::Terminated { .. });
        assert!(told, "{text}: {error}");
    }
}

#[needs("iperf3")]
#[test]
fn what_the_server_refuses_is_said_in_words() {
    let (_server, url) = start_server();
    let error = measure_workload(&url, "tcp_stream sut_cpus=1000").unwrap_err();
    assert!(matches!(error, Error::Refusal { .. } | Error::PeerGone { .. }), "{error}");
}

fn start_server() -> (ServerProcess, String) {
    let port = free_port().to_string();
    let server = ServerProcess::start("iperf3", &["-s", "-B", "127.0.0.1", "-p", &port]);
    (server, format!("iperf3://127.0.0.1:{port}"))
}
