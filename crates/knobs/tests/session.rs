//! Many settings in a row: the order leaves no trace, and every end goes back to the first state.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use latput_knobs::{
    ApplyError, Capability, Cause, Change, ChangeOutcome, Device, KernelError, KernelErrorKind,
    KernelRead, KernelWrite, Knob, Place, Refusal, RestoreError, Restored, Session, Setting, State,
    Value, Whereabouts, WritePermit, parse_assignment,
};
use latput_testkit::{FakeInterface, FakeKernel, Fault, MemoryCheckpoints, context};
use latput_units::Nanos;

/// Nothing was changed.
const REFUSED: ChangeOutcome = ChangeOutcome::Refused(Refusal::Failure);

type BorrowingSession<'a> = Session<&'a mut FakeKernel, &'a mut MemoryCheckpoints>;

#[test]
fn close_goes_back_to_the_first_state() {
    let (mut kernel, mut store) = world();
    let before = kernel.state("eth0");
    let mut session = open(&mut kernel, &mut store);
    session.apply(&setting("mtu=9000 gro=off")).unwrap();
    session.apply(&setting("mtu=1400 gro-flush-timeout=50us")).unwrap();
    let restored = session.close().unwrap();
    let Restored::Done { changes, gone, others } = restored else { panic!("{restored:?}") };
    assert!(gone.is_empty() && others.is_empty());
    let mtu = changes.iter().find(|change| change.knob == Knob::Mtu).unwrap();
    assert_eq!(mtu.to_string(), "mtu (device): 1400 -> 1500");
    assert_eq!(kernel.state("eth0"), before);
    assert!(store.is_clear());
}

/// A driver that asks for its interrupts again gets the kernel's default, which neither the administrator nor we have set.
#[test]
fn affinity_lost_with_link_is_nobodys() {
    let (mut kernel, mut store) = world();
    let place = Place::Interrupt(0);
    let cpus = |text: &str| Knob::SmpAffinity.parse_value(text).unwrap();
    kernel.set_from_outside("eth0", Knob::SmpAffinity, place, cpus("2"));
    let mut session = open(&mut kernel, &mut store);
    session.apply(&setting("smp-affinity=1")).unwrap();
    for (to, is_lost) in [("0-3", true), ("2", true), ("3", false), ("0-1", false)] {
        let (from, to) = (cpus("1"), cpus(to));
        let change = Change { knob: Knob::SmpAffinity, place, from, to };
        assert_eq!(session.is_lost_with_link(&change), is_lost, "{change}");
    }
    let change = Change { knob: Knob::RpsCpus, place, from: cpus("1"), to: cpus("0-3") };
    assert!(!session.is_lost_with_link(&change), "it does not go with the link");
    session.close().unwrap();
}

#[test]
fn rehearsal_tells_the_changes_and_makes_none() {
    let (mut kernel, mut store) = world();
    let before = kernel.state("eth0");
    let mut session = open(&mut kernel, &mut store);
    let setting = setting("mtu=9000 txqueuelen=777");
    let told: Vec<_> = session.rehearse(&setting).unwrap();
    let text: Vec<String> = told.iter().map(ToString::to_string).collect();
    assert_eq!(text, ["mtu (device): 1500 -> 9000", "txqueuelen (device): 1000 -> 777"]);
    assert_eq!(session.kernel().state("eth0"), before);
    assert_eq!(session.apply(&setting).unwrap().changes, told);
    session.close().unwrap();
}

/// A value near the wanted one is what the device made of it, if it has moved.
#[test]
fn unmoved_value_on_return_is_not_rounding() {
    for (fault, is_taken) in [(Fault::Ignore, false), (Fault::Round(10_000), true)] {
        let (mut kernel, mut store) = world();
        let at_first = Value::Time(Nanos::from_us(104));
        kernel.set_from_outside("eth0", Knob::RxUsecs, Place::Device, at_first);
        kernel.inject_fault_after(2, Knob::RxUsecs, fault);
        let mut session = open(&mut kernel, &mut store);
        session.apply(&setting("rx-usecs=110 txqueuelen=777")).unwrap();
        let back = session.apply(&setting("txqueuelen=888"));
        match back {
            Ok(applied) => {
                assert!(is_taken, "{fault:?}: {applied:?}");
                assert_eq!(applied.rounded[0].to_string(), "rx-usecs (device): 104us -> 100us");
            }
            Err(error) => assert!(!is_taken, "{fault:?}: {error}"),
        }
    }
}

