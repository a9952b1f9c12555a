//! Which interface is put back: names change, and numbers and namespaces are used again.

use std::cell::Cell;

use latput_knobs::transaction::WritePermit;
use latput_knobs::{
    ApplyError, Capability, ChangeOutcome, Checkpoint, CheckpointStore, Context, Device,
    KernelError, KernelRead, KernelWrite, Knob, Place, RestoreError, Restored, Session, Setting,
    Value, Whereabouts, apply, parse_assignment, plan_restore, restore,
};
use latput_testkit::{FakeInterface, FakeKernel, Fault, MemoryCheckpoints, context};

#[test]
fn renamed_interface_is_restored_under_new_name() {
    let mut world = World::new();
    let undo = world.set_mtu();
    world.kernel.rename("eth0", "eth7");
    world.kernel.add("eth0", FakeInterface::nic(1));
    let planned = plan_restore(&world.kernel, &context(), &undo);
    let Ok(Restored::Done { changes, .. }) = planned else { panic!("{planned:?}") };
    assert_eq!(changes.len(), 1);
    assert!(matches!(world.restore(&undo), Ok(Restored::Done { .. })));
    assert_eq!(world.mtu("eth7"), 1500);
    assert!(world.store.is_clear());
}

#[test]
fn session_follows_the_interface_to_its_new_name() {
    let mut world = World::new();
    world.kernel.inject_fault_once(1, Fault::Rename);
    let World { kernel, store, .. } = &mut world;
    let mut session = Session::open(&mut *kernel, &mut *store, &context(), "eth0").unwrap();
    session.apply(&setting("mtu=9000")).unwrap();
    session.apply(&setting("mtu=1400")).unwrap_err();
    let applied = session.apply(&setting("mtu=1300")).unwrap();
    assert_eq!(applied.changes[0].to_string(), "mtu (device): 9000 -> 1300");
    assert!(matches!(session.close(), Ok(Restored::Done { .. })));
    assert_eq!(world.mtu("renamed0"), 1500);
    assert!(world.store.is_clear());
}

#[test]
fn change_during_which_the_name_changes_goes_back() {
    let mut world = World::new();
    world.kernel.inject_fault_once(1, Fault::Rename);
    let error = world.apply("mtu=9000 txqueuelen=777").unwrap_err();
    assert!(matches!(error, ApplyError::RolledBack { .. }), "{error:?}");
    assert_eq!(world.mtu("renamed0"), 1500);
    assert!(world.store.is_clear());
}

#[test]
fn values_before_are_of_one_interface() {
    let mut world = World::new();
    world.kernel.rename("eth0", "eth7");
    world.kernel.add("eth0", FakeInterface::nic(1));
    let of_another = Value::Count(1400);
    world.kernel.set_from_outside("eth0", Knob::Mtu, Place::Device, of_another);
    let World { kernel, store, .. } = &mut world;
    let mut renaming = RenamedWhileRead { kernel, is_renamed: Cell::new(false) };
    let applied = apply(&mut renaming, store, &context(), "eth0", &setting("mtu=9000")).unwrap();
    assert!(renaming.is_renamed.get());
    assert_eq!(applied.changes[0].to_string(), "mtu (device): 1500 -> 9000");
    assert_eq!((world.mtu("eth7"), world.mtu("eth0")), (9000, 1400));
}

