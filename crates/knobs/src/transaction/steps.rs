//! The steps of a transaction: plan, verify, and put back.

use std::collections::{BTreeMap, BTreeSet};

use super::outcome::{ApplyError, Cause, Change, Leftover, PutBack};
use crate::catalogue::Knob;
use crate::kernel::{Capability, KernelError, KernelErrorKind, KernelRead, KernelWrite};
use crate::value::{Place, Setting, State, Value};

/// How often putting back is tried: what makes one write fail (a busy device, an interrupted call) is
/// often over at the next.
const PUT_BACK_ATTEMPTS: usize = 3;

/// What each place should hold.
#[derive(Clone, Copy)]
pub(super) struct Target<'a> {
    /// The value of each named knob, at every place it has.
    pub(super) desired: &'a Setting,
    /// The value of every other place; one that is in neither is left alone.
    pub(super) undo: &'a State,
}

impl<'a> Target<'a> {
    pub(super) fn value(self, knob: Knob, place: Place) -> Option<&'a Value> {
        self.desired.get(&knob).or_else(|| self.undo.0.get(&(knob, place)))
    }

    /// What must change at the places of `knob`, which hold `current`.
    pub(super) fn differences(self, knob: Knob, current: &[(Place, Value)]) -> Vec<Change> {
        let differing = current.iter().filter_map(|(place, from)| {
            let to = self.value(knob, *place)?;
            let (place, from, to) = (*place, from.clone(), to.clone());
            (!knob.spec().same(&from, &to)).then_some(Change { knob, place, from, to })
        });
        differing.collect()
    }

    /// The knobs with a target, in the order of writing.
    pub(super) fn knobs(self) -> Vec<Knob> {
        let named: BTreeSet<Knob> =
            self.desired.keys().copied().chain(self.undo.0.keys().map(|(knob, _)| *knob)).collect();
        Knob::ALL.iter().copied().filter(|knob| named.contains(knob)).collect()
    }
}

/// The device-wide value has its turn first, and the others are read after it, because writing it
/// overwrites every NAPI's own (`netdev_set_defer_hard_irqs` and its kin in `net/core/dev.h`).
pub(super) const TURNS: [Turn; 2] = [Turn::DeviceWide, Turn::Others];

/// Which places have their turn.
#[derive(Clone, Copy)]
pub(super) enum Turn {
    DeviceWide,
    Others,
}

impl Turn {
    pub(super) fn takes(self, place: Place) -> bool {
        match self {
            Self::DeviceWide => place == Place::Device,
            Self::Others => place != Place::Device,
        }
    }
}

/// What a change needs to know of the interface as it is now.
#[derive(Default)]
pub(super) struct Planned {
    /// The values of now of every knob concerned.
    pub(super) before: State,
    /// Those of them that the change may touch. The others are no part of its checkpoint, so that
    /// undoing it leaves them to whoever sets them meanwhile.
    pub(super) touched: State,
    /// The differences to the target.
    pub(super) changes: Vec<Change>,
}

/// Checks `desired`, reads what it names, what `undo` names and what a difference would reset.
pub(super) fn plan(
    kernel: &dyn KernelRead,
    interface: &str,
    desired: &Setting,
    undo: &State,
) -> Result<Planned, ApplyError> {
    for (knob, value) in desired {
        knob.check_value(value)?;
    }
    let target = Target { desired, undo };
    let named = target.knobs();
    let mut planned = Planned::default();
    let mut exposed: BTreeSet<Knob> = BTreeSet::new();
    // In this order a knob comes after every knob that resets it.
    for &knob in Knob::ALL {
        if !named.contains(&knob) && !exposed.contains(&knob) {
            continue;
        }
        // What the change resets it may also bring: on veth, NAPIs come with GRO. Whether they have
        // come, the write will show.
        let wanted = desired.contains_key(&knob) && !exposed.contains(&knob);
        let current = read(kernel, interface, knob);
        let Some(current) = unless_gone(current, wanted).map_err(unread)? else { continue };
        let changes = target.differences(knob, &current);
        if !changes.is_empty() {
            exposed.extend(knob.spec().resets);
            if wanted {
                check_settable(kernel, interface, knob)?;
            }
        }
        let places = current.into_iter().map(|(place, value)| ((knob, place), value));
        if !changes.is_empty() || exposed.contains(&knob) {
            planned.touched.0.extend(places.clone());
        }
        planned.before.0.extend(places);
        planned.changes.extend(changes);
    }
    Ok(planned)
}

