//! `latput keep` where files of others count before its own, or would be lost by it.

use std::fs;
use std::os::unix::fs::symlink;

use crate::keep::{place_with_root, read_tree};

const NETPLAN: (&str, &str) =
    ("etc/netplan/01.yaml", "network: {version: 2, ethernets: {nic7: {dhcp4: true}}}\n");
const KEEP: [&str; 7] = ["keep", "nic7", "mtu=1400", "gro=off", "--root", "root", "--yes"];

/// Each has the files of a host, further words, and the reason.
#[test]
fn file_that_counts_before_ours_is_named() {
    let network = "[Match]\nName=nic7\n[Link]\nMTUBytes=1500\n";
    let link = "[Match]\nOriginalName=nic7\n[Link]\nGenericReceiveOffload=yes\n";
    let drop_in = "[Link]\nGenericReceiveOffload=yes\n";
    let rule =
        |what: &str| format!("SUBSYSTEM==\"net\", ACTION==\"add\", KERNEL==\"nic*\", {what}\n");
    let attribute = rule("ATTR{mtu}=\"1500\"");
    let program = rule("RUN+=\"/sbin/ip link set dev %k mtu 1500\"");
    let last = rule("RUN:=\"/bin/true\"");
    let ethtool = "iface nic7 inet static\n  offload-gro on\n";
    let logical = "auto nic7=home\niface home inet dhcp\n  mtu 1500\n";
    let netplan = |file| vec![NETPLAN, file];
    let udev = &["--format", "udev"][..];
    for (files, words, why) in [
        (netplan(("etc/systemd/network/05-x.network", network)), &[][..], "05-x.network sets"),
        (
            netplan((
                "etc/systemd/network/10-netplan-nic7.network.d/x.conf",
                "[Link]\nMTUBytes=1500\n",
            )),
            &[],
            "x.conf sets `MTUBytes=1500`",
        ),
        (netplan(("etc/systemd/network/05-x.link", link)), &[], "05-x.link sorts before"),
        (
            netplan(("etc/systemd/network/10-netplan-nic7.link.d/x.conf", drop_in)),
            &[],
            "x.conf sets `GenericReceiveOffload=yes`",
        ),
        (netplan(("run/netplan/90-latput-nic7.yaml", "network: {}\n")), &[], "takes its place"),
        (netplan(("etc/netplan/02.yaml", "network: {bonds: {b: {mtu: abc}}}\n")), &[], "no number"),
        (vec![("etc/udev/rules.d/95-x.rules", &attribute)], &[], "95-x.rules sets `mtu 1500`"),
        (vec![("etc/udev/rules.d/10-x.rules", &program)], &[], "10-x.rules sets `mtu 1500`"),
        (vec![("etc/udev/rules.d/95-x.rules", &program)], udev, "95-x.rules sorts later and sets"),
        (vec![("etc/udev/rules.d/10-x.rules", &last)], udev, "lets no other `RUN` count"),
        (vec![("etc/network/interfaces", ethtool)], &[], "ifupdown runs `ethtool -K`"),
        (vec![("etc/network/interfaces", logical)], &[], "ifupdown sets `mtu 1500`"),
    ] {
        let place = place_with_root(&files);
        let before = read_tree(&place.path("root"));
        place.run(&[&KEEP[..], words].concat()).expect(1, &[why]);
        assert_eq!(read_tree(&place.path("root")), before, "{files:?}");
    }
}

/// Each file has the name of one of latput's, and nothing of latput.
#[test]
fn file_of_somebody_is_not_overwritten_unasked() {
    let own = "network: {ethernets: {nic7: {dhcp6: true}, nic8: {dhcp4: true}}}\n";
    let link = "[Match]\nOriginalName=nic7\n[Link]\nTransmitQueueLength=99\n";
    let rule = "SUBSYSTEM==\"net\", KERNEL==\"nic7\", ATTR{tx_queue_len}=\"99\"\n";
    for (files, words) in [
        (vec![NETPLAN, ("etc/netplan/90-latput-nic7.yaml", own)], &[][..]),
        (vec![("etc/systemd/network/10-latput-nic7.link", link)], &[]),
        (vec![("etc/udev/rules.d/90-latput-nic7.rules", rule)], &["--format", "udev"]),
    ] {
        let place = place_with_root(&files);
        let before = read_tree(&place.path("root"));
        let keep = [&KEEP[..], words].concat();
        place.run(&keep).expect(1, &["is there and not by `latput keep`", "--force"]);
        assert_eq!(read_tree(&place.path("root")), before);
        place.run(&[&keep[..], &["--force"]].concat()).expect(0, &[]);
        place.run(&["keep", "--remove", "nic7", "--root", "root", "--yes"]).expect(0, &[]);
        assert_eq!(read_tree(&place.path("root")), before);
    }
}

