//! Wishes that no kernel grants: refused before the first write, by a dry run as well.
#![allow(clippy::unwrap_used, reason = "a failure in a helper is a failed test")]

use latput_knobs::{
    ApplyError, ChangeOutcome, Knob, Place, Refusal, Setting, Value, apply, parse_assignment, plan,
};
use latput_testkit::{FakeInterface, FakeKernel, MemoryCheckpoints, context};

#[test]
fn invalid_values_and_names_touch_nothing() {
    let count = |knob, number| Setting::from([(knob, Value::Count(number))]);
    check_refused(
        "eth0",
        &count(Knob::Mtu, 1),
        "mtu: `1` is too small: give a whole number of bytes from 1280 to 65536, such as `1500`",
    );
    for name in ["", ".", "..", "../eth0", "a b", "eth0:1", "eth0\0", "sixteen-letters-", "a\n"] {
        let error = check_refused(name, &setting("mtu=9000"), "is not an interface name");
        assert!(matches!(error, ApplyError::InvalidName { .. }), "{name:?}: {error}");
        assert_eq!(error.outcome(), ChangeOutcome::Refused(Refusal::Usage));
    }
}

#[test]
fn contradictory_switches_touch_nothing() {
    let refused = |wanted: &str, why: &str| check_refused("eth0", &setting(wanted), why);
    refused("sg=off gso=on", "eth0: gso=on needs sg=on, which would be off");
    refused("sg=off tso=on", "eth0: tso=on needs sg=on, which would be off");
    refused("tso=on tx-checksum=off", "eth0: tso=on needs tx-checksum=on, which would be off");
    refused("rx-gro-hw=on", "eth0: rx-gro-hw=on needs rx-checksum=on, which would be off");
    let mut kernel = FakeKernel::with_interface("eth0", FakeInterface::nic(1));
    let mut store = MemoryCheckpoints::with_fuse(kernel.fuse());
    let wanted = setting("sg=off gso=off tso=off");
    apply(&mut kernel, &mut store, &context(), "eth0", &wanted).unwrap();
}

#[test]
fn no_queue_left_touches_nothing() {
    let mut kernel = FakeKernel::with_interface("eth0", FakeInterface::nic(1));
    for (knob, queues) in
        [(Knob::CombinedChannels, 0), (Knob::RxChannels, 2), (Knob::TxChannels, 2)]
    {
        kernel.set_from_outside("eth0", knob, Place::Device, Value::Count(queues));
    }
    let planned = |wanted: &str| plan(&kernel, "eth0", &setting(wanted));
    let refused = |wanted: &str, why: &str| {
        let error = planned(wanted).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    };
    refused("rx-channels=0", "rx-channels cannot be set here: no receive queue would be left");
    refused("rx-channels=1 tx-channels=0", "no transmit queue would be left");
    planned("rx-channels=1 tx-channels=1").unwrap();
    planned("combined-channels=1 rx-channels=0 tx-channels=0").unwrap();
}

/// Applies a setting, which must be refused with these words, write nothing and leave no checkpoint.
#[track_caller]
fn check_refused(name: &str, wanted: &Setting, why: &str) -> ApplyError {
    let mut kernel = FakeKernel::with_interface("eth0", FakeInterface::nic(1));
    let mut store = MemoryCheckpoints::with_fuse(kernel.fuse());
    let before = kernel.state("eth0");
    let error = apply(&mut kernel, &mut store, &context(), name, wanted).unwrap_err();
    assert!(error.to_string().contains(why), "{error}");
    assert!(kernel.written().is_empty() && store.is_clear());
    assert_eq!(kernel.state("eth0"), before);
    assert_eq!(plan(&kernel, name, wanted).unwrap_err().to_string(), error.to_string());
    error
}

fn setting(text: &str) -> Setting {
    text.split_whitespace().map(|word| parse_assignment(word).unwrap()).collect()
}
