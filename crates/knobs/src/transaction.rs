//! The transaction: moves one interface to a setting, or leaves it as it was.
//!
//! Check everything, read, keep a checkpoint, write only what differs, read back; on any failure
//! write the old values, read those back too, and say so if that failed as well. What a change resets
//! (toggling GRO recreates the NAPIs) is part of the same transaction, wanted or not.

mod along;
mod checks;
mod confirm;
mod foretell;
mod outcome;
pub(crate) mod permit;
mod put_back;
mod session;
mod steps;
mod together;

pub use confirm::{ConfirmError, await_confirmation, confirm, extend};
pub use foretell::{plan_apply, plan_restore, plan_undo};
pub use outcome::{
    Applied, ApplyError, Cause, Change, Foreign, Leftover, RestoreError, Restored, Standing,
};
pub use permit::WritePermit;
pub use session::Session;

use std::collections::BTreeSet;

use latput_units::IntoMap;

use crate::catalogue::Knob;
use crate::checkpoint::{Checkpoint, CheckpointStore, Context, LinkResets, Slot, StoreError};
use crate::device::Whereabouts;
use crate::kernel::{KernelError, KernelRead, KernelWrite};
use crate::setting::{Setting, State};
use steps::Target;

/// Moves `interface` to `desired`.
///
/// On success the store still holds the checkpoint, so that a change nobody confirms can be undone
/// even after a crash: end with [`commit`] to stay, with [`restore`] to go back, or with
/// [`await_confirmation`] to let it stand for a while. `latput set` commits, at once or when the change
/// is confirmed. On failure everything is as it was and the
/// checkpoint is forgotten, except after [`ApplyError::Stranded`], which keeps it.
pub fn apply(
    kernel: &mut dyn KernelWrite,
    store: &mut dyn CheckpointStore,
    context: &Context,
    interface: &str,
    desired: &Setting,
) -> Result<Applied, ApplyError> {
    let mut session = Session::open(kernel, store, context, interface)?;
    let applied = session.with_along(|session| session.apply(desired), |applied| applied);
    keep_or_leave(session, applied)
}

/// Ends a session after its one change: the checkpoint stays where there is something to go back to.
fn keep_or_leave<K: KernelWrite, S: CheckpointStore, T>(
    session: Session<K, S>,
    ended: Result<T, ApplyError>,
) -> Result<T, ApplyError> {
    match ended {
        Ok(applied) => {
            session.leave();
            Ok(applied)
        }
        Err(error @ ApplyError::Stranded { .. }) => {
            session.leave();
            Err(error)
        }
        Err(error) => {
            // A checkpoint that cannot be removed holds the values of now: restoring it is harmless,
            // and the next change of this interface asks for that. What matters is why this failed.
            let _ = session.commit();
            Err(error)
        }
    }
}

/// The changes that [`apply`] would make, found with the same checks and in the same order, without a write.
pub fn plan(
    kernel: &dyn KernelRead,
    interface: &str,
    desired: &Setting,
) -> Result<Vec<Change>, ApplyError> {
    session::check_name(interface)?;
    let nothing = State::default();
    let target = Target { desired, wanted: &nothing, undo: &nothing };
    Ok(steps::plan(kernel, interface, target, &BTreeSet::new())?.changes)
}

/// Refuses `changes` to `desired` that would take the link down where that is not allowed; going back to
/// what was there before always is. [`apply`] asks this too.
pub fn check_link_resets(
    kernel: &dyn KernelRead,
    allowed: LinkResets,
    interface: &str,
    desired: &Setting,
    changes: &[Change],
) -> Result<(), ApplyError> {
    let on_control = match allowed {
        LinkResets::Allowed => return Ok(()),
        LinkResets::Refused => false,
        LinkResets::RefusedOnControl => true,
    };
    let mut knobs: Vec<Knob> = changes.iter().map(|change| change.knob).collect();
    knobs.retain(|knob| desired.contains_key(knob) && kernel.resets_link(interface, *knob));
    knobs.dedup();
    if knobs.is_empty() {
        return Ok(());
    }
    Err(ApplyError::LinkReset { interface: interface.to_owned(), knobs, on_control })
}

