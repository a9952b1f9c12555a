//! Files of others that `keep` must not displace, and those by which one of latput would not count; the programs that read
//! them are the judges.

use std::fs;
use std::process::Command;

use latput_testkit::needs;

use crate::keep::{NETPLAN, SET, place_with_root};
use crate::{Place, needs_program, print_note};

const KEEP: [&str; 6] = ["keep", "nic7", "mtu=9000", "--root", "root", "--yes"];
const RULES: &str = "etc/udev/rules.d/90-latput-nic7.rules";
const LINK: &str = "etc/systemd/network/10-latput-nic7.link";

/// All that a program prints; it must succeed.
fn said_by(program: &str, place: &Place, args: &[&str]) -> String {
    let root = format!("--root={}", place.path("root").display());
    let args = args.iter().map(|word| if *word == "ROOT" { &root } else { *word });
    let ran = Command::new(program).args(args).output().unwrap();
    assert!(ran.status.success(), "{ran:?}");
    String::from_utf8(ran.stdout).unwrap()
}

/// The same values kept in one form after the other.
fn keep_in(formats: &[&str]) -> Place {
    let place = place_with_root(&[("etc/netplan/50-cloud.yaml", NETPLAN)]);
    for format in formats {
        let keep = [&["keep", "nic7"], &SET[..], &["--root", "root", "--yes", "--format", format]];
        place.run(&keep.concat()).expect(0, &[]);
    }
    place
}

#[needs("systemd-analyze")]
#[test]
fn systemd_finds_kept_link_file() {
    let place = keep_in(&["systemd-link"]);
    let args = ["ROOT", "cat-config", "systemd/network/10-latput-nic7.link"];
    let said = said_by("systemd-analyze", &place, &args);
    assert!(said.contains("RxCoalesceSec=50us"), "{said}");
}

#[needs("udevadm")]
#[test]
fn udev_accepts_kept_rules() {
    let place = keep_in(&["systemd-link"]);
    let rules = place.path("root").join(RULES);
    let ran = Command::new("udevadm").arg("verify").arg(&rules).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    // `verify` came with systemd 254.
    if said.contains("Unknown command") {
        return print_note("skipped: udevadm has no verify");
    }
    assert!(ran.status.success(), "{ran:?}");
}

#[needs("netplan")]
#[test]
fn netplan_accepts_kept_file() {
    let place = keep_in(&["systemd-link", "netplan"]);
    let mut generate = Command::new("netplan");
    let ran = generate.args(["generate", "--root-dir"]).arg(place.path("root")).output().unwrap();
    assert!(ran.status.success(), "{ran:?}");
}

#[test]
fn kept_tuned_profile_has_every_value() {
    let place = keep_in(&["systemd-link", "netplan", "tuned"]);
    let profile = place.path("root/etc/tuned/latput-nic7/tuned.conf");
    let profile = fs::read_to_string(profile).unwrap();
    for line in ["type=net", "devices=nic7", "coalesce=rx-usecs 50", "mtu=9000"] {
        assert!(profile.lines().any(|found| found == line), "{line}: {profile}");
    }
}

/// Of an image nobody knows the addresses and types of interfaces.
#[test]
fn link_that_may_match_is_not_displaced() {
    let file = "etc/systemd/network/20-a.link";
    let drop_in = ("usr/lib/systemd/network/20-a.link.d/x.conf", "[Match]\nOriginalName=nic7\n");
    for (files, why) in [
        (vec![(file, "[Match]\nOriginalName=nic7\nType=ether\n[Link]\nName=lan\n")], "may be of"),
        (vec![(file, "[Match]\nMACAddress=52:54:00:aa:bb:cc\n[Link]\nMTUBytes=9\n")], "may be of"),
        (vec![(file, "[Match]\nOriginalName=nic[0-9]\n[Link]\nName=lan\n")], "names nic7 already"),
        (vec![(file, "[Match]\nOriginalName=!eth*\n[Link]\nName=lan\n")], "names nic7 already"),
        (vec![(file, "[Match]\nOriginalName=eth0\n"), drop_in], "names nic7 already"),
        (
            vec![("usr/local/lib/systemd/network/20-a.link", "[Match]\nOriginalName=nic7\n")],
            "names nic7 already",
        ),
    ] {
        let place = place_with_root(&files);
        place.run(&[&KEEP[..], &["--format", "systemd-link"]].concat()).expect(1, &[why]);
        place.run(&KEEP).expect(0, &[why, "only one .link file counts"]);
        let has = |name: &str| place.path("root").join(name).exists();
        assert!(has(RULES) && !has(LINK), "{files:?}");
    }
    for other in [
        "[Match]\nOriginalName=nic8\nMACAddress=52:54:00:aa:bb:cc\n",
        "[Link]\nName=lan\n",
        // The one with this address is called otherwise.
        "[Match]\nMACAddress=52:54:00:aa:bb:cc\n[Link]\nName=lan\n",
    ] {
        let place = place_with_root(&[(file, other)]);
        place.run(&KEEP).expect(0, &[]);
        assert!(place.path("root").join(LINK).exists(), "{other}");
    }
}

