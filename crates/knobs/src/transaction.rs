//! The transaction: moves one interface to a setting, or leaves it as it was.
//!
//! Check everything, read, keep a checkpoint, write only what differs, read back; on any failure
//! write the old values, read those back too, and say so if that failed as well. What a change resets
//! (toggling GRO recreates the NAPIs) is part of the same transaction, wanted or not.

mod outcome;
pub(crate) mod permit;
mod put_back;
mod session;
mod steps;

pub use outcome::{
    Applied, ApplyError, Cause, Change, ConfirmError, Foreign, Leftover, RestoreError, Restored,
    Standing,
};
pub use permit::WritePermit;
pub use put_back::{plan_restore, restore};
pub use session::Session;
pub use steps::check_link_resets;

use std::collections::{BTreeMap, BTreeSet};

use latput_units::{IntoMap, Nanos};

use crate::catalogue::spec::Scope;
use crate::checkpoint::{Checkpoint, CheckpointStore, Context, Slot, StoreError};
use crate::device::Whereabouts;
use crate::kernel::{KernelRead, KernelWrite};
use crate::setting::{Setting, State};
use session::{present_name, with_present_name};
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
    let before = session.read_movable();
    let applied = session.apply(desired).and_then(|applied| session.add_along(applied, &before));
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

/// The changes that [`apply`] would make, or its refusal but for that of a link reset
/// ([`check_link_resets`]). Only the driver's refusal of a write cannot be foretold.
pub fn plan_apply(
    kernel: &dyn KernelRead,
    store: &dyn CheckpointStore,
    context: &Context,
    interface: &str,
    desired: &Setting,
) -> Result<Vec<Change>, ApplyError> {
    let holds_host = desired.keys().any(|knob| knob.spec().scope == Scope::Host);
    let own = check_unclaimed(kernel, store, context, (interface, holds_host))?;
    let nothing = State::default();
    let target = Target { desired, wanted: &nothing, undo: &nothing };
    let planned = steps::plan(kernel, interface, target, &BTreeSet::new())?;
    session::check_neighbours(kernel, store, (&own, context.since_boot), &planned)?;
    Ok(planned.changes)
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
    let before = session.read_movable();
    let undone = session
        .undo(earlier)
        .and_then(|(applied, others)| Ok((session.add_along(applied, &before)?, others)));
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

/// The changes that [`undo`] would make and the values that it would leave to others, or its refusal. Only the
/// driver's refusal of a write cannot be foretold.
pub fn plan_undo(
    kernel: &dyn KernelRead,
    store: &dyn CheckpointStore,
    context: &Context,
    earlier: &Checkpoint,
) -> Result<(Vec<Change>, Vec<Foreign>), ApplyError> {
    let interface = present_name(kernel, earlier);
    let own = check_unclaimed(kernel, store, context, (&interface, earlier.holds_host_knobs()))?;
    let (wanted, others) = put_back::find_values_to_undo(kernel, &interface, earlier)?;
    let (desired, undo) = (Setting::new(), State::default());
    let target = Target { desired: &desired, wanted: &wanted, undo: &undo };
    let planned = steps::plan(kernel, &interface, target, &BTreeSet::new())?;
    session::check_neighbours(kernel, store, (&own, context.since_boot), &planned)?;
    let changes = planned.changes;
    let named = wanted.0.iter().map(|((knob, _), value)| (*knob, value.clone())).into_map();
    check_link_resets(kernel, context.link_resets, &interface, &named, &changes)?;
    Ok((changes, others))
}

/// Refuses an interface that another process holds, or with a change that was not finished, as
/// [`Session::open`] does, and the same of the host's own knobs. Refuses a change for whose checkpoint
/// there is no room. Returns the checkpoint that a change
/// would begin with.
fn check_unclaimed(
    kernel: &dyn KernelRead,
    store: &dyn CheckpointStore,
    context: &Context,
    (interface, holds_host): (&str, bool),
) -> Result<Checkpoint, ApplyError> {
    let own = session::identify(kernel, context, interface)?;
    let kept = store.peek(own.slot(), interface).map_err(ApplyError::of_store)?;
    let listed = store.list().map_err(ApplyError::of_store)?;
    let of_device = |kept: &Checkpoint| own.device.is_hardware() && kept.device.is(&own.device);
    let of_host = |kept: &Checkpoint| kept.slot() != own.slot() && kept.holds_host_knobs();
    let is_of_boot = |kept: &&Checkpoint| kept.boot_id == own.boot_id;
    let others = || listed.iter().flatten();
    let mut left = kept.as_ref().or_else(|| others().find(|it| of_device(it) && is_of_boot(it)));
    left = left.filter(is_of_boot);
    if left.is_none() && holds_host {
        store.peek(Slot::host(own.namespace), interface).map_err(ApplyError::of_store)?;
        left = others().filter(is_of_boot).find(|it| of_host(it));
    }
    let left = left.map(|left| with_present_name(kernel, left.clone()));
    let asked = (context.since_boot, context.by.user.as_str());
    if let Some(left) = left {
        return Err(ApplyError::left_by(left, asked));
    }
    store.check_room().map_err(ApplyError::of_store)?;
    Ok(own)
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
    let _released = put_back::release_host_lock(store, undo);
    Ok(number)
}

/// Lets a change that [`apply`] made stand until `by`, since the boot.
///
/// Whoever watches the time is no part of this, and calls [`restore`] at its end. The lock of the interface decides between
/// the two, so that a change is either confirmed or put back.
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
    commit(store, &kept).map_err(|source| ConfirmError::Store { interface, source })
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

/// Reads what is in force of a change of the journal, place by place, where it made a difference.
pub fn read_standing(kernel: &dyn KernelRead, earlier: &Checkpoint) -> Vec<Standing> {
    let interface = present_name(kernel, earlier);
    let mut standings = Vec::new();
    for (knob, mut written) in put_back::group_by_knob(&earlier.written) {
        let current =
            BTreeMap::from_iter(steps::read(kernel, &interface, knob).unwrap_or_default());
        // An interface on top that is still here.
        written.retain(|(place, _)| {
            place.is_reported() && (!place.is_follower() || current.contains_key(place))
        });
        for (place, written) in written {
            let Some(before) = earlier.undo.0.get(&(knob, place)) else { continue };
            if !knob.spec().same(before, written) {
                let (before, written) = (before.clone(), written.clone());
                let found = current.get(&place).cloned();
                standings.push(Standing { knob, place, before, written, found });
            }
        }
    }
    standings
}
