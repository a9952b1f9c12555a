//! Kernels with odd answers: hidden values, limits of a time, words that resolve to nothing, and an interface that
//! goes, is busy or rounds while it is put back.

use latput_knobs::{
    ApplyError, Capability, Device, KernelError, KernelErrorKind, KernelRead, Knob, Limits, Named,
    Place, Restored, Setting, Value, Whereabouts, apply, parse_assignment, plan, restore,
};
use latput_testkit::{FakeInterface, FakeKernel, Fault, MemoryCheckpoints, context};
use latput_units::Nanos;

/// A knob that is read when the driver is loaded, and another.
const KNOBS: [(Knob, &str); 2] =
    [(Knob::InterruptThrottleRate, "interrupt-throttle-rate=3"), (Knob::RxUsecs, "rx-usecs=50")];

#[test]
fn hidden_load_time_value_needs_reload() {
    for (knob, text) in KNOBS {
        let hidden = Odd {
            read: Some(Err(unsupported(knob))),
            capability: Some(Capability::ReadOnly("it is read at load time".to_owned())),
            ..Odd::new(knob)
        };
        let error = plan(&hidden, "eth0", &setting(text)).unwrap_err();
        let needs_reload = matches!(error, ApplyError::NeedsReload { .. });
        assert_eq!(needs_reload, knob == Knob::InterruptThrottleRate, "{error:?}");
        let absent = Capability::Absent("another driver".to_owned());
        let absent = Odd { capability: Some(absent), ..hidden };
        let error = plan(&absent, "eth0", &setting(text)).unwrap_err();
        assert!(matches!(error, ApplyError::Unsupported { .. }), "{error:?}");
    }
}

#[test]
fn answers_that_cannot_be_are_not_believed() {
    let value = |count| (Place::Device, Value::Count(count));
    for answer in [
        vec![value(1500), value(1500)],
        vec![(Place::Napi(1), Value::Count(1)), (Place::Napi(0), Value::Count(1))],
        vec![(Place::Device, Value::Switch(true))],
        vec![],
    ] {
        let odd = Odd { read: Some(Ok(answer.clone())), ..Odd::new(Knob::Mtu) };
        let error = plan(&odd, "eth0", &setting("mtu=9000")).unwrap_err();
        let is_malformed = |error: &KernelError| error.kind == KernelErrorKind::Malformed;
        let ApplyError::Unread(error) = &error else { panic!("{answer:?}: {error:?}") };
        assert!(is_malformed(error), "{answer:?}: {error:?}");
    }
}

#[test]
fn word_stands_for_a_value_of_its_knob() {
    for (answer, is_value) in [
        (Value::Count(512), true),
        (Value::Named(Named::Max), false),
        (Value::Time(Nanos::from_us(1)), false),
    ] {
        let odd = Odd { resolved: Some(answer), ..Odd::new(Knob::RxRing) };
        let planned = plan(&odd, "eth0", &setting("rx-ring=max"));
        match planned {
            Ok(changes) => {
                assert!(is_value, "{changes:?}");
                assert_eq!(changes[0].to, Value::Count(512));
            }
            Err(ApplyError::Unread(error)) => {
                assert!(!is_value && error.kind == KernelErrorKind::Malformed, "{error}");
            }
            Err(error) => panic!("{error:?}"),
        }
    }
}

#[test]
fn time_limits_have_their_own_unit() {
    let limits = Limits { min: Some(2), max: Some(100) };
    let odd = Odd { limits, ..Odd::new(Knob::RxUsecs) };
    for (us, is_allowed) in [(1, false), (2, true), (100, true), (101, false)] {
        let planned = plan(&odd, "eth0", &setting(&format!("rx-usecs={us}")));
        let is_refused = matches!(planned, Err(ApplyError::OutOfRange { .. }));
        assert_eq!((planned.is_ok(), is_refused), (is_allowed, !is_allowed), "{us}: {planned:?}");
    }
}

#[test]
fn interface_lost_in_restore_is_gone() {
    let (mut kernel, mut store) = world();
    let undo = change(&mut kernel, &mut store, "mtu=9000 txqueuelen=777");
    kernel.inject_fault_once(0, Fault::Vanish);
    assert_eq!(restore(&mut kernel, &mut store, &context(), &undo), Ok(Restored::InterfaceGone));
    assert!(store.is_clear());
}

