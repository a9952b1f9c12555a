//! The journal of committed changes, and what became of each.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use latput_knobs::transaction::{self, Standing};
use latput_knobs::{
    self as knobs, Checkpoint, CheckpointStore as _, KernelRead, Knob, Place, StoreError, Value,
    Whereabouts,
};
use latput_linux::{FileCheckpoints, LinuxKernel, checkpoint};
use latput_protocol::folders;
use latput_report::{interface_words, shell_word};
use latput_units::{IntoSet, Nanos};

use crate::commands::restore::waits_for_other;
use crate::commands::watcher;
use crate::commands::way_back::present_name;
use crate::exit::CliError;

/// An entry of the journal.
pub(super) struct JournalEntry {
    pub(super) number: u64,
    /// The change, under the interface's present name if it is here.
    pub(super) change: Checkpoint,
    /// The values that it changed, with those of now.
    pub(super) values: Vec<Standing>,
    /// The places of those that a later change has written since, each with that change's number.
    pub(super) superseded: BTreeMap<(Knob, Place), u64>,
    pub(super) state: ChangeState,
}

/// State of a change, as the kernel has it now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChangeState {
    InForce,
    /// Some of its values are there, others not.
    InPart,
    UndoneBy(u64),
    /// Its undo was cut short, and may have put some of the values back.
    UndoUnfinished,
    /// The values that it had before are there, and no undo of the journal put them there.
    Back,
    ChangedBy(u64),
    ChangedByOthers,
    /// A change that waits to be confirmed has written its values.
    ChangedByWaiting,
    /// Not known: the disk was full when its values were to be kept.
    Unknown,
    /// It was to be confirmed, and nobody did.
    WentBack,
    BeforeBoot,
    Elsewhere,
    Gone,
}

/// The journal as it is now.
pub(super) struct Journal {
    /// Changes of this boot that are not committed, under the present names of their interfaces.
    pub(super) pending: Vec<UnconfirmedChange>,
    /// The newest first.
    pub(super) entries: Vec<JournalEntry>,
    /// Entries that cannot be read.
    pub(super) damaged: Vec<DamagedEntry>,
    /// Changes that are no entries yet and cannot be read.
    pub(super) unreadable: Vec<StoreError>,
}

/// A change that is no entry of the journal yet.
pub(super) struct UnconfirmedChange {
    pub(super) change: Checkpoint,
    pub(super) state: PendingState,
    /// Whether its interface is in this network namespace.
    pub(super) is_here: bool,
    /// The user to name with `--of` to confirm it or to put it back; `None` for the one who asks.
    pub(super) of: Option<String>,
}

/// State of a change that is no entry of the journal yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PendingState {
    /// It goes back after this time unless it is confirmed.
    Waiting(Nanos),
    /// It should go back after this time, and no process is seen that would put it back.
    Unwatched(Nanos),
    /// The latput of this process is at it; 0 where it cannot be told.
    InUse(u32),
    /// Its maker has ended, or its time is over: a restore ends it.
    Unfinished,
}

/// The number of an entry that cannot be read, and why.
pub(super) struct DamagedEntry {
    pub(super) number: u64,
    why: StoreError,
}

impl fmt::Display for DamagedEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "entry {}: {}", self.number, self.why)
    }
}

