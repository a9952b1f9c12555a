//! Names what slows a host's network path, from two looks at the kernel's own files.
//!
//! Pure: texts in, findings out; no I/O and no clock. Read [`snapshot`] first (what was seen), then [`evidence`] (how the
//! two looks differ), then [`rules`] (one file for each finding). A rule sees differences only: a counter that is large
//! since boot and does not grow says nothing. What is missing is unseen, never 0.

pub mod diagnosis;
pub mod evidence;
pub mod figures;
pub mod finding;
pub mod folder;
mod measures;
mod parse;
pub mod proof;
pub mod rules;
mod share;
pub mod sides;
pub mod snapshot;
pub mod source;
pub mod stages;

pub use diagnosis::{Diagnosis, diagnose};
pub use evidence::Evidence;
pub use figures::PathFigures;
pub use finding::{Finding, Rule};
pub use folder::{FolderError, read_folder};
pub use sides::{HostsDiagnosis, diagnose_hosts};
pub use snapshot::{Look, Snapshot, SnapshotError};
pub use source::EvidenceSource;
pub use stages::{Stage, StageHistogram, StageRecord, StageSummary};
