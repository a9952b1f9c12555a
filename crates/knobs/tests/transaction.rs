//! The transaction against a kernel that rounds, refuses, forgets and vanishes: each ending by name.

use latput_knobs::KernelRead as _;
use latput_knobs::{
    Applied, ApplyError, Cause, Change, ChangeOutcome, Checkpoint, CheckpointStore, ConfirmError,
    Context, KernelErrorKind, KernelWrite, Knob, LinkResets, Place, Refusal, RestoreError,
    Restored, Setting, Slot, State, StoreError, Value, apply, await_confirmation, commit, confirm,
    extend, parse_assignment, plan, plan_apply, plan_restore, restore,
};
use latput_testkit::{FakeInterface, FakeKernel, Fault, MemoryCheckpoints, context, slot};
use latput_units::Nanos;

/// Nothing was changed.
const REFUSED: ChangeOutcome = ChangeOutcome::Refused(Refusal::Failure);
/// Nothing was changed, for lack of a privilege.
const NOT_PERMITTED: ChangeOutcome = ChangeOutcome::Refused(Refusal::Permission);
/// Nothing was changed, for what was asked for makes no sense here.
const WRONG_USAGE: ChangeOutcome = ChangeOutcome::Refused(Refusal::Usage);

#[test]
fn change_waits_for_confirmation() {
    let mut world = World::new(FakeInterface::without_napi_values(1));
    let before = world.kernel.state("eth0");
    let device = world.kernel.device("eth0").unwrap();
    check_confirm(
        &mut world,
        &Checkpoint::new(&context(), "eth0", device),
        9,
        "eth0: no change waits to be confirmed",
    );
    let undo = world.apply("mtu=9000").unwrap().undo;
    check_confirm(&mut world, &undo, 9, "was not finished, so it cannot be confirmed");
    world.store.claim(slot(), "eth0").unwrap();
    await_confirmation(&mut world.store, &undo, Nanos::from_s(10)).unwrap();
    world.store.next_process();
    let second = world.apply("mtu=1400").unwrap_err();
    assert!(full(&second).contains("`latput confirm eth0` keeps it"), "{second}");
    let late = Context { since_boot: Nanos::from_s(10), ..context() };
    let late = plan_apply(&world.kernel, &world.store, &late, "eth0", &setting("mtu=1400"));
    assert!(matches!(late, Err(ApplyError::Unfinished { .. })), "its time is over: {late:?}");
    world.store.next_process();
    check_confirm(&mut world, &undo, 10, "too late by 1s");
    check_confirm(&mut world, &undo, 13, "too late by 3s, and the change was not put back");
    let changed = world.kernel.state("eth0");
    confirm(&world.kernel, &mut world.store, &context(), &undo, Nanos::from_s(9)).unwrap();
    assert!(world.store.is_clear());
    assert_eq!(world.kernel.state("eth0"), changed);
    assert_ne!(changed, before);
}

/// A driver that starts with values which it does not take (`sfc`: unequal delays on shared channels).
#[test]
fn knob_whose_present_value_is_refused_stays() {
    let mut world = World::new(FakeInterface::without_napi_values(1));
    let before = world.kernel.state("eth0");
    world.kernel.inject_fault(Knob::RxUsecs, Fault::RefusePresent);
    let error = world.apply("rx-usecs=50us").unwrap_err();
    assert_eq!(error.outcome(), ChangeOutcome::RolledBack, "{}", full(&error));
    assert_eq!(world.kernel.state("eth0"), before);
    assert!(world.kernel.written().is_empty(), "not even once: {:?}", world.kernel.written());
    assert!(world.store.is_clear());
}

