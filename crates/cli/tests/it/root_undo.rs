//! The journal of changes and their undo, on a veth pair in a namespace of its own. `ip` and sysfs say what is there.

use latput_testkit::needs;

use crate::{CommandOutput, Place};

const HELPERS: &str = "mtu() { ip -o link show \"$1\" | sed 's/.* mtu \\([0-9]*\\) .*/\\1/'; }; \
    len() { ip -o link show \"$1\" | sed 's/.* qlen \\([0-9]*\\).*/\\1/'; }; code() { \"$@\"; echo \"code $?\"; }; \
    journal=$LATPUT_STATE_DIR/checkpoints/journal; ";

#[needs("root", "unshare", "strace", "ip", "ethtool")]
#[test]
fn logged_change_is_undone_and_redone() {
    check_script(
        "SUDO_USER=ann $latput set v0 mtu=1400; $latput log; code $latput undo --dry-run; echo dry $(mtu v0); \
         code $latput undo; echo undone $(mtu v0); $latput log; code $latput undo; \
         code $latput undo 2; echo again $(mtu v0); $latput log; stat -c '%a %n' $journal $journal/*",
        &[
            "changed v0 mtu",
            "undo:  latput undo 1",
            "keep:  a network namespace has no files of its own",
            "v0  set by ann: in force",
            "mtu (device): 1500 -> 1400",
            "would undo v0 mtu (device) from 1400 to 1500",
            "dry 1400",
            "undid v0 mtu (device) from 1400 to 1500",
            "again: latput undo 2",
            "undone 1500",
            "2  ",
            "(of 1): in force",
            "1  ",
            "set by ann: undone by 2",
            "code 1",
            "undid v0 mtu (device) from 1500 to 1400",
            "again 1400",
            "(of 2): in force",
            "undone by 3",
            "set by ann: in force",
            "700",
            "600",
        ],
        &["no change in force can be undone"],
    );
}

#[needs("root", "unshare", "strace", "ip", "ethtool")]
#[test]
fn later_and_foreign_values_stay_named() {
    check_script(
        "$latput set v0 mtu=1400 txqueuelen=700 tso=off; $latput set v0 txqueuelen=600; \
         ip link set v0 mtu 1300; code $latput undo 1; echo now $(mtu v0) $(len v0) $(ethtool -k v0 | grep \
         ^tcp-segmentation-offload); $latput log; code $latput undo 1",
        &["undid v0 tso", "code 0", "now 1300 600 tcp-segmentation-offload: on", "code 1"],
        &[
            "mtu (device) stays 1300, which another program set",
            "txqueuelen (device) stays 600, which change 2 set",
            "it is not in force: undone by 3",
        ],
    );
}

#[needs("root", "unshare", "strace", "ip", "ethtool")]
#[test]
fn undo_follows_rename_and_refuses_new_interface() {
    check_script(
        "$latput set v0 mtu=1400; ip link set v0 name w0; ip link set v1 name v0; \
         $latput log w0; code $latput undo; echo now $(mtu w0) $(mtu v0); \
         $latput set w0 mtu=1300; ip link del w0; ip link add w0 mtu 1300 type veth peer name v0; \
         $latput log; code $latput undo 3; echo kept $(mtu w0)",
        &["w0  set by ", "code 0", "now 1500 1500", "interface gone", "code 1", "kept 1300"],
        &["its interface w0 is gone"],
    );
}

#[needs("root", "unshare", "strace", "ip", "ethtool")]
#[test]
fn damaged_entries_are_named_and_hide_none() {
    check_script(
        "$latput set v0 mtu=1400; $latput set v0 mtu=1300; $latput set v0 mtu=1290; \
         sed -i 's/\"boot_id\":\"[^\"]*\"/\"boot_id\":\"before\"/' $journal/3.json; echo '{' > $journal/2.json; \
         $latput log; code $latput undo 3; code $latput undo 2; code $latput undo 9; \
         ip link set v0 mtu 1400; code $latput undo 1; echo now $(mtu v0)",
        &["3  ", "before the last boot", "1  ", "code 1", "code 1", "code 2", "code 0", "now 1500"],
        &[
            "left out: entry 2:",
            "2.json",
            "made before the last boot, which ended it",
            "no entry 9",
        ],
    );
}

