//! Items of a process that nothing can come between: done in a row, without an event for each.
//!
//! Each has the times and effects that it would have as an event of its own; a test compares both ways.
//! Only where costs do not vary: draws are made in the order of events.

use latput_units::Nanos;

use super::World;
use crate::agenda::{NEVER, Time};
use crate::casts::{id, narrow_count};
use crate::frame::{Frame, FrameKind};
use crate::scenario::GapDistribution;
use crate::socket::{ConnectionState, SocketProtocol};
use crate::task::{TaskProgram, WorkItem};

/// The longest row of items.
const MOST: u32 = 1 << 12;

impl World {
    /// Whether items of `core` may be done in a row at all.
    #[inline]
    pub(super) fn may_go_ahead(&self, core: usize) -> bool {
        let host = &self.hosts[self.cores[core].host];
        host.cost_jitter == 0
            && !self.is_eager
            && self.log.is_none()
            && self.quotas.is_empty()
            && self.cores[core].run_queue.is_empty()
            && host.run_queue.is_empty()
            && self.cores[core].may_look
    }

    /// Nothing but `core` itself acts on its host before this time, whatever other hosts do.
    pub(super) fn alone_until(&self, core: usize) -> Time {
        let host = &self.hosts[self.cores[core].host];
        let next = self.agenda.earliest_of(&self.cores[core].others);
        let until = next.min(self.until + 1);
        match host.hears {
            // Frames that are sent from now on come after those on the wire.
            Some(port) if self.ports[port].is_quiet() => until.min(self.heard_of(port)),
            _ => until,
        }
    }

    /// When something that is sent from now on to the end of a wire could be noticed there.
    fn heard_of(&self, port: usize) -> Time {
        let arrival = self.reached + self.ports[port].latency();
        let Some(queue) = self.quiet_queues[port] else {
            return arrival;
        };
        let ring = &self.queues[queue];
        if !ring.vector.is_active() {
            return NEVER;
        }
        let mut due = NEVER;
        let heeded = ring.vector.rx_ahead(arrival).merge_due(ring.foresees, arrival, &mut due);
        heeded.min(due)
    }

    /// A source that holds `core` until its next datagram is due: sends those that nothing can come
    /// between, each at its time. Gives when the one after them is due.
    #[expect(clippy::cast_possible_truncation, reason = "times stay below 2^52")]
    pub(super) fn emit_ahead(
        &mut self,
        core: usize,
        task: usize,
        (cost, user): (Time, Time),
        due: Time,
    ) -> Time {
        let TaskProgram::Source {
            end,
            size,
            group: 1,
            gap_ns,
            spacing: GapDistribution::Even,
            mut next_at,
        } = self.tasks[task].program
        else {
            return due;
        };
        let queue = self.ends[end].queue as usize;
        let port = self.queues[queue].port;
        let is_plain = self.ports[port].foreseen == Some(queue)
            && self.queues[queue].byte_limit.is_none()
            && self.ends[end ^ 1].task.is_some();
        if !is_plain || gap_ns < 2.0 || gap_ns > f64::from(u32::MAX) || !self.may_go_ahead(core) {
            return due;
        }
        let host = &self.hosts[self.cores[core].host];
        let (exit, stop) = (host.idle_exit, self.tasks[task].stop);
        let until = self.alone_until(core);
        loop {
            let first = next_at as Time;
            // Each is due when the core is idle again, and leaves so much later.
            let sent_after = exit + cost;
            let gap = (next_at + gap_ns) as Time - first;
            let mut frame = Frame {
                sent_at: first,
                echo: first + sent_after,
                end: id(end) ^ 1,
                payload: size,
                window: u32::try_from(gap).unwrap_or(0),
                kind: FrameKind::Udp,
                ..Frame::default()
            };
            let most = self.room_ahead(queue, &frame);
            let mut count = 0;
            let mut next = next_at;
            while count < most
                && next as Time == first + u64::from(count) * gap
                && next as Time + sent_after < until.min((next + gap_ns) as Time)
                && ((next + gap_ns) as Time) < stop
            {
                next += gap_ns;
                count += 1;
            }
            if count == 0 {
                return first;
            }
            frame.more = narrow_count(count - 1);
            next_at = next;
            self.send_ahead(queue, end, &frame);
            let many = u64::from(count);
            self.spend_ahead(core, task, many * cost, many * user);
            if let TaskProgram::Source { next_at, .. } = &mut self.tasks[task].program {
                *next_at = next;
            }
        }
    }

