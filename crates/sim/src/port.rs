//! A port with its wire. It serializes frames at its rate and delivers them in order after the
//! latency.

use latput_units::{BitsPerSecond, Nanos, SeededRng};

use crate::agenda::{NEVER, Time};
use crate::casts::narrow_count;
use crate::fifo::Fifo;
use crate::frame::{Frame, on_wire};
use crate::packet_bursts::{BurstPace, BurstStep, FRACTION};
use crate::timed_queue::{Timed, TimedQueue};

/// The far end of a wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FarEnd {
    Host(usize),
    Switch,
}

/// The source of a port's frames.
#[derive(Debug)]
pub(crate) enum FrameSource {
    /// The transmit rings of a host, in turn.
    Rings { first: usize, count: usize, turn: usize },
    /// The output buffer of a switch port.
    Buffer { frames: Fifo<Frame>, bytes: u64, limit: u64 },
}

/// A frame that is being sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OutgoingFrame {
    /// The packet, or the current packet of a chunk.
    pub(crate) frame: Frame,
    /// The ring of the frame.
    pub(crate) queue: usize,
    /// Bytes of the descriptor that the frame completes, if any.
    pub(crate) completes: Option<u32>,
}

/// Packets on a wire, and when they arrive.
#[derive(Clone, Copy, Debug, Default)]
struct InFlightBurst {
    pace: BurstPace,
    frame: Frame,
}

/// One direction of a link.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) feed: FrameSource,
    pub(crate) far: FarEnd,
    pub(crate) sending: Option<OutgoingFrame>,
    /// End of a pause that the far end asked for (802.3x).
    pub(crate) paused_until: Time,
    per_byte: u64,
    /// Fraction of a nanosecond, in 2^-20 ns.
    fraction: u64,
    latency: Time,
    jitter: f64,
    last_arrival: Time,
    /// 512 bit times, the unit of pause frames.
    quantum: Time,
    wire: TimedQueue<InFlightBurst>,
    /// Packets of the longest burst whose times cannot overflow.
    longest_train: u32,
    pub(crate) dropped: u64,
    /// The only ring of this port, if nobody can pause it: its departure times are known in
    /// advance.
    pub(crate) foreseen: Option<usize>,
    busy_until: Time,
    /// Known departures that were not reported to the ring.
    departures: TimedQueue<DepartureBurst>,
}

/// Frames that leave at times known in advance.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DepartureBurst {
    pub(crate) pace: BurstPace,
    /// Bytes of each frame in interface counters.
    pub(crate) bytes: u32,
    /// See [`BurstStep`].
    pub(crate) gap: u32,
    pub(crate) more: u16,
    /// Bytes of the descriptor that each frame completes, if any.
    pub(crate) completes: Option<u32>,
}

impl Timed for InFlightBurst {
    #[inline]
    fn at(&self) -> Time {
        self.pace.at
    }
}

impl Timed for DepartureBurst {
    #[inline]
    fn at(&self) -> Time {
        self.pace.at
    }
}

impl DepartureBurst {
    pub(crate) const fn from_single_frame(at: Time, bytes: u32, completes: Option<u32>) -> Self {
        Self { pace: BurstPace { at, fraction: 0 }, bytes, gap: 0, more: 0, completes }
    }

    pub(crate) const fn count(&self) -> u32 {
        self.more as u32 + 1
    }
}

impl Port {
    pub(crate) fn new(
        feed: FrameSource,
        far: FarEnd,
        rate: BitsPerSecond,
        latency: Nanos,
        jitter: f64,
    ) -> Self {
        let per_byte = (u128::from(8_000_000_000_u64) << FRACTION) / u128::from(rate.get());
        let per_byte = u64::try_from(per_byte).expect("a link has at least 1 kbit/s");
        let longest_train = (1 << 62) / (per_byte.max(1) * (1 << 17));
        Self {
            feed,
            far,
            sending: None,
            paused_until: 0,
            per_byte,
            fraction: 0,
            latency: latency.as_ns(),
            jitter,
            last_arrival: 0,
            quantum: (512_000_000_000 / rate.get()).max(1),
            wire: TimedQueue::with_capacity(64),
            longest_train: u32::try_from(longest_train.clamp(1, 1 << 15)).unwrap_or(1),
            dropped: 0,
            foreseen: None,
            busy_until: 0,
            departures: TimedQueue::with_capacity(64),
        }
    }