/// Takes back an `earlier` change of the journal, as a change of its own: values that it made and that are
/// still there become again what they were before it. Others stay and are told. Ends like [`apply`].
///
/// The caller has made sure that `earlier` is of this boot and namespace; the interface is found by its device.
pub fn undo(
    kernel: &mut dyn KernelWrite,
    store: &mut dyn CheckpointStore,
    context: &Context,
    earlier: &Checkpoint,
) -> Result<(Applied, Vec<Foreign>), ApplyError> {
    let interface = present_name(kernel, earlier);
    let mut session = Session::open(kernel, store, context, &interface)?;
    let undone = session.with_along(|session| session.undo(earlier), |(applied, _)| applied);
    keep_or_leave(session, undone)
}

/// Takes the lock of the interface of an `earlier` change, before the journal is read again and [`undo()`] takes it back: nobody
/// changes the interface in between.
pub fn claim_to_undo(
    kernel: &dyn KernelRead,
    store: &mut dyn CheckpointStore,
    context: &Context,
    earlier: &Checkpoint,
) -> Result<(), ApplyError> {
    let interface = present_name(kernel, earlier);
    let own = session::identify(kernel, context, &interface)?;
    // A checkpoint that an earlier change left is for `undo` to refuse.
    let _left = store.claim(own.slot(), &interface).map_err(ApplyError::of_store)?;
    Ok(())
}

/// Reads what is in force of a change of the journal, place by place, where it made a difference.
pub fn read_standing(kernel: &dyn KernelRead, earlier: &Checkpoint) -> Vec<Standing> {
    steps::read_standing(kernel, &present_name(kernel, earlier), earlier)
}

fn present_name(kernel: &dyn KernelRead, earlier: &Checkpoint) -> String {
    match kernel.find(&earlier.device) {
        Ok(Whereabouts::Here(name)) => name,
        _ => earlier.interface.clone(),
    }
}

/// The checkpoint under the name that its interface has now, for people.
fn with_present_name(kernel: &dyn KernelRead, mut left: Checkpoint) -> Checkpoint {
    left.interface = present_name(kernel, &left);
    left
}

/// Keeps a change that [`apply`] or [`undo()`] made: its checkpoint becomes an entry of the journal. Returns the
/// entry's number; `None` if there was nothing to change.
///
/// # Errors
///
/// The store cannot make the entry: the checkpoint stays, so that [`restore`] can put the change back.
pub fn commit(
    store: &mut dyn CheckpointStore,
    undo: &Checkpoint,
) -> Result<Option<u64>, StoreError> {
    let number = store.archive(undo.slot())?;
    // No checkpoint is kept under the host's slot, and its lock ends with the process at the latest.
    let _released = release_host_lock(store, undo);
    Ok(number)
}

/// Lets go of the lock of the host's own knobs, if the change had any.
fn release_host_lock(store: &mut dyn CheckpointStore, undo: &Checkpoint) -> Result<(), StoreError> {
    if undo.holds_host_knobs() { store.remove(Slot::host(undo.namespace)) } else { Ok(()) }
}

/// Puts back what a checkpoint holds, verifies it and forgets the checkpoint. What somebody else has set since
/// stays, and is told.
///
/// The interface is found by what stays with it, whatever its name is now; hardware also where it was moved to the
/// namespace of `context`. What cannot be found may be elsewhere, so that its checkpoint is kept.
///
/// The values are those of the store, which may know more than `checkpoint` when that was listed
/// while a change went on. Restoring twice, or again after a crash, is harmless.
pub fn restore(
    kernel: &mut dyn KernelWrite,
    store: &mut dyn CheckpointStore,
    context: &Context,
    checkpoint: &Checkpoint,
) -> Result<Restored, RestoreError> {
    check_origin(kernel, context, checkpoint)?;
    let interface = &checkpoint.interface;
    let kept = store
        .claim_to_restore(checkpoint.slot(), interface)
        .map_err(|source| RestoreError::Store { interface: interface.clone(), source })?;
    let Some(kept) = kept else {
        forget(store, checkpoint)?;
        return Ok(Restored::NothingToDo);
    };
    check_origin(kernel, context, &kept)?;
    if !kept.is_of_the_change(checkpoint) {
        // The listed change has ended, and somebody else's has begun: its lock ends with the store.
        return Ok(Restored::NothingToDo);
    }
    let at = locate_interface(kernel, context, &kept);
    if !kept.holds_host_knobs() {
        return restore_and_forget(kernel, store, &kept, at);
    }
    store
        .claim_to_restore(Slot::host(kept.namespace), interface)
        .map_err(|source| RestoreError::Store { interface: interface.clone(), source })?;
    let ended = restore_and_forget(kernel, store, &kept, at);
    release_host_lock(store, &kept)
        .map_err(|source| RestoreError::Forget { interface: interface.clone(), source })?;
    ended
}

