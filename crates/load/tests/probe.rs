//! ICMP echo beside traffic, on loopback. Without root and without a `ping_group_range` that allows it
//! the probe is refused, which is tested then.
#![allow(clippy::unwrap_used, reason = "a step that fails here fails the test")]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::thread;

use latput_load::{
    Error, ErrorKind, Generator, Key, ReceiverOutcome, Reflector, SenderOutcome, Stop, Window,
    combine, now,
};
use latput_trial::{Probe, Traffic, Workload};
use latput_units::{Bytes, CpuSet, Nanos};

#[test]
fn echoes_on_ipv4_are_timely_and_answered() {
    check_probe(IpAddr::V4(Ipv4Addr::LOCALHOST));
}

#[test]
fn echoes_on_ipv6_are_timely_and_answered() {
    check_probe(IpAddr::V6(Ipv6Addr::LOCALHOST));
}

#[test]
fn echo_is_a_load_of_its_own() {
    for payload in [16, 56, 1001] {
        let rate_hz = 500;
        let traffic = Traffic::Ping { rate_hz, payload_bytes: Bytes::new(payload) };
        let workload = Workload::plain("test", traffic);
        let Some((sent, received)) = run(IpAddr::V4(Ipv4Addr::LOCALHOST), &workload) else {
            return;
        };
        let exchange = sent.exchange.unwrap();
        assert_eq!(exchange.sent + sent.probe.as_ref().unwrap().skipped, 200);
        assert_eq!((exchange.answered, exchange.lost), (exchange.sent, 0));
        assert_eq!(sent.transactions, Some(exchange.answered));
        assert_eq!(sent.sent_bytes, exchange.sent * payload);
        let (traffic, probe, _) = combine(&workload, &sent, &received);
        assert_eq!(traffic.latency, Some(probe.unwrap().rtt));
    }
}

#[test]
fn absurd_probe_rate_is_refused() {
    for rate_hz in [0, 10_001] {
        let error = connect(IpAddr::V4(Ipv4Addr::LOCALHOST), &workload(rate_hz)).unwrap_err();
        assert!(matches!(error, Error::BadTraffic(_)), "{error}");
    }
}

fn workload(rate_hz: u32) -> Workload {
    let probe = Some(Probe { rate_hz });
    Workload { probe, ..Workload::plain("test", Traffic::tcp_stream(Bytes::new(1024), 1)) }
}

fn connect(address: IpAddr, workload: &Workload) -> Result<(Reflector, Generator), Error> {
    let key = Key::generate()?;
    let bind = SocketAddr::new(address, 0);
    let reflector = Reflector::open(bind, key.clone(), workload, CpuSet::new())?;
    let port = reflector.port();
    let generator = Generator::connect(address, port, &key, workload, CpuSet::new())?;
    Ok((reflector, generator))
}

/// A window of 400 ms; `None` without the right to send echo.
#[track_caller]
fn run(address: IpAddr, workload: &Workload) -> Option<(SenderOutcome, ReceiverOutcome)> {
    let (reflector, generator) = match connect(address, workload) {
        Ok(both) => both,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Permission, "{error}");
            assert!(!rustix::process::geteuid().is_root());
            return None;
        }
    };
    reflector.wait_ready(now() + Nanos::from_s(5)).unwrap();
    let window = Window::starting_in(Nanos::from_ms(50), Nanos::from_ms(400)).unwrap();
    let receiver = thread::spawn(move || reflector.run(window, &Stop::new()));
    let sent = generator.run(window, &Stop::new()).unwrap();
    Some((only(sent), only(receiver.join().unwrap().unwrap())))
}

#[track_caller]
fn check_probe(address: IpAddr) {
    let Some((sent, received)) = run(address, &workload(500)) else { return };
    let outcome = sent.probe.clone().unwrap();
    // 400 ms at 500 Hz: one every 2 ms, the first at once.
    assert_eq!(outcome.sent + outcome.skipped, 200);
    assert_eq!(outcome.received, outcome.sent);
    assert_eq!(outcome.rtt.count(), outcome.received);
    assert!(outcome.rtt.min() > Some(Nanos::ZERO));
    let (_, probe, checks) = combine(&workload(500), &sent, &received);
    assert_eq!(probe.unwrap().rtt, outcome.rtt);
    let check = checks.iter().find(|check| check.name == "probe-on-schedule").unwrap();
    assert_eq!(check.passed, outcome.skipped == 0);
}

/// The outcome of a window without slices.
fn only<T>(slices: Vec<T>) -> T {
    let [one] = <[T; 1]>::try_from(slices).ok().unwrap();
    one
}
