//! Monotonic time of this host, and the window that counts.

use latput_units::Nanos;
use rustix::thread::ClockId as SleepClock;
use rustix::time::{ClockId, Timespec, clock_gettime};

use crate::error::Error;

/// How long traffic goes on after its window, so that the other end's window, which started up to this
/// much later, is still full of traffic.
pub const COOL_DOWN: Nanos = Nanos::from_ms(100);

/// When traffic that hangs in a blocked call is ended after its time.
pub(crate) const OVERTIME: Nanos = Nanos::from_ms(20);

/// Longest window or warm-up: a day.
const LONGEST: Nanos = Nanos::from_s(86_400);

/// The part of a trial that is measured, in instants of this host's `CLOCK_MONOTONIC`. Traffic before
/// its start is warm-up and is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    start: Nanos,
    end: Nanos,
}

impl Window {
    /// The window that starts `warm_up` from now and lasts `length`.
    pub fn starting_in(warm_up: Nanos, length: Nanos) -> Result<Self, Error> {
        Self::starting_after(now(), warm_up, length)
    }

    /// The window that starts `warm_up` after `instant` of [`now`]'s clock and lasts `length`. Two ends
    /// on one kernel that are told the same instant have exactly the same window.
    pub fn starting_after(instant: Nanos, warm_up: Nanos, length: Nanos) -> Result<Self, Error> {
        let start = instant.as_ns().checked_add(warm_up.as_ns());
        let latest = now().as_ns().saturating_add(LONGEST.as_ns());
        match start {
            Some(start) if start <= latest && length > Nanos::ZERO && length <= LONGEST => {
                let start = Nanos::from_ns(start);
                Ok(Self { start, end: start + length })
            }
            _ => Err(Error::BadWindow { warm_up, length }),
        }
    }

    /// Its first instant.
    pub const fn start(self) -> Nanos {
        self.start
    }

    /// The first instant that is no longer in it.
    pub const fn end(self) -> Nanos {
        self.end
    }

    /// How long it is.
    pub const fn length(self) -> Nanos {
        self.end.saturating_sub(self.start)
    }
}

/// This host's `CLOCK_MONOTONIC`, read without a system call where the kernel has a vDSO.
#[inline]
pub fn now() -> Nanos {
    from_timespec(clock_gettime(ClockId::Monotonic))
}

/// CPU time that the calling thread has used.
pub(crate) fn thread_cpu() -> Nanos {
    from_timespec(clock_gettime(ClockId::ThreadCPUTime))
}

/// Sleeps until `instant` of [`now`]'s clock; a signal may end the sleep early.
pub(crate) fn sleep_until(instant: Nanos) {
    let _early =
        rustix::thread::clock_nanosleep_absolute(SleepClock::Monotonic, &timespec(instant));
}

pub(crate) fn timespec(time: Nanos) -> Timespec {
    const NS_PER_S: u64 = 1_000_000_000;
    Timespec {
        tv_sec: (time.as_ns() / NS_PER_S).cast_signed(),
        tv_nsec: (time.as_ns() % NS_PER_S).cast_signed(),
    }
}

#[inline]
fn from_timespec(time: Timespec) -> Nanos {
    Nanos::from_ns(time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_has_a_length_and_lies_ahead() {
        let window = Window::starting_in(Nanos::from_ms(10), Nanos::from_ms(20)).unwrap();
        assert_eq!(window.length(), Nanos::from_ms(20));
        assert_eq!(window.end(), window.start() + Nanos::from_ms(20));
    }

    #[test]
    fn windows_of_no_length_or_of_days_are_refused() {
        for (warm_up, length) in [(0, 0), (0, 90_000), (90_000, 1), (u64::MAX, 1)] {
            let window = Window::starting_in(Nanos::from_s(warm_up), Nanos::from_s(length));
            assert!(matches!(window, Err(Error::BadWindow { .. })), "{warm_up} {length}");
        }
    }

    #[test]
    fn ends_that_are_told_one_instant_have_one_window() {
        let window = || {
            Window::starting_after(Nanos::from_s(5), Nanos::from_s(1), Nanos::from_s(2)).unwrap()
        };
        assert_eq!(window(), window());
        assert_eq!((window().start(), window().end()), (Nanos::from_s(6), Nanos::from_s(8)));
        let never = Nanos::from_ns(u64::MAX);
        assert!(Window::starting_after(never, Nanos::from_s(1), Nanos::from_s(1)).is_err());
        assert!(Window::starting_after(never, Nanos::ZERO, Nanos::from_s(1)).is_err());
    }

    #[test]
    fn sleeping_until_an_instant_never_returns_before_it() {
        let instant = now() + Nanos::from_ms(2);
        sleep_until(instant);
        assert!(now() >= instant);
    }
}
