//! An undo that is hindered: half of it is done, its entry cannot be read, an interface has gone, a signal or a limit ends
//! the change. `ip` and sysfs say what is there.

use latput_testkit::needs_root;

use crate::root_undo::check;
use crate::root_whole::{VethPair, WAITS, sh};

#[test]
fn half_restored_change_cannot_be_confirmed() {
    if needs_root() {
        return;
    }
    let pair = VethPair::new();
    sh("ethtool -K v0 gro on");
    let set = ["set", "v0", "mtu=1400", "txqueuelen=500", "gro-flush-timeout=20us", "threaded=on"];
    let look = || sh("ip -o link show v0; cd /sys/class/net/v0; cat threaded gro_flush_timeout");
    let before = look();
    pair.run(&[&set[..], &WAITS].concat()).expect(0, &["changed"]);
    sh("ip link set v0 down");
    pair.run(&["restore"]).expect(5, &["threaded"]);
    sh("ip link set v0 up");
    let words = ["being put back, so it cannot be confirmed: run `latput restore`"];
    pair.run(&["confirm", "v0"]).expect(5, &words);
    pair.run(&["restore"]).expect(0, &["put back v0"]);
    assert_eq!(look(), before);
}

#[test]
fn restore_without_rights_keeps_the_change_whole() {
    check(
        "$latput set v0 txqueuelen=500 --confirm-within 10min; \
         code setpriv --bounding-set -all --inh-caps -all $latput restore; code $latput confirm v0; \
         code $latput undo; echo now $(len v0)",
        &["code 5", "confirmed: v0", "code 0", "undid v0 txqueuelen", "code 0", "now 1000"],
        &[],
    );
}

#[test]
fn undo_stops_at_newer_unknown_entry() {
    check(
        "$latput set v0 txqueuelen=500; ip link set v0 txqueuelen 800; $latput set v0 txqueuelen=500; \
         $latput set v1 txqueuelen=700; truncate -s 100 $journal/2.json; code $latput undo; echo v1 $(len v1); \
         code $latput undo; echo v0 $(len v0); code $latput undo 1; echo named $(len v0)",
        &["undid v1", "code 0", "v1 1000", "code 1", "v0 500", "code 0", "named 1000"],
        &["entry 2 is newer than 1", "run `latput undo 1`"],
    );
}

#[test]
fn change_by_alternative_name_is_found_again() {
    check(
        "ip link property add dev v0 altname lan0; $latput set lan0 mtu=1400 --confirm-within 10min; \
         $latput log lan0; code $latput confirm lan0; $latput log lan0; \
         strace -o /dev/null -e trace=fsync -e inject=fsync:signal=KILL:when=3 $latput set lan0 mtu=1300; \
         code $latput restore lan0; echo now $(mtu v0)",
        &[
            "no change was made",
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

#[test]
fn signals_and_limits_leave_no_change() {
    check(
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

#[test]
fn damaged_checkpoint_is_stranded_until_forgotten() {
    check(
        "strace -o /dev/null -e trace=fsync -e inject=fsync:signal=KILL:when=3 $latput set v0 mtu=1400; \
         file=$(ls $LATPUT_STATE_DIR/checkpoints/*.json); id=$(basename $file .json); truncate -s 300 $file; \
         code $latput undo; code $latput restore; code $latput restore --forget $id; ls $file; \
         code $latput set v0 mtu=1300; code $latput restore --forget $id",
        &["code 1", "code 5", "forgot", "code 0", "changed v0 mtu", "code 0", "code 2"],
        &["there is no checkpoint"],
    );
}

#[test]
fn late_change_is_forgotten_with_its_checkpoint() {
    check(
        "ip link add m0 type veth peer name m1; ip netns add away; \
         $latput set m0 txqueuelen=77 --confirm-within 1s; ip link set m0 netns away; sleep 3; \
         id=$(basename $(ls $LATPUT_STATE_DIR/checkpoints/*.json) .json); ip -n away link del m0; ip netns del away; \
         code $latput restore --forget $id; code $latput confirm",
        &["forgot", "code 0", "code 1"],
        &["no change waits to be confirmed"],
    );
}
