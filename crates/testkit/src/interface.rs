//! An interface of the fake kernel: its knobs, and what a write does besides the obvious.

use std::collections::BTreeMap;

use latput_knobs::{Knob, KnobSpec, Place, State, Value, ValueKind};
use latput_units::{CpuSet, Nanos};

/// The knobs that have a device-wide value and one for each NAPI.
const PER_NAPI: [Knob; 3] = [Knob::Threaded, Knob::NapiDeferHardIrqs, Knob::GroFlushTimeout];

/// Those of them that say when a NAPI polls.
const DEFERRAL: [Knob; 2] = [Knob::NapiDeferHardIrqs, Knob::GroFlushTimeout];

/// The knobs, values and habits of one interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FakeInterface {
    values: BTreeMap<(Knob, Place), Value>,
    /// The values of NAPIs that are not there now, where the driver remembers them.
    asleep: BTreeMap<(Knob, Place), Value>,
    /// Whether the device-wide values of deferral are shown.
    has_device_wide: bool,
    queues: u32,
    habit: Habit,
}

/// When an interface has NAPIs, and when it makes new ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Habit {
    /// Never: a kernel before 6.13, where only the device-wide values are seen.
    NoNapis,
    /// They exist while GRO is on, as on veth.
    WithGro,
    /// The same, but new ones start with the values of the old, as where a driver uses
    /// `netif_napi_add_config`.
    WithGroRemembered,
    /// Always, but a new MTU or GRO makes new ones.
    Recreated,
}

impl FakeInterface {
    /// A veth with this many receive queues: GRO is on, and the NAPIs exist only while it is.
    pub fn veth(queues: u32) -> Self {
        Self::new(queues, Habit::WithGro)
    }

    /// A veth as netdev netlink alone shows it: without NAPIs, deferral is not there at all.
    pub fn netlink_veth(queues: u32) -> Self {
        let mut interface = Self::new(queues, Habit::WithGro);
        interface.has_device_wide = false;
        interface
    }

    /// The first veth with a driver that remembers the values of its NAPIs while they are gone.
    pub fn remembering(queues: u32) -> Self {
        Self::new(queues, Habit::WithGroRemembered)
    }

    /// A NIC with this many receive queues: a change of MTU or GRO makes new NAPIs.
    pub fn nic(queues: u32) -> Self {
        Self::new(queues, Habit::Recreated)
    }

    /// Any interface of a kernel without per-NAPI values.
    pub fn old(queues: u32) -> Self {
        Self::new(queues, Habit::NoNapis)
    }

    /// The same without a knob.
    pub fn without(mut self, knob: Knob) -> Self {
        self.values.retain(|(k, _), _| *k != knob);
        self
    }

    /// The values of now.
    pub fn state(&self) -> State {
        let mut values = self.values.clone();
        values.retain(|(knob, place), _| self.shows(*knob, *place));
        State(values)
    }

    /// The values of one knob, in ascending order of place; empty when it is not there.
    pub fn read(&self, knob: Knob) -> Vec<(Place, Value)> {
        let places =
            self.values.iter().filter(|((k, place), _)| *k == knob && self.shows(*k, *place));
        places.map(|((_, place), value)| (*place, value.clone())).collect()
    }

    /// Whether there is such a place.
    pub fn has(&self, knob: Knob, place: Place) -> bool {
        self.values.contains_key(&(knob, place)) && self.shows(knob, place)
    }

    /// Takes a value, with all that follows from it. The place must exist.
    pub fn set(&mut self, knob: Knob, place: Place, value: Value) {
        let old = self.values.insert((knob, place), value.clone());
        let old = old.expect("only places that exist are set");
        if PER_NAPI.contains(&knob) && place == Place::Device {
            // As `netdev_set_gro_flush_timeout` does, even when nothing changes.
            let napis = self.values.iter_mut().chain(&mut self.asleep);
            for (_, napi) in napis.filter(|((k, place), _)| *k == knob && is_napi(*place)) {
                *napi = value.clone();
            }
        }
        if old != value {
            match (self.habit, knob) {
                (Habit::WithGro | Habit::WithGroRemembered, Knob::Gro) => {
                    self.make_napis(value == Value::Switch(true));
                }
                (Habit::Recreated, Knob::Gro | Knob::Mtu) => self.make_napis(true),
                _ => {}
            }
        }
    }

    fn new(queues: u32, habit: Habit) -> Self {
        let mut values = BTreeMap::new();
        for &knob in Knob::ALL {
            let value = initial(knob);
            if knob == Knob::RpsCpus {
                for queue in 0..queues {
                    values.insert((knob, Place::RxQueue(queue)), value.clone());
                }
            } else {
                values.insert((knob, Place::Device), value);
            }
        }
        let mut interface =
            Self { values, asleep: BTreeMap::new(), has_device_wide: true, queues, habit };
        interface.make_napis(habit != Habit::NoNapis);
        interface
    }

    fn shows(&self, knob: Knob, place: Place) -> bool {
        self.has_device_wide || place != Place::Device || !DEFERRAL.contains(&knob)
    }

    /// Removes the NAPIs, and makes new ones if wanted, which take the device-wide values unless the
    /// driver remembers theirs.
    fn make_napis(&mut self, wanted: bool) {
        let (napis, others): (BTreeMap<_, _>, _) = std::mem::take(&mut self.values)
            .into_iter()
            .partition(|((_, place), _)| is_napi(*place));
        self.values = others;
        if self.habit == Habit::WithGroRemembered {
            self.asleep.extend(napis);
        }
        if !wanted {
            return;
        }
        for knob in PER_NAPI {
            let Some(value) = self.values.get(&(knob, Place::Device)).cloned() else { continue };
            for queue in 0..self.queues {
                let key = (knob, Place::Napi(queue));
                let value = self.asleep.remove(&key).unwrap_or_else(|| value.clone());
                self.values.insert(key, value);
            }
        }
    }
}

fn is_napi(place: Place) -> bool {
    matches!(place, Place::Napi(_))
}

/// What the kernel starts with.
fn initial(knob: Knob) -> Value {
    match knob {
        Knob::Mtu => Value::Count(1500),
        Knob::Txqueuelen => Value::Count(1000),
        Knob::Gro | Knob::Gso | Knob::Tso => Value::Switch(true),
        knob => nothing(knob.spec()),
    }
}

fn nothing(spec: &KnobSpec) -> Value {
    match spec.kind {
        ValueKind::Count => Value::Count(0),
        ValueKind::Time => Value::Time(Nanos::ZERO),
        ValueKind::Switch => Value::Switch(false),
        ValueKind::Cpus => Value::Cpus(CpuSet::new()),
    }
}
