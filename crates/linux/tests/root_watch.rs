//! Changes that somebody else makes are noticed: at once where the kernel tells, and by reading again
//! where it does not. Needs root.
#![allow(clippy::unwrap_used, reason = "a failure in a helper is a failed test")]

use std::process::Command;

use latput_knobs::transaction::Change;
use latput_knobs::{KernelRead, Knob, Place, Value, parse_assignment};
use latput_linux::watch::Watch;
use latput_linux::{Lab, LabOptions, LinuxKernel, lab};
use latput_testkit::{needs, write};
use latput_units::Nanos;

const KNOBS: [Knob; 6] =
    [Knob::Mtu, Knob::Txqueuelen, Knob::Qdisc, Knob::Gso, Knob::RpsCpus, Knob::GroFlushTimeout];
/// No notice takes so long.
const SOON: Nanos = Nanos::from_s(20);
/// No test takes so long: what is seen before was told by the kernel.
const NEVER: Nanos = Nanos::from_s(3600);

#[needs("root")]
#[test]
fn notified_change_needs_no_second_read() {
    in_lab(|kernel| {
        let mut watch = watch(kernel, NEVER);
        assert_eq!(watch.poll(kernel).unwrap(), []);
        for (command, knob, value) in [
            ("ip link set lat0 mtu 1400", Knob::Mtu, "1400"),
            ("ip link set lat0 txqueuelen 77", Knob::Txqueuelen, "77"),
            ("tc qdisc replace dev lat0 root pfifo limit 5", Knob::Qdisc, "pfifo limit=5"),
        ] {
            somebody(command);
            let change = one(&watch.next(kernel, SOON).unwrap());
            assert_eq!(change.knob, knob, "{command}");
            assert_eq!(change.to.to_string(), value_of(knob, value).to_string(), "{command}");
        }
        // Told once, and the same again is no change.
        somebody("ip link set lat0 mtu 1400");
        assert_eq!(watch.next(kernel, Nanos::from_ms(200)).unwrap(), []);
    });
}

#[needs("root")]
#[test]
fn offloads_are_told_of_by_ethtool() {
    in_lab(|kernel| {
        let mut watch = watch(kernel, NEVER);
        let is_on = kernel.read(lab::INTERFACE, Knob::Gso).unwrap()[0].1 == Value::Switch(true);
        somebody_writes(if is_on { "gso=off" } else { "gso=on" });
        let changes = watch.next(kernel, SOON).unwrap();
        assert!(changes.iter().any(|change| change.knob == Knob::Gso), "{changes:?}");
    });
}

#[needs("root")]
#[test]
fn silent_change_is_found_by_reading() {
    in_lab(|kernel| {
        let mut blind = watch(kernel, NEVER);
        let mut watch = watch(kernel, Nanos::from_ms(50));
        somebody("echo 30000 > /sys/class/net/lat0/gro_flush_timeout");
        somebody("echo 1 > /sys/class/net/lat0/queues/rx-0/rps_cpus");
        assert_eq!(blind.next(kernel, Nanos::from_ms(200)).unwrap(), [], "the kernel is silent");
        let changes = watch.next(kernel, SOON).unwrap();
        let knobs: Vec<Knob> = changes.iter().map(|change| change.knob).collect();
        assert!(
            knobs.contains(&Knob::GroFlushTimeout) && knobs.contains(&Knob::RpsCpus),
            "{knobs:?}"
        );
        assert_ne!(blind.check(kernel), [], "asked, it reads");
    });
}

#[needs("root")]
#[test]
fn own_changes_and_other_interfaces_are_nobodys() {
    in_lab(|kernel| {
        let mut watch = watch(kernel, NEVER);
        somebody("ip link set lat0 mtu 1400");
        watch.expect(kernel, KNOBS);
        somebody("ip link set lo mtu 1400");
        somebody("ip link add other0 type veth peer name other1");
        assert_eq!(watch.next(kernel, Nanos::from_ms(200)).unwrap(), []);
        somebody("ip link set lat0 mtu 1300");
        let change = one(&watch.next(kernel, SOON).unwrap());
        assert_eq!(change.from, value_of(Knob::Mtu, "1400"));
    });
}

#[needs("root")]
#[test]
fn removed_interface_is_no_change() {
    in_lab(|kernel| {
        let mut watch = watch(kernel, Nanos::from_ms(50));
        somebody("ip link del lat0");
        assert_eq!(watch.next(kernel, Nanos::from_ms(200)).unwrap(), []);
        let error = Watch::open("lat0", NEVER).unwrap_err();
        assert!(error.to_string().contains("lat0"), "{error}");
    });
}

fn in_lab(test: impl FnOnce(&LinuxKernel) + Send) {
    let lab = Lab::build(&LabOptions::default()).unwrap();
    lab.b.run_in(|| test(&LinuxKernel::open().unwrap())).unwrap();
}

fn watch(kernel: &LinuxKernel, every: Nanos) -> Watch {
    let mut watch = Watch::open(lab::INTERFACE, every).unwrap();
    watch.expect(kernel, KNOBS);
    watch
}

/// Another process in the same namespace.
fn somebody(command: &str) {
    assert!(Command::new("sh").args(["-c", command]).status().unwrap().success(), "{command}");
}

/// Somebody without ethtool: a second kernel of ours is another to the first.
fn somebody_writes(assignment: &str) {
    let (knob, value) = parse_assignment(assignment).unwrap();
    let mut kernel = LinuxKernel::open().unwrap();
    write(&mut kernel, lab::INTERFACE, knob, Place::Device, &value).unwrap();
}

fn value_of(knob: Knob, text: &str) -> Value {
    knob.parse_value(text).unwrap()
}

#[track_caller]
fn one(changes: &[Change]) -> Change {
    let [change] = changes else { panic!("{changes:?}") };
    change.clone()
}
