//! A host's answer when a fleet looks at it: one JSON document.

use std::collections::BTreeSet;

use latput_knobs::Knob;
use latput_units::IntoSet;
use serde::{Deserialize, Serialize};

/// The version of the document's form.
pub const SCHEMA: u32 = 1;
/// Asks for every knob that can be set.
pub(crate) const ALL: &str = "*";
/// Most bytes of an answer.
pub const ANSWER_BYTES_MOST: usize = 1 << 20;
/// The words for a knob without a value, in all commands: the host lacks it (without GRO a veth has no NAPI, for instance),
/// or may not read it.
pub const UNREAD: &str = "cannot be read";
/// Most bytes of a text in it.
const TEXT_BYTES_MOST: usize = 16 << 10;

/// The answer of a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostLook {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The version of its latput.
    pub version: String,
    /// Its boot; two names with the same boot, namespace and interface are one host.
    pub boot_id: String,
    /// The network namespace, by its inode number.
    pub network_namespace: u64,
    /// The interface; `None` if there is no such interface.
    pub interface: Option<InterfaceLook>,
    /// The names of the others, if there is no such interface.
    pub others: Vec<String>,
}

/// An interface of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InterfaceLook {
    /// Its name.
    pub name: String,
    /// The kernel's number of it.
    pub index: u32,
    /// Its driver; of a virtual one the kind (`veth`).
    pub driver: String,
    /// Whether it is administratively up.
    pub is_up: bool,
    /// Whether it has carrier; `None` where the driver does not say.
    pub has_carrier: Option<bool>,
    /// Errors and drops of both directions since it was made, packets.
    pub faults: u64,
    /// The knobs that were asked for.
    pub knobs: Vec<KnobLook>,
    /// A change of it that is under way or waits to be confirmed.
    pub waiting: Option<WaitingChange>,
    /// The newest rollout of it, where that is still of interest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<RolloutLook>,
}

/// A knob of an interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KnobLook {
    /// Its name.
    pub knob: String,
    /// Its value at each place; empty if it could not be read.
    pub values: Vec<PlaceLook>,
    /// Why it could not be read.
    pub problem: Option<String>,
}

/// The value of a knob at one place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlaceLook {
    /// `device`, `rx-0`, `napi of rx-0`.
    pub place: String,
    /// The value, as `latput set` takes it.
    pub value: String,
    /// The word that was wanted (`max`, `hint`), of which this is the value here; absent where a value is wanted, or
    /// none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub word: Option<String>,
}

/// A change that is not final.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WaitingChange {
    /// Its maker: `set by uid 0`.
    pub by: String,
    /// The time until it goes back, in milliseconds; `None` if it is incomplete.
    pub left_ms: Option<u64>,
}

/// State of a rollout on one host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RolloutLook {
    /// Its name.
    pub name: String,
    /// How far it has come.
    pub state: RolloutState,
    /// The names of the hosts that it did not reach, where it is recorded that it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missed: Option<Vec<String>>,
}

/// How far a rollout has come on one host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RolloutState {
    /// It waits to be confirmed, and goes back after so many milliseconds; `None` while the change is made.
    Waits(Option<u64>),
    /// It is confirmed, as this entry of the journal, and in force.
    Confirmed(u64),
    /// It went back, because nobody confirmed it.
    WentBack,
}

impl HostLook {
    /// Reads the answer to a question about `knobs` of `interface`; `None` asks for all that can be set. The error says
    /// what is wrong with the answer.
    pub fn read(
        bytes: &[u8],
        interface: &str,
        knobs: Option<&BTreeSet<Knob>>,
    ) -> Result<Self, String> {
        if bytes.len() > ANSWER_BYTES_MOST {
            return Err(format!("its answer is longer than {ANSWER_BYTES_MOST} bytes"));
        }
        if bytes.is_empty() {
            return Err("it sent no answer".to_owned());
        }
        let look: Self = serde_json::from_slice(bytes)
            .map_err(|error| format!("its answer is not from latput: {error}"))?;
        if look.schema != SCHEMA {
            return Err(format!(
                "its latput {} answers in form {}, not {SCHEMA}: install the same version on both",
                look.version.escape_debug(),
                look.schema
            ));
        }
        if look
            .text_fields()
            .any(|text| text.len() > TEXT_BYTES_MOST || text.contains(char::is_control))
        {
            return Err("its answer has a text that latput never sends".to_owned());
        }
        let Some(found) = &look.interface else { return Ok(look) };
        if found.name != interface {
            return Err(format!("it was asked for {interface} and answered for {}", found.name));
        }
        let all = || Knob::ALL.iter().copied().into_set();
        let mut left: BTreeSet<Knob> = knobs.cloned().unwrap_or_else(all);
        for answered in &found.knobs {
            let is_asked = answered.knob.parse().is_ok_and(|knob: Knob| left.remove(&knob));
            if !is_asked {
                return Err(format!("it answered for `{}`, which was not asked", answered.knob));
            }
            if answered.values.is_empty() == answered.problem.is_none() {
                return Err(format!(
                    "its answer for {} is neither value nor reason",
                    answered.knob
                ));
            }
        }
        match left.first().filter(|_| knobs.is_some()) {
            Some(knob) => Err(format!("it did not answer for {knob}")),
            None => Ok(look),
        }
    }

