//! Values of knobs, settings (what is wanted) and states (what was read).

use std::fmt;

use latput_units::{CpuSet, Nanos};
use serde::{Deserialize, Serialize};

use crate::profile::Profile;
use crate::qdisc::Qdisc;
use crate::rss::QueueTable;
use crate::sysctl::{BufferSizes, ModuleName};
use crate::thread_schedule::ThreadSchedule;

/// The MTU of IPv6 at [`Place::LinkedIpv6`] that nobody has set: it is that of the interface.
pub const MTU_OF_INTERFACE: u64 = 0;

/// The value of one knob. Which kind a knob has is in its catalogue entry.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Value {
    /// A number of bytes, packets or polls; the catalogue names the unit.
    Count(u64),
    /// A span of time.
    Time(Nanos),
    /// On or off.
    Switch(bool),
    /// A set of CPUs.
    Cpus(CpuSet),
    /// A queue discipline.
    Qdisc(Qdisc),
    /// A table of receive queues.
    Table(QueueTable),
    /// The points of an adaptive moderation.
    Profile(Profile),
    /// Sizes of a buffer of TCP.
    Sizes(BufferSizes),
    /// The name of a part of the kernel.
    Module(ModuleName),
    /// A word that stands for a value, which only the kernel knows. Never read from one.
    Named(Named),
}

/// The kind of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ValueKind {
    /// A whole number: [`Value::Count`].
    Count,
    /// A span of time, written with its unit: [`Value::Time`].
    Time,
    /// On or off: [`Value::Switch`].
    Switch,
    /// A set of CPUs: [`Value::Cpus`].
    Cpus,
    /// A queue discipline with its parameters: [`Value::Qdisc`].
    Qdisc,
    /// A table of queues: [`Value::Table`].
    Table,
    /// The points of an adaptive moderation: [`Value::Profile`].
    Profile,
    /// Three sizes of a buffer of TCP: [`Value::Sizes`].
    Sizes,
    /// The name of a part of the kernel: [`Value::Module`].
    Module,
}

impl fmt::Display for ValueKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Count => "whole number",
            Self::Time => "time",
            Self::Switch => "switch",
            Self::Cpus => "set of CPUs",
            Self::Qdisc => "queue discipline",
            Self::Table => "table of queues",
            Self::Profile => "moderation profile",
            Self::Sizes => "triple of sizes",
            Self::Module => "name",
        })
    }
}

/// A word that stands for a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Named {
    /// The CPUs that the driver itself would choose (`affinity_hint`).
    Hint,
    /// The most that the interface allows.
    Max,
}

impl Named {
    /// The kind of value that it stands for.
    pub const fn kind(self) -> ValueKind {
        match self {
            Self::Hint => ValueKind::Cpus,
            Self::Max => ValueKind::Count,
        }
    }
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Hint => "hint",
            Self::Max => "max",
        })
    }
}

impl Value {
    /// The kind of this value.
    pub const fn kind(&self) -> ValueKind {
        match self {
            Self::Count(_) => ValueKind::Count,
            Self::Time(_) => ValueKind::Time,
            Self::Switch(_) => ValueKind::Switch,
            Self::Cpus(_) => ValueKind::Cpus,
            Self::Qdisc(_) => ValueKind::Qdisc,
            Self::Table(_) => ValueKind::Table,
            Self::Profile(_) => ValueKind::Profile,
            Self::Sizes(_) => ValueKind::Sizes,
            Self::Module(_) => ValueKind::Module,
            Self::Named(named) => named.kind(),
        }
    }
}

impl Value {
    /// Whether it is the value of a knob that nobody has set yet.
    pub const fn is_fresh(&self) -> bool {
        matches!(self, Self::Count(0) | Self::Time(Nanos::ZERO) | Self::Switch(_))
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => f.pad(&count.to_string()),
            Self::Time(time) => fmt::Display::fmt(time, f),
            Self::Switch(on) => f.pad(if *on { "on" } else { "off" }),
            Self::Cpus(cpus) => fmt::Display::fmt(cpus, f),
            Self::Qdisc(qdisc) => fmt::Display::fmt(qdisc, f),
            Self::Table(table) => fmt::Display::fmt(table, f),
            Self::Profile(profile) => fmt::Display::fmt(profile, f),
            Self::Sizes(sizes) => fmt::Display::fmt(sizes, f),
            Self::Module(name) => fmt::Display::fmt(name, f),
            Self::Named(named) => fmt::Display::fmt(named, f),
        }
    }
}

