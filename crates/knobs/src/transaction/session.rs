//! Many changes of one interface in a row, with one way back to where it was before the first.
//!
//! A change is [`Session::apply`]: `steps` plans it, the checkpoint is kept, the values are written, and `steps` verifies them.
//! Values may move with a change that does not name them: `tx-checksum=off` takes `tso` off.

use std::collections::BTreeSet;
use std::fmt;

use latput_units::{IntoMap, Nanos};

use super::outcome::{Applied, ApplyError, Cause, Change, Foreign, RestoreError, Restored};
use super::permit::WritePermit;
use super::put_back;
use super::steps::{
    self, Differing, Planned, Readings, Target, Turn, check_link_resets, may_want_others,
};
use crate::catalogue::Knob;
use crate::catalogue::spec::{Group, Scope};
use crate::checkpoint::{
    Along, Checkpoint, CheckpointStore, Context, LinkResets, Slot, StoreError,
};
use crate::device::Whereabouts;
use crate::kernel::{KernelError, KernelErrorKind, KernelRead, KernelWrite};
use crate::setting::{Setting, State};
use crate::value::{Place, Value};

/// The longest interface name (`IFNAMSIZ` less the terminating zero), in bytes.
const NAME_BYTES_MAX: usize = 15;

/// Knobs whose values the kernel keeps as they are written, place by place: while they are written, there is the old value or the
/// new one, and any other is somebody else's.
const CERTAIN: [Knob; 5] =
    [Knob::Mtu, Knob::Txqueuelen, Knob::RpsCpus, Knob::XpsCpus, Knob::XpsRxqs];

/// The groups in which kernels and drivers move one knob with another. In the others a value that moved meanwhile is
/// more likely somebody else's.
const MOVING: [Group; 3] = [Group::Queues, Group::Link, Group::Offloads];

/// A claimed interface that settings are applied to, one after the other.
///
/// After [`apply`](Self::apply) the interface holds the setting, and what it held before the session
/// in every knob that the setting does not name: the order of settings leaves no trace. Dropping a
/// session, as a panic or an early return does, puts everything back; so does [`close`](Self::close),
/// which also says how that went. A killed process leaves the checkpoint to
/// [`restore`](super::restore()).
pub struct Session<K: KernelWrite, S: CheckpointStore> {
    kernel: K,
    store: S,
    /// Grows with each change that touches a value for the first time; the earliest value stays.
    checkpoint: Checkpoint,
    stage: Stage,
    /// Whether the lock of the host's own knobs is held too.
    holds_host: bool,
    link_resets: LinkResets,
    /// When it was opened, since the boot.
    opened: Nanos,
    /// Knobs that somebody else has taken over.
    given_up: BTreeSet<Knob>,
    /// Values of the named knobs before the first write after they were named: a write may move others, and their
    /// values then are not those to go back to.
    first: State,
    /// Knobs that an earlier setting has changed, so that they are known to be settable.
    proven: BTreeSet<Knob>,
}

/// How far a session is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The interface is claimed and untouched.
    Claimed,
    /// The store holds a checkpoint, and the interface may be changed.
    Saved,
    /// It was closed, committed or left.
    Ended,
}

impl<K: KernelWrite, S: CheckpointStore> Session<K, S> {
    /// Claims `interface`. An interface with a checkpoint that an earlier change left is refused,
    /// because its values of now are not the ones to go back to.
    pub fn open(
        kernel: K,
        mut store: S,
        context: &Context,
        interface: &str,
    ) -> Result<Self, ApplyError> {
        let checkpoint = identify(&kernel, context, interface)?;
        let slot = checkpoint.slot();
        let mut left = store.claim(slot, interface).map_err(ApplyError::of_store)?;
        if left.is_none() && checkpoint.device.is_hardware() {
            // It may have had another number, or been in another namespace.
            let listed = store.list().map_err(ApplyError::of_store)?;
            left = listed
                .into_iter()
                .flatten()
                .find(|kept| kept.boot_id == context.boot_id && kept.device.is(&checkpoint.device));
        }
        // A checkpoint of an earlier boot is obsolete: its settings ended with that boot.
        if let Some(left) = left.filter(|kept| kept.boot_id == context.boot_id) {
            let left = with_present_name(&kernel, left);
            return Err(ApplyError::left_by(left, (context.since_boot, &context.by.user)));
        }
        Ok(Self {
            kernel,
            store,
            checkpoint,
            stage: Stage::Claimed,
            holds_host: false,
            link_resets: context.link_resets,
            opened: context.since_boot,
            given_up: BTreeSet::new(),
            first: State::default(),
            proven: BTreeSet::new(),
        })
    }

