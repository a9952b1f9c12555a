//! Values of knobs, settings (what is wanted) and states (what was read).

use std::collections::BTreeMap;
use std::fmt;

use latput_units::{CpuSet, Nanos};
use serde::{Deserialize, Serialize};

use crate::catalogue::Knob;
use crate::spec::ValueKind;

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
}

impl Value {
    /// What kind of value this is.
    pub const fn kind(&self) -> ValueKind {
        match self {
            Self::Count(_) => ValueKind::Count,
            Self::Time(_) => ValueKind::Time,
            Self::Switch(_) => ValueKind::Switch,
            Self::Cpus(_) => ValueKind::Cpus,
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => f.pad(&count.to_string()),
            Self::Time(time) => fmt::Display::fmt(time, f),
            Self::Switch(on) => f.pad(if *on { "on" } else { "off" }),
            Self::Cpus(cpus) => fmt::Display::fmt(cpus, f),
        }
    }
}

/// Where one value of a knob lives on an interface.
///
/// NAPI instances are named by the receive queue they serve and not by the kernel's NAPI id, because
/// ids change whenever queues are recreated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// The interface as a whole.
    Device,
    /// One receive queue.
    RxQueue(u32),
    /// The NAPI instance that serves this receive queue.
    Napi(u32),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device => f.pad("device"),
            Self::RxQueue(queue) => f.pad(&format!("rx-{queue}")),
            Self::Napi(queue) => f.pad(&format!("napi of rx-{queue}")),
        }
    }
}

/// Wanted values; a knob that is not named is left alone. A value holds for every place the knob has.
pub type Setting = BTreeMap<Knob, Value>;

/// The values of one interface's knobs as read from the kernel. A knob that the interface does not
/// have is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<Entry>", into = "Vec<Entry>")]
pub struct State(pub BTreeMap<(Knob, Place), Value>);

/// One value in a stored state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    knob: Knob,
    place: Place,
    value: Value,
}

impl From<State> for Vec<Entry> {
    fn from(state: State) -> Self {
        state.0.into_iter().map(|((knob, place), value)| Entry { knob, place, value }).collect()
    }
}

impl TryFrom<Vec<Entry>> for State {
    type Error = String;
    fn try_from(entries: Vec<Entry>) -> Result<Self, Self::Error> {
        let mut state = BTreeMap::new();
        for Entry { knob, place, value } in entries {
            if state.insert((knob, place), value).is_some() {
                return Err(format!("{knob} has two values for {place}"));
            }
        }
        Ok(Self(state))
    }
}
