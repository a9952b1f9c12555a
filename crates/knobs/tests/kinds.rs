//! The transaction with words, rounding, adaptive moderation, load-time parameters and the knobs of the host.

use latput_knobs::{
    Applied, ApplyError, Cause, ChangeOutcome, Checkpoint, KernelErrorKind, Knob, Place, Refusal,
    Restored, Session, Setting, apply, commit, parse_assignment, restore,
};
use latput_testkit::{FakeInterface, FakeKernel, Fault, MemoryCheckpoints, context};

/// Nothing was changed.
const REFUSED: ChangeOutcome = ChangeOutcome::Refused(Refusal::Failure);

#[test]
fn delays_lost_with_a_mode_go_back() {
    for (mode, delay) in [
        ("adaptive-rx=on", "rx-usecs=77us"),
        ("adaptive-tx=on", "tx-frames=7"),
        ("cqe-mode-rx=on", "rx-frames=7"),
        ("cqe-mode-tx=on", "tx-usecs=77us"),
    ] {
        let mut world = World::new(FakeInterface::nic(1).with_mode_tables());
        world.outside(delay);
        let before = world.kernel.state("eth0");
        let (knob, value) = parse_assignment(delay).unwrap();
        let applied = world.apply(mode).unwrap();
        let now = world.kernel.state("eth0").0[&(knob, Place::Device)].clone();
        // Adaptive moderation has its own values; with another mode the old ones are written again.
        assert_eq!(now == value, !mode.starts_with("adaptive"), "{mode}");
        world.restore(&applied.undo);
        assert_eq!(world.kernel.state("eth0"), before, "{mode}");
    }
}

#[test]
fn adaptive_is_off_while_values_change() {
    let mut world = World::new(FakeInterface::nic(1).refusing_adaptive_delays());
    world.apply("adaptive-rx=on rx-usecs=50us rx-frames=8").unwrap();
    assert_eq!(world.written(), "rx-usecs=50us rx-frames=8 adaptive-rx=on");

    let mut world = World::new(FakeInterface::nic(1).refusing_adaptive_delays());
    world.outside("adaptive-rx=on");
    let before = world.kernel.state("eth0");
    let applied = world.apply("adaptive-rx=off rx-usecs=50us").unwrap();
    assert_eq!(world.written(), "adaptive-rx=off rx-usecs=50us");
    world.restore(&applied.undo);
    assert_eq!(world.written(), "adaptive-rx=off rx-usecs=50us rx-usecs=0us adaptive-rx=on");
    assert_eq!(world.kernel.state("eth0"), before);
}

/// `sfc` with shared channels: "RX and TX IRQ moderation must be equal".
#[test]
fn equal_delays_are_written_together() {
    let world_with = |rx: &str, tx: &str| {
        let mut world = World::new(FakeInterface::nic(1));
        world.outside(&format!("rx-usecs={rx}"));
        world.outside(&format!("tx-usecs={tx}"));
        world.kernel.share_channels("eth0");
        let before = world.kernel.state("eth0");
        (world, before)
    };
    let (mut world, before) = world_with("60us", "60us");
    let applied = world.apply("rx-usecs=20us tx-usecs=20us").unwrap();
    assert_eq!(world.written(), "rx-usecs=20us tx-usecs=20us");
    assert_eq!(applied.changes.len(), 2);
    world.restore(&applied.undo);
    assert_eq!(world.kernel.state("eth0"), before);
    // Also where a later write fails.
    world.kernel.inject_fault(Knob::GroFlushTimeout, Fault::Refuse(KernelErrorKind::Busy));
    let error = world.apply("rx-usecs=20us tx-usecs=20us gro-flush-timeout=9us").unwrap_err();
    assert!(matches!(error, ApplyError::RolledBack { .. }), "{error:?}");
    assert_eq!(world.kernel.state("eth0"), before);
    // Values that are unequal, and one of them alone, are refused in the driver's words.
    for unequal in ["rx-usecs=20us", "rx-usecs=20us tx-usecs=30us"] {
        let error = world.apply(unequal).unwrap_err();
        let ApplyError::Refused { cause, .. } = &error else { panic!("{error:?}") };
        assert!(cause.to_string().contains("write it in the fake kernel"), "{cause}");
        assert_eq!(world.kernel.state("eth0"), before);
    }
    // Unequal from the start, they could never be put back.
    let (mut world, before) = world_with("60us", "150us");
    let error = world.apply("rx-usecs=0us tx-usecs=0us").unwrap_err();
    assert_eq!(error.outcome(), ChangeOutcome::RolledBack, "{error:?}");
    assert_eq!(world.kernel.state("eth0"), before);
    assert!(world.store.is_clear());
}

