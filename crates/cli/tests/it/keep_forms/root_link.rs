//! .link files, as udev's daemon applies them to a veth.

use std::fs::{self, File};
use std::process::{Child, Command, Stdio};

use latput_testkit::needs;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::{any_setting, kept_in_force};
use crate::root_keep::prepare_host;
use crate::two_hosts::run_ip;
use crate::{Place, run_program, wait_until};

/// Knobs of a veth, whose values latput reads back.
const OF_VETH: [&str; 5] = ["mtu", "tso", "gso", "gro", "txqueuelen"];

const DAEMON: &str = "/usr/lib/systemd/systemd-udevd";
const RULES: &str = "/usr/lib/udev/rules.d";
/// The rule that has .link files applied.
const SETUP_LINK: &str = "80-net-setup-link.rules";

/// udev's daemon in the namespaces of the test; it ends with this.
struct UdevDaemon {
    daemon: Child,
}

impl UdevDaemon {
    /// Starts it with one rule, so that it leaves devices alone that are not of the network.
    fn start(place: &Place) -> Self {
        let rule = fs::read(format!("{RULES}/{SETUP_LINK}")).unwrap();
        run_program(&["mount", "-t", "tmpfs", "none", RULES]);
        fs::write(format!("{RULES}/{SETUP_LINK}"), rule).unwrap();
        let said = File::create(place.path("udevd")).unwrap();
        let mut daemon = Command::new(DAEMON);
        daemon.arg("--debug").stdin(Stdio::null()).stdout(Stdio::null()).stderr(said);
        let udevd = Self { daemon: daemon.spawn().unwrap() };
        wait_until("udevd to answer", || {
            let ping = Command::new("udevadm").args(["control", "--ping"]).output().unwrap();
            ping.status.success()
        });
        udevd
    }

    /// Has `nic7` come once more, as at boot; what the daemon says of it.
    fn add(place: &Place) -> String {
        let known = fs::read_to_string(place.path("udevd")).unwrap().len();
        let nic = "/sys/class/net/nic7";
        // It looks for changed files every three seconds.
        run_program(&["udevadm", "control", "--reload"]);
        run_program(&["udevadm", "trigger", "--settle", "--action=add", nic]);
        fs::read_to_string(place.path("udevd")).unwrap().split_off(known)
    }
}

impl Drop for UdevDaemon {
    fn drop(&mut self) {
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

#[needs("root", "ip", "udevadm", "ethtool", "/usr/lib/systemd/systemd-udevd")]
#[test]
fn udevd_applies_what_was_asked() {
    let place = prepare_host();
    let _udevd = UdevDaemon::start(&place);
    let mut runner =
        TestRunner::new(Config { cases: 12, failure_persistence: None, ..Config::default() });
    let ran = runner.run(&any_setting(), |mut setting| {
        setting.remove("tx-checksum"); // the kernel turns segmentation off with it
        let words: Vec<String> =
            setting.iter().map(|(knob, value)| format!("{knob}={value}")).collect();
        let mut args = vec!["keep", "nic7", "--yes", "--format", "systemd-link"];
        args.extend(words.iter().map(String::as_str));
        place.run(&args).expect(0, &[]);
        // Another value than any that is asked.
        run_ip(&["link", "set", "nic7", "mtu", "1300", "txqueuelen", "77"]);
        for (knob, value) in setting.iter().filter(|(knob, _)| ["tso", "gso", "gro"].contains(knob))
        {
            let other = if *value == "on" { "off" } else { "on" };
            let changed = Command::new("ethtool").args(["-K", "nic7", knob, other]).status();
            prop_assert!(changed.unwrap().success());
        }
        let said = UdevDaemon::add(&place);
        let own = kept_in_force(&place, "/etc/systemd/network/");
        if !own.is_empty() {
            prop_assert!(said.contains("10-latput-nic7.link"), "{}", said);
        }
        // With the number of the line, it speaks of one that it does not take.
        prop_assert!(!said.contains("10-latput-nic7.link:"), "{}", said);
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

/// A .link file of somebody that goes by the type too. Before udev has seen the interface, latput cannot tell.
#[needs("root", "ip", "udevadm", "/usr/lib/systemd/systemd-udevd")]
#[test]
fn link_of_somebody_stays_in_force() {
    let place = prepare_host();
    fs::create_dir_all("/etc/systemd/network").unwrap();
    let text = "[Match]\nOriginalName=nic[0-9]\nType=ether\n[Link]\nTransmitQueueLength=777\n";
    fs::write("/etc/systemd/network/20-site.link", text).unwrap();
    place.run(&["keep", "nic7", "mtu=1400", "--yes"]).expect(0, &["20-site.link may be of nic7"]);
    let _udevd = UdevDaemon::start(&place);
    UdevDaemon::add(&place);
    let value = |name: &str| fs::read_to_string(format!("/sys/class/net/nic7/{name}")).unwrap();
    assert_eq!([value("mtu").trim(), value("tx_queue_len").trim()], ["1400", "777"]);
    // Now udev has told.
    place
        .run(&["keep", "nic7", "mtu=1300", "--yes"])
        .expect(0, &["20-site.link names nic7 already"]);
}
