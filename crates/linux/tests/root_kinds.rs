//! Queue disciplines, coalescing and the host's own knobs on a real kernel, through the transaction.
//! Needs root.
#![allow(clippy::unwrap_used, reason = "a failure in a helper is a failed test")]

use std::path::Path;
use std::process::Command;

use latput_knobs::{
    ApplyError, CheckpointStore, Context, KernelError, KernelRead, Knob, Restored, Setting, Slot,
    Value, apply, commit, parse_assignment, restore,
};
use latput_linux::{FileCheckpoints, Lab, LabOptions, LinuxKernel, checkpoint, lab};
use latput_testkit::needs;

#[needs("root")]
#[test]
fn qdisc_and_children_are_set_and_restored() {
    let lab = Lab::build(&LabOptions::default()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    lab.b
        .run_in(|| {
            let mut world = World::open(folder.path(), lab::INTERFACE);
            let first = world.shown();
            world.keep(&["qdisc=mq"]);
            world.keep(&["queue-qdisc=pfifo limit=50"]);
            let before = world.shown();
            assert!(before.contains("queue-qdisc (tx-0) = pfifo limit=50"), "{before}");
            for discipline in [
                "pfifo limit=77",
                "bfifo limit=90000",
                "tbf rate=100Mbps burst=32000 limit=64000",
                "noqueue",
                "default",
            ] {
                world.there_and_back(&[&format!("qdisc={discipline}")]);
                assert_eq!(world.shown(), before, "after {discipline}");
            }
            world.there_and_back(&["qdisc=mq", "queue-qdisc=pfifo limit=9", "tx-channels=1"]);
            assert_eq!(world.shown(), before);
            // This kernel may not have it; then it says so, and nothing changes.
            if let Err(error) = world.apply(&["qdisc=fq_codel limit=100 target=1ms"]) {
                assert!(matches!(error, ApplyError::Unsupported { .. }), "{error:?}");
                assert_eq!(world.shown(), before);
            } else {
                assert!(world.shown().contains("fq_codel limit=100"), "{}", world.shown());
                world.undo();
            }
            world.keep(&["qdisc=default"]);
            assert_eq!(world.shown(), first);
        })
        .unwrap();
}

/// The only interface without hardware that has coalescing is a tap with NAPI-less receive batching.
#[needs("root", "ip")]
#[test]
fn coalescing_is_set_and_cut_value_reverts() {
    let lab = Lab::build(&LabOptions::default()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    lab.b
        .run_in(|| {
            let made =
                Command::new("ip").args(["tuntap", "add", "dev", "tap0", "mode", "tap"]).status();
            if !made.unwrap().success() {
                println!("skipped: needs tun");
                return;
            }
            let mut world = World::open(folder.path(), "tap0");
            let before = world.shown();
            world.there_and_back(&["rx-frames=32"]);
            assert_eq!(world.shown(), before);
            // tun takes 64 packets at most, and says nothing.
            let error = world.apply(&["rx-frames=1000"]).unwrap_err().to_string();
            assert!(error.contains("rolled back"), "{error}");
            assert_eq!(world.shown(), before);
            let error = world.apply(&["rx-usecs=50us"]).unwrap_err().to_string();
            assert!(error.contains("rx-usecs cannot be set here"), "{error}");
        })
        .unwrap();
}

#[needs("root")]
#[test]
fn host_knobs_need_the_first_namespace() {
    let folder = tempfile::tempdir().unwrap();
    let mut world = World::open(folder.path(), "lo");
    if let Ok(values) = world.read(Knob::NetdevMaxBacklog) {
        let Value::Count(packets) = values else { panic!("{values}") };
        let before = world.shown();
        world.there_and_back(&[&format!("netdev-max-backlog={}", packets + 1)]);
        assert_eq!(world.shown(), before);
    }
    let lab = Lab::build(&LabOptions::default()).unwrap();
    lab.b
        .run_in(|| {
            let mut world = World::open(folder.path(), lab::INTERFACE);
            let error = world.apply(&["busy-poll=50us"]).unwrap_err().to_string();
            assert!(error.contains("not visible in this network namespace"), "{error}");
        })
        .unwrap();
}

/// An interface, and the store of its checkpoints.
struct World {
    kernel: LinuxKernel,
    store: FileCheckpoints,
    context: Context,
    interface: String,
}

impl World {
    fn open(folder: &Path, interface: &str) -> Self {
        Self {
            kernel: LinuxKernel::open().unwrap(),
            store: FileCheckpoints::new(folder),
            context: checkpoint::context().unwrap(),
            interface: interface.to_owned(),
        }
    }

    fn apply(&mut self, assignments: &[&str]) -> Result<(), ApplyError> {
        let setting: Setting =
            assignments.iter().map(|text| parse_assignment(text).unwrap()).collect();
        let (kernel, store) = (&mut self.kernel, &mut self.store);
        let applied = apply(kernel, store, &self.context, &self.interface, &setting)?;
        assert!(!applied.changes.is_empty(), "{assignments:?} changed nothing");
        Ok(())
    }

    #[track_caller]
    fn keep(&mut self, assignments: &[&str]) {
        self.apply(assignments).unwrap();
        let kept = self.store.claim(self.slot(), &self.interface).unwrap();
        commit(&mut self.store, &kept.unwrap()).unwrap();
    }

    #[track_caller]
    fn there_and_back(&mut self, assignments: &[&str]) {
        self.apply(assignments).unwrap_or_else(|error| panic!("{assignments:?}: {error:?}"));
        self.undo();
    }

    fn slot(&self) -> Slot {
        let index = self.kernel.device(&self.interface).unwrap().index;
        Slot { namespace: self.context.namespace, index }
    }

    #[track_caller]
    fn undo(&mut self) {
        let kept = self.store.claim(self.slot(), &self.interface).unwrap().unwrap();
        let restored = restore(&mut self.kernel, &mut self.store, &self.context, &kept);
        assert!(matches!(restored, Ok(Restored::Done { .. })), "{restored:?}");
    }

    fn read(&self, knob: Knob) -> Result<Value, KernelError> {
        Ok(self.kernel.read(&self.interface, knob)?.swap_remove(0).1)
    }

    /// Every value that can be read, as text.
    fn shown(&self) -> String {
        let state = self.kernel.read_all(&self.interface);
        let lines =
            state.0.iter().map(|((knob, place), value)| format!("{knob} ({place}) = {value}"));
        lines.collect::<Vec<_>>().join("\n")
    }
}
