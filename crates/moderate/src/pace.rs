//! When a sample is due, and of which moment it is. A machine can stand still between any two lines (its hypervisor
//! runs another, the process is stopped), and a count over the wrong time is a rate that never was: one of a hundred
//! times the packets would stay the highest of its load, and bound the delay for the ring's sake.

use latput_units::{Clock, Nanos};

/// A reading that takes longer than this share of the time between two samples is of no one moment.
const LONGEST_READING: u64 = 10;
/// Readings before one is taken as it is: here each takes long.
const READINGS: u32 = 3;

/// What `read` says, and when: read again if the machine stood still in between.
pub(crate) fn timed<T, E>(
    clock: &impl Clock,
    every: Nanos,
    mut read: impl FnMut() -> Result<T, E>,
) -> Result<(Nanos, T), E> {
    let mut readings = 0;
    loop {
        let before = clock.now();
        let value = read()?;
        let at = clock.now();
        readings += 1;
        let took = at.saturating_sub(before);
        if took.saturating_mul(LONGEST_READING) <= every || readings == READINGS {
            return Ok((at, value));
        }
    }
}

/// When the sample after the one that was due at `due` and taken `at` is due. Samples that were missed are not made up
/// for, and none follows at once: it would show what had waited, as a rate.
pub(crate) fn next_due(due: Nanos, at: Nanos, every: Nanos) -> Nanos {
    let next = due + every;
    let is_close = next.saturating_sub(at).saturating_mul(2) < every;
    if is_close { at + every } else { next }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::convert::Infallible;

    use super::*;

    const EVERY: Nanos = Nanos::from_ms(50);

    /// Moved by what reads.
    struct Hand(Cell<Nanos>);

    impl Clock for Hand {
        fn now(&self) -> Nanos {
            self.0.get()
        }
    }

    /// The moment and the number of the reading that is taken, if readings take so many milliseconds each.
    fn taken(took_ms: &[u64]) -> (Nanos, usize) {
        let clock = Hand(Cell::new(Nanos::ZERO));
        let mut readings = 0;
        timed(&clock, EVERY, || {
            clock.0.set(clock.0.get() + Nanos::from_ms(took_ms[readings]));
            readings += 1;
            Ok::<_, Infallible>(readings)
        })
        .unwrap()
    }

    #[test]
    fn a_reading_in_which_the_machine_stood_still_is_repeated() {
        assert_eq!(taken(&[0]), (Nanos::ZERO, 1));
        assert_eq!(taken(&[5]), (Nanos::from_ms(5), 1));
        assert_eq!(taken(&[49, 1]), (Nanos::from_ms(50), 2));
        assert_eq!(taken(&[20, 20, 20]), (Nanos::from_ms(60), 3), "slow, not interrupted");
    }

    #[test]
    fn a_sample_never_follows_at_once() {
        let due = |at_ms| next_due(Nanos::from_ms(100), Nanos::from_ms(at_ms), EVERY);
        assert_eq!(due(100), Nanos::from_ms(150));
        assert_eq!(due(125), Nanos::from_ms(150), "a little late: the next is on time");
        // It was 1 ms later: 50 ms of packets over 1 ms.
        assert_eq!(due(149), Nanos::from_ms(199));
        assert_eq!(due(1_000), Nanos::from_ms(1_050));
    }
}