#[test]
fn overruled_delay_is_refused_until_named() {
    let mut world = World::new(FakeInterface::nic(1));
    world.outside("adaptive-tx=on");
    let error = world.apply("tx-usecs=50us").unwrap_err();
    assert!(matches!(error, ApplyError::Overruled { adaptive: Knob::AdaptiveTx, .. }), "{error}");
    assert!(error.to_string().contains("`adaptive-tx=off`"), "{error}");
    assert_eq!((world.written().as_str(), error.outcome()), ("", REFUSED));
    world.apply("rx-usecs=50us").unwrap();
    world.apply_another("tx-usecs=50us adaptive-tx=on").unwrap();
}

/// The wanted value and the old one are so near that one could be the other, rounded.
#[test]
fn refused_near_value_is_not_rounding() {
    for fault in [Fault::Refuse(KernelErrorKind::Busy), Fault::Ignore] {
        for (is_for_good, ends) in [(false, true), (true, false)] {
            let mut world = World::new(FakeInterface::nic(1));
            world.outside("rx-usecs=50us");
            let before = world.kernel.state("eth0");
            let applied = world.apply("rx-usecs=52us").unwrap();
            if is_for_good {
                world.kernel.inject_fault(Knob::RxUsecs, fault);
            } else {
                world.kernel.inject_fault_once(0, fault);
            }
            let World { kernel, store, .. } = &mut world;
            let restored = restore(kernel, store, &context(), &applied.undo);
            assert_eq!(restored.is_ok(), ends, "{restored:?}");
            assert_eq!(world.kernel.state("eth0") == before, ends);
        }
    }
}

#[test]
fn load_time_parameter_needs_reload_to_differ() {
    let mut world = World::new(FakeInterface::nic(1));
    let error = world.apply("mtu=9000 interrupt-throttle-rate=3").unwrap_err();
    assert!(matches!(error, ApplyError::NeedsReload { .. }), "{error}");
    assert_eq!(world.written(), "");
    world.apply("interrupt-throttle-rate=0").unwrap();
}

#[test]
fn disallowed_value_is_refused_with_range() {
    let mut world = World::new(FakeInterface::nic(1));
    let error = world.apply("gso=off rx-ring=8192").unwrap_err();
    assert_eq!(
        error.to_string(),
        "eth0: rx-ring cannot be 8192 here: give a whole number of descriptors from 0 to 4096, or \
         `max`"
    );
    assert_eq!((world.written().as_str(), error.outcome()), ("", REFUSED));
}

#[test]
fn words_are_resolved_where_they_are_written() {
    let mut world = World::new(FakeInterface::nic(2));
    let before = world.kernel.state("eth0");
    let applied = world.apply("smp-affinity=hint rx-ring=max").unwrap();
    assert_eq!(world.written(), "rx-ring=4096 smp-affinity=1 smp-affinity=1");
    let text: Vec<String> = applied.changes.iter().map(ToString::to_string).collect();
    assert_eq!(text[1], "smp-affinity (interrupt 0): none -> 1", "a change names the value");
    world.restore(&applied.undo);
    assert_eq!(world.kernel.state("eth0"), before);
}

