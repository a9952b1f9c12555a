//! Rollouts that are not whole: some hosts keep the change, others wait, went back or were not reached.
//!
//! The state of a rollout is on its hosts alone. A rollout that comes to its end records on them that it has ended, and the
//! hosts that it did not reach. Without such a record, the process that confirms the hosts died in between: the next look at
//! the hosts tells which have come how far. A host that does not answer then may still wait, or have gone back.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use latput_units::text::format_count;

use crate::journal::ROLLOUT;
use crate::judge::{HostState, JudgedHost};
use crate::look::RolloutState;

/// The remedy for hosts that a rollout did not reach.
pub(crate) const RUN_AGAIN: &str =
    "Run the same `latput fleet apply` again: it changes only hosts that are not as wanted";

/// Time after its begin in which a rollout is open where a host does not answer: the longest lease is a day.
const RECENT_MS: u64 = 24 * 3_600_000;

/// Names the rollout to so many hosts that this process begins now: `fleet-1a21f0015cc-7fbf-12`.
pub fn rollout_name(now_unix_ms: u64, pid: u32, hosts: usize) -> String {
    format!("{ROLLOUT}{now_unix_ms:x}-{pid:x}-{hosts}")
}

/// The number of hosts of a rollout, which is in its name; `None` where an older latput named it.
fn planned_hosts(name: &str) -> Option<usize> {
    name.strip_prefix(ROLLOUT)?.split('-').nth(2)?.parse().ok()
}

/// The begin of a rollout, in milliseconds since 1970, which is in its name.
fn begun_unix_ms(name: &str) -> Option<u64> {
    let (begun, _) = name.strip_prefix(ROLLOUT)?.split_once('-')?;
    u64::from_str_radix(begun, 16).ok()
}

/// `1 host was not reached: h3`.
pub(crate) fn missed_in_words(names: &[impl AsRef<str>]) -> String {
    let were = if names.len() == 1 { "was" } else { "were" };
    let hosts = format_count(names.len(), "host");
    let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    format!("{hosts} {were} not reached: {}", names.join(", "))
}

/// A rollout whose hosts differ, wait, do not all answer, or were not all reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenRollout {
    /// Its name.
    pub name: String,
    /// Its hosts, by their place in the list.
    pub hosts: BTreeMap<usize, RolloutHost>,
    /// The listed hosts that did not answer. Whether they have it is unknown.
    pub unknown: Vec<String>,
    /// The listed hosts that it did not reach and that still lack it, where it has ended.
    pub missed: Option<Vec<String>>,
}

/// A host of such a rollout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RolloutHost {
    /// The host's name.
    pub name: String,
    /// How far it has come.
    pub state: RolloutState,
}

/// The rollouts that are under way, were cut short or may have been, or that ended without some hosts, by name.
pub fn open_rollouts(judged: &[JudgedHost], now_unix_ms: u64) -> Vec<OpenRollout> {
    let mut found: BTreeMap<&str, BTreeMap<usize, RolloutHost>> = BTreeMap::new();
    let mut missed: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (at, JudgedHost { host, look, .. }) in judged.iter().enumerate() {
        let rollout = look.as_ref().and_then(|look| look.rollout.as_ref());
        let Some(rollout) = rollout.filter(|rollout| rollout.name.starts_with(ROLLOUT)) else {
            continue;
        };
        let host = RolloutHost { name: host.name.clone(), state: rollout.state };
        found.entry(&rollout.name).or_default().insert(at, host);
        if let Some(names) = &rollout.missed {
            missed.entry(&rollout.name).or_default().extend(names.iter().map(String::as_str));
        }
    }
    let silent = judged.iter().filter(|one| one.look.is_none());
    let unknown: Vec<String> = silent.map(|one| one.host.name.clone()).collect();
    let rollouts = found.into_iter().map(|(name, hosts)| OpenRollout {
        name: name.to_owned(),
        hosts,
        unknown: unknown.clone(),
        missed: missed.get(name).map(|names| find_still_missed(judged, name, names)),
    });
    rollouts.filter(|rollout| rollout.is_open(now_unix_ms)).collect()
}

/// The listed hosts among `names` that still lack the rollout. A host that answers does not if it has a later one, or if the
/// command has not found that it differs from the wanted values.
fn find_still_missed(judged: &[JudgedHost], name: &str, names: &BTreeSet<&str>) -> Vec<String> {
    let lacks_it = |JudgedHost { host, state, look }: &&JudgedHost| {
        let lacks_it = match look.as_ref().and_then(|look| look.rollout.as_ref()) {
            Some(own) if own.name == name => !matches!(own.state, RolloutState::Confirmed(_)),
            Some(own) if begun_unix_ms(&own.name) > begun_unix_ms(name) => false,
            Some(_) | None => {
                state.is_unknown() || (*state != HostState::Same && !host.setting.is_empty())
            }
        };
        lacks_it && names.contains(host.name.as_str())
    };
    judged.iter().filter(lacks_it).map(|one| one.host.name.clone()).collect()
}

