//! One setting under one workload over all its runs, and the figures that a workload is judged by.

use std::collections::BTreeMap;

use latput_stats::{Estimate, Histogram};
use latput_trial::{Metric, Traffic};

use crate::goal::Measure;

/// One setting under one workload.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// Index into the settings of the results.
    pub setting: usize,
    /// Index into the workloads of the results.
    pub workload: usize,
    /// How many runs.
    pub runs: usize,
    /// Each figure the workload has, over all runs.
    pub metrics: BTreeMap<Metric, Estimate>,
    /// Each figure as a ratio to the first setting's, paired within blocks; absent for the first
    /// setting itself and where a figure was 0. Each interval stands for itself: of a hundred at 99 %
    /// one excludes 1 by chance. The recommendation corrects for that.
    pub against_first: BTreeMap<Metric, Estimate>,
    /// The round-trip times of all runs together.
    pub latency: Option<Histogram>,
    /// The probe's round-trip times of all runs together.
    pub probe: Option<Histogram>,
    /// The figures of the stopping rule whose interval is wider than was asked for.
    pub too_wide: Vec<Metric>,
}

impl Cell {
    /// Whether every interval that the stopping rule looks at is as narrow as was asked for.
    pub const fn narrow_enough(&self) -> bool {
        self.too_wide.is_empty()
    }
}

/// What the stopping rule looks at: netperf's three, throughput and the CPU utilisation of both ends.
pub(crate) fn stopping_rule(traffic: &Traffic) -> [Metric; 3] {
    [Measure::Rate.of(traffic), Metric::SutCpuBusyRatio, Metric::GeneratorCpuBusyRatio]
}

/// The figures of a workload that settings are judged by: what it gets done, its tail, its cost.
pub(crate) fn headline(traffic: &Traffic) -> [Metric; 4] {
    [
        Measure::Rate.of(traffic),
        Metric::LatencyNsP99,
        Metric::ProbeNsP99,
        Metric::SutServiceDemandUs,
    ]
}
