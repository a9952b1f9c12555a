//! Packets on their way over a host's I/O bus, between the wire and the rings.

use super::World;
use crate::casts::id;
use crate::frame::Frame;
use crate::packet_bursts::{BurstPace, BurstStep};

impl World {
    /// A packet came from the wire: it waits in the NIC for its turn, or is lost if there is no room.
    pub(super) fn receive_over_bus(&mut self, host_idx: usize, queue: usize, frame: Frame) {
        let now = self.now;
        let buffered = self.buffered_bytes(host_idx) + u64::from(frame.wire_bytes());
        let host = &mut self.hosts[host_idx];
        let Some(bus) = &mut host.bus else {
            unreachable!("the caller saw a bus");
        };
        if buffered > host.fifo_bytes {
            return self.record_rx_drop(queue);
        }
        bus.queue_receive(id(queue), frame, now);
        let asks = host.pause && buffered * 2 > host.fifo_bytes;
        self.update_bus(host_idx);
        if asks {
            self.ask_for_silence(host_idx, super::network::LONGEST_PAUSE);
        }
    }

    /// The driver hands over packets: each is fetched by itself.
    pub(super) fn send_over_bus(&mut self, host: usize, queue: usize, frame: &Frame) {
        let now = self.now;
        let Some(bus) = &mut self.hosts[host].bus else {
            unreachable!("the caller saw a bus");
        };
        for packet in frame.iter_packets() {
            bus.queue_send(id(queue), packet, now);
        }
        self.update_bus(host);
    }

    /// A packet is in memory, or in the NIC and ready for the wire.
    pub(super) fn bus_due(&mut self, host: usize) {
        let Some(bus) = &mut self.hosts[host].bus else {
            unreachable!("a host without a bus has no slot for it");
        };
        let transfer = bus.pop_transfer();
        let queue = transfer.queue as usize;
        if transfer.is_received {
            let pace = BurstPace { at: self.now, fraction: 0 };
            self.receive_packets(queue, &transfer.frame, pace, BurstStep::default());
            self.end_silence(queue);
        } else {
            self.queues[queue].tx.push(&transfer.frame);
            self.start_port(self.hosts[host].port);
        }
        self.update_bus(host);
    }

    /// Link time in bytes of the received packets that wait in the NIC.
    fn buffered_bytes(&self, host: usize) -> u64 {
        let for_descriptors: u64 =
            self.queues[self.parts(host).1].iter().map(|queue| queue.waiting_bytes).sum();
        for_descriptors + self.hosts[host].bus.as_ref().map_or(0, |bus| bus.received_bytes)
    }

    fn update_bus(&mut self, host: usize) {
        let this = &self.hosts[host];
        if let Some(bus) = &this.bus {
            self.agenda.set_due_time(this.bus_slot, bus.next());
        }
    }
}
