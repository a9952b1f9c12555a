//! Files of other programs, both ways: what iperf3, netperf and flent wrote becomes latput's results, and results become
//! data files of flent.
//!
//! Pure: bytes in, values out. [`import()`] is the way in, [`flent::write`] the way out; one module to a program.

pub mod flent;
pub mod gzip;
pub mod import;
pub mod iperf3;

mod netperf;
mod parsed;

pub use import::{ImportError, ImportFormat, LARGEST, import};
