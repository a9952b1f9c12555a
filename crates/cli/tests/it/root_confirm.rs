//! A change that goes back by itself unless it is confirmed, whatever ends latput or its session.

use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use latput_testkit::needs_root;

use crate::root_settings::Lab;
use crate::{Place, kill, lab_turn, needs_program, wait_until};

/// Longer than any of these tests.
const LONG: [&str; 6] =
    ["set", "lat0", "mtu=1400", "gro-flush-timeout=70us", "--confirm-within", "10min"];
/// So short that a test may wait for its end.
const SHORT: [&str; 6] =
    ["set", "lat0", "mtu=1400", "gro-flush-timeout=70us", "--confirm-within", "2s"];

#[test]
fn what_is_confirmed_in_time_stays() {
    if needs_root() {
        return;
    }
    let _turn = lab_turn();
    let place = Place::new();
    let lab = Lab::up(&place);
    let before = lab.knobs();
    lab.b(&["confirm"]).expect(1, &["no change waits"]);
    lab.b(&[&LONG[..], &["--dry-run"]].concat()).expect(0, &["would change lat0 mtu"]);
    assert!(watchers(&place).is_empty(), "a dry run starts nothing");
    lab.b(&LONG).expect(0, &["changed lat0 mtu", "goes back in 600s", "latput confirm lat0"]);
    let changed = lab.knobs();
    assert_ne!(changed, before);
    assert_eq!(watchers(&place).len(), 1);
    lab.b(&["set", "lat0", "mtu=1300"]).expect(1, &["waits to be confirmed", "latput restore"]);
    lab.b(&LONG).expect(1, &["waits to be confirmed"]);
    lab.b(&["confirm", "lo"]).expect(1, &["no change of lo waits"]);
    lab.b(&["confirm", "lat0"]).expect(0, &["confirmed: lat0"]);
    wait_until("the watchers to end", || watchers(&place).is_empty());
    assert_eq!(lab.knobs(), changed);
    lab.b(&["confirm", "lat0"]).expect(1, &["no change of lat0 waits"]);
    lab.b(&["restore"]).expect(0, &["nothing to restore"]);
    // What is as wanted already needs nobody's word.
    let ran = lab.b(&LONG);
    ran.expect(0, &["nothing to change"]);
    assert!(!ran.err.contains("confirm"), "{ran:#?}");
    wait_until("the watcher to end", || watchers(&place).is_empty());
    lab.b(&["confirm"]).expect(1, &["no change waits"]);
}

#[test]
fn what_nobody_confirms_goes_back_and_the_late_are_told() {
    if needs_root() {
        return;
    }
    let _turn = lab_turn();
    let place = Place::new();
    let lab = Lab::up(&place);
    let before = lab.knobs();
    lab.b(&SHORT).expect(0, &["goes back in 2s"]);
    assert_ne!(lab.knobs(), before);
    wait_until("the values to go back", || lab.knobs() == before);
    let too_late = ["lat0: too late", "no confirmation came in time", "everything was put back"];
    lab.b(&["confirm", "lat0"]).expect(4, &too_late);
    lab.b(&["confirm"]).expect(4, &too_late);
    wait_until("the watcher to end", || watchers(&place).is_empty());
    lab.b(&["restore"]).expect(0, &["nothing to restore"]);
    // The next change makes that old news.
    lab.b(&["set", "lat0", "mtu=1400"]).expect(0, &["changed"]);
    lab.b(&["confirm"]).expect(1, &["no change waits"]);
}

#[test]
fn restore_puts_back_at_once_what_waits() {
    if needs_root() {
        return;
    }
    let _turn = lab_turn();
    let place = Place::new();
    let lab = Lab::up(&place);
    let before = lab.knobs();
    lab.b(&LONG).expect(0, &["changed"]);
    lab.b(&["restore"]).expect(0, &["put back lat0 mtu"]);
    assert_eq!(lab.knobs(), before);
    wait_until("the watcher to end", || watchers(&place).is_empty());
    // A refused change has nothing to wait for.
    let refused = ["set", "lat0", "mtu=1400", "rps-cpus=8000", "--confirm-within", "10min"];
    lab.b(&refused).expect(4, &["rolled back"]);
    wait_until("the watcher to end", || watchers(&place).is_empty());
    assert_eq!(lab.knobs(), before);
}

/// strace ends latput itself, and not the watcher, on entry to its n-th call of a kind.
#[test]
fn a_kill_at_any_step_is_put_back_without_anybody() {
    if needs_root() || needs_program("strace") {
        return;
    }
    let _turn = lab_turn();
    let place = Place::new();
    let lab = Lab::up(&place);
    let before = lab.knobs();
    let mut kills = 0;
    for (call, step) in [("sendto", 4), ("fsync", 1), ("rename", 1), ("write", 2)] {
        for nth in (1..200).step_by(step) {
            let inject = format!("inject={call}:signal=KILL:when={nth}");
            let trace = format!("trace={call}");
            let ran =
                lab.b_behind(&["strace", "-o", "/dev/null", "-e", &trace, "-e", &inject], &SHORT);
            wait_until("the watcher to end", || watchers(&place).is_empty());
            assert_eq!(lab.knobs(), before, "after {call} {nth}: {ran:#?}");
            if ran.code == Some(0) {
                break;
            }
            kills += 1;
        }
    }
    assert!(kills > 10, "only {kills} kills hit: the test does not test");
    lab.b(&["restore"]).expect(0, &["nothing to restore"]);
}