    /// The kernel, to read with.
    pub fn kernel(&self) -> &K {
        &self.kernel
    }

    /// How to go back, as far as it is known by now.
    pub fn checkpoint(&self) -> &Checkpoint {
        &self.checkpoint
    }

    /// The changes that [`apply`](Self::apply) would make first, found with the same checks and without a write.
    pub fn rehearse(&self, desired: &Setting) -> Result<Vec<Change>, ApplyError> {
        let desired = self.without_given_up(desired);
        let interface = &self.checkpoint.interface;
        let nothing = State::default();
        let target = Target { desired: &desired, wanted: &nothing, undo: &nothing };
        let changes = steps::plan(&self.kernel, interface, target, &BTreeSet::new())?.changes;
        let allowed = self.link_resets;
        check_link_resets(&self.kernel, allowed, interface, &desired, &changes)?;
        Ok(changes)
    }

    /// Leaves a knob to somebody else, who has changed it meanwhile: it is neither set by later settings
    /// nor put back. Where a later change of ours would lose the other's value, that is what is written
    /// again.
    pub fn give_up(&mut self, knob: Knob) -> Result<(), StoreError> {
        self.given_up.insert(knob);
        self.first.forget(knob);
        let mut reduced = self.checkpoint.clone();
        reduced.undo.forget(knob);
        reduced.written.forget(knob);
        if reduced.undo != self.checkpoint.undo {
            self.store.save(&reduced)?;
            self.checkpoint = reduced;
        }
        Ok(())
    }

    /// The knobs that were left to somebody else.
    pub fn given_up(&self) -> &BTreeSet<Knob> {
        &self.given_up
    }

    /// Whether a value that moved while the link went down and up is nobody's: drivers make queues and NAPIs anew then,
    /// with what they had before the first setting, or with nothing.
    pub fn is_lost_with_link(&self, change: &Change) -> bool {
        let Change { knob, place, to, .. } = change;
        let first = self.checkpoint.undo.0.get(&(*knob, *place));
        let is_fresh = || self.kernel.is_fresh(self.interface(), *knob, *place, to);
        knob.is_lost_at_open() && (first == Some(to) || is_fresh())
    }

    /// Moves the interface to `desired`, and every knob of an earlier setting that `desired` does not
    /// name back to its first value. When that fails, everything is as before this call. Knobs that were
    /// [given up](Self::give_up) stay as they are.
    pub fn apply(&mut self, desired: &Setting) -> Result<Applied, ApplyError> {
        let desired = self.without_given_up(desired);
        self.follow_rename()?;
        self.claim_host_lock(desired.keys())?;
        self.move_to(&desired, &desired, &State::default())
    }

    /// Takes back an earlier change, as [`undo`](super::undo()) does.
    pub(super) fn undo(
        &mut self,
        earlier: &Checkpoint,
    ) -> Result<(Applied, Vec<Foreign>), ApplyError> {
        self.follow_rename()?;
        self.claim_host_lock(earlier.undo.0.keys().map(|(knob, _)| knob))?;
        let (wanted, others) =
            put_back::find_values_to_undo(&self.kernel, self.interface(), earlier)?;
        let values = wanted.0.iter().map(|((knob, _), value)| (*knob, value.clone()));
        let named: Setting = values.into_map();
        Ok((self.move_to(&Setting::new(), &named, &wanted)?, others))
    }

