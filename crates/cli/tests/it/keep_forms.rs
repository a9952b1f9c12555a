//! Settings that `keep` writes into generated configurations, read back by the programs that these are of: each value is
//! what was asked, everything else is as before, and `--remove` brings back the files.

mod choice;
mod keyfile;
mod may_count;
mod others;
mod root_link;
mod root_networkd;
mod tuned;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use latput_testkit::needs;
use proptest::prelude::*;
use proptest::sample::{Index, select, subsequence};
use serde_json::{Value, json};

use crate::keep::{place_with_root, read_tree};
use crate::{CommandOutput, Place};

/// Configurations that are tried of each kind. Each takes some processes.
const CASES: u32 = 24;

const SWITCH: &[&str] = &["on", "off"];
/// Knobs of each way in which files have them, with values.
const KNOBS: &[(&str, &[&str])] = &[
    ("mtu", &["1280", "1400", "9000"]),
    ("tso", SWITCH),
    ("gso", SWITCH),
    ("gro", SWITCH),
    ("lro", SWITCH),
    ("rx-checksum", SWITCH),
    ("tx-checksum", SWITCH),
    ("rx-ring", &["64", "512", "4096"]),
    ("tx-ring", &["64", "4096"]),
    ("rx-usecs", &["0us", "50us", "1ms"]),
    ("rx-frames", &["0", "32"]),
    ("adaptive-rx", SWITCH),
    ("pause-autoneg", SWITCH),
    ("pause-rx", SWITCH),
    ("combined-channels", &["1", "4"]),
    ("txqueuelen", &["500"]),
    ("eee", SWITCH),
    ("rps-cpus", &["0-1"]),
    ("busy-poll", &["50us"]),
];

/// A setting: some knobs, each with one of its values.
fn any_setting() -> impl Strategy<Value = BTreeMap<&'static str, &'static str>> {
    let chosen = subsequence(KNOBS, 1..=7);
    (chosen, any::<[Index; 7]>()).prop_map(|(knobs, at)| {
        knobs.into_iter().zip(at).map(|((knob, values), at)| (knob, *at.get(values))).collect()
    })
}

/// Runs `keep` for an interface of the folder `root`.
fn run_keep(place: &Place, interface: &str, setting: &BTreeMap<&str, &str>) -> CommandOutput {
    let words: Vec<String> =
        setting.iter().map(|(knob, value)| format!("{knob}={value}")).collect();
    let mut args = vec!["keep", interface, "--root", "root", "--yes"];
    args.extend(words.iter().map(String::as_str));
    place.run(&args)
}

/// The file that keeps each knob of an interface, by the record.
fn files_of(place: &Place, interface: &str) -> BTreeMap<String, String> {
    let ran = place.run(&["--json", "keep", "--check", interface, "--root", "root"]);
    let said: Value = serde_json::from_str(&ran.out).unwrap_or_else(|_| panic!("{ran:#?}"));
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let knobs = said["interfaces"][0]["knobs"].as_array().unwrap();
    knobs.iter().map(|knob| (text(&knob["name"]), text(&knob["file"]))).collect()
}

/// The value that is kept and the one in force of each knob of `nic7` on the running system that a file below `folder` keeps.
fn kept_in_force(place: &Place, folder: &str) -> BTreeMap<String, (String, String)> {
    let ran = place.run(&["--json", "keep", "--check", "nic7"]);
    let said: Value = serde_json::from_str(&ran.out).unwrap_or_else(|_| panic!("{ran:#?}"));
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let knobs = said["interfaces"][0]["knobs"].as_array().unwrap();
    let own = knobs.iter().filter(|knob| text(&knob["file"]).starts_with(folder));
    let values = |knob: &Value| (text(&knob["kept"]), text(&knob["in_force"][0]["value"]));
    own.map(|knob| (text(&knob["name"]), values(knob))).collect()
}

