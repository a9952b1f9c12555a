//! Files of which nobody can tell whether they are of the interface, and interfaces that get their name after a .link file was
//! chosen: `keep` writes nothing that may not count.

use std::fs;
use std::os::unix::fs::symlink;

use crate::keep::{place_with_root, read_tree};

const KEEP: [&str; 6] = ["keep", "nic7", "mtu=9000", "--root", "root", "--yes"];
const NETWORK: &str = "etc/systemd/network/20.network";
const NETPLAN: &str = "etc/netplan/50-cloud.yaml";
const PROFILE: &str = "etc/NetworkManager/system-connections/any.nmconnection";
const OF_VENDOR: &str = "usr/lib/NetworkManager/system-connections/any.nmconnection";

fn profile_text(connection: &str, more: &str) -> String {
    format!("[connection]\nid=any\ntype=ethernet\n{connection}[ethernet]\nmtu=1400\n{more}")
}

#[test]
fn mtu_that_may_come_later_is_refused() {
    let named = profile_text("interface-name=nic7\n", "").replace("mtu=1400\n", "");
    let named = ("etc/NetworkManager/system-connections/named.nmconnection", named.as_str());
    let any = profile_text("", "");
    let first = profile_text("autoconnect-priority=50\n", "");
    let by_address = profile_text("", "mac-address=52:54:00:AA:BB:CC\n");
    let by_pattern = profile_text("", "[match]\ninterface-name=nic7;\n");
    let of_others = profile_text("interface-name=nic7\n", "");
    for (files, why) in [
        (vec![(NETWORK, "[Match]\nType=ether\n[Link]\nMTUBytes=1400\n")], "20.network sets"),
        (vec![(NETWORK, "[Match]\nDriver=ice\n[Link]\nMTUBytes=1400\n")], "if its `[Match]` is"),
        (
            vec![(NETPLAN, "network: {ethernets: {n: {match: {driver: ice}, mtu: 1400}}}\n")],
            "netplan sets `mtu: 1400` afterwards",
        ),
        (
            vec![(
                NETPLAN,
                "network: {ethernets: {n: {match: {macaddress: '52:54:00:aa:bb:cc'}, mtu: 1400}}}\n",
            )],
            "if the `match` of `n` is of nic7",
        ),
        (vec![(PROFILE, &*any)], "NetworkManager sets `mtu 1400` afterwards"),
        (vec![(PROFILE, &*by_address)], "if its address is the interface's"),
        (vec![(PROFILE, &*by_pattern)], "any.nmconnection says"),
        (vec![(OF_VENDOR, &*of_others)], OF_VENDOR),
        (vec![named, (PROFILE, &*first)], "any.nmconnection says"),
    ] {
        let place = place_with_root(&files);
        let before = read_tree(&place.path("root"));
        place.run(&KEEP).expect(1, &["would not count", why]);
        assert_eq!(read_tree(&place.path("root")), before, "{why}");
        // The same value takes nothing away.
        for (name, text) in &files {
            fs::write(place.path("root").join(name), text.replace("1400", "9000")).unwrap();
        }
        place.run(&KEEP).expect(0, &[]);
    }
    // One that nobody activates, and one that another goes before.
    for more in ["autoconnect=false\n", "autoconnect-priority=-50\n"] {
        let text = profile_text(more, "");
        let place = place_with_root(&[named, (PROFILE, &text)]);
        place.run(&KEEP).expect(0, &["named.nmconnection"]);
    }
}

#[test]
fn file_with_mtu_is_named() {
    let says = "network: {ethernets: {nic7: {mtu: 1300}}}\n";
    let other = "network: {ethernets: {nic7: {dhcp4: true}}}\n";
    let place = place_with_root(&[("etc/netplan/99-z.yaml", says), ("etc/netplan/n.yaml", other)]);
    place
        .run(&[&KEEP[..], &["--format", "udev"]].concat())
        .expect(1, &["netplan sets `mtu: 1300` afterwards", "99-z.yaml says"]);
}

#[test]
fn profile_activated_by_hand_is_told() {
    let text = profile_text("interface-name=nic7\nautoconnect=false\n", "");
    let place = place_with_root(&[(PROFILE, &text)]);
    place.run(&KEEP).expect(0, &["which has `autoconnect=false`"]);
}

/// The files of an image may lie elsewhere in it.
#[test]
fn netplan_below_a_link_is_read() {
    let place = place_with_root(&[("opt/netplan/n.yaml", "network: {ethernets: {nic7: {}}}\n")]);
    fs::create_dir_all(place.path("root/etc")).unwrap();
    symlink("../opt/netplan", place.path("root/etc/netplan")).unwrap();
    place.run(&KEEP).expect(1, &["a symbolic link is on the way"]);
    let udev = [&KEEP[..], &["--format", "udev"]].concat();
    place.run(&udev).expect(0, &[]);
    place.write("root/opt/netplan/n.yaml", "network: {ethernets: {nic7: {mtu: 1400}}}\n");
    place.run(&udev).expect(1, &["netplan sets `mtu: 1400` afterwards"]);
}

/// A .link file is chosen by the name that the kernel gives.
#[test]
fn renamed_interface_gets_rules() {
    let link =
        ("etc/systemd/network/10-lan.link", "[Match]\nOriginalName=eth7\n[Link]\nName=lan0\n");
    for (name, files, why) in [
        ("lan0", vec![link], "10-lan.link gives the interface its name"),
        ("enp3s0", vec![], "udev gives the interface the name enp3s0"),
        ("wlo1", vec![], "udev gives the interface the name wlo1"),
    ] {
        let place = place_with_root(&files);
        let keep = ["keep", name, "mtu=9000", "--root", "root", "--yes"];
        place.run(&[&keep[..], &["--format", "systemd-link"]].concat()).expect(1, &[why]);
        place.run(&keep).expect(0, &[why]);
        let rules = place.path(&format!("root/etc/udev/rules.d/90-latput-{name}.rules"));
        assert!(fs::read_to_string(rules).unwrap().contains(&format!("KERNEL==\"{name}\"")));
    }
}

/// This host's interfaces are none of the image's.
#[test]
fn image_gets_nothing_of_this_host() {
    for entry in fs::read_dir("/sys/class/net").unwrap() {
        let entry = entry.unwrap();
        let Ok(name) = entry.file_name().into_string() else { continue };
        let address = fs::read_to_string(entry.path().join("address")).unwrap_or_default();
        if name == "lo" || address.trim().is_empty() {
            continue;
        }
        let place = place_with_root(&[]);
        place.run(&["keep", &name, "mtu=9000", "--root", "root", "--yes"]).expect(0, &[]);
        let written = read_tree(&place.path("root")).into_values();
        let written: Vec<String> =
            written.map(|(.., bytes)| String::from_utf8(bytes).unwrap()).collect();
        assert!(!written.concat().contains(address.trim()), "{name}");
    }
}

#[test]
fn removal_leaves_an_empty_image_empty() {
    let place = place_with_root(&[]);
    let root = place.path("root");
    fs::remove_dir_all(root.join("var")).unwrap();
    for name in ["nic7", "nic8"] {
        place.run(&["keep", name, "mtu=9000", "--root", "root", "--yes"]).expect(0, &[]);
    }
    for name in ["nic7", "nic8"] {
        place.run(&["keep", "--remove", name, "--root", "root", "--yes"]).expect(0, &[]);
    }
    assert!(read_tree(&root).is_empty(), "{:?}", read_tree(&root).keys());
}
