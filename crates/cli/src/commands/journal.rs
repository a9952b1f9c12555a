//! The journal of committed changes, and what became of each.

use std::fmt;

use latput_experiment::host;
use latput_knobs::transaction::{self, Standing};
use latput_knobs::{self as knobs, Checkpoint, KernelRead, Whereabouts};
use latput_linux::{FileCheckpoints, LinuxKernel, checkpoint};

use crate::exit::{CliError, Code};

/// An entry of the journal.
pub(super) struct JournalEntry {
    pub(super) number: u64,
    /// The change, under the interface's present name if it is here.
    pub(super) change: Checkpoint,
    /// The values that it changed, with those of now.
    pub(super) values: Vec<Standing>,
    pub(super) state: ChangeState,
}

/// What became of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChangeState {
    InForce,
    /// Some of its values are there, others not.
    InPart,
    UndoneBy(u64),
    /// The values that it had before are there, and no undo of the journal put them there.
    Back,
    ChangedBy(u64),
    ChangedByOthers,
    /// What it wrote was not kept, because the disk was full.
    Unknown,
    BeforeBoot,
    Elsewhere,
    Gone,
}

/// The journal as it is now.
pub(super) struct Journal {
    /// The newest first.
    pub(super) entries: Vec<JournalEntry>,
    /// Why other entries cannot be read.
    pub(super) damaged: Vec<String>,
}

impl Journal {
    /// Reads the journal, and from the kernel what became of each change.
    pub(super) fn read() -> Result<Self, CliError> {
        let origin = checkpoint::context()?;
        let kernel = LinuxKernel::open()?;
        let listed = FileCheckpoints::new(&host::checkpoints_dir()).journal().entries();
        let listed =
            listed.map_err(|error| CliError { code: Code::Failed, error: error.into() })?;
        let mut journal = Self { entries: Vec::new(), damaged: Vec::new() };
        for (number, change) in listed {
            match change {
                Ok(change) => {
                    let entry = entry(&kernel, &origin, &journal.entries, number, change);
                    journal.entries.push(entry);
                }
                Err(error) => journal.damaged.push(format!("entry {number}: {error}")),
            }
        }
        Ok(journal)
    }
}

/// The entry with the number `number`; `later` are the newer entries.
fn entry(
    kernel: &LinuxKernel,
    origin: &knobs::Context,
    later: &[JournalEntry],
    number: u64,
    mut change: Checkpoint,
) -> JournalEntry {
    let state = match whereabouts(kernel, origin, &change) {
        Ok(name) => {
            change.interface = name;
            None
        }
        Err(state) => Some(state),
    };
    let values = match state {
        None => transaction::standing(kernel, &change),
        Some(_) => Vec::new(),
    };
    let state = state.unwrap_or_else(|| standing(later, number, &change, &values));
    JournalEntry { number, change, values, state }
}

/// The present name of the interface of a change, or why it is not here.
fn whereabouts(
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

fn standing(
    later: &[JournalEntry],
    number: u64,
    change: &Checkpoint,
    values: &[Standing],
) -> ChangeState {
    if change.written.is_empty() {
        return ChangeState::Unknown;
    }
    let in_force = values.iter().filter(|value| value.is_in_force()).count();
    if in_force == values.len() {
        return ChangeState::InForce;
    }
    if in_force > 0 {
        return ChangeState::InPart;
    }
    if let Some(by) = later.iter().find(|entry| entry.change.undoes == Some(number)) {
        return ChangeState::UndoneBy(by.number);
    }
    if values.iter().all(Standing::is_back) {
        return ChangeState::Back;
    }
    let of = |value: &Standing| later.iter().find(|entry| entry.has_made(change, value));
    let others = values.iter().filter(|value| !value.is_back());
    match others
        .map(of)
        .collect::<Option<Vec<&JournalEntry>>>()
        .and_then(|by| by.into_iter().next())
    {
        Some(by) => ChangeState::ChangedBy(by.number),
        None => ChangeState::ChangedByOthers,
    }
}

impl JournalEntry {
    /// Whether this change of the interface of `earlier` made what is now in the place of `value`.
    pub(super) fn has_made(&self, earlier: &Checkpoint, value: &Standing) -> bool {
        let is_same = |own: &&Standing| (own.knob, own.place) == (value.knob, value.place);
        self.change.device.is(&earlier.device)
            && self.change.namespace == earlier.namespace
            && self.values.iter().find(is_same).is_some_and(Standing::is_in_force)
    }

    /// Who made it.
    pub(super) fn by(&self) -> String {
        match &self.change.by {
            Some(by) => format!("{} by {}", by.command, by.user),
            None => "an older latput".to_owned(),
        }
    }
}

impl ChangeState {
    /// Its name in JSON.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::InForce => "in-force",
            Self::InPart => "in-part",
            Self::UndoneBy(_) => "undone",
            Self::Back => "back",
            Self::ChangedBy(_) => "changed-since",
            Self::ChangedByOthers => "changed-by-others",
            Self::Unknown => "unknown",
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
            Self::Back => "put back by somebody else".to_owned(),
            Self::ChangedBy(number) => format!("changed since by {number}"),
            Self::ChangedByOthers => "changed since by somebody else".to_owned(),
            Self::Unknown => "what it wrote is not known".to_owned(),
            Self::BeforeBoot => "before the last boot".to_owned(),
            Self::Elsewhere => "of another network namespace".to_owned(),
            Self::Gone => "interface gone".to_owned(),
        })
    }
}