/// Where one value of a knob lives on an interface.
///
/// NAPI instances are named by the receive queue they serve and not by the kernel's NAPI id, because
/// ids change whenever queues are recreated; interrupts by their rank among those of the device, for
/// the same reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// The interface as a whole.
    Device,
    /// The host, for all interfaces.
    Host,
    /// One receive queue.
    RxQueue(u32),
    /// One transmit queue.
    TxQueue(u32),
    /// One interrupt of the device: the n-th in ascending order of IRQ number.
    Interrupt(u32),
    /// The NAPI instance that serves this receive queue.
    Napi(u32),
    /// The interface of this number, which lies on this one or belongs to it: its MTU follows.
    Linked(u32),
    /// IPv6 on the interface.
    Ipv6,
    /// IPv6 on the interface of this number.
    LinkedIpv6(u32),
    /// The n-th of the features that a switch stands for, as it is wanted: the kernel may hold it back.
    Wanted(u32),
    /// The CPUs of the thread that polls for this receive queue.
    Thread(u32),
    /// How the scheduler treats it, as the number of a [`ThreadSchedule`].
    ThreadPolicy(u32),
}

impl Place {
    /// Whether nobody sets it: a write at another place of its knob moves it along, and going back writes it again.
    pub const fn is_follower(self) -> bool {
        match self {
            Self::Device
            | Self::Host
            | Self::RxQueue(_)
            | Self::TxQueue(_)
            | Self::Interrupt(_)
            | Self::Napi(_) => false,
            Self::Linked(_)
            | Self::Ipv6
            | Self::LinkedIpv6(_)
            | Self::Wanted(_)
            | Self::Thread(_)
            | Self::ThreadPolicy(_) => true,
        }
    }
}

impl Place {
    /// Whether people are told of a change here: somebody sets the value, or it is another interface's.
    pub const fn is_reported(self) -> bool {
        !self.is_follower() || matches!(self, Self::Linked(_))
    }

    /// The words for a value here: `SCHED_FIFO 42` for the scheduling of a thread, which is one number.
    pub fn format_value(self, value: &Value) -> String {
        match (self, value) {
            (Self::ThreadPolicy(_), Value::Count(number)) => {
                let schedule = ThreadSchedule::from_number(*number);
                schedule.map_or_else(|| format!("policy {number}"), |schedule| schedule.to_string())
            }
            (Self::LinkedIpv6(_), Value::Count(MTU_OF_INTERFACE)) => {
                "that of the interface".to_owned()
            }
            _ => value.to_string(),
        }
    }

    /// The number of the other interface that it is on.
    pub const fn linked_index(self) -> Option<u32> {
        match self {
            Self::Linked(index) | Self::LinkedIpv6(index) => Some(index),
            _ => None,
        }
    }

    /// Whether its MTU cannot be larger than the interface's: what lies on it, and IPv6. It follows a lower one.
    pub const fn cannot_exceed_device(self) -> bool {
        matches!(self, Self::Linked(_) | Self::Ipv6 | Self::LinkedIpv6(_))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device => f.pad("device"),
            Self::Host => f.pad("host"),
            Self::RxQueue(queue) => f.pad(&format!("rx-{queue}")),
            Self::TxQueue(queue) => f.pad(&format!("tx-{queue}")),
            Self::Interrupt(rank) => f.pad(&format!("interrupt {rank}")),
            Self::Napi(queue) => f.pad(&format!("napi of rx-{queue}")),
            Self::Linked(index) => f.pad(&format!("interface {index}")),
            Self::Ipv6 => f.pad("IPv6"),
            Self::LinkedIpv6(index) => f.pad(&format!("IPv6 of interface {index}")),
            Self::Wanted(nth) => f.pad(&format!("wanted {nth}")),
            Self::Thread(queue) => f.pad(&format!("CPUs of the thread of rx-{queue}")),
            Self::ThreadPolicy(queue) => f.pad(&format!("scheduling of the thread of rx-{queue}")),
        }
    }
}
