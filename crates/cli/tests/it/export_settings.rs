//! Settings written for the host's own configuration system: of a run, of values, of an interface.

use latput_testkit::needs;

use crate::{CommandOutput, Place};

const PLAN: &str = r#"
schema = 1
name = "two"
goal = "minimize latency_ns_p99"
[factors]
"gro-flush-timeout + napi-defer-hard-irqs" = [["200us", 100], ["20us", 100]]
[[workload]]
kind = "tcp_rr"
[method]
repetitions = { min = 5, max = 5 }
warmup = "5ms"
duration = "50ms"
seed = 7
"#;

const RULE: &str = "SUBSYSTEM==\"net\", KERNEL==\"eth2\", ATTR{gro_flush_timeout}=\"20000\"";

#[test]
fn recommendation_is_exported_to_each_format() {
    let place = Place::new();
    place.write("plan.toml", PLAN);
    place.run(&["run", "plan.toml", "--on", "sim:server-10g", "-o", "kept.db"]).expect(0, &[]);
    let export = |words: &[&str]| {
        place.run(&[&["export-settings", "kept.db", "--interface", "eth2"], words].concat())
    };
    for format in ["systemd-link", "networkmanager", "netplan"] {
        let ran = export(&["--format", format]);
        ran.expect(0, &["gro-flush-timeout=20us` of kept.db"]);
        assert!(ran.out.contains(RULE) && ran.err.contains(RULE), "{ran:#?}");
    }
    let script = export(&["--format", "ethtool"]);
    assert!(script.err.is_empty(), "{script:#?}");
    script.expect(0, &["#!/bin/sh", "echo 20000 > /sys/class/net/eth2/gro_flush_timeout"]);
    check_shell(&place, &script);
    export(&["--format", "ethtool", "--setting", "200us"])
        .expect(0, &["echo 200000 >", "echo 100 > /sys/class/net/eth2/napi_defer_hard_irqs"]);
    export(&["--format", "ethtool", "--setting", "7us"]).expect(2, &["7us", "the settings are"]);
    let json = export(&["--format", "systemd-link", "--json"]);
    let document: serde_json::Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!(document["schema"], 1);
    assert_eq!(document["file"], "/etc/systemd/network/10-latput-eth2.link");
    assert_eq!(document["elsewhere"][1]["knob"], "gro-flush-timeout");
}

/// Nothing is made to last that the run has not proven.
#[test]
fn unanswered_run_is_neither_kept_nor_exported() {
    let place = Place::new();
    std::fs::create_dir(place.path("root")).unwrap();
    place.write("short.toml", &PLAN.replace("{ min = 5, max = 5 }", "{ min = 1, max = 1 }"));
    place.write("aimless.toml", &PLAN.replace("goal", "#goal"));
    place.write("worse.toml", &PLAN.replace(", [\"20us\", 100]", ""));
    for (plan, of_run, refused, why) in [
        ("short", 6, 6, "the run has no answer, and nothing was changed: too few trials"),
        ("aimless", 0, 2, "it has no goal"),
        ("worse", 0, 2, "the run recommends to stay with"),
    ] {
        let (file, kept) = (format!("{plan}.toml"), format!("{plan}.db"));
        place.run(&["run", &file, "--on", "sim:server-10g", "-o", &kept]).expect(of_run, &[]);
        let of_file = [&kept, "--interface", "eth2"];
        for command in [
            &["keep", "--root", "root", "--yes"][..],
            &["keep", "--root", "root", "--dry-run"],
            &["export-settings", "--format", "ethtool"],
            &["fleet", "verify", "--hosts-from", "echo lo", "--from"],
        ] {
            let args = [command, if command[0] == "fleet" { &of_file[..1] } else { &of_file }];
            place.run(&args.concat()).expect(refused, &[why, "with --setting: "]);
        }
        let named = ["keep", "--root", "root", "--dry-run", "--setting", "200us"];
        place.run(&[&named[..], &of_file].concat()).expect(0, &["200000"]);
    }
    assert_eq!(std::fs::read_dir(place.path("root")).unwrap().count(), 0);
}

