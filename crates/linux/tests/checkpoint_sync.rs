//! The order in which a checkpoint reaches the disk: seen by `strace`, not by what we say.
#![allow(clippy::unwrap_used, reason = "a failure in a helper is a failed test")]

use std::io::Write;
use std::path::Path;
use std::process::Command;

use latput_knobs::{Checkpoint, CheckpointStore, Device, Knob, Place, Value};
use latput_linux::FileCheckpoints;
use latput_testkit::needs;

const TEST: &str = "checkpoint_is_synced_before_its_name";
const FOLDER: &str = "LATPUT_TEST_SYNC_FOLDER";

#[needs("strace")]
#[test]
fn checkpoint_is_synced_before_its_name() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        save_and_remove(Path::new(&folder));
        return;
    }
    if !can_trace() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let place = place.path().canonicalize().unwrap();
    let folder = place.join("state");
    // One file of calls for each thread, so that no call is cut in two by another thread's.
    let ran = Command::new("strace")
        .args(["-ff", "-y", "-s", "4096", "-e", "trace=/^(fsync|fdatasync|rename|unlink)", "-o"])
        .arg(place.join("calls"))
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", TEST, "--include-ignored"])
        .env(FOLDER, &folder)
        .output()
        .unwrap();
    assert!(ran.status.success(), "{ran:?}");
    let folder = folder.to_str().unwrap();
    let steps: Vec<&str> = calls(&place).iter().filter_map(|call| step(call, folder)).collect();
    let saved = ["sync the file", "give it its name", "sync the folder"];
    let removed = ["remove it", "sync the folder"];
    assert_eq!(steps, [saved.as_slice(), &saved, &removed].concat());
}

/// A first checkpoint, another in its place, and none.
fn save_and_remove(folder: &Path) {
    let mut store = FileCheckpoints::new(folder);
    let mut checkpoint = Checkpoint::new(&latput_testkit::context(), "eth0", Device::default());
    assert_eq!(store.claim(checkpoint.slot(), "eth0"), Ok(None));
    for mtu in [1500, 9000] {
        checkpoint.undo.0.insert((Knob::Mtu, Place::Device), Value::Count(mtu));
        store.save(&checkpoint).unwrap();
    }
    store.remove(checkpoint.slot()).unwrap();
}

/// Whether `strace` may trace.
fn can_trace() -> bool {
    let traced = Command::new("strace").args(["-o", "/dev/null", "true"]).status();
    let can = traced.unwrap().success();
    if !can {
        let _ = writeln!(std::io::stderr(), "skipped: needs the right to trace");
    }
    can
}

/// The calls of the thread that renamed something, in their order.
fn calls(place: &Path) -> Vec<String> {
    let files = std::fs::read_dir(place).unwrap().map(|entry| entry.unwrap().path());
    let texts =
        files.filter(|path| path.is_file()).map(|path| std::fs::read_to_string(path).unwrap());
    let text = texts.into_iter().find(|text| text.contains("rename"));
    text.expect("a thread renamed a file").lines().map(str::to_owned).collect()
}

/// Effect of a successful call on the checkpoint; `None` where it was about something else.
fn step(call: &str, folder: &str) -> Option<&'static str> {
    let (call, result) = call.rsplit_once(" = ")?;
    let (name, arguments) = call.split_once('(')?;
    let is_sync = matches!(name, "fsync" | "fdatasync");
    let is = |text: &str| arguments.contains(text) && arguments.contains(folder);
    match name {
        _ if result != "0" => None,
        _ if is_sync && is(".part>") => Some("sync the file"),
        _ if is_sync && is(&format!("<{folder}>")) => Some("sync the folder"),
        _ if name.starts_with("rename") && is(".part\"") && is(".json\"") => {
            Some("give it its name")
        }
        _ if name.starts_with("unlink") && is(".json\"") => Some("remove it"),
        _ => None,
    }
}
