//! Today: the values that the hosts have before the run. They are the first setting of every run.

use std::collections::{BTreeMap, BTreeSet};

use latput_knobs::{Knob, Setting, State, Value};
use latput_units::IntoMap;
use serde::{Deserialize, Serialize};

use crate::observation::Role;

/// The label of today's setting where the plan does not have it.
pub const TODAY: &str = "today";

/// The values of the plan's knobs on one host before the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostToday {
    /// The host's name.
    pub host: String,
    /// Its role.
    pub role: Role,
    /// Its values; a knob that could not be read is absent.
    pub values: State,
}

/// The values that every place of every host of a role has. Of a knob whose hosts or places differ there is
/// none: each keeps its own.
pub fn shared(today: &[HostToday]) -> BTreeMap<Role, Setting> {
    let mut by_role: BTreeMap<Role, BTreeMap<Knob, Vec<&Value>>> = BTreeMap::new();
    let mut lacking: BTreeSet<(Role, Knob)> = BTreeSet::new();
    let every_knob = || today.iter().flat_map(|host| host.values.0.keys().map(|(knob, _)| *knob));
    for host in today {
        let values = by_role.entry(host.role).or_default();
        for ((knob, _), value) in &host.values.0 {
            values.entry(*knob).or_default().push(value);
        }
        let has = |knob: &Knob| host.values.0.keys().any(|(own, _)| own == knob);
        lacking.extend(every_knob().filter(|knob| !has(knob)).map(|knob| (host.role, knob)));
    }
    let one = |knob: Knob, values: &[&Value]| {
        let (first, rest) = values.split_first()?;
        rest.iter().all(|value| knob.spec().same(first, value)).then(|| (*first).clone())
    };
    let of_role = |(role, values): (Role, BTreeMap<Knob, Vec<&Value>>)| {
        let known = values.into_iter().filter(|(knob, _)| !lacking.contains(&(role, *knob)));
        let known = known.filter_map(|(knob, values)| Some((knob, one(knob, &values)?)));
        (role, known.into_map())
    };
    by_role.into_iter().map(of_role).filter(|(_, setting)| !setting.is_empty()).into_map()
}

/// Whether hosts with the values of `today` have those of `setting` already.
pub fn has(today: &BTreeMap<Role, Setting>, setting: &BTreeMap<Role, Setting>) -> bool {
    let has = |role: &Role, knob: &Knob, value: &Value| {
        let now = today.get(role).and_then(|today| today.get(knob));
        now.is_some_and(|now| knob.spec().same(now, value))
    };
    setting.iter().all(|(role, set)| set.iter().all(|(knob, value)| has(role, knob, value)))
}

/// The first value in which the settings of two testbeds differ: `sut.mtu=9000, there 1500`. Values are alike if they
/// read alike: each kernel numbers its queue disciplines itself.
pub fn first_difference(
    here: &BTreeMap<Role, Setting>,
    there: &BTreeMap<Role, Setting>,
) -> Option<String> {
    let keys = [here, there].into_iter().flat_map(|by_role| {
        by_role.iter().flat_map(|(role, set)| set.keys().map(|knob| (*role, *knob)))
    });
    let value = |by_role: &BTreeMap<Role, Setting>, role: Role, knob: Knob| {
        let value = by_role.get(&role).and_then(|set| set.get(&knob));
        value.map_or_else(|| "several values".to_owned(), ToString::to_string)
    };
    keys.into_iter().find_map(|(role, knob)| {
        let (ours, theirs) = (value(here, role, knob), value(there, role, knob));
        (ours != theirs).then(|| format!("{}.{knob}={ours}, there {theirs}", role.name()))
    })
}

/// Differences between the values before and now, in sentences.
pub fn differences(before: &[HostToday], now: &[HostToday]) -> Vec<String> {
    let value = |hosts: &[HostToday], host: &str, key| {
        let host = hosts.iter().find(|known| known.host == host)?;
        host.values.0.get(key).cloned()
    };
    let mut found = Vec::new();
    for host in before {
        for (key, was) in &host.values.0 {
            let (knob, place) = key;
            match value(now, &host.host, key) {
                Some(is) if is == *was => {}
                Some(is) => {
                    found.push(format!("{}: {knob} ({place}) was {was} and is {is}", host.host));
                }
                None => found
                    .push(format!("{}: {knob} ({place}) was {was} and cannot be read", host.host)),
            }
        }
    }
    found
}
