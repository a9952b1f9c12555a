//! The parts of one cell's time.

use std::collections::{BTreeMap, BTreeSet};

use latput_stats::order;
use latput_trial::observation::Role;
use latput_trial::{Metric, Results};
use latput_units::{IntoMap, Nanos};

use super::delay::{find_least_delay, longest_delay};
use super::{CellExplanation, ExplainedPart, PartBasis, PartInterval, StageShares, WorkUnit};
use crate::runs::RunTable;
use crate::stage::PathStage;

const NO_BASE: &str = "moderation: add a setting that differs only by a smaller delay";
const NO_PAIRS: &str = "moderation: no block has this setting and the one with the least delay";
const NO_SINGLE: &str = "queueing: add this workload with one request in flight";
const NO_CPU: &str = "CPU time: it was not counted at both ends";
const OTHER_WORK: &str = "CPU time: other programs ran on these CPUs (check `other-work`)";

/// A part of less is rounding, nanoseconds.
const ROUNDING_NS: f64 = 1e-6;

/// A cell and the results around it.
pub(super) struct CellContext<'a> {
    pub(super) results: &'a Results,
    pub(super) runs: &'a RunTable<'a>,
    /// Cells whose CPUs were shared with other work.
    pub(super) busy: &'a BTreeSet<(usize, usize)>,
    pub(super) shares: &'a StageShares,
    pub(super) setting: usize,
    pub(super) workload: usize,
}

/// The time of one unit that no part has yet, and the parts so far.
struct Division {
    left_ns: f64,
    parts: Vec<ExplainedPart>,
    missing: Vec<&'static str>,
}

impl Division {
    /// Gives a part what it takes of the time that is left. Returns how much that is.
    fn take(&mut self, stage: PathStage, ns: f64, of: (PartBasis, Option<PartInterval>)) -> f64 {
        let ns = ns.clamp(0.0, self.left_ns);
        let (basis, interval) = of;
        let most = self.left_ns;
        // The truth lies within what is left, so that the interval is cut to it.
        let interval = interval.map(|it| PartInterval {
            ns_low: it.ns_low.clamp(0.0, ns),
            ns_high: it.ns_high.clamp(ns, most),
            ..it
        });
        self.left_ns -= ns;
        if ns > ROUNDING_NS || interval.is_some() {
            self.parts.push(ExplainedPart { stage, ns, interval, basis });
        }
        ns
    }
}