/// An absent knob is an error only where it is wanted.
pub(super) fn unless_gone(
    current: Result<Vec<(Place, Value)>, KernelError>,
    wanted: bool,
) -> Result<Option<Vec<(Place, Value)>>, KernelError> {
    match current {
        Err(error) if error.kind == KernelErrorKind::Unsupported && !wanted => Ok(None),
        current => current.map(Some),
    }
}

/// Reads every place of a knob, and does not believe an answer that cannot be.
pub(super) fn read(
    kernel: &dyn KernelRead,
    interface: &str,
    knob: Knob,
) -> Result<Vec<(Place, Value)>, KernelError> {
    let current = kernel.read(interface, knob)?;
    let right_kind = current.iter().all(|(_, value)| value.kind() == knob.spec().kind);
    let ascending = current.windows(2).all(|pair| pair[0].0 < pair[1].0);
    if right_kind && ascending && !current.is_empty() {
        return Ok(current);
    }
    Err(KernelError {
        interface: interface.to_owned(),
        knob: Some(knob),
        operation: "read it".to_owned(),
        kind: KernelErrorKind::Malformed,
        errno: None,
        reason: "the answer has no place, a place twice, or a value of another kind".to_owned(),
    })
}

fn unread(error: KernelError) -> ApplyError {
    match error {
        KernelError {
            kind: KernelErrorKind::Unsupported,
            knob: Some(knob),
            interface,
            reason,
            ..
        } => ApplyError::Unsupported { interface, knob, reason },
        error => ApplyError::Unread(error),
    }
}

fn check_settable(kernel: &dyn KernelRead, interface: &str, knob: Knob) -> Result<(), ApplyError> {
    match kernel.capability(interface, knob) {
        Capability::Settable(_) => Ok(()),
        Capability::ReadOnly(reason) | Capability::Absent(reason) => {
            Err(ApplyError::Unsupported { interface: interface.to_owned(), knob, reason })
        }
    }
}

/// Reads back every knob of the target.
pub(super) fn verify(
    kernel: &dyn KernelRead,
    interface: &str,
    target: Target<'_>,
) -> Result<(), Cause> {
    for knob in target.knobs() {
        let current = read(kernel, interface, knob);
        let current = unless_gone(current, target.desired.contains_key(&knob))?;
        let differing = target.differences(knob, &current.unwrap_or_default());
        if let Some(Change { place, from: found, to: wanted, .. }) = differing.into_iter().next() {
            let interface = interface.to_owned();
            return Err(Cause::NotTaken { interface, knob, place, wanted, found });
        }
    }
    Ok(())
}

/// What differs from `undo` now; knobs that cannot be read are not listed.
pub(super) fn differences(kernel: &dyn KernelRead, interface: &str, undo: &State) -> Vec<Change> {
    let target = Target { desired: &Setting::new(), undo };
    let of_knob =
        |knob| target.differences(knob, &read(kernel, interface, knob).unwrap_or_default());
    target.knobs().into_iter().flat_map(of_knob).collect()
}

/// The knobs that making `changes` may reset.
///
/// Where they go back to an old value, they do so before that as well as after: the places may be gone
/// afterwards, and a driver that remembers the values of its NAPIs would keep ours for the next ones.
pub(super) fn exposed(changes: &[Change]) -> BTreeSet<Knob> {
    changes.iter().flat_map(|change| change.knob.spec().resets).copied().collect()
}

