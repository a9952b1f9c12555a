//! Packets in order, in rings and in time. Equal packets in sequence share an entry.

use crate::agenda::Time;
use crate::casts::narrow_count;
use crate::fifo::Fifo;
use crate::frame::Frame;

/// Fraction bits of a nanosecond.
pub(crate) const FRACTION: u32 = 20;
/// Mask of the fraction bits.
const WHOLE: u64 = (1 << FRACTION) - 1;

/// A queue of packets that keeps bursts together.
#[derive(Debug)]
pub(crate) struct PacketBursts {
    entries: Fifo<Frame>,
    packets: usize,
}

impl PacketBursts {
    pub(crate) fn with_capacity(capacity: usize) -> Self {
        Self { entries: Fifo::with_capacity(capacity), packets: 0 }
    }

    /// Number of packets; a chunk counts as one.
    #[inline]
    pub(crate) const fn len(&self) -> usize {
        self.packets
    }

    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.packets == 0
    }

    #[inline]
    pub(crate) fn push(&mut self, frame: &Frame) {
        self.packets += frame.count() as usize;
        if frame.gap() == 0 || !self.joins_last(frame) {
            self.entries.push(*frame);
        }
    }

    #[inline(never)]
    fn joins_last(&mut self, frame: &Frame) -> bool {
        match self.entries.back_mut() {
            Some(last) if last.keeps_pace_with(frame) => {
                last.more += narrow_count(frame.count());
                true
            }
            _ => false,
        }
    }

    /// Removes the first burst, at most `most` packets. The queue must not be empty.
    #[inline]
    pub(crate) fn take(&mut self, most: u32) -> Frame {
        let front = self.entries.front().expect("the caller saw that something waits");
        if front.count() > most {
            return self.take_part(most);
        }
        let frame = *front;
        self.packets -= frame.count() as usize;
        self.entries.drop_front();
        frame
    }

    #[inline(never)]
    fn take_part(&mut self, most: u32) -> Frame {
        let front = self.entries.front_mut().expect("the caller saw that something waits");
        let frame = front.first_packets(most);
        *front = front.packets_after(most);
        self.packets -= most as usize;
        frame
    }

    /// The front entry, to be changed in place. Its count must stay.
    #[inline]
    pub(crate) fn front_mut(&mut self) -> Option<&mut Frame> {
        self.entries.front_mut()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Frame> {
        self.entries.iter()
    }
}

/// The distance between packets of a burst.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BurstStep {
    /// Link time of each packet, in 2^-20 ns.
    pub(crate) link: u64,
    /// Nanoseconds between the starts of two packets, more than the link time; 0 if each starts
    /// when the one before ends.
    pub(crate) gap: u32,
}

/// When the first packet of a burst passes a point. The others follow at a steady pace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BurstPace {
    pub(crate) at: Time,
    /// Fraction of a nanosecond, in 2^-20 ns. It needs less than 32 bits but is as wide as the
    /// time, so that structs with it are copied in whole words.
    pub(crate) fraction: u64,
}

impl BurstPace {
    /// When packet `idx` passes.
    #[inline]
    pub(crate) const fn packet_time(&self, idx: u32, step: BurstStep) -> Time {
        if idx == 0 {
            return self.at;
        }
        if step.gap == 0 {
            return self.at + ((self.fraction + idx as u64 * step.link) >> FRACTION);
        }
        self.nth_apart(idx, step)
    }

    #[inline(never)]
    const fn nth_apart(&self, idx: u32, step: BurstStep) -> Time {
        self.at + idx as u64 * step.gap as u64 + self.carry_ns(idx, step) - self.carry_ns(0, step)
    }

    /// The pace from packet `idx` on.
    #[inline]
    pub(crate) const fn from(&self, idx: u32, step: BurstStep) -> Self {
        Self { at: self.packet_time(idx, step), fraction: self.fraction_after(idx, step) }
    }

    /// The fraction of a nanosecond that packet `idx` leaves to the next.
    #[inline]
    const fn fraction_after(&self, idx: u32, step: BurstStep) -> u64 {
        (self.fraction + idx as u64 * step.link) & WHOLE
    }

