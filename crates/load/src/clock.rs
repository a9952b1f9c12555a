//! Monotonic time of this host, and the measured window.

use latput_units::Nanos;
use rustix::thread::ClockId as SleepClock;
use rustix::time::{ClockId, Timespec, clock_gettime};

use crate::error::Error;
use crate::slices::SliceLayout;

/// How long traffic continues after its window. The other end's window may start up to this much
/// later and must still be full of traffic.
pub const COOL_DOWN: Nanos = Nanos::from_ms(100);

/// Extra time after which traffic in a blocked call is ended.
pub(crate) const OVERTIME: Nanos = Nanos::from_ms(20);

/// Longest window or warm-up: a day.
const LONGEST: Nanos = Nanos::from_s(86_400);

/// Most slices of a window. The bound limits the memory of their counts.
const MOST_SLICES: u32 = 1000;

/// The measured part of a trial, in instants of this host's `CLOCK_MONOTONIC`. Traffic before its
/// start is warm-up and is not counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    start: Nanos,
    end: Nanos,
    slices: Option<SliceLayout>,
}

impl Window {
    /// The window that starts `warm_up` from now and lasts `length`.
    pub fn starting_in(warm_up: Nanos, length: Nanos) -> Result<Self, Error> {
        Self::starting_after(now(), warm_up, length)
    }

    /// The window that starts `warm_up` after `instant` of [`now`]'s clock and lasts `length`. Two
    /// ends on one kernel that use the same instant have the same window.
    pub fn starting_after(instant: Nanos, warm_up: Nanos, length: Nanos) -> Result<Self, Error> {
        let start = instant.as_ns().checked_add(warm_up.as_ns());
        let latest = now().as_ns().saturating_add(LONGEST.as_ns());
        match start {
            Some(start) if start <= latest && length > Nanos::ZERO && length <= LONGEST => {
                let start = Nanos::from_ns(start);
                Ok(Self { start, end: start + length, slices: None })
            }
            _ => Err(Error::BadWindow { warm_up, length }),
        }
    }

    /// The first instant of the window.
    pub const fn start(self) -> Nanos {
        self.start
    }

    /// The first instant after the window.
    pub const fn end(self) -> Nanos {
        self.end
    }

    /// The length of the window.
    pub const fn length(self) -> Nanos {
        self.end.saturating_sub(self.start)
    }

    /// The window from this one's start that is as long as all `slices`. Refuses slices without a
    /// measured part, a count of 0 or above 1000, and a total of more than a day.
    pub fn in_slices(self, slices: SliceLayout) -> Result<Self, Error> {
        let counted = (1..=MOST_SLICES).contains(&slices.count);
        let cut = slices.cut.max(slices.long_cut);
        if !counted || cut >= slices.length || slices.total_length() > LONGEST {
            return Err(Error::BadSlices { slices });
        }
        Ok(Self {
            start: self.start,
            end: self.start + slices.total_length(),
            slices: Some(slices),
        })
    }

    /// The slices of the window; `None` for an undivided window.
    pub const fn slices(&self) -> Option<SliceLayout> {
        self.slices
    }

    /// Number of slices; 1 for an undivided window.
    pub(crate) fn slice_count(&self) -> u32 {
        self.slices.map_or(1, |slices| slices.count)
    }

    /// The measured part of slice `idx` (from 0): from the end of its cut to the end of the slice.
    pub fn slice(&self, idx: u32) -> Self {
        let Some(slices) = self.slices else { return *self };
        let start = self.slice_start(idx);
        Self { start: start + slices.cut_of(idx), end: start + slices.length, slices: None }
    }

    /// The start of slice `idx`, including its cut.
    pub(crate) fn slice_start(&self, idx: u32) -> Nanos {
        let before = self.slices.map_or(Nanos::ZERO, |slices| slices.length);
        self.start + before.saturating_mul(u64::from(idx))
    }

    /// The number of the slice at `instant`, including its cut. Before the window it is 0, after it
    /// the number of slices.
    pub(crate) fn number_at(&self, instant: Nanos) -> u32 {
        match self.slices {
            _ if instant < self.start => 0,
            _ if instant >= self.end => self.slice_count(),
            None => 0,
            Some(slices) => {
                let number = (instant - self.start).as_ns() / slices.length.as_ns();
                u32::try_from(number).expect("below the number of slices")
            }
        }
    }

    /// The slice whose measured part contains `instant`; `None` in a cut and outside the window.
    pub(crate) fn slice_at(&self, instant: Nanos) -> Option<u32> {
        let number = self.number_at(instant);
        let is_measured = number < self.slice_count() && instant >= self.slice(number).start;
        is_measured.then_some(number)
    }
}

