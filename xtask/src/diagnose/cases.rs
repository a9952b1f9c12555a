//! The planted faults and their healthy twins. Each is set up and loaded on the lab by shell lines.

/// A host of the lab with its shell line. `$TRAFFIC` is the traffic program, `$A` and `$B` the addresses,
/// `$LOAD` one of the case's loads.
pub(super) type HostLine = (&'static str, &'static str);

/// A fault that is planted, or traffic without one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case {
    pub(super) name: &'static str,
    /// The host that is diagnosed.
    pub(super) host: &'static str,
    /// The finding that must come first; `None` where there must be none.
    pub(super) expected: Option<&'static str>,
    /// Values of `$LOAD`, each of which is a run of its own.
    pub(super) loads: &'static [&'static str],
    /// Lines that end by themselves, in their order.
    pub(super) prepare: &'static [HostLine],
    /// Lines that run until the end of the case.
    pub(super) traffic: &'static [HostLine],
}

impl Case {
    /// The name of a run at one of its loads.
    pub(super) fn name_at(&self, load: &str) -> String {
        if load.is_empty() { self.name.to_owned() } else { format!("{} at {load}", self.name) }
    }
}

/// A case with a fault.
pub(super) const fn fault(
    name: &'static str,
    (host, expected): (&'static str, &'static str),
    prepare: &'static [HostLine],
    traffic: &'static [HostLine],
) -> Case {
    Case { name, host, expected: Some(expected), loads: &[""], prepare, traffic }
}

/// A case without.
pub(super) const fn healthy(
    name: &'static str,
    host: &'static str,
    prepare: &'static [HostLine],
    traffic: &'static [HostLine],
) -> Case {
    Case { name, host, expected: None, loads: &[""], prepare, traffic }
}

/// Cases without a fault, one for each of [`LOADS`].
const fn healthy_loads(
    name: &'static str,
    host: &'static str,
    prepare: &'static [HostLine],
    traffic: &'static [HostLine],
) -> Case {
    Case { loads: LOADS, ..healthy(name, host, prepare, traffic) }
}

/// The part of a CPU that the program which makes the load uses.
const LOADS: &[&str] = &["5%", "20%", "40%", "60%", "80%", "95%"];

const SERVE: HostLine = ("b", "$TRAFFIC serve 0");
const SINK: HostLine = ("b", "$TRAFFIC sink");
const ASK: HostLine = ("a", "$TRAFFIC client $B 4 1 0.002");
const SEND: HostLine = ("a", "$TRAFFIC bulk $B 2 0");
const MIXED: &[HostLine] = &[SERVE, SINK, ("a", "$TRAFFIC bulk $B 1 0"), ASK];
const ASK_BY_LOAD: &[HostLine] = &[SERVE, ("a", "$TRAFFIC client $B 4 1 $LOAD")];
const SEND_BY_LOAD: &[HostLine] = &[SINK, ("a", "$TRAFFIC bulk $B 2 0 $LOAD")];
const MIXED_BY_LOAD: &[HostLine] =
    &[SERVE, SINK, ("a", "$TRAFFIC bulk $B 1 0 $LOAD"), ("a", "$TRAFFIC client $B 4 1 0.002")];
/// Received packets go to a CPU for each end. Without RPS, a virtual pair with TSO puts them into the backlog of whichever CPU
/// sends, and they overtake each other; without TSO its NAPI thread and the programs share a CPU, and its ring loses some.
const STEER_IN_A: HostLine = ("a", "echo 1 > /sys/class/net/lat0/queues/rx-0/rps_cpus");
const STEER_IN_B: HostLine = ("b", "echo 2 > /sys/class/net/lat0/queues/rx-0/rps_cpus");
const LARGE_IN_A: HostLine = ("a", "ethtool -K lat0 tso on gso on");
const LARGE_IN_B: HostLine = ("b", LARGE_IN_A.1);
const SMALL_STEERED: &[HostLine] = &[STEER_IN_A, STEER_IN_B];
const STEERED: &[HostLine] = &[LARGE_IN_A, LARGE_IN_B, STEER_IN_A, STEER_IN_B];
const FAIR_QUEUES: &[HostLine] =
    &[LARGE_IN_A, LARGE_IN_B, STEER_IN_A, STEER_IN_B, ("a", "tc qdisc add dev lat0 root fq_codel")];
