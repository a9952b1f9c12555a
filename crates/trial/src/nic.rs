//! A network interface as its host describes it, and a plan for it.

mod families;
mod plan;

use latput_knobs::{Knob, Value};
use latput_units::CpuSet;
use serde::{Deserialize, Serialize};

pub use plan::{MOST_SETTINGS, PlanSize};

/// An interface, its knobs, and what it stands on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nic {
    /// Its name.
    pub interface: String,
    /// The driver, or the kind of a virtual interface (`veth`, `vlan`, `bond`).
    pub driver: String,
    /// The interfaces below it: ports of a bond or bridge, the link of a VLAN.
    pub lower: Vec<String>,
    /// The physical function's interface, of a virtual function.
    pub physical_function: Option<String>,
    /// The CPUs of its host.
    pub cpus: CpuSet,
    /// Every knob of the catalogue.
    pub knobs: Vec<NicKnob>,
}

/// One knob of an interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NicKnob {
    /// The knob.
    pub knob: Knob,
    /// Its different values; several if its places (queues, interrupts) differ.
    pub values: Vec<Value>,
    /// The number of its places.
    pub places: usize,
    /// Why it cannot be set here; `None` if it can.
    pub obstacle: Option<String>,
    /// The smallest and the largest value here, in the unit of the catalogue.
    pub range: (u64, u64),
    /// Whether a change takes the link down and up.
    pub resets_link: bool,
}

impl Nic {
    /// A knob that can be set.
    fn settable(&self, knob: Knob) -> Option<&NicKnob> {
        self.knobs.iter().find(|known| known.knob == knob && known.today().is_ok())
    }

    /// Why a knob that can be set alone must not be varied beside others. A veth has its NAPI only while GRO is on (seen
    /// on kernel 6.18: setting a knob of the NAPI is refused without). Where the NAPI can be set today, its knobs are
    /// varied; where it cannot, GRO is.
    fn reason_against(&self, knob: Knob) -> Option<&'static str> {
        if self.driver != "veth" {
            return None;
        }
        let napi = [Knob::GroFlushTimeout, Knob::NapiDeferHardIrqs];
        let has_napi = napi.iter().all(|knob| self.settable(*knob).is_some());
        match knob {
            Knob::Gro if has_napi => Some(
                "a veth has NAPI only while GRO is on, and other factors vary NAPI; `latput tune HOST HOST \
                 --factor sut.gro=on,off` varies it alone",
            ),
            Knob::Threaded if !has_napi && self.settable(Knob::Gro).is_some() => {
                Some("a veth has NAPI only while GRO is on, and this plan varies GRO")
            }
            _ => None,
        }
    }

    /// Today's value of a knob that can be set.
    fn today(&self, knob: Knob) -> Option<Value> {
        self.settable(knob)?.today().ok().cloned()
    }
}

impl NicKnob {
    /// Today's value; the error is the reason why a plan cannot vary it.
    pub fn today(&self) -> Result<&Value, String> {
        match (&self.obstacle, self.values.as_slice()) {
            (Some(why), _) => Err(why.clone()),
            (None, [value]) => Ok(value),
            (None, []) => Err("its value could not be read".to_owned()),
            (None, several) => Err(format!(
                "its {} places have {} different values, and a plan sets one",
                self.places,
                several.len()
            )),
        }
    }
}
