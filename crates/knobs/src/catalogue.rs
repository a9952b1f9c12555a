//! The catalogue: every knob latput knows, one row to a knob.
//!
//! A row says what the knob does; `latput show` and the user guide print that. It has the name as ethtool
//! spells it, the place in the kernel, and an example value. Then come kind, unit, range, tier and quirks.

mod name;
pub mod spec;

use latput_units::cpu;

pub use self::name::UnknownKnob;
use self::spec::{BYTE, Group, KnobSpec, Rounding, Scope, Tier, ValueKind, plain};
use crate::value::Named;

/// Makes the type, the list, the names and the entries from the rows.
macro_rules! knobs {
    ($(
        #[doc = $help:literal]
        $knob:ident = $name:literal, $lives:expr, $example:literal: $row:expr,
    )*) => {
        /// One thing that can be set on a host's network path.
        ///
        /// The order is that in which changes are written: what recreates queues and NAPIs first,
        /// then offloads, queue disciplines, steering, the host's own knobs, interrupt coalescing,
        /// and per-NAPI values last.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Knob {
            $(#[doc = $help] $knob,)*
        }

        impl Knob {
            /// Every knob, in the order in which changes are written.
            pub const ALL: &[Self] = &[$(Self::$knob,)*];

            /// The kernel's name, as ethtool spells it.
            pub const fn name(self) -> &'static str {
                self.spec().name
            }

            /// The knob's entry in the catalogue.
            pub const fn spec(self) -> &'static KnobSpec {
                match self {
                    $(Self::$knob => {
                        const SPEC: KnobSpec = KnobSpec {
                            name: $name,
                            lives: $lives,
                            doc: $help.trim_ascii_start(),
                            example: $example,
                            ..$row
                        };
                        &SPEC
                    })*
                }
            }
        }
    };
}

