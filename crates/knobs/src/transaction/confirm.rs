//! A change that stands for a while, and stays only if somebody confirms it in time.
//!
//! Who watches the time is no part of this: whoever it is calls [`restore`](super::restore()) at its end.
//! The lock of the interface decides between the two, so that a change is either confirmed or put back.

use latput_units::Nanos;

use crate::checkpoint::{Checkpoint, CheckpointStore, Context, Slot, StoreError};
use crate::device::Whereabouts;
use crate::kernel::KernelRead;
use crate::outcome::{ChangeOutcome, Refusal};

/// Lets a change that [`apply`](super::apply()) made stand until `by`, since the boot.
pub fn await_confirmation(
    store: &mut dyn CheckpointStore,
    undo: &Checkpoint,
    by: Nanos,
) -> Result<(), StoreError> {
    store.save(&Checkpoint { confirm_by: Some(by), ..undo.clone() })
}

/// Gives a change that waits more time: until `by`, if that is later. Whoever confirms several together asks for this
/// first, so that none goes back while the others are confirmed.
pub fn extend(
    store: &mut dyn CheckpointStore,
    context: &Context,
    change: &Checkpoint,
    (now, by): (Nanos, Nanos),
) -> Result<(), ConfirmError> {
    let kept = claim_waiting(store, context, change, now)?;
    let interface = change.interface.clone();
    let later = kept.confirm_by.map_or(by, |known| known.max(by));
    store
        .save(&Checkpoint { confirm_by: Some(later), ..kept })
        .map_err(|source| ConfirmError::Store { interface, source })
}

/// Stays with a change that waits for it: it becomes an entry of the journal, whose number is given. `now` is
/// since the boot, on the clock of [`await_confirmation`]. The change of an interface that is gone is not confirmed.
pub fn confirm(
    kernel: &dyn KernelRead,
    store: &mut dyn CheckpointStore,
    context: &Context,
    change: &Checkpoint,
    now: Nanos,
) -> Result<Option<u64>, ConfirmError> {
    let kept = claim_waiting(store, context, change, now)?;
    let interface = change.interface.clone();
    if matches!(kernel.find(&change.device), Ok(Whereabouts::Deleted | Whereabouts::Unknown)) {
        return Err(ConfirmError::Gone { interface });
    }
    super::commit(store, &kept).map_err(|source| ConfirmError::Store { interface, source })
}

/// Takes the lock of a change that still waits.
fn claim_waiting(
    store: &mut dyn CheckpointStore,
    context: &Context,
    change: &Checkpoint,
    now: Nanos,
) -> Result<Checkpoint, ConfirmError> {
    let interface = &change.interface;
    let failed = |source| ConfirmError::Store { interface: interface.clone(), source };
    let Some(kept) = store.claim(change.slot(), interface).map_err(failed)? else {
        store.remove(change.slot()).map_err(failed)?; // lets go of the lock
        return Err(ConfirmError::Nothing { interface: interface.to_owned() });
    };
    if !kept.is_of_the_change(change) {
        return Err(ConfirmError::Nothing { interface: interface.to_owned() });
    }
    if kept.boot_id != context.boot_id {
        return Err(ConfirmError::OtherBoot { interface: interface.clone(), slot: change.slot() });
    }
    match kept.confirm_by {
        None => Err(ConfirmError::Unfinished { interface: interface.to_owned(), pid: kept.pid }),
        Some(by) if by <= now => {
            let seconds = (now - by).as_ns().div_ceil(1_000_000_000).max(1);
            let since = Nanos::from_s(seconds);
            Err(ConfirmError::TooLate { interface: interface.to_owned(), since })
        }
        // Some of the old values may be back.
        Some(_) if kept.going_back.is_some() => {
            Err(ConfirmError::GoingBack { interface: interface.to_owned() })
        }
        Some(_) => Ok(kept),
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
