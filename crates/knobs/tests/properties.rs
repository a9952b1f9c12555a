//! Any sequence of changes, crashes, faults, restores and other people's changes ends where it began,
//! or where everybody left it.

use std::collections::BTreeSet;

use latput_knobs::{
    ApplyError, CheckpointStore, Knob, Place, QueueTable, RestoreError, Restored, Session, Setting,
    State, Value, ValueKind, apply, commit, restore,
};
use latput_testkit::{FakeInterface, FakeKernel, Fault, MemoryCheckpoints, context};
use latput_units::{CpuId, Nanos};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

const NAME: &str = "eth0";
/// Sequences that are tried. Most have a crash or a fault in them, at a step that is as likely as any.
const CASES: u32 = 3000;

proptest! {
    // Failures are kept beside this file, and are to be committed.
    #![proptest_config(ProptestConfig {
        cases: CASES,
        ..ProptestConfig::with_failure_persistence(
            FileFailurePersistence::WithSource("proptest-regressions")
        )
    })]

    #[test]
    fn every_sequence_ends_where_it_began(
        interface in interfaces(),
        steps in prop::collection::vec(steps(), 1..12),
    ) {
        let mut world = World::new(interface);
        for step in steps {
            world.take(step)?;
        }
        world.restart();
        world.restore(None)?;
        prop_assert!(world.store.is_clear());
    }
}

/// An event of an interface's life.
#[derive(Clone, Debug)]
enum Step {
    /// `latput set`, with something in its way.
    Set(Setting, Trouble),
    /// A plan run: its settings, and whether it is closed or just dropped.
    Run(Vec<Setting>, Trouble, bool),
    /// `latput restore`, which may be killed after some steps.
    Restore(Option<u64>),
    /// Somebody else sets a value at the place of this index.
    Outside(Knob, usize, Value),
}

/// An obstacle to a change.
#[derive(Clone, Debug)]
enum Trouble {
    None,
    /// `kill -9` after so many writes, saves and removals.
    Kill(u64),
    /// One write is refused or forgotten.
    Write(u64, Fault),
    /// No space after so many saves.
    FullDisk(u64),
}

struct World {
    kernel: FakeKernel,
    store: MemoryCheckpoints,
    /// How it was when latput had last finished what it did.
    origin: State,
    /// Whether somebody else has changed something since.
    disturbed: bool,
    /// The values that somebody else has changed together since.
    moved_together: BTreeSet<(Knob, Place)>,
}

impl World {
    fn new(interface: FakeInterface) -> Self {
        let kernel = FakeKernel::with_interface(NAME, interface);
        let store = MemoryCheckpoints::with_fuse(kernel.fuse());
        let origin = kernel.state(NAME);
        Self { kernel, store, origin, disturbed: false, moved_together: BTreeSet::new() }
    }