#[test]
fn released_knob_stays_as_others_set() {
    let (mut kernel, mut store) = world();
    let mut session = open(&mut kernel, &mut store);
    session.apply(&setting("txqueuelen=777 mtu=9000")).unwrap();
    session.give_up(Knob::Txqueuelen).unwrap();
    session.apply(&Setting::new()).unwrap();
    let read = |session: &BorrowingSession<'_>, knob| {
        session.kernel().read("eth0", knob).unwrap().remove(0).1
    };
    assert_eq!(read(&session, Knob::Txqueuelen), Value::Count(777));
    assert_eq!(read(&session, Knob::Mtu), Value::Count(1500), "the rest goes back");
    session.close().unwrap();
    let now = kernel.state("eth0");
    assert_eq!(now.0[&(Knob::Txqueuelen, Place::Device)], Value::Count(777));
    assert!(store.is_clear());
}

#[test]
fn setting_is_independent_of_earlier_ones() {
    let settings = ["mtu=9000", "gro-flush-timeout=50us gro=off", "threaded=on", ""];
    let alone: Vec<_> = settings.iter().map(|text| state_after(&[text])).collect();
    for (first, _) in settings.iter().enumerate() {
        for (second, text) in settings.iter().enumerate() {
            assert_eq!(state_after(&[settings[first], text]), alone[second]);
        }
    }
}

#[test]
fn knob_changed_by_others_is_left() {
    let (mut kernel, mut store) = world();
    let before = kernel.state("eth0");
    let txqueuelen = |state: State| state.0[&(Knob::Txqueuelen, Place::Device)].clone();
    let mut session = open(&mut kernel, &mut store);
    // It makes no difference that the other's value was set last.
    session.apply(&setting("txqueuelen=500")).unwrap();
    session.give_up(Knob::Txqueuelen).unwrap();
    assert!(session.checkpoint().undo.0.is_empty(), "a crash would not put it back either");
    session.apply(&setting("txqueuelen=600 gso=off")).unwrap();
    assert_eq!(session.given_up().iter().copied().collect::<Vec<_>>(), [Knob::Txqueuelen]);
    assert_eq!(txqueuelen(session.kernel().state("eth0")), Value::Count(500));
    session.close().unwrap();
    assert!(store.is_clear());
    assert_eq!(txqueuelen(kernel.state("eth0")), Value::Count(500));
    kernel.set_from_outside("eth0", Knob::Txqueuelen, Place::Device, txqueuelen(before.clone()));
    assert_eq!(kernel.state("eth0"), before);
}

#[test]
fn lost_foreign_value_is_written_again() {
    let (mut kernel, mut store) = world();
    let held = |state: State| state.0[&(Knob::GroFlushTimeout, Place::Napi(0))].clone();
    let theirs = Value::Time(Nanos::from_us(50));
    let mut session = open(&mut kernel, &mut store);
    session.apply(&setting("gro-flush-timeout=50us")).unwrap();
    session.give_up(Knob::GroFlushTimeout).unwrap();
    session.apply(&setting("mtu=9000 gro-flush-timeout=20us")).unwrap(); // makes new NAPIs
    assert_eq!(held(session.kernel().state("eth0")), theirs);
    session.close().unwrap();
    assert_eq!(held(kernel.state("eth0")), theirs);
}

