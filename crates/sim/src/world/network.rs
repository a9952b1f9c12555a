//! From the stack to the wire and from the wire into a receive ring.

use super::World;
use crate::agenda::{NEVER, Time};
use crate::casts::id;
use crate::core::Irq;
use crate::frame::{Frame, FrameKind};
use crate::packet_bursts::{BurstPace, BurstStep};
use crate::port::{DepartureBurst, FarEnd, FrameSource, OutgoingFrame};
use crate::qdisc::Qdisc;
use crate::vector::VectorAction;

/// The longest pause that fits a pause frame.
pub(super) const LONGEST_PAUSE: u32 = 0xffff;

impl World {
    /// The stack hands a packet, a burst or, with TSO, a chunk to a transmit queue.
    #[inline]
    pub(super) fn transmit_frame(&mut self, queue: usize, frame: &Frame) {
        self.sent += frame.wire_packets(self.mss);
        let now = self.now;
        let ring = &mut self.queues[queue];
        if !ring.qdisc.is_empty() {
            ring.counters.tx_dropped += ring.qdisc.push(now, frame);
            return;
        }
        let count = ring.tx_admit(frame);
        if count == frame.count() {
            return self.put_on_port(queue, frame);
        }
        ring.counters.tx_dropped += ring.qdisc.push(now, &frame.packets_after(count));
        if count > 0 {
            self.put_on_port(queue, &frame.first_packets(count));
        }
    }

    /// Moves packets from the qdisc to the ring as far as it is open.
    pub(super) fn drain_qdisc(&mut self, queue: usize) {
        let now = self.now;
        loop {
            let ring = &mut self.queues[queue];
            let most = ring.tx_room();
            if most == 0 || ring.qdisc.is_empty() {
                return;
            }
            let frame = match &mut ring.qdisc {
                Qdisc::Plain(plain) => plain.take(most),
                Qdisc::FqCodel(queues) => {
                    let (frame, dropped) = queues.pop(now);
                    ring.counters.tx_dropped += dropped;
                    let Some(frame) = frame else { continue };
                    frame
                }
            };
            ring.tx_admit(&frame);
            self.put_on_port(queue, &frame);
        }
    }

    /// Hands a frame that has its descriptors to the port: on a foreseen one onto the wire, at its time.
    #[inline]
    fn put_on_port(&mut self, queue: usize, frame: &Frame) {
        let Self { queues, ports, .. } = self;
        let ring = &mut queues[queue];
        let idx = ring.port;
        let port = &mut ports[idx];
        if port.foreseen.is_none() {
            return self.put_in_tx_ring(queue, frame);
        }
        let is_first = !port.has_departures() && ring.vector.is_active();
        let was_quiet = port.is_quiet();
        port.foresee_frame(frame, self.mss, self.now);
        if was_quiet {
            self.update_wire(idx);
        }
        if is_first {
            self.first_departure(idx, queue);
        }
    }

    #[inline(never)]
    fn put_in_tx_ring(&mut self, queue: usize, frame: &Frame) {
        let ring = &mut self.queues[queue];
        let (host, port) = (ring.host, ring.port);
        if self.hosts[host].bus.is_some() {
            return self.send_over_bus(host, queue, frame);
        }
        ring.tx.push(frame);
        self.start_port(port);
    }

    /// Starts a port that does nothing, if it has something to send and may.
    #[inline]
    pub(super) fn start_port(&mut self, port: usize) {
        if self.ports[port].sending.is_some() || self.ports[port].foreseen.is_some() {
            return;
        }
        let slot = self.port_slots + port;
        if self.ports[port].paused_until > self.now {
            let until = self.ports[port].paused_until;
            return self.agenda.set_due_time(slot, until);
        }
        let Some(sending) = self.next_to_send(port) else {
            return self.agenda.set_due_time(slot, NEVER);
        };
        let takes = self.ports[port].serialize(&sending.frame);
        self.ports[port].sending = Some(sending);
        self.agenda.set_due_time(slot, self.now + takes);
    }

