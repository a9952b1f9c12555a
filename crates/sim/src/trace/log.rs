//! The records of a traced run: packets at interfaces, work of cores, and events of NIC queues.

use std::collections::VecDeque;

use super::MOST_PACKETS;
use crate::agenda::Time;
use crate::core::PriorityLevel;
use crate::frame::Frame;
use crate::scenario::Scenario;

/// A packet that was in its ring when the trace began.
pub(super) const BEFORE: u64 = u64::MAX;

/// A packet at an interface.
#[derive(Clone, Copy, Debug)]
pub(super) struct TracedPacket {
    pub(super) at: Time,
    pub(super) host: usize,
    pub(super) is_inbound: bool,
    pub(super) frame: Frame,
}

/// Work of a core for some time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CoreSlice {
    pub(super) core: usize,
    pub(super) from: Time,
    pub(super) to: Time,
    pub(super) level: PriorityLevel,
    /// The process at the process level.
    pub(super) task: Option<u32>,
}

/// An event of a NIC queue.
#[derive(Clone, Debug)]
pub(super) enum QueueEvent {
    /// A packet took a descriptor.
    Arrived { packet: u64 },
    /// The driver took it.
    Taken { packet: u64 },
    /// An interrupt for these packets.
    Interrupt { packets: Vec<u64> },
    /// A packet found no descriptor.
    Dropped,
}

/// All records so far.
#[derive(Debug, Default)]
pub(crate) struct TraceLog {
    pub(super) packets: Vec<TracedPacket>,
    pub(super) slices: Vec<CoreSlice>,
    pub(super) marks: Vec<(Time, usize, QueueEvent)>,
    /// For each queue: the packets in its ring, and how many of the last ones have had no
    /// interrupt.
    pub(super) rings: Vec<(VecDeque<u64>, usize)>,
    next_packet: u64,
    /// For each queue its host; for each core its host and number there.
    pub(super) queue_hosts: Vec<(usize, usize)>,
    pub(super) core_hosts: Vec<(usize, usize)>,
    pub(super) process_names: Vec<String>,
}

impl TraceLog {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let number = |count: fn(&crate::scenario::Host) -> u32| {
            let hosts = scenario.hosts.iter().enumerate();
            hosts
                .flat_map(|(idx, host)| (0..count(host) as usize).map(move |part| (idx, part)))
                .collect::<Vec<_>>()
        };
        let queue_hosts = number(|host| host.nic.queues);
        Self {
            rings: vec![(VecDeque::new(), 0); queue_hosts.len()],
            queue_hosts,
            core_hosts: number(|host| host.machine.cores),
            ..Self::default()
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.packets.len() >= MOST_PACKETS
    }

    pub(crate) fn record_packet(&mut self, at: Time, host: usize, is_inbound: bool, frame: &Frame) {
        if !self.is_full() {
            self.packets.push(TracedPacket { at, host, is_inbound, frame: *frame });
        }
    }

    pub(crate) fn record_slice(
        &mut self,
        core: usize,
        span: (Time, Time),
        level: PriorityLevel,
        task: Option<u32>,
    ) {
        let (from, to) = span;
        if self.is_full()
            || from == to
            || matches!(level, PriorityLevel::Idle | PriorityLevel::Switching)
        {
            return;
        }
        self.slices.push(CoreSlice { core, from, to, level, task });
    }

    pub(crate) fn record_arrival(&mut self, at: Time, queue: usize) {
        if self.is_full() {
            return;
        }
        let packet = self.next_packet;
        self.next_packet += 1;
        let (ring, new) = &mut self.rings[queue];
        ring.push_back(packet);
        *new += 1;
        self.marks.push((at, queue, QueueEvent::Arrived { packet }));
    }

    pub(crate) fn record_dequeue(&mut self, at: Time, queue: usize) {
        let (ring, new) = &mut self.rings[queue];
        let Some(packet) = ring.pop_front() else {
            return;
        };
        *new = (*new).min(ring.len());
        if packet != BEFORE {
            self.marks.push((at, queue, QueueEvent::Taken { packet }));
        }
    }

    pub(crate) fn record_interrupt(&mut self, at: Time, queue: usize) {
        if self.is_full() {
            return;
        }
        let (ring, new) = &mut self.rings[queue];
        let old = ring.len() - std::mem::take(new);
        let packets = ring.range(old..).copied().filter(|packet| *packet != BEFORE).collect();
        self.marks.push((at, queue, QueueEvent::Interrupt { packets }));
    }

    pub(crate) fn record_drop(&mut self, at: Time, queue: usize) {
        if !self.is_full() {
            self.marks.push((at, queue, QueueEvent::Dropped));
        }
    }
}
