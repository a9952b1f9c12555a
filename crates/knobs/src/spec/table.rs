//! The entries of the catalogue, in the order of [`Knob::ALL`].

use latput_units::cpu;

use super::{Group, KnobSpec, Rounding, Scope, Tier, ValueKind};
use crate::catalogue::Knob;
use crate::value::Named;

/// All entries, by group.
pub(super) const TABLES: [&[KnobSpec]; 9] =
    [LOAD_TIME, QUEUES, LINK, OFFLOADS, QUEUEING, STEERING, HOST, COALESCING, NAPI];

/// The values that belong to a NAPI instance, and so are lost with it.
const PER_NAPI: &[Knob] =
    &[Knob::Threaded, Knob::NapiDeferHardIrqs, Knob::GroFlushTimeout, Knob::IrqSuspendTimeout];

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

const LOAD_TIME: &[KnobSpec] = &[
    count(Knob::InterruptThrottleRate, "interrupt/s", 100_000)
        .lives("driver parameter")
        .doc("interrupts a second; 0 off, 1 dynamic, 3 conservative, 4 simplified", "3")
        .tier(Tier::Reload)
        .group(Group::LoadTime),
    count(Knob::RxIntDelay, "1.024us unit", 100_000)
        .lives("driver parameter")
        .doc("receive timer that each packet starts anew; not 0 may hang old NICs", "0")
        .tier(Tier::Reload)
        .group(Group::LoadTime),
    count(Knob::RxAbsIntDelay, "1.024us unit", 100_000)
        .lives("driver parameter")
        .doc("longest wait of a received packet", "8")
        .tier(Tier::Reload)
        .group(Group::LoadTime),
    count(Knob::TxIntDelay, "1.024us unit", 100_000)
        .lives("driver parameter")
        .doc("transmit timer that each packet starts anew", "8")
        .tier(Tier::Reload)
        .group(Group::LoadTime),
    count(Knob::TxAbsIntDelay, "1.024us unit", 100_000)
        .lives("driver parameter")
        .doc("longest wait of a sent packet's completion", "32")
        .tier(Tier::Reload)
        .group(Group::LoadTime),
];

const QUEUES: &[KnobSpec] = &[
    count(Knob::CombinedChannels, "channel", MANY)
        .lives("ethtool netlink CHANNELS")
        .doc("queue pairs, each with one interrupt", "4")
        .disruptive(PER_QUEUE)
        .named(Named::Max)
        .group(Group::Queues),
    count(Knob::RxChannels, "channel", MANY)
        .lives("ethtool netlink CHANNELS")
        .doc("receive-only queues", "4")
        .disruptive(PER_QUEUE)
        .named(Named::Max)
        .group(Group::Queues),
    count(Knob::TxChannels, "channel", MANY)
        .lives("ethtool netlink CHANNELS")
        .doc("transmit-only queues", "4")
        .disruptive(PER_QUEUE)
        .named(Named::Max)
        .group(Group::Queues),
    count(Knob::RxRing, "descriptor", MANY)
        .lives("ethtool netlink RINGS")
        .doc("packets that the NIC may hold before the host has read them", "256")
        .rounding(Rounding::PowerOfTwo)
        .disruptive(PER_NAPI)
        .named(Named::Max)
        .group(Group::Queues),
    count(Knob::TxRing, "descriptor", MANY)
        .lives("ethtool netlink RINGS")
        .doc("packets that the host may give the NIC ahead", "256")
        .rounding(Rounding::PowerOfTwo)
        .disruptive(PER_NAPI)
        .named(Named::Max)
        .group(Group::Queues),
    count(Knob::RxMiniRing, "descriptor", MANY)
        .lives("ethtool netlink RINGS")
        .doc("the same for a ring of small buffers", "256")
        .rounding(Rounding::PowerOfTwo)
        .disruptive(PER_NAPI)
        .named(Named::Max)
        .group(Group::Queues),
    count(Knob::RxJumboRing, "descriptor", MANY)
        .lives("ethtool netlink RINGS")
        .doc("the same for a ring of large buffers", "256")
        .rounding(Rounding::PowerOfTwo)
        .disruptive(PER_NAPI)
        .named(Named::Max)
        .group(Group::Queues),
    count(Knob::RxBufLen, "byte", MANY)
        .lives("ethtool netlink RINGS")
        .doc("size of a receive buffer", "2048")
        .disruptive(PER_NAPI)
        .group(Group::Queues),
    count(Knob::CqeSize, "byte", MANY)
        .lives("ethtool netlink RINGS")
        .doc("size of a completion queue entry", "64")
        .disruptive(PER_NAPI)
        .group(Group::Queues),
    switch(Knob::TxPush)
        .lives("ethtool netlink RINGS")
        .doc("push descriptors to the NIC instead of letting it fetch them", "off")
        .disruptive(PER_NAPI)
        .group(Group::Queues),
    switch(Knob::RxPush)
        .lives("ethtool netlink RINGS")
        .doc("the same for receive descriptors", "off")
        .disruptive(PER_NAPI)
        .group(Group::Queues),
    count(Knob::TxPushBufLen, "byte", MANY)
        .lives("ethtool netlink RINGS")
        .doc("how much of a packet may be pushed with its descriptor", "96")
        .disruptive(PER_NAPI)
        .group(Group::Queues),
];

