//! What was found of a fleet, for people.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use latput_fleet::judge::{HostState, Judged};
use latput_fleet::twins::TwinDrift;

/// Most names of hosts in a line of the table of values.
const NAMES_MOST: usize = 8;

/// A line for each group, and one for each host that is not as it is to be, or is not known.
pub(super) fn states(judged: &[Judged], wanted: bool) -> String {
    let mut groups: BTreeMap<&str, Vec<&Judged>> = BTreeMap::new();
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
        for Judged { host, state, .. } in hosts {
            if *state != HostState::Same {
                let line = format!(
                    "  {:<12} {} {}: {}",
                    state.name(),
                    host.name,
                    host.interface,
                    state.why()
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
            let _ = writeln!(text, "  {name:<22} {value:<18} {}", names(hosts));
        }
    }
    text
}

/// The knobs in which hosts of a group differ.
pub(super) fn drift(found: &[TwinDrift]) -> String {
    if found.is_empty() { "the hosts of each group are alike\n".to_owned() } else { values(found) }
}

fn names(hosts: &[String]) -> String {
    let shown = hosts.iter().take(NAMES_MOST).map(String::as_str).collect::<Vec<_>>().join(" ");
    match hosts.len().saturating_sub(NAMES_MOST) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