impl CellContext<'_> {
    /// The parts of this cell, without what only its rows tell.
    pub(super) fn explain(&self) -> CellExplanation {
        let at = (self.setting, self.workload);
        let is_shared = self.busy.contains(&at);
        let round_trip = self.median_figure(at, Metric::LatencyNsMean);
        let unit = round_trip.map_or(WorkUnit::Kilobyte, |_| WorkUnit::Transaction);
        let whole_ns = round_trip.or_else(|| self.median_kilobyte_ns(at));
        let cpu = [Role::Sut, Role::Generator].map(|role| self.cpu_ns(at, role));
        let mut division =
            Division { left_ns: whole_ns.unwrap_or(0.0), parts: Vec::new(), missing: Vec::new() };
        let beside_ns = match (whole_ns, unit) {
            (None, _) => 0.0,
            (_, WorkUnit::Transaction) => self.divide_round_trip(&mut division, cpu),
            (_, WorkUnit::Kilobyte) => self.divide_kilobyte(&mut division, cpu),
        };
        if is_shared {
            division.missing.push(OTHER_WORK);
        } else if whole_ns.is_some() && cpu.contains(&None) {
            division.missing.push(NO_CPU);
        }
        division.parts.sort_by_key(|part| part.stage);
        let [sut_cpu_ns, generator_cpu_ns] = cpu;
        CellExplanation {
            setting: self.setting,
            workload: self.workload,
            unit,
            whole_ns,
            parts: division.parts,
            beside_ns,
            sut_cpu_ns,
            generator_cpu_ns,
            is_shared,
            busiest_cpu_ratio: None,
            missing: division.missing,
        }
    }

    /// Divides a round trip: first the wait for moderation, then the CPU time of both ends. Of the rest, one request alone
    /// needs as much as it needs without others; what is left is the wait behind others. Returns the CPU time that does
    /// not fit.
    fn divide_round_trip(&self, division: &mut Division, cpu: [Option<f64>; 2]) -> f64 {
        let least = find_least_delay(self.results, self.setting);
        self.take_moderation(division, least, |cell| self.figures(cell, Metric::LatencyNsMean));
        let ends = [Role::Sut, Role::Generator].into_iter().zip(cpu);
        let beside: f64 =
            ends.map(|(role, cpu)| self.take_cpu(division, role, cpu.unwrap_or(0.0))).sum();
        let rest = match self.single_request_workload() {
            Some(single) if single == self.workload => division.left_ns,
            Some(single) => {
                let base = (least.unwrap_or(self.setting), single);
                let trip = self.median_figure(base, Metric::LatencyNsMean).unwrap_or(0.0);
                let busy: f64 = [Role::Sut, Role::Generator]
                    .into_iter()
                    .filter_map(|role| self.cpu_ns(base, role))
                    .sum();
                (trip - busy).max(0.0)
            }
            None => {
                division.missing.push(NO_SINGLE);
                division.left_ns
            }
        };
        division.take(PathStage::Rest, rest, (PartBasis::Remainder, None));
        let queue = division.left_ns;
        division.take(PathStage::Queueing, queue, (PartBasis::Compared, None));
        beside
    }

    /// Divides the time of a kilobyte: first the CPU time of the end that takes more of it, then the wait for moderation.
    /// The other end works beside it. Returns the CPU time that does not fit.
    fn divide_kilobyte(&self, division: &mut Division, cpu: [Option<f64>; 2]) -> f64 {
        let [sut, generator] = cpu.map(|cpu| cpu.unwrap_or(0.0));
        let (role, own, other) = if sut >= generator {
            (Role::Sut, sut, generator)
        } else {
            (Role::Generator, generator, sut)
        };
        let beside = self.take_cpu(division, role, own) + other;
        let least = find_least_delay(self.results, self.setting);
        self.take_moderation(division, least, |cell| self.kilobyte_ns(cell));
        let rest = division.left_ns;
        division.take(PathStage::Rest, rest, (PartBasis::Remainder, None));
        beside
    }

    /// Takes the wait for moderation: how much more time the cell needs than the one with the least delay, in pairs within
    /// blocks. A delay that saves time is no wait.
    fn take_moderation(
        &self,
        division: &mut Division,
        least: Option<usize>,
        figures: impl Fn((usize, usize)) -> Vec<(u32, f64)>,
    ) {
        let delay = longest_delay(self.results, self.setting);
        match least.zip(delay) {
            _ if delay == Some(Nanos::ZERO) => {}
            Some((least, delay)) if longest_delay(self.results, least) < Some(delay) => {
                let base: BTreeMap<u32, f64> = figures((least, self.workload)).into_map();
                let own = figures((self.setting, self.workload));
                let pairs = own.into_iter().filter_map(|(block, ns)| Some(ns - base.get(&block)?));
                let pairs: Vec<f64> = pairs.collect();
                let Some(found) = order::median(&pairs, self.results.confidence) else {
                    division.missing.push(NO_PAIRS);
                    return;
                };
                let interval = PartInterval {
                    ns_low: found.low,
                    ns_high: found.high,
                    confidence: found.confidence,
                };
                let basis = (PartBasis::Compared, Some(interval));
                division.take(PathStage::Moderation, found.value, basis);
            }
            _ => division.missing.push(NO_BASE),
        }
    }

    /// Takes the CPU time of a role, by stage. Returns what does not fit.
    fn take_cpu(&self, division: &mut Division, role: Role, ns: f64) -> f64 {
        let fits = ns.min(division.left_ns);
        match self.shares.get(&(role, self.setting, self.workload)) {
            Some(stages) => {
                for (stage, share) in stages {
                    add_part(division, *stage, fits * share, PartBasis::Modelled);
                }
            }
            None => add_part(division, PathStage::Cpu, fits, PartBasis::Measured),
        }
        ns - fits
    }

    /// CPU time of a role's hosts for one unit; `None` where it was not counted or other work ran there.
    fn cpu_ns(&self, cell: (usize, usize), role: Role) -> Option<f64> {
        let metric = match role {
            Role::Sut => Metric::SutServiceDemandUs,
            Role::Generator => Metric::GeneratorServiceDemandUs,
            Role::Observer => return None,
        };
        let us = self.median_figure(cell, metric).filter(|_| !self.busy.contains(&cell))?;
        Some(1e3 * us)
    }

    /// The workload that differs from this one only in having one request in flight.
    fn single_request_workload(&self) -> Option<usize> {
        let wanted = self.results.workloads[self.workload].traffic.with_one_request()?;
        let is_wanted = |idx: &usize| self.results.workloads[*idx].traffic == wanted;
        let mut found = (0..self.results.workloads.len()).filter(is_wanted);
        if is_wanted(&self.workload) { Some(self.workload) } else { found.next() }
    }

    /// The time of 1024 bytes at the goodput of each run.
    fn kilobyte_ns(&self, cell: (usize, usize)) -> Vec<(u32, f64)> {
        let rates = self.figures(cell, Metric::ThroughputBps).into_iter();
        rates
            .filter(|(_, bps)| *bps > 0.0)
            .map(|(block, bps)| (block, 8.0 * 1024e9 / bps))
            .collect()
    }

    fn median_kilobyte_ns(&self, cell: (usize, usize)) -> Option<f64> {
        order::middle(self.kilobyte_ns(cell).into_iter().map(|(_, ns)| ns))
    }

    fn median_figure(&self, cell: (usize, usize), metric: Metric) -> Option<f64> {
        order::middle(self.figures(cell, metric).into_iter().map(|(_, value)| value))
    }

    fn figures(&self, (setting, workload): (usize, usize), metric: Metric) -> Vec<(u32, f64)> {
        self.runs.figures(setting, workload, metric)
    }
}

/// Takes a part of CPU time. Both ends have the same stages, which are one part together.
fn add_part(division: &mut Division, stage: PathStage, ns: f64, basis: PartBasis) {
    let taken = ns.clamp(0.0, division.left_ns);
    if let Some(part) = division.parts.iter_mut().find(|part| part.stage == stage) {
        part.ns += taken;
        division.left_ns -= taken;
    } else {
        division.take(stage, taken, (basis, None));
    }
}
