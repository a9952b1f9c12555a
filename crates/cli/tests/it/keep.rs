//! `latput keep` below a folder of its own: what it writes, refuses and takes out again. Other programs read the files
//! where they are installed.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use latput_testkit::needs;

use crate::{Place, needs_program, print_note};

/// Everything below a folder: type, permissions, owner and bytes of each file.
pub(crate) fn read_tree(root: &Path) -> BTreeMap<String, (u32, u32, u32, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let meta = path.symlink_metadata().unwrap();
            let bytes = if meta.is_file() { fs::read(&path).unwrap() } else { Vec::new() };
            if meta.is_dir() {
                folders.push(path.clone());
            }
            let name = path.strip_prefix(root).unwrap().display().to_string();
            found.insert(name, (meta.mode(), meta.uid(), meta.gid(), bytes));
        }
    }
    found
}

/// A host's folder with these files, `/var/lib` among its folders.
pub(crate) fn place_with_root(files: &[(&str, &str)]) -> Place {
    let place = Place::new();
    fs::create_dir_all(place.path("root/var/lib")).unwrap();
    for (name, text) in files {
        let path = place.path("root").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
    }
    // An active profile of TuneD counts where TuneD is.
    if files.iter().any(|(name, _)| *name == "etc/tuned/active_profile") {
        fs::create_dir_all(place.path("root/usr/sbin")).unwrap();
        fs::write(place.path("root/usr/sbin/tuned"), "").unwrap();
    }
    place
}

pub(crate) const KEYFILE: &str = "[connection]\nid=wired\ntype=ethernet\ninterface-name=nic7\n\n[ethernet]\nmtu=1500\n\n[ipv4]\nmethod=auto\n";
pub(crate) const NETPLAN: &str =
    "network:\n  version: 2\n  ethernets:\n    nic7:\n      dhcp4: true\n";
pub(crate) const SET: [&str; 4] = ["mtu=9000", "rx-usecs=50us", "rps-cpus=0-1", "busy-poll=50us"];

/// Which files a host has already, what is chosen and why, and the files that are written.
#[test]
fn keep_follows_the_managing_program() {
    let connection = "etc/NetworkManager/system-connections/wired.nmconnection";
    let rules = "etc/udev/rules.d/90-latput-nic7.rules";
    let sysctl = "etc/sysctl.d/90-latput-nic7.conf";
    for (files, why, written, words) in [
        (
            vec![],
            "udev reads .link files everywhere",
            vec!["etc/systemd/network/10-latput-nic7.link", rules, sysctl],
            "RxCoalesceSec=50us",
        ),
        (
            vec![(connection, KEYFILE)],
            "NetworkManager manages nic7 by",
            vec![connection, rules, sysctl],
            "coalesce-rx-usecs=50",
        ),
        (
            vec![("etc/netplan/50-cloud.yaml", NETPLAN)],
            "50-cloud.yaml configures nic7",
            vec!["etc/netplan/90-latput-nic7.yaml", rules, sysctl],
            "mtu: 9000",
        ),
        (
            vec![("etc/tuned/active_profile", "network-latency\n")],
            "TuneD is active with profile network-latency",
            vec!["etc/tuned/latput-nic7/tuned.conf", rules, sysctl],
            "include=network-latency",
        ),
    ] {
        let place = place_with_root(&files);
        let root = place.path("root");
        let before = read_tree(&root);
        let keep = [&["keep", "nic7"], &SET[..], &["--root", "root"]].concat();
        let dry = place.run(&[&keep[..], &["--dry-run"]].concat());
        dry.expect(0, &[why, "+++ b/etc", words]);
        assert_eq!(read_tree(&root), before, "a dry run writes nothing");
        place.run(&keep).expect(2, &["give --yes"]);
        assert_eq!(read_tree(&root), before);
        let kept = place.run(&[&keep[..], &["--yes"]].concat());
        kept.expect(0, &["it takes effect when this image boots", words]);
        assert_eq!(kept.out, dry.out, "what was shown is what was written");
        for file in written {
            assert!(root.join(file).is_file(), "{file}: {:?}", read_tree(&root).keys());
        }
        assert!(fs::read_to_string(root.join(rules)).unwrap().contains("rps_cpus"));
        assert_eq!(
            fs::read_to_string(root.join(sysctl)).unwrap().lines().last(),
            Some("net.core.busy_poll = 50")
        );
        place.run(&[&keep[..], &["--yes"]].concat()).expect(0, &["nothing to change"]);
        place
            .run(&["keep", "--remove", "nic7", "--root", "root", "--yes"])
            .expect(0, &["--- a/etc"]);
        assert_eq!(read_tree(&root), before);
        place.run(&["keep", "--remove", "--root", "root"]).expect(1, &["nothing is kept"]);
    }
}

