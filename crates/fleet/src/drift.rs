//! Drift without wanted values: hosts of one kind, compared with each other.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use latput_units::text::format_count;

use crate::context::join_names;
use crate::inventory::FleetHost;
use crate::judge::{HostState, JudgedHost};
use crate::look::{InterfaceLook, UNREAD};

/// A knob in which hosts of a group differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnobDrift {
    /// The group.
    pub group: String,
    /// The knob.
    pub knob: String,
    /// The values with their hosts, the most frequent first.
    pub values: Vec<(String, Vec<String>)>,
}

/// How many hosts of a group were compared with each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupComparison {
    /// The group.
    pub group: String,
    /// The hosts of the group.
    pub hosts: usize,
    /// Those of them whose values count: they answered, and are the hosts that are meant.
    pub compared: usize,
}

/// The hosts whose values count. Hosts that are not the ones that are meant do not.
fn comparable_hosts(judged: &[JudgedHost]) -> impl Iterator<Item = (&FleetHost, &InterfaceLook)> {
    let is_meant = |one: &&JudgedHost| !matches!(one.state, HostState::Other(_));
    judged.iter().filter(is_meant).filter_map(|one| Some((&one.host, one.look.as_ref()?)))
}

/// The values of each knob of each group with their hosts, the most frequent first (of several, the first in order).
pub fn values(judged: &[JudgedHost]) -> Vec<KnobDrift> {
    let mut by_knob: BTreeMap<(&str, &str), BTreeMap<String, Vec<String>>> = BTreeMap::new();
    for (host, look) in comparable_hosts(judged) {
        for knob in &look.knobs {
            let values = by_knob.entry((&host.group, &knob.knob)).or_default();
            values.entry(knob.summarize_values()).or_default().push(host.name.clone());
        }
    }
    let found = by_knob.into_iter().map(|((group, knob), values)| {
        let values = values.into_iter().collect();
        KnobDrift { group: group.to_owned(), knob: knob.to_owned(), values }.sort_values()
    });
    found.collect()
}

/// Those of [`values`] in which hosts differ. A host that lacks a knob which others have differs from them.
pub fn find_drift(judged: &[JudgedHost]) -> Vec<KnobDrift> {
    let mut found = values(judged);
    for knob in &mut found {
        let of_group = comparable_hosts(judged).filter(|(host, _)| host.group == knob.group);
        let lacks = of_group.filter(|(_, look)| look.knobs.iter().all(|own| own.knob != knob.knob));
        let names: Vec<String> = lacks.map(|(host, _)| host.name.clone()).collect();
        if !names.is_empty() {
            knob.values.push((UNREAD.to_owned(), names));
        }
    }
    let differing = found.into_iter().filter(|knob| knob.values.len() > 1);
    differing.map(KnobDrift::sort_values).collect()
}

/// Each group, and how many of its hosts [`find_drift`] compares.
pub fn count_compared(judged: &[JudgedHost]) -> Vec<GroupComparison> {
    let mut groups: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for one in judged {
        groups.entry(&one.host.group).or_default().0 += 1;
    }
    for (host, _) in comparable_hosts(judged) {
        groups.entry(&host.group).or_default().1 += 1;
    }
    let groups = groups.into_iter();
    let part = |(group, (hosts, compared)): (&str, _)| GroupComparison {
        group: group.to_owned(),
        hosts,
        compared,
    };
    groups.map(part).collect()
}

impl KnobDrift {
    /// The same with the most frequent value first.
    fn sort_values(mut self) -> Self {
        self.values.sort_by_key(|(_, hosts)| std::cmp::Reverse(hosts.len()));
        self
    }
}

/// The values of each knob of each group, with their hosts.
pub fn render_values(found: &[KnobDrift]) -> String {
    let mut text = String::new();
    let mut group = "";
    for knob in found {
        if knob.group != group {
            group = &knob.group;
            let _ = writeln!(text, "{group}");
        }
        for (place, (value, hosts)) in knob.values.iter().enumerate() {
            let name = if place == 0 { knob.knob.as_str() } else { "" };
            let _ = writeln!(text, "  {name:<22} {value:<18} {}", join_names(hosts, " "));
        }
    }
    text
}

