//! The fields of a row of the catalogue: kind, unit, range, how disruptive a change is, and which knobs it resets.

use std::fmt::{self, Write as _};

use latput_units::Nanos;

use super::Knob;
pub use crate::value::ValueKind;
use crate::value::{Named, Value};

/// The unit of sizes, which may be written `64k` too.
pub(crate) const BYTE: &str = "byte";

/// One knob's entry in the catalogue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnobSpec {
    /// The kernel's name, as ethtool spells it.
    pub name: &'static str,
    /// The kind of its values.
    pub kind: ValueKind,
    /// The kernel's unit, in which `min` and `max` are: `byte`, `packet`, `ns`, `us`, `s`; empty for
    /// switches.
    pub unit: &'static str,
    /// The smallest value that latput sets.
    pub min: u64,
    /// The largest value that latput sets; an interface may allow less, and its kernel says so.
    pub max: u64,
    /// How far from what was asked for a device may go.
    pub rounding: Rounding,
    /// The word that may stand for a value, if there is one.
    pub named: Option<Named>,
    /// The effect of a change on traffic.
    pub tier: Tier,
    /// Whether drivers of hardware take the link down and up for a change. Interfaces without
    /// hardware do not: [`KernelRead::resets_link`](crate::KernelRead::resets_link) knows which.
    pub resets_link: bool,
    /// Whether it belongs to the interface or to the whole host.
    pub scope: Scope,
    /// With which knobs it is shown.
    pub group: Group,
    /// The knobs whose values a change of this one may lose. They all come later in [`Knob::ALL`].
    pub resets: &'static [Knob],
    /// Knobs that must go back with it: its places hang on them.
    pub hangs_on: &'static [Knob],
    /// Switches without which the kernel keeps this one off (`netdev_fix_features`, net/core/dev.c).
    pub needs: &'static [Knob],
    /// The adaptive moderation that moves it by itself while that is on.
    pub overruled_by: Option<Knob>,
    /// Whether only sockets that are opened afterwards take a change.
    pub is_for_new_sockets: bool,
    /// Whether the two ends of a link agree on it, so that it moves by itself after the link was down.
    pub is_negotiated: bool,
    /// The name of the driver's module parameter, for knobs that drivers read when they are loaded.
    pub module_parameter: Option<&'static str>,
    /// Where it lives.
    pub lives: &'static str,
    /// Its effect, in one line.
    pub doc: &'static str,
    /// A value as it is written in files and on the command line.
    pub example: &'static str,
}

/// The effect of a change of a knob on the traffic of its interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    /// Nothing is lost.
    Hitless,
    /// Queues or NAPIs may be recreated: milliseconds.
    Brief,
    /// Many drivers take the link down and up: up to seconds.
    Disruptive,
    /// The driver reads it when it is loaded: a change would unload it, and its interfaces with it.
    Reload,
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Hitless => "hitless",
            Self::Brief => "brief",
            Self::Disruptive => "disruptive",
            Self::Reload => "driver reload",
        })
    }
}

/// The owner of a knob.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// One interface.
    Interface,
    /// The host: setting it through one interface changes it for all, so that only one latput at a
    /// time may have such a knob changed.
    Host,
}

/// Knobs that are shown together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// Parameters that a driver reads when it is loaded.
    LoadTime,
    /// Channels and rings.
    Queues,
    /// The link: MTU, flow control, energy saving.
    Link,
    /// Work that the NIC takes over, or the stack puts together.
    Offloads,
    /// Queues that hold packets back on their way out.
    Queueing,
    /// Which CPU handles which packets.
    Steering,
    /// The host's own, for all its interfaces.
    Host,
    /// When the NIC raises an interrupt.
    Coalescing,
    /// When the kernel polls.
    Napi,
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::LoadTime => "driver parameters at load time",
            Self::Queues => "channels and rings",
            Self::Link => "link",
            Self::Offloads => "offloads",
            Self::Queueing => "transmit queueing",
            Self::Steering => "steering",
            Self::Host => "host-wide",
            Self::Coalescing => "interrupt coalescing",
            Self::Napi => "NAPI polling",
        })
    }
}

