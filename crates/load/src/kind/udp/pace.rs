//! Due times of datagrams at an offered rate. Pure.
//!
//! Datagrams are due at even intervals. Waking for each costs more than sending it once they are close
//! together, so above one in 50 us they go in small groups, which are themselves evenly spaced. A sender
//! that is delayed catches up by 10 ms at most. It does not burst at line rate after a long stop.

use latput_units::{BitsPerSecond, Bytes, Nanos};

/// Shortest time between two groups. Shorter sleeps cost more CPU time than the sends.
const SHORTEST_SLEEP: Nanos = Nanos::from_us(50);
/// A delayed sender catches up by this much at most.
const CATCH_UP: Nanos = Nanos::from_ms(10);
/// Largest group, also when catching up.
pub const LARGEST_GROUP: u64 = 64;

const BITS_AND_NS: u128 = 8 * 1_000_000_000;

/// The schedule of the datagrams of one sender.
#[derive(Clone, Debug)]
pub struct Pace {
    bytes: u128,
    bits_per_second: u128,
    start: Nanos,
    group: u64,
    backlog: u64,
    sent: u64,
    skipped: u64,
}

/// The next step of a paced sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Send this many datagrams.
    Send(u64),
    /// Send nothing until this instant.
    Wait(Nanos),
}

impl Pace {
    /// A schedule whose first datagram is due at `start`.
    pub fn new(datagram: Bytes, rate: BitsPerSecond, start: Nanos) -> Self {
        let mut pace = Self {
            bytes: datagram.get().into(),
            bits_per_second: rate.get().into(),
            start,
            group: 1,
            backlog: 0,
            sent: 0,
            skipped: 0,
        };
        pace.group = pace.in_time(SHORTEST_SLEEP).clamp(1, LARGEST_GROUP);
        pace.backlog = pace.in_time(CATCH_UP).max(pace.group);
        pace
    }

    /// Datagrams sent together.
    pub fn group(&self) -> u64 {
        self.group
    }

    /// Datagrams left out because the sender was delayed for too long.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// The next step at `now`.
    pub fn due(&mut self, now: Nanos) -> Due {
        let Some(elapsed) = now.as_ns().checked_sub(self.start.as_ns()) else {
            return Due::Wait(self.start);
        };
        let due = self.in_time(Nanos::from_ns(elapsed)).saturating_add(1);
        let mut owed = due.saturating_sub(self.sent + self.skipped);
        if owed > self.backlog {
            self.skipped += owed - self.backlog;
            owed = self.backlog;
        }
        if owed >= self.group {
            return Due::Send(owed.min(LARGEST_GROUP));
        }
        Due::Wait(self.time_of(self.sent + self.skipped + self.group - 1))
    }

    /// Counts `datagrams` as sent.
    pub fn sent(&mut self, datagrams: u64) {
        self.sent += datagrams;
    }

    /// Whole intervals between datagrams in `time`.
    fn in_time(&self, time: Nanos) -> u64 {
        let intervals =
            u128::from(time.as_ns()) * self.bits_per_second / (self.bytes * BITS_AND_NS);
        u64::try_from(intervals).unwrap_or(u64::MAX)
    }

    /// The instant that datagram `number`, counted from 0, is due.
    fn time_of(&self, number: u64) -> Nanos {
        let offset = (u128::from(number) * self.bytes * BITS_AND_NS).div_ceil(self.bits_per_second);
        Nanos::from_ns(self.start.as_ns().saturating_add(u64::try_from(offset).unwrap_or(u64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn punctual_sender_offers_the_exact_rate() {
        // 1470 byte at 100 Mbit/s: 8503.4 a second.
        check_rate(1470, 100_000_000, 1, 8504);
        // 18 byte at 1 Gbit/s: 6.9 million a second, in groups.
        check_rate(18, 1_000_000_000, 64, 6_944_445);
        check_rate(1470, 1, 1, 1);
    }

    #[test]
    fn groups_grow_with_the_rate() {
        check_group(1_000_000, 1);
        check_group(235_200_000, 1);
        check_group(1_000_000_000, 4);
        check_group(100_000_000_000, 64);
    }

    #[test]
    fn short_delay_is_made_up_long_one_not() {
        // One datagram a millisecond.
        let mut pace = Pace::new(Bytes::new(125), BitsPerSecond::new(1_000_000), Nanos::ZERO);
        assert_eq!(pace.due(Nanos::from_ms(3)), Due::Send(4));
        pace.sent(4);
        assert_eq!(pace.due(Nanos::from_ms(3)), Due::Wait(Nanos::from_ms(4)));
        assert_eq!(pace.due(Nanos::from_ms(1003)), Due::Send(10));
        pace.sent(10);
        assert_eq!(pace.skipped(), 990);
        assert_eq!(pace.due(Nanos::from_ms(1003)), Due::Wait(Nanos::from_ms(1004)));
    }

    #[test]
    fn nothing_is_due_before_the_start() {
        let start = Nanos::from_s(1);
        let mut pace = Pace::new(Bytes::new(125), BitsPerSecond::new(1_000_000), start);
        assert_eq!(pace.due(Nanos::ZERO), Due::Wait(start));
        assert_eq!(pace.due(start), Due::Send(1));
    }

    #[test]
    fn extreme_rates_do_not_overflow() {
        let mut pace = Pace::new(Bytes::new(65_507), BitsPerSecond::new(1), Nanos::ZERO);
        pace.sent(1 << 46);
        assert!(matches!(pace.due(Nanos::from_ns(u64::MAX)), Due::Wait(_)));
        let fast = BitsPerSecond::new(1_000_000_000_000);
        let mut pace = Pace::new(Bytes::new(18), fast, Nanos::ZERO);
        assert_eq!(pace.due(Nanos::from_ns(u64::MAX)), Due::Send(64));
    }

    #[track_caller]
    fn check_rate(bytes: u64, bits_per_second: u64, group: u64, in_a_second: u64) {
        let rate = BitsPerSecond::new(bits_per_second);
        let mut pace = Pace::new(Bytes::new(bytes), rate, Nanos::ZERO);
        assert_eq!(pace.group(), group);
        let (mut now, mut sent) = (Nanos::ZERO, 0);
        while now < Nanos::from_s(1) {
            match pace.due(now) {
                Due::Send(count) => {
                    pace.sent(count);
                    sent += count;
                }
                Due::Wait(until) => now = until,
            }
        }
        assert!(sent <= in_a_second && sent + group >= in_a_second, "{sent}");
        assert_eq!(pace.skipped(), 0);
    }

    #[track_caller]
    fn check_group(bits_per_second: u64, group: u64) {
        let rate = BitsPerSecond::new(bits_per_second);
        assert_eq!(Pace::new(Bytes::new(1470), rate, Nanos::ZERO).group(), group);
    }
}
