//! Queue disciplines between the stack and a full transmit ring: one queue, or fair queues with
//! controlled delay.
//!
//! `fq_codel` follows RFC 8290 and RFC 8289. Flows take turns by bytes, new flows first. In each
//! flow packets are dropped at the front while they have waited longer than `target` for
//! `interval`.

use crate::agenda::Time;
use crate::casts::id;
use crate::fifo::Fifo;
use crate::frame::Frame;
use crate::machine;
use crate::packet_bursts::PacketBursts;

const FLOWS: usize = 1_024;
/// Bytes of one full Ethernet frame.
const QUANTUM: i64 = 1_514;

/// The queue discipline of one transmit queue.
#[derive(Debug)]
pub(crate) enum Qdisc {
    Plain(FifoQdisc),
    FqCodel(Box<FqCodel>),
}

impl Qdisc {
    /// A queue discipline. `mss` is the packet size of chunks, for counting drops in packets.
    pub(crate) fn new(settings: machine::Qdisc, mss: u32) -> Self {
        match settings {
            machine::Qdisc::Pfifo { limit_packets } => {
                Self::Plain(FifoQdisc::new(limit_packets as usize, u64::MAX, mss))
            }
            machine::Qdisc::Bfifo { limit_bytes } => {
                Self::Plain(FifoQdisc::new(usize::MAX, limit_bytes.get(), mss))
            }
            machine::Qdisc::FqCodel { limit_packets, target, interval } => Self::FqCodel(Box::new(
                FqCodel::new(limit_packets as usize, target.as_ns(), interval.as_ns(), mss),
            )),
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Plain(plain) => plain.frames.len(),
            Self::FqCodel(queues) => queues.len,
        }
    }

    /// Bytes that wait.
    pub(crate) fn waiting_bytes(&self) -> u64 {
        match self {
            Self::Plain(plain) => plain.bytes,
            Self::FqCodel(queues) => queues.flows.iter().map(|flow| flow.bytes).sum(),
        }
    }

    #[cfg(test)]
    pub(crate) fn iter(&self) -> Box<dyn Iterator<Item = &Frame> + '_> {
        match self {
            Self::Plain(plain) => Box::new(plain.frames.iter()),
            Self::FqCodel(queues) => {
                Box::new(queues.flows.iter().flat_map(|flow| flow.frames.iter().map(|(_, f)| f)))
            }
        }
    }

    /// Enqueues the packets of a burst. Returns the number of packets dropped for it.
    pub(crate) fn push(&mut self, now: Time, burst: &Frame) -> u64 {
        match self {
            Self::Plain(plain) => plain.push(burst),
            Self::FqCodel(queues) => {
                burst.iter_packets().map(|packet| queues.push(now, packet)).sum()
            }
        }
    }

    /// Dequeues the next burst, at most `most` packets. Returns it with the number of drops.
    #[cfg(test)]
    pub(crate) fn pop(&mut self, now: Time, most: u32) -> (Option<Frame>, u64) {
        match self {
            Self::Plain(plain) => (Some(plain.take(most)), 0),
            Self::FqCodel(queues) => queues.pop(now),
        }
    }
}

/// First in, first out, with tail drop.
#[derive(Debug)]
pub(crate) struct FifoQdisc {
    frames: PacketBursts,
    bytes: u64,
    most: usize,
    most_bytes: u64,
    mss: u32,
}

impl FifoQdisc {
    fn new(most: usize, most_bytes: u64, mss: u32) -> Self {
        Self { frames: PacketBursts::with_capacity(64), bytes: 0, most, most_bytes, mss }
    }

    fn push(&mut self, burst: &Frame) -> u64 {
        let (count, each) = (burst.count(), u64::from(burst.counted_bytes()));
        let mut fits = count.min(u32::try_from(self.most - self.frames.len()).unwrap_or(u32::MAX));
        while fits > 0 && self.bytes + u64::from(fits) * each > self.most_bytes {
            fits -= 1;
        }
        self.bytes += u64::from(fits) * each;
        if fits == count {
            self.frames.push(burst);
            return 0;
        }
        if fits == 0 {
            return burst.wire_packets(self.mss);
        }
        self.frames.push(&burst.first_packets(fits));
        burst.packets_after(fits).wire_packets(self.mss)
    }

    /// Dequeues the next burst, at most `most` packets. The queue must not be empty.
    #[inline]
    pub(crate) fn take(&mut self, most: u32) -> Frame {
        let burst = self.frames.take(most);
        self.bytes -= u64::from(burst.count()) * u64::from(burst.counted_bytes());
        burst
    }
}

/// The flows of `fq_codel`.
#[derive(Debug)]
pub(crate) struct FqCodel {
    flows: Vec<CodelFlow>,
    new: Fifo<u32>,
    old: Fifo<u32>,
    len: usize,
    limit: usize,
    target: Time,
    interval: Time,
    mss: u32,
}

