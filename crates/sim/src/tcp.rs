//! One end of a TCP connection: segments to send and reactions to segments. Pure, without costs.
//!
//! Slow start, congestion avoidance, delayed acknowledgements, Nagle, fast retransmit and recovery
//! after `NewReno` (RFC 6582), retransmission timeout (RFC 6298), window updates, zero window
//! probes. Left out: SACK, tail loss probe, window auto-tuning, TCP small queues. `world::connect`
//! opens and closes connections.

mod options;
mod out_of_order;

use std::num::NonZero;
use std::sync::Arc;

use crate::agenda::{NEVER, Time};
use crate::casts::{narrow_count, narrow_size};
use crate::congestion::CongestionWindow;
use crate::frame::{Frame, FrameKind};
pub(crate) use options::TcpOptions;
use out_of_order::OutOfOrder;

/// Segments beyond the first of a burst.
const LONGEST_TRAIN: u64 = 1 << 14;
const DELAYED_ACK: Time = 40_000_000;
const SHORTEST_TIMEOUT: Time = 200_000_000;
const LONGEST_TIMEOUT: Time = 120_000_000_000;
const FIRST_TIMEOUT: Time = 1_000_000_000;

/// One end of a connection in three cache lines: fields of every segment, fields of segments with
/// data, and fields of senders.
#[derive(Clone, Debug)]
#[repr(C)]
pub(crate) struct TcpEndpoint {
    // The sending side: acknowledged <= next <= furthest <= written.
    acknowledged: u64,
    next: u64,
    written: u64,
    /// End of the bytes that the other end accepts.
    edge: u64,
    // The receiving side.
    received: u64,
    advertised: u64,
    /// When a delayed acknowledgement leaves.
    pub(crate) acknowledge_at: Time,
    /// When the retransmission timer expires.
    pub(crate) timeout_at: Time,

    options: Arc<TcpOptions>,
    echo: Time,
    /// Bytes that the process has not read, and bytes not acknowledged.
    unread: u32,
    unacknowledged: u32,
    /// Received ranges beyond a hole.
    out_of_order: Option<Box<OutOfOrder>>,
    acknowledge_now: bool,
    resend_first: bool,
    probe: bool,
    /// Duplicate acknowledgements, as far as they are counted.
    duplicates: u8,
    /// Retransmitted segments.
    pub(crate) retransmits: u32,
    furthest: u64,
    timeout: Time,
    /// In recovery until this byte is acknowledged.
    recover: Option<NonZero<u64>>,

    smoothed: Time,
    variation: Time,
    window: CongestionWindow,
}

/// Segments to send, before their frames are made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SegmentTrain {
    /// Number of the first byte, and bytes of each segment.
    seq: u64,
    payload: u32,
    /// Segments after the first.
    more: u16,
    /// Whether more segments may be ready to send.
    pub(crate) has_more: bool,
}

impl TcpEndpoint {
    pub(crate) fn new(options: impl Into<Arc<TcpOptions>>) -> Self {
        let options = options.into();
        Self {
            acknowledged: 0,
            next: 0,
            written: 0,
            edge: u64::from(options.peer_buffer),
            received: 0,
            advertised: u64::from(options.receive_buffer),
            acknowledge_at: NEVER,
            timeout_at: NEVER,
            echo: 0,
            unread: 0,
            unacknowledged: 0,
            out_of_order: None,
            acknowledge_now: false,
            resend_first: false,
            probe: false,
            duplicates: 0,
            retransmits: 0,
            furthest: 0,
            timeout: FIRST_TIMEOUT,
            recover: None,
            smoothed: 0,
            variation: 0,
            window: CongestionWindow::new(options.congestion_params()),
            options,
        }
    }

    /// Reads each of its cache lines.
    #[inline]
    pub(crate) fn touch_cache_lines(&self) -> u64 {
        self.acknowledged ^ self.furthest ^ self.smoothed
    }

    /// Starts a new connection with the same options.
    pub(crate) fn reset_connection(&mut self) {
        let options = Arc::clone(&self.options);
        *self = Self { retransmits: self.retransmits, ..Self::new(options) };
    }

