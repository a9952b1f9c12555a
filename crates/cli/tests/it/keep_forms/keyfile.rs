//! Keyfiles in the forms of nm-settings-keyfile(5), as NetworkManager's own reader takes them.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use latput_testkit::needs;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use super::{CASES, any_setting, kept_in, parse_ini, run_keep};
use crate::Place;
use crate::keep::{place_with_root, read_tree};

const FILE: &str = "etc/NetworkManager/system-connections/wired.nmconnection";

/// Types of profiles with the section that they need, and the section that has the MTU.
const TYPES: &[(&str, &str, &str)] = &[
    ("ethernet", "", "ethernet"),
    ("802-3-ethernet", "", "ethernet"),
    ("bond", "[bond]\nmode=active-backup\n", "ethernet"),
    ("bridge", "[bridge]\nstp=false\n", "ethernet"),
    ("vlan", "[vlan]\nid=7\nparent=eno1\n", "ethernet"),
    ("wifi", "[wifi]\nssid=home\n", "wifi"),
    ("802-11-wireless", "[802-11-wireless]\nssid=home\n", "wifi"),
];

/// Sections that a profile may have, in any order; the lines of one may be written with spaces.
const SECTIONS: &[&str] = &[
    "[ethernet]\nmtu=1500\n",
    "[802-3-ethernet]\n# by hand\nmtu=1300\nport=tp\n",
    "[ethernet]\nmtu=1450\nmtu=1460\n",
    "[ethtool]\nring-rx=256\nfeature-gro=true\n",
    "[ethtool]\npause-autoneg=true\n",
    "[ethtool]\npause-autoneg=false\npause-rx=true\n\n\n",
    "[ethtool]\ncoalesce-rx-usecs=7\nring-rx=128\nring-rx=192\n",
    "[ipv4]\nmethod=auto\n",
    "[ipv6]\nmethod=disabled\nmtu=1400\n",
    "[proxy]\n",
];

fn any_keyfile() -> impl Strategy<Value = (String, &'static str)> {
    let sections = subsequence(SECTIONS, 0..=4).prop_shuffle();
    (select(TYPES), sections, any::<bool>(), any::<bool>()).prop_map(
        |((connection_type, own, mtu_section), sections, has_spaces, is_first)| {
            let connection = format!(
                "[connection]\nid=wired\nuuid=9d2c4b5e-6f1a-4c3b-8a7d-1e2f3a4b5c6d\ntype={connection_type}\n\
                 interface-name=nic7\n"
            );
            let mut all = sections.concat() + own;
            all = if is_first { connection + &all } else { all + &connection };
            (if has_spaces { all.replace('=', " = ") } else { all }, mtu_section)
        },
    )
}

/// The values of a profile, as NetworkManager writes it again; `None` where it refuses the profile.
fn read_by_networkmanager(place: &Place) -> Option<BTreeMap<(String, String), Vec<String>>> {
    let mut read = Command::new("nmcli");
    read.args(["--offline", "connection", "modify", "connection.zone", "home"]);
    let read = read.stdin(fs::File::open(place.path("root").join(FILE)).unwrap()).output().unwrap();
    read.status.success().then(|| parse_ini(&String::from_utf8(read.stdout).unwrap()))
}

/// The section, key and value that nm-settings(5) has for a knob.
fn nm_property(knob: &str, value: &str, mtu_section: &str) -> ((String, String), Vec<String>) {
    let number = value.strip_suffix("us").unwrap_or(if value == "1ms" { "1000" } else { value });
    let is_on = if value == "on" { "true" } else { "false" };
    let (section, key, value) = match knob {
        "mtu" => (mtu_section, "mtu", number),
        "rx-ring" => ("ethtool", "ring-rx", number),
        "tx-ring" => ("ethtool", "ring-tx", number),
        "rx-usecs" => ("ethtool", "coalesce-rx-usecs", number),
        "rx-frames" => ("ethtool", "coalesce-rx-frames", number),
        "adaptive-rx" => ("ethtool", "coalesce-adaptive-rx", if value == "on" { "1" } else { "0" }),
        "pause-autoneg" => ("ethtool", "pause-autoneg", is_on),
        "pause-rx" => ("ethtool", "pause-rx", is_on),
        "rx-checksum" => ("ethtool", "feature-rx", is_on),
        "tx-checksum" => ("ethtool", "feature-tx", is_on),
        "tso" => ("ethtool", "feature-tso", is_on),
        "gso" => ("ethtool", "feature-gso", is_on),
        "gro" => ("ethtool", "feature-gro", is_on),
        "lro" => ("ethtool", "feature-lro", is_on),
        other => panic!("not every NetworkManager has {other}"),
    };
    ((section.to_owned(), key.to_owned()), vec![value.to_owned()])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES * 2, failure_persistence: None, ..ProptestConfig::default() })]

    #[needs("nmcli")]
    #[test]
    fn networkmanager_reads_what_was_asked((text, mtu_section) in any_keyfile(), setting in any_setting()) {
        let place = place_with_root(&[(FILE, &text)]);
        let root = place.path("root");
        let read = read_by_networkmanager(&place);
        prop_assume!(read.is_some());
        let mut expected = read.unwrap();
        let before = read_tree(&root.join("etc"));
        let ran = run_keep(&place, "nic7", &setting);
        // Pause frames of one direction, beside their negotiation, make the profile invalid.
        let of_file = |key: &str| {
            let found = expected.get(&("ethtool".to_owned(), key.to_owned()));
            found.and_then(|values| values.last()).map(String::as_str)
        };
        let asked = setting.get("pause-autoneg").copied();
        let is_negotiated = asked.map_or(of_file("pause-autoneg") == Some("true"), |it| it == "on");
        let has_direction =
            of_file("pause-rx").is_some() || (setting.contains_key("pause-rx") && asked != Some("on"));
        let has_pause = asked.is_some() || setting.contains_key("pause-rx");
        if is_negotiated && has_direction && has_pause {
            ran.expect(1, &["NetworkManager would refuse", "`pause-autoneg` cannot be enabled beside"]);
            prop_assert_eq!(read_tree(&root.join("etc")), before);
            return Ok(());
        }
        ran.expect(0, &[]);
        for (knob, value) in kept_in(&place, &ran, &setting, "/etc/NetworkManager/") {
            let (place, value) = nm_property(knob, value, mtu_section);
            expected.insert(place, value);
        }
        let found = read_by_networkmanager(&place);
        prop_assert_eq!(found, Some(expected), "{}", fs::read_to_string(root.join(FILE)).unwrap());
        place.run(&["keep", "--remove", "--root", "root", "--yes"]).expect(0, &[]);
        prop_assert_eq!(read_tree(&root.join("etc")), before);
    }
}
