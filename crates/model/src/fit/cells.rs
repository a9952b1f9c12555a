//! The rates that each host counted under each setting and workload: medians over runs, so that an
//! outlier has no effect.

use std::collections::BTreeMap;

use latput_stats::order::middle;
use latput_trial::observation::{HostObservation, KernelEvents, Role};
use latput_trial::{Observation, Results};
use latput_units::IntoMap;

use super::{CostTerm, ModelHost};

/// The facts by which hosts are known to share a kernel, or to have the same one on the same machine.
const KERNEL_FACTS: [&str; 5] = ["kernel", "kernel build", "cpu model", "online cpus", "memory"];

/// Count of each term per second, in the order of [`CostTerm::ALL`]; `None` if most runs did not
/// count it.
pub(crate) type TermCounts = [Option<f64>; CostTerm::ALL.len()];

/// One host's figures of one setting under one workload.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CellFigures {
    /// Index into the hosts of the kernel.
    pub(crate) host: usize,
    pub(crate) setting: usize,
    pub(crate) workload: usize,
    /// CPU nanoseconds per second.
    pub(crate) busy: f64,
    pub(crate) counts: TermCounts,
}

/// The cells of the hosts of one kernel.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct KernelCells {
    pub(crate) hosts: Vec<ModelHost>,
    pub(crate) cells: Vec<CellFigures>,
}

/// The rates of all runs, by setting and workload.
type RunsOfHost = BTreeMap<(usize, usize), Vec<HostRates>>;

/// The cells of each kernel. Cells in which a host was idle tell nothing of costs and are left out.
pub(crate) fn kernel_cells(results: &Results, wanted: impl Fn(usize) -> bool) -> Vec<KernelCells> {
    let mut runs: BTreeMap<(String, Role), RunsOfHost> = BTreeMap::new();
    let known = |setting, workload| {
        setting < results.settings.len() && workload < results.workloads.len() && wanted(workload)
    };
    for row in results.rows.iter().filter(|row| known(row.setting, row.workload)) {
        for host in &row.observation.hosts {
            let Some(run) = HostRates::new(host, &row.observation) else { continue };
            let cells = runs.entry((host.host.clone(), host.role)).or_default();
            cells.entry((row.setting, row.workload)).or_default().push(run);
        }
    }
    let mut kernels: BTreeMap<String, KernelCells> = BTreeMap::new();
    for ((host, role), of_host) in runs {
        let key = kernel_key(results, &host).unwrap_or_else(|| format!("{host} {}", role.name()));
        let kernel = kernels.entry(key).or_default();
        let idx = kernel.hosts.len();
        kernel.hosts.push(ModelHost { host, role });
        let cells = of_host.into_iter().filter_map(|(at, runs)| median_cell(idx, at, &runs));
        kernel.cells.extend(cells);
    }
    kernels.into_values().collect()
}

fn median_cell(
    host: usize,
    (setting, workload): (usize, usize),
    runs: &[HostRates],
) -> Option<CellFigures> {
    let counts = CostTerm::ALL.map(|term| {
        let counts: Vec<f64> = runs.iter().filter_map(|run| run.counts[term as usize]).collect();
        if 2 * counts.len() >= runs.len() { middle(counts) } else { None }
    });
    let busy = middle(runs.iter().map(|run| run.busy))?;
    Some(CellFigures { host, setting, workload, busy, counts })
}

/// Names the kernel and the machine of a host; `None` where the facts do not tell. Simulated hosts have no kernel, and
/// each its own costs.
fn kernel_key(results: &Results, host: &str) -> Option<String> {
    let facts = &results.hosts.iter().find(|of| of.host == host)?.facts;
    let facts: BTreeMap<&str, &str> =
        facts.iter().map(|(name, value)| (name.as_str(), value.as_str())).into_map();
    let values: Option<Vec<&str>> =
        KERNEL_FACTS.iter().map(|name| facts.get(name).copied()).collect();
    Some(values?.join("\n"))
}

/// The rates of one host in one run, per second.
struct HostRates {
    busy: f64,
    counts: TermCounts,
}

impl HostRates {
    /// `None` where no CPU time was counted, or the window is empty.
    fn new(host: &HostObservation, of: &Observation) -> Option<Self> {
        let busy = host.cpu().busy().as_ns() as f64;
        let seconds = host.window.as_secs_f64();
        if busy <= 0.0 || seconds <= 0.0 {
            return None;
        }
        let KernelEvents { timer_interrupts, cpu_interrupts, .. } = host.events;
        let apart = timer_interrupts.unwrap_or(0).saturating_add(cpu_interrupts.unwrap_or(0));
        let count = |term: CostTerm| match term {
            CostTerm::Interrupt => Some(host.interrupts.saturating_sub(apart)),
            CostTerm::PacketReceived => Some(host.interface.rx_packets),
            CostTerm::PacketSent => Some(host.interface.tx_packets),
            CostTerm::Segment => host.events.segments,
            CostTerm::ByteReceived => Some(host.interface.rx_bytes),
            CostTerm::ByteSent => Some(host.interface.tx_bytes),
            CostTerm::TimerInterrupt => timer_interrupts,
            CostTerm::CpuInterrupt => cpu_interrupts,
            CostTerm::Poll => host.napi.map(|napi| napi.polls),
            CostTerm::IdleSleep => host.events.idle_sleeps,
            CostTerm::IdlePoll => host.events.idle_polls,
            CostTerm::Request | CostTerm::Wait | CostTerm::Preemption | CostTerm::Background => {
                None
            }
        };
        let traffic_s = of.traffic.sender_window.as_secs_f64();
        let requests = of.traffic.transactions.unwrap_or(0) as f64;
        let switches = SwitchRates::new(host, of);
        let per_second = |term: CostTerm| {
            if term == CostTerm::Background {
                Some(1.0)
            } else if term == CostTerm::Request {
                Some(if traffic_s > 0.0 { requests / traffic_s } else { 0.0 })
            } else if term == CostTerm::Wait {
                switches.map(|it| it.waits)
            } else if term == CostTerm::Preemption {
                switches.map(|it| it.preemptions)
            } else {
                Some(count(term)? as f64 / seconds)
            }
        };
        Some(Self { busy: busy / seconds, counts: CostTerm::ALL.map(per_second) })
    }
}

/// Context switches per second of a host's NAPI threads and of the traffic's threads there.
#[derive(Clone, Copy, Debug, PartialEq)]
struct SwitchRates {
    waits: f64,
    preemptions: f64,
}

impl SwitchRates {
    /// `None` where the traffic's are not known, or are of several hosts together.
    fn new(host: &HostObservation, of: &Observation) -> Option<Self> {
        let is_alone = of.hosts.iter().filter(|it| it.role == host.role).count() == 1;
        let traffic = &of.traffic;
        let (switches, window) = match host.role {
            Role::Sut => (traffic.receiver_switches, traffic.receiver_window),
            Role::Generator => (traffic.sender_switches, traffic.sender_window),
            Role::Observer => return None,
        };
        let (switches, traffic_s) = (switches.filter(|_| is_alone)?, window.as_secs_f64());
        let (host_s, events) = (host.window.as_secs_f64(), &host.events);
        let rate = |traffic: u64, napi: Option<u64>| {
            traffic as f64 / traffic_s + napi.unwrap_or(0) as f64 / host_s
        };
        let rates = Self {
            waits: rate(switches.waits, events.napi_waits),
            preemptions: rate(switches.preemptions, events.napi_preemptions),
        };
        (rates.waits.is_finite() && rates.preemptions.is_finite()).then_some(rates)
    }
}