/// This host's `CLOCK_MONOTONIC`. With a vDSO the read needs no system call.
#[inline]
pub fn now() -> Nanos {
    from_timespec(clock_gettime(ClockId::Monotonic))
}

/// CPU time used by the calling thread.
pub fn thread_cpu() -> Nanos {
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
pub(crate) fn from_timespec(time: Timespec) -> Nanos {
    Nanos::from_ns(time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_has_a_length_and_lies_ahead() {
        let window = Window::starting_in(Nanos::from_ms(10), Nanos::from_ms(20)).unwrap();
        assert_eq!(window.length(), Nanos::from_ms(20));
        assert_eq!(window.end(), window.start() + Nanos::from_ms(20));
    }

    #[test]
    fn absurd_window_lengths_are_refused() {
        for (warm_up, length) in [(0, 0), (0, 90_000), (90_000, 1), (u64::MAX, 1)] {
            let window = Window::starting_in(Nanos::from_s(warm_up), Nanos::from_s(length));
            assert!(matches!(window, Err(Error::BadWindow { .. })), "{warm_up} {length}");
        }
    }

    #[test]
    fn ends_share_one_window() {
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
    fn slices_are_adjacent_and_begin_with_cut() {
        let ms = Nanos::from_ms;
        let window = Window::starting_after(Nanos::from_s(1), Nanos::ZERO, ms(1)).unwrap();
        let slices = SliceLayout::new(ms(250), ms(30), 4);
        let window = window.in_slices(slices).unwrap();
        assert_eq!((window.start(), window.end()), (ms(1000), ms(2000)));
        assert_eq!((slices.total_length(), slices.measured_length(0)), (ms(1000), ms(220)));
        assert_eq!(window.slices(), Some(slices));
        assert_eq!((window.slice(0).start(), window.slice(0).end()), (ms(1030), ms(1250)));
        assert_eq!((window.slice(3).start(), window.slice(3).end()), (ms(1780), ms(2000)));
        assert_eq!(window.slice(3).length(), slices.measured_length(3));
        let ns = Nanos::from_ns(1);
        for (at, slice) in [
            (ms(1000) - ns, None),
            (ms(1000), None),
            (ms(1030) - ns, None),
            (ms(1030), Some(0)),
            (ms(1250) - ns, Some(0)),
            (ms(1250), None),
            (ms(1280), Some(1)),
            (ms(2000) - ns, Some(3)),
            (ms(2000), None),
        ] {
            assert_eq!(window.slice_at(at), slice, "{at}");
        }
        let window =
            window.in_slices(SliceLayout { long_cuts: 2, long_cut: ms(50), ..slices }).unwrap();
        let starts: Vec<Nanos> = (0..4).map(|idx| window.slice(idx).start()).collect();
        assert_eq!(starts, [1050, 1300, 1530, 1780].map(ms), "the first two begin later");
        assert_eq!((window.slice_at(ms(1040)), window.slice_at(ms(1540))), (None, Some(2)));
        assert_eq!(window.end(), ms(2000));
    }

    #[test]
    fn uncut_window_is_one_slice() {
        let window = Window::starting_in(Nanos::ZERO, Nanos::from_ms(5)).unwrap();
        assert_eq!((window.slices(), window.slice_count()), (None, 1));
        assert_eq!(window.slice(0), window);
        assert_eq!(window.slice_at(window.start()), Some(0));
        assert_eq!(window.slice_at(window.end()), None);
    }

    #[test]
    fn empty_or_endless_slices_are_refused() {
        let window = Window::starting_in(Nanos::ZERO, Nanos::from_ms(5)).unwrap();
        for (length_ms, cut_ms, count, good) in [
            (250, 30, 1, true),
            (250, 0, 1000, true),
            (250, 250, 4, false),
            (250, 251, 4, false),
            (250, 30, 0, false),
            (250, 30, 1001, false),
            (0, 0, 1, false),
            (86_400, 1, 1000, true),
            (86_401, 1, 1000, false),
            (u64::MAX / 1_000_000, 1, 1000, false),
        ] {
            let (length, cut) = (Nanos::from_ms(length_ms), Nanos::from_ms(cut_ms));
            let cut = window.in_slices(SliceLayout::new(length, cut, count));
            assert_eq!(cut.is_ok(), good, "{length_ms} {count}: {cut:?}");
        }
        let usual = SliceLayout::new(Nanos::from_ms(250), Nanos::from_ms(30), 4);
        let long_cut = Nanos::from_ms(250);
        assert!(window.in_slices(SliceLayout { long_cuts: 1, long_cut, ..usual }).is_err());
    }

    #[test]
    fn sleeping_until_an_instant_never_returns_before_it() {
        let instant = now() + Nanos::from_ms(2);
        sleep_until(instant);
        assert!(now() >= instant);
    }
}