    /// Moves the interface to `desired`, and to `wanted` at single places. `named` are the knobs that the
    /// caller asked for: their link resets must be allowed.
    fn move_to(
        &mut self,
        desired: &Setting,
        named: &Setting,
        wanted: &State,
    ) -> Result<Applied, ApplyError> {
        let (interface, planned) = self.plan_under_one_name(desired, wanted)?;
        let mut rounded = Vec::new();
        let allowed = self.link_resets;
        check_link_resets(&self.kernel, allowed, &interface, named, &planned.changes)?;
        let own = (&self.checkpoint, self.opened);
        check_neighbours(&self.kernel, &self.store, own, &planned)?;
        let mut found = planned.readings;
        for (place, value) in &planned.before.0 {
            self.first.0.entry(*place).or_insert_with(|| value.clone());
        }
        if !planned.changes.is_empty() {
            self.checkpoint.planned = self.certain_values(&planned.changes);
            self.remember(&planned.touched).map_err(ApplyError::of_store)?;
            let mut writes_done = 0;
            let goal = (desired, wanted);
            match self.write(goal, &planned.changes, found, &mut writes_done) {
                Ok(verified) => (rounded, found) = verified,
                Err(cause) => return Err(self.roll_back(planned.before, cause, writes_done > 0)),
            }
        }
        self.proven.extend(planned.changes.iter().map(|change| change.knob));
        let mut found = State(steps::values(found).into_map());
        // A place that the change took away, as that of a queue, holds nothing.
        let mut changes = planned.changes;
        changes.retain(|change| found.0.contains_key(&(change.knob, change.place)));
        if !changes.is_empty()
            && let Err(error) = self.note_written(&found)
        {
            return Err(self.roll_back(planned.before, error.into(), true));
        }
        found.0.retain(|(_, place), _| !place.is_follower());
        let (along, lost, undo) = (Vec::new(), Vec::new(), self.checkpoint.clone());
        Ok(Applied { changes, along, lost, rounded, found, undo })
    }

    /// Plans a change with readings of one interface: one that was renamed meanwhile is read again, as another may have its
    /// name.
    fn plan_under_one_name(
        &mut self,
        desired: &Setting,
        wanted: &State,
    ) -> Result<(String, Planned), ApplyError> {
        loop {
            let interface = self.checkpoint.interface.clone();
            let target = Target { desired, wanted, undo: &self.checkpoint.undo };
            let planned = steps::plan(&self.kernel, &interface, target, &self.proven);
            self.follow_rename()?;
            if interface == self.checkpoint.interface {
                return Ok((interface, planned?));
            }
        }
    }

    /// Goes back to `before`, the values before a change that `cause` has stopped.
    fn roll_back(&mut self, before: State, cause: Cause, changed: bool) -> ApplyError {
        // Values that were first seen on the way go back to what they were then; those in `before` are newer than the
        // checkpoint's when the session is not at its first change.
        let mut undo = self.checkpoint.undo.clone();
        undo.0.extend(before.0);
        let ending = put_back::put_back(&mut self.kernel, &self.checkpoint, &undo);
        ApplyError::after_rollback(self.interface(), cause, changed, ending)
    }

    /// Puts the interface back to where it was when the session was opened.
    pub fn close(mut self) -> Result<Restored, RestoreError> {
        let touched = self.stage == Stage::Saved;
        self.stage = Stage::Ended;
        let Self { kernel, store, checkpoint, .. } = &mut self;
        let ended = if touched {
            let at = kernel.find(&checkpoint.device);
            put_back::restore_and_forget(kernel, store, checkpoint, at)
        } else {
            put_back::forget(store, checkpoint).map(|()| Restored::NothingToDo)
        };
        self.release_host_lock();
        ended
    }

    /// Stays with the values of now and forgets the way back, also in the journal.
    pub fn commit(mut self) -> Result<(), StoreError> {
        self.stage = Stage::Ended;
        let removed = self.store.remove(self.checkpoint.slot());
        self.release_host_lock();
        removed
    }

    /// Ends the session but leaves the values of now, and the checkpoint in the store.
    pub(super) fn leave(mut self) {
        self.stage = Stage::Ended;
        if !self.checkpoint.holds_host_knobs() {
            self.release_host_lock();
        }
    }

