//! Knobs, settings, and the transaction that changes them.
//!
//! Pure: the kernel is reached through [`KernelRead`] and [`KernelWrite`], which `latput-linux` (the
//! real one) and `latput-testkit` (one that rounds, refuses and delays) implement, and checkpoints
//! through [`CheckpointStore`].

pub mod catalogue;
pub mod checkpoint;
pub mod device;
pub mod effect;
pub mod export;
pub mod kernel;
pub mod outcome;
pub mod parse;
pub mod profile;
pub mod qdisc;
pub mod rss;
pub mod setting;
pub mod sysctl;
pub mod thread_schedule;
pub mod transaction;
pub mod value;

pub use catalogue::spec::{Group, KnobSpec, Limits, Rounding, Scope, Tier, ValueKind};
pub use catalogue::{Knob, UnknownKnob};
pub use checkpoint::{
    Along, Checkpoint, CheckpointStore, Context, LinkResets, Maker, Slot, StoreError,
};
pub use device::{Device, Whereabouts};
pub use export::{Exported, export};
pub use kernel::{
    Capability, KernelError, KernelErrorKind, KernelRead, KernelWrite, WritePurpose,
    format_no_interface,
};
pub use outcome::{ChangeOutcome, Refusal};
pub use parse::{AssignmentError, ValueError, ValueProblem, parse_assignment};
pub use profile::Profile;
pub use qdisc::Qdisc;
pub use rss::QueueTable;
pub use setting::{Setting, State};
pub use thread_schedule::ThreadSchedule;
pub use transaction::{
    Applied, ApplyError, Cause, Change, ConfirmError, Foreign, Leftover, RestoreError, Restored,
    Session, Standing, WritePermit, apply, await_confirmation, commit, confirm, extend, plan,
    plan_apply, plan_restore, plan_undo, read_standing, restore, undo,
};
pub use value::{Named, Place, Value};
