//! An interface of the fake kernel: its knobs, and what a write does besides the obvious.

use std::collections::BTreeMap;

use latput_knobs::{Knob, KnobSpec, Place, Qdisc, QueueTable, Scope, State, Value, ValueKind};
use latput_units::{CpuSet, IntoMap, Nanos};

/// The knobs that have a device-wide value and one for each NAPI.
const PER_NAPI: [Knob; 4] =
    [Knob::Threaded, Knob::NapiDeferHardIrqs, Knob::GroFlushTimeout, Knob::IrqSuspendTimeout];

/// Those of them that say when a NAPI polls.
const DEFERRAL: [Knob; 3] =
    [Knob::NapiDeferHardIrqs, Knob::GroFlushTimeout, Knob::IrqSuspendTimeout];

/// The delays that are equal where channels are shared.
const DELAYS: [Knob; 2] = [Knob::RxUsecs, Knob::TxUsecs];

/// The most queues that the fake makes.
pub(crate) const QUEUES_MAX: u64 = 8;

/// The knobs, values and habits of one interface.
#[expect(clippy::struct_excessive_bools, reason = "each is a habit that drivers have or have not")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FakeInterface {
    values: BTreeMap<(Knob, Place), Value>,
    /// The values of NAPIs that are not there now, where the driver remembers them.
    asleep: BTreeMap<(Knob, Place), Value>,
    /// Whether the device-wide values of deferral are shown.
    has_device_wide: bool,
    queues: u32,
    habit: NapiLifetime,
    /// Whether delays are refused while adaptive moderation is on.
    is_strict: bool,
    /// Whether the delays of both directions must be equal.
    shares_channels: bool,
    /// Whether a mode of moderation that changes brings delays of its own.
    has_mode_tables: bool,
}

