//! Interrupts whose CPUs are kept, and irqbalance, which would move them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use latput_testkit::needs;

use crate::Place;
use crate::keep::{place_with_root, read_tree};

/// The unit of Debian 12.
const UNIT: (&str, &str) = (
    "usr/lib/systemd/system/irqbalance.service",
    "[Unit]\nDescription=irqbalance daemon\n[Service]\nEnvironmentFile=-/etc/default/irqbalance\n\
     ExecStart=/usr/sbin/irqbalance --foreground $IRQBALANCE_ARGS\n",
);
const KEEP: [&str; 6] = ["keep", "nic7", "smp-affinity=1", "--root", "root", "--yes"];
const DROP_IN: &str = "etc/systemd/system/irqbalance.service.d/50-latput-nic7.conf";
const SCRIPT: &str = "etc/latput/irqbalance/nic7";

/// A root with irqbalance, and more files.
fn prepare_root(more: &[(&str, &str)]) -> Place {
    let place = place_with_root(&[&[UNIT], more].concat());
    fs::create_dir_all(place.path("root/etc/systemd/system")).unwrap();
    place
}

#[test]
fn irqbalance_is_told_of_kept_interrupts() {
    let place = prepare_root(&[]);
    let root = place.path("root");
    let before = read_tree(&root);
    place.run(&KEEP).expect(0, &["latput-affinity-nic7.service", DROP_IN, SCRIPT]);
    let drop_in = fs::read_to_string(root.join(DROP_IN)).unwrap();
    let command = "ExecStart=\nExecStart=/usr/sbin/irqbalance --foreground $IRQBALANCE_ARGS \
                   --policyscript=/etc/latput/irqbalance\n";
    assert!(drop_in.ends_with(command), "{drop_in}");
    let mode = fs::metadata(root.join(SCRIPT)).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o755);
    place.run(&["keep", "--check", "--root", "root"]).expect(8, &[DROP_IN, "whole"]);
    place.run(&KEEP).expect(0, &["nothing to change"]);
    place.run(&["keep", "--remove", "--root", "root", "--yes"]).expect(0, &[]);
    assert_eq!(read_tree(&root), before);
}

#[test]
fn irqbalance_policy_of_somebody_stays() {
    for (file, text) in [
        ("etc/default/irqbalance", "IRQBALANCE_ARGS=\"--policyscript=/etc/own\"\n"),
        ("etc/sysconfig/irqbalance", "IRQBALANCE_ARGS='-l /etc/own'\n"),
        (
            "etc/systemd/system/irqbalance.service.d/own.conf",
            "[Service]\nExecStart=\nExecStart=/usr/sbin/irqbalance -f --policyscript /etc/own\n",
        ),
    ] {
        let place = prepare_root(&[(file, text)]);
        let kept = place.run(&KEEP);
        kept.expect(0, &["has a policy script of its own", "`ban=true`", "of nic7"]);
        assert!(!place.path("root").join(DROP_IN).exists(), "{file}");
    }
    let own = "[Service]\nExecStart=\nExecStart=/opt/irqbalance -f\n";
    let commented = ("etc/default/irqbalance", "#IRQBALANCE_ARGS=--policyscript=/etc/own\n");
    let place =
        prepare_root(&[("etc/systemd/system/irqbalance.service.d/own.conf", own), commented]);
    place.run(&KEEP).expect(0, &["ExecStart=/opt/irqbalance -f --policyscript="]);
}

/// Whoever wrote the record of an image must not have latput write a program.
#[test]
fn script_of_forged_record_is_refused() {
    let place = prepare_root(&[]);
    place.run(&KEEP).expect(0, &[]);
    let record = place.path("root/var/lib/latput/keep/nic7.json");
    let text = fs::read_to_string(&record).unwrap();
    fs::write(&record, text.replace("echo ban=true", "echo owned")).unwrap();
    for args in [&KEEP[..], &["keep", "--remove", "--root", "root", "--yes", "--force"]] {
        place.run(args).expect(1, &["latput writes no such", SCRIPT]);
    }
    assert!(!fs::read_to_string(place.path("root").join(SCRIPT)).unwrap().contains("owned"));
}

/// Two cards with two interrupts each; `nic7` is of the first. `$1` is the folder of the scripts, `$2` a folder to use.
const BALANCE: &str = r#"
set -e
mkdir -p "$2/sys/devices/system" "$2/sys/class/net/nic7"
cp -r /sys/devices/system/cpu /sys/devices/system/node "$2/sys/devices/system/" 2>/dev/null || true
card() {
    card="$2/sys/bus/pci/devices/$1"
    mkdir -p "$card/msi_irqs"
    echo 0x020000 >"$card/class"
    echo -1 >"$card/numa_node"
    echo 0 >"$card/irq"
    for irq in $3; do
        echo msix >"$card/msi_irqs/$irq"
        mkdir -p "$2/irq/$irq"
        echo 3 >"$2/irq/$irq/smp_affinity"
        echo " $irq: 1000 0 PCI-MSI $irq-edge nic-$irq" >>"$2/interrupts"
    done
}
echo "           CPU0       CPU1" >"$2/interrupts"
card 0000:00:03.0 "$2" "25 26"
card 0000:00:04.0 "$2" "27 28"
ln -s ../../../bus/pci/devices/0000:00:03.0 "$2/sys/class/net/nic7/device"
mount --bind "$2/sys" /sys
mount --bind "$2/interrupts" /proc/interrupts
mount --bind "$2/irq" /proc/irq
timeout -k 1 5 irqbalance --foreground --debug "--policyscript=$1" 2>&1 || true
"#;

#[needs("root", "irqbalance")]
#[test]
fn irqbalance_leaves_kept_interrupts() {
    let place = prepare_root(&[]);
    place.run(&KEEP).expect(0, &[]);
    let scripts = place.path("root").join(SCRIPT);
    let mut balance = Command::new("unshare");
    balance.args(["-m", "sh", "-c", BALANCE, "balance"]).arg(scripts.parent().unwrap());
    let said = balance.arg(place.path("tree")).output().unwrap();
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    for irq in [25, 26] {
        assert!(said.contains(&format!("IRQ {irq} was BANNED")), "{irq}: {said}");
    }
    for irq in [27, 28] {
        assert!(said.contains(&format!("Adding IRQ {irq} to database")), "{irq}: {said}");
    }
}
