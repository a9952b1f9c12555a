//! The result of a reader: tests, or a problem with its place.

use std::collections::BTreeMap;

use latput_trial::{Observation, Workload, workload};
use latput_units::IntoMap;

/// One test of a file.
#[derive(Clone, Debug)]
pub(crate) struct Test {
    pub(crate) workload: Workload,
    pub(crate) started_unix_ms: Option<u64>,
    pub(crate) observation: Observation,
    pub(crate) facts: Vec<(String, String)>,
    pub(crate) notes: Vec<String>,
}

/// A problem with its place in the file.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) place: String,
    pub(crate) text: String,
}

impl Problem {
    /// A problem of the whole file.
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self { place: String::new(), text: text.into() }
    }

    /// A problem at a place such as `line 3` or `test 2`.
    pub(crate) fn at(place: impl Into<String>, text: impl Into<String>) -> Self {
        Self { place: place.into() + ": ", text: text.into() }
    }
}

/// A workload from field names and values as in plans.
pub(crate) fn workload(kind: &str, fields: &[(&str, String)]) -> Result<Workload, String> {
    let mut all: BTreeMap<String, String> =
        fields.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).into_map();
    all.insert("kind".to_owned(), kind.to_owned());
    workload::from_fields(&all).map_err(|error| error.to_string())
}
