//! Loads that were seen before: known again by what they do without a delay.

use super::load::{Load, distance};
use super::params::Params;
use super::search::DelaySearch;
use super::slot::Seen;

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
    pub(super) fn keep(&mut self, remembered: Remembered, params: &Params) {
        if remembered.load.steps[0].slots == 0 {
            return;
        }
        self.0.push(remembered);
        if self.0.len() > params.memory_loads {
            self.0.remove(0);
        }
    }

    /// Takes out the load that does the same without a delay.
    pub(super) fn recall(&mut self, seen: &Seen, params: &Params) -> Option<Remembered> {
        let off = |known: &Remembered| {
            distance(seen, &known.load.steps[0].seen, &known.load, true, params)
        };
        // A slot that says little of its rate may be further off.
        let most = |known: &Remembered| {
            params.same_load_distance.max(3.0 * seen.error / known.load.limit(0, params)).min(1.0)
        };
        let alike = self.0.iter().enumerate().filter(|(_, known)| off(known) < most(known));
        let (idx, _) = alike.min_by(|(_, a), (_, b)| off(a).total_cmp(&off(b)))?;
        let mut found = self.0.remove(idx);
        for step in &mut found.load.steps {
            step.slots = step.slots.min(params.restored_slots);
        }
        Some(found)
    }
}
