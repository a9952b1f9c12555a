//! The I/O bus between a NIC and memory. It carries one transaction at a time, in either direction.
//!
//! Conventional PCI is half duplex: received packets, descriptors, packets to send and the driver's
//! register accesses share the wires. The transactions of a packet are those of Intel's 8254x and
//! its driver. They are served in order of request.

use latput_units::{Bytes, Nanos};
use serde::{Deserialize, Serialize};

use crate::agenda::{NEVER, Time};
use crate::fifo::Fifo;
use crate::frame::Frame;

/// Bytes of a descriptor (8254x Software Developer's Manual, 3.2.3 and 3.3.3).
const DESCRIPTOR: u32 = 16;
/// Receive descriptors that the NIC caches and fetches in one burst (3.2.4). It writes each back
/// when it is used (RXDCTL.WTHRESH is 1 after a reset).
const FETCHED_TOGETHER: u32 = 64;
/// Descriptors that the driver returns with one write of the tail register
/// (`E1000_RX_BUFFER_WRITE`).
const GIVEN_TOGETHER: u32 = 16;
/// Length of the frame check sequence, which that driver lets the NIC write to memory.
const CHECK_SEQUENCE: u32 = 4;
/// A packet is written in one burst. Its length is rounded up to a multiple of this (4.2).
const WRITTEN_IN: u32 = 8;

/// A bus. The default is PCI with 32 bits at 33 MHz and the longest read that its specification allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Bus {
    /// One clock: 30 ns at 33 MHz.
    #[serde(rename = "clock_ns")]
    pub clock: Nanos,
    /// Bytes moved in one data clock.
    #[serde(rename = "width_bytes")]
    pub width: Bytes,
    /// Clocks of a write beside its data: the address, one until a target of medium speed answers,
    /// and an idle one at the end.
    pub write_clocks: u32,
    /// Clocks of a read beside its data. A target must give the first data in the 16th clock or
    /// have the read repeated (PCI 2.2, Target Initial Latency). An idle clock follows.
    pub read_clocks: u32,
}

impl Default for Bus {
    fn default() -> Self {
        Self { clock: Nanos::from_ns(30), width: Bytes::new(4), write_clocks: 3, read_clocks: 16 }
    }
}

impl Bus {
    /// Clocks of a transfer of `bytes`.
    fn data_clocks(&self, bytes: u32) -> u64 {
        u64::from(bytes).div_ceil(self.width.get())
    }

    /// Bus time of a received packet: its data, the write of its descriptor, and its share of
    /// fetching and returning descriptors.
    fn receive_time(&self, bytes: u32) -> Time {
        let (write, read) = (u64::from(self.write_clocks), u64::from(self.read_clocks));
        let written = (bytes + CHECK_SEQUENCE).next_multiple_of(WRITTEN_IN);
        let own = self.data_clocks(written) + write + self.data_clocks(DESCRIPTOR) + write;
        let (fetched, given) = (u64::from(FETCHED_TOGETHER), u64::from(GIVEN_TOGETHER));
        let fetch = self.data_clocks(FETCHED_TOGETHER * DESCRIPTOR) + read;
        let shared = fetch * given + (1 + write) * fetched;
        self.clock.as_ns() * (own * fetched * given + shared) / (fetched * given)
    }

    /// Bus time of a sent packet: the write of the tail register, the reads of descriptor and data,
    /// the write of the descriptor.
    fn send_time(&self, bytes: u32) -> Time {
        let (write, read) = (u64::from(self.write_clocks), u64::from(self.read_clocks));
        let descriptor = self.data_clocks(DESCRIPTOR);
        let clocks = (1 + write)
            + (descriptor + read)
            + (self.data_clocks(bytes) + read)
            + (descriptor + write);
        self.clock.as_ns() * clocks
    }

    /// Bus time of an interrupt: its handler reads the cause register.
    fn interrupt_time(&self) -> Time {
        self.clock.as_ns() * (1 + u64::from(self.read_clocks))
    }
}

/// A packet whose transactions are in progress or queued.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BusTransfer {
    /// End of its last transaction.
    at: Time,
    pub(crate) frame: Frame,
    pub(crate) queue: u32,
    /// Whether it moves from the wire to memory.
    pub(crate) is_received: bool,
}

/// The queue of a bus.
#[derive(Debug)]
pub(crate) struct BusQueue {
    bus: Bus,
    free_at: Time,
    transfers: Fifo<BusTransfer>,
    /// Link time in bytes of the received packets that still wait in the NIC.
    pub(crate) received_bytes: u64,
}