/// netplan itself makes a .link file of each of these.
#[test]
fn netplan_pattern_or_address_may_match() {
    for (matched, link) in [
        ("{name: \"nic[0-9]\"}", "OriginalName=nic[0-9]"),
        ("{name: \"nic[!0-6]\"}", "OriginalName=nic[!0-6]"),
        ("{macaddress: \"52:54:00:aa:bb:cc\"}", "52:54:00:aa:bb:cc"),
    ] {
        let text = format!(
            "network:\n  version: 2\n  ethernets:\n    a: {{}}\n    id0: {{match: {matched}, wakeonlan: true}}\n"
        );
        let place = place_with_root(&[("etc/netplan/50-site.yaml", &text)]);
        let why = "netplan makes a .link file of";
        place.run(&KEEP).expect(0, &[why, "only one .link file counts"]);
        assert!(place.path("root").join(RULES).exists(), "{matched}");
        place
            .run(&[&KEEP[..], &["--format", "netplan"]].concat())
            .expect(1, &["of other interfaces too"]);
        if !needs_program("netplan") {
            let root = place.path("root");
            let mut generate = Command::new("netplan");
            let ran = generate.args(["generate", "--root-dir"]).arg(&root).output().unwrap();
            assert!(ran.status.success(), "{ran:?}");
            let made = fs::read_to_string(root.join("run/systemd/network/10-netplan-id0.link"));
            assert!(made.unwrap().contains(link), "{matched}");
        }
    }
}

/// systemd shows both parts of the file where it is installed, in the order in which they count.
#[test]
fn drop_in_of_networkd_is_seen() {
    let file = "usr/lib/systemd/network/05-a.network";
    let drop_in = "etc/systemd/network/05-a.network.d/x.conf";
    for (main, more, counts) in [
        ("[Match]\nName=nic7\n", "[Link]\nMTUBytes=1400\n", true),
        ("[Match]\nName=nic7\n[Link]\nMTUBytes=9000\n", "[Link]\nMTUBytes=1400\n", true),
        ("[Match]\nName=nic[0-9]\n[Link]\nMTUBytes=1400\n", "[Link]\nMTUBytes=9000\n", false),
        ("", "[Link]\nMTUBytes=1400\n", false),
    ] {
        let place = place_with_root(&[(file, main), (drop_in, more)]);
        let ran = place.run(&KEEP);
        if counts {
            ran.expect(1, &[&format!("/{drop_in} sets `MTUBytes=1400` afterwards")]);
        } else {
            ran.expect(0, &[]);
        }
        if !needs_program("systemd-analyze") && !main.is_empty() {
            let args = ["ROOT", "cat-config", "systemd/network/05-a.network"];
            let said = said_by("systemd-analyze", &place, &args);
            assert!(said.find("Name=nic") < said.rfind(more.trim()), "{said}");
        }
    }
}

#[test]
fn sysctl_of_local_folder_is_seen() {
    let keep = ["keep", "nic7", "busy-poll=50us", "--root", "root", "--yes"];
    let file = "usr/local/lib/sysctl.d/99-mine.conf";
    let rival = (file, "net.core.busy_poll = 0\n");
    let place = place_with_root(&[rival]);
    place.run(&keep).expect(1, &[&format!("/{file} sorts later and sets net.core.busy_poll")]);
    if !needs_program("systemd-analyze") {
        let said =
            said_by("systemd-analyze", &place, &["ROOT", "cat-config", "sysctl.d/99-mine.conf"]);
        assert!(said.contains("busy_poll = 0"), "{said}");
    }
    // One of the same name in an earlier folder hides it.
    let place = place_with_root(&[rival, ("run/sysctl.d/99-mine.conf", "")]);
    place.run(&keep).expect(0, &[]);
}

/// A record is believed for fixed names only, so that nothing is written into a folder that an image names.
#[test]
fn tuned_folder_of_a_site_is_refused() {
    let active = ("etc/tuned/active_profile", "site\n");
    let main = "etc/tuned/tuned-main.conf";
    let site = (main, "profile_dirs = /usr/lib/tuned,/opt/site/tuned\n");
    let place = place_with_root(&[active, site]);
    place.run(&KEEP).expect(
        2,
        &[
            "`profile_dirs` in /etc/tuned/tuned-main.conf names /usr/lib/tuned and /opt/site/tuned",
            "/opt/site/tuned/latput-nic7/tuned.conf:",
            "include=site",
            "mtu=9000",
        ],
    );
    assert!(!place.path("root/etc/tuned/latput-nic7").exists());
    for (listed, folder) in [
        ("/etc/tuned/profiles/", "profiles/latput-nic7"),
        ("/etc/tuned;/opt/site/tuned", "latput-nic7"),
    ] {
        let place = place_with_root(&[active, (main, &format!("profile_dirs={listed}\n"))]);
        place.run(&KEEP).expect(0, &["TuneD is active"]);
        let file = place.path("root/etc/tuned").join(folder).join("tuned.conf");
        assert!(fs::read_to_string(file).unwrap().contains("include=site"), "{listed}");
    }
}

