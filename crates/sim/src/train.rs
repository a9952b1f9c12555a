//! Packets in order, where alike ones that follow each other are one entry: in rings, and in time.

use crate::agenda::Time;
use crate::fifo::Fifo;
use crate::frame::Frame;

/// Fraction bits of a nanosecond.
pub(crate) const FRACTION: u32 = 20;

/// A queue of packets that keeps trains together.
#[derive(Debug)]
pub(crate) struct Trains {
    entries: Fifo<Frame>,
    packets: usize,
}

impl Trains {
    pub(crate) fn with_capacity(capacity: usize) -> Self {
        Self { entries: Fifo::with_capacity(capacity), packets: 0 }
    }

    /// Packets in it; a chunk counts as one.
    #[inline]
    pub(crate) const fn len(&self) -> usize {
        self.packets
    }

    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.packets == 0
    }

    #[inline]
    pub(crate) fn push(&mut self, frame: Frame) {
        self.packets += frame.count() as usize;
        self.entries.push(frame);
    }

    /// The packets at the front that belong together, at most `most` of them.
    #[inline]
    pub(crate) fn pop(&mut self, most: u32) -> Option<Frame> {
        let front = self.entries.front_mut()?;
        let count = front.count();
        if count <= most {
            self.packets -= count as usize;
            return self.entries.pop();
        }
        let frame = front.first(most);
        *front = front.after(most);
        self.packets -= most as usize;
        Some(frame)
    }

    /// The entry at the front, to be changed in place; its count must stay.
    #[inline]
    pub(crate) fn front_mut(&mut self) -> Option<&mut Frame> {
        self.entries.front_mut()
    }

    #[cfg(test)]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Frame> {
        self.entries.iter()
    }
}

/// When the first packet of a train passes a point; the others pass at a steady pace behind it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pace {
    pub(crate) at: Time,
    /// What is beyond the whole nanosecond, in 2^-20 ns.
    pub(crate) fraction: u32,
}

impl Pace {
    /// When packet `idx` passes; each takes `step` times 2^-20 ns.
    #[inline]
    pub(crate) const fn nth(&self, idx: u32, step: u64) -> Time {
        self.at + ((self.fraction as u64 + idx as u64 * step) >> FRACTION)
    }

    /// The pace from packet `idx` on.
    #[inline]
    pub(crate) const fn from(&self, idx: u32, step: u64) -> Self {
        let total = self.fraction as u64 + idx as u64 * step;
        let fraction = (total & ((1 << FRACTION) - 1)) as u32;
        Self { at: self.at + (total >> FRACTION), fraction }
    }

    /// How many of `count` packets pass before `until`; the first does.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "at most `count`")]
    pub(crate) const fn before(&self, until: Time, count: u32, step: u64) -> u32 {
        debug_assert!(self.at < until);
        if count == 1 || self.nth(count - 1, step) < until {
            return count;
        }
        // The last is not before `until`: the span is no longer than the train.
        let span = (until - self.at) << FRACTION;
        ((span - 1 - self.fraction as u64) / step + 1) as u32
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::cast_possible_truncation, reason = "small draws")]

    use latput_units::Rng;

    use super::*;
    use crate::frame::Kind;

    #[test]
    fn a_train_may_leave_in_parts_and_every_byte_leaves_once() {
        let mut trains = Trains::with_capacity(4);
        let train = Frame { kind: Kind::Tcp, payload: 100, more: 9, ..Frame::default() };
        trains.push(train);
        trains.push(Frame { seq: 1_000, ..train });
        let (mut next, mut left) = (0, 20);
        for most in [3, 3, 100, 1, 4, 9] {
            let frame = trains.pop(most).unwrap();
            assert_eq!(frame.seq, next);
            next += u64::from(frame.count()) * 100;
            left -= frame.count() as usize;
            assert_eq!(trains.len(), left);
        }
        assert_eq!((next, left), (2_000, 0));
        assert!(trains.is_empty() && trains.pop(1).is_none());
    }

    #[test]
    fn a_count_before_a_time_agrees_with_the_times() {
        let mut rng = Rng::from_seed(4);
        for _ in 0..10_000 {
            let (step, count) = (1 + rng.next_u64() % (1 << 24), 1 + rng.below(50) as u32);
            let pace = Pace { at: rng.next_u64() % 1_000, fraction: rng.below(1 << 20) as u32 };
            let until = pace.at + 1 + rng.next_u64() % 400;
            let expected = (0..count).filter(|idx| pace.nth(*idx, step) < until).count();
            assert_eq!(pace.before(until, count, step) as usize, expected);
            let idx = rng.below(count as usize) as u32;
            let rest = pace.from(idx, step);
            for later in idx..count {
                assert_eq!(rest.nth(later - idx, step), pace.nth(later, step));
            }
        }
    }
}
