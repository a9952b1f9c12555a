//! Any bytes as the content of a file of sysfs or procfs.
#![no_main]

libfuzzer_sys::fuzz_target!(|content: &[u8]| latput_linux::fuzzing::files(content));
