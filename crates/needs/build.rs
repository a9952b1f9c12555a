//! Has the attribute built anew, and with it the tests that carry it, where rights or programs may have changed.

use std::path::Path;

/// `sudo` and `su` set one of these. `PATH` is not watched: it differs between a shell and an editor, and each would build
/// again what the other has built.
const VARIABLES: [&str; 2] = ["HOME", "USER"];
/// Cargo compares the times of what is in them, which takes it milliseconds.
const FOLDERS: [&str; 3] = ["/usr/bin", "/usr/sbin", "/usr/local/bin"];

fn main() {
    for name in VARIABLES {
        println!("cargo::rerun-if-env-changed={name}");
    }
    // One that is not there would always count as changed.
    for folder in FOLDERS.into_iter().filter(|folder| Path::new(folder).exists()) {
        println!("cargo::rerun-if-changed={folder}");
    }
}
