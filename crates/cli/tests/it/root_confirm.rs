//! A change that goes back by itself unless it is confirmed, whatever ends latput or its session.

use std::fmt::Display;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use latput_testkit::{isolate, needs};

use crate::root_foretold::set_with_refused_rps;
use crate::root_settings::Lab;
use crate::{Place, kill_pid, wait_until};

/// Longer than any of these tests.
pub(crate) const LONG: [&str; 6] =
    ["set", "lat0", "mtu=1400", "gro-flush-timeout=70us", "--confirm-within", "10min"];
/// A deadline so short that a test may wait for it.
pub(crate) const SHORT: [&str; 6] =
    ["set", "lat0", "mtu=1400", "gro-flush-timeout=70us", "--confirm-within", "2s"];

#[needs("root")]
#[test]
fn what_is_confirmed_in_time_stays() {
    isolate();
    let place = Place::new();
    let lab = Lab::set_up(&place);
    let before = lab.read_knobs();
    lab.run_on_b(&["confirm"]).expect(1, &["no change waits"]);
    lab.run_on_b(&[&LONG[..], &["--dry-run"]].concat()).expect(0, &["would change lat0 mtu"]);
    assert!(watcher_pids(&place).is_empty(), "a dry run starts nothing");
    lab.run_on_b(&LONG)
        .expect(0, &["changed lat0 mtu", "goes back in 600s", "latput confirm lat0"]);
    let changed = lab.read_knobs();
    assert_ne!(changed, before);
    assert_eq!(watcher_pids(&place).len(), 2);
    lab.run_on_b(&["set", "lat0", "mtu=1300"])
        .expect(1, &["waits to be confirmed", "latput restore"]);
    lab.run_on_b(&LONG).expect(1, &["waits to be confirmed"]);
    lab.run_on_b(&["confirm", "lo"]).expect(1, &["no change of lo waits"]);
    lab.run_on_b(&["confirm", "lat0"]).expect(0, &["confirmed: lat0"]);
    wait_until("the watchers to end", || watcher_pids(&place).is_empty());
    assert_eq!(lab.read_knobs(), changed);
    lab.run_on_b(&["confirm", "lat0"]).expect(1, &["no change of lat0 waits"]);
    lab.run_on_b(&["restore"]).expect(0, &["nothing to restore"]);
    // A value that is as wanted already needs nobody's word.
    let ran = lab.run_on_b(&LONG);
    ran.expect(0, &["nothing to change"]);
    assert!(!ran.err.contains("confirm"), "{ran:#?}");
    wait_until("the watcher to end", || watcher_pids(&place).is_empty());
    lab.run_on_b(&["confirm"]).expect(1, &["no change waits"]);
}

#[needs("root")]
#[test]
fn unconfirmed_change_goes_back() {
    isolate();
    let place = Place::new();
    let lab = Lab::set_up(&place);
    let before = lab.read_knobs();
    lab.run_on_b(&SHORT).expect(0, &["goes back in 2s"]);
    assert_ne!(lab.read_knobs(), before);
    wait_until("the values to go back", || lab.read_knobs() == before);
    let too_late = ["lat0: too late", "no confirmation came in time", "everything was put back"];
    lab.run_on_b(&["confirm", "lat0"]).expect(4, &too_late);
    lab.run_on_b(&["confirm"]).expect(4, &too_late);
    wait_until("the watcher to end", || watcher_pids(&place).is_empty());
    lab.run_on_b(&["restore"]).expect(0, &["nothing to restore"]);
    // The next change makes that old news.
    lab.run_on_b(&["set", "lat0", "mtu=1400"]).expect(0, &["changed"]);
    lab.run_on_b(&["confirm"]).expect(1, &["no change waits"]);
}

#[needs("root", "strace")]
#[test]
fn restore_puts_back_at_once_what_waits() {
    isolate();
    let place = Place::new();
    let lab = Lab::set_up(&place);
    let before = lab.read_knobs();
    lab.run_on_b(&LONG).expect(0, &["changed"]);
    lab.run_on_b(&["restore"]).expect(0, &["put back lat0 mtu"]);
    assert_eq!(lab.read_knobs(), before);
    wait_until("the watcher to end", || watcher_pids(&place).is_empty());
    // A refused change has nothing to wait for.
    let refused = ["set", "lat0", "mtu=1400", "rps-cpus=0", "--confirm-within", "10min"];
    set_with_refused_rps(&lab, &refused).expect(4, &["rolled back"]);
    wait_until("the watcher to end", || watcher_pids(&place).is_empty());
    assert_eq!(lab.read_knobs(), before);
}