#[test]
fn results_of_simulator_need_interface() {
    let place = place_with_root(&[]);
    let plan = "schema = 1\ngoal = \"minimize latency_ns_p99\"\n[factors]\nrx-usecs = [50, 0]\n[[workload]]\n\
                kind = \"tcp_rr\"\n[method]\nrepetitions = { min = 2, max = 2 }\n";
    place.write("plan.toml", plan);
    place.run(&["run", "plan.toml", "--on", "sim:server-10g", "-o", "kept.db"]).expect(0, &[]);
    let keep = ["keep", "kept.db", "--root", "root", "--yes"];
    place.run(&keep).expect(2, &["a simulated host was measured", "--interface"]);
    place.run(&[&keep[..], &["--interface", "nic7"]].concat()).expect(0, &["nic7"]);
}

#[test]
fn check_unit_is_valid_and_removed_last() {
    let place = place_with_root(&[]);
    let root = place.path("root");
    let unit = root.join("etc/systemd/system/latput-keep-check.service");
    for interface in ["nic7", "nic8"] {
        let keep = ["keep", interface, "mtu=9000", "--root", "root", "--yes"];
        place.run(&keep).expect(0, &[]);
    }
    let watch = ["keep", "--watch", "--root", "root"];
    place.run(&watch).expect(0, &["systemctl --root=", "enable latput-keep-check.service"]);
    let text = fs::read_to_string(&unit).unwrap();
    assert!(text.contains(&format!("ExecStart={} keep --check", crate::latput_path())), "{text}");
    if !needs_program("systemd-analyze") {
        let verified = Command::new("systemd-analyze").arg("verify").arg(&unit).output().unwrap();
        assert!(verified.status.success() && verified.stderr.is_empty(), "{verified:?}");
    }
    place.run(&["keep", "--remove", "nic7", "--root", "root", "--yes"]).expect(0, &[]);
    assert!(unit.exists(), "nic8 is kept");
    let last = place.run(&["keep", "--remove", "--root", "root", "--yes"]);
    last.expect(0, &["latput-keep-check.service was removed too"]);
    assert!(!unit.exists());

    fs::write(&unit, "[Unit]\n").unwrap();
    place.run(&watch).expect(1, &["is not latput's", "--force"]);
    place.run(&[&watch[..], &["--force"]].concat()).expect(0, &[]);
}

#[test]
fn interrupt_affinity_is_kept_by_a_unit() {
    let place = place_with_root(&[]);
    let root = place.path("root");
    fs::create_dir_all(root.join("etc/systemd/system/multi-user.target.wants")).unwrap();
    let before = read_tree(&root);
    let unit = root.join("etc/systemd/system/latput-affinity-nic7.service");
    let enable = "enable latput-affinity-nic7.service";
    for more in [&["mtu=9000"][..], &[]] {
        let keep =
            [&["keep", "nic7", "smp-affinity=1"], more, &["--root", "root", "--yes"]].concat();
        place.run(&keep).expect(0, &["systemctl --root=", enable]);
        let text = fs::read_to_string(&unit).unwrap();
        let command = format!("ExecStart={} set nic7 smp-affinity=1\n", crate::latput_path());
        assert!(text.contains(&command), "{text}");
        if !needs_program("systemd-analyze") {
            let mut verify = Command::new("systemd-analyze");
            let verified = verify.arg("verify").arg(&unit).output().unwrap();
            assert!(verified.status.success() && verified.stderr.is_empty(), "{verified:?}");
        }
        let found = check_image(&place, 8);
        let files = found["interfaces"][0]["files"].as_array().unwrap();
        let of_unit = files.iter().find(|file| file["file"].as_str().unwrap().contains("affinity"));
        assert_eq!(of_unit.unwrap()["state"], "not_used", "{found}");
        let file = "/etc/systemd/system/latput-affinity-nic7.service";
        let knobs = found["interfaces"][0]["knobs"].as_array().unwrap();
        let knob = knobs.iter().find(|knob| knob["name"] == "smp-affinity");
        assert_eq!(knob.unwrap()["file"], file, "{found}");
        place.run(&["keep", "--remove", "--root", "root", "--yes"]).expect(0, &[]);
        assert_eq!(read_tree(&root), before);
    }
}

/// A .link file without a word in it would take the place of the one that counts, or have udev warn.
#[test]
fn unsupported_setting_is_kept_as_rules() {
    let place = place_with_root(&[]);
    let keep = ["keep", "nic7", "napi-defer-hard-irqs=100", "gro-flush-timeout=50us"];
    let link = &["--format", "systemd-link"];
    for format in [&[][..], link] {
        // Earlier settings of this interface go with their file.
        let before = [&["keep", "nic7", "mtu=1400", "--root", "root", "--yes"], format].concat();
        place.run(&before).expect(0, &[]);
        let file = place.path("root/etc/systemd/network/10-latput-nic7.link");
        assert!(file.is_file());
        let ran = place.run(&[&keep[..], &["--root", "root", "--yes"], format].concat());
        let said = ["systemd.link can express none of these settings", "ATTR{gro_flush_timeout}"];
        ran.expect(0, &said);
        assert!(place.path("root/etc/udev/rules.d/90-latput-nic7.rules").is_file());
        assert!(!file.exists());
    }
}

