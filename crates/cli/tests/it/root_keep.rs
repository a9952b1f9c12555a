//! `latput keep --check` on a running system: a veth pair, and folders of configuration of the test's own.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use latput_testkit::{isolate, needs};

use crate::two_hosts::run_ip;
use crate::{Place, needs_program, print_note, run_program};

/// `nic7` with its peer, and an empty `/etc` and `/var/lib` that only this thread and its children see.
pub(crate) fn prepare_host() -> Place {
    let place = prepare_interfaces();
    hide_folders();
    place
}

/// The files of the host are of its own interfaces, also of one that has the same name there.
#[needs("root", "ip")]
#[test]
fn namespace_without_files_is_refused() {
    let place = prepare_interfaces();
    let refused = &["network namespace without files of its own", "--root"];
    for args in [
        &["keep", "nic7", "mtu=1400", "--dry-run"][..],
        &["keep", "--check"],
        &["keep", "--check", "nic7"],
        &["keep", "--watch"],
    ] {
        let ran = place.run(args);
        ran.expect(2, refused);
        assert_eq!(ran.out, "");
    }
    // A container has files of its own: those that --root names, or those that it sees in /etc.
    let root = place.path("root");
    fs::create_dir_all(&root).unwrap();
    let of_root = ["keep", "nic7", "mtu=1400", "--root", "root", "--dry-run"];
    place.run(&of_root).expect(0, &["10-latput-nic7.link"]);
    // No line that is printed after a change is refused then.
    place
        .run(&["set", "nic7", "txqueuelen=900"])
        .expect(0, &["keep:  a network namespace has no files"]);
    hide_folders();
    place.run(&["keep", "nic7", "mtu=1400", "--dry-run"]).expect(0, &["10-latput-nic7.link"]);
    place
        .run(&["set", "nic7", "txqueuelen=901"])
        .expect(0, &["keep:  latput keep nic7 txqueuelen=901"]);
}

pub(crate) fn hide_folders() {
    for folder in ["/etc", "/var/lib"] {
        run_program(&["mount", "-t", "tmpfs", "none", folder]);
    }
}

pub(crate) fn prepare_interfaces() -> Place {
    isolate();
    run_ip(&["link", "add", "nic7", "type", "veth", "peer", "name", "nic8"]);
    run_ip(&["link", "set", "nic7", "up"]);
    Place::new()
}

