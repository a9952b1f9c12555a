//! What is known of each knob: kind, unit, range, how disruptive a change is, and what it resets.

use std::fmt;

use latput_units::{Nanos, cpu};

use crate::catalogue::Knob;
use crate::value::Value;

/// One knob's entry in the catalogue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnobSpec {
    /// The knob.
    pub knob: Knob,
    /// What its values are.
    pub kind: ValueKind,
    /// The kernel's unit, in which `min`, `max` and `step` are: `byte`, `packet`, `ns`; empty for
    /// switches.
    pub unit: &'static str,
    /// The smallest value that latput sets.
    pub min: u64,
    /// The largest value that latput sets; an interface may allow less, and its kernel says so.
    pub max: u64,
    /// The kernel or device may round to a multiple of this; 1 where it keeps a value exactly. Two
    /// values that are less than a step apart are the same value.
    pub step: u64,
    /// What a change does to traffic.
    pub tier: Tier,
    /// The knobs whose values a change of this one may lose. They all come later in [`Knob::ALL`].
    pub resets: &'static [Knob],
    /// Where it lives.
    pub lives: &'static str,
    /// What it does, in one line.
    pub doc: &'static str,
    /// A value as it is written in files and on the command line.
    pub example: &'static str,
}

/// What the values of a knob are.
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
}

impl fmt::Display for ValueKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Count => "whole number",
            Self::Time => "time",
            Self::Switch => "switch",
            Self::Cpus => "set of CPUs",
        })
    }
}

/// What a change of a knob does to the traffic of its interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    /// Nothing is lost.
    Hitless,
    /// Queues or NAPIs may be recreated: milliseconds.
    Brief,
    /// Many drivers take the link down and up: up to seconds.
    Disruptive,
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Hitless => "hitless",
            Self::Brief => "brief",
            Self::Disruptive => "disruptive",
        })
    }
}

impl Knob {
    /// What is known of this knob.
    pub const fn spec(self) -> &'static KnobSpec {
        match self {
            Self::Mtu => &MTU,
            Self::Txqueuelen => &TXQUEUELEN,
            Self::Gro => &GRO,
            Self::Gso => &GSO,
            Self::Tso => &TSO,
            Self::RpsCpus => &RPS_CPUS,
            Self::Threaded => &THREADED,
            Self::NapiDeferHardIrqs => &NAPI_DEFER_HARD_IRQS,
            Self::GroFlushTimeout => &GRO_FLUSH_TIMEOUT,
        }
    }
}

impl KnobSpec {
    /// Whether this knob would hold the same thing with `first` as with `second`: equal, or less than
    /// a rounding step apart.
    pub fn same(&self, first: &Value, second: &Value) -> bool {
        match (first, second) {
            (Value::Count(a), Value::Count(b)) => a.abs_diff(*b) < self.step,
            (Value::Time(a), Value::Time(b)) => a.as_ns().abs_diff(b.as_ns()) < self.step,
            _ => first == second,
        }
    }

    /// The allowed values in words: `a time from 0us to 1s`, `on or off`.
    pub fn allowed(&self) -> String {
        match self.kind {
            ValueKind::Count => {
                format!("a whole number of {}s from {} to {}", self.unit, self.min, self.max)
            }
            ValueKind::Time => {
                format!("a time from {} to {}", Nanos::from_ns(self.min), Nanos::from_ns(self.max))
            }
            ValueKind::Switch => "`on` or `off`".to_owned(),
            ValueKind::Cpus => {
                format!("a list or 0x mask of CPUs from {} to {}, or `none`", self.min, self.max)
            }
        }
    }
}

/// The values that belong to a NAPI instance, and so are lost with it.
const PER_NAPI: &[Knob] = &[Knob::Threaded, Knob::NapiDeferHardIrqs, Knob::GroFlushTimeout];

const MTU: KnobSpec = KnobSpec {
    knob: Knob::Mtu,
    kind: ValueKind::Count,
    unit: "byte",
    // IPv4 would allow 68, but below 1280 (RFC 8200, section 5) the kernel removes the interface's
    // IPv6 addresses, and no checkpoint brings those back.
    min: 1280,
    // The loopback interface's; IFLA_MAX_MTU of others is less.
    max: 65_536,
    step: 1,
    tier: Tier::Disruptive,
    // Many drivers close and open their queues for a new MTU.
    resets: PER_NAPI,
    lives: "rtnetlink IFLA_MTU",
    doc: "largest packet of the interface",
    example: "1500",
};

const TXQUEUELEN: KnobSpec = KnobSpec {
    knob: Knob::Txqueuelen,
    kind: ValueKind::Count,
    unit: "packet",
    min: 0,
    // The kernel takes any u32, and allocates rings of that many pointers for each pfifo_fast band.
    max: 1_000_000,
    step: 1,
    tier: Tier::Hitless,
    resets: &[],
    lives: "rtnetlink IFLA_TXQLEN",
    doc: "packets that the default queue discipline may hold",
    example: "1000",
};