#[test]
fn lost_interface_keeps_its_checkpoint() {
    let mut world = World::new();
    let undo = world.set_mtu();
    let moved = world.kernel.move_away("eth0").unwrap();
    world.kernel.add("eth0", FakeInterface::nic(1));
    let of_another = Value::Count(1400);
    world.kernel.set_from_outside("eth0", Knob::Mtu, Place::Device, of_another);
    let foretold = plan_restore(&world.kernel, &context(), &undo).unwrap_err();
    let error = world.restore(&undo).unwrap_err();
    assert_eq!(foretold, error);
    assert_eq!(error.outcome(), ChangeOutcome::Stranded);
    let text = error.to_string();
    for words in ["number 2, fake", "is another: number 3", "mtu (device) was 1500", "--forget"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert_eq!(world.mtu("eth0"), 1400);
    assert_eq!(world.store.kept("eth0").map(|kept| &kept.undo), Some(&undo.undo));
    // The other one can be changed and put back meanwhile.
    let other = world.set_mtu();
    assert!(matches!(world.restore(&other), Ok(Restored::Done { .. })));
    assert_eq!(world.mtu("eth0"), 1400);
    // It comes back under another name.
    world.kernel.add_device("eth9", moved.0, moved.1);
    assert!(matches!(world.restore(&undo), Ok(Restored::Done { .. })));
    assert_eq!(world.mtu("eth9"), 1500);
    assert!(world.store.is_clear());
}

#[test]
fn reused_number_is_another_interface() {
    let mut world = World::new();
    let undo = world.set_mtu();
    let (interface, device) = world.kernel.move_away("eth0").unwrap();
    let dummy = Device { kind: Some("dummy".to_owned()), ..device };
    world.kernel.add_device("eth0", interface, dummy);
    assert!(matches!(world.restore(&undo), Err(RestoreError::Stranded { .. })));
    assert_eq!(world.mtu("eth0"), 9000);
    // It has the same slot, so that nothing is changed before somebody has decided.
    assert!(matches!(world.apply("mtu=1400"), Err(ApplyError::Unfinished { .. })));
}

#[test]
fn hardware_is_found_after_move() {
    for namespace in [0, 1] {
        let mut world = World::new();
        world.kernel.add_device("eth0", FakeInterface::nic(1), nic(2));
        let undo = world.set_mtu();
        let (interface, _) = world.kernel.move_away("eth0").unwrap();
        world.kernel.add_device("enp2s0", interface, nic(9));
        world.context.namespace += namespace;
        let error = world.apply_to("enp2s0", "mtu=1400").unwrap_err();
        assert!(matches!(error, ApplyError::Unfinished { .. }), "{error:?}");
        assert!(matches!(world.restore(&undo), Ok(Restored::Done { .. })));
        assert_eq!(world.mtu("enp2s0"), 1500);
        assert!(world.store.kept("eth0").is_none());
    }
}

#[test]
fn leftovers_of_other_interfaces_are_ignored() {
    // A virtual one with the same number, of another namespace.
    let mut world = World::new();
    world.set_mtu();
    world.store.next_process();
    world.context.namespace += 1;
    world.apply("mtu=1400").expect("the other namespace's eth0 is another");
    // Hardware in another slot.
    let mut world = World::new();
    world.kernel.add_device("eth0", FakeInterface::nic(1), nic(2));
    let bus = Some("0000:03:00.0".to_owned());
    let second = Device { bus, permanent_address: Some("525400999999".to_owned()), ..nic(3) };
    world.kernel.add_device("eth1", FakeInterface::nic(1), second);
    world.set_mtu();
    world.apply_to("eth1", "mtu=1400").expect("eth0 is another");
}

#[test]
fn host_knobs_belong_to_this_boot() {
    let mut world = World::new();
    world.kernel.add("eth1", FakeInterface::nic(1));
    // A change of another interface's own knobs is no obstacle, and neither is an earlier one of this session.
    world.apply_to("eth1", "mtu=9000").unwrap();
    let World { kernel, store, context } = &mut world;
    let mut session = Session::open(&mut *kernel, &mut *store, context, "eth0").unwrap();
    session.apply(&setting("mtu=9000")).unwrap();
    session.apply(&setting("mtu=9000 busy-poll=50us")).unwrap();
    session.close().unwrap();
    // A change of the host's knobs is one, until the next boot.
    world.apply("busy-poll=50us").unwrap();
    world.store.next_process();
    world.kernel.add("eth2", FakeInterface::nic(1));
    let error = world.apply_to("eth2", "busy-poll=60us").unwrap_err();
    assert!(matches!(error, ApplyError::Unfinished { .. }), "{error:?}");
    world.context.boot_id = "the next".to_owned();
    world.apply_to("eth2", "busy-poll=60us").expect("what an earlier boot left is over");
}

#[test]
fn foreign_namespace_keeps_its_checkpoint() {
    let mut world = World::new();
    let undo = world.set_mtu();
    world.context.namespace += 1;
    let error = world.restore(&undo).unwrap_err();
    assert!(matches!(error, RestoreError::OtherNamespace { .. }), "{error:?}");
    assert!(world.store.kept("eth0").is_some());
    // Another namespace has its number: with it, the interface of then is gone.
    world.context = Context { namespace_cookie: Some(2), ..context() };
    assert_eq!(world.restore(&undo), Ok(Restored::InterfaceGone));
    assert_eq!(world.mtu("eth0"), 9000, "it is of the other namespace");
    assert!(world.store.is_clear());
}

#[test]
fn host_knobs_return_without_their_interface() {
    let mut world = World::new();
    let undo = world.apply("busy-poll=50us mtu=9000").unwrap();
    world.kernel.move_away("eth0");
    assert!(matches!(world.restore(&undo), Err(RestoreError::Stranded { .. })));
    assert_eq!(world.kernel.host_value(Knob::BusyPoll).unwrap().to_string(), "0us");
    assert!(world.store.kept("eth0").is_some());
}

#[test]
fn what_an_earlier_boot_left_is_no_obstacle() {
    let mut world = World::new();
    let undo = world.set_mtu();
    let old = Checkpoint { boot_id: "an earlier one".to_owned(), ..undo };
    world.store.claim(old.slot(), "eth0").unwrap();
    world.store.save(&old).unwrap();
    world.store.next_process();
    assert!(world.apply("mtu=1400").is_ok());
}

/// One interface `eth0` and its store.
struct World {
    kernel: FakeKernel,
    store: MemoryCheckpoints,
    context: Context,
}

impl World {
    fn new() -> Self {
        let kernel = FakeKernel::with_interface("eth0", FakeInterface::nic(1));
        let store = MemoryCheckpoints::with_fuse(kernel.fuse());
        Self { kernel, store, context: context() }
    }

    fn set_mtu(&mut self) -> Checkpoint {
        self.apply("mtu=9000").expect("nothing stands in the way")
    }

    fn apply(&mut self, text: &str) -> Result<Checkpoint, ApplyError> {
        self.apply_to("eth0", text)
    }

    fn apply_to(&mut self, name: &str, text: &str) -> Result<Checkpoint, ApplyError> {
        let Self { kernel, store, context } = self;
        apply(kernel, store, context, name, &setting(text)).map(|applied| applied.undo)
    }

    fn restore(&mut self, checkpoint: &Checkpoint) -> Result<Restored, RestoreError> {
        let Self { kernel, store, context } = self;
        restore(kernel, store, context, checkpoint)
    }

    fn mtu(&self, name: &str) -> u64 {
        match self.kernel.state(name).0[&(Knob::Mtu, Place::Device)] {
            Value::Count(mtu) => mtu,
            ref other => panic!("{other}"),
        }
    }
}

/// Its `eth7` is called `eth0` until somebody reads a value.
struct RenamedWhileRead<'a> {
    kernel: &'a mut FakeKernel,
    is_renamed: Cell<bool>,
}