/// One of a newer latput, one that a stranger edited, and one of an earlier latput, which did not name its maker.
#[needs("root", "unshare", "strace", "ip", "ethtool")]
#[test]
fn entries_of_other_versions_are_read_or_left() {
    check_script(
        "$latput set v0 mtu=1400; $latput set v0 mtu=1300; $latput set v0 mtu=1290; \
         sed -i 's/\"schema\":2/\"schema\":3/' $journal/3.json; sed -i 's/\"undo\"/\"undone\"/' $journal/2.json; \
         sed -i 's/,\"by\":{[^}]*}//' $journal/1.json; ! grep '\"by\"' $journal/1.json; sum=$(cat $journal/* | cksum); \
         code $latput undo 3; code $latput undo 2; echo still $(mtu v0); \
         ip link set v0 mtu 1400; code $latput undo 1; echo now $(mtu v0); \
         test \"$sum\" = \"$(cat $journal/[1-3].json | cksum)\" && echo left",
        &["code 1", "code 1", "still 1290", "undid v0 mtu", "code 0", "now 1500", "left"],
        &["entry 3:", "schema is 3, and only 2 is known", "entry 2:", "unknown field `undone`"],
    );
}

#[needs("root", "unshare", "strace", "ip", "ethtool")]
#[test]
fn unconfirmed_undo_goes_forward_again() {
    check_script(
        "$latput set v0 mtu=1400 --confirm-within 60s; $latput log; $latput confirm v0; $latput log; \
         code $latput undo --confirm-within 2s; echo undone $(mtu v0); \
         until [ $(mtu v0) = 1400 ]; do sleep 0.1; done; \
         until ! ls $LATPUT_STATE_DIR/checkpoints/*.json 2>/dev/null; do sleep 0.1; done; $latput log",
        &[
            "v0  set by ",
            "confirmed: v0 keeps its change",
            "undo:  latput undo 1",
            "1  ",
            "in force",
            "undid v0 mtu",
            "code 0",
            "undone 1500",
            "1  ",
            "in force",
        ],
        &["goes back in 2s"],
    );
}

#[needs("root", "unshare", "strace", "ip", "ethtool")]
#[test]
fn simultaneous_changes_have_own_entries() {
    check_script(
        "$latput set v0 mtu=1400 & $latput set v1 txqueuelen=700 & wait; echo; $latput log v0; $latput log v1; \
         ls $journal | sort | tr '\\n' ' '; $latput undo; $latput undo; echo now $(mtu v0) $(len v1)",
        &[
            "mtu (device): 1500 -> 1400",
            "txqueuelen (device): 1000 -> 700",
            "1.json 2.json",
            "now 1500 1000",
        ],
        &[],
    );
}

/// strace ends latput on entry to its n-th call of a kind: then there is a checkpoint or an entry, and `restore`
/// leads to the state that the two tell of.
#[needs("root", "unshare", "strace", "ip", "ethtool")]
#[test]
fn killed_commit_leaves_checkpoint_or_entry() {
    let script = "commits=0; kills=0; for call in renameat2 fsync rename,renameat unlink,unlinkat write; do \
        n=0; while [ $n -lt 60 ]; do n=$((n + 1)); \
        strace -f -o /dev/null -e trace=$call -e inject=$call:signal=KILL:when=$n \
           $latput set v0 mtu=1400 txqueuelen=700 >/dev/null 2>&1; ended=$?; \
        kept=$(ls $LATPUT_STATE_DIR/checkpoints/*.json 2>/dev/null | wc -l); \
        made=$(ls $journal 2>/dev/null | wc -l); \
        [ $((kept + made)) -le 1 ] || echo both at $call $n; \
        $latput restore >/dev/null 2>&1 || echo restore failed at $call $n; \
        wanted='1500 1000'; [ $made = 1 ] && wanted='1400 700' && commits=$((commits + 1)); \
        [ \"$(mtu v0) $(len v0)\" = \"$wanted\" ] || echo wrong at $call $n: $(mtu v0) $(len v0); \
        [ $made = 0 ] || $latput undo >/dev/null || echo no undo at $call $n; \
        [ \"$(mtu v0) $(len v0)\" = '1500 1000' ] || echo left at $call $n; \
        rm -rf $LATPUT_STATE_DIR; [ $ended = 0 ] && break; kills=$((kills + 1)); done; done; \
        [ $kills -gt 8 ] && [ $commits -gt 4 ] && echo whole; echo $kills kills $commits commits";
    check_script(script, &["whole"], &[]);
}

