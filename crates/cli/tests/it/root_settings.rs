//! Settings on a real interface, in a lab that is up: set, refuse, crash, restore.

use std::process::Command;

use latput_testkit::needs_root;

use crate::{Place, Ran, lab_turn, needs_program};

/// A lab that is up while this lives.
pub(crate) struct Lab<'a> {
    place: &'a Place,
}

impl<'a> Lab<'a> {
    pub(crate) fn up(place: &'a Place) -> Self {
        place.run(&["lab", "down"]).expect(0, &[]);
        place.run(&["lab", "up"]).expect(0, &["latput-a", "latput-b"]);
        Self { place }
    }

    /// Runs latput as host `a`.
    pub(crate) fn a(&self, args: &[&str]) -> Ran {
        let words = ["lab", "exec", "a", "--", env!("CARGO_BIN_EXE_latput")];
        self.place.run(&[&words, args].concat())
    }

    /// Runs latput as host `b`.
    pub(crate) fn b(&self, args: &[&str]) -> Ran {
        self.b_behind(&[], args)
    }

    /// The same behind another program.
    pub(crate) fn b_behind(&self, before: &[&str], args: &[&str]) -> Ran {
        let mut words = vec!["lab", "exec", "b", "--"];
        words.extend(before);
        words.push(env!("CARGO_BIN_EXE_latput"));
        words.extend(args);
        self.place.run(&words)
    }

    /// Every knob of `lat0` in host `b`.
    pub(crate) fn knobs(&self) -> serde_json::Value {
        let shown = self.b(&["show", "lat0", "--json"]);
        let mut document: serde_json::Value =
            serde_json::from_str(&shown.expect(0, &[]).out).unwrap();
        document["knobs"].take()
    }
}

impl Drop for Lab<'_> {
    fn drop(&mut self) {
        self.place.run(&["lab", "down"]);
    }
}

#[test]
fn a_setting_is_applied_shown_and_left_in_place() {
    if needs_root() {
        return;
    }
    let _turn = lab_turn();
    let place = Place::new();
    let lab = Lab::up(&place);
    let before = lab.knobs();
    let change = ["set", "lat0", "gro-flush-timeout=50us", "napi-defer-hard-irqs=100", "mtu=1400"];
    let mut dry = change.to_vec();
    dry.push("--dry-run");
    lab.b(&dry).expect(0, &["would change lat0 mtu", "from 1500 to 1400"]);
    assert_eq!(lab.knobs(), before, "a dry run changes nothing");
    lab.b(&change).expect(0, &["changed lat0 gro-flush-timeout", "to 50us"]);
    lab.b(&["show", "lat0"]).expect(0, &["50us", "1400"]);
    lab.b(&change).expect(0, &["nothing to change"]);
    lab.b(&["restore"]).expect(0, &["nothing to restore"]);
}

#[test]
fn what_the_kernel_refuses_leaves_everything_as_it_was() {
    if needs_root() {
        return;
    }
    let _turn = lab_turn();
    let place = Place::new();
    let lab = Lab::up(&place);
    let before = lab.knobs();
    // The first and only write: nothing was changed.
    lab.b(&["set", "lat0", "rps-cpus=8000"]).expect(1, &["rps-cpus"]);
    assert_eq!(lab.knobs(), before);
    // A later write: what came before it is rolled back.
    lab.b(&["set", "lat0", "mtu=1400", "rps-cpus=8000"]).expect(4, &["rolled back", "rps-cpus"]);
    assert_eq!(lab.knobs(), before);
    lab.b(&["restore"]).expect(0, &["nothing to restore"]);
}

/// strace ends the process on entry to its n-th call of a kind: between any two writes.
#[test]
fn a_kill_at_any_step_of_a_change_is_undone_by_restore() {
    if needs_root() {
        return;
    }
    if needs_program("strace") {
        return;
    }
    let _turn = lab_turn();
    let place = Place::new();
    let lab = Lab::up(&place);
    let before = lab.knobs();
    let change = ["set", "lat0", "mtu=1400", "txqueuelen=500", "gro-flush-timeout=70us"];
    let mut kills = 0;
    for call in ["sendto", "sendmsg", "write", "fsync", "fdatasync", "rename", "unlink", "close"] {
        for nth in 1..200 {
            let inject = format!("inject={call}:signal=KILL:when={nth}");
            let trace = format!("trace={call}");
            let strace = ["strace", "-f", "-o", "/dev/null", "-e", &trace, "-e", &inject];
            let ran = lab.b_behind(&strace, &change);
            let was_killed = ran.code != Some(0);
            lab.b(&["restore"]).expect(0, &[]);
            if !was_killed {
                // Fewer than `nth` such calls: the change went through. Back by hand.
                let back = ["set", "lat0", "mtu=1500", "txqueuelen=1000", "gro-flush-timeout=0us"];
                lab.b(&back).expect(0, &[]);
                assert_eq!(lab.knobs(), before, "after {call} {nth}");
                break;
            }
            kills += 1;
            let now = lab.knobs();
            // Killed after the commit, the change stands; before it, everything is as it was.
            if now != before {
                let text = now.to_string();
                let is_whole = ["1400", "500", "70us"].iter().all(|value| text.contains(value));
                assert!(is_whole, "half a change is left by a kill at {call} {nth}: {text}");
                let back = ["set", "lat0", "mtu=1500", "txqueuelen=1000", "gro-flush-timeout=0us"];
                lab.b(&back).expect(0, &[]);
                assert_eq!(lab.knobs(), before);
            }
        }
    }
    assert!(kills > 10, "only {kills} kills hit: the test does not test");
}

#[test]
fn a_lab_that_was_left_half_built_is_found_and_removed() {
    if needs_root() {
        return;
    }
    let _turn = lab_turn();
    let place = Place::new();
    place.run(&["lab", "down"]).expect(0, &[]);
    place.run(&["lab", "up"]).expect(0, &[]);
    // As a kill between the two pins would leave it.
    let unpinned = Command::new("umount").arg("/run/netns/latput-b").status().unwrap();
    assert!(unpinned.success());
    std::fs::remove_file("/run/netns/latput-b").unwrap();
    place.run(&["lab", "exec", "a", "--", "true"]).expect(1, &["latput lab down"]);
    place.run(&["lab", "up"]).expect(1, &["latput lab down"]);
    place.run(&["lab", "down"]).expect(0, &["latput-a"]);
    place.run(&["lab", "down"]).expect(0, &["there was no lab"]);
}

#[test]
fn a_checkpoint_of_a_namespace_that_is_gone_is_dropped_by_restore() {
    if needs_root() || needs_program("strace") || needs_program("unshare") {
        return;
    }
    let place = Place::new();
    let before = [
        "unshare",
        "-n",
        "strace",
        "-f",
        "-o",
        "/dev/null",
        "-e",
        "trace=sendto,sendmsg,unlink",
        "-e",
        "inject=unlink,unlinkat:signal=KILL:when=1",
    ];
    let ran = Ran::from(place.wrapped(&before, &["set", "lo", "mtu=9000"]).output().unwrap());
    assert_ne!(ran.code, Some(0), "the kill did not hit: {ran:#?}");
    place.run(&["restore"]).expect(0, &["lo is gone"]);
    place.run(&["restore"]).expect(0, &["nothing to restore"]);
}