#[test]
fn dry_run_refuses_as_the_change_does() {
    type Spoil = fn(&mut World);
    let of_host = |world: &mut World| {
        world.kernel.add("eth1", FakeInterface::without_napi_values(1));
        world.apply_setting("eth1", &setting("busy-poll=9us")).unwrap();
        world.store.next_process();
    };
    let cases: [(&str, &str, Spoil); 7] = [
        ("mtu=1400", "in use by another latput (pid 77)", |world| world.store.lock_by(77, slot())),
        ("busy-poll=50us", "in use by another latput (pid 78)", |world| {
            world.store.lock_by(78, Slot::host(slot().namespace));
        }),
        ("busy-poll=50us", "eth1: a change by", of_host),
        ("mtu=1400", "was not finished", |world| {
            world.apply("gro=off").unwrap();
            world.store.next_process();
        }),
        ("mtu=1400", "waits to be confirmed", |world| {
            let undo = world.apply("gro=off").unwrap().undo;
            await_confirmation(&mut world.store, &undo, Nanos::from_s(10)).unwrap();
            world.store.next_process();
        }),
        ("mtu=1400", "there is no interface", |world| world.kernel.vanish("eth0")),
        ("mtu=1400", "it would move others", |world| {
            world.kernel.inject_fault(Knob::Mtu, Fault::MovesOthers);
        }),
    ];
    let planned = |world: &World, desired: &str| {
        plan_apply(&world.kernel, &world.store, &context(), "eth0", &setting(desired))
    };
    for (desired, words, spoil) in cases {
        let mut world = World::new(FakeInterface::without_napi_values(1));
        spoil(&mut world);
        let before = world.kernel.state("eth0");
        let foretold = planned(&world, desired).unwrap_err();
        assert!(full(&foretold).contains(words), "{words}: {}", full(&foretold));
        assert_eq!(foretold, world.apply(desired).unwrap_err(), "{words}");
        assert_eq!(world.kernel.state("eth0"), before, "{words}");
    }
    // Changes that others have left of other knobs of the host or of other interfaces are no obstacle.
    let mut world = World::new(FakeInterface::without_napi_values(1));
    of_host(&mut world);
    world.store.lock_by(78, Slot::host(slot().namespace));
    let foretold = planned(&world, "mtu=1400").unwrap();
    assert_eq!(foretold, world.apply("mtu=1400").unwrap().changes);
}

#[test]
fn change_that_moves_others_is_refused_unwritten() {
    for (fault, outcome) in [
        (Fault::MovesOthers, REFUSED),
        (Fault::MovesUntold(KernelErrorKind::Busy), REFUSED),
        (Fault::MovesUntold(KernelErrorKind::Permission), NOT_PERMITTED),
    ] {
        let mut world = World::new(FakeInterface::without_napi_values(1));
        world.kernel.inject_fault(Knob::Mtu, fault);
        let planned = plan(&world.kernel, "eth0", &setting("mtu=9000")).unwrap_err();
        let error = world.apply("txqueuelen=777 mtu=9000").unwrap_err();
        assert_eq!((&planned, error.outcome()), (&error, outcome), "{fault:?}: {}", full(&error));
        assert!(world.kernel.written().is_empty() && world.store.is_clear(), "{fault:?}");
        world.apply("mtu=1500 txqueuelen=777").unwrap();
    }
}

#[test]
fn waiting_change_gets_more_time_only() {
    let mut world = World::new(FakeInterface::without_napi_values(1));
    let undo = world.apply("mtu=9000").unwrap().undo;
    world.store.claim(slot(), "eth0").unwrap();
    await_confirmation(&mut world.store, &undo, Nanos::from_s(10)).unwrap();
    let mut more = |now: u64, by: u64| {
        let times = (Nanos::from_s(now), Nanos::from_s(by));
        let ended = extend(&mut world.store, &context(), &undo, times);
        ended.map(|()| world.store.kept("eth0").unwrap().confirm_by.unwrap())
    };
    assert_eq!(more(9, 20), Ok(Nanos::from_s(20)));
    assert_eq!(more(9, 15), Ok(Nanos::from_s(20)));
    assert!(matches!(more(20, 99), Err(ConfirmError::TooLate { .. })));
}

/// A change that another has begun since is neither put back nor confirmed in its place.
#[test]
fn another_change_than_the_listed_one_is_left() {
    let mut world = World::new(FakeInterface::without_napi_values(1));
    let listed = world.apply("mtu=9000").unwrap().undo;
    world.store.claim(slot(), "eth0").unwrap();
    await_confirmation(&mut world.store, &listed, Nanos::from_s(10)).unwrap();
    let changed = world.kernel.state("eth0");
    let stale = Checkpoint { created_unix_ms: listed.created_unix_ms - 1, ..listed };
    let restored = restore(&mut world.kernel, &mut world.store, &context(), &stale);
    assert_eq!(restored, Ok(Restored::NothingToDo));
    assert_eq!(world.kernel.state("eth0"), changed);
    check_confirm(&mut world, &stale, 9, "eth0: no change waits to be confirmed");
    assert!(world.store.kept("eth0").is_some());
}

#[test]
fn missing_privilege_is_named_on_confirm() {
    let (path, reason) = ("/run/latput".to_owned(), "permission denied".to_owned());
    let refused = StoreError::Permission { path, operation: "remove", reason };
    let locked = StoreError::Locked { interface: "eth0".to_owned(), pid: 77 };
    for (source, kind) in [(refused, NOT_PERMITTED), (locked, REFUSED)] {
        let (interface, again) = ("eth0".to_owned(), source.clone());
        assert_eq!(ConfirmError::Store { interface, source: again }.outcome(), kind);
        let (interface, again) = ("eth0".to_owned(), source.clone());
        assert_eq!(RestoreError::Store { interface, source: again }.outcome(), kind);
        let interface = "eth0".to_owned();
        let forget = RestoreError::Forget { interface, source };
        assert_eq!(forget.outcome(), ChangeOutcome::Stranded, "it would be put back again");
    }
}

