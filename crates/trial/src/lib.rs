//! The common language of every testbed: what is asked for ([`Plan`], [`Workload`]) and what came
//! back ([`Observation`], [`Row`], [`Results`]).
//!
//! The report, the model and the search know these types and never which testbed a row came from.

pub mod metric;
pub mod observation;
pub mod plan;
pub mod results;
pub mod share;
pub mod workload;

pub use metric::Metric;
pub use observation::{Check, Observation};
pub use plan::Plan;
pub use results::{Results, Row};
pub use workload::{
    Arrivals, Binding, Direction, Distribution, Probe, SocketOptions, Think, Traffic, Workload,
};
