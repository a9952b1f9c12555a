//! Loss, order and jitter of received datagrams. Pure.

use latput_units::Nanos;

use crate::outcome::DatagramsReceived;

/// Remembered datagram numbers, over all flows of a thread, and the minimum per flow. A datagram
/// that arrives later than that counts as lost.
const HISTORY: u64 = 1 << 20;
const SHORTEST_HISTORY: u64 = 1 << 12;

/// The header of a datagram. It is trusted for counting only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    /// The number of the datagram in its flow, from 0; 48 bits.
    pub(super) sequence: u64,
    /// The sender's slice, if the datagram counts.
    pub(super) slice: Option<u32>,
    /// Send time of the sender's clock, modulo 2^48 ns.
    pub(super) sent_at: Nanos,
}

/// Counts of one slice over all flows of a thread.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Received {
    counts: DatagramsReceived,
    /// Sum over the flows of the jitter at the slice's end times its datagrams.
    jitter_sum_ns: f64,
    with_jitter: u64,
}

impl Received {
    /// The counts with the mean jitter of the flows, weighted by datagrams.
    pub(super) fn counts(self) -> DatagramsReceived {
        let jitter_ns = self.jitter_sum_ns / self.with_jitter.max(1) as f64;
        DatagramsReceived { jitter_ns, ..self.counts }
    }
}

/// The receiver's state of one flow. Datagrams sent outside the window or in a cut change the
/// expected number and the jitter but are not counted.
#[derive(Clone, Debug)]
pub(super) struct FlowArrivals {
    /// The latest slice of a received datagram, and its number of distinct datagrams.
    slice: Option<u32>,
    in_slice: u64,
    /// Interarrival jitter in nanoseconds (RFC 3550, section 6.4.1: J += (|D| - J) / 16).
    jitter_ns: f64,
    next_expected: u64,
    /// One bit for each of the last `history` numbers.
    seen: Vec<u64>,
    history: u64,
    last_transit_ns: Option<u64>,
}

impl FlowArrivals {
    /// The state of one of `flows` flows, which share the memory.
    pub(super) fn among(flows: usize) -> Self {
        let history = (HISTORY / (flows as u64).max(1)).max(SHORTEST_HISTORY).next_power_of_two();
        Self {
            slice: None,
            in_slice: 0,
            jitter_ns: 0.0,
            next_expected: 0,
            seen: vec![0; usize::try_from(history / 64).expect("at most HISTORY / 64")],
            history,
            last_transit_ns: None,
        }
    }

    /// Counts a datagram received at `at` (receiver's clock) in the slice in which it was sent. It
    /// is reordered if its number is smaller than the next expected one (RFC 4737, section 3.3).
    pub(super) fn enter(&mut self, stamp: Stamp, at: Nanos, slices: &mut [Received]) {
        let Stamp { sequence, slice, sent_at } = stamp;
        let reordered = sequence < self.next_expected;
        if reordered && self.next_expected - sequence > self.history {
            return;
        }
        self.forget_up_to(sequence);
        let first_time = self.mark(sequence);
        if slice != self.slice && !reordered {
            self.close(slices);
            self.slice = slice;
        }
        let counted = slice.and_then(|slice| slices.get_mut(slice as usize));
        if let Some(Received { counts: counted, .. }) = counted {
            counted.received += u64::from(first_time);
            counted.duplicates += u64::from(!first_time);
            counted.reordered += u64::from(first_time && reordered);
        }
        self.in_slice += u64::from(first_time && slice == self.slice);
        self.enter_transit(at.as_ns().wrapping_sub(sent_at.as_ns()));
    }

    /// Ends the current slice: the present jitter is that of the slice.
    pub(super) fn close(&mut self, slices: &mut [Received]) {
        let datagrams = std::mem::take(&mut self.in_slice);
        if let Some(slice) = self.slice.and_then(|slice| slices.get_mut(slice as usize)) {
            slice.jitter_sum_ns += self.jitter_ns * datagrams as f64;
            slice.with_jitter += datagrams;
        }
    }

    /// Updates the jitter. The clocks of the two ends may differ, since only differences of transit
    /// times count.
    fn enter_transit(&mut self, transit_ns: u64) {
        if let Some(last) = self.last_transit_ns.replace(transit_ns) {
            // The header has 48 bits of the send time.
            let difference = transit_ns.wrapping_sub(last) << 16;
            let difference = (difference.cast_signed() >> 16).unsigned_abs();
            self.jitter_ns += (difference as f64 - self.jitter_ns) / 16.0;
        }
    }