#[test]
fn second_keep_replaces_first_and_removes_cleanly() {
    let place = place_with_root(&[("etc/netplan/50-cloud.yaml", NETPLAN)]);
    let root = place.path("root");
    let before = read_tree(&root);
    place
        .run(&["keep", "nic7", "mtu=9000", "rx-usecs=50us", "--root", "root", "--yes"])
        .expect(0, &[]);
    assert!(root.join("etc/udev/rules.d/90-latput-nic7.rules").exists());
    place
        .run(&["keep", "nic7", "mtu=1400", "--root", "root", "--yes"])
        .expect(0, &["+      mtu: 1400"]);
    assert!(!root.join("etc/udev/rules.d/90-latput-nic7.rules").exists(), "no part of the second");
    place.run(&["keep", "--remove", "--root", "root", "--yes"]).expect(0, &[]);
    let after: BTreeMap<_, _> =
        read_tree(&root).into_iter().filter(|(name, _)| name != "var/lib/latput").collect();
    assert_eq!(after, before);
}

#[test]
fn edited_file_is_shown_and_left() {
    let place = place_with_root(&[]);
    let link = place.path("root/etc/systemd/network/10-latput-nic7.link");
    place.run(&["keep", "nic7", "mtu=9000", "--root", "root", "--yes"]).expect(0, &[]);
    let edited = fs::read_to_string(&link).unwrap() + "# mine\n";
    fs::write(&link, &edited).unwrap();
    for again in [&["keep", "nic7", "mtu=1400"][..], &["keep", "--remove"]] {
        let ran = place.run(&[again, &["--root", "root", "--yes"]].concat());
        ran.expect(1, &["was edited since", "+# mine", "--force"]);
        assert_eq!(fs::read_to_string(&link).unwrap(), edited);
    }
    place.run(&["keep", "--remove", "--root", "root", "--yes", "--force"]).expect(0, &[]);
    assert!(!link.exists());
}

#[test]
fn nothing_is_written_through_a_symbolic_link() {
    let place = place_with_root(&[]);
    fs::create_dir_all(place.path("root/etc/systemd")).unwrap();
    fs::create_dir(place.path("outside")).unwrap();
    let keep = ["keep", "nic7", "mtu=9000", "--root", "root", "--yes"];
    symlink(place.path("outside"), place.path("root/etc/systemd/network")).unwrap();
    place.run(&keep).expect(1, &["symbolic link"]);
    assert_eq!(fs::read_dir(place.path("outside")).unwrap().count(), 0);
    fs::remove_file(place.path("root/etc/systemd/network")).unwrap();
    fs::create_dir(place.path("root/etc/systemd/network")).unwrap();
    fs::write(place.path("outside/file"), "kept").unwrap();
    let link = place.path("root/etc/systemd/network/10-latput-nic7.link");
    symlink(place.path("outside/file"), &link).unwrap();
    place.run(&keep).expect(1, &["no regular file"]);
    assert_eq!(fs::read_to_string(place.path("outside/file")).unwrap(), "kept");
}