    /// Takes the lock of the host's own knobs when one of them is wanted for the first time: they are
    /// the same through every interface, so that neither another latput nor the checkpoint that one
    /// left may have a say in them.
    fn claim_host_lock<'a>(
        &mut self,
        mut knobs: impl Iterator<Item = &'a Knob>,
    ) -> Result<(), ApplyError> {
        if self.holds_host || !knobs.any(|knob| knob.spec().scope == Scope::Host) {
            return Ok(());
        }
        let host = Slot::host(self.checkpoint.namespace);
        self.store.claim(host, &self.checkpoint.interface).map_err(ApplyError::of_store)?;
        self.holds_host = true;
        let listed = self.store.list().map_err(ApplyError::of_store)?;
        let left = listed.into_iter().flatten().find(|kept| {
            kept.boot_id == self.checkpoint.boot_id
                && kept.slot() != self.checkpoint.slot()
                && kept.holds_host_knobs()
        });
        match left {
            Some(checkpoint) => {
                self.release_host_lock();
                let checkpoint = with_present_name(&self.kernel, checkpoint);
                let by = self.checkpoint.by.as_ref().map_or("", |by| by.user.as_str());
                Err(ApplyError::left_by(checkpoint, (self.opened, by)))
            }
            None => Ok(()),
        }
    }

    fn release_host_lock(&mut self) {
        if std::mem::take(&mut self.holds_host) {
            // Nothing is kept under that name, and the lock ends with the process at the latest.
            let _ = self.store.remove(Slot::host(self.checkpoint.namespace));
        }
    }

    /// Takes the name that the interface has now.
    fn follow_rename(&mut self) -> Result<(), ApplyError> {
        let device = &self.checkpoint.device;
        match self.kernel.find(device).map_err(ApplyError::Unread)? {
            Whereabouts::Here(name) => self.checkpoint.interface = name,
            Whereabouts::Deleted | Whereabouts::Unknown => {
                let interface = self.checkpoint.interface.clone();
                let reason = format!("there is no interface with {device} any more");
                return Err(ApplyError::Unread(KernelError {
                    interface,
                    knob: None,
                    operation: "find it again".to_owned(),
                    kind: KernelErrorKind::NoInterface,
                    errno: None,
                    reason,
                }));
            }
        }
        Ok(())
    }

    fn without_given_up(&self, desired: &Setting) -> Setting {
        let mut desired = desired.clone();
        desired.retain(|knob, _| !self.given_up.contains(knob));
        desired
    }

    /// The planned values of [`CERTAIN`] knobs that no other knob of the change resets, and no earlier setting of this session has
    /// moved.
    fn certain_values(&self, planned: &[Change]) -> State {
        let exposed = steps::collect_exposed_knobs(planned);
        let is_certain = |change: &&Change| {
            let first = self.checkpoint.undo.0.get(&(change.knob, change.place));
            CERTAIN.contains(&change.knob)
                && !change.place.is_follower()
                && !exposed.contains(&change.knob)
                && first.is_none_or(|first| *first == change.from)
        };
        let certain = planned.iter().filter(is_certain);
        State(certain.map(|change| ((change.knob, change.place), change.to.clone())).into_map())
    }

    /// Adds to the checkpoint what is not in it yet, and keeps it durably before it is needed.
    fn remember(&mut self, values: &State) -> Result<(), StoreError> {
        let mut extended = self.checkpoint.clone();
        for (place, value) in &values.0 {
            let value = self.first.0.get(place).unwrap_or(value);
            extended.undo.0.entry(*place).or_insert_with(|| value.clone());
        }
        // A write may move what it does not name: until all is read back, whatever is there is ours.
        extended.written = State::default();
        if extended != self.checkpoint {
            self.store.save(&extended)?;
            self.checkpoint = extended;
            self.stage = Stage::Saved;
        }
        Ok(())
    }

    /// Keeps what the change made of the values to put back.
    fn note_written(&mut self, found: &State) -> Result<(), StoreError> {
        let mut noted = self.checkpoint.clone();
        noted.written = found.clone();
        noted.planned = State::default();
        noted.written.0.retain(|place, _| noted.undo.0.contains_key(place));
        self.store.save(&noted)?;
        self.checkpoint = noted;
        Ok(())
    }

    /// The present values of the knobs that may move with others.
    pub(super) fn read_movable(&self) -> State {
        let may_move = |knob: &&Knob| {
            let spec = knob.spec();
            MOVING.contains(&spec.group) && spec.overruled_by.is_none() && !spec.is_negotiated
        };
        let knobs: Vec<Knob> = Knob::ALL.iter().filter(may_move).copied().collect();
        let readings = steps::read_many(&self.kernel, self.interface(), &knobs);
        State(steps::values(readings).into_map())
    }

    /// Adds the values that a change took along from what they were `before` it. The checkpoint keeps them for the journal;
    /// where that fails, the change goes back.
    pub(super) fn add_along(
        &mut self,
        mut applied: Applied,
        before: &State,
    ) -> Result<Applied, ApplyError> {
        if applied.changes.is_empty() {
            return Ok(applied);
        }
        let own = applied.undo.undo.0.keys().map(|(knob, _)| *knob).collect();
        let mut along = moved(before, &self.read_movable(), &own);
        applied.add_moved();
        along.before.0.extend(lost(&self.kernel, &applied.undo));
        applied.lost = along.lost();
        if !along.is_empty() {
            applied.along.extend(along.changes());
            let noted = Checkpoint { along, ..self.checkpoint.clone() };
            if let Err(error) = self.store.save(&noted) {
                return Err(self.roll_back(State::default(), error.into(), true));
            }
            self.checkpoint = noted;
            applied.undo = self.checkpoint.clone();
        }
        Ok(applied)
    }

    /// Writes what differs and verifies all of it; stops at the first failure.
    fn write(
        &mut self,
        (desired, wanted): (&Setting, &State),
        planned: &[Change],
        mut readings: Readings,
        writes_done: &mut usize,
    ) -> Result<(Vec<Change>, Readings), Cause> {
        let knobs = Target { desired, wanted, undo: &self.checkpoint.undo }.knobs();
        let going_back =
            steps::collect_exposed_knobs(planned).into_iter().filter(|k| !desired.contains_key(k));
        let order: Vec<Knob> = going_back.chain(knobs).collect();
        for (at, &knob) in order.iter().enumerate() {
            for turn in steps::TURNS {
                if !readings.contains_key(&knob) {
                    readings = steps::read_many(&self.kernel, self.interface(), &order[at..]);
                }
                let current = readings.get(&knob).cloned();
                let current =
                    current.unwrap_or_else(|| steps::read(&self.kernel, self.interface(), knob));
                let before = *writes_done;
                self.write_knob((desired, wanted), (knob, turn), current, writes_done)?;
                if *writes_done > before {
                    // A write may have reset other knobs, or created their places.
                    readings.clear();
                }
            }
        }
        let target = Target { desired, wanted, undo: &self.checkpoint.undo };
        steps::verify(&self.kernel, self.interface(), target, planned)
    }

    fn write_knob(
        &mut self,
        (desired, wanted): (&Setting, &State),
        (knob, turn): (Knob, Turn),
        current: Result<Vec<(Place, Value)>, KernelError>,
        writes_done: &mut usize,
    ) -> Result<(), Cause> {
        let current = steps::none_if_absent(current, desired.contains_key(&knob))?;
        let current = current.unwrap_or_default();
        let target = Target { desired, wanted, undo: &self.checkpoint.undo };
        let mut changes = target.differences(&self.kernel, self.interface(), knob, &current)?;
        changes.retain(|change| turn.takes(change.place));
        if changes.is_empty() {
            return Ok(());
        }
        // All places, since a device-wide write takes the others along; those that the plan has seen
        // are in the checkpoint already.
        let places = current.into_iter().map(|(place, value)| ((knob, place), value));
        self.remember(&State(places.into_map()))?;
        let values: Vec<_> = changes.into_iter().map(|change| (change.place, change.to)).collect();
        let is_of_device = matches!(turn, Turn::DeviceWide);
        let interface = &self.checkpoint.interface;
        let permit = WritePermit::new();
        if !self.proven.contains(&knob) {
            self.kernel.rewrite(&permit, interface, knob).inspect_err(|_| *writes_done += 1)?;
        }
        match self.kernel.write_many(&permit, interface, knob, &values, writes_done) {
            Err(refusal) if is_of_device && may_want_others(&refusal) => {
                self.write_together((desired, wanted), knob, refusal, writes_done)
            }
            written => Ok(written?),
        }
    }

    /// Writes a refused value of the device again, together with those that one request sets with it.
    fn write_together(
        &mut self,
        (desired, wanted): (&Setting, &State),
        knob: Knob,
        refusal: KernelError,
        writes_done: &mut usize,
    ) -> Result<(), Cause> {
        let target = Target { desired, wanted, undo: &self.checkpoint.undo };
        let differing = Differing::new(&self.kernel, self.interface(), knob, target);
        if !differing.are_several() {
            return Err(refusal.into());
        }
        self.remember(&differing.before)?;
        let (permit, values) = (WritePermit::new(), differing.values());
        self.kernel
            .write_together(&permit, &self.checkpoint.interface, &values)
            .map_err(|_| refusal)?;
        *writes_done += values.len();
        Ok(())
    }

    fn interface(&self) -> &str {
        &self.checkpoint.interface
    }
}

