//! A datagram that does not fit the path's MTU, in a network namespace of its own.
#![allow(clippy::unwrap_used, reason = "a step that fails here fails the test")]
#![allow(unsafe_code, reason = "unshare(2) is unsafe for what else it can unshare")]

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::Command;
use std::thread;

use latput_load::{Error, ErrorKind, Generator, Key, Reflector, Stop, Window};
use latput_trial::Traffic;
use latput_units::{BitsPerSecond, Bytes, CpuSet, Nanos};
use rustix::thread::{UnshareFlags, unshare_unsafe};

#[test]
fn a_datagram_larger_than_the_mtu_is_an_error() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: needs root");
        return;
    }
    // The namespace is this thread's (and those it starts) and goes when they end.
    let checks = thread::spawn(|| {
        // SAFETY: a network namespace holds no memory and no file descriptor of this process.
        unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.unwrap();
        let loopback = ["link", "set", "lo", "up", "mtu", "1500"];
        if !Command::new("ip").args(loopback).status().is_ok_and(|status| status.success()) {
            eprintln!("skipped: needs the program ip");
            return;
        }
        check_datagram(1472, true);
        check_datagram(1473, false);
    });
    checks.join().unwrap();
}

#[track_caller]
fn check_datagram(bytes: u64, fits: bool) {
    let key = Key::generate().unwrap();
    let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let traffic = Traffic::UdpStream {
        datagram_bytes: Bytes::new(bytes),
        rate: BitsPerSecond::new(10_000_000),
    };
    let bind = SocketAddr::new(address, 0);
    let reflector = Reflector::open(bind, key.clone(), traffic, CpuSet::new()).unwrap();
    let generator =
        Generator::connect(address, reflector.port(), &key, traffic, None, CpuSet::new()).unwrap();
    let window = Window::starting_in(Nanos::ZERO, Nanos::from_ms(50)).unwrap();
    let result = generator.run(window, &Stop::new());
    if fits {
        assert!(result.unwrap().sent_bytes > 0);
    } else {
        let error = result.unwrap_err();
        assert!(matches!(error, Error::DatagramTooBig { .. }), "{error}");
        assert_eq!(error.kind(), ErrorKind::Invalid);
    }
}
