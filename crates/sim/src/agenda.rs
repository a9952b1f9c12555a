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

/// The longest run that fits: about 52 days.
pub(crate) const LONGEST: Nanos = Nanos::from_ns(NEVER - 1);
/// The most components that fit.
pub(crate) const MOST_SLOTS: usize = 1 << SLOT_BITS;

/// The winner tree: leaves hold `time << 12 | slot`, each inner node the smaller of its children.
#[derive(Debug)]
pub(crate) struct Agenda {
    nodes: Vec<u64>,
    leaves: usize,
}

impl Agenda {
    /// A tree of `slots` idle slots.
    pub(crate) fn new(slots: usize) -> Self {
        assert!(slots <= MOST_SLOTS, "{slots} components do not fit the agenda's {MOST_SLOTS}");
        let leaves = slots.next_power_of_two().max(2);
        let mut agenda = Self { nodes: vec![u64::MAX; 2 * leaves], leaves };
        for slot in 0..slots {
            agenda.set(slot, NEVER);
        }
        agenda
    }

    /// Sets the time at which `slot` is due; [`NEVER`] cancels it.
    #[inline]
    pub(crate) fn set(&mut self, slot: usize, time: Time) {
        debug_assert!(time <= NEVER, "time {time} does not fit");
        let nodes = self.nodes.as_mut_slice();
        let mut node = self.leaves + slot;
        nodes[node] = time << SLOT_BITS | slot as u64;
        while node > 1 {
            let smaller = nodes[node].min(nodes[node ^ 1]);
            node /= 2;
            if nodes[node] == smaller {
                return;
            }
            nodes[node] = smaller;
        }
    }

    /// The earliest due time and its slot; the time is [`NEVER`] when nothing is due.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "masked to 12 bits")]
    pub(crate) fn next(&self) -> (Time, usize) {
        let key = self.nodes[1];
        (key >> SLOT_BITS, (key & SLOT_MASK) as usize)
    }

    /// When `slot` is due.
    #[inline]
    pub(crate) fn time_of(&self, slot: usize) -> Time {
        self.nodes[self.leaves + slot] >> SLOT_BITS
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
        for slots in [1, 2, 3, 7, 64, 100] {
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
                assert_eq!(agenda.time_of(slot), time);
            }
        }
    }
}
