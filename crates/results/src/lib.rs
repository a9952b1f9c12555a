//! The results file of runs, and the joining of files that shards of a run have written.
//!
//! [`results_db`] keeps finished trials, [`shard`] says which of them a process runs, and [`order`] in which order.

pub mod error;
pub mod order;
pub mod results_db;
pub mod shard;

pub use error::Error;
pub use results_db::ResultsDb;
pub use shard::Shard;
