//! Checkpoints when the process is killed and when the disk is full or read-only. Needs root.
#![allow(clippy::unwrap_used, reason = "a failure in a helper is a failed test")]
#![allow(clippy::print_stdout, reason = "a child tells its parent how far it is")]

mod common;

use std::path::{Path, PathBuf};
use std::time::Duration;

use latput_knobs::{
    CheckpointStore, KernelRead, Knob, Place, Restored, Slot, StoreError, Value, apply, restore,
};
use latput_linux::{FileCheckpoints, Lab, LabOptions, LinuxKernel, Namespace, checkpoint, lab};
use latput_testkit::needs;
use rustix::mount::{MountFlags, UnmountFlags};

#[needs("root")]
#[test]
fn next_process_restores_killed_change() {
    if let Some(folder) = std::env::var_os("LATPUT_TEST_FOLDER") {
        let namespace = PathBuf::from(std::env::var_os("LATPUT_TEST_NAMESPACE").unwrap());
        Namespace::open(&namespace)
            .unwrap()
            .run_in(|| change_and_wait(Path::new(&folder)))
            .unwrap();
    }
    let lab = Lab::build(&LabOptions::default()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut child = common::respawn(
        "next_process_restores_killed_change",
        &[
            ("LATPUT_TEST_FOLDER", folder.path().to_str().unwrap()),
            ("LATPUT_TEST_NAMESPACE", lab.b.namespace.path().to_str().unwrap()),
        ],
    );
    common::line_with(&mut child, "changed");
    lab.b
        .run_in(|| {
            let mut kernel = LinuxKernel::open().unwrap();
            let context = checkpoint::context().unwrap();
            let mut store = FileCheckpoints::new(folder.path());
            let index = kernel.device(lab::INTERFACE).unwrap().index;
            let slot = Slot { namespace: context.namespace, index };
            let mtu = |value| Ok(vec![(Place::Device, Value::Count(value))]);
            assert_eq!(kernel.read(lab::INTERFACE, Knob::Mtu), mtu(1400));
            let locked = StoreError::Locked { interface: "lat0".to_owned(), pid: child.id() };
            assert_eq!(store.claim(slot, lab::INTERFACE), Err(locked));
            child.kill().unwrap();
            child.wait().unwrap();
            let undo = store.claim(slot, lab::INTERFACE).unwrap().unwrap();
            assert_eq!(undo.pid, child.id());
            let restored = restore(&mut kernel, &mut store, &context, &undo);
            assert!(matches!(restored, Ok(Restored::Done { .. })), "{restored:?}");
            assert_eq!(kernel.read(lab::INTERFACE, Knob::Mtu), mtu(1500));
            assert_eq!(store.list().unwrap(), vec![]);
        })
        .unwrap();
}

fn change_and_wait(folder: &Path) -> ! {
    let mut kernel = LinuxKernel::open().unwrap();
    let mut store = FileCheckpoints::new(folder);
    let setting = [(Knob::Mtu, Value::Count(1400))].into();
    let context = checkpoint::context().unwrap();
    apply(&mut kernel, &mut store, &context, lab::INTERFACE, &setting).unwrap();
    println!("changed");
    std::thread::sleep(Duration::from_secs(30));
    panic!("nobody killed the child that holds a change");
}

#[needs("root")]
#[test]
fn full_disk_stops_change_before_start() {
    let lab = Lab::build(&LabOptions::default()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    lab.b
        .run_in(|| {
            // In the private mount table of this thread.
            let options = c"size=4k,nr_inodes=4";
            rustix::mount::mount("tmpfs", folder.path(), "tmpfs", MountFlags::empty(), options)
                .unwrap();
            let filler = folder.path().join("filler");
            std::fs::write(&filler, [0; 4096]).unwrap();
            check_untouched(folder.path(), "No space left");
            std::fs::remove_file(&filler).unwrap();
            make_read_only(folder.path());
            check_untouched(folder.path(), "Read-only");
            rustix::mount::unmount(folder.path(), UnmountFlags::empty()).unwrap();
        })
        .unwrap();
}

/// A process that another test is just starting may hold our open files for a moment.
fn make_read_only(folder: &Path) {
    for _ in 0..500 {
        match rustix::mount::mount_remount(folder, MountFlags::RDONLY, "") {
            Err(rustix::io::Errno::BUSY) => {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            other => return other.unwrap(),
        }
    }
    panic!("{} stayed busy", folder.display());
}

#[track_caller]
fn check_untouched(folder: &Path, reason: &str) {
    let mut kernel = LinuxKernel::open().unwrap();
    let mut store = FileCheckpoints::new(folder);
    let setting = [(Knob::Mtu, Value::Count(1400))].into();
    let context = checkpoint::context().unwrap();
    let before = kernel.read(lab::INTERFACE, Knob::Mtu);
    let error = apply(&mut kernel, &mut store, &context, lab::INTERFACE, &setting).unwrap_err();
    assert!(format!("{error:?}").contains(reason), "{error:?}");
    assert_eq!(kernel.read(lab::INTERFACE, Knob::Mtu), before);
}
