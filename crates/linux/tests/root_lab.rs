//! The lab in real namespaces: built, used, and gone without a trace. Needs root.
#![allow(clippy::unwrap_used, reason = "a failure in a helper is a failed test")]
#![allow(clippy::print_stdout, reason = "a child tells its parent what it holds")]

mod common;

use std::net::UdpSocket;
use std::time::Duration;

use latput_linux::ethtool::Ethtool;
use latput_linux::netdev::Netdev;
use latput_linux::route::Route;
use latput_linux::{Lab, LabOptions, Namespace, lab};
use latput_testkit::needs;
use latput_units::{Bytes, CpuSet};

#[needs("root")]
#[test]
fn lab_is_a_moderated_link_between_two_hosts() {
    let lab = Lab::build(&LabOptions { mtu: Bytes::new(9000), cpus: None }).unwrap();
    for host in lab.hosts() {
        host.run_in(|| {
            let link = Route::open().unwrap().link(lab::INTERFACE).unwrap();
            assert!(link.is_up, "{link:?}");
            assert_eq!(link.has_carrier, Some(true), "{link:?}");
            assert_eq!((link.mtu, link.kind.as_deref()), (Bytes::new(9000), Some("veth")));
            let features = Ethtool::open().unwrap().features(lab::INTERFACE).unwrap();
            assert!(features["rx-gro"].is_active);
            // The four of NETIF_F_ALL_TSO: veth skips NAPI if its sender has one of them on
            // (`veth_skb_is_eligible_for_gro`, drivers/net/veth.c).
            for name in [
                "tx-tcp-segmentation",
                "tx-tcp6-segmentation",
                "tx-tcp-ecn-segmentation",
                "tx-tcp-mangleid-segmentation",
                "tx-generic-segmentation",
            ] {
                assert!(!features[name].is_active, "{name}");
            }
            let napis = Netdev::open().unwrap().napis(link.index).unwrap();
            assert_eq!(napis.len(), 1, "{napis:?}");
            assert_eq!((napis[0].rx_queue, napis[0].threaded), (Some(0), Some(1)));
            assert_eq!(lab::napi_threads(lab::INTERFACE).unwrap(), [napis[0].pid.unwrap()]);
            check_affinity(napis[0].pid.unwrap(), &host.cpus);
        })
        .unwrap();
    }
    assert_ne!(lab.a.namespace.inode().unwrap(), lab.b.namespace.inode().unwrap());
    let all: CpuSet = lab.a.cpus.iter().chain(lab.b.cpus.iter()).collect();
    assert_eq!(all, latput_linux::process::allowed_cpus().unwrap());
}

#[needs("root")]
#[test]
fn datagrams_cross_the_lab_and_nothing_else_does() {
    let lab = Lab::build(&LabOptions::default()).unwrap();
    let [sender, receiver] = common::udp_pair(&lab);
    std::thread::sleep(Duration::from_millis(1200)); // time for stray solicitations to show
    let quiet = counters(&lab);
    assert_eq!((quiet.rx_packets, quiet.tx_packets), (0, 0), "background traffic: {quiet:?}");
    ping(&sender, &receiver, &lab);
    let after = counters(&lab);
    assert_eq!((after.rx_packets, after.tx_packets), (1, 1), "{after:?}");
    assert!(after.rx_bytes > 4, "{after:?}");
}

#[needs("root", "ethtool")]
#[test]
fn gro_round_trip_makes_napi_anew() {
    let lab = Lab::build(&LabOptions::default()).unwrap();
    let before = napi(&lab).expect("gro is on");
    lab.b.run_in(|| common::ethtool(&["-K", lab::INTERFACE, "gro", "off"])).unwrap();
    assert_eq!(napi(&lab), None);
    assert_eq!(lab.b.pin_napi_threads().unwrap(), 0);
    lab.b.run_in(|| common::ethtool(&["-K", lab::INTERFACE, "gro", "on"])).unwrap();
    let after = napi(&lab).expect("gro is on again");
    assert_ne!(before.id, after.id);
    assert_eq!(after.threaded, Some(1), "the device hands `threaded` on");
    assert_eq!(lab.b.pin_napi_threads().unwrap(), 1);
    check_affinity(after.pid.unwrap(), &lab.b.cpus);
    let [sender, receiver] = common::udp_pair(&lab);
    ping(&sender, &receiver, &lab);
}

