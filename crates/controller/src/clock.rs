//! The offset of a host's clock from the controller's.
//!
//! Both ends use only `CLOCK_MONOTONIC`, so a step of the wall clock moves no window. Hosts on one
//! kernel (and in one time namespace) share that clock. For other hosts the offset is estimated
//! from round trips over the control line. The answer was stamped between request and answer: in
//! the middle of the quickest round trip, give or take half of it (Cristian, "Probabilistic clock
//! synchronization", Distributed Computing 3, 1989). The two directions may differ by any amount.

use latput_units::Nanos;

/// Round trips of one estimate: enough that one of them was not delayed.
pub(crate) const ROUND_TRIPS: usize = 8;

/// The offset of another clock from this one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClockOffset {
    /// The other clock's reading minus this one's at the same instant, nanoseconds.
    pub(crate) offset_ns: i128,
    /// Largest error of the offset.
    pub(crate) uncertainty: Nanos,
    /// The quickest round trip; zero where the clock is this one.
    pub(crate) round_trip: Nanos,
}

/// One question and its answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RoundTrip {
    /// This clock before the question.
    pub(crate) asked: Nanos,
    /// The other clock in between.
    pub(crate) there: Nanos,
    /// This clock after the answer.
    pub(crate) answered: Nanos,
}

impl ClockOffset {
    /// The offset from the quickest of several round trips; `None` without any.
    pub(crate) fn from_round_trips(round_trips: &[RoundTrip]) -> Option<Self> {
        let length = |trip: &RoundTrip| trip.answered.saturating_sub(trip.asked);
        let quickest = round_trips.iter().min_by_key(|trip| length(trip))?;
        let round_trip = length(quickest);
        let half = Nanos::from_ns(round_trip.as_ns().div_ceil(2));
        let middle = quickest.asked.saturating_add(half);
        let offset_ns = i128::from(quickest.there.as_ns()) - i128::from(middle.as_ns());
        Some(Self { offset_ns, uncertainty: half, round_trip })
    }

    /// The other clock's reading at `instant` of this one.
    pub(crate) fn remote_time(&self, instant: Nanos) -> Nanos {
        let there = i128::from(instant.as_ns()) + self.offset_ns;
        Nanos::from_ns(u64::try_from(there.max(0)).unwrap_or(u64::MAX))
    }
}

/// A duration in a readable unit: `12.3 us`, `1.250 ms`, `93784.012345 s`.
pub(crate) fn format_duration(time: Nanos) -> String {
    match time.as_ns() {
        0 => "0 us".to_owned(),
        ns @ ..1_000_000 => format!("{:.1} us", ns as f64 / 1e3),
        ns @ ..1_000_000_000 => format!("{:.3} ms", ns as f64 / 1e6),
        ns => format!("{:.6} s", ns as f64 / 1e9),
    }
}

/// An offset with its sign: `-1.500 ms`, `+3.0 us`, `the same`.
pub(crate) fn format_offset(offset_ns: i128) -> String {
    let size = format_duration(Nanos::from_ns(
        u64::try_from(offset_ns.unsigned_abs()).unwrap_or(u64::MAX),
    ));
    match offset_ns {
        0 => "the same".to_owned(),
        ..0 => format!("-{size}"),
        _ => format!("+{size}"),
    }
}

#[cfg(test)]
mod tests {
    use latput_units::SeededRng;

    use super::*;

    #[test]
    fn quickest_round_trip_sets_the_doubt() {
        let trips = [
            make_round_trip(0, 5_000, 4_000),
            make_round_trip(10_000, 11_100, 10_200),
            make_round_trip(20_000, 9, 21_000),
        ];
        let offset = ClockOffset::from_round_trips(&trips).unwrap();
        assert_eq!((offset.offset_ns, offset.uncertainty.as_ns()), (1_000, 100));
        assert_eq!(offset.remote_time(Nanos::from_ns(7)).as_ns(), 1_007);
        assert_eq!(ClockOffset::from_round_trips(&[]), None);
    }

    #[test]
    fn true_offset_is_within_the_doubt() {
        let mut rng = SeededRng::from_seed(3);
        for _ in 0..1000 {
            let truth = i128::try_from(rng.next_below(2_000_000_000)).unwrap() - 1_000_000_000;
            let mut now = 5_000_000_000_u64;
            let trips: Vec<RoundTrip> = (0..ROUND_TRIPS)
                .map(|_| {
                    let (way, back) =
                        (rng.next_below(1_000_000) as u64, rng.next_below(1_000_000) as u64);
                    let there = i128::from(now + way) + truth;
                    let made =
                        make_round_trip(now, u64::try_from(there).unwrap(), now + way + back);
                    now += way + back + 1000;
                    made
                })
                .collect();
            let found = ClockOffset::from_round_trips(&trips).unwrap();
            let error = (found.offset_ns - truth).unsigned_abs();
            assert!(error <= u128::from(found.uncertainty.as_ns()), "{error} {found:?}");
        }
    }

    #[test]
    fn boot_clock_may_lag_by_any_time() {
        let behind = ClockOffset { offset_ns: -10, ..ClockOffset::default() };
        assert_eq!(behind.remote_time(Nanos::from_ns(4)), Nanos::ZERO);
        assert_eq!(behind.remote_time(Nanos::from_ns(14)).as_ns(), 4);
        // An answer that seems to come before its question is no round trip of negative length.
        let odd = ClockOffset::from_round_trips(&[make_round_trip(100, 50, 90)]).unwrap();
        assert_eq!((odd.offset_ns, odd.round_trip), (-50, Nanos::ZERO));
    }

    #[test]
    fn times_are_short_to_read() {
        for (ns, text) in [
            (0, "the same"),
            (12_345, "+12.3 us"),
            (-1_500_000, "-1.500 ms"),
            (93_784_012_345_678, "+93784.012346 s"),
        ] {
            assert_eq!(format_offset(ns), text);
        }
    }

    fn make_round_trip(asked: u64, there: u64, answered: u64) -> RoundTrip {
        let [asked, there, answered] = [asked, there, answered].map(Nanos::from_ns);
        RoundTrip { asked, there, answered }
    }
}
