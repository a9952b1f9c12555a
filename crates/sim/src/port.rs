//! A port and the wire behind it: takes its time per byte, then delivers in order after the latency.

use latput_units::{BitsPerSecond, Nanos, Rng};

use crate::agenda::{NEVER, Time};
use crate::fifo::Fifo;
use crate::frame::Frame;

/// Fraction bits of the time per byte.
const FRACTION: u32 = 20;

/// Where a wire ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Far {
    Host(usize),
    Switch,
}

/// What feeds a port.
#[derive(Debug)]
pub(crate) enum Feed {
    /// The transmit rings of a host, taken in turn.
    Rings { first: usize, count: usize, turn: usize },
    /// The output buffer of a switch port.
    Buffer { frames: Fifo<Frame>, bytes: u64, limit: u64 },
}

/// A frame whose bits are leaving.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sending {
    /// The packet; of a chunk, the part of it.
    pub(crate) frame: Frame,
    /// The ring that it came from.
    pub(crate) queue: usize,
    /// It ends a descriptor, whose bytes these are.
    pub(crate) completes: Option<u32>,
}

/// One direction of a link.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) feed: Feed,
    pub(crate) far: Far,
    pub(crate) sending: Option<Sending>,
    /// The far end asked for silence until then (802.3x).
    pub(crate) paused_until: Time,
    per_byte: u64,
    fraction: u64,
    latency: Time,
    jitter: f64,
    last_arrival: Time,
    /// 512 bit times, the unit of pauses.
    quantum: Time,
    wire: Fifo<(Time, Frame)>,
    pub(crate) dropped: u64,
}

impl Port {
    pub(crate) fn new(
        feed: Feed,
        far: Far,
        rate: BitsPerSecond,
        latency: Nanos,
        jitter: f64,
    ) -> Self {
        let per_byte = (u128::from(8_000_000_000_u64) << FRACTION) / u128::from(rate.get());
        Self {
            feed,
            far,
            sending: None,
            paused_until: 0,
            per_byte: u64::try_from(per_byte).expect("a link has at least 1 kbit/s"),
            fraction: 0,
            latency: latency.as_ns(),
            jitter,
            last_arrival: 0,
            quantum: (512_000_000_000 / rate.get()).max(1),
            wire: Fifo::with_capacity(64),
            dropped: 0,
        }
    }

    /// How long `frame` takes; what does not fill a nanosecond is carried over to the next.
    #[inline]
    pub(crate) fn serialize(&mut self, frame: &Frame) -> Time {
        let total = u64::from(frame.wire_bytes()) * self.per_byte + self.fraction;
        self.fraction = total & ((1 << FRACTION) - 1);
        total >> FRACTION
    }

    /// The last bit of `frame` left now.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "a jitter of a latency is a latency")]
    pub(crate) fn depart(&mut self, frame: Frame, now: Time, rng: &mut Rng) {
        let mut arrival = now + self.latency;
        if self.jitter > 0.0 {
            arrival += (rng.uniform() * self.jitter * self.latency as f64) as Time;
            arrival = arrival.max(self.last_arrival);
            self.last_arrival = arrival;
        }
        self.wire.push((arrival, frame));
    }

    /// The far end wants silence for so many quanta; none ends an earlier wish.
    pub(crate) fn pause(&mut self, quanta: u32, now: Time) {
        self.paused_until = now + u64::from(quanta) * self.quantum;
    }

    /// When the next frame arrives at the far end.
    #[inline]
    pub(crate) fn next_arrival(&self) -> Time {
        self.wire.front().map_or(NEVER, |(arrival, _)| *arrival)
    }

    /// The frame that arrives at the far end now.
    #[inline]
    pub(crate) fn arrive(&mut self) -> Frame {
        self.wire.pop().expect("a wire is due only while a frame is on it").1
    }

    #[cfg(test)]
    pub(crate) fn count_on_wire(&self, kind: crate::frame::Kind) -> u64 {
        self.wire.iter().filter(|(_, frame)| frame.kind == kind).count() as u64
    }

    /// Frames on the wire.
    pub(crate) fn in_flight(&self) -> u64 {
        self.wire.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_of_a_nanosecond_are_not_lost() {
        for (rate_bps, frames, expected_ns) in [
            (1_000_000_000, 1, 672),
            (10_000_000_000, 1_000, 67_200),
            (100_000_000_000, 10_000, 67_200),
        ] {
            let feed = Feed::Rings { first: 0, count: 1, turn: 0 };
            let rate = BitsPerSecond::new(rate_bps);
            let mut port = Port::new(feed, Far::Host(0), rate, Nanos::ZERO, 0.0);
            let total: Time = (0..frames).map(|_| port.serialize(&Frame::default())).sum();
            assert!(total.abs_diff(expected_ns) <= 1, "{rate_bps}: {total}");
        }
    }

    #[test]
    fn jitter_never_reorders() {
        let feed = Feed::Rings { first: 0, count: 1, turn: 0 };
        let rate = BitsPerSecond::new(1_000_000_000);
        let mut port = Port::new(feed, Far::Host(0), rate, Nanos::from_us(10), 0.5);
        let mut rng = Rng::from_seed(1);
        for now in 0..1_000 {
            port.depart(Frame { seq: now, ..Frame::default() }, now * 100, &mut rng);
        }
        let mut last = 0;
        for seq in 0..1_000 {
            assert!(port.next_arrival() >= last);
            last = port.next_arrival();
            assert_eq!(port.arrive().seq, seq);
        }
    }
}