impl BusQueue {
    pub(crate) fn new(bus: Bus) -> Self {
        Self { bus, free_at: 0, transfers: Fifo::with_capacity(64), received_bytes: 0 }
    }

    fn take(&mut self, now: Time, span: Time) -> Time {
        self.free_at = self.free_at.max(now) + span;
        self.free_at
    }

    /// Queues a packet from the wire.
    pub(crate) fn queue_receive(&mut self, queue: u32, frame: Frame, now: Time) {
        let at = self.take(now, self.bus.receive_time(frame.counted_bytes()));
        self.received_bytes += u64::from(frame.wire_bytes());
        self.transfers.push(BusTransfer { at, frame, queue, is_received: true });
    }

    /// Queues a packet (with TSO a chunk) of the driver.
    pub(crate) fn queue_send(&mut self, queue: u32, frame: Frame, now: Time) {
        let at = self.take(now, self.bus.send_time(frame.counted_bytes()));
        self.transfers.push(BusTransfer { at, frame, queue, is_received: false });
    }

    /// Queues the register read of an interrupt handler.
    pub(crate) fn queue_interrupt(&mut self, now: Time) {
        self.take(now, self.bus.interrupt_time());
    }

    /// When the next packet is transferred.
    pub(crate) fn next(&self) -> Time {
        self.transfers.front().map_or(NEVER, |transfer| transfer.at)
    }

    /// Removes the packet that is transferred now.
    pub(crate) fn pop_transfer(&mut self) -> BusTransfer {
        let transfer = self.transfers.pop().expect("a bus is due with a transfer on it");
        if transfer.is_received {
            self.received_bytes -= u64::from(transfer.frame.wire_bytes());
        }
        transfer
    }

    #[cfg(test)]
    pub(crate) fn transfers(&self) -> impl Iterator<Item = &BusTransfer> {
        self.transfers.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::FrameKind;

    /// One clock of PCI.
    const CLOCK: Time = 30;

    #[test]
    fn packet_takes_the_clocks_of_its_transactions() {
        let bus = Bus::default();
        // 380 of data, 4 of a descriptor back, 3 for each; 256 + 16 for 64 descriptors, 1 + 3 for 16.
        assert_clocks(bus.receive_time(1_514), 380.0 + 4.0 + 6.0 + 272.0 / 64.0 + 4.0 / 16.0);
        assert_clocks(bus.receive_time(6_014), 1_506.0 + 4.0 + 6.0 + 272.0 / 64.0 + 4.0 / 16.0);
        // An acknowledgement: 66 bytes are 17 clocks.
        assert_clocks(bus.send_time(66), 4.0 + 20.0 + 33.0 + 7.0);
        assert_clocks(bus.interrupt_time(), 17.0);
    }

    #[test]
    fn wider_or_faster_bus_takes_less() {
        let bus = Bus::default();
        let wide = Bus { width: Bytes::new(8), ..bus };
        let fast = Bus { clock: Nanos::from_ns(15), ..bus };
        assert_clocks(wide.receive_time(1_514), 190.0 + 2.0 + 6.0 + 144.0 / 64.0 + 4.0 / 16.0);
        assert_clocks(
            fast.receive_time(1_514),
            0.5 * (380.0 + 4.0 + 6.0 + 272.0 / 64.0 + 4.0 / 16.0),
        );
    }

    #[test]
    fn both_directions_and_registers_take_turns() {
        let frame = Frame { kind: FrameKind::Tcp, ..Frame::default() };
        let bus = Bus::default();
        let (rx, tx) =
            (bus.receive_time(frame.counted_bytes()), bus.send_time(frame.counted_bytes()));
        let mut server = BusQueue::new(bus);
        server.queue_receive(0, frame, 1_000);
        server.queue_interrupt(1_000);
        server.queue_send(0, frame, 1_000);
        assert_eq!(server.next(), 1_000 + rx);
        assert_eq!(server.received_bytes, u64::from(frame.wire_bytes()));
        assert!(server.pop_transfer().is_received);
        assert_eq!(server.received_bytes, 0);
        assert_eq!(server.next(), 1_000 + rx + bus.interrupt_time() + tx);
        assert!(!server.pop_transfer().is_received);
        assert_eq!(server.next(), NEVER);
    }

    #[track_caller]
    fn assert_clocks(takes: Time, clocks: f64) {
        assert!((takes as f64 - clocks * CLOCK as f64).abs() <= 1.0, "{takes} {clocks}");
    }
}