impl KernelRead for RenamedWhileRead<'_> {
    fn read(&self, interface: &str, knob: Knob) -> Result<Vec<(Place, Value)>, KernelError> {
        self.is_renamed.set(true);
        self.kernel.read(interface, knob)
    }

    fn capability(&self, interface: &str, knob: Knob) -> Capability {
        self.kernel.capability(interface, knob)
    }

    fn device(&self, interface: &str) -> Result<Device, KernelError> {
        let is_new_name = self.is_renamed.get() || interface != "eth0";
        self.kernel.device(if is_new_name { interface } else { "eth7" })
    }

    fn find(&self, device: &Device) -> Result<Whereabouts, KernelError> {
        match self.kernel.find(device)? {
            Whereabouts::Here(name) if name == "eth7" && !self.is_renamed.get() => {
                Ok(Whereabouts::Here("eth0".to_owned()))
            }
            found => Ok(found),
        }
    }
}

impl KernelWrite for RenamedWhileRead<'_> {
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

fn nic(index: u32) -> Device {
    Device {
        index,
        kind: Some("ixgbe".to_owned()),
        bus: Some("0000:02:00.0".to_owned()),
        permanent_address: Some("525400123456".to_owned()),
        sysfs_inode: None,
    }
}

fn setting(text: &str) -> Setting {
    text.split_whitespace().map(|pair| parse_assignment(pair).expect(pair)).collect()
}
