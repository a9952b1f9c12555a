//! A pair of NIC rings with their interrupt vector, shared by driver and hardware.

use latput_policy::{ByteLimit, Decision, Policy, QueueObservation, SMALL_BYTES};
use latput_units::{BitsPerSecond, Bytes, Nanos};

use crate::agenda::Time;
use crate::casts::id;
use crate::fifo::Fifo;
use crate::frame::Frame;
use crate::machine::DriverMode;
use crate::packet_bursts::{BurstPace, BurstStep, PacketBursts};
use crate::port::{DepartureBurst, Port};
use crate::qdisc::Qdisc;
use crate::scenario::{AdaptivePolicies, Host};
use crate::vector::{Coalescing, InterruptVector};

/// Counts of a queue since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct QueueCounters {
    pub(crate) interrupts: u64,
    pub(crate) polls: u64,
    pub(crate) empty_polls: u64,
    pub(crate) polled_packets: u64,
    pub(crate) rx_packets: u64,
    pub(crate) rx_bytes: u64,
    pub(crate) rx_dropped: u64,
    pub(crate) tx_packets: u64,
    pub(crate) tx_bytes: u64,
    pub(crate) tx_dropped: u64,
}

/// Properties of a queue's link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinkProperties {
    pub(crate) rate: BitsPerSecond,
    /// Largest payload of a TCP segment.
    pub(crate) mss: u32,
}

/// A receive ring, a transmit ring and their vector.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "who polls and how far, each by itself")]
pub(crate) struct NicQueue {
    pub(crate) host: usize,
    /// The port whose wire carries packets for this queue only. Arrivals that change nothing stay
    /// there until the ring is read.
    pub(crate) quiet_wire: Option<usize>,
    /// Whether the vector's due time may be computed before its packet arrives. Not if a policy may
    /// change that in a poll that leaves the vector unmasked.
    pub(crate) foresees: bool,
    /// The core of the interrupts.
    pub(crate) core: usize,
    pub(crate) port: usize,
    pub(crate) driver: DriverMode,
    /// The thread that polls it, with threaded NAPI.
    pub(crate) poll_thread: Option<usize>,
    pub(crate) vector: InterruptVector,
    /// Received packets in descriptors. The host sees the first `visible` of them.
    pub(crate) rx: PacketBursts,
    pub(crate) rx_limit: usize,
    pub(crate) visible: usize,
    /// Packets in the NIC that wait for a descriptor.
    pub(crate) waiting: Fifo<Frame>,
    pub(crate) waiting_bytes: u64,
    /// Whether it is scheduled for polling or being polled.
    pub(crate) scheduled: bool,
    /// Whether a process polls it (busy polling).
    pub(crate) by_process: bool,
    /// Whether a process keeps interrupts off until it sleeps (`irq-suspend-timeout`).
    pub(crate) suspended: bool,
    /// Packets of the current poll so far.
    pub(crate) in_poll: bool,
    pub(crate) polled: u32,
    pub(crate) deferrals_left: u32,
    /// Packets (or chunks) in the transmit ring that were not sent yet.
    pub(crate) tx: PacketBursts,
    /// Descriptors in use: waiting, being sent, or sent and not yet reaped by the driver.
    pub(crate) tx_used: u32,
    pub(crate) tx_limit: u32,
    /// Whether sent packets are in the other end's memory at once: no descriptors, no completions.
    pub(crate) hands_over: bool,
    /// Bytes of the descriptor that is partly sent; 0 between descriptors.
    pub(crate) chunk_bytes: u32,
    pub(crate) done: u32,
    pub(crate) done_bytes: u64,
    pub(crate) byte_limit: Option<ByteLimit>,
    pub(crate) qdisc: Qdisc,
    /// Sources that wait for room in their send buffer of this many packets.
    pub(crate) blocked: Vec<(u32, u32)>,
    /// Whether a policy samples its polls, its own or one shared by all queues of the host.
    pub(crate) is_sampled: bool,
    adaptive: AdaptivePolicies,
    /// A decided setting with the time at which it applies.
    pending: Option<(Time, Coalescing)>,
    wanted: Coalescing,
    sample: QueueObservation,
    pub(crate) counters: QueueCounters,
}

