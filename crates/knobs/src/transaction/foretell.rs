//! The outcome of going back, without a write: with the checks of the way back itself, and in its words.

use std::collections::{BTreeMap, BTreeSet};

use latput_units::{IntoMap, IntoSet};

use super::outcome::{
    self, ApplyError, Change, Foreign, Leftover, PutBack, RestoreError, Restored,
};
use super::put_back;
use super::steps::{self, Target};
use super::{
    check_link_resets, check_origin, locate_interface, present_name, session, with_present_name,
};
use crate::catalogue::Knob;
use crate::catalogue::spec::Scope;
use crate::checkpoint::{Checkpoint, CheckpointStore, Context, Slot};
use crate::device::Whereabouts;
use crate::kernel::{Capability, KernelRead};
use crate::setting::{Setting, State};
use crate::value::{Place, Value};

/// The changes that [`apply`](super::apply) would make, or its refusal but for that of a link reset
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
    let undo = State::default();
    let target = Target { desired, wanted: &undo, undo: &undo };
    let planned = steps::plan(kernel, interface, target, &BTreeSet::new())?;
    session::check_neighbours(kernel, store, (&own, context.since_boot), &planned)?;
    Ok(planned.changes)
}

/// The changes that [`undo`](super::undo()) would make and the values that it would leave to others, or its refusal. Only the
/// driver's refusal of a write cannot be foretold.
pub fn plan_undo(
    kernel: &dyn KernelRead,
    store: &dyn CheckpointStore,
    context: &Context,
    earlier: &Checkpoint,
) -> Result<(Vec<Change>, Vec<Foreign>), ApplyError> {
    let interface = present_name(kernel, earlier);
    let own = check_unclaimed(kernel, store, context, (&interface, earlier.holds_host_knobs()))?;
    let (wanted, others) = steps::still_ours(kernel, &interface, earlier)?;
    steps::check_device_values_visible(kernel, &interface, earlier)?;
    steps::check_threads_restorable(kernel, &interface, earlier)?;
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
/// [`Session::open`](super::Session::open) does, and the same of the host's own knobs. Refuses a change for whose checkpoint
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

/// The outcome that [`restore`](super::restore()) would have.
pub fn plan_restore(
    kernel: &dyn KernelRead,
    context: &Context,
    checkpoint: &Checkpoint,
) -> Result<Restored, RestoreError> {
    check_origin(kernel, context, checkpoint)?;
    let at = locate_interface(kernel, context, checkpoint);
    let Ok(Whereabouts::Here(name)) = &at else {
        let mut of_interface = checkpoint.to_put_back().clone();
        of_interface.0.retain(|(knob, _), _| knob.spec().scope != Scope::Host);
        return ended(
            put_back::unreachable(kernel, at, checkpoint, &of_interface),
            checkpoint,
            vec![],
        );
    };
    match steps::leave_to_others(kernel, name, checkpoint) {
        Ok((undo, others)) => ended(plan_put_back(kernel, name, &undo), checkpoint, others),
        Err(error) => {
            ended(put_back::unread(&error, checkpoint.to_put_back()), checkpoint, Vec::new())
        }
    }
}

/// The outcome that putting `undo` back would have, as far as it shows before the first write.
fn plan_put_back(kernel: &dyn KernelRead, interface: &str, undo: &State) -> PutBack {
    let changes = steps::differences(kernel, interface, undo);
    // Places of these may come back with the changes.
    let exposed = steps::collect_exposed_knobs(&changes);
    let readings = steps::read_many(
        kernel,
        interface,
        &steps::group_by_knob(undo).into_keys().collect::<Vec<_>>(),
    );
    let mut left = Vec::new();
    let mut gone = Vec::new();
    for (knob, old_values) in steps::group_by_knob(undo) {
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
    left.extend(put_back::unknown(kernel, interface, undo, &gone));
    if !kernel.is_up(interface) {
        left.extend(refused_while_down(kernel, interface, &changes));
    }
    if left.is_empty() {
        return PutBack::Done { changes, gone };
    }
    PutBack::Left { finish: outcome::how_to_finish(&left), left }
}

/// Values that cannot be written before the link comes up.
fn refused_while_down(
    kernel: &dyn KernelRead,
    interface: &str,
    changes: &[Change],
) -> Vec<Leftover> {
    let reasons: BTreeMap<Knob, String> = changes
        .iter()
        .filter_map(|change| match kernel.capability(interface, change.knob) {
            Capability::Settable(_) => None,
            Capability::ReadOnly(reason) | Capability::Absent(reason) => {
                Some((change.knob, reason))
            }
        })
        .collect();
    let leftover = |change: &Change| {
        let Change { knob, place, from, to } = change.clone();
        let reason = reasons.get(&knob)?.clone();
        Some(Leftover { knob, place, wanted: to, found: Some(from), reason })
    };
    let own = changes.iter().filter(|change| !change.place.is_follower());
    own.filter_map(leftover).collect()
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