/// Links and files that a stranger may have put into an image.
#[test]
fn hostile_image_writes_and_reads_nothing_outside() {
    let place = place_with_root(&[]);
    let records = place.path("root/var/lib/latput/keep");
    fs::create_dir_all(place.path("outside")).unwrap();
    fs::set_permissions(place.path("outside"), PermissionsExt::from_mode(0o755)).unwrap();
    fs::write(place.path("outside/secret"), "[Match]\nName=secret\n").unwrap();
    fs::write(place.path("secret"), "secret\n").unwrap();
    let before = read_tree(&place.path("outside"));
    let is_as_it_was = |what: &str| {
        assert_eq!(read_tree(&place.path("outside")), before, "{what}");
        let meta = fs::metadata(place.path("outside")).unwrap();
        assert_eq!(meta.mode() & 0o7777, 0o755, "{what}");
        assert!(!place.path("escape").exists() && !place.path("root/escape").exists(), "{what}");
    };
    let keep = ["keep", "nic7", "mtu=9000", "--root", "root", "--yes"];
    let remove = ["keep", "--remove", "--root", "root", "--yes", "--force"];
    // Records that latput has not written.
    fs::create_dir_all(&records).unwrap();
    let version = |mode: u32| format!("{{\"text\":\"x\",\"mode\":{mode},\"uid\":0,\"gid\":0}}");
    for file in ["/../escape", "/etc/../../escape", "/etc/passwd", "/escape", "../escape"] {
        for (before, after) in
            [(version(0o4755), "null".to_owned()), ("null".to_owned(), version(0o4755))]
        {
            let text = format!(
                "{{\"schema\":1,\"interface\":\"nic7\",\"files\":[{{\"file\":\"{file}\",\"before\":{before},\
                 \"after\":{after}}}],\"folders\":[]}}"
            );
            fs::write(records.join("nic7.json"), &text).unwrap();
            for args in [&keep[..], &remove] {
                place.run(args).expect(1, &["nic7.json", "latput writes no"]);
                is_as_it_was(file);
                assert_eq!(fs::read_to_string(records.join("nic7.json")).unwrap(), text);
            }
        }
    }
    let foldered =
        "{\"schema\":1,\"interface\":\"nic7\",\"files\":[],\"folders\":[\"/../escape\"]}";
    fs::write(records.join("nic7.json"), foldered).unwrap();
    place.run(&remove).expect(1, &["latput makes no"]);
    is_as_it_was("a folder");
    // A right that no configuration has.
    let rules = "/etc/udev/rules.d/90-latput-nic7.rules";
    let text = format!(
        "{{\"schema\":1,\"interface\":\"nic7\",\"files\":[{{\"file\":\"{rules}\",\"before\":{},\
         \"after\":null}}],\"folders\":[\"/etc\",\"/etc/udev\",\"/etc/udev/rules.d\"]}}",
        version(0o6777)
    );
    fs::create_dir_all(place.path("root/etc/udev/rules.d")).unwrap();
    fs::write(records.join("nic7.json"), text).unwrap();
    place.run(&remove).expect(0, &[]);
    let written = fs::metadata(place.path(&format!("root{rules}"))).unwrap();
    assert_eq!(written.mode() & 0o7777, 0o666);
    // Links in the place of folders.
    for (folder, link) in [
        ("root/var/lib/latput/keep", "outside"),
        ("root/var/lib/latput", "outside"),
        ("root/var", "outside"),
        ("root/etc/systemd/network", "outside"),
        ("root/etc", "outside"),
    ] {
        let place_of = place.path(folder);
        let _gone = fs::remove_dir_all(&place_of);
        fs::create_dir_all(place_of.parent().unwrap()).unwrap();
        symlink(place.path(link), &place_of).unwrap();
        let ran = place.run(&keep);
        ran.expect(1, &["symbolic link"]);
        assert!(!ran.out.contains("secret") && !ran.err.contains("Name=secret"), "{ran:#?}");
        is_as_it_was(folder);
        fs::remove_file(&place_of).unwrap();
        fs::create_dir_all(&place_of).unwrap();
    }
    place.run(&keep).expect(0, &[]);
}

/// Without a .link file that names interfaces, none is renamed: neither is this one by ours.
#[test]
fn kept_link_file_copies_the_images_naming() {
    let written = |files: &[(&str, &str)]| {
        let place = place_with_root(files);
        place.run(&["keep", "nic7", "mtu=9000", "--root", "root", "--yes"]).expect(0, &[]);
        fs::read_to_string(place.path("root/etc/systemd/network/10-latput-nic7.link")).unwrap()
    };
    assert!(!written(&[]).contains("NamePolicy="));
    let default = "[Match]\nOriginalName=*\n[Link]\nNamePolicy=keep kernel path\n";
    let of_vendor = ("usr/lib/systemd/network/99-default.link", default);
    assert!(written(&[of_vendor]).contains("\nNamePolicy=keep kernel path\n"));
    let more = ("etc/systemd/network/99-default.link.d/x.conf", "[Link]\nMACAddressPolicy=none\n");
    assert!(written(&[of_vendor, more]).contains("keep kernel path\nMACAddressPolicy=none\n"));
    let masked = ("etc/systemd/network/99-default.link", "");
    assert!(!written(&[of_vendor, masked]).contains("NamePolicy="));
}

/// strace ends latput on entry to its n-th rename: the next `--remove` leaves no trace all the same.
#[needs("strace")]
#[test]
fn kill_between_two_files_is_taken_out() {
    if lacks_trace() {
        return;
    }
    let mut kills = 0;
    for nth in 1..10 {
        let place = place_with_root(&[("etc/netplan/50-cloud.yaml", NETPLAN)]);
        let root = place.path("root");
        let before = read_tree(&root);
        let inject = format!("inject=renameat:signal=KILL:when={nth}");
        let strace = ["strace", "-f", "-o", "/dev/null", "-e", "trace=renameat", "-e", &inject];
        let keep = [&["keep", "nic7"], &SET[..], &["--root", "root", "--yes"]].concat();
        let ran = place.wrapped_command(&strace, &keep).output().unwrap();
        let removed = place.run(&["keep", "--remove", "--root", "root", "--yes"]);
        assert!(matches!(removed.code, Some(0 | 1)), "{removed:#?}");
        let mut after = read_tree(&root);
        // A part of a file whose writer was killed has no name of its own, and is no configuration.
        after.retain(|name, _| !name.starts_with("var/lib/latput") && !name.contains(".part"));
        let folders = |tree: &BTreeMap<String, (u32, u32, u32, Vec<u8>)>| {
            tree.iter()
                .filter(|(_, (mode, ..))| mode & 0o170_000 == 0o100_000)
                .map(|(name, _)| name.clone())
                .collect::<Vec<_>>()
        };
        assert_eq!(folders(&after), folders(&before), "after rename {nth}");
        if ran.status.success() {
            break;
        }
        kills += 1;
    }
    assert!(kills >= 3, "only {kills} kills hit: the test does not test");
}

