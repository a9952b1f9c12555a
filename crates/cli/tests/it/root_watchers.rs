//! Watchers that meet errors which pass, and errors that do not: none of them gives up.

use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;

use latput_testkit::{isolate, needs};

use crate::root_confirm::{
    LONG, SHORT, kill_watchers, send_signal, show_link, stop_maker, watcher_pids,
};
use crate::root_settings::Lab;
use crate::{Place, is_gone, kill_pid, status_of, wait_until, words_of};

/// Longer than the time of `SHORT`, so that its watchers have met the error.
const PAST_THE_DEADLINE: Duration = Duration::from_secs(4);

#[needs("root", "prlimit", "dmesg")]
#[test]
fn watchers_without_descriptors_put_back_later() {
    isolate();
    let place = Place::new();
    let lab = Lab::set_up(&place);
    let before = show_link(&place);
    lab.run_on_b(&SHORT).expect(0, &["changed"]);
    // The kernel says EMFILE to each open.
    for watcher in watcher_pids(&place) {
        limit_files(watcher, 3);
    }
    thread::sleep(PAST_THE_DEADLINE);
    let left = watcher_pids(&place);
    assert_eq!(left.len(), 2, "none has given up");
    assert_ne!(show_link(&place), before, "the test does not test");
    for watcher in left {
        assert_eq!(lines_in_kernel_log(watcher), 1, "each failure is the same");
        limit_files(watcher, 1024);
    }
    wait_until("the values to go back", || show_link(&place) == before);
    wait_until("the watchers to end", || watcher_pids(&place).is_empty());
    lab.run_on_b(&["confirm"]).expect(4, &["no confirmation came in time"]);
}

/// A watcher needs no disk: the one that holds its program may be behind the interface that was changed.
#[needs("root")]
#[test]
fn watchers_keep_their_program_in_memory() {
    isolate();
    let place = Place::new();
    let lab = Lab::set_up(&place);
    lab.run_on_b(&LONG).expect(0, &["changed"]);
    let both = watcher_pids(&place);
    assert_eq!(both.len(), 2);
    for watcher in both {
        let kilobytes = |name: &str| {
            let value = status_of(watcher, name);
            value.trim_end_matches(" kB").trim().parse::<u64>().unwrap()
        };
        let code = kilobytes("VmExe:");
        assert!(code > 0 && kilobytes("VmLck:") >= code, "{} of {code} kB", kilobytes("VmLck:"));
    }
    lab.run_on_b(&["restore"]).expect(0, &["put back"]);
}

#[needs("root")]
#[test]
fn full_inode_table_stops_no_restore() {
    isolate();
    let place = Place::new();
    mount_state(&place);
    let lab = Lab::set_up(&place);
    let before = show_link(&place);
    for change in [&SHORT, &LONG] {
        lab.run_on_b(change).expect(0, &["changed"]);
        assert_ne!(show_link(&place), before);
        let filler = fill_inodes(&place);
        if change == &LONG {
            lab.run_on_b(&["restore"]).expect(0, &["put back lat0 mtu"]);
        }
        wait_until("the values to go back", || show_link(&place) == before);
        wait_until("the watchers to end", || watcher_pids(&place).is_empty());
        if change == &SHORT {
            lab.run_on_b(&["confirm"]).expect(4, &["no confirmation came in time"]);
        }
        for file in filler {
            std::fs::remove_file(file).unwrap();
        }
    }
    lab.run_on_b(&["restore"]).expect(0, &["nothing to restore"]);
}

#[needs("root")]
#[test]
fn read_only_state_still_goes_back() {
    isolate();
    let place = Place::new();
    mount_state(&place);
    let lab = Lab::set_up(&place);
    let before = show_link(&place);
    lab.run_on_b(&SHORT).expect(0, &["changed"]);
    remount_state(&place, "ro");
    wait_until("the values to go back", || show_link(&place) == before);
    // A value that somebody sets then is not fought over, though the checkpoint is still there.
    lab.run_ip("b", &["link", "set", "lat0", "mtu", "1400"]).expect(0, &[]);
    thread::sleep(PAST_THE_DEADLINE);
    assert_ne!(show_link(&place), before);
    remount_state(&place, "rw");
    wait_until("the watchers to end", || watcher_pids(&place).is_empty());
    lab.run_on_b(&["restore"]).expect(0, &["nothing to restore"]);
}

/// Makes a change, and moves the folder of its checkpoint away once both watchers have seen it; gives the folder's path.
fn lose_state_folder(place: &Place, lab: &Lab<'_>) -> PathBuf {
    lab.run_on_b(&[&LONG[..5], &["8s"]].concat()).expect(0, &["changed"]);
    thread::sleep(Duration::from_secs(2));
    let folder = place.path("state/lab-up/checkpoints");
    std::fs::rename(&folder, place.path("elsewhere")).unwrap();
    folder
}

#[needs("root")]
#[test]
fn lost_state_folder_still_goes_back() {
    isolate();
    let place = Place::new();
    let lab = Lab::set_up(&place);
    let before = show_link(&place);
    lose_state_folder(&place, &lab);
    wait_until("the values to go back", || show_link(&place) == before);
    wait_until("the watchers to end", || watcher_pids(&place).is_empty());
}

/// Another change makes the folder anew: what is in it is not what the watchers had seen.
#[needs("root")]
#[test]
fn replaced_state_folder_still_goes_back() {
    isolate();
    let place = Place::new();
    let lab = Lab::set_up(&place);
    let before = show_link(&place);
    let folder = lose_state_folder(&place, &lab);
    lab.run_on_b(&["set", "lo", "mtu=60000"]).expect(0, &["changed lo mtu"]);
    assert!(folder.is_dir(), "the test does not test");
    wait_until("the values to go back", || show_link(&place) == before);
    wait_until("the watchers to end", || watcher_pids(&place).is_empty());
}

