//! Knobs by their names, and the name that was probably meant.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use latput_units::spelling;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Knob;

impl fmt::Display for Knob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name that no knob has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct UnknownKnob {
    /// The unknown name, at most 80 characters of it.
    pub name: String,
}

impl UnknownKnob {
    /// The knob that was probably meant, if one has a similar name.
    pub fn nearest(&self) -> Option<Knob> {
        // sysfs spells with underscores what netlink and we spell with hyphens.
        let name = self.name.to_lowercase().replace('_', "-");
        spelling::nearest_name(&name, Knob::ALL.iter().map(|knob| knob.name()))?.parse().ok()
    }
}

impl fmt::Display for UnknownKnob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is no knob `{}`: ", self.name)?;
        if self.name.contains("://") {
            return f.write_str("hosts are named by `-i FILE` or `--hosts-from COMMAND`");
        }
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

impl Serialize for Knob {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for Knob {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Cow::<str>::deserialize(deserializer)?.parse().map_err(D::Error::custom)
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
            assert_eq!(serde_json::from_value::<Knob>(stored).unwrap(), *knob);
        }
    }

    #[test]
    fn changes_are_written_in_type_order() {
        // State and Setting are sorted by knob, and the two orders must be one.
        assert!(Knob::ALL.is_sorted());
    }

    #[test]
    fn misspelt_knob_gets_the_nearest_name() {
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
