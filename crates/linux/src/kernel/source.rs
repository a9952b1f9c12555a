//! Where the kernel keeps each knob.

use latput_knobs::Knob;

use crate::ethtool::ioctl::QueueField;
use crate::ethtool::parameters::{Table, Width};
use crate::netlink::uapi;

use Direction::{Rx, Tx};

/// Where a knob is read and written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// `IFLA_MTU`.
    Mtu,
    /// `IFLA_TXQLEN`.
    Txqueuelen,
    /// The largest size of joined packets, by its attribute (`IFLA_GSO_MAX_SIZE`).
    JoinedSize(u16),
    /// Offload features that one switch stands for.
    Features(&'static [&'static str]),
    /// A number in one of ethtool's tables.
    Number(Number),
    /// A moderation profile in the coalescing table.
    Profile(u16),
    /// A sysctl, of the name that the catalogue gives.
    Sysctl,
    /// A file of each queue.
    Queue(QueueFile),
    /// The root queue discipline.
    Qdisc,
    /// The queue disciplines under `mq`.
    QueueQdisc,
    /// The RSS indirection table.
    RssTable,
    /// `/proc/irq/N/smp_affinity_list`.
    Affinity,
    /// `threaded`.
    Threaded,
    /// A value of each NAPI.
    Napi(NapiField),
    /// A parameter that a driver reads when it is loaded.
    LoadTime,
}

/// A number in one of ethtool's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Number {
    pub(super) table: Table,
    pub(super) attribute: u16,
    pub(super) width: Width,
    /// The attribute that holds the largest value.
    pub(super) max: Option<u16>,
    /// The field of the per-queue ioctl, and whether it is one of receive queues.
    pub(super) per_queue: Option<(QueueField, Direction)>,
}

/// Which way the packets of a queue go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Rx,
    Tx,
}

impl Direction {
    /// The prefix of the names of its queues' folders.
    pub(super) const fn prefix(self) -> &'static str {
        match self {
            Self::Rx => "rx-",
            Self::Tx => "tx-",
        }
    }

    /// The attribute of the coalescing table that says whether the driver adapts this direction.
    pub(super) const fn adaptive(self) -> u16 {
        match self {
            Self::Rx => uapi::ETHTOOL_A_COALESCE_USE_ADAPTIVE_RX,
            Self::Tx => uapi::ETHTOOL_A_COALESCE_USE_ADAPTIVE_TX,
        }
    }
}

/// A file of each queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct QueueFile {
    pub(super) direction: Direction,
    pub(super) name: &'static str,
}

/// A value of each NAPI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NapiField {
    DeferHardIrqs,
    GroFlushTimeout,
    IrqSuspendTimeout,
}

/// `tso` sets these two. Their kin (`tx-tcp-ecn-segmentation`, `tx-tcp-mangleid-segmentation`) follow
/// by themselves: the kernel holds them back while these are off, remembers what was wanted of them,
/// and lets them come back (`netdev_fix_features`, `net/core/dev.c`), so nothing of them is lost.
const TSO: &[&str] = &["tx-tcp-segmentation", "tx-tcp6-segmentation"];
/// A driver has the first, or the other two (`NETIF_F_CSUM_MASK`).
const TX_CHECKSUM: &[&str] = &["tx-checksum-ip-generic", "tx-checksum-ipv4", "tx-checksum-ipv6"];

const fn field(table: Table, attribute: u16, width: Width) -> Number {
    Number { table, attribute, width, max: None, per_queue: None }
}

const fn number(table: Table, attribute: u16) -> Source {
    Source::Number(field(table, attribute, Width::U32))
}

const fn switch(table: Table, attribute: u16) -> Source {
    Source::Number(field(table, attribute, Width::U8))
}

const fn limited(table: Table, attribute: u16, max: u16) -> Source {
    Source::Number(Number { max: Some(max), ..field(table, attribute, Width::U32) })
}

const fn queued(attribute: u16, queue: QueueField, direction: Direction) -> Source {
    let of_device = field(Table::Coalesce, attribute, Width::U32);
    Source::Number(Number { per_queue: Some((queue, direction)), ..of_device })
}

