//! Reads and checks of a change without a write: what differs from a target, what stands against it, and whether it holds.
//!
//! [`plan`] comes before the first write and [`verify`] after the last. A [`Target`] has the wanted value of each place.

use std::collections::{BTreeMap, BTreeSet};

use latput_units::{IntoMap, IntoSet};

use super::outcome::{ApplyError, Cause, Change};
use crate::catalogue::Knob;
use crate::catalogue::spec::{Group, Tier};
use crate::checkpoint::LinkResets;
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

/// Refuses a knob that cannot be set here.
fn check_settable(kernel: &dyn KernelRead, interface: &str, knob: Knob) -> Result<(), ApplyError> {
    match kernel.capability(interface, knob) {
        Capability::Settable(_) => Ok(()),
        Capability::ReadOnly(reason) | Capability::Absent(reason) => {
            Err(ApplyError::Unsupported { interface: interface.to_owned(), knob, reason })
        }
    }
}

/// Refuses a value whose write would move what cannot be put back, or of which that cannot be told.
fn check_obstacle(
    kernel: &dyn KernelRead,
    interface: &str,
    (knob, to): (Knob, &Value),
    purpose: WritePurpose,
) -> Result<(), ApplyError> {
    let refused =
        |reason| Err(ApplyError::Unsupported { interface: interface.to_owned(), knob, reason });
    match kernel.obstacle_to(interface, knob, to, purpose) {
        Ok(None) => Ok(()),
        Ok(Some(reason)) => refused(reason),
        Err(error) if error.kind == KernelErrorKind::Permission => {
            let cause = Box::new(Cause::Kernel(error));
            Err(ApplyError::Permission { interface: interface.to_owned(), cause })
        }
        Err(error) => refused(format!("it cannot be told what it would move: {}", error.reason)),
    }
}

/// Refuses what the interface is known not to allow, so that nothing is touched in vain.
fn check_limits(
    kernel: &dyn KernelRead,
    interface: &str,
    knob: Knob,
    value: &Value,
) -> Result<(), ApplyError> {
    let spec = knob.spec();
    let number = match value {
        Value::Count(count) => *count,
        Value::Time(time) => time.as_ns() / spec.time_unit().as_ns(),
        _ => return Ok(()),
    };
    let limits = kernel.limits(interface, knob);
    let (min, max) = spec.range_within(limits);
    if (min..=max).contains(&number) {
        return Ok(());
    }
    let allowed = spec.allowed_within(limits);
    let interface = interface.to_owned();
    let value = value.clone();
    Err(ApplyError::OutOfRange { interface, knob, value, allowed })
}

/// Refuses `changes` to `desired` that would take the link down where that is not allowed; going back to
/// what was there before always is. [`apply`](super::apply) asks this too.
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

pub(super) fn is_on(kernel: &dyn KernelRead, interface: &str, switch: Knob) -> bool {
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

/// Whether a driver may have refused a value because of another one beside it.
pub(super) const fn may_want_others(error: &KernelError) -> bool {
    matches!(error.kind, KernelErrorKind::Refused | KernelErrorKind::Unsupported)
}

/// The device's values that one request sets with that of `knob`, where they differ from the target.
///
/// `sfc` wants the delays of both directions equal where they share channels, and `bnxt` takes no combined channels beside
/// separate ones: written one by one, each is refused.
pub(super) struct Differing {
    pub(super) changes: Vec<Change>,
    /// All values of their knobs.
    pub(super) before: State,
}

impl Differing {
    pub(super) fn new(
        kernel: &dyn KernelRead,
        interface: &str,
        knob: Knob,
        target: Target<'_>,
    ) -> Self {
        let mut found = Self { changes: Vec::new(), before: State::default() };
        for peer in kernel.set_with(knob) {
            let current = read(kernel, interface, peer).unwrap_or_default();
            let mut changes =
                target.differences(kernel, interface, peer, &current).unwrap_or_default();
            changes.retain(|change| change.place == Place::Device);
            if !changes.is_empty() {
                let places = current.into_iter().map(|(place, value)| ((peer, place), value));
                found.before.0.extend(places);
                found.changes.extend(changes);
            }
        }
        found
    }

    /// One value alone has been refused by now.
    pub(super) fn are_several(&self) -> bool {
        self.changes.len() > 1
    }

    pub(super) fn values(&self) -> Vec<(Knob, Value)> {
        self.changes.iter().map(|change| (change.knob, change.to.clone())).collect()
    }
}
