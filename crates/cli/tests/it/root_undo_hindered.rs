//! An undo that is hindered: half of it is done, its entry cannot be read, an interface has gone, a signal or a limit ends
//! the change. `ip` and sysfs say what is there.

use latput_testkit::needs;

use crate::root_undo::check_script;
use crate::root_whole::{VethPair, WAITS, run_shell};
use crate::wait_until;

#[needs("root")]
#[test]
fn half_restored_change_cannot_be_confirmed() {
    let pair = VethPair::new();
    run_shell("ethtool -K v0 gro on");
    let set = ["set", "v0", "mtu=1400", "txqueuelen=500", "gro-flush-timeout=20us", "threaded=on"];
    let look =
        || run_shell("ip -o link show v0; cd /sys/class/net/v0; cat threaded gro_flush_timeout");
    let before = look();
    pair.run(&[&set[..], &WAITS].concat()).expect(0, &["changed"]);
    run_shell("ip link set v0 down");
    pair.run(&["restore"]).expect(5, &["threaded"]);
    run_shell("ip link set v0 up");
    let words = ["being put back, so it cannot be confirmed: run `latput restore`"];
    pair.run(&["confirm", "v0"]).expect(5, &words);
    pair.run(&["restore"]).expect(0, &["put back v0"]);
    assert_eq!(look(), before);
}

#[needs("root", "unshare", "strace", "ip", "ethtool")]
#[test]
fn restore_without_rights_keeps_the_change_whole() {
    check_script(
        "$latput set v0 txqueuelen=500 --confirm-within 10min; \
         code setpriv --bounding-set -all --inh-caps -all $latput restore; code $latput confirm v0; \
         code $latput undo; echo now $(len v0)",
        &["code 5", "confirmed: v0", "code 0", "undid v0 txqueuelen", "code 0", "now 1000"],
        &[],
    );
}

#[needs("root", "unshare", "strace", "ip", "ethtool")]
#[test]
fn undo_stops_at_newer_unknown_entry() {
    check_script(
        "$latput set v0 txqueuelen=500; ip link set v0 txqueuelen 800; $latput set v0 txqueuelen=500; \
         $latput set v1 txqueuelen=700; truncate -s 100 $journal/2.json; code $latput undo; echo v1 $(len v1); \
         code $latput undo; echo v0 $(len v0); code $latput undo 1; echo named $(len v0)",
        &["undid v1", "code 0", "v1 1000", "code 1", "v0 500", "code 0", "named 1000"],
        &["entry 2 is newer than 1", "run `latput undo 1`"],
    );
}

#[needs("root", "unshare", "strace", "ip", "ethtool")]
#[test]
fn change_by_alternative_name_is_found_again() {
    check_script(
        "ip link property add dev v0 altname lan0; ip link property add dev v0 altname the-lan-of-the-second-floor; \
         $latput set the-lan-of-the-second-floor mtu=1400 --confirm-within 10min; \
         $latput log lan0; code $latput confirm lan0; $latput log the-lan-of-the-second-floor; \
         strace -o /dev/null -e trace=fsync -e inject=fsync:signal=KILL:when=3 $latput set lan0 mtu=1300; \
         code $latput restore lan0; echo now $(mtu v0)",
        &[
            ": waits: goes back in",
            "confirmed: v0",
            "code 0",
            "in force",
            "put back v0 mtu",
            "code 0",
            "now 1400",
        ],
        &["unless `latput confirm v0` comes"],
    );
}

#[needs("root", "unshare", "strace", "ip", "ethtool")]
#[test]
fn signals_and_limits_leave_no_change() {
    check_script(
        "for signal in QUIT USR1 USR2 ALRM VTALRM PROF XCPU XFSZ HUP TERM INT; do \
           strace -f -o /dev/null -e inject=fsync:signal=$signal:when=3 $latput set v0 mtu=1400 txqueuelen=500; \
           [ $(mtu v0) = 1500 ] || { $latput undo; [ $(mtu v0) = 1500 ]; } || echo left at $signal; \
         done; \
         for size in 512 1024 1500 2000 2500 3000 4000; do \
           prlimit --fsize=$size $latput set v0 mtu=1400 txqueuelen=500; ended=$?; \
           [ $ended -lt 128 ] || echo left at $size; [ $ended != 0 ] || $latput undo; \
           [ $(mtu v0) = 1500 ] || echo left at $size; \
         done; ls $LATPUT_STATE_DIR/checkpoints/*.json 2> /dev/null; echo done $(mtu v0) $(len v0)",
        &["done 1500 1000"],
        &[],
    );
}

