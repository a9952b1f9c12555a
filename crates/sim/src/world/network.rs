//! From the stack to the wire and from the wire into a receive ring.

use super::World;
use crate::agenda::{NEVER, Time};
use crate::core::Irq;
use crate::frame::{Frame, Kind};
use crate::narrow::id;
use crate::port::{Far, Feed, Sending};
use crate::vector::Event;

/// The longest pause that fits a pause frame.
const LONGEST_PAUSE: u32 = 0xffff;

impl World {
    /// The stack hands a packet (with TSO a chunk) to a transmit queue.
    #[inline]
    pub(super) fn transmit(&mut self, queue: usize, frame: Frame) {
        self.sent += frame.packets(self.mss);
        let ring = &mut self.queues[queue];
        if ring.qdisc.is_empty() && ring.tx_is_open() {
            ring.tx_push(frame);
            self.start_port(self.queues[queue].port);
        } else {
            ring.counters.tx_dropped += ring.qdisc.push(self.now, frame);
        }
    }

    /// Moves packets from the qdisc to the ring as far as it is open.
    pub(super) fn drain_qdisc(&mut self, queue: usize) {
        let now = self.now;
        while self.queues[queue].tx_is_open() && !self.queues[queue].qdisc.is_empty() {
            let (frame, dropped) = self.queues[queue].qdisc.pop(now);
            self.queues[queue].counters.tx_dropped += dropped;
            if let Some(frame) = frame {
                self.queues[queue].tx_push(frame);
                self.start_port(self.queues[queue].port);
            }
        }
    }

    /// Starts a port that does nothing, if it has something to send and may.
    #[inline]
    fn start_port(&mut self, port: usize) {
        if self.ports[port].sending.is_some() {
            return;
        }
        let slot = self.port_slots + port;
        if self.ports[port].paused_until > self.now {
            let until = self.ports[port].paused_until;
            return self.agenda.set(slot, until);
        }
        let Some(sending) = self.next_to_send(port) else {
            return self.agenda.set(slot, NEVER);
        };
        let takes = self.ports[port].serialize(&sending.frame);
        self.ports[port].sending = Some(sending);
        self.agenda.set(slot, self.now + takes);
    }

    #[inline]
    fn next_to_send(&mut self, port: usize) -> Option<Sending> {
        let (first, count, from) = match &mut self.ports[port].feed {
            Feed::Buffer { frames, bytes, .. } => {
                let frame = frames.pop()?;
                *bytes -= u64::from(frame.wire_bytes());
                return Some(Sending { frame, queue: 0, completes: None });
            }
            Feed::Rings { first, count, turn } => (*first, *count, *turn),
        };
        if count == 1 {
            return self.next_of_ring(first);
        }
        let (turn, queue) = (0..count)
            .map(|step| (from + step) % count)
            .map(|turn| (turn, first + turn))
            .find(|(_, queue)| !self.queues[*queue].tx.is_empty())?;
        if let Feed::Rings { turn: next, .. } = &mut self.ports[port].feed {
            *next = turn + 1;
        }
        self.next_of_ring(queue)
    }

    /// The next packet of a transmit ring; a chunk is cut into packets.
    fn next_of_ring(&mut self, queue: usize) -> Option<Sending> {
        let mss = self.mss;
        let ring = &mut self.queues[queue];
        let front = ring.tx.front_mut()?;
        if ring.chunk_bytes == 0 {
            ring.chunk_bytes = front.counted_bytes();
        }
        if front.kind == Kind::Tcp && front.payload > mss {
            let part = Frame { payload: mss, ..*front };
            front.seq += u64::from(mss);
            front.payload -= mss;
            return Some(Sending { frame: part, queue, completes: None });
        }
        let frame = ring.tx.pop()?;
        let completes = Some(std::mem::take(&mut ring.chunk_bytes));
        Some(Sending { frame, queue, completes })
    }

    /// The last bit of a frame left, or a pause is over.
    #[inline]
    pub(super) fn port_due(&mut self, port: usize) {
        if let Some(Sending { frame, queue, completes }) = self.ports[port].sending.take() {
            let was_empty = self.ports[port].in_flight() == 0;
            self.ports[port].depart(frame, self.now, &mut self.rng);
            if was_empty {
                self.update_wire(port);
            }
            if matches!(self.ports[port].feed, Feed::Rings { .. }) {
                self.sent_from_ring(queue, &frame, completes);
            }
        }
        self.start_port(port);
    }

    #[inline]
    fn sent_from_ring(&mut self, queue: usize, frame: &Frame, completes: Option<u32>) {
        let ring = &mut self.queues[queue];
        ring.counters.tx_packets += 1;
        ring.counters.tx_bytes += u64::from(frame.counted_bytes());
        if let Some(bytes) = completes {
            ring.done += 1;
            ring.done_bytes += u64::from(bytes);
            if ring.vector.tx(self.now) {
                self.update_vector(queue);
            }
        }
    }

    /// A frame's last bit arrives.
    #[inline]
    pub(super) fn wire_due(&mut self, port: usize) {
        let frame = self.ports[port].arrive();
        match self.ports[port].far {
            _ if frame.kind == Kind::Pause => self.take_pause(&frame, self.ports[port].far),
            Far::Host(_) => self.receive(frame, self.now),
            Far::Switch => self.forward(frame),
        }
        self.update_wire(port);
    }

