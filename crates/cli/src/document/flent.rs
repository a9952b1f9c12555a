//! The JSON that lists flent's data files.

use schemars::JsonSchema;
use serde::Serialize;

/// The files of a folder that `latput report -o X.flent` has written.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ManifestDocument {
    /// Version of this document's schema: 1.
    pub(crate) schema: u32,
    /// The files, by workload and then by setting.
    pub(crate) files: Vec<ManifestFile>,
}

/// A data file.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ManifestFile {
    /// Its name in the folder.
    pub(crate) file: String,
    /// The workload's name.
    pub(crate) workload: String,
    /// The setting's label.
    pub(crate) setting: String,
    /// The test of flent that it is plotted as.
    pub(crate) flent_test: String,
}
