//! Profiles of several interfaces, kept and activated in any order, as TuneD's own loader and device matcher take them.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use latput_testkit::needs;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::Value;

use super::{CASES, any_setting, files_of, run_keep};
use crate::keep::{place_with_root, read_tree};
use crate::{CommandOutput, Place};

const INTERFACES: [&str; 3] = ["nic7", "nic8", "nic9"];
/// Profiles of a site, all for any device; the last is that of TuneD for real-time hosts in short.
const SITES: &[&str] = &[
    "[main]\nsummary=a site\n\n[sysctl]\nvm.swappiness=10\n",
    "[main]\nsummary=a site\n\n[net]\nwake_on_lan=d\nfeatures=tx-nocache-copy off\n\n[sysctl]\nvm.swappiness=10\n",
];

/// Options of each device and sysctls, as TuneD's loader, merger and matcher make them of the active profiles.
const READ: &str = r#"
import json, sys
from tuned import profiles
from tuned.hardware.device_matcher import DeviceMatcher
from tuned.utils.global_config import GlobalConfig
folders, devices = sys.argv[1].split(","), set(sys.argv[2].split(","))
names = open(sys.argv[3]).read().split()
variables = profiles.variables.Variables()
loader = profiles.Loader(profiles.Locator(folders), profiles.Factory(), profiles.Merger(), GlobalConfig(), variables)
units = [u for u in loader.load(names).units.values() if u.enabled]
# A unit of newer versions has its priority beside its options.
units.sort(key=lambda u: int(getattr(u, "priority", None) or u.options.get("priority", 0)))
found = {"sysctl": {}}
for unit in units:
    if unit.type == "sysctl":
        found["sysctl"] = dict(unit.options)
    if unit.type == "net":
        for device in DeviceMatcher().match_list(unit.devices, sorted(devices)):
            devices.discard(device)
            found[device] = {k: v for k, v in unit.options.items() if k != "priority"}
print(json.dumps(found))
"#;

/// The option and the words that TuneD's plugin `net` has for a knob; `None` where it has none.
fn tuned_option(knob: &str, value: &str) -> (&'static str, String) {
    let number = value.strip_suffix("us").unwrap_or(if value == "1ms" { "1000" } else { value });
    match knob {
        "mtu" => ("mtu", value.to_owned()),
        "txqueuelen" => ("txqueuelen", value.to_owned()),
        "tso" | "gso" | "gro" | "lro" => ("features", format!("{knob} {value}")),
        "rx-checksum" => ("features", format!("rx {value}")),
        "tx-checksum" => ("features", format!("tx {value}")),
        "rx-ring" => ("ring", format!("rx {value}")),
        "tx-ring" => ("ring", format!("tx {value}")),
        "rx-usecs" | "rx-frames" | "adaptive-rx" => ("coalesce", format!("{knob} {number}")),
        "pause-autoneg" => ("pause", format!("autoneg {value}")),
        "pause-rx" => ("pause", format!("rx {value}")),
        "combined-channels" => ("channels", format!("combined {value}")),
        other => panic!("TuneD has no {other}"),
    }
}

/// The words of each option, in pairs of a name and a value; those of one word stay one.
fn in_pairs(words: &str) -> Vec<String> {
    let words: Vec<&str> = words.split_whitespace().collect();
    let mut pairs: Vec<String> = words.chunks(2).map(|pair| pair.join(" ")).collect();
    pairs.sort();
    pairs
}

/// Profiles that TuneD reads below the folder `root`.
fn read_by_tuned(place: &Place) -> BTreeMap<String, BTreeMap<String, String>> {
    place.write("read.py", READ);
    let folder = place.path("root/etc/tuned");
    let mut python = Command::new("/usr/bin/python3"); // Debian's, which has TuneD's modules
    python.arg(place.path("read.py")).arg(&folder).arg(INTERFACES.join(","));
    let read = python.arg(folder.join("active_profile")).output().unwrap();
    assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
    serde_json::from_slice(&read.stdout).unwrap()
}

/// Writes what `tuned-adm profile` would.
fn activate_profiles(place: &Place, names: &str) {
    fs::write(place.path("root/etc/tuned/active_profile"), format!("{names}\n")).unwrap();
}