/// The script in a namespace of its own with a pair of interfaces says the words of `out` in order, and those of
/// `anywhere` somewhere.
#[track_caller]
pub(crate) fn check_script(script: &str, out: &[&str], anywhere: &[&str]) {
    let latput = crate::latput_path();
    let script =
        format!("latput={latput}; ip link add v0 type veth peer name v1; {HELPERS}{script}");
    let place = Place::new();
    let ran = CommandOutput::from(
        place.wrapped_command(&["unshare", "-n", "sh", "-c", &script], &[]).output().unwrap(),
    );
    let mut rest = ran.out.as_str();
    for words in out {
        let at = rest.find(words).unwrap_or_else(|| panic!("{words}: {ran:#?}"));
        rest = &rest[at + words.len()..];
    }
    for words in anywhere {
        assert!(ran.out.contains(words) || ran.err.contains(words), "{words}: {ran:#?}");
    }
    for wrong in ["both at", "failed at", "wrong at", "left at", "no undo at"] {
        assert!(!ran.out.contains(wrong), "{ran:#?}");
    }
}

#[needs("root", "unshare", "strace", "ip", "ethtool")]
#[test]
fn undo_reverts_two_changes_of_knob() {
    check_script(
        "$latput set v0 mtu=1400; $latput set v0 txqueuelen=700; $latput set v0 mtu=1300; \
         $latput undo; echo first $(mtu v0); $latput undo; echo second $(len v0); code $latput undo; echo third $(mtu v0)",
        &[
            "first 1400",
            "second 1000",
            "undid v0 mtu (device) from 1400 to 1500",
            "code 0",
            "third 1500",
        ],
        &[],
    );
}

#[needs("root", "unshare", "strace", "ip", "ethtool")]
#[test]
fn full_stdout_tells_change_on_stderr() {
    check_script(
        "code $latput set v0 txqueuelen=700 >/dev/full; echo set $(len v0); \
         $latput set v0 txqueuelen=800 2>/dev/full | cat; echo second $(len v0); code $latput undo 2 2>/dev/full",
        &["set 700", "second 800", "code 0"],
        &["stdout cannot be written", "changed v0 txqueuelen"],
    );
}

#[needs("root", "unshare", "strace", "ip", "ethtool")]
#[test]
fn overwritten_change_is_not_in_force() {
    check_script(
        "$latput set v0 mtu=1400 txqueuelen=700; $latput undo; $latput set v0 mtu=1400; echo; $latput log; \
         code $latput undo 1; code $latput undo 3; code $latput undo; echo now $(mtu v0)",
        &[
            "3  ",
            ": in force",
            "2  ",
            "(of 1): in force in part",
            "1  ",
            ": undone by 2",
            "code 1",
            "code 0",
            "code 1",
            "now 1500",
        ],
        &["it is not in force: undone by 2", "no change in force"],
    );
}

#[needs("root", "unshare", "strace", "ip", "ethtool")]
#[test]
fn value_that_a_later_change_made_again_stays() {
    check_script(
        "$latput set v0 mtu=1400 txqueuelen=700; $latput set v0 mtu=1500; $latput set v0 mtu=1400; echo; \
         $latput log; code $latput undo 1; echo now $(mtu v0) $(len v0)",
        &["1  ", "in force in part", "undid v0 txqueuelen", "code 0", "now 1400 1000"],
        &["mtu (device) is 1400, set again by change 3; it stays"],
    );
}

#[needs("root", "unshare", "strace", "ip", "ethtool")]
#[test]
fn all_moved_values_are_told_and_logged() {
    check_script(
        "$latput set v0 tx-checksum=off; $latput log; $latput undo",
        &[
            "changed v0 tx-checksum (device) from on to off",
            "changed v0 tso (device) from on to off, along with it",
            "tso (device): on -> off, along with it",
            "undid v0 tx-checksum (device) from off to on",
            "undid v0 tso (device) from off to on, along with it",
        ],
        &[],
    );
}

#[needs("root", "unshare", "strace", "ip", "ethtool")]
#[test]
fn change_that_nobody_confirmed_is_in_the_log() {
    check_script(
        "$latput set v0 mtu=1400 --confirm-within 3s; \
         until [ -e $journal/1.json ]; do sleep 0.1; done; echo now $(mtu v0); $latput log; code $latput undo 1",
        &[
            "now 1500",
            "1  ",
            ": put back: no confirmation came in time",
            "mtu (device): 1500 -> 1400",
            "code 1",
        ],
        &["it was put back: no confirmation came in time"],
    );
}