#[test]
fn waiting_change_ends_by_restore_or_boot() {
    let mut world = World::new(FakeInterface::without_napi_values(1));
    let before = world.kernel.state("eth0");
    let undo = world.apply("mtu=9000 gro-flush-timeout=50us").unwrap().undo;
    await_confirmation(&mut world.store, &undo, Nanos::from_s(10)).unwrap();
    let booted = Context { boot_id: "the next".to_owned(), ..context() };
    let error =
        confirm(&world.kernel, &mut world.store, &booted, &undo, Nanos::from_s(1)).unwrap_err();
    assert!(full(&error).contains("before the last boot"), "{error}");
    restore(&mut world.kernel, &mut world.store, &context(), &undo).unwrap();
    assert_eq!(world.kernel.state("eth0"), before);
    assert!(world.store.is_clear());
}

#[test]
fn link_reset_is_refused_until_allowed() {
    let mut world = World::new(FakeInterface::nic(1));
    let before = world.kernel.state("eth0");
    for (link_resets, expected) in [
        (
            LinkResets::Refused,
            "eth0: a change of rx-ring, mtu takes the link down and up: allow that with \
             `--allow-link-reset` (in a plan: `allow_link_reset = true` under [method])",
        ),
        (LinkResets::RefusedOnControl, "name the interface again: `--allow-link-reset=eth0`"),
    ] {
        let context = Context { link_resets, ..context() };
        let World { kernel, store, .. } = &mut world;
        let mut set = |desired: &str| apply(kernel, store, &context, "eth0", &setting(desired));
        let error = set("mtu=9000 rx-ring=512 gro-flush-timeout=50us").unwrap_err();
        assert!(full(&error).contains(expected), "{error}");
        assert_eq!(error.outcome(), REFUSED);
        assert!(
            matches!(set("mtu=1500"), Ok(Applied { .. })),
            "nothing changes, and nothing resets"
        );
        world.store.next_process();
        assert_eq!(world.kernel.state("eth0"), before);
        assert!(world.store.is_clear());
    }
    // Going back needs nobody's word.
    let undo = world.apply("mtu=9000").unwrap().undo;
    let context = Context { link_resets: LinkResets::Refused, ..context() };
    restore(&mut world.kernel, &mut world.store, &context, &undo).unwrap();
    assert_eq!(world.kernel.state("eth0"), before);
}

#[test]
fn only_differences_are_written_in_order() {
    let mut world = World::new(FakeInterface::without_napi_values(2));
    world.apply("gro-flush-timeout=50us mtu=9000 tso=on rps-cpus=0-1 gso=off").unwrap();
    assert_eq!(
        world.written(),
        "mtu (device)=9000 gso (device)=off rps-cpus (rx-0)=0-1 rps-cpus (rx-1)=0-1 \
         gro-flush-timeout (device)=50us"
    );
}

#[test]
fn changes_follow_plan_and_checkpoint_undoes_them() {
    let mut world = World::new(FakeInterface::without_napi_values(1));
    let desired = setting("mtu=9000 gro-flush-timeout=50us");
    let planned = plan(&world.kernel, "eth0", &desired).unwrap();
    assert!(world.kernel.written().is_empty());
    let Applied { changes, undo, .. } = world.apply("mtu=9000 gro-flush-timeout=50us").unwrap();
    assert_eq!(changes, planned);
    let text: Vec<String> = changes.iter().map(ToString::to_string).collect();
    assert_eq!(text, ["mtu (device): 1500 -> 9000", "gro-flush-timeout (device): 0us -> 50us"]);
    assert_eq!(world.kept(), Some(&undo));
    let planned = plan_restore(&world.kernel, &context(), &undo).unwrap();
    let restored = world.restore(&undo).unwrap();
    assert_eq!(restored, planned);
    let turned = |it: Change| Change { from: it.to, to: it.from, ..it };
    let back = changes.into_iter().map(turned).collect();
    assert_eq!(restored, Restored::Done { changes: back, gone: vec![], others: vec![] });
    world.check_as_before();
}

#[test]
fn nothing_to_change_writes_and_keeps_nothing() {
    let mut world = World::new(FakeInterface::nic(2));
    let applied = world.apply("mtu=1500 gro=on").unwrap();
    assert_eq!(applied.changes, []);
    assert_eq!(world.kept(), None);
    assert!(world.kernel.written().is_empty());
    assert_eq!(world.restore(&applied.undo), Ok(Restored::NothingToDo));
    world.check_as_before();
}

