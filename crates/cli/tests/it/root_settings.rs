//! Settings on a real interface, in a lab that is up: set, refuse, crash, restore.

use std::process::Command;

use latput_testkit::{isolate, needs};

use crate::root_foretold::set_with_refused_rps;
use crate::{CommandOutput, Place};

/// A lab that is up while this lives.
pub(crate) struct Lab<'a> {
    place: &'a Place,
}

impl<'a> Lab<'a> {
    pub(crate) fn set_up(place: &'a Place) -> Self {
        place.run(&["lab", "down"]).expect(0, &[]);
        place.run(&["lab", "up"]).expect(0, &["latput-a", "latput-b"]);
        Self { place }
    }

    /// Runs latput as host `a`.
    pub(crate) fn run_on_a(&self, args: &[&str]) -> CommandOutput {
        let words = ["lab", "exec", "a", "--", crate::latput_path()];
        self.place.run(&[&words, args].concat())
    }

    /// Runs latput as host `b`.
    pub(crate) fn run_on_b(&self, args: &[&str]) -> CommandOutput {
        self.b_behind(&[], args)
    }

    /// The same behind another program.
    pub(crate) fn b_behind(&self, before: &[&str], args: &[&str]) -> CommandOutput {
        let mut words = vec!["lab", "exec", "b", "--"];
        words.extend(before);
        words.push(crate::latput_path());
        words.extend(args);
        self.place.run(&words)
    }

    /// Output of a shell as host `b`.
    pub(crate) fn b_sh(&self, script: &str) -> String {
        self.place.run(&["lab", "exec", "b", "--", "sh", "-c", script]).out
    }

    /// Runs `ip` as a host.
    pub(crate) fn run_ip(&self, host: &str, args: &[&str]) -> CommandOutput {
        self.place.run(&[&["lab", "exec", host, "--", "ip"], args].concat())
    }

