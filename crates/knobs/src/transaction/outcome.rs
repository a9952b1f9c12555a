//! How a change of an interface ended.

use std::fmt;

use latput_units::Nanos;
use latput_units::text::quote_word;

use crate::catalogue::Knob;
use crate::checkpoint::{Checkpoint, Slot, StoreError};
use crate::kernel::{KernelError, KernelErrorKind};
use crate::outcome::{ChangeOutcome, Refusal};
use crate::parse::ValueError;
use crate::setting::State;
use crate::value::{Place, Value};

/// A change that was made and verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// Changes in the order in which they were written, as [`plan`](super::plan()) lists them: without values that were
    /// lost on the way and written again, and without places that the change took away. Places that it created come last.
    pub changes: Vec<Change>,
    /// Changes that came along without having been asked for, also of other interfaces.
    pub along: Vec<Change>,
    /// Values of places that the change took away, such as those of a queue; going back makes the places and writes them again.
    pub lost: Vec<(Knob, Place, Value)>,
    /// Values that the device rounded, within the limits of their knob: from the value that was written to the one that
    /// is read.
    pub rounded: Vec<Change>,
    /// The values of the knobs concerned, as read back.
    pub found: State,
    /// How to go back. The store still holds it.
    pub undo: Checkpoint,
}

impl Applied {
    /// Whether anything had to be written.
    pub fn outcome(&self) -> ChangeOutcome {
        if self.changes.is_empty() { ChangeOutcome::Unchanged } else { ChangeOutcome::Done }
    }
}

/// One value that becomes, or has become, another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The knob.
    pub knob: Knob,
    /// Where.
    pub place: Place,
    /// The value before.
    pub from: Value,
    /// The value after.
    pub to: Value,
}

impl fmt::Display for Change {
    /// `gro-flush-timeout (napi of rx-0): 0us -> 50us`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { knob, place, from, to } = self;
        let [from, to] = [from, to].map(|value| place.format_value(value));
        f.pad(&format!("{knob} ({place}): {from} -> {to}"))
    }
}

/// A checkpoint that was put back, as far as its interface still exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Restored {
    /// The interface holds the checkpoint's values, and the checkpoint is forgotten.
    Done {
        /// The values that were different.
        changes: Vec<Change>,
        /// Places that the interface no longer has, such as the NAPI of a removed queue.
        gone: Vec<(Knob, Place)>,
        /// Values that somebody else has set since: they stay.
        others: Vec<Foreign>,
    },
    /// The interface was deleted, so there is nothing to put back, and the checkpoint is forgotten.
    InterfaceGone,
    /// The store holds no such checkpoint: another restore was faster, or nothing was changed.
    NothingToDo,
}

/// The failure that stopped a change after its start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Cause {
    /// The kernel did not do a read or a write.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// The kernel accepted a write but reads back another value.
    #[error("{interface}: {knob} ({place}): accepted {wanted} but reads back {found}")]
    NotTaken {
        /// The interface.
        interface: String,
        /// The knob.
        knob: Knob,
        /// Where.
        place: Place,
        /// The value that was written.
        wanted: Value,
        /// The value that was read back.
        found: Value,
    },
    /// A value had to be added to the checkpoint, and that failed.
    #[error(transparent)]
    Checkpoint(#[from] StoreError),
}

impl Cause {
    fn is_permission(&self) -> bool {
        match self {
            Self::Kernel(error) => error.kind == KernelErrorKind::Permission,
            Self::Checkpoint(error) => error.is_permission(),
            Self::NotTaken { .. } => false,
        }
    }
}

/// A value that is neither the one before a change nor what the change made of it: somebody else set it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Foreign {
    /// The knob.
    pub knob: Knob,
    /// Where.
    pub place: Place,
    /// The value before the change.
    pub before: Value,
    /// The value after the change.
    pub written: Value,
    /// The present value.
    pub found: Value,
}

impl fmt::Display for Foreign {
    /// `mtu (device) is 1450, set by somebody else: it was 1500, and latput set 1400`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { knob, place, before, written, found } = self;
        let [before, written, found] =
            [before, written, found].map(|value| place.format_value(value));
        write!(
            f,
            "{knob} ({place}) is {found}, set by another program: it was {before}, and latput set {written}"
        )
    }
}

