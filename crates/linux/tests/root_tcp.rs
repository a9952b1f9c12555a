//! What the kernel tells of TCP connections is what `ss` tells. Needs root for a namespace of its own, and iproute2.
#![allow(clippy::unwrap_used, reason = "a failure in a helper is a failed test")]

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;

use latput_linux::{TcpConnection, TcpMeter};
use latput_testkit::{isolate, needs_root};

#[test]
fn connections_have_the_figures_that_ss_prints() {
    if needs_root() {
        return;
    }
    if Command::new("ss").arg("-V").output().is_err() {
        eprintln!("skipped: needs ss");
        return;
    }
    isolate();
    let listeners = ["127.0.0.1:0", "[::1]:0"].map(|address| TcpListener::bind(address).unwrap());
    let mut kept: Vec<TcpStream> = Vec::new();
    for (at, listener) in listeners.iter().cycle().take(20).enumerate() {
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut far = listener.accept().unwrap().0;
        for _ in 0..=at {
            near.write_all(&[1; 1000]).unwrap();
            far.read_exact(&mut [0; 1000]).unwrap();
            far.write_all(&[1; 10]).unwrap();
            near.read_exact(&mut [0; 10]).unwrap();
        }
        kept.extend([near, far]);
    }
    // Once delayed acknowledgements are through, nothing changes any more.
    std::thread::sleep(std::time::Duration::from_millis(500));
    let found = TcpMeter::open().unwrap().connections().unwrap();
    let printed = printed();
    assert_eq!(found.len(), kept.len());
    for one in &found {
        let name = |(address, port): (std::net::IpAddr, u16)| match address {
            std::net::IpAddr::V6(address) => format!("[{address}]:{port}"),
            std::net::IpAddr::V4(address) => format!("{address}:{port}"),
        };
        let line = &printed[&(name(one.local), name(one.remote))];
        check(one, line);
    }
}

/// The words of each established connection, by its ends.
fn printed() -> BTreeMap<(String, String), String> {
    let output = Command::new("ss").args(["-tinHO", "state", "established"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let line = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        ((words[2].to_owned(), words[3].to_owned()), line.to_owned())
    };
    text.lines().map(line).collect()
}

#[track_caller]
fn check(one: &TcpConnection, line: &str) {
    let field = |name: &str| {
        let word = line.split_whitespace().find_map(|word| word.strip_prefix(&format!("{name}:")));
        word.map(str::to_owned)
    };
    let ms = |time: latput_units::Nanos| {
        let text = format!("{:.3}", time.as_ms_f64());
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    let rtt = format!("{}/{}", ms(one.rtt), ms(one.rtt_deviation));
    assert_eq!(field("rtt"), Some(rtt), "{line}");
    assert_eq!(field("minrtt"), one.min_rtt.map(ms), "{line}");
    let acked = field("bytes_acked").map(|bytes| bytes.parse().unwrap());
    assert_eq!(acked, one.acked_bytes.filter(|bytes| *bytes > 0), "{line}");
    let received = field("bytes_received").map(|bytes| bytes.parse().unwrap());
    assert_eq!(received, one.received_bytes.filter(|bytes| *bytes > 0), "{line}");
    assert_eq!(one.retransmitted, 0, "{line}");
}