impl NicQueue {
    pub(crate) fn new(
        host_idx: usize,
        host: &Host,
        core: usize,
        phase: Time,
        wire: &LinkProperties,
    ) -> Self {
        let mut wanted = host.nic.coalescing;
        let initial = |policy: &Option<Policy>| policy.as_ref().map(Policy::initial_moderation);
        if let Some(target) = initial(&host.adaptive.throttle) {
            wanted.throttle = wanted.throttle.with_interval(target.delay);
        }
        if let Some(target) = initial(&host.adaptive.rx) {
            (wanted.rx.delay, wanted.rx.frames) = (target.delay, target.frames.unwrap_or(0));
        }
        if let Some(target) = initial(&host.adaptive.tx) {
            (wanted.tx.delay, wanted.tx.frames) = (target.delay, target.frames.unwrap_or(0));
        }
        let mut adaptive = host.adaptive.clone();
        if adaptive.shares_throttle {
            adaptive.throttle = None;
        }
        let mut vector = InterruptVector::new(wanted, phase, i64::from(host.machine.clock_ppm));
        if host.nic.driver == DriverMode::Polling {
            vector.mask();
        }
        Self {
            host: host_idx,
            quiet_wire: None,
            foresees: !host.adaptive.is_active() || host.stack.busy_poll == Nanos::ZERO,
            core,
            port: host_idx,
            driver: host.nic.driver,
            poll_thread: None,
            vector,
            rx: PacketBursts::with_capacity(64),
            rx_limit: host.nic.rx_ring as usize,
            visible: 0,
            waiting: Fifo::with_capacity(4),
            waiting_bytes: 0,
            scheduled: false,
            by_process: false,
            suspended: false,
            in_poll: false,
            polled: 0,
            deferrals_left: 0,
            tx: PacketBursts::with_capacity(64),
            tx_used: 0,
            tx_limit: host.nic.tx_ring,
            hands_over: host.nic.handover,
            chunk_bytes: 0,
            done: 0,
            done_bytes: 0,
            byte_limit: host.stack.bql.map(|bql| ByteLimit::new(bql.least, bql.most)),
            qdisc: Qdisc::new(host.stack.qdisc, wire.mss),
            blocked: Vec::new(),
            is_sampled: host.adaptive.is_active(),
            adaptive,
            pending: None,
            wanted,
            sample: QueueObservation { link: wire.rate, ..QueueObservation::default() },
            counters: QueueCounters::default(),
        }
    }

    /// Packets that the stack may put into the transmit ring at once; 1 under a byte limit.
    #[inline]
    pub(crate) fn tx_room(&self) -> u32 {
        let free = self.tx_limit - self.tx_used;
        match &self.byte_limit {
            None => free,
            Some(limit) if limit.is_open() => free.min(1),
            Some(_) => 0,
        }
    }

    /// Takes descriptors (and byte limit) for a burst. Returns the number of packets with room.
    #[inline]
    pub(crate) fn tx_admit(&mut self, frame: &Frame) -> u32 {
        if self.hands_over {
            return frame.count();
        }
        let free = self.tx_limit - self.tx_used;
        let mut count = frame.count().min(free);
        if let Some(limit) = &mut self.byte_limit {
            let bytes = Bytes::new(u64::from(frame.counted_bytes()));
            let most = count;
            count = 0;
            while count < most && limit.is_open() {
                limit.record_queued(bytes);
                count += 1;
            }
        }
        self.tx_used += count;
        count
    }

    /// When the next frame on a quiet wire must be processed. Moves `due`, the vector's time, to an
    /// earlier time that the frame leads to. For a vector that acts.
    #[inline]
    pub(crate) fn arrival_ahead(&self, wire: &Port, due: &mut Time) -> Time {
        let arrival = wire.next_arrival();
        let foresees = self.foresees && self.rx.len() < self.rx_limit;
        self.vector.rx_ahead(arrival).merge_due(foresees, arrival, due)
    }

    /// When the next departure of a port with known departures must be processed; see
    /// [`Self::arrival_ahead`].
    #[inline]
    pub(crate) fn departure_ahead(&self, port: &Port, due: &mut Time) -> Time {
        let sent = port.next_completion();
        self.vector.tx_ahead(sent).merge_due(self.foresees, sent, due)
    }

    /// Adds a burst to the receive ring at this pace. Returns whether the vector's due time may
    /// have changed.
    #[inline]
    pub(crate) fn add_received(&mut self, frame: &Frame, pace: BurstPace, step: BurstStep) -> bool {
        let count = frame.count();
        self.counters.rx_packets += u64::from(count);
        self.counters.rx_bytes += u64::from(count) * u64::from(frame.counted_bytes());
        self.rx.push(frame);
        if !self.vector.coalescing().status_block {
            self.visible += count as usize;
        }
        self.vector.add_received(count, |idx| pace.packet_time(idx, step))
    }

    /// Processes departures of its port before `until`.
    #[inline]
    pub(crate) fn settle_departures(&mut self, port: &mut Port, until: Time) {
        port.drain_departures_before(until, |departures, step| {
            self.record_sent(departures, step);
        });
    }