pub(crate) fn lacks_trace() -> bool {
    let traced = Command::new("strace").args(["-o", "/dev/null", "true"]).status().unwrap();
    if !traced.success() {
        print_note("skipped: needs the right to trace");
    }
    !traced.success()
}

/// netplan itself generates the MTU from what was written, for each device type and way to name an entry.
#[test]
fn netplan_entry_keeps_its_device_type() {
    let bond = "network:\n  version: 2\n  ethernets:\n    eno1: {}\n    eno2: {}\n  bonds:\n    nic7:\n      \
                interfaces: [eno1, eno2]\n      addresses: [192.0.2.10/24]\n";
    let bridge = "network:\n  version: 2\n  ethernets:\n    eno1: {}\n  bridges:\n    nic7: {interfaces: [eno1]}\n";
    let vlan = "network:\n  version: 2\n  ethernets:\n    eno1: {}\n  vlans:\n    nic7: {id: 7, link: eno1}\n";
    let named = "network:\n  version: 2\n  ethernets:\n    id0:\n      match: {macaddress: \"52:54:00:aa:bb:cc\"}\n      \
                 set-name: nic7\n      dhcp4: true\n";
    let flow = "network: {version: 2, ethernets: {\"nic7\": {dhcp4: true}}}\n";
    for (text, entry) in [
        (bond, "  bonds:\n    nic7:\n      mtu: 9000"),
        (bridge, "  bridges:\n    nic7:\n      mtu: 9000"),
        (vlan, "  vlans:\n    nic7:\n      mtu: 9000"),
        (named, "  ethernets:\n    id0:\n      mtu: 9000"),
        (flow, "  ethernets:\n    nic7:\n      mtu: 9000"),
    ] {
        let place = place_with_root(&[("etc/netplan/50-cloud.yaml", text)]);
        let root = place.path("root");
        place
            .run(&["keep", "nic7", "mtu=9000", "--root", "root", "--yes"])
            .expect(0, &["50-cloud.yaml configures nic7"]);
        let kept = fs::read_to_string(root.join("etc/netplan/90-latput-nic7.yaml")).unwrap();
        assert!(kept.contains(entry), "{kept}");
        if needs_program("netplan") {
            continue;
        }
        let ran =
            Command::new("netplan").args(["generate", "--root-dir"]).arg(&root).output().unwrap();
        assert!(ran.status.success(), "{ran:?}");
        let generated = read_tree(&root.join("run/systemd/network"));
        let has_mtu = |(_, _, _, bytes): &(u32, u32, u32, Vec<u8>)| {
            String::from_utf8_lossy(bytes).contains("MTUBytes=9000")
        };
        assert!(generated.values().any(has_mtu), "{entry}: {:?}", generated.keys());
    }
    // netplan refuses all files for an offload of a bond, for a key of a VRF, and for an addition to a VXLAN.
    let vrf = "network:\n  version: 2\n  vrfs:\n    nic7: {table: 7}\n";
    let vxlan =
        "network:\n  version: 2\n  tunnels:\n    nic7: {mode: vxlan, id: 5, remote: 192.0.2.1}\n";
    for (text, file) in [(bond, "netplan"), (vrf, "udev"), (vxlan, "udev")] {
        let place = place_with_root(&[("etc/netplan/50-cloud.yaml", text)]);
        place
            .run(&["keep", "nic7", "mtu=9000", "gro=off", "--root", "root", "--yes"])
            .expect(0, &[]);
        let rules = place.path("root/etc/udev/rules.d/90-latput-nic7.rules");
        assert!(fs::read_to_string(rules).unwrap().contains("gro off"));
        let is_there = place.path("root/etc/netplan/90-latput-nic7.yaml").exists();
        assert_eq!(is_there, file == "netplan", "{text}");
        if needs_program("netplan") {
            continue;
        }
        let root = place.path("root");
        let ran =
            Command::new("netplan").args(["generate", "--root-dir"]).arg(root).output().unwrap();
        assert!(ran.status.success(), "{ran:?}");
    }
    place_with_root(&[])
        .run(&["keep", "nic7", "mtu=9000", "--root", "root", "--yes", "--format", "netplan"])
        .expect(2, &["no netplan file has nic7", "--format udev"]);
}