knobs! {
    /// interrupts a second; 0 off, 1 dynamic, 3 conservative, 4 simplified
    InterruptThrottleRate = "interrupt-throttle-rate", DRIVER_PARAMETER, "3":
        load_time("interrupt/s", "InterruptThrottleRate"),
    /// receive timer that each packet starts anew; not 0 may hang old NICs
    RxIntDelay = "rx-int-delay", DRIVER_PARAMETER, "0": load_time("1.024us unit", "RxIntDelay"),
    /// longest wait of a received packet
    RxAbsIntDelay = "rx-abs-int-delay", DRIVER_PARAMETER, "8":
        load_time("1.024us unit", "RxAbsIntDelay"),
    /// transmit timer that each packet starts anew
    TxIntDelay = "tx-int-delay", DRIVER_PARAMETER, "8": load_time("1.024us unit", "TxIntDelay"),
    /// longest wait of a sent packet's completion
    TxAbsIntDelay = "tx-abs-int-delay", DRIVER_PARAMETER, "32":
        load_time("1.024us unit", "TxAbsIntDelay"),
    /// queue pairs, each with one interrupt
    CombinedChannels = "combined-channels", CHANNELS, "4": channels(),
    /// receive-only queues
    RxChannels = "rx-channels", CHANNELS, "4": channels(),
    /// transmit-only queues
    TxChannels = "tx-channels", CHANNELS, "4": channels(),
    /// packets that the NIC may hold before the host has read them
    RxRing = "rx-ring", RINGS, "256": ring(),
    /// packets that the host may give the NIC ahead
    TxRing = "tx-ring", RINGS, "256": ring(),
    /// the same for a ring of small buffers
    RxMiniRing = "rx-mini-ring", RINGS, "256": ring(),
    /// the same for a ring of large buffers
    RxJumboRing = "rx-jumbo-ring", RINGS, "256": ring(),
    /// size of a receive buffer
    RxBufLen = "rx-buf-len", RINGS, "2048":
        count(BYTE, MANY).disruptive(PER_OPEN).group(Group::Queues),
    /// size of a completion queue entry
    CqeSize = "cqe-size", RINGS, "64":
        count(BYTE, MANY).disruptive(PER_OPEN).group(Group::Queues),
    /// push descriptors to the NIC instead of letting it fetch them
    TxPush = "tx-push", RINGS, "off": switch().disruptive(PER_OPEN).group(Group::Queues),
    /// the same for receive descriptors
    RxPush = "rx-push", RINGS, "off": switch().disruptive(PER_OPEN).group(Group::Queues),
    /// how much of a packet may be pushed with its descriptor
    TxPushBufLen = "tx-push-buf-len", RINGS, "96":
        count(BYTE, MANY).disruptive(PER_OPEN).group(Group::Queues),
    // IPv4 would allow 68, but below 1280 (RFC 8200, section 5) the kernel removes the interface's IPv6
    // addresses, and no checkpoint brings those back. The largest is the loopback interface's; IFLA_MAX_MTU
    // of others is less. Many drivers close and open their queues for a new MTU.
    /// largest packet of the interface
    Mtu = "mtu", "rtnetlink IFLA_MTU", "1500":
        count(BYTE, 65_536).min(1280).disruptive(PER_OPEN).group(Group::Link),
    /// negotiate flow control (802.3x) with the other end
    PauseAutoneg = "pause-autoneg", PAUSE, "on": link_switch().negotiated(),
    /// obey PAUSE frames of the other end
    PauseRx = "pause-rx", PAUSE, "off": link_switch().negotiated(),
    /// send PAUSE frames when the receive buffer fills
    PauseTx = "pause-tx", PAUSE, "off": link_switch().negotiated(),
    /// Energy Efficient Ethernet (802.3az): waking costs microseconds
    Eee = "eee", EEE, "off": link_switch().negotiated(),
    /// let the transmitter sleep between packets
    EeeTxLpi = "eee-tx-lpi", EEE, "off": link_switch().negotiated(),
    /// how long the transmitter is idle before it sleeps
    EeeTxLpiTimer = "eee-tx-lpi-timer", EEE, "20us":
        time("us", SECOND_US)
            .rounding(Rounding::Quarter)
            .disruptive(PER_OPEN)
            .group(Group::Link)
            .negotiated(),
    /// the NIC checks checksums of received packets
    RxChecksum = "rx-checksum", "ethtool netlink feature rx-checksum", "off":
        offload().resets_link(),
    /// the NIC computes checksums of sent packets
    TxChecksum = "tx-checksum",
        "ethtool netlink feature tx-checksum-ip-generic, or -ipv4 and -ipv6", "off":
        offload(),
    /// give the NIC packets in pieces; without it there is no gso and no tso
    Sg = "sg", "ethtool netlink feature tx-scatter-gather", "off": offload(),
    // Seen on veth, kernel 6.18: the NAPI is created anew and its own values are the device's again.
    /// join received packets of a flow before the stack sees them
    Gro = "gro", "ethtool netlink feature rx-gro", "off": offload().resets(PER_NAPI),
    /// cut large packets in software, as late as possible
    Gso = "gso", "ethtool netlink feature tx-generic-segmentation", "off":
        offload().needs(&[Knob::Sg]),
    /// let the NIC cut large TCP packets
    Tso = "tso", "ethtool netlink feature tx-tcp-segmentation and its IPv6 and ECN kin", "off":
        offload().needs(&[Knob::Sg, Knob::TxChecksum]),
    /// let the NIC cut large UDP packets
    TxUdpSegmentation = "tx-udp-segmentation", "ethtool netlink feature tx-udp-segmentation", "off":
        offload().needs(&[Knob::TxChecksum]),
    /// let the driver join received packets; breaks forwarding
    Lro = "lro", "ethtool netlink feature rx-lro", "off": offload().resets_link(),
    /// let the NIC join received packets as GRO would
    RxGroHw = "rx-gro-hw", "ethtool netlink feature rx-gro-hw", "off":
        offload().needs(&[Knob::RxChecksum]).resets_link(),
    /// keep the packets of a flow as a list when joining them
    RxGroList = "rx-gro-list", "ethtool netlink feature rx-gro-list", "off": offload(),
    /// join received UDP packets that are forwarded
    RxUdpGroForwarding = "rx-udp-gro-forwarding",
        "ethtool netlink feature rx-udp-gro-forwarding", "off":
        offload(),
    /// let the NIC give each packet's flow hash
    RxHashing = "rx-hashing", "ethtool netlink feature rx-hashing", "off": offload().resets_link(),
    /// let the NIC steer chosen flows to queues
    RxNtuple = "rx-ntuple", "ethtool netlink feature rx-ntuple-filter", "off": offload(),
    /// let the NIC take VLAN tags off
    RxVlan = "rx-vlan", "ethtool netlink feature rx-vlan-hw-parse", "off": offload().resets_link(),
    /// let the NIC put VLAN tags on
    TxVlan = "tx-vlan", "ethtool netlink feature tx-vlan-hw-insert", "off":
        offload().resets_link(),
    /// copy sent data past the CPU's cache
    TxNocacheCopy = "tx-nocache-copy", "ethtool netlink feature tx-nocache-copy", "off": offload(),
    // `netif_set_gso_max_size` and its kin in `net/core/dev.h` set the sizes of IPv4 too, up to 64 KiB.
    /// largest packet that the stack hands on to be cut (BIG TCP above 64 KiB)
    GsoMaxSize = "gso-max-size", "rtnetlink IFLA_GSO_MAX_SIZE", "65536":
        joined_size().resets(&[Knob::GsoIpv4MaxSize]),
    /// the same for IPv4
    GsoIpv4MaxSize = "gso-ipv4-max-size", "rtnetlink IFLA_GSO_IPV4_MAX_SIZE", "65536":
        joined_size(),
    /// largest packet that GRO joins (BIG TCP above 64 KiB)
    GroMaxSize = "gro-max-size", "rtnetlink IFLA_GRO_MAX_SIZE", "65536":
        joined_size().resets(&[Knob::GroIpv4MaxSize]),
    /// the same for IPv4
    GroIpv4MaxSize = "gro-ipv4-max-size", "rtnetlink IFLA_GRO_IPV4_MAX_SIZE", "65536":
        joined_size(),
    // The kernel takes any u32, and allocates rings of that many pointers for each pfifo_fast band.
    /// packets that the default queue discipline may hold
    Txqueuelen = "txqueuelen", "rtnetlink IFLA_TXQLEN", "1000":
        count("packet", 1_000_000).group(Group::Queueing),
    /// the queue discipline that packets pass on their way out
    Qdisc = "qdisc", "rtnetlink QDISC at the root", "fq_codel limit=10240 target=5ms":
        plain(ValueKind::Qdisc).tier(Tier::Brief).resets(&[Knob::QueueQdisc]).group(Group::Queueing),
    /// the same of each transmit queue, where `qdisc` is `mq`
    QueueQdisc = "queue-qdisc", "rtnetlink QDISC under mq", "fq":
        plain(ValueKind::Qdisc).tier(Tier::Brief).hangs_on(&[Knob::Qdisc]).group(Group::Queueing),
    /// bytes that a transmit queue of the NIC may always hold (BQL)
    BqlLimitMin = "bql-limit-min", "sysfs queues/tx-N/byte_queue_limits/limit_min", "0":
        count(BYTE, 1_879_048_192).group(Group::Queueing),
    /// bytes that a transmit queue of the NIC may hold at most (BQL)
    BqlLimitMax = "bql-limit-max", "sysfs queues/tx-N/byte_queue_limits/limit_max", "30000":
        count(BYTE, 1_879_048_192).group(Group::Queueing),
    /// receive queues over which the NIC spreads flows by their hash
    RssTable = "rss-table", "ethtool netlink RSS", "equal 4":
        plain(ValueKind::Table).tier(Tier::Brief).group(Group::Steering),
    /// CPUs that may take an interrupt of the interface; irqbalance overwrites it
    SmpAffinity = "smp-affinity", "/proc/irq/N/smp_affinity_list", "0":
        cpus().named(Named::Hint).group(Group::Steering),
    /// CPUs that take over received packets of a queue
    RpsCpus = "rps-cpus", "sysfs queues/rx-N/rps_cpus", "0-3": cpus().group(Group::Steering),
    /// flows that a receive queue remembers for RFS; 0 is off
    RpsFlowCnt = "rps-flow-cnt", "sysfs queues/rx-N/rps_flow_cnt", "4096":
        // The kernel would take 2^30, and 12 GiB for each queue.
        count("flow", 1 << 20).rounding(Rounding::PowerOfTwo).group(Group::Steering),
    /// CPUs that send through a transmit queue
    XpsCpus = "xps-cpus", "sysfs queues/tx-N/xps_cpus", "0-3": cpus().group(Group::Steering),
    /// receive queues whose flows are answered through a transmit queue
    XpsRxqs = "xps-rxqs", "sysfs queues/tx-N/xps_rxqs", "0":
        KnobSpec { unit: "receive queue", ..cpus() }.group(Group::Steering),
    /// flows that the host remembers for RFS; 0 is off
    RpsSockFlowEntries = "rps-sock-flow-entries", "sysctl net.core.rps_sock_flow_entries", "32768":
        // The kernel would take 2^29, and 2 GiB.
        count("flow", 1 << 24).host_wide().rounding(Rounding::PowerOfTwo),
    /// how long poll and select spin on the device before they sleep
    BusyPoll = "busy-poll", "sysctl net.core.busy_poll", "50us": time("us", SECOND_US).host_wide(),
    /// how long a blocking read spins on the device; new sockets take it
    BusyRead = "busy-read", "sysctl net.core.busy_read", "50us":
        time("us", SECOND_US).host_wide().for_new_sockets(),
    /// packets of one round of the receive softirq
    NetdevBudget = "netdev-budget", "sysctl net.core.netdev_budget", "300":
        count("packet", 1_000_000).host_wide(),
    /// time of one round of the receive softirq
    NetdevBudgetUsecs = "netdev-budget-usecs", "sysctl net.core.netdev_budget_usecs", "2000us":
        time("us", SECOND_US).host_wide(),
    /// packets of one poll of a CPU's backlog
    DevWeight = "dev-weight", "sysctl net.core.dev_weight", "64":
        count("packet", 1_000_000).min(1).host_wide(),
    /// packets that a CPU's backlog holds before it drops
    NetdevMaxBacklog = "netdev-max-backlog", "sysctl net.core.netdev_max_backlog", "1000":
        count("packet", 10_000_000).host_wide(),
    // `SOCK_MIN_RCVBUF` and `SOCK_MIN_SNDBUF` are the least that the kernel takes.
    /// largest receive buffer that a program may ask for by itself
    RmemMax = "rmem-max", "sysctl net.core.rmem_max", "4194304":
        count(BYTE, i32::MAX as u64).min(4096).host_wide().for_new_sockets(),
    /// largest send buffer that a program may ask for by itself
    WmemMax = "wmem-max", "sysctl net.core.wmem_max", "4194304":
        count(BYTE, i32::MAX as u64).min(8192).host_wide().for_new_sockets(),
    /// receive buffer of a TCP socket: smallest, first, largest
    TcpRmem = "tcp-rmem", "sysctl net.ipv4.tcp_rmem", "4096 131072 6291456":
        // The scale of a connection's window is chosen when it is opened.
        buffer_sizes().for_new_sockets(),
    /// send buffer of a TCP socket: smallest, first, largest
    TcpWmem = "tcp-wmem", "sysctl net.ipv4.tcp_wmem", "4096 16384 4194304": buffer_sizes(),
    /// bytes not yet sent from which on a TCP socket takes no more
    TcpNotsentLowat = "tcp-notsent-lowat", "sysctl net.ipv4.tcp_notsent_lowat", "131072":
        count(BYTE, u32::MAX as u64).host_wide(),
    /// bytes of a TCP socket that may wait in queue disciplines and the NIC
    TcpLimitOutputBytes = "tcp-limit-output-bytes", "sysctl net.ipv4.tcp_limit_output_bytes",
        "4194304": count(BYTE, i32::MAX as u64).min(1).host_wide(),
    /// put small writes together while earlier packets wait to leave
    TcpAutocorking = "tcp-autocorking", "sysctl net.ipv4.tcp_autocorking", "off":
        switch().host_wide(),
    /// congestion control of new TCP sockets
    TcpCongestionControl = "tcp-congestion-control", "sysctl net.ipv4.tcp_congestion_control",
        "cubic": plain(ValueKind::Module).host_wide().for_new_sockets(),
    /// queue discipline of new interfaces
    DefaultQdisc = "default-qdisc", "sysctl net.core.default_qdisc", "fq":
        plain(ValueKind::Module).host_wide(),
    // mlx5 writes its own delays when one of these four toggles (`mlx5e_reset_rx_moderation`).
    /// the driver moves the receive delay itself and overrules rx-usecs
    AdaptiveRx = "adaptive-rx", COALESCE, "off": coalescing_switch().resets(RX_DELAY),
    /// the driver moves the transmit delay itself and overrules tx-usecs
    AdaptiveTx = "adaptive-tx", COALESCE, "off": coalescing_switch().resets(TX_DELAY),
    /// the receive timer starts anew with each completion
    CqeModeRx = "cqe-mode-rx", COALESCE, "off": coalescing_switch().resets(RX_DELAY),
    /// the transmit timer starts anew with each completion
    CqeModeTx = "cqe-mode-tx", COALESCE, "off": coalescing_switch().resets(TX_DELAY),
    /// receive interrupt: delay; small values are modes of some drivers
    RxUsecs = "rx-usecs", COALESCE, "50us": coalescing_delay().overruled_by(Knob::AdaptiveRx),
    /// receive interrupt: packets that raise it at once
    RxFrames = "rx-frames", COALESCE, "32":
        count("packet", MANY).coalescing().overruled_by(Knob::AdaptiveRx),
    /// the delay while an interrupt is being served
    RxUsecsIrq = "rx-usecs-irq", COALESCE, "50us": coalescing_delay(),
    /// the number while an interrupt is being served
    RxFramesIrq = "rx-frames-irq", COALESCE, "32": count("packet", MANY).coalescing(),
    /// completion interrupt: delay
    TxUsecs = "tx-usecs", COALESCE, "50us": coalescing_delay().overruled_by(Knob::AdaptiveTx),
    /// completion interrupt: packets that raise it at once
    TxFrames = "tx-frames", COALESCE, "32":
        count("packet", MANY).coalescing().overruled_by(Knob::AdaptiveTx),
    /// the delay while an interrupt is being served
    TxUsecsIrq = "tx-usecs-irq", COALESCE, "50us": coalescing_delay(),
    /// the number while an interrupt is being served
    TxFramesIrq = "tx-frames-irq", COALESCE, "32": count("packet", MANY).coalescing(),
    /// time between two updates of the statistics in memory
    StatsBlockUsecs = "stats-block-usecs", COALESCE, "1000us": coalescing_delay(),
    /// rate below which the -low values hold, while adaptive
    PktRateLow = "pkt-rate-low", COALESCE, "1000": count("packet/s", MANY).coalescing(),
    /// rx-usecs at low rates
    RxUsecsLow = "rx-usecs-low", COALESCE, "50us": coalescing_delay(),
    /// rx-frames at low rates
    RxFramesLow = "rx-frames-low", COALESCE, "32": count("packet", MANY).coalescing(),
    /// tx-usecs at low rates
    TxUsecsLow = "tx-usecs-low", COALESCE, "50us": coalescing_delay(),
    /// tx-frames at low rates
    TxFramesLow = "tx-frames-low", COALESCE, "32": count("packet", MANY).coalescing(),
    /// rate above which the -high values hold, while adaptive
    PktRateHigh = "pkt-rate-high", COALESCE, "100000": count("packet/s", MANY).coalescing(),
    /// rx-usecs at high rates; on ice the limit of the interrupt rate
    RxUsecsHigh = "rx-usecs-high", COALESCE, "50us": coalescing_delay(),
    /// rx-frames at high rates
    RxFramesHigh = "rx-frames-high", COALESCE, "32": count("packet", MANY).coalescing(),
    /// tx-usecs at high rates
    TxUsecsHigh = "tx-usecs-high", COALESCE, "50us": coalescing_delay(),
    /// tx-frames at high rates
    TxFramesHigh = "tx-frames-high", COALESCE, "32": count("packet", MANY).coalescing(),
    /// how often the packet rate is sampled, while adaptive
    SampleInterval = "sample-interval", COALESCE, "1s": time("s", 3600).group(Group::Coalescing),
    /// most bytes of an aggregate of sent packets
    TxAggrMaxBytes = "tx-aggr-max-bytes", COALESCE, "4096": count(BYTE, MANY).coalescing(),
    /// most packets of an aggregate of sent packets
    TxAggrMaxFrames = "tx-aggr-max-frames", COALESCE, "8": count("packet", MANY).coalescing(),
    /// longest wait for an aggregate of sent packets
    TxAggrTimeUsecs = "tx-aggr-time-usecs", COALESCE, "50us": coalescing_delay(),
    /// points between which adaptive-rx moves (DIM)
    RxProfile = "rx-profile", COALESCE, "1,256 8,256 64,256 128,256 256,256":
        plain(ValueKind::Profile).tier(Tier::Brief).group(Group::Coalescing),
    /// points between which adaptive-tx moves (DIM)
    TxProfile = "tx-profile", COALESCE, "1,128 8,128 32,128 64,128 128,128":
        plain(ValueKind::Profile).tier(Tier::Brief).group(Group::Coalescing),
    /// poll in a kernel thread instead of a softirq
    Threaded = "threaded", "netdev netlink NAPI threaded, or sysfs threaded", "on":
        switch().tier(Tier::Brief).group(Group::Napi),
    // Above S32_MAX kernels answer ERANGE, or wrapped to a negative number before CVE-2024-50018.
    /// empty polls before the interrupt is unmasked again
    NapiDeferHardIrqs = "napi-defer-hard-irqs",
        "netdev netlink NAPI defer-hard-irqs, or sysfs napi_defer_hard_irqs", "100":
        count("poll", i32::MAX as u64).group(Group::Napi),
    // The kernel takes any 64-bit number; a longer timer would only stall the interface.
    /// delay before a deferred NAPI polls and GRO passes on what it holds; 0 is off
    GroFlushTimeout = "gro-flush-timeout",
        "netdev netlink NAPI gro-flush-timeout, or sysfs gro_flush_timeout", "50us":
        time("ns", 1_000_000_000).group(Group::Napi),
    /// how long interrupts stay off while an application busy-polls; 0 is off
    IrqSuspendTimeout = "irq-suspend-timeout", "netdev netlink NAPI irq-suspend-timeout", "20ms":
        time("ns", 1_000_000_000).group(Group::Napi),
}