    /// Extends the history to `sequence` and clears the bits of the new numbers.
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

    /// Marks `sequence` as received. Returns whether it is new.
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
    fn gap_is_loss_not_reordering() {
        check(&[0, 1, 5, 6], 4, 0, 0);
    }

    #[test]
    fn what_comes_after_a_later_one_is_reordered() {
        check(&[0, 2, 1, 3], 4, 0, 1);
        check(&[3, 2, 1, 0], 4, 0, 3);
        check(&[0, 3, 4, 5, 1, 2, 6], 7, 0, 2);
    }

    #[test]
    fn repeated_datagram_is_a_duplicate() {
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
    fn flows_share_bounded_memory() {
        assert_eq!(FlowArrivals::among(1).history, HISTORY);
        assert_eq!(FlowArrivals::among(10).history, HISTORY / 8);
        assert_eq!(FlowArrivals::among(10_000).history, SHORTEST_HISTORY);
    }

    #[test]
    fn only_the_window_is_counted() {
        let (no, yes) = (None, Some(0));
        let counts = enter_all(&[(0, no), (2, yes), (1, no), (3, yes), (4, no)], 1);
        assert_eq!((counts[0].received, counts[0].reordered, counts[0].duplicates), (2, 0, 0));
    }

    #[test]
    fn late_datagrams_count_in_sending_slice() {
        let (first, second) = (Some(0), Some(1));
        let sent =
            [(0, first), (1, first), (4, second), (2, first), (3, None), (5, second), (5, second)];
        let counts = enter_all(&sent, 2);
        let of = |idx: usize| (counts[idx].received, counts[idx].reordered, counts[idx].duplicates);
        assert_eq!((of(0), of(1)), ((3, 1, 0), (2, 0, 1)));
        // This end has no such slice.
        assert_eq!(enter_all(&[(0, Some(7)), (1, first)], 1)[0].received, 1);
    }

    #[test]
    fn each_slice_has_its_final_jitter() {
        let mut arrivals = FlowArrivals::among(1);
        let mut slices = [Received::default(); 2];
        // The first slice is even; in the cut one comes 1600 ns late, the second slice is even again.
        for (number, slice, late_ns) in
            [(0, Some(0), 0), (1, Some(0), 0), (2, None, 1600), (3, Some(1), 1600)]
        {
            let sent_at = Nanos::from_ns(100 * number);
            let at = Nanos::from_ns(100 * number + late_ns);
            arrivals.enter(Stamp { sequence: number, slice, sent_at }, at, &mut slices);
        }
        arrivals.close(&mut slices);
        let [first, second] = slices.map(|slice| slice.counts().jitter_ns);
        assert!(first.abs() < 1e-9 && (second - 100.0 * 15.0 / 16.0).abs() < 1e-9, "{second}");
    }

    /// Enters datagrams, each with its number and slice.
    fn enter_all(sent: &[(u64, Option<u32>)], count: usize) -> Vec<DatagramsReceived> {
        let mut arrivals = FlowArrivals::among(1);
        let mut slices = vec![Received::default(); count];
        for &(sequence, slice) in sent {
            let stamp = Stamp { sequence, slice, sent_at: Nanos::ZERO };
            arrivals.enter(stamp, Nanos::ZERO, &mut slices);
        }
        arrivals.close(&mut slices);
        slices.into_iter().map(Received::counts).collect()
    }

    #[test]
    fn even_spacing_has_no_jitter() {
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
        let sent: Vec<_> = sequences.iter().map(|&sequence| (sequence, Some(0))).collect();
        let counts = enter_all(&sent, 1)[0];
        assert_eq!(
            (counts.received, counts.duplicates, counts.reordered),
            (received, duplicates, reordered)
        );
    }

    #[track_caller]
    fn check_jitter(sent_and_received_ns: &[(u64, u64)], jitter_ns: f64) {
        let mut arrivals = FlowArrivals::among(1);
        let mut slices = [Received::default()];
        for (sequence, &(sent, received)) in (0..).zip(sent_and_received_ns) {
            let stamp = Stamp { sequence, slice: Some(0), sent_at: Nanos::from_ns(sent) };
            arrivals.enter(stamp, Nanos::from_ns(received), &mut slices);
        }
        arrivals.close(&mut slices);
        let found = slices[0].counts().jitter_ns;
        assert!((found - jitter_ns).abs() < 1e-9, "{found}");
    }
}