impl<K: KernelWrite, S: CheckpointStore> Drop for Session<K, S> {
    fn drop(&mut self) {
        let Self { kernel, store, checkpoint, stage, .. } = self;
        // There is nobody to tell about a failure here; the checkpoint that it leaves tells it.
        match stage {
            Stage::Claimed => drop(put_back::forget(store, checkpoint)),
            Stage::Saved => {
                let at = kernel.find(&checkpoint.device);
                drop(put_back::restore_and_forget(kernel, store, checkpoint, at));
            }
            Stage::Ended => return,
        }
        self.release_host_lock();
    }
}

impl<K: KernelWrite, S: CheckpointStore> fmt::Debug for Session<K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("checkpoint", &self.checkpoint)
            .field("stage", &self.stage)
            .finish_non_exhaustive()
    }
}

/// Finds which device `interface` is: a checkpoint of it that holds no value yet.
pub(super) fn identify(
    kernel: &dyn KernelRead,
    context: &Context,
    interface: &str,
) -> Result<Checkpoint, ApplyError> {
    check_name(interface)?;
    let device = kernel.device(interface).map_err(steps::unread_error)?;
    Ok(Checkpoint::new(context, interface, device))
}

/// Refuses a change that shares values with a change of another interface that waits to be confirmed. It may move values of
/// that interface. The waiting change may have moved values of this one. Both may move values of a third interface.
/// Whichever went back first would restore values that the other has made.
pub(super) fn check_neighbours(
    kernel: &dyn KernelRead,
    store: &dyn CheckpointStore,
    (own, now): (&Checkpoint, Nanos),
    planned: &Planned,
) -> Result<(), ApplyError> {
    let moves = |knob: Knob| planned.changes.iter().any(|change| change.knob == knob);
    if !planned.changes.iter().any(|change| change.knob.moves_linked()) {
        return Ok(());
    }
    let knobs_linked = |state: &State, index: u32| -> BTreeSet<Knob> {
        let places = state.0.keys().filter(|(_, place)| place.linked_index() == Some(index));
        places.map(|(knob, _)| *knob).collect()
    };
    let is_moved_along = |other: &Checkpoint| {
        let linked = knobs_linked(&planned.touched, other.device.index);
        other.undo.0.keys().any(|(knob, _)| linked.contains(knob))
    };
    let has_moved_ours =
        |other: &Checkpoint| knobs_linked(&other.undo, own.device.index).into_iter().any(moves);
    // Two ports move IPv6 on their bridge.
    let moves_the_same = |other: &Checkpoint| {
        let is_of_third = |at: &&(Knob, Place)| at.1.linked_index().is_some();
        planned.touched.0.keys().filter(is_of_third).any(|at| other.undo.0.contains_key(at))
    };
    let waits = |other: &Checkpoint| {
        let is_here = (&other.boot_id, other.namespace) == (&own.boot_id, own.namespace);
        is_here && other.slot() != own.slot() && other.confirm_by.is_some_and(|by| by > now)
    };
    let listed = store.list().map_err(ApplyError::of_store)?;
    let found = listed.into_iter().flatten().find(|other| {
        let is_entangled =
            || is_moved_along(other) || has_moved_ours(other) || moves_the_same(other);
        waits(other) && is_entangled()
    });
    let user = own.by.as_ref().map_or("", |by| by.user.as_str());
    found.map_or(Ok(()), |other| {
        Err(ApplyError::left_by(with_present_name(kernel, other), (now, user)))
    })
}

