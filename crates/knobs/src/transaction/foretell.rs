//! The outcome of going back, without a write: with the checks of the way back itself, and in its words.

use std::collections::BTreeSet;

use latput_units::{IntoMap, IntoSet};

use super::outcome::{
    self, ApplyError, Change, Foreign, Leftover, PutBack, RestoreError, Restored,
};
use super::steps::{self, Target};
use super::{check_link_resets, check_origin, present_name, session, whereabouts};
use crate::checkpoint::{Checkpoint, CheckpointStore, Context};
use crate::device::Whereabouts;
use crate::kernel::KernelRead;
use crate::setting::{Setting, State};
use crate::spec::Scope;
use crate::value::{Place, Value};

/// The changes that [`undo`](super::undo()) would make and the values that it would leave to others, or its refusal. Only the
/// driver's refusal of a write, and a process that holds the interface without having changed it, cannot be foretold.
pub fn plan_undo(
    kernel: &dyn KernelRead,
    store: &dyn CheckpointStore,
    context: &Context,
    earlier: &Checkpoint,
) -> Result<(Vec<Change>, Vec<Foreign>), ApplyError> {
    let interface = present_name(kernel, earlier);
    check_unfinished(kernel, store, context, (&interface, earlier))?;
    let (wanted, others) = steps::still_ours(kernel, &interface, earlier);
    let (desired, undo) = (Setting::new(), State::default());
    let target = Target { desired: &desired, wanted: &wanted, undo: &undo };
    let changes = steps::plan(kernel, &interface, target, &BTreeSet::new())?.changes;
    let named = wanted.0.iter().map(|((knob, _), value)| (*knob, value.clone())).into_map();
    check_link_resets(kernel, context.link_resets, &interface, &named, &changes)?;
    Ok((changes, others))
}

/// Refuses an interface with a change that was not finished, as [`Session::open`](super::Session::open) does.
fn check_unfinished(
    kernel: &dyn KernelRead,
    store: &dyn CheckpointStore,
    context: &Context,
    (interface, earlier): (&str, &Checkpoint),
) -> Result<(), ApplyError> {
    session::check_name(interface)?;
    let device = kernel.device(interface).map_err(steps::unread)?;
    let own = Checkpoint::new(context, interface, device);
    let stands_against = |kept: &Checkpoint| {
        let is_same = own.device.is_hardware() && kept.device.is(&own.device);
        let shares_host = earlier.holds_host_knobs() && kept.holds_host_knobs();
        kept.boot_id == own.boot_id && (kept.slot() == own.slot() || is_same || shares_host)
    };
    let listed = store.list().map_err(ApplyError::of_store)?;
    let left = listed.into_iter().flatten().find(stands_against);
    left.map_or(Ok(()), |left| Err(ApplyError::left_by(left)))
}

/// The outcome that [`restore`](super::restore()) would have.
pub fn plan_restore(
    kernel: &dyn KernelRead,
    context: &Context,
    checkpoint: &Checkpoint,
) -> Result<Restored, RestoreError> {
    check_origin(kernel, context, checkpoint)?;
    let at = whereabouts(kernel, context, checkpoint);
    let Ok(Whereabouts::Here(name)) = &at else {
        let mut of_interface = checkpoint.undo.clone();
        of_interface.0.retain(|(knob, _), _| knob.spec().scope != Scope::Host);
        return ended(steps::unreachable(kernel, at, checkpoint, of_interface), checkpoint, vec![]);
    };
    let (undo, others) = steps::leave_to_others(kernel, name, checkpoint);
    ended(plan_put_back(kernel, name, &undo), checkpoint, others)
}

/// The outcome that putting `undo` back would have, as far as it shows before the first write.
fn plan_put_back(kernel: &dyn KernelRead, interface: &str, undo: &State) -> PutBack {
    let changes = steps::differences(kernel, interface, undo);
    // Places of these may come back with the changes.
    let exposed = steps::exposed(&changes);
    let readings =
        steps::read_many(kernel, interface, &steps::by_knob(undo).into_keys().collect::<Vec<_>>());
    let mut left = Vec::new();
    let mut gone = Vec::new();
    for (knob, old_values) in steps::by_knob(undo) {
        let current = match readings.get(&knob) {
            Some(Ok(current)) => current.iter().map(|(place, _)| *place).into_set(),
            Some(Err(error)) if !steps::is_absence(error) => {
                let leftover = |(place, wanted): (Place, &Value)| {
                    let (wanted, reason) = (wanted.clone(), error.to_string());
                    Leftover { knob, place, wanted, found: None, reason }
                };
                left.extend(old_values.into_iter().map(leftover));
                continue;
            }
            _ => BTreeSet::new(),
        };
        let is_gone = |(place, _): &(Place, &Value)| !current.contains(place);
        gone.extend(old_values.into_iter().filter(is_gone).map(|(place, _)| (knob, place)));
    }
    gone.retain(|(knob, _)| !exposed.contains(knob));
    left.extend(steps::unknown(kernel, interface, undo, &gone));
    if left.is_empty() {
        return PutBack::Done { changes, gone };
    }
    PutBack::Left { finish: outcome::how_to_finish(&left), left }
}

/// The outcome of a restore that has put back what it could.
pub(super) fn ended(
    put_back: PutBack,
    checkpoint: &Checkpoint,
    others: Vec<Foreign>,
) -> Result<Restored, RestoreError> {
    match put_back {
        PutBack::Done { changes, gone } => Ok(Restored::Done { changes, gone, others }),
        PutBack::InterfaceGone => Ok(Restored::InterfaceGone),
        PutBack::Left { left, finish } => {
            let interface = checkpoint.interface.clone();
            Err(RestoreError::Stranded { interface, left, finish })
        }
    }
}
