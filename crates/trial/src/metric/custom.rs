//! Metrics that a plan defines: each name has one definition in a process.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use super::{
    MetricRow, MetricScope, MetricSource, Needs, PreferredDirection, Summary, Unit, is_built_in,
};

/// The most custom metrics of a process.
const MOST: usize = 256;
/// The longest name, in characters.
const LONGEST_CHARS: usize = 64;
/// Words of goals.
const RESERVED: &[&str] =
    &["and", "best", "first", "maximize", "minimize", "of", "rate", "today", "where"];

/// A metric that a plan defines. Equal names are equal metrics.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(try_from = "Definition", into = "Definition")]
pub struct CustomMetric(&'static MetricRow);

/// The definition of a custom metric, as files keep it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Definition {
    /// The name in goals and tables: `[a-z][a-z0-9_]*`.
    pub name: String,
    /// The unit of its values.
    pub unit: Unit,
    /// Whether a higher or a lower value is better.
    pub better: PreferredDirection,
    /// How several runs are summarised.
    pub summary: Summary,
}

/// A definition that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CustomMetricError {
    /// The name has other characters or is too long.
    #[error(
        "`{name}` cannot be the name of a metric: use at most 64 of a-z, 0-9 and _, and begin with a letter"
    )]
    Name {
        /// The beginning of the name.
        name: String,
    },
    /// The name means something else.
    #[error("latput already uses the name `{name}`: choose another one, such as `app_{name}`")]
    Taken {
        /// The name.
        name: String,
    },
    /// A figure of this unit cannot come from a program.
    #[error("metric `{name}`: the unit `{unit}` is for latput's own metrics")]
    Unit {
        /// The metric.
        name: String,
        /// The unit.
        unit: &'static str,
    },
    /// The name has another definition already.
    #[error("metric `{name}` has two definitions ({}): give one of them another name", self.definitions())]
    Clash {
        /// The name.
        name: String,
        /// The earlier definition.
        earlier: Box<Definition>,
        /// This definition.
        now: Box<Definition>,
    },
    /// The process has as many as it can.
    #[error("metric `{name}` is too many: plans and results can define at most {MOST} metrics")]
    TooMany {
        /// The name.
        name: String,
    },
}

impl CustomMetricError {
    fn definitions(&self) -> String {
        let Self::Clash { earlier, now, .. } = self else { return String::new() };
        let in_words = |definition: &Definition| {
            let (better, summary) = (definition.better.name(), definition.summary.name());
            format!("unit {}, better {better}, summary {summary}", definition.unit.name())
        };
        format!("{}; {}", in_words(earlier), in_words(now))
    }
}

/// The definitions of this process. They are never removed, because metrics refer to them.
static DEFINED: Mutex<BTreeMap<&'static str, &'static MetricRow>> = Mutex::new(BTreeMap::new());

fn defined() -> MutexGuard<'static, BTreeMap<&'static str, &'static MetricRow>> {
    // No code panics between two changes of the map.
    DEFINED.lock().unwrap_or_else(PoisonError::into_inner)
}

impl CustomMetric {
    /// The metric of this definition. A second call with the same definition gives the same metric.
    ///
    /// Fails for a name that is malformed, taken or defined otherwise, for units of latput's own, and
    /// for more than 256 metrics.
    pub fn define(definition: &Definition) -> Result<Self, CustomMetricError> {
        check(definition)?;
        let name = definition.name.clone();
        let mut defined = defined();
        if let Some(row) = defined.get(name.as_str()) {
            let earlier = Self(row).definition();
            return if earlier == *definition {
                Ok(Self(row))
            } else {
                let now = Box::new(definition.clone());
                Err(CustomMetricError::Clash { name, earlier: Box::new(earlier), now })
            };
        }
        if defined.len() >= MOST {
            return Err(CustomMetricError::TooMany { name });
        }
        let text = format!("The figure `{name}` that the plan defines, as its program reports it.");
        let name: &'static str = name.leak();
        let row: &'static MetricRow = Box::leak(Box::new(MetricRow {
            name,
            column: name,
            phrase: name,
            definition: text.leak(),
            unit: definition.unit,
            preferred: definition.better,
            summary: definition.summary,
            scope: MetricScope::All,
            needs: Needs::Nothing,
            source: MetricSource::Counts,
            quantile: None,
            needed_observations: None,
        }));
        defined.insert(name, row);
        Ok(Self(row))
    }

    /// Every custom metric that this process knows, by name.
    pub fn all() -> impl Iterator<Item = Self> {
        let known: Vec<Self> = defined().values().map(|row| Self(row)).collect();
        known.into_iter()
    }

    /// Its row.
    pub const fn row(self) -> &'static MetricRow {
        self.0
    }

    /// The name in goals and tables.
    pub const fn name(self) -> &'static str {
        self.0.name
    }

    /// Its definition.
    pub fn definition(self) -> Definition {
        let MetricRow { unit, preferred, summary, .. } = *self.0;
        Definition { name: self.0.name.to_owned(), unit, better: preferred, summary }
    }
}

