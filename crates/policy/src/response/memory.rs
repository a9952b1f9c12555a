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

#[cfg(test)]
mod tests {
    use super::super::search::Test;
    use super::*;
    use crate::ladder::STEPS;

    const PARAMS: Params = Params::DEFAULT;

    /// A load with this rate without a delay, as a logarithm; `step` names it.
    fn known(bytes_log: f64, step: usize, slots: u32) -> Remembered {
        let mut load = Load::new(&PARAMS);
        load.steps[0].seen = Seen { bytes_log, ..Seen::default() };
        load.steps[0].slots = slots;
        load.steps[3].slots = 2;
        let search = DelaySearch::Test(Test::new(0, 1, STEPS));
        Remembered { load, step, search, hold_slots: 12 }
    }

    fn seen(bytes_log: f64, error: f64) -> Seen {
        Seen { bytes_log, error, ..Seen::default() }
    }

    #[test]
    fn four_newest_loads_are_kept() {
        let mut memory = Memory::default();
        for step in 1..=5 {
            memory.keep(known(step as f64, step, 9), &PARAMS);
        }
        assert!(memory.recall(&seen(1.0, 0.0), &PARAMS).is_none(), "the oldest is dropped");
        let found = memory.recall(&seen(2.0, 0.0), &PARAMS).unwrap();
        assert_eq!(found.step, 2);
        assert_eq!(found.load.steps[0].slots, 4, "what is old soon gives way");
        assert_eq!(found.load.steps[3].slots, 2);
        assert!(memory.recall(&seen(2.0, 0.0), &PARAMS).is_none());
        assert!(memory.recall(&seen(5.0, 0.0), &PARAMS).is_some());
    }

    #[test]
    fn load_without_base_rate_is_dropped() {
        let mut memory = Memory::default();
        memory.keep(known(18.0, 1, 0), &PARAMS);
        assert_eq!(memory, Memory::default());
    }

    #[test]
    fn nearest_load_is_found_within_error() {
        // The limit is 0.18: 0.6 of it is 0.108.
        let find = |at: f64, error: f64| {
            let mut memory = Memory::default();
            memory.keep(known(18.0, 1, 9), &PARAMS);
            memory.keep(known(18.1, 2, 9), &PARAMS);
            memory.recall(&seen(at, error), &PARAMS).map(|found| found.step)
        };
        assert_eq!(find(18.04, 0.0), Some(1));
        assert_eq!(find(18.06, 0.0), Some(2));
        assert_eq!(find(18.20, 0.0), Some(2));
        assert_eq!(find(18.22, 0.0), None);
        // Three errors of 0.05 are 0.15; of 0.1 more than the limit itself.
        assert_eq!(find(18.24, 0.05), Some(2));
        assert_eq!(find(18.26, 0.05), None);
        assert_eq!(find(18.27, 0.1), Some(2));
        assert_eq!(find(18.29, 0.1), None);
    }
}