    fn take(&mut self, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::Set(desired, trouble) => self.set(&desired, &trouble)?,
            Step::Run(settings, trouble, closed) => self.run(&settings, &trouble, closed)?,
            Step::Restore(kill_after) => self.restore(kill_after)?,
            Step::Outside(knob, place, value) => {
                let places: Vec<Place> = self.places(knob);
                if !places.is_empty() {
                    let place = places[place % places.len()];
                    let before = self.kernel.state(NAME);
                    self.kernel.set_from_outside(NAME, knob, place, value);
                    self.disturbed = true;
                    let now = self.kernel.state(NAME).0.into_iter();
                    let moved = now.filter(|(key, found)| before.0.get(key) != Some(found));
                    let moved: BTreeSet<_> = moved.map(|(key, _)| key).collect();
                    if moved.iter().any(|(moved, _)| *moved != knob) {
                        self.moved_together.extend(moved);
                    }
                }
            }
        }
        self.restart();
        if self.store.is_clear() {
            (self.origin, self.disturbed) = (self.kernel.state(NAME), false);
            self.moved_together.clear();
        }
        Ok(())
    }

    fn set(&mut self, desired: &Setting, trouble: &Trouble) -> Result<(), TestCaseError> {
        let before = self.kernel.state(NAME);
        let unfinished = self.store.kept(NAME).is_some();
        self.arrange(trouble);
        let ended = apply(&mut self.kernel, &mut self.store, &context(), NAME, desired);
        let committed = ended.as_ref().map(|applied| commit(&mut self.store, &applied.undo));
        let now = self.kernel.state(NAME);
        if self.kernel.fuse().is_burnt() {
            let is_kept = self.store.kept(NAME).is_some();
            prop_assert!(is_kept || now == before || holds(&now, desired), "killed, no way back");
            return Ok(());
        }
        match committed {
            Ok(removed) => {
                prop_assert!(removed.is_ok() && !unfinished && holds(&now, desired));
                check_untouched(&before, &now, |(knob, _)| !desired.contains_key(&knob))?;
            }
            Err(ApplyError::Unfinished { .. }) => prop_assert!(unfinished && now == before),
            // One bad write is not enough to strand anything.
            Err(error @ (ApplyError::Stranded { .. } | ApplyError::InterfaceGone { .. })) => {
                prop_assert!(false, "{error:?}");
            }
            Err(_) => prop_assert_eq!(now, before),
        }
        Ok(())
    }

    fn run(
        &mut self,
        settings: &[Setting],
        trouble: &Trouble,
        closed: bool,
    ) -> Result<(), TestCaseError> {
        let before = self.kernel.state(NAME);
        let unfinished = self.store.kept(NAME).is_some();
        self.arrange(trouble);
        let fuse = self.kernel.fuse();
        let mut session = match Session::open(&mut self.kernel, &mut self.store, &context(), NAME) {
            Ok(session) => session,
            Err(error) => {
                prop_assert!(unfinished || fuse.is_burnt(), "{:?}", error);
                return Ok(());
            }
        };
        for desired in settings {
            let earlier = session.kernel().state(NAME);
            let applied = session.apply(desired);
            let now = session.kernel().state(NAME);
            if fuse.is_burnt() {
                break;
            }
            if applied.is_ok() {
                prop_assert!(holds(&now, desired));
                check_untouched(&before, &now, |(knob, _)| !desired.contains_key(&knob))?;
            } else {
                prop_assert_eq!(now, earlier);
            }
        }
        if closed {
            let ended = session.close();
            prop_assert!(ended.is_ok() || fuse.is_burnt(), "{:?}", ended);
        } else {
            drop(session);
        }
        let is_kept = self.store.kept(NAME).is_some();
        prop_assert!(!is_kept || fuse.is_burnt());
        if !is_kept {
            prop_assert_eq!(self.kernel.state(NAME), before);
        }
        Ok(())
    }

    fn restore(&mut self, kill_after: Option<u64>) -> Result<(), TestCaseError> {
        let Some(checkpoint) = self.store.kept(NAME).cloned() else {
            return Ok(());
        };
        let before = self.kernel.state(NAME);
        self.kernel.fuse().burn_after(kill_after.unwrap_or(u64::MAX));
        let restored = restore(&mut self.kernel, &mut self.store, &context(), &checkpoint);
        if self.kernel.fuse().is_burnt() {
            return Ok(());
        }
        let (gone, others) = match restored {
            Ok(Restored::Done { gone, others, .. }) => (gone, others),
            // Somebody else changed values that the driver takes only together, and it refuses our old one
            // beside theirs: the administrator keeps theirs.
            Err(RestoreError::Stranded { left, .. })
                if left.iter().all(|it| self.moved_together.contains(&(it.knob, it.place))) =>
            {
                prop_assert!(self.store.remove(checkpoint.slot()).is_ok());
                return Ok(());
            }
            other => return Err(TestCaseError::fail(format!("{other:?}"))),
        };
        let now = self.kernel.state(NAME);
        for (key, old) in &checkpoint.to_put_back().0 {
            let other = others.iter().find(|other| (other.knob, other.place) == *key);
            let wanted = other.map_or(old, |other| &other.found);
            prop_assert!(now.0.get(key) == Some(wanted) || gone.contains(key), "{:?}", key);
            prop_assert!(other.is_none() || self.disturbed, "{:?}", other);
        }
        check_untouched(&before, &now, |key| !checkpoint.to_put_back().0.contains_key(&key))?;
        if !self.disturbed {
            prop_assert_eq!(now, self.origin.clone());
        }
        Ok(())
    }

    fn arrange(&mut self, trouble: &Trouble) {
        match *trouble {
            Trouble::None => {}
            Trouble::Kill(steps) => self.kernel.fuse().burn_after(steps),
            Trouble::Write(writes, fault) => self.kernel.inject_fault_once(writes, fault),
            Trouble::FullDisk(saves) => self.store.fill_disk_after(saves),
        }
    }

    /// The next process starts in a world without trouble.
    fn restart(&mut self) {
        self.kernel.fuse().renew();
        self.kernel.clear_faults();
        self.store.next_process();
    }

    fn places(&self, knob: Knob) -> Vec<Place> {
        let state = self.kernel.state(NAME);
        state.0.keys().filter(|(k, _)| *k == knob).map(|(_, place)| *place).collect()
    }
}

