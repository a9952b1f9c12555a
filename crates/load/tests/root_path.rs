//! Paths that lose traffic or do not fit it, each in a network namespace of its own.
#![allow(clippy::unwrap_used, reason = "a step that fails here fails the test")]
#![allow(unsafe_code, reason = "unshare(2) is unsafe for what else it can unshare")]

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use latput_load::{Error, ErrorKind, Generator, Key, Reflector, Stop, Window, now};
use latput_testkit::needs;
use latput_trial::Workload;
use latput_units::{CpuSet, Nanos};
use rustix::thread::{UnshareFlags, unshare_unsafe};

const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

#[needs("root", "ip")]
#[test]
fn datagram_larger_than_the_mtu_is_an_error() {
    in_a_namespace(|| {
        check_datagram(1472, true);
        check_datagram(1473, false);
    });
}

#[needs("root", "ip")]
#[test]
fn silently_cut_path_ends_both_ends() {
    let kinds = [
        "kind=tcp_rr",
        "kind=tcp_stream",
        "kind=tcp_maerts rate=10Mbps",
        "kind=tcp_bidir",
        "kind=tcp_crr connections=3",
        "kind=fetch connections=5",
        "kind=rpc_read think=1ms",
    ];
    let tests =
        kinds.map(|kind| thread::spawn(move || in_a_namespace(move || check_cut(&parsed(kind)))));
    for test in tests {
        test.join().unwrap();
    }
}

#[needs("root", "ip")]
#[test]
fn unrouted_peer_is_named() {
    in_a_namespace(|| {
        let elsewhere = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1));
        let (workload, key) = (parsed("kind=tcp_rr"), Key::generate().unwrap());
        let refused = Generator::connect(elsewhere, 9, &key, &workload, CpuSet::new());
        let error = refused.map(drop).unwrap_err();
        assert!(matches!(error, Error::NoRoute { .. }), "{error}");
        assert!(error.to_string().contains("no route to 198.51.100.1:9"), "{error}");
    });
}

#[track_caller]
fn check_cut(workload: &Workload) {
    let (reflector, generator) = connect(workload);
    reflector.wait_ready(now() + Nanos::from_s(5)).unwrap();
    let window = Window::starting_in(Nanos::ZERO, Nanos::from_s(60)).unwrap();
    let receiver = thread::spawn(move || reflector.run(window, &Stop::new()).unwrap_err());
    let sender = thread::spawn(move || generator.run(window, &Stop::new()).unwrap_err());
    thread::sleep(Duration::from_millis(200));
    assert!(ip(&["link", "set", "lo", "down"]));
    let cut = Instant::now();
    for error in [sender.join().unwrap(), receiver.join().unwrap()] {
        assert!(matches!(error, Error::PeerGone { .. }), "{error}");
    }
    assert!(cut.elapsed() < Duration::from_secs(30), "{:?}", cut.elapsed());
}

#[track_caller]
fn check_datagram(bytes: u64, fits: bool) {
    let workload = parsed(&format!("kind=udp_stream rate=10Mbps datagram_bytes={bytes}"));
    let (_reflector, generator) = connect(&workload);
    let window = Window::starting_in(Nanos::ZERO, Nanos::from_ms(500)).unwrap();
    let result = generator.run(window, &Stop::new());
    if fits {
        assert!(result.unwrap()[0].sent_bytes > 0);
    } else {
        let error = result.unwrap_err();
        assert!(matches!(error, Error::DatagramTooBig { .. }), "{error}");
        assert_eq!(error.kind(), ErrorKind::Invalid);
    }
}

fn parsed(text: &str) -> Workload {
    let fields = text.split(' ').map(|pair| pair.split_once('=').unwrap());
    let fields = fields.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    latput_trial::workload::from_fields(&fields).unwrap()
}

fn connect(workload: &Workload) -> (Reflector, Generator) {
    let key = Key::generate().unwrap();
    let bind = SocketAddr::new(LOCALHOST, 0);
    let reflector = Reflector::open(bind, key.clone(), workload, CpuSet::new()).unwrap();
    let port = reflector.port();
    let generator = Generator::connect(LOCALHOST, port, &key, workload, CpuSet::new()).unwrap();
    (reflector, generator)
}

/// Runs `test` where loopback is an ordinary link of 1500 byte that may be cut. The namespace is that
/// of one thread and those it starts, and goes when they end.
fn in_a_namespace(test: impl FnOnce() + Send + 'static) {
    let thread = thread::spawn(|| {
        // SAFETY: a network namespace holds no memory and no file descriptor of this process.
        unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.unwrap();
        assert!(ip(&["link", "set", "lo", "up", "mtu", "1500"]));
        test();
    });
    thread.join().unwrap();
}

fn ip(arguments: &[&str]) -> bool {
    Command::new("ip").args(arguments).status().unwrap().success()
}
