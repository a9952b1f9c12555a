//! Tables of a fleet, for people.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use latput_fleet::judge::{HostState, JudgedHost};
use latput_fleet::twins::{GroupComparison, TwinDrift};

/// Most names of hosts in a line of the table of values.
const NAMES_MOST: usize = 8;

/// A line for each group, and one for each host that is not as it is to be, or is not known.
pub(super) fn render_states(judged: &[JudgedHost], wanted: bool) -> String {
    let mut groups: BTreeMap<&str, Vec<&JudgedHost>> = BTreeMap::new();
    for one in judged {
        groups.entry(&one.host.group).or_default().push(one);
    }
    let mut text = String::new();
    for (group, hosts) in groups {
        let parts = HostState::NAMES.iter().filter_map(|name| {
            let count = hosts.iter().filter(|one| one.state.name() == *name).count();
            let said = if *name == "same" && !wanted { "read" } else { name };
            (count > 0).then(|| format!("{count} {said}"))
        });
        let parts: Vec<String> = parts.collect();
        let _ = writeln!(text, "{group}: {}: {}", hosts_in_words(hosts.len()), parts.join(", "));
        for JudgedHost { host, state, .. } in hosts {
            if *state != HostState::Same {
                let line = format!(
                    "  {:<12} {} {}: {}",
                    state.name(),
                    host.name,
                    host.interface,
                    state.explanation()
                );
                let _ = writeln!(text, "{line}");
            }
        }
    }
    text
}

/// `1 host`, `2 hosts`.
pub(super) fn hosts_in_words(count: usize) -> String {
    if count == 1 { "1 host".to_owned() } else { format!("{count} hosts") }
}

/// The values of each knob of each group, with their hosts.
pub(super) fn values(found: &[TwinDrift]) -> String {
    let mut text = String::new();
    let mut group = "";
    for knob in found {
        if knob.group != group {
            group = &knob.group;
            let _ = writeln!(text, "{group}");
        }
        for (place, (value, hosts)) in knob.values.iter().enumerate() {
            let name = if place == 0 { knob.knob.as_str() } else { "" };
            let _ = writeln!(text, "  {name:<22} {value:<18} {}", join_names(hosts));
        }
    }
    text
}

/// The knobs in which hosts of a group differ, and how many were compared where that is not all of them.
pub(super) fn render_drift(found: &[TwinDrift], compared: &[GroupComparison]) -> String {
    let mut text = values(found);
    let is_whole = |group: &GroupComparison| group.compared == group.hosts && group.compared > 1;
    if found.is_empty() && compared.iter().all(is_whole) {
        return "the hosts of each group are alike\n".to_owned();
    }
    for GroupComparison { group, hosts, compared } in compared {
        let differ = found.iter().any(|knob| knob.group == *group);
        let line = match (*compared, *hosts - *compared) {
            (0 | 1, _) => {
                format!("nothing to compare, {compared} of {} was read", hosts_in_words(*hosts))
            }
            (compared, left) => {
                let left = match left {
                    0 => String::new(),
                    left => format!(", {} not compared", hosts_in_words(left)),
                };
                let verdict = if differ { "differ" } else { "are alike" };
                format!("{} {verdict}{left}", hosts_in_words(compared))
            }
        };
        let _ = writeln!(text, "{group}: {line}");
    }
    text
}

fn join_names(hosts: &[String]) -> String {
    let shown = hosts.iter().take(NAMES_MOST).map(String::as_str).collect::<Vec<_>>().join(" ");
    match hosts.len().saturating_sub(NAMES_MOST) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