#[derive(Debug)]
struct CodelFlow {
    frames: Fifo<(Time, Frame)>,
    bytes: u64,
    deficit: i64,
    listed: bool,
    // CoDel
    above_since: Option<Time>,
    dropping: bool,
    drop_next: Time,
    count: u32,
    last_count: u32,
}

impl FqCodel {
    fn new(limit: usize, target: Time, interval: Time, mss: u32) -> Self {
        let flow = |_| CodelFlow {
            frames: Fifo::empty(), // most of a thousand flows never have one
            bytes: 0,
            deficit: 0,
            listed: false,
            above_since: None,
            dropping: false,
            drop_next: 0,
            count: 0,
            last_count: 0,
        };
        Self {
            flows: (0..FLOWS).map(flow).collect(),
            new: Fifo::with_capacity(64),
            old: Fifo::with_capacity(64),
            len: 0,
            limit,
            target,
            interval,
            mss,
        }
    }

    fn push(&mut self, now: Time, frame: Frame) -> u64 {
        // Connections are numbered from 0, so the modulus spreads them without collisions.
        let idx = frame.end as usize % FLOWS;
        let flow = &mut self.flows[idx];
        flow.bytes += u64::from(frame.counted_bytes());
        flow.frames.push((now, frame));
        self.len += 1;
        if !flow.listed {
            flow.listed = true;
            flow.deficit = QUANTUM;
            self.new.push(id(idx));
        }
        if self.len > self.limit { self.drop_from_fattest() } else { 0 }
    }

    fn drop_from_fattest(&mut self) -> u64 {
        let fattest = self.flows.iter_mut().max_by_key(|flow| flow.bytes);
        let Some((_, frame)) = fattest.and_then(CodelFlow::take) else {
            return 0;
        };
        self.len -= 1;
        frame.wire_packets(self.mss)
    }

    /// Dequeues the next packet. Returns it with the number of drops.
    pub(crate) fn pop(&mut self, now: Time) -> (Option<Frame>, u64) {
        let mut dropped = 0;
        loop {
            let from_new = !self.new.is_empty();
            let list = if from_new { &mut self.new } else { &mut self.old };
            let Some(&idx) = list.front() else {
                return (None, dropped);
            };
            let flow = &mut self.flows[idx as usize];
            if flow.deficit <= 0 {
                flow.deficit += QUANTUM;
                list.pop();
                self.old.push(idx);
                continue;
            }
            let mut control = CodelControl {
                now,
                target: self.target,
                interval: self.interval,
                mss: self.mss,
                ..CodelControl::default()
            };
            let frame = flow.pop_controlled(&mut control);
            self.len -= control.taken;
            dropped += control.dropped;
            if let Some(frame) = frame {
                flow.deficit -= i64::from(frame.counted_bytes());
                return (Some(frame), dropped);
            }
            list.pop();
            if from_new && !self.old.is_empty() {
                // A new flow that became empty passes the old list once, so that it cannot starve
                // old flows.
                self.old.push(idx);
            } else {
                flow.listed = false;
            }
        }
    }
}

/// Parameters and results of `CoDel` for one dequeue.
#[derive(Default)]
struct CodelControl {
    now: Time,
    target: Time,
    interval: Time,
    mss: u32,
    taken: usize,
    dropped: u64,
}

impl CodelFlow {
    fn take(&mut self) -> Option<(Time, Frame)> {
        let (since, frame) = self.frames.pop()?;
        self.bytes -= u64::from(frame.counted_bytes());
        Some((since, frame))
    }

    /// Dequeues a packet. Returns it with whether the delay has exceeded the target for an
    /// interval.
    fn take_and_judge(&mut self, control: &mut CodelControl) -> Option<(Frame, bool)> {
        let (since, frame) = self.take()?;
        control.taken += 1;
        if control.now - since < control.target || self.bytes <= 1_514 {
            self.above_since = None;
            return Some((frame, false));
        }
        let above_since = *self.above_since.get_or_insert(control.now);
        Some((frame, control.now >= above_since + control.interval))
    }

    fn pop_controlled(&mut self, control: &mut CodelControl) -> Option<Frame> {
        let (now, interval, mss) = (control.now, control.interval, control.mss);
        let Some((mut frame, mut late)) = self.take_and_judge(control) else {
            self.dropping = false;
            return None;
        };
        if self.dropping {
            while late && now >= self.drop_next {
                self.count += 1;
                control.dropped += frame.wire_packets(mss);
                let Some(next) = self.take_and_judge(control) else {
                    self.dropping = false;
                    return None;
                };
                (frame, late) = next;
                self.drop_next += control_law(interval, self.count);
            }
            self.dropping = late;
        } else if late {
            control.dropped += frame.wire_packets(mss);
            self.dropping = true;
            let recent = now < self.drop_next + 16 * interval;
            let delta = self.count - self.last_count;
            self.count = if delta > 1 && recent { delta } else { 1 };
            self.last_count = self.count;
            self.drop_next = now + control_law(interval, self.count);
            frame = self.take_and_judge(control)?.0;
        }
        Some(frame)
    }
}