    /// Whether the fractions before packet `idx` and its own exceed a nanosecond.
    #[inline]
    const fn carry_ns(&self, idx: u32, step: BurstStep) -> Time {
        (self.fraction_after(idx, step) < (step.link & WHOLE)) as Time
    }

    /// The number of packets, of `count`, that pass before `until`. The first does.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "at most `count`")]
    pub(crate) const fn count_before(&self, until: Time, count: u32, step: BurstStep) -> u32 {
        debug_assert!(self.at < until);
        if count == 1 || self.packet_time(count - 1, step) < until {
            return count;
        }
        // The last packet is not before `until`, so the span is no longer than the burst.
        if step.gap == 0 {
            let span = (until - self.at) << FRACTION;
            return ((span - 1 - self.fraction) / step.link + 1) as u32;
        }
        self.before_apart(until, count, step)
    }

    #[inline(never)]
    #[expect(clippy::cast_possible_truncation, reason = "at most `count`")]
    const fn before_apart(&self, until: Time, count: u32, step: BurstStep) -> u32 {
        let mut before = ((until - self.at) / step.gap as u64 + 1) as u32;
        while before < count && self.packet_time(before, step) < until {
            before += 1;
        }
        while self.packet_time(before - 1, step) >= until {
            before -= 1;
        }
        before
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::cast_possible_truncation, reason = "small draws")]

    use latput_units::SeededRng;

    use super::*;
    use crate::frame::FrameKind;

    #[test]
    fn train_leaves_in_parts_once() {
        let mut bursts = PacketBursts::with_capacity(4);
        let burst = Frame { kind: FrameKind::Tcp, payload: 100, more: 9, ..Frame::default() };
        bursts.push(&burst);
        bursts.push(&Frame { seq: 1_000, ..burst });
        let (mut next, mut left) = (0, 20);
        for most in [3, 3, 100, 1, 4, 9] {
            let frame = bursts.take(most);
            assert_eq!(frame.seq, next);
            next += u64::from(frame.count()) * 100;
            left -= frame.count() as usize;
            assert_eq!(bursts.len(), left);
        }
        assert_eq!((next, left), (2_000, 0));
        assert!(bursts.is_empty());
    }

    #[test]
    fn count_before_a_time_agrees_with_the_times() {
        let mut rng = SeededRng::from_seed(4);
        for _ in 0..20_000 {
            let link = 1 + rng.next_u64() % (1 << 24);
            let least = (link >> FRACTION) as u32 + 2;
            let gap = [0, least + rng.next_below(40) as u32][rng.next_below(2)];
            let (step, count) = (BurstStep { link, gap }, 1 + rng.next_below(50) as u32);
            let pace =
                BurstPace { at: rng.next_u64() % 1_000, fraction: rng.next_below(1 << 20) as u64 };
            let until = pace.at + 1 + rng.next_u64() % 800;
            let expected = (0..count).filter(|idx| pace.packet_time(*idx, step) < until).count();
            assert_eq!(
                pace.count_before(until, count, step) as usize,
                expected,
                "{pace:?} {step:?}"
            );
            let idx = rng.next_below(count as usize) as u32;
            let rest = pace.from(idx, step);
            for later in idx..count {
                assert_eq!(rest.packet_time(later - idx, step), pace.packet_time(later, step));
            }
        }
    }

    #[test]
    fn packets_with_gaps_pass_alone() {
        let mut rng = SeededRng::from_seed(5);
        for _ in 0..1_000 {
            let link = rng.next_u64() % (1 << 26);
            let gap = (link >> FRACTION) as u32 + 2 + rng.next_below(1_000) as u32;
            let alone = BurstStep { link, gap: 0 };
            let begins = BurstPace { at: 1_000, fraction: rng.next_below(1 << 20) as u64 };
            let burst = begins.from(1, alone);
            let mut fraction = begins.fraction;
            for idx in 0..100 {
                let at = begins.at + u64::from(idx) * u64::from(gap);
                let one = BurstPace { at, fraction }.from(1, alone);
                assert_eq!(burst.packet_time(idx, BurstStep { link, gap }), one.at);
                fraction = one.fraction;
            }
        }
    }
}
