//! Values of other people beside a change: who set them, and what becomes of them.

use std::fs;

use latput_testkit::needs;

use crate::CommandOutput;
use crate::root_whole::{VethPair, run_shell};

fn read_mtu(interface: &str) -> String {
    run_shell(&format!("cat /sys/class/net/{interface}/mtu")).trim().to_owned()
}

/// Runs `set` with strace, which ends it on entry to its n-th fsync.
fn kill_at_fsync(pair: &VethPair, nth: usize, args: &[&str]) -> CommandOutput {
    let inject = format!("inject=fsync:signal=KILL:when={nth}");
    let strace = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=fsync", "-e", &inject];
    CommandOutput::from(pair.place.wrapped_command(&strace, args).output().unwrap())
}

/// Between the first checkpoint and the last, it tells what was to be written.
#[needs("root", "strace")]
#[test]
fn killed_change_leaves_values_of_others() {
    for (knob, value, others, file) in [
        ("txqueuelen", "50", "77", "tx_queue_len"),
        ("mtu", "1400", "1300", "mtu"),
        ("rps-cpus", "0", "2", "queues/rx-0/rps_cpus"),
    ] {
        for nth in [2, 3] {
            let pair = VethPair::new();
            run_shell("ip link add up0 link v0 type macvlan");
            let file = format!("/sys/class/net/v0/{file}");
            kill_at_fsync(&pair, nth, &["set", "v0", &format!("{knob}={value}")]);
            fs::write(&file, others).unwrap();
            let upper = read_mtu("up0");
            let restored = pair.run(&["restore"]);
            restored.expect(0, &["set by another program"]);
            assert_eq!(fs::read_to_string(&file).unwrap().trim(), others, "{knob} at {nth}");
            assert_eq!(read_mtu("up0"), upper);
        }
        // A value that nobody set goes back.
        let pair = VethPair::new();
        let set = ["set", "v0", &format!("{knob}={value}")];
        let file = format!("/sys/class/net/v0/{file}");
        let before = fs::read_to_string(&file).unwrap();
        kill_at_fsync(&pair, 3, &set);
        assert_ne!(fs::read_to_string(&file).unwrap(), before);
        pair.run(&["restore"]).expect(0, &["put back", knob]);
        assert_eq!(fs::read_to_string(&file).unwrap(), before, "{knob}");
        pair.run(&["log"]).expect(0, &["put back: `latput restore` by"]);
    }
}

#[needs("root")]
#[test]
fn upper_mtu_goes_back_after_lower() {
    let pair = VethPair::new();
    run_shell("ip link add up0 link v0 type macvlan");
    pair.run(&["set", "v0", "mtu=1400"]).expect(0, &["up0"]);
    run_shell("ip link set v0 mtu 1500");
    pair.run(&["log"]).expect(0, &["in force in part"]);
    pair.run(&["undo"]).expect(0, &["up0) from 1400 to 1500"]);
    assert_eq!([read_mtu("v0"), read_mtu("up0")], ["1500", "1500"]);
    // Where the lower one has a third value, the upper one goes as far back as that lets it.
    pair.run(&["set", "v0", "mtu=1400"]).expect(0, &["up0"]);
    run_shell("ip link set v0 mtu 1450");
    pair.run(&["undo"]).expect(0, &["up0) from 1400 to 1450"]);
    assert_eq!([read_mtu("v0"), read_mtu("up0")], ["1450", "1450"]);
    for link in ["v0", "up0"] {
        run_shell(&format!("ip link set {link} mtu 1500"));
    }
    // One that is gone is no part of the change any more.
    pair.run(&["set", "v0", "mtu=1400"]).expect(0, &["up0"]);
    run_shell("ip link del up0");
    pair.run(&["log"]).expect(0, &["set by root: in force\n"]);
}

