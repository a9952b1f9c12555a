//! A canonical order of hosts and loads: a scenario is a set of them.
//!
//! Random draws and ties of time follow this order, so that the same hosts or loads in another
//! order give the same run. Hosts are ordered by name, description and loads; loads by hosts and
//! description. Equal ones are interchangeable.

use crate::outcome::SimulationOutcome;
use crate::scenario::{Load, Scenario, TrafficKind};

/// A scenario in canonical order, with the map from the given order.
#[derive(Clone, Debug)]
pub(crate) struct CanonicalScenario {
    /// The scenario that is simulated.
    pub(crate) scenario: Scenario,
    /// The new index of each given host.
    hosts: Vec<usize>,
    /// The new index of each given load.
    loads: Vec<usize>,
}

impl CanonicalScenario {
    /// Orders a checked scenario.
    pub(crate) fn from_scenario(given: &Scenario) -> Self {
        let described: Vec<String> = given.loads.iter().map(describe_load).collect();
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
        let (by_host, hosts) = rank_indices(&host_keys);

        let counted_with =
            |head: usize| given.loads.iter().filter(|load| load.counted_with == Some(head)).count();
        let load_key = |idx: usize| {
            let load = &given.loads[idx];
            let own = (described[idx].clone(), counted_with(idx));
            let head = load.counted_with.map(|head| (described[head].clone(), counted_with(head)));
            (traffic_rank(&load.traffic), hosts[load.from], hosts[load.to], own, head)
        };
        let load_keys: Vec<_> = (0..given.loads.len()).map(load_key).collect();
        let (by_load, loads) = rank_indices(&load_keys);

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

    /// The new index of a given host.
    pub(crate) fn host_index(&self, given: usize) -> usize {
        self.hosts[given]
    }

    /// The new index of each given load.
    pub(crate) fn load_indices(&self) -> &[usize] {
        &self.loads
    }

    /// Puts an outcome back into the given order.
    pub(crate) fn restore_order(&self, outcome: SimulationOutcome) -> SimulationOutcome {
        SimulationOutcome {
            hosts: self.hosts.iter().map(|idx| outcome.hosts[*idx].clone()).collect(),
            loads: self.loads.iter().map(|idx| outcome.loads[*idx].clone()).collect(),
            ..outcome
        }
    }
}

/// Describes a load without the numbers of hosts and other loads.
fn describe_load(load: &Load) -> String {
    let plain = Load { from: 0, to: 0, counted_with: None, ..*load };
    format!("{plain:?}")
}

/// The rank of a kind of traffic. Probes come last, so that adding one does not change the rest.
const fn traffic_rank(traffic: &TrafficKind) -> u8 {
    match traffic {
        TrafficKind::Datagrams { .. } => 0,
        TrafficKind::RequestResponse { .. } => 1,
        TrafficKind::Stream { .. } => 2,
        TrafficKind::Compute => 3,
        TrafficKind::Probe { .. } => 4,
    }
}

/// The indices in order of their keys, and the rank of each index.
fn rank_indices<K: Ord>(keys: &[K]) -> (Vec<usize>, Vec<usize>) {
    let mut by_place: Vec<usize> = (0..keys.len()).collect();
    by_place.sort_by_key(|idx| &keys[*idx]);
    let mut places = vec![0; keys.len()];
    for (place, idx) in by_place.iter().enumerate() {
        places[*idx] = place;
    }
    (by_place, places)
}