impl Journal {
    /// Reads the journal, and from the kernel what became of each change.
    pub(super) fn read() -> Result<Self, CliError> {
        let origin = checkpoint::context()?;
        let kernel = LinuxKernel::open()?;
        let store = FileCheckpoints::new(&folders::checkpoints_dir());
        let (mut kept, mut unreadable) = (Vec::new(), Vec::new());
        for listed in store.list()? {
            match listed {
                Ok(checkpoint) => kept.push(checkpoint),
                Err(error) => unreadable.push(error),
            }
        }
        let pending = kept
            .iter()
            .filter(|kept| kept.boot_id == origin.boot_id)
            .map(|kept| UnconfirmedChange::new(&kernel, &store, &origin, kept.clone()))
            .collect();
        let (waiting, unfinished): (Vec<Checkpoint>, Vec<Checkpoint>) =
            kept.into_iter().partition(|it| it.confirm_by.is_some());
        let cut: BTreeSet<(Option<u64>, String)> =
            unfinished.into_iter().map(|it| (it.undoes, it.boot_id)).into_set();
        let listed = store.journal().entries()?;
        let mut journal = Self { pending, entries: Vec::new(), damaged: Vec::new(), unreadable };
        for (number, change) in listed {
            match change {
                Ok(change) => {
                    let mut entry = build_entry(&kernel, &origin, &journal.entries, number, change);
                    if cut.contains(&(Some(number), entry.change.boot_id.clone())) {
                        entry.state = ChangeState::UndoUnfinished;
                    }
                    if waiting.iter().any(|it| entry.is_overwritten_by_unconfirmed(it)) {
                        entry.state = ChangeState::ChangedByWaiting;
                    }
                    journal.entries.push(entry);
                }
                Err(why) => journal.damaged.push(DamagedEntry { number, why }),
            }
        }
        Ok(journal)
    }

    /// Reasons why entries and other changes cannot be read, in sentences.
    pub(super) fn describe_unread(&self) -> Vec<String> {
        let entries = self.damaged.iter().map(ToString::to_string);
        entries.chain(self.unreadable.iter().map(ToString::to_string)).collect()
    }

    /// The change that the undo of an entry takes back. It is without the values that a later change has made again. Values
    /// from before it that a change made which is undone since are those from before that change.
    pub(super) fn build_undo_checkpoint(&self, entry: &JournalEntry) -> Checkpoint {
        let mut own = entry.without_superseded_values();
        let older = self.older_changes(entry.number);
        for (at, before) in &mut own.undo.0 {
            let moved = older.iter().filter_map(|(older, is_undone)| {
                let place = older.map_place_from(&entry.change, at.1)?;
                Some((older.find_change_at((at.0, place))?, *is_undone))
            });
            for ((from, to), is_undone) in moved {
                if !is_undone || !at.0.spec().same(to, before) {
                    break;
                }
                before.clone_from(from);
            }
        }
        own
    }

    /// Whether an undo of this entry is in force. Values of the entry may be there again all the same.
    pub(super) fn is_undone(&self, entry: &JournalEntry) -> bool {
        self.entries.iter().any(|later| {
            later.change.undoes == Some(entry.number) && later.state == ChangeState::InForce
        })
    }

    /// The changes that were in force before entry `number`, the newest first, each with whether it was undone since.
    fn older_changes(&self, number: u64) -> Vec<(&JournalEntry, bool)> {
        let (mut undone_before, mut undone_since) = (BTreeSet::new(), BTreeSet::new());
        let mut older = Vec::new();
        for entry in &self.entries {
            let is_undone_since = undone_since.contains(&entry.number);
            if entry.change.went_back.is_some() || undone_before.contains(&entry.number) {
                continue;
            }
            match (entry.number.cmp(&number), entry.change.undoes) {
                (Ordering::Greater, Some(undone)) if !is_undone_since => {
                    undone_since.insert(undone);
                }
                (Ordering::Less, Some(undone)) if !is_undone_since => {
                    undone_before.insert(undone);
                }
                (Ordering::Less, _) => older.push((entry, is_undone_since)),
                _ => {}
            }
        }
        older
    }

    /// The newest entry behind this one that cannot be read.
    pub(super) fn find_damaged_since(&self, entry: &JournalEntry) -> Option<u64> {
        let damaged = self.damaged.iter().map(|later| later.number);
        damaged.filter(|number| *number > entry.number).max()
    }

    /// The newest entry behind this one that may have changed the same values, and whose own are not known.
    pub(super) fn find_unknown_since(&self, entry: &JournalEntry) -> Option<u64> {
        let may_have_changed = |later: &&JournalEntry| {
            later.state == ChangeState::Unknown
                && later.change.device.is(&entry.change.device)
                && later.change.undo.0.keys().any(|at| entry.change.undo.0.contains_key(at))
        };
        let unknown = self.entries.iter().filter(may_have_changed).map(|later| later.number);
        let unknown = unknown.filter(|number| *number > entry.number);
        unknown.chain(self.find_damaged_since(entry)).max()
    }
}

