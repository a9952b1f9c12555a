//! Earlier loads, recognised by their rates without a delay.

use super::load::{Load, distance};
use super::params::Params;
use super::search::DelaySearch;
use super::slot::Seen;

/// Earlier loads, the newest last.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Memory(Vec<Remembered>);

/// An earlier load and the state of its search.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Remembered {
    pub(super) load: Load,
    /// The step that held.
    pub(super) step: usize,
    /// The search, which continues when the load returns: a load of short turns is searched over several turns.
    pub(super) search: DelaySearch,
    /// Slots of the next hold.
    pub(super) hold_slots: u32,
}

impl Memory {
    /// Keeps a load; drops the oldest beyond `memory_loads`.
    pub(super) fn keep(&mut self, remembered: Remembered, params: &Params) {
        if remembered.load.steps[0].slots == 0 {
            return;
        }
        self.0.push(remembered);
        if self.0.len() > params.memory_loads {
            self.0.remove(0);
        }
    }

    /// Takes out the load with the same rates without a delay.
    pub(super) fn recall(&mut self, seen: &Seen, params: &Params) -> Option<Remembered> {
        let apart = |known: &Remembered| {
            distance(seen, &known.load.steps[0].seen, &known.load, true, params)
        };
        // A slot whose rate has a large error may be further apart.
        let most = |known: &Remembered| {
            params.same_load_distance.max(3.0 * seen.error / known.load.limit(0, params)).min(1.0)
        };
        let alike = self.0.iter().enumerate().filter(|(_, known)| apart(known) < most(known));
        let (idx, _) = alike.min_by(|(_, a), (_, b)| apart(a).total_cmp(&apart(b)))?;
        let mut found = self.0.remove(idx);
        for step in &mut found.load.steps {
            step.slots = step.slots.min(params.restored_slots);
        }
        Some(found)
    }
}