/// How far from the value that was asked for a device may go without being said to refuse it.
///
/// A zero is never rounded: it means off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// Not at all.
    None,
    /// By a quarter of the value, or 10 us for a time and 16 for a number: timers have steps (ENA
    /// keeps 50 us for 64, e1000 keeps interrupts a second and gives back 10000 us for 9999).
    Quarter,
    /// Up or down to the next power of two, as rings are.
    PowerOfTwo,
}

/// Below this a rounded time is near enough, in nanoseconds.
const NEAR_NS: u64 = 10_000;
/// Below this a rounded number is near enough.
const NEAR_COUNT: u64 = 16;

impl Rounding {
    fn allows(self, wanted: u64, found: u64, near: u64) -> bool {
        if wanted == 0 || found == 0 {
            return wanted == found;
        }
        match self {
            Self::None => wanted == found,
            Self::Quarter => wanted.abs_diff(found) <= near.max(wanted / 4),
            Self::PowerOfTwo => found / 2 <= wanted && wanted / 2 <= found,
        }
    }
}

/// A row of this kind without anything special.
pub(crate) const fn plain(kind: ValueKind) -> KnobSpec {
    KnobSpec {
        name: "",
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
        hangs_on: &[],
        needs: &[],
        overruled_by: None,
        is_for_new_sockets: false,
        is_negotiated: false,
        module_parameter: None,
        lives: "",
        doc: "",
        example: "",
    }
}

impl Knob {
    /// The name of the driver's module parameter, for knobs that drivers read when they are loaded.
    pub const fn module_parameter(self) -> Option<&'static str> {
        self.spec().module_parameter
    }

    /// The sysctl that it is, such as `net.core.busy_poll`.
    pub fn sysctl(self) -> Option<&'static str> {
        self.spec().lives.strip_prefix("sysctl ")
    }

    /// Values that Intel's gigabit drivers take of a number given at load time, in words; `None` where they take this
    /// one. Of others they warn, and go on with their default (`e1000_validate_option`, `e1000_param.c`).
    pub const fn refused_at_load(self, number: u64) -> Option<&'static str> {
        match (self, number) {
            (Self::InterruptThrottleRate, 0 | 1 | 3 | 4 | 100..=100_000) => None,
            (Self::InterruptThrottleRate, _) => Some("0, 1, 3, 4 and 100 to 100000"),
            (_, 0..=0xffff) => None,
            _ => Some("0 to 65535"),
        }
    }
}

/// The limits of an interface for a knob, in the unit of the catalogue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// The smallest value, if the interface has one of its own.
    pub min: Option<u64>,
    /// The largest value, if the interface has one of its own.
    pub max: Option<u64>,
}

impl KnobSpec {
    /// Whether both values mean the same, so that going from one to the other needs no write.
    pub fn same(&self, first: &Value, second: &Value) -> bool {
        match (first, second) {
            (Value::Qdisc(first), Value::Qdisc(second)) => first.is_same(second),
            _ => first == second,
        }
    }

    /// Whether a device that was given `wanted` and reads back `found` has taken it.
    pub fn takes(&self, wanted: &Value, found: &Value) -> bool {
        match (wanted, found) {
            (Value::Count(wanted), Value::Count(found)) => {
                self.rounding.allows(*wanted, *found, NEAR_COUNT)
            }
            (Value::Time(wanted), Value::Time(found)) => {
                self.rounding.allows(wanted.as_ns(), found.as_ns(), NEAR_NS)
            }
            _ => self.same(wanted, found),
        }
    }

    /// The kernel's unit of time, for knobs that are times.
    pub fn time_unit(&self) -> Nanos {
        match self.unit {
            "us" => Nanos::from_us(1),
            "s" => Nanos::from_s(1),
            _ => Nanos::from_ns(1),
        }
    }

    /// Whether the name says the unit (`rx-usecs`), so that a number may come without it.
    pub fn names_unit(&self) -> bool {
        self.unit == "us" && self.name.contains("usecs")
    }

    /// The smallest and the largest value on an interface with these limits, in the catalogue's unit. Tables, messages
    /// and plans read it here.
    pub fn range_within(&self, limits: Limits) -> (u64, u64) {
        let min = limits.min.map_or(self.min, |min| min.max(self.min));
        let max = limits.max.map_or(self.max, |max| max.min(self.max));
        (min, max)
    }

    /// The allowed values in words on any interface: `a time from 0us to 1s`, `on or off`.
    pub fn allowed(&self) -> String {
        self.allowed_within(Limits::default())
    }