/// The undo reads the journal before it waits at the lock, which another command holds meanwhile.
#[needs("root", "unshare", "strace", "ip", "ethtool")]
#[test]
fn undo_decides_under_the_lock() {
    // `tr` renames nothing: the first open of a lock file is held for two seconds.
    let held =
        "strace -f -qq -o /dev/null -e trace=flock -e inject=flock:delay_enter=2000000:when=1 ";
    let script = format!(
        "$latput set v0 mtu=1400; ({held} $latput undo 1 >$LATPUT_STATE_DIR/first 2>&1; echo code $? \
         >>$LATPUT_STATE_DIR/first) & sleep 0.7; $latput undo 1; SUDO_USER=bob $latput set v0 mtu=1400; wait; \
         cat $LATPUT_STATE_DIR/first; echo now $(mtu v0); $latput log"
    );
    check_script(
        &script,
        &["undid v0 mtu", "changed v0 mtu", "code 1", "now 1400", "set by bob: in force"],
        &["change 1 is not undone: it is not in force"],
    );
}

#[needs("root", "unshare", "strace", "ip", "ethtool")]
#[test]
fn pending_changes_stand_in_the_log() {
    check_script(
        "SUDO_USER=ann $latput set v0 mtu=1400 --confirm-within 60s; $latput log; $latput log --json; \
         SUDO_USER=ann $latput restore; $latput set v0 mtu=1400; SUDO_USER=ann $latput undo --confirm-within 60s; $latput log",
        &[
            "-  ",
            "v0  set by ann: waits: goes back in 5",
            "unless `latput confirm v0 --of ann` comes",
            "mtu (device): 1500 -> 1400",
            "\"state\": \"waiting\"",
            "v0  undo by ann (of 2): waits",
            "2  ",
            "changed by one that waits",
        ],
        &[],
    );
}

/// An undo of another change makes queues and their values anew.
#[needs("root", "unshare", "strace", "ip", "ethtool")]
#[test]
fn values_of_new_queues_belong_to_first_change() {
    check_script(
        "ip link del v0; ip link add v0 numrxqueues 4 numtxqueues 4 type veth peer name v1; ip link set v0 up; \
         ethtool -L v0 rx 4 tx 4; \
         look() { unshare -m sh -c 'mount -t sysfs s /sys; echo $1 $(cat /sys/class/net/v0/queues/rx-*/rps_cpus)' sh $1; }; \
         look before; $latput set v0 rps-cpus=0; $latput set v0 rx-channels=2; $latput undo; $latput undo; \
         look now",
        &["before 0 0 0 0", "undid v0 rx-channels", "undid v0 rps-cpus", "now 0 0 0 0"],
        &[],
    );
}

/// The value from before a change that is undone by now is that from before both.
#[needs("root", "unshare", "strace", "ip", "ethtool")]
#[test]
fn undos_in_any_order_leave_nothing() {
    let cases = [
        ("set v0 mtu=1400", "set up0 mtu=1300"),
        ("set up0 mtu=1400", "set v0 mtu=1300"),
        ("set v0 mtu=1400 tso=off", "set v0 mtu=1300 txqueuelen=700"),
        ("set v0 rps-cpus=0", "set v0 rx-channels=1"),
    ];
    for (first, second) in cases {
        check_script(
            &format!(
                "ip link del v0; ip link add v0 numrxqueues 2 numtxqueues 2 type veth peer name v1; ip link set v0 up; \
                 ethtool -L v0 rx 2; ip link add up0 link v0 type macvlan; ip link set up0 up; \
                 look() {{ ip -o link | sed 's/@.*mtu/ mtu/; s/ state .*//'; cat /proc/sys/net/ipv6/conf/v0/mtu /proc/sys/net/ipv6/conf/up0/mtu; \
                 ethtool -k v0 | grep ^tcp-seg; unshare -m sh -c 'mount -t sysfs s /sys; cat /sys/class/net/v0/queues/rx-*/rps_cpus'; }}; before=$(look); \
                 code $latput {first}; code $latput {second}; $latput undo 1; $latput undo 2; $latput undo 1; \
                 after=$(look); test \"$before\" = \"$after\" && echo same || echo \"$before differs from $after\""
            ),
            &["code 0", "code 0", "same"],
            &[],
        );
    }
}

