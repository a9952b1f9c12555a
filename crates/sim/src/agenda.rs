//! The event list: one slot per component with the time of its next action, and a search for the
//! earliest slot.
//!
//! There are no event objects. A component writes the time of its next action into its own slot,
//! and writes again to move or cancel it. Slots are written several times as often as the earliest
//! is needed, so a write only marks the minimum of its group as unknown. The cost depends on the
//! number of components, never on the number of packets in flight. Equal times go to the lower
//! slot, so a run is reproducible.

use latput_units::Nanos;

/// A time in nanoseconds since the start of the run. The simulator uses a plain integer for speed
/// and [`Nanos`] in its interface.
pub(crate) type Time = u64;

/// The time of a slot with nothing to do.
pub(crate) const NEVER: Time = Time::MAX >> SLOT_BITS;

/// A slot's number in the low bits of its key: ties are broken without a second comparison.
const SLOT_BITS: u32 = 12;
const SLOT_MASK: u64 = (1 << SLOT_BITS) - 1;

/// Longest time beyond the end of a run for which anything may be planned. Scenarios are checked
/// for it.
pub(crate) const FARTHEST_AHEAD: Nanos = Nanos::from_s(2 * 86_400);
/// The longest run: about 50 days. No time planned in it reaches [`NEVER`].
pub(crate) const LONGEST: Nanos = Nanos::from_ns(NEVER - FARTHEST_AHEAD.as_ns());
/// Most components of a run.
pub(crate) const MOST_SLOTS: usize = 1 << SLOT_BITS;

/// Slots of a group.
const WIDTH: usize = 16;
/// Groups of one bit mask.
const BITS: usize = 64;

/// Due times of all slots, as `time << 12 | slot`.
#[derive(Debug)]
pub(crate) struct Agenda {
    /// Keys of whole groups. Keys beyond the last slot are never due.
    keys: Vec<u64>,
    /// The minimum of each group, if known.
    least: Vec<u64>,
    /// Bit mask of the groups whose minimum is unknown.
    unknown: u64,
}

impl Agenda {
    /// An agenda of idle slots.
    pub(crate) fn new(slots: usize) -> Self {
        assert!(slots <= MOST_SLOTS, "{slots} components do not fit the agenda's {MOST_SLOTS}");
        let groups = slots.div_ceil(WIDTH).max(1);
        let mut agenda = Self {
            keys: vec![u64::MAX; groups * WIDTH],
            least: vec![u64::MAX; groups],
            unknown: 0,
        };
        for slot in 0..slots {
            agenda.set_due_time(slot, NEVER);
        }
        agenda
    }

    /// Sets the time at which `slot` is due; [`NEVER`] cancels it.
    #[inline]
    pub(crate) fn set_due_time(&mut self, slot: usize, time: Time) {
        debug_assert!(time <= NEVER, "time {time} does not fit");
        self.keys[slot] = time << SLOT_BITS | slot as u64;
        self.unknown |= 1 << (slot / WIDTH % BITS);
    }

    /// The due time of `slot`.
    #[inline]
    pub(crate) fn due_time(&self, slot: usize) -> Time {
        self.keys[slot] >> SLOT_BITS
    }

    /// The earliest due time of `slots`.
    #[inline]
    pub(crate) fn earliest_of(&self, slots: &[u32]) -> Time {
        let keys = self.keys.as_slice();
        slots.iter().fold(u64::MAX, |least, slot| least.min(keys[*slot as usize])) >> SLOT_BITS
    }

    /// The earliest due time and its slot; the time is [`NEVER`] when nothing is due.
    #[inline]
    pub(crate) fn next(&mut self) -> (Time, usize) {
        let least = match self.keys.as_slice().try_into() {
            Ok(only) => least_of(only),
            Err(_) => self.least_of_all(),
        };
        (least >> SLOT_BITS, (least & SLOT_MASK) as usize)
    }

    fn least_of_all(&mut self) -> u64 {
        while self.unknown != 0 {
            let first = self.unknown.trailing_zeros() as usize;
            self.unknown &= self.unknown - 1;
            let groups = self.keys.as_chunks().0;
            for group in (first..groups.len()).step_by(BITS) {
                self.least[group] = least_of(&groups[group]);
            }
        }
        self.least.iter().fold(u64::MAX, |least, key| least.min(*key))
    }
}

/// The minimum of a group. Both halves are searched at the same time.
#[inline]
fn least_of(group: &[u64; WIDTH]) -> u64 {
    let (mut least, mut other) = (group[0], group[WIDTH / 2]);
    for idx in 1..WIDTH / 2 {
        least = least.min(group[idx]);
        other = other.min(group[idx + WIDTH / 2]);
    }
    least.min(other)
}

#[cfg(test)]
mod tests {
    use latput_units::SeededRng;

    use super::*;

    #[test]
    fn earliest_slot_wins_with_ties_low() {
        let mut agenda = Agenda::new(5);
        assert_eq!(agenda.next().0, NEVER);
        for (slot, time) in [(4, 10), (1, 20), (3, 10)] {
            agenda.set_due_time(slot, time);
        }
        assert_eq!(agenda.next(), (10, 3));
        agenda.set_due_time(3, NEVER);
        assert_eq!(agenda.next(), (10, 4));
        agenda.set_due_time(4, 30);
        assert_eq!(agenda.next(), (20, 1));
    }

    #[test]
    fn it_agrees_with_a_linear_scan() {
        for slots in [1, 2, 5, 16, 17, 64, 100, 1_024, 1_025, MOST_SLOTS] {
            let mut rng = SeededRng::from_seed(slots as u64);
            let mut agenda = Agenda::new(slots);
            let mut times = vec![NEVER; slots];
            for _ in 0..2_000 {
                let slot = rng.next_below(slots);
                let time = if rng.next_below(4) == 0 { NEVER } else { rng.next_below(50) as Time };
                agenda.set_due_time(slot, time);
                times[slot] = time;
                let earliest = *times.iter().min().unwrap();
                let first = times.iter().position(|time| *time == earliest).unwrap();
                assert_eq!(agenda.next(), (earliest, first));
            }
        }
    }
}