fn activate_what_is_said(place: &Place, ran: &CommandOutput) {
    if let Some((_, rest)) = ran.err.split_once("is gone: tuned-adm profile ") {
        activate_profiles(place, rest.lines().next().unwrap());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() })]

    #[needs("tuned-adm")]
    #[test]
    fn tuned_reads_what_was_asked(
        site in select(SITES),
        steps in prop::collection::vec((select(&INTERFACES[..]), any_setting()), 1..5),
        removed in select(&INTERFACES[..]),
    ) {
        let place = place_with_root(&[("etc/tuned/site/tuned.conf", site), ("etc/tuned/active_profile", "site\n")]);
        let before = read_tree(&place.path("root/etc"));
        let mut kept = BTreeMap::new();
        for (interface, setting) in steps {
            let ran = run_keep(&place, interface, &setting);
            if ran.err.contains("includes that of") {
                // It would be in no profile any more.
                ran.expect(1, &["nothing was written"]);
                continue;
            }
            ran.expect(0, &[]);
            activate_what_is_said(&place, &ran);
            let files = files_of(&place, interface);
            let own = setting.into_iter().filter(|(knob, _)| {
                files.get(*knob).is_some_and(|file| file.starts_with("/etc/tuned/"))
            });
            let own: Vec<_> = own.collect();
            if own.is_empty() {
                kept.remove(interface);
            } else {
                // As `keep` says on a running system.
                let active = fs::read_to_string(place.path("root/etc/tuned/active_profile")).unwrap();
                if !kept.contains_key(interface) || active.trim() == "site" {
                    activate_profiles(&place, &format!("latput-{interface}"));
                }
                kept.insert(interface, own);
            }
            let read = read_by_tuned(&place);
            prop_assert_eq!(&read["sysctl"]["vm.swappiness"], "10", "the site's profile stays in force");
            for (interface, own) in &kept {
                let mut expected: BTreeMap<&str, Vec<String>> = BTreeMap::new();
                for (knob, value) in own {
                    let (option, words) = tuned_option(knob, value);
                    expected.entry(option).or_default().push(words);
                }
                if site.contains("[net]") {
                    expected.insert("wake_on_lan", vec!["d".to_owned()]);
                    expected.entry("features").or_default().push("tx-nocache-copy off".to_owned());
                }
                for words in expected.values_mut() {
                    words.sort();
                }
                let found: BTreeMap<&str, Vec<String>> =
                    read[*interface].iter().map(|(option, words)| (option.as_str(), in_pairs(words))).collect();
                prop_assert_eq!(found, expected, "{} in {:?}", interface, read);
            }
        }
        // TuneD cannot load a profile that includes one that is gone.
        let one = place.run(&["keep", "--remove", removed, "--root", "root", "--yes"]);
        if one.err.contains("includes that of") {
            one.expect(1, &["nothing was written"]);
        }
        activate_what_is_said(&place, &one);
        read_by_tuned(&place);
        place.run(&["keep", "--remove", "--root", "root", "--yes"]);
        activate_profiles(&place, "site");
        prop_assert_eq!(read_tree(&place.path("root/etc")), before);
    }
}

/// Profiles of several interfaces, of which none was activated before the last.
#[needs("tuned-adm")]
#[test]
fn image_names_all_kept_profiles_to_activate() {
    let place = place_with_root(&[
        ("etc/tuned/site/tuned.conf", SITES[0]),
        ("etc/tuned/active_profile", "site\n"),
    ]);
    for (interface, names) in [("nic8", "latput-nic8"), ("nic7", "latput-nic7 latput-nic8")] {
        let ran = run_keep(&place, interface, &BTreeMap::from([("mtu", "1400")]));
        ran.expect(0, &[&format!("active_profile there says `{names}`"), "`manual`"]);
    }
    activate_profiles(&place, "latput-nic7 latput-nic8");
    let read = read_by_tuned(&place);
    for interface in ["nic7", "nic8"] {
        assert_eq!(read[interface]["mtu"], "1400", "{read:?}");
    }
    assert_eq!(read["sysctl"]["vm.swappiness"], "10", "{read:?}");
    let again = run_keep(&place, "nic7", &BTreeMap::from([("mtu", "1500")]));
    again.expect(0, &["it takes effect when this image boots"]);
    assert!(!again.err.contains("active_profile"), "{again:?}");
}

#[needs("tuned-adm")]
#[test]
fn included_section_loses_no_option_of_a_device() {
    let place = place_with_root(&[
        ("etc/tuned/site/tuned.conf", SITES[1]),
        ("etc/tuned/active_profile", "site\n"),
    ]);
    for (interface, mtu) in [("nic7", "1400"), ("nic8", "9000")] {
        run_keep(&place, interface, &BTreeMap::from([("mtu", mtu)])).expect(0, &[]);
        activate_profiles(&place, &format!("latput-{interface}"));
    }
    let of_site = |mtu: &str| serde_json::json!({ "features": "tx-nocache-copy off", "mtu": mtu, "wake_on_lan": "d" });
    let expected = serde_json::json!({
        "nic7": of_site("1400"), "nic8": of_site("9000"),
        "nic9": { "features": "tx-nocache-copy off", "wake_on_lan": "d" },
        "sysctl": { "vm.swappiness": "10" },
    });
    let found: Value = serde_json::to_value(read_by_tuned(&place)).unwrap();
    assert_eq!(found, expected);
    let remove = ["keep", "--remove", "nic7", "--root", "root", "--yes"];
    place.run(&remove).expect(1, &["latput-nic8 includes that of nic7"]);
    let remove = ["keep", "--remove", "nic8", "--root", "root", "--yes"];
    place.run(&remove).expect(0, &["is gone: tuned-adm profile latput-nic7"]);
}
