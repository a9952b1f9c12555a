//! The catalogue: every knob latput knows, with the kernel's own name and unit.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Makes the type, the list and the names from one table.
macro_rules! knobs {
    ($($(#[$doc:meta])* $knob:ident = $name:literal,)*) => {
        /// One thing that can be set on a host's network path.
        ///
        /// The order is that in which changes are written: what recreates queues and NAPIs first,
        /// then offloads, queue disciplines, steering, the host's own knobs, interrupt coalescing,
        /// and per-NAPI values last.
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        #[serde(rename_all = "kebab-case")]
        pub enum Knob {
            $($(#[$doc])* $knob,)*
        }

        impl Knob {
            /// Every knob, in the order in which changes are written.
            pub const ALL: &[Self] = &[$(Self::$knob,)*];

            /// The kernel's name, as ethtool spells it.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$knob => $name,)*
                }
            }
        }
    };
}

knobs! {
    /// Interrupts a second of an Intel driver, or its mode (`InterruptThrottleRate`).
    InterruptThrottleRate = "interrupt-throttle-rate",
    /// Receive timer that each packet starts anew (`RxIntDelay`, 1.024 us units).
    RxIntDelay = "rx-int-delay",
    /// Longest wait of a received packet (`RxAbsIntDelay`, 1.024 us units).
    RxAbsIntDelay = "rx-abs-int-delay",
    /// Transmit timer that each packet starts anew (`TxIntDelay`, 1.024 us units).
    TxIntDelay = "tx-int-delay",
    /// Longest wait of a sent packet's completion (`TxAbsIntDelay`, 1.024 us units).
    TxAbsIntDelay = "tx-abs-int-delay",
    /// Queue pairs with one interrupt each (`ETHTOOL_A_CHANNELS_COMBINED_COUNT`).
    CombinedChannels = "combined-channels",
    /// Receive-only queues (`ETHTOOL_A_CHANNELS_RX_COUNT`).
    RxChannels = "rx-channels",
    /// Transmit-only queues (`ETHTOOL_A_CHANNELS_TX_COUNT`).
    TxChannels = "tx-channels",
    /// Descriptors of each receive ring (`ETHTOOL_A_RINGS_RX`).
    RxRing = "rx-ring",
    /// Descriptors of each transmit ring (`ETHTOOL_A_RINGS_TX`).
    TxRing = "tx-ring",
    /// Descriptors of the ring of small receive buffers (`ETHTOOL_A_RINGS_RX_MINI`).
    RxMiniRing = "rx-mini-ring",
    /// Descriptors of the ring of large receive buffers (`ETHTOOL_A_RINGS_RX_JUMBO`).
    RxJumboRing = "rx-jumbo-ring",
    /// Size of a receive buffer (`ETHTOOL_A_RINGS_RX_BUF_LEN`).
    RxBufLen = "rx-buf-len",
    /// Size of a completion queue entry (`ETHTOOL_A_RINGS_CQE_SIZE`).
    CqeSize = "cqe-size",
    /// Descriptors are pushed to the NIC rather than fetched by it (`ETHTOOL_A_RINGS_TX_PUSH`).
    TxPush = "tx-push",
    /// The same for receive descriptors (`ETHTOOL_A_RINGS_RX_PUSH`).
    RxPush = "rx-push",
    /// How much of a packet may be pushed (`ETHTOOL_A_RINGS_TX_PUSH_BUF_LEN`).
    TxPushBufLen = "tx-push-buf-len",
    /// Largest packet of the interface (`IFLA_MTU`).
    Mtu = "mtu",
    /// Flow control (802.3x) is negotiated with the other end.
    PauseAutoneg = "pause-autoneg",
    /// PAUSE frames of the other end are obeyed.
    PauseRx = "pause-rx",
    /// PAUSE frames are sent when the receive buffer fills.
    PauseTx = "pause-tx",
    /// Energy Efficient Ethernet (802.3az).
    Eee = "eee",
    /// The transmitter may sleep between packets.
    EeeTxLpi = "eee-tx-lpi",
    /// How long the transmitter must be idle before it sleeps.
    EeeTxLpiTimer = "eee-tx-lpi-timer",
    /// Receive checksums by the NIC.
    RxChecksum = "rx-checksum",
    /// Transmit checksums by the NIC (`tx-checksum-ip-generic`, or `-ipv4` and `-ipv6`).
    TxChecksum = "tx-checksum",
    /// Packets in several pieces (`tx-scatter-gather`).
    Sg = "sg",
    /// Generic receive offload (`rx-gro`).
    Gro = "gro",
    /// Generic segmentation offload (`tx-generic-segmentation`).
    Gso = "gso",
    /// TCP segmentation offload (`tx-tcp-segmentation` and its IPv6 and ECN kin).
    Tso = "tso",
    /// UDP segmentation by the NIC.
    TxUdpSegmentation = "tx-udp-segmentation",
    /// Large receive offload (`rx-lro`).
    Lro = "lro",
    /// Generic receive offload by the NIC.
    RxGroHw = "rx-gro-hw",
    /// GRO keeps the packets of a flow as a list.
    RxGroList = "rx-gro-list",
    /// GRO also of forwarded UDP.
    RxUdpGroForwarding = "rx-udp-gro-forwarding",
    /// The NIC gives each packet's flow hash.
    RxHashing = "rx-hashing",
    /// Flow steering filters of the NIC (`rx-ntuple-filter`).
    RxNtuple = "rx-ntuple",
    /// The NIC takes VLAN tags off (`rx-vlan-hw-parse`).
    RxVlan = "rx-vlan",
    /// The NIC puts VLAN tags on (`tx-vlan-hw-insert`).
    TxVlan = "tx-vlan",
    /// Sent data is copied past the CPU's cache.
    TxNocacheCopy = "tx-nocache-copy",
    /// Length of the transmit queue (`IFLA_TXQLEN`).
    Txqueuelen = "txqueuelen",
    /// The queue discipline of the interface, with its parameters.
    Qdisc = "qdisc",
    /// The queue discipline of each transmit queue, under `mq`.
    QueueQdisc = "queue-qdisc",
    /// Lower bound of the byte limit of a transmit queue (BQL).
    BqlLimitMin = "bql-limit-min",
    /// Upper bound of the byte limit of a transmit queue (BQL).
    BqlLimitMax = "bql-limit-max",
    /// Which receive queue each hash value goes to (RSS indirection table).
    RssTable = "rss-table",
    /// The CPUs that may take an interrupt of the interface.
    SmpAffinity = "smp-affinity",
    /// Receive packet steering: the CPUs that take over packets of a receive queue (`rps_cpus`).
    RpsCpus = "rps-cpus",
    /// Receive flow steering: flows that a receive queue remembers (`rps_flow_cnt`).
    RpsFlowCnt = "rps-flow-cnt",
    /// Transmit packet steering: the CPUs that use a transmit queue (`xps_cpus`).
    XpsCpus = "xps-cpus",
    /// Transmit packet steering by receive queue (`xps_rxqs`).
    XpsRxqs = "xps-rxqs",
    /// Receive flow steering: flows that the host remembers.
    RpsSockFlowEntries = "rps-sock-flow-entries",
    /// How long `poll` and `select` spin on the device (`net.core.busy_poll`).
    BusyPoll = "busy-poll",
    /// How long a blocking read spins on the device (`net.core.busy_read`).
    BusyRead = "busy-read",
    /// Packets of one round of the receive softirq (`net.core.netdev_budget`).
    NetdevBudget = "netdev-budget",
    /// Time of one round of the receive softirq (`net.core.netdev_budget_usecs`).
    NetdevBudgetUsecs = "netdev-budget-usecs",
    /// Packets of one poll of the backlog (`net.core.dev_weight`).
    DevWeight = "dev-weight",
    /// Packets that a CPU's backlog holds (`net.core.netdev_max_backlog`).
    NetdevMaxBacklog = "netdev-max-backlog",
    /// The driver chooses the receive moderation itself.
    AdaptiveRx = "adaptive-rx",
    /// The driver chooses the transmit moderation itself.
    AdaptiveTx = "adaptive-tx",
    /// Delay of the receive interrupt after a packet.
    RxUsecs = "rx-usecs",
    /// Packets that raise the receive interrupt before the delay is over.
    RxFrames = "rx-frames",
    /// The same delay while an interrupt is being served.
    RxUsecsIrq = "rx-usecs-irq",
    /// The same number while an interrupt is being served.
    RxFramesIrq = "rx-frames-irq",
    /// Delay of the transmit completion interrupt.
    TxUsecs = "tx-usecs",
    /// Sent packets that raise the interrupt before the delay is over.
    TxFrames = "tx-frames",
    /// The same delay while an interrupt is being served.
    TxUsecsIrq = "tx-usecs-irq",
    /// The same number while an interrupt is being served.
    TxFramesIrq = "tx-frames-irq",
    /// Time between two updates of the NIC's statistics in memory.
    StatsBlockUsecs = "stats-block-usecs",
    /// Below this rate the `-low` values hold while adaptive.
    PktRateLow = "pkt-rate-low",
    /// `rx-usecs` at low packet rates.
    RxUsecsLow = "rx-usecs-low",
    /// `rx-frames` at low packet rates.
    RxFramesLow = "rx-frames-low",
    /// `tx-usecs` at low packet rates.
    TxUsecsLow = "tx-usecs-low",
    /// `tx-frames` at low packet rates.
    TxFramesLow = "tx-frames-low",
    /// Above this rate the `-high` values hold while adaptive.
    PktRateHigh = "pkt-rate-high",
    /// `rx-usecs` at high packet rates; on `ice` the limit of the interrupt rate.
    RxUsecsHigh = "rx-usecs-high",
    /// `rx-frames` at high packet rates.
    RxFramesHigh = "rx-frames-high",
    /// `tx-usecs` at high packet rates.
    TxUsecsHigh = "tx-usecs-high",
    /// `tx-frames` at high packet rates.
    TxFramesHigh = "tx-frames-high",
    /// How often the packet rate is sampled while adaptive.
    SampleInterval = "sample-interval",
    /// The receive timer starts anew with each completion.
    CqeModeRx = "cqe-mode-rx",
    /// The transmit timer starts anew with each completion.
    CqeModeTx = "cqe-mode-tx",
    /// Most bytes of an aggregate of sent packets.
    TxAggrMaxBytes = "tx-aggr-max-bytes",
    /// Most packets of an aggregate of sent packets.
    TxAggrMaxFrames = "tx-aggr-max-frames",
    /// Longest wait for an aggregate of sent packets.
    TxAggrTimeUsecs = "tx-aggr-time-usecs",
    /// The points between which the kernel's adaptive receive moderation (DIM) moves.
    RxProfile = "rx-profile",
    /// The points between which its transmit moderation moves.
    TxProfile = "tx-profile",
    /// NAPI polls in a kernel thread instead of softirq (`threaded`).
    Threaded = "threaded",
    /// Empty polls before the interrupt is unmasked again (`napi_defer_hard_irqs`).
    NapiDeferHardIrqs = "napi-defer-hard-irqs",
    /// Delay before a deferred NAPI polls again, and before GRO passes on what it holds.
    GroFlushTimeout = "gro-flush-timeout",
    /// How long interrupts stay off while an application busy-polls (`irq-suspend-timeout`).
    IrqSuspendTimeout = "irq-suspend-timeout",
}

impl fmt::Display for Knob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name that no knob has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct UnknownKnob {
    /// What was asked for, at most 80 characters of it.
    pub name: String,
}

impl UnknownKnob {
    /// The knob that was probably meant, if one has a similar name.
    pub fn nearest(&self) -> Option<Knob> {
        // sysfs spells with underscores what netlink and we spell with hyphens.
        let name = self.name.to_lowercase().replace('_', "-");
        Knob::ALL
            .iter()
            .map(|knob| (strsim::osa_distance(&name, knob.name()), *knob))
            .filter(|(distance, knob)| *distance <= knob.name().len().div_ceil(3))
            .min()
            .map(|(_, knob)| knob)
    }
}

impl fmt::Display for UnknownKnob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no knob is called `{}`: ", self.name)?;
        if let Some(knob) = self.nearest() {
            return write!(f, "did you mean `{knob}`?");
        }
        f.write_str("`latput show IFACE --all` lists them")
    }
}