/// The kernel's rule for names (`dev_valid_name` in `net/core/dev.c`), which also keeps a name from
/// reaching another file in sysfs or in the store.
pub(super) fn check_name(interface: &str) -> Result<(), ApplyError> {
    let valid = (1..=NAME_BYTES_MAX).contains(&interface.len())
        && !matches!(interface, "." | "..")
        && !interface.contains(|c: char| matches!(c, '/' | ':' | '\0') || c.is_whitespace());
    if valid {
        Ok(())
    } else {
        let interface = interface.chars().take(80).collect();
        Err(ApplyError::InvalidName { interface })
    }
}

/// The name that the interface of a checkpoint has now.
pub(super) fn present_name(kernel: &dyn KernelRead, earlier: &Checkpoint) -> String {
    match kernel.find(&earlier.device) {
        Ok(Whereabouts::Here(name)) => name,
        _ => earlier.interface.clone(),
    }
}

/// The checkpoint under the name that its interface has now, for people.
pub(super) fn with_present_name(kernel: &dyn KernelRead, mut left: Checkpoint) -> Checkpoint {
    left.interface = present_name(kernel, &left);
    left
}

/// The values that are not what they were, but for those of the change's own knobs and of places that came or went.
fn moved(before: &State, after: &State, own: &BTreeSet<Knob>) -> Along {
    let mut along = Along::default();
    for Change { knob, place, from, to } in differences(before, after) {
        if !own.contains(&knob) {
            along.before.0.insert((knob, place), from);
            along.after.0.insert((knob, place), to);
        }
    }
    along
}