const DRIVER_PARAMETER: &str = "driver parameter";
const CHANNELS: &str = "ethtool netlink CHANNELS";
const RINGS: &str = "ethtool netlink RINGS";
const COALESCE: &str = "ethtool netlink COALESCE";
const PAUSE: &str = "ethtool netlink PAUSE";
const EEE: &str = "ethtool netlink EEE";

/// The values that some drivers set anew when the way of moderating changes.
const RX_DELAY: &[Knob] = &[Knob::RxUsecs, Knob::RxFrames];
const TX_DELAY: &[Knob] = &[Knob::TxUsecs, Knob::TxFrames];

/// The values that belong to a NAPI instance, and so are lost with it.
const PER_NAPI: &[Knob] =
    &[Knob::Threaded, Knob::NapiDeferHardIrqs, Knob::GroFlushTimeout, Knob::IrqSuspendTimeout];

/// The values that are lost where a driver closes and opens its queues: it makes the NAPIs anew and asks for its
/// interrupts again.
const PER_OPEN: &[Knob] = &[
    Knob::SmpAffinity,
    Knob::XpsCpus,
    Knob::Threaded,
    Knob::NapiDeferHardIrqs,
    Knob::GroFlushTimeout,
    Knob::IrqSuspendTimeout,
];

impl Knob {
    /// Whether its values are lost where a driver closes and opens its queues, as with the link down and up.
    pub fn is_lost_at_open(self) -> bool {
        PER_OPEN.contains(&self)
    }