impl FromStr for Knob {
    type Err = UnknownKnob;
    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .iter()
            .copied()
            .find(|knob| knob.name() == name)
            .ok_or_else(|| UnknownKnob { name: name.chars().take(80).collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_knob_is_found_by_its_name() {
        for knob in Knob::ALL {
            assert_eq!(knob.name().parse(), Ok(*knob));
            let stored = serde_json::to_value(knob).unwrap();
            assert_eq!(stored, knob.name(), "files have the same name");
        }
    }

    #[test]
    fn changes_are_written_in_the_order_of_the_type() {
        // State and Setting are sorted by knob, and the two orders must be one.
        assert!(Knob::ALL.is_sorted());
    }

    #[test]
    fn a_misspelt_knob_gets_the_nearest_name() {
        check("mut", Some(Knob::Mtu));
        check("MTU", Some(Knob::Mtu));
        check("gro_flush_timeout", Some(Knob::GroFlushTimeout));
        check("gro-flush-time", Some(Knob::GroFlushTimeout));
        check("napi-defer-irqs", Some(Knob::NapiDeferHardIrqs));
        check("rps_cpu", Some(Knob::RpsCpus));
        check("rx_usec", Some(Knob::RxUsecs));
        check("rx-queues", None);
        check("", None);
        check(&"x".repeat(1_000_000), None);
    }

    #[track_caller]
    fn check(name: &str, nearest: Option<Knob>) {
        let error = name.parse::<Knob>().unwrap_err();
        assert_eq!(error.nearest(), nearest, "{error}");
        assert!(error.to_string().len() < 400);
    }
}