    #[inline]
    fn next_to_send(&mut self, port: usize) -> Option<OutgoingFrame> {
        let (first, count, from) = match &mut self.ports[port].feed {
            FrameSource::Buffer { frames, bytes, .. } => {
                let frame = frames.pop()?;
                *bytes -= u64::from(frame.wire_bytes());
                return Some(OutgoingFrame { frame, queue: 0, completes: None });
            }
            FrameSource::Rings { first, count, turn } => (*first, *count, *turn),
        };
        if count == 1 {
            return self.next_of_ring(first);
        }
        let (turn, queue) = (0..count)
            .map(|step| (from + step) % count)
            .map(|turn| (turn, first + turn))
            .find(|(_, queue)| !self.queues[*queue].tx.is_empty())?;
        if let FrameSource::Rings { turn: next, .. } = &mut self.ports[port].feed {
            *next = turn + 1;
        }
        self.next_of_ring(queue)
    }

    /// The next packet of a transmit ring; a chunk is cut into packets.
    fn next_of_ring(&mut self, queue: usize) -> Option<OutgoingFrame> {
        let mss = self.mss;
        let ring = &mut self.queues[queue];
        let front = ring.tx.front_mut()?;
        if ring.chunk_bytes == 0 {
            ring.chunk_bytes = front.counted_bytes();
        }
        if front.is_chunk(mss) {
            let part = Frame { payload: mss, ..*front };
            front.seq += u64::from(mss);
            front.payload -= mss;
            return Some(OutgoingFrame { frame: part, queue, completes: None });
        }
        let frame = ring.tx.take(1);
        let completes = Some(std::mem::take(&mut ring.chunk_bytes));
        Some(OutgoingFrame { frame, queue, completes })
    }

    /// The last bit of a frame left, or a pause is over.
    #[inline]
    pub(super) fn port_due(&mut self, port: usize) {
        if let Some(ring) = self.ports[port].foreseen {
            self.queues[ring].settle_departures(&mut self.ports[port], self.now + 1);
            return self.update_vector(ring);
        }
        if let Some(OutgoingFrame { frame, queue, completes }) = self.ports[port].sending.take() {
            let was_quiet = self.ports[port].is_quiet();
            self.ports[port].put_on_wire(frame, self.now, &mut self.rng);
            if was_quiet {
                self.update_wire(port);
            }
            if matches!(self.ports[port].feed, FrameSource::Rings { .. }) {
                if let Some(log) = &mut self.log {
                    log.record_packet(self.now, port, false, &frame);
                }
                let departures =
                    DepartureBurst::from_single_frame(self.now, frame.counted_bytes(), completes);
                if self.queues[queue].record_sent(&departures, BurstStep::default()) {
                    self.update_vector(queue);
                }
            }
        }
        self.start_port(port);
    }

    /// A frame's last bit arrives.
    #[inline]
    pub(super) fn wire_due(&mut self, port: usize) {
        let frame = self.ports[port].pop_arrival();
        match self.ports[port].far {
            _ if frame.kind == FrameKind::Pause => self.take_pause(&frame, self.ports[port].far),
            FarEnd::Host(host) => {
                let queue = self.ends[frame.end as usize].queue as usize;
                if self.hosts[host].bus.is_some() {
                    self.receive_over_bus(host, queue, frame);
                    return self.update_wire(port);
                }
                let pace = BurstPace { at: self.now, fraction: 0 };
                self.receive_packets(queue, &frame, pace, BurstStep::default());
            }
            FarEnd::Switch => self.forward_frame(frame),
        }
        match self.quiet_queues[port] {
            Some(queue) => self.update_vector(queue),
            None => self.update_wire(port),
        }
    }

    /// Writes into the agenda when the next frame arrives, unless it can wait to be seen.
    #[inline]
    pub(super) fn update_wire(&mut self, port: usize) {
        match self.quiet_queues[port] {
            Some(queue) if self.queues[queue].vector.is_active() => self.first_arrival(port, queue),
            Some(_) => {}
            None => {
                self.agenda.set_due_time(self.wire_slots + port, self.ports[port].next_arrival());
            }
        }
    }

    /// Lets arrivals and departures before `until` that nobody noticed reach the rings, each at its own
    /// time. Every look at a ring must do this first.
    #[inline]
    pub(super) fn settle_queue(&mut self, queue: usize, until: Time) {
        let ring = &self.queues[queue];
        if self.ports[ring.port].next_departure() < until {
            self.settle_departures(queue, until);
        }
        if let Some(wire) = self.queues[queue].quiet_wire
            && self.ports[wire].next_arrival() < until
        {
            self.settle_arrivals(queue, wire, until);
        }
    }

