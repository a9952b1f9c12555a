//! Which datagrams came, in what order, and how evenly. Pure.

use latput_units::Nanos;

/// Numbers that are remembered, over all flows of a thread and for each at least: a datagram that comes
/// so many numbers after it was due is no longer told apart and counts as lost.
const HISTORY: u64 = 1 << 20;
const SHORTEST_HISTORY: u64 = 1 << 12;

/// What a datagram says of itself. None of it is trusted beyond counting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    /// Its place in the run, from 0; 47 bits.
    pub(super) sequence: u64,
    /// Whether it was sent in the sender's window.
    pub(super) in_window: bool,
    /// When, by the sender's clock.
    pub(super) sent_at: Nanos,
}

/// The receiver's books. Datagrams that were sent outside the window move the expectations but are not
/// counted.
#[derive(Clone, Debug)]
pub(super) struct Arrivals {
    /// Different datagrams of the window.
    pub(super) received: u64,
    /// Datagrams of the window that had come before.
    pub(super) duplicates: u64,
    /// Datagrams of the window that came after a later one (RFC 4737, section 3.3: the number is
    /// smaller than the next expected one).
    pub(super) reordered: u64,
    /// Interarrival jitter in nanoseconds (RFC 3550, section 6.4.1: J += (|D| - J) / 16), up to the last
    /// datagram of the window.
    pub(super) jitter_ns: f64,
    next_expected: u64,
    /// One bit for each of the last `history` numbers.
    seen: Vec<u64>,
    history: u64,
    last_transit_ns: Option<u64>,
}

impl Arrivals {
    /// The books of one flow among `flows`, which share the memory.
    pub(super) fn among(flows: usize) -> Self {
        let history = (HISTORY / (flows as u64).max(1)).max(SHORTEST_HISTORY).next_power_of_two();
        Self {
            received: 0,
            duplicates: 0,
            reordered: 0,
            jitter_ns: 0.0,
            next_expected: 0,
            seen: vec![0; usize::try_from(history / 64).expect("at most HISTORY / 64")],
            history,
            last_transit_ns: None,
        }
    }

    /// Enters a datagram that came at `at`, by the receiver's clock.
    pub(super) fn enter(&mut self, stamp: Stamp, at: Nanos) {
        let Stamp { sequence, in_window, sent_at } = stamp;
        let reordered = sequence < self.next_expected;
        if reordered && self.next_expected - sequence > self.history {
            return;
        }
        self.forget_up_to(sequence);
        let first_time = self.mark(sequence);
        if in_window {
            self.received += u64::from(first_time);
            self.duplicates += u64::from(!first_time);
            self.reordered += u64::from(first_time && reordered);
        }
        if in_window || self.received == 0 {
            self.enter_transit(at.as_ns().wrapping_sub(sent_at.as_ns()));
        }
    }

    /// The clocks of the two ends need not agree: only differences of transit times count.
    fn enter_transit(&mut self, transit_ns: u64) {
        if let Some(last) = self.last_transit_ns.replace(transit_ns) {
            let difference = transit_ns.wrapping_sub(last).cast_signed().unsigned_abs();
            self.jitter_ns += (difference as f64 - self.jitter_ns) / 16.0;
        }
    }

    /// Makes `sequence` part of the history, and what falls out of it unseen.
    fn forget_up_to(&mut self, sequence: u64) {
        if sequence < self.next_expected {
            return;
        }
        if sequence - self.next_expected >= self.history {
            self.seen.fill(0);
        } else {
            for number in self.next_expected..=sequence {
                let (word, bit) = self.place(number);
                self.seen[word] &= !bit;
            }
        }
        self.next_expected = sequence + 1;
    }

    /// Whether `sequence` is seen for the first time.
    fn mark(&mut self, sequence: u64) -> bool {
        let (word, bit) = self.place(sequence);
        let first_time = self.seen[word] & bit == 0;
        self.seen[word] |= bit;
        first_time
    }