/// A value that a committed change made, and what is there now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The knob.
    pub knob: Knob,
    /// Where.
    pub place: Place,
    /// The value before the change.
    pub before: Value,
    /// The value that the change wrote.
    pub written: Value,
    /// The value now; `None` where that cannot be read, or the place is gone.
    pub found: Option<Value>,
}

impl Standing {
    /// Whether the change's value is there.
    pub fn is_in_force(&self) -> bool {
        self.holds(&self.written)
    }

    /// Whether the value of before is there.
    pub fn is_back(&self) -> bool {
        self.holds(&self.before)
    }

    fn holds(&self, value: &Value) -> bool {
        self.found.as_ref().is_some_and(|found| self.knob.spec().same(found, value))
    }
}

/// A value that could not be put back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftover {
    /// The knob.
    pub knob: Knob,
    /// Where.
    pub place: Place,
    /// The value to put back.
    pub wanted: Value,
    /// The present value; `None` when it cannot be read.
    pub found: Option<Value>,
    /// Why it was not put back.
    pub reason: String,
}

impl fmt::Display for Leftover {
    /// `mtu (device) should be 1500 but is 9000: device busy`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { knob, place, wanted, found, reason } = self;
        let wanted = place.format_value(wanted);
        match found {
            Some(found) => {
                let found = place.format_value(found);
                write!(f, "{knob} ({place}) should be {wanted} but is {found}: {reason}")
            }
            None => write!(f, "{knob} ({place}) should be {wanted} but is not readable: {reason}"),
        }
    }
}