    /// Whether a write of it moves values of other interfaces along ([`Place::Linked`](crate::Place::Linked)).
    pub const fn moves_linked(self) -> bool {
        matches!(self, Self::Mtu)
    }
}

/// The values that belong to a queue or its interrupt: another number of channels makes new ones.
const PER_QUEUE: &[Knob] = &[
    Knob::QueueQdisc,
    Knob::BqlLimitMin,
    Knob::BqlLimitMax,
    Knob::RssTable,
    Knob::SmpAffinity,
    Knob::RpsCpus,
    Knob::RpsFlowCnt,
    Knob::XpsCpus,
    Knob::XpsRxqs,
    Knob::RxUsecs,
    Knob::RxFrames,
    Knob::TxUsecs,
    Knob::TxFrames,
    Knob::Threaded,
    Knob::NapiDeferHardIrqs,
    Knob::GroFlushTimeout,
    Knob::IrqSuspendTimeout,
];

/// Larger than any ring, budget or table that a kernel takes; what it refuses it says.
const MANY: u64 = 1 << 24;

/// The longest coalescing delay that latput sets, in microseconds: a second.
const SECOND_US: u64 = 1_000_000;

const fn count(unit: &'static str, max: u64) -> KnobSpec {
    KnobSpec { unit, max, ..plain(ValueKind::Count) }
}