/// As cloud-init writes it, and in the flow form that people write: a public report.
#[test]
fn set_name_entry_gets_the_mtu() {
    let cloud_init = "network:\n  version: 2\n  ethernets:\n    id0:\n      match:\n        macaddress: \
                      \"52:54:00:aa:bb:cc\"\n      set-name: eth7\n      dhcp4: true\n";
    let flow = "network:\n  version: 2\n  ethernets:\n    eth7: {dhcp4: true}\n";
    for (text, id) in [(cloud_init, "id0"), (flow, "eth7")] {
        let place = place_with_root(&[("etc/netplan/50-cloud-init.yaml", text)]);
        let keep = ["keep", "eth7", "mtu=9000", "--root", "root", "--dry-run", "--match", "name"];
        let ran = place.run(&keep);
        ran.expect(
            0,
            &["50-cloud-init.yaml configures eth7", &format!("+    {id}:\n+      mtu: 9000")],
        );
        assert!(!ran.out.contains(".link"), "{ran:#?}");
    }
}

/// TuneD splits `include` at commas, and looks for profiles where its version and configuration say.
#[test]
fn tuned_profile_includes_what_is_active() {
    let main = "daemon = 1\nprofile_dirs = /usr/lib/tuned/profiles,/etc/tuned/profiles\n";
    let site = "[main]\ninclude=throughput-performance\n";
    for (files, file, include) in [
        (
            vec![("etc/tuned/active_profile", "throughput-performance my-site\n")],
            "etc/tuned/latput-nic7/tuned.conf",
            "include=throughput-performance,my-site",
        ),
        (
            vec![("etc/tuned/active_profile", "latput-eth6\n")],
            "etc/tuned/latput-nic7/tuned.conf",
            "include=latput-eth6",
        ),
        (
            vec![
                ("etc/tuned/active_profile", "latput-nic7 latput-eth6\n"),
                ("etc/tuned/profiles/my-site/tuned.conf", site),
            ],
            "etc/tuned/profiles/latput-nic7/tuned.conf",
            "include=latput-eth6",
        ),
        (
            vec![
                ("etc/tuned/active_profile", "throughput-performance\n"),
                ("etc/tuned/tuned-main.conf", main),
            ],
            "etc/tuned/profiles/latput-nic7/tuned.conf",
            "include=throughput-performance",
        ),
    ] {
        let place = place_with_root(&files);
        place
            .run(&["keep", "nic7", "mtu=9000", "tso=off", "--root", "root", "--yes"])
            .expect(0, &["TuneD is active"]);
        let profile = fs::read_to_string(place.path("root").join(file)).unwrap();
        assert!(profile.lines().any(|line| line == include), "{include}: {profile}");
        assert!(profile.lines().skip(1).all(|line| !line.starts_with('#')), "{profile}");
        place.run(&["keep", "--remove", "nic7", "--root", "root", "--yes"]).expect(0, &[]);
        assert!(!place.path("root").join(file).exists());
    }
}

/// JSON of `keep --check` of an image.
fn check_image(place: &Place, code: i32) -> serde_json::Value {
    let ran = place.run(&["--json", "keep", "--check", "--root", "root"]);
    ran.expect(code, &[]);
    serde_json::from_str(&ran.out).unwrap()
}

#[test]
fn image_check_finds_missing_and_changed_files() {
    let place = place_with_root(&[]);
    let ran = place.run(&["keep", "--check", "--root", "root"]);
    assert_eq!(ran.expect(0, &[]).out, "nothing is kept\n");
    let json = place.run(&["keep", "--check", "--root", "root", "--json"]);
    let document: serde_json::Value = serde_json::from_str(&json.expect(0, &[]).out).unwrap();
    assert_eq!(document["interfaces"], serde_json::json!([]));
    place.run(&[&["keep", "nic7"], &SET[..], &["--root", "root", "--yes"]].concat()).expect(0, &[]);
    let before = read_tree(&place.path("root"));
    let said = check_image(&place, 0);
    let one = &said["interfaces"][0];
    assert_eq!(said["is_running_system"], false);
    assert!(
        one["files"].as_array().unwrap().iter().all(|file| file["state"] == "whole"),
        "{one:#}"
    );
    let mut kept = one["knobs"].as_array().unwrap().iter().map(|knob| {
        assert_eq!(
            (&knob["state"], &knob["in_force"]),
            (&"unreadable".into(), &serde_json::json!([]))
        );
        let text = |key: &str| knob[key].as_str().unwrap().to_owned();
        (text("name"), text("kept"), text("file"))
    });
    let busy_poll = kept.find(|(name, ..)| name == "busy-poll").unwrap();
    assert_eq!((&*busy_poll.1, &*busy_poll.2), ("50us", "/etc/sysctl.d/90-latput-nic7.conf"));
    assert_eq!(read_tree(&place.path("root")), before, "a check writes nothing");
    fs::write(place.path("root/etc/udev/rules.d/90-latput-nic7.rules"), "# mine\n").unwrap();
    fs::remove_file(place.path("root/etc/systemd/network/10-latput-nic7.link")).unwrap();
    let ran = place.run(&["keep", "--check", "nic7", "--root", "root"]);
    ran.expect(
        8,
        &["it was changed since", "it is not there any more", "values in force cannot be read"],
    );
    place
        .run(&["keep", "--check", "nic8", "--root", "root"])
        .expect(0, &["nothing is kept for nic8"]);
    place.run(&["keep", "--check", "nic7", "mtu=9000"]).expect(2, &["cannot be used with"]);
}

