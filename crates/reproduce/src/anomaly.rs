//! Published cells known to be odd. The list was made beforehand; fits and accuracy leave them out.

use std::collections::BTreeMap;

use latput_sim::profile::read_toml;
use serde::Deserialize;

use crate::row::CsvRow;

const SHIPPED: &str = include_str!("../../../data/anomalies.toml");

/// The list.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AnomalyList {
    anomaly: Vec<Anomaly>,
}

/// One entry.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Anomaly {
    /// Columns with values. The entry means every row that has them all.
    pub cells: BTreeMap<String, String>,
    /// Why no sound model should reproduce it.
    pub reason: String,
}

impl AnomalyList {
    /// The shipped list.
    pub fn load_shipped() -> Self {
        read_toml(SHIPPED).expect("the list is shipped and tested")
    }

    /// The entry for this row.
    pub fn find_for_row(&self, row: &CsvRow<'_>) -> Option<&Anomaly> {
        self.anomaly
            .iter()
            .find(|anomaly| anomaly.cells.iter().all(|(column, value)| row.text(column) == value))
    }

    /// All entries.
    pub fn iter(&self) -> impl Iterator<Item = &Anomaly> {
        self.anomaly.iter()
    }
}
