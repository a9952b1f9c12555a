//! The protocol layer: packets into sockets, acknowledgements and data out of them, timers.

use super::World;
use crate::agenda::{NEVER, Time};
use crate::casts::id;
use crate::frame::{Frame, FrameKind};
use crate::socket::{ConnectionState, SocketProtocol};
use crate::task::{TaskProgram, TaskState};

/// Marks a timer that is an answer's, not TCP's.
pub(super) const ANSWER: u32 = 1 << 31;
/// Marks a timer that looks for lost transactions.
pub(super) const LOST: u32 = 1 << 30;
/// Marks a timer that asks for a connection again.
pub(super) const CONNECT: u32 = 1 << 29;
/// Marks a timer of a process that waits for a core, not of a socket.
pub(super) const STEAL: u32 = 1 << 28;
/// Bits of a timer's mark that hold its socket.
const SOCKET: u32 = STEAL - 1;

impl World {
    /// A packet (merged by GRO, perhaps) reaches its socket in a soft interrupt of `core`; gives what
    /// that cost.
    #[inline]
    pub(super) fn deliver_packet(&mut self, core: usize, frame: &Frame) -> Time {
        let end = frame.end as usize;
        if frame.kind == FrameKind::Tcp {
            return self.deliver_segments(core, frame);
        }
        let costs = &self.hosts[self.cores[core].host].costs;
        let tx_packet = costs.tx_packet;
        let cost = costs.rx_merged + costs.rx_data + self.remote_cost(core, end, costs.rx_remote);
        match frame.kind {
            FrameKind::Udp => {
                if frame.more == 0 {
                    self.deliver_datagrams(core, end, frame);
                    return cost;
                }
                self.deliver_datagrams(core, end, &frame.first_packets(1));
                // The first may have moved the process that the others find.
                let rest = frame.packets_after(1);
                let costs = &self.hosts[self.cores[core].host].costs;
                let remote = self.remote_cost(core, end, costs.rx_remote);
                let each = costs.rx_merged + costs.rx_data + remote;
                self.deliver_datagrams(core, end, &rest);
                cost + u64::from(rest.count()) * each
            }
            FrameKind::Control => cost + self.deliver_control(core, end, frame),
            FrameKind::EchoRequest => {
                let reply = Frame { kind: FrameKind::EchoReply, end: frame.end ^ 1, ..*frame };
                self.transmit_frame(self.ends[end].queue as usize, &reply);
                cost + tx_packet
            }
            FrameKind::EchoReply => {
                let tally = &mut self.tallies[self.ends[end].load as usize];
                tally.received += 1;
                tally.count_arrival(frame.echo, 1, self.now, (self.window_from, self.window_to));
                tally.latency.record(self.now - frame.sent_at, 1);
                cost
            }
            FrameKind::Tcp | FrameKind::Pause => {
                unreachable!("segments were delivered, pauses end at the NIC")
            }
        }
    }

    #[inline]
    fn remote_cost(&self, core: usize, end: usize, cost: Time) -> Time {
        if cost == 0 {
            return 0;
        }
        match self.ends[end].task {
            Some(task) if self.tasks[task as usize].last_core != core => cost,
            _ => 0,
        }
    }

    #[inline]
    fn deliver_datagrams(&mut self, core: usize, end: usize, frame: &Frame) {
        let socket = &mut self.ends[end];
        let SocketProtocol::Datagrams(inbox) = &mut socket.protocol else {
            unreachable!("a datagram for a TCP socket");
        };
        let kept = inbox.push_burst(frame);
        self.tallies[socket.load as usize].socket_dropped += u64::from(frame.count() - kept);
        if kept > 0 {
            self.make_ready(core, end);
        }
    }

    /// The segments of a burst, one after the other.
    pub(super) fn deliver_segments(&mut self, core: usize, burst: &Frame) -> Time {
        let end = burst.end as usize;
        let costs = &self.hosts[self.cores[core].host].costs;
        let is_bare = burst.payload == 0;
        let (rx_data, rx_remote) = if is_bare { (0, 0) } else { (costs.rx_data, costs.rx_remote) };
        let each = costs.rx_merged + rx_data;
        let mut cost = each + self.remote_cost(core, end, rx_remote);
        cost += self.deliver_segment(core, end, burst);
        let mut segment = *burst;
        for _ in 0..burst.more {
            segment.seq += u64::from(segment.payload);
            cost += each + self.remote_cost(core, end, rx_remote);
            cost += self.deliver_segment(core, end, &segment);
        }
        self.arm_timer(end);
        cost
    }

