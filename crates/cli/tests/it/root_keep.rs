//! `latput keep --check` on a running system: a veth pair, and folders of configuration of the test's own.

use std::fs;
use std::process::Command;

use latput_testkit::{isolate, needs_root};

use crate::two_hosts::ip;
use crate::{Place, needs_program};

/// `nic7` with its peer, and an empty `/etc` and `/var/lib` that only this thread and its children see.
fn prepare() -> Option<Place> {
    if needs_root() || needs_program("ip") {
        return None;
    }
    isolate();
    for folder in ["/etc", "/var/lib"] {
        let mounted = Command::new("mount").args(["-t", "tmpfs", "none", folder]).status();
        assert!(mounted.unwrap().success());
    }
    ip(&["link", "add", "nic7", "type", "veth", "peer", "name", "nic8"]);
    ip(&["link", "set", "nic7", "up"]);
    Some(Place::new())
}

#[test]
fn check_compares_with_the_kernel() {
    let Some(place) = prepare() else { return };
    ip(&["link", "set", "nic7", "mtu", "1400"]);
    place.run(&["keep", "nic7", "mtu=1400", "gro=on", "--yes"]).expect(0, &[]);
    let check = ["--json", "keep", "--check", "nic7"];
    let state = |ran: &crate::Ran, name: &str| -> (String, String, String) {
        let said: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
        let knobs = said["interfaces"][0]["knobs"].as_array().unwrap().clone();
        let knob = knobs.into_iter().find(|knob| knob["name"] == name).unwrap();
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        (text(&knob["state"]), text(&knob["in_force"][0]["value"]), text(&knob["reason"]))
    };
    place.run(&["set", "nic7", "gro=on"]).expect(0, &[]);
    let same = place.run(&check);
    same.expect(0, &[]);
    assert_eq!(state(&same, "mtu"), ("same".into(), "1400".into(), String::new()));
    // Somebody sets another value after the boot: the file is whole, and udev has applied it.
    ip(&["link", "set", "nic7", "mtu", "1300"]);
    let index = fs::read_to_string("/sys/class/net/nic7/ifindex").unwrap();
    let database = format!("/run/udev/data/n{}", index.trim());
    fs::create_dir_all("/run/udev/data").unwrap();
    fs::write(&database, "E:ID_NET_LINK_FILE=/etc/systemd/network/10-latput-nic7.link\n").unwrap();
    let changed = place.run(&check);
    changed.expect(8, &[]);
    let (word, value, reason) = state(&changed, "mtu");
    assert_eq!((&*word, &*value), ("different", "1300"));
    assert!(reason.contains("the file is whole"), "{reason}");
    assert_eq!(state(&changed, "gro").0, "same");
    // Another file took its place.
    fs::write(&database, "E:ID_NET_LINK_FILE=/etc/systemd/network/05-mine.link\n").unwrap();
    let other = place.run(&check);
    other.expect(8, &[]);
    let reason = state(&other, "mtu").2;
    assert!(reason.ends_with("udev has applied /etc/systemd/network/05-mine.link"), "{reason}");
    place.run(&["keep", "--check"]).expect(8, &["different: 1300", "05-mine.link"]);
    // Without the interface no value can be read.
    ip(&["link", "del", "nic7"]);
    place.run(&["keep", "--check"]).expect(6, &["cannot be read"]);
}