const LINK: &[KnobSpec] = &[
    count(Knob::Mtu, "byte", 65_536)
        // IPv4 would allow 68, but below 1280 (RFC 8200, section 5) the kernel removes the
        // interface's IPv6 addresses, and no checkpoint brings those back. The largest is the
        // loopback interface's; IFLA_MAX_MTU of others is less.
        .min(1280)
        .lives("rtnetlink IFLA_MTU")
        .doc("largest packet of the interface", "1500")
        // Many drivers close and open their queues for a new MTU.
        .disruptive(PER_NAPI)
        .group(Group::Link),
    switch(Knob::PauseAutoneg)
        .lives("ethtool netlink PAUSE")
        .doc("negotiate flow control (802.3x) with the other end", "on")
        .disruptive(PER_NAPI)
        .group(Group::Link),
    switch(Knob::PauseRx)
        .lives("ethtool netlink PAUSE")
        .doc("obey PAUSE frames of the other end", "off")
        .disruptive(PER_NAPI)
        .group(Group::Link),
    switch(Knob::PauseTx)
        .lives("ethtool netlink PAUSE")
        .doc("send PAUSE frames when the receive buffer fills", "off")
        .disruptive(PER_NAPI)
        .group(Group::Link),
    switch(Knob::Eee)
        .lives("ethtool netlink EEE")
        .doc("Energy Efficient Ethernet (802.3az): waking costs microseconds", "off")
        .disruptive(PER_NAPI)
        .group(Group::Link),
    switch(Knob::EeeTxLpi)
        .lives("ethtool netlink EEE")
        .doc("let the transmitter sleep between packets", "off")
        .disruptive(PER_NAPI)
        .group(Group::Link),
    time(Knob::EeeTxLpiTimer, "us", SECOND_US)
        .lives("ethtool netlink EEE")
        .doc("how long the transmitter is idle before it sleeps", "20us")
        .rounding(Rounding::Quarter)
        .disruptive(PER_NAPI)
        .group(Group::Link),
];