#[expect(clippy::cast_possible_truncation, reason = "at most the interval")]
fn control_law(interval: Time, count: u32) -> Time {
    (interval as f64 / f64::from(count).sqrt()) as Time
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::FrameKind;

    const MS: Time = 1_000_000;

    #[test]
    fn full_fifo_drops_what_comes() {
        let mut qdisc = Qdisc::new(machine::Qdisc::Pfifo { limit_packets: 2 }, 1_448);
        let dropped: Vec<u64> = (0..3).map(|_| qdisc.push(0, &Frame::default())).collect();
        assert_eq!(dropped, [0, 0, 1]);
    }

    #[test]
    fn train_fills_room_and_leaves_in_parts() {
        let bytes = latput_units::Bytes::new(5 * u64::from(build_packet(1).counted_bytes()) + 1);
        for settings in [
            machine::Qdisc::Pfifo { limit_packets: 5 },
            machine::Qdisc::Bfifo { limit_bytes: bytes },
        ] {
            let mut qdisc = Qdisc::new(settings, 1_448);
            assert_eq!(qdisc.push(0, &Frame { more: 2, ..build_packet(1) }), 0);
            assert_eq!(qdisc.push(0, &Frame { more: 3, ..build_packet(2) }), 2);
            assert_eq!(qdisc.push(0, &build_packet(3)), 1);
            let parts = [2, 8, 8].map(|most| qdisc.pop(0, most).0.unwrap());
            assert_eq!(parts.map(|part| (part.end, part.count())), [(1, 2), (1, 1), (2, 2)]);
            assert!(qdisc.is_empty() && qdisc.push(0, &Frame { more: 4, ..build_packet(4) }) == 0);
        }
    }

    #[test]
    fn thin_flow_overtakes_a_fat_one() {
        let mut qdisc = Qdisc::new(machine::Qdisc::FQ_CODEL, 1_448);
        for _ in 0..100 {
            qdisc.push(0, &build_packet(1));
        }
        qdisc.push(0, &build_packet(2));
        let order: Vec<u32> = (0..4).map(|_| qdisc.pop(0, 1).0.unwrap().end).collect();
        assert_eq!(order, [1, 2, 1, 1]);
    }

    #[test]
    fn flows_share_by_bytes() {
        let mut qdisc = Qdisc::new(machine::Qdisc::FQ_CODEL, 1_448);
        for _ in 0..300 {
            qdisc.push(0, &build_packet(1));
            for _ in 0..5 {
                qdisc.push(0, &Frame { payload: 258, ..build_packet(2) });
            }
        }
        let mut bytes = [0; 3];
        for _ in 0..600 {
            let frame = qdisc.pop(0, 1).0.unwrap();
            bytes[frame.end as usize] += frame.counted_bytes();
        }
        assert!(bytes[1].abs_diff(bytes[2]) < 4_000, "{bytes:?}");
    }

    #[test]
    fn standing_queue_is_thinned_short_one_never() {
        assert_eq!(drops_with_standing_delay(4 * MS), 0);
        let drops = drops_with_standing_delay(50 * MS);
        // After 100 ms the first; then the intervals shrink as 1/sqrt(n): about 100 in 2 s.
        assert!((60..=130).contains(&drops), "{drops}");
    }

    #[test]
    fn every_packet_is_popped_or_dropped() {
        let mut qdisc = Qdisc::new(
            machine::Qdisc::FqCodel {
                limit_packets: 50,
                target: latput_units::Nanos::from_ms(5),
                interval: latput_units::Nanos::from_ms(100),
            },
            1_448,
        );
        let (mut pushed, mut out, mut dropped) = (0, 0, 0);
        for round in 0..10_000_u64 {
            for end in 0..3 {
                pushed += 1;
                dropped += qdisc.push(round * MS, &build_packet(end));
            }
            let (frame, lost) = qdisc.pop(round * MS, 1);
            out += u64::from(frame.is_some());
            dropped += lost;
        }
        assert_eq!(pushed, out + dropped + qdisc.len() as u64);
    }

    /// Drops in 2 s of a flow whose every packet has waited for `delay`.
    fn drops_with_standing_delay(delay: Time) -> u64 {
        let mut qdisc = Qdisc::new(machine::Qdisc::FQ_CODEL, 1_448);
        let mut drops = 0;
        for now in (0..2_000).map(|ms| ms * MS + delay) {
            // Keep the backlog at `delay` of one packet per millisecond.
            while (qdisc.len() as u64) < delay / MS {
                qdisc.push(now, &build_packet(1));
            }
            drops += qdisc.pop(now, 1).1;
        }
        drops
    }

    fn build_packet(end: u32) -> Frame {
        Frame { end, payload: 1_472, kind: FrameKind::Udp, ..Frame::default() }
    }
}
