//! Rollouts that are not whole: some hosts keep the change, others wait or went back.
//!
//! The state of a rollout is on its hosts alone. Where the process that confirms them ends in between, the next look at
//! the hosts tells which have come how far. A host that does not answer then may still wait, or have gone back.

use std::collections::BTreeMap;
use std::fmt;

use crate::journal::ROLLOUT;
use crate::judge::JudgedHost;
use crate::look::RolloutState;

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

/// A rollout whose hosts differ, wait, or do not all answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenRollout {
    /// Its name.
    pub name: String,
    /// Its hosts, by their place in the list.
    pub hosts: BTreeMap<usize, RolloutHost>,
    /// The listed hosts that did not answer. Whether they have it is unknown.
    pub unknown: Vec<String>,
}

/// A host of such a rollout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RolloutHost {
    /// The host's name.
    pub name: String,
    /// How far it has come.
    pub state: RolloutState,
}

/// The rollouts that are under way, were cut short or may have been, by name.
pub fn open_rollouts(judged: &[JudgedHost], now_unix_ms: u64) -> Vec<OpenRollout> {
    let mut found: BTreeMap<&str, BTreeMap<usize, RolloutHost>> = BTreeMap::new();
    for (at, JudgedHost { host, look, .. }) in judged.iter().enumerate() {
        let rollout = look.as_ref().and_then(|look| look.rollout.as_ref());
        if let Some(rollout) = rollout.filter(|rollout| rollout.name.starts_with(ROLLOUT)) {
            let host = RolloutHost { name: host.name.clone(), state: rollout.state };
            found.entry(&rollout.name).or_default().insert(at, host);
        }
    }
    let silent = judged.iter().filter(|one| one.look.is_none());
    let unknown: Vec<String> = silent.map(|one| one.host.name.clone()).collect();
    let open = found.into_iter().filter(|(name, hosts)| {
        let has = |is_meant: fn(RolloutState) -> bool| hosts.values().any(|it| is_meant(it.state));
        let waits = has(|state| matches!(state, RolloutState::Waits(_)));
        let is_kept = has(|state| matches!(state, RolloutState::Confirmed(_)));
        let is_split = is_kept && has(|state| state == RolloutState::WentBack);
        let is_recent =
            begun_unix_ms(name).is_some_and(|begun| now_unix_ms.saturating_sub(begun) < RECENT_MS);
        // Where all of its hosts have answered, the silent ones were left out.
        let may_miss = planned_hosts(name).is_none_or(|planned| hosts.len() < planned);
        waits || is_split || (is_kept && is_recent && may_miss && !unknown.is_empty())
    });
    let open = open.map(|(name, hosts)| OpenRollout {
        name: name.to_owned(),
        hosts,
        unknown: unknown.clone(),
    });
    open.collect()
}

impl OpenRollout {
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
    /// `rollout fleet-1 is under way or was cut short: confirmed on h1, h2; waits on h3, and goes back in 57 s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let confirmed = self.hosts_in_state(|state| matches!(state, RolloutState::Confirmed(_)));
        let waits = self.hosts_in_state(|state| matches!(state, RolloutState::Waits(_)));
        let back = self.hosts_in_state(|state| state == RolloutState::WentBack);
        let how = match (waits.is_empty(), back.is_empty()) {
            (false, _) => "is under way or was cut short",
            (true, false) => "was cut short",
            (true, true) => "may have been cut short",
        };
        write!(f, "rollout {} {how}: ", self.name)?;
        let mut parts = Vec::new();
        if !confirmed.is_empty() {
            parts.push(format!("confirmed on {}", confirmed.join(", ")));
        }
        if !waits.is_empty() {
            let time = self.first_back_ms().map_or(String::new(), |left_ms| {
                format!(", and goes back in {} s", left_ms.div_ceil(1000))
            });
            parts.push(format!("waits on {}{time}", waits.join(", ")));
        }
        if !back.is_empty() {
            parts.push(format!("went back on {}", back.join(", ")));
        }
        if !self.unknown.is_empty() {
            parts.push(format!("not known of {}, which did not answer", self.unknown.join(", ")));
        }
        f.write_str(&parts.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use latput_knobs::Knob;

    use super::*;
    use crate::judge::tests::sample_host;
    use crate::judge::{HostState, judge_hosts};
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
        let listed: Vec<_> =
            (0..hosts.len() + silent).map(|at| sample_host(&format!("h{at}"), &[])).collect();
        let answers = hosts.iter().enumerate().map(|(at, (name, state))| {
            let mut look = sample_look(Knob::Mtu, "1500");
            // One host has one boot and namespace.
            look.network_namespace = at as u64;
            let rollout = RolloutLook { name: name.clone(), state: *state };
            look.interface.as_mut().unwrap().rollout = Some(rollout);
            Ok(look)
        });
        let silent = (0..silent).map(|_| Err(HostState::TimedOut("no answer".to_owned())));
        let judged = judge_hosts(&listed, answers.chain(silent).collect());
        open_rollouts(&judged, now_unix_ms).iter().map(ToString::to_string).collect()
    }
}
