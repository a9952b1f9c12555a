//! `latput keep` beside other programs and another `keep`: values that they would override, locks, and failures midway.

use std::fs;

use crate::keep::{KEYFILE, place_with_root, read_tree};

/// Each case has the files of a host, the command, and what it says.
#[test]
fn value_overridden_by_other_program_is_refused() {
    let netplan = "network:\n  version: 2\n  ethernets:\n    any: {match: {name: \"nic*\"}, mtu: 1300, dhcp4: true}\n    \
                   nic7: {dhcp4: true}\n";
    let interfaces = "auto nic7\niface nic7 inet dhcp\n  mtu 1300\n";
    let rule = "SUBSYSTEM==\"net\", ACTION==\"add\", ATTR{gro_flush_timeout}=\"0\"\n";
    let run = "SUBSYSTEM==\"net\", KERNEL==\"nic*\", RUN+=\"/sbin/ethtool -C %k rx-usecs 3\"\n";
    for (file, text, words, why) in [
        ("etc/netplan/01.yaml", netplan, &["mtu=1400"][..], "netplan sets `mtu: 1300` afterwards"),
        (
            "etc/netplan/01.yaml",
            netplan,
            &["gro=off", "--format", "netplan"],
            "netplan's entry `any` in",
        ),
        (
            "etc/network/interfaces",
            interfaces,
            &["mtu=1400"],
            "ifupdown sets `mtu 1300` afterwards",
        ),
        (
            "etc/udev/rules.d/99-z.rules",
            rule,
            &["gro-flush-timeout=50us"],
            "99-z.rules sorts later and sets ATTR",
        ),
        (
            "etc/udev/rules.d/99-z.rules",
            run,
            &["rx-usecs=50us", "--format", "udev"],
            "sets `ethtool -C rx-usecs 3` too",
        ),
    ] {
        let place = place_with_root(&[(file, text)]);
        let before = read_tree(&place.path("root"));
        let keep = [&["keep", "nic7"], words, &["--root", "root", "--yes"]].concat();
        place.run(&keep).expect(1, &[why]);
        assert_eq!(read_tree(&place.path("root")), before, "{words:?}");
    }
}

/// A folder in the place of the second file.
#[test]
fn keep_that_fails_midway_changes_nothing() {
    let connection = "etc/NetworkManager/system-connections/wired.nmconnection";
    let place = place_with_root(&[(connection, KEYFILE)]);
    let root = place.path("root");
    fs::create_dir_all(root.join("etc/udev/rules.d/90-latput-nic7.rules")).unwrap();
    let before = read_tree(&root);
    let keep = ["keep", "nic7", "mtu=9000", "rps-cpus=0", "--root", "root", "--yes"];
    place.run(&keep).expect(1, &["90-latput-nic7.rules"]);
    assert_eq!(read_tree(&root), before);
    place.run(&["keep", "--check", "--root", "root"]).expect(0, &["nothing is kept"]);
}

#[test]
fn second_keep_at_once_is_refused() {
    let place = place_with_root(&[]);
    let root = fs::File::open(place.path("root")).unwrap();
    root.lock().unwrap();
    let keep = ["keep", "nic7", "mtu=9000", "--root", "root", "--yes"];
    place.run(&keep).expect(1, &["another `latput keep` is at work"]);
    place.run(&[&keep[..4], &["root", "--dry-run"]].concat()).expect(0, &["MTUBytes=9000"]);
    drop(root);
    place.run(&keep).expect(0, &[]);
}

#[test]
fn knob_of_host_is_kept_once() {
    let place = place_with_root(&[]);
    let keep = |interface: &str, value: &str| {
        place.run(&["keep", interface, value, "--root", "root", "--yes"])
    };
    keep("nic8", "netdev-budget=600").expect(0, &[]);
    assert!(
        !place.path("root/etc/udev/rules.d/90-latput-nic8.rules").exists(),
        "it would say nothing"
    );
    keep("nic7", "netdev-budget=600").expect(0, &[]);
    keep("nic7", "netdev-budget=700")
        .expect(1, &["one for the whole host", "600 is kept of it with nic8"]);
}

#[test]
fn unused_unit_or_profile_has_exit_code() {
    let place =
        place_with_root(&[("etc/tuned/active_profile", "mine\n"), ("etc/systemd/system.conf", "")]);
    let keep = ["keep", "nic7", "gro=off", "smp-affinity=0", "--root", "root", "--yes"];
    place.run(&keep).expect(0, &[]);
    let words = ["TuneD's active profile is `mine`", "runs only once enabled"];
    place.run(&["keep", "--check", "--root", "root"]).expect(8, &words);
}