impl UnconfirmedChange {
    fn new(
        kernel: &LinuxKernel,
        store: &FileCheckpoints,
        origin: &knobs::Context,
        mut kept: Checkpoint,
    ) -> Self {
        let left = kept.confirm_by.map(|by| by.saturating_sub(origin.since_boot));
        let state = match left {
            Some(left) if left > Nanos::ZERO && watcher::is_watched(&kept) => {
                PendingState::Waiting(left)
            }
            Some(left) if left > Nanos::ZERO => PendingState::Unwatched(left),
            _ => match store.peek(kept.slot(), &kept.interface) {
                Err(StoreError::Locked { pid, .. }) => PendingState::InUse(pid),
                _ => PendingState::Unfinished,
            },
        };
        let name = present_name(kernel, origin, &kept);
        let is_here = name.is_some();
        let maker = kept.by.as_ref().map(|by| by.user.clone());
        let of = maker.filter(|_| waits_for_other(&kept, origin, None));
        if let Some(name) = name {
            kept.interface = name;
        }
        Self { change: kept, state, is_here, of }
    }

    /// The words behind `latput confirm` and `latput restore` for it: `eth0 --of alice`.
    pub(super) fn command_target(&self) -> String {
        let name = interface_words(&self.change.interface);
        match &self.of {
            None => name,
            // Nothing behind `--` is an option.
            Some(user) if name.starts_with("--") => format!("--of {} {name}", shell_word(user)),
            Some(user) => format!("{name} --of {}", shell_word(user)),
        }
    }
}

impl PendingState {
    /// Its name in JSON.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Waiting(_) => "waiting",
            Self::Unwatched(_) => "unwatched",
            Self::InUse(_) => "in-use",
            Self::Unfinished => "unfinished",
        }
    }
}

/// The entry with the number `number`; `later` are the newer entries.
fn build_entry(
    kernel: &LinuxKernel,
    origin: &knobs::Context,
    later: &[JournalEntry],
    number: u64,
    mut change: Checkpoint,
) -> JournalEntry {
    let state = match locate_interface(kernel, origin, &change) {
        Ok(name) => {
            change.interface = name;
            None
        }
        Err(state) => Some(state),
    };
    let values = match state {
        None => transaction::read_standing(kernel, &change),
        Some(_) => Vec::new(),
    };
    let superseded = find_superseded(later, number, &change, &values);
    let state = state.unwrap_or_else(|| classify_change(later, number, &values, &superseded));
    let state = match state {
        ChangeState::ChangedByOthers => {
            find_remover(later, &change, &values).map_or(state, ChangeState::ChangedBy)
        }
        state => state,
    };
    let state = match (&change.went_back, state) {
        (Some(_), ChangeState::BeforeBoot | ChangeState::Elsewhere | ChangeState::Gone)
        | (None, _) => state,
        (Some(_), _) => ChangeState::WentBack,
    };
    JournalEntry { number, change, values, superseded, state }
}

/// The present name of the interface of a change, or why it is not here.
fn locate_interface(
    kernel: &LinuxKernel,
    origin: &knobs::Context,
    change: &Checkpoint,
) -> Result<String, ChangeState> {
    if change.boot_id != origin.boot_id {
        return Err(ChangeState::BeforeBoot);
    }
    let found = kernel.find(&change.device);
    match (change.is_of_namespace(origin), found) {
        (Some(true), Ok(Whereabouts::Here(name))) => Ok(name),
        (_, Ok(Whereabouts::Here(name))) if change.device.is_hardware() => Ok(name),
        (Some(false), _) => Err(ChangeState::Elsewhere),
        _ => Err(ChangeState::Gone),
    }
}