    fn place(&self, number: u64) -> (usize, u64) {
        let idx = number % self.history;
        (usize::try_from(idx / 64).expect("at most HISTORY / 64"), 1 << (idx % 64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_order_is_neither_reordered_nor_twice() {
        check(&[0, 1, 2, 3, 4], 5, 0, 0);
    }

    #[test]
    fn a_gap_is_loss_not_reordering() {
        check(&[0, 1, 5, 6], 4, 0, 0);
    }

    #[test]
    fn what_comes_after_a_later_one_is_reordered() {
        check(&[0, 2, 1, 3], 4, 0, 1);
        check(&[3, 2, 1, 0], 4, 0, 3);
        check(&[0, 3, 4, 5, 1, 2, 6], 7, 0, 2);
    }

    #[test]
    fn what_comes_again_is_a_duplicate_and_not_reordered() {
        check(&[0, 1, 1, 2, 0], 3, 2, 0);
        check(&[0, 2, 1, 1], 3, 1, 1);
    }

    #[test]
    fn history_is_bounded_and_forgets_the_oldest() {
        check(&[0, HISTORY - 1, 0], 2, 1, 0);
        check(&[0, HISTORY, 0], 2, 0, 0);
        check(&[5, HISTORY + 5, 6], 3, 0, 1);
        check(&[0, 1 << 46, (1 << 46) - 1, 3], 3, 0, 1);
    }

    #[test]
    fn many_flows_share_the_memory_and_each_has_some() {
        assert_eq!(Arrivals::among(1).history, HISTORY);
        assert_eq!(Arrivals::among(10).history, HISTORY / 8);
        assert_eq!(Arrivals::among(10_000).history, SHORTEST_HISTORY);
    }

    #[test]
    fn only_the_window_is_counted() {
        let mut arrivals = Arrivals::among(1);
        for (sequence, in_window) in [(0, false), (2, true), (1, false), (3, true), (4, false)] {
            arrivals.enter(Stamp { sequence, in_window, sent_at: Nanos::ZERO }, Nanos::ZERO);
        }
        assert_eq!((arrivals.received, arrivals.reordered, arrivals.duplicates), (2, 0, 0));
    }

    #[test]
    fn even_spacing_has_no_jitter_whatever_the_clocks_offset() {
        check_jitter(&[(0, 7), (100, 107), (200, 207)], 0.0);
        check_jitter(&[(1_000_000, 7), (1_000_100, 107)], 0.0);
    }

    #[test]
    fn jitter_follows_rfc_3550() {
        // D = 160, then -160: J = 10, then 10 + (160 - 10) / 16.
        check_jitter(&[(0, 0), (100, 260), (200, 200)], 10.0 + 150.0 / 16.0);
        check_jitter(&[(u64::MAX, 0), (0, 161)], 160.0 / 16.0);
    }

    #[track_caller]
    fn check(sequences: &[u64], received: u64, duplicates: u64, reordered: u64) {
        let mut arrivals = Arrivals::among(1);
        for &sequence in sequences {
            arrivals.enter(Stamp { sequence, in_window: true, sent_at: Nanos::ZERO }, Nanos::ZERO);
        }
        assert_eq!(
            (arrivals.received, arrivals.duplicates, arrivals.reordered),
            (received, duplicates, reordered)
        );
    }

    #[track_caller]
    fn check_jitter(sent_and_received_ns: &[(u64, u64)], jitter_ns: f64) {
        let mut arrivals = Arrivals::among(1);
        for (sequence, &(sent, received)) in (0..).zip(sent_and_received_ns) {
            let sent_at = Nanos::from_ns(sent);
            arrivals.enter(Stamp { sequence, in_window: true, sent_at }, Nanos::from_ns(received));
        }
        assert!((arrivals.jitter_ns - jitter_ns).abs() < 1e-9, "{}", arrivals.jitter_ns);
    }
}
