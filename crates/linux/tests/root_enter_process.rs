//! A whole process moves into a namespace. Needs root, and no test harness: that has threads.
#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

use std::fs;

use latput_knobs::{KernelRead, Knob, Place, Value};
use latput_linux::{Lab, LabOptions, LinuxKernel, Sampler, lab};
use latput_testkit::lacks_any;

fn main() {
    // `cargo test -- --list` and the like ask for no run.
    if std::env::args().any(|argument| argument == "--list") || lacks_any(&["root"]) {
        return;
    }
    let before = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let lab = Lab::build(&LabOptions::default()).unwrap();
    lab.b.namespace.enter_process().unwrap();
    assert!(fs::exists("/sys/class/net/lat0/threaded").unwrap());
    assert_ne!(fs::read_to_string("/proc/self/mountinfo").unwrap(), before);
    let kernel = LinuxKernel::open().unwrap();
    let threaded = kernel.read(lab::INTERFACE, Knob::Threaded);
    assert_eq!(threaded, Ok(vec![(Place::Device, Value::Switch(true))]));
    let mut sampler = Sampler::open(lab::INTERFACE, &lab.b.cpus).unwrap();
    assert_eq!(sampler.sample().unwrap().interface.rx_packets, 0);
    // Threads that start now are inside as well.
    let inside = std::thread::spawn(|| fs::exists("/sys/class/net/lat0").unwrap());
    assert!(inside.join().unwrap());
    lab.a.namespace.enter_process().unwrap();
    assert!(LinuxKernel::open().unwrap().read(lab::INTERFACE, Knob::Gro).is_ok());
}