#[test]
fn values_are_exported_for_absent_interface() {
    let place = Place::new();
    let export = |words: &[&str]| place.run(&[&["export-settings"], words].concat());
    export(&["eth7", "rx-usecs=50", "rx-ring=max", "--format", "systemd-link"])
        .expect(0, &["RxCoalesceSec=50us", "RxBufferSize=max", "OriginalName=eth7"]);
    export(&["lo", "tso=off", "--format", "netplan", "-o", "90.yaml"]).expect(0, &[]);
    let kept = std::fs::read_to_string(place.path("90.yaml")).unwrap();
    assert!(kept.contains("      tcp6-segmentation-offload: false\n"), "{kept}");
    // netplan loses an interface below another device type than its own.
    export(&["eth7", "mtu=1400", "--format", "netplan"])
        .expect(2, &["type of eth7 for netplan(5) is not known", "by hand", "mtu: 1400"]);
    export(&["eth7", "tso=off", "--format", "netplan", "--match", "mac"])
        .expect(2, &["the permanent address of eth7"]);
}

/// A bond that was written as an Ethernet interface lost the host's network.
#[test]
fn type_of_another_host_is_asked() {
    let place = Place::new();
    let export = |format: &str, words: &[&str]| {
        let args = ["export-settings", "bond7", "mtu=1400", "rx-usecs=50us", "--format", format];
        place.run(&[&args, words].concat())
    };
    for (format, bond, line) in [
        ("nmstate", "    type: bond\n", "ethtool.coalesce.rx-usecs: 50"),
        ("ansible", "    type: bond\n", "ethtool.coalesce.rx_usecs: 50"),
        ("netplan", "  bonds:\n    bond7:\n", "mtu: 1400"),
    ] {
        export(format, &[]).expect(2, &["neither this host", "--kind", "by hand", line]);
        export(format, &["--kind", "bond"]).expect(0, &[bond]);
        export(format, &["--kind", "wwan7"]).expect(2, &["has none for the kind `wwan7`", line]);
    }
    export("udev", &["--kind", "bond"]).expect(2, &["udev(7) names no type"]);
    // Without a word in the format there is nothing to be wrong about.
    let none = ["export-settings", "bond7", "rps-cpus=0", "--format", "nmstate"];
    place.run(&none).expect(0, &["nmstate can express none"]);
}

/// Reads a text with Ansible's own reader of YAML, as variables of a host.
fn read_by_ansible(place: &Place, text: &str) -> serde_json::Value {
    place.write("hosts.ini", "host1\n");
    std::fs::create_dir_all(place.path("host_vars/host1")).unwrap();
    place.write("host_vars/host1/latput.yml", text);
    let args = ["-i", "hosts.ini", "--host", "host1"];
    let mut ansible = std::process::Command::new("ansible-inventory");
    let read = ansible.args(args).current_dir(place.path("")).output().unwrap();
    assert!(read.status.success(), "{}\n{text}", String::from_utf8_lossy(&read.stderr));
    serde_json::from_slice(&read.stdout).unwrap()
}

const SET: [&str; 10] = [
    "mtu=9000",
    "rx-ring=512",
    "gro=off",
    "tso=on",
    "pause-autoneg=off",
    "pause-rx=off",
    "adaptive-rx=off",
    "rx-usecs=50us",
    "rps-cpus=0-1",
    "busy-poll=50us",
];

#[needs("ansible-inventory")]
#[test]
fn exported_yaml_is_read_by_ansible() {
    let place = Place::new();
    let export = |format: &str| {
        let kind = ["--kind", "ethernet"];
        place.run(&[&["export-settings", "no"][..], &SET, &kind, &["--format", format]].concat())
    };
    let ran = export("ansible");
    ran.expect(
        0,
        &["not in it: pause-rx=off", "not in it: rps-cpus=0-1", "not in it: busy-poll=50us"],
    );
    // `no` is a name, and not false.
    let expected = serde_json::json!({ "network_connections": [{
        "name": "no", "interface_name": "no", "type": "ethernet", "state": "up", "mtu": 9000,
        "ethtool": {
            "ring": { "rx": 512 },
            "features": { "gro": false, "tso": true },
            "coalesce": { "adaptive_rx": false, "rx_usecs": 50 },
        },
    }] });
    assert_eq!(read_by_ansible(&place, &ran.out), expected);
    let ran = export("nmstate");
    ran.expect(0, &["not in it: rps-cpus=0-1", "not in it: busy-poll=50us"]);
    let expected = serde_json::json!({ "interfaces": [{
        "name": "no", "type": "ethernet", "state": "up", "mtu": 9000,
        "ethtool": {
            "ring": { "rx": 512 },
            "pause": { "autoneg": false, "rx": false },
            "feature": { "rx-gro": false, "tx-tcp-segmentation": true, "tx-tcp6-segmentation": true },
            "coalesce": { "adaptive-rx": false, "rx-usecs": 50 },
        },
    }] });
    assert_eq!(read_by_ansible(&place, &ran.out), expected);
}

