//! Loads that were seen before: known again by what they do without a delay.

use super::load::{Load, distance};
use super::search::DelaySearch;
use super::slot::Seen;

/// Loads that are remembered.
const LOADS: usize = 4;
/// A load is the same if it is not off by more than this share of what makes it another.
const SAME_LOAD_DISTANCE: f64 = 0.6;
/// What was learnt long ago counts as so many slots.
const MAX_RESTORED_SLOTS: u32 = 4;

/// The loads before this one, the newest last.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Memory(Vec<Remembered>);

/// What was learnt of a load, and how far its search had come.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Remembered {
    pub(super) load: Load,
    /// The step that held.
    pub(super) step: usize,
    /// What was under way: a load that only comes for a short while is searched and looked at too.
    pub(super) search: DelaySearch,
    /// Slots between two looks around.
    pub(super) hold_slots: u32,
}

impl Memory {
    /// Keeps a load, instead of the oldest if there are enough.
    pub(super) fn keep(&mut self, remembered: Remembered) {
        if remembered.load.steps[0].slots == 0 {
            return;
        }
        if self.0.len() == LOADS {
            self.0.remove(0);
        }
        self.0.push(remembered);
    }

    /// Takes out the load that does the same without a delay.
    pub(super) fn recall(&mut self, seen: &Seen) -> Option<Remembered> {
        let off = |known: &Remembered| distance(seen, &known.load.steps[0].seen, &known.load, true);
        // A slot that says little of its rate may be further off.
        let most = |known: &Remembered| {
            SAME_LOAD_DISTANCE.max(3.0 * seen.error / known.load.limit(0)).min(1.0)
        };
        let alike = self.0.iter().enumerate().filter(|(_, known)| off(known) < most(known));
        let (idx, _) = alike.min_by(|(_, a), (_, b)| off(a).total_cmp(&off(b)))?;
        let mut found = self.0.remove(idx);
        for step in &mut found.load.steps {
            step.slots = step.slots.min(MAX_RESTORED_SLOTS);
        }
        Some(found)
    }
}
