//! The fakes pass the body that the real kernel must pass, and kernels that lie do not.

use std::panic::{AssertUnwindSafe, catch_unwind};

use latput_knobs::{KernelErrorKind, Knob, Tier};
use latput_testkit::{FakeInterface, FakeKernel, Fault, conformance};

#[test]
fn every_fake_interface_conforms() {
    for interface in [
        FakeInterface::veth(2),
        FakeInterface::veth_without_device_values(2),
        FakeInterface::veth_with_napi_memory(2),
        FakeInterface::nic(4),
        FakeInterface::without_napi_values(1),
    ] {
        let mut kernel = FakeKernel::with_interface("eth0", interface);
        assert_eq!(conformance(&mut kernel, "eth0"), settable());
    }
}

#[test]
fn absent_knobs_are_left_out() {
    let mut kernel =
        FakeKernel::with_interface("eth0", FakeInterface::veth(1).without_knob(Knob::Tso));
    kernel.inject_fault(Knob::Mtu, Fault::ReadOnly);
    let settable = conformance(&mut kernel, "eth0");
    assert_eq!(settable.len(), self::settable().len() - 2);
    assert!(!settable.contains(&Knob::Tso) && !settable.contains(&Knob::Mtu));
}

#[test]
fn dishonest_kernel_fails() {
    check_fails(Fault::Ignore);
    check_fails(Fault::Round(512));
    check_fails(Fault::Refuse(KernelErrorKind::Busy));
    check_fails(Fault::Unreadable(KernelErrorKind::Malformed));
    check_fails(Fault::Vanish);
}

/// Every knob but those that a driver reads only when it is loaded.
fn settable() -> Vec<Knob> {
    Knob::ALL.iter().copied().filter(|knob| knob.spec().tier != Tier::Reload).collect()
}

#[track_caller]
fn check_fails(fault: Fault) {
    let mut kernel = FakeKernel::with_interface("eth0", FakeInterface::nic(1));
    kernel.inject_fault(Knob::Txqueuelen, fault);
    let ended = catch_unwind(AssertUnwindSafe(|| conformance(&mut kernel, "eth0")));
    assert!(ended.is_err(), "{fault:?} was not noticed");
}