const fn time(unit: &'static str, max: u64) -> KnobSpec {
    KnobSpec { unit, max, ..plain(ValueKind::Time) }
}

/// A size of joined packets: at most `GSO_MAX_SIZE`, at least more than headers (`MAX_TCP_HEADER`).
const fn joined_size() -> KnobSpec {
    count(BYTE, 8 * 65_535).min(2048).group(Group::Offloads)
}

const fn buffer_sizes() -> KnobSpec {
    KnobSpec { unit: BYTE, min: 1, max: i32::MAX as u64, ..plain(ValueKind::Sizes) }.host_wide()
}

const fn switch() -> KnobSpec {
    plain(ValueKind::Switch)
}

const fn cpus() -> KnobSpec {
    KnobSpec { unit: "CPU", max: cpu::MAX_CPU as u64, ..plain(ValueKind::Cpus) }
}

/// A parameter of Intel's gigabit drivers (`drivers/net/ethernet/intel/e1000*/`).
const fn load_time(unit: &'static str, parameter: &'static str) -> KnobSpec {
    let parameter = Some(parameter);
    KnobSpec { module_parameter: parameter, ..count(unit, 100_000) }
        .tier(Tier::Reload)
        .group(Group::LoadTime)
}

const fn channels() -> KnobSpec {
    count("channel", MANY).disruptive(PER_QUEUE).named(Named::Max).group(Group::Queues)
}

