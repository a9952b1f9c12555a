//! The type of the interface in each format, and what a profile of NetworkManager takes.

use super::*;

/// NetworkManager reads the MTU in the section of the profile's type, ignores what only newer versions know, and refuses a
/// whole profile for the direction of pause frames beside their negotiation.
#[test]
fn known_profile_gets_what_counts() {
    let setting = setting(&["mtu=1400", "combined-channels=4", "txqueuelen=500", "eee=on"]);
    for (connection_type, section) in
        [("802-3-ethernet", "ethernet"), ("bond", "ethernet"), ("wifi", "wifi"), ("gsm", "gsm")]
    {
        let target = Target::new("eth0", Match::Name).unwrap().in_profile(connection_type);
        let Exported { text, elsewhere, .. } =
            export(Format::NetworkManager, &target, &setting, "");
        assert!(text.contains(&format!("\n[{section}]\nmtu=1400\n")), "{text}");
        assert_eq!(elsewhere.len(), 3, "{elsewhere:?}");
        assert!(elsewhere.iter().all(|it| it.file.as_ref().unwrap().starts_with("/etc/udev/")));
    }
    let wifi = Target::new("eth0", Match::Name).unwrap().of_kind("wlan");
    assert!(export(Format::NetworkManager, &wifi, &setting, "").text.contains("[wifi]\nmtu"));
}

#[test]
fn pause_direction_is_not_beside_negotiation() {
    for (format, line) in
        [(Format::NetworkManager, "pause-autoneg=true"), (Format::Nmstate, "autoneg: true")]
    {
        for (autoneg, left) in [("on", 2), ("off", 0)] {
            let autoneg = format!("pause-autoneg={autoneg}");
            let setting = setting(&[&autoneg, "pause-rx=on", "pause-tx=off"]);
            let Exported { text, elsewhere, .. } = export(format, &eth0(), &setting, "");
            assert_eq!(elsewhere.len(), left, "{text}");
            assert_eq!(text.lines().any(|found| found.trim() == line), left == 2, "{text}");
        }
    }
}

/// Kinds as the kernel names them, with the type of each format; empty where it has none.
#[test]
fn type_is_that_of_kind() {
    let setting = setting(&["mtu=1400", "rx-usecs=50us"]);
    for (kind, nmstate, ansible) in [
        ("ethernet", "ethernet", "ethernet"),
        ("veth", "veth", "ethernet"),
        ("bond", "bond", "bond"),
        ("bridge", "linux-bridge", "bridge"),
        ("vlan", "vlan", "vlan"),
        ("macvlan", "mac-vlan", "macvlan"),
        ("dummy", "dummy", "dummy"),
        ("vrf", "vrf", ""),
        ("vxlan", "vxlan", ""),
        ("team", "", "team"),
        ("wlan", "", ""),
        ("wireguard", "", ""),
        ("openvswitch", "", ""),
    ] {
        for (format, wanted) in [(Format::Nmstate, nmstate), (Format::Ansible, ansible)] {
            let mac = Match::Mac("52:54:00:00:00:01".to_owned());
            let target = Target::new("eth0", mac).unwrap().of_kind(kind);
            let Exported { text, elsewhere, is_empty, .. } = export(format, &target, &setting, "");
            assert_eq!(is_empty, wanted.is_empty(), "{kind}: {text}");
            assert_eq!(elsewhere.len(), if wanted.is_empty() { 2 } else { 0 }, "{kind}: {text}");
            let mut types = text.lines().filter_map(|line| line.strip_prefix("    type: "));
            assert_eq!(types.next().unwrap_or_default(), wanted, "{format}: {text}");
            // Only hardware is known by its address.
            assert_eq!(text.contains("52:54"), wanted == "ethernet", "{kind}: {text}");
        }
    }
    let lines = lines_by_hand(Format::Nmstate, &setting);
    assert_eq!(lines, ["mtu: 1400", "ethtool.coalesce.rx-usecs: 50"]);
    assert_eq!(lines_by_hand(Format::Ansible, &setting)[1], "ethtool.coalesce.rx_usecs: 50");
    let unknown = Target::new("eth0", Match::Name).unwrap();
    assert!(export(Format::Nmstate, &unknown, &setting, "").is_empty);
}