impl OpenRollout {
    /// Whether it is over: it has ended, and no host waits.
    pub fn is_over(&self) -> bool {
        self.missed.is_some() && !self.has_host(|state| matches!(state, RolloutState::Waits(_)))
    }

    /// Whether something is left to do about it.
    fn is_open(&self, now_unix_ms: u64) -> bool {
        let waits = self.has_host(|state| matches!(state, RolloutState::Waits(_)));
        if let Some(missed) = &self.missed {
            return waits || !missed.is_empty();
        }
        let is_kept = self.has_host(|state| matches!(state, RolloutState::Confirmed(_)));
        let is_split = is_kept && self.has_host(|state| state == RolloutState::WentBack);
        let begun = begun_unix_ms(&self.name);
        let is_recent = begun.is_some_and(|begun| now_unix_ms.saturating_sub(begun) < RECENT_MS);
        // Where all of its hosts have answered, the silent ones were left out.
        let may_miss = planned_hosts(&self.name).is_none_or(|planned| self.hosts.len() < planned);
        waits || is_split || (is_kept && is_recent && may_miss && !self.unknown.is_empty())
    }

    fn has_host(&self, is_meant: impl Fn(RolloutState) -> bool) -> bool {
        self.hosts.values().any(|host| is_meant(host.state))
    }

    fn hosts_in_state(&self, is_meant: impl Fn(RolloutState) -> bool) -> Vec<&str> {
        let meant = self.hosts.values().filter(|host| is_meant(host.state));
        meant.map(|host| host.name.as_str()).collect()
    }

    /// The time until the first host that waits goes back, in milliseconds.
    fn first_back_ms(&self) -> Option<u64> {
        let left = self.hosts.values().filter_map(|host| match host.state {
            RolloutState::Waits(left_ms) => left_ms,
            RolloutState::Confirmed(_) | RolloutState::WentBack => None,
        });
        left.min()
    }
}

