//! What happens next: one slot per component, and the earliest of them found when somebody asks.
//!
//! There are no event objects: a component that has something to do later writes the time into its own
//! slot, and to move or cancel it writes again. Slots are written several times as often as the earliest is
//! asked for, so a write only notes that the least of its group is no longer known. The cost depends on the
//! number of components, never on the number of packets in flight. Equal times go to the lower slot, so a run
//! is reproducible.

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

/// Slots of a group.
const WIDTH: usize = 16;
/// A bit of a word stands for every so many groups.
const BITS: usize = 64;

/// What each slot is due at, as `time << 12 | slot`.
#[derive(Debug)]
pub(crate) struct Agenda {
    /// Of whole groups; what is beyond the last slot is never due.
    keys: Vec<u64>,
    /// Of each group the least, as far as it is known.
    least: Vec<u64>,
    /// The groups of which it is not.
    unknown: u64,
}

impl Agenda {
    /// So many idle slots.
    pub(crate) fn new(slots: usize) -> Self {
        assert!(slots <= MOST_SLOTS, "{slots} components do not fit the agenda's {MOST_SLOTS}");
        let groups = slots.div_ceil(WIDTH).max(1);
        let mut agenda = Self {
            keys: vec![u64::MAX; groups * WIDTH],
            least: vec![u64::MAX; groups],
            unknown: 0,
        };
        for slot in 0..slots {
            agenda.set(slot, NEVER);
        }
        agenda
    }

    /// Sets the time at which `slot` is due; [`NEVER`] cancels it.
    #[inline]
    pub(crate) fn set(&mut self, slot: usize, time: Time) {
        debug_assert!(time <= NEVER, "time {time} does not fit");
        self.keys[slot] = time << SLOT_BITS | slot as u64;
        self.unknown |= 1 << (slot / WIDTH % BITS);
    }

    /// When `slot` is due.
    #[inline]
    pub(crate) fn time(&self, slot: usize) -> Time {
        self.keys[slot] >> SLOT_BITS
    }

    /// When the first of these slots is due.
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

/// The least of a group: of each half of it at the same time.
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
        for slots in [1, 2, 5, 16, 17, 64, 100, 1_024, 1_025, MOST_SLOTS] {
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
