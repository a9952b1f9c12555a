//! Disks without room: what was measured or changed is there afterwards, or a message says what is not.

use std::fs;
use std::path::Path;
use std::process::Command;

use latput_testkit::{isolate, needs};

use crate::Place;

const PLAN: &str = r#"
schema = 1
name = "many"
goal = "minimize latency_ns_p99"
[factors]
"gro-flush-timeout + napi-defer-hard-irqs" = [["200us", 100], ["20us", 100]]
[[workload]]
kind = "tcp_rr"
[method]
repetitions = { min = 20, max = 20 }
warmup = "5ms"
duration = "50ms"
seed = 7
"#;
const PLANNED: i64 = 60;

/// A folder of this place on a disk of its own, which ends with the namespace of the test.
fn mount_disk(place: &Place, name: &str, kilobytes: u32) {
    let folder = place.path(name);
    fs::create_dir_all(&folder).unwrap();
    mount_folder(&["-t", "tmpfs", "-o", &format!("size={kilobytes}k"), "none"], &folder);
}

fn mount_folder(args: &[&str], folder: &Path) {
    assert!(Command::new("mount").args(args).arg(folder).status().unwrap().success(), "{args:?}");
}

/// Runs the plan on a disk of this size, then again with room. Returns whether the first run was whole.
#[track_caller]
fn check_run(kilobytes: u32) -> bool {
    let place = Place::new();
    place.write("plan.toml", PLAN);
    mount_disk(&place, "disk", kilobytes);
    let args = ["run", "plan.toml", "--on", "sim:server-10g", "-o", "disk/kept.db"];
    let ran = place.run(&args);
    let kept = place.count_trials("disk/kept.db");
    let is_whole = ran.code == Some(0);
    if is_whole {
        assert_eq!(kept, PLANNED, "{ran:#?}");
    } else {
        ran.expect(if kept == 0 { 1 } else { 6 }, &["disk is full"]);
    }
    if kept > 0 && !is_whole {
        ran.expect(6, &[&format!("{kept} of {PLANNED} trials")]);
    }
    let log = place.path("disk/kept.db-wal");
    if log.metadata().is_ok_and(|log| log.len() > 0) && kept > 0 {
        ran.expect(ran.code.unwrap(), &["disk/kept.db-wal", "keep the two files together"]);
    }
    mount_folder(&["-o", "remount,size=64M"], &place.path("disk"));
    // A reader moves what is in the log; the same command resumes.
    let again = place.run(if is_whole { &["report", "disk/kept.db"] } else { &args });
    again.expect(0, &[]);
    assert_eq!(place.count_trials("disk/kept.db"), PLANNED, "{again:#?}");
    assert!(!log.exists(), "the file is whole by itself");
    is_whole
}

#[needs("root")]
#[test]
fn full_disk_run_tells_what_is_kept() {
    isolate();
    let mut whole = Vec::new();
    for kilobytes in [16, 64, 128, 400, 1200, 1800, 2000, 2200, 6000] {
        whole.push(check_run(kilobytes));
    }
    assert!(!whole[0] && whole[8], "{whole:?}");
}

#[needs("root")]
#[test]
fn oversized_results_are_refused() {
    isolate();
    let place = Place::new();
    place.write("plan.toml", PLAN);
    place.run(&["run", "plan.toml", "--on", "sim:server-10g", "-o", "kept.db"]).expect(0, &[]);
    place.run(&["report", "kept.db", "-o", "kept.html"]).expect(0, &[]);
    mount_disk(&place, "disk", 200);
    place.run(&["import", "kept.html", "-o", "disk/back.db"]).expect(1, &["disk is full"]);
    place.run(&["report", "kept.db", "-o", "disk/kept.html"]).expect(1, &["No space left"]);
    assert!(!place.path("disk/kept.html").exists());
}

#[needs("root")]
#[test]
fn change_without_room_for_its_entry_goes_back() {
    isolate();
    let ip = |args: &str| Command::new("ip").args(args.split(' ')).status().unwrap().success();
    assert!(ip("link add v0 type veth peer name v1"));
    let mtu = || fs::read_to_string("/sys/class/net/v0/mtu").unwrap().trim().to_owned();
    let mut seen = Vec::new();
    for kilobytes in [4, 8, 12, 16, 64] {
        let place = Place::new();
        mount_disk(&place, "state", kilobytes);
        let ran = place.run(&["set", "v0", "mtu=1400"]);
        let ended = ran.code.unwrap();
        match ended {
            0 => {
                ran.expect(0, &["undo:  latput undo"]);
                // An undo needs room of its own.
                mount_folder(&["-o", "remount,size=64M"], &place.path("state"));
                place.run(&["undo"]).expect(0, &["undid v0 mtu"]);
            }
            1 => {
                ran.expect(1, &["nothing was changed"]);
            }
            _ => {
                ran.expect(4, &["No space left"]);
            }
        }
        assert_eq!(mtu(), "1500", "{kilobytes} KiB");
        seen.push(ended);
    }
    seen.dedup();
    assert_eq!(seen, [1, 4, 0], "each case was met");
}