const fn ring() -> KnobSpec {
    count("descriptor", MANY)
        .rounding(Rounding::PowerOfTwo)
        .disruptive(PER_OPEN)
        .named(Named::Max)
        .group(Group::Queues)
}

const fn link_switch() -> KnobSpec {
    switch().disruptive(PER_OPEN).group(Group::Link)
}

const fn offload() -> KnobSpec {
    switch().tier(Tier::Brief).group(Group::Offloads)
}

const fn coalescing_switch() -> KnobSpec {
    switch().tier(Tier::Brief).group(Group::Coalescing)
}

const fn coalescing_delay() -> KnobSpec {
    time("us", SECOND_US).coalescing()
}

/// Parts of a row, so that each names only what is special about it.
impl KnobSpec {
    const fn min(mut self, min: u64) -> Self {
        self.min = min;
        self
    }

    const fn rounding(mut self, rounding: Rounding) -> Self {
        self.rounding = rounding;
        self
    }

    const fn named(mut self, named: Named) -> Self {
        self.named = Some(named);
        self
    }

    const fn tier(mut self, tier: Tier) -> Self {
        self.tier = tier;
        self
    }

    const fn group(mut self, group: Group) -> Self {
        self.group = group;
        self
    }

    const fn resets(mut self, resets: &'static [Knob]) -> Self {
        self.resets = resets;
        self
    }

    const fn hangs_on(mut self, knobs: &'static [Knob]) -> Self {
        self.hangs_on = knobs;
        self
    }

    const fn needs(mut self, switches: &'static [Knob]) -> Self {
        self.needs = switches;
        self
    }

    const fn resets_link(mut self) -> Self {
        self.resets_link = true;
        self.resets(PER_OPEN)
    }

    const fn disruptive(mut self, resets: &'static [Knob]) -> Self {
        self.resets_link = true;
        self.resets(resets).tier(Tier::Disruptive)
    }

    const fn negotiated(mut self) -> Self {
        self.is_negotiated = true;
        self
    }

    const fn overruled_by(mut self, adaptive: Knob) -> Self {
        self.overruled_by = Some(adaptive);
        self
    }

    const fn coalescing(self) -> Self {
        self.rounding(Rounding::Quarter).group(Group::Coalescing)
    }

    const fn for_new_sockets(self) -> Self {
        Self { is_for_new_sockets: true, ..self }
    }

    const fn host_wide(mut self) -> Self {
        self.scope = Scope::Host;
        self.group(Group::Host)
    }
}