#[needs("root")]
#[test]
fn mtu_above_lower_interface_is_foretold() {
    let pair = VethPair::new();
    run_shell("ip link add up0 link v0 type macvlan");
    let words = ["v0 below it has mtu 1500: set that first"];
    pair.expect_refusals(&["set", "up0", "mtu=1600"], &words);
    pair.run(&["set", "up0", "mtu=1300"]).expect(0, &[]);
    pair.run(&["set", "v0", "mtu=1400"]).expect(0, &[]);
    pair.expect_refusals(&["undo", "1"], &["v0 below it has mtu 1400"]);
    assert_eq!([read_mtu("v0"), read_mtu("up0")], ["1400", "1300"]);
}

/// As containers have them.
#[needs("root")]
#[test]
fn read_only_kernel_files_are_foretold() {
    let pair = VethPair::new();
    run_shell("echo 1450 >/proc/sys/net/ipv6/conf/v0/mtu");
    for folder in ["/proc/sys", "/sys"] {
        run_shell(&format!("mount --bind {folder} {folder}; mount -o remount,ro,bind {folder}"));
    }
    for (value, reason) in [
        ("mtu=1400", "net/ipv6/conf/v0/mtu is read-only here"),
        ("rps-cpus=1", "rps_cpus is read-only here"),
    ] {
        pair.expect_refusals(&["set", "v0", value], &[reason]);
    }
    assert_eq!(read_mtu("v0"), "1500");
}

#[needs("root", "tc")]
#[test]
fn qdisc_of_link_that_is_down_goes_back() {
    let pair = VethPair::new();
    run_shell("ip link set v0 down");
    for number in [1, 3] {
        pair.run(&["set", "v0", "qdisc=pfifo limit=4"]).expect(0, &["to pfifo limit=4"]);
        assert!(run_shell("tc qdisc show dev v0").contains("pfifo"));
        pair.run(&["undo"]).expect(0, &["undid v0 qdisc (device) from pfifo limit=4 to default"]);
        assert!(!run_shell("tc qdisc show dev v0").contains("pfifo"));
        pair.run(&["log"]).expect(0, &[&format!("undone by {}", number + 1)]);
    }
}

#[needs("root")]
#[test]
fn queues_of_xps_are_no_cpus() {
    let pair = VethPair::new();
    run_shell("echo 2 >/sys/class/net/v0/queues/tx-0/xps_rxqs");
    pair.run(&["set", "v0", "xps-rxqs=0-1", "--dry-run"]).expect(0, &["would change"]);
    pair.run(&["set", "v0", "xps-rxqs=0-1"]).expect(0, &["changed v0 xps-rxqs"]);
    let words = ["there is no receive queue 2: the last is 1"];
    pair.expect_refusals(&["set", "v0", "xps-rxqs=0,2"], &words);
    pair.run(&["show", "v0", "xps-rxqs"]).expect(0, &["mask of receive queues"]);
}

#[needs("root")]
#[test]
fn values_of_lost_queues_are_told() {
    let pair = VethPair::new();
    run_shell("echo 2 >/sys/class/net/v0/queues/rx-1/rps_cpus");
    let lost = "changed v0 rps-cpus (rx-1) from 1: its place is gone";
    pair.run(&["set", "v0", "rx-channels=1"]).expect(0, &[lost]);
    pair.run(&["log"]).expect(0, &["rps-cpus (rx-1): was 1, its place is gone"]);
    pair.run(&["undo"]).expect(0, &["rx-channels"]);
    assert_eq!(run_shell("cat /sys/class/net/v0/queues/rx-1/rps_cpus").trim(), "2");
}

/// The printed commands, typed as they are printed.
#[needs("root", "bash")]
#[test]
fn commands_for_strange_names_work() {
    let pair = VethPair::new();
    for name in ["-x", "--all", "a\u{1b}b", "it's"] {
        let pid = std::process::id();
        let made = std::process::Command::new("ip")
            .args(["link", "add", "name", name, "type", "veth", "peer", "name", &format!("p{pid}")])
            .status();
        assert!(made.unwrap().success(), "{name:?}");
        for end in ["confirm", "restore"] {
            let set = pair.run(&["set", "--confirm-within", "60s", "--", name, "mtu=1300"]);
            set.expect(0, &["latput confirm"]);
            let said = pair.run(&["undo"]).expect(1, &["latput restore"]).err.clone();
            let confirm = set.err.split('`').nth(1).unwrap().to_owned();
            let restore = said.split('`').find(|word| word.starts_with("latput restore")).unwrap();
            let command = if end == "confirm" { &confirm } else { restore };
            let typed = command.replacen("latput", crate::latput_path(), 1);
            let ran = pair.place.wrapped_command(&["bash", "-c", &typed], &[]).output();
            CommandOutput::from(ran.unwrap()).expect(0, &[]);
            pair.run(&["set", "--", name, "mtu=1500"]);
        }
        run_shell(&format!("ip link del p{pid}"));
    }
}