    /// The distance between packets of a burst.
    #[inline]
    pub(crate) fn burst_step(&self, counted_bytes: u32, gap: u32) -> BurstStep {
        BurstStep { link: u64::from(on_wire(counted_bytes)) * self.per_byte, gap }
    }

    /// The serialization time of `frame`. The fraction of a nanosecond is carried over to the next.
    #[inline]
    pub(crate) fn serialize(&mut self, frame: &Frame) -> Time {
        let pace = BurstPace { at: 0, fraction: self.fraction };
        let BurstPace { at, fraction } = pace.from(1, self.burst_step(frame.counted_bytes(), 0));
        self.fraction = fraction;
        at
    }

    /// Sends a burst, or the packets of a chunk, on a port with known departures: after earlier
    /// frames, from now on.
    #[inline]
    pub(crate) fn foresee_frame(&mut self, frame: &Frame, mss: u32, now: Time) {
        if frame.is_chunk(mss) || frame.count() > self.longest_train {
            return self.foresee_parts(frame, mss, now);
        }
        self.foresee_part(frame, Some(frame.counted_bytes()), now);
    }

    #[inline(never)]
    fn foresee_parts(&mut self, frame: &Frame, mss: u32, now: Time) {
        let bytes = Some(frame.counted_bytes());
        if !frame.is_chunk(mss) {
            return self.foresee_train(frame, bytes, now);
        }
        let full = (frame.payload - 1) / mss;
        let packets = Frame { payload: mss, more: narrow_count(full - 1), ..*frame };
        self.foresee_train(&packets, None, now);
        let last = Frame {
            payload: frame.payload - full * mss,
            seq: frame.seq + u64::from(full * mss),
            ..*frame
        };
        self.foresee_train(&last, bytes, now);
    }

    /// Each packet completes a descriptor of `completes` bytes, if any.
    fn foresee_train(&mut self, frame: &Frame, completes: Option<u32>, now: Time) {
        let mut rest = *frame;
        while rest.count() > self.longest_train {
            self.foresee_part(&rest.first_packets(self.longest_train), completes, now);
            rest = rest.packets_after(self.longest_train);
        }
        self.foresee_part(&rest, completes, now);
    }

    #[inline]
    fn foresee_part(&mut self, frame: &Frame, completes: Option<u32>, now: Time) {
        let bytes = frame.counted_bytes();
        let step = self.burst_step(bytes, 0);
        // An equal burst without a gap joins the last one, at whose end it begins.
        let is_behind = self.busy_until >= now;
        let before = self.busy_until.max(now);
        let pace = BurstPace { at: before, fraction: self.fraction }.from(1, step);
        let last = if frame.more == 0 { pace } else { pace.from(u32::from(frame.more), step) };
        (self.busy_until, self.fraction) = (last.at, last.fraction);
        let longest = self.longest_train - frame.count();
        if is_behind
            && let Some(last) = self.departures.back_mut()
            && last.bytes == bytes
            && last.gap == 0
            && last.completes == completes
            && last.count() <= longest
        {
            last.more += narrow_count(frame.count());
        } else {
            let more = frame.more;
            self.departures.push(DepartureBurst { pace, bytes, gap: 0, more, completes });
        }
        if is_behind
            && let Some(last) = self.wire.back_mut()
            && last.frame.is_followed_by(frame)
            && last.frame.count() <= longest
        {
            last.frame.more += narrow_count(frame.count());
        } else {
            let pace = BurstPace { at: pace.at + self.latency, ..pace };
            self.wire.push(InFlightBurst { pace, frame: *frame });
        }
    }

