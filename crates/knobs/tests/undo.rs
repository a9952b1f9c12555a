//! Changes that were committed, and their undo: values that are still the change's go back, others stay.
#![allow(clippy::unwrap_used, reason = "a failure in a helper is a failed test")]

use latput_knobs::{
    Applied, ApplyError, Change, Checkpoint, CheckpointStore, Context, Foreign, KernelErrorKind,
    Knob, Place, Setting, Slot, Standing, State, Value, apply, commit, parse_assignment, plan_undo,
    read_standing, restore, undo,
};
use latput_testkit::{FakeInterface, FakeKernel, Fault, Fuse, MemoryCheckpoints, context};

#[test]
fn commit_leaves_entry_with_both_values() {
    let mut world = World::new();
    world.set("mtu=9000 txqueuelen=777");
    let [entry] = world.store.journal() else { panic!("{:?}", world.store) };
    assert_eq!(entry.undo.0[&(Knob::Mtu, Place::Device)], Value::Count(1500));
    assert_eq!(entry.written.0[&(Knob::Mtu, Place::Device)], Value::Count(9000));
    assert_eq!(entry.by, Some(context().by));
    assert!(world.store.is_clear(), "the checkpoint is gone");
    // Nothing to change is no change.
    world.set("mtu=9000");
    assert_eq!(world.store.journal().len(), 1);
}

#[test]
fn undo_is_itself_undoable() {
    let mut world = World::new();
    let before = world.state();
    world.set("mtu=9000 gro-flush-timeout=50us gro=off");
    let changed = world.state();
    let (applied, others) = world.undo(1).unwrap();
    assert!(others.is_empty() && !applied.changes.is_empty());
    assert_eq!(world.state(), before);
    assert_eq!(world.store.journal()[1].undoes, Some(1));
    world.undo(2).unwrap();
    assert_eq!(world.state(), changed);
    world.undo(3).unwrap();
    assert_eq!(world.state(), before);
}

#[test]
fn third_value_stays_and_is_told() {
    let mut world = World::new();
    world.set("mtu=9000 txqueuelen=777");
    world.kernel.set_from_outside("eth0", Knob::Txqueuelen, Place::Device, Value::Count(42));
    let planned = world.plan_undo(1).unwrap();
    let (applied, others) = world.undo(1).unwrap();
    assert_eq!(planned, (applied.changes, others.clone()), "as the dry run said");
    let [Foreign { knob: Knob::Txqueuelen, found: Value::Count(42), .. }] = others[..] else {
        panic!("{others:?}")
    };
    let now = world.state();
    assert_eq!(now.0[&(Knob::Txqueuelen, Place::Device)], Value::Count(42));
    assert_eq!(now.0[&(Knob::Mtu, Place::Device)], Value::Count(1500));
}

#[test]
fn undo_leaves_what_later_change_made() {
    let mut world = World::new();
    world.set("mtu=9000 txqueuelen=777");
    world.set("mtu=1400");
    let entries = world.store.journal().to_vec();
    let held = |entry: &Checkpoint| -> Vec<(Knob, bool)> {
        let standing = read_standing(&world.kernel, entry);
        standing.iter().map(|value: &Standing| (value.knob, value.is_in_force())).collect()
    };
    assert_eq!(held(&entries[0]), [(Knob::Mtu, false), (Knob::Txqueuelen, true)]);
    assert_eq!(held(&entries[1]), [(Knob::Mtu, true)]);
    let (applied, others) = world.undo(1).unwrap();
    assert_eq!(applied.changes.len(), 1);
    assert_eq!(others.iter().map(|other| other.knob).collect::<Vec<_>>(), [Knob::Mtu]);
    assert_eq!(world.state().0[&(Knob::Mtu, Place::Device)], Value::Count(1400));
}

#[test]
fn undo_keeps_foreign_values_of_new_napis() {
    let mut world = World::new();
    world.set("gro=off");
    world.set("gro-flush-timeout=50us");
    let timeouts = |state: &State| -> Vec<Value> {
        let of = |((knob, _), value): (&(Knob, Place), &Value)| {
            (*knob == Knob::GroFlushTimeout).then(|| value.clone())
        };
        state.0.iter().filter_map(of).collect()
    };
    let set = timeouts(&world.state());
    let (_, others) = world.undo(1).unwrap();
    assert!(others.is_empty(), "the first change made no difference there: {others:?}");
    let now = world.state();
    assert_eq!(now.0[&(Knob::Gro, Place::Device)], Value::Switch(true));
    assert_eq!(timeouts(&now), set);
}

