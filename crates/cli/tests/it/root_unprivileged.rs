//! A user without any privilege: what can be read is shown, and what is missing is said once.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use latput_testkit::{isolate, needs};

use crate::{Place, json};

const SHOW: &str = include_str!("../../../../docs/schema/show.json");

#[needs("root")]
#[test]
fn unprivileged_show_names_missing_rights_once() {
    isolate();
    run_ip("link add lat0 type veth peer name lat1");
    run_ip("link set lat0 up");
    run_ip("link set lat1 up");
    run_ip("link set lo up");
    let place = Place::new();
    place.run(&["set", "lat0", "gro=on"]).expect(0, &[]);
    let nobody = |args: &[&str]| place.run_without_root(args);
    let shown = nobody(&["show", "lat0"]);
    shown.expect(0, &["mtu", "disruptive", "hitless"]);
    assert_eq!(shown.out.matches("CAP_NET_ADMIN").count(), 1, "{}", shown.out);
    assert_eq!(shown.out.matches("as root").count(), 1, "{}", shown.out);
    let fixed = shown.out.matches("fixed").count();
    let of_root = place.run(&["show", "lat0"]);
    assert_eq!(fixed, of_root.out.matches("fixed").count(), "{}", shown.out);
    assert!(!of_root.out.contains("CAP_NET_ADMIN"), "{}", of_root.out);
    json::check_schema(
        SHOW,
        &nobody(&["show", "lat0", "--json"]).expect(0, &["CAP_NET_ADMIN"]).out,
    );
    let seen = nobody(&["moderate", "lat0", "--observe", "--for", "300ms"]);
    seen.expect(0, &["observing", "gro-flush-timeout", "0 changes"]);
    nobody(&["moderate", "lat0"]).expect(3, &["CAP_NET_ADMIN"]);
    nobody(&["set", "lat0", "gro=off", "--dry-run"]).expect(0, &["would change"]);
    nobody(&["set", "lat0", "gro=off"]).expect(3, &[]);
    let args = ["--workload", "tcp_rr", "--duration", "100ms", "--repetitions", "2"];
    let measured = nobody(&[&["measure", "loopback"][..], &args].concat());
    measured.expect(0, &["rate", "latency", "CPU"]);
    assert_eq!(measured.out.matches("CAP_BPF").count(), 1, "{}", measured.out);
}

/// One rule for every command: exit code 3, what is missing, and no advice to remove what knows the way back.
#[needs("root")]
#[test]
fn unprivileged_command_exits_with_3() {
    isolate();
    run_ip("link add lat0 type veth peer name lat1");
    let place = Place::new();
    place.write("kept.db", "");
    std::fs::set_permissions(place.path("kept.db"), PermissionsExt::from_mode(0o600)).unwrap();
    std::fs::create_dir_all("/run/netns").unwrap();
    run_ip("netns add far");
    place.run(&["set", "lat0", "gro=on"]).expect(0, &[]);
    std::fs::set_permissions(place.path("state"), PermissionsExt::from_mode(0o700)).unwrap();
    for args in [
        vec!["set", "lat0", "gro=off"],
        vec!["log"],
        vec!["undo"],
        vec!["undo", "1", "--dry-run"],
        vec!["restore"],
        vec!["restore", "--dry-run"],
        vec!["restore", "--forget", "1-2"],
        vec!["confirm"],
        vec!["confirm", "lat0"],
        vec!["keep", "lat0", "mtu=1400", "--yes"],
        vec!["moderate", "lat0"],
        vec!["lab", "up"],
        vec!["lab", "down"],
        vec!["lab", "exec", "netns://far", "--", "true"],
        vec!["hosts", "lab"],
        vec!["hosts", "netns://far", "netns://far"],
        vec!["report", "kept.db"],
        vec!["apply", "kept.db"],
        vec!["measure", "loopback", "--workload", "tcp_rr", "-o", "kept.db"],
    ] {
        let ran = place.run_without_root(&args);
        assert_eq!(ran.code, Some(3), "{args:?}: {ran:#?}");
        for advice in ["remove", "delete", "rm "] {
            assert!(!ran.err.contains(advice) || args[1..].contains(&"down"), "{args:?}: {ran:#?}");
        }
    }
    place.run(&["undo"]).expect(0, &["undid lat0 gro"]);
}

#[test]
fn missing_interface_is_the_same_error_everywhere() {
    let place = Place::new();
    for args in [
        &["show", "nope0"][..],
        &["set", "nope0", "mtu=1500"],
        &["set", "nope0", "mtu=1500", "--dry-run"],
        &["moderate", "nope0"],
        &["moderate", "nope0", "--observe"],
        &["plan", "nic", "nope0"],
    ] {
        place.run(args).expect(2, &["there is no interface `nope0`: `latput show` lists them"]);
    }
    place
        .run(&["measure", "nope0", "--workload", "tcp_rr"])
        .expect(2, &["nope0: there is no testbed file and no interface", "`latput show`"]);
}

fn run_ip(args: &str) {
    assert!(Command::new("ip").args(args.split(' ')).status().unwrap().success(), "ip {args}");
}
