//! Values that move with a change although it does not name them: `tx-checksum=off` takes `tso` off.

use std::collections::BTreeSet;

use latput_units::IntoMap;

use super::outcome::{Applied, ApplyError, Change};
use super::session::Session;
use super::steps;
use crate::catalogue::Knob;
use crate::catalogue::spec::Group;
use crate::checkpoint::{Along, Checkpoint, CheckpointStore};
use crate::kernel::{KernelRead, KernelWrite};
use crate::setting::State;
use crate::value::{Place, Value};

/// The groups in which kernels and drivers move one knob with another. In the others a value that moved meanwhile is
/// more likely somebody else's.
const MOVING: [Group; 3] = [Group::Queues, Group::Link, Group::Offloads];

impl<K: KernelWrite, S: CheckpointStore> Session<K, S> {
    /// Makes a change, and finds the values that it takes along. The checkpoint keeps them for the journal.
    pub(super) fn with_along<T>(
        &mut self,
        change: impl FnOnce(&mut Self) -> Result<T, ApplyError>,
        applied: impl FnOnce(&mut T) -> &mut Applied,
    ) -> Result<T, ApplyError> {
        let before = moving(self.kernel(), &self.checkpoint().interface);
        let mut ended = change(self)?;
        let applied = applied(&mut ended);
        if applied.changes.is_empty() {
            return Ok(ended);
        }
        let after = moving(self.kernel(), &self.checkpoint().interface);
        let own = applied.undo.undo.0.keys().map(|(knob, _)| *knob).collect();
        let mut along = moved(&before, &after, &own);
        applied.add_moved();
        along.before.0.extend(lost(self.kernel(), &applied.undo));
        applied.lost = along.lost();
        if !along.is_empty() {
            applied.along.extend(along.changes());
            self.note_along(along)?;
            applied.undo = self.checkpoint().clone();
        }
        Ok(ended)
    }
}

/// The present values of the knobs that may move with others.
fn moving(kernel: &dyn KernelRead, interface: &str) -> State {
    let may_move = |knob: &&Knob| {
        let spec = knob.spec();
        MOVING.contains(&spec.group) && spec.overruled_by.is_none() && !spec.is_negotiated
    };
    let knobs: Vec<Knob> = Knob::ALL.iter().filter(may_move).copied().collect();
    State(steps::values(steps::read_many(kernel, interface, &knobs)).into_map())
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