/// When an interface has NAPIs, and when it makes new ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NapiLifetime {
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
        Self::new(queues, NapiLifetime::WithGro)
    }

    /// A veth as netdev netlink alone shows it: without NAPIs, deferral is not there at all.
    pub fn veth_without_device_values(queues: u32) -> Self {
        let mut interface = Self::new(queues, NapiLifetime::WithGro);
        interface.has_device_wide = false;
        interface
    }

    /// The first veth with a driver that remembers the values of its NAPIs while they are gone.
    pub fn veth_with_napi_memory(queues: u32) -> Self {
        Self::new(queues, NapiLifetime::WithGroRemembered)
    }

    /// A NIC with this many receive queues: a change of MTU or GRO makes new NAPIs.
    pub fn nic(queues: u32) -> Self {
        Self::new(queues, NapiLifetime::Recreated)
    }

    /// Any interface of a kernel without per-NAPI values.
    pub fn without_napi_values(queues: u32) -> Self {
        Self::new(queues, NapiLifetime::NoNapis)
    }

    /// The same, but delays are refused while adaptive moderation is on, as by `ice`.
    pub fn refusing_adaptive_delays(mut self) -> Self {
        self.is_strict = true;
        self
    }

    /// The same, but a mode of moderation that changes brings delays of its own, as with `mlx5`.
    pub fn with_mode_tables(mut self) -> Self {
        self.has_mode_tables = true;
        self
    }

    /// A NIC whose directions share channels, as those of `sfc` may: it takes only equal delays. It has no mode that moves the
    /// delay of one direction.
    pub fn nic_with_shared_channels(queues: u32) -> Self {
        let modes = [Knob::AdaptiveRx, Knob::AdaptiveTx, Knob::CqeModeRx, Knob::CqeModeTx];
        let nic = modes.into_iter().fold(Self::nic(queues), Self::without_knob);
        Self { shares_channels: true, ..nic }
    }

    /// Whether its directions share channels from now on; gives whether they did.
    pub(crate) fn share_channels(&mut self, shares: bool) -> bool {
        std::mem::replace(&mut self.shares_channels, shares)
    }

    /// Whether the driver would take the delays again that it has.
    pub(crate) fn accepts_own_delays(&self) -> bool {
        let [rx, tx] = DELAYS.map(|knob| self.values.get(&(knob, Place::Device)));
        !self.shares_channels || rx == tx
    }

    /// Whether the driver refuses this value of a knob now.
    pub(crate) fn refuses(&self, knob: Knob, value: &Value) -> bool {
        let is_unequal = |other: &Knob| {
            *other != knob && self.values.get(&(*other, Place::Device)) != Some(value)
        };
        if self.shares_channels && DELAYS.contains(&knob) && DELAYS.iter().any(is_unequal) {
            return true;
        }
        let Some(adaptive) = knob.spec().overruled_by else { return false };
        let is_on = self.values.get(&(adaptive, Place::Device)) == Some(&Value::Switch(true));
        self.is_strict && is_on
    }

    /// The host's knobs, as an interface of its own.
    pub(crate) fn host() -> Self {
        let mut host = Self::new(0, NapiLifetime::NoNapis);
        let knobs = Knob::ALL.iter().filter(|knob| knob.spec().scope == Scope::Host);
        host.values = knobs.map(|knob| ((*knob, Place::Host), initial_value(*knob))).into_map();
        host
    }

    /// The same without a knob.
    pub fn without_knob(mut self, knob: Knob) -> Self {
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

    /// Takes a value from somebody who knows that the driver wants equal delays.
    pub(crate) fn set_as_allowed(&mut self, knob: Knob, place: Place, value: &Value) {
        let both = self.shares_channels && DELAYS.contains(&knob);
        for knob in if both { DELAYS.to_vec() } else { vec![knob] } {
            self.set(knob, place, value.clone());
        }
    }

    /// Takes a value, with all that follows from it. The place must exist.
    pub fn set(&mut self, knob: Knob, place: Place, value: Value) {
        let value = match value {
            // The kernel attaches what it likes best.
            Value::Qdisc(qdisc) if qdisc.is_default() => initial_value(knob),
            value => value,
        };
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
                (NapiLifetime::WithGro | NapiLifetime::WithGroRemembered, Knob::Gro) => {
                    self.make_napis(value == Value::Switch(true));
                }
                (NapiLifetime::Recreated, Knob::Gro | Knob::Mtu) => self.make_napis(true),
                (NapiLifetime::Recreated, Knob::CombinedChannels) => {
                    if let Value::Count(queues @ 1..=QUEUES_MAX) = value {
                        self.make_queues(u32::try_from(queues).unwrap_or(1));
                    }
                }
                _ => {}
            }
            if self.has_mode_tables {
                for delay in moderated_by(knob) {
                    let value = self.values.entry((*delay, Place::Device));
                    value.and_modify(|value| *value = initial_value(*delay));
                }
            }
            if knob == Knob::Qdisc {
                for queue in 0..self.queues {
                    let key = (Knob::QueueQdisc, Place::TxQueue(queue));
                    self.values.entry(key).and_modify(|value| *value = initial_value(key.0));
                }
            }
        }
    }

    /// Makes all queues anew, with what belongs to them.
    fn make_queues(&mut self, queues: u32) {
        let of_queue = |place: Place| !matches!(place, Place::Host | Place::Device);
        let knobs: Vec<Knob> = Knob::ALL
            .iter()
            .copied()
            .filter(|knob| self.values.keys().any(|(k, place)| k == knob && of_queue(*place)))
            .filter(|knob| !PER_NAPI.contains(knob))
            .collect();
        self.values.retain(|(_, place), _| !of_queue(*place));
        self.queues = queues;
        for knob in knobs {
            for queue in 0..queues {
                self.values.insert((knob, place_for_queue(knob, queue)), initial_value(knob));
            }
        }
        self.make_napis(true);
    }

    fn new(queues: u32, habit: NapiLifetime) -> Self {
        let mut values = BTreeMap::new();
        for &knob in Knob::ALL.iter().filter(|knob| knob.spec().scope == Scope::Interface) {
            for queue in 0..queues {
                values.insert((knob, place_for_queue(knob, queue)), initial_value(knob));
            }
        }
        values.insert((Knob::CombinedChannels, Place::Device), Value::Count(u64::from(queues)));
        let mut interface = Self {
            values,
            asleep: BTreeMap::new(),
            has_device_wide: true,
            queues,
            habit,
            is_strict: false,
            shares_channels: false,
            has_mode_tables: false,
        };
        interface.make_napis(habit != NapiLifetime::NoNapis);
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
        if self.habit == NapiLifetime::WithGroRemembered {
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

/// The delays that a driver takes from its own table when a mode of moderation changes
/// (`mlx5e_reset_rx_moderation`, `mlx5e_reset_tx_moderation`).
const fn moderated_by(mode: Knob) -> &'static [Knob] {
    match mode {
        Knob::AdaptiveRx | Knob::CqeModeRx => &[Knob::RxUsecs, Knob::RxFrames],
        Knob::AdaptiveTx | Knob::CqeModeTx => &[Knob::TxUsecs, Knob::TxFrames],
        _ => &[],
    }
}

fn is_napi(place: Place) -> bool {
    matches!(place, Place::Napi(_))
}

/// Where a knob lives, for one of the queues.
fn place_for_queue(knob: Knob, queue: u32) -> Place {
    match knob {
        Knob::RpsCpus | Knob::RpsFlowCnt => Place::RxQueue(queue),
        Knob::XpsCpus
        | Knob::XpsRxqs
        | Knob::BqlLimitMin
        | Knob::BqlLimitMax
        | Knob::QueueQdisc => Place::TxQueue(queue),
        Knob::SmpAffinity => Place::Interrupt(queue),
        _ => Place::Device,
    }
}

/// The kernel's initial values.
fn initial_value(knob: Knob) -> Value {
    match knob {
        Knob::RxRing | Knob::TxRing => Value::Count(256),
        Knob::Mtu => Value::Count(1500),
        Knob::Txqueuelen => Value::Count(1000),
        Knob::Gro | Knob::Gso | Knob::Tso | Knob::Sg | Knob::TxChecksum => Value::Switch(true),
        Knob::GsoMaxSize | Knob::GsoIpv4MaxSize | Knob::GroMaxSize | Knob::GroIpv4MaxSize => {
            Value::Count(65_536)
        }
        Knob::RmemMax | Knob::WmemMax => Value::Count(212_992),
        knob => zero_value(knob.spec()),
    }
}

fn zero_value(spec: &KnobSpec) -> Value {
    match spec.kind {
        ValueKind::Count => Value::Count(0),
        ValueKind::Time => Value::Time(Nanos::ZERO),
        ValueKind::Switch => Value::Switch(false),
        ValueKind::Cpus => Value::Cpus(CpuSet::new()),
        ValueKind::Qdisc => Value::Qdisc(Qdisc::from_kind("pfifo_fast").into_default()),
        ValueKind::Table => Value::Table(QueueTable::Equal(1)),
        ValueKind::Sizes | ValueKind::Module => {
            let knob: Knob = spec.name.parse().expect("a name of the catalogue");
            knob.parse_value(spec.example).expect("the catalogue's example is allowed")
        }
        ValueKind::Profile => {
            let text = spec.example;
            Value::Profile(text.parse().expect("the catalogue's example is a profile"))
        }
    }
}
