//! A fleet: many hosts, the setting that each is to have, and what is thought of what they answer.
//!
//! Pure: texts and answers in, verdicts out; no I/O, no clock, no threads. Read [`inventory`] first (which hosts), then
//! [`look`] (what a host answers), [`mod@judge`] (what that means), [`mod@stages`] and [`guard`] (how a setting is brought to all).
//! Answers come from other hosts and are treated as hostile: each is bounded and checked before it is used.

pub mod ansible;
pub mod guard;
pub mod inventory;
pub mod journal;
pub mod judge;
pub mod look;
pub mod prometheus;
pub mod rollouts;
pub mod stages;
pub mod twins;

pub use guard::GuardLimits;
pub use inventory::{FleetHost, InventoryError, ListedHost, ListedPair};
pub use judge::{HostAnswer, HostState, JudgedHost, KnobDifference, judge_hosts};
pub use look::{HostLook, InterfaceLook};
pub use stages::{StageStep, plan_stages};
