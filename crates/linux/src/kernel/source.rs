//! Where the kernel keeps each knob.

use latput_knobs::Knob;

use crate::ethtool::ioctl::QueueField;
use crate::ethtool::parameters::{Table, Width};

/// Where a knob is read and written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// `IFLA_MTU`.
    Mtu,
    /// `IFLA_TXQLEN`.
    Txqueuelen,
    /// Offload features that one switch stands for.
    Features(&'static [&'static str]),
    /// A number in one of ethtool's tables.
    Number(Number),
    /// A moderation profile in the coalescing table.
    Profile(u16),
    /// A file under `/proc/sys/net/core`.
    Sysctl(&'static str),
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
    LoadTime(&'static str),
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
    /// What the names of its queues' folders start with.
    pub(super) const fn prefix(self) -> &'static str {
        match self {
            Self::Rx => "rx-",
            Self::Tx => "tx-",
        }
    }

    /// The attribute of the coalescing table that says whether the driver adapts this direction.
    pub(super) const fn adaptive(self) -> u16 {
        match self {
            Self::Rx => 11,
            Self::Tx => 12,
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

/// Where `knob` is. Attribute numbers: `include/uapi/linux/ethtool_netlink_generated.h`.
pub(super) const fn source_of(knob: Knob) -> Source {
    match knob {
        Knob::InterruptThrottleRate => Source::LoadTime("InterruptThrottleRate"),
        Knob::RxIntDelay => Source::LoadTime("RxIntDelay"),
        Knob::RxAbsIntDelay => Source::LoadTime("RxAbsIntDelay"),
        Knob::TxIntDelay => Source::LoadTime("TxIntDelay"),
        Knob::TxAbsIntDelay => Source::LoadTime("TxAbsIntDelay"),
        Knob::Mtu => Source::Mtu,
        Knob::Txqueuelen => Source::Txqueuelen,
        Knob::Qdisc => Source::Qdisc,
        Knob::QueueQdisc => Source::QueueQdisc,
        Knob::RssTable => Source::RssTable,
        Knob::SmpAffinity => Source::Affinity,
        Knob::Threaded => Source::Threaded,
        Knob::NapiDeferHardIrqs => Source::Napi(NapiField::DeferHardIrqs),
        Knob::GroFlushTimeout => Source::Napi(NapiField::GroFlushTimeout),
        Knob::IrqSuspendTimeout => Source::Napi(NapiField::IrqSuspendTimeout),
        Knob::RxProfile => Source::Profile(29),
        Knob::TxProfile => Source::Profile(30),
        _ => other_source(knob),
    }
}

const fn other_source(knob: Knob) -> Source {
    if let Some(features) = features_of(knob) {
        Source::Features(features)
    } else if let Some(number) = number_of(knob) {
        Source::Number(number)
    } else if let Some(file) = queue_file_of(knob) {
        Source::Queue(file)
    } else if let Some(name) = sysctl_of(knob) {
        Source::Sysctl(name)
    } else {
        panic!("a knob without a source, which a test would find")
    }
}

const fn features_of(knob: Knob) -> Option<&'static [&'static str]> {
    Some(match knob {
        Knob::RxChecksum => &["rx-checksum"],
        Knob::TxChecksum => TX_CHECKSUM,
        Knob::Sg => &["tx-scatter-gather"],
        Knob::Gro => &["rx-gro"],
        Knob::Gso => &["tx-generic-segmentation"],
        Knob::Tso => TSO,
        Knob::TxUdpSegmentation => &["tx-udp-segmentation"],
        Knob::Lro => &["rx-lro"],
        Knob::RxGroHw => &["rx-gro-hw"],
        Knob::RxGroList => &["rx-gro-list"],
        Knob::RxUdpGroForwarding => &["rx-udp-gro-forwarding"],
        Knob::RxHashing => &["rx-hashing"],
        Knob::RxNtuple => &["rx-ntuple-filter"],
        Knob::RxVlan => &["rx-vlan-hw-parse"],
        Knob::TxVlan => &["tx-vlan-hw-insert"],
        Knob::TxNocacheCopy => &["tx-nocache-copy"],
        _ => return None,
    })
}

const fn number_of(knob: Knob) -> Option<Number> {
    const fn of(table: Table, attribute: u16, width: Width) -> Number {
        Number { table, attribute, width, max: None, per_queue: None }
    }
    const fn limited(table: Table, attribute: u16, max: u16) -> Number {
        Number { max: Some(max), ..of(table, attribute, Width::U32) }
    }
    const fn queued(attribute: u16, field: QueueField, direction: Direction) -> Number {
        Number { per_queue: Some((field, direction)), ..of(Table::Coalesce, attribute, Width::U32) }
    }
    const fn coalesce(attribute: u16) -> Number {
        of(Table::Coalesce, attribute, Width::U32)
    }
    const fn mode(attribute: u16) -> Number {
        of(Table::Coalesce, attribute, Width::U8)
    }
    Some(match knob {
        Knob::CombinedChannels => limited(Table::Channels, 9, 5),
        Knob::RxChannels => limited(Table::Channels, 6, 2),
        Knob::TxChannels => limited(Table::Channels, 7, 3),
        Knob::RxRing => limited(Table::Rings, 6, 2),
        Knob::RxMiniRing => limited(Table::Rings, 7, 3),
        Knob::RxJumboRing => limited(Table::Rings, 8, 4),
        Knob::TxRing => limited(Table::Rings, 9, 5),
        Knob::RxBufLen => of(Table::Rings, 10, Width::U32),
        Knob::CqeSize => of(Table::Rings, 12, Width::U32),
        Knob::TxPush => of(Table::Rings, 13, Width::U8),
        Knob::RxPush => of(Table::Rings, 14, Width::U8),
        Knob::TxPushBufLen => limited(Table::Rings, 15, 16),
        Knob::PauseAutoneg => of(Table::Pause, 2, Width::U8),
        Knob::PauseRx => of(Table::Pause, 3, Width::U8),
        Knob::PauseTx => of(Table::Pause, 4, Width::U8),
        Knob::Eee => of(Table::Eee, 5, Width::U8),
        Knob::EeeTxLpi => of(Table::Eee, 6, Width::U8),
        Knob::EeeTxLpiTimer => of(Table::Eee, 7, Width::U32),
        Knob::RxUsecs => queued(2, QueueField::RxUsecs, Direction::Rx),
        Knob::RxFrames => queued(3, QueueField::RxFrames, Direction::Rx),
        Knob::RxUsecsIrq => coalesce(4),
        Knob::RxFramesIrq => coalesce(5),
        Knob::TxUsecs => queued(6, QueueField::TxUsecs, Direction::Tx),
        Knob::TxFrames => queued(7, QueueField::TxFrames, Direction::Tx),
        Knob::TxUsecsIrq => coalesce(8),
        Knob::TxFramesIrq => coalesce(9),
        Knob::StatsBlockUsecs => coalesce(10),
        Knob::AdaptiveRx => mode(11),
        Knob::AdaptiveTx => mode(12),
        Knob::PktRateLow => coalesce(13),
        Knob::RxUsecsLow => coalesce(14),
        Knob::RxFramesLow => coalesce(15),
        Knob::TxUsecsLow => coalesce(16),
        Knob::TxFramesLow => coalesce(17),
        Knob::PktRateHigh => coalesce(18),
        Knob::RxUsecsHigh => coalesce(19),
        Knob::RxFramesHigh => coalesce(20),
        Knob::TxUsecsHigh => coalesce(21),
        Knob::TxFramesHigh => coalesce(22),
        Knob::SampleInterval => coalesce(23),
        Knob::CqeModeTx => mode(24),
        Knob::CqeModeRx => mode(25),
        Knob::TxAggrMaxBytes => coalesce(26),
        Knob::TxAggrMaxFrames => coalesce(27),
        Knob::TxAggrTimeUsecs => coalesce(28),
        _ => return None,
    })
}

const fn queue_file_of(knob: Knob) -> Option<QueueFile> {
    use Direction::{Rx, Tx};
    let (direction, name) = match knob {
        Knob::RpsCpus => (Rx, "rps_cpus"),
        Knob::RpsFlowCnt => (Rx, "rps_flow_cnt"),
        Knob::XpsCpus => (Tx, "xps_cpus"),
        Knob::XpsRxqs => (Tx, "xps_rxqs"),
        Knob::BqlLimitMin => (Tx, "byte_queue_limits/limit_min"),
        Knob::BqlLimitMax => (Tx, "byte_queue_limits/limit_max"),
        _ => return None,
    };
    Some(QueueFile { direction, name })
}

const fn sysctl_of(knob: Knob) -> Option<&'static str> {
    Some(match knob {
        Knob::RpsSockFlowEntries => "rps_sock_flow_entries",
        Knob::BusyPoll => "busy_poll",
        Knob::BusyRead => "busy_read",
        Knob::NetdevBudget => "netdev_budget",
        Knob::NetdevBudgetUsecs => "netdev_budget_usecs",
        Knob::DevWeight => "dev_weight",
        Knob::NetdevMaxBacklog => "netdev_max_backlog",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_knob_has_a_source_of_its_own() {
        let sources: BTreeSet<String> =
            Knob::ALL.iter().map(|knob| format!("{:?}", source_of(*knob))).collect();
        assert_eq!(sources.len(), Knob::ALL.len());
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
