//! A change on a card goes back with all that its driver moves, judged by `ethtool` and `/proc/irq`. The cards are those
//! of the guest that `xtask/guest.sh` boots.

use std::process::Command;

use latput_testkit::isolate;

use crate::Place;
use crate::root_uppers::has_uppers;
use crate::root_whole::{WAITS, run_shell};

/// A table that no driver makes by itself, of four queues, and CPUs that none gives.
const CUSTOM: &str = "ethtool -X c0 weight 4 3 2 1
    cd /sys/class/net/c0/device && for irq in $(ls msi_irqs ../msi_irqs); do echo 2 > /proc/irq/$irq/smp_affinity; done";
/// All that a change may move.
const LOOK: &str = "ethtool -x c0; ethtool -l c0; ethtool -g c0; ethtool -c c0; ethtool -k c0; ethtool -n c0; ethtool -a c0; ip -o link show c0 | grep -o 'mtu [0-9]*'
    grep . /sys/class/net/c0/queues/*/[rx]ps_* /proc/sys/net/ipv6/conf/c0/mtu
    cd /sys/class/net/c0/device
    grep . $(find msi_irqs ../msi_irqs -type f | sed 's,.*/\\(.*\\),/proc/irq/\\1/smp_affinity,')";

#[test]
fn virtio_rss_and_interrupts_go_back() {
    let Some(card) = GuestCard::of_driver("virtio_net") else { return };
    run_shell("ethtool -L c0 combined 4; ip link set c0 up");
    run_shell(CUSTOM);
    assert!(run_shell(LOOK).contains("/smp_affinity:2"), "{}", run_shell(LOOK));
    // The driver takes no fewer queues than the table has.
    assert!(!card.goes_back("combined-channels=2"));
    for change in [
        "rx-ring=128",
        "tx-ring=128",
        "rss-table=equal 2",
        "gro=off",
        "tx-checksum=off",
        "mtu=1400",
    ] {
        assert!(card.goes_back(change), "{change}");
    }
    run_shell("ethtool -X c0 weight 3 1");
    for change in ["combined-channels=2", "rx-hashing=on", "rx-gro-hw=off"] {
        assert!(card.goes_back(change), "{change}");
    }
}

#[test]
fn vmxnet3_and_bond_lro_go_back() {
    let Some(card) = GuestCard::of_driver("vmxnet3") else { return };
    run_shell("ip link set c0 up");
    for change in ["rx-ring=512", "tx-ring=1024", "lro=off", "rx-checksum=off", "mtu=3000"] {
        assert!(card.goes_back(change), "{change}");
    }
    // Off on a bond would be off on its ports, and on again only on the bond.
    run_shell(
        "ip link add bond0 type bond; ip link set c0 down; ip link set c0 master bond0; ip link set bond0 up",
    );
    let before = run_shell("ethtool -k c0; ethtool -k bond0");
    assert!(before.contains("large-receive-offload: on"), "{before}");
    card.place.run(&["set", "bond0", "lro=off"]).expect(1, &["c0 for good"]);
    assert_eq!(run_shell("ethtool -k c0; ethtool -k bond0"), before);
    run_shell("ip link del bond0");
}

#[test]
fn igb_rss_and_interrupts_go_back() {
    if has_uppers() && name_of("igb").is_none() {
        return crate::print_note("this QEMU has no igb");
    }
    let Some(card) = GuestCard::of_driver("igb") else { return };
    run_shell("ip link set c0 up");
    run_shell(CUSTOM);
    run_shell("ethtool -X c0 weight 3 1");
    assert!(run_shell(LOOK).contains("/smp_affinity:2"), "{}", run_shell(LOOK));
    for change in [
        "rx-usecs=20us",
        "rx-ring=512",
        "tx-ring=128",
        "mtu=2000",
        "rx-checksum=off",
        "rss-table=equal 2",
    ] {
        assert!(card.goes_back(change), "{change}");
    }
}

/// Debian's kernels lack it: `LATPUT_GUEST_MODULES` brings one.
#[test]
fn netdevsim_goes_back() {
    let new = "/sys/bus/netdevsim/new_device";
    if has_uppers() && std::fs::write(new, "1 1 4").is_err() {
        return crate::print_note("this kernel has no netdevsim");
    }
    let Some(card) = GuestCard::of_driver("netdevsim") else { return };
    run_shell("ip link set c0 up; ethtool -G c0 rx 512 tx 512; ethtool -C c0 rx-usecs 30");
    for change in [
        "rx-usecs=20us",
        "rx-frames=7",
        "tx-usecs=9us",
        "rx-ring=256",
        "tx-ring=128",
        "pause-rx=on",
        "mtu=1400",
    ] {
        assert!(card.goes_back(change), "{change}");
    }
}

/// A card of the guest, called `c0`, in a namespace of the test.
struct GuestCard {
    place: Place,
}

impl GuestCard {
    /// The card with this driver. `None` outside the guest, which is told.
    fn of_driver(driver: &str) -> Option<Self> {
        if !has_uppers() {
            crate::print_note("skipped: needs the guest of `cargo xtask ci --only uppers`");
            return None;
        }
        let name = name_of(driver);
        let name = name.unwrap_or_else(|| panic!("the guest has no {driver}"));
        isolate();
        let bring = format!(
            "nsenter --net=/proc/1/ns/net ip link set {name} netns $$ && ip link set {name} name c0"
        );
        let done = Command::new("sh").args(["-c", &bring]).status();
        assert!(done.unwrap().success(), "{name}");
        Some(Self { place: Place::new() })
    }

    /// Makes a change that waits and is put back, and one that is undone. False if the driver refuses it, which changes nothing.
    fn goes_back(&self, change: &str) -> bool {
        let look = || run_shell(LOOK);
        let before = look();
        let set = ["set", "c0", change, "--allow-link-reset"];
        let set = self.place.run(&[&set[..], &WAITS].concat());
        if set.code != Some(0) {
            set.expect(1, &["refused, nothing was changed"]);
            assert_eq!(look(), before, "{change}: refused");
            return false;
        }
        assert_ne!(look(), before, "{change}: moves nothing");
        self.place.run(&["restore"]).expect(0, &["put back c0"]);
        assert_eq!(look(), before, "{change}: restore");
        self.place.run(&["set", "c0", change, "--allow-link-reset"]).expect(0, &["changed"]);
        self.place.run(&["undo", "--allow-link-reset"]).expect(0, &["undid c0"]);
        assert_eq!(look(), before, "{change}: undo");
        true
    }
}

/// The first interface with a driver.
fn name_of(driver: &str) -> Option<String> {
    let found = run_shell(&format!(
        "cd /sys/class/net && for card in *; do ethtool -i $card | grep -q '^driver: {driver}$' && echo $card; done"
    ));
    found.lines().next().map(str::to_owned)
}
