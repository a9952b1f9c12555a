//! The MTU of interfaces on top of one that is changed, of IPv6 and of IPv6 routes, judged by `ip`.

use std::process::Command;

use latput_testkit::needs;

use crate::root_whole::{VethPair, WAITS, run_shell};
use crate::{CommandOutput, print_note, wait_until};

/// Kinds of interfaces on top, and the words that `ip` adds each with.
const UPPERS: [(&str, &str); 6] = [
    ("macvlan", "link v0 type macvlan mode bridge"),
    ("vlan", "link v0 type vlan id 7"),
    ("ipvlan", "link v0 type ipvlan"),
    ("bridge", "type bridge"),
    ("bond", "type bond mode active-backup miimon 100"),
    ("team", "type team"),
];
/// Set where the kernel has all of [`UPPERS`], as that of the step `uppers` of `cargo xtask ci`.
const HAS_UPPERS: &str = "LATPUT_HAS_UPPERS";

/// Whether this is the guest of `xtask/guest.sh`.
pub(crate) fn has_uppers() -> bool {
    std::env::var_os(HAS_UPPERS).is_some()
}

#[needs("root")]
#[test]
fn upper_and_ipv6_mtu_go_back() {
    let pair = VethPair::new();
    let mut made = 0;
    for (kind, words) in UPPERS {
        run_shell("ip link set v0 mtu 9000");
        if !run_shell(&format!("ip link add up0 {words} 2>&1")).is_empty() {
            assert!(!has_uppers(), "no {kind}");
            print_note(&format!("this kernel has no {kind}"));
            continue;
        }
        made += 1;
        match kind {
            "bridge" => run_shell("ip link set v0 master up0"),
            // The kernel may tell IPv6 of a carrier a second later, which sets its MTU anew.
            "bond" | "team" => run_shell(
                "ip link set v0 down; ip link set v0 master up0; ip link set v0 up; ip link set up0 up mtu 9000; sleep 2",
            ),
            _ => String::new(),
        };
        if matches!(kind, "macvlan" | "bridge" | "bond" | "team") {
            run_shell("ip link add up1 link up0 type macvlan");
        }
        let ipv6: &[(&str, u32)] = match kind {
            "macvlan" => &[("v0", 4000), ("up0", 5000)],
            // A port has no IPv6 of its own.
            "bond" | "team" => &[("up0", 4000)],
            _ => &[("v0", 4000)],
        };
        for (name, mtu) in ipv6 {
            run_shell(&format!("echo {mtu} > /proc/sys/net/ipv6/conf/{name}/mtu"));
        }
        let look =
            || run_shell("ip -o link | sed 's/ qlen.*//'; grep -s . /proc/sys/net/ipv6/conf/*/mtu");
        let before = look();
        for (name, mtu) in ipv6 {
            assert!(before.contains(&format!("{name}/mtu:{mtu}")), "{kind}: {before}");
        }
        let is_port = matches!(kind, "bridge" | "bond" | "team");
        assert_eq!(before.contains("master up0"), is_port, "{kind}: {before}");
        // The kernel leaves the MTU of a team's port to the team.
        let targets: &[&str] = match kind {
            "bond" => &["v0", "up0"],
            "team" => &["up0"],
            _ => &["v0"],
        };
        for target in targets {
            pair.run(&[&["set", target, "mtu=1500"][..], &WAITS].concat()).expect(0, &["changed"]);
            assert_ne!(look(), before, "the test does not test");
            pair.run(&["restore"]).expect(0, &[&format!("put back {target} mtu")]);
            assert_eq!(look(), before, "{kind}");
            pair.run(&["set", target, "mtu=1500"]).expect(0, &["changed"]);
            pair.run(&["undo"]).expect(0, &[&format!("undid {target} mtu")]);
            assert_eq!(look(), before, "{kind}");
        }
        if kind == "team" {
            pair.run(&["set", "v0", "mtu=1500"]).expect(1, &["set it on up0"]);
            assert_eq!(look(), before, "{kind}");
        }
        if kind == "bridge" {
            // Nobody has set its MTU: it still follows its ports.
            run_shell("ip link set v0 mtu 3000");
            assert!(run_shell("ip -o link show up0").contains("mtu 3000"));
        }
        run_shell("ip link del up1; ip link del up0; ip link set v0 up");
    }
    assert!(made > 1);
}