/// The places of `values` that belong to a later change, each with its number. A change takes the places that it writes;
/// an undo gives each place back to the change that had it before the one that it undoes.
fn find_superseded(
    later: &[JournalEntry],
    number: u64,
    change: &Checkpoint,
    values: &[Standing],
) -> BTreeMap<(Knob, Place), u64> {
    let owner = |value: &Standing| {
        let at = (value.knob, value.place);
        let mut before: BTreeMap<u64, u64> = BTreeMap::new();
        let mut owner = number;
        for entry in later.iter().rev() {
            // Also of one that did not write it: it may have taken the place away, as that of a queue.
            before.insert(entry.number, owner);
            if entry.has_changed_place(change, at) {
                let undone = entry.change.undoes.and_then(|undone| before.get(&undone));
                owner = undone.copied().unwrap_or(entry.number);
            }
        }
        (owner != number).then_some((at, owner))
    };
    values.iter().filter_map(owner).collect()
}

/// The later change that has moved a value along from another interface, or has taken its place away; `None` if another
/// program may have.
fn find_remover(later: &[JournalEntry], change: &Checkpoint, values: &[Standing]) -> Option<u64> {
    let linked = Place::Linked(change.device.index);
    let has_moved = |by: &JournalEntry, value: &Standing| {
        let written = &by.change.written.0;
        let is_of_namespace = by.change.namespace == change.namespace;
        if let Some(found) = &value.found {
            return is_of_namespace && written.get(&(value.knob, linked)) == Some(found);
        }
        let at = &(value.knob, value.place);
        by.is_on_same_interface(change)
            && by.change.undo.0.contains_key(at)
            && !written.contains_key(at)
    };
    let gone = || values.iter().filter(|value| !value.is_in_force());
    later.iter().find(|by| gone().any(|value| has_moved(by, value))).map(|by| by.number)
}

fn classify_change(
    later: &[JournalEntry],
    number: u64,
    values: &[Standing],
    superseded: &BTreeMap<(Knob, Place), u64>,
) -> ChangeState {
    if values.is_empty() {
        return ChangeState::Unknown;
    }
    let is_own = |value: &&Standing| !superseded.contains_key(&(value.knob, value.place));
    let in_force = values.iter().filter(is_own).filter(|value| value.is_in_force()).count();
    if in_force == values.len() {
        return ChangeState::InForce;
    }
    if in_force > 0 {
        return ChangeState::InPart;
    }
    let has_undone = |by: &&u64| {
        later.iter().any(|entry| entry.number == **by && entry.change.undoes == Some(number))
    };
    if let Some(by) = superseded.values().find(has_undone) {
        return ChangeState::UndoneBy(*by);
    }
    if let Some(by) = superseded.values().max() {
        return ChangeState::ChangedBy(*by);
    }
    if values.iter().all(Standing::is_back) {
        return ChangeState::Back;
    }
    ChangeState::ChangedByOthers
}

impl JournalEntry {
    /// Whether its values went by a change that waits to be confirmed, and not by another program.
    fn is_overwritten_by_unconfirmed(&self, waiting: &Checkpoint) -> bool {
        let is_overwritten = |value: &Standing| {
            !value.is_in_force() && waiting.undo.0.contains_key(&(value.knob, value.place))
        };
        matches!(self.state, ChangeState::Back | ChangeState::ChangedByOthers)
            && waiting.boot_id == self.change.boot_id
            && self.is_on_same_interface(waiting)
            && self.values.iter().any(is_overwritten)
    }

    fn is_on_same_interface(&self, other: &Checkpoint) -> bool {
        self.change.device.is(&other.device) && self.change.namespace == other.namespace
    }

    /// Whether this change of the interface of `earlier` made what is now in the place of `value`.
    pub(super) fn has_made_current_value(&self, earlier: &Checkpoint, value: &Standing) -> bool {
        let is_same = |own: &&Standing| (own.knob, own.place) == (value.knob, value.place);
        self.is_on_same_interface(earlier)
            && self.values.iter().find(is_same).is_some_and(Standing::is_in_force)
    }

    /// Whether this change wrote this place of the interface of `earlier`, or took it along.
    fn has_changed_place(&self, earlier: &Checkpoint, at: (Knob, Place)) -> bool {
        self.is_on_same_interface(earlier)
            && self.change.boot_id == earlier.boot_id
            && self.change.went_back.is_none()
            && self.find_change_at(at).is_some()
    }