    fn text_fields(&self) -> impl Iterator<Item = &String> {
        let of_interface = self.interface.iter().flat_map(|found| {
            let of_knobs = found.knobs.iter().flat_map(|knob| {
                let of_places = knob.values.iter();
                let of_places =
                    of_places.flat_map(|at| [&at.place, &at.value].into_iter().chain(&at.word));
                [&knob.knob].into_iter().chain(&knob.problem).chain(of_places)
            });
            let by = found.waiting.iter().map(|waiting| &waiting.by);
            let rollout = found.rollout.iter().flat_map(|rollout| {
                [&rollout.name].into_iter().chain(rollout.missed.iter().flatten())
            });
            [&found.name, &found.driver].into_iter().chain(by).chain(rollout).chain(of_knobs)
        });
        [&self.version, &self.boot_id].into_iter().chain(&self.others).chain(of_interface)
    }
}

impl InterfaceLook {
    /// The look at a knob, if it was asked for.
    pub fn find_knob(&self, knob: Knob) -> Option<&KnobLook> {
        self.knobs.iter().find(|look| look.knob == knob.name())
    }
}

impl KnobLook {
    /// The value in a few words: one for all places if it is the same, else each.
    pub fn summarize_values(&self) -> String {
        match self.values.as_slice() {
            [] => UNREAD.to_owned(),
            [first, rest @ ..] if rest.iter().all(|other| other.value == first.value) => {
                first.value.clone()
            }
            many => {
                let places = many.iter().map(|at| format!("{}: {}", at.place, at.value));
                places.collect::<Vec<_>>().join(", ")
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A look at `eth0` of a veth with one knob.
    pub(crate) fn sample_look(knob: Knob, value: &str) -> HostLook {
        let at = |place: &str| PlaceLook { place: place.into(), value: value.into(), word: None };
        HostLook {
            schema: SCHEMA,
            version: "0.1.0".into(),
            boot_id: "boot".into(),
            network_namespace: 7,
            interface: Some(InterfaceLook {
                name: "eth0".into(),
                index: 2,
                driver: "veth".into(),
                is_up: true,
                has_carrier: Some(true),
                knobs: vec![KnobLook {
                    knob: knob.name().into(),
                    values: vec![at("device")],
                    problem: None,
                }],
                ..InterfaceLook::default()
            }),
            others: Vec::new(),
        }
    }

    fn read(text: &str) -> Result<HostLook, String> {
        HostLook::read(text.as_bytes(), "eth0", Some(&BTreeSet::from([Knob::Mtu])))
    }

    #[test]
    fn answer_is_read_as_it_was_sent() {
        let look = sample_look(Knob::Mtu, "1500");
        assert_eq!(read(&serde_json::to_string(&look).unwrap()).unwrap(), look);
    }

    #[test]
    fn answer_that_no_latput_sends_is_refused() {
        let text = serde_json::to_string(&sample_look(Knob::Mtu, "1500")).unwrap();
        for (from, to, problem) in [
            ("\"schema\":1", "\"schema\":2", "answers in form 2"),
            ("eth0", "eth1", "asked for eth0 and answered for eth1"),
            ("\"mtu\"", "\"gro\"", "`gro`, which was not asked"),
            ("\"mtu\"", "\"mut\"", "`mut`, which was not asked"),
            ("1500", "15\\u001b[2J", "a text that latput never sends"),
            ("\"is_up\":true", "\"is_up\":7", "not from latput"),
            ("\"is_up\"", "\"more\":1,\"is_up\"", "unknown field `more`"),
        ] {
            let said = read(&text.replace(from, to)).unwrap_err();
            assert!(said.contains(problem), "{to}: {said}");
        }
        let mut look = sample_look(Knob::Mtu, "1500");
        look.interface.as_mut().unwrap().knobs[0].values.clear();
        let said = read(&serde_json::to_string(&look).unwrap()).unwrap_err();
        assert!(said.contains("neither value nor reason"), "{said}");
        look.interface.as_mut().unwrap().knobs.clear();
        let said = read(&serde_json::to_string(&look).unwrap()).unwrap_err();
        assert!(said.contains("did not answer for mtu"), "{said}");
        assert!(HostLook::read(text.as_bytes(), "eth0", None).is_ok(), "some of all");
        let huge = format!("{text}{}", " ".repeat(ANSWER_BYTES_MOST));
        assert!(read(&huge).unwrap_err().contains("longer than"));
        for text in ["", "y\ny\n", "{}", "null", &"[".repeat(100_000), &text[..text.len() / 2]] {
            assert!(read(text).is_err(), "{text:.40}");
        }
    }

    #[test]
    fn places_that_agree_are_told_once() {
        let mut knob = sample_look(Knob::Mtu, "9").interface.unwrap().knobs.remove(0);
        knob.values.push(PlaceLook { place: "rx-0".into(), ..knob.values[0].clone() });
        assert_eq!(knob.summarize_values(), "9");
        knob.values[1].value = "8".into();
        assert_eq!(knob.summarize_values(), "device: 9, rx-0: 8");
        knob.values.clear();
        assert_eq!(knob.summarize_values(), UNREAD);
    }
}