    /// Bytes that the process can read.
    pub(crate) fn readable_bytes(&self) -> u64 {
        u64::from(self.unread)
    }

    /// Free bytes of the send buffer.
    pub(crate) fn writable_bytes(&self) -> u64 {
        u64::from(self.options.send_buffer).saturating_sub(self.written - self.acknowledged)
    }

    /// Whether to wake a process that waits for room: a third of the buffer is free.
    pub(crate) fn wakes_writer(&self) -> bool {
        self.writable_bytes() * 3 >= u64::from(self.options.send_buffer)
    }

    /// Bytes received in order since the start.
    #[cfg(test)]
    pub(crate) fn total_received(&self) -> u64 {
        self.received
    }

    /// The process writes `bytes`, at most [`Self::writable_bytes`].
    pub(crate) fn write(&mut self, bytes: u64) {
        self.written += bytes;
    }

    /// The process reads `bytes`. A small window is advertised again.
    pub(crate) fn read(&mut self, bytes: u64) {
        assert!(bytes <= self.readable_bytes(), "read beyond what was received");
        self.unread -= narrow_size(bytes);
        self.acknowledge_now |= self.tells_of_reading(self.unread);
    }

    /// Reads `bytes` if nothing is to be sent before or after. Otherwise reads nothing and returns
    /// false.
    #[inline]
    pub(crate) fn read_silently(&mut self, bytes: u64) -> bool {
        let unread = self.unread - narrow_size(bytes);
        let is_silent = self.is_silent() && !self.tells_of_reading(unread);
        if is_silent {
            self.unread = unread;
        }
        is_silent
    }

    /// Whether a read that leaves `unread` bytes is announced at once.
    #[inline]
    fn tells_of_reading(&self, unread: u32) -> bool {
        let offered = self.advertised - self.received;
        let possible = u64::from(self.options.receive_buffer - unread);
        let worth = u64::from(self.options.mss.min(self.options.receive_buffer / 2));
        let has_read_all = self.options.acks_when_read && unread == 0;
        let is_due = has_read_all && self.unacknowledged > self.options.mss;
        is_due || (possible >= 2 * offered && possible >= worth)
    }

    fn in_flight(&self) -> u64 {
        self.next - self.acknowledged
    }

    /// Handles a received segment (or several, merged by GRO). Returns whether room to send became
    /// free.
    pub(crate) fn receive_segment(&mut self, now: Time, frame: &Frame) -> bool {
        let freed = self.take_acknowledgement(now, frame);
        if frame.payload > 0 {
            self.take_data(now, frame);
        }
        freed
    }

    fn take_acknowledgement(&mut self, now: Time, frame: &Frame) -> bool {
        let edge = frame.ack + u64::from(frame.window);
        let moved_edge = edge > self.edge;
        self.edge = self.edge.max(edge);
        if frame.ack > self.acknowledged {
            self.take_new_acknowledgement(now, frame);
            return true;
        }
        let is_duplicate = frame.ack == self.acknowledged
            && frame.payload == 0
            && !moved_edge
            && self.furthest > self.acknowledged;
        if is_duplicate {
            self.duplicates = self.duplicates.saturating_add(1);
            let rules = self.options.congestion_params();
            if self.recover.is_some() {
                self.window.inflate(rules, 1);
            } else if self.duplicates == 3 {
                self.recover = NonZero::new(self.furthest);
                self.window.reduce_on_loss(rules, self.in_flight());
                self.window.inflate(rules, 3);
                self.resend_first = true;
            }
        }
        false
    }

