//! A `/sys` that shows another network namespace, nothing, or cannot be written; and values that two changes would move.

use latput_testkit::needs;

use crate::root_undo::check_script;

/// Checks what a script prints whose interfaces are up and whose `/sys` shows them.
fn check_with_sysfs(script: &str, out: &[&str], anywhere: &[&str]) {
    let script = format!(
        "export latput; ip link set v0 up; ip link set v1 up; unshare -m sh -c \"$(cat <<'END'\n\
         mount -t sysfs sysfs /sys; code() {{ \"$@\"; echo code $?; }}; {script}\nEND\n)\""
    );
    check_script(&script, out, anywhere);
}

#[test]
fn sysfs_of_another_namespace_is_not_written() {
    check_with_sysfs(
        "echo 2 > /sys/class/net/v0/queues/rx-0/rps_cpus; \
         export rps='mount -t sysfs sysfs /sys; cat /sys/class/net/v0/queues/rx-0/rps_cpus'; \
         unshare -n sh -c 'ip link add v0 type veth peer name v1; \
           $latput set v0 rps-cpus=0; echo inner $(unshare -m sh -c \"$rps\"); \
           $latput undo; echo inner $(unshare -m sh -c \"$rps\")'; \
         echo outer $(cat /sys/class/net/v0/queues/rx-0/rps_cpus)",
        &["changed v0 rps-cpus", "inner 1", "undid v0 rps-cpus", "inner 0", "outer 2"],
        &[],
    );
}

#[test]
fn restore_without_sysfs_puts_everything_back() {
    check_with_sysfs(
        "ethtool -K v0 gro on; cd /sys/class/net/v0; \
         $latput set v0 rps-cpus=0-1 gro-flush-timeout=20us --confirm-within 10min; cd /; \
         code unshare -m sh -c \"umount /sys; exec $latput restore\"; cd /sys/class/net/v0; \
         echo now $(cat gro_flush_timeout queues/rx-0/rps_cpus)",
        &["changed v0", "put back v0", "code 0", "now 0 0"],
        &["everything goes back in 600s"],
    );
}

#[test]
fn value_behind_read_only_sysfs_is_not_forgotten() {
    check_with_sysfs(
        "ethtool -K v0 gro on; $latput set v0 gro-flush-timeout=20us; \
         code unshare -m sh -c \"mount -o remount,bind,ro /sys; exec $latput undo\"; \
         echo still $(cat /sys/class/net/v0/gro_flush_timeout); code $latput undo; \
         $latput set v0 gro-flush-timeout=30us --confirm-within 10min; \
         code unshare -m sh -c \"mount -o remount,bind,ro /sys; exec $latput restore\"; \
         code $latput restore; echo now $(cat /sys/class/net/v0/gro_flush_timeout)",
        &["code 1", "still 20000", "undid", "code 0", "code 5", "put back", "code 0", "now 0"],
        &["its file is hidden or read-only", "everything goes back"],
    );
}

#[needs("root", "unshare", "strace", "ip", "ethtool")]
#[test]
fn waiting_change_keeps_its_neighbours() {
    check_script(
        "ip link add link v0 name mac0 type macvlan; $latput set v0 mtu=1400 --confirm-within 10min; \
         code $latput set mac0 mtu=1350; code $latput set mac0 mtu=1350 --dry-run; code $latput set mac0 txqueuelen=500; \
         $latput restore; \
         $latput set mac0 mtu=1450 --confirm-within 10min; code $latput set v0 mtu=1400; $latput restore; \
         echo now $(mtu v0) $(mtu mac0)",
        &[
            "changed v0",
            "code 1",
            "code 1",
            "changed mac0 txqueuelen",
            "code 0",
            "put back v0",
            "changed mac0",
            "code 1",
            "put back mac0",
            "now 1500 1500",
        ],
        &["v0: a change by root", "mac0: a change by root"],
    );
}

#[needs("root", "unshare", "strace", "ip", "ethtool")]
#[test]
fn route_beyond_the_mtu_is_not_lost() {
    check_script(
        "ip link set v0 up; ip link set v1 up; ip addr add 2001:db8::1/64 dev v0 nodad; ip -6 route add 2001:db8:5::/48 via 2001:db8::2 mtu 2000; \
         code $latput set v0 mtu=9000; code $latput set v0 mtu=9000 --dry-run; \
         ip -6 route change 2001:db8:5::/48 via 2001:db8::2 mtu 1500; sysctl -qw net.ipv6.conf.v0.mtu=1280; \
         $latput set v0 mtu=9000; code $latput undo; echo now $(mtu v0)",
        &["code 1", "code 1", "changed v0 mtu", "undid v0 mtu", "code 0", "now 1500"],
        &["mtu 2000 of the IPv6 route"],
    );
}

#[needs("root", "unshare", "strace", "ip", "ethtool")]
#[test]
fn entry_of_highest_number_does_no_harm() {
    check_script(
        "$latput set v0 txqueuelen=900; cp $journal/1.json $journal/18446744073709551615.json; \
         $latput set v0 txqueuelen=800; code $latput undo; echo now $(len v0)",
        &["changed v0", "changed v0", "undid v0", "code 0", "now 900"],
        &[],
    );
}

#[needs("root", "unshare", "strace", "ip", "ethtool")]
#[test]
fn name_with_a_dash_is_watched() {
    check_script(
        "ip link set v0 name -v; code $latput set --confirm-within 10min -- -v mtu=1400; code $latput confirm -- -v",
        &["changed -v mtu", "code 0", "confirmed: -v", "code 0"],
        &[],
    );
}