impl fmt::Display for OpenRollout {
    /// `rollout fleet-1 is under way or was cut short: confirmed on h1, h2; waits on h3, and goes back in 57 s`,
    /// `rollout fleet-1 ended; 1 host was not reached: h3`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let confirmed = self.hosts_in_state(|state| matches!(state, RolloutState::Confirmed(_)));
        let waits = self.hosts_in_state(|state| matches!(state, RolloutState::Waits(_)));
        let back = self.hosts_in_state(|state| state == RolloutState::WentBack);
        let mut parts = Vec::new();
        if let Some(missed) = &self.missed {
            write!(f, "rollout {} ended; ", self.name)?;
            parts.extend((!missed.is_empty()).then(|| missed_in_words(missed)));
        } else {
            let how = match (waits.is_empty(), back.is_empty()) {
                (false, _) => "is under way or was cut short",
                (true, false) => "was cut short",
                (true, true) => "may have been cut short",
            };
            write!(f, "rollout {} {how}: ", self.name)?;
        }
        if !confirmed.is_empty() && self.missed.is_none() {
            parts.push(format!("confirmed on {}", confirmed.join(", ")));
        }
        if !waits.is_empty() {
            let time = self.first_back_ms().map_or(String::new(), |left_ms| {
                format!(", and goes back in {} s", left_ms.div_ceil(1000))
            });
            parts.push(format!("waits on {}{time}", waits.join(", ")));
        }
        if !back.is_empty() && self.missed.is_none() {
            parts.push(format!("went back on {}", back.join(", ")));
        }
        if !self.unknown.is_empty() && self.missed.is_none() {
            parts.push(format!("not known of {}, which did not answer", self.unknown.join(", ")));
        }
        f.write_str(&parts.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use latput_knobs::Knob;

    use super::*;
    use crate::judge::judge_hosts;
    use crate::judge::tests::sample_host;
    use crate::look::RolloutLook;
    use crate::look::tests::sample_look;

    #[test]
    fn split_or_waiting_rollouts_are_open() {
        use RolloutState::{Confirmed, Waits, WentBack};
        check_open_rollouts(&[("a", Confirmed(3)), ("a", Confirmed(1))], &[]);
        check_open_rollouts(&[("a", WentBack), ("b", Confirmed(1))], &[]);
        check_open_rollouts(
            &[("a", Confirmed(3)), ("a", Waits(Some(56_100))), ("a", Waits(Some(90_000)))],
            &[
                "rollout fleet-a is under way or was cut short: confirmed on h0; waits on h1, h2, and goes back in 57 s",
            ],
        );
        check_open_rollouts(
            &[("a", Confirmed(3)), ("b", Waits(None)), ("a", WentBack)],
            &[
                "rollout fleet-a was cut short: confirmed on h0; went back on h2",
                "rollout fleet-b is under way or was cut short: waits on h1",
            ],
        );
    }

    #[test]
    fn silent_host_leaves_recent_rollout_open() {
        let named = |begun: u64| [(rollout_name(begun, 7, 3), RolloutState::Confirmed(1))];
        let said = |begun: u64, silent: usize| open(&named(begun), silent, NOW_MS);
        assert_eq!(
            said(NOW_MS - 60_000, 2),
            [format!(
                "rollout {} may have been cut short: confirmed on h0; not known of h1, h2, which did not answer",
                rollout_name(NOW_MS - 60_000, 7, 3)
            )]
        );
        assert_eq!(said(NOW_MS - 60_000, 0), [""; 0], "all of them have it");
        let whole = [(rollout_name(NOW_MS - 60_000, 7, 1), RolloutState::Confirmed(1))];
        assert_eq!(open(&whole, 2, NOW_MS), [""; 0], "the silent ones are no part of it");
        assert_eq!(said(NOW_MS - RECENT_MS, 2), [""; 0], "a host is away for another reason");
    }

    #[test]
    fn ended_rollout_names_missed_hosts() {
        use RolloutState::{Confirmed, Waits, WentBack};
        let name = || rollout_name(NOW_MS - 60_000, 7, 3);
        let later = || rollout_name(NOW_MS - 30_000, 8, 1);
        let said = |hosts: &[(String, RolloutState)], silent, missed: &[&str]| {
            open_after(hosts, silent, NOW_MS, Some(missed))
        };
        let first = [(name(), Confirmed(1))];
        assert_eq!(said(&first, 2, &[]), [""; 0], "a host is away that had it, or was not meant");
        assert_eq!(
            said(&first, 2, &["h1", "h2", "of-another-list"]),
            [format!("rollout {} ended; 2 hosts were not reached: h1, h2", name())]
        );
        let back = [(name(), Confirmed(1)), (name(), WentBack)];
        let ended = format!("rollout {} ended; 1 host was not reached: h1", name());
        assert_eq!(said(&back, 0, &["h1"]), std::slice::from_ref(&ended));
        let waits = [(name(), Confirmed(1)), (name(), Waits(Some(2000)))];
        assert_eq!(said(&waits, 0, &["h1"]), [ended + "; waits on h1, and goes back in 2 s"]);
        let again = [(name(), Confirmed(1)), (later(), Confirmed(1))];
        assert_eq!(said(&again, 0, &["h1"]), [""; 0], "it has a later one");
    }

    /// A time in 2026.
    const NOW_MS: u64 = 1_790_000_000_000;

    #[track_caller]
    fn check_open_rollouts(hosts: &[(&str, RolloutState)], expected: &[&str]) {
        let hosts: Vec<_> =
            hosts.iter().map(|(name, state)| (format!("fleet-{name}"), *state)).collect();
        assert_eq!(open(&hosts, 0, NOW_MS), expected);
    }

    /// The open rollouts of these hosts, and of some that do not answer.
    fn open(hosts: &[(String, RolloutState)], silent: usize, now_unix_ms: u64) -> Vec<String> {
        open_after(hosts, silent, now_unix_ms, None)
    }

    /// The same where it is recorded on the hosts that it has ended without others.
    fn open_after(
        hosts: &[(String, RolloutState)],
        silent: usize,
        now_unix_ms: u64,
        missed: Option<&[&str]>,
    ) -> Vec<String> {
        let listed: Vec<_> =
            (0..hosts.len() + silent).map(|at| sample_host(&format!("h{at}"), &[])).collect();
        let answers = hosts.iter().enumerate().map(|(at, (name, state))| {
            let mut look = sample_look(Knob::Mtu, "1500");
            // One host has one boot and namespace.
            look.network_namespace = at as u64;
            let missed = missed.map(|names| names.iter().map(|&name| name.to_owned()).collect());
            let rollout = RolloutLook { name: name.clone(), state: *state, missed };
            look.interface.as_mut().unwrap().rollout = Some(rollout);
            Ok(look)
        });
        let silent = (0..silent).map(|_| Err(HostState::TimedOut("no answer".to_owned())));
        let judged = judge_hosts(&listed, answers.chain(silent).collect());
        open_rollouts(&judged, now_unix_ms).iter().map(ToString::to_string).collect()
    }
}