const PROFILE: &str = "[connection]\nid=wired\nuuid=9d2c4b5e-6f1a-4c3b-8a7d-1e2f3a4b5c6d\ntype=ethernet\n\
                       interface-name=nic7\n";

/// For old hosts NetworkManager reads these below /etc, and there only.
#[test]
fn profile_without_extension_is_edited() {
    let folder = "etc/NetworkManager/system-connections";
    for (folder, name, is_read) in [
        (folder, "wired", true),
        (folder, "ifcfg-nic7", true),
        (folder, "wired~", false),
        (folder, "wired.Xy12Ab", false),
        (folder, ".wired.swp", false),
        ("usr/lib/NetworkManager/system-connections", "wired", false),
    ] {
        let file = format!("{folder}/{name}");
        let place = place_with_root(&[(&file, PROFILE)]);
        place.run(&KEEP).expect(0, &[]);
        let text = || fs::read_to_string(place.path("root").join(&file)).unwrap();
        assert_eq!(text().contains("mtu=9000"), is_read, "{file}");
        place.run(&["keep", "--remove", "--root", "root", "--yes"]).expect(0, &[]);
        assert_eq!(text(), PROFILE);
    }
}

/// The list of devices is that of NetworkManager's own reader, where it is installed.
#[test]
fn unmanaged_interface_has_no_profile() {
    let profile = ("etc/NetworkManager/system-connections/wired.nmconnection", PROFILE);
    let [lib, main, etc] =
        ["usr/lib/NetworkManager/conf.d", "etc/NetworkManager", "etc/NetworkManager/conf.d"];
    let of_lib = format!("{lib}/10-a.conf");
    let of_main = format!("{main}/NetworkManager.conf");
    let of_etc = format!("{etc}/20-b.conf");
    let section = |line: &str| format!("[keyfile]\n{line}\n");
    for (in_lib, in_main, in_etc, list, is_managed) in [
        ("", "", "unmanaged-devices=interface-name:nic7", "interface-name:nic7", false),
        (
            "unmanaged-devices=*,except:type:wifi,except:type:gsm",
            "",
            "",
            "*,except:type:wifi,except:type:gsm",
            false,
        ),
        ("unmanaged-devices=*", "", "unmanaged-devices=none", "none", true),
        ("unmanaged-devices=nic7", "unmanaged-devices=eth0", "", "eth0", true),
        ("", "unmanaged-devices=eth0", "unmanaged-devices+=nic*;nic7", "eth0,nic*,nic7", false),
        ("unmanaged-devices=*;nic8", "", "unmanaged-devices-=*", "nic8", true),
        ("", "", "unmanaged-devices=mac:52:54:00:aa:bb:cc", "mac:52:54:00:aa:bb:cc", true),
    ] {
        let texts = [in_lib, in_main, in_etc].map(section);
        let place = place_with_root(&[
            profile,
            (&of_lib, &texts[0]),
            (&of_main, &texts[1]),
            (&of_etc, &texts[2]),
        ]);
        if !needs_program("NetworkManager") {
            let [lib, etc] = [lib, etc].map(|folder| place.path("root").join(folder));
            let mut print = Command::new("NetworkManager");
            print.arg("--print-config").arg("--config").arg(place.path("root").join(&of_main));
            print.arg("--system-config-dir").arg(lib).arg("--config-dir").arg(etc);
            let ran = print.arg("--intern-config").arg(place.path("none")).output().unwrap();
            let said = String::from_utf8(ran.stdout).unwrap();
            let found = said.lines().find_map(|line| line.strip_prefix("unmanaged-devices="));
            let words = |text: &str| text.replace(';', ",");
            assert_eq!(found.map(words).as_deref(), Some(list), "{said}");
        }
        let ran = place.run(&KEEP);
        if is_managed {
            ran.expect(0, &["NetworkManager manages nic7"]);
            let check = ["keep", "--check", "--root", "root"];
            place.run(&check).expect(0, &["wired.nmconnection: whole"]);
            place.write(&format!("root/{of_etc}"), &section("unmanaged-devices=nic7"));
            place.run(&check).expect(8, &["20-b.conf has `unmanaged-devices=nic7`"]);
            continue;
        }
        ran.expect(0, &["10-latput-nic7.link"]);
        place
            .run(&[&KEEP[..], &["--format", "networkmanager"]].concat())
            .expect(1, &["wired.nmconnection is not used", "unmanaged-devices"]);
    }
}
