//! The steps of a transaction: plan and verify.

use std::collections::{BTreeMap, BTreeSet};

use latput_units::{IntoMap, IntoSet};

use super::checks::{check_limits, check_obstacle, check_settable};
use super::outcome::{ApplyError, Cause, Change, Foreign, Standing};
use crate::catalogue::Knob;
use crate::catalogue::spec::{Group, Tier};
use crate::checkpoint::Checkpoint;
use crate::kernel::{Capability, KernelError, KernelErrorKind, KernelRead, WritePurpose};
use crate::setting::{Setting, State};
use crate::value::{Named, Place, Value};

/// The last of the knobs that adaptive moderation has a say in.
const LAST_OVERRULED: Knob = Knob::SampleInterval;

/// The wanted value of each place.
#[derive(Clone, Copy)]
pub(super) struct Target<'a> {
    /// The value of each named knob, at every place it has.
    pub(super) desired: &'a Setting,
    /// Values of single places.
    pub(super) wanted: &'a State,
    /// The value of every other place; one that is in neither is left alone.
    pub(super) undo: &'a State,
}

impl<'a> Target<'a> {
    pub(super) fn value(self, knob: Knob, place: Place) -> Option<&'a Value> {
        let of_place = || self.wanted.0.get(&(knob, place));
        let wanted = self.desired.get(&knob);
        if place.is_follower() && wanted.is_some() {
            return None;
        }
        let value = wanted.or_else(of_place).or_else(|| self.undo.0.get(&(knob, place)))?;
        let lower = || self.value(knob, Place::Device);
        let follows =
            place.cannot_exceed_device() && lower().is_some_and(|lower| exceeds(value, lower));
        (!follows).then_some(value)
    }

    /// Whether adaptive moderation moves the knob once the target is reached: what it holds then is nobody's setting.
    pub(super) fn is_overruled(self, knob: Knob) -> bool {
        let adaptive = knob.spec().overruled_by;
        let is_on = |adaptive| self.value(adaptive, Place::Device) == Some(&Value::Switch(true));
        !self.desired.contains_key(&knob) && adaptive.is_some_and(is_on)
    }

    /// The changes that the places of `knob`, which hold `current`, need.
    pub(super) fn differences(
        self,
        kernel: &dyn KernelRead,
        interface: &str,
        knob: Knob,
        current: &[(Place, Value)],
    ) -> Result<Vec<Change>, KernelError> {
        let mut differing = Vec::new();
        for (place, from) in current {
            let to = match self.value(knob, *place) {
                None => continue,
                Some(Value::Named(named)) => resolve(kernel, interface, knob, *place, *named)?,
                Some(value) => value.clone(),
            };
            if !knob.spec().same(from, &to) {
                differing.push(Change { knob, place: *place, from: from.clone(), to });
            }
        }
        Ok(differing)
    }

    /// The knobs with a target, in the order of writing.
    ///
    /// Adaptive moderation that is to be off goes off before the values that it would overrule are
    /// written, and adaptive moderation that is to be on comes on after them: drivers refuse values
    /// while it is on (`ice`), or take them and let it overwrite them.
    pub(super) fn knobs(self) -> Vec<Knob> {
        let of_places = self.wanted.0.keys().chain(self.undo.0.keys()).map(|(knob, _)| *knob);
        let named: BTreeSet<Knob> = self.desired.keys().copied().chain(of_places).into_set();
        let comes_on = |knob: Knob| {
            matches!(knob, Knob::AdaptiveRx | Knob::AdaptiveTx)
                && self.value(knob, Place::Device) == Some(&Value::Switch(true))
        };
        let mut order: Vec<Knob> = named.into_iter().collect();
        order.sort_by_key(
            |knob| if comes_on(*knob) { (LAST_OVERRULED, true) } else { (*knob, false) },
        );
        order
    }
}

/// Whether one count is larger than another.
pub(super) fn exceeds(value: &Value, limit: &Value) -> bool {
    matches!((value, limit), (Value::Count(value), Value::Count(limit)) if value > limit)
}