#[needs("root", "unshare", "strace", "ip", "ethtool")]
#[test]
fn undone_change_is_not_undone_again() {
    check_script(
        "$latput set v0 gso=off; $latput set v0 mtu=1400 tso=off; $latput set v0 mtu=1500 txqueuelen=700; \
         $latput undo 2; $latput undo 3; code $latput undo",
        &["undid v0 tso", "undid v0 txqueuelen", "undid v0 gso", "code 0"],
        &[],
    );
}

#[needs("root", "unshare", "strace", "ip", "ethtool")]
#[test]
fn values_that_latput_moved_along_name_the_change() {
    check_script(
        "ip link add m1 link v0 type macvlan; $latput set m1 mtu=1400; $latput set v0 mtu=1300; $latput log m1; \
         code $latput undo 1",
        &[
            "changed m1 mtu",
            "changed v0 mtu",
            "1  ",
            "m1  set by root: changed since by 2",
            "code 1",
        ],
        &["it is not in force: changed since by 2"],
    );
    check_script(
        "ip link del v0; ip link add v0 numtxqueues 2 type veth peer name v1; ethtool -L v0 tx 2; \
         ip link set v0 up; ip link set v1 up; $latput set v0 qdisc=mq; $latput set v0 'queue-qdisc=pfifo limit=5'; $latput undo 1; $latput log",
        &["undid v0 qdisc", "2  ", "set by root: changed since by 3"],
        &[],
    );
}

#[needs("root", "unshare", "strace", "ip", "ethtool")]
#[test]
fn pending_change_has_its_name_of_now() {
    check_script(
        "SUDO_USER=ann $latput set v0 mtu=1400 --confirm-within 60s; ip link set v0 name z0; \
         code $latput set z0 gro=on --dry-run; code $latput set z0 gro=on; code $latput undo",
        &["code 1", "code 1", "code 1"],
        &[
            "z0: a change by ann",
            "`latput confirm z0 --of 'ann'` keeps it",
            "the change of z0 waits to be confirmed: `latput restore z0 --of ann` puts it back",
        ],
    );
}

#[needs("root", "unshare", "strace", "ip", "ethtool")]
#[test]
fn option_too_large_is_refused_by_dry_run() {
    check_script(
        "ip link set v0 up; for more in --dry-run --json; do \
         code $latput set v0 'qdisc=pfifo limit=4294967296' $more; done",
        &["code 1", "code 1"],
        &["qdisc cannot be set here: limit=4294967296 is too large for the kernel"],
    );
}

#[needs("root", "unshare", "strace", "ip", "ethtool")]
#[test]
fn unreadable_pending_change_is_named() {
    check_script(
        "$latput set v0 mtu=1400 --confirm-within 60s; \
         for file in $LATPUT_STATE_DIR/checkpoints/*.json; do echo garbage > $file; done; \
         $latput log; $latput log --json",
        &["no change can be read", "\"damaged\": [", "not a checkpoint of this version"],
        &["left out: "],
    );
}

#[needs("root", "unshare", "strace", "ip", "ethtool")]
#[test]
fn undo_needs_what_its_switch_needs() {
    check_script(
        "$latput set v0 tso=off; $latput set v0 sg=off; code $latput undo 1 --dry-run; code $latput undo 1; \
         $latput undo; code $latput undo 1; ethtool -k v0 | grep ^tcp-seg",
        &["code 1", "code 1", "code 0", "tcp-segmentation-offload: on"],
        &["tso=on needs sg=on, which would be off"],
    );
}

#[needs("root", "unshare", "strace", "ip", "ethtool")]
#[test]
fn confirm_of_deleted_interface_fails() {
    check_script(
        "$latput set v0 mtu=1400 --confirm-within 60s; ip link del v0; code $latput confirm; $latput log",
        &["code 1", "-  ", "waits, but its interface was deleted"],
        &["v0: it was deleted, or moved to another network namespace: nothing was confirmed"],
    );
}

#[needs("root", "unshare", "strace", "ip", "ethtool")]
#[test]
fn log_names_users_and_tells_the_local_time() {
    check_script(
        "export SUDO_USER=; $latput set v0 mtu=1400; TZ=XXX-5:30 $latput log",
        &["+05:30  v0  set by "],
        &[],
    );
    check_script(
        "echo 4294967295 > /proc/self/loginuid; export SUDO_USER=; $latput set v0 mtu=1400; $latput log",
        &["set by root: in force"],
        &[],
    );
}