/// Stopped, they do not see that the checkpoint goes, and then its folder is gone too.
#[needs("root")]
#[test]
fn watchers_of_settled_change_end_without_folder() {
    isolate();
    let place = Place::new();
    let lab = Lab::set_up(&place);
    for ends in ["confirm", "restore"] {
        lab.run_on_b(&LONG).expect(0, &["changed"]);
        let changed = show_link(&place);
        // Both have seen it.
        thread::sleep(Duration::from_secs(2));
        let both = watcher_pids(&place);
        let all = |name: &str| {
            for watcher in &both {
                send_signal(name, *watcher);
            }
        };
        all("STOP");
        lab.run_on_b(&[ends]).expect(0, &[]);
        let after = show_link(&place);
        std::fs::remove_dir_all(place.path("state/lab-up/checkpoints")).unwrap();
        all("CONT");
        wait_until("the watchers to end", || watcher_pids(&place).is_empty());
        assert_eq!(show_link(&place), after);
        assert_eq!(after == changed, ends == "confirm");
        lab.run_ip("b", &["link", "set", "lat0", "mtu", "1500"]).expect(0, &[]);
    }
    // The signal alone ends no watch.
    lab.run_on_b(&LONG).expect(0, &["changed"]);
    for watcher in watcher_pids(&place) {
        send_signal("URG", watcher);
    }
    thread::sleep(Duration::from_secs(2));
    assert_eq!(watcher_pids(&place).len(), 2);
    lab.run_on_b(&["restore"]).expect(0, &["put back"]);
}

/// Nobody else is left to act where systemd does not run.
#[needs("root", "strace")]
#[test]
fn stopped_maker_without_watchers_puts_back() {
    isolate();
    let place = Place::new();
    let lab = Lab::set_up(&place);
    let before = show_link(&place);
    let (mut run, _) = stop_maker(&place, 3, &LONG);
    assert!(!watcher_pids(&place).is_empty());
    kill_watchers(&place);
    wait_until("the maker to go on and end", || run.try_wait().unwrap().is_some());
    assert_eq!(show_link(&place), before);
    assert!(watcher_pids(&place).is_empty());
    lab.run_on_b(&["restore"]).expect(0, &["nothing to restore"]);
}

/// The late watcher of systemd's timer, where both others were killed.
#[needs("root", "strace")]
#[test]
fn late_watcher_ends_a_stopped_maker() {
    isolate();
    let place = Place::new();
    let lab = Lab::set_up(&place);
    let before = show_link(&place);
    // Continued when its watchers end, it is stopped again before it can see that.
    let (mut run, maker) = stop_maker(&place, "3+", &SHORT);
    let words = words_of(watcher_pids(&place)[0]);
    kill_watchers(&place);
    let args = words.split_once("watcher ").unwrap().1;
    let args: Vec<&str> =
        args.split_whitespace().filter(|word| !word.starts_with("--peer")).collect();
    lab.run_on_b(&[&["watcher", "--late"], &args[..]].concat()).expect(0, &["ready"]);
    assert!(is_gone(maker), "it would go on with its change");
    run.wait().unwrap();
    assert_eq!(show_link(&place), before);
    lab.run_on_b(&["confirm"]).expect(4, &["too late"]);
    // Another process with that id is left alone.
    let mut other = Command::new("sleep").arg("100").spawn().unwrap();
    let (pid, start) = (format!("--pid={}", other.id()), "--pid-start=1");
    let of_other: Vec<&str> = args
        .iter()
        .map(|word| match word {
            word if word.starts_with("--pid=") => pid.as_str(),
            word if word.starts_with("--pid-start=") => start,
            word => word,
        })
        .collect();
    lab.run_on_b(&[&["watcher", "--late"], &of_other[..]].concat()).expect(0, &["ready"]);
    assert!(!is_gone(other.id()));
    kill_pid(other.id());
    other.wait().unwrap();
}

fn limit_files(pid: u32, most: u32) {
    let limit = format!("--nofile={most}:1024");
    assert!(
        Command::new("prlimit")
            .args(["--pid", &pid.to_string(), &limit])
            .status()
            .unwrap()
            .success()
    );
}

/// Lines that a watcher wrote to the kernel's log.
fn lines_in_kernel_log(watcher: u32) -> usize {
    let log = Command::new("dmesg").output().unwrap();
    let log = String::from_utf8_lossy(&log.stdout);
    log.lines().filter(|line| line.contains(&format!("latput[{watcher}]: lat0: "))).count()
}

/// A file system of its own for the state, with few inodes.
fn mount_state(place: &Place) {
    let state = place.path("state");
    std::fs::create_dir(&state).unwrap();
    let options = ["-t", "tmpfs", "-o", "nr_inodes=60,mode=0700", "none"];
    assert!(Command::new("mount").args(options).arg(&state).status().unwrap().success());
}

fn remount_state(place: &Place, how: &str) {
    let how = format!("remount,{how}");
    let status = Command::new("mount").args(["-o", &how]).arg(place.path("state")).status();
    assert!(status.unwrap().success());
}

fn fill_inodes(place: &Place) -> Vec<std::path::PathBuf> {
    let files = (0..100).map(|number| place.path(&format!("state/filler-{number}")));
    let files: Vec<_> = files.take_while(|file| std::fs::File::create(file).is_ok()).collect();
    assert!(files.len() < 100, "the inodes are not used up");
    files
}