const OFFLOADS: &[KnobSpec] = &[
    offload(Knob::RxChecksum)
        .lives("ethtool netlink feature rx-checksum")
        .doc("the NIC checks checksums of received packets", "off")
        .resets_link(),
    offload(Knob::TxChecksum)
        .lives("ethtool netlink feature tx-checksum-ip-generic, or -ipv4 and -ipv6")
        .doc("the NIC computes checksums of sent packets", "off"),
    offload(Knob::Sg)
        .lives("ethtool netlink feature tx-scatter-gather")
        .doc("give the NIC packets in pieces; without it there is no gso and no tso", "off"),
    offload(Knob::Gro)
        .lives("ethtool netlink feature rx-gro")
        .doc("join received packets of a flow before the stack sees them", "off")
        // Seen on veth, kernel 6.18: the NAPI is created anew and its own values are the device's
        // again.
        .resets(PER_NAPI),
    offload(Knob::Gso)
        .lives("ethtool netlink feature tx-generic-segmentation")
        .doc("cut large packets in software, as late as possible", "off"),
    offload(Knob::Tso)
        .lives("ethtool netlink feature tx-tcp-segmentation and its IPv6 and ECN kin")
        .doc("let the NIC cut large TCP packets", "off"),
    offload(Knob::TxUdpSegmentation)
        .lives("ethtool netlink feature tx-udp-segmentation")
        .doc("let the NIC cut large UDP packets", "off"),
    offload(Knob::Lro)
        .lives("ethtool netlink feature rx-lro")
        .doc("let the driver join received packets; breaks forwarding", "off")
        .resets_link(),
    offload(Knob::RxGroHw)
        .lives("ethtool netlink feature rx-gro-hw")
        .doc("let the NIC join received packets as GRO would", "off")
        .resets_link(),
    offload(Knob::RxGroList)
        .lives("ethtool netlink feature rx-gro-list")
        .doc("keep the packets of a flow as a list when joining them", "off"),
    offload(Knob::RxUdpGroForwarding)
        .lives("ethtool netlink feature rx-udp-gro-forwarding")
        .doc("join received UDP packets that are forwarded", "off"),
    offload(Knob::RxHashing)
        .lives("ethtool netlink feature rx-hashing")
        .doc("let the NIC give each packet's flow hash", "off")
        .resets_link(),
    offload(Knob::RxNtuple)
        .lives("ethtool netlink feature rx-ntuple-filter")
        .doc("let the NIC steer chosen flows to queues", "off"),
    offload(Knob::RxVlan)
        .lives("ethtool netlink feature rx-vlan-hw-parse")
        .doc("let the NIC take VLAN tags off", "off")
        .resets_link(),
    offload(Knob::TxVlan)
        .lives("ethtool netlink feature tx-vlan-hw-insert")
        .doc("let the NIC put VLAN tags on", "off")
        .resets_link(),
    offload(Knob::TxNocacheCopy)
        .lives("ethtool netlink feature tx-nocache-copy")
        .doc("copy sent data past the CPU's cache", "off"),
];

const QUEUEING: &[KnobSpec] = &[
    count(Knob::Txqueuelen, "packet", 1_000_000)
        // The kernel takes any u32, and allocates rings of that many pointers for each pfifo_fast
        // band.
        .lives("rtnetlink IFLA_TXQLEN")
        .doc("packets that the default queue discipline may hold", "1000")
        .group(Group::Queueing),
    plain(Knob::Qdisc, ValueKind::Qdisc)
        .lives("rtnetlink QDISC at the root")
        .doc(
            "the queue discipline that packets pass on their way out",
            "fq_codel limit=10240 target=5ms",
        )
        .tier(Tier::Brief)
        .resets(&[Knob::QueueQdisc])
        .group(Group::Queueing),
    plain(Knob::QueueQdisc, ValueKind::Qdisc)
        .lives("rtnetlink QDISC under mq")
        .doc("the same of each transmit queue, where `qdisc` is `mq`", "fq")
        .tier(Tier::Brief)
        .group(Group::Queueing),
    count(Knob::BqlLimitMin, "byte", 1_879_048_192)
        .lives("sysfs queues/tx-N/byte_queue_limits/limit_min")
        .doc("bytes that a transmit queue of the NIC may always hold (BQL)", "0")
        .group(Group::Queueing),
    count(Knob::BqlLimitMax, "byte", 1_879_048_192)
        .lives("sysfs queues/tx-N/byte_queue_limits/limit_max")
        .doc("bytes that a transmit queue of the NIC may hold at most (BQL)", "30000")
        .group(Group::Queueing),
];

const STEERING: &[KnobSpec] = &[
    plain(Knob::RssTable, ValueKind::Table)
        .lives("ethtool netlink RSS")
        .doc("receive queues over which the NIC spreads flows by their hash", "equal 4")
        .tier(Tier::Brief)
        .group(Group::Steering),
    cpus(Knob::SmpAffinity)
        .lives("/proc/irq/N/smp_affinity_list")
        .doc("CPUs that may take an interrupt of the interface; irqbalance overwrites it", "0")
        .named(Named::Hint)
        .group(Group::Steering),
    cpus(Knob::RpsCpus)
        .lives("sysfs queues/rx-N/rps_cpus")
        .doc("CPUs that take over received packets of a queue", "0-3")
        .group(Group::Steering),
    count(Knob::RpsFlowCnt, "flow", 1 << 30)
        .lives("sysfs queues/rx-N/rps_flow_cnt")
        .doc("flows that a receive queue remembers for RFS; 0 is off", "4096")
        .rounding(Rounding::PowerOfTwo)
        .group(Group::Steering),
    cpus(Knob::XpsCpus)
        .lives("sysfs queues/tx-N/xps_cpus")
        .doc("CPUs that send through a transmit queue", "0-3")
        .group(Group::Steering),
    cpus(Knob::XpsRxqs)
        .lives("sysfs queues/tx-N/xps_rxqs")
        .doc("receive queues whose flows are answered through a transmit queue", "0")
        .group(Group::Steering),
];

