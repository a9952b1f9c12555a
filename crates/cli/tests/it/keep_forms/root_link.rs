//! .link files, as udev's own builtin applies them to a veth.

use std::fs;
use std::process::Command;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::{kept_in_force, settings};
use crate::needs_program;
use crate::root_keep::prepare;
use crate::two_hosts::ip;

/// Knobs of a veth, whose values latput reads back.
const OF_VETH: [&str; 5] = ["mtu", "tso", "gso", "gro", "txqueuelen"];

#[test]
fn udev_applies_what_was_asked() {
    if needs_program("udevadm") || needs_program("ethtool") {
        return;
    }
    let Some(place) = prepare() else { return };
    fs::create_dir_all("/run/udev").unwrap();
    let mut runner =
        TestRunner::new(Config { cases: 12, failure_persistence: None, ..Config::default() });
    let ran = runner.run(&settings(), |mut setting| {
        setting.remove("tx-checksum"); // the kernel turns segmentation off with it
        let words: Vec<String> =
            setting.iter().map(|(knob, value)| format!("{knob}={value}")).collect();
        let mut args = vec!["keep", "nic7", "--yes", "--format", "systemd-link"];
        args.extend(words.iter().map(String::as_str));
        place.run(&args).expect(0, &[]);
        // Another value than any that is asked.
        ip(&["link", "set", "nic7", "mtu", "1300", "txqueuelen", "77"]);
        for (knob, value) in setting.iter().filter(|(knob, _)| ["tso", "gso", "gro"].contains(knob))
        {
            let other = if *value == "on" { "off" } else { "on" };
            let changed = Command::new("ethtool").args(["-K", "nic7", knob, other]).status();
            prop_assert!(changed.unwrap().success());
        }
        let mut udev = Command::new("udevadm");
        udev.args(["test-builtin", "net_setup_link", "/sys/class/net/nic7"])
            .env("SYSTEMD_LOG_LEVEL", "debug");
        let said = udev.output().unwrap();
        let said = String::from_utf8_lossy(&said.stderr);
        let own = kept_in_force(&place, "/etc/systemd/network/");
        if !own.is_empty() {
            prop_assert!(said.contains("10-latput-nic7.link"), "{}", said);
        }
        for wrong in ["Unknown key", "Unknown section", "Failed to parse", "Invalid"] {
            prop_assert!(!said.contains(wrong), "{}", said);
        }
        for (knob, (kept, in_force)) in
            own.iter().filter(|(knob, _)| OF_VETH.contains(&knob.as_str()))
        {
            prop_assert_eq!(kept, in_force, "{}: {}", knob, said);
        }
        Ok(())
    });
    ran.unwrap();
    place.run(&["keep", "--remove", "--yes"]).expect(0, &[]);
}
