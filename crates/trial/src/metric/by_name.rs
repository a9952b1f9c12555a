//! Figures of custom metrics in files: an object by name, each with its value and its definition.

use std::collections::BTreeMap;

use latput_units::IntoMap;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{CustomMetric, Definition, PreferredDirection, Summary, Unit};

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FigureRecord {
    value: f64,
    unit: Unit,
    better: PreferredDirection,
    summary: Summary,
}

/// Figures without a finite value are left out, because JSON has none.
///
/// # Errors
///
/// Those of the serializer.
pub fn serialize<S: Serializer>(
    figures: &BTreeMap<CustomMetric, f64>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(figures.iter().filter(|(_, value)| value.is_finite()).map(
        |(metric, value)| {
            let Definition { name, unit, better, summary } = metric.definition();
            (name, FigureRecord { value: *value, unit, better, summary })
        },
    ))
}

/// Reads figures with their definitions.
///
/// # Errors
///
/// A definition that cannot be used.
pub fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<CustomMetric, f64>, D::Error> {
    let figures = BTreeMap::<String, FigureRecord>::deserialize(deserializer)?;
    let known = |(name, figure): (String, FigureRecord)| {
        let FigureRecord { value, unit, better, summary } = figure;
        let metric = CustomMetric::define(&Definition { name, unit, better, summary });
        Ok((metric.map_err(D::Error::custom)?, value))
    };
    Ok(figures.into_iter().map(known).collect::<Result<Vec<_>, _>>()?.into_map())
}