    /// How many datagrams may leave a foreseen port at an even pace, without the ring heeding one.
    fn room_ahead(&self, queue: usize, frame: &Frame) -> u32 {
        let ring = &self.queues[queue];
        let port = &self.ports[ring.port];
        if !ring.qdisc.is_empty() || (ring.vector.heeds_tx() && !port.has_departures()) {
            return 0;
        }
        let room = ring.tx_limit - ring.tx_used;
        MOST.min(room).min(port.max_spaced_burst(frame, frame.gap(), frame.echo))
    }

    fn send_ahead(&mut self, queue: usize, end: usize, frame: &Frame) {
        let count = frame.count();
        let socket = &self.ends[end];
        let tally = &mut self.tallies[socket.load as usize];
        tally.sent += u64::from(count);
        tally.handed_over(socket.is_generator, u64::from(count) * u64::from(frame.payload));
        self.sent += u64::from(count);
        self.queues[queue].tx_used += count;
        let port = self.queues[queue].port;
        let was_quiet = self.ports[port].is_quiet();
        self.ports[port].foresee_spaced_burst(frame, frame.echo);
        if was_quiet {
            self.update_wire(port);
        }
    }

    /// Charges items that were done in a row: what they cost, and how much of that was user code.
    pub(super) fn spend_ahead(&mut self, core: usize, task: usize, cost: Time, user: Time) {
        let this = &mut self.cores[core];
        this.spent.user += user;
        this.spent.system += cost - user;
        let this = &mut self.tasks[task];
        this.cpu += cost;
        this.runtime += cost;
    }

    /// A sink that has a core: makes receive calls of a whole batch for as long as nothing comes between and
    /// something is left for the call after them.
    pub(super) fn drain_ahead(&mut self, core: usize, task: usize, batch: u32) {
        let this = &self.tasks[task];
        let &end = this.ready.front().expect("a sink with nothing ready sleeps");
        let is_alone = this.ready.len() == 1 && this.woken_by.is_none();
        let SocketProtocol::Datagrams(inbox) = &self.ends[end as usize].protocol else {
            return;
        };
        if inbox.len() <= batch || !is_alone || !self.may_go_ahead(core) {
            return;
        }
        let payload = inbox.first_payload();
        let (cost, user) = self.cost_of_drain(core, end, batch, payload);
        let until = self.nobody_until(core);
        let window = (self.window_from, self.window_to);
        let socket = &mut self.ends[end as usize];
        let tally = &mut self.tallies[socket.load as usize];
        let SocketProtocol::Datagrams(inbox) = &mut socket.protocol else {
            return;
        };
        let mut at = self.now.max(self.cores[core].awake_at);
        let mut calls = 0;
        while inbox.len() > batch && inbox.first_payload() == payload && at + cost < until {
            if batch == 1 && window.1 == NEVER {
                // How many calls end before that; at least this one.
                let most = (until - at - 1).checked_div(cost).unwrap_or(u64::MAX);
                let most = u32::try_from(most).unwrap_or(u32::MAX).min(inbox.len() - 1);
                let alike = inbox.take(most).expect("more than one waits");
                tally.datagrams_apart(&alike, at + cost, cost, window.0);
                at += u64::from(alike.count) * cost;
                calls += u64::from(alike.count);
                continue;
            }
            at += cost;
            calls += 1;
            let mut left = batch;
            while left > 0 {
                let alike = inbox.take(left).expect("more than a batch waits");
                left -= alike.count;
                tally.count_datagrams(&alike, at, window);
            }
        }
        if calls > 0 {
            self.spend_ahead(core, task, calls * cost, calls * user);
            self.cores[core].awake_at = at;
            self.keep_spinning(task, end as usize, at);
        }
    }