#[test]
fn value_set_by_others_since_stays() {
    let mut world = World::new(FakeInterface::nic(2));
    let applied = world.apply("mtu=9000 txqueuelen=777").unwrap();
    world.outside("mtu=1450", Place::Device);
    let planned = plan_restore(&world.kernel, &context(), &applied.undo).unwrap();
    let restored = world.restore(&applied.undo).unwrap();
    assert_eq!(restored, planned);
    let Restored::Done { changes, others, .. } = restored else { panic!("{restored:?}") };
    assert_eq!(changes.len(), 1, "the queue length goes back");
    assert_eq!(
        others[0].to_string(),
        "mtu (device) is 1450, set by another program: it was 1500, and latput set 9000"
    );
    assert_eq!(world.value(Knob::Mtu, Place::Device), Value::Count(1450));
    assert_eq!(world.value(Knob::Txqueuelen, Place::Device), Value::Count(1000));
    assert!(world.store.is_clear());
}

#[test]
fn delay_that_adaptive_moderation_moved_goes_back() {
    let mut world = World::new(FakeInterface::nic(1));
    let before = world.value(Knob::RxUsecs, Place::Device);
    let applied = world.apply("adaptive-rx=off rx-usecs=77").unwrap();
    world.kernel.set_from_outside("eth0", Knob::AdaptiveRx, Place::Device, Value::Switch(true));
    let moved = Value::Time(Nanos::from_us(33));
    world.kernel.set_from_outside("eth0", Knob::RxUsecs, Place::Device, moved);
    world.restore(&applied.undo).unwrap();
    assert_eq!(world.value(Knob::RxUsecs, Place::Device), before);
}

#[test]
fn commit_forgets_the_way_back() {
    let mut world = World::new(FakeInterface::nic(2));
    let applied = world.apply("mtu=9000").unwrap();
    commit(&mut world.store, &applied.undo).unwrap();
    assert!(world.store.is_clear());
    assert_eq!(world.restore(&applied.undo), Ok(Restored::NothingToDo));
    assert_eq!(world.value(Knob::Mtu, Place::Device), Value::Count(9000));
}

#[test]
fn what_a_change_resets_is_written_again() {
    let mut world = World::new(FakeInterface::nic(2));
    world.outside("gro-flush-timeout=20us", Place::Napi(1));
    let applied = world.apply("gro=off napi-defer-hard-irqs=100").unwrap();
    let flush = Knob::GroFlushTimeout;
    assert_eq!(world.value(flush, Place::Napi(0)).to_string(), "0us");
    assert_eq!(world.value(flush, Place::Napi(1)).to_string(), "20us", "undesired, but kept");
    assert_eq!(world.value(Knob::NapiDeferHardIrqs, Place::Napi(1)), Value::Count(100));
    assert!(applied.changes.iter().all(|change| change.knob != flush), "no net change");
    world.restore(&applied.undo).unwrap();
    world.check_as_before();
}

#[test]
fn values_of_removed_napis_return() {
    let mut world = World::new(FakeInterface::veth(2));
    world.outside("gro-flush-timeout=20us", Place::Napi(0));
    world.outside("napi-defer-hard-irqs=7", Place::Napi(1));
    let applied = world.apply("gro=off").unwrap();
    assert!(!world.kernel.state("eth0").0.contains_key(&(Knob::GroFlushTimeout, Place::Napi(0))));
    world.restore(&applied.undo).unwrap();
    world.check_as_before();
}

#[test]
fn wanted_value_reaches_new_napis() {
    let mut world = World::new(FakeInterface::veth(2));
    world.outside("gro=off", Place::Device);
    let applied = world.apply("gro=on gro-flush-timeout=50us").unwrap();
    for place in [Place::Device, Place::Napi(0), Place::Napi(1)] {
        assert_eq!(world.value(Knob::GroFlushTimeout, place).to_string(), "50us");
    }
    let Ok(Restored::Done { .. }) = world.restore(&applied.undo) else { panic!() };
    world.check_as_before();
}

#[test]
fn device_write_keeps_napi_values() {
    let mut world = World::new(FakeInterface::nic(2));
    world.outside("gro-flush-timeout=20us", Place::Napi(0));
    world.outside("gro-flush-timeout=30us", Place::Napi(1));
    let applied = world.apply("gro-flush-timeout=50us").unwrap();
    world.restore(&applied.undo).unwrap();
    world.check_as_before();
}

