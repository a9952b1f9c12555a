//! Rollouts that are not whole: some hosts keep the change, others wait or went back.
//!
//! The state of a rollout is on its hosts alone. Where the process that confirms them ends in between, the next look at
//! the hosts tells which have come how far.

use std::collections::BTreeMap;
use std::fmt;

use crate::journal::ROLLOUT;
use crate::judge::Judged;
use crate::look::RolloutState;

/// A rollout whose hosts differ, or wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenRollout {
    /// Its name.
    pub name: String,
    /// Its hosts, by their place in the list.
    pub hosts: BTreeMap<usize, RolloutHost>,
}

/// A host of such a rollout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RolloutHost {
    /// The host's name.
    pub name: String,
    /// How far it has come.
    pub state: RolloutState,
}

/// The rollouts that are under way or were cut short, by name.
pub fn open_rollouts(judged: &[Judged]) -> Vec<OpenRollout> {
    let mut found: BTreeMap<&str, BTreeMap<usize, RolloutHost>> = BTreeMap::new();
    for (at, Judged { host, look, .. }) in judged.iter().enumerate() {
        let rollout = look.as_ref().and_then(|look| look.rollout.as_ref());
        if let Some(rollout) = rollout.filter(|rollout| rollout.name.starts_with(ROLLOUT)) {
            let host = RolloutHost { name: host.name.clone(), state: rollout.state };
            found.entry(&rollout.name).or_default().insert(at, host);
        }
    }
    let open = found.into_iter().filter(|(_, hosts)| {
        let has = |is_meant: fn(RolloutState) -> bool| hosts.values().any(|it| is_meant(it.state));
        let waits = has(|state| matches!(state, RolloutState::Waits(_)));
        let is_split = has(|state| matches!(state, RolloutState::Confirmed(_)))
            && has(|state| state == RolloutState::WentBack);
        waits || is_split
    });
    open.map(|(name, hosts)| OpenRollout { name: name.to_owned(), hosts }).collect()
}

impl OpenRollout {
    fn names(&self, is_meant: impl Fn(RolloutState) -> bool) -> Vec<&str> {
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
        let confirmed = self.names(|state| matches!(state, RolloutState::Confirmed(_)));
        let waits = self.names(|state| matches!(state, RolloutState::Waits(_)));
        let back = self.names(|state| state == RolloutState::WentBack);
        let may_go_on = if waits.is_empty() { "" } else { "is under way or " };
        write!(f, "rollout {} {may_go_on}was cut short: ", self.name)?;
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
        f.write_str(&parts.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use latput_knobs::Knob;

    use super::*;
    use crate::judge::tests::host;
    use crate::judge::{Answered, judge};
    use crate::look::RolloutLook;
    use crate::look::tests::sample;

    #[test]
    fn split_or_waiting_rollouts_are_open() {
        use RolloutState::{Confirmed, Waits, WentBack};
        check(&[("a", Confirmed(3)), ("a", Confirmed(1))], &[]);
        check(&[("a", WentBack), ("b", Confirmed(1))], &[]);
        check(
            &[("a", Confirmed(3)), ("a", Waits(Some(56_100))), ("a", Waits(Some(90_000)))],
            &[
                "rollout fleet-a is under way or was cut short: confirmed on h0; waits on h1, h2, and goes back in 57 s",
            ],
        );
        check(
            &[("a", Confirmed(3)), ("b", Waits(None)), ("a", WentBack)],
            &[
                "rollout fleet-a was cut short: confirmed on h0; went back on h2",
                "rollout fleet-b is under way or was cut short: waits on h1",
            ],
        );
    }

    #[track_caller]
    fn check(hosts: &[(&str, RolloutState)], expected: &[&str]) {
        let listed: Vec<_> = (0..hosts.len()).map(|at| host(&format!("h{at}"), &[])).collect();
        let answers = hosts.iter().enumerate().map(|(at, (name, state))| {
            let mut look = sample(Knob::Mtu, "1500");
            // One host has one boot and namespace.
            look.network_namespace = at as u64;
            let rollout = RolloutLook { name: format!("fleet-{name}"), state: *state };
            look.interface.as_mut().unwrap().rollout = Some(rollout);
            Answered::Look(Box::new(look))
        });
        let judged = judge(&listed, answers.collect());
        let said: Vec<String> = open_rollouts(&judged).iter().map(ToString::to_string).collect();
        assert_eq!(said, expected);
    }
}
