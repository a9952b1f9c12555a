//! The common language of every testbed: the request ([`Plan`], [`Workload`]) and the result
//! ([`Observation`], [`Row`], [`Results`]).
//!
//! The report, the model and the search use these types and do not know the testbed of a row.

pub mod check;
pub mod figures;
pub mod live;
pub mod metric;
pub mod nic;
pub mod observation;
pub mod overrun;
pub mod plan;
pub mod program;
pub mod results;
pub mod share;
pub mod surroundings;
pub mod today;
pub mod workload;

pub use metric::Metric;
pub use observation::{Check, Observation};
pub use plan::Plan;
pub use results::{Results, Row};
pub use surroundings::{Finding, Surroundings};
pub use today::HostToday;
pub use workload::{
    Arrivals, Binding, Direction, Distribution, Probe, SocketOptions, Think, Traffic, Workload,
};
