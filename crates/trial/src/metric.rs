//! The figures of tables, goals and intervals, each with one name and one definition.
//!
//! A built-in metric is declared in `metric/table.rs` and computed in `metric/value.rs`; `metric/quantity.rs`
//! prints it. A plan declares its own metrics (`metric/custom.rs`).

#![warn(clippy::wildcard_enum_match_arm)]

pub mod by_name;
mod custom;
mod quantity;
mod scope;
mod table;
mod unit;
mod value;

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use latput_units::spelling;
use serde::{Deserialize, Serialize};

pub use self::custom::{CustomMetric, CustomMetricError, Definition};
pub use self::quantity::{Scale, quantity};
pub use self::table::{FORMER_NAMES, Metric};
pub use self::unit::Unit;
pub use self::value::service_demand_us;

/// The declaration of a metric.
#[derive(Clone, Copy, Debug)]
pub struct MetricRow {
    /// The name in files, goals and flags. It ends with its unit, followed by the statistic.
    pub name: &'static str,
    /// The name above a table's column.
    pub column: &'static str,
    /// The name in a phrase, for axis titles and tool tips.
    pub phrase: &'static str,
    /// The definition in one sentence, with the formula or its source.
    pub definition: &'static str,
    /// The unit of its values.
    pub unit: Unit,
    /// Whether a higher or a lower value is better.
    pub preferred: PreferredDirection,
    /// How several runs are summarised.
    pub summary: Summary,
    /// The kinds of workload that have it.
    pub scope: MetricScope,
    /// The option that a workload of these kinds needs to have it.
    pub needs: Needs,
    /// The counts that it is computed from.
    pub source: MetricSource,
    /// The share of round trips that do not exceed it, for a percentile.
    pub quantile: Option<f64>,
    /// Observations that a percentile of latency needs, so that one of them is beyond it.
    pub needed_observations: Option<u64>,
}

/// The kinds of workload that have a metric, by their facts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricScope {
    /// All kinds.
    All,
    /// Kinds that are judged by goodput.
    Goodput,
    /// Kinds with payload both ways.
    BothWays,
    /// Kinds whose units have a round-trip time.
    Latency,
    /// Kinds with an open loop.
    OpenLoop,
    /// Kinds whose packets may be lost.
    Datagrams,
    /// Datagrams in one direction.
    DatagramStream,
    /// Kinds on TCP connections of latput.
    Tcp,
    /// Traffic that is not latput's.
    Live,
}

/// The counts that a metric is computed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricSource {
    /// Those of the traffic, the probe, the interface or the kernel's work.
    Counts,
    /// CPU time.
    CpuTime,
    /// The kernel's view of live traffic's TCP connections.
    Connections,
}

/// Whether a higher or a lower value is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PreferredDirection {
    /// More is better.
    Higher,
    /// Less is better.
    Lower,
    /// Neither: it only describes.
    Neither,
}

impl PreferredDirection {
    /// `higher`, `lower`, `neither`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Higher => "higher",
            Self::Lower => "lower",
            Self::Neither => "neither",
        }
    }
}

/// How runs of a metric are summarised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Summary {
    /// A rate or share: mean over runs, Student's t interval.
    Mean,
    /// A percentile, an extreme, or a quotient of two noisy figures: median over runs,
    /// order-statistic interval. It is never averaged, because one outlier would move the mean to a
    /// value that no run has.
    Median,
}

impl Summary {
    /// `mean`, `median`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mean => "mean",
            Self::Median => "median",
        }
    }
}

/// The option that a workload needs to have a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// No option.
    Nothing,
    /// A probe beside the traffic, or a kind that is one (`ping`).
    Probe,
    /// An open loop.
    Arrivals,
}

impl Needs {
    /// The field of a plan that asks for it.
    pub const fn field(self) -> Option<&'static str> {
        match self {
            Self::Nothing => None,
            Self::Probe => Some("probe_hz"),
            Self::Arrivals => Some("rate_per_s"),
        }
    }
}

impl Metric {
    /// Whether it is a figure of CPU time.
    pub const fn is_of_cpu(self) -> bool {
        matches!(self.row().source, MetricSource::CpuTime)
    }

    /// Whether it is a figure of live traffic's TCP connections.
    pub const fn is_of_connections(self) -> bool {
        matches!(self.row().source, MetricSource::Connections)
    }

    /// The metric's declaration.
    pub const fn row(self) -> &'static MetricRow {
        if let Self::Custom(custom) = self { custom.row() } else { &table::TABLE[self.place()] }
    }

    /// The name in files, goals and flags.
    pub const fn name(self) -> &'static str {
        self.row().name
    }

    /// The name above a table's column.
    pub const fn column(self) -> &'static str {
        self.row().column
    }

    /// The name in a phrase, for axis titles and tool tips.
    pub const fn phrase(self) -> &'static str {
        self.row().phrase
    }

    /// Whether a higher or a lower value is better.
    pub const fn preferred_direction(self) -> PreferredDirection {
        self.row().preferred
    }

    /// Whether the probe beside the traffic measures it.
    pub const fn is_of_probe(self) -> bool {
        matches!(self.row().needs, Needs::Probe)
    }

    /// The share of round trips that do not exceed this percentile; `None` for other figures.
    pub const fn quantile(self) -> Option<f64> {
        self.row().quantile
    }

    /// Observations that a percentile of latency needs, so that one of them is beyond it; `None` for other figures.
    pub const fn needed_observations(self) -> Option<u64> {
        self.row().needed_observations
    }
}

