//! A pair of NIC rings with their interrupt vector, as driver and hardware share them.

use latput_policy::{ByteLimit, Decision, Observation, Policy, SMALL_BYTES};
use latput_units::{BitsPerSecond, Bytes, Nanos};

use crate::agenda::Time;
use crate::casts::id;
use crate::fifo::Fifo;
use crate::frame::Frame;
use crate::machine::Driver;
use crate::packet_bursts::{BurstPace, BurstStep, PacketBursts};
use crate::port::{Departures, Port};
use crate::qdisc::Qdisc;
use crate::scenario::{Adaptive, Host};
use crate::vector::{Coalescing, Vector};

/// What a queue counted since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counters {
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

/// What a queue must know of its link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wire {
    pub(crate) rate: BitsPerSecond,
    /// Largest payload of a TCP segment.
    pub(crate) mss: u32,
}

/// A receive ring, a transmit ring, and what speaks for them.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "who polls and how far, each by itself")]
pub(crate) struct Queue {
    pub(crate) host: usize,
    /// The port whose wire ends here and brings packets for this queue alone: arrivals that change
    /// nothing may wait until somebody looks.
    pub(crate) quiet_wire: Option<usize>,
    /// When the vector is due may be known before the packet that it is due for has come. Not where a policy
    /// may change that in a poll that leaves the vector unmasked.
    pub(crate) foresees: bool,
    /// The core that takes the interrupts.
    pub(crate) core: usize,
    pub(crate) port: usize,
    pub(crate) driver: Driver,
    /// The process that polls it, with threaded NAPI.
    pub(crate) poll_thread: Option<usize>,
    pub(crate) vector: Vector,
    /// Received packets in descriptors; the host sees the first `visible` of them.
    pub(crate) rx: PacketBursts,
    pub(crate) rx_limit: usize,
    pub(crate) visible: usize,
    /// Packets that wait in the NIC for a descriptor.
    pub(crate) waiting: Fifo<Frame>,
    pub(crate) waiting_bytes: u64,
    /// Scheduled for polling, or being polled.
    pub(crate) scheduled: bool,
    /// The one that polls is a process (busy polling).
    pub(crate) by_process: bool,
    /// A process keeps interrupts off until it sleeps (`irq-suspend-timeout`).
    pub(crate) suspended: bool,
    /// In the middle of a poll that had this many packets so far.
    pub(crate) in_poll: bool,
    pub(crate) polled: u32,
    pub(crate) deferrals_left: u32,
    /// Packets (or chunks) in the transmit ring that were not sent yet.
    pub(crate) tx: PacketBursts,
    /// Descriptors in use: waiting, being sent, or sent and not yet seen by the driver.
    pub(crate) tx_used: u32,
    pub(crate) tx_limit: u32,
    /// What is sent is the other end's at once: no descriptors, no completions.
    pub(crate) hands_over: bool,
    /// Bytes of the descriptor that is being sent in parts; 0 between descriptors.
    pub(crate) chunk_bytes: u32,
    pub(crate) done: u32,
    pub(crate) done_bytes: u64,
    pub(crate) byte_limit: Option<ByteLimit>,
    pub(crate) qdisc: Qdisc,
    /// Sources that wait until their send buffer of so many packets has room.
    pub(crate) blocked: Vec<(u32, u32)>,
    /// Policies hear of its polls: its own, or one that all queues of the host share.
    pub(crate) is_sampled: bool,
    adaptive: Adaptive,
    /// Decided, and in force from then on.
    pending: Option<(Time, Coalescing)>,
    wanted: Coalescing,
    sample: Observation,
    pub(crate) counters: Counters,
}

impl Queue {
    pub(crate) fn new(host_idx: usize, host: &Host, core: usize, phase: Time, wire: &Wire) -> Self {
        let mut wanted = host.nic.coalescing;
        let initial = |policy: &Option<Policy>| policy.as_ref().map(Policy::initial);
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
        let mut vector = Vector::new(wanted, phase, i64::from(host.machine.clock_ppm));
        if host.nic.driver == Driver::Polling {
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
            rx: PacketBursts::with_capacity(host.nic.rx_ring as usize),
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
            tx: PacketBursts::with_capacity(host.nic.tx_ring as usize),
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
            sample: Observation { link: wire.rate, ..Observation::default() },
            counters: Counters::default(),
        }
    }

    /// How many packets the stack may put into the transmit ring before it asks again: under a byte limit one.
    #[inline]
    pub(crate) fn tx_room(&self) -> u32 {
        let free = self.tx_limit - self.tx_used;
        match &self.byte_limit {
            None => free,
            Some(limit) if limit.is_open() => free.min(1),
            Some(_) => 0,
        }
    }