    /// Every knob of `lat0` in host `b`.
    pub(crate) fn read_knobs(&self) -> serde_json::Value {
        let shown = self.run_on_b(&["show", "lat0", "--json"]);
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

#[needs("root")]
#[test]
fn setting_is_applied_and_shown() {
    isolate();
    let place = Place::new();
    let lab = Lab::set_up(&place);
    let before = lab.read_knobs();
    let change = ["set", "lat0", "gro-flush-timeout=50us", "napi-defer-hard-irqs=100", "mtu=1400"];
    let mut dry = change.to_vec();
    dry.push("--dry-run");
    lab.run_on_b(&dry).expect(0, &["would change lat0 mtu", "from 1500 to 1400"]);
    assert_eq!(lab.read_knobs(), before, "a dry run changes nothing");
    lab.run_on_b(&change).expect(0, &["changed lat0 gro-flush-timeout", "to 50us"]);
    lab.run_on_b(&["show", "lat0"]).expect(0, &["50us", "1400"]);
    lab.run_on_b(&change).expect(0, &["nothing to change"]);
    lab.run_on_b(&["restore"]).expect(0, &["nothing to restore"]);
}

#[needs("root", "strace")]
#[test]
fn change_that_cannot_be_committed_goes_back() {
    isolate();
    let place = Place::new();
    let lab = Lab::set_up(&place);
    let before = lab.read_knobs();
    let calls = "renameat2";
    let (trace, inject) = (format!("trace={calls}"), format!("inject={calls}:error=EIO"));
    let strace = ["strace", "-f", "-o", "/dev/null", "-e", &trace, "-e", &inject];
    let ran = lab.b_behind(&strace, &["set", "lat0", "mtu=1400"]);
    ran.expect(4, &["lat0: the change cannot be recorded", "put back", "Input/output error"]);
    assert_eq!(lab.read_knobs(), before);
    lab.run_on_b(&["restore"]).expect(0, &["nothing to restore"]);
}

#[needs("root", "strace")]
#[test]
fn refused_setting_leaves_everything_unchanged() {
    isolate();
    let place = Place::new();
    let lab = Lab::set_up(&place);
    let before = lab.read_knobs();
    // The first and only write: nothing was changed.
    set_with_refused_rps(&lab, &["set", "lat0", "rps-cpus=0"]).expect(1, &["rps-cpus"]);
    assert_eq!(lab.read_knobs(), before);
    // A later write: what came before it is rolled back.
    set_with_refused_rps(&lab, &["set", "lat0", "mtu=1400", "rps-cpus=0"])
        .expect(4, &["rolled back", "rps-cpus"]);
    assert_eq!(lab.read_knobs(), before);
    lab.run_on_b(&["restore"]).expect(0, &["nothing to restore"]);
}

/// strace ends the process on entry to its n-th call of a kind: between any two writes.
#[needs("root", "strace")]
#[test]
fn killed_change_is_undone_by_restore() {
    isolate();
    let place = Place::new();
    let lab = Lab::set_up(&place);
    let before = lab.read_knobs();
    let change = ["set", "lat0", "mtu=1400", "txqueuelen=500", "gro-flush-timeout=70us"];
    let mut kills = 0;
    for call in [
        "sendto",
        "sendmsg",
        "write",
        "fsync",
        "fdatasync",
        "rename",
        "renameat2",
        "unlink",
        "close",
    ] {
        for nth in 1..200 {
            let inject = format!("inject={call}:signal=KILL:when={nth}");
            let trace = format!("trace={call}");
            let strace = ["strace", "-f", "-o", "/dev/null", "-e", &trace, "-e", &inject];
            let ran = lab.b_behind(&strace, &change);
            let was_killed = ran.code != Some(0);
            lab.run_on_b(&["restore"]).expect(0, &[]);
            if !was_killed {
                // Fewer than `nth` such calls: the change went through. Back by hand.
                let back = ["set", "lat0", "mtu=1500", "txqueuelen=1000", "gro-flush-timeout=0us"];
                lab.run_on_b(&back).expect(0, &[]);
                assert_eq!(lab.read_knobs(), before, "after {call} {nth}");
                break;
            }
            kills += 1;
            let now = lab.read_knobs();
            // Killed after the commit, the change stands; before it, everything is as it was.
            if now != before {
                let text = now.to_string();
                let is_whole = ["1400", "500", "70us"].iter().all(|value| text.contains(value));
                assert!(is_whole, "half a change is left by a kill at {call} {nth}: {text}");
                let back = ["set", "lat0", "mtu=1500", "txqueuelen=1000", "gro-flush-timeout=0us"];
                lab.run_on_b(&back).expect(0, &[]);
                assert_eq!(lab.read_knobs(), before);
            }
        }
    }
    assert!(kills > 10, "only {kills} kills hit: the test does not test");
}

#[needs("root")]
#[test]
fn half_built_lab_is_found_and_removed() {
    isolate();
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

#[needs("root", "strace", "unshare")]
#[test]
fn checkpoint_of_unseen_namespace_is_kept() {
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
    let ran = CommandOutput::from(
        place.wrapped_command(&before, &["set", "lo", "mtu=9000"]).output().unwrap(),
    );
    assert_ne!(ran.code, Some(0), "the kill did not hit: {ran:#?}");
    let told = place.run(&["restore"]);
    told.expect(5, &["lo is in network namespace", "is kept"]);
    let id = told.err.split("--forget ").nth(1).unwrap().trim_end().trim_end_matches('`');
    place.run(&["restore", "--forget", "1-lo"]).expect(2, &["no checkpoint `1-lo`"]);
    place.run(&["restore", "--forget", id]).expect(0, &["forgot", "lo stays as it is"]);
    place.run(&["restore"]).expect(0, &["nothing to restore"]);
}

/// `ethtool` and `ip` say what is there.
#[needs("root", "unshare", "ethtool")]
#[test]
fn value_changed_by_others_stays() {
    let place = Place::new();
    let script = format!(
        "ip link add v0 type veth peer name v1 && {latput} set v0 mtu=1400 txqueuelen=700 --confirm-within 60s && \
         ip link set v0 mtu 1450 && {latput} restore; echo code $?; ip -o link show v0",
        latput = crate::latput_path()
    );
    let state =
        place.wrapped_command(&["unshare", "-n", "sh", "-c", &script], &[]).output().unwrap();
    let ran = CommandOutput::from(state);
    assert!(ran.out.contains("code 0"), "{ran:#?}");
    assert!(ran.out.contains("mtu 1450"), "{ran:#?}");
    assert!(ran.out.contains("qlen 1000"), "{ran:#?}");
    assert!(ran.err.contains("set by another program"), "{ran:#?}");
}

/// S1 of the audit: `sg=off` takes `gso` along, which the same change names and wants on.
#[needs("root", "unshare", "ethtool")]
#[test]
fn coupled_knob_returns_to_first_value() {
    let place = Place::new();
    for assignments in ["sg=off gso=on", "gso=on sg=off", "tx-checksum=off tso=on gso=on"] {
        let script = format!(
            "ip link add v0 type veth peer name v1; ethtool -k v0 >before; \
             {latput} set v0 {assignments} --confirm-within 60s; {latput} restore; echo code $?; \
             ethtool -k v0 >after; diff before after && echo same; rm before after",
            latput = crate::latput_path()
        );
        let ran =
            place.wrapped_command(&["unshare", "-n", "sh", "-c", &script], &[]).output().unwrap();
        let ran = CommandOutput::from(ran);
        assert!(ran.out.contains("code 0"), "{assignments}: {ran:#?}");
        assert!(ran.out.contains("same"), "{assignments}: {ran:#?}");
    }
}

/// `tc` says what is there: disciplines with their handles, under `mq` too, and what hangs on another root.
#[needs("root", "unshare", "tc")]
#[test]
fn qdiscs_return_with_handles_or_are_refused() {
    let place = Place::new();
    let cases = [
        (
            "tc qdisc add dev v0 root handle 1: pfifo limit 7",
            "qdisc=tbf rate=1Gbps burst=32000 limit=64000",
            "code 0",
        ),
        ("tc qdisc add dev v0 root handle 5: bfifo limit 90000", "qdisc=pfifo limit=9", "code 0"),
        ("tc qdisc add dev v0 root pfifo limit 7", "qdisc=default", "code 0"),
        (
            "tc qdisc add dev v0 root handle 1: mq; tc qdisc add dev v0 parent 1:1 handle 11: pfifo limit 7; \
          tc qdisc add dev v0 parent 1:2 handle 12: bfifo limit 70000",
            "qdisc=pfifo limit=9",
            "code 0",
        ),
        (
            "tc qdisc add dev v0 root handle 1: mq; tc qdisc add dev v0 parent 1:1 handle 11: pfifo limit 7",
            "queue-qdisc=pfifo limit=9",
            "code 0",
        ),
        (
            "tc qdisc add dev v0 root handle 1: tbf rate 1gbit burst 32kb limit 64kb",
            "qdisc=pfifo limit=9",
            "code 0",
        ),
        (
            "tc qdisc add dev v0 root handle 1: tbf rate 1gbit burst 32kb limit 64kb; \
          tc qdisc add dev v0 parent 1:1 handle 10: pfifo limit 7",
            "qdisc=pfifo limit=9",
            "code 1",
        ),
    ];
    for (before, setting, code) in cases {
        let script = format!(
            "ip link add v0 numtxqueues 2 numrxqueues 2 type veth peer name v1; ip link set v1 up; ip link set v0 up; \
             {before} || exit 77; tc qdisc show dev v0 | sort >before; \
             {latput} set v0 '{setting}' --confirm-within 60s; echo code $?; \
             tc qdisc show dev v0 | sort >between; {latput} restore; \
             tc qdisc show dev v0 | sort >after; diff before after && echo same; cat before between; rm before between after",
            latput = crate::latput_path()
        );
        let ran =
            place.wrapped_command(&["unshare", "-n", "sh", "-c", &script], &[]).output().unwrap();
        let ran = CommandOutput::from(ran);
        assert_ne!(ran.code, Some(77), "tc refused `{before}`: {ran:#?}");
        assert!(ran.out.contains(code), "{before}: {ran:#?}");
        assert!(ran.out.contains("same"), "{before}: {ran:#?}");
    }
}
