//! Faults that are really there, on interfaces of a namespace: `latput diagnose` names each, and is silent without it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use latput_linux::Namespace;
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

/// The looks at these hosts, for a second.
fn diagnose_hosts(place: &Place, hosts: &[&str]) -> Value {
    let ran = place.run(&[&["diagnose"], hosts, &["--for", "1s", "--json"]].concat());
    serde_json::from_str(&ran.expect(0, &[]).out).unwrap()
}

/// Adds namespaces `zza` with `zz1` and `zzb` with `zz2`, and a wire between.
fn add_namespaces() {
    for name in ["zza", "zzb"] {
        run_ip(&["netns", "add", name]);
    }
    let wire = "link add zz1 netns zza type veth peer name zz2 netns zzb";
    run_ip(&wire.split(' ').collect::<Vec<_>>());
    for (host, name, address) in [("zza", "zz1", "10.9.8.1/24"), ("zzb", "zz2", "10.9.8.2/24")] {
        run_ip(&["-n", host, "address", "add", address, "dev", name]);
        run_ip(&["-n", host, "link", "set", name, "addrgenmode", "none", "up"]);
    }
}

/// A sender in one namespace and a reader in another, until dropped.
struct BulkTraffic {
    stop: Arc<AtomicBool>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl BulkTraffic {
    /// The reader takes so many bytes, and then sleeps.
    fn start([from, to]: [&str; 2], address: &str, bytes: usize, sleep: Duration) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let namespace = |name| Namespace::open_pinned(name).unwrap();
        let listen = || TcpListener::bind((address, 7020)).unwrap();
        let listener = namespace(to).run_in(listen).unwrap();
        let connect = || TcpStream::connect((address, 7020)).unwrap();
        let mut sender = namespace(from).run_in(connect).unwrap();
        let (mut reader, _) = listener.accept().unwrap();
        // A write that waits for the window must not outlive the test.
        sender.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
        let (sending, reading) = (Arc::clone(&stop), Arc::clone(&stop));
        let chunk = vec![7; 65_536];
        let sender = thread::spawn(move || {
            while !sending.load(Ordering::Relaxed) {
                let _full = sender.write(&chunk);
            }
        });
        let reader = thread::spawn(move || {
            let mut buffer = vec![0; bytes];
            while !reading.load(Ordering::Relaxed)
                && reader.read(&mut buffer).is_ok_and(|it| it > 0)
            {
                thread::sleep(sleep);
            }
        });
        Self { stop, threads: vec![sender, reader] }
    }
}

impl Drop for BulkTraffic {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| thread.join().unwrap());
    }
}

#[needs("root", "ip")]
#[test]
fn namespace_is_diagnosed_from_outside() {
    isolate();
    add_namespaces();
    let place = Place::new();
    let found = diagnose_hosts(&place, &["netns://zza%zz1"]);
    assert_eq!((ids(&found), &found["interface"]), (vec!["idle"], &Value::from("zz1")), "{found}");
    let wrong = place.run(&["diagnose", "netns://zza%zz9", "--for", "1s"]);
    wrong.expect(2, &["name the interface", "zz1"]);
    place.run(&["diagnose", "netns://zzc%zz1", "--for", "1s"]).expect(1, &["netns://zzc"]);
    let both = ["diagnose", "netns://zza%zz1", "netns://zzc%zz1", "--for", "1s"];
    place.run(&both).expect(6, &["idle", "not judged: zzc: "]);
}

#[needs("root", "ip")]
#[test]
fn nothing_is_tried_without_setting() {
    isolate();
    add_quiet_interface();
    let place = Place::new();
    let ran = place.run(&["diagnose", "zz0", "--for", "1s", "--prove"]);
    ran.expect(0, &["nothing is tried", "not tried: its remedy is no setting"]);
    assert!(!place.path("latput-results.db").exists());
}

/// Other traffic of this machine is in what these measure: CI runs them with nothing beside.
mod alone {
    use super::*;
    use crate::root_settings::Lab;

    /// A reader that gets no CPU time beside other tests has nothing waiting at one of the looks.
    #[needs("root", "ip", "ss")]
    #[test]
    fn slow_reader_is_told_by_its_host() {
        isolate();
        add_namespaces();
        let traffic =
            BulkTraffic::start(["zza", "zzb"], "10.9.8.2", 16_384, Duration::from_millis(20));
        thread::sleep(Duration::from_millis(500));
        let found = diagnose_hosts(&Place::new(), &["netns://zza%zz1", "netns://zzb%zz2"]);
        drop(traffic);
        let all = found["findings"].as_array().unwrap();
        assert_eq!(ids(&found)[0], "slow-application", "{found}");
        let first = all.iter().find(|one| one["id"] == "slow-application").unwrap();
        assert_eq!(first["host"], "zzb", "{found}");
        let follows = |one: &&Value| one["host"] == "zza" && one["caused_by"]["host"] == "zzb";
        let symptom = all.iter().find(follows).unwrap_or_else(|| panic!("{found}"));
        assert_eq!(symptom["caused_by"]["id"], "slow-application", "{found}");
        assert_eq!(symptom["caused_by"]["connections"], 1, "{found}");
    }

    #[needs("root", "ethtool")]
    #[test]
    fn offload_that_is_off_is_blamed() {
        isolate();
        let place = Place::new();
        let lab = Lab::set_up(&place);
        lab.run_on_a(&["set", "lat0", "tso=off", "gso=off"]).expect(0, &[]);
        let traffic =
            BulkTraffic::start(["latput-a", "latput-b"], "198.18.0.2", 1 << 20, Duration::ZERO);
        let host = ["diagnose", "netns://latput-a%lat0", "--for", "1s", "--json"];
        let trial =
            ["--prove", "offload-off", "--budget", "30s", "--slice", "300ms", "-o", "tried.db"];
        let ran = place.run(&[&host[..], &trial].concat());
        drop(traffic);
        ran.expect(0, &["results: run 1 of tried.db"]);
        let document: Value = serde_json::from_str(&ran.out).unwrap();
        let all = document["findings"].as_array().unwrap();
        let found = all.iter().find(|one| one["id"] == "offload-off").unwrap();
        assert_eq!(found["verdict"].as_str(), Some("blamed"), "{found}");
        assert_eq!(found["proof"]["metric"].as_str(), Some("sut_kb_cpu_ns"), "{found}");
        assert!(found["proof"]["interval_ratio"][1].as_f64().unwrap() < 0.0, "{found}");
        // Everything is as it was.
        let shown = lab.run_on_a(&["show", "lat0", "tso", "gso", "--json"]);
        let shown: Value = serde_json::from_str(&shown.expect(0, &[]).out).unwrap();
        for knob in shown["knobs"].as_array().unwrap() {
            assert_eq!(knob["values"][0]["value"], "off", "{shown}");
        }
    }
}