const HOST: &[KnobSpec] = &[
    count(Knob::RpsSockFlowEntries, "flow", 1 << 29)
        .lives("sysctl net.core.rps_sock_flow_entries")
        .doc("flows that the host remembers for RFS; 0 is off", "32768")
        .host_wide()
        .rounding(Rounding::PowerOfTwo),
    time(Knob::BusyPoll, "us", SECOND_US)
        .lives("sysctl net.core.busy_poll")
        .doc("how long poll and select spin on the device before they sleep", "50us")
        .host_wide(),
    time(Knob::BusyRead, "us", SECOND_US)
        .lives("sysctl net.core.busy_read")
        .doc("how long a blocking read spins on the device; new sockets take it", "50us")
        .host_wide(),
    count(Knob::NetdevBudget, "packet", 1_000_000)
        .lives("sysctl net.core.netdev_budget")
        .doc("packets of one round of the receive softirq", "300")
        .host_wide(),
    time(Knob::NetdevBudgetUsecs, "us", SECOND_US)
        .lives("sysctl net.core.netdev_budget_usecs")
        .doc("time of one round of the receive softirq", "2000us")
        .host_wide(),
    count(Knob::DevWeight, "packet", 1_000_000)
        .min(1)
        .lives("sysctl net.core.dev_weight")
        .doc("packets of one poll of a CPU's backlog", "64")
        .host_wide(),
    count(Knob::NetdevMaxBacklog, "packet", 10_000_000)
        .lives("sysctl net.core.netdev_max_backlog")
        .doc("packets that a CPU's backlog holds before it drops", "1000")
        .host_wide(),
];