/// A chain of nftables that sees what the host receives.
const CHAIN_IN_A: HostLine =
    ("a", "nft add table ip t && nft add chain ip t c '{ type filter hook input priority 0; }'");
pub(super) const CHAIN_IN_B: HostLine = ("b", CHAIN_IN_A.1);
pub(super) const ONE_IN_100_IN_B: HostLine =
    ("b", "nft add rule ip t c numgen random mod 100 0 counter drop");
const DROP_ONE_IN_100: &[HostLine] =
    &[LARGE_IN_A, LARGE_IN_B, STEER_IN_A, STEER_IN_B, CHAIN_IN_B, ONE_IN_100_IN_B];
/// Received packets go to the second CPU, through rules that take long.
const SLOW_RULES: &[HostLine] = &[
    CHAIN_IN_B,
    (
        "b",
        "for port in $(seq 10000); do echo add rule ip t c meta l4proto udp udp sport $port counter; done | nft -f -",
    ),
    ("b", "cd /sys/class/net/lat0 && echo 0 > threaded && echo 2 > queues/rx-0/rps_cpus"),
];
/// NAPI threads are made anew, so that those of the lab's host are known, and have the lowest priority.
const LOW_THREADS: HostLine = (
    "b",
    "cd /sys/class/net/lat0; echo 0 > threaded; sleep 0.3; old=\" $(echo $(pgrep ^napi/)) \"; echo 1 > threaded; sleep 0.3;
     for id in $(pgrep ^napi/lat0-); do
         case \"$old\" in *\" $id \"*) ;; *) taskset -pc 1 $id && renice -n 19 -p $id || exit 1;; esac
     done",
);
/// Whether control groups can have a quota and be idle here (Linux 5.15).
const HAS_GROUPS: HostLine = (
    "b",
    "cd /sys/fs/cgroup && mkdir latput-bench || exit 1
     ls latput-bench | grep -qE '^cpu.(max|cfs_quota_us)$' && [ -e latput-bench/cpu.idle ]; found=$?
     rmdir latput-bench; exit $found",
);
/// A server in a control group with a quota of 15 ms of each 100.
const SERVE_WITH_QUOTA: HostLine = (
    "b",
    "in_group 'if [ -e cpu.max ]; then echo 15000 100000 > cpu.max; else echo 15000 > cpu.cfs_quota_us; fi' \\
         \"$TRAFFIC serve 0.0005 work\"",
);
/// A program that every other preempts at once. One with the lowest priority keeps the CPU for its slice of some milliseconds.
const BURN_IDLE: HostLine = ("b", "in_group 'echo 1 > cpu.idle' \"$TRAFFIC burn\"");
/// Another host behind this one, on a link with a small MTU.
const SMALL_LINK: &[HostLine] = &[
    ("b", "echo 1 > /proc/sys/net/ipv4/ip_forward && ip link add zz0 type veth peer name zz1"),
    (
        "b",
        "ip link set zz0 mtu 1280 up && ip link set zz1 up && ip address add 198.18.1.1/24 dev zz0",
    ),
    ("b", "ip neighbour add 198.18.1.2 lladdr 02:00:00:00:00:09 dev zz0 nud permanent"),
    ("a", "ip route add 198.18.1.0/24 via $B"),
];

const LONG_PATH: HostLine = ("b", "$TRAFFIC path 10");
const SLOW_BULK: &[HostLine] = &[LONG_PATH, SINK, ("a", "$TRAFFIC bulk $B 1 0 0.01")];
const ASK_FAST: &[HostLine] = &[SERVE, ("a", "$TRAFFIC client $B 2 1 0")];
/// Round trips that are shorter than those of the traffic program.
const HAS_SOCKPERF: HostLine = ("b", "command -v sockperf");
const PING_PONG: &[HostLine] = &[
    ("b", "exec sockperf server --tcp -i $B -p 8003"),
    ("a", "exec sockperf ping-pong --tcp -i $B -p 8003 -m 200 -t 60"),
];
const MANY_DATAGRAMS: &[HostLine] =
    &[("b", "$TRAFFIC receive 0 4194304"), ("a", "$TRAFFIC datagrams $B 200 10000 10000")];