/// The device-wide value has its turn first, and the others are read after it, because writing it
/// overwrites every NAPI's own (`netdev_set_defer_hard_irqs` and its kin in `net/core/dev.h`).
pub(super) const TURNS: [Turn; 2] = [Turn::DeviceWide, Turn::Others];

/// How often a knob is read that is busy, but for the last time.
const READ_ATTEMPTS: usize = 2;

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

/// The values of knobs, or the errors of reading them.
pub(super) type Readings = BTreeMap<Knob, Result<Vec<(Place, Value)>, KernelError>>;

/// The present state of an interface, and the changes to make.
#[derive(Default)]
pub(super) struct Planned {
    /// The values of now of every knob concerned.
    pub(super) before: State,
    /// Those of them that the change may touch. The others are no part of its checkpoint, so that
    /// undoing it leaves them to whoever sets them meanwhile.
    pub(super) touched: State,
    /// The differences to the target.
    pub(super) changes: Vec<Change>,
    /// The values that were read: they hold until the first write.
    pub(super) readings: Readings,
}

/// Checks what is desired, reads what the target names and what a difference would reset. Knobs that
/// are `proven` were set before, and whether they can be is not asked again.
pub(super) fn plan(
    kernel: &dyn KernelRead,
    interface: &str,
    target: Target<'_>,
    proven: &BTreeSet<Knob>,
) -> Result<Planned, ApplyError> {
    let desired = target.desired;
    for (&knob, value) in desired {
        knob.check_value(value)?;
        check_limits(kernel, interface, knob, value)?;
        check_channels_left(kernel, interface, target, knob)?;
        check_queue_qdisc_root(kernel, interface, target, knob)?;
    }
    let of_device = target.wanted.0.keys().filter(|(_, place)| *place == Place::Device);
    for &knob in desired.keys().chain(of_device.map(|(knob, _)| knob)) {
        check_needed_switch(kernel, interface, target, knob)?;
    }
    let named = target.knobs();
    let mut planned =
        Planned { readings: read_many(kernel, interface, &named), ..Planned::default() };
    let mut exposed: BTreeSet<Knob> = BTreeSet::new();
    let is_up = kernel.is_up(interface);
    // In this order a knob comes after every knob that resets it.
    for &knob in Knob::ALL {
        if !named.contains(&knob) && !exposed.contains(&knob) {
            continue;
        }
        // A knob that the change resets may also come with it: on a veth that is up, NAPIs come with GRO. The write will
        // show whether they have come.
        let may_come = is_up && exposed.contains(&knob);
        let is_desired = desired.contains_key(&knob);
        let wanted = is_desired && !may_come;
        let current = planned.readings.get(&knob).cloned();
        let current = current.unwrap_or_else(|| read(kernel, interface, knob));
        if wanted && knob.spec().tier == Tier::Reload && is_hidden(kernel, interface, &current) {
            return Err(ApplyError::NeedsReload { interface: interface.to_owned(), knob });
        }
        let Some(current) = none_if_absent(current, wanted).map_err(unread_error)? else {
            // Its places may come with the change, and the value be refused then.
            if let Some(value) = desired.get(&knob) {
                check_obstacle(kernel, interface, (knob, value), WritePurpose::Change)?;
            }
            continue;
        };
        let changes =
            target.differences(kernel, interface, knob, &current).map_err(unread_error)?;
        if !changes.is_empty() {
            let is_setting = |reset: &&Knob| {
                !reset
                    .spec()
                    .overruled_by
                    .is_some_and(|adaptive| is_on(kernel, interface, adaptive))
            };
            exposed.extend(knob.spec().resets.iter().filter(is_setting));
            let is_settable = may_come || proven.contains(&knob);
            check_changes(kernel, interface, target, (knob, &changes, is_settable))?;
        }
        if exposed.contains(&knob) {
            check_lost_queues(kernel, interface, knob, &current)?;
        }
        let places = current.into_iter().map(|(place, value)| ((knob, place), value));
        if !changes.is_empty() || exposed.contains(&knob) {
            planned.touched.0.extend(places.clone());
        }
        planned.before.0.extend(places);
        planned.changes.extend(changes);
    }
    let hung_on = planned.changes.iter().flat_map(|change| change.knob.spec().hangs_on);
    for knob in hung_on.copied().collect::<BTreeSet<Knob>>() {
        let current = planned.readings.get(&knob).cloned();
        let current =
            current.unwrap_or_else(|| read(kernel, interface, knob)).map_err(unread_error)?;
        let places = current.into_iter().map(|(place, value)| ((knob, place), value));
        planned.touched.0.extend(places.clone());
        planned.before.0.extend(places);
    }
    Ok(planned)
}

