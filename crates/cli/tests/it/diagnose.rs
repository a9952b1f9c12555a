//! `latput diagnose` and `latput snapshot`, on this host and on texts of others.

use std::fs;

use latput_testkit::{isolate, needs};
use serde_json::Value;

use crate::Place;
use crate::two_hosts::run_ip;

const SNMP: &str =
    "Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors InCsumErrors\nUdp: ";

#[test]
fn send_buffer_is_named_not_receive_buffer() {
    let place = Place::new();
    place.write("snmp_before", &format!("{SNMP}1000 0 0 1000 0 0 0\n"));
    place.write("snmp_after", &format!("{SNMP}2000 0 0 90000 0 4100 0\n"));
    let ran = place.run(&["diagnose", "snmp_before", "snmp_after", "--json"]);
    ran.expect(0, &[]);
    let document: Value = serde_json::from_str(&ran.out).unwrap();
    let first = &document["findings"][0];
    assert_eq!(first["id"], "udp-send-buffer", "{document}");
    assert_eq!((first["rank"].as_u64(), first["verdict"].as_str()), (Some(1), Some("hypothesis")));
    place
        .run(&["diagnose", "snmp_before", "snmp_after"])
        .expect(0, &["1. 4100 datagrams", "net.core.wmem_max", "Not seen:"]);
}

#[test]
fn simulated_host_is_judged_by_its_counters() {
    let place = Place::new();
    let judge = |more: &[&str]| {
        let words = ["sim", "snapshot", "--workload", "tcp_rr", "-o", "s.json"];
        place.run_without_root(&[&words[..], more].concat()).expect(0, &[]);
        let ran = place.run_without_root(&["diagnose", "s.json", "--json"]);
        ran.expect(0, &[]);
        let document: Value = serde_json::from_str(&ran.out).unwrap();
        assert_eq!(document["window_s"], 1.0, "{document}");
        document["findings"][0]["id"].as_str().unwrap().to_owned()
    };
    assert_eq!(judge(&["--set", "rx-usecs=250us"]), "moderation-too-long");
    assert_eq!(judge(&["--set", "rx-usecs=0us"]), "no-fault");
    place
        .run(&["sim", "snapshot", "--workload", "tcp_rr", "--on", "lab"])
        .expect(2, &["must be `sim:SYSTEM`, not `lab`"]);
}

#[needs("root", "ip")]
#[test]
fn recorded_snapshot_is_judged_elsewhere() {
    isolate();
    run_ip(&["link", "add", "zzdiag0", "type", "veth", "peer", "name", "zzdiag1"]);
    run_ip(&["link", "set", "zzdiag0", "up"]);
    let place = Place::new();
    place.run(&["snapshot", "zzdiag0", "--for", "1s", "--share", "-o", "s.json"]).expect(0, &[]);
    let document: Value =
        serde_json::from_str(&fs::read_to_string(place.path("s.json")).unwrap()).unwrap();
    assert!(document["window_s"].as_f64().unwrap() >= 1.0);
    assert!(document["after"]["proc/net/snmp"].is_string(), "{document}");
    assert!(document["after"]["sys/class/net/zzdiag0/address"].is_null());
    place.run(&["diagnose", "s.json"]).expect(0, &["zzdiag0, 1 s"]);
}

#[test]
fn bad_snapshots_are_refused_by_name() {
    let place = Place::new();
    place.write("cut.json", "{\"schema\":1,\"interface\":\"eth0\",\"before\":{");
    place.write("newer.json", "{\"schema\":9,\"interface\":\"eth0\",\"before\":{},\"after\":{}}");
    fs::create_dir(place.path("empty")).unwrap();
    place.run(&["diagnose", "cut.json"]).expect(2, &["cut.json: not a snapshot of latput"]);
    place.run(&["diagnose", "newer.json"]).expect(2, &["newer.json: the snapshot has schema 9"]);
    place.run(&["diagnose", "empty"]).expect(2, &["empty: "]);
    place.run(&["diagnose", "no-such-nic0"]).expect(2, &["no-such-nic0"]);
    place.run(&["diagnose", "cut.json", "--prove"]).expect(2, &["name an interface, not a file"]);
    place.run(&["diagnose", "lo", "--guard", "x <= 1"]).expect(2, &["need --prove"]);
    place.run(&["diagnose", "netns://a", "netns://b", "--prove"]).expect(2, &["changes one host"]);
    place.run(&["diagnose", "netns://a", "no-such-nic0"]).expect(2, &["no-such-nic0"]);
    place.run(&["snapshot", "lo", "--for", "1ms"]).expect(2, &["`--for` is at least 500ms"]);
}