#[test]
fn unchanged_value_counts_as_restored() {
    let (mut kernel, mut store) = world();
    let undo = change(&mut kernel, &mut store, "mtu=9000 txqueuelen=777");
    kernel.set_from_outside("eth0", Knob::Mtu, Place::Device, Value::Count(1500));
    kernel.set_from_outside("eth0", Knob::Txqueuelen, Place::Device, Value::Count(1000));
    // Nothing is known of it at first, so it is written, in vain.
    kernel.inject_fault_once(0, Fault::Unreadable(KernelErrorKind::Malformed));
    kernel.inject_fault_once(0, Fault::Refuse(KernelErrorKind::Busy));
    let restored = restore(&mut kernel, &mut store, &context(), &undo);
    assert!(matches!(restored, Ok(Restored::Done { .. })), "{restored:?}");
    assert!(store.is_clear());
}

#[test]
fn old_value_rounded_now_is_back() {
    let (mut kernel, mut store) = world();
    let at_first = Value::Time(Nanos::from_us(104));
    kernel.set_from_outside("eth0", Knob::RxUsecs, Place::Device, at_first);
    let undo = change(&mut kernel, &mut store, "rx-usecs=150");
    kernel.inject_fault(Knob::RxUsecs, Fault::Round(10_000));
    let restored = restore(&mut kernel, &mut store, &context(), &undo);
    assert!(matches!(restored, Ok(Restored::Done { .. })), "{restored:?}");
    let now = &kernel.state("eth0").0[&(Knob::RxUsecs, Place::Device)];
    assert_eq!(*now, Value::Time(Nanos::from_us(100)));
}

fn world() -> (FakeKernel, MemoryCheckpoints) {
    let kernel = FakeKernel::with_interface("eth0", FakeInterface::nic(1));
    let store = MemoryCheckpoints::with_fuse(kernel.fuse());
    (kernel, store)
}

fn change(
    kernel: &mut FakeKernel,
    store: &mut MemoryCheckpoints,
    text: &str,
) -> latput_knobs::Checkpoint {
    apply(kernel, store, &context(), "eth0", &setting(text)).expect(text).undo
}

fn setting(text: &str) -> Setting {
    text.split_whitespace().map(|pair| parse_assignment(pair).expect(pair)).collect()
}

fn unsupported(knob: Knob) -> KernelError {
    KernelError {
        interface: "eth0".to_owned(),
        knob: Some(knob),
        operation: "read it".to_owned(),
        kind: KernelErrorKind::Unsupported,
        errno: Some(95),
        reason: "operation not supported".to_owned(),
    }
}

/// A kernel whose answers about one knob are these, where they are given.
#[derive(Clone)]
struct Odd {
    kernel: FakeKernel,
    knob: Knob,
    read: Option<Result<Vec<(Place, Value)>, KernelError>>,
    capability: Option<Capability>,
    limits: Limits,
    resolved: Option<Value>,
}

impl Odd {
    fn new(knob: Knob) -> Self {
        let (kernel, limits) = (world().0, Limits::default());
        Self { kernel, knob, read: None, capability: None, limits, resolved: None }
    }

    fn answers<T: Clone>(&self, knob: Knob, answer: Option<&T>) -> Option<T> {
        answer.cloned().filter(|_| knob == self.knob)
    }
}

impl KernelRead for Odd {
    fn read(&self, interface: &str, knob: Knob) -> Result<Vec<(Place, Value)>, KernelError> {
        let answer = self.answers(knob, self.read.as_ref());
        answer.unwrap_or_else(|| self.kernel.read(interface, knob))
    }

    fn capability(&self, interface: &str, knob: Knob) -> Capability {
        let answer = self.answers(knob, self.capability.as_ref());
        answer.unwrap_or_else(|| self.kernel.capability(interface, knob))
    }

    fn limits(&self, interface: &str, knob: Knob) -> Limits {
        if knob == self.knob { self.limits } else { self.kernel.limits(interface, knob) }
    }

    fn resolve(
        &self,
        interface: &str,
        knob: Knob,
        place: Place,
        named: Named,
    ) -> Result<Value, KernelError> {
        let answer = self.answers(knob, self.resolved.as_ref());
        answer.map_or_else(|| self.kernel.resolve(interface, knob, place, named), Ok)
    }

    fn device(&self, interface: &str) -> Result<Device, KernelError> {
        self.kernel.device(interface)
    }

    fn find(&self, device: &Device) -> Result<Whereabouts, KernelError> {
        self.kernel.find(device)
    }
}