#[test]
fn undo_that_the_kernel_refuses_changes_nothing() {
    let mut world = World::new();
    world.set("mtu=9000 txqueuelen=777");
    let changed = world.state();
    world.kernel.inject_fault_after(0, Knob::Txqueuelen, Fault::Refuse(KernelErrorKind::Busy));
    let error = world.undo(1).unwrap_err();
    assert!(matches!(error, ApplyError::Refused { .. } | ApplyError::RolledBack { .. }), "{error}");
    assert_eq!(world.state(), changed);
    assert_eq!(world.store.journal().len(), 1);
}

#[test]
fn dry_run_refuses_as_the_undo_does() {
    type Spoil = fn(&mut World);
    let cases: [(&str, Spoil); 7] = [
        ("in use by another latput (pid 77)", |world| {
            world.store.lock_by(77, world.store.journal()[0].slot());
        }),
        ("it would move others", |world| world.kernel.inject_fault(Knob::Mtu, Fault::MovesOthers)),
        ("it cannot be told what it would move", |world| {
            world.kernel.inject_fault(Knob::Mtu, Fault::MovesUntold(KernelErrorKind::Busy));
        }),
        ("not permitted", |world| {
            world.kernel.inject_fault(Knob::Mtu, Fault::MovesUntold(KernelErrorKind::Permission));
        }),
        ("the present values cannot be read", |world| {
            world.kernel.inject_fault(Knob::Mtu, Fault::Unreadable(KernelErrorKind::Busy));
        }),
        ("was not finished", |world| {
            let World { kernel, store, .. } = world;
            let (knob, value) = parse_assignment("gro=off").unwrap();
            apply(kernel, store, &context(), "eth0", &Setting::from([(knob, value)])).unwrap();
            store.next_process();
        }),
        ("there is no interface", |world| world.kernel.vanish("eth0")),
    ];
    for (words, spoil) in cases {
        let mut world = World::new();
        world.set("mtu=9000 txqueuelen=777");
        spoil(&mut world);
        let before = world.state();
        let planned = world.plan_undo(1).map(|(changes, _)| changes);
        let undone = world.undo(1).map(|(applied, _)| applied.changes);
        assert_eq!(world.state(), before, "{words}");
        if words.contains("cannot be read") {
            // A value that cannot be read is nobody's, and is left: both say what becomes of the rest.
            assert_eq!(planned, undone, "{words}");
            continue;
        }
        let (planned, undone) = (planned.unwrap_err(), undone.unwrap_err());
        assert_eq!((&planned, planned.outcome()), (&undone, undone.outcome()), "{words}");
        assert!(planned.to_string().contains(words), "{words}: {planned}");
    }
}

/// At each step of a change and of its undo: the checkpoint or the entry is there, and a restore leads to one of
/// the two states.
#[test]
fn killed_commit_leaves_checkpoint_or_entry() {
    let text = "mtu=9000 gro=off gro-flush-timeout=50us";
    let mut whole = World::new();
    let before = whole.state();
    whole.set(text);
    let changed = whole.state();
    for undoes in [false, true] {
        let (mut ends, mut entries) = ([0, 0], 0);
        for steps in 0.. {
            let mut world = World::new();
            if undoes {
                world.set(text);
            }
            let first = world.store.journal().len();
            world.fuse.burn_after(steps);
            let ended = if undoes { world.undo(1).is_ok() } else { world.try_set(text).is_ok() };
            let is_over = ended && !world.fuse.is_burnt();
            world.fuse.renew();
            world.store.next_process();
            let committed = world.store.journal().len() > first;
            let kept = world.store.kept("eth0").cloned();
            assert!(kept.is_none() || !committed, "both at step {steps}");
            if let Some(kept) = kept {
                restore(&mut world.kernel, &mut world.store, &context(), &kept).unwrap();
            }
            let (from, to) = if undoes { (&changed, &before) } else { (&before, &changed) };
            assert_eq!(&world.state(), if committed { to } else { from }, "step {steps}");
            ends[usize::from(committed)] += 1;
            entries += usize::from(committed);
            if is_over {
                break;
            }
        }
        assert!(ends[0] > 3 && entries > 0, "{ends:?}: the test does not test");
    }
}