/// A change that was not made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// The name could not be that of an interface. Nothing was touched.
    #[error("{}", crate::kernel::format_no_interface_name(interface))]
    InvalidName {
        /// The name.
        interface: String,
    },
    /// There is no interface of this name. Nothing was touched.
    #[error("{}", crate::kernel::format_no_interface(interface))]
    NoInterface {
        /// The name.
        interface: String,
    },
    /// A wanted value is not one of its knob's. Nothing was touched.
    #[error(transparent)]
    InvalidValue(#[from] ValueError),
    /// A wanted knob is not there or cannot be set. Nothing was touched.
    #[error("{interface}: {knob} cannot be set here: {reason}")]
    Unsupported {
        /// The interface.
        interface: String,
        /// The knob.
        knob: Knob,
        /// Why.
        reason: String,
    },
    /// A wanted value is beyond what this interface allows. Nothing was touched.
    #[error("{interface}: {knob} cannot be {value} here: give {allowed}")]
    OutOfRange {
        /// The interface.
        interface: String,
        /// The knob.
        knob: Knob,
        /// The value.
        value: Value,
        /// The values that it allows.
        allowed: String,
    },
    /// A wanted knob is a parameter that the driver reads when it is loaded. Nothing was touched.
    #[error(
        "{interface}: the driver reads {knob} only when it is loaded. Set it in the module options and reload the \
         driver; in the `vm` testbed a plan may"
    )]
    NeedsReload {
        /// The interface.
        interface: String,
        /// The knob.
        knob: Knob,
    },
    /// Adaptive moderation is on and would overrule the wanted value. Nothing was touched.
    #[error(
        "{interface}: {adaptive} is on and overrides {knob}. Name it too: `{adaptive}=off`, or `{adaptive}=on` \
         to keep it"
    )]
    Overruled {
        /// The interface.
        interface: String,
        /// The knob.
        knob: Knob,
        /// The adaptive moderation that overrules it.
        adaptive: Knob,
    },
    /// The kernel keeps the wanted switch off while another one is off. Nothing was touched.
    #[error("{interface}: {knob}=on needs {needed}=on, which would be off")]
    NeedsOther {
        /// The interface.
        interface: String,
        /// The knob.
        knob: Knob,
        /// The switch that it needs.
        needed: Knob,
    },
    /// Drivers take the link down and up for these knobs, and nobody has allowed it. Nothing was
    /// touched.
    #[error("{interface}: {}", link_reset_text(.interface, .knobs, *.on_control))]
    LinkReset {
        /// The interface.
        interface: String,
        /// Those of the knobs.
        knobs: Vec<Knob>,
        /// Whether the interface carries the connection that latput is led through.
        on_control: bool,
    },
    /// The values of now could not be read. Nothing was touched.
    #[error("nothing was changed, because the present values cannot be read")]
    Unread(#[source] KernelError),
    /// An earlier change of this interface was not finished. Nothing was touched.
    #[error(
        "{}: a change by {} was not finished: run `latput restore` first",
        checkpoint.interface,
        checkpoint.owner()
    )]
    Unfinished {
        /// The checkpoint of that change.
        checkpoint: Box<Checkpoint>,
    },
    /// An earlier change of this interface waits to be confirmed. Nothing was touched.
    #[error(
        "{}: a change by {} waits to be confirmed: `latput confirm {word}{of}` keeps it, `latput restore {word}{of}` puts \
         it back",
        checkpoint.interface,
        checkpoint.owner(),
        word = quote_word(&checkpoint.interface)
    )]
    Unconfirmed {
        /// The checkpoint of that change.
        checkpoint: Box<Checkpoint>,
        /// The option that names another user, after a blank; empty for the user's own change.
        of: String,
    },
    /// Another process holds the interface. Nothing was touched.
    #[error("{interface} is in use by another latput (pid {pid}). Nothing was changed.")]
    InUse {
        /// The interface.
        interface: String,
        /// The other process; 0 when it could not be told.
        pid: u32,
    },
    /// The checkpoint could not be kept. Nothing was touched.
    #[error("nothing was changed")]
    Checkpoint(#[source] StoreError),
    /// The process may not change this interface. Nothing was changed.
    #[error("{interface}: not permitted, nothing was changed: run as root (CAP_NET_ADMIN)")]
    Permission {
        /// The interface.
        interface: String,
        /// The operation that was not permitted.
        #[source]
        cause: Box<Cause>,
    },
    /// The first write was refused. Nothing was changed.
    #[error("{interface}: refused, nothing was changed")]
    Refused {
        /// The interface.
        interface: String,
        /// The operation that was refused.
        #[source]
        cause: Box<Cause>,
    },
    /// Some values had been written; all are back, and this was verified.
    #[error("{interface}: the change failed and was rolled back")]
    RolledBack {
        /// The interface.
        interface: String,
        /// The first failure.
        #[source]
        cause: Box<Cause>,
        /// Places that went away meanwhile, and so hold no value.
        gone: Vec<(Knob, Place)>,
    },
    /// The interface was deleted in the middle.
    #[error("{interface}: the interface was deleted while it was being changed")]
    InterfaceGone {
        /// The interface.
        interface: String,
        /// The first failure.
        #[source]
        cause: Box<Cause>,
    },
    /// The change failed and so did putting it back; the checkpoint is kept.
    #[error("{interface}: the change failed and could not be rolled back: {finish}")]
    Stranded {
        /// The interface.
        interface: String,
        /// The first failure.
        #[source]
        cause: Box<Cause>,
        /// The values that were not put back.
        left: Vec<Leftover>,
        /// How to finish, naming what is left.
        finish: String,
    },
}