const COALESCING: &[KnobSpec] = &[
    switch(Knob::AdaptiveRx)
        .lives("ethtool netlink COALESCE")
        .doc("the driver moves the receive delay itself and overrules rx-usecs", "off")
        .tier(Tier::Brief)
        .group(Group::Coalescing),
    switch(Knob::AdaptiveTx)
        .lives("ethtool netlink COALESCE")
        .doc("the driver moves the transmit delay itself and overrules tx-usecs", "off")
        .tier(Tier::Brief)
        .group(Group::Coalescing),
    time(Knob::RxUsecs, "us", SECOND_US)
        .lives("ethtool netlink COALESCE")
        .doc("receive interrupt: delay; small values are modes of some drivers", "50us")
        .rounding(Rounding::Quarter)
        .group(Group::Coalescing),
    count(Knob::RxFrames, "packet", MANY)
        .lives("ethtool netlink COALESCE")
        .doc("receive interrupt: packets that raise it at once", "32")
        .rounding(Rounding::Quarter)
        .group(Group::Coalescing),
    time(Knob::RxUsecsIrq, "us", SECOND_US)
        .lives("ethtool netlink COALESCE")
        .doc("the delay while an interrupt is being served", "50us")
        .rounding(Rounding::Quarter)
        .group(Group::Coalescing),
    count(Knob::RxFramesIrq, "packet", MANY)
        .lives("ethtool netlink COALESCE")
        .doc("the number while an interrupt is being served", "32")
        .rounding(Rounding::Quarter)
        .group(Group::Coalescing),
    time(Knob::TxUsecs, "us", SECOND_US)
        .lives("ethtool netlink COALESCE")
        .doc("completion interrupt: delay", "50us")
        .rounding(Rounding::Quarter)
        .group(Group::Coalescing),
    count(Knob::TxFrames, "packet", MANY)
        .lives("ethtool netlink COALESCE")
        .doc("completion interrupt: packets that raise it at once", "32")
        .rounding(Rounding::Quarter)
        .group(Group::Coalescing),
    time(Knob::TxUsecsIrq, "us", SECOND_US)
        .lives("ethtool netlink COALESCE")
        .doc("the delay while an interrupt is being served", "50us")
        .rounding(Rounding::Quarter)
        .group(Group::Coalescing),
    count(Knob::TxFramesIrq, "packet", MANY)
        .lives("ethtool netlink COALESCE")
        .doc("the number while an interrupt is being served", "32")
        .rounding(Rounding::Quarter)
        .group(Group::Coalescing),
    time(Knob::StatsBlockUsecs, "us", SECOND_US)
        .lives("ethtool netlink COALESCE")
        .doc("time between two updates of the statistics in memory", "1000us")
        .rounding(Rounding::Quarter)
        .group(Group::Coalescing),
    count(Knob::PktRateLow, "packet/s", MANY)
        .lives("ethtool netlink COALESCE")
        .doc("rate below which the -low values hold, while adaptive", "1000")
        .rounding(Rounding::Quarter)
        .group(Group::Coalescing),
    time(Knob::RxUsecsLow, "us", SECOND_US)
        .lives("ethtool netlink COALESCE")
        .doc("rx-usecs at low rates", "50us")
        .rounding(Rounding::Quarter)
        .group(Group::Coalescing),
    count(Knob::RxFramesLow, "packet", MANY)
        .lives("ethtool netlink COALESCE")
        .doc("rx-frames at low rates", "32")
        .rounding(Rounding::Quarter)
        .group(Group::Coalescing),
    time(Knob::TxUsecsLow, "us", SECOND_US)
        .lives("ethtool netlink COALESCE")
        .doc("tx-usecs at low rates", "50us")
        .rounding(Rounding::Quarter)
        .group(Group::Coalescing),
    count(Knob::TxFramesLow, "packet", MANY)
        .lives("ethtool netlink COALESCE")
        .doc("tx-frames at low rates", "32")
        .rounding(Rounding::Quarter)
        .group(Group::Coalescing),
    count(Knob::PktRateHigh, "packet/s", MANY)
        .lives("ethtool netlink COALESCE")
        .doc("rate above which the -high values hold, while adaptive", "100000")
        .rounding(Rounding::Quarter)
        .group(Group::Coalescing),
    time(Knob::RxUsecsHigh, "us", SECOND_US)
        .lives("ethtool netlink COALESCE")
        .doc("rx-usecs at high rates; on ice the limit of the interrupt rate", "50us")
        .rounding(Rounding::Quarter)
        .group(Group::Coalescing),
    count(Knob::RxFramesHigh, "packet", MANY)
        .lives("ethtool netlink COALESCE")
        .doc("rx-frames at high rates", "32")
        .rounding(Rounding::Quarter)
        .group(Group::Coalescing),
    time(Knob::TxUsecsHigh, "us", SECOND_US)
        .lives("ethtool netlink COALESCE")
        .doc("tx-usecs at high rates", "50us")
        .rounding(Rounding::Quarter)
        .group(Group::Coalescing),
    count(Knob::TxFramesHigh, "packet", MANY)
        .lives("ethtool netlink COALESCE")
        .doc("tx-frames at high rates", "32")
        .rounding(Rounding::Quarter)
        .group(Group::Coalescing),
    time(Knob::SampleInterval, "s", 3600)
        .lives("ethtool netlink COALESCE")
        .doc("how often the packet rate is sampled, while adaptive", "1s")
        .group(Group::Coalescing),
    switch(Knob::CqeModeRx)
        .lives("ethtool netlink COALESCE")
        .doc("the receive timer starts anew with each completion", "off")
        .tier(Tier::Brief)
        .group(Group::Coalescing),
    switch(Knob::CqeModeTx)
        .lives("ethtool netlink COALESCE")
        .doc("the transmit timer starts anew with each completion", "off")
        .tier(Tier::Brief)
        .group(Group::Coalescing),
    count(Knob::TxAggrMaxBytes, "byte", MANY)
        .lives("ethtool netlink COALESCE")
        .doc("most bytes of an aggregate of sent packets", "4096")
        .rounding(Rounding::Quarter)
        .group(Group::Coalescing),
    count(Knob::TxAggrMaxFrames, "packet", MANY)
        .lives("ethtool netlink COALESCE")
        .doc("most packets of an aggregate of sent packets", "8")
        .rounding(Rounding::Quarter)
        .group(Group::Coalescing),
    time(Knob::TxAggrTimeUsecs, "us", SECOND_US)
        .lives("ethtool netlink COALESCE")
        .doc("longest wait for an aggregate of sent packets", "50us")
        .rounding(Rounding::Quarter)
        .group(Group::Coalescing),
    plain(Knob::RxProfile, ValueKind::Profile)
        .lives("ethtool netlink COALESCE")
        .doc("points between which adaptive-rx moves (DIM)", "1,256 8,256 64,256 128,256 256,256")
        .tier(Tier::Brief)
        .group(Group::Coalescing),
    plain(Knob::TxProfile, ValueKind::Profile)
        .lives("ethtool netlink COALESCE")
        .doc("points between which adaptive-tx moves (DIM)", "1,128 8,128 32,128 64,128 128,128")
        .tier(Tier::Brief)
        .group(Group::Coalescing),
];