#[test]
fn what_is_wrong_from_the_start_touches_nothing() {
    check_untouched(
        |_| {},
        "mtu=9000 tso=off",
        "eth0: tso cannot be set here: operation not supported",
        REFUSED,
    );
    check_untouched(
        |world| world.kernel.inject_fault(Knob::Gso, Fault::ReadOnly),
        "mtu=9000 gso=off",
        "eth0: gso cannot be set here: this driver has no way to set it",
        REFUSED,
    );
    check_untouched(
        |world| world.kernel.vanish("eth0"),
        "mtu=9000",
        "there is no interface `eth0`: `latput show` lists them",
        WRONG_USAGE,
    );
    check_untouched(
        |world| {
            world.kernel.inject_fault(Knob::Mtu, Fault::Unreadable(KernelErrorKind::Permission));
        },
        "mtu=9000",
        "nothing was changed, because the present values cannot be read: eth0: mtu: cannot read it in the \
         fake kernel: operation not permitted",
        NOT_PERMITTED,
    );
    check_untouched(
        |world| {
            let nonsense = Value::Switch(true);
            world.kernel.set_from_outside("eth0", Knob::Mtu, Place::Device, nonsense);
        },
        "mtu=9000",
        "nothing was changed, because the present values cannot be read: eth0: mtu: cannot read it: the \
         answer has no place, a place twice, or a value of another kind",
        REFUSED,
    );
    // MTU may reset it, so it must be known, although it is not wanted.
    check_untouched(
        |world| {
            world
                .kernel
                .inject_fault(Knob::Threaded, Fault::Unreadable(KernelErrorKind::Malformed));
        },
        "mtu=9000",
        "nothing was changed, because the present values cannot be read: eth0: threaded: cannot read it in \
         the fake kernel: the answer ends in the middle",
        REFUSED,
    );
}

#[test]
fn checkpoint_that_cannot_be_kept_touches_nothing() {
    check_untouched(
        |world| world.store.fill_disk_after(0),
        "mtu=9000",
        "nothing was changed: /run/latput/eth0.json: cannot write the checkpoint: no space left on device",
        REFUSED,
    );
    check_untouched(
        |world| {
            let (path, reason) = ("/run/latput".to_owned(), "permission denied".to_owned());
            let error = StoreError::Permission { path, operation: "write", reason };
            world.store.fail_after(0, error);
        },
        "mtu=9000",
        "nothing was changed: /run/latput: cannot write the checkpoint: permission denied: run as root",
        NOT_PERMITTED,
    );
    check_untouched(
        |world| world.store.lock_by(77, slot()),
        "mtu=9000",
        "eth0 is in use by another latput (pid 77). Nothing was changed.",
        REFUSED,
    );
}

#[test]
fn refused_first_write_changes_nothing() {
    let check = |kind, expected: &str, ending| {
        let mut world = World::new(FakeInterface::nic(1));
        world.kernel.inject_fault(Knob::Mtu, Fault::Refuse(kind));
        let error = world.apply("mtu=9000 gso=off").unwrap_err();
        assert_eq!((full(&error).as_str(), error.outcome()), (expected, ending));
        assert!(world.kernel.written().is_empty());
        world.check_as_before();
    };
    check(
        KernelErrorKind::Refused,
        "eth0: refused, nothing was changed: eth0: mtu: cannot write it in the fake kernel: invalid \
         argument",
        REFUSED,
    );
    check(
        KernelErrorKind::Permission,
        "eth0: not permitted, nothing was changed: run as root (CAP_NET_ADMIN): eth0: mtu: cannot \
         write it in the fake kernel: operation not permitted",
        NOT_PERMITTED,
    );
}

#[test]
fn any_failed_write_restores_everything() {
    let desired = "mtu=9000 gro=off gso=off rps-cpus=0 threaded=on napi-defer-hard-irqs=9";
    let faults = [
        Fault::Refuse(KernelErrorKind::Busy),
        Fault::Refuse(KernelErrorKind::Permission),
        Fault::Ignore,
    ];
    for (fault, interface) in faults.into_iter().flat_map(|fault| {
        [FakeInterface::nic(2), FakeInterface::veth(2)].map(|interface| (fault, interface))
    }) {
        let mut writes = 0;
        loop {
            let mut world = World::new(interface.clone());
            world.outside("gro-flush-timeout=20us", Place::Napi(1));
            world.kernel.inject_fault_once(writes, fault);
            match world.apply(desired) {
                // The fault came after the last write.
                Ok(_) => break,
                Err(ApplyError::Refused { .. } | ApplyError::Permission { .. }) => {
                    assert_eq!(writes, 0);
                }
                Err(ApplyError::RolledBack { .. }) => {}
                Err(error) => panic!("write {writes}: {error:?}"),
            }
            world.check_as_before();
            writes += 1;
        }
        assert!(writes >= 7, "{fault:?}: only {writes} writes");
    }
}

