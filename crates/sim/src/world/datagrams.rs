//! Processes that send and receive datagrams, some with each call.

use super::World;
use super::process::copy_cost;
use crate::agenda::Time;
use crate::casts::{id, narrow_count};
use crate::frame::{Frame, FrameKind};
use crate::scenario::GapDistribution;
use crate::socket::SocketProtocol;
use crate::task::{TaskProgram, WorkItem, draw_exponential};

impl World {
    /// The next group of a source: now if it is due, otherwise at its time if the core can be kept for it.
    #[expect(clippy::cast_possible_truncation, reason = "times stay below 2^52")]
    pub(super) fn begin_emit(
        &mut self,
        core: usize,
        task: usize,
        (size, group): (u32, u32),
        next_at: f64,
    ) -> Option<(WorkItem, Time, Time)> {
        let mut at = next_at as Time;
        if let Some(limit) = self.tasks[task].flood {
            if self.is_send_buffer_full(task, limit) {
                return None;
            }
            at = self.now;
        }
        if at >= self.tasks[task].stop {
            return None;
        }
        if at > self.now {
            if !self.reserve_core(core, at) {
                let slot = self.tasks[task].slot.expect("every source has a timer");
                self.agenda.set_due_time(slot, at);
                return None;
            }
            self.tasks[task].woken_by = Some(id(core));
        }
        let costs = &self.hosts[self.tasks[task].host].costs;
        let each = costs.user + costs.tx_packet + copy_cost(costs.copy_per_kib, size);
        let group = u64::from(group);
        let (cost, user) = (costs.syscall + group * each, group * costs.user);
        if at > self.now {
            // It is woken from its own core each time.
            let wake = costs.wake;
            let next = self.emit_ahead(core, task, (cost + wake, user), at);
            self.reserve_core(core, next);
        }
        Some((WorkItem::Emit, cost, user))
    }

    /// Whether a source that knows no pace must wait for its packets to leave; it is woken then.
    fn is_send_buffer_full(&mut self, task: usize, limit: u32) -> bool {
        let queue = self.ends[self.tasks[task].first_end].queue as usize;
        let ring = &mut self.queues[queue];
        if ring.unreaped_packets() < limit {
            return false;
        }
        ring.blocked.push((id(task), limit));
        true
    }

    /// Packets have left: sources wake up whose send buffer is half empty.
    pub(super) fn wake_blocked(&mut self, queue: usize) {
        let ring = &mut self.queues[queue];
        let used = u64::from(ring.unreaped_packets());
        let mut woken = Vec::new();
        ring.blocked.retain(|&(task, limit)| {
            let stays = 2 * used > u64::from(limit);
            if !stays {
                woken.push(task as usize);
            }
            stays
        });
        let core = ring.core;
        for task in woken {
            self.wake_task(task, core);
        }
    }

    /// One receive call of a sink: what waits, up to its batch.
    pub(super) fn begin_drain(
        &mut self,
        core: usize,
        task: usize,
        batch: u32,
    ) -> Option<(WorkItem, Time, Time)> {
        let &end = self.tasks[task].ready.front()?;
        self.drain_ahead(core, task, batch);
        let SocketProtocol::Datagrams(inbox) = &self.ends[end as usize].protocol else {
            unreachable!("a sink has a datagram socket");
        };
        let count = inbox.len().min(batch);
        let (cost, user) = self.cost_of_drain(core, end, count, inbox.first_payload());
        Some((WorkItem::Drain { end, count }, cost, user))
    }

    /// Cost of one receive call of this many datagrams, and its share of user code.
    #[inline]
    pub(super) fn cost_of_drain(
        &self,
        core: usize,
        end: u32,
        count: u32,
        payload: Option<u32>,
    ) -> (Time, Time) {
        let costs = &self.hosts[self.cores[core].host].costs;
        let user = u64::from(count) * costs.user;
        let copied = u64::from(count) * copy_cost(costs.copy_per_kib, payload.unwrap_or(0));
        (costs.syscall + user + copied + self.cross_cost(core, end), user)
    }

    /// A source sends its datagram and plans the next.
    #[expect(clippy::cast_possible_truncation, reason = "times stay below 2^52")]
    pub(super) fn emit_datagrams(&mut self, task: usize) {
        let floods = self.tasks[task].flood.is_some();
        let TaskProgram::Source { end, size, group, gap_ns, spacing, next_at } =
            &mut self.tasks[task].program
        else {
            unreachable!("only sources emit");
        };
        if floods {
            *next_at = self.now as f64;
        }
        let (end, size, group, due_at) = (*end, *size, *group, *next_at as Time);
        *next_at += match spacing {
            GapDistribution::Even => *gap_ns,
            GapDistribution::Poisson => draw_exponential(&mut self.rng, *gap_ns),
        };
        let socket = &self.ends[end];
        let is_probe = self.ends[end ^ 1].task.is_none();
        let kind = if is_probe { FrameKind::EchoRequest } else { FrameKind::Udp };
        let tally = &mut self.tallies[socket.load as usize];
        tally.sent += u64::from(group);
        tally.handed_over(socket.is_generator, u64::from(group) * u64::from(size));
        let frame = Frame {
            sent_at: due_at,
            echo: self.now,
            end: id(end) ^ 1,
            payload: size,
            more: narrow_count(group - 1),
            kind,
            ..Frame::default()
        };
        self.transmit_frame(socket.queue as usize, &frame);
    }

    /// A sink has received datagrams.
    pub(super) fn finish_drain(&mut self, core: usize, task: usize, end: usize, count: u32) {
        self.keep_spinning(task, end, self.now);
        let (now, window) = (self.now, (self.window_from, self.window_to));
        let socket = &mut self.ends[end];
        let tally = &mut self.tallies[socket.load as usize];
        if let SocketProtocol::Datagrams(inbox) = &mut socket.protocol {
            let mut left = count;
            while left > 0 {
                let alike = inbox.take(left).expect("the item counted what waits");
                left -= alike.count;
                tally.count_datagrams(&alike, now, window);
            }
        }
        self.next_ready(core, task, end);
    }
}