#[needs("root", "ip")]
#[test]
fn check_compares_with_the_kernel() {
    let place = prepare_host();
    run_ip(&["link", "set", "nic7", "mtu", "1400"]);
    place.run(&["keep", "nic7", "mtu=1400", "gro=on", "--yes"]).expect(0, &[]);
    let check = ["--json", "keep", "--check", "nic7"];
    let state = |ran: &crate::CommandOutput, name: &str| -> (String, String, String) {
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
    run_ip(&["link", "set", "nic7", "mtu", "1300"]);
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
    run_ip(&["link", "del", "nic7"]);
    place.run(&["keep", "--check"]).expect(6, &["cannot be read"]);
}

/// A fleet's host compares what it keeps by itself.
#[needs("root", "ip")]
#[test]
fn fleet_verifies_what_is_kept() {
    isolate();
    run_ip(&["netns", "add", "h1"]);
    run_ip(&["link", "add", "p1", "type", "veth", "peer", "name", "eth0", "netns", "h1"]);
    run_ip(&["-n", "h1", "link", "set", "eth0", "up"]);
    hide_folders();
    let place = Place::new();
    let inventory = "schema = 1\n[group.web]\nhosts = [\"netns://h1\"]\ninterface = \"eth0\"\nsettings = { mtu = 1400 }\n";
    place.write("inventory.toml", inventory);
    fs::create_dir(place.path("bin")).unwrap();
    std::os::unix::fs::symlink(crate::latput_path(), place.path("bin/latput")).unwrap();
    let path = format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", place.path("bin").display());
    let fleet = |words: &[&str]| {
        let words = [&["fleet"], words, &["-i", "inventory.toml"]].concat();
        place.run_with(("PATH", &path), &words)
    };
    let verify = || fleet(&["verify", "--kept"]);
    verify().expect(6, &["nothing-kept"]);
    fleet(&["apply", "--soak", "0s"]).expect(0, &[]);
    fleet(&["keep"]).expect(0, &["10-latput-eth0.link"]);
    verify().expect(0, &["same"]);
    run_ip(&["-n", "h1", "link", "set", "eth0", "mtu", "1300"]);
    verify().expect(8, &["different", "mtu is 1300, kept is 1400"]);
    run_ip(&["-n", "h1", "link", "set", "eth0", "mtu", "1400"]);
    fs::remove_file("/etc/systemd/network/10-latput-eth0.link").unwrap();
    verify().expect(8, &["10-latput-eth0.link: it is not there any more"]);
    fleet(&["keep"]).expect(0, &[]);
    verify().expect(0, &["same"]);
    fleet(&["keep", "--remove"]).expect(0, &[]);
    verify().expect(6, &["nothing-kept"]);
}

/// The kernel's kind is the type in both, and what neither knows is refused.
#[needs("root", "ip")]
#[test]
fn nmstate_and_ansible_export_have_type() {
    let place = prepare_interfaces();
    let make = |words: &str| {
        let made =
            Command::new("ip").args(["link", "add"]).args(words.split(' ')).output().unwrap();
        if !made.status.success() {
            print_note(&format!("skipped: this kernel makes no {words}"));
        }
    };
    make("br7 type bridge");
    make("dummy7 type dummy");
    make("vrf7 type vrf table 7");
    make("link nic7 name vlan7 type vlan id 7");
    make("mac7 link nic7 type macvlan");
    for (interface, nmstate, ansible) in [
        ("nic7", "veth", "ethernet"),
        ("br7", "linux-bridge", "bridge"),
        ("dummy7", "dummy", "dummy"),
        ("vlan7", "vlan", "vlan"),
        ("mac7", "mac-vlan", "macvlan"),
        ("vrf7", "vrf", ""),
        ("lo", "loopback", ""),
    ] {
        if !fs::exists(format!("/sys/class/net/{interface}")).unwrap() {
            continue;
        }
        for (format, wanted) in [("nmstate", nmstate), ("ansible", ansible)] {
            let ran = place.run(&["export-settings", interface, "mtu=1400", "--format", format]);
            if wanted.is_empty() {
                ran.expect(2, &["has none for the kind", "by hand", "mtu: 1400"]);
            } else {
                ran.expect(0, &[&format!("\n    type: {wanted}\n    state: up\n    mtu: 1400\n")]);
            }
        }
    }
}

/// netplan itself reads what was written for a bridge of the kernel, beside the file that makes it.
#[needs("root", "ip")]
#[test]
fn netplan_export_has_device_type() {
    let place = prepare_interfaces();
    let export = |interface: &str, words: &[&str]| {
        let args = [&["export-settings", interface], words, &["--format", "netplan"]].concat();
        place.run(&args)
    };
    run_ip(&["link", "add", "br7", "type", "bridge"]);
    let ran = export("br7", &["mtu=1400", "gro=off"]);
    ran.expect(0, &["\n  bridges:\n    br7:\n      mtu: 1400\n", "not in it: gro=off"]);
    assert!(!ran.out.contains("ethernets:"), "{ran:#?}");
    let root = place.path("root");
    fs::create_dir_all(root.join("etc/netplan")).unwrap();
    let base = "network:\n  version: 2\n  bridges:\n    br7: {dhcp4: true}\n";
    fs::write(root.join("etc/netplan/50-site.yaml"), base).unwrap();
    fs::write(root.join("etc/netplan/90-latput-br7.yaml"), &ran.out).unwrap();
    if !needs_program("netplan") {
        let generated =
            Command::new("netplan").args(["generate", "--root-dir"]).arg(&root).output();
        let generated = generated.unwrap();
        assert!(generated.status.success(), "{generated:?}");
        let network = root.join("run/systemd/network/10-netplan-br7.network");
        assert!(fs::read_to_string(network).unwrap().contains("MTUBytes=1400"));
    }
    run_ip(&["link", "add", "mac7", "link", "nic7", "type", "macvlan"]);
    export("mac7", &["mtu=1400"]).expect(2, &["kind `macvlan`", "by hand", "mtu: 1400"]);
    export("nic7", &["mtu=1400"]).expect(2, &["virtual-ethernets", "by hand", "mtu: 1400"]);
    export("nic7", &["gro-flush-timeout=50us"]).expect(0, &["can express none"]);
    // The entry that a file of this host has counts before the kind.
    hide_folders(); // not before: `netplan` finds its library by a file of /etc
    fs::create_dir_all("/etc/netplan").unwrap();
    let named =
        "network:\n  ethernets:\n    id0:\n      match: {name: \"nic*\"}\n      set-name: nic7\n";
    fs::write("/etc/netplan/50-site.yaml", named).unwrap();
    export("nic7", &["mtu=1400"]).expect(0, &["\n  ethernets:\n    id0:\n      mtu: 1400\n"]);
}

/// The profile that is active now and that of the next boot, by NetworkManager's state of the device.
#[needs("root", "ip")]
#[test]
fn active_profile_is_kept() {
    let place = prepare_host();
    let folder = "/etc/NetworkManager/system-connections";
    fs::create_dir_all(folder).unwrap();
    fs::create_dir_all("/run/NetworkManager/devices").unwrap();
    let index = fs::read_to_string("/sys/class/net/nic7/ifindex").unwrap();
    let state = format!("/run/NetworkManager/devices/{}", index.trim());
    let write = |name: &str, keys: &str| {
        let text = format!(
            "[connection]\nid={name}\nuuid={name}\ntype=ethernet\ninterface-name=nic7\n{keys}"
        );
        let file = format!("{folder}/{name}.nmconnection");
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
    };
    let keep = || place.run(&["keep", "nic7", "mtu=1400", "--dry-run"]);
    write("one", "");
    write("two", "");
    fs::write(&state, "[device]\nmanaged=true\nconnection-uuid=two\n").unwrap();
    keep().expect(0, &["NetworkManager manages nic7 by", "two.nmconnection"]);
    write("one", "autoconnect-priority=1\n");
    keep().expect(1, &["two.nmconnection is active", "one.nmconnection goes before it"]);
    fs::write(&state, "[device]\nmanaged=true\n").unwrap();
    keep().expect(0, &["NetworkManager manages nic7 by", "one.nmconnection"]);
    write("two", "autoconnect-priority=1\n");
    keep()
        .expect(1, &["one.nmconnection and ", "two.nmconnection have one `autoconnect-priority`"]);
}