    /// The number of datagrams, one every `gap` from `first` on, that find the wire free and fit
    /// one burst.
    #[inline]
    pub(crate) fn max_spaced_burst(&self, frame: &Frame, gap: u32, first: Time) -> u32 {
        let link_ns = (self.burst_step(frame.counted_bytes(), 0).link >> FRACTION) + 1;
        let is_free = self.busy_until < first && link_ns < u64::from(gap);
        if is_free { self.longest_train } else { 0 }
    }

    /// Sends datagrams on a port with known departures, at most [`Self::most_apart`]; the first at
    /// `first`.
    #[inline]
    pub(crate) fn foresee_spaced_burst(&mut self, frame: &Frame, first: Time) {
        let (bytes, gap) = (frame.counted_bytes(), frame.gap());
        let pace =
            BurstPace { at: first, fraction: self.fraction }.from(1, self.burst_step(bytes, 0));
        let last = pace.from(u32::from(frame.more), self.burst_step(bytes, gap));
        (self.busy_until, self.fraction) = (last.at, last.fraction);
        let (more, completes) = (frame.more, Some(bytes));
        self.departures.push(DepartureBurst { pace, bytes, gap, more, completes });
        let pace = BurstPace { at: pace.at + self.latency, ..pace };
        self.wire.push(InFlightBurst { pace, frame: *frame });
    }

    /// When the next departure completes a descriptor.
    #[inline]
    pub(crate) fn next_completion(&self) -> Time {
        if self.departures.is_empty() || self.departures.front().completes.is_some() {
            return self.departures.next();
        }
        self.find_later_completion()
    }

    #[inline(never)]
    fn find_later_completion(&self) -> Time {
        let next = self.departures.iter().find(|departures| departures.completes.is_some());
        next.map_or(NEVER, |departures| departures.pace.at)
    }

    /// When the next unreported frame leaves.
    #[inline]
    pub(crate) fn next_departure(&self) -> Time {
        self.departures.next()
    }

    /// Removes equal departures before `until`. Returns them with their distance.
    #[inline]
    pub(crate) fn drain_departures_before(
        &mut self,
        until: Time,
        mut hear: impl FnMut(&DepartureBurst, BurstStep),
    ) {
        while self.departures.next() < until {
            let front = self.departures.front();
            if front.more == 0 {
                hear(front, BurstStep::default());
                self.departures.drop_front();
            } else {
                let (departures, step) = self.split_departure_before(until);
                hear(&departures, step);
            }
        }
    }

    /// The part of the next burst that departs before `until`. There is some.
    #[inline(never)]
    fn split_departure_before(&mut self, until: Time) -> (DepartureBurst, BurstStep) {
        let per_byte = self.per_byte;
        let all = *self.departures.front();
        let step = BurstStep { link: u64::from(on_wire(all.bytes)) * per_byte, gap: all.gap };
        let count = all.pace.count_before(until, all.count(), step);
        if count == all.count() {
            self.departures.drop_front();
            return (all, step);
        }
        let (pace, more) = (all.pace.from(count, step), all.more - narrow_count(count));
        self.departures.set_front(DepartureBurst { pace, more, ..all });
        (DepartureBurst { more: narrow_count(count - 1), ..all }, step)
    }

    /// Whether any departure is unreported.
    #[inline]
    pub(crate) fn has_departures(&self) -> bool {
        !self.departures.is_empty()
    }

    /// The last bit of `frame` leaves now.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "a jitter of a latency is a latency")]
    pub(crate) fn put_on_wire(&mut self, frame: Frame, now: Time, rng: &mut SeededRng) {
        let mut at = now + self.latency;
        if self.jitter > 0.0 {
            at += (rng.next_uniform() * self.jitter * self.latency as f64) as Time;
            at = at.max(self.last_arrival);
            self.last_arrival = at;
        }
        self.wire.push(InFlightBurst { pace: BurstPace { at, fraction: 0 }, frame });
    }

    /// The far end asks for a pause of `quanta`; 0 ends an earlier one.
    pub(crate) fn set_pause(&mut self, quanta: u32, now: Time) {
        self.paused_until = now + u64::from(quanta) * self.quantum;
    }

