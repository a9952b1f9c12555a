//! Drift without wanted values: hosts of one kind, compared with each other.

use std::collections::BTreeMap;

use crate::judge::Judged;

/// A knob in which hosts of a group differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TwinDrift {
    /// The group.
    pub group: String,
    /// The knob.
    pub knob: String,
    /// The values with their hosts, the most frequent first.
    pub values: Vec<(String, Vec<String>)>,
}

/// The values of each knob of each group with their hosts, the most frequent first (of several, the first in order).
/// Hosts that are not the ones that are meant do not count.
pub fn values(judged: &[Judged]) -> Vec<TwinDrift> {
    let mut by_knob: BTreeMap<(&str, &str), BTreeMap<String, Vec<String>>> = BTreeMap::new();
    for Judged { host, state, look } in judged {
        if matches!(state, crate::judge::HostState::Other(_)) {
            continue;
        }
        for knob in look.iter().flat_map(|found| &found.knobs) {
            let values = by_knob.entry((&host.group, &knob.knob)).or_default();
            values.entry(knob.brief()).or_default().push(host.name.clone());
        }
    }
    let found = by_knob.into_iter().map(|((group, knob), values)| {
        let mut values: Vec<(String, Vec<String>)> = values.into_iter().collect();
        values.sort_by_key(|(_, hosts)| std::cmp::Reverse(hosts.len()));
        TwinDrift { group: group.to_owned(), knob: knob.to_owned(), values }
    });
    found.collect()
}

/// Those of [`values`] in which hosts differ.
pub fn drift(judged: &[Judged]) -> Vec<TwinDrift> {
    values(judged).into_iter().filter(|knob| knob.values.len() > 1).collect()
}

#[cfg(test)]
mod tests {
    use latput_knobs::{Knob, Setting};

    use super::*;
    use crate::inventory::FleetHost;
    use crate::judge::HostState;
    use crate::look::tests::sample;

    fn judged(group: &str, name: &str, value: &str, state: HostState) -> Judged {
        let host = FleetHost {
            name: name.into(),
            group: group.into(),
            reach: format!("ssh://{name}"),
            interface: "eth0".into(),
            driver: None,
            setting: Setting::new(),
        };
        Judged { host, state, look: sample(Knob::Mtu, value).interface }
    }

    #[test]
    fn hosts_of_a_group_are_compared_with_each_other_only() {
        let same = || HostState::Same;
        let hosts = [
            judged("db", "d1", "9000", same()),
            judged("web", "a", "1400", same()),
            judged("web", "b", "1500", same()),
            judged("web", "c", "1500", same()),
            judged("web", "x", "77", HostState::Other("its driver".into())),
        ];
        assert_eq!(values(&hosts).len(), 2);
        let found = drift(&hosts);
        assert_eq!(found.len(), 1);
        let TwinDrift { group, knob, values } = &found[0];
        assert_eq!((group.as_str(), knob.as_str()), ("web", "mtu"));
        let of = |value: &str, hosts: &[&str]| {
            (value.to_owned(), hosts.iter().map(|host| (*host).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(*values, [of("1500", &["b", "c"]), of("1400", &["a"])]);
    }
}