    /// Takes descriptors (and byte limit) for as many packets of a burst as there is room for; gives how
    /// many.
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
                limit.sent(bytes);
                count += 1;
            }
        }
        self.tx_used += count;
        count
    }

    /// When the next frame on a quiet wire must be heeded; moves `due`, when the vector is, to an earlier time
    /// that it is known to lead to. Of a vector that acts.
    #[inline]
    pub(crate) fn arrival_ahead(&self, wire: &Port, due: &mut Time) -> Time {
        let arrival = wire.next_arrival();
        let foresees = self.foresees && self.rx.len() < self.rx_limit;
        self.vector.rx_ahead(arrival).merge(foresees, arrival, due)
    }

    /// The same of the next departure from a foreseen port.
    #[inline]
    pub(crate) fn departure_ahead(&self, port: &Port, due: &mut Time) -> Time {
        let sent = port.next_completion();
        self.vector.tx_ahead(sent).merge(self.foresees, sent, due)
    }

    /// A burst is in the receive ring, at this pace; true if that may have changed when the vector is due.
    #[inline]
    pub(crate) fn received(&mut self, frame: &Frame, pace: BurstPace, step: BurstStep) -> bool {
        let count = frame.count();
        self.counters.rx_packets += u64::from(count);
        self.counters.rx_bytes += u64::from(count) * u64::from(frame.counted_bytes());
        self.rx.push(frame);
        if !self.vector.coalescing().status_block {
            self.visible += count as usize;
        }
        self.vector.rx(count, |idx| pace.nth(idx, step))
    }

    /// The ring hears of departures from its foreseen port before `until`.
    #[inline]
    pub(crate) fn settle_departures(&mut self, port: &mut Port, until: Time) {
        port.depart_before(until, |departures, step| {
            self.sent(departures, step);
        });
    }

    /// Packets have left; true if that may have changed when the vector is due.
    #[inline]
    pub(crate) fn sent(&mut self, departures: &Departures, step: BurstStep) -> bool {
        let Departures { pace, bytes, completes, .. } = departures;
        let count = departures.count();
        self.counters.tx_packets += u64::from(count);
        self.counters.tx_bytes += u64::from(count) * u64::from(*bytes);
        match completes {
            Some(completed) if !self.hands_over => {
                self.done += count;
                self.done_bytes += u64::from(count) * u64::from(*completed);
                self.vector.tx(count, |idx| pace.nth(idx, step))
            }
            _ => false,
        }
    }

    /// Packets (or chunks) that the stack handed over and that the driver has not taken back.
    #[inline]
    pub(crate) fn unsent(&self) -> u32 {
        self.tx_used + id(self.qdisc.len())
    }

    /// The driver takes back what was sent.
    pub(crate) fn reap(&mut self, count: u32, now: Time) {
        // Bytes of the completions reaped, in proportion when some came after the poll looked.
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
            self.sample.tx.bytes = self.sample.tx.bytes.saturating_add(clamp(bytes));
        }
        if let Some(limit) = &mut self.byte_limit {
            let now = Nanos::from_ns(now);
            limit.step(&latput_policy::byte_limit::Completion { bytes: Bytes::new(bytes), now });
        }
    }

    /// The driver took packets out of the receive ring, at most `most` alike ones.
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
    pub(crate) fn interrupted(&mut self) {
        self.counters.interrupts += 1;
        self.sample.interrupts += 1;
    }

    /// What happened since the last sample.
    pub(crate) fn take_sample(&mut self, now: Time) -> Observation {
        let fresh = Observation { link: self.sample.link, ..Observation::default() };
        Observation { now: Nanos::from_ns(now), ..std::mem::replace(&mut self.sample, fresh) }
    }

    /// A poll is complete: lets the policies decide, and sets what was decided earlier.
    pub(crate) fn adapt(&mut self, sample: &Observation) {
        let now = sample.now.as_ns();
        self.decide(sample);
        if let Some((from, coalescing)) = self.pending
            && from <= now
        {
            self.vector.set_coalescing(coalescing);
            self.pending = None;
        }
    }

    /// The policy that all queues share wants another interval.
    pub(crate) fn want_interval(&mut self, interval: Nanos, now: Time) {
        self.wanted.throttle = self.wanted.throttle.with_interval(interval);
        self.pending = Some((now + self.adaptive.latency.as_ns(), self.wanted));
    }

    fn decide(&mut self, sample: &Observation) {
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

fn clamp(bytes: u64) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}