#[needs("root")]
#[test]
fn bridge_that_follows_its_ports_is_left() {
    let pair = VethPair::new();
    run_shell("ip link add br0 type bridge; ip link set v0 master br0; ip link set br0 up");
    for ask in [&["set", "br0", "mtu=1400"][..], &["set", "br0", "mtu=1400", "--dry-run"]] {
        pair.run(ask).expect(1, &["follow the mtu of its ports", "`ip link set br0 mtu 1400`"]);
    }
    run_shell("ip link set v0 mtu 3000");
    assert!(run_shell("ip -o link show br0").contains("mtu 3000"), "it follows");
    // Once somebody has set one, nothing is lost.
    run_shell("ip link set br0 mtu 2000");
    pair.run(&["set", "br0", "mtu=1400"]).expect(0, &["changed br0 mtu"]);
    pair.run(&["undo"]).expect(0, &["undid br0 mtu (device) from 1400 to 2000"]);
}

/// The kernel keeps the MTU of a bridge that nobody has set: latput never writes it.
#[needs("root")]
#[test]
fn bridge_follows_its_ports_after_undo() {
    let pair = VethPair::new();
    run_shell(
        "ip link add br0 type bridge; ip link add p1 type veth peer name q1; ip link set v0 master br0; \
         ip link set p1 master br0; ip link set br0 up",
    );
    // A carrier that comes up sets the MTU of IPv6 to the interface's (`addrconf_notify`).
    wait_until("br0 has a carrier", || run_shell("ip -o link show br0").contains("state UP"));
    run_shell("echo 1300 > /proc/sys/net/ipv6/conf/br0/mtu");
    let mtu = |name: &str| run_shell(&format!("ip -o link show {name} | grep -o 'mtu [0-9]*'"));
    let look =
        || run_shell("ip -o link | grep -o ' mtu [0-9]*'; cat /proc/sys/net/ipv6/conf/br0/mtu");
    let before = look();
    // Two ports at once, back in either order.
    for [first, second] in [["1", "2"], ["6", "5"]] {
        pair.run(&["set", "v0", "mtu=1400"]).expect(0, &["changed v0 mtu"]);
        pair.run(&["set", "p1", "mtu=1380"]).expect(0, &["changed p1 mtu"]);
        assert_eq!(mtu("br0"), "mtu 1380\n");
        pair.run(&["undo", first]).expect(0, &["undid"]);
        pair.run(&["undo", second]).expect(0, &["undid"]);
        assert_eq!(look(), before);
    }
    // Somebody else lowers the other port meanwhile.
    pair.run(&[&["set", "v0", "mtu=1400"][..], &WAITS].concat()).expect(0, &["changed v0 mtu"]);
    run_shell("ip link set p1 mtu 1450");
    pair.run(&["restore"]).expect(0, &["put back v0 mtu"]);
    assert_eq!([mtu("br0"), mtu("v0")], ["mtu 1450\n", "mtu 1500\n"]);
    run_shell("ip link set p1 mtu 1500");
    assert_eq!(mtu("br0"), "mtu 1500\n", "it still follows");
}

#[needs("root")]
#[test]
fn upper_and_ipv6_mtu_of_others_stay() {
    let pair = VethPair::new();
    run_shell("ip link set v0 mtu 9000; ip link add up0 link v0 type macvlan; ip link set up0 up");
    let look = || run_shell("ip -o link show up0; cat /proc/sys/net/ipv6/conf/v0/mtu");
    assert!(look().contains("mtu 9000"), "{}", look());
    let ends: [(&[&str], _); 2] = [(&["restore"], &WAITS[..]), (&["undo"], &[])];
    for (end, more) in ends {
        pair.run(&[&["set", "v0", "mtu=1500"], more].concat()).expect(0, &["changed"]);
        run_shell("ip link set up0 mtu 1300; echo 1280 > /proc/sys/net/ipv6/conf/v0/mtu");
        pair.run(end).expect(0, &["v0 mtu", "1300", "1280"]);
        let after = look();
        assert!(after.contains("mtu 1300") && after.ends_with("1280\n"), "{end:?}: {after}");
        run_shell("ip link set up0 mtu 9000; echo 9000 > /proc/sys/net/ipv6/conf/v0/mtu");
    }
    // One that has gone elsewhere meanwhile keeps what the change made of it.
    let named = ["does not lie on it any more, or is gone: its mtu was 9000"];
    for (end, more) in ends {
        pair.run(&[&["set", "v0", "mtu=1500"], more].concat()).expect(0, &["changed"]);
        run_shell("ip netns add away; ip link set up0 netns away");
        pair.run(&[end, &["--dry-run"]].concat()).expect(0, &named);
        pair.run(end).expect(0, &named);
        run_shell(
            "ip netns del away; ip link add up0 link v0 mtu 9000 type macvlan; ip link set up0 up",
        );
    }
}

