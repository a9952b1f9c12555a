//! What every reader of a file gives: its tests, or the problem and its place.

use std::collections::BTreeMap;

use latput_trial::{Observation, Workload, workload};

/// One test that a file tells of.
#[derive(Clone, Debug)]
pub(crate) struct Test {
    pub(crate) workload: Workload,
    pub(crate) started_unix_ms: Option<u64>,
    pub(crate) observation: Observation,
    pub(crate) facts: Vec<(String, String)>,
    pub(crate) notes: Vec<String>,
}

/// A problem and where in the file it is.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) place: String,
    pub(crate) text: String,
}

impl Problem {
    /// Of the file as a whole.
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self { place: String::new(), text: text.into() }
    }

    /// At a place: `line 3`, `test 2`.
    pub(crate) fn at(place: impl Into<String>, text: impl Into<String>) -> Self {
        Self { place: place.into() + ": ", text: text.into() }
    }
}

/// A workload by the names of its fields, as plans have them.
pub(crate) fn workload(kind: &str, fields: &[(&str, String)]) -> Result<Workload, String> {
    let mut all: BTreeMap<String, String> =
        fields.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
    all.insert("kind".to_owned(), kind.to_owned());
    workload::from_fields(&all).map_err(|error| error.to_string())
}
