//! Earlier loads, recognised by their rates without a delay.

use super::load::{LoadProfile, load_distance};
use super::params::ResponseParams;
use super::search::DelaySearch;
use super::slot::SlotRates;

/// Earlier loads, the newest last.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct LoadMemory(Vec<RememberedLoad>);

/// An earlier load and the state of its search.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RememberedLoad {
    pub(super) load: LoadProfile,
    /// The step that held.
    pub(super) step: usize,
    /// The search, which continues when the load returns: a load of short turns is searched over several turns.
    pub(super) search: DelaySearch,
    /// Slots of the next hold.
    pub(super) hold_slots: u32,
}

impl LoadMemory {
    /// Keeps a load; drops the oldest beyond `memory_loads`.
    pub(super) fn store_load(&mut self, remembered: RememberedLoad, params: &ResponseParams) {
        if remembered.load.steps[0].slots == 0 {
            return;
        }
        self.0.push(remembered);
        if self.0.len() > params.memory_loads {
            self.0.remove(0);
        }
    }

    /// Takes out the load with the same rates without a delay.
    pub(super) fn recall_load(
        &mut self,
        seen: &SlotRates,
        params: &ResponseParams,
    ) -> Option<RememberedLoad> {
        let apart = |known: &RememberedLoad| {
            load_distance(seen, &known.load.steps[0].seen, &known.load, true, params)
        };
        // A slot whose rate has a large error may be further apart.
        let most = |known: &RememberedLoad| {
            params
                .same_load_distance
                .max(3.0 * seen.error / known.load.deviation_limit(0, params))
                .min(1.0)
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
    use super::super::search::StepTest;
    use super::*;
    use crate::ladder::STEPS;

    const PARAMS: ResponseParams = ResponseParams::DEFAULT;

    /// A load with this rate without a delay, as a logarithm; `step` names it.
    fn make_remembered_load(bytes_log: f64, step: usize, slots: u32) -> RememberedLoad {
        let mut load = LoadProfile::new(&PARAMS);
        load.steps[0].seen = SlotRates { bytes_log, ..SlotRates::default() };
        load.steps[0].slots = slots;
        load.steps[3].slots = 2;
        let search = DelaySearch::Test(StepTest::new(0, 1, STEPS));
        RememberedLoad { load, step, search, hold_slots: 12 }
    }

    fn make_rates(bytes_log: f64, error: f64) -> SlotRates {
        SlotRates { bytes_log, error, ..SlotRates::default() }
    }

    #[test]
    fn four_newest_loads_are_kept() {
        let mut memory = LoadMemory::default();
        for step in 1..=5 {
            memory.store_load(make_remembered_load(step as f64, step, 9), &PARAMS);
        }
        assert!(
            memory.recall_load(&make_rates(1.0, 0.0), &PARAMS).is_none(),
            "the oldest is dropped"
        );
        let found = memory.recall_load(&make_rates(2.0, 0.0), &PARAMS).unwrap();
        assert_eq!(found.step, 2);
        assert_eq!(found.load.steps[0].slots, 4, "what is old soon gives way");
        assert_eq!(found.load.steps[3].slots, 2);
        assert!(memory.recall_load(&make_rates(2.0, 0.0), &PARAMS).is_none());
        assert!(memory.recall_load(&make_rates(5.0, 0.0), &PARAMS).is_some());
    }

    #[test]
    fn load_without_base_rate_is_dropped() {
        let mut memory = LoadMemory::default();
        memory.store_load(make_remembered_load(18.0, 1, 0), &PARAMS);
        assert_eq!(memory, LoadMemory::default());
    }

    #[test]
    fn nearest_load_is_found_within_error() {
        // The limit is 0.18: 0.6 of it is 0.108.
        let find = |at: f64, error: f64| {
            let mut memory = LoadMemory::default();
            memory.store_load(make_remembered_load(18.0, 1, 9), &PARAMS);
            memory.store_load(make_remembered_load(18.1, 2, 9), &PARAMS);
            memory.recall_load(&make_rates(at, error), &PARAMS).map(|found| found.step)
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
