//! Values of several knobs: a setting that is wanted, and the state that was read.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::catalogue::Knob;
use crate::value::{Place, Value};

/// Wanted values; a knob that is not named is left alone. A value holds for every place the knob has.
pub type Setting = BTreeMap<Knob, Value>;

/// The values of one interface's knobs as read from the kernel. A knob that the interface does not
/// have is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<Entry>", into = "Vec<Entry>")]
pub struct State(pub BTreeMap<(Knob, Place), Value>);

impl State {
    /// Whether it holds no value.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Drops the values of one knob.
    pub fn forget(&mut self, knob: Knob) {
        self.0.retain(|(kept, _), _| *kept != knob);
    }
}

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
