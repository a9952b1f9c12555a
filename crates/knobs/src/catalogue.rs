//! The catalogue: every knob latput knows, with the kernel's own name and unit.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// One thing that can be set on a host's network path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Knob {
    /// Largest packet of the interface (`IFLA_MTU`).
    Mtu,
    /// Length of the transmit queue (`IFLA_TXQLEN`).
    Txqueuelen,
    /// Generic receive offload (`rx-gro`).
    Gro,
    /// Generic segmentation offload (`tx-generic-segmentation`).
    Gso,
    /// TCP segmentation offload (`tx-tcp-segmentation` and its IPv6 and ECN kin).
    Tso,
    /// Receive packet steering: the CPUs that take over packets of a receive queue (`rps_cpus`).
    RpsCpus,
    /// NAPI polls in a kernel thread instead of softirq (`threaded`).
    Threaded,
    /// Empty polls before the interrupt is unmasked again (`napi_defer_hard_irqs`).
    NapiDeferHardIrqs,
    /// Delay before a deferred NAPI polls again, and before GRO passes on what it holds
    /// (`gro_flush_timeout`).
    GroFlushTimeout,
}

impl Knob {
    /// Every knob, in the order in which changes are written: what recreates queues and NAPIs first.
    pub const ALL: &[Self] = &[
        Self::Mtu,
        Self::Txqueuelen,
        Self::Gro,
        Self::Gso,
        Self::Tso,
        Self::RpsCpus,
        Self::Threaded,
        Self::NapiDeferHardIrqs,
        Self::GroFlushTimeout,
    ];

    /// The kernel's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mtu => "mtu",
            Self::Txqueuelen => "txqueuelen",
            Self::Gro => "gro",
            Self::Gso => "gso",
            Self::Tso => "tso",
            Self::RpsCpus => "rps-cpus",
            Self::Threaded => "threaded",
            Self::NapiDeferHardIrqs => "napi-defer-hard-irqs",
            Self::GroFlushTimeout => "gro-flush-timeout",
        }
    }
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
            .map(|knob| (edit_distance(&name, knob.name()), *knob))
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
        let names: Vec<&str> = Knob::ALL.iter().map(|knob| knob.name()).collect();
        write!(f, "there are {}", names.join(", "))
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

/// How many characters must be inserted, deleted or replaced, or neighbours swapped, to make one text
/// of the other (optimal string alignment: Damerau 1964 with Wagner and Fischer's table of 1974).
fn edit_distance(from: &str, to: &str) -> usize {
    let (from, to): (Vec<char>, Vec<char>) = (from.chars().collect(), to.chars().collect());
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=to.len()).collect();
    for (i, from_char) in from.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, to_char) in to.iter().enumerate() {
            let replaced = last[j] + usize::from(from_char != to_char);
            let mut best = replaced.min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *from_char == to[j - 1] && from[i - 1] == *to_char {
                best = best.min(before_last[j - 1] + 1);
            }
            row.push(best);
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_knob_is_found_by_its_name() {
        for knob in Knob::ALL {
            assert_eq!(knob.name().parse(), Ok(*knob));
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
        check("rx-usecs", None);
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