    fn take_new_acknowledgement(&mut self, now: Time, frame: &Frame) {
        let acked = frame.ack - self.acknowledged;
        let in_flight = self.furthest - self.acknowledged;
        if frame.echo > 0 {
            self.sample_round_trip(now - frame.echo);
        }
        self.acknowledged = frame.ack;
        self.next = self.next.max(frame.ack);
        self.duplicates = 0;
        let rules = self.options.congestion_params();
        match self.recover {
            Some(recover) if frame.ack >= recover.get() => {
                self.recover = None;
                self.window.end_recovery();
            }
            Some(_) => {
                self.window.deflate(rules, acked);
                self.resend_first = true;
            }
            None => self.window.grow_on_ack(rules, acked, in_flight, now, self.smoothed),
        }
        self.timeout_at = if self.in_flight() > 0 { now + self.timeout } else { NEVER };
    }

    /// Updates the timeout (RFC 6298, section 2, with Linux's lower bound).
    fn sample_round_trip(&mut self, sample: Time) {
        if self.smoothed == 0 {
            self.smoothed = sample;
            self.variation = sample / 2;
        } else {
            self.variation = (3 * self.variation + self.smoothed.abs_diff(sample)) / 4;
            self.smoothed = (7 * self.smoothed + sample) / 8;
        }
        self.timeout =
            (self.smoothed + 4 * self.variation).clamp(SHORTEST_TIMEOUT, LONGEST_TIMEOUT);
    }

    fn take_data(&mut self, now: Time, frame: &Frame) {
        let end = frame.seq + u64::from(frame.payload);
        if frame.seq > self.received {
            match &mut self.out_of_order {
                Some(ranges) => ranges.insert_range(frame.seq, end),
                None => self.out_of_order = Some(Box::new(OutOfOrder::new(frame.seq, end))),
            }
            self.acknowledge_now = true;
            return;
        }
        // An old segment, or a probe of a closed window (RFC 9293, 3.8.6.1): answered and dropped.
        if end <= self.received || end > self.advertised {
            self.acknowledge_now = true;
            return;
        }
        if self.unacknowledged == 0 {
            self.echo = frame.sent_at;
        }
        let before = self.received;
        self.received = end;
        if let Some(ranges) = &mut self.out_of_order {
            if !ranges.go_on(&mut self.received) {
                self.out_of_order = None;
            }
            self.acknowledge_now = true;
        }
        let new = narrow_size(self.received - before);
        self.unread += new;
        self.unacknowledged += new;
        let is_due = self.unacknowledged >= 2 * self.options.mss;
        if is_due && !self.options.acks_when_read {
            self.acknowledge_now = true;
        } else if self.acknowledge_at == NEVER {
            self.acknowledge_at = now + DELAYED_ACK;
        }
    }

    /// Whether [`Self::next_train`] would return nothing and change nothing.
    #[inline]
    pub(crate) fn is_silent(&self) -> bool {
        !self.acknowledge_now && !self.resend_first && self.next == self.written
    }

    /// The next packet (or chunk) to send, if any: a retransmission, new data, or an acknowledgement.
    #[cfg(test)]
    pub(crate) fn next_frame(&mut self, now: Time) -> Option<Frame> {
        let (seq, payload) = self.next_segment(now)?;
        Some(self.build_frame(now, 0, &SegmentTrain { seq, payload, more: 0, has_more: true }))
    }

    /// The first byte and the length of the next segment.
    fn next_segment(&mut self, now: Time) -> Option<(u64, u32)> {
        if self.resend_first {
            self.resend_first = false;
            let bytes = u64::from(self.options.mss).min(self.furthest - self.acknowledged);
            if bytes > 0 {
                self.retransmits += 1;
                self.timeout_at = now + self.timeout;
                return Some((self.acknowledged, narrow_size(bytes)));
            }
        }
        if let Some(bytes) = self.sendable_bytes() {
            let seq = self.next;
            if seq < self.furthest {
                self.retransmits += narrow_size(bytes.div_ceil(u64::from(self.options.mss)));
            }
            self.next += bytes;
            self.furthest = self.furthest.max(self.next);
            if self.timeout_at == NEVER {
                self.timeout_at = now + self.timeout;
            }
            return Some((seq, narrow_size(bytes)));
        }
        if self.timeout_at == NEVER && self.next < self.written && self.in_flight() == 0 {
            // Only the other end's window limits sending: probe it, in case its update gets lost.
            self.timeout_at = now + self.timeout;
        }
        self.acknowledge_now.then_some((self.next, 0))
    }

