//! When a sample is due, and the time it belongs to.
//!
//! The machine may be paused between any two lines: its hypervisor runs another guest, or the process is
//! stopped. A count over the wrong time gives a false rate. One that is a hundred times too high would
//! stay the highest rate of its load, and would bound the delay by the ring.

use latput_units::{Clock, Nanos};

/// A reading may take 1/10 of the time between two samples. A longer one is repeated.
const LONGEST_READING: u64 = 10;
/// Attempts, after which a long reading is accepted: on this machine every reading is slow.
const READINGS: u32 = 3;

/// The time and the result of `read`. Repeats it if the machine was paused meanwhile.
pub(crate) fn time_reading<T, E>(
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

/// When the next sample is due, after one that was due at `due` and taken `at`. Missed samples are not
/// repeated. The next sample is at least half an interval away: an earlier one would count the packets
/// that had waited as a rate.
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

    /// Advanced by each reading.
    struct ManualClock(Cell<Nanos>);

    impl Clock for ManualClock {
        fn now(&self) -> Nanos {
            self.0.get()
        }
    }

    /// The moment and the number of the reading that is taken, if readings take so many milliseconds each.
    fn simulate_readings(took_ms: &[u64]) -> (Nanos, usize) {
        let clock = ManualClock(Cell::new(Nanos::ZERO));
        let mut readings = 0;
        time_reading(&clock, EVERY, || {
            clock.0.set(clock.0.get() + Nanos::from_ms(took_ms[readings]));
            readings += 1;
            Ok::<_, Infallible>(readings)
        })
        .unwrap()
    }

    #[test]
    fn reading_of_a_stalled_machine_repeats() {
        assert_eq!(simulate_readings(&[0]), (Nanos::ZERO, 1));
        assert_eq!(simulate_readings(&[5]), (Nanos::from_ms(5), 1));
        assert_eq!(simulate_readings(&[49, 1]), (Nanos::from_ms(50), 2));
        assert_eq!(
            simulate_readings(&[20, 20, 20]),
            (Nanos::from_ms(60), 3),
            "slow, not interrupted"
        );
    }

    #[test]
    fn sample_never_follows_at_once() {
        let due = |at_ms| next_due(Nanos::from_ms(100), Nanos::from_ms(at_ms), EVERY);
        assert_eq!(due(100), Nanos::from_ms(150));
        assert_eq!(due(125), Nanos::from_ms(150), "a little late: the next is on time");
        // It was 1 ms later: 50 ms of packets over 1 ms.
        assert_eq!(due(149), Nanos::from_ms(199));
        assert_eq!(due(1_000), Nanos::from_ms(1_050));
    }
}