    /// The values before and after this change at a place of its interface where it wrote another one, or took it along.
    fn find_change_at(&self, at: (Knob, Place)) -> Option<(&Value, &Value)> {
        let Checkpoint { undo, written, along, .. } = &self.change;
        [(undo, written), (&along.before, &along.after)].into_iter().find_map(|(from, to)| {
            let (from, to) = (from.0.get(&at)?, to.0.get(&at)?);
            (!at.0.spec().same(from, to)).then_some((from, to))
        })
    }

    /// The place of this change's interface that is `place` of the interface of `other`: an interface on top of another one
    /// is a place of both. `None` if this change cannot have moved it.
    fn map_place_from(&self, other: &Checkpoint, place: Place) -> Option<Place> {
        let Checkpoint { boot_id, namespace, device, .. } = &self.change;
        if *boot_id != other.boot_id {
            return None;
        }
        if self.is_on_same_interface(other) {
            return Some(place);
        }
        let index = place.linked_index().unwrap_or(other.device.index);
        let is_own = index == device.index;
        match place {
            _ if *namespace != other.namespace => None,
            Place::Device | Place::Linked(_) => {
                Some(if is_own { Place::Device } else { Place::Linked(index) })
            }
            Place::Ipv6 | Place::LinkedIpv6(_) => {
                Some(if is_own { Place::Ipv6 } else { Place::LinkedIpv6(index) })
            }
            _ => None,
        }
    }

    /// The change without the values that a later change has made again: taking it back leaves those.
    fn without_superseded_values(&self) -> Checkpoint {
        let mut own = self.change.clone();
        let in_force = self.values.iter().filter(|value| value.is_in_force());
        for value in in_force {
            let at = (value.knob, value.place);
            if self.superseded.contains_key(&at) {
                own.undo.0.remove(&at);
                own.written.0.remove(&at);
            }
        }
        // A value that follows another one of its knob stays where that does.
        let leads: BTreeSet<Knob> = own
            .undo
            .0
            .keys()
            .filter(|(_, place)| !place.is_follower())
            .map(|(knob, _)| *knob)
            .collect();
        own.undo.0.retain(|(knob, _), _| leads.contains(knob));
        own.written.0.retain(|(knob, _), _| leads.contains(knob));
        own
    }
}

/// The command and the user that made a change.
pub(super) fn describe_maker(change: &Checkpoint) -> String {
    match &change.by {
        Some(by) => format!("{} by {}", by.command, by.user),
        None => "an older latput".to_owned(),
    }
}

impl ChangeState {
    /// Its name in JSON.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::InForce => "in-force",
            Self::InPart => "in-part",
            Self::UndoneBy(_) => "undone",
            Self::UndoUnfinished => "undo-unfinished",
            Self::Back => "back",
            Self::ChangedBy(_) => "changed-since",
            Self::ChangedByOthers => "changed-by-others",
            Self::ChangedByWaiting => "changed-by-waiting",
            Self::Unknown => "unknown",
            Self::WentBack => "went-back",
            Self::BeforeBoot => "before-boot",
            Self::Elsewhere => "elsewhere",
            Self::Gone => "gone",
        }
    }

    /// The entry that ended it.
    pub(super) const fn ended_by(self) -> Option<u64> {
        match self {
            Self::UndoneBy(number) | Self::ChangedBy(number) => Some(number),
            _ => None,
        }
    }
}

impl fmt::Display for ChangeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&match self {
            Self::InForce => "in force".to_owned(),
            Self::InPart => "in force in part".to_owned(),
            Self::UndoneBy(number) => format!("undone by {number}"),
            Self::UndoUnfinished => "its undo is unfinished: run `latput restore`".to_owned(),
            Self::Back => "put back by another program".to_owned(),
            Self::ChangedBy(number) => format!("changed since by {number}"),
            Self::ChangedByOthers => "changed since by another program".to_owned(),
            Self::ChangedByWaiting => "changed by one that waits to be confirmed".to_owned(),
            Self::Unknown => "its values are not known".to_owned(),
            Self::WentBack => "put back".to_owned(),
            Self::BeforeBoot => "before the last boot".to_owned(),
            Self::Elsewhere => "of another network namespace".to_owned(),
            Self::Gone => "interface gone".to_owned(),
        })
    }
}
