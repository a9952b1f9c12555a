//! Files of other programs in both directions: reads those of iperf3, netperf and flent as results,
//! and writes results as flent's data files.
//!
//! Pure: bytes in, values out. [`import_files`] reads, [`flent::write`] writes. Each program has one
//! module.

pub mod file_kind;
pub mod flent;
pub mod gzip;
pub mod import;
pub mod iperf3;
pub mod program;
pub mod prometheus;
pub mod statsd;

mod netperf;
mod parsed;
mod read_error;
mod rules;

pub use file_kind::FileKind;
pub use import::{ImportError, ImportFormat, ImportOutcome, LARGEST, import_files, known_records};
pub use parsed::TestRecord;
pub use read_error::ReadError;
pub use rules::{check_observation_count, is_same_content};
