//! The way back: puts old values back, verifies them, and tells what is left.

use std::collections::{BTreeMap, BTreeSet};

use latput_units::{IntoMap, IntoSet};

use super::outcome::{
    ApplyError, Change, Foreign, Leftover, PutBack, RestoreError, Restored, how_to_finish,
};
use super::permit::WritePermit;
use super::steps::{
    self, Differing, TURNS, Target, Turn, collect_exposed_knobs, exceeds, is_absence, read,
    read_many,
};
use crate::catalogue::Knob;
use crate::catalogue::spec::Scope;
use crate::checkpoint::{Checkpoint, CheckpointStore, Context, Slot, StoreError};
use crate::device::Whereabouts;
use crate::kernel::{Capability, KernelError, KernelErrorKind, KernelRead, KernelWrite};
use crate::setting::{Setting, State};
use crate::value::{Place, Value};

/// How often putting back is tried: what makes one write fail (a busy device, an interrupted call) is
/// often over at the next.
const PUT_BACK_ATTEMPTS: usize = 3;

/// How often a knob is read that is busy, but for the last time.
const READ_ATTEMPTS: usize = 2;

/// Reason why a device's value cannot be put back while those of its queues can.
const HIDDEN: &str = "its file is hidden or read-only: is `/sys` mounted read-only?";

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

/// The outcome that [`restore`] would have.
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
        return into_restored(
            unreachable(kernel, at, checkpoint, &of_interface),
            checkpoint,
            vec![],
        );
    };
    match leave_to_others(kernel, name, checkpoint) {
        Ok((undo, others)) => into_restored(plan_put_back(kernel, name, &undo), checkpoint, others),
        Err(error) => {
            into_restored(unread(&error, checkpoint.to_put_back()), checkpoint, Vec::new())
        }
    }
}

/// Puts a checkpoint back and forgets it if that worked.
pub(super) fn restore_and_forget(
    kernel: &mut dyn KernelWrite,
    store: &mut dyn CheckpointStore,
    checkpoint: &Checkpoint,
    at: Result<Whereabouts, KernelError>,
) -> Result<Restored, RestoreError> {
    let chosen = match &at {
        Ok(Whereabouts::Here(name)) => leave_to_others(kernel, name, checkpoint),
        _ => Ok((checkpoint.to_put_back().clone(), Vec::new())),
    };
    let (undo, others) = match chosen {
        Ok(chosen) => chosen,
        Err(error) => {
            let ending = unread(&error, checkpoint.to_put_back());
            return into_restored(ending, checkpoint, Vec::new());
        }
    };
    let is_first = checkpoint.going_back.is_none();
    if is_first && !checkpoint.own_values().is_empty() {
        // From here on the values of now are ours: a restore that is cut short must not take them for another's.
        // Where this cannot be kept, to go back matters more.
        let _ = store.save(&Checkpoint { going_back: Some(undo.clone()), ..checkpoint.clone() });
    }
    let ending = put_back_at(kernel, at, checkpoint, &undo);
    if let PutBack::Left { left, .. } = &ending {
        // Values that are back are no longer ours: the next attempt must not take them from whoever sets them meanwhile.
        let values = left.iter().map(|left| ((left.knob, left.place), left.wanted.clone()));
        let left = State(values.into_map());
        // Where nothing went back, as without the rights for it, the change is as whole as before.
        let is_whole = is_first && left == checkpoint.undo;
        let going_back = (!is_whole).then_some(left);
        let _ = store.save(&Checkpoint { going_back, ..checkpoint.clone() });
    }
    let restored = into_restored(ending, checkpoint, others)?;
    forget(store, checkpoint)?;
    Ok(restored)
}

/// Removes a checkpoint, and with it the lock of its interface.
pub(super) fn forget(
    store: &mut dyn CheckpointStore,
    checkpoint: &Checkpoint,
) -> Result<(), RestoreError> {
    let interface = &checkpoint.interface;
    store
        .remove(checkpoint.slot())
        .map_err(|source| RestoreError::Forget { interface: interface.clone(), source })
}

