//! Processes that send and receive streams, on many connections in turn.

use super::World;
use super::process::copy_cost;
use crate::agenda::Time;
use crate::casts::narrow_size;
use crate::socket::SocketProtocol;
use crate::task::{TaskProgram, WorkItem};

impl World {
    pub(super) fn begin_write(
        &mut self,
        core: usize,
        task: usize,
        message: u32,
    ) -> Option<(WorkItem, Time, Time)> {
        loop {
            let &end = self.tasks[task].ready.front()?;
            let SocketProtocol::Tcp(tcp) = &self.ends[end as usize].protocol else {
                unreachable!("streams are TCP");
            };
            let room = tcp.writable_bytes();
            if room >= u64::from(message) || tcp.wakes_writer() {
                if self.is_early(task) {
                    return None;
                }
                let bytes = narrow_size(u64::from(message).min(room));
                let costs = &self.hosts[self.tasks[task].host].costs;
                let cost = costs.syscall
                    + costs.user
                    + copy_cost(costs.copy_per_kib, bytes)
                    + self.cross_cost(core, end) * u64::from(bytes) / u64::from(message.max(1));
                return Some((WorkItem::Write { end, bytes }, cost, costs.user));
            }
            self.tasks[task].ready.pop();
            self.ends[end as usize].is_ready = false;
        }
    }

    pub(super) fn finish_write(&mut self, task: usize, end: usize, bytes: u32) -> Time {
        let program = self.tasks[task].program;
        if let (Some(schedule), TaskProgram::Writer { message }) =
            (&mut self.tasks[task].schedule, program)
        {
            schedule.take(f64::from(bytes) / f64::from(message), &mut self.rng);
        }
        let socket = &mut self.ends[end];
        self.tallies[socket.load as usize].handed_over(socket.is_generator, u64::from(bytes));
        if let SocketProtocol::Tcp(tcp) = &mut socket.protocol {
            tcp.write(u64::from(bytes));
        }
        // Connections of one process take turns.
        if let Some(first) = self.tasks[task].ready.pop() {
            self.tasks[task].ready.push(first);
        }
        self.tcp_output(end)
    }

    /// A reader with several ready sockets that has a core: reads from one after the other, all but the last, for
    /// as long as nothing comes between and no read is to be told to the other end.
    pub(super) fn read_ahead(&mut self, core: usize, task: usize, message: u32) {
        if self.tasks[task].ready.len() < 2 || !self.may_go_ahead(core) {
            return;
        }
        let wake = self.cost_of_wake(core, task);
        let mut at = self.now.max(self.cores[core].awake_at) + wake;
        let until = self.alone_until(core);
        let (mut spent, mut used, mut last) = (wake, 0, None);
        while self.tasks[task].ready.len() > 1
            && let Some((WorkItem::Receive { end, bytes, .. }, cost, user)) =
                self.begin_receive(core, task, message, None)
            && at + cost < until
        {
            let end = end as usize;
            let socket = &mut self.ends[end];
            let SocketProtocol::Tcp(tcp) = &mut socket.protocol else {
                unreachable!("streams are TCP");
            };
            if !tcp.read_silently(u64::from(bytes)) {
                break;
            }
            self.tallies[socket.load as usize]
                .count_received(socket.is_generator, u64::from(bytes));
            self.next_ready(core, task, end);
            (at, spent, used, last) = (at + cost, spent + cost, used + user, Some(end));
        }
        if let Some(end) = last {
            self.spend_ahead(core, task, spent, used);
            self.tasks[task].woken_by = None;
            self.cores[core].awake_at = at;
            self.keep_spinning(task, end, at);
        }
    }
}
