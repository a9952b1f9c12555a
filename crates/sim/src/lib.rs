//! The simulator.
mod agenda;
mod congestion;
mod core;
mod fifo;
mod frame;
pub mod machine;
pub mod scenario;
mod tcp;
pub mod vector;