const GRO: KnobSpec = KnobSpec {
    // Seen on veth, kernel 6.18: the NAPI is created anew and its own values are the device's again.
    resets: PER_NAPI,
    ..offload(
        Knob::Gro,
        "ethtool netlink feature rx-gro",
        "join received packets of a flow before the stack sees them",
    )
};

const GSO: KnobSpec = offload(
    Knob::Gso,
    "ethtool netlink feature tx-generic-segmentation",
    "cut large packets in software, as late as possible",
);

const TSO: KnobSpec = offload(
    Knob::Tso,
    "ethtool netlink features tx-tcp-segmentation and its IPv6 and ECN kin",
    "let the NIC cut large TCP packets",
);

const RPS_CPUS: KnobSpec = KnobSpec {
    knob: Knob::RpsCpus,
    kind: ValueKind::Cpus,
    unit: "CPU",
    min: 0,
    max: cpu::MAX_CPU as u64,
    step: 1,
    tier: Tier::Hitless,
    resets: &[],
    lives: "sysfs queues/rx-N/rps_cpus",
    doc: "CPUs that take over received packets of a queue",
    example: "0-3",
};

const THREADED: KnobSpec = KnobSpec {
    knob: Knob::Threaded,
    kind: ValueKind::Switch,
    unit: "",
    min: 0,
    max: 1,
    step: 1,
    tier: Tier::Brief,
    resets: &[],
    lives: "netdev netlink NAPI threaded, or sysfs threaded",
    doc: "poll in a kernel thread instead of a softirq",
    example: "on",
};

const NAPI_DEFER_HARD_IRQS: KnobSpec = KnobSpec {
    knob: Knob::NapiDeferHardIrqs,
    kind: ValueKind::Count,
    unit: "poll",
    min: 0,
    // Above S32_MAX kernels answer ERANGE, or wrapped to a negative number before CVE-2024-50018.
    max: i32::MAX as u64,
    step: 1,
    tier: Tier::Hitless,
    resets: &[],
    lives: "netdev netlink NAPI defer-hard-irqs, or sysfs napi_defer_hard_irqs",
    doc: "empty polls before the interrupt is unmasked again",
    example: "100",
};

const GRO_FLUSH_TIMEOUT: KnobSpec = KnobSpec {
    knob: Knob::GroFlushTimeout,
    kind: ValueKind::Time,
    unit: "ns",
    min: 0,
    // The kernel takes any 64-bit number; a longer timer would only stall the interface.
    max: 1_000_000_000,
    step: 1,
    tier: Tier::Hitless,
    resets: &[],
    lives: "netdev netlink NAPI gro-flush-timeout, or sysfs gro_flush_timeout",
    doc: "delay before a deferred NAPI polls again and GRO passes on what it holds; 0 is off",
    example: "50us",
};

const fn offload(knob: Knob, lives: &'static str, doc: &'static str) -> KnobSpec {
    KnobSpec {
        knob,
        kind: ValueKind::Switch,
        unit: "",
        min: 0,
        max: 1,
        step: 1,
        tier: Tier::Brief,
        resets: &[],
        lives,
        doc,
        example: "off",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_is_about_its_own_knob_and_its_example_is_allowed() {
        for knob in Knob::ALL {
            let spec = knob.spec();
            assert_eq!(spec.knob, *knob);
            assert!(spec.min <= spec.max && spec.step > 0, "{knob}");
            assert!(knob.parse_value(spec.example).is_ok(), "{knob}");
        }
    }

    #[test]
    fn a_knob_resets_only_what_is_written_after_it() {
        for (idx, knob) in Knob::ALL.iter().enumerate() {
            for reset in knob.spec().resets {
                assert!(Knob::ALL[idx + 1..].contains(reset), "{knob} resets {reset}");
            }
        }
    }

    #[test]
    fn values_less_than_a_rounding_step_apart_are_the_same() {
        check_same(1, Value::Count(5), Value::Count(5), true);
        check_same(1, Value::Count(5), Value::Count(6), false);
        check_same(8, Value::Count(0), Value::Count(7), true);
        check_same(8, Value::Count(0), Value::Count(8), false);
        check_same(8, Value::Time(Nanos::from_ns(20)), Value::Time(Nanos::from_ns(16)), true);
        check_same(8, Value::Switch(true), Value::Switch(false), false);
        check_same(8, Value::Count(1), Value::Switch(true), false);
    }

    #[track_caller]
    fn check_same(step: u64, first: Value, second: Value, same: bool) {
        let spec = KnobSpec { step, ..MTU };
        assert_eq!(spec.same(&first, &second), same);
        assert_eq!(spec.same(&second, &first), same);
    }
}
