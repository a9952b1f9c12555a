//! Putting old values back, and telling what is left.

use std::collections::{BTreeMap, BTreeSet};

use super::outcome::{Change, Leftover, PutBack, how_to_finish};
use super::permit::WritePermit;
use super::steps::{
    self, TURNS, Target, Turn, collect_exposed_knobs, differences, exceeds, group_by_knob,
    is_absence, read, read_unless_busy,
};
use super::together::Differing;
use crate::catalogue::Knob;
use crate::catalogue::spec::Scope;
use crate::checkpoint::Checkpoint;
use crate::device::Whereabouts;
use crate::kernel::{KernelError, KernelErrorKind, KernelRead, KernelWrite};
use crate::setting::{Setting, State};
use crate::value::{Place, Value};

/// How often putting back is tried: what makes one write fail (a busy device, an interrupted call) is
/// often over at the next.
const PUT_BACK_ATTEMPTS: usize = 3;

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
pub(super) fn put_back_at(
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
pub(super) fn unreachable(
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
pub(super) fn unread(error: &KernelError, undo: &State) -> PutBack {
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
pub(super) fn unknown(
    kernel: &dyn KernelRead,
    interface: &str,
    undo: &State,
    gone: &[(Knob, Place)],
) -> Vec<Leftover> {
    let is_up = kernel.is_up(interface);
    let reason = |knob: Knob, place: Place| match place {
        Place::Device => {
            let values = read(kernel, interface, knob).unwrap_or_default();
            steps::hides_device_value(&values).then(|| steps::HIDDEN.to_owned())
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