#[test]
fn dependent_knobs_can_be_set_together() {
    let mut kernel =
        FakeKernel::with_interface("eth0", FakeInterface::veth_without_device_values(1));
    let before = kernel.state("eth0");
    let mut store = MemoryCheckpoints::with_fuse(kernel.fuse());
    let mut session = open(&mut kernel, &mut store);
    session.apply(&setting("gro=off")).unwrap();
    let error = session.apply(&setting("gro=off gro-flush-timeout=50us")).unwrap_err();
    assert!(matches!(error, ApplyError::Unsupported { .. }), "{error:?}");
    session.apply(&setting("gro=on gro-flush-timeout=50us")).unwrap();
    // Here the knob is there when it is asked for, and goes with the GRO.
    let held = session.kernel().state("eth0");
    let error = session.apply(&setting("gro=off gro-flush-timeout=50us")).unwrap_err();
    assert_eq!(error.outcome(), ChangeOutcome::RolledBack, "{error:?}");
    assert_eq!(session.kernel().state("eth0"), held);
    session.close().unwrap();
    assert_eq!(kernel.state("eth0"), before);
}

#[test]
fn earliest_value_wins_and_is_saved() {
    let (mut kernel, mut store) = world();
    let mut session = open(&mut kernel, &mut store);
    session.apply(&setting("txqueuelen=777")).unwrap();
    assert!(!session.checkpoint().undo.0.contains_key(&(Knob::Mtu, Place::Device)));
    let applied = session.apply(&setting("txqueuelen=888 mtu=9000")).unwrap();
    assert_eq!(applied.undo.undo.0[&(Knob::Txqueuelen, Place::Device)], Value::Count(1000));
    assert_eq!(applied.undo.undo.0[&(Knob::Mtu, Place::Device)], Value::Count(1500));
    assert_eq!(&applied.undo, session.checkpoint());
    let mtu = session.kernel().read("eth0", Knob::Mtu).unwrap();
    assert_eq!(mtu, [(Place::Device, Value::Count(9000))]);
    let kept = applied.undo;
    drop(session);
    assert_ne!(Some(&kept), store.kept("eth0"), "dropping forgot it");
}

#[test]
fn full_disk_midway_leaves_earlier_setting() {
    let (mut kernel, mut store) = world();
    let before = kernel.state("eth0");
    store.fill_disk_after(2);
    let mut session = open(&mut kernel, &mut store);
    session.apply(&setting("txqueuelen=777")).unwrap();
    let between = session.kernel().state("eth0");
    for word in ["mtu=9000", "txqueuelen=888"] {
        let error = session.apply(&setting(word)).unwrap_err();
        assert!(matches!(error, ApplyError::Checkpoint(_)), "{error:?}");
        assert_eq!(error.outcome(), REFUSED);
        assert_eq!(session.kernel().state("eth0"), between);
    }
    session.close().unwrap();
    assert_eq!(kernel.state("eth0"), before);
}

/// A change without room for its record would have no undo.
#[test]
fn change_that_cannot_be_recorded_is_rolled_back() {
    let (mut kernel, mut store) = world();
    let before = kernel.state("eth0");
    store.fill_disk_after(1);
    let mut session = open(&mut kernel, &mut store);
    let error = session.apply(&setting("txqueuelen=777")).unwrap_err();
    assert_eq!(error.outcome(), ChangeOutcome::RolledBack, "{error:?}");
    assert_eq!(session.kernel().state("eth0"), before);
    session.close().unwrap();
    assert_eq!(kernel.state("eth0"), before);
}

#[test]
fn late_values_are_saved_before_loss() {
    let check = |saves, expected: Option<&str>| {
        let mut kernel =
            FakeKernel::with_interface("eth0", FakeInterface::veth_with_napi_memory(1));
        let deferral = |count| (Knob::NapiDeferHardIrqs, Value::Count(count));
        let (knob, seven) = deferral(7);
        kernel.set_from_outside("eth0", knob, Place::Napi(0), seven.clone());
        let shown = kernel.state("eth0");
        kernel.set_from_outside("eth0", Knob::Gro, Place::Device, Value::Switch(false));
        let mut store = MemoryCheckpoints::with_fuse(kernel.fuse());
        store.fill_disk_after(saves);
        let mut session = open(&mut kernel, &mut store);
        let desired = setting("gro=on napi-defer-hard-irqs=0");
        let error = session.apply(&desired).err().map(|error| full(&error));
        assert_eq!(error.as_deref(), expected);
        let undo = &session.checkpoint().undo.0;
        assert_eq!(undo.get(&(knob, Place::Napi(0))), expected.is_none().then_some(&seven));
        session.close().unwrap();
        kernel.set_from_outside("eth0", Knob::Gro, Place::Device, Value::Switch(true));
        assert_eq!(kernel.state("eth0"), shown);
    };
    check(9, None);
    // The first save is the one before the first write.
    check(
        1,
        Some(
            "eth0: the change failed and was rolled back: /run/latput/eth0.json: cannot write the \
             checkpoint: no space left on device",
        ),
    );
}

