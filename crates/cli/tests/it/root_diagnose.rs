//! Faults that are really there, on interfaces of a namespace: `latput diagnose` names each, and is silent without it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use latput_testkit::{isolate, needs};
use serde_json::Value;

use crate::two_hosts::run_ip;
use crate::{Place, run_program};

/// Diagnoses an interface for a second while `load` runs again and again.
fn diagnose_under(interface: &str, load: impl Fn() + Sync) -> Value {
    let place = Place::new();
    let ended = AtomicBool::new(false);
    let ran = thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                load();
            }
        });
        let ran = place.run(&["diagnose", interface, "--for", "1s", "--json"]);
        ended.store(true, Ordering::Relaxed);
        ran
    });
    ran.expect(0, &[]);
    serde_json::from_str(&ran.out).unwrap()
}

/// Findings on counters of the whole machine, on which other tests run.
const OF_MACHINE: [&str; 14] = [
    "backlog-drops",
    "busy-poll-waste",
    "cpu-full-of-softirq",
    "cpu-quota",
    "elephant-flow",
    "frequency",
    "idle-states",
    "irq-moved",
    "irq-on-application-cpu",
    "irq-on-one-cpu",
    "napi-thread-starved",
    "second-tuner",
    "softirq-budget",
    "steal",
];

/// The names of the findings on this namespace, in their order.
fn ids(document: &Value) -> Vec<&str> {
    let findings = document["findings"].as_array().unwrap();
    let all = findings.iter().map(|found| found["id"].as_str().unwrap());
    all.filter(|id| !OF_MACHINE.contains(id)).collect()
}

/// The figures of a finding.
fn evidence_of<'a>(document: &'a Value, id: &str) -> &'a Value {
    let findings = document["findings"].as_array().unwrap();
    &findings.iter().find(|found| found["id"] == id).unwrap()["evidence"]
}

/// Adds `zz0`, which IPv6 sends nothing on.
fn add_quiet_interface() {
    run_ip(&["link", "add", "zz0", "type", "veth", "peer", "name", "zz1"]);
    for name in ["zz0", "zz1"] {
        run_ip(&["link", "set", name, "addrgenmode", "none", "up"]);
    }
}

#[needs("root")]
#[test]
fn full_receive_buffer_is_named() {
    isolate();
    let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = receiver.local_addr().unwrap();
    let found = diagnose_under("lo", || {
        for _ in 0..100 {
            sender.send_to(&[0; 1000], to).unwrap();
        }
        thread::sleep(Duration::from_millis(2));
    });
    assert_eq!(ids(&found)[0], "udp-receive-buffer", "{found}");
    let lost = &evidence_of(&found, "udp-receive-buffer")["rcvbuf_errors"];
    assert!(lost.as_f64().unwrap() > 100.0, "{found}");
}

#[needs("root", "ip", "sysctl")]
#[test]
fn full_listen_queue_is_named() {
    isolate();
    run_program(&["sysctl", "-w", "net.core.somaxconn=4"]);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap();
    let found = diagnose_under("lo", || {
        thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| TcpStream::connect_timeout(&to, Duration::from_millis(50)));
            }
        });
    });
    assert_eq!(ids(&found)[0], "listen-queue", "{found}");
}

#[needs("root", "ip", "tc")]
#[test]
fn narrow_qdisc_is_named() {
    isolate();
    add_quiet_interface();
    run_ip(&["address", "add", "10.9.9.1/24", "dev", "zz0"]);
    run_ip(&["neighbour", "add", "10.9.9.2", "lladdr", "02:00:00:00:00:02", "dev", "zz0"]);
    let tbf = "qdisc add dev zz0 root tbf rate 1mbit burst 10kb limit 10kb";
    run_program(&[&["tc"][..], &tbf.split(' ').collect::<Vec<_>>()].concat());
    let sender = UdpSocket::bind("10.9.9.1:0").unwrap();
    let to: SocketAddr = "10.9.9.2:9".parse().unwrap();
    let found = diagnose_under("zz0", || {
        for _ in 0..20 {
            // A full queue may refuse one with ENOBUFS.
            let _lost = sender.send_to(&[0; 1000], to);
        }
        thread::sleep(Duration::from_millis(2));
    });
    assert_eq!(ids(&found)[0], "qdisc-drops", "{found}");
}

#[needs("root", "ip")]
#[test]
fn interface_without_traffic_is_idle() {
    isolate();
    add_quiet_interface();
    let found = diagnose_under("zz0", || thread::sleep(Duration::from_millis(20)));
    assert_eq!(ids(&found), ["idle"], "{found}");
}

#[needs("root")]
#[test]
fn requests_without_fault_have_none() {
    isolate();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    client.set_nodelay(true).unwrap();
    server.set_nodelay(true).unwrap();
    thread::spawn(move || {
        let mut byte = [0; 100];
        while server.read_exact(&mut byte).is_ok() && server.write_all(&byte).is_ok() {}
    });
    let client = std::sync::Mutex::new(client);
    let found = diagnose_under("lo", || {
        let mut client = client.lock().unwrap();
        let mut bytes = [1; 100];
        client.write_all(&bytes).unwrap();
        client.read_exact(&mut bytes).unwrap();
    });
    assert!(ids(&found).is_empty() || ids(&found) == ["no-fault"], "{found}");
}
