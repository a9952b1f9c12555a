//! One order of hosts and loads, whichever order they were given in: a scenario is a set of them.
//!
//! Random draws and ties of time follow this order, so that whoever swaps two hosts or two loads in a
//! description gets the same run. Hosts are told apart by name, description and the loads that they
//! take part in, loads by their hosts and description; what is alike in all of that is interchangeable.

use crate::outcome::Outcome;
use crate::scenario::{Load, Scenario, Traffic};

/// A scenario in its own order, and the way back.
#[derive(Clone, Debug)]
pub(crate) struct Canonical {
    /// What is simulated.
    pub(crate) scenario: Scenario,
    /// Where each host of the given scenario is in this one.
    hosts: Vec<usize>,
    /// Where each load of the given scenario is in this one.
    loads: Vec<usize>,
}

impl Canonical {
    /// The order of a scenario that was checked.
    pub(crate) fn of(given: &Scenario) -> Self {
        let described: Vec<String> = given.loads.iter().map(describe).collect();
        let host_key = |host: usize| {
            let part = |(load, text): (&Load, &String)| {
                [(load.from, "from"), (load.to, "to")]
                    .into_iter()
                    .filter(|(end, _)| *end == host)
                    .map(|(_, end)| format!("{end} {text}"))
                    .collect::<Vec<_>>()
            };
            let mut parts: Vec<_> = given.loads.iter().zip(&described).flat_map(part).collect();
            parts.sort_unstable();
            let this = &given.hosts[host];
            (this.name.clone(), format!("{this:?}"), parts)
        };
        let host_keys: Vec<_> = (0..given.hosts.len()).map(host_key).collect();
        let (by_host, hosts) = order(&host_keys);

        let counted_with =
            |head: usize| given.loads.iter().filter(|load| load.counted_with == Some(head)).count();
        let load_key = |idx: usize| {
            let load = &given.loads[idx];
            let own = (described[idx].clone(), counted_with(idx));
            let head = load.counted_with.map(|head| (described[head].clone(), counted_with(head)));
            (kind(&load.traffic), hosts[load.from], hosts[load.to], own, head)
        };
        let load_keys: Vec<_> = (0..given.loads.len()).map(load_key).collect();
        let (by_load, loads) = order(&load_keys);

        let load = |idx: &usize| {
            let load = &given.loads[*idx];
            Load {
                from: hosts[load.from],
                to: hosts[load.to],
                counted_with: load.counted_with.map(|head| loads[head]),
                ..*load
            }
        };
        let scenario = Scenario {
            hosts: by_host.iter().map(|idx| given.hosts[*idx].clone()).collect(),
            loads: by_load.iter().map(load).collect(),
            ..given.clone()
        };
        Self { scenario, hosts, loads }
    }

    /// Where a host of the given scenario is.
    pub(crate) fn host(&self, given: usize) -> usize {
        self.hosts[given]
    }

    /// Where each load of the given scenario is.
    pub(crate) fn loads(&self) -> &[usize] {
        &self.loads
    }

    /// An outcome in the order of the given scenario.
    pub(crate) fn restore(&self, outcome: Outcome) -> Outcome {
        Outcome {
            hosts: self.hosts.iter().map(|idx| outcome.hosts[*idx].clone()).collect(),
            loads: self.loads.iter().map(|idx| outcome.loads[*idx].clone()).collect(),
            ..outcome
        }
    }
}

/// A load without the numbers of hosts and of other loads.
fn describe(load: &Load) -> String {
    let plain = Load { from: 0, to: 0, counted_with: None, ..*load };
    format!("{plain:?}")
}

/// Probes come last: what they watch does not change when one is added.
const fn kind(traffic: &Traffic) -> u8 {
    match traffic {
        Traffic::Datagrams { .. } => 0,
        Traffic::RequestResponse { .. } => 1,
        Traffic::Stream { .. } => 2,
        Traffic::Compute => 3,
        Traffic::Probe { .. } => 4,
    }
}

/// The indices in the order of their keys, and for each index its place.
fn order<K: Ord>(keys: &[K]) -> (Vec<usize>, Vec<usize>) {
    let mut by_place: Vec<usize> = (0..keys.len()).collect();
    by_place.sort_by_key(|idx| &keys[*idx]);
    let mut places = vec![0; keys.len()];
    for (place, idx) in by_place.iter().enumerate() {
        places[*idx] = place;
    }
    (by_place, places)
}