/// A checkpoint that was not put back. Except for [`RestoreError::Forget`], it is kept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    /// It is from another boot; the settings it would undo ended with that boot.
    #[error(
        "{interface}: the checkpoint is from another boot (process {pid}), and its settings are gone. Nothing \
         was changed. Run `latput restore --forget {slot}`"
    )]
    OtherBoot {
        /// The slot that the checkpoint is kept under.
        slot: Slot,
        /// The interface.
        interface: String,
        /// The process that made the checkpoint.
        pid: u32,
    },
    /// It belongs to another network namespace.
    #[error(
        "{interface}: the checkpoint belongs to network namespace {}. Run `latput restore` there. If that \
         namespace is gone, run `latput restore --forget {slot}`", slot.namespace
    )]
    OtherNamespace {
        /// The slot that the checkpoint is kept under.
        slot: Slot,
        /// The interface.
        interface: String,
    },
    /// The interface could not be claimed.
    #[error("{interface}: the checkpoint cannot be used, so nothing was changed")]
    Store {
        /// The interface.
        interface: String,
        /// Why.
        #[source]
        source: StoreError,
    },
    /// Every value is back, but the checkpoint could not be forgotten. Restoring again is harmless.
    #[error("{interface}: put back, but the checkpoint could not be removed")]
    Forget {
        /// The interface.
        interface: String,
        /// Why.
        #[source]
        source: StoreError,
    },
    /// Some values could not be put back.
    #[error("{interface}: could not be put back: {finish}")]
    Stranded {
        /// The interface.
        interface: String,
        /// The values that were not put back.
        left: Vec<Leftover>,
        /// How to finish, naming what is left.
        finish: String,
    },
}

impl ApplyError {
    /// The refusal of a store: another process holds the interface, or the checkpoint cannot be kept.
    pub(super) fn of_store(error: StoreError) -> Self {
        match error {
            StoreError::Locked { interface, pid } => Self::InUse { interface, pid },
            error => Self::Checkpoint(error),
        }
    }

    /// The outcome of the change.
    pub fn outcome(&self) -> ChangeOutcome {
        match self {
            Self::Unread(error) => {
                ChangeOutcome::refused(error.kind == KernelErrorKind::Permission)
            }
            Self::InUse { .. } => ChangeOutcome::refused(false),
            Self::Checkpoint(error) => ChangeOutcome::refused(error.is_permission()),
            Self::Permission { .. } => ChangeOutcome::Refused(Refusal::Permission),
            Self::InvalidName { .. } | Self::NoInterface { .. } => {
                ChangeOutcome::Refused(Refusal::Usage)
            }
            Self::InvalidValue(_)
            | Self::Unsupported { .. }
            | Self::OutOfRange { .. }
            | Self::NeedsReload { .. }
            | Self::Overruled { .. }
            | Self::NeedsOther { .. }
            | Self::LinkReset { .. }
            | Self::Unfinished { .. }
            | Self::Unconfirmed { .. }
            | Self::Refused { .. }
            | Self::InterfaceGone { .. } => ChangeOutcome::Refused(Refusal::Failure),
            Self::RolledBack { .. } => ChangeOutcome::RolledBack,
            Self::Stranded { .. } => ChangeOutcome::Stranded,
        }
    }

    /// The error of `user`'s change that an earlier one stands in the way of. `now` is since the boot: a change whose time to
    /// be confirmed is over was not finished.
    pub(super) fn left_by(checkpoint: Checkpoint, (now, user): (Nanos, &str)) -> Self {
        let checkpoint = Box::new(checkpoint);
        match checkpoint.confirm_by {
            Some(by) if by > now => {
                let other = checkpoint.by.as_ref().filter(|by| by.user != user);
                let of = other.map_or(String::new(), |by| format!(" --of '{}'", by.user));
                Self::Unconfirmed { checkpoint, of }
            }
            _ => Self::Unfinished { checkpoint },
        }
    }

    /// The error of a change that failed because of `cause` and whose undoing ended as `ending`.
    pub(super) fn after_rollback(
        interface: &str,
        cause: Cause,
        changed: bool,
        ending: PutBack,
    ) -> Self {
        let is_permission = cause.is_permission();
        let interface = interface.to_owned();
        let cause = Box::new(cause);
        match ending {
            PutBack::Done { .. } if !changed && is_permission => {
                Self::Permission { interface, cause }
            }
            PutBack::Done { .. } if !changed => Self::Refused { interface, cause },
            PutBack::Done { gone, .. } => Self::RolledBack { interface, cause, gone },
            PutBack::InterfaceGone => Self::InterfaceGone { interface, cause },
            PutBack::Left { left, finish } => Self::Stranded { interface, cause, left, finish },
        }
    }
}