/// Writes and verifies the values of `undo`, in the order of any change (a knob that resets others
/// must again come first). Unlike a change it does not stop at a failure: one bad queue must not keep
/// the others from going back.
pub(super) fn put_back(kernel: &mut dyn KernelWrite, interface: &str, undo: &State) -> PutBack {
    let changes = differences(kernel, interface, undo);
    let target = with_bystanders(kernel, interface, undo, &changes);
    let knobs = Target { desired: &Setting::new(), undo: &target }.knobs();
    let order: Vec<Knob> = exposed(&changes).into_iter().chain(knobs).collect();
    let mut refused = BTreeMap::new();
    let mut still_left = Vec::new();
    for _ in 0..PUT_BACK_ATTEMPTS {
        for &knob in &order {
            for turn in TURNS {
                write_old_values(kernel, interface, &target, (knob, turn), &mut refused);
            }
        }
        match review(kernel, interface, &target, &refused) {
            None => return PutBack::InterfaceGone { undo: undo.clone() },
            Some(Review { left, mut gone }) if left.is_empty() => {
                gone.retain(|place| undo.0.contains_key(place));
                return PutBack::Done { changes, gone };
            }
            Some(Review { left, .. }) => still_left = left,
        }
    }
    PutBack::Left(still_left)
}

/// Adds the values of now that `changes` would destroy although `undo` does not name them: somebody
/// set them after the checkpoint was made, and they are to stay.
fn with_bystanders(
    kernel: &dyn KernelRead,
    interface: &str,
    undo: &State,
    changes: &[Change],
) -> State {
    let mut target = undo.clone();
    for knob in exposed(changes).into_iter().chain(changes.iter().map(|change| change.knob)) {
        for (place, value) in read(kernel, interface, knob).unwrap_or_default() {
            target.0.entry((knob, place)).or_insert(value);
        }
    }
    target
}

/// Writes the old values of one knob, and keeps what the kernel said to those it refused.
fn write_old_values(
    kernel: &mut dyn KernelWrite,
    interface: &str,
    undo: &State,
    (knob, turn): (Knob, Turn),
    refused: &mut BTreeMap<(Knob, Place), KernelError>,
) {
    let current = match read(kernel, interface, knob) {
        Ok(current) => Some(BTreeMap::from_iter(current)),
        Err(error) if is_absence(&error) => return,
        // What cannot be read is written unseen: a needless write is better than a value left behind.
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
            match kernel.write(interface, knob, place, old) {
                Ok(()) => refused.remove(&(knob, place)),
                Err(error) => refused.insert((knob, place), error),
            };
        }
    }
}

fn is_absence(error: &KernelError) -> bool {
    matches!(error.kind, KernelErrorKind::Unsupported | KernelErrorKind::NoInterface)
}

/// How an interface compares with its old values.
struct Review {
    /// What is not as it was.
    left: Vec<Leftover>,
    /// What no longer exists.
    gone: Vec<(Knob, Place)>,
}

/// Compares every place with its old value; `None` when there is no such interface any more.
fn review(
    kernel: &dyn KernelRead,
    interface: &str,
    undo: &State,
    refused: &BTreeMap<(Knob, Place), KernelError>,
) -> Option<Review> {
    let (mut left, mut gone) = (Vec::new(), Vec::new());
    for (knob, old_values) in by_knob(undo) {
        let current = match read(kernel, interface, knob) {
            Ok(current) => Ok(BTreeMap::from_iter(current)),
            Err(error) if error.kind == KernelErrorKind::NoInterface => return None,
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
                    Some(found) => (Some(found.clone()), "accepted but not taken".to_owned()),
                },
                Err(error) => (None, error.to_string()),
            };
            let reason = refused.get(&(knob, place)).map_or(reason, ToString::to_string);
            left.push(Leftover { knob, place, wanted: wanted.clone(), found, reason });
        }
    }
    Some(Review { left, gone })
}

fn by_knob(state: &State) -> BTreeMap<Knob, Vec<(Place, &Value)>> {
    let mut knobs: BTreeMap<Knob, Vec<(Place, &Value)>> = BTreeMap::new();
    for ((knob, place), value) in &state.0 {
        knobs.entry(*knob).or_default().push((*place, value));
    }
    knobs
}