/// Where the interface of a checkpoint is. With its namespace, a virtual interface is gone too.
fn locate_interface(
    kernel: &dyn KernelRead,
    context: &Context,
    checkpoint: &Checkpoint,
) -> Result<Whereabouts, KernelError> {
    let is_namespace_gone =
        checkpoint.is_of_namespace(context).is_none() && !checkpoint.device.is_hardware();
    if is_namespace_gone { Ok(Whereabouts::Deleted) } else { kernel.find(&checkpoint.device) }
}

/// Puts a checkpoint back and forgets it if that worked.
fn restore_and_forget(
    kernel: &mut dyn KernelWrite,
    store: &mut dyn CheckpointStore,
    checkpoint: &Checkpoint,
    at: Result<Whereabouts, KernelError>,
) -> Result<Restored, RestoreError> {
    let chosen = match &at {
        Ok(Whereabouts::Here(name)) => steps::leave_to_others(kernel, name, checkpoint),
        _ => Ok((checkpoint.to_put_back().clone(), Vec::new())),
    };
    let (undo, others) = match chosen {
        Ok(chosen) => chosen,
        Err(error) => {
            let ending = put_back::unread(&error, checkpoint.to_put_back());
            return foretell::ended(ending, checkpoint, Vec::new());
        }
    };
    let is_first = checkpoint.going_back.is_none();
    if is_first && !checkpoint.own_values().is_empty() {
        // From here on the values of now are ours: a restore that is cut short must not take them for another's.
        // Where this cannot be kept, to go back matters more.
        let _ = store.save(&Checkpoint { going_back: Some(undo.clone()), ..checkpoint.clone() });
    }
    let ending = put_back::put_back_at(kernel, at, checkpoint, &undo);
    if let outcome::PutBack::Left { left, .. } = &ending {
        // Values that are back are no longer ours: the next attempt must not take them from whoever sets them meanwhile.
        let values = left.iter().map(|left| ((left.knob, left.place), left.wanted.clone()));
        let left = State(values.into_map());
        // Where nothing went back, as without the rights for it, the change is as whole as before.
        let is_whole = is_first && left == checkpoint.undo;
        let going_back = (!is_whole).then_some(left);
        let _ = store.save(&Checkpoint { going_back, ..checkpoint.clone() });
    }
    let restored = foretell::ended(ending, checkpoint, others)?;
    forget(store, checkpoint)?;
    Ok(restored)
}

fn forget(store: &mut dyn CheckpointStore, checkpoint: &Checkpoint) -> Result<(), RestoreError> {
    let interface = &checkpoint.interface;
    store
        .remove(checkpoint.slot())
        .map_err(|source| RestoreError::Forget { interface: interface.clone(), source })
}

/// Refuses a checkpoint whose interface cannot be here. Hardware may have been moved here.
fn check_origin(
    kernel: &dyn KernelRead,
    context: &Context,
    checkpoint: &Checkpoint,
) -> Result<(), RestoreError> {
    let interface = checkpoint.interface.clone();
    let slot = checkpoint.slot();
    if checkpoint.boot_id != context.boot_id {
        return Err(RestoreError::OtherBoot { slot, interface, pid: checkpoint.pid });
    }
    let device = &checkpoint.device;
    let is_here = checkpoint.is_of_namespace(context) != Some(false)
        || device.is_hardware() && matches!(kernel.find(device), Ok(Whereabouts::Here(_)));
    if is_here { Ok(()) } else { Err(RestoreError::OtherNamespace { slot, interface }) }
}