/// Each knob is in a file or was said not to be, and those of a format's own file are returned.
fn kept_in(
    place: &Place,
    ran: &CommandOutput,
    setting: &BTreeMap<&'static str, &'static str>,
    folder: &str,
) -> BTreeMap<&'static str, &'static str> {
    let files = files_of(place, "nic7");
    let is_there = |knob: &str| match files.get(knob) {
        Some(file) => place.path("root").join(file.trim_start_matches('/')).is_file(),
        None => ran.err.contains(&format!("not kept: {knob}=")),
    };
    assert!(setting.keys().all(|knob| is_there(knob)), "{files:?} {ran:#?}");
    let is_own = |knob: &str| files.get(knob).is_some_and(|file| file.starts_with(folder));
    setting.iter().map(|(knob, value)| (*knob, *value)).filter(|(knob, _)| is_own(knob)).collect()
}

/// The lines `key=value` of an INI file, by section and key; of a key that is there twice both.
fn parse_ini(text: &str) -> BTreeMap<(String, String), Vec<String>> {
    let mut section = String::new();
    let mut found: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with('#')) {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            name.clone_into(&mut section);
        } else if let Some((key, value)) = line.split_once('=') {
            let place = (section.clone(), key.trim().to_owned());
            found.entry(place).or_default().push(value.trim().to_owned());
        }
    }
    found
}