impl Applied {
    /// Adds the values of its own knobs that were not planned: those of queues that came with the change, and those of other
    /// interfaces.
    fn add_moved(&mut self) {
        let of_change = differences(&self.undo.undo, &self.undo.written);
        let is_planned = |moved: &Change| {
            self.changes.iter().any(|it| (it.knob, it.place) == (moved.knob, moved.place))
        };
        let unplanned =
            of_change.into_iter().filter(|moved| moved.place.is_reported() && !is_planned(moved));
        let (own, others): (Vec<Change>, Vec<Change>) =
            unplanned.partition(|moved| !moved.place.is_follower());
        self.changes.extend(own);
        self.along.extend(others);
    }
}

impl Along {
    /// The values that moved, one by one.
    pub fn changes(&self) -> Vec<Change> {
        differences(&self.before, &self.after)
    }

    /// The values of places that the change took away, such as those of a queue.
    pub fn lost(&self) -> Vec<(Knob, Place, Value)> {
        let lost = self.before.0.iter().filter(|(at, _)| !self.after.0.contains_key(at));
        lost.map(|((knob, place), value)| (*knob, *place, value.clone())).collect()
    }
}

/// The values that somebody had set in places that a change took away.
fn lost<'a>(
    kernel: &'a dyn KernelRead,
    change: &'a Checkpoint,
) -> impl Iterator<Item = ((Knob, Place), Value)> + 'a {
    let is_lost = move |((knob, place), value): &(&(Knob, Place), &Value)| {
        !place.is_follower()
            && !change.written.0.contains_key(&(*knob, *place))
            && !kernel.is_fresh(&change.interface, *knob, *place, value)
    };
    let lost = change.undo.0.iter().filter(is_lost);
    lost.map(|(at, value)| (*at, value.clone()))
}

/// The places of `before` that have another value in `after`.
fn differences(before: &State, after: &State) -> Vec<Change> {
    let pairs = before.0.iter().filter_map(|(at, from)| Some((at, from, after.0.get(at)?)));
    let change = |((knob, place), from, to): (&(Knob, _), &Value, &Value)| Change {
        knob: *knob,
        place: *place,
        from: from.clone(),
        to: to.clone(),
    };
    pairs.filter(|((knob, _), from, to)| !knob.spec().same(from, to)).map(change).collect()
}
