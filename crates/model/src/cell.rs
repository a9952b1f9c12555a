//! One setting under one workload over all its runs, and the figures that a workload is judged by.

use std::collections::BTreeMap;

use latput_stats::{Estimate, Histogram};
use latput_trial::metric::{PreferredDirection, Summary};
use latput_trial::{Metric, Traffic};

/// One setting under one workload.
#[derive(Clone, Debug, PartialEq)]
pub struct CellSummary {
    /// Index into the settings of the results.
    pub setting: usize,
    /// Index into the workloads of the results.
    pub workload: usize,
    /// Number of runs.
    pub runs: usize,
    /// Estimate of each figure over all runs.
    pub metrics: BTreeMap<Metric, Estimate>,
    /// Ratio of each figure to the first setting's, paired within blocks. Absent for the first
    /// setting itself and where a figure was 0. The intervals are not corrected for their number:
    /// of a hundred at 99% one excludes 1 by chance. The recommendation corrects for that.
    pub against_first: BTreeMap<Metric, Estimate>,
    /// Round-trip times of all runs, merged.
    pub latency: Option<Histogram>,
    /// Round-trip times of the probe in all runs, merged.
    pub probe: Option<Histogram>,
    /// Figures of the stopping rule whose interval is wider than wanted.
    pub too_wide: Vec<Metric>,
}

impl CellSummary {
    /// Whether every interval of the stopping rule is as narrow as wanted.
    pub const fn narrow_enough(&self) -> bool {
        self.too_wide.is_empty()
    }
}

/// The figures of the stopping rule, as in netperf: throughput and the CPU utilisation of both
/// ends.
pub(crate) fn stopping_rule(traffic: &Traffic) -> [Metric; 3] {
    [traffic.facts().rate, Metric::SutCpuBusyRatio, Metric::GeneratorCpuBusyRatio]
}

/// The plan's own figures that take the place of the rate in the stopping rule where a workload has no rate: those of
/// which more is better, or else times. A count of errors is left out, because it may be 0 in every run.
pub(crate) fn own_rates(own: impl IntoIterator<Item = Metric>) -> Vec<Metric> {
    let own = own.into_iter().filter(|metric| matches!(metric, Metric::Custom(_)));
    let (higher, others): (Vec<Metric>, Vec<Metric>) =
        own.partition(|metric| metric.preferred_direction() == PreferredDirection::Higher);
    let times = others.into_iter().filter(|metric| metric.row().summary == Summary::Median);
    if higher.is_empty() { times.collect() } else { higher }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::own_metric;

    #[test]
    fn own_figures_replace_rates_by_direction() {
        use PreferredDirection::{Higher, Lower};
        let own = |name, better, summary| Metric::Custom(own_metric(name, better, summary));
        let work = own("cell_work", Higher, Summary::Mean);
        let time = own("cell_time", Lower, Summary::Median);
        let errors = own("cell_errors", Lower, Summary::Mean);
        assert_eq!(own_rates([time, errors, work, Metric::ThroughputBps]), [work]);
        assert_eq!(own_rates([errors, time]), [time]);
        assert_eq!(own_rates([errors]), []);
    }
}