const fn queue_file(direction: Direction, name: &'static str) -> Source {
    Source::Queue(QueueFile { direction, name })
}

/// A row to a knob; the compiler tells of a knob without one.
macro_rules! sources {
    ($($knob:ident => $source:expr,)*) => {
        /// Where `knob` is.
        pub(super) const fn source_of(knob: Knob) -> Source {
            match knob {
                $(Knob::$knob => $source,)*
            }
        }
    };
}

sources! {
    InterruptThrottleRate => Source::LoadTime,
    RxIntDelay => Source::LoadTime,
    RxAbsIntDelay => Source::LoadTime,
    TxIntDelay => Source::LoadTime,
    TxAbsIntDelay => Source::LoadTime,
    CombinedChannels => limited(
        Table::Channels,
        uapi::ETHTOOL_A_CHANNELS_COMBINED_COUNT,
        uapi::ETHTOOL_A_CHANNELS_COMBINED_MAX,
    ),
    RxChannels => limited(
        Table::Channels,
        uapi::ETHTOOL_A_CHANNELS_RX_COUNT,
        uapi::ETHTOOL_A_CHANNELS_RX_MAX,
    ),
    TxChannels => limited(
        Table::Channels,
        uapi::ETHTOOL_A_CHANNELS_TX_COUNT,
        uapi::ETHTOOL_A_CHANNELS_TX_MAX,
    ),
    RxRing => limited(Table::Rings, uapi::ETHTOOL_A_RINGS_RX, uapi::ETHTOOL_A_RINGS_RX_MAX),
    TxRing => limited(Table::Rings, uapi::ETHTOOL_A_RINGS_TX, uapi::ETHTOOL_A_RINGS_TX_MAX),
    RxMiniRing =>
        limited(Table::Rings, uapi::ETHTOOL_A_RINGS_RX_MINI, uapi::ETHTOOL_A_RINGS_RX_MINI_MAX),
    RxJumboRing =>
        limited(Table::Rings, uapi::ETHTOOL_A_RINGS_RX_JUMBO, uapi::ETHTOOL_A_RINGS_RX_JUMBO_MAX),
    RxBufLen => number(Table::Rings, uapi::ETHTOOL_A_RINGS_RX_BUF_LEN),
    CqeSize => number(Table::Rings, uapi::ETHTOOL_A_RINGS_CQE_SIZE),
    TxPush => switch(Table::Rings, uapi::ETHTOOL_A_RINGS_TX_PUSH),
    RxPush => switch(Table::Rings, uapi::ETHTOOL_A_RINGS_RX_PUSH),
    TxPushBufLen => limited(
        Table::Rings,
        uapi::ETHTOOL_A_RINGS_TX_PUSH_BUF_LEN,
        uapi::ETHTOOL_A_RINGS_TX_PUSH_BUF_LEN_MAX,
    ),
    Mtu => Source::Mtu,
    PauseAutoneg => switch(Table::Pause, uapi::ETHTOOL_A_PAUSE_AUTONEG),
    PauseRx => switch(Table::Pause, uapi::ETHTOOL_A_PAUSE_RX),
    PauseTx => switch(Table::Pause, uapi::ETHTOOL_A_PAUSE_TX),
    Eee => switch(Table::Eee, uapi::ETHTOOL_A_EEE_ENABLED),
    EeeTxLpi => switch(Table::Eee, uapi::ETHTOOL_A_EEE_TX_LPI_ENABLED),
    EeeTxLpiTimer => number(Table::Eee, uapi::ETHTOOL_A_EEE_TX_LPI_TIMER),
    RxChecksum => Source::Features(&["rx-checksum"]),
    TxChecksum => Source::Features(TX_CHECKSUM),
    Sg => Source::Features(&["tx-scatter-gather"]),
    Gro => Source::Features(&["rx-gro"]),
    Gso => Source::Features(&["tx-generic-segmentation"]),
    Tso => Source::Features(TSO),
    TxUdpSegmentation => Source::Features(&["tx-udp-segmentation"]),
    Lro => Source::Features(&["rx-lro"]),
    RxGroHw => Source::Features(&["rx-gro-hw"]),
    RxGroList => Source::Features(&["rx-gro-list"]),
    RxUdpGroForwarding => Source::Features(&["rx-udp-gro-forwarding"]),
    RxHashing => Source::Features(&["rx-hashing"]),
    RxNtuple => Source::Features(&["rx-ntuple-filter"]),
    RxVlan => Source::Features(&["rx-vlan-hw-parse"]),
    TxVlan => Source::Features(&["tx-vlan-hw-insert"]),
    TxNocacheCopy => Source::Features(&["tx-nocache-copy"]),
    GsoMaxSize => Source::JoinedSize(uapi::IFLA_GSO_MAX_SIZE),
    GsoIpv4MaxSize => Source::JoinedSize(uapi::IFLA_GSO_IPV4_MAX_SIZE),
    GroMaxSize => Source::JoinedSize(uapi::IFLA_GRO_MAX_SIZE),
    GroIpv4MaxSize => Source::JoinedSize(uapi::IFLA_GRO_IPV4_MAX_SIZE),
    Txqueuelen => Source::Txqueuelen,
    Qdisc => Source::Qdisc,
    QueueQdisc => Source::QueueQdisc,
    BqlLimitMin => queue_file(Tx, "byte_queue_limits/limit_min"),
    BqlLimitMax => queue_file(Tx, "byte_queue_limits/limit_max"),
    RssTable => Source::RssTable,
    SmpAffinity => Source::Affinity,
    RpsCpus => queue_file(Rx, "rps_cpus"),
    RpsFlowCnt => queue_file(Rx, "rps_flow_cnt"),
    XpsCpus => queue_file(Tx, "xps_cpus"),
    XpsRxqs => queue_file(Tx, "xps_rxqs"),
    RpsSockFlowEntries => Source::Sysctl,
    BusyPoll => Source::Sysctl,
    BusyRead => Source::Sysctl,
    NetdevBudget => Source::Sysctl,
    NetdevBudgetUsecs => Source::Sysctl,
    DevWeight => Source::Sysctl,
    NetdevMaxBacklog => Source::Sysctl,
    RmemMax => Source::Sysctl,
    WmemMax => Source::Sysctl,
    TcpRmem => Source::Sysctl,
    TcpWmem => Source::Sysctl,
    TcpNotsentLowat => Source::Sysctl,
    TcpLimitOutputBytes => Source::Sysctl,
    TcpAutocorking => Source::Sysctl,
    TcpCongestionControl => Source::Sysctl,
    DefaultQdisc => Source::Sysctl,
    AdaptiveRx => switch(Table::Coalesce, uapi::ETHTOOL_A_COALESCE_USE_ADAPTIVE_RX),
    AdaptiveTx => switch(Table::Coalesce, uapi::ETHTOOL_A_COALESCE_USE_ADAPTIVE_TX),
    RxUsecs => queued(uapi::ETHTOOL_A_COALESCE_RX_USECS, QueueField::RxUsecs, Rx),
    RxFrames => queued(uapi::ETHTOOL_A_COALESCE_RX_MAX_FRAMES, QueueField::RxFrames, Rx),
    RxUsecsIrq => number(Table::Coalesce, uapi::ETHTOOL_A_COALESCE_RX_USECS_IRQ),
    RxFramesIrq => number(Table::Coalesce, uapi::ETHTOOL_A_COALESCE_RX_MAX_FRAMES_IRQ),
    TxUsecs => queued(uapi::ETHTOOL_A_COALESCE_TX_USECS, QueueField::TxUsecs, Tx),
    TxFrames => queued(uapi::ETHTOOL_A_COALESCE_TX_MAX_FRAMES, QueueField::TxFrames, Tx),
    TxUsecsIrq => number(Table::Coalesce, uapi::ETHTOOL_A_COALESCE_TX_USECS_IRQ),
    TxFramesIrq => number(Table::Coalesce, uapi::ETHTOOL_A_COALESCE_TX_MAX_FRAMES_IRQ),
    StatsBlockUsecs => number(Table::Coalesce, uapi::ETHTOOL_A_COALESCE_STATS_BLOCK_USECS),
    PktRateLow => number(Table::Coalesce, uapi::ETHTOOL_A_COALESCE_PKT_RATE_LOW),
    RxUsecsLow => number(Table::Coalesce, uapi::ETHTOOL_A_COALESCE_RX_USECS_LOW),
    RxFramesLow => number(Table::Coalesce, uapi::ETHTOOL_A_COALESCE_RX_MAX_FRAMES_LOW),
    TxUsecsLow => number(Table::Coalesce, uapi::ETHTOOL_A_COALESCE_TX_USECS_LOW),
    TxFramesLow => number(Table::Coalesce, uapi::ETHTOOL_A_COALESCE_TX_MAX_FRAMES_LOW),
    PktRateHigh => number(Table::Coalesce, uapi::ETHTOOL_A_COALESCE_PKT_RATE_HIGH),
    RxUsecsHigh => number(Table::Coalesce, uapi::ETHTOOL_A_COALESCE_RX_USECS_HIGH),
    RxFramesHigh => number(Table::Coalesce, uapi::ETHTOOL_A_COALESCE_RX_MAX_FRAMES_HIGH),
    TxUsecsHigh => number(Table::Coalesce, uapi::ETHTOOL_A_COALESCE_TX_USECS_HIGH),
    TxFramesHigh => number(Table::Coalesce, uapi::ETHTOOL_A_COALESCE_TX_MAX_FRAMES_HIGH),
    SampleInterval => number(Table::Coalesce, uapi::ETHTOOL_A_COALESCE_RATE_SAMPLE_INTERVAL),
    CqeModeRx => switch(Table::Coalesce, uapi::ETHTOOL_A_COALESCE_USE_CQE_MODE_RX),
    CqeModeTx => switch(Table::Coalesce, uapi::ETHTOOL_A_COALESCE_USE_CQE_MODE_TX),
    TxAggrMaxBytes => number(Table::Coalesce, uapi::ETHTOOL_A_COALESCE_TX_AGGR_MAX_BYTES),
    TxAggrMaxFrames => number(Table::Coalesce, uapi::ETHTOOL_A_COALESCE_TX_AGGR_MAX_FRAMES),
    TxAggrTimeUsecs => number(Table::Coalesce, uapi::ETHTOOL_A_COALESCE_TX_AGGR_TIME_USECS),
    RxProfile => Source::Profile(uapi::ETHTOOL_A_COALESCE_RX_PROFILE),
    TxProfile => Source::Profile(uapi::ETHTOOL_A_COALESCE_TX_PROFILE),
    Threaded => Source::Threaded,
    NapiDeferHardIrqs => Source::Napi(NapiField::DeferHardIrqs),
    GroFlushTimeout => Source::Napi(NapiField::GroFlushTimeout),
    IrqSuspendTimeout => Source::Napi(NapiField::IrqSuspendTimeout),
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_knob_has_a_source_of_its_own() {
        let sources: BTreeSet<String> = Knob::ALL
            .iter()
            .map(|knob| (source_of(*knob), knob.module_parameter(), knob.sysctl()))
            .map(|source| format!("{source:?}"))
            .collect();
        assert_eq!(sources.len(), Knob::ALL.len());
        for knob in Knob::ALL {
            let is_load_time = source_of(*knob) == Source::LoadTime;
            assert_eq!(knob.module_parameter().is_some(), is_load_time, "{knob}");
            assert_eq!(knob.sysctl().is_some(), source_of(*knob) == Source::Sysctl, "{knob}");
            assert_eq!(knob.moves_linked(), matches!(source_of(*knob), Source::Mtu), "{knob}");
        }
    }

    #[test]
    fn switches_are_one_byte_and_numbers_four() {
        use latput_knobs::ValueKind;
        for knob in Knob::ALL {
            if let Source::Number(number) = source_of(*knob) {
                let is_switch = knob.spec().kind == ValueKind::Switch;
                assert_eq!(number.width == Width::U8, is_switch, "{knob}");
            }
        }
    }
}