const PIECES: &[HostLine] =
    &[SERVE, ASK, ("b", "$TRAFFIC receive 0 4194304"), ("a", "$TRAFFIC datagrams $B 6000 1000")];
const RATE_OF_200: &[HostLine] =
    &[("a", "tc qdisc add dev lat0 root tbf rate 200mbit burst 32k limit 3000000")];
const SMALL_PACKETS: &[HostLine] = &[("a", "ethtool -K lat0 tso off gso off")];
/// A congestion control that sends until something is lost: BBR would empty the queue now and then.
const FILL_QUEUES: HostLine = ("a", "sysctl -qw net.ipv4.tcp_congestion_control=reno");
/// A process with the name of a tuner, which changes a setting of the interface.
const TUNER: HostLine = (
    "a",
    "echo tuned > /proc/$$/comm; for length in $(seq 1001 1100); do echo $length > /sys/class/net/lat0/tx_queue_len; sleep 1; done",
);
const IDLE_TUNER: HostLine = ("a", "echo tuned > /proc/$$/comm; while :; do sleep 1; done");

/// All of them, each fault before its twin.
pub(super) const CASES: &[Case] = &[
    fault("loss", ("a", "loss-on-path"), DROP_ONE_IN_100, &[SINK, SEND]),
    healthy("bulk", "a", STEERED, &[SINK, SEND]),
    healthy("bulk, receiver", "b", STEERED, &[SINK, SEND]),
    fault("backlogs of two CPUs", ("b", "reordering"), &[LARGE_IN_A, LARGE_IN_B], &[SINK, SEND]),
    fault(
        "small packets",
        ("a", "offload-off"),
        SMALL_STEERED,
        &[SINK, ("a", "$TRAFFIC bulk $B 1 0")],
    ),
    healthy("a long path", "a", &[], &[LONG_PATH, SERVE, ("a", "$TRAFFIC client $B 4 1 0")]),
    fault(
        "two small writes",
        ("a", "nagle-delayed-ack"),
        &[],
        &[SERVE, ("a", "$TRAFFIC client $B 4 2 0")],
    ),
    healthy("requests", "a", &[], &[SERVE, ASK]),
    healthy("requests, server", "b", &[], &[SERVE, ASK]),
    fault(
        "server that thinks, seen by its client",
        ("a", "slow-peer"),
        &[],
        &[("b", "$TRAFFIC serve 0.06"), ("a", "$TRAFFIC client $B 8 1 0")],
    ),
    fault(
        "server that thinks",
        ("b", "slow-application"),
        &[],
        &[("b", "$TRAFFIC serve 0.06"), ("a", "$TRAFFIC client $B 8 1 0")],
    ),
    fault("slow reader", ("b", "slow-application"), &[], &[("b", "$TRAFFIC slow-read"), SEND]),
    fault(
        "slow reader, seen by its sender",
        ("a", "slow-peer"),
        &[],
        &[("b", "$TRAFFIC slow-read"), SEND],
    ),
    fault(
        "nobody accepts",
        ("b", "listen-queue"),
        &[],
        &[("b", "$TRAFFIC no-accept"), ("a", "$TRAFFIC connects $B")],
    ),
    healthy(
        "connections",
        "b",
        &[],
        &[SERVE, ("a", "while :; do $TRAFFIC client $B 1 1 0 & sleep 0.5; kill $!; done")],
    ),
    fault(
        "small receive buffer",
        ("b", "tcp-receive-buffer"),
        &[("b", "sysctl -qw net.ipv4.tcp_rmem='4096 8192 16384'")],
        &[SINK, SEND],
    ),
    fault(
        "small send buffer",
        ("a", "tcp-send-buffer"),
        &[],
        &[LONG_PATH, SINK, ("a", "$TRAFFIC bulk $B 1 16384")],
    ),
    fault(
        "long queue",
        ("a", "qdisc-bloat"),
        &[FILL_QUEUES, ("a", "tc qdisc add dev lat0 root tbf rate 20mbit burst 32k limit 3000000")],
        MIXED,
    ),
    fault(
        "short queue",
        ("a", "qdisc-drops"),
        &[("a", "tc qdisc add dev lat0 root tbf rate 20mbit burst 32k limit 20000")],
        &[SINK, SEND],
    ),
    healthy("fair queues", "a", FAIR_QUEUES, MIXED),
    fault(
        "datagrams too fast",
        ("b", "udp-receive-buffer"),
        &[],
        &[("b", "$TRAFFIC receive 0.001 4096"), ("a", "$TRAFFIC datagrams $B 1000 20000")],
    ),
    healthy(
        "datagrams",
        "b",
        &[],
        &[("b", "$TRAFFIC receive 0 4194304"), ("a", "$TRAFFIC datagrams $B 1000 2000")],
    ),
    fault(
        "black hole",
        ("a", "mtu-black-hole"),
        &[
            CHAIN_IN_B,
            ("b", "nft add rule ip t c tcp dport 8001 meta length gt 1200 counter drop"),
            ("a", "ethtool -K lat0 tso off gso off"),
        ],
        &[SERVE, SINK, ("a", "$TRAFFIC bulk $B 3 0"), ASK],
    ),
    fault(
        "interrupts put off",
        ("b", "moderation-too-long"),
        &[
            ("a", "ethtool -K lat0 gro on"),
            ("b", "ethtool -K lat0 gro on"),
            ("b", "echo 1000000 > /sys/class/net/lat0/gro_flush_timeout"),
            ("b", "echo 100 > /sys/class/net/lat0/napi_defer_hard_irqs"),
        ],
        &[SERVE, ("a", "$TRAFFIC client $B 1 1 0")],
    ),
    healthy("idle", "a", &[], &[]),
    healthy("mixed", "a", STEERED, MIXED),
    healthy("mixed, server", "b", STEERED, MIXED),
    healthy("rare requests", "a", &[], &[SERVE, ("a", "$TRAFFIC client $B 4 1 0.05")]),
    healthy(
        "counters from before",
        "b",
        &[
            ("b", "timeout 2 $TRAFFIC receive 0.01 4096 & sleep 0.2; wait"),
            CHAIN_IN_B,
            ("b", "nft add rule ip t c tcp dport 9 counter drop"),
        ],
        &[SERVE, ASK],
    ),
    fault(
        "GRO off",
        ("b", "offload-off"),
        &[STEER_IN_A, STEER_IN_B, ("b", "ethtool -K lat0 gro off")],
        &[SINK, ("a", "$TRAFFIC bulk $B 1 0")],
    ),
    healthy("fast requests, server", "b", &[], ASK_FAST),
    healthy(
        "RPS of a virtual pair",
        "b",
        &[HAS_SOCKPERF, ("b", "echo 1 > /sys/class/net/lat0/queues/rx-0/rps_cpus")],
        PING_PONG,
    ),
    healthy("ping-pong, server", "b", &[HAS_SOCKPERF], PING_PONG),
    healthy("many datagrams", "b", &[], MANY_DATAGRAMS),
    fault(
        "NAPI threads below a hog",
        ("b", "napi-thread-starved"),
        &[LOW_THREADS],
        &[SERVE, ("b", "$TRAFFIC burn"), ASK],
    ),
    healthy("a hog below all", "b", &[HAS_GROUPS], &[SERVE, BURN_IDLE, ASK]),
    fault(
        "CPU quota",
        ("b", "cpu-quota"),
        &[HAS_GROUPS],
        &[SERVE_WITH_QUOTA, ("a", "$TRAFFIC client $B 4 1 0")],
    ),
    fault(
        "small send buffer of datagrams",
        ("a", "udp-send-buffer"),
        RATE_OF_200,
        &[("b", "$TRAFFIC receive 0 4194304"), ("a", "$TRAFFIC datagrams $B 1000 20000 100 8192")],
    ),
    healthy(
        "datagrams below the rate",
        "a",
        RATE_OF_200,
        &[("b", "$TRAFFIC receive 0 4194304"), ("a", "$TRAFFIC datagrams $B 1000 2000 500 8192")],
    ),
    fault(
        "small window of the peer",
        ("a", "receive-window"),
        &[],
        &[LONG_PATH, ("b", "$TRAFFIC sink 65536"), ("a", "$TRAFFIC bulk $B 1 0")],
    ),
    fault(
        "small buffer of a program",
        ("b", "tcp-receive-buffer"),
        &[],
        &[LONG_PATH, ("b", "$TRAFFIC sink 65536"), ("a", "$TRAFFIC bulk $B 1 0")],
    ),
    fault(
        "small receive buffer, seen by the sender",
        ("a", "receive-window"),
        &[("b", "sysctl -qw net.ipv4.tcp_rmem='4096 8192 16384'")],
        &[SINK, SEND],
    ),
    fault(
        "small send buffers",
        ("a", "tcp-send-buffer"),
        &[("a", "sysctl -qw net.ipv4.tcp_wmem='4096 16384 32768'")],
        &[LONG_PATH, SINK, SEND],
    ),
    healthy("bulk over a long path", "a", &[], SLOW_BULK),
    healthy("bulk over a long path, receiver", "b", &[], SLOW_BULK),
    healthy(
        "connection tracking",
        "b",
        &[CHAIN_IN_B, ("b", "nft add rule ip t c ct state invalid counter")],
        &[SERVE, ("a", "$TRAFFIC connects $B 10 0.02"), ASK],
    ),
    fault("datagrams in pieces", ("a", "mtu-mismatch"), &[], PIECES),
    fault("datagrams in pieces, receiver", ("b", "mtu-mismatch"), &[], PIECES),
    fault(
        "small link behind",
        ("b", "mtu-mismatch"),
        SMALL_LINK,
        &[SERVE, ASK, ("a", "$TRAFFIC datagrams 198.18.1.2 1400 1000 100 0 probe")],
    ),
    healthy(
        "link behind",
        "b",
        SMALL_LINK,
        &[SERVE, ASK, ("a", "$TRAFFIC datagrams 198.18.1.2 1200 1000")],
    ),
    fault(
        "busy polling for little",
        ("b", "busy-poll-waste"),
        &[],
        &[("b", "$TRAFFIC receive 0 0 100000"), ("a", "$TRAFFIC datagrams $B 200 50")],
    ),
    healthy(
        "few datagrams",
        "b",
        &[],
        &[("b", "$TRAFFIC receive 0"), ("a", "$TRAFFIC datagrams $B 200 50")],
    ),
    fault(
        "slow rules",
        ("b", "cpu-full-of-softirq"),
        SLOW_RULES,
        &[("b", "$TRAFFIC receive 0 4194304"), ("a", "$TRAFFIC datagrams $B 200 12000 1000")],
    ),
    fault(
        "bursts of datagrams through slow rules",
        ("b", "backlog-drops"),
        SLOW_RULES,
        &[("b", "$TRAFFIC receive 0 67108864"), ("a", "$TRAFFIC datagrams $B 200 3000 1 16777216")],
    ),
    healthy(
        "datagrams through slow rules",
        "b",
        SLOW_RULES,
        &[("b", "$TRAFFIC receive 0 67108864"), ("a", "$TRAFFIC datagrams $B 200 1000 370")],
    ),
    fault(
        "packets beside a busy program",
        ("b", "irq-on-application-cpu"),
        SLOW_RULES,
        &[
            ("b", "$TRAFFIC receive 0 67108864 0 0.0005"),
            ("a", "$TRAFFIC datagrams $B 200 2000 370"),
        ],
    ),
    fault(
        "bursts of datagrams",
        ("b", "udp-receive-buffer"),
        &[],
        &[("b", "$TRAFFIC receive 0 0 0 0.0001"), ("a", "$TRAFFIC datagrams $B 1000 2000 4")],
    ),
    fault("a tuner", ("a", "second-tuner"), &[], &[SERVE, ASK, TUNER]),
    fault(
        "somebody changes offloads",
        ("b", "second-tuner"),
        &[],
        &[SERVE, ASK, ("b", "sleep 2.5; ethtool -K lat0 tso on; sleep 60")],
    ),
    healthy("a tuner that changes nothing", "a", &[], &[SERVE, ASK, IDLE_TUNER]),
    fault(
        "packets overtake",
        ("a", "reordering"),
        SMALL_PACKETS,
        &[
            ("b", "$TRAFFIC path 2 late_every=50 late_ms=20"),
            SINK,
            ("a", "$TRAFFIC bulk $B 1 0 0.005"),
        ],
    ),
    fault(
        "packets overtake, receiver",
        ("b", "reordering"),
        SMALL_PACKETS,
        &[
            ("b", "$TRAFFIC path 2 late_every=50 late_ms=20"),
            SINK,
            ("a", "$TRAFFIC bulk $B 1 0 0.005"),
        ],
    ),
    fault(
        "loss, seen by the receiver",
        ("b", "loss-on-path"),
        SMALL_PACKETS,
        &[("b", "$TRAFFIC path 2 lost_every=100"), SINK, ("a", "$TRAFFIC bulk $B 1 0 0.005")],
    ),
    fault(
        "a path that stands still",
        ("a", "spurious-timeout"),
        &[],
        &[("b", "$TRAFFIC path 1 stall_ms=500"), SERVE, ("a", "$TRAFFIC client $B 8 1 0.002")],
    ),
    fault(
        "answers get lost",
        ("b", "loss-on-path"),
        &[CHAIN_IN_A, ("a", "nft add rule ip t c numgen random mod 50 0 counter drop")],
        &[SERVE, ("a", "$TRAFFIC client $B 8 1 0.002")],
    ),
    fault(
        "policer",
        ("a", "loss-on-path"),
        &[
            LARGE_IN_A,
            LARGE_IN_B,
            STEER_IN_A,
            STEER_IN_B,
            CHAIN_IN_B,
            (
                "b",
                "nft add rule ip t c limit rate over 50 mbytes/second burst 500 kbytes counter drop",
            ),
        ],
        &[SINK, SEND],
    ),
    fault(
        "class with a low rate",
        ("a", "qdisc-bloat"),
        &[
            FILL_QUEUES,
            ("a", "tc qdisc add dev lat0 root handle 1: htb default 1"),
            ("a", "tc class add dev lat0 parent 1: classid 1:1 htb rate 20mbit"),
        ],
        MIXED,
    ),
    healthy(
        "class with a high rate",
        "a",
        &[
            ("a", "tc qdisc add dev lat0 root handle 1: htb default 1"),
            ("a", "tc class add dev lat0 parent 1: classid 1:1 htb rate 2gbit"),
        ],
        &[SERVE, ASK],
    ),
    fault(
        "short listen queue",
        ("b", "listen-queue"),
        &[("b", "sysctl -qw net.core.somaxconn=1")],
        &[SERVE, ("a", "$TRAFFIC connects $B 20 0.05"), ASK],
    ),
    healthy("many connections", "b", &[], &[SERVE, ("a", "$TRAFFIC connects $B 20 0.05"), ASK]),
    fault(
        "server that computes",
        ("b", "slow-application"),
        &[],
        &[("b", "$TRAFFIC serve 0.02 work"), ("a", "$TRAFFIC client $B 8 1 0")],
    ),
    fault(
        "server that computes, seen by its client",
        ("a", "slow-peer"),
        &[],
        &[("b", "$TRAFFIC serve 0.02 work"), ("a", "$TRAFFIC client $B 8 1 0")],
    ),
    fault(
        "interrupts put off, at the client",
        ("a", "moderation-too-long"),
        &[
            ("a", "echo 1000000 > /sys/class/net/lat0/gro_flush_timeout"),
            ("a", "echo 100 > /sys/class/net/lat0/napi_defer_hard_irqs"),
        ],
        &[SERVE, ("a", "$TRAFFIC client $B 1 1 0")],
    ),
    healthy("idle, receiver", "b", &[], &[]),
    healthy_loads("requests", "a", &[], ASK_BY_LOAD),
    healthy_loads("requests, server", "b", &[], ASK_BY_LOAD),
    healthy_loads("bulk", "a", STEERED, SEND_BY_LOAD),
    healthy_loads("bulk, receiver", "b", STEERED, SEND_BY_LOAD),
    healthy_loads("mixed", "a", STEERED, MIXED_BY_LOAD),
    healthy_loads("mixed, server", "b", STEERED, MIXED_BY_LOAD),
];
