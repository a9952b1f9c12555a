//! Conservation: every packet that a stack made is somewhere, exactly once.

use super::World;
use crate::frame::FrameKind;
use crate::port::FrameSource;

impl World {
    /// Panics if packets or time came from nowhere or vanished.
    pub(crate) fn check_conservation(&mut self) {
        let mut somewhere = self.delivered;
        for queue in &self.queues {
            somewhere += (queue.rx.len() + queue.waiting.len()) as u64;
            somewhere += queue.counters.rx_dropped + queue.counters.tx_dropped;
            assert!(queue.rx.len() <= queue.rx_limit, "a ring holds more than its descriptors");
            assert!(queue.visible <= queue.rx.len());
            assert!(queue.tx_used <= queue.tx_limit);
        }
        for backlog in &self.backlogs {
            somewhere += backlog.frames.len() as u64 + backlog.dropped;
        }
        for transfer in
            self.hosts.iter().filter_map(|host| host.bus.as_ref()).flat_map(|bus| bus.transfers())
        {
            somewhere += transfer.frame.wire_packets(self.mss);
        }
        let pauses =
            self.ports.iter().map(|port| port.count_on_wire(FrameKind::Pause)).sum::<u64>();
        for port in &self.ports {
            somewhere += port.in_flight() + u64::from(port.sending.is_some()) + port.dropped;
            if let FrameSource::Buffer { frames, .. } = &port.feed {
                somewhere += frames.len() as u64;
            }
        }
        let queued: u64 = self.queues.iter().map(|queue| self.packets_queued(queue)).sum();
        assert_eq!(self.sent + pauses, somewhere + queued, "packets at {}", self.now);
        let now = self.now;
        for core in &mut self.cores {
            core.charge_item(now);
            // A process may have gone ahead.
            let until = core.running_item().1.max(now);
            assert!(core.spent.total() <= until, "a core was busy for longer than time passed");
        }
    }

    fn packets_queued(&self, queue: &crate::queue::NicQueue) -> u64 {
        let ring: u64 = queue.tx.iter().map(|frame| frame.wire_packets(self.mss)).sum();
        ring + queue.qdisc.iter().map(|frame| frame.wire_packets(self.mss)).sum::<u64>()
    }
}
