//! `latput keep` where files of others count before its own, or would be lost by it.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use crate::keep::{place_with_root, read_tree};

const NETPLAN: (&str, &str) =
    ("etc/netplan/01.yaml", "network: {version: 2, ethernets: {nic7: {dhcp4: true}}}\n");
const KEEP: [&str; 7] = ["keep", "nic7", "mtu=1400", "gro=off", "--root", "root", "--yes"];

/// Files of a host, further words, and the reason of the refusal.
type Refusal<'a> = (Vec<(&'a str, &'a str)>, &'a [&'a str], &'a str);

#[track_caller]
fn check_refused(cases: &[Refusal<'_>]) {
    for (files, words, why) in cases {
        let place = place_with_root(files);
        let before = read_tree(&place.path("root"));
        place.run(&[&KEEP[..], words].concat()).expect(1, &[why]);
        assert_eq!(read_tree(&place.path("root")), before, "{files:?}");
    }
}

#[test]
fn file_beside_netplan_is_named() {
    let folder = |name: &str| format!("etc/systemd/network/{name}");
    let [early, late] = ["05-x.link", "50-x.link"].map(folder);
    let [of_link, of_network] =
        ["10-netplan-nic7.link.d/x.conf", "10-netplan-nic7.network.d/x.conf"].map(folder);
    let network = "[Match]\nName=nic7\n[Link]\nMTUBytes=1500\n";
    let link = "[Match]\nOriginalName=nic7\n[Link]\nGenericReceiveOffload=yes\n";
    let offload = "[Link]\nGenericReceiveOffload=yes\n";
    let broken = "network: {bonds: {b: {mtu: abc}}}\n";
    let by_netplan = &["--format", "netplan"][..];
    let netplan = |file, text| vec![NETPLAN, (file, text)];
    check_refused(&[
        (netplan("etc/systemd/network/05-x.network", network), &[], "05-x.network sets"),
        (netplan(&of_network, "[Link]\nMTUBytes=1500\n"), &[], "x.conf sets `MTUBytes=1500`"),
        (netplan(&of_link, offload), &[], "x.conf sets `GenericReceiveOffload=yes`"),
        (netplan(&early, link), by_netplan, "that of netplan would not count"),
        (netplan(&late, link), by_netplan, "it would not count beside that of netplan"),
        (netplan("run/netplan/90-latput-nic7.yaml", "network: {}\n"), &[], "takes its place"),
        (netplan("etc/netplan/02.yaml", broken), &[], "no number"),
    ]);
}

#[test]
fn rule_that_undoes_ours_is_named() {
    let rule =
        |what: &str| format!("SUBSYSTEM==\"net\", ACTION==\"add\", KERNEL==\"nic*\", {what}\n");
    let attribute = rule("ATTR{mtu}=\"1500\"");
    let program = rule("RUN+=\"/sbin/ip link set dev %k mtu 1500\"");
    let last = rule("RUN:=\"/bin/true\"");
    let [early, late] = ["etc/udev/rules.d/10-x.rules", "etc/udev/rules.d/95-x.rules"];
    let udev = &["--format", "udev"][..];
    check_refused(&[
        (vec![(late, &attribute)], &[], "95-x.rules sets `mtu 1500`"),
        (vec![(early, &program)], &[], "10-x.rules sets `mtu 1500`"),
        (vec![(late, &program)], udev, "95-x.rules sorts later and sets"),
        (vec![(early, &last)], udev, "lets no other `RUN` count"),
    ]);
}

#[test]
fn program_that_sets_another_value_later_is_named() {
    let interfaces = |text| vec![("etc/network/interfaces", text)];
    let ifcfg = "DEVICE=nic7\nMTU=1400\nETHTOOL_OPTS=\"-K ${DEVICE} gro on\"\n";
    let shared = "etc/NetworkManager/system-connections/any.nmconnection";
    let any_profile = "[connection]\ntype=ethernet\n[ethtool]\nfeature-gro=true\n";
    let shaped = "[Match]\nName=nic7\n[TokenBucketFilter]\nParent=root\nRate=10M\n";
    let default_mtu = "[connection-mtu]\nethernet.mtu=9000\n";
    let tuned = [
        ("etc/tuned/active_profile", "site\n"),
        ("etc/tuned/site/tuned.conf", "[net]\nfeatures=gro on\n"),
        NETPLAN,
    ];
    check_refused(&[
        (
            interfaces("iface nic7 inet dhcp\n  offload-gro on\n"),
            &[],
            "ifupdown sets `ethtool -K gro on`",
        ),
        (
            interfaces("auto nic7=home\niface home inet dhcp\n  mtu 1500\n"),
            &[],
            "ifupdown sets `mtu 1500`",
        ),
        (
            interfaces(
                "iface nic8 inet dhcp\n  up ip link set nic7 mtu 1500\niface nic7 inet dhcp\n",
            ),
            &[],
            "ifupdown sets `mtu 1500`",
        ),
        (
            vec![("etc/sysconfig/network-scripts/ifcfg-nic7", ifcfg)],
            &[],
            "sets `ethtool -K gro on`",
        ),
        (vec![(shared, any_profile)], &[], "NetworkManager sets `ethtool -K gro on`"),
        (
            vec![("etc/NetworkManager/conf.d/mtu.conf", default_mtu)],
            &[],
            "NetworkManager sets `mtu 9000`",
        ),
        (tuned.to_vec(), &[], "TuneD's profile site sets `ethtool -K gro on`"),
        (
            vec![("etc/systemd/network/20-x.network", shaped)],
            &["qdisc=pfifo limit=10"],
            "attaches a root queue discipline by [TokenBucketFilter] afterwards",
        ),
    ]);
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

/// Each has the files of a host and the format that works there.
#[test]
fn healthy_host_is_not_refused() {
    let profile = "[connection]\ntype=ethernet\ninterface-name=nic7\n[ethernet]\n";
    let profile = ("etc/NetworkManager/system-connections/nic7.nmconnection", profile);
    let debian = "[main]\nplugins=ifupdown,keyfile\n[ifupdown]\nmanaged=false\n";
    let debian = ("etc/NetworkManager/NetworkManager.conf", debian);
    let interfaces = ("etc/network/interfaces", "auto nic7\niface nic7 inet dhcp\n");
    let offloads = "iface nic7 inet dhcp\n  post-up /usr/sbin/ethtool -K nic7 tso off gso off\n";
    let other = "[Match]\nMACAddress=52:54:00:12:34:56\n[Link]\nName=lan1\n";
    let own = "[Match]\nOriginalName=nic7\n[Link]\nWakeOnLan=magic\n";
    let of_wifi = "[connection]\nmatch-device=type:wifi\nethernet.mtu=9000\n";
    let unmanaged = "SUBSYSTEM==\"net\", KERNEL==\"nic7\", ENV{NM_UNMANAGED}=\"1\"\n";
    for (files, said) in [
        (vec![debian, interfaces, profile], "ifupdown configures nic7"),
        (vec![profile, NETPLAN], "01.yaml configures nic7"),
        (vec![profile, ("etc/udev/rules.d/90-x.rules", unmanaged)], "no other program manages"),
        (vec![("etc/network/interfaces", offloads)], "ifupdown configures nic7"),
        (vec![NETPLAN, ("etc/systemd/network/10-lan1.link", other)], "01.yaml configures nic7"),
        (vec![NETPLAN, ("etc/systemd/network/50-nic7.link", own)], "it would not count beside"),
        (vec![NETPLAN], "has Wake-on-LAN off"),
        (vec![("etc/NetworkManager/conf.d/x.conf", of_wifi)], "no other program manages"),
    ] {
        let place = place_with_root(&files);
        place.run(&KEEP).expect(0, &[said]);
        place.run(&["keep", "--check", "--root", "root"]).expect(0, &["whole"]);
    }
}

#[test]
fn check_sees_what_came_later() {
    let profile = |more: &str| {
        format!("[connection]\ntype=ethernet\ninterface-name=nic7\n{more}[ethernet]\n")
    };
    let folder = "etc/NetworkManager/system-connections";
    let own = (format!("{folder}/a.nmconnection"), profile(""));
    let later = (format!("{folder}/b.nmconnection"), profile("autoconnect-priority=9\n"));
    let drop_in = "etc/systemd/network/10-latput-nic7.link.d/x.conf".to_owned();
    for (before, (file, text), why) in [
        (Some(own), later, "b.nmconnection goes before it"),
        (None, (drop_in, "[Link]\nMTUBytes=9000\n".to_owned()), "x.conf sets `MTUBytes=9000`"),
    ] {
        let files: Vec<_> =
            before.iter().map(|(file, text)| (file.as_str(), text.as_str())).collect();
        let place = place_with_root(&files);
        place.run(&KEEP).expect(0, &[]);
        let path = place.path("root").join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        place.run(&["keep", "--check", "--root", "root"]).expect(8, &[why]);
    }
}

#[test]
fn second_keep_tells_what_it_drops() {
    let place = place_with_root(&[]);
    place.run(&KEEP).expect(0, &[]);
    let second = ["keep", "nic7", "mtu=1300", "--root", "root", "--yes"];
    place.run(&second).expect(0, &["no longer kept: gro=off: name all that is to be kept"]);
}