/// The kernel keeps bursts as times, in ticks of 64 ns.
#[needs("root", "tc")]
#[test]
fn bursts_of_tbf_go_back_exactly() {
    let pair = VethPair::new();
    let show = || run_shell("tc -d qdisc show dev v0");
    for options in [
        "rate 1mbit burst 10k latency 50ms",
        "rate 100mbit burst 1600 limit 10k",
        "rate 1gbit burst 128k limit 1m peakrate 10gbit mtu 1514",
        "rate 1gbit burst 128k limit 1m peakrate 5gbit mtu 1514",
        "rate 10gbit burst 128k limit 1m peakrate 25gbit mtu 1500",
        "rate 25gbit burst 9014 limit 1m",
        "rate 100gbit burst 9014 limit 1m",
    ] {
        run_shell(&format!("tc qdisc replace dev v0 root handle 9: tbf {options}"));
        let before = show();
        for round in 0..3 {
            pair.run(&["set", "v0", "qdisc=pfifo limit=5"]).expect(0, &["changed"]);
            pair.run(&["undo"]).expect(0, &["undid"]);
            let after = show();
            // The kernel counts times that tc has set in nanoseconds, and tells them in ticks.
            if round > 0 || !options.contains("gbit") {
                assert_eq!(after, before, "{options}");
            }
            pair.run(&["log"]).expect(0, &["undone by"]);
        }
        run_shell("tc qdisc del dev v0 root");
    }
}

#[needs("root", "tc")]
#[test]
fn default_qdisc_that_would_not_return_is_foretold() {
    let pair = VethPair::new();
    run_shell("ip tuntap add t0 mode tap; ip link set t0 up; ip link set t0 txqueuelen 0");
    assert!(run_shell("tc qdisc show dev t0").contains("pfifo_fast"));
    pair.expect_refusals(&["set", "t0", "qdisc=pfifo"], &["set txqueuelen first"]);
    pair.run(&["set", "t0", "txqueuelen=100"]).expect(0, &[]);
    pair.run(&["set", "t0", "qdisc=pfifo"]).expect(0, &[]);
    pair.run(&["undo"]).expect(0, &[]);
    assert!(run_shell("tc qdisc show dev t0").contains("pfifo_fast"));
}

/// As containers have `/sys`.
#[needs("root")]
#[test]
fn lost_queue_that_could_not_return_is_refused() {
    let pair = VethPair::new();
    run_shell("echo 1 >/sys/class/net/v0/queues/rx-1/rps_cpus");
    run_shell("mount --bind /sys /sys; mount -o remount,ro,bind /sys");
    let words = ["its values could not be put back", "rps_cpus is read-only here"];
    pair.expect_refusals(&["set", "v0", "rx-channels=1"], &words);
    pair.run(&["set", "v0", "tx-channels=max"]).expect(0, &["nothing to change"]);
}

#[needs("root")]
#[test]
fn first_process_of_a_namespace_cannot_wait() {
    let pair = VethPair::new();
    let wrapper = ["unshare", "-p", "-f", "-m", "--mount-proc"];
    let set = ["set", "v0", "mtu=1400", "--confirm-within", "5s"];
    let ran = pair.place.wrapped_command(&wrapper, &set).output().unwrap();
    CommandOutput::from(ran).expect(2, &["first process of its process namespace"]);
    assert_eq!(read_mtu("v0"), "1500");
}