impl RestoreError {
    /// The outcome of the attempt.
    pub fn outcome(&self) -> ChangeOutcome {
        match self {
            Self::Store { source: StoreError::Locked { .. }, .. }
            | Self::OtherBoot { .. }
            | Self::OtherNamespace { .. } => ChangeOutcome::Refused(Refusal::Failure),
            Self::Store { source, .. } if source.is_permission() => {
                ChangeOutcome::Refused(Refusal::Permission)
            }
            // The change is in force, or its checkpoint would put it back again.
            Self::Store { .. } | Self::Forget { .. } | Self::Stranded { .. } => {
                ChangeOutcome::Stranded
            }
        }
    }
}

/// A change that was not confirmed. Its checkpoint, if there is one, is kept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfirmError {
    /// No change of this interface waits.
    #[error("{interface}: no change waits to be confirmed")]
    Nothing {
        /// The interface.
        interface: String,
    },
    /// The interface was deleted, or moved to another network namespace.
    #[error(
        "{interface}: it was deleted, or moved to another network namespace: nothing was confirmed"
    )]
    Gone {
        /// The interface.
        interface: String,
    },
    /// The change was cut short: half of it may be in force.
    #[error(
        "{interface}: the change by process {pid} was not finished, so it cannot be confirmed: run \
         `latput restore`"
    )]
    Unfinished {
        /// The interface.
        interface: String,
        /// Its maker.
        pid: u32,
    },
    /// A restore has put part of it back.
    #[error(
        "{interface}: the change is being put back, so it cannot be confirmed: run `latput restore`"
    )]
    GoingBack {
        /// The interface.
        interface: String,
    },
    /// The time is over, and the change still stands: nobody watched it.
    #[error(
        "{interface}: too late by {since}, and the change was not put back: run `latput restore`"
    )]
    TooLate {
        /// The interface.
        interface: String,
        /// How long the time has been over, in whole seconds.
        since: Nanos,
    },
    /// It was made before a reboot, which ended it.
    #[error(
        "{interface}: the change was made before the last boot, which ended it: run `latput restore --forget {slot}`"
    )]
    OtherBoot {
        /// The interface.
        interface: String,
        /// The slot that its checkpoint is kept under.
        slot: Slot,
    },
    /// The store failed.
    #[error("{interface}: the change cannot be confirmed")]
    Store {
        /// The interface.
        interface: String,
        /// Why.
        #[source]
        source: StoreError,
    },
}

impl ConfirmError {
    /// The outcome. Too late, or put back in part, is [`ChangeOutcome::Stranded`]: the change should be undone and is not.
    pub fn outcome(&self) -> ChangeOutcome {
        match self {
            Self::Store { source, .. } => ChangeOutcome::refused(source.is_permission()),
            Self::TooLate { .. } | Self::GoingBack { .. } => ChangeOutcome::Stranded,
            _ => ChangeOutcome::Refused(Refusal::Failure),
        }
    }
}

/// How an attempt to put values back ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PutBack {
    /// Everything that exists is as it was.
    Done { changes: Vec<Change>, gone: Vec<(Knob, Place)> },
    /// There is no such interface any more.
    InterfaceGone,
    /// Something is not as it was.
    Left {
        /// The values that were not put back; never empty.
        left: Vec<Leftover>,
        /// Instructions for a person.
        finish: String,
    },
}

fn link_reset_text(interface: &str, knobs: &[Knob], on_control: bool) -> String {
    let knobs: Vec<&str> = knobs.iter().map(|knob| knob.name()).collect();
    let knobs = knobs.join(", ");
    if on_control {
        format!(
            "a change of {knobs} takes the link down and up, and this interface carries your connection. To \
             allow it, name the interface again: `--allow-link-reset={interface}` (for a plan: \
             `allow_link_reset = \"{interface}\"` at the host in the testbed file)"
        )
    } else {
        format!(
            "a change of {knobs} takes the link down and up: allow that with `--allow-link-reset` (in \
             a plan: `allow_link_reset = true` under [method])"
        )
    }
}

pub(super) fn how_to_finish(left: &[Leftover]) -> String {
    let left: Vec<String> = left.iter().map(Leftover::to_string).collect();
    format!(
        "remove the obstacle and run `latput restore`, or set the rest by hand: {}",
        left.join("; ")
    )
}
