//! A fleet: many hosts, the setting that each is to have, and how it comes to all of them.
//!
//! Read [`inventory`] first (which hosts), then [`look`] (what a host answers), [`mod@judge`] (what that means),
//! [`mod@outcome`] (the words and endings of all commands), [`mod@stages`] and [`guard`] (how a setting is brought to all).
//! These get texts and answers, and use no socket, clock or thread. [`list`] and [`mod@fleet`] find and ask the hosts, side
//! by side. [`rollout`], [`actions`] and [`confirm`] are the commands: a setting in stages, the way back and over a reboot,
//! and measurements on pairs of hosts. Answers come from other hosts and are treated as hostile: each is bounded and checked
//! before it is used.

pub mod actions;
pub mod ansible;
pub mod confirm;
pub mod context;
pub mod drift;
pub mod fleet;
pub mod guard;
pub mod inventory;
pub mod journal;
pub mod judge;
pub mod list;
pub mod local_look;
pub mod look;
pub mod outcome;
pub mod outcomes;
pub mod pairs;
pub mod prometheus;
pub mod rollout;
pub mod stages;
pub mod subprocess;
pub mod unfinished;
pub mod workers;

pub use context::{Error, FleetContext, FleetEnding, FleetProgress};
pub use fleet::Fleet;
pub use guard::GuardLimits;
pub use inventory::{FleetHost, ListedHost};
pub use list::{FleetWish, HostSource};
pub use look::HostLook;
pub use outcome::HostOutcome;
pub use outcomes::HostOutcomes;
pub use rollout::{RolloutOptions, RolloutReport, roll_out};
pub use stages::StageStep;
