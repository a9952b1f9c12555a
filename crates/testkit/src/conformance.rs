//! The conformance tests that every kernel, fake or real, must pass for the transaction to keep its promises.

use latput_knobs::{
    Capability, KernelErrorKind, KernelRead, KernelWrite, Knob, Limits, Place, Qdisc, Restored,
    Rounding, Scope, Setting, State, Value, ValueKind, apply, plan, restore,
};
use latput_units::{CpuId, CpuSet, IntoMap};

use crate::checkpoints::MemoryCheckpoints;
use crate::lender::write;

/// No interface is called this.
const NOBODY: &str = "nobody-has-this"; // 15 bytes, the longest name

/// Sets every knob of `interface` that can be set to another value, one by one and then all at once,
/// reads it back and restores it; panics where the kernel does not do what was asked. Gives back the knobs it has set,
/// so that the caller can check that they are those it expects.
///
/// The interface must be one that may be disturbed, with a queue at least and values of its own.
#[track_caller]
pub fn conformance(kernel: &mut dyn KernelWrite, interface: &str) -> Vec<Knob> {
    let before = read_all(kernel, interface);
    let wanted: Setting = Knob::ALL
        .iter()
        .filter(|knob| matches!(kernel.capability(interface, **knob), Capability::Settable(_)))
        .filter_map(|knob| {
            let value = another_value(&before, kernel.limits(interface, *knob), *knob)?;
            Some((*knob, value))
        })
        .into_map();
    for (&knob, value) in &wanted {
        let with_needed: Setting = needed_values(knob).chain([(knob, value.clone())]).into_map();
        set_and_restore(kernel, interface, &with_needed, |_| {});
        assert_eq!(read_all(kernel, interface), before, "{knob} was not restored");
    }
    // Switches that others need are on.
    let needed: Setting = Knob::ALL.iter().flat_map(|knob| needed_values(*knob)).into_map();
    let together = wanted.iter().chain(&needed);
    // GRO may take the NAPIs and their knobs away, so it is not set with them but over them: its
    // restoration must bring back what they then hold.
    let (gro, others): (Setting, Setting) =
        together.map(|(k, v)| (*k, v.clone())).partition(|(knob, _)| *knob == Knob::Gro);
    set_and_restore(kernel, interface, &others, |kernel| {
        let held = read_all(kernel, interface);
        if !gro.is_empty() {
            set_and_restore(kernel, interface, &gro, |_| {});
        }
        assert_eq!(read_all(kernel, interface), held, "GRO did not give back what it reset");
    });
    assert_eq!(read_all(kernel, interface), before, "all at once were not restored");
    for (&knob, value) in &wanted {
        check_refusals(kernel, interface, knob, value);
    }
    assert_eq!(read_all(kernel, interface), before, "a refused write left something");
    wanted.into_keys().collect()
}

/// Values of other knobs without which a knob cannot be set.
fn needed_values(knob: Knob) -> impl Iterator<Item = (Knob, Value)> {
    let mq =
        (knob == Knob::QueueQdisc).then(|| (Knob::Qdisc, Value::Qdisc(Qdisc::from_kind("mq"))));
    knob.spec().needs.iter().map(|needed| (*needed, Value::Switch(true))).chain(mq)
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

/// An allowed value that no place of the knob has; `None` where the interface allows but one.
fn another_value(state: &State, limits: Limits, knob: Knob) -> Option<Value> {
    let found: Vec<&Value> =
        state.0.iter().filter(|((k, _), _)| *k == knob).map(|(_, value)| value).collect();
    let taken = |value: &Value| found.iter().any(|found| knob.spec().takes(value, found));
    candidates(knob, limits, found.first().copied()).into_iter().find(|value| !taken(value))
}

/// Values that kernels allow, as different from each other as a knob's rounding needs.
fn candidates(knob: Knob, limits: Limits, found: Option<&Value>) -> Vec<Value> {
    let spec = knob.spec();
    let cpu = |cpu| Value::Cpus([CpuId(cpu)].into_iter().collect());
    let texts = |texts: [&str; 3]| texts.map(|text| knob.parse_value(text).expect(text)).to_vec();
    match spec.kind {
        ValueKind::Switch => [true, false].map(Value::Switch).to_vec(),
        // CPU 0 is the one that every host has.
        ValueKind::Cpus => vec![cpu(0), Value::Cpus(CpuSet::new()), cpu(1)],
        ValueKind::Time => [123, 223, 423]
            .map(|units| Value::Time(spec.time_unit().saturating_mul(units)))
            .to_vec(),
        ValueKind::Qdisc => texts(["pfifo limit=100", "pfifo limit=200", "pfifo limit=300"]),
        ValueKind::Table => texts(["equal 1", "0x2 1x1", "equal 2"]),
        ValueKind::Profile => texts(["1,1 2,2 3,3 4,4 5,5", "2,1 3,2 4,3 5,4 6,5", "9,9"]),
        ValueKind::Sizes => texts(["4096 9000 99000", "4096 9500 98000", "4096 9900 97000"]),
        ValueKind::Module if knob == Knob::DefaultQdisc => texts(["pfifo", "bfifo", "pfifo_fast"]),
        ValueKind::Module => texts(["reno", "cubic", "bbr"]),
        ValueKind::Count => {
            let now = match found {
                Some(Value::Count(now)) => *now,
                _ => 0,
            };
            let numbers = match (knob, spec.rounding) {
                (Knob::Mtu, _) => vec![1400, 1300, 1350],
                (_, Rounding::PowerOfTwo) => vec![now / 4, now * 4, 64],
                (_, Rounding::Quarter) => vec![100, 200, 400],
                _ if spec.min > 1000 => vec![now / 4 * 3, now / 2, now / 8 * 5],
                _ if limits.max.is_some() => vec![1, 2],
                _ => vec![777, 888, 999],
            };
            let (min, max) = (limits.min.unwrap_or(spec.min), limits.max.unwrap_or(spec.max));
            let allowed = numbers.into_iter().filter(|number| (min..=max).contains(number));
            allowed.map(Value::Count).collect()
        }
    }
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
            assert!(knob.spec().takes(wanted, &found), "{knob} ({place}): {found}, not {wanted}");
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
fn check_refusals(kernel: &mut dyn KernelWrite, interface: &str, knob: Knob, value: &Value) {
    for place in [Place::RxQueue(4095), Place::TxQueue(4095), Place::Napi(4095)] {
        assert!(write(kernel, interface, knob, place, value).is_err(), "{knob} at {place}");
    }
    if knob.spec().scope == Scope::Host {
        return; // it is there without any interface
    }
    let error = kernel.read(NOBODY, knob).expect_err("there is no such interface");
    assert_eq!(error.kind, KernelErrorKind::NoInterface, "read {knob}: {error}");
    let error = write(kernel, NOBODY, knob, Place::Device, value)
        .expect_err("there is no such interface to write");
    assert_eq!(error.kind, KernelErrorKind::NoInterface, "write {knob}: {error}");
}
