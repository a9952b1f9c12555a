//! The published experiments: from the rows of their files to simulated predictions.
//!
//! Pure: texts in, predictions out. The edge crate runs jobs in parallel. Predictions use no
//! published figure: a row describes the measurement, the profile and the simulator give the
//! result.

pub mod anomaly;
pub mod calibrate;
pub mod cells;
pub mod delay_mtu;
pub mod experiment;
mod figure;
mod files;
pub mod html;
pub mod kind;
mod label;
pub mod parts;
pub mod predict;
pub mod provenance;
pub mod published;
pub mod row;
pub mod setting;
pub mod system;
pub mod table;
pub mod target;

pub use cells::CellFile;
pub use experiment::Experiment;
pub use kind::ExperimentKind;
pub use provenance::Provenance;
pub use row::{CsvRow, RowError};
pub use system::SystemCatalog;
pub use table::CsvTable;