/// Whole files that another file outranks.
#[test]
fn image_check_names_the_file_that_wins() {
    let netplan = "network:\n  ethernets:\n    nic7:\n      mtu: 1400\n";
    for (present, rival, text, why) in [
        (
            vec![],
            "etc/systemd/network/05-mine.link",
            "[Match]\nOriginalName=nic*\n",
            "sorts first and is, or may be, of nic7",
        ),
        (
            vec![],
            "etc/sysctl.d/99-mine.conf",
            "net/core/busy_poll=0\n",
            "sets net.core.busy_poll too",
        ),
        (
            vec![("etc/netplan/50-cloud.yaml", NETPLAN)],
            "etc/netplan/99-mine.yaml",
            netplan,
            "sets `mtu` too",
        ),
    ] {
        let place = place_with_root(&present);
        place
            .run(&[&["keep", "nic7"], &SET[..], &["--root", "root", "--yes"]].concat())
            .expect(0, &[]);
        check_image(&place, 0);
        let file = place.path("root").join(rival);
        fs::write(&file, text).unwrap();
        let said = check_image(&place, 8);
        let files = said["interfaces"][0]["files"].as_array().unwrap();
        let lost: Vec<_> = files.iter().filter(|file| file["state"] == "outranked").collect();
        assert_eq!(lost.len(), 1, "{said:#}");
        let problem = lost[0]["problem"].as_str().unwrap();
        assert!(problem.starts_with(&format!("/{rival}")) && problem.contains(why), "{problem}");
        // The same value, or another interface, takes nothing away.
        fs::write(&file, text.replace("1400", "9000").replace("=0", "=50").replace("nic*", "eth*"))
            .unwrap();
        check_image(&place, 0);
    }
}

/// A file without effect, or with one on other interfaces, is refused. The file to be changed is named.
#[test]
fn file_that_would_not_count_is_refused() {
    let set_name =
        "network:\n  ethernets:\n    id0:\n      match: {name: \"eth*\"}\n      set-name: nic7\n";
    let shared =
        "network:\n  ethernets:\n    all:\n      match: {name: \"nic*\"}\n      mtu: 1400\n";
    let later = "network: {ethernets: {nic7: {mtu: 1400}}}\n";
    let netplan = "etc/netplan/50-cloud.yaml";
    for (files, args, why) in [
        (
            vec![(netplan, NETPLAN), ("etc/netplan/99-mine.yaml", later)],
            &["mtu=9000"][..],
            "99-mine.yaml sorts later",
        ),
        (
            vec![("etc/sysctl.d/99-mine.conf", "net.core.busy_poll=0\n")],
            &["busy-poll=50us"],
            "99-mine.conf sorts later",
        ),
        (
            vec![(
                "etc/systemd/network/05-mine.network",
                "[Match]\nName=nic*\n[Link]\nMTUBytes=1400\n",
            )],
            &["mtu=9000"],
            "05-mine.network sets `MTUBytes=1400` afterwards",
        ),
        (
            vec![(
                "etc/systemd/network/20-mine.link",
                "[Match]\nOriginalName=nic7\n[Link]\nName=lan\n",
            )],
            &["mtu=9000", "--format", "systemd-link"],
            "20-mine.link names nic7 already",
        ),
        (
            vec![(netplan, set_name)],
            &["mtu=9000", "--format", "systemd-link"],
            "netplan makes a .link file",
        ),
        (
            vec![(netplan, shared)],
            &["mtu=9000", "--format", "netplan"],
            "of other interfaces too (nic*)",
        ),
    ] {
        let place = place_with_root(&files);
        let before = read_tree(&place.path("root"));
        let keep = [&["keep", "nic7"], args, &["--root", "root", "--yes"]].concat();
        place.run(&keep).expect(1, &[why]);
        assert_eq!(read_tree(&place.path("root")), before, "{args:?}");
    }
    // By itself `keep` takes a udev rule there.
    for file in
        [(netplan, shared), ("etc/systemd/network/20-mine.link", "[Match]\nOriginalName=nic*\n")]
    {
        let place = place_with_root(&[file]);
        place
            .run(&["keep", "nic7", "gro=off", "--root", "root", "--yes"])
            .expect(0, &["only one .link file counts"]);
        assert!(place.path("root/etc/udev/rules.d/90-latput-nic7.rules").is_file());
    }
    // Equal values, and files of other interfaces, take nothing away.
    let place = place_with_root(&[
        ("etc/systemd/network/05-mine.network", "[Match]\nName=eth*\n[Link]\nMTUBytes=1400\n"),
        ("etc/systemd/network/06-mine.network", "[Match]\nName=nic7\n[Link]\nMTUBytes=9000\n"),
    ]);
    place.run(&["keep", "nic7", "mtu=9000", "--root", "root", "--yes"]).expect(0, &[]);
}

