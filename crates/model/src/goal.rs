//! Goals: the figure to improve and the limits to keep, such as
//! `minimize latency_ns_p99 where throughput_bps >= 0.95 today`.
//!
//! The grammar, with `[]` for optional parts and `()*` for repeated ones:
//!
//! ```text
//! GOAL   = NAME | (minimize | maximize) FIGURE (* FIGURE)* [where COND (and COND)*]
//! COND   = FIGURE (>= | <=) NUMBER [today | best]
//! FIGURE = METRIC [of WORKLOAD]
//! ```
//!
//! METRIC is a metric's name or `rate`. WORKLOAD is a workload's name or, if no workload has that
//! name, a kind (`tcp_rr`), bare or in quotes. `today` is the first setting's value in the same
//! workload (`first` is a synonym), `best` the best value of any setting there. A figure without a
//! workload stands for every workload that has it: as an objective it is the geometric mean of the
//! ratios to the first setting, as a condition it applies to each of them.

use std::fmt;
use std::str::FromStr;

use latput_trial::metric::FORMER_NAMES;
use latput_trial::{Metric, Traffic, Workload};

mod parse;

pub use parse::GoalError;

/// A parsed goal.
#[derive(Clone, Debug, PartialEq)]
pub struct Goal {
    /// The text as written, or the named goal's name and meaning.
    pub text: String,
    /// Whether the objective is minimised or maximised.
    pub direction: OptimizeDirection,
    /// The figures to improve. The objective is their product; each has the same weight.
    pub objective: Vec<GoalFigure>,
    /// The limits that a chosen setting must keep.
    pub conditions: Vec<GoalCondition>,
}

/// Whether an objective is minimised or maximised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptimizeDirection {
    /// Smaller is better.
    Minimize,
    /// Larger is better.
    Maximize,
}

/// A measure, of one workload or of all that have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GoalFigure {
    /// The measure.
    pub measure: GoalMeasure,
    /// The name or kind of workload; `None` for every workload that has the measure.
    pub workload: Option<String>,
}

/// A quantity that a goal can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GoalMeasure {
    /// One metric.
    Metric(Metric),
    /// `rate`: transactions per second of request/response workloads, payload of live TCP connections, goodput of the others.
    Rate,
}

/// A limit that a setting must keep.
#[derive(Clone, Debug, PartialEq)]
pub struct GoalCondition {
    /// The limited figure.
    pub figure: GoalFigure,
    /// The side of the limit.
    pub bound: BoundSide,
    /// The limit, in the metric's unit or as a share of the reference.
    pub number: f64,
    /// The reference of a relative limit; `None` for an absolute one.
    pub reference: Option<LimitReference>,
}

/// The side of its limit on which a figure must stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoundSide {
    /// `>=`
    AtLeast,
    /// `<=`
    AtMost,
}

/// The setting that a relative limit refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitReference {
    /// The setting with the best value in the same workload.
    Best,
    /// The first setting, which has the host's values of today.
    Today,
}

impl Goal {
    /// The named goals and their meanings.
    ///
    /// - `latency`: the least tail of round trips, whatever it costs (the reason names the cost).
    /// - `throughput`: the most of every workload's rate, bulk and transactions alike, where none
    ///   loses more than 5% of what it has today.
    /// - `cpu`: the least CPU time per unit of work on the system under test, where no rate loses
    ///   more than 5% of what it has today.
    /// - `balanced`: tail latency and CPU time weigh the same (1% of one is worth 1% of the other,
    ///   as in the energy-delay product of Gonzalez and Horowitz 1996), where bulk keeps 95% of
    ///   what it has today. A bound on both instead is often met by no setting, because what moderation
    ///   saves is exactly what it adds in latency. Request/response rates are not bounded: in a
    ///   closed loop they are the inverse of the latency.
    pub const NAMED: &[(&str, &str)] = &[
        ("latency", "minimize latency_ns_p99"),
        ("throughput", "maximize rate where rate >= 0.95 today"),
        ("cpu", "minimize sut_service_demand_us where rate >= 0.95 today"),
        (
            "balanced",
            "minimize latency_ns_p99 * sut_service_demand_us where throughput_bps >= 0.95 today",
        ),
    ];