    /// The next segment, with the full segments of new data that may follow at once.
    #[inline]
    pub(crate) fn next_train(&mut self, now: Time) -> Option<SegmentTrain> {
        if self.is_silent() {
            return None;
        }
        let (seq, payload) = self.next_segment(now)?;
        let mss = self.options.mss;
        let is_new = seq + u64::from(mss) == self.furthest && self.next == self.furthest;
        if payload != mss || self.options.chunk != mss || !is_new || self.probe {
            // An acknowledgement leaves if nothing else can.
            return Some(SegmentTrain { seq, payload, more: 0, has_more: payload > 0 });
        }
        let mss = u64::from(mss);
        let limit = self.edge.min(self.acknowledged + self.window.bytes());
        let may_go = limit.min(self.written).saturating_sub(self.next);
        let more = (may_go / mss).min(LONGEST_TRAIN);
        self.next += more * mss;
        self.furthest = self.next;
        // The rest fills no segment, or the window is too small for one.
        let left = self.written - self.next;
        let is_last = left == 0 || limit.saturating_sub(self.next) < left.min(mss);
        Some(SegmentTrain {
            seq,
            payload,
            more: narrow_count(narrow_size(more)),
            has_more: !is_last,
        })
    }

    /// The number of bytes that may leave now.
    fn sendable_bytes(&mut self) -> Option<u64> {
        let unsent = self.written - self.next;
        if unsent == 0 {
            return None;
        }
        if self.probe {
            self.probe = false;
            return Some(1);
        }
        let limit = self.edge.min(self.acknowledged + self.window.bytes());
        let allowed = limit.saturating_sub(self.next);
        let mss = u64::from(self.options.mss);
        let mut bytes = unsent.min(u64::from(self.options.chunk)).min(allowed);
        if bytes > mss {
            bytes -= bytes % mss;
        } else if bytes < mss.min(unsent) {
            // The window is too small for a segment (silly window): wait, unless nothing is in
            // flight.
            return (self.in_flight() == 0 && bytes > 0).then_some(bytes);
        }
        let nagle = bytes < mss && self.in_flight() > 0 && !self.options.nodelay;
        (bytes > 0 && !nagle).then_some(bytes)
    }

    /// Makes packets for the socket `end`, with the newest acknowledgement and window.
    #[inline]
    pub(crate) fn build_frame(&mut self, now: Time, end: u32, burst: &SegmentTrain) -> Frame {
        let possible =
            self.received + u64::from(self.options.receive_buffer) - self.readable_bytes();
        self.advertised = self.advertised.max(possible);
        self.unacknowledged = 0;
        self.acknowledge_now = false;
        self.acknowledge_at = NEVER;
        Frame {
            sent_at: now,
            echo: self.echo,
            seq: burst.seq,
            ack: self.received,
            end,
            payload: burst.payload,
            window: u32::try_from(self.advertised - self.received).unwrap_or(u32::MAX),
            more: burst.more,
            kind: FrameKind::Tcp,
        }
    }

    /// Handles an expired timer. [`Self::next_train`] must be called after it.
    pub(crate) fn handle_tick(&mut self, now: Time) {
        if self.acknowledge_at <= now {
            self.acknowledge_at = NEVER;
            self.acknowledge_now = true;
        }
        if self.timeout_at <= now {
            self.timeout_at = NEVER;
            self.timeout = (2 * self.timeout).min(LONGEST_TIMEOUT);
            if self.in_flight() == 0 {
                self.probe = self.next < self.written;
            } else {
                self.window.timed_out(self.options.congestion_params(), self.in_flight());
                self.next = self.acknowledged;
                self.duplicates = 0;
                self.recover = None;
            }
        }
    }

    /// When [`Self::handle_tick`] is due.
    pub(crate) fn next_tick(&self) -> Time {
        self.timeout_at.min(self.acknowledge_at)
    }
}

#[cfg(test)]
mod tests;