/// strace ends latput itself, and not the watcher, on entry to its n-th call of a kind.
#[needs("root", "strace")]
#[test]
#[ignore = "long: `cargo xtask ci --full` runs it"]
fn killed_change_goes_back_alone() {
    isolate();
    let place = Place::new();
    let lab = Lab::set_up(&place);
    let before = lab.read_knobs();
    let mut kills = 0;
    for (call, step) in [("sendto", 4), ("fsync", 1), ("rename", 1), ("write", 2)] {
        for nth in (1..200).step_by(step) {
            let inject = format!("inject={call}:signal=KILL:when={nth}");
            let trace = format!("trace={call}");
            let ran =
                lab.b_behind(&["strace", "-o", "/dev/null", "-e", &trace, "-e", &inject], &SHORT);
            wait_until("the watcher to end", || watcher_pids(&place).is_empty());
            assert_eq!(lab.read_knobs(), before, "after {call} {nth}: {ran:#?}");
            if ran.code == Some(0) {
                break;
            }
            kills += 1;
        }
    }
    assert!(kills > 10, "only {kills} kills hit: the test does not test");
    lab.run_on_b(&["restore"]).expect(0, &["nothing to restore"]);
}

/// `script` gives the session a terminal; when it dies the terminal is gone, as with a lost ssh.
#[needs("root", "script")]
#[test]
fn session_end_does_not_affect_change() {
    isolate();
    let place = Place::new();
    let lab = Lab::set_up(&place);
    let before = lab.read_knobs();
    let latput = crate::latput_path();
    let line = format!("{latput} lab exec b -- {latput} {}; sleep 100", SHORT.join(" "));
    let mut session = Command::new("script")
        .args(["-q", "-c", &line, "/dev/null"])
        .env("LATPUT_STATE_DIR", place.path("state"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_until("the change", || lab.read_knobs() != before);
    kill_pid(session.id());
    session.wait().unwrap();
    assert_eq!(watcher_pids(&place).len(), 2, "the watchers outlive the session");
    wait_until("the values to go back", || lab.read_knobs() == before);
    wait_until("the watcher to end", || watcher_pids(&place).is_empty());
    lab.run_on_b(&["confirm"]).expect(4, &["no confirmation came in time"]);
}

#[needs("root")]
#[test]
fn terminated_watcher_puts_back_first() {
    isolate();
    let place = Place::new();
    let lab = Lab::set_up(&place);
    let before = lab.read_knobs();
    lab.run_on_b(&LONG).expect(0, &["changed"]);
    let [_, watcher] = watcher_pids(&place)[..] else { panic!("two watchers") };
    send_signal("TERM", watcher);
    wait_until("the watchers to end", || watcher_pids(&place).is_empty());
    assert_eq!(lab.read_knobs(), before);
    lab.run_on_b(&["confirm", "lat0"]).expect(4, &["told to end", "everything was put back"]);
}

#[needs("root")]
#[test]
fn change_outlives_killed_watchers() {
    isolate();
    let place = Place::new();
    let lab = Lab::set_up(&place);
    let before = lab.read_knobs();
    lab.run_on_b(&SHORT).expect(0, &["changed"]);
    kill_watchers(&place);
    thread::sleep(Duration::from_secs(3));
    let changed = lab.read_knobs();
    assert_ne!(changed, before, "nobody puts it back");
    lab.run_on_b(&["confirm", "lat0"]).expect(5, &["too late by", "latput restore"]);
    lab.run_on_b(&["set", "lat0", "mtu=1300"]).expect(1, &["run `latput restore` first"]);
    lab.run_on_b(&["restore"]).expect(0, &["put back lat0 mtu"]);
    assert_eq!(lab.read_knobs(), before);
    lab.run_on_b(&LONG).expect(0, &["changed"]);
    kill_watchers(&place);
    lab.run_on_b(&["log"]).expect(0, &["waits, but the processes", "run `latput restore lat0`"]);
    lab.run_on_b(&["log", "--json"]).expect(0, &["\"unwatched\""]);
    lab.run_on_b(&["confirm", "lat0", "--json"]).expect(0, &["\"confirmed\"", "lat0"]);
    assert_eq!(lab.read_knobs(), changed);
    lab.run_on_b(&["restore"]).expect(0, &["nothing to restore"]);
}

/// strace stops latput itself on entry to its n-th call of a kind: it holds the lock, and never goes on.
#[needs("root", "strace")]
#[test]
#[ignore = "long: `cargo xtask ci --full` runs it"]
fn stopped_maker_is_ended_at_deadline() {
    isolate();
    let place = Place::new();
    let lab = Lab::set_up(&place);
    let (before, link) = (lab.read_knobs(), show_link(&place));
    let mut in_the_middle = 0;
    for (call, step) in [("sendto", 12), ("fsync", 1), ("rename", 1)] {
        for nth in (1..200).step_by(step) {
            let mut run = start_stopping(&place, call, nth, &SHORT);
            let mut code = None;
            wait_until("the maker to end", || {
                if watcher_pids(&place).is_empty() {
                    stopped_maker(&place).into_iter().for_each(kill_pid); // before it began
                }
                code = run.try_wait().unwrap();
                code.is_some()
            });
            wait_until("the watchers to end", || watcher_pids(&place).is_empty());
            assert_eq!(lab.read_knobs(), before, "after {call} {nth}");
            if code.is_some_and(|code| code.success()) {
                break;
            }
            let asked = lab.run_on_b(&["confirm", "lat0"]);
            in_the_middle += u32::from(asked.code == Some(4) && asked.err.contains("too late"));
            lab.run_on_b(&["restore"]).expect(0, &["nothing to restore"]);
        }
    }
    assert!(in_the_middle > 5, "only {in_the_middle} stops hit: the test does not test");
    assert_eq!(self::show_link(&place), link);
}

#[needs("root", "strace")]
#[test]
fn killed_watcher_is_restarted_by_other() {
    isolate();
    let place = Place::new();
    let lab = Lab::set_up(&place);
    let (before, link) = (lab.read_knobs(), show_link(&place));
    // Each in turn, also those that were started again.
    lab.run_on_b(&[&LONG[..5], &["15s"]].concat()).expect(0, &["changed"]);
    for which in [0, 1, 1, 0] {
        kill_one_watcher(&place, which);
    }
    assert_ne!(self::show_link(&place), link, "the time is not over");
    wait_until("the values to go back", || self::show_link(&place) == link);
    wait_until("the watchers to end", || watcher_pids(&place).is_empty());
    assert_eq!(lab.read_knobs(), before);
    lab.run_on_b(&["confirm"]).expect(4, &["no confirmation came in time"]);
    // In the middle of a change, and then its maker.
    let (mut run, maker) = stop_maker(&place, 3, &LONG);
    kill_one_watcher(&place, 0);
    kill_one_watcher(&place, 0);
    kill_pid(maker);
    run.wait().unwrap();
    wait_until("the watchers to end", || watcher_pids(&place).is_empty());
    assert_eq!((lab.read_knobs(), self::show_link(&place)), (before, link));
    lab.run_on_b(&["confirm"]).expect(4, &["the change was not finished"]);
}

/// A state folder that a reboot does not empty.
#[needs("root")]
#[test]
fn change_of_earlier_boot_is_left() {
    isolate();
    let place = Place::new();
    let lab = Lab::set_up(&place);
    lab.run_on_b(&LONG).expect(0, &["changed"]);
    kill_watchers(&place);
    let changed = lab.read_knobs();
    let [checkpoint] = &checkpoint_files(&place)[..] else { panic!("one checkpoint") };
    let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let text = std::fs::read_to_string(checkpoint).unwrap();
    let earlier = "00000000-0000-0000-0000-000000000000";
    std::fs::write(checkpoint, text.replace(boot_id.trim(), earlier)).unwrap();
    lab.run_on_b(&["confirm", "lat0"]).expect(1, &["before the last boot", "--forget"]);
    lab.run_on_b(&["restore"]).expect(1, &["another boot", "--forget"]);
    assert_eq!(lab.read_knobs(), changed);
    // It stands in the way of no other change.
    lab.run_on_b(&["set", "lat0", "mtu=1300"]).expect(0, &["changed"]);
    assert!(checkpoint_files(&place).is_empty());
}

#[needs("root")]
#[test]
fn full_disk_refuses_change_before_start() {
    isolate();
    let place = Place::new();
    place.write("state", "a file where the folder should be");
    let change = ["set", "lo", "txqueuelen=999", "--confirm-within", "1s"];
    place.run(&change).expect(1, &["nothing was changed", "state"]);
    wait_until("the watcher to end", || watcher_pids(&place).is_empty());
}

/// Starts a change that strace stops.
fn start_stopping(place: &Place, call: &str, when: impl Display, change: &[&str]) -> Child {
    let (trace, inject) =
        (format!("trace={call}"), format!("inject={call}:signal=STOP:when={when}"));
    let strace = ["strace", "-o", "/dev/null", "-e", &trace, "-e", &inject];
    let latput = [crate::latput_path()];
    place.start(&[&["lab", "exec", "b", "--"], &strace[..], &latput, change].concat())
}

/// Starts a change and stops it at an `fsync`. Returns the process that waits for it, and the id of its maker.
pub(crate) fn stop_maker(place: &Place, when: impl Display, change: &[&str]) -> (Child, u32) {
    let run = start_stopping(place, "fsync", when, change);
    let mut maker = None;
    wait_until("the maker to stop", || {
        maker = stopped_maker(place);
        maker.is_some()
    });
    (run, maker.unwrap())
}

/// The process that makes a change, once it is stopped. strace stops it for a moment at each of its calls as well.
fn stopped_maker(place: &Place) -> Option<u32> {
    let status = |pid| std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let is_stopped = |pid: &u32| {
        let before = status(*pid);
        thread::sleep(Duration::from_millis(50));
        // The same number of context switches, too.
        before.contains("(tracing stop)") && status(*pid) == before
    };
    find_processes(place, "set").into_iter().find(is_stopped)
}

/// The interface as `ip` shows it.
pub(crate) fn show_link(place: &Place) -> String {
    let said = place.run(&["lab", "exec", "b", "--", "ip", "-o", "link", "show", "lat0"]);
    said.expect(0, &[" mtu "]).out.clone()
}

/// Kills one, and waits until there are two again.
#[track_caller]
fn kill_one_watcher(place: &Place, which: usize) {
    let killed = watcher_pids(place)[which];
    kill_pid(killed);
    wait_until("two watchers", || {
        let now = watcher_pids(place);
        now.len() == 2 && !now.contains(&killed)
    });
}

/// Kills all at the same time: none of them sees another die.
pub(crate) fn kill_watchers(place: &Place) {
    for watcher in watcher_pids(place) {
        send_signal("STOP", watcher);
    }
    let both = watcher_pids(place);
    assert_eq!(both.len(), 2);
    both.into_iter().for_each(kill_pid);
    wait_until("the watchers to end", || watcher_pids(place).is_empty());
}

pub(crate) fn send_signal(name: &str, pid: u32) {
    Command::new("kill").args([format!("-{name}"), pid.to_string()]).status().unwrap();
}

/// The processes that watch changes made in this place.
pub(crate) fn watcher_pids(place: &Place) -> Vec<u32> {
    find_processes(place, "watcher")
}

/// The processes of this place that have this word in their command line.
fn find_processes(place: &Place, word: &str) -> Vec<u32> {
    let state = place.path("state").display().to_string();
    let mut found: Vec<u32> = std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid: &u32| {
            let holds = |file: &str, text: &str| {
                std::fs::read(format!("/proc/{pid}/{file}"))
                    .is_ok_and(|bytes| String::from_utf8_lossy(&bytes).contains(text))
            };
            holds("cmdline", &format!("\0{word}\0")) && holds("environ", &state)
        })
        .collect();
    found.sort_unstable();
    found
}

fn checkpoint_files(place: &Place) -> Vec<std::path::PathBuf> {
    let folder = place.path("state/lab-up/checkpoints");
    let is_checkpoint = |path: &Path| path.extension().is_some_and(|extension| extension == "json");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| is_checkpoint(path)).collect()
}