/// Refuses changes of a knob that cannot be made, would be overruled, or would move what cannot be put back. Whether it can
/// be set is not asked where that is known.
fn check_changes(
    kernel: &dyn KernelRead,
    interface: &str,
    target: Target<'_>,
    (knob, changes, is_settable): (Knob, &[Change], bool),
) -> Result<(), ApplyError> {
    let is_desired = target.desired.contains_key(&knob);
    if is_desired {
        check_takes_effect(kernel, interface, target, knob)?;
    }
    let is_meant = |change: &&Change| {
        let is_wanted = target.wanted.0.contains_key(&(knob, change.place));
        !change.place.is_follower() && (is_desired || is_wanted)
    };
    let mut meant = changes.iter().filter(is_meant).peekable();
    if meant.peek().is_some() && !is_settable {
        check_settable(kernel, interface, knob)?;
    }
    let purpose = if is_desired { WritePurpose::Change } else { WritePurpose::WayBack };
    meant.try_for_each(|change| check_obstacle(kernel, interface, (knob, &change.to), purpose))
}

/// Whether the driver has the knob, but does not show its value.
fn is_hidden(
    kernel: &dyn KernelRead,
    interface: &str,
    current: &Result<Vec<(Place, Value)>, KernelError>,
) -> bool {
    let Err(KernelError { kind: KernelErrorKind::Unsupported, knob: Some(knob), .. }) = current
    else {
        return false;
    };
    matches!(kernel.capability(interface, *knob), Capability::ReadOnly(_))
}

/// An absent knob is an error only where it is wanted.
pub(super) fn none_if_absent(
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
    let followers = kernel.read_followers(interface, &[knob]).pop().unwrap_or(Ok(Vec::new()))?;
    check_reading(interface, knob, current, followers)
}

/// The same of several knobs at once.
pub(super) fn read_many(kernel: &dyn KernelRead, interface: &str, knobs: &[Knob]) -> Readings {
    let followers = kernel.read_followers(interface, knobs);
    let answers = knobs.iter().zip(kernel.read_many(interface, knobs)).zip(followers);
    let believed = |((knob, answer), followers): ((&Knob, Result<_, _>), Result<_, _>)| {
        (*knob, answer.and_then(|current| check_reading(interface, *knob, current, followers?)))
    };
    answers.map(believed).into_map()
}

/// The values that could be read.
pub(super) fn values(readings: Readings) -> impl Iterator<Item = ((Knob, Place), Value)> {
    let known = readings.into_iter().filter_map(|(knob, current)| Some((knob, current.ok()?)));
    known.flat_map(|(knob, current)| {
        current.into_iter().map(move |(place, value)| ((knob, place), value))
    })
}