#[needs("root", "unshare", "strace", "ip", "ethtool")]
#[test]
fn damaged_checkpoint_is_stranded_until_forgotten() {
    check_script(
        "strace -o /dev/null -e trace=fsync -e inject=fsync:signal=KILL:when=3 $latput set v0 mtu=1400; \
         file=$(ls $LATPUT_STATE_DIR/checkpoints/*.json); id=$(basename $file .json); truncate -s 300 $file; \
         code $latput undo; code $latput restore; code $latput restore --forget $id; ls $file; \
         code $latput set v0 mtu=1300; code $latput restore --forget $id",
        &["code 1", "code 5", "forgot", "code 0", "changed v0 mtu", "code 0", "code 2"],
        &["there is no checkpoint"],
    );
}

#[needs("root", "unshare", "strace", "ip", "ethtool")]
#[test]
fn late_change_is_forgotten_with_its_checkpoint() {
    check_script(
        "ip link add m0 type veth peer name m1; ip netns add away; \
         $latput set m0 txqueuelen=77 --confirm-within 1s; ip link set m0 netns away; sleep 3; \
         id=$(basename $(ls $LATPUT_STATE_DIR/checkpoints/*.json) .json); ip -n away link del m0; ip netns del away; \
         code $latput restore --forget $id; code $latput confirm",
        &["forgot", "code 0", "code 1"],
        &["no change waits to be confirmed"],
    );
}

/// Each system call that keeps a record fails once.
#[needs("root", "unshare", "strace", "ip", "ethtool")]
#[test]
fn change_that_cannot_be_recorded_goes_back() {
    check_script(
        "for calls in fsync renameat,renameat2,linkat mkdir,mkdirat write; do for when in 1 2 3 4 5 6 7 8; do \
           strace -o /dev/null -e inject=$calls:error=ENOSPC:when=$when $latput set v0 mtu=1400; ended=$?; \
           [ $ended != 0 ] || $latput undo || echo no undo at $calls $when; \
           [ $(mtu v0) = 1500 ] || echo left at $calls $when; \
         done; done; ls $LATPUT_STATE_DIR/checkpoints/*.json 2> /dev/null; echo done",
        &["changed v0 mtu", "undid v0 mtu", "done"],
        &["cannot write the checkpoint"],
    );
}

#[needs("root")]
#[test]
fn refusals_of_link_that_is_down_are_foretold() {
    let pair = VethPair::new();
    run_shell("ethtool -K v0 gro on");
    let before = run_shell("ip -o link show v0");
    pair.run(&["set", "v0", "threaded=on"]).expect(0, &["changed"]);
    run_shell("ip link set v0 down");
    for words in [&["undo"][..], &["set", "v0", "mtu=1300", "threaded=off"]] {
        for words in [[words, &["--dry-run"]].concat(), words.to_vec()] {
            pair.run(&words).expect(1, &["v0: threaded cannot be set here"]);
        }
    }
    run_shell("ip link set v0 up");
    pair.run(&["undo"]).expect(0, &["undid v0 threaded"]);
    let set = ["set", "v0", "threaded=on", "mtu=1400"];
    pair.run(&[&set[..], &WAITS].concat()).expect(0, &["changed"]);
    run_shell("ip link set v0 down");
    pair.run(&["restore", "--dry-run"]).expect(5, &["threaded (device) should be off"]);
    pair.run(&["restore"]).expect(5, &["threaded (device) should be off"]);
    run_shell("ip link set v0 up");
    pair.run(&["restore"]).expect(0, &["put back v0"]);
    assert_eq!(run_shell("ip -o link show v0"), before);
}