#[needs("root")]
#[test]
fn uppers_in_other_namespaces_are_not_moved() {
    let pair = VethPair::new();
    let look =
        || run_shell("ip -o link | sed 's/ qlen.*//'; ip -n away -o link | sed 's/ qlen.*//'");
    let set = [&["set", "v0", "mtu=1500"][..], &WAITS].concat();
    run_shell("ip link set v0 mtu 9000; ip netns add away");
    let mut made = 0;
    for kind in ["macvlan mode bridge", "vlan id 7", "ipvlan"] {
        let add = format!("ip link add up0 link v0 type {kind}");
        if !Command::new("sh").args(["-c", &add]).output().unwrap().status.success() {
            assert!(!has_uppers(), "no {kind}");
            print_note(&format!("this kernel has no `{add}`"));
            continue;
        }
        made += 1;
        // One that lies on it, and then one that lies on an upper one here.
        for away in [
            "ip link set up0 netns away",
            "ip link add up1 link up0 type macvlan; ip link set up1 netns away",
        ] {
            if kind == "ipvlan" && away.contains("up1") {
                continue; // nothing lies on an ipvlan
            }
            run_shell(&format!("{add}; {away}"));
            let before = look();
            assert!(before.contains("up0@if") || before.contains("up1@if"), "{before}");
            pair.run(&set)
                .expect(1, &["in network namespace away, mtu 9000", "set it there first"]);
            assert_eq!(look(), before, "{kind}: {away}");
            run_shell("ip -n away link set up0 mtu 1400; ip -n away link set up1 mtu 1400");
            let before = look();
            if kind != "ipvlan" {
                assert!(before.contains("mtu 1400"), "{before}");
                pair.run(&set).expect(0, &["changed"]);
                assert_ne!(look(), before, "the test does not test");
                pair.run(&["restore"]).expect(0, &["put back v0 mtu"]);
                assert_eq!(look(), before, "{kind}: {away}");
            }
            run_shell("ip -n away link del up0; ip -n away link del up1; ip link del up0");
        }
    }
    run_shell("ip netns del away");
    assert!(made > 0);
}

/// The rights of a container that may set its host's interfaces: they open no namespace of another process, and enter none.
#[needs("root", "setpriv")]
#[test]
fn namespace_that_cannot_be_entered_is_named() {
    let pair = VethPair::new();
    run_shell(
        "ip link set v0 mtu 9000; ip netns add away; ip link add up0 link v0 type macvlan; ip link set up0 netns away",
    );
    let look =
        || run_shell("ip -o link | sed 's/ qlen.*//'; ip -n away -o link | sed 's/ qlen.*//'");
    let before = look();
    let without = "-sys_admin,-sys_ptrace";
    let few = ["setpriv", "--bounding-set", without, "--inh-caps", without];
    let run = |args: &[&str]| {
        CommandOutput::from(pair.place.wrapped_command(&few, args).output().unwrap())
    };
    let words = ["cannot look into network namespace", "away", "(enter a network namespace)"];
    for more in [&[][..], &["--dry-run"], &WAITS] {
        run(&[&["set", "v0", "mtu=1400"][..], more].concat()).expect(3, &words);
        assert_eq!(look(), before, "{more:?}");
    }
    run(&["set", "v0", "txqueuelen=700"]).expect(0, &["changed"]);
    run_shell("ip -n away link del up0; ip netns del away");
    // Other programs of this machine have namespaces too, which all can be entered.
    pair.run(&["set", "v0", "mtu=1400"]).expect(0, &["changed"]);
}

/// The kernel moves them with the MTU of their interface, and not back.
#[needs("root")]
#[test]
fn ipv6_routes_keep_their_mtu() {
    let pair = VethPair::new();
    run_shell("ip link set v0 mtu 9000; ip link add up0 link v0 type macvlan; ip link set up0 up");
    for interface in ["v0", "up0"] {
        let route = |words: &str| format!("ip -6 route {words} 2001:db8:1::/64 dev {interface}");
        run_shell(&format!("{} mtu 8000", route("add")));
        let look = || run_shell(&format!("{}; ip -o link show v0", route("show")));
        let before = look();
        assert!(before.contains("mtu 8000"), "{before}");
        for mtu in ["mtu=1500", "mtu=7000", "mtu=8000"] {
            pair.run(&["set", "v0", mtu]).expect(1, &["2001:db8:1::/64", "`mtu lock 8000`"]);
            assert_eq!(look(), before);
        }
        // Taken are those that move nothing, and those that move back.
        for (other, mtu) in
            [("mtu lock 8000", "mtu=1500"), ("mtu 1300", "mtu=1500"), ("mtu 9000", "mtu=1500")]
        {
            run_shell(&format!("{} {other}", route("replace")));
            let before = look();
            pair.run(&[&["set", "v0", mtu][..], &WAITS].concat()).expect(0, &["changed"]);
            pair.run(&["restore"]).expect(0, &["put back v0 mtu"]);
            assert_eq!(look(), before, "{interface} {other}");
        }
        run_shell(&route("del"));
    }
}