#[needs("root")]
#[test]
fn removed_link_takes_both_address_families() {
    let lab = Lab::build(&LabOptions::default()).unwrap();
    lab.b
        .run_in(|| {
            let route = Route::open().unwrap();
            let address = "2001:2::2".parse().unwrap(); // RFC 5180
            route.add_address(lab::INTERFACE, address, 48).unwrap();
            std::net::UdpSocket::bind((address, 0)).unwrap();
            assert!(route.link(lab::INTERFACE).unwrap().is_up);
            route.delete(lab::INTERFACE).unwrap();
            assert_eq!(route.link(lab::INTERFACE).unwrap_err().errno(), Some(19), "ENODEV");
        })
        .unwrap();
    let other = lab.a.run_in(|| Route::open().unwrap().link(lab::INTERFACE)).unwrap();
    assert!(other.is_err(), "the other end goes too: {other:?}");
}

#[needs("root")]
#[test]
fn dropped_lab_leaves_nothing() {
    let lab = Lab::build(&LabOptions::default()).unwrap();
    let path = lab.b.namespace.path();
    assert_eq!(Namespace::open(&path).unwrap().inode().unwrap(), lab.b.namespace.inode().unwrap());
    let pids = lab.b.run_in(|| lab::napi_threads(lab::INTERFACE).unwrap()).unwrap();
    drop(lab);
    assert!(Namespace::open(&path).is_err());
    common::wait_until("the NAPI threads of a dropped lab end", || {
        pids.iter().all(|pid| !common::is_napi_thread(*pid))
    });
}

#[needs("root")]
#[test]
fn killed_child_takes_its_lab_along() {
    if std::env::var_os("LATPUT_TEST_HOLD_LAB").is_some() {
        hold_a_lab();
    }
    let mut child =
        common::respawn("killed_child_takes_its_lab_along", &[("LATPUT_TEST_HOLD_LAB", "1")]);
    let line = common::line_with(&mut child, "holding ");
    let pids: Vec<u32> = line.split_whitespace().skip(1).map(|pid| pid.parse().unwrap()).collect();
    assert_eq!(pids.len(), 2, "{line}");
    assert!(pids.iter().all(|pid| common::is_napi_thread(*pid)), "{line}");
    child.kill().unwrap();
    child.wait().unwrap();
    common::wait_until("the NAPI threads of a killed lab end", || {
        pids.iter().all(|pid| !common::is_napi_thread(*pid))
    });
}

fn hold_a_lab() -> ! {
    let lab = Lab::build(&LabOptions::default()).unwrap();
    let pids: Vec<String> = lab
        .hosts()
        .iter()
        .flat_map(|host| host.run_in(|| lab::napi_threads(lab::INTERFACE).unwrap()).unwrap())
        .map(|pid| pid.to_string())
        .collect();
    println!("holding {}", pids.join(" "));
    std::thread::sleep(Duration::from_secs(30));
    panic!("nobody killed the child that holds a lab");
}

fn ping(sender: &UdpSocket, receiver: &UdpSocket, lab: &Lab) {
    let mut buffer = [0; 16];
    sender.send_to(b"ping", (lab.b.address, receiver.local_addr().unwrap().port())).unwrap();
    let (length, from) = receiver.recv_from(&mut buffer).unwrap();
    assert_eq!(&buffer[..length], b"ping");
    assert_eq!(from.ip(), lab.a.address);
    receiver.send_to(b"pong", from).unwrap();
    assert_eq!(sender.recv(&mut buffer).unwrap(), 4);
}

fn counters(lab: &Lab) -> latput_trial::observation::InterfaceCounters {
    lab.b
        .run_in(|| {
            let route = Route::open().unwrap();
            let index = route.link(lab::INTERFACE).unwrap().index;
            route.counters(index).unwrap()
        })
        .unwrap()
}

fn napi(lab: &Lab) -> Option<latput_linux::netdev::Napi> {
    lab.b
        .run_in(|| {
            let index = Route::open().unwrap().link(lab::INTERFACE).unwrap().index;
            Netdev::open().unwrap().napis(index).unwrap().first().copied()
        })
        .unwrap()
}

#[track_caller]
fn check_affinity(pid: u32, expected: &CpuSet) {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
    assert_eq!(list.trim().parse::<CpuSet>().unwrap(), *expected);
}
