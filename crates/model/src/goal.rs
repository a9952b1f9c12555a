//! Goals: what the owner of a host wants, such as
//! `minimize latency_ns_p99 where throughput_bps >= 0.95 today`.
//!
//! The grammar, with `[]` for what may be left out and `()*` for what may come again:
//!
//! ```text
//! GOAL   = NAME | (minimize | maximize) FIGURE (* FIGURE)* [where COND (and COND)*]
//! COND   = FIGURE (>= | <=) NUMBER [today | best]
//! FIGURE = METRIC [of WORKLOAD]
//! ```
//!
//! METRIC is a metric's name or `rate`. WORKLOAD is a workload's name or, where no workload is called
//! so, a kind (`tcp_rr`), bare or in quotes. `today` is the first setting's value in the same workload
//! (`first` is another word for it), `best` the best value that any setting has there. A figure without a
//! workload speaks of every workload that has it: an objective of the geometric mean of the ratios to
//! the first setting, a condition of each of them.

use std::fmt;
use std::str::FromStr;

use latput_trial::metric::FORMER_NAMES;
use latput_trial::{Metric, Traffic, Workload};

mod parse;

pub use parse::GoalError;

/// A parsed goal.
#[derive(Clone, Debug, PartialEq)]
pub struct Goal {
    /// As it was written, or the named goal's name and meaning.
    pub text: String,
    /// Which way the objective is to go.
    pub direction: Optimize,
    /// What is to become small or large: the product of these, each counting alike.
    pub objective: Vec<Figure>,
    /// What a setting must keep to be chosen.
    pub conditions: Vec<Condition>,
}

/// Which way an objective is to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Optimize {
    /// The least is wanted.
    Minimize,
    /// The most is wanted.
    Maximize,
}

/// A measure, of one workload or of all that have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Figure {
    /// What is measured.
    pub measure: Measure,
    /// The name or kind of workload; `None` for every workload that has the measure.
    pub workload: Option<String>,
}

/// What a goal can speak of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// One metric.
    Metric(Metric),
    /// `rate`: what each workload gets done, transactions per second of request/response and goodput
    /// of the others.
    Rate,
}

/// A bound that a setting must keep.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    /// What is bounded.
    pub figure: Figure,
    /// On which side.
    pub bound: Bound,
    /// The bound itself, in the metric's unit, or as a share of the reference.
    pub number: f64,
    /// What `number` is a share of; `None` if it stands for itself.
    pub reference: Option<Reference>,
}

/// On which side of its number a figure must stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// `>=`
    AtLeast,
    /// `<=`
    AtMost,
}

/// The setting that a bound is a share of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reference {
    /// The setting with the best value in the same workload.
    Best,
    /// The first setting, which is what the host has today.
    Today,
}

impl Goal {
    /// The named goals and what they stand for.
    ///
    /// - `latency`: the least tail of round trips, whatever it costs (the reason names the cost).
    /// - `throughput`: the most of every workload's rate, bulk and transactions alike, where none
    ///   loses more than 5 % of what it has today.
    /// - `cpu`: the least CPU time per unit of work on the system under test, where no rate loses
    ///   more than 5 % of what it has today.
    /// - `balanced`: tail latency and CPU time weigh the same (1 % of one is worth 1 % of the other,
    ///   as in the energy-delay product of Gonzalez and Horowitz 1996), where bulk keeps 95 % of
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

    /// Reads a goal; the error names the word that is wrong, where it is, and what it could be.
    pub fn parse(text: &str) -> Result<Self, GoalError> {
        parse::goal(text)
    }

    /// Reads the goal of a results file, which may have names that metrics had in earlier versions.
    pub fn parse_kept(text: &str) -> Result<Self, GoalError> {
        let rename =
            |text: String, (former, metric): &(&str, Metric)| text.replace(former, metric.name());
        Self::parse(&FORMER_NAMES.iter().fold(text.to_owned(), rename))
    }
}

impl FromStr for Goal {
    type Err = GoalError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

impl Figure {
    /// The workloads it speaks of, by index, each with the metric that the measure is there. Whether
    /// a workload has that metric only its runs can tell.
    pub fn of(&self, workloads: &[Workload]) -> Vec<(usize, Metric)> {
        let is_called = |name: &str| workloads.iter().any(|workload| workload.name == name);
        let is_meant = |workload: &Workload| match &self.workload {
            None => true,
            Some(name) if is_called(name) => workload.name == *name,
            Some(kind) => workload.traffic.kind() == kind,
        };
        let meant = workloads.iter().enumerate().filter(|(_, workload)| is_meant(workload));
        meant.map(|(index, workload)| (index, self.measure.of(&workload.traffic))).collect()
    }
}

impl Measure {
    /// The metric that it is under `traffic`.
    pub fn of(self, traffic: &Traffic) -> Metric {
        match (self, traffic) {
            (Self::Metric(metric), _) => metric,
            (Self::Rate, traffic) if traffic.is_transactional() => Metric::TransactionsPerS,
            (Self::Rate, _) => Metric::ThroughputBps,
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

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.workload {
            None => f.write_str(self.measure.name()),
            Some(workload) => write!(f, "{} of \"{workload}\"", self.measure.name()),
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bound = match self.bound {
            Bound::AtLeast => ">=",
            Bound::AtMost => "<=",
        };
        write!(f, "{} {bound} {}", self.figure, self.number)?;
        f.write_str(match self.reference {
            None => "",
            Some(Reference::Best) => " best",
            Some(Reference::Today) => " today",
        })
    }
}