/// Whether every place of the knobs of `desired` has its value.
fn holds(state: &State, desired: &Setting) -> bool {
    let takes = |knob: &Knob, found| desired.get(knob).is_none_or(|v| knob.spec().takes(v, found));
    state.0.iter().all(|((knob, _), found)| takes(knob, found))
}

/// Of these, the places that were and are there have kept their values.
fn check_untouched(
    before: &State,
    now: &State,
    untouched: impl Fn((Knob, Place)) -> bool,
) -> Result<(), TestCaseError> {
    for (key, old) in before.0.iter().filter(|(key, _)| untouched(**key)) {
        if let Some(found) = now.0.get(key) {
            prop_assert_eq!(old, found, "{:?}", key);
        }
    }
    Ok(())
}

fn interfaces() -> impl Strategy<Value = FakeInterface> {
    prop_oneof![
        Just(FakeInterface::veth(2)),
        Just(FakeInterface::veth_without_device_values(2)),
        Just(FakeInterface::veth_with_napi_memory(2)),
        Just(FakeInterface::nic(2)),
        Just(FakeInterface::nic_with_shared_channels(2)),
        Just(FakeInterface::without_napi_values(2)),
    ]
}

fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (settings(), troubles()).prop_map(|(desired, trouble)| Step::Set(desired, trouble)),
        3 => (prop::collection::vec(settings(), 0..5), troubles(), any::<bool>())
            .prop_map(|(settings, trouble, closed)| Step::Run(settings, trouble, closed)),
        2 => prop::option::of(0..12_u64).prop_map(Step::Restore),
        2 => (knobs(), 0..4_usize)
            .prop_flat_map(|(knob, place)| (Just(knob), Just(place), values(knob)))
            .prop_map(|(knob, place, value)| Step::Outside(knob, place, value)),
    ]
}

fn troubles() -> impl Strategy<Value = Trouble> {
    use latput_knobs::KernelErrorKind::{Busy, Permission, Refused};
    let faults = prop::sample::select(vec![
        Fault::Refuse(Busy),
        Fault::Refuse(Permission),
        Fault::Refuse(Refused),
        Fault::Ignore,
    ]);
    prop_oneof![
        2 => Just(Trouble::None),
        4 => (0..30_u64).prop_map(Trouble::Kill),
        2 => (0..20_u64, faults).prop_map(|(writes, fault)| Trouble::Write(writes, fault)),
        1 => (0..4_u64).prop_map(Trouble::FullDisk),
    ]
}

fn settings() -> impl Strategy<Value = Setting> {
    let pair = knobs().prop_flat_map(|knob| (Just(knob), values(knob)));
    prop::collection::vec(pair, 0..5).prop_map(|pairs| pairs.into_iter().collect())
}

fn knobs() -> impl Strategy<Value = Knob> {
    prop::sample::select(Knob::ALL)
}

fn values(knob: Knob) -> impl Strategy<Value = Value> {
    (0..3_u32).prop_map(move |nth| match knob.spec().kind {
        ValueKind::Sizes | ValueKind::Module => {
            let texts = match (knob.spec().kind, nth) {
                (ValueKind::Sizes, 0) => "1 2 3",
                (ValueKind::Sizes, 1) => "4096 131072 6291456",
                (ValueKind::Sizes, _) => "9 9 9",
                (_, 0) => "reno",
                (_, 1) => "pfifo_fast",
                (..) => "cubic",
            };
            knob.parse_value(texts).expect(texts)
        }
        ValueKind::Count if knob == Knob::CombinedChannels => Value::Count(1 + u64::from(nth)),
        ValueKind::Count => Value::Count(1500 + u64::from(nth)),
        ValueKind::Time => Value::Time(Nanos::from_us(u64::from(nth) * 20)),
        ValueKind::Switch => Value::Switch(nth > 0),
        ValueKind::Cpus => Value::Cpus((0..nth).map(CpuId).collect()),
        ValueKind::Qdisc => {
            let texts = ["default", "fq_codel limit=10", "pfifo limit=10"];
            Value::Qdisc(texts[nth as usize].parse().expect("these are disciplines"))
        }
        ValueKind::Table => Value::Table(QueueTable::Equal(nth + 1)),
        ValueKind::Profile => {
            Value::Profile(format!("{nth},1").parse().expect("this is a profile"))
        }
    })
}