    #[inline(never)]
    fn settle_departures(&mut self, queue: usize, until: Time) {
        let ring = &mut self.queues[queue];
        let own = &mut self.ports[ring.port];
        if own.foreseen == Some(queue) {
            ring.settle_departures(own, until);
        }
    }

    #[inline(never)]
    fn settle_arrivals(&mut self, queue: usize, wire: usize, until: Time) {
        let ring = &mut self.queues[queue];
        let port = &mut self.ports[wire];
        if self.log.is_none() {
            while ring.rx.len() < ring.rx_limit
                && let Some((pace, frame)) = port.peek_single_before(until)
            {
                ring.add_received(frame, pace, BurstStep::default());
                port.pop_single();
            }
        }
        // Frames that do not come packet by packet, or find no room.
        while let Some((pace, frame)) = self.ports[wire].pop_arrivals_before(until, u32::MAX) {
            let step = self.ports[wire].burst_step(frame.counted_bytes(), frame.gap());
            self.receive_packets(queue, &frame, pace, step);
        }
    }

    fn take_pause(&mut self, frame: &Frame, far: FarEnd) {
        let port = match far {
            FarEnd::Host(host) => self.hosts[host].port,
            // The switch holds back what goes to the host that asked.
            FarEnd::Switch => self.hosts.len() + frame.end as usize,
        };
        self.ports[port].set_pause(frame.payload, self.now);
        self.start_port(port);
    }

    /// A switch stores a frame for its output port, or drops it.
    fn forward_frame(&mut self, frame: Frame) {
        let port = self.hosts.len() + self.ends[frame.end as usize].host as usize;
        let wire_bytes = u64::from(frame.wire_bytes());
        let FrameSource::Buffer { frames, bytes, limit } = &mut self.ports[port].feed else {
            unreachable!("the ports after the hosts' are the switch's");
        };
        if *bytes + wire_bytes > *limit {
            self.ports[port].dropped += 1;
            return;
        }
        *bytes += wire_bytes;
        frames.push(frame);
        self.start_port(port);
    }

    pub(super) fn switch_dropped(&self) -> u64 {
        self.ports.iter().map(|port| port.dropped).sum()
    }

    /// Packets reach a NIC, at this pace.
    #[inline]
    pub(super) fn receive_packets(
        &mut self,
        queue: usize,
        frame: &Frame,
        pace: BurstPace,
        step: BurstStep,
    ) {
        let ring = &self.queues[queue];
        let free = id(ring.rx_limit - ring.rx.len());
        let count = frame.count();
        if free >= count {
            return self.put_in_ring(queue, frame, pace, step);
        }
        if free > 0 {
            self.put_in_ring(queue, &frame.first_packets(free), pace, step);
        }
        for packet in frame.packets_after(free).iter_packets() {
            self.receive_without_descriptor(queue, packet);
        }
    }

    #[inline]
    fn put_in_ring(&mut self, queue: usize, frame: &Frame, pace: BurstPace, step: BurstStep) {
        let ring = &mut self.queues[queue];
        if let Some(log) = &mut self.log {
            log.record_packet(pace.at, ring.host, true, frame);
            log.record_arrival(pace.at, queue);
        }
        // An arrival by a quiet wire was foreseen, or is an event that ends with the same.
        if ring.add_received(frame, pace, step) && ring.quiet_wire.is_none() {
            self.update_vector(queue);
        }
    }

    /// The ring is full: the frame waits in the NIC if it has room, and is lost otherwise.
    fn receive_without_descriptor(&mut self, queue: usize, frame: Frame) {
        let host_idx = self.queues[queue].host;
        let host = &self.hosts[host_idx];
        let ring = &mut self.queues[queue];
        let bytes = u64::from(frame.wire_bytes());
        if ring.waiting_bytes + bytes > host.fifo_bytes {
            return self.record_rx_drop(queue);
        }
        ring.waiting_bytes += bytes;
        ring.waiting.push(frame);
        if host.pause && ring.waiting_bytes * 2 > host.fifo_bytes {
            self.ask_for_silence(host_idx, LONGEST_PAUSE);
        }
    }

    /// A packet finds no room in the NIC.
    pub(super) fn record_rx_drop(&mut self, queue: usize) {
        self.queues[queue].counters.rx_dropped += 1;
        if let Some(log) = &mut self.log {
            log.record_drop(self.now, queue);
        }
    }

