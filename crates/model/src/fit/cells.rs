//! The rates that each host counted under each setting and workload: medians over runs, so that an
//! outlier has no effect.

use std::collections::BTreeMap;

use latput_stats::order::middle;
use latput_trial::Results;
use latput_trial::observation::{HostObservation, Role};
use latput_units::IntoMap;

use super::CostTerm;

/// One host's figures of one setting under one workload.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CellFigures {
    pub(crate) setting: usize,
    pub(crate) workload: usize,
    /// CPU nanoseconds per second.
    pub(crate) busy: f64,
    /// Count of each term per second, in the order of [`CostTerm::ALL`]; `None` if some run did not
    /// count it.
    pub(crate) counts: [Option<f64>; 5],
}

/// The cells of each host, by its name and role. Cells in which a host was idle tell nothing of
/// costs and are left out.
pub(crate) fn cell_figures(
    results: &Results,
    wanted: impl Fn(usize) -> bool,
) -> BTreeMap<(String, Role), Vec<CellFigures>> {
    let mut runs: BTreeMap<(String, Role), RunsOfHost> = BTreeMap::new();
    let known = |setting, workload| {
        setting < results.settings.len() && workload < results.workloads.len() && wanted(workload)
    };
    for row in results.rows.iter().filter(|row| known(row.setting, row.workload)) {
        for host in &row.observation.hosts {
            let Some(run) = HostRates::from_host(host) else { continue };
            let cells = runs.entry((host.host.clone(), host.role)).or_default();
            cells.entry((row.setting, row.workload)).or_default().push(run);
        }
    }
    let cells = |of_host: RunsOfHost| {
        of_host.into_iter().filter_map(|((setting, workload), runs)| {
            let counts = CostTerm::ALL.map(|term| {
                let counts: Option<Vec<f64>> =
                    runs.iter().map(|run| run.counts[term as usize]).collect();
                counts.and_then(middle)
            });
            let busy = middle(runs.iter().map(|run| run.busy))?;
            Some(CellFigures { setting, workload, busy, counts })
        })
    };
    let hosts = runs.into_iter().map(|(host, of_host)| (host, cells(of_host).collect()));
    hosts.into_map()
}

/// The rates of all runs, by setting and workload.
type RunsOfHost = BTreeMap<(usize, usize), Vec<HostRates>>;

/// The rates of one host in one run, per second.
struct HostRates {
    busy: f64,
    counts: [Option<f64>; 5],
}

impl HostRates {
    /// `None` where no CPU time was counted, or the window is empty.
    fn from_host(host: &HostObservation) -> Option<Self> {
        let time = host.cpu();
        let busy = time.busy().as_ns() as f64;
        let seconds = host.window.as_secs_f64();
        if busy <= 0.0 || seconds <= 0.0 {
            return None;
        }
        let io = &host.interface;
        let sum = |a: u64, b: u64| Some(a.saturating_add(b));
        let counts = [
            sum(io.rx_bytes, io.tx_bytes),
            sum(io.rx_packets, io.tx_packets),
            Some(host.interrupts),
            host.napi.map(|napi| napi.polls),
        ];
        let [byte, packet, interrupt, poll] =
            counts.map(|count| count.map(|count| count as f64 / seconds));
        Some(Self { busy: busy / seconds, counts: [byte, packet, interrupt, poll, Some(1.0)] })
    }
}