#[test]
fn sleeping_napis_keep_old_values() {
    let mut kernel = FakeKernel::with_interface("eth0", FakeInterface::veth_with_napi_memory(1));
    let (knob, place) = (Knob::NapiDeferHardIrqs, Place::Napi(0));
    kernel.set_from_outside("eth0", knob, place, Value::Count(7));
    let shown = kernel.state("eth0");
    kernel.set_from_outside("eth0", Knob::Gro, Place::Device, Value::Switch(false));
    let mut store = MemoryCheckpoints::with_fuse(kernel.fuse());
    let mut session = open(&mut kernel, &mut store);
    session.apply(&setting("gro=on napi-defer-hard-irqs=0")).unwrap();
    session.apply(&setting("mtu=9000")).unwrap();
    session.close().unwrap();
    kernel.set_from_outside("eth0", Knob::Gro, Place::Device, Value::Switch(true));
    assert_eq!(kernel.state("eth0"), shown);
}

#[test]
fn failed_setting_goes_back_to_the_one_before() {
    let (mut kernel, mut store) = world();
    let before = kernel.state("eth0");
    kernel.inject_fault(Knob::Threaded, Fault::Refuse(KernelErrorKind::Refused));
    let mut session = open(&mut kernel, &mut store);
    session.apply(&setting("mtu=9000 gro-flush-timeout=20us txqueuelen=777")).unwrap();
    let between = session.kernel().state("eth0");
    let error = session.apply(&setting("mtu=1400 threaded=on txqueuelen=777")).unwrap_err();
    let ApplyError::RolledBack { cause, .. } = error else { panic!("{error:?}") };
    assert!(matches!(&*cause, Cause::Kernel(error) if error.knob == Some(Knob::Threaded)));
    assert_eq!(session.kernel().state("eth0"), between);
    session.close().unwrap();
    assert_eq!(kernel.state("eth0"), before);
}

#[test]
fn session_dropped_in_panic_restores_everything() {
    let (mut kernel, mut store) = world();
    let before = kernel.state("eth0");
    let ended = catch_unwind(AssertUnwindSafe(|| {
        let mut session = open(&mut kernel, &mut store);
        session.apply(&setting("mtu=9000 gro=off rps-cpus=0")).unwrap();
        panic!("a bug of ours");
    }));
    assert!(ended.is_err());
    assert_eq!(kernel.state("eth0"), before);
    assert!(store.is_clear());
}

#[test]
fn unchanged_session_releases_the_interface() {
    let (mut kernel, mut store) = world();
    assert_eq!(open(&mut kernel, &mut store).close(), Ok(Restored::NothingToDo));
    assert!(store.is_clear());
    drop(open(&mut kernel, &mut store));
    assert!(store.is_clear() && kernel.written().is_empty());
}

#[test]
fn values_are_read_again_after_writes() {
    let (mut kernel, mut store) = world();
    let counting = Counting { kernel: &mut kernel, passes: Cell::new(0), asked: Cell::new(0) };
    let mut session = Session::open(counting, &mut store, &context(), "eth0").unwrap();
    let found = session.apply(&setting("txqueuelen=777 rps-cpus=0")).unwrap().found;
    assert_eq!(found.0[&(Knob::Txqueuelen, Place::Device)], Value::Count(777));
    assert_eq!(found.0[&(Knob::RpsCpus, Place::RxQueue(1))], Value::Cpus("0".parse().unwrap()));
    assert_eq!(session.kernel().asked.replace(0), 2, "whether each can be set");
    session.kernel().passes.set(0);
    session.apply(&setting("txqueuelen=778 rps-cpus=1")).unwrap();
    // For the plan, after the first write, and to verify both.
    assert_eq!((session.kernel().passes.get(), session.kernel().asked.get()), (3, 0));
    let found = session.apply(&setting("txqueuelen=778 rps-cpus=1")).unwrap().found;
    assert_eq!(session.kernel().passes.get(), 4, "nothing to do is seen in one look");
    assert_eq!(found.0[&(Knob::Txqueuelen, Place::Device)], Value::Count(778));
}

