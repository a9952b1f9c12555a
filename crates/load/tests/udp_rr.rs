//! Requests and responses in datagrams between both ends in one process, on loopback, without root.
#![allow(clippy::unwrap_used, reason = "a step that fails here fails the test")]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use latput_load::{
    Error, Generator, Key, ReceiverOutcome, Reflector, SenderOutcome, Stop, Window, combine, now,
};
use latput_trial::{Arrivals, Distribution, Traffic, Workload};
use latput_units::{Bytes, CpuSet, Nanos};

const V4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

#[test]
fn every_request_is_answered_or_counted() {
    check_exchange(V4, udp_rr(0, 1, 1));
    check_exchange(V4, udp_rr(16, 1, 1));
    check_exchange(V4, udp_rr(3, 50, 3));
    check_exchange(IpAddr::V6(Ipv6Addr::LOCALHOST), udp_rr(0, 2, 1));
}

#[test]
fn open_loop_keeps_rate_and_latencies() {
    for (connections, threads, gaps) in
        [(1, 1, Distribution::Fixed), (20, 2, Distribution::Exponential)]
    {
        let Traffic::UdpRr { request_bytes, response_bytes, timeout, .. } = udp_rr(0, 1, 1) else {
            unreachable!()
        };
        let arrivals = Some(Arrivals { rate_per_s: 2000, gaps });
        let traffic = Traffic::UdpRr {
            request_bytes,
            response_bytes,
            burst: 0,
            connections,
            threads,
            timeout,
            arrivals,
        };
        check_open(traffic, 600);
        let traffic = Traffic::TcpRr {
            request_bytes,
            response_bytes,
            burst: 0,
            connections,
            threads,
            nodelay: true,
            arrivals,
        };
        check_open(traffic, 600);
    }
}

#[test]
fn count_ends_the_window() {
    let workload = Workload { count: Some(500), ..plain(udp_rr(0, 1, 1)) };
    let (reflector, generator) = connect(V4, &workload);
    reflector.wait_ready(now() + Nanos::from_s(5)).unwrap();
    let window = Window::starting_in(Nanos::from_ms(50), Nanos::from_s(30)).unwrap();
    let receiver = thread::spawn(move || reflector.run(window, &Stop::new()));
    let begun = Instant::now();
    let sent = only(generator.run(window, &Stop::new()).unwrap());
    receiver.join().unwrap().unwrap();
    assert!(sent.transactions >= Some(500), "{:?}", sent.transactions);
    assert!(begun.elapsed() < Duration::from_secs(20));
}

#[test]
fn unproven_peer_gets_no_answer() {
    let (reflector, generator) = connect(V4, &plain(udp_rr(0, 1, 1)));
    let stranger = UdpSocket::bind((V4, 0)).unwrap();
    stranger.connect((V4, reflector.port())).unwrap();
    stranger.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
    let (sent, received) = thread::scope(|scope| {
        let asking = scope.spawn(|| {
            for _ in 0..20 {
                // The kernel may report that the port refuses us.
                let _refused = stranger.send(&[0; 64]);
                assert!(stranger.recv(&mut [0; 64]).is_err());
            }
        });
        let ends = finish(reflector, generator);
        asking.join().unwrap();
        ends
    });
    assert!(sent.transactions > Some(0));
    assert_eq!(received.foreign, 0);
}

#[test]
fn reflector_that_dies_ends_the_asking_soon() {
    let (reflector, generator) = connect(V4, &plain(udp_rr(0, 1, 1)));
    let killer = thread::spawn(move || {
        thread::sleep(Duration::from_millis(100));
        drop(reflector);
    });
    let begun = Instant::now();
    let long = Window::starting_in(Nanos::ZERO, Nanos::from_s(30)).unwrap();
    let error = generator.run(long, &Stop::new()).unwrap_err();
    assert!(matches!(error, Error::PeerGone { .. }), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(10));
    killer.join().unwrap();
}

fn udp_rr(burst: u32, connections: u32, threads: u32) -> Traffic {
    Traffic::UdpRr {
        request_bytes: Bytes::new(32),
        response_bytes: Bytes::new(100),
        burst,
        connections,
        threads,
        timeout: Nanos::from_ms(200),
        arrivals: None,
    }
}

fn plain(traffic: Traffic) -> Workload {
    Workload::plain("test", traffic)
}

fn connect(address: IpAddr, workload: &Workload) -> (Reflector, Generator) {
    let key = Key::generate().unwrap();
    let bind = SocketAddr::new(address, 0);
    let reflector = Reflector::open(bind, key.clone(), workload, CpuSet::new()).unwrap();
    let port = reflector.port();
    let generator = Generator::connect(address, port, &key, workload, CpuSet::new()).unwrap();
    (reflector, generator)
}

fn finish(reflector: Reflector, generator: Generator) -> (SenderOutcome, ReceiverOutcome) {
    reflector.wait_ready(now() + Nanos::from_s(5)).unwrap();
    let window = Window::starting_in(Nanos::from_ms(50), Nanos::from_ms(300)).unwrap();
    let receiver = thread::spawn(move || reflector.run(window, &Stop::new()));
    let sent = generator.run(window, &Stop::new()).unwrap();
    (only(sent), only(receiver.join().unwrap().unwrap()))
}

#[track_caller]
fn check_exchange(address: IpAddr, traffic: Traffic) {
    let workload = plain(traffic);
    let (reflector, generator) = connect(address, &workload);
    let (sent, received) = finish(reflector, generator);
    let exchange = sent.exchange.unwrap();
    assert_eq!(exchange.sent, exchange.answered + exchange.lost, "{exchange:?}");
    // A machine that is too busy for the reflector to answer in time loses some.
    assert!(exchange.answered > 0, "{exchange:?}");
    assert_eq!((exchange.duplicates, exchange.foreign, received.foreign), (0, 0, 0));
    assert_eq!(sent.latency.as_ref().unwrap().count(), sent.transactions.unwrap());
    assert!(received.requests > Some(0));
    let (observed, _, checks) = combine(&workload, &sent, &received);
    assert_eq!(observed.datagrams.unwrap().sent, exchange.sent);
    assert!(checks.iter().all(|check| check.name != "offered-rate-kept"));
}

#[track_caller]
fn check_open(traffic: Traffic, due: u64) {
    let workload = plain(traffic);
    let (reflector, generator) = connect(V4, &workload);
    let (sent, received) = finish(reflector, generator);
    let schedule = sent.schedule.unwrap();
    // Exponential gaps: three standard deviations of a Poisson count.
    assert!(schedule.due.abs_diff(due) <= 75, "{schedule:?}");
    let (corrected, raw) = (sent.latency.clone().unwrap(), sent.latency_raw.clone().unwrap());
    assert_eq!((corrected.count(), raw.count()), (sent.transactions.unwrap(), corrected.count()));
    // To the width of a bucket, nothing is faster than from its due time.
    assert!(corrected.mean_ns().unwrap() >= 0.999 * raw.mean_ns().unwrap());
    let (observed, _, checks) = combine(&workload, &sent, &received);
    assert_eq!(observed.latency_raw, Some(raw));
    let check = checks.iter().find(|check| check.name == "offered-rate-kept").unwrap();
    assert!(check.detail.contains("were due"), "{check:?}");
}

/// The outcome of a window without slices.
fn only<T>(slices: Vec<T>) -> T {
    let [one] = <[T; 1]>::try_from(slices).ok().unwrap();
    one
}