/// Lets go of the lock of the host's own knobs, if the change had any.
pub(super) fn release_host_lock(
    store: &mut dyn CheckpointStore,
    undo: &Checkpoint,
) -> Result<(), StoreError> {
    if undo.holds_host_knobs() { store.remove(Slot::host(undo.namespace)) } else { Ok(()) }
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

/// The outcome of a restore that has put back what it could.
fn into_restored(
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

/// Chooses the values to put back: those of the checkpoint, but those of now where somebody else has set them since, which
/// are given too. Values that move by themselves, by adaptive moderation or by the link's other end, are nobody's.
///
/// Fails where a value cannot be read and later can: it may be somebody else's.
fn leave_to_others(
    kernel: &dyn KernelRead,
    interface: &str,
    checkpoint: &Checkpoint,
) -> Result<(State, Vec<Foreign>), KernelError> {
    if let Some(left) = &checkpoint.going_back {
        return Ok((left.clone(), Vec::new()));
    }
    let mut undo = checkpoint.undo.clone();
    let mut others = Vec::new();
    for (knob, written) in group_by_knob(checkpoint.own_values()) {
        let same = |one: &Value, other: &Value| knob.spec().same(one, other);
        let adaptive = knob.spec().overruled_by;
        let is_moved = adaptive.is_some_and(|adaptive| steps::is_on(kernel, interface, adaptive));
        if is_moved || knob.spec().is_negotiated {
            continue;
        }
        let current = BTreeMap::from_iter(read_unless_busy(kernel, interface, knob)?);
        let mut stays = false;
        // A value that follows another one stays where that does.
        let (follow, lead): (Vec<_>, Vec<_>) =
            written.into_iter().partition(|(place, _)| place.is_follower());
        for (place, written) in lead.into_iter().chain(follow) {
            let (Some(found), Some(before)) = (current.get(&place), undo.0.get_mut(&(knob, place)))
            else {
                continue;
            };
            if place.is_follower() && stays {
                continue;
            }
            if same(found, written) || same(found, before) {
                continue;
            }
            stays |= !place.is_follower();
            let before = std::mem::replace(before, found.clone());
            let written = written.clone();
            let found = found.clone();
            others.push(Foreign { knob, place, before, written, found });
        }
        let of_knob =
            undo.0.iter_mut().filter(|((of, place), _)| *of == knob && place.is_follower());
        let own = checkpoint.own_values();
        for ((_, place), before) in of_knob.filter(|_| stays) {
            let Some(found) = current.get(place) else { continue };
            // An interface on top that is where the change took it goes as far back as the value below lets it.
            let limit = current.get(&Place::Device).filter(|_| place.linked_index().is_some());
            let is_ours = own.0.get(&(knob, *place)).is_some_and(|written| same(found, written));
            match limit.filter(|_| is_ours && exceeds(before, found)) {
                Some(limit) if exceeds(before, limit) => limit.clone_into(before),
                Some(_) => {}
                None => found.clone_into(before),
            }
        }
    }
    Ok((undo, others))
}

/// Reads a knob; nothing where it cannot be read now nor, by its error, later.
fn read_unless_busy(
    kernel: &dyn KernelRead,
    interface: &str,
    knob: Knob,
) -> Result<Vec<(Place, Value)>, KernelError> {
    let is_busy = |error: &KernelError| error.kind == KernelErrorKind::Busy;
    let mut tries = std::iter::repeat_with(|| read(kernel, interface, knob)).take(READ_ATTEMPTS);
    match tries.find(|current| !current.as_ref().is_err_and(is_busy)) {
        Some(current) => Ok(current.unwrap_or_default()),
        None => read(kernel, interface, knob),
    }
}

/// Chooses the values that an earlier, committed change is to go back to, as [`leave_to_others`] does, and finds the
/// values of others in the places where it had made a difference. Refuses where a value could not go back.
pub(super) fn find_values_to_undo(
    kernel: &dyn KernelRead,
    interface: &str,
    earlier: &Checkpoint,
) -> Result<(State, Vec<Foreign>), ApplyError> {
    let (wanted, mut others) =
        leave_to_others(kernel, interface, earlier).map_err(ApplyError::Unread)?;
    others.retain(|other| !other.knob.spec().same(&other.before, &other.written));
    check_device_values_visible(kernel, interface, earlier)?;
    check_threads_restorable(kernel, interface, earlier)?;
    Ok((wanted, others))
}

/// Refuses to take back a change where a value of the device that would go back with it is [hidden](hides_device_value).
fn check_device_values_visible(
    kernel: &dyn KernelRead,
    interface: &str,
    earlier: &Checkpoint,
) -> Result<(), ApplyError> {
    let of_device = earlier.undo.0.keys().filter(|(_, place)| *place == Place::Device);
    let knobs: Vec<Knob> = of_device.map(|(knob, _)| *knob).collect();
    let hides = |current: &Result<Vec<_>, _>| current.as_deref().is_ok_and(hides_device_value);
    let readings = read_many(kernel, interface, &knobs);
    match readings.into_iter().find(|(_, current)| hides(current)) {
        None => Ok(()),
        Some((knob, _)) => {
            let has_changed = |(at, written): (&(Knob, Place), &Value)| {
                let before = earlier.undo.0.get(at);
                let is_same = before.is_some_and(|before| at.0.spec().same(before, written));
                (!is_same && !at.1.is_follower()).then_some(at.0)
            };
            let changed: BTreeSet<Knob> =
                earlier.written.0.iter().filter_map(has_changed).collect();
            let mut reason = HIDDEN.to_owned();
            if !changed.contains(&knob) {
                let changed: Vec<&str> = changed.iter().map(|knob| knob.name()).collect();
                reason =
                    format!("going back with {} may reset it, and {HIDDEN}", changed.join(", "));
            }
            Err(ApplyError::Unsupported { interface: interface.to_owned(), knob, reason })
        }
    }
}

/// Refuses to take back a change that had made NAPI threads anew where this process cannot give them what they had.
fn check_threads_restorable(
    kernel: &dyn KernelRead,
    interface: &str,
    earlier: &Checkpoint,
) -> Result<(), ApplyError> {
    let is_of_thread = |place: &Place| matches!(place, Place::Thread(_) | Place::ThreadPolicy(_));
    let thread = earlier.undo.0.keys().find(|(_, place)| is_of_thread(place));
    match thread.and_then(|(knob, _)| Some((*knob, kernel.thread_obstacle()?))) {
        None => Ok(()),
        Some((knob, reason)) => {
            Err(ApplyError::Unsupported { interface: interface.to_owned(), knob, reason })
        }
    }
}

/// Whether a reading has values of queues and not that of the device, which is hidden from this process then.
fn hides_device_value(values: &[(Place, Value)]) -> bool {
    !values.is_empty() && values.iter().all(|(place, _)| *place != Place::Device)
}

/// Puts the values of `undo` back on the interface of `checkpoint`, whatever its name is now.
pub(super) fn put_back(
    kernel: &mut dyn KernelWrite,
    checkpoint: &Checkpoint,
    undo: &State,
) -> PutBack {
    let at = kernel.find(&checkpoint.device);
    put_back_at(kernel, at, checkpoint, undo)
}

/// The same, where it is known where the interface is. What belongs to the host goes back without it.
fn put_back_at(
    kernel: &mut dyn KernelWrite,
    mut at: Result<Whereabouts, KernelError>,
    checkpoint: &Checkpoint,
    undo: &State,
) -> PutBack {
    for _ in 0..PUT_BACK_ATTEMPTS {
        let Ok(Whereabouts::Here(name)) = &at else { break };
        match put_back_as(kernel, name, undo) {
            PutBack::InterfaceGone => at = kernel.find(&checkpoint.device),
            ending => return ending,
        }
    }
    let (of_host, of_interface): (BTreeMap<_, _>, BTreeMap<_, _>) =
        undo.0.clone().into_iter().partition(|((knob, _), _)| knob.spec().scope == Scope::Host);
    if !of_host.is_empty()
        && let left @ PutBack::Left { .. } =
            put_back_as(kernel, &checkpoint.interface, &State(of_host))
    {
        return left;
    }
    unreachable(kernel, at, checkpoint, &State(of_interface))
}

/// The outcome for an interface that is not here, and whose own values cannot be put back.
fn unreachable(
    kernel: &dyn KernelRead,
    at: Result<Whereabouts, KernelError>,
    checkpoint: &Checkpoint,
    of_interface: &State,
) -> PutBack {
    if at == Ok(Whereabouts::Deleted) {
        return PutBack::InterfaceGone;
    }
    let reason = match at {
        Err(error) => error.to_string(),
        Ok(_) => "the interface is not in this network namespace".to_owned(),
    };
    let finish = how_to_find(kernel, checkpoint, &reason);
    PutBack::Left { left: all_left(of_interface, &reason), finish }
}

/// All values as left, for one reason.
fn all_left(undo: &State, reason: &str) -> Vec<Leftover> {
    let leftover = |(&(knob, place), wanted): (&(Knob, Place), &Value)| {
        let (wanted, reason) = (wanted.clone(), reason.to_owned());
        Leftover { knob, place, wanted, found: None, reason }
    };
    undo.0.iter().map(leftover).collect()
}

/// The outcome where it cannot be told now whose the values are, so that none was written.
fn unread(error: &KernelError, undo: &State) -> PutBack {
    let reason = error.to_string();
    let finish = format!("nothing was written, run `latput restore` again: {reason}");
    PutBack::Left { left: all_left(undo, &reason), finish }
}

/// Instructions for an interface that cannot be found.
fn how_to_find(kernel: &dyn KernelRead, checkpoint: &Checkpoint, reason: &str) -> String {
    let Checkpoint { interface, device, .. } = checkpoint;
    let values: Vec<String> = checkpoint
        .to_put_back()
        .0
        .iter()
        .map(|((knob, place), value)| format!("{knob} ({place}) was {value}"))
        .collect();
    let other = match kernel.device(interface) {
        Ok(other) => format!(" (the {interface} of now is another: {other})"),
        Err(_) => String::new(),
    };
    format!(
        "{reason}: {device}{other}. Its checkpoint is kept. If it was moved, move it back and run `latput \
         restore`. If it was deleted, run `latput restore --forget {}`. Before the change {}",
        checkpoint.slot(),
        values.join("; ")
    )
}

/// Writes and verifies the values of `undo` on the interface of this name, in the order of any change (a knob
/// that resets others must again come first). Unlike a change it does not stop at a failure: one bad queue
/// must not keep the others from going back.
fn put_back_as(kernel: &mut dyn KernelWrite, interface: &str, undo: &State) -> PutBack {
    let changes = differences(kernel, interface, undo);
    let target = match with_bystanders(kernel, interface, undo, &changes) {
        Ok(target) => target,
        Err(error) => return unread(&error, undo),
    };
    let nothing = State::default();
    let knobs = Target { desired: &Setting::new(), wanted: &nothing, undo: &target }.knobs();
    let order: Vec<Knob> = collect_exposed_knobs(&changes).into_iter().chain(knobs).collect();
    let mut tried = Tried::default();
    let mut still_left = Vec::new();
    for _ in 0..PUT_BACK_ATTEMPTS {
        for &knob in &order {
            for turn in TURNS {
                write_old_values(kernel, interface, &target, (knob, turn), &mut tried);
            }
        }
        write_old_together(kernel, interface, &target, &mut tried);
        match review(kernel, interface, &target, &tried) {
            None => return PutBack::InterfaceGone,
            Some(Review { mut left, mut gone }) => {
                gone.retain(|place| undo.0.contains_key(place));
                left.extend(unknown(kernel, interface, undo, &gone));
                if left.is_empty() {
                    return PutBack::Done { changes, gone };
                }
                still_left = left;
            }
        }
    }
    let finish = how_to_finish(&still_left);
    PutBack::Left { left: still_left, finish }
}

/// Adds the values of now that `changes` would destroy although `undo` does not name them: somebody
/// set them after the checkpoint was made, and they are to stay. Fails where one cannot be read and later can.
fn with_bystanders(
    kernel: &dyn KernelRead,
    interface: &str,
    undo: &State,
    changes: &[Change],
) -> Result<State, KernelError> {
    let mut target = undo.clone();
    for knob in
        collect_exposed_knobs(changes).into_iter().chain(changes.iter().map(|change| change.knob))
    {
        for (place, value) in read_unless_busy(kernel, interface, knob)? {
            let device = undo.0.get(&(knob, Place::Device));
            // It was made, or raised, since: it goes down with the interface.
            let follows = place.cannot_exceed_device()
                && device.is_some_and(|device| exceeds(&value, device));
            if !follows {
                target.0.entry((knob, place)).or_insert(value);
            }
        }
    }
    Ok(target)
}

/// The results of writing old values.
#[derive(Default)]
struct Tried {
    /// The kernel's errors for the writes that it refused.
    refused: BTreeMap<(Knob, Place), KernelError>,
    /// The values before the writes that it accepted.
    over: BTreeMap<(Knob, Place), Value>,
}

impl Tried {
    /// Whether a value that is near the old one is what the device made of it: not if it never got
    /// there, or did not move it.
    fn may_have_rounded(&self, key: (Knob, Place), found: &Value) -> bool {
        !self.refused.contains_key(&key) && self.over.get(&key) != Some(found)
    }
}

/// Writes the old values of one knob.
fn write_old_values(
    kernel: &mut dyn KernelWrite,
    interface: &str,
    undo: &State,
    (knob, turn): (Knob, Turn),
    tried: &mut Tried,
) {
    let current = match read(kernel, interface, knob) {
        Ok(current) => Some(BTreeMap::from_iter(current)),
        Err(error) if is_absence(&error) => return,
        // A value that cannot be read is written anyway: a needless write is better than a value left behind.
        Err(_) => None,
    };
    for (&(_, place), old) in
        undo.0.iter().filter(|((k, place), _)| *k == knob && turn.takes(*place))
    {
        let needed = match current.as_ref().map(|current| current.get(&place)) {
            Some(Some(found)) => !knob.spec().same(old, found),
            Some(None) => false,
            None => true,
        };
        if needed {
            match kernel.write(&WritePermit::new(), interface, knob, place, old) {
                Ok(()) => {
                    tried.refused.remove(&(knob, place));
                    let found = current.as_ref().and_then(|current| current.get(&place));
                    tried.over.extend(found.map(|found| ((knob, place), found.clone())));
                }
                Err(error) => drop(tried.refused.insert((knob, place), error)),
            }
        }
    }
}

/// Writes the old values of the device that were refused one by one, those of a request together.
fn write_old_together(
    kernel: &mut dyn KernelWrite,
    interface: &str,
    undo: &State,
    tried: &mut Tried,
) {
    let (desired, wanted) = (Setting::new(), State::default());
    let target = Target { desired: &desired, wanted: &wanted, undo };
    let of_device = tried.refused.keys().filter(|(_, place)| *place == Place::Device);
    let refused: Vec<Knob> = of_device.map(|(knob, _)| *knob).collect();
    let mut asked = BTreeSet::new();
    for knob in refused {
        if asked.contains(&knob) {
            continue;
        }
        let differing = Differing::new(&*kernel, interface, knob, target);
        asked.extend(differing.changes.iter().map(|change| change.knob));
        if !differing.are_several() {
            continue;
        }
        let written = kernel.write_together(&WritePermit::new(), interface, &differing.values());
        if written.is_ok() {
            let over = differing.changes.iter().map(|it| ((it.knob, it.place), it.from.clone()));
            tried
                .refused
                .retain(|key, _| !differing.changes.iter().any(|it| (it.knob, it.place) == *key));
            tried.over.extend(over);
        }
    }
}

/// How an interface compares with its old values.
struct Review {
    /// The values that were not put back.
    left: Vec<Leftover>,
    /// The places that no longer exist.
    gone: Vec<(Knob, Place)>,
}

/// Compares every place with its old value; `None` when there is no such interface any more.
fn review(kernel: &dyn KernelRead, interface: &str, undo: &State, tried: &Tried) -> Option<Review> {
    let mut left = Vec::new();
    let mut gone = Vec::new();
    let mut is_gone = false;
    let target = Target { desired: &Setting::new(), wanted: &State::default(), undo };
    for (knob, old_values) in group_by_knob(undo) {
        let current = match read(kernel, interface, knob) {
            // It has been written, and adaptive moderation has moved it since.
            Ok(_) if target.is_overruled(knob) => continue,
            Ok(current) => Ok(BTreeMap::from_iter(current)),
            // The host's own knobs outlive the interface.
            Err(error) if error.kind == KernelErrorKind::NoInterface => {
                is_gone = true;
                continue;
            }
            Err(error) if error.kind == KernelErrorKind::Unsupported => Ok(BTreeMap::new()),
            Err(error) => Err(error),
        };
        for (place, wanted) in old_values {
            let (found, reason) = match &current {
                Ok(current) => match current.get(&place) {
                    None => {
                        gone.push((knob, place));
                        continue;
                    }
                    Some(found) if knob.spec().same(wanted, found) => continue,
                    Some(found)
                        if knob.spec().takes(wanted, found)
                            && tried.may_have_rounded((knob, place), found) =>
                    {
                        continue;
                    }
                    Some(found) => (Some(found.clone()), "accepted but not applied".to_owned()),
                },
                Err(error) => (None, error.to_string()),
            };
            let reason = tried.refused.get(&(knob, place)).map_or(reason, ToString::to_string);
            left.push(Leftover { knob, place, wanted: wanted.clone(), found, reason });
        }
    }
    (!is_gone || !left.is_empty()).then_some(Review { left, gone })
}

/// The places that are missing now and may come back with our values: those of the device itself, where a process may write
/// those of its queues and not these, and those that drivers make anew when the interface comes up.
fn unknown(
    kernel: &dyn KernelRead,
    interface: &str,
    undo: &State,
    gone: &[(Knob, Place)],
) -> Vec<Leftover> {
    let is_up = kernel.is_up(interface);
    let reason = |knob: Knob, place: Place| match place {
        Place::Device => {
            let values = read(kernel, interface, knob).unwrap_or_default();
            hides_device_value(&values).then(|| HIDDEN.to_owned())
        }
        Place::Napi(_) | Place::RxQueue(_) | Place::TxQueue(_) | Place::Interrupt(_) => {
            (!is_up).then(|| "it returns with the link: bring the interface up".to_owned())
        }
        Place::Thread(_) | Place::ThreadPolicy(_) => kernel.thread_obstacle(),
        _ => None,
    };
    let leftover = |&(knob, place): &(Knob, Place)| {
        let reason = reason(knob, place)?;
        let wanted = undo.0.get(&(knob, place))?.clone();
        Some(Leftover { knob, place, wanted, found: None, reason })
    };
    gone.iter().filter_map(leftover).collect()
}

/// The outcome that putting `undo` back would have, as far as it shows before the first write.
fn plan_put_back(kernel: &dyn KernelRead, interface: &str, undo: &State) -> PutBack {
    let changes = differences(kernel, interface, undo);
    // Places of these may come back with the changes.
    let exposed = collect_exposed_knobs(&changes);
    let knobs: Vec<Knob> = group_by_knob(undo).into_keys().collect();
    let readings = read_many(kernel, interface, &knobs);
    let mut left = Vec::new();
    let mut gone = Vec::new();
    for (knob, old_values) in group_by_knob(undo) {
        let current = match readings.get(&knob) {
            Some(Ok(current)) => current.iter().map(|(place, _)| *place).into_set(),
            Some(Err(error)) if !is_absence(error) => {
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
    left.extend(unknown(kernel, interface, undo, &gone));
    if !kernel.is_up(interface) {
        left.extend(refused_while_down(kernel, interface, &changes));
    }
    if left.is_empty() {
        return PutBack::Done { changes, gone };
    }
    PutBack::Left { finish: how_to_finish(&left), left }
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

/// The differences between `undo` and the present values; knobs that cannot be read are not listed, and neither is
/// what follows a value that is.
fn differences(kernel: &dyn KernelRead, interface: &str, undo: &State) -> Vec<Change> {
    let target = Target { desired: &Setting::new(), wanted: &State::default(), undo };
    let of_knob = |knob| {
        let current = read(kernel, interface, knob).unwrap_or_default();
        let found = target.differences(kernel, interface, knob, &current).unwrap_or_default();
        let (follow, lead): (Vec<_>, Vec<_>) =
            found.into_iter().partition(|change: &Change| change.place.is_follower());
        if lead.is_empty() { follow } else { lead }
    };
    target.knobs().into_iter().flat_map(of_knob).collect()
}

/// The values of a state by knob.
pub(super) fn group_by_knob(state: &State) -> BTreeMap<Knob, Vec<(Place, &Value)>> {
    let mut knobs: BTreeMap<Knob, Vec<(Place, &Value)>> = BTreeMap::new();
    for ((knob, place), value) in &state.0 {
        knobs.entry(*knob).or_default().push((*place, value));
    }
    knobs
}
