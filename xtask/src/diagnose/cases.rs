//! The planted faults and their healthy twins. Each is set up and loaded on the lab by shell lines.

/// A host of the lab with its shell line. `$TRAFFIC` is the traffic program, `$A` and `$B` the addresses.
pub(super) type HostLine = (&'static str, &'static str);

/// A fault that is planted, or traffic without one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case {
    pub(super) name: &'static str,
    /// The host that is diagnosed.
    pub(super) host: &'static str,
    /// The finding that must come first; `None` where there must be none.
    pub(super) expected: Option<&'static str>,
    /// Lines that end by themselves, in their order.
    pub(super) prepare: &'static [HostLine],
    /// Lines that run until the end of the case.
    pub(super) traffic: &'static [HostLine],
}

/// A case with a fault.
const fn fault(
    name: &'static str,
    (host, expected): (&'static str, &'static str),
    prepare: &'static [HostLine],
    traffic: &'static [HostLine],
) -> Case {
    Case { name, host, expected: Some(expected), prepare, traffic }
}

/// A case without.
const fn healthy(
    name: &'static str,
    host: &'static str,
    prepare: &'static [HostLine],
    traffic: &'static [HostLine],
) -> Case {
    Case { name, host, expected: None, prepare, traffic }
}

const SERVE: HostLine = ("b", "$TRAFFIC serve 0");
const SINK: HostLine = ("b", "$TRAFFIC sink");
const ASK: HostLine = ("a", "$TRAFFIC client $B 4 1 0.002");
const SEND: HostLine = ("a", "$TRAFFIC bulk $B 2 0");
const MIXED: &[HostLine] = &[SERVE, SINK, ("a", "$TRAFFIC bulk $B 1 0"), ASK];
/// Large packets, each end's on a CPU of its own. Without RPS a virtual pair with TSO puts them into the backlog of whichever CPU
/// sends, and they overtake each other; without TSO its NAPI thread and the programs share a CPU, and its ring loses some.
const STEERED: &[HostLine] = &[
    ("a", "ethtool -K lat0 tso on gso on && echo 1 > /sys/class/net/lat0/queues/rx-0/rps_cpus"),
    ("b", "ethtool -K lat0 tso on gso on && echo 2 > /sys/class/net/lat0/queues/rx-0/rps_cpus"),
];
/// Drops of all traffic of a host by a rule of nftables.
const DROP_ONE_IN_100: &[HostLine] = &[
    ("b", "nft add table ip t && nft add chain ip t c '{ type filter hook input priority 0; }'"),
    ("b", "nft add rule ip t c numgen random mod 100 0 counter drop"),
];

const FAIR_QUEUES: &[HostLine] =
    &[STEERED[0], STEERED[1], ("a", "tc qdisc add dev lat0 root fq_codel")];

/// All of them, each fault before its twin.
pub(super) const CASES: &[Case] = &[
    fault("loss", ("a", "loss-on-path"), DROP_ONE_IN_100, &[SINK, SEND]),
    healthy("bulk", "a", STEERED, &[SINK, SEND]),
    healthy("bulk, receiver", "b", STEERED, &[SINK, SEND]),
    fault(
        "backlogs of two CPUs",
        ("b", "reordering"),
        &[("a", "ethtool -K lat0 tso on gso on"), ("b", "ethtool -K lat0 tso on gso on")],
        &[SINK, SEND],
    ),
    fault("small packets", ("a", "offload-off"), &[], &[SINK, ("a", "$TRAFFIC bulk $B 1 0")]),
    healthy(
        "a long path",
        "a",
        &[("a", "tc qdisc add dev lat0 root netem delay 10ms limit 10000")],
        &[SERVE, ("a", "$TRAFFIC client $B 4 1 0")],
    ),
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
        &[("a", "tc qdisc add dev lat0 root netem delay 2ms limit 10000")],
        &[SINK, ("a", "$TRAFFIC bulk $B 1 4096")],
    ),
    fault(
        "long queue",
        ("a", "qdisc-bloat"),
        &[("a", "tc qdisc add dev lat0 root tbf rate 20mbit burst 32k limit 3000000")],
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
        &[("b", "$TRAFFIC receive 0.001 4096"), ("a", "$TRAFFIC datagrams $B 1000 20000 wait")],
    ),
    healthy(
        "datagrams",
        "b",
        &[],
        &[("b", "$TRAFFIC receive 0 4194304"), ("a", "$TRAFFIC datagrams $B 1000 2000 wait")],
    ),
    fault(
        "black hole",
        ("a", "mtu-black-hole"),
        &[
            (
                "b",
                "nft add table ip t && nft add chain ip t c '{ type filter hook input priority 0; }'",
            ),
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
            (
                "b",
                "nft add table ip t && nft add chain ip t c '{ type filter hook input priority 0; }'",
            ),
            ("b", "nft add rule ip t c tcp dport 9 counter drop"),
        ],
        &[SERVE, ASK],
    ),
];