#[test]
fn declared_rounding_is_accepted_others_revert() {
    let mut world = World::new(FakeInterface::nic(1));
    world.kernel.inject_fault(Knob::RxUsecs, Fault::Round(8_000));
    let applied = world.apply("rx-usecs=50us").unwrap();
    assert_eq!(applied.rounded.len(), 1);
    assert_eq!(applied.rounded[0].to_string(), "rx-usecs (device): 50us -> 48us");
    world.restore(&applied.undo);

    let mut world = World::new(FakeInterface::nic(1));
    world.kernel.inject_fault(Knob::RxUsecs, Fault::Round(1_000_000));
    let error = world.apply("rx-usecs=50us").unwrap_err();
    assert_eq!(error.outcome(), ChangeOutcome::RolledBack, "a delay became none: {error}");
}

#[test]
fn values_of_queues_survive_channel_change() {
    let mut world = World::new(FakeInterface::nic(4));
    world.outside_at("rps-cpus=0-1", Place::RxQueue(3));
    world.outside_at("smp-affinity=1", Place::Interrupt(2));
    world.outside_at("gro-flush-timeout=20us", Place::Napi(0));
    let before = world.kernel.state("eth0");
    let applied = world.apply("combined-channels=2 rx-usecs=50us").unwrap();
    assert_eq!(
        world.kernel.state("eth0").0[&(Knob::GroFlushTimeout, Place::Napi(0))].to_string(),
        "20us",
        "a queue that stays keeps what it had"
    );
    world.restore(&applied.undo);
    assert_eq!(world.kernel.state("eth0"), before);
}

#[test]
fn host_knobs_have_one_owner() {
    let mut world = World::new(FakeInterface::nic(1));
    world.store.lock_by(77, latput_knobs::Slot::host(context().namespace));
    let error = world.apply("busy-poll=50us").unwrap_err();
    let locked = matches!(error, ApplyError::InUse { pid: 77, .. });
    assert!(locked, "{error:?}");
    world.apply("mtu=9000").unwrap();
    assert_eq!(world.kernel.host_value(Knob::BusyPoll).unwrap().to_string(), "0us");
}

#[test]
fn crashed_host_knobs_are_restored_first() {
    let mut world = World::new(FakeInterface::nic(1));
    world.kernel.add("eth1", FakeInterface::nic(1));
    // Checkpoint, write, and then dead.
    world.kernel.fuse().burn_after(2);
    let _ = world.apply("busy-poll=50us mtu=9000");
    world.kernel.fuse().renew();
    world.store.next_process();
    let left = world.store.kept("eth0").cloned().expect("it was killed");
    assert!(left.holds_host_knobs());
    let (kernel, store) = (&mut world.kernel, &mut world.store);
    let desired = setting("busy-poll=70us");
    let error = apply(kernel, store, &context(), "eth1", &desired).unwrap_err();
    let ApplyError::Unfinished { checkpoint } = error else { panic!("{error:?}") };
    assert_eq!(checkpoint.interface, "eth0");
    let other = apply(kernel, store, &context(), "eth1", &setting("mtu=9000")).unwrap();
    commit(store, &other.undo).unwrap();
    world.restore(&left);
    assert_eq!(world.kernel.host_value(Knob::BusyPoll).unwrap().to_string(), "0us");
}

#[test]
fn host_knobs_return_after_interface_loss() {
    let mut world = World::new(FakeInterface::nic(1));
    let applied = world.apply("busy-poll=50us mtu=9000").unwrap();
    world.kernel.vanish("eth0");
    let restored = restore(&mut world.kernel, &mut world.store, &context(), &applied.undo);
    assert!(matches!(restored, Ok(Restored::InterfaceGone)), "{restored:?}");
    assert_eq!(world.kernel.host_value(Knob::BusyPoll).unwrap().to_string(), "0us");
    assert!(world.store.is_clear());
}

