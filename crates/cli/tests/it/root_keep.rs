//! `latput keep --check` on a running kernel: what is kept beside what `ip` has set. The folders that `keep` writes to are
//! the test's own.

use std::fs;
use std::process::Command;

use latput_testkit::{isolate, needs_root};

use crate::Place;
use crate::two_hosts::ip;

/// The folders that hold configuration and records.
const FOLDERS: [&str; 4] = ["/etc/systemd", "/etc/udev", "/etc/sysctl.d", "/var/lib"];
/// What chooses another format where it is there.
const OTHERS: [&str; 3] = ["/etc/netplan", "/etc/NetworkManager", "/etc/tuned"];

#[test]
fn kept_values_beside_values_in_force() {
    if needs_root() {
        return;
    }
    isolate();
    let others = OTHERS.into_iter().filter(|folder| fs::exists(folder).unwrap());
    for folder in FOLDERS.into_iter().chain(others) {
        fs::create_dir_all(folder).unwrap();
        let mounted = Command::new("mount").args(["-t", "tmpfs", "none", folder]).status();
        assert!(mounted.unwrap().success(), "{folder}");
    }
    let place = Place::new();
    let interface = "kept0";
    ip(&["link", "add", interface, "type", "veth", "peer", "name", "kept1"]);
    place.run(&["keep", "--check"]).expect(1, &["nothing is kept"]);
    place.run(&["keep", interface, "mtu=1400", "txqueuelen=777", "--yes"]).expect(0, &[]);

    let check = ["keep", "--check"];
    let before = place.run(&check);
    before.expect(8, &["1400  different: 1500", "777   different: 1000", "as it was written"]);
    before.expect(8, &["udev has applied no .link file", "udevadm control --reload"]);
    ip(&["link", "set", interface, "mtu", "1400", "txqueuelen", "777"]);
    place.run(&check).expect(0, &["1400  in force", "777   in force"]);
    let document = place.run(&["keep", "--check", interface, "--json"]);
    let document: serde_json::Value = serde_json::from_str(&document.expect(0, &[]).out).unwrap();
    let kept = &document["kept"][0];
    assert_eq!(
        (&kept["knobs"][0]["knob"], &kept["knobs"][0]["state"]),
        (&"mtu".into(), &"in_force".into())
    );

    let file = format!("/etc/systemd/network/10-latput-{interface}.link");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("1400", "1401")).unwrap();
    place.run(&check).expect(8, &["edited since", "1400  in force"]);
    fs::remove_file(&file).unwrap();
    place.run(&check).expect(8, &["missing"]);
    fs::write(&file, &text).unwrap();
    place.run(&check).expect(0, &["as it was written"]);

    ip(&["link", "del", interface]);
    place.run(&check).expect(6, &["cannot be read", &format!("no interface `{interface}`")]);
}
