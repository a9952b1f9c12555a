//! Tests which of several profiles of an image `latput keep` takes, beside how `nmcli` reads them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::keep::place_with_root;
use crate::{Place, needs_program};

/// Forms of `autoconnect` and its priority; NetworkManager's own reader says which of two is preferred.
#[test]
fn image_profile_is_that_with_priority() {
    let folder = "etc/NetworkManager/system-connections";
    let text = |keys: &str| {
        let uuid = "9d2c4b5e-6f1a-4c3b-8a7d-1e2f3a4b5c6d";
        format!("[connection]\nid=a\nuuid={uuid}\ntype=ethernet\ninterface-name=nic7\n{keys}\n")
    };
    for (first, second, chosen) in [
        ("", "autoconnect-priority = 5", 1),
        ("autoconnect-priority=0x10", "autoconnect-priority=+15", 0),
        ("autoconnect-priority=99999", "autoconnect-priority=1", 1),
        ("autoconnect-priority=12abc", "autoconnect-priority=1", 1),
        ("autoconnect-priority=7\nautoconnect = 0", "", 1),
        ("autoconnect-priority=7\nautoconnect=no", "", 0),
    ] {
        let names = ["one", "two"].map(|name| format!("{folder}/{name}.nmconnection"));
        let texts = [first, second].map(text);
        let place = place_with_root(&[(&names[0], &texts[0]), (&names[1], &texts[1])]);
        let ran = place.run(&["keep", "nic7", "mtu=9000", "--root", "root", "--yes"]);
        ran.expect(0, &["NetworkManager manages nic7 by", &names[chosen]]);
        if !needs_program("nmcli") {
            let ranks = texts.map(|text| rank_by_networkmanager(&place, &text));
            assert!(ranks[chosen] > ranks[1 - chosen], "{first} {second}: {ranks:?}");
        }
    }
    let tied = [text(""), text("autoconnect-priority=0")];
    let names = ["one", "two"].map(|name| format!("{folder}/{name}.nmconnection"));
    let files = [(names[0].as_str(), tied[0].as_str()), (&names[1], &tied[1])];
    let keep = ["keep", "nic7", "mtu=9000", "--root", "root", "--yes"];
    place_with_root(&files).run(&keep).expect(1, &[&names[0], &names[1], "--format systemd-link"]);
    // NetworkManager ignores a profile that others may read.
    let place = place_with_root(&files);
    let open = place.path("root").join(&names[0]);
    fs::set_permissions(open, PermissionsExt::from_mode(0o644)).unwrap();
    place.run(&keep).expect(0, &["NetworkManager manages nic7 by", &names[1]]);
}

/// Whether a profile connects by itself, and its priority, as `nmcli` has read them.
fn rank_by_networkmanager(place: &Place, text: &str) -> (bool, i64) {
    place.write("profile", text);
    let mut read = Command::new("nmcli");
    read.args(["--offline", "connection", "modify", "connection.zone", "home"]);
    let read = read.stdin(fs::File::open(place.path("profile")).unwrap()).output().unwrap();
    let out = String::from_utf8(read.stdout).unwrap();
    assert!(out.contains("zone=home"), "{out}");
    let priority = out.lines().find_map(|line| line.strip_prefix("autoconnect-priority="));
    (!out.contains("autoconnect=false"), priority.map_or(0, |text| text.parse().unwrap()))
}