/// The knobs in which hosts of a group differ, and how many were compared where that is not all of them.
pub fn render_drift(found: &[KnobDrift], compared: &[GroupComparison]) -> String {
    let mut text = render_values(found);
    let is_whole = |group: &GroupComparison| group.compared == group.hosts && group.compared > 1;
    if found.is_empty() && compared.iter().all(is_whole) {
        return "the hosts of each group are alike\n".to_owned();
    }
    for GroupComparison { group, hosts, compared } in compared {
        let differ = found.iter().any(|knob| knob.group == *group);
        let line = match (*compared, *hosts - *compared) {
            (0 | 1, _) => {
                format!(
                    "nothing to compare, {compared} of {} was read",
                    format_count(*hosts, "host")
                )
            }
            (compared, left) => {
                let left = match left {
                    0 => String::new(),
                    left => format!(", {} not compared", format_count(left, "host")),
                };
                let verdict = if differ { "differ" } else { "are alike" };
                format!("{} {verdict}{left}", format_count(compared, "host"))
            }
        };
        let _ = writeln!(text, "{group}: {line}");
    }
    text
}

#[cfg(test)]
mod tests {
    use latput_knobs::Knob;

    use super::*;
    use crate::judge::tests::sample_host;
    use crate::look::tests::sample_look;

    fn judged_host(group: &str, name: &str, value: &str, state: HostState) -> JudgedHost {
        let host = FleetHost { group: group.into(), ..sample_host(name, &[]) };
        JudgedHost { host, state, look: sample_look(Knob::Mtu, value).interface }
    }

    #[test]
    fn hosts_are_compared_within_their_group() {
        let same = || HostState::Same;
        let hosts = [
            judged_host("db", "d1", "9000", same()),
            judged_host("web", "a", "1400", same()),
            judged_host("web", "b", "1500", same()),
            judged_host("web", "c", "1500", same()),
            judged_host("web", "x", "77", HostState::Other("its driver".into())),
        ];
        assert_eq!(values(&hosts).len(), 2);
        let found = find_drift(&hosts);
        assert_eq!(found.len(), 1);
        let KnobDrift { group, knob, values } = &found[0];
        assert_eq!((group.as_str(), knob.as_str()), ("web", "mtu"));
        let of = |value: &str, hosts: &[&str]| {
            (value.to_owned(), hosts.iter().map(|host| (*host).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(*values, [of("1500", &["b", "c"]), of("1400", &["a"])]);
    }

    #[test]
    fn hosts_without_an_answer_are_not_compared() {
        let silent =
            |name: &str, state| JudgedHost { look: None, ..judged_host("web", name, "", state) };
        let hosts = [
            judged_host("db", "d1", "9000", HostState::Same),
            judged_host("web", "a", "1500", HostState::Same),
            judged_host("web", "x", "77", HostState::Other("its driver".into())),
            silent("b", HostState::Unreachable("it is off".into())),
            silent("c", HostState::TimedOut("20 s".into())),
            silent("d", HostState::Failed("no latput".into())),
            silent("e", HostState::NotAsked),
        ];
        assert!(find_drift(&hosts).is_empty());
        let of =
            |group: &str, hosts, compared| GroupComparison { group: group.into(), hosts, compared };
        assert_eq!(count_compared(&hosts), [of("db", 1, 1), of("web", 6, 1)]);
    }

    #[test]
    fn host_that_lacks_a_knob_differs() {
        let mut lacking = judged_host("web", "c", "1500", HostState::Same);
        lacking.look.as_mut().unwrap().knobs.clear();
        let same = || HostState::Same;
        let hosts = [
            lacking,
            judged_host("web", "a", "1500", same()),
            judged_host("web", "b", "1500", same()),
        ];
        let found = find_drift(&hosts);
        let of = |value: &str, hosts: &[&str]| {
            (value.to_owned(), hosts.iter().map(|host| (*host).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(found[0].values, [of("1500", &["a", "b"]), of(UNREAD, &["c"])]);
    }

    #[test]
    fn hosts_are_alike_where_all_were_compared() {
        let of =
            |group: &str, hosts, compared| GroupComparison { group: group.into(), hosts, compared };
        assert_eq!(render_drift(&[], &[of("a", 2, 2)]), "the hosts of each group are alike\n");
        for (group, said) in [
            (of("a", 3, 2), "2 hosts are alike, 1 host not compared"),
            (of("a", 4, 2), "2 hosts are alike, 2 hosts not compared"),
            (of("a", 3, 1), "nothing to compare, 1 of 3 hosts was read"),
            (of("a", 3, 0), "nothing to compare, 0 of 3 hosts was read"),
            (of("a", 1, 1), "nothing to compare, 1 of 1 host was read"),
        ] {
            let whole = of("b", 2, 2);
            assert_eq!(
                render_drift(&[], &[group, whole]),
                format!("a: {said}\nb: 2 hosts are alike\n")
            );
        }
    }
}
