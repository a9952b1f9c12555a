//! A packet-level simulator of hosts, NICs and links: interrupt moderation, NAPI, CPU cost, TCP.
//!
//! [`run`] takes a [`Scenario`] and gives an [`Outcome`]. Time is whole nanoseconds; every component has
//! one slot for when it acts next ([`agenda`]) and there is no event object per packet; the same scenario
//! gives the same outcome, bit by bit. Pure: no I/O, no clock, no threads.
//!
//! Reading order: [`scenario`] and [`machine`] (what can be described), [`vector`] (when a NIC
//! interrupts), `core` (what runs on a CPU), `world` and its parts (how all act on each other), `tcp`.

mod agenda;
mod congestion;
mod core;
mod fifo;
mod frame;
pub mod machine;
mod narrow;
pub mod outcome;
mod port;
pub mod profile;
mod qdisc;
mod queue;
pub mod scenario;
mod task;
mod tcp;
pub mod validate;
pub mod vector;
mod world;

pub use outcome::Outcome;
pub use profile::Profile;
pub use scenario::Scenario;
pub use validate::Invalid;

/// Simulates `scenario` from its start to the end of its measured window; refuses one that has an
/// impossible value or would not end in days.
pub fn run(scenario: &Scenario) -> Result<Outcome, Invalid> {
    scenario.check()?;
    let mut world = world::build(scenario);
    world.run_until(scenario.warmup.as_ns());
    let from = world.start_window();
    world.run_until((scenario.warmup + scenario.duration).as_ns());
    let to = world.snapshot();
    Ok(outcome::collect(&world, scenario, &from, &to))
}