    /// The allowed values in words on an interface with these limits.
    pub fn allowed_within(&self, limits: Limits) -> String {
        let (min, max) = self.range_within(limits);
        let mut text = match self.kind {
            ValueKind::Count => {
                // Of several: `packets`, `packets/s`.
                let plural = match self.unit.split_once('/') {
                    Some((what, per)) => format!("{what}s/{per}"),
                    None => format!("{}s", self.unit),
                };
                format!("a whole number of {plural} from {min} to {max}")
            }
            ValueKind::Time => {
                let unit = self.time_unit();
                let [min, max] = [min, max].map(|bound| unit.saturating_mul(bound));
                format!("a time from {min} to {max}")
            }
            ValueKind::Switch => "`on` or `off`".to_owned(),
            ValueKind::Cpus => {
                format!("a list or 0x mask of {}s from {min} to {max}, or `none`", self.unit)
            }
            ValueKind::Qdisc => "`default` or a queue discipline with parameters".to_owned(),
            ValueKind::Table => "`equal N` or a list of queues".to_owned(),
            ValueKind::Profile => "five points USECS,PACKETS[,COMPLETIONS]".to_owned(),
            ValueKind::Sizes => {
                format!("three sizes in bytes from {min} to {max}: smallest, first, largest")
            }
            ValueKind::Module => "a name that the kernel knows".to_owned(),
        };
        if let Some(named) = self.named {
            let _ = write!(text, ", or `{named}`");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_example_is_allowed() {
        for knob in Knob::ALL {
            let spec = knob.spec();
            assert!(spec.min <= spec.max, "{knob}");
            assert!(knob.parse_value(spec.example).is_ok(), "{knob}");
            assert!(!spec.doc.is_empty() && !spec.lives.is_empty(), "{knob}");
            assert!(spec.doc.len() <= 90, "{knob}: one line of a narrow terminal");
        }
    }

    #[test]
    fn sysctls_have_a_name() {
        assert_eq!(Knob::BusyPoll.sysctl(), Some("net.core.busy_poll"));
        assert_eq!(Knob::TcpRmem.sysctl(), Some("net.ipv4.tcp_rmem"));
        assert_eq!(Knob::RxUsecs.sysctl(), None);
    }

    #[test]
    fn knob_resets_only_later_ones() {
        for (idx, knob) in Knob::ALL.iter().enumerate() {
            for reset in knob.spec().resets {
                assert!(Knob::ALL[idx + 1..].contains(reset), "{knob} resets {reset}");
            }
        }
    }

    #[test]
    fn link_resets_are_disruptive_or_offloads() {
        for knob in Knob::ALL.iter().filter(|knob| knob.spec().resets_link) {
            let spec = knob.spec();
            let is_heavy = spec.tier >= Tier::Disruptive || spec.group == Group::Offloads;
            assert!(is_heavy, "{knob}");
        }
    }

    #[test]
    fn device_may_round_as_its_knob_declares() {
        check_rounding(Knob::Mtu, "1500", "1501", false);
        check_rounding(Knob::RxUsecs, "64us", "50us", true);
        check_rounding(Knob::RxUsecs, "9999us", "10000us", true);
        check_rounding(Knob::RxUsecs, "3us", "8us", true);
        check_rounding(Knob::RxUsecs, "0us", "8us", false);
        check_rounding(Knob::RxUsecs, "8us", "0us", false);
        check_rounding(Knob::RxUsecs, "100us", "50us", false);
        check_rounding(Knob::RxRing, "1000", "1024", true);
        check_rounding(Knob::RxRing, "600", "1024", true);
        check_rounding(Knob::RxRing, "4096", "256", false);
        check_rounding(Knob::Gro, "on", "off", false);
        check_rounding(
            Knob::Qdisc,
            "fq_codel target=5ms",
            "fq_codel target=4999us limit=10240",
            true,
        );
    }

    #[track_caller]
    fn check_rounding(knob: Knob, wanted: &str, found: &str, is_taken: bool) {
        let [wanted, found] = [wanted, found].map(|text| knob.parse_value(text).unwrap());
        assert_eq!(knob.spec().takes(&wanted, &found), is_taken, "{knob}: {wanted} {found}");
    }
}