#[test]
fn forgotten_or_rounded_write_rolls_back() {
    let check = |fault, found| {
        let mut world = World::new(FakeInterface::nic(1));
        world.kernel.inject_fault(Knob::Txqueuelen, fault);
        let error = world.apply("mtu=9000 txqueuelen=777").unwrap_err();
        assert_eq!(error.outcome(), ChangeOutcome::RolledBack);
        let ApplyError::RolledBack { cause, .. } = error else { panic!("{error:?}") };
        assert_eq!(
            cause.to_string(),
            format!("eth0: txqueuelen (device): accepted 777 but reads back {found}")
        );
        world.check_as_before();
    };
    check(Fault::Ignore, 1000);
    check(Fault::Round(500), 500);
}

#[test]
fn failed_rollback_keeps_its_checkpoint() {
    let mut world = World::new(FakeInterface::without_napi_values(1));
    world.kernel.inject_fault_after(1, Knob::Mtu, Fault::Refuse(KernelErrorKind::Busy));
    world.kernel.inject_fault(Knob::Gro, Fault::Refuse(KernelErrorKind::Refused));
    let error = world.apply("mtu=9000 txqueuelen=777 gro=off").unwrap_err();
    assert_eq!(error.outcome(), ChangeOutcome::Stranded);
    let ApplyError::Stranded { cause, left, finish, .. } = &error else { panic!("{error:?}") };
    assert!(matches!(&**cause, Cause::Kernel(error) if error.knob == Some(Knob::Gro)));
    assert_eq!(left.len(), 1, "the transmit queue went back: {left:?}");
    assert_eq!(
        left[0].to_string(),
        "mtu (device) should be 1500 but is 9000: eth0: mtu: cannot write it in the fake kernel: \
         device or resource busy"
    );
    assert!(finish.contains("`latput restore`") && finish.contains("mtu (device) should be 1500"));
    let kept = world.kept().expect("the checkpoint is kept").clone();

    let again = world.apply("gso=off").unwrap_err();
    assert!(matches!(again, ApplyError::Unfinished { .. }), "{again:?}");
    let restored = world.restore(&kept).unwrap_err();
    assert!(matches!(restored, RestoreError::Stranded { .. }), "{restored:?}");
    assert_eq!(restored.outcome(), ChangeOutcome::Stranded);
    world.kernel.clear_faults();
    assert!(matches!(world.restore(&kept), Ok(Restored::Done { .. })));
    world.check_as_before();
}

#[test]
fn unreadable_value_is_written_back_unseen() {
    let mut world = World::new(FakeInterface::without_napi_values(1));
    let unreadable = Fault::Unreadable(KernelErrorKind::Malformed);
    world.kernel.inject_fault_after(1, Knob::Mtu, unreadable);
    let error = world.apply("mtu=9000").unwrap_err();
    let ApplyError::Stranded { left, .. } = error else { panic!("{error:?}") };
    assert_eq!((left[0].knob, &left[0].found), (Knob::Mtu, &None));
    assert_eq!(world.value(Knob::Mtu, Place::Device), Value::Count(1500));
}

#[test]
fn unreadable_foreign_value_is_not_overwritten() {
    let mut world = World::new(FakeInterface::without_napi_values(1));
    let undo = world.apply("mtu=1400 gro=off").unwrap().undo;
    world.outside("mtu=1450", Place::Device);
    world.kernel.inject_fault(Knob::Mtu, Fault::Unreadable(KernelErrorKind::Busy));
    let written = world.kernel.written().len();
    let error = world.restore(&undo).unwrap_err();
    assert!(full(&error).contains("run `latput restore` again"), "{}", full(&error));
    assert_eq!(error, plan_restore(&world.kernel, &context(), &undo).unwrap_err());
    assert_eq!(world.kernel.written().len(), written, "nothing before all is known");
    world.kernel.clear_faults();
    let Restored::Done { others, .. } = world.restore(&undo).unwrap() else { panic!() };
    assert_eq!((others.len(), others[0].found.clone()), (1, Value::Count(1450)));
    assert_eq!(world.value(Knob::Gro, Place::Device), Value::Switch(true));
    assert_eq!(world.value(Knob::Mtu, Place::Device), Value::Count(1450));
}

