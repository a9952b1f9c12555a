//! Namespaces entered by a whole process, and pinned labs. Needs root.
#![allow(clippy::unwrap_used, reason = "a failure in a helper is a failed test")]

mod common;

use std::fs;
use std::process::Command;

use latput_knobs::{KernelRead, Knob};
use latput_linux::namespace::PIN_FOLDER;
use latput_linux::route::Route;
use latput_linux::{Lab, LabOptions, LinuxKernel, Namespace, lab};
use latput_testkit::{isolate, needs};

#[needs("root")]
#[test]
fn thread_in_namespace_sees_own_sysfs() {
    let lab = Lab::build(&LabOptions::default()).unwrap();
    let inside = lab
        .b
        .run_in(|| {
            let mut names: Vec<String> = fs::read_dir("/sys/class/net")
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            names
        })
        .unwrap();
    assert_eq!(inside, ["lat0", "lo"]);
    assert!(!fs::exists("/sys/class/net/lat0").unwrap());
    assert!(Route::open().unwrap().link(lab::INTERFACE).is_err());
}

#[needs("root")]
#[test]
fn process_of_many_threads_cannot_enter() {
    // The test harness has a thread of its own beside this one.
    let namespace = Namespace::create().unwrap();
    let error = namespace.enter_process().unwrap_err().to_string();
    assert!(error.contains("threads"), "{error}");
}

#[needs("root")]
#[test]
fn panic_in_namespace_is_passed_on() {
    let namespace = Namespace::create().unwrap();
    let links = namespace.run_in(|| Route::open().unwrap().links().unwrap()).unwrap();
    let real: Vec<&str> = links
        .iter()
        .map(|link| link.name.as_str())
        // Tunnel drivers may add their fallback devices to every namespace.
        .filter(|name| !name.ends_with('0'))
        .collect();
    assert_eq!(real, ["lo"], "{links:?}");
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        namespace.run_in(|| assert!(links.is_empty(), "as expected"))
    }));
    assert!(result.is_err());
}

#[needs("root")]
#[test]
fn pinned_lab_is_found_again_and_removed() {
    isolate();
    let lab = Lab::build(&LabOptions::default()).unwrap();
    lab.pin().unwrap();
    let inode = lab.b.namespace.inode().unwrap();
    assert!(lab.pin().unwrap_err().to_string().contains("lab down"));
    drop(lab);
    let again = Lab::open_pinned(&LabOptions::default()).unwrap().expect("it is pinned");
    assert_eq!(again.b.namespace.inode().unwrap(), inode);
    let gro = again.b.run_in(|| LinuxKernel::open().unwrap().read(lab::INTERFACE, Knob::Gro));
    assert!(gro.unwrap().is_ok());
    drop(again);
    assert_eq!(Lab::remove_pinned().unwrap(), ["latput-a", "latput-b"]);
    assert!(Lab::open_pinned(&LabOptions::default()).unwrap().is_none());
    let left = fs::read_dir(PIN_FOLDER).map_or(0, |folder| {
        folder
            .filter(|entry| {
                entry.as_ref().unwrap().file_name().to_str().unwrap().starts_with("latput-")
            })
            .count()
    });
    assert_eq!(left, 0);
}

#[needs("root")]
#[test]
fn foreign_namespace_is_no_obstacle() {
    isolate();
    // The first `ip netns add` of a machine mounts the folder of pins on itself.
    Namespace::create().unwrap().pin("latput-a").unwrap();
    let ip = |words: &[&str]| {
        let status = Command::new("ip").arg("netns").args(words).status().unwrap();
        assert!(status.success(), "{words:?}");
    };
    ip(&["add", "another"]);
    assert!(Namespace::unpin("latput-a").unwrap());
    Namespace::create().unwrap().pin("latput-b").unwrap();
    ip(&["delete", "another"]);
    assert!(Namespace::unpin("latput-b").unwrap());
    assert_eq!(fs::read_dir(PIN_FOLDER).unwrap().count(), 0);
}

#[needs("root")]
#[test]
fn half_made_lab_is_refused_until_removed() {
    isolate();
    // As after a kill -9 between the file and its mount, and before the second host.
    fs::create_dir_all(PIN_FOLDER).unwrap();
    fs::write(format!("{PIN_FOLDER}/latput-a"), "").unwrap();
    let error = Lab::open_pinned(&LabOptions::default()).unwrap_err().to_string();
    assert!(error.contains("lab down"), "{error}");
    assert_eq!(Lab::remove_pinned().unwrap(), ["latput-a"]);
    // And as after one between the two hosts: pinned, but without a link.
    let namespace = Namespace::create().unwrap();
    namespace.pin("latput-a").unwrap();
    Namespace::create().unwrap().pin("latput-b").unwrap();
    let error = Lab::open_pinned(&LabOptions::default()).unwrap_err().to_string();
    assert!(error.contains("lab down"), "{error}");
    assert_eq!(Lab::remove_pinned().unwrap(), ["latput-a", "latput-b"]);
}
