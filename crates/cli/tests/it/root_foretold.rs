//! Refusals that a dry run foretells, and what a change says that it moved.

use std::fs;
use std::process::Command;

use latput_testkit::needs;

use crate::root_settings::Lab;
use crate::root_whole::{VethPair, run_shell};

/// Changes that the kernel refuses, with words of the reason.
const REFUSED: [(&[&str], &str); 9] = [
    (&["rps-cpus=8000"], "CPUs 8000 are not online"),
    (&["mtu=1400", "xps-cpus=0,8000"], "CPUs 8000 are not online"),
    (&["queue-qdisc=pfifo"], "set qdisc=mq too"),
    (&["tx-channels=1", "queue-qdisc=pfifo"], "set qdisc=mq too"),
    (&["qdisc=default", "queue-qdisc=pfifo"], "set qdisc=mq too"),
    (&["qdisc=mq", "queue-qdisc=mq"], "only the root can be mq"),
    (&["qdisc=mq", "queue-qdisc=noqueue"], "only the root can be noqueue"),
    (&["qdisc=tbf rate=1Mbps burst=0 limit=3000"], "the kernel does not take"),
    (&["qdisc=mq", "queue-qdisc=tbf rate=1Mbps burst=0 limit=3000"], "the kernel does not take"),
];

#[needs("root")]
#[test]
fn dry_run_foretells_refusals() {
    let pair = VethPair::new();
    let show =
        || run_shell("ip -d link show v0; tc qdisc show; cat /sys/class/net/v0/queues/*/*ps_cpus");
    let before = show();
    for (words, reason) in REFUSED {
        for more in [&["--dry-run"][..], &[]] {
            let set = [&["set", "v0"], words, more].concat();
            pair.run(&set).expect(1, &[reason]);
            assert_eq!(show(), before, "{words:?}");
        }
    }
    pair.run(&["restore"]).expect(0, &["nothing to restore"]);
}

/// Each kind that tc(8) can attach is foretold to be taken, and no other.
#[needs("root", "tc")]
#[test]
fn missing_qdiscs_are_foretold() {
    let pair = VethPair::new();
    for (kind, options) in [
        ("pfifo", ""),
        ("bfifo", ""),
        ("pfifo_fast", ""),
        ("mq", ""),
        ("codel", ""),
        ("fq_codel", ""),
        ("fq", ""),
        ("netem", " delay 10ms"),
        ("tbf", " rate 1mbit burst 1600 limit 3000"),
    ] {
        let attach = format!("tc qdisc replace dev v0 root {kind}{options}");
        let is_taken = Command::new("sh").args(["-c", &attach]).output().unwrap().status.success();
        run_shell("tc qdisc del dev v0 root");
        let value = match kind {
            "netem" => "qdisc=netem delay=10ms".to_owned(),
            "tbf" => "qdisc=tbf rate=1Mbps burst=1600 limit=3000".to_owned(),
            _ => format!("qdisc={kind}"),
        };
        let dry = pair.run(&["set", "v0", &value, "--dry-run"]);
        let (code, words) =
            if is_taken { (0, "would change v0 qdisc") } else { (1, "the kernel does not take") };
        dry.expect(code, &[words, kind]);
    }
}

#[needs("root")]
#[test]
fn full_state_folder_is_foretold() {
    let pair = VethPair::new();
    let set = ["set", "v0", "mtu=1400"];
    let dry = ["set", "v0", "mtu=1400", "--dry-run"];
    let refuse = |reason: &str| pair.expect_refusals(&set, &["nothing was changed", reason]);
    let state = pair.place.path("state");
    fs::write(&state, "a file").unwrap();
    refuse("Not a directory");
    fs::remove_file(&state).unwrap();
    fs::create_dir(&state).unwrap();
    let mount = |options: &str| {
        let done =
            Command::new("mount").args(["-t", "tmpfs", "-o", options, "t"]).arg(&state).status();
        assert!(done.unwrap().success(), "{options}");
    };
    mount("size=64k");
    pair.run(&dry).expect(0, &["would change v0 mtu"]);
    assert_eq!(fs::read_dir(&state).unwrap().count(), 0, "a dry run leaves nothing");
    let filling = state.join("filling");
    let _full = fs::write(&filling, vec![0; 128 << 10]);
    refuse("No space left on device");
    fs::remove_file(&filling).unwrap();
    mount("remount,ro");
    refuse("Read-only file system");
    mount("remount,rw");
    pair.run(&set).expect(0, &["changed v0 mtu"]);
}

#[needs("root")]
#[test]
fn moved_interfaces_and_new_queues_are_told() {
    let pair = VethPair::new();
    run_shell("ip link add up0 link v0 type macvlan");
    pair.run(&["set", "v0", "mtu=1400"]).expect(
        0,
        &[
            "changed v0 mtu (device) from 1500 to 1400",
            "changed v0 mtu (interface up0) from 1500 to 1400, along with it",
        ],
    );
    pair.run(&["undo"]).expect(0, &["undid v0 mtu (interface up0) from 1400 to 1500"]);
    pair.run(&["set", "v0", "qdisc=mq", "queue-qdisc=pfifo limit=50"]).expect(
        0,
        &[
            "changed v0 qdisc (device)",
            "changed v0 queue-qdisc (tx-0) from default pfifo_fast to pfifo limit=50",
            "changed v0 queue-qdisc (tx-1) from default pfifo_fast to pfifo limit=50",
        ],
    );
}

/// Runs latput as host `b` of a lab with a kernel that refuses its writes to `rps_cpus`.
pub(crate) fn set_with_refused_rps(lab: &Lab<'_>, args: &[&str]) -> crate::CommandOutput {
    let file = "/sys/class/net/lat0/queues/rx-0/rps_cpus";
    let strace = ["strace", "-f", "-o", "/dev/null", "-P", file, "-e", "inject=write:error=EINVAL"];
    lab.b_behind(&strace, args)
}