    /// Descriptors are free again: frames that waited in the NIC take them.
    pub(super) fn refill_ring(&mut self, queue: usize) {
        while self.queues[queue].rx.len() < self.queues[queue].rx_limit
            && let Some(frame) = self.queues[queue].waiting.pop()
        {
            self.queues[queue].waiting_bytes -= u64::from(frame.wire_bytes());
            let pace = BurstPace { at: self.now, fraction: 0 };
            self.put_in_ring(queue, &frame, pace, BurstStep::default());
        }
        self.end_silence(queue);
    }

    /// The NIC has room again: its peer, if it was asked for silence, may go on.
    pub(super) fn end_silence(&mut self, queue: usize) {
        let host_idx = self.queues[queue].host;
        let host = &mut self.hosts[host_idx];
        let on_bus = host.bus.as_ref().map_or(0, |bus| bus.received_bytes);
        let buffered = self.queues[queue].waiting_bytes + on_bus;
        if host.paused_peer && buffered * 4 <= host.fifo_bytes {
            host.paused_peer = false;
            self.ask_for_silence(host_idx, 0);
        }
    }

    /// Sends a pause frame past everything that waits.
    pub(super) fn ask_for_silence(&mut self, host: usize, quanta: u32) {
        self.hosts[host].paused_peer = quanta > 0;
        let frame =
            Frame { kind: FrameKind::Pause, end: id(host), payload: quanta, ..Frame::default() };
        let port = self.hosts[host].port;
        self.ports[port].put_on_wire(frame, self.now, &mut self.rng);
        self.agenda.set_due_time(self.wire_slots + port, self.ports[port].next_arrival());
    }

    /// The first frame on a quiet wire may only bring forward what was foreseen.
    #[inline]
    fn first_arrival(&mut self, port: usize, queue: usize) {
        let Self { queues, ports, agenda, .. } = self;
        let slot = self.vector_slots + queue;
        let before = agenda.due_time(slot);
        let mut at = before;
        let heeded = queues[queue].arrival_ahead(&ports[port], &mut at);
        agenda.set_due_time(self.wire_slots + port, heeded);
        if at < before {
            agenda.set_due_time(slot, at);
        }
    }

    /// The same of the first departure from a foreseen port.
    #[inline]
    fn first_departure(&mut self, port: usize, queue: usize) {
        let Self { queues, ports, agenda, .. } = self;
        let ring = &queues[queue];
        if ring.hands_over {
            return;
        }
        let slot = self.vector_slots + queue;
        let before = agenda.due_time(slot);
        let mut at = before;
        let heeded = ring.departure_ahead(&ports[port], &mut at);
        agenda.set_due_time(self.port_slots + port, heeded);
        if at < before {
            agenda.set_due_time(slot, at);
        }
    }

    /// Writes into the agenda when the vector is due, as far as is known, and what it must heed before.
    #[inline]
    pub(super) fn update_vector(&mut self, queue: usize) {
        let Self { queues, ports, agenda, .. } = self;
        let ring = &queues[queue];
        let own = &ports[ring.port];
        let acts = ring.vector.is_active();
        let mut at = if acts { ring.vector.next_event(self.now) } else { NEVER };
        if let Some(wire) = ring.quiet_wire {
            let heeded = if acts { ring.arrival_ahead(&ports[wire], &mut at) } else { NEVER };
            agenda.set_due_time(self.wire_slots + wire, heeded);
        }
        if own.foreseen == Some(queue) && !ring.hands_over {
            let heeded = if acts { ring.departure_ahead(own, &mut at) } else { NEVER };
            agenda.set_due_time(self.port_slots + ring.port, heeded);
        }
        agenda.set_due_time(self.vector_slots + queue, at);
    }

    /// A vector's coalescing event.
    pub(super) fn vector_due(&mut self, queue: usize) {
        self.settle_queue(queue, self.now);
        let ring = &mut self.queues[queue];
        let event = ring.vector.fire(self.now);
        ring.visible = ring.rx.len();
        if event == VectorAction::StatusOnly {
            return self.update_vector(queue);
        }
        ring.count_interrupt();
        if let Some(log) = &mut self.log {
            log.record_interrupt(self.now, queue);
        }
        let (core, host) = (ring.core, ring.host);
        if let Some(bus) = &mut self.hosts[host].bus {
            bus.queue_interrupt(self.now);
        }
        self.update_vector(queue);
        self.raise_interrupt(core, Irq::Vector(id(queue)));
    }
}