    /// A server, or the client of an open loop, that has a core: receives messages of one datagram each, and
    /// answers each at once if it has an `answer`, for as long as nothing comes between.
    pub(super) fn exchange_ahead(
        &mut self,
        core: usize,
        task: usize,
        awaited: u32,
        answer: Option<u32>,
    ) {
        let Some(idx) = self.only_datagrams(core, task) else {
            return;
        };
        let queue = self.ends[idx].queue as usize;
        let port = self.queues[queue].port;
        let wake = self.cost_of_wake(core, task);
        let Some((WorkItem::Receive { bytes, completes: true, .. }, cost, user)) =
            self.begin_receive(core, task, awaited, answer)
        else {
            return;
        };
        let now = self.now;
        // Later than that a client has something else to do.
        let turns = match &self.tasks[task].schedule {
            Some(schedule) => schedule.next().min(self.tasks[task].stop),
            None => NEVER,
        };
        let mut at = now.max(self.cores[core].awake_at) + wake;
        let mut until = self.alone_until(core);
        let mut calls = 0;
        while at + cost < until.min(turns)
            && let SocketProtocol::Datagrams(inbox) = &mut self.ends[idx].protocol
            && inbox.first_payload().is_some_and(|payload| payload.max(1) >= awaited)
            && let Some(datagram) = inbox.take(1)
        {
            at += cost;
            calls += 1;
            let socket = &mut self.ends[idx];
            let tally = &mut self.tallies[socket.load as usize];
            tally.count_received(socket.is_generator, u64::from(bytes));
            match answer {
                Some(answer) => {
                    self.now = at;
                    self.send_message(idx, answer, datagram.sent_at);
                    // The frames that left may be noticed before the next message is read.
                    let vector = self.agenda.due_time(self.vector_slots + queue);
                    until = until.min(vector).min(self.agenda.due_time(self.port_slots + port));
                }
                None => {
                    if let Some(start) = socket.exchange.take_start(datagram.echo) {
                        tally.count_transaction(start, at);
                    }
                }
            }
        }
        self.now = now;
        if calls > 0 {
            self.spend_ahead(core, task, wake + calls * cost, calls * user);
            let this = &mut self.tasks[task];
            (this.woken_by, this.retires) = (None, false);
            // Whoever comes next, and the process if it goes to sleep now, finds the core so much later.
            self.cores[core].awake_at = at;
            if self.ends[idx].readable_bytes() == 0 {
                self.tasks[task].ready.pop();
                self.ends[idx].is_ready = false;
            }
        }
    }

    /// The client of an open loop that has nothing to do until its next request is `due`: sends the requests
    /// that nothing can come between, each at its time. Gives when the one after them is due.
    pub(super) fn ask_ahead(
        &mut self,
        core: usize,
        task: usize,
        request: u32,
        mut due: Time,
    ) -> Time {
        let this = &self.tasks[task];
        let (first, stop) = (this.first_end, this.stop);
        let Some(mut schedule) = this.schedule else {
            return due;
        };
        let socket = &self.ends[first];
        let (queue, host) = (socket.queue as usize, socket.host as usize);
        let port = self.queues[queue].port;
        let is_plain = matches!(socket.protocol, SocketProtocol::Datagrams(_))
            && self.ports[port].foreseen == Some(queue);
        if !is_plain || !self.may_go_ahead(core) {
            return due;
        }
        let (_, cost, user) = self.begin_request(core, id(first), request, None);
        let host = &self.hosts[host];
        let (cost, exit) = (cost + host.costs.wake, host.idle_exit);
        let slots = [self.vector_slots + queue, self.port_slots + port, host.timers_slot];
        let now = self.now;
        let mut until = self.alone_until(core);
        let mut calls = 0;
        loop {
            let mut rest = schedule;
            rest.take(1.0, &mut self.rng);
            let (sent, next) = (due + exit + cost, rest.next());
            if sent >= until.min(next) || next >= stop {
                break;
            }
            self.now = sent;
            let end = self.tasks[task].take_turn();
            self.send_request(end, request, Some(due));
            // The frames that left may be noticed before the next one leaves.
            until = slots.iter().fold(until, |until, slot| until.min(self.agenda.due_time(*slot)));
            (schedule, due, calls) = (rest, next, calls + 1);
        }
        self.now = now;
        self.tasks[task].schedule = Some(schedule);
        self.spend_ahead(core, task, calls * cost, calls * user);
        due
    }

    /// The only ready socket of a process, if it has datagrams and messages from it may be handled in a row.
    fn only_datagrams(&self, core: usize, task: usize) -> Option<usize> {
        let this = &self.tasks[task];
        let idx = *this.ready.front()? as usize;
        let socket = &self.ends[idx];
        if matches!(socket.protocol, SocketProtocol::Tcp(_)) || this.ready.len() != 1 {
            return None;
        }
        let host = &self.hosts[socket.host as usize];
        let queue = socket.queue as usize;
        let port = &self.ports[self.queues[queue].port];
        let is_plain = (socket.owed, socket.consumed) == (0, 0)
            && (socket.link, port.foreseen) == (ConnectionState::Lasting, Some(queue))
            && (host.stack.busy_poll, host.costs.tx_remote) == (Nanos::ZERO, 0);
        (is_plain && self.may_go_ahead(core)).then_some(idx)
    }

    /// Nothing at all happens before this time, but for `core`.
    fn nobody_until(&mut self, core: usize) -> Time {
        let slot = self.core_slots + core;
        let due = self.agenda.due_time(slot);
        self.agenda.set_due_time(slot, NEVER);
        let (next, _) = self.agenda.next();
        self.agenda.set_due_time(slot, due);
        next.min(self.until + 1)
    }
}