/// `script` gives the session a terminal; when it dies the terminal is gone, as with a lost ssh.
#[test]
fn the_end_of_the_session_neither_keeps_nor_hurries_a_change() {
    if needs_root() || needs_program("script") {
        return;
    }
    let _turn = lab_turn();
    let place = Place::new();
    let lab = Lab::up(&place);
    let before = lab.knobs();
    let latput = env!("CARGO_BIN_EXE_latput");
    let line = format!("{latput} lab exec b -- {latput} {}; sleep 100", SHORT.join(" "));
    let mut session = Command::new("script")
        .args(["-q", "-c", &line, "/dev/null"])
        .env("LATPUT_STATE_DIR", place.path("state"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_until("the change", || lab.knobs() != before);
    kill(session.id());
    session.wait().unwrap();
    assert_eq!(watchers(&place).len(), 1, "the watcher outlives the session");
    wait_until("the values to go back", || lab.knobs() == before);
    wait_until("the watcher to end", || watchers(&place).is_empty());
    lab.b(&["confirm"]).expect(4, &["no confirmation came in time"]);
}

#[test]
fn a_watcher_that_is_told_to_end_puts_back_first() {
    if needs_root() {
        return;
    }
    let _turn = lab_turn();
    let place = Place::new();
    let lab = Lab::up(&place);
    let before = lab.knobs();
    lab.b(&LONG).expect(0, &["changed"]);
    let [watcher] = watchers(&place)[..] else { panic!("one watcher") };
    Command::new("kill").arg(watcher.to_string()).status().unwrap();
    wait_until("the watcher to end", || watchers(&place).is_empty());
    assert_eq!(lab.knobs(), before);
    lab.b(&["confirm", "lat0"]).expect(4, &["told to end", "everything was put back"]);
}

#[test]
fn after_a_kill_of_the_watcher_confirm_still_keeps_and_restore_puts_back() {
    if needs_root() {
        return;
    }
    let _turn = lab_turn();
    let place = Place::new();
    let lab = Lab::up(&place);
    let before = lab.knobs();
    let kill_watcher = || {
        let [watcher] = watchers(&place)[..] else { panic!("one watcher") };
        kill(watcher);
    };
    lab.b(&SHORT).expect(0, &["changed"]);
    kill_watcher();
    thread::sleep(Duration::from_secs(3));
    let changed = lab.knobs();
    assert_ne!(changed, before, "nobody puts it back");
    lab.b(&["confirm", "lat0"]).expect(5, &["too late by", "latput restore"]);
    lab.b(&["set", "lat0", "mtu=1300"]).expect(1, &["waits to be confirmed"]);
    lab.b(&["restore"]).expect(0, &["put back lat0 mtu"]);
    assert_eq!(lab.knobs(), before);
    lab.b(&LONG).expect(0, &["changed"]);
    kill_watcher();
    lab.b(&["confirm", "lat0", "--json"]).expect(0, &["\"confirmed\"", "lat0"]);
    assert_eq!(lab.knobs(), changed);
    lab.b(&["restore"]).expect(0, &["nothing to restore"]);
}

/// A state folder that a reboot does not empty.
#[test]
fn a_change_of_an_earlier_boot_is_neither_confirmed_nor_put_back() {
    if needs_root() {
        return;
    }
    let _turn = lab_turn();
    let place = Place::new();
    let lab = Lab::up(&place);
    lab.b(&LONG).expect(0, &["changed"]);
    let [watcher] = watchers(&place)[..] else { panic!("one watcher") };
    kill(watcher);
    let changed = lab.knobs();
    let [checkpoint] = &checkpoints(&place)[..] else { panic!("one checkpoint") };
    let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let text = std::fs::read_to_string(checkpoint).unwrap();
    let earlier = "00000000-0000-0000-0000-000000000000";
    std::fs::write(checkpoint, text.replace(boot_id.trim(), earlier)).unwrap();
    lab.b(&["confirm", "lat0"]).expect(1, &["before the last boot", "delete"]);
    lab.b(&["restore"]).expect(1, &["another boot", "delete it"]);
    assert_eq!(lab.knobs(), changed);
}

#[test]
fn a_full_disk_stops_a_change_that_is_to_be_confirmed_before_it_begins() {
    if needs_root() {
        return;
    }
    let place = Place::new();
    place.write("state", "a file where the folder should be");
    let change = ["set", "lo", "txqueuelen=999", "--confirm-within", "1s"];
    place.run(&change).expect(1, &["nothing was changed", "state"]);
    wait_until("the watcher to end", || watchers(&place).is_empty());
}

/// The processes that watch changes made in this place.
fn watchers(place: &Place) -> Vec<u32> {
    let state = place.path("state").display().to_string();
    std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid: &u32| {
            let holds = |file: &str, text: &str| {
                std::fs::read(format!("/proc/{pid}/{file}"))
                    .is_ok_and(|bytes| String::from_utf8_lossy(&bytes).contains(text))
            };
            holds("cmdline", "\0watcher\0") && holds("environ", &state)
        })
        .collect()
}

fn checkpoints(place: &Place) -> Vec<std::path::PathBuf> {
    let folder = place.path("state/lab-up/checkpoints");
    let is_checkpoint = |path: &Path| path.extension().is_some_and(|extension| extension == "json");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| is_checkpoint(path)).collect()
}
