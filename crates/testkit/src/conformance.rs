//! What every kernel, fake or real, must do for the transaction to keep its promises.

use latput_knobs::{
    Capability, KernelErrorKind, KernelRead, KernelWrite, Knob, Place, Restored, Setting, State,
    Value, apply, plan, restore,
};
use latput_units::{CpuId, Nanos};

use crate::checkpoints::MemoryCheckpoints;

/// No interface is called this.
const NOBODY: &str = "nobody-has-this"; // 15 bytes, the longest name

/// Sets every knob of `interface` that can be set, one by one and then all at once, reads it back and
/// restores it; panics where the kernel does not do what was asked. Gives back the knobs it has set,
/// so that the caller can check that they are those it expects.
///
/// The interface must be one that may be disturbed, with a queue at least and values of its own.
#[track_caller]
pub fn conformance(kernel: &mut dyn KernelWrite, interface: &str) -> Vec<Knob> {
    let before = read_all(kernel, interface);
    let settable: Vec<Knob> = Knob::ALL
        .iter()
        .copied()
        .filter(|knob| matches!(kernel.capability(interface, *knob), Capability::Settable(_)))
        .collect();
    let wanted = |knob| (knob, another_value(&before, knob));
    for &knob in &settable {
        set_and_restore(kernel, interface, &Setting::from([wanted(knob)]), |_| {});
        assert_eq!(read_all(kernel, interface), before, "{knob} was not restored");
    }
    // GRO may take the NAPIs and their knobs away, so it is not set with them but over them: its
    // restoration must bring back what they then hold.
    let (gro, others): (Setting, Setting) =
        settable.iter().map(|knob| wanted(*knob)).partition(|(knob, _)| *knob == Knob::Gro);
    set_and_restore(kernel, interface, &others, |kernel| {
        let held = read_all(kernel, interface);
        if !gro.is_empty() {
            set_and_restore(kernel, interface, &gro, |_| {});
        }
        assert_eq!(read_all(kernel, interface), held, "GRO did not give back what it reset");
    });
    assert_eq!(read_all(kernel, interface), before, "all at once were not restored");
    for &knob in &settable {
        check_refusals(kernel, interface, knob, &before);
    }
    assert_eq!(read_all(kernel, interface), before, "a refused write left something");
    settable
}

/// Every value that can be read; checks that each answer could be true.
#[track_caller]
fn read_all(kernel: &dyn KernelWrite, interface: &str) -> State {
    let mut state = State::default();
    for &knob in Knob::ALL {
        let capability = kernel.capability(interface, knob);
        match kernel.read(interface, knob) {
            Ok(places) => {
                assert!(!matches!(capability, Capability::Absent(_)), "{knob}: read, yet absent");
                assert!(!places.is_empty(), "{knob}: no place");
                assert!(places.windows(2).all(|pair| pair[0].0 < pair[1].0), "{knob}: {places:?}");
                assert!(places.iter().all(|(_, value)| value.kind() == knob.spec().kind));
                state.0.extend(places.into_iter().map(|(place, value)| ((knob, place), value)));
            }
            Err(error) => {
                assert_eq!(error.kind, KernelErrorKind::Unsupported, "{error}");
                assert!(matches!(capability, Capability::Absent(_)), "{knob}: {capability:?}");
            }
        }
    }
    state
}

/// An allowed value that no place of the knob has.
fn another_value(state: &State, knob: Knob) -> Value {
    let cpu = |cpu| Value::Cpus([CpuId(cpu)].into_iter().collect());
    let candidates = match knob {
        Knob::Mtu => [1400, 1300, 1350].map(Value::Count),
        Knob::Txqueuelen => [777, 888, 999].map(Value::Count),
        Knob::NapiDeferHardIrqs => [7, 8, 9].map(Value::Count),
        Knob::GroFlushTimeout => [123, 124, 125].map(|us| Value::Time(Nanos::from_us(us))),
        // CPU 0 is the one that every host has.
        Knob::RpsCpus => [cpu(0), Value::Cpus([].into_iter().collect()), cpu(1)],
        Knob::Gro | Knob::Gso | Knob::Tso | Knob::Threaded => {
            [true, false, true].map(Value::Switch)
        }
    };
    let taken = |value: &Value| {
        state.0.iter().any(|((k, _), found)| *k == knob && knob.spec().same(found, value))
    };
    let [first, second, third] = candidates;
    [first.clone(), second, third].into_iter().find(|value| !taken(value)).unwrap_or(first)
}

/// Sets, reads back, does something in between, and restores.
#[track_caller]
fn set_and_restore(
    kernel: &mut dyn KernelWrite,
    interface: &str,
    desired: &Setting,
    meanwhile: impl FnOnce(&mut dyn KernelWrite),
) {
    let context = crate::context();
    let mut store = MemoryCheckpoints::default();
    let applied = apply(&mut *kernel, &mut store, &context, interface, desired)
        .unwrap_or_else(|error| panic!("{desired:?}: {error:?}"));
    assert!(!applied.changes.is_empty(), "{desired:?} changed nothing");
    for (&knob, wanted) in desired {
        let places = kernel.read(interface, knob).expect("a knob just set is readable");
        for (place, found) in places {
            assert!(knob.spec().same(wanted, &found), "{knob} ({place}): {found}, not {wanted}");
        }
    }
    let again = plan(&*kernel, interface, desired);
    assert_eq!(again, Ok(vec![]), "set again, it would change");
    meanwhile(&mut *kernel);
    let restored = restore(&mut *kernel, &mut store, &context, &applied.undo);
    assert!(matches!(restored, Ok(Restored::Done { .. })), "{restored:?}");
    assert!(store.is_clear());
}

/// Asks for what cannot be.
#[track_caller]
fn check_refusals(kernel: &mut dyn KernelWrite, interface: &str, knob: Knob, before: &State) {
    let value = another_value(before, knob);
    let error = kernel.read(NOBODY, knob).expect_err("there is no such interface");
    assert_eq!(error.kind, KernelErrorKind::NoInterface, "read {knob}: {error}");
    let error = kernel
        .write(NOBODY, knob, Place::Device, &value)
        .expect_err("there is no such interface to write");
    assert_eq!(error.kind, KernelErrorKind::NoInterface, "write {knob}: {error}");
    for place in [Place::RxQueue(4095), Place::Napi(4095)] {
        assert!(kernel.write(interface, knob, place, &value).is_err(), "{knob} at {place}");
    }
}