#[needs("root")]
#[test]
fn held_up_ending_keeps_its_values() {
    let pair = VethPair::new();
    run_shell("ethtool -K v0 gro on");
    let set = ["set", "v0", "threaded=on", "mtu=1400", "--confirm-within", "2s"];
    pair.run(&set).expect(0, &["changed"]);
    run_shell("ip link set v0 down; sleep 4");
    // A watcher holds it for each of its attempts.
    pair.run(&["log"]).expect(0, &["-  ", "threaded (device): off -> on"]);
    run_shell("ip link set v0 up");
    wait_until("the entry", || pair.run(&["log"]).out.contains("put back: no confirmation"));
    let values = ["mtu (device): 1500 -> 1400", "threaded (device): off -> on"];
    pair.run(&["log"]).expect(0, &values);
}

#[needs("root", "unshare", "strace", "ip", "ethtool")]
#[test]
fn read_only_state_folder_is_told_later() {
    check_script(
        "mkdir -p $LATPUT_STATE_DIR; mount -t tmpfs none $LATPUT_STATE_DIR; $latput set v0 mtu=1400 --confirm-within 2s; \
         mount -o remount,ro $LATPUT_STATE_DIR || echo failed at ro; sleep 4; echo back $(mtu v0); code $latput restore; \
         mount -o remount,rw $LATPUT_STATE_DIR; \
         for i in $(seq 80); do ls $LATPUT_STATE_DIR/checkpoints/*.json 2> /dev/null || break; sleep 0.5; done; \
         sleep 1; $latput log; code $latput confirm v0; umount -l $LATPUT_STATE_DIR",
        &[
            "back 1500",
            "code 5",
            "put back: no confirmation came in time",
            "mtu (device): 1500 -> 1400",
            "code 4",
        ],
        &["too late"],
    );
}

#[needs("root", "unshare", "strace", "ip", "ethtool")]
#[test]
fn killed_undo_is_named_by_the_log() {
    check_script(
        "$latput set v0 mtu=1400; \
         strace -o /dev/null -e trace=fsync -e inject=fsync:signal=KILL:when=3 $latput undo; $latput log; \
         code $latput restore; $latput log",
        &[
            "its undo is unfinished: run `latput restore`",
            "put back v0 mtu",
            "code 0",
            ": in force",
        ],
        &[],
    );
}

#[needs("root", "unshare", "strace", "ip", "ethtool")]
#[test]
fn places_are_told_by_name() {
    check_script(
        "ip link add q0 numtxqueues 2 numrxqueues 2 type veth peer name q1 numtxqueues 2 numrxqueues 2; \
         $latput set q0 tx-channels=1 xps-cpus=1 > told; echo removed $(grep -c tx-1 told); \
         ip link add link v0 name upper type macvlan; $latput set v0 mtu=1400; $latput log v0",
        &["removed 0", "mtu (interface upper): 1500 -> 1400"],
        &[],
    );
}

#[needs("root", "unshare", "strace", "ip", "ethtool")]
#[test]
fn late_change_of_deleted_interface_is_dropped() {
    check_script(
        "ip link add m0 type veth peer name m1; $latput set m0 txqueuelen=77 --confirm-within 1s; sleep 3; \
         code $latput confirm; ip link del m0; code $latput confirm; code $latput confirm m0",
        &["code 4", "code 1", "code 4"],
        &["m0: too late", "no change waits to be confirmed"],
    );
}

/// An interface that is made on another one meanwhile has its MTU, and cannot keep it.
#[needs("root", "unshare", "strace", "ip", "ethtool")]
#[test]
fn interface_made_on_top_goes_down_too() {
    check_script(
        "$latput set v0 mtu=9000; ip link add link v0 name upper type macvlan; code $latput undo --dry-run; \
         code $latput undo; echo undone $(mtu v0) $(mtu upper); ip link del upper; \
         $latput set v0 mtu=9000 --confirm-within 2s; ip link add link v0 name upper type macvlan; \
         for i in $(seq 40); do $latput log | grep -q 'no confirmation' && break; sleep 0.3; done; \
         echo late $(mtu v0) $(mtu upper); code $latput restore",
        &[
            "would undo v0 mtu",
            "code 0",
            "undid v0 mtu",
            "code 0",
            "undone 1500 1500",
            "late 1500 1500",
            "nothing to restore",
        ],
        &["interface upper, which lies on it, goes down to mtu 1500 with it: it has 9000"],
    );
}

