//! ICMP echo beside traffic, on loopback. Without root and without a `ping_group_range` that allows it
//! the probe is refused, which is tested then.
#![allow(clippy::unwrap_used, reason = "a step that fails here fails the test")]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::thread;

use latput_load::{Error, ErrorKind, Generator, Key, Reflector, Stop, Window, combine, now};
use latput_trial::{Probe, Traffic};
use latput_units::{Bytes, CpuSet, Nanos};

#[test]
fn every_echo_on_ipv4_is_sent_on_time_and_answered() {
    check_probe(IpAddr::V4(Ipv4Addr::LOCALHOST));
}

#[test]
fn every_echo_on_ipv6_is_sent_on_time_and_answered() {
    check_probe(IpAddr::V6(Ipv6Addr::LOCALHOST));
}

#[test]
fn a_probe_that_never_or_too_often_sends_is_refused() {
    for rate_hz in [0, 10_001] {
        let error = connect(IpAddr::V4(Ipv4Addr::LOCALHOST), rate_hz).unwrap_err();
        assert!(matches!(error, Error::BadTraffic { .. }), "{error}");
    }
}

fn connect(address: IpAddr, rate_hz: u32) -> Result<(Reflector, Generator), Error> {
    let key = Key::generate()?;
    let traffic = Traffic::tcp_stream(Bytes::new(1024), 1);
    let bind = SocketAddr::new(address, 0);
    let reflector = Reflector::open(bind, key.clone(), traffic, CpuSet::new())?;
    let probe = Some(Probe { rate_hz });
    let port = reflector.port();
    let generator = Generator::connect(address, port, &key, traffic, probe, CpuSet::new())?;
    Ok((reflector, generator))
}

#[track_caller]
fn check_probe(address: IpAddr) {
    let (reflector, generator) = match connect(address, 500) {
        Ok(both) => both,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Permission, "{error}");
            assert!(!rustix::process::geteuid().is_root());
            return;
        }
    };
    reflector.wait_ready(now() + Nanos::from_s(5)).unwrap();
    let window = Window::starting_in(Nanos::from_ms(50), Nanos::from_ms(400)).unwrap();
    let receiver = thread::spawn(move || reflector.run(window, &Stop::new()));
    let sent = generator.run(window, &Stop::new()).unwrap();
    let received = receiver.join().unwrap().unwrap();
    let outcome = sent.probe.clone().unwrap();
    // 400 ms at 500 Hz: one every 2 ms, the first at once.
    assert_eq!(outcome.sent + outcome.skipped, 200);
    assert_eq!(outcome.received, outcome.sent);
    assert_eq!(outcome.rtt.count(), outcome.received);
    assert!(outcome.rtt.min() > Some(Nanos::ZERO));
    let (_, probe, checks) = combine(&sent, &received);
    assert_eq!(probe.unwrap().rtt, outcome.rtt);
    let check = checks.iter().find(|check| check.name == "probe-on-schedule").unwrap();
    assert_eq!(check.passed, outcome.skipped == 0);
}