    /// When the next frame arrives at the far end.
    #[inline]
    pub(crate) fn next_arrival(&self) -> Time {
        self.wire.next()
    }

    /// Removes the frame that arrives now.
    #[inline]
    pub(crate) fn pop_arrival(&mut self) -> Frame {
        let at = self.next_arrival();
        let (_, frame) =
            self.pop_arrivals_before(at + 1, 1).expect("a wire is due with a frame on it");
        frame
    }

    /// The single packet that arrives next, if it does before `until`.
    #[inline]
    pub(crate) fn peek_single_before(&self, until: Time) -> Option<(BurstPace, &Frame)> {
        if self.wire.next() >= until {
            return None;
        }
        let InFlightBurst { pace, frame } = self.wire.front();
        (frame.more == 0).then_some((*pace, frame))
    }

    /// Removes that packet.
    #[inline]
    pub(crate) fn pop_single(&mut self) {
        self.wire.drop_front();
    }

    /// Removes the next equal packets that arrive before `until`, at most `most`. Returns them with
    /// their times.
    #[inline]
    pub(crate) fn pop_arrivals_before(
        &mut self,
        until: Time,
        most: u32,
    ) -> Option<(BurstPace, Frame)> {
        if self.next_arrival() >= until {
            return None;
        }
        Some(self.take_arrivals(until, most))
    }

    #[inline(never)]
    fn take_arrivals(&mut self, until: Time, most: u32) -> (BurstPace, Frame) {
        let per_byte = self.per_byte;
        let InFlightBurst { pace, frame } = *self.wire.front();
        let step = BurstStep { link: u64::from(frame.wire_bytes()) * per_byte, gap: frame.gap() };
        let count = pace.count_before(until, frame.count(), step).min(most);
        if count == frame.count() {
            self.wire.drop_front();
            return (pace, frame);
        }
        self.wire.set_front(InFlightBurst {
            pace: pace.from(count, step),
            frame: frame.packets_after(count),
        });
        (pace, frame.first_packets(count))
    }

    #[cfg(test)]
    pub(crate) fn count_on_wire(&self, kind: crate::frame::FrameKind) -> u64 {
        let frames = self.wire.iter().map(|travelling| &travelling.frame);
        frames.filter(|frame| frame.kind == kind).count() as u64
    }

    /// Frames on the wire.
    #[cfg(test)]
    pub(crate) fn in_flight(&self) -> u64 {
        self.wire.iter().map(|travelling| u64::from(travelling.frame.count())).sum()
    }

    /// Shortest time from departure to arrival.
    pub(crate) const fn latency(&self) -> Time {
        self.latency
    }

    /// Whether the wire is empty.
    #[inline]
    pub(crate) fn is_quiet(&self) -> bool {
        self.wire.is_empty()
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
            let feed = FrameSource::Rings { first: 0, count: 1, turn: 0 };
            let rate = BitsPerSecond::new(rate_bps);
            let mut port = Port::new(feed, FarEnd::Host(0), rate, Nanos::ZERO, 0.0);
            let total: Time = (0..frames).map(|_| port.serialize(&Frame::default())).sum();
            assert!(total.abs_diff(expected_ns) <= 1, "{rate_bps}: {total}");
        }
    }

    #[test]
    fn jitter_never_reorders() {
        let feed = FrameSource::Rings { first: 0, count: 1, turn: 0 };
        let rate = BitsPerSecond::new(1_000_000_000);
        let mut port = Port::new(feed, FarEnd::Host(0), rate, Nanos::from_us(10), 0.5);
        let mut rng = SeededRng::from_seed(1);
        for now in 0..1_000 {
            port.put_on_wire(Frame { seq: now, ..Frame::default() }, now * 100, &mut rng);
        }
        let mut last = 0;
        for seq in 0..1_000 {
            assert!(port.next_arrival() >= last);
            last = port.next_arrival();
            assert_eq!(port.pop_arrival().seq, seq);
        }
    }
}