    /// Reads a goal. The error names the wrong word, its place and the words that are allowed
    /// there.
    pub fn parse(text: &str) -> Result<Self, GoalError> {
        parse::parse_goal(text)
    }

    /// Reads the goal of a results file, in which metrics may have names of earlier versions.
    pub fn parse_kept(text: &str) -> Result<Self, GoalError> {
        let rename =
            |text: String, (former, metric): &(&str, Metric)| text.replace(former, metric.name());
        Self::parse(&FORMER_NAMES.iter().fold(text.to_owned(), rename))
    }
}

impl FromStr for GoalCondition {
    type Err = GoalError;
    /// Reads one limit, as behind `where`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse::parse_limit(text)
    }
}

impl FromStr for Goal {
    type Err = GoalError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

impl GoalFigure {
    /// The indices of its workloads, each with the metric of the measure there. Only the runs can
    /// tell whether a workload has that metric.
    pub fn cells_in(&self, workloads: &[Workload]) -> Vec<(usize, Metric)> {
        let is_called = |name: &str| workloads.iter().any(|workload| workload.name == name);
        let is_meant = |workload: &Workload| match &self.workload {
            None => true,
            Some(name) if is_called(name) => workload.name == *name,
            Some(kind) => workload.traffic.kind() == kind,
        };
        let meant = workloads.iter().enumerate().filter(|(_, workload)| is_meant(workload));
        meant.map(|(index, workload)| (index, self.measure.metric_for(&workload.traffic))).collect()
    }
}

impl GoalMeasure {
    /// The metric under `traffic`.
    pub fn metric_for(self, traffic: &Traffic) -> Metric {
        match self {
            Self::Metric(metric) => metric,
            Self::Rate => traffic.facts().rate,
        }
    }

    /// The metric, if it is the same under any traffic.
    pub(crate) const fn fixed_metric(self) -> Option<Metric> {
        match self {
            Self::Metric(metric) => Some(metric),
            Self::Rate => None,
        }
    }

    /// The name in goals.
    pub fn name(self) -> &'static str {
        match self {
            Self::Metric(metric) => metric.name(),
            Self::Rate => "rate",
        }
    }
}

impl fmt::Display for GoalFigure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.workload {
            None => f.write_str(self.measure.name()),
            Some(workload) => write!(f, "{} of \"{workload}\"", self.measure.name()),
        }
    }
}

impl fmt::Display for GoalCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bound = match self.bound {
            BoundSide::AtLeast => ">=",
            BoundSide::AtMost => "<=",
        };
        write!(f, "{} {bound} {}", self.figure, self.number)?;
        f.write_str(match self.reference {
            None => "",
            Some(LimitReference::Best) => " best",
            Some(LimitReference::Today) => " today",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::{rr_workload, stream_workload};

    #[test]
    fn workload_name_precedes_equal_kind() {
        let check = |workloads: &[Workload], of: &str, expected: &[usize]| {
            let goal = Goal::parse(&format!("maximize rate of {of}")).unwrap();
            let found = goal.objective[0].cells_in(workloads);
            let found: Vec<usize> = found.into_iter().map(|(workload, _)| workload).collect();
            assert_eq!(found, expected, "{of}");
        };
        let named = [rr_workload("tcp_stream"), stream_workload("x"), stream_workload("y")];
        check(&named, "tcp_stream", &[0]);
        check(&named, "y", &[2]);
        check(&named, "tcp_rr", &[0]);
        check(&named[1..], "tcp_stream", &[0, 1]);
        check(&named, "udp_rr", &[]);
    }
}