#[needs("cloud-init", "ansible-inventory")]
#[test]
fn cloud_config_is_valid_with_udev_rules() {
    let place = Place::new();
    let export = |format: &str| {
        place.run(&[&["export-settings", "eth7"][..], &SET, &["--format", format]].concat())
    };
    let ran = export("cloud-init");
    place.write("user-data", &ran.expect(0, &[]).out);
    let mut schema = std::process::Command::new("cloud-init");
    let schema = schema.args(["schema", "-c", "user-data"]).current_dir(place.path("")).output();
    let said = CommandOutput::from(schema.unwrap());
    said.expect(0, &["Valid "]);
    let read = read_by_ansible(&place, &ran.out);
    let file =
        |idx: usize, field: &str| read["write_files"][idx][field].as_str().unwrap().to_owned();
    let files = [0, 1].map(|idx| (file(idx, "path"), file(idx, "content")));
    let content = |path: &str| {
        let found = files.iter().find(|(name, _)| name == path);
        found.unwrap_or_else(|| panic!("{path}: {read}")).1.clone()
    };
    let rules = export("udev").out;
    let wanted: String = rules
        .lines()
        .filter(|line| line.starts_with("ACTION"))
        .flat_map(|line| [line, "\n"])
        .collect();
    assert_eq!(content("/etc/udev/rules.d/90-latput-eth7.rules"), wanted);
    assert_eq!(content("/etc/sysctl.d/90-latput.conf"), "net.core.busy_poll = 50\n");
    assert_eq!(read["runcmd"].as_array().map(Vec::len), Some(3), "{read}");
}

#[test]
fn present_values_of_lo_export_and_run() {
    let place = Place::new();
    let export = |words: &[&str]| place.run(&[&["export-settings", "lo"], words].concat());
    export(&["mtu", "--format", "networkmanager"]).expect(0, &["[ethernet]\nmtu="]);
    let all = export(&["--format", "ethtool"]);
    all.expect(0, &["lo as it is", "ip link set dev lo mtu", "ip link set dev lo txqueuelen"]);
    assert!(!all.out.contains("sysctl"), "the host's own knobs are not the interface's: {all:#?}");
    check_shell(&place, &all);
}

#[test]
fn wrong_sources_knobs_and_names_are_refused() {
    let place = Place::new();
    place.write("text.db", "hello");
    let refused = |words: &[&str], code: i32, said: &[&str]| {
        let words = [&["export-settings"], words, &["--format", "ethtool"]].concat();
        place.run(&words).expect(code, said);
    };
    refused(&["nowhere"], 2, &["neither a results file nor an interface"]);
    refused(&["nowhere", "mtu"], 2, &["nowhere"]);
    refused(&["nowhere.db", "--setting", "x"], 2, &["nowhere.db", "no such results file"]);
    refused(&["text.db"], 2, &["text.db"]);
    refused(&["eth7", "mut=9000"], 2, &["did you mean `mtu`?"]);
    refused(&["eth7", "mtu=9000", "mtu=1500"], 2, &["given twice"]);
    refused(&["eth7", "mtu=banana"], 2, &["banana"]);
    refused(&["$(reboot)", "mtu=9000"], 2, &["$(reboot)", "letters, digits"]);
    place.run(&["export-settings", "eth7", "mtu=9000"]).expect(2, &["--format"]);
}

/// A shell can read what was written; nothing of it is run.
#[track_caller]
fn check_shell(place: &Place, script: &CommandOutput) {
    place.write("script", &script.out);
    let mut shell = std::process::Command::new("sh");
    let read = shell.args(["-n", "script"]).current_dir(place.path("")).output().unwrap();
    assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
}