#[test]
fn value_set_between_two_attempts_stays() {
    let mut world = World::new(FakeInterface::without_napi_values(1));
    let undo = world.apply("mtu=1400 gro=off").unwrap().undo;
    world.kernel.inject_fault(Knob::Gro, Fault::Refuse(KernelErrorKind::Refused));
    world.restore(&undo).unwrap_err();
    assert_eq!(world.value(Knob::Mtu, Place::Device), Value::Count(1500));
    let left: Vec<Knob> =
        world.kept().unwrap().to_put_back().0.keys().map(|(knob, _)| *knob).collect();
    assert_eq!(left, [Knob::Gro]);
    // It is back: whoever sets it now is its owner.
    world.outside("mtu=1450", Place::Device);
    world.restore(&undo).unwrap_err();
    world.kernel.clear_faults();
    world.restore(&undo).unwrap();
    assert_eq!(world.value(Knob::Mtu, Place::Device), Value::Count(1450));
    assert_eq!(world.value(Knob::Gro, Place::Device), Value::Switch(true));
}

#[test]
fn lost_interface_leaves_nothing_to_restore() {
    let mut world = World::new(FakeInterface::nic(1));
    world.kernel.inject_fault_once(1, Fault::Vanish);
    let error = world.apply("mtu=9000 txqueuelen=777").unwrap_err();
    assert!(matches!(error, ApplyError::InterfaceGone { .. }), "{error:?}");
    assert_eq!(error.outcome(), REFUSED);
    assert!(world.store.is_clear());
}

#[test]
fn checkpoint_of_lost_interface_is_dropped() {
    let mut world = World::new(FakeInterface::nic(1));
    let applied = world.apply("mtu=9000").unwrap();
    world.kernel.vanish("eth0");
    assert_eq!(world.restore(&applied.undo), Ok(Restored::InterfaceGone));
    assert!(world.store.is_clear());
}

#[test]
fn old_value_outside_range_is_restored() {
    let mut world = World::new(FakeInterface::nic(1));
    world.kernel.set_from_outside("eth0", Knob::Mtu, Place::Device, Value::Count(576));
    world.before = world.kernel.state("eth0");
    let applied = world.apply("mtu=9000").unwrap();
    world.restore(&applied.undo).unwrap();
    world.check_as_before();
}

#[test]
fn later_foreign_value_survives_undo() {
    let mut world = World::new(FakeInterface::nic(2));
    // Both are wanted, but only one differs: the other is no part of the change.
    let applied = world.apply("gro=off txqueuelen=1000 mtu=1500").unwrap();
    let flush = (Knob::GroFlushTimeout, parse_assignment("gro-flush-timeout=20us").unwrap().1);
    let before = world.before.clone();
    world.outside("txqueuelen=777", Place::Device);
    world.outside("mtu=9000", Place::Device);
    world.restore(&applied.undo).unwrap();
    let mut expected = before;
    expected.0.insert((Knob::Txqueuelen, Place::Device), Value::Count(777));
    expected.0.insert((Knob::Mtu, Place::Device), Value::Count(9000));
    assert_eq!(world.kernel.state("eth0"), expected);

    // Undoing the GRO makes new NAPIs, which must not cost a queue that was added meanwhile its value.
    let mut world = World::new(FakeInterface::nic(1));
    let applied = world.apply("gro=off").unwrap();
    world.kernel.rebuild("eth0", FakeInterface::nic(2));
    world.outside("gro=off", Place::Device);
    world.kernel.set_from_outside("eth0", flush.0, Place::Napi(1), flush.1.clone());
    world.restore(&applied.undo).unwrap();
    assert_eq!(world.value(flush.0, Place::Napi(1)), flush.1);
}

#[test]
fn lost_queue_does_not_block_others() {
    let mut world = World::new(FakeInterface::nic(2));
    let applied = world.apply("rps-cpus=0 txqueuelen=777").unwrap();
    world.kernel.rebuild("eth0", FakeInterface::nic(1));
    world.outside("txqueuelen=777", Place::Device);
    let Restored::Done { changes, gone, .. } = world.restore(&applied.undo).unwrap() else {
        panic!()
    };
    assert_eq!(gone, [(Knob::RpsCpus, Place::RxQueue(1))]);
    assert_eq!(changes.len(), 1);
    assert_eq!(world.value(Knob::Txqueuelen, Place::Device), Value::Count(1000));
}