#[test]
fn entry_finds_its_interface_under_a_new_name() {
    let mut world = World::new();
    world.set("mtu=9000");
    world.kernel.rename("eth0", "eth7");
    let entry = world.store.journal()[0].clone();
    let ends = |world: &World| -> Vec<(bool, bool)> {
        let standing = read_standing(&world.kernel, &entry);
        standing.iter().map(|value| (value.is_in_force(), value.is_back())).collect()
    };
    assert_eq!(ends(&world), [(true, false)]);
    assert_eq!(world.plan_undo(1).unwrap().0.len(), 1);
    world.undo(1).unwrap();
    assert_eq!(ends(&world), [(false, true)]);
    assert_eq!(world.kernel.state("eth7").0[&(Knob::Mtu, Place::Device)], Value::Count(1500));
    let of_nobody = Value::Count(1400);
    world.kernel.set_from_outside("eth7", Knob::Mtu, Place::Device, of_nobody);
    assert_eq!(ends(&world), [(false, false)]);
}

#[test]
fn borrowed_store_archives_as_its_owner_does() {
    fn number_of(mut store: impl CheckpointStore, slot: Slot) -> Option<u64> {
        store.archive(slot).unwrap()
    }
    let mut world = World::new();
    world.set("mtu=9000");
    world.set("mtu=1400");
    let last = world.store.journal()[1].clone();
    assert_eq!(number_of(&mut world.store, last.slot()), None);
    world.store.claim(last.slot(), "eth0").unwrap();
    world.store.save(&last).unwrap();
    assert_eq!(number_of(&mut world.store, last.slot()), Some(3));
}

/// From its first write on, a restore takes the values of now for its own.
#[test]
fn cut_restore_leaves_foreign_values() {
    for steps in 1..3 {
        let mut world = World::new();
        let words = ["mtu=9000", "txqueuelen=777"];
        let setting = Setting::from(words.map(|word| parse_assignment(word).unwrap()));
        let World { kernel, store, .. } = &mut world;
        let undo = apply(kernel, store, &context(), "eth0", &setting).unwrap().undo;
        world.kernel.set_from_outside("eth0", Knob::Txqueuelen, Place::Device, Value::Count(42));
        world.fuse.burn_after(steps);
        assert!(restore(&mut world.kernel, &mut world.store, &context(), &undo).is_err());
        world.fuse.renew();
        world.store.next_process();
        let kept = world.store.kept("eth0").unwrap().clone();
        assert!(kept.going_back.is_some(), "after step {steps}: {kept:?}");
        restore(&mut world.kernel, &mut world.store, &context(), &kept).unwrap();
        let now = world.state();
        assert_eq!(now.0[&(Knob::Txqueuelen, Place::Device)], Value::Count(42), "{steps}");
        assert_eq!(now.0[&(Knob::Mtu, Place::Device)], Value::Count(1500), "{steps}");
        assert!(world.store.is_clear());
    }
}

struct World {
    kernel: FakeKernel,
    store: MemoryCheckpoints,
    fuse: Fuse,
}

impl World {
    fn new() -> Self {
        let kernel = FakeKernel::with_interface("eth0", FakeInterface::nic(2));
        let fuse = kernel.fuse();
        Self { kernel, store: MemoryCheckpoints::with_fuse(fuse.clone()), fuse }
    }

    fn state(&self) -> State {
        self.kernel.state("eth0")
    }

    fn try_set(&mut self, text: &str) -> Result<Applied, ApplyError> {
        let parsed = text.split_whitespace().map(|word| parse_assignment(word).unwrap());
        let setting: Setting = parsed.collect();
        let Self { kernel, store, .. } = self;
        let applied = apply(kernel, store, &context(), "eth0", &setting)?;
        let _killed = commit(store, &applied.undo);
        Ok(applied)
    }

    fn set(&mut self, text: &str) {
        self.try_set(text).unwrap();
    }

    fn plan_undo(&self, number: u64) -> Result<(Vec<Change>, Vec<Foreign>), ApplyError> {
        let earlier = &self.store.journal()[usize::try_from(number - 1).unwrap()];
        plan_undo(&self.kernel, &self.store, &context(), earlier)
    }

    fn undo(&mut self, number: u64) -> Result<(Applied, Vec<Foreign>), ApplyError> {
        let Self { kernel, store, .. } = self;
        let earlier = store.journal()[usize::try_from(number - 1).unwrap()].clone();
        let context = Context { undoes: Some(number), ..context() };
        let undone = undo(kernel, store, &context, &earlier)?;
        let _killed = commit(store, &undone.0.undo);
        Ok(undone)
    }
}