#[test]
fn committed_session_stays() {
    let (mut kernel, mut store) = world();
    let mut session = open(&mut kernel, &mut store);
    session.apply(&setting("mtu=9000")).unwrap();
    session.commit().unwrap();
    assert!(store.is_clear());
    assert_eq!(kernel.state("eth0").0[&(Knob::Mtu, Place::Device)], Value::Count(9000));
}

#[test]
fn failed_close_keeps_checkpoint_without_retry() {
    let (mut kernel, mut store) = world();
    kernel.inject_fault_after(1, Knob::Mtu, Fault::Refuse(KernelErrorKind::Busy));
    let mut session = open(&mut kernel, &mut store);
    session.apply(&setting("mtu=9000")).unwrap();
    let error = session.close().unwrap_err();
    assert!(matches!(error, RestoreError::Stranded { .. }), "{error:?}");
    assert!(store.kept("eth0").is_some());
    let error = Session::open(&mut kernel, &mut store, &context(), "eth0").unwrap_err();
    assert!(matches!(error, ApplyError::Unfinished { .. }), "{error:?}");
}

/// Counts how often the kernel is asked: for values, and whether a knob can be set.
struct Counting<'a> {
    kernel: &'a mut FakeKernel,
    passes: Cell<usize>,
    asked: Cell<usize>,
}

impl KernelRead for Counting<'_> {
    fn read(&self, interface: &str, knob: Knob) -> Result<Vec<(Place, Value)>, KernelError> {
        self.passes.set(self.passes.get() + 1);
        self.kernel.read(interface, knob)
    }

    fn read_many(
        &self,
        interface: &str,
        knobs: &[Knob],
    ) -> Vec<Result<Vec<(Place, Value)>, KernelError>> {
        self.passes.set(self.passes.get() + 1);
        self.kernel.read_many(interface, knobs)
    }

    fn capability(&self, interface: &str, knob: Knob) -> Capability {
        self.asked.set(self.asked.get() + 1);
        self.kernel.capability(interface, knob)
    }

    fn device(&self, interface: &str) -> Result<Device, KernelError> {
        self.kernel.device(interface)
    }

    fn find(&self, device: &Device) -> Result<Whereabouts, KernelError> {
        self.kernel.find(device)
    }
}

impl KernelWrite for Counting<'_> {
    fn write(
        &mut self,
        permit: &WritePermit,
        interface: &str,
        knob: Knob,
        place: Place,
        value: &Value,
    ) -> Result<(), KernelError> {
        self.kernel.write(permit, interface, knob, place, value)
    }
}

fn world() -> (FakeKernel, MemoryCheckpoints) {
    let mut kernel = FakeKernel::with_interface("eth0", FakeInterface::nic(2));
    let old = Value::Count(7);
    kernel.set_from_outside("eth0", Knob::NapiDeferHardIrqs, Place::Napi(1), old);
    let store = MemoryCheckpoints::with_fuse(kernel.fuse());
    (kernel, store)
}

#[track_caller]
fn open<'a>(kernel: &'a mut FakeKernel, store: &'a mut MemoryCheckpoints) -> BorrowingSession<'a> {
    Session::open(kernel, store, &context(), "eth0").expect("nobody else has claimed it")
}

/// The state of the interface while the last of these settings is applied.
fn state_after(settings: &[&str]) -> State {
    let (mut kernel, mut store) = world();
    let mut session = open(&mut kernel, &mut store);
    for text in settings {
        session.apply(&setting(text)).expect(text);
    }
    session.kernel().state("eth0")
}

fn setting(text: &str) -> Setting {
    text.split_whitespace()
        .map(|assignment| parse_assignment(assignment).expect(assignment))
        .collect()
}

/// The error and its causes, as the command line prints them.
fn full(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