/// Built-in metrics in the order of tables, then custom ones by name: not by the order in which they were
/// defined, which differs from process to process.
impl Ord for Metric {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Custom(one), Self::Custom(other)) => one.cmp(other),
            _ => self.place().cmp(&other.place()),
        }
    }
}

impl PartialOrd for Metric {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Whether a built-in metric has this name, or had it in an earlier version.
fn is_built_in(name: &str) -> bool {
    Metric::ALL.iter().any(|metric| metric.name() == name)
        || FORMER_NAMES.iter().any(|(former, _)| *former == name)
}

/// A name that is no metric's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnknownMetric {
    /// A metric had this name in an earlier version.
    #[error("`{former}` is called `{metric}` now")]
    Former {
        /// The name as given.
        former: String,
        /// The metric that now has this meaning.
        metric: Metric,
    },
    /// No version had a metric of this name.
    #[error("there is no metric `{name}`: {}`latput metrics` lists all", did_you_mean(meant))]
    Unknown {
        /// The name as given.
        name: String,
        /// The metrics that were probably meant.
        meant: Vec<&'static str>,
    },
}

/// A question with these names, before the rest of a sentence; empty without any.
fn did_you_mean(names: &[&str]) -> String {
    if names.is_empty() {
        return String::new();
    }
    format!("did you mean `{}`? ", names.join("` or `"))
}

/// Reads the name of a built-in metric, or of a custom one that this process knows from a plan or from
/// results.
impl FromStr for Metric {
    type Err = UnknownMetric;
    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let mut known = Self::ALL.iter().copied().chain(CustomMetric::all().map(Self::Custom));
        if let Some(metric) = known.find(|metric| metric.name() == name) {
            return Ok(metric);
        }
        let name: String = name.chars().take(80).collect();
        if let Some((_, metric)) = FORMER_NAMES.iter().find(|(former, _)| *former == name) {
            return Err(UnknownMetric::Former { former: name, metric: *metric });
        }
        let custom = CustomMetric::all().map(CustomMetric::name);
        let known: Vec<&str> = Self::ALL.iter().map(|metric| metric.name()).chain(custom).collect();
        let meant = spelling::with_parts(&name, &known, 3);
        Err(UnknownMetric::Unknown { name, meant })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_metric_has_row_and_name() {
        // serde lists the names of all variants where it knows one not.
        let error = serde_json::from_str::<Metric>("\"?\"").unwrap_err().to_string();
        let variants = error.split('`').skip(3).step_by(2);
        let built_in = variants.filter(|name| *name != "custom");
        let metrics: BTreeSet<Metric> =
            built_in.map(|name| serde_json::from_value(name.into()).unwrap()).collect();
        assert_eq!(metrics.into_iter().collect::<Vec<_>>(), Metric::ALL);
        for metric in Metric::ALL {
            assert_eq!(serde_json::to_value(metric).unwrap(), metric.name());
            assert_eq!(metric.name().parse(), Ok(*metric));
        }
    }

    #[test]
    fn names_are_unique() {
        for name in [Metric::name, Metric::column, Metric::phrase, |m: Metric| m.row().definition] {
            let names: BTreeSet<&str> = Metric::ALL.iter().map(|metric| name(*metric)).collect();
            assert_eq!(names.len(), Metric::ALL.len());
        }
    }

    #[test]
    fn metric_names_end_with_their_unit() {
        const STATISTICS: &[&str] =
            &["", "_min", "_mean", "_p50", "_p90", "_p99", "_p999", "_max", "_mdev"];
        for metric in Metric::ALL {
            let suffix = metric.row().unit.suffix();
            let is_end = |end: &&str| metric.name().ends_with(&format!("{suffix}{end}"));
            assert!(STATISTICS.iter().any(is_end), "{metric}");
        }
    }

    #[test]
    fn metric_definitions_are_sentences_with_kinds() {
        for metric in Metric::ALL {
            let row = metric.row();
            assert!(row.definition.ends_with('.') && !row.workloads().is_empty(), "{metric}");
            assert!(!row.column.is_empty() && !row.phrase.is_empty(), "{metric}");
        }
    }

    #[test]
    fn former_metric_names_are_read_and_told() {
        for (former, metric) in FORMER_NAMES {
            assert_eq!(serde_json::from_value::<Metric>((*former).into()).unwrap(), *metric);
            let error = former.parse::<Metric>().unwrap_err().to_string();
            assert_eq!(error, format!("`{former}` is called `{metric}` now"));
        }
    }
}