fn check(definition: &Definition) -> Result<(), CustomMetricError> {
    let name = &definition.name;
    let is_plain = name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_'));
    if !is_plain
        || name.len() > LONGEST_CHARS
        || !name.starts_with(|c: char| c.is_ascii_lowercase())
    {
        let name = name.escape_debug().take(LONGEST_CHARS).collect();
        return Err(CustomMetricError::Name { name });
    }
    if is_built_in(name) || RESERVED.contains(&name.as_str()) {
        return Err(CustomMetricError::Taken { name: name.clone() });
    }
    if !definition.unit.is_of_programs() {
        let unit = definition.unit.name();
        return Err(CustomMetricError::Unit { name: name.clone(), unit });
    }
    Ok(())
}

impl TryFrom<Definition> for CustomMetric {
    type Error = CustomMetricError;
    fn try_from(definition: Definition) -> Result<Self, Self::Error> {
        Self::define(&definition)
    }
}

impl From<CustomMetric> for Definition {
    fn from(metric: CustomMetric) -> Self {
        metric.definition()
    }
}

impl PartialEq for CustomMetric {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for CustomMetric {}

impl Hash for CustomMetric {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name().hash(state);
    }
}

impl PartialOrd for CustomMetric {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for CustomMetric {
    fn cmp(&self, other: &Self) -> Ordering {
        self.name().cmp(other.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Metric, Observation, Traffic};

    fn definition(name: &str) -> Definition {
        let (unit, summary) = (Unit::PerS, Summary::Mean);
        Definition { name: name.to_owned(), unit, better: PreferredDirection::Higher, summary }
    }

    #[test]
    fn name_has_one_definition() {
        let one = definition("custom_test_once");
        let metric = CustomMetric::define(&one).unwrap();
        assert_eq!(CustomMetric::define(&one), Ok(metric));
        assert_eq!(metric.definition(), one);
        assert_eq!("custom_test_once".parse(), Ok(Metric::Custom(metric)));
        let other = Definition { unit: Unit::Nanoseconds, ..one };
        let error = CustomMetric::define(&other).unwrap_err().to_string();
        assert!(error.contains("two definitions (unit 1/s, better higher"), "{error}");
    }

    #[test]
    fn reserved_names_and_units_are_refused() {
        for name in ["", "Rps", "9rps", "_rps", "r-ps", "r\u{1b}[2J", &"r".repeat(65)] {
            let error = CustomMetric::define(&definition(name)).unwrap_err();
            assert!(matches!(error, CustomMetricError::Name { .. }), "{name}: {error}");
            assert!(error.to_string().chars().all(|letter| !letter.is_control()), "{error}");
        }
        for name in ["latency_ns_p99", "latency_raw_ns_p99", "rate", "today", "where"] {
            let error = CustomMetric::define(&definition(name)).unwrap_err();
            assert!(matches!(error, CustomMetricError::Taken { .. }), "{name}: {error}");
        }
        let demand =
            Definition { unit: Unit::MicrosecondsPerWork, ..definition("custom_test_demand") };
        let error = CustomMetric::define(&demand).unwrap_err();
        assert!(matches!(error, CustomMetricError::Unit { .. }), "{error}");
    }

    #[test]
    fn order_is_by_table_then_name() {
        let later = Metric::Custom(CustomMetric::define(&definition("custom_test_z")).unwrap());
        let earlier = Metric::Custom(CustomMetric::define(&definition("custom_test_a")).unwrap());
        let mut metrics = vec![later, Metric::SutTxPps, earlier, Metric::ThroughputBps];
        metrics.sort();
        assert_eq!(metrics, [Metric::ThroughputBps, Metric::SutTxPps, earlier, later]);
    }

    #[test]
    fn observation_in_a_file_explains_its_figures() {
        let metric = CustomMetric::define(&definition("custom_test_kept")).unwrap();
        let observation =
            Observation { figures: BTreeMap::from([(metric, 12.5)]), ..Observation::default() };
        let kept = serde_json::to_value(&observation).unwrap();
        let figure = &kept["figures"]["custom_test_kept"];
        assert_eq!(
            figure,
            &serde_json::json!({"value": 12.5, "unit": "per_s", "better": "higher", "summary": "mean"})
        );
        let read: Observation = serde_json::from_value(kept.clone()).unwrap();
        assert_eq!(read, observation);
        let value = Metric::Custom(metric).value(&Traffic::tcp_rr(0), &read);
        assert_eq!(value, Some(12.5));
        assert_eq!(read.metrics().last(), Some(Metric::Custom(metric)));
        let mut other = kept;
        other["figures"]["custom_test_kept"]["unit"] = "ns".into();
        let error = serde_json::from_value::<Observation>(other).unwrap_err().to_string();
        assert!(error.contains("two definitions"), "{error}");
    }

    #[test]
    fn metric_alone_in_a_file_is_its_definition() {
        let metric =
            Metric::Custom(CustomMetric::define(&definition("custom_test_alone")).unwrap());
        let kept = serde_json::to_value(metric).unwrap();
        assert_eq!(kept["custom"]["name"], "custom_test_alone");
        assert_eq!(serde_json::from_value::<Metric>(kept).unwrap(), metric);
    }
}
