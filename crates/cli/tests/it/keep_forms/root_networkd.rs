//! Files that netplan generates from what `keep` writes, as networkd applies them.

use std::fs;
use std::process::Command;

use latput_testkit::needs;

use crate::root_keep::prepare_interfaces;
use crate::{print_note, run_program};

/// Interfaces with their section of a netplan file. networkd makes those that are not there.
const INTERFACES: [(&str, &str); 3] = [
    ("nic7", "ethernets:\n    nic7:\n      link-local: []\n"),
    (
        "vlan7",
        "ethernets:\n    nic7:\n      link-local: []\n  vlans:\n    vlan7:\n      id: 7\n      link: nic7\n      link-local: []\n",
    ),
    ("br7", "bridges:\n    br7:\n      link-local: []\n"),
];

/// Runs networkd with the files of `$2` until the interface `$1` has the MTU `$3`, or for ten seconds, and prints the MTU. It
/// believes to be in a container, where no udev tells it of interfaces: `/sys` is read-only there.
const APPLY: &str = r#"
mount -t proc none /proc
mount -o remount,bind,ro /sys
mount -t tmpfs none /run
mount -t tmpfs none /etc/systemd/network
mkdir -p /run/systemd/netif/links /run/systemd/netif/leases /run/systemd/netif/lldp
chown -R systemd-network: /run/systemd/netif
cp -r "$2/run/systemd/network" /run/systemd/
chmod -R a+rX /run/systemd/network
/usr/lib/systemd/systemd-networkd >/run/said 2>&1 &
daemon=$!
for _ in $(seq 100); do
    mtu=$(cat "/sys/class/net/$1/mtu" 2>/dev/null)
    [ "$mtu" = "$3" ] && break
    sleep 0.1
done
kill "$daemon"
echo "$mtu"
[ "$mtu" = "$3" ] || cat /run/said
"#;

#[needs("root", "ip", "netplan", "unshare", "/usr/lib/systemd/systemd-networkd")]
#[test]
fn networkd_applies_kept_netplan() {
    for (interface, section) in INTERFACES {
        let place = prepare_interfaces();
        let root = place.path("root");
        fs::create_dir_all(root.join("etc/netplan")).unwrap();
        let text = format!("network:\n  version: 2\n  renderer: networkd\n  {section}");
        fs::write(root.join("etc/netplan/50-own.yaml"), text).unwrap();
        let kind = ["vlan", "bridge"].into_iter().find(|kind| interface.starts_with(&kind[..2]));
        if let Some(kind) = kind
            && !has_kind(kind)
        {
            print_note(&format!("this kernel has no {kind}"));
            continue;
        }
        let keep = ["keep", interface, "mtu=1400", "--root", "root", "--yes"];
        place.run(&keep).expect(0, &["etc/netplan/50-own.yaml"]);
        run_program(&["netplan", "generate", "--root-dir", root.to_str().unwrap()]);
        let apply = ["-m", "-p", "-f", "env", "container=other", "sh", "-c", APPLY, "apply"];
        let mut networkd = Command::new("unshare");
        networkd.args(apply).arg(interface).arg(&root).arg("1400");
        let said = networkd.output().unwrap();
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        assert_eq!(said.lines().next(), Some("1400"), "{interface}: {said}");
    }
}

/// Whether this kernel has interfaces of a kind that lie on others.
fn has_kind(kind: &str) -> bool {
    let words =
        if kind == "vlan" { "link nic7 name try7 type vlan id 9" } else { "name try7 type bridge" };
    let ip = |words: &str| Command::new("ip").args(words.split(' ')).output().unwrap();
    ip(&format!("link add {words}")).status.success() && ip("link del try7").status.success()
}