#[test]
fn checkpoint_of_other_boot_is_kept() {
    let mut world = World::new(FakeInterface::nic(1));
    let applied = world.apply("mtu=9000").unwrap();
    let mut elsewhere = context();
    elsewhere.boot_id = "another".to_owned();
    let error = restore(&mut world.kernel, &mut world.store, &elsewhere, &applied.undo);
    assert!(matches!(error, Err(RestoreError::OtherBoot { .. })), "{error:?}");
    elsewhere = context();
    elsewhere.namespace += 1;
    let error = restore(&mut world.kernel, &mut world.store, &elsewhere, &applied.undo);
    assert!(matches!(error, Err(RestoreError::OtherNamespace { .. })), "{error:?}");
    assert!(plan_restore(&world.kernel, &elsewhere, &applied.undo).is_err());
    // The store's checkpoint counts, not the caller's.
    let mut kept = applied.undo.clone();
    kept.boot_id = "another".to_owned();
    world.store.save(&kept).unwrap();
    let error = world.restore(&applied.undo);
    assert!(matches!(error, Err(RestoreError::OtherBoot { .. })), "{error:?}");
    assert_eq!(world.kept(), Some(&kept));
    assert_eq!(world.value(Knob::Mtu, Place::Device), Value::Count(9000));
}

#[test]
fn another_process_keeps_its_checkpoint() {
    let mut world = World::new(FakeInterface::nic(1));
    let applied = world.apply("mtu=9000").unwrap();
    world.store.lock_by(77, slot());
    let error = world.restore(&applied.undo).unwrap_err();
    assert!(matches!(error, RestoreError::Store { .. }), "{error:?}");
    assert_eq!(world.kept(), Some(&applied.undo));
}

/// One interface `eth0`, its store, and how it was at the start.
struct World {
    kernel: FakeKernel,
    store: MemoryCheckpoints,
    before: State,
}

impl World {
    fn new(interface: FakeInterface) -> Self {
        let kernel = FakeKernel::with_interface("eth0", interface);
        let store = MemoryCheckpoints::with_fuse(kernel.fuse());
        let before = kernel.state("eth0");
        Self { kernel, store, before }
    }

    /// Somebody sets a value before the test begins.
    fn outside(&mut self, assignment: &str, place: Place) {
        let (knob, value) = parse_assignment(assignment).expect(assignment);
        self.kernel.set_from_outside("eth0", knob, place, value);
        self.before = self.kernel.state("eth0");
    }

    fn apply(&mut self, desired: &str) -> Result<Applied, ApplyError> {
        self.apply_setting("eth0", &setting(desired))
    }

    fn apply_setting(&mut self, name: &str, desired: &Setting) -> Result<Applied, ApplyError> {
        let kernel: &mut dyn KernelWrite = &mut self.kernel;
        apply(kernel, &mut self.store, &context(), name, desired)
    }

    fn restore(&mut self, checkpoint: &Checkpoint) -> Result<Restored, RestoreError> {
        restore(&mut self.kernel, &mut self.store, &context(), checkpoint)
    }

    fn kept(&self) -> Option<&Checkpoint> {
        self.store.kept("eth0")
    }

    fn value(&self, knob: Knob, place: Place) -> Value {
        self.kernel.state("eth0").0[&(knob, place)].clone()
    }

    fn written(&self) -> String {
        let written = self.kernel.written().iter();
        let text: Vec<String> =
            written.map(|(knob, place, value)| format!("{knob} ({place})={value}")).collect();
        text.join(" ")
    }

    /// Every value is as it was, and neither checkpoint nor lock is left.
    #[track_caller]
    fn check_as_before(&self) {
        assert_eq!(self.kernel.state("eth0"), self.before);
        assert!(self.store.is_clear());
    }
}

/// Applies `desired` after `prepare`, which must end with this error and with no trace.
#[track_caller]
fn check_untouched(
    prepare: impl FnOnce(&mut World),
    desired: &str,
    expected: &str,
    outcome: ChangeOutcome,
) {
    let mut world = World::new(FakeInterface::nic(1).without_knob(Knob::Tso));
    prepare(&mut world);
    let before = world.kernel.state("eth0");
    let error = world.apply(desired).expect_err(desired);
    assert_eq!((full(&error).as_str(), error.outcome()), (expected, outcome));
    assert_eq!(world.kernel.state("eth0"), before);
    assert!(world.kernel.written().is_empty() && world.kept().is_none());
    // A dry run finds the same, but for what the store says.
    let plannable = matches!(error, ApplyError::Checkpoint(_) | ApplyError::InUse { .. });
    assert_eq!(plan(&world.kernel, "eth0", &setting(desired)).is_ok(), plannable);
}

#[track_caller]
fn check_confirm(world: &mut World, change: &Checkpoint, now_s: u64, expected: &str) {
    let now = Nanos::from_s(now_s);
    let error =
        confirm(&world.kernel, &mut world.store, &context(), change, now).expect_err(expected);
    assert!(full(&error).contains(expected), "{error}");
    // A value that should be back by then is not.
    let is_late = expected.starts_with("too late");
    let kind = if is_late { ChangeOutcome::Stranded } else { REFUSED };
    assert_eq!(error.outcome(), kind, "{error}");
    world.store.next_process();
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
