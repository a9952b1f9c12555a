//! The JSON of `latput keep --check`.

use schemars::JsonSchema;
use serde::Serialize;

/// Kept values and files, compared with the files and the values in force.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct KeepCheckDocument {
    /// Version of this document's schema: 1.
    pub(crate) schema: u32,
    /// Whether this is the running system; of an image no values in force can be read.
    pub(crate) is_running_system: bool,
    /// The interfaces for which something is kept.
    pub(crate) interfaces: Vec<KeptInterface>,
}

/// One interface.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct KeptInterface {
    /// Its name.
    pub(crate) interface: String,
    /// The files that keep its values.
    pub(crate) files: Vec<KeptFile>,
    /// The knobs that are kept; empty if the record is of an earlier latput.
    pub(crate) knobs: Vec<KeptKnob>,
}

/// One file.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct KeptFile {
    /// Its name.
    pub(crate) file: String,
    /// Its state.
    pub(crate) state: KeptFileState,
    /// Fault of the file; `null` if it is whole.
    pub(crate) problem: Option<String>,
}

/// The state of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum KeptFileState {
    /// As latput wrote it; nothing is known that takes its place.
    Whole,
    /// It is not there any more.
    Missing,
    /// It was changed since.
    Changed,
    /// Another file counts in its place.
    Outranked,
    /// Its program has not applied it yet.
    NotApplied,
    /// Its program does not use it: a unit that is not enabled, a profile that is not active.
    NotUsed,
}

impl KeptFileState {
    /// Whether what the file keeps would not survive a boot.
    pub(crate) const fn is_lost(self) -> bool {
        matches!(self, Self::Missing | Self::Changed | Self::Outranked | Self::NotUsed)
    }
}

/// One knob.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct KeptKnob {
    /// The kernel's name.
    pub(crate) name: String,
    /// The kept value with its unit.
    pub(crate) kept: String,
    /// Whether it is in force.
    pub(crate) state: KeptKnobState,
    /// The value in force at each place; empty if it could not be read.
    pub(crate) in_force: Vec<super::ShownValue>,
    /// The file that keeps it.
    pub(crate) file: String,
    /// The reason of a difference or of a failed read, where it is known.
    pub(crate) reason: Option<String>,
}

/// Whether a kept value is in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum KeptKnobState {
    /// It is in force at every place.
    Same,
    /// Another value is in force.
    Different,
    /// The value in force cannot be read.
    Unreadable,
}