    /// Packets have left. Returns whether the vector's due time may have changed.
    #[inline]
    pub(crate) fn record_sent(&mut self, departures: &DepartureBurst, step: BurstStep) -> bool {
        let DepartureBurst { pace, bytes, completes, .. } = departures;
        let count = departures.count();
        self.counters.tx_packets += u64::from(count);
        self.counters.tx_bytes += u64::from(count) * u64::from(*bytes);
        match completes {
            Some(completed) if !self.hands_over => {
                self.done += count;
                self.done_bytes += u64::from(count) * u64::from(*completed);
                self.vector.add_completions(count, |idx| pace.packet_time(idx, step))
            }
            _ => false,
        }
    }

    /// Packets (or chunks) from the stack that the driver has not reaped.
    #[inline]
    pub(crate) fn unreaped_packets(&self) -> u32 {
        self.tx_used + id(self.qdisc.len())
    }

    /// The driver reaps `count` sent packets.
    pub(crate) fn reap_completions(&mut self, count: u32, now: Time) {
        // Bytes of the reaped completions, in proportion if some came after the poll counted.
        let bytes = if count == self.done {
            self.done_bytes
        } else {
            self.done_bytes * u64::from(count) / u64::from(self.done)
        };
        self.done -= count;
        self.done_bytes -= bytes;
        self.tx_used -= count;
        if self.is_sampled {
            self.sample.tx.packets += count;
            self.sample.tx.bytes = self.sample.tx.bytes.saturating_add(clamp_to_u32(bytes));
        }
        if let Some(limit) = &mut self.byte_limit {
            let now = Nanos::from_ns(now);
            limit.step(&latput_policy::byte_limit::CompletionEvent {
                bytes: Bytes::new(bytes),
                now,
            });
        }
    }

    /// The driver takes equal packets from the receive ring, at most `most`.
    #[inline]
    pub(crate) fn rx_pop(&mut self, most: u32) -> Frame {
        let frame = self.rx.take(most);
        let count = frame.count();
        self.visible -= count as usize;
        if self.is_sampled {
            self.sample_received(count, frame.counted_bytes());
        }
        frame
    }

    #[inline(never)]
    fn sample_received(&mut self, count: u32, counted_bytes: u32) {
        self.sample.rx.packets += count;
        if counted_bytes <= SMALL_BYTES {
            self.sample.rx_small += count;
        }
        self.sample.rx.bytes = self.sample.rx.bytes.saturating_add(count * counted_bytes);
    }

    /// The vector fired.
    #[inline]
    pub(crate) fn count_interrupt(&mut self) {
        self.counters.interrupts += 1;
        self.sample.interrupts += 1;
    }

    /// The counts since the last sample.
    pub(crate) fn take_sample(&mut self, now: Time) -> QueueObservation {
        let fresh = QueueObservation { link: self.sample.link, ..QueueObservation::default() };
        QueueObservation { now: Nanos::from_ns(now), ..std::mem::replace(&mut self.sample, fresh) }
    }

    /// Ends a poll: the policies decide, and earlier decisions are applied.
    pub(crate) fn adapt_moderation(&mut self, sample: &QueueObservation) {
        let now = sample.now.as_ns();
        self.decide_moderation(sample);
        if let Some((from, coalescing)) = self.pending
            && from <= now
        {
            self.vector.set_coalescing(coalescing);
            self.pending = None;
        }
    }

    /// Applies the interval of a policy shared by all queues.
    pub(crate) fn want_interval(&mut self, interval: Nanos, now: Time) {
        self.wanted.throttle = self.wanted.throttle.with_interval(interval);
        self.pending = Some((now + self.adaptive.latency.as_ns(), self.wanted));
    }

    fn decide_moderation(&mut self, sample: &QueueObservation) {
        let before = self.wanted;
        let step = |policy: &mut Option<Policy>| match policy.as_mut()?.step(sample) {
            Decision::Keep => None,
            Decision::Change { target, .. } => Some(target),
        };
        if let Some(target) = step(&mut self.adaptive.throttle) {
            self.wanted.throttle = self.wanted.throttle.with_interval(target.delay);
        }
        if let Some(target) = step(&mut self.adaptive.rx) {
            self.wanted.rx.delay = target.delay;
            self.wanted.rx.frames = target.frames.unwrap_or(0);
        }
        if let Some(target) = step(&mut self.adaptive.tx) {
            self.wanted.tx.delay = target.delay;
            self.wanted.tx.frames = target.frames.unwrap_or(0);
        }
        if self.wanted != before {
            let from = sample.now.as_ns() + self.adaptive.latency.as_ns();
            self.pending = Some((from, self.wanted));
        }
    }
}

fn clamp_to_u32(bytes: u64) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}