/// A record of an earlier latput has no values; the same `keep` again records them.
#[test]
fn earlier_record_gets_its_values_by_keep() {
    let place = place_with_root(&[]);
    let keep = ["keep", "nic7", "mtu=9000", "--root", "root", "--yes"];
    place.run(&keep).expect(0, &[]);
    let record = place.path("root/var/lib/latput/keep/nic7.json");
    let mut text: serde_json::Value = serde_json::from_slice(&fs::read(&record).unwrap()).unwrap();
    assert!(text.as_object_mut().unwrap().remove("kept").is_some());
    fs::write(&record, text.to_string()).unwrap();
    place.run(&["keep", "--check", "--root", "root"]).expect(0, &["the record has no values"]);
    place.run(&keep).expect(0, &[]);
    assert_eq!(check_image(&place, 0)["interfaces"][0]["knobs"][0]["kept"], "9000");
}

/// Forms of nm-settings-keyfile(5) that people write by hand; NetworkManager's own reader is the judge.
#[test]
fn hand_written_keyfile_keeps_its_form() {
    let keyfile = "# by hand\n[connection]\nid = wired\nuuid = 9d2c4b5e-6f1a-4c3b-8a7d-1e2f3a4b5c6d\n\
                   type = 802-3-ethernet\ninterface-name = nic7\n\n[802-3-ethernet]\n# why\nmtu = 1500\n\n\
                   [ipv4]\nmethod = auto\n";
    let file = "etc/NetworkManager/system-connections/wired.nmconnection";
    let place = place_with_root(&[(file, keyfile)]);
    let keep = ["keep", "nic7", "mtu=9000", "rx-usecs=50us", "--root", "root", "--yes"];
    place.run(&keep).expect(0, &["NetworkManager manages nic7 by"]);
    let kept = fs::read_to_string(place.path("root").join(file)).unwrap();
    let expected = keyfile.replace("mtu = 1500", "mtu=9000");
    assert_eq!(kept, expected + "\n[ethtool]\ncoalesce-rx-usecs=50\n");
    if needs_program("nmcli") {
        return;
    }
    let mut read = Command::new("nmcli");
    read.args(["--offline", "connection", "modify", "connection.zone", "home"]);
    let file = fs::File::open(place.path("root").join(file)).unwrap();
    let read = read.stdin(file).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&read.stdout), String::from_utf8_lossy(&read.stderr));
    for words in ["[ethernet]\nmtu=9000\n", "coalesce-rx-usecs=50", "zone=home"] {
        assert!(out.contains(words), "{words}: {out}{err}");
    }
}

/// An inventory of which one host is of another connection: the others are asked, and exit code 6 says that one was not.
#[test]
fn inventory_without_one_host_is_partial() {
    let place = Place::new();
    let hosts = |bad: &str| {
        format!(
            "{{\"_meta\": {{\"hostvars\": {{\"own\": {{\"ansible_connection\": \"local\", \"latput_interface\": \"lo\"}}, \
             \"bad\": {bad}}}}}, \"web\": {{\"hosts\": [\"own\"]}}, \"rest\": {{\"hosts\": [\"bad\"]}}}}"
        )
    };
    let verify = ["fleet", "verify", "-i", "hosts.json", "mtu=65536"];
    for (bad, why) in [
        ("{\"ansible_connection\": \"network_cli\"}", "its connection `network_cli` is not ssh"),
        ("{\"latput_interface\": \"{{ nic }}\"}", "its `latput_interface` is a template"),
        ("{\"latput_settings\": {\"mut\": 1}}", "latput_settings: there is no knob"),
        ("{\"ansible_port\": 99999, \"latput_interface\": \"e\"}", "ssh://bad:99999: its port"),
        ("{\"latput_interface\": \"eth0; rm\"}", "`eth0; rm`"),
        ("{}", "`ssh://bad`: no interface is named"),
    ] {
        place.write("hosts.json", &hosts(bad));
        let said = format!("host `bad` is left out: {why}");
        place.run(&verify).expect(6, &[&said, "1 same"]);
        place.run(&[&verify[..], &["--group", "web"]].concat()).expect(0, &["1 same"]);
        place
            .run(&[&verify[..], &["--group", "rest"]].concat())
            .expect(2, &["every host is left out"]);
    }
}