    #[inline]
    fn deliver_segment(&mut self, core: usize, end: usize, segment: &Frame) -> Time {
        let now = self.now;
        let socket = &mut self.ends[end];
        if matches!(socket.link, ConnectionState::Closed | ConnectionState::Connecting) {
            return 0; // of a connection that is gone
        }
        let SocketProtocol::Tcp(tcp) = &mut socket.protocol else {
            unreachable!("a segment for a datagram socket");
        };
        let freed = tcp.receive_segment(now, segment);
        let is_readable = segment.payload > 0 && tcp.readable_bytes() > 0;
        let is_writable = freed && tcp.wakes_writer();
        let cost = if tcp.is_silent() { 0 } else { self.send_segments(end) };
        if is_readable || (is_writable && self.is_writer(end)) {
            // Whoever wakes up may look how far ahead nothing happens.
            let owner = self.ends[end].task;
            if owner.is_some_and(|task| self.tasks[task as usize].state == TaskState::Asleep) {
                self.arm_timer(end);
            }
            self.make_ready(core, end);
        }
        cost
    }

    fn is_writer(&self, end: usize) -> bool {
        self.ends[end].task.is_some_and(|task| {
            matches!(self.tasks[task as usize].program, TaskProgram::Writer { .. })
        })
    }

    /// Tells the process that owns a socket that it has something to do.
    #[inline]
    pub(super) fn make_ready(&mut self, core: usize, end: usize) {
        let socket = &mut self.ends[end];
        let Some(task) = socket.task.map(|task| task as usize) else {
            return;
        };
        let owner = &mut self.tasks[task];
        if !std::mem::replace(&mut socket.is_ready, true) {
            owner.ready.push(id(end));
        }
        if owner.state == TaskState::Asleep {
            self.wake_task(task, core);
        }
    }

    /// Sends what TCP may send now; gives the CPU time of it.
    pub(super) fn tcp_output(&mut self, end: usize) -> Time {
        let cost = self.send_segments(end);
        self.arm_timer(end);
        cost
    }

    /// The same, with timers to be set.
    fn send_segments(&mut self, end: usize) -> Time {
        let socket = &mut self.ends[end];
        let (queue, host) = (socket.queue as usize, socket.host as usize);
        let costs = &self.hosts[host].costs;
        let (for_ack, for_data) = (costs.ack, costs.tx_packet);
        let (mut cost, mut may_send) = (0, true);
        while may_send
            && let SocketProtocol::Tcp(tcp) = &mut self.ends[end].protocol
            && let Some(burst) = tcp.next_train(self.now)
        {
            may_send = burst.has_more;
            let frame = tcp.build_frame(self.now, id(end) ^ 1, &burst);
            let each = if frame.payload == 0 { for_ack } else { for_data };
            cost += u64::from(frame.count()) * each;
            self.transmit_frame(queue, &frame);
        }
        cost
    }

    /// Sees to it that the host's timers know when this socket is due. Entries are never taken out: one
    /// that comes too early looks again.
    fn arm_timer(&mut self, end: usize) {
        let socket = &mut self.ends[end];
        let SocketProtocol::Tcp(tcp) = &socket.protocol else {
            return;
        };
        let at = tcp.next_tick();
        if at < socket.timer_at {
            socket.timer_at = at;
            let host = socket.host as usize;
            self.hosts[host].timers.push(at, id(end));
            self.update_timers(host);
        }
    }

    pub(super) fn update_timers(&mut self, host: usize) {
        let host = &self.hosts[host];
        self.agenda.set_due_time(host.timers_slot, host.timers.next());
    }

    /// The earliest timer of a host.
    pub(super) fn timers_due(&mut self, host: usize) {
        while let Some((at, end)) = self.next_timer(host) {
            let (mark, end) = (end & !SOCKET, (end & SOCKET) as usize);
            match mark {
                0 => self.tcp_due(end, at),
                ANSWER => self.finish_thinking(end),
                LOST => self.give_up_lost(end),
                STEAL => self.steal_task(end),
                _ => self.repeat_syn(end),
            }
        }
        self.update_timers(host);
    }

    /// The next timer of a host whose time has come.
    #[inline]
    fn next_timer(&mut self, host: usize) -> Option<(Time, u32)> {
        let ends = &mut self.ends;
        self.hosts[host].timers.pop_due(self.now, |(at, number)| {
            if number > SOCKET {
                return at;
            }
            let socket = &mut ends[number as usize];
            let SocketProtocol::Tcp(tcp) = &socket.protocol else {
                return at;
            };
            if socket.timer_at != at {
                return NEVER;
            }
            socket.timer_at = at.max(tcp.next_tick());
            socket.timer_at
        })
    }

    /// A timer of TCP, perhaps set for an earlier time than it has now.
    fn tcp_due(&mut self, end: usize, at: Time) {
        let now = self.now;
        if self.ends[end].timer_at != at {
            return;
        }
        self.ends[end].timer_at = NEVER;
        let SocketProtocol::Tcp(tcp) = &mut self.ends[end].protocol else {
            return;
        };
        if tcp.next_tick() > now {
            return self.arm_timer(end);
        }
        tcp.handle_tick(now);
        let cost = self.tcp_output(end);
        let core = self.queues[self.ends[end].queue as usize].core;
        self.charge_softirq(core, cost);
    }
}