#[needs("root", "unshare", "strace", "ip", "ethtool")]
#[test]
fn watchers_outlive_file_in_place_of_folder() {
    check_script(
        "$latput set v0 mtu=1400 --confirm-within 2s; mv $LATPUT_STATE_DIR $LATPUT_STATE_DIR.away; \
         touch $LATPUT_STATE_DIR; for i in $(seq 40); do [ $(mtu v0) = 1500 ] && break; sleep 0.3; done; \
         echo back $(mtu v0); rm $LATPUT_STATE_DIR; mv $LATPUT_STATE_DIR.away $LATPUT_STATE_DIR; code $latput confirm v0",
        &["back 1500", "code 4"],
        &["too late by", "everything was put back"],
    );
}

#[needs("root", "unshare", "strace", "ip", "ethtool")]
#[test]
fn lack_of_threads_is_an_error() {
    check_script(
        "for when in 1 2 3; do strace -f -o /dev/null -e inject=clone3:error=EAGAIN:when=$when+ $latput set v0 mtu=1400; \
         ended=$?; [ $ended -lt 10 ] || echo wrong at $when; [ $ended != 0 ] || $latput undo; done; \
         $latput set v0 mtu=1400 txqueuelen=500 --confirm-within 10min; \
         code strace -f -o /dev/null -e inject=clone3:error=EAGAIN:when=1+ $latput restore; echo now $(mtu v0)",
        &["put back v0 mtu", "code 0", "now 1500"],
        &[],
    );
}

#[needs("root", "unshare", "strace", "ip", "ethtool")]
#[test]
fn waiting_change_is_not_forgotten() {
    check_script(
        "export SUDO_USER=daemon SUDO_UID=1; $latput set v0 mtu=1400 --confirm-within 10min; \
         id=$(basename $(ls $LATPUT_STATE_DIR/checkpoints/*.json) .json); export SUDO_USER=nobody SUDO_UID=65534; \
         code $latput restore --forget $id; code $latput confirm v0; code $latput set v0 mtu=1300; \
         code $latput confirm v0 --of daemon; \
         strace -o /dev/null -e trace=fsync -e inject=fsync:signal=KILL:when=3 $latput set v0 mtu=1300; \
         id=$(basename $(ls $LATPUT_STATE_DIR/checkpoints/*.json) .json); code $latput restore --forget $id; $latput log",
        &["code 1", "code 1", "code 1", "code 0", "forgot", "latput undo 2", "code 0", "2  "],
        &[
            "`--of 'daemon'` with `latput confirm` keeps it",
            "`--of 'daemon'` keeps it",
            "confirm v0 --of 'daemon'` keeps it",
        ],
    );
}

#[needs("root", "unshare", "strace", "ip", "ethtool")]
#[test]
fn log_tells_what_did_not_go_back() {
    check_script(
        "$latput set v0 mtu=1400 txqueuelen=500 --confirm-within 1s; ip link set v0 mtu 1333; sleep 3; $latput log; \
         $latput set v0 txqueuelen=700; $latput set v0 txqueuelen=600 --confirm-within 10min; $latput log; \
         $latput restore; $latput log",
        &[
            "no confirmation came in time, except: mtu (device) is 1333",
            "set by root: changed by one that waits to be confirmed",
            "txqueuelen (device): 1000 -> 700",
            "put back: `latput restore` by",
            "txqueuelen (device): 700 -> 600",
        ],
        &[],
    );
}

#[needs("root", "unshare", "strace", "ip", "ethtool")]
#[test]
fn damaged_checkpoint_does_not_stop_watchers() {
    check_script(
        "$latput set v0 mtu=1400 --confirm-within 2s; file=$(ls $LATPUT_STATE_DIR/checkpoints/*.json); sleep 1; \
         echo '{' > $file; for i in $(seq 40); do [ $(mtu v0) = 1500 ] && break; sleep 0.3; done; echo back $(mtu v0); \
         sleep 1; code $latput restore; $latput log",
        &["back 1500", "code 5", "put back: no confirmation came in time"],
        &["not a checkpoint of this version"],
    );
}