    /// Writes into the agenda when the next frame arrives, unless it can wait to be seen.
    #[inline]
    fn update_wire(&mut self, port: usize) {
        let at = match self.quiet_queues[port] {
            Some(queue) if !self.queues[queue].vector.heeds_rx() => NEVER,
            _ => self.ports[port].next_arrival(),
        };
        self.agenda.set(self.wire_slots + port, at);
    }

    /// Lets arrivals before `until` that nobody noticed come into the ring, each at its own time. Every
    /// look at the ring must do this first.
    #[inline]
    pub(super) fn settle(&mut self, queue: usize, until: Time) {
        let Some(port) = self.queues[queue].quiet_wire else {
            return;
        };
        loop {
            let at = self.ports[port].next_arrival();
            if at >= until {
                return;
            }
            let frame = self.ports[port].arrive();
            self.receive(frame, at);
        }
    }

    /// What the vector heeds has changed.
    #[inline]
    pub(super) fn update_quiet_wire(&mut self, queue: usize) {
        if let Some(port) = self.queues[queue].quiet_wire {
            self.update_wire(port);
        }
    }

    fn take_pause(&mut self, frame: &Frame, far: Far) {
        let port = match far {
            Far::Host(host) => self.hosts[host].port,
            // The switch holds back what goes to the host that asked.
            Far::Switch => self.hosts.len() + frame.end as usize,
        };
        self.ports[port].pause(frame.payload, self.now);
        self.start_port(port);
    }

    /// A switch stores a frame for its output port, or drops it.
    fn forward(&mut self, frame: Frame) {
        let port = self.hosts.len() + self.ends[frame.end as usize].host;
        let wire_bytes = u64::from(frame.wire_bytes());
        let Feed::Buffer { frames, bytes, limit } = &mut self.ports[port].feed else {
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

    /// A frame reaches a NIC.
    #[inline]
    fn receive(&mut self, frame: Frame, at: Time) {
        let queue = self.ends[frame.end as usize].queue;
        let ring = &mut self.queues[queue];
        if ring.rx.len() >= ring.rx_limit {
            return self.receive_without_descriptor(queue, frame);
        }
        self.put_in_ring(queue, frame, at);
    }

    #[inline]
    fn put_in_ring(&mut self, queue: usize, frame: Frame, at: Time) {
        let ring = &mut self.queues[queue];
        ring.counters.rx_packets += 1;
        ring.counters.rx_bytes += u64::from(frame.counted_bytes());
        ring.rx.push(frame);
        if !ring.vector.coalescing().status_block {
            ring.visible += 1;
        }
        if ring.vector.rx(at) {
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
            ring.counters.rx_dropped += 1;
            return;
        }
        ring.waiting_bytes += bytes;
        ring.waiting.push(frame);
        if host.pause && ring.waiting_bytes * 2 > host.fifo_bytes {
            self.ask_for_silence(host_idx, LONGEST_PAUSE);
        }
    }

    /// Descriptors are free again: frames that waited in the NIC take them.
    pub(super) fn refill(&mut self, queue: usize) {
        while self.queues[queue].rx.len() < self.queues[queue].rx_limit
            && let Some(frame) = self.queues[queue].waiting.pop()
        {
            self.queues[queue].waiting_bytes -= u64::from(frame.wire_bytes());
            self.put_in_ring(queue, frame, self.now);
        }
        let host = self.queues[queue].host;
        if self.hosts[host].paused_peer
            && self.queues[queue].waiting_bytes * 4 <= self.hosts[host].fifo_bytes
        {
            self.hosts[host].paused_peer = false;
            self.ask_for_silence(host, 0);
        }
    }

    /// Sends a pause frame past everything that waits.
    fn ask_for_silence(&mut self, host: usize, quanta: u32) {
        self.hosts[host].paused_peer = quanta > 0;
        let frame = Frame { kind: Kind::Pause, end: id(host), payload: quanta, ..Frame::default() };
        let port = self.hosts[host].port;
        self.ports[port].depart(frame, self.now, &mut self.rng);
        self.agenda.set(self.wire_slots + port, self.ports[port].next_arrival());
    }

    /// Writes into the agenda when the vector is due.
    #[inline]
    pub(super) fn update_vector(&mut self, queue: usize) {
        let at = self.queues[queue].vector.next_event(self.now);
        self.agenda.set(self.vector_slots + queue, at);
    }

    /// A vector's coalescing event.
    pub(super) fn vector_due(&mut self, queue: usize) {
        self.settle(queue, self.now);
        let ring = &mut self.queues[queue];
        let event = ring.vector.fire(self.now);
        ring.visible = ring.rx.len();
        if event == Event::Interrupt {
            ring.interrupted();
            let core = ring.core;
            self.update_vector(queue);
            self.update_quiet_wire(queue);
            self.interrupt(core, Irq::Vector(id(queue)));
        } else {
            self.update_vector(queue);
            self.update_quiet_wire(queue);
        }
    }
}
