//! What happens next: one slot per component, and the earliest of them at the root of a winner tree.
//!
//! There are no event objects: a component that has something to do later writes the time into its own
//! slot, and to move or cancel it writes again. The cost depends on the number of components, never on
//! the number of packets in flight. Equal times go to the lower slot, so a run is reproducible.

use latput_units::Nanos;

/// A time in nanoseconds since the start of the run. Inside the simulator time is a plain integer for
/// speed; [`Nanos`] at its borders.
pub(crate) type Time = u64;

/// The time of a slot with nothing to do.
pub(crate) const NEVER: Time = Time::MAX >> SLOT_BITS;

/// A slot's number in the low bits of its key: ties are broken without a second comparison.
const SLOT_BITS: u32 = 12;
const SLOT_MASK: u64 = (1 << SLOT_BITS) - 1;

/// How far beyond the end of a run anything may be planned; checks of scenarios keep within it.
pub(crate) const FARTHEST_AHEAD: Nanos = Nanos::from_s(2 * 86_400);
/// The longest run: about 50 days, so that no time that is planned in it reaches [`NEVER`].
pub(crate) const LONGEST: Nanos = Nanos::from_ns(NEVER - FARTHEST_AHEAD.as_ns());
/// The most components that fit.
pub(crate) const MOST_SLOTS: usize = 1 << SLOT_BITS;

/// The children of one node; wider than two, since a comparison is cheaper than a step up.
const WIDTH: usize = 4;

/// The winner tree: the lowest nodes hold `time << 12 | slot`, each entry above the least of a node below.
#[derive(Debug)]
pub(crate) struct Agenda {
    /// Entries of all nodes; those of node `n` begin at `n * WIDTH`.
    entries: Vec<u64>,
    /// The entry of slot 0.
    first: usize,
    least: u64,
}

impl Agenda {
    /// A tree of `slots` idle slots.
    pub(crate) fn new(slots: usize) -> Self {
        assert!(slots <= MOST_SLOTS, "{slots} components do not fit the agenda's {MOST_SLOTS}");
        let (mut inner, mut leaves) = (0, 1);
        while leaves * WIDTH < slots {
            inner += leaves;
            leaves *= WIDTH;
        }
        let entries = vec![u64::MAX; WIDTH * (inner + leaves)];
        let mut agenda = Self { entries, first: WIDTH * inner, least: u64::MAX };
        for slot in 0..slots {
            agenda.set(slot, NEVER);
        }
        agenda
    }

    /// Sets the time at which `slot` is due; [`NEVER`] cancels it.
    #[inline]
    pub(crate) fn set(&mut self, slot: usize, time: Time) {
        debug_assert!(time <= NEVER, "time {time} does not fit");
        let mut entry = self.first + slot;
        let mut key = time << SLOT_BITS | slot as u64;
        loop {
            let node = entry / WIDTH;
            let entries = &mut self.entries[node * WIDTH..][..WIDTH];
            if entries[entry % WIDTH] == key {
                return;
            }
            entries[entry % WIDTH] = key;
            key = entries[0].min(entries[1]).min(entries[2].min(entries[3]));
            if node == 0 {
                self.least = key;
                return;
            }
            entry = node - 1;
        }
    }

    /// When `slot` is due.
    #[inline]
    pub(crate) fn time(&self, slot: usize) -> Time {
        self.entries[self.first + slot] >> SLOT_BITS
    }

    /// The earliest due time and its slot; the time is [`NEVER`] when nothing is due.
    #[inline]
    pub(crate) fn next(&self) -> (Time, usize) {
        (self.least >> SLOT_BITS, (self.least & SLOT_MASK) as usize)
    }
}

#[cfg(test)]
mod tests {
    use latput_units::Rng;

    use super::*;

    #[test]
    fn the_earliest_slot_wins_and_ties_go_to_the_lower_one() {
        let mut agenda = Agenda::new(5);
        assert_eq!(agenda.next().0, NEVER);
        for (slot, time) in [(4, 10), (1, 20), (3, 10)] {
            agenda.set(slot, time);
        }
        assert_eq!(agenda.next(), (10, 3));
        agenda.set(3, NEVER);
        assert_eq!(agenda.next(), (10, 4));
        agenda.set(4, 30);
        assert_eq!(agenda.next(), (20, 1));
    }

    #[test]
    fn it_agrees_with_a_linear_scan() {
        for slots in [1, 2, 3, 4, 5, 16, 17, 64, 100] {
            let mut rng = Rng::from_seed(slots as u64);
            let mut agenda = Agenda::new(slots);
            let mut times = vec![NEVER; slots];
            for _ in 0..2_000 {
                let slot = rng.below(slots);
                let time = if rng.below(4) == 0 { NEVER } else { rng.below(50) as Time };
                agenda.set(slot, time);
                times[slot] = time;
                let earliest = *times.iter().min().unwrap();
                let first = times.iter().position(|time| *time == earliest).unwrap();
                assert_eq!(agenda.next(), (earliest, first));
            }
        }
    }
}