/// Device types of netplan with the id and the definition of `nic7`; whether a file may add an MTU to it.
const DEVICES: &[(&str, &str, &str, bool)] = &[
    ("ethernets", "nic7", r#"{"dhcp4": true}"#, true),
    (
        "ethernets",
        "id0",
        r#"{"match": {"macaddress": "52:54:00:aa:bb:cc"}, "set-name": "nic7"}"#,
        true,
    ),
    ("ethernets", "lan", r#"{"match": {"name": "nic7"}, "dhcp4": true}"#, true),
    ("wifis", "nic7", r#"{"access-points": {"home": {"password": "secretsecret"}}}"#, true),
    ("bonds", "nic7", r#"{"interfaces": ["eno1"], "addresses": ["192.0.2.10/24"]}"#, true),
    ("bridges", "nic7", r#"{"interfaces": ["eno1"]}"#, true),
    ("vlans", "nic7", r#"{"id": 7, "link": "eno1"}"#, true),
    ("tunnels", "nic7", r#"{"mode": "gre", "local": "192.0.2.1", "remote": "192.0.2.2"}"#, true),
    ("tunnels", "nic7", r#"{"mode": "vxlan", "id": 5, "remote": "192.0.2.2"}"#, false),
    ("vrfs", "nic7", r#"{"table": 7, "interfaces": ["eno1"]}"#, false),
];

/// netplan's files for `nic7`.
#[derive(Clone, Debug)]
struct NetplanTree {
    device: (&'static str, &'static str, &'static str, bool),
    is_flow: bool,
    renderer: Option<&'static str>,
    /// An MTU of before, and whether a second file has it.
    mtu: Option<(u32, bool)>,
    /// An MTU of a file that sorts behind that of latput.
    later_mtu: Option<u32>,
}

fn any_netplan_tree() -> impl Strategy<Value = NetplanTree> {
    let renderers = select(&[None, None, Some("NetworkManager"), Some("networkd")]);
    let mtu = proptest::option::of((select(&[1400, 1500]), any::<bool>()));
    let later = proptest::option::weighted(0.2, select(&[1400, 1500]));
    let parts = (select(DEVICES), any::<bool>(), renderers, mtu, later);
    parts.prop_map(|(device, is_flow, renderer, mtu, later_mtu)| NetplanTree {
        device,
        is_flow,
        renderer,
        mtu: mtu.filter(|_| device.3),
        later_mtu: later_mtu.filter(|_| device.3),
    })
}

impl NetplanTree {
    /// The files with their texts.
    fn render_files(&self) -> Vec<(&'static str, String)> {
        let (device_type, id, definition, _) = self.device;
        let mut definition: Value = serde_json::from_str(definition).unwrap();
        let mut more = Vec::new();
        let adding = |mtu: u32| json!({ "network": { device_type: { id: { "mtu": mtu } } } });
        match self.mtu {
            Some((mtu, true)) => more.push(("etc/netplan/60-more.yaml", adding(mtu))),
            Some((mtu, false)) => definition["mtu"] = mtu.into(),
            None => {}
        }
        more.extend(self.later_mtu.map(|mtu| ("etc/netplan/95-later.yaml", adding(mtu))));
        let mut network = json!({ "version": 2, "ethernets": { "eno1": {} } });
        network[device_type][id] = definition;
        if let Some(renderer) = self.renderer {
            network["renderer"] = renderer.into();
        }
        let base = ("etc/netplan/50-site.yaml", json!({ "network": network }));
        let text =
            |value: &Value| if self.is_flow { value.to_string() } else { render_yaml(value, 0) };
        [base].into_iter().chain(more).map(|(name, value)| (name, text(&value))).collect()
    }
}

/// A document as people write it, with quoted keys.
fn render_yaml(value: &Value, depth: usize) -> String {
    let indent = "  ".repeat(depth);
    let Some(entries) = value.as_object().filter(|entries| !entries.is_empty()) else {
        return format!(" {value}\n");
    };
    let lines = entries
        .iter()
        .map(|(key, below)| format!("{indent}\"{key}\":{}", render_yaml(below, depth + 1)));
    let start = if depth == 0 { "# by hand\n" } else { "\n" };
    format!("{start}{}", lines.collect::<String>())
}

/// Files that netplan generates from those below `root`; `None` where it refuses them.
fn generate_netplan(root: &Path) -> Option<String> {
    let _none = fs::remove_dir_all(root.join("run"));
    let ran = Command::new("netplan").args(["generate", "--root-dir"]).arg(root).output().unwrap();
    ran.status.success().then(|| {
        let files = read_tree(&root.join("run"));
        let texts =
            files.iter().filter(|(name, _)| !name.contains("eno1") && !name.contains("udev"));
        texts.map(|(_, (.., bytes))| String::from_utf8_lossy(bytes)).collect()
    })
}

/// The values of a knob in what netplan generates, for networkd and for NetworkManager.
fn generated_values(text: &str, knob: &str) -> Vec<String> {
    let keys: &[&str] = match knob {
        "mtu" => &["MTUBytes", "mtu"],
        "tso" => &["TCPSegmentationOffload", "TCP6SegmentationOffload"],
        "gso" => &["GenericSegmentationOffload"],
        "gro" => &["GenericReceiveOffload"],
        "lro" => &["LargeReceiveOffload"],
        "rx-checksum" => &["ReceiveChecksumOffload"],
        "tx-checksum" => &["TransmitChecksumOffload"],
        other => panic!("netplan has no {other}"),
    };
    let found = parse_ini(text).into_iter().filter(|((_, key), _)| keys.contains(&key.as_str()));
    found.flat_map(|(_, values)| values).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() })]

    #[needs("netplan")]
    #[test]
    fn netplan_generates_what_was_asked(tree_of in any_netplan_tree(), setting in any_setting()) {
        let files = tree_of.render_files();
        let place = place_with_root(&files.iter().map(|(name, text)| (*name, text.as_str())).collect::<Vec<_>>());
        let root = place.path("root");
        prop_assume!(generate_netplan(&root).is_some());
        let before = read_tree(&root.join("etc"));
        let ran = run_keep(&place, "nic7", &setting);
        let is_lost = |mtu: u32| setting.get("mtu").is_some_and(|asked| **asked != mtu.to_string());
        if tree_of.later_mtu.is_some_and(is_lost) {
            ran.expect(1, &["95-later.yaml sorts later and sets `mtu` too"]);
            prop_assert_eq!(read_tree(&root.join("etc")), before);
            return Ok(());
        }
        ran.expect(0, &[]);
        let own = kept_in(&place, &ran, &setting, "/etc/netplan/");
        prop_assert!(own.contains_key("mtu") || !setting.contains_key("mtu") || !tree_of.device.3);
        let text = generate_netplan(&root).expect("netplan accepts what was written");
        for (knob, value) in own {
            let wanted = match value { "on" => "true", "off" => "false", other => other };
            let found = generated_values(&text, knob);
            prop_assert!(!found.is_empty() && found.iter().all(|it| it == wanted), "{}: {:?}\n{}", knob, found, text);
        }
        place.run(&["keep", "--remove", "--root", "root", "--yes"]).expect(0, &[]);
        prop_assert_eq!(read_tree(&root.join("etc")), before);
    }
}