#[test]
fn session_and_commit_release_the_host() {
    let mut world = World::new(FakeInterface::nic(1));
    let applied = world.apply("busy-poll=50us").unwrap();
    commit(&mut world.store, &applied.undo).unwrap();
    assert!(world.store.is_clear());
    let applied = world.apply("busy-poll=50us").unwrap();
    assert!(applied.changes.is_empty());
    commit(&mut world.store, &applied.undo).unwrap();
    assert!(world.store.is_clear());
    let (kernel, store) = (&mut world.kernel, &mut world.store);
    let mut session = Session::open(kernel, store, &context(), "eth0").unwrap();
    session.apply(&setting("busy-poll=10us dev-weight=32")).unwrap();
    session.close().unwrap();
    assert!(world.store.is_clear());
    assert_eq!(world.kernel.host_value(Knob::BusyPoll).unwrap().to_string(), "50us");
}

#[test]
fn qdisc_returns_with_its_children() {
    let mut world = World::new(FakeInterface::nic(2));
    world.outside("qdisc=mq");
    world.outside_at("queue-qdisc=fq limit=77", Place::TxQueue(1));
    let before = world.kernel.state("eth0");
    let applied = world.apply("qdisc=fq_codel target=1ms").unwrap();
    world.restore(&applied.undo);
    assert_eq!(world.kernel.state("eth0"), before);
    world.kernel.inject_fault(Knob::Qdisc, Fault::Ignore);
    let error = world.apply("qdisc=fq_codel").unwrap_err();
    let ApplyError::RolledBack { cause, .. } = error else { panic!("{error:?}") };
    assert!(matches!(*cause, Cause::NotTaken { knob: Knob::Qdisc, .. }), "{cause}");
}

struct World {
    kernel: FakeKernel,
    store: MemoryCheckpoints,
}

impl World {
    fn new(interface: FakeInterface) -> Self {
        let kernel = FakeKernel::with_interface("eth0", interface);
        let store = MemoryCheckpoints::with_fuse(kernel.fuse());
        Self { kernel, store }
    }

    fn outside(&mut self, assignment: &str) {
        self.outside_at(assignment, Place::Device);
    }

    fn outside_at(&mut self, assignment: &str, place: Place) {
        let (knob, value) = parse_assignment(assignment).expect(assignment);
        self.kernel.set_from_outside("eth0", knob, place, value);
    }

    fn apply(&mut self, desired: &str) -> Result<Applied, ApplyError> {
        apply(&mut self.kernel, &mut self.store, &context(), "eth0", &setting(desired))
    }

    /// Stays with the change before, and makes another.
    fn apply_another(&mut self, desired: &str) -> Result<Applied, ApplyError> {
        let kept = self.store.kept("eth0").cloned();
        commit(&mut self.store, &kept.expect("a change was made")).expect("it can be forgotten");
        self.apply(desired)
    }

    #[track_caller]
    fn restore(&mut self, checkpoint: &Checkpoint) {
        let restored = restore(&mut self.kernel, &mut self.store, &context(), checkpoint);
        assert!(matches!(restored, Ok(Restored::Done { .. })), "{restored:?}");
        assert!(self.store.is_clear());
    }

    fn written(&self) -> String {
        let written = self.kernel.written().iter();
        written.map(|(knob, _, value)| format!("{knob}={value}")).collect::<Vec<_>>().join(" ")
    }
}

/// Assignments, whose values may hold blanks.
fn setting(text: &str) -> Setting {
    let mut assignments: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let is_knob = word.split('=').next().is_some_and(|name| name.parse::<Knob>().is_ok());
        match assignments.last_mut() {
            Some(last) if !is_knob => *last = format!("{last} {word}"),
            _ => assignments.push(word.to_owned()),
        }
    }
    assignments.iter().map(|text| parse_assignment(text).expect(text)).collect()
}