fn check_reading(
    interface: &str,
    knob: Knob,
    mut current: Vec<(Place, Value)>,
    followers: Vec<(Place, Value)>,
) -> Result<Vec<(Place, Value)>, KernelError> {
    let right_kind = current
        .iter()
        .all(|(_, value)| value.kind() == knob.spec().kind && !matches!(value, Value::Named(_)));
    let ascending = current.windows(2).all(|pair| pair[0].0 < pair[1].0);
    let follow = followers.windows(2).all(|pair| pair[0].0 < pair[1].0)
        && followers.iter().all(|(place, _)| place.is_follower());
    if right_kind && ascending && follow && !current.is_empty() {
        current.extend(followers);
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

/// The error of a change whose interface or knob could not be read before it.
pub(super) fn unread_error(error: KernelError) -> ApplyError {
    match error {
        KernelError { kind: KernelErrorKind::NoInterface, interface, .. } => {
            ApplyError::NoInterface { interface }
        }
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

/// Refuses a change that would need a driver reload, and a delay that adaptive moderation would
/// overrule at once.
fn check_takes_effect(
    kernel: &dyn KernelRead,
    interface: &str,
    target: Target<'_>,
    knob: Knob,
) -> Result<(), ApplyError> {
    if knob.spec().tier == Tier::Reload {
        return Err(ApplyError::NeedsReload { interface: interface.to_owned(), knob });
    }
    let Some(adaptive) = knob.spec().overruled_by else { return Ok(()) };
    if target.value(adaptive, Place::Device).is_some() {
        return Ok(()); // named, or known from an earlier change: as wanted
    }
    if is_on(kernel, interface, adaptive) {
        return Err(ApplyError::Overruled { interface: interface.to_owned(), knob, adaptive });
    }
    Ok(())
}

/// Refuses a switch that the kernel would keep off, since one that it needs is off or would be.
fn check_needed_switch(
    kernel: &dyn KernelRead,
    interface: &str,
    target: Target<'_>,
    knob: Knob,
) -> Result<(), ApplyError> {
    if target.value(knob, Place::Device) != Some(&Value::Switch(true)) {
        return Ok(());
    }
    let is_off = |needed: &&Knob| {
        value_after(kernel, interface, target, **needed) == Some(Value::Switch(false))
    };
    match knob.spec().needs.iter().find(is_off) {
        None => Ok(()),
        Some(&needed) => {
            Err(ApplyError::NeedsOther { interface: interface.to_owned(), knob, needed })
        }
    }
}

/// Refuses numbers of queues that would leave none to receive or none to send with (`ethnl_set_channels`,
/// net/ethtool/channels.c).
fn check_channels_left(
    kernel: &dyn KernelRead,
    interface: &str,
    target: Target<'_>,
    knob: Knob,
) -> Result<(), ApplyError> {
    let directions = [(Knob::RxChannels, "receive"), (Knob::TxChannels, "transmit")];
    let is_of_channels =
        |(own, _): &&(Knob, &str)| matches!(knob, Knob::CombinedChannels) || *own == knob;
    for (own, direction) in directions.iter().filter(is_of_channels) {
        let queues = |knob| match value_after(kernel, interface, target, knob) {
            Some(Value::Count(queues)) => queues,
            Some(Value::Named(Named::Max)) => 1, // or more
            _ => 0,
        };
        if queues(*own) + queues(Knob::CombinedChannels) == 0 {
            let reason = format!("no {direction} queue would be left");
            return Err(ApplyError::Unsupported { interface: interface.to_owned(), knob, reason });
        }
    }
    Ok(())
}

/// Refuses what is meant for transmit queues that have no place of their own.
fn check_queue_qdisc_root(
    kernel: &dyn KernelRead,
    interface: &str,
    target: Target<'_>,
    knob: Knob,
) -> Result<(), ApplyError> {
    if knob != Knob::QueueQdisc {
        return Ok(());
    }
    match value_after(kernel, interface, target, Knob::Qdisc) {
        // The kernel's own mq has no handle to reach its queues by.
        Some(Value::Qdisc(root)) if root.kind() != "mq" || root.is_default() => {
            let reason = format!("the root queue discipline would be `{root}`: set qdisc=mq too");
            Err(ApplyError::Unsupported { interface: interface.to_owned(), knob, reason })
        }
        _ => Ok(()),
    }
}

/// The device's value of a knob once the target is reached; `None` where it has none or it cannot be read.
fn value_after(
    kernel: &dyn KernelRead,
    interface: &str,
    target: Target<'_>,
    knob: Knob,
) -> Option<Value> {
    if let Some(value) = target.value(knob, Place::Device) {
        return Some(value.clone());
    }
    let current = read(kernel, interface, knob).ok()?;
    current.into_iter().find(|(place, _)| *place == Place::Device).map(|(_, value)| value)
}

fn is_on(kernel: &dyn KernelRead, interface: &str, switch: Knob) -> bool {
    let is_on = |(_, value): &(Place, Value)| *value == Value::Switch(true);
    read(kernel, interface, switch).is_ok_and(|current| current.iter().any(is_on))
}

fn resolve(
    kernel: &dyn KernelRead,
    interface: &str,
    knob: Knob,
    place: Place,
    named: Named,
) -> Result<Value, KernelError> {
    match kernel.resolve(interface, knob, place, named)? {
        value if !matches!(value, Value::Named(_)) && value.kind() == knob.spec().kind => Ok(value),
        value => Err(KernelError {
            interface: interface.to_owned(),
            knob: Some(knob),
            operation: format!("resolve `{named}` at {place}"),
            kind: KernelErrorKind::Malformed,
            errno: None,
            reason: format!("`{value}` is not a value of it"),
        }),
    }
}

/// Reads back every knob of the target; gives the values that the device rounded, and all that was read.
/// One that `planned` was to take back to what it was has been there before: if it has not moved at all, it
/// was not rounded.
pub(super) fn verify(
    kernel: &dyn KernelRead,
    interface: &str,
    target: Target<'_>,
    planned: &[Change],
) -> Result<(Vec<Change>, Readings), Cause> {
    let is_stuck = |knob: Knob, place: Place, found: &Value| {
        let goes_back = !target.desired.contains_key(&knob);
        let at_place = |change: &&Change| (change.knob, change.place) == (knob, place);
        goes_back && planned.iter().find(at_place).is_some_and(|change| change.from == *found)
    };
    let mut rounded = Vec::new();
    let knobs = target.knobs();
    let readings = read_many(kernel, interface, &knobs);
    for knob in knobs {
        let current = readings.get(&knob).cloned();
        let current = current.unwrap_or_else(|| read(kernel, interface, knob));
        let is_desired = target.desired.contains_key(&knob);
        let current = none_if_absent(current, is_desired)?.unwrap_or_default();
        if is_desired {
            check_in_force(kernel, interface, knob, &current)?;
        }
        let differing = target.differences(kernel, interface, knob, &current)?;
        if target.is_overruled(knob) {
            continue;
        }
        for Change { place, from: found, to: wanted, .. } in differing {
            if is_stuck(knob, place, &found) || !knob.spec().takes(&wanted, &found) {
                let interface = interface.to_owned();
                return Err(Cause::NotTaken { interface, knob, place, wanted, found });
            }
            rounded.push(Change { knob, place, from: wanted, to: found });
        }
    }
    Ok((rounded, readings))
}

/// Refuses a value that no NAPI has: the device keeps it for those to come.
fn check_in_force(
    kernel: &dyn KernelRead,
    interface: &str,
    knob: Knob,
    current: &[(Place, Value)],
) -> Result<(), KernelError> {
    let is_default = current.iter().all(|(place, _)| *place == Place::Device);
    if knob.spec().group != Group::Napi || !is_default {
        return Ok(());
    }
    match kernel.capability(interface, knob) {
        Capability::Settable(_) => Ok(()),
        Capability::ReadOnly(reason) | Capability::Absent(reason) => Err(KernelError {
            interface: interface.to_owned(),
            knob: Some(knob),
            operation: "put it in force".to_owned(),
            kind: KernelErrorKind::Unsupported,
            errno: None,
            reason,
        }),
    }
}

/// Chooses the values to put back: those of the checkpoint, but those of now where somebody else has set them since, which
/// are given too. Values that move by themselves, by adaptive moderation or by the link's other end, are nobody's.
///
/// Fails where a value cannot be read and later can: it may be somebody else's.
pub(super) fn leave_to_others(
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
        let is_moved = adaptive.is_some_and(|adaptive| is_on(kernel, interface, adaptive));
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
pub(super) fn read_unless_busy(
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
/// values of others in the places where it had made a difference.
pub(super) fn still_ours(
    kernel: &dyn KernelRead,
    interface: &str,
    earlier: &Checkpoint,
) -> Result<(State, Vec<Foreign>), ApplyError> {
    let (wanted, mut others) =
        leave_to_others(kernel, interface, earlier).map_err(ApplyError::Unread)?;
    others.retain(|other| !other.knob.spec().same(&other.before, &other.written));
    Ok((wanted, others))
}

/// Reason why a device's value cannot be put back while those of its queues can.
pub(super) const HIDDEN: &str = "its file is hidden or read-only: is `/sys` mounted read-only?";

/// Whether a reading has values of queues and not that of the device, which is hidden from this process then.
pub(super) fn hides_device_value(values: &[(Place, Value)]) -> bool {
    !values.is_empty() && values.iter().all(|(place, _)| *place != Place::Device)
}

/// Refuses to take back a change where a value of the device that would go back with it is [hidden](hides_device_value).
pub(super) fn check_device_values_visible(
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
pub(super) fn check_threads_restorable(
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

/// Refuses a change that would take away queues whose values this process could not write again, as with a read-only `/sys`.
fn check_lost_queues(
    kernel: &dyn KernelRead,
    interface: &str,
    knob: Knob,
    current: &[(Place, Value)],
) -> Result<(), ApplyError> {
    let is_set = |(place, value): &(Place, Value)| {
        matches!(place, Place::RxQueue(_) | Place::TxQueue(_))
            && !kernel.is_fresh(interface, knob, *place, value)
    };
    if knob == Knob::QueueQdisc || !current.iter().any(is_set) {
        return Ok(());
    }
    match kernel.capability(interface, knob) {
        Capability::ReadOnly(reason) => {
            let reason = format!("its values could not be put back: {reason}");
            Err(ApplyError::Unsupported { interface: interface.to_owned(), knob, reason })
        }
        Capability::Settable(_) | Capability::Absent(_) => Ok(()),
    }
}

/// Reads the places where an earlier change made a difference.
pub(super) fn read_standing(
    kernel: &dyn KernelRead,
    interface: &str,
    earlier: &Checkpoint,
) -> Vec<Standing> {
    let mut standings = Vec::new();
    for (knob, mut written) in group_by_knob(&earlier.written) {
        let current = BTreeMap::from_iter(read(kernel, interface, knob).unwrap_or_default());
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

/// The differences between `undo` and the present values; knobs that cannot be read are not listed, and neither is
/// what follows a value that is.
pub(super) fn differences(kernel: &dyn KernelRead, interface: &str, undo: &State) -> Vec<Change> {
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

/// The knobs that making `changes` may reset.
///
/// Where they go back to an old value, they do so before that as well as after: the places may be gone
/// afterwards, and a driver that remembers the values of its NAPIs would keep ours for the next ones.
pub(super) fn collect_exposed_knobs(changes: &[Change]) -> BTreeSet<Knob> {
    changes.iter().flat_map(|change| change.knob.spec().resets).copied().into_set()
}

pub(super) fn is_absence(error: &KernelError) -> bool {
    matches!(error.kind, KernelErrorKind::Unsupported | KernelErrorKind::NoInterface)
}

pub(super) fn group_by_knob(state: &State) -> BTreeMap<Knob, Vec<(Place, &Value)>> {
    let mut knobs: BTreeMap<Knob, Vec<(Place, &Value)>> = BTreeMap::new();
    for ((knob, place), value) in &state.0 {
        knobs.entry(*knob).or_default().push((*place, value));
    }
    knobs
}