const NAPI: &[KnobSpec] = &[
    switch(Knob::Threaded)
        .lives("netdev netlink NAPI threaded, or sysfs threaded")
        .doc("poll in a kernel thread instead of a softirq", "on")
        .tier(Tier::Brief)
        .group(Group::Napi),
    count(Knob::NapiDeferHardIrqs, "poll", i32::MAX as u64)
        // Above S32_MAX kernels answer ERANGE, or wrapped to a negative number before
        // CVE-2024-50018.
        .lives("netdev netlink NAPI defer-hard-irqs, or sysfs napi_defer_hard_irqs")
        .doc("empty polls before the interrupt is unmasked again", "100")
        .group(Group::Napi),
    time(Knob::GroFlushTimeout, "ns", 1_000_000_000)
        // The kernel takes any 64-bit number; a longer timer would only stall the interface.
        .lives("netdev netlink NAPI gro-flush-timeout, or sysfs gro_flush_timeout")
        .doc("delay before a deferred NAPI polls and GRO passes on what it holds; 0 is off", "50us")
        .group(Group::Napi),
    time(Knob::IrqSuspendTimeout, "ns", 1_000_000_000)
        .lives("netdev netlink NAPI irq-suspend-timeout")
        .doc("how long interrupts stay off while an application busy-polls; 0 is off", "20ms")
        .group(Group::Napi),
];

const fn plain(knob: Knob, kind: ValueKind) -> KnobSpec {
    KnobSpec {
        knob,
        kind,
        unit: "",
        min: 0,
        max: 1,
        rounding: Rounding::None,
        named: None,
        tier: Tier::Hitless,
        resets_link: false,
        scope: Scope::Interface,
        group: Group::Link,
        resets: &[],
        lives: "",
        doc: "",
        example: "",
    }
}

const fn count(knob: Knob, unit: &'static str, max: u64) -> KnobSpec {
    KnobSpec { unit, max, ..plain(knob, ValueKind::Count) }
}

const fn time(knob: Knob, unit: &'static str, max: u64) -> KnobSpec {
    KnobSpec { unit, max, ..plain(knob, ValueKind::Time) }
}

const fn switch(knob: Knob) -> KnobSpec {
    plain(knob, ValueKind::Switch)
}

const fn cpus(knob: Knob) -> KnobSpec {
    KnobSpec { unit: "CPU", max: cpu::MAX_CPU as u64, ..plain(knob, ValueKind::Cpus) }
}

const fn offload(knob: Knob) -> KnobSpec {
    switch(knob).tier(Tier::Brief).group(Group::Offloads)
}

/// Parts of an entry, so that each names only what is special about it.
impl KnobSpec {
    const fn min(mut self, min: u64) -> Self {
        self.min = min;
        self
    }

    const fn lives(mut self, lives: &'static str) -> Self {
        self.lives = lives;
        self
    }

    const fn doc(mut self, doc: &'static str, example: &'static str) -> Self {
        self.doc = doc;
        self.example = example;
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

    const fn resets_link(mut self) -> Self {
        self.resets_link = true;
        self.resets = PER_NAPI;
        self
    }

    const fn disruptive(mut self, resets: &'static [Knob]) -> Self {
        self.resets_link = true;
        self.resets(resets).tier(Tier::Disruptive)
    }

    const fn host_wide(mut self) -> Self {
        self.scope = Scope::Host;
        self.group(Group::Host)
    }
}
