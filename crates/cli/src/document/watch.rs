//! The JSON lines of `latput watch`.

use latput_diagnose::{PathFigures, StageSummary};
use schemars::JsonSchema;
use serde::Serialize;

/// A window of `latput watch --json`; one in a line.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct WatchDocument {
    /// Version of this document's schema: 1.
    pub(crate) schema: u32,
    /// The interface.
    pub(crate) interface: String,
    /// The end of the window, in seconds since the start of the command.
    pub(crate) since_start_s: Option<f64>,
    /// The figures of the window.
    #[serde(flatten)]
    pub(crate) figures: PathFigures,
    /// The findings of the last judged window, the one that explains most first.
    pub(crate) findings: Vec<NamedFinding>,
    /// The waits of packets by stage in the last spans that were traced; none where nothing was.
    pub(crate) stages: Vec<StageSummary>,
    /// Sources that were not there or could not be read.
    pub(crate) unseen: Vec<String>,
}

/// A finding of a window.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct NamedFinding {
    /// Its name, as in `latput diagnose`.
    pub(crate) id: &'static str,
    /// The fault with its figures.
    pub(crate) sentence: String,
}
