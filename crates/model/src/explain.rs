//! Splits the time of a transaction, or of a kilobyte, under each setting into parts that add up to it.
//!
//! Settings that differ only in their delay show the wait for moderation, workloads that differ only in their requests in
//! flight the wait behind others. The CPU time of both ends is measured, and the cost model (`crate::fit`) divides it by
//! stage. What of it does not fit into the time runs beside it: both ends, and the wire, work at once.

mod cell;
mod delay;
mod effects;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use latput_stats::order;
use latput_trial::observation::{CpuTime, HostObservation, Role};
use latput_trial::{Metric, Results};
use latput_units::IntoMap;

use self::cell::CellContext;
pub use self::effects::{KnobEffect, predict_effects};
use crate::fit::{CostModel, CostTerm, collect_host_cells};
use crate::runs::{RunTable, busy_cells};
use crate::stage::PathStage;

/// The parts of one setting's time under one workload.
#[derive(Clone, Debug, PartialEq)]
pub struct CellExplanation {
    /// Index into the settings.
    pub setting: usize,
    /// Index into the workloads.
    pub workload: usize,
    /// The unit of work.
    pub unit: WorkUnit,
    /// The time of one unit, nanoseconds: its round trip or, of a stream, its share of the time; median over runs. `None`
    /// where nothing was transferred.
    pub whole_ns: Option<f64>,
    /// The parts, none below zero. They add up to the whole.
    pub parts: Vec<ExplainedPart>,
    /// CPU time of both ends for one unit that does not fit into the whole, at least, nanoseconds.
    pub beside_ns: f64,
    /// CPU time for one unit at each end, nanoseconds; `None` where it was not counted, or other work ran on the CPUs.
    pub sut_cpu_ns: Option<f64>,
    /// The same of the generators.
    pub generator_cpu_ns: Option<f64>,
    /// Other work ran on the CPUs in most runs: the CPU time is that work's as well.
    pub is_shared: bool,
    /// Utilisation of the busiest CPU of the system under test, 0 to 1, median over runs.
    pub busiest_cpu_ratio: Option<f64>,
    /// Parts that are not told apart, each with the reason.
    pub missing: Vec<&'static str>,
}

/// A unit of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkUnit {
    /// A transaction: the time is its round trip.
    Transaction,
    /// 1024 bytes of payload: the time is the inverse of the goodput.
    Kilobyte,
}

impl WorkUnit {
    /// The name in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Transaction => "transaction",
            Self::Kilobyte => "kilobyte",
        }
    }
}

/// A part of the time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExplainedPart {
    /// The stage.
    pub stage: PathStage,
    /// Its time, nanoseconds.
    pub ns: f64,
    /// Its interval where it has one.
    pub interval: Option<PartInterval>,
    /// Where it comes from.
    pub basis: PartBasis,
}

/// The interval of a part.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PartInterval {
    /// Lower end, nanoseconds.
    pub ns_low: f64,
    /// Upper end, nanoseconds.
    pub ns_high: f64,
    /// The confidence, 0 to 1; 0 for a single run.
    pub confidence: f64,
}

/// Where a part comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartBasis {
    /// Counted by the kernel.
    Measured,
    /// The difference from another setting or workload of the same run.
    Compared,
    /// Measured CPU time, divided by the cost model.
    Modelled,
    /// The rest of the whole, beside the other parts.
    Remainder,
}

impl PartBasis {
    /// The name in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Compared => "compared",
            Self::Modelled => "modelled",
            Self::Remainder => "remainder",
        }
    }
}

/// The figures that an explanation needs.
const FIGURES: [Metric; 4] = [
    Metric::LatencyNsMean,
    Metric::ThroughputBps,
    Metric::SutServiceDemandUs,
    Metric::GeneratorServiceDemandUs,
];

/// Splits every cell of `results`, the CPU time by `models`.
pub fn explain_cells(results: &Results, models: &[CostModel]) -> Vec<CellExplanation> {
    let runs = RunTable::of_figures(results, &FIGURES);
    let busy = busy_cells(results);
    let shares = collect_stage_shares(results, models);
    let cells: Vec<(usize, usize)> = runs.cells().map(|(at, _)| at).collect();
    let explain = |(setting, workload): (usize, usize)| {
        let cell =
            CellContext { results, runs: &runs, busy: &busy, shares: &shares, setting, workload };
        CellExplanation {
            busiest_cpu_ratio: busiest_cpu_ratio(results, setting, workload),
            ..cell.explain()
        }
    };
    cells.into_iter().map(explain).collect()
}

/// The share of each stage in the CPU time of a role under a setting and workload; they add up to 1.
type StageShares = BTreeMap<(Role, usize, usize), BTreeMap<PathStage, f64>>;

/// Of several hosts of a role, those of the first.
fn collect_stage_shares(results: &Results, models: &[CostModel]) -> StageShares {
    let mut shares = StageShares::new();
    for (host, figures) in collect_host_cells(results) {
        let of_host = |model: &&CostModel| model.hosts.contains(&host);
        let Some(model) = models.iter().find(of_host) else { continue };
        let mut stages: BTreeMap<PathStage, f64> = BTreeMap::new();
        for term in CostTerm::ALL {
            let Some((cost, count)) = model.cost(term).zip(figures.counts[term as usize]) else {
                continue;
            };
            *stages.entry(term.stage()).or_default() += cost.ns * count;
        }
        let sum: f64 = stages.values().sum();
        if sum > 0.0 {
            let stages = stages.into_iter().map(|(stage, ns)| (stage, ns / sum)).into_map();
            shares.entry((host.role, figures.setting, figures.workload)).or_insert(stages);
        }
    }
    shares
}

fn busiest_cpu_ratio(results: &Results, setting: usize, workload: usize) -> Option<f64> {
    let rows = results.rows.iter().filter(|row| (row.setting, row.workload) == (setting, workload));
    let hosts = rows.flat_map(|row| &row.observation.hosts).filter(|host| host.role == Role::Sut);
    let busiest = |host: &HostObservation| {
        let ratio = |time: CpuTime| {
            let total = time.total().as_secs_f64();
            (total > 0.0).then(|| time.busy().as_secs_f64() / total)
        };
        host.cpus.iter().filter_map(|cpu| ratio(cpu.time)).max_by(f64::total_cmp)
    };
    order::middle(hosts.filter_map(busiest))
}