#[test]
fn hidden_and_marked_files_are_read_as_netplan() {
    let text = NETPLAN.1;
    let hidden = place_with_root(&[("etc/netplan/.50.yaml", text)]);
    hidden.run(&KEEP).expect(0, &["no other program manages the interface"]);
    let marked = format!("\u{feff}{text}");
    let marked = place_with_root(&[("etc/netplan/01.yaml", &marked)]);
    marked.run(&KEEP).expect(0, &["01.yaml configures nic7"]);
    let place = place_with_root(&[]);
    fs::create_dir_all(place.path("root/etc/netplan")).unwrap();
    let utf16: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
    fs::write(place.path("root/etc/netplan/01.yaml"), [&[0xff, 0xfe], &utf16[..]].concat())
        .unwrap();
    place.run(&KEEP).expect(1, &["01.yaml: it cannot be read as a text of UTF-8"]);
}

#[test]
fn netplan_id_stays_as_it_is_written() {
    for id in ["007", "0x1F", "True", "null"] {
        let text = format!("network: {{ethernets: {{{id}: {{match: {{name: nic7}}}}}}}}\n");
        let place = place_with_root(&[("etc/netplan/01.yaml", &text)]);
        place.run(&KEEP).expect(0, &["01.yaml configures nic7"]);
        let kept = fs::read_to_string(place.path("root/etc/netplan/90-latput-nic7.yaml")).unwrap();
        assert!(kept.contains(&format!("\n    {id}:\n")), "{kept}");
    }
}

#[test]
fn settings_of_displaced_link_file_stay() {
    let default = "[Match]\nOriginalName=*\n[Link]\nNamePolicy=keep kernel\nMTUBytes=1600\n";
    let drop_in = "[Link]\nNamePolicy=\nName=lan0\nTransmitQueueLength=77\n";
    let place = place_with_root(&[
        ("usr/lib/systemd/network/99-default.link", default),
        ("etc/systemd/network/99-default.link.d/x.conf", drop_in),
    ]);
    place.run(&KEEP).expect(0, &[]);
    let kept = place.path("root/etc/systemd/network/10-latput-nic7.link");
    let kept = fs::read_to_string(kept).unwrap();
    let lines =
        "NamePolicy=\nName=lan0\nTransmitQueueLength=77\nMTUBytes=1400\nGenericReceiveOffload=no\n";
    assert!(kept.ends_with(lines), "{kept}");
}

#[test]
fn tuned_options_of_the_interface_stay() {
    let base = "[net]\ntype=net\ndevices=nic*\nfeatures=gro on tso off\nwake_on_lan=d\n[other]\ntype=net\n";
    let site = "[main]\ninclude=base\n[net]\ntxqueuelen=5000\n";
    let files = |base| {
        [
            ("etc/tuned/active_profile", "site\n"),
            ("etc/tuned/site/tuned.conf", site),
            ("usr/lib/tuned/base/tuned.conf", base),
        ]
    };
    let place = place_with_root(&files(base));
    place.run(&KEEP).expect(0, &["TuneD is active with profile site"]);
    let kept = fs::read_to_string(place.path("root/etc/tuned/latput-nic7/tuned.conf")).unwrap();
    let section =
        "priority=-1\nmtu=1400\nfeatures=tso off gro off\ntxqueuelen=5000\nwake_on_lan=d\n";
    assert!(kept.ends_with(section), "{kept}");
    let unknown = base.replace("devices=nic*", "devices_udev_regex=(ID=1)");
    let place = place_with_root(&files(&unknown));
    place.run(&KEEP).expect(2, &["devices_udev_regex", "--format udev"]);
}

#[test]
fn tuned_counts_only_where_it_runs() {
    let place = place_with_root(&[("etc/tuned/active_profile", "site\n")]);
    let units = place.path("root/etc/systemd/system");
    fs::create_dir_all(&units).unwrap();
    symlink("/dev/null", units.join("tuned.service")).unwrap();
    let by_udev = ["no other program manages the interface"];
    place.run(&[&KEEP[..], &["--dry-run"]].concat()).expect(0, &by_udev);
    fs::remove_file(units.join("tuned.service")).unwrap();
    place.run(&[&KEEP[..], &["--dry-run"]].concat()).expect(0, &["TuneD is active"]);
    fs::remove_file(place.path("root/usr/sbin/tuned")).unwrap();
    place.run(&KEEP).expect(0, &by_udev);
}

#[test]
fn check_sees_that_netplan_lost_the_entry() {
    for (file, text, why) in [
        (
            "etc/netplan/01.yaml",
            "network: {ethernets: {nic8: {}}}\n",
            "no other netplan file has nic7",
        ),
        ("etc/netplan/02.yaml", "network: {bonds: {b: {mtu: abc}}}\n", "is no number"),
        (
            "etc/systemd/network/05-x.network",
            "[Match]\nName=nic7\n[Link]\nMTUBytes=1500\n",
            "05-x.network",
        ),
    ] {
        let place = place_with_root(&[NETPLAN]);
        place.run(&KEEP).expect(0, &[]);
        let check = ["keep", "--check", "--root", "root"];
        place.run(&check).expect(0, &["whole"]);
        let path = place.path("root").join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        place.run(&check).expect(8, &[why]);
    }
}
