//! Requests and responses: clients that wait for a response or keep to a schedule, servers that answer
//! at once or after thinking, transactions that get lost.

use super::World;
use super::deliver::{ANSWER, LOST};
use super::process::copy_cost;
use crate::agenda::{NEVER, Time};
use crate::casts::{id, narrow_size};
use crate::frame::Frame;
use crate::socket::{ConnectionState, PendingRequest, SocketProtocol};
use crate::task::{TaskProgram, TaskState, ThinkTime, WorkItem, draw_exponential};

impl World {
    /// Begins a client's next request that no response lets go, or its next response with, in a closed loop, the next
    /// request.
    pub(super) fn begin_client(
        &mut self,
        core: usize,
        task: usize,
        (request, response): (u32, u32),
        is_over: bool,
    ) -> Option<(WorkItem, Time, Time)> {
        let mut next = None;
        let this = &mut self.tasks[task];
        let is_open_loop = this.schedule.is_some();
        if let Some(schedule) = &this.schedule
            && !is_over
        {
            let at = schedule.next();
            let reads_first = !this.ready.is_empty() && this.sent_last;
            if !reads_first && at <= self.now {
                this.sent_last = true;
                return Some(self.begin_due_request(core, task, request));
            }
            this.sent_last = false;
            next = Some(at);
            self.exchange_ahead(core, task, response, None);
        }
        while let Some(&end) = self.tasks[task].ready.front() {
            let socket = &mut self.ends[end as usize];
            if socket.owed == 0 {
                break;
            }
            if is_over {
                socket.owed = 0;
            } else if socket.link == ConnectionState::Closed {
                return Some(self.begin_connect(task, end));
            } else if socket.link != ConnectionState::Connecting {
                return Some(self.begin_request(core, end, request, None));
            }
            if socket.readable_bytes() == 0 {
                self.tasks[task].ready.pop();
                self.ends[end as usize].is_ready = false;
                continue;
            }
            break;
        }
        let is_plain = self.tasks[task].ready.front().is_some_and(|end| {
            self.ends[*end as usize].link == ConnectionState::Lasting && !is_open_loop
        });
        let item = self.begin_receive(core, task, response, is_plain.then_some(request));
        match next {
            Some(at) if item.is_none() => self.await_due_request(core, task, request, at),
            _ => item,
        }
    }

    /// A client that has nothing to do before its schedule says so: holds the core until then if it can, and
    /// sleeps otherwise.
    fn await_due_request(
        &mut self,
        core: usize,
        task: usize,
        request: u32,
        at: Time,
    ) -> Option<(WorkItem, Time, Time)> {
        let this = &self.tasks[task];
        let may_hold = this.may_hold && at < this.stop && !self.is_eager && self.log.is_none();
        let slot = this.slot.expect("a process with a schedule has a timer");
        if !may_hold || !self.cores[core].polls.is_empty() || !self.reserve_core(core, at) {
            self.agenda.set_due_time(slot, at);
            return None;
        }
        self.agenda.set_due_time(slot, NEVER);
        let at = self.ask_ahead(core, task, request, at);
        self.reserve_core(core, at);
        let this = &mut self.tasks[task];
        this.holds = Some(core);
        this.state = TaskState::Asleep;
        this.woken_by = Some(id(core));
        let end = id(this.first_end + 2 * this.turn);
        Some(self.begin_request(core, end, request, Some(at)))
    }

    /// The request that a schedule has due now, on the next connection in turn.
    fn begin_due_request(
        &mut self,
        core: usize,
        task: usize,
        request: u32,
    ) -> (WorkItem, Time, Time) {
        let this = &mut self.tasks[task];
        let end = this.take_turn();
        let due = this.schedule.as_mut().map(|schedule| schedule.take(1.0, &mut self.rng));
        self.begin_request(core, id(end), request, due)
    }

    pub(super) fn begin_request(
        &self,
        core: usize,
        end: u32,
        request: u32,
        due: Option<Time>,
    ) -> (WorkItem, Time, Time) {
        let costs = &self.hosts[self.ends[end as usize].host as usize].costs;
        let cost = costs.syscall
            + costs.user
            + costs.tx_packet
            + copy_cost(costs.copy_per_kib, request)
            + self.cross_cost(core, end);
        (WorkItem::Start { end, due }, cost, costs.user)
    }

    pub(super) fn finish_request(
        &mut self,
        core: usize,
        task: usize,
        end: usize,
        due: Option<Time>,
    ) -> Time {
        let TaskProgram::Client { request, .. } = self.tasks[task].program else {
            unreachable!("only clients start requests");
        };
        if self.tasks[task].holds.take().is_some() {
            let this = &mut self.tasks[task];
            this.state = TaskState::Running;
            this.sent_last = true;
            this.take_turn();
            if let Some(schedule) = &mut this.schedule {
                schedule.take(1.0, &mut self.rng);
            }
        }
        let due = if self.ends[end].link == ConnectionState::Open {
            Some(self.ends[end].exchange.connect_at)
        } else {
            due
        };
        if self.tasks[task].schedule.is_none() {
            self.ends[end].owed -= 1;
            self.next_ready(core, task, end);
        }
        self.send_request(end, request, due)
    }

    /// Reads from the first ready socket; what completes a message of `awaited` bytes sends `answer`.
    pub(super) fn begin_receive(
        &mut self,
        core: usize,
        task: usize,
        awaited: u32,
        answer: Option<u32>,
    ) -> Option<(WorkItem, Time, Time)> {
        let &end = self.tasks[task].ready.front()?;
        let costs = &self.hosts[self.tasks[task].host].costs;
        let socket = &self.ends[end as usize];
        let missing = awaited - socket.consumed;
        let bytes = narrow_size(u64::from(missing).min(socket.readable_bytes()));
        let is_reader = matches!(self.tasks[task].program, TaskProgram::Reader { .. });
        let completes = bytes == missing || is_reader;
        let mut cost = costs.syscall + copy_cost(costs.copy_per_kib, bytes);
        let mut user = 0;
        if completes {
            user = costs.user;
            // Of a stream each read takes its share of a message's cold lines with it.
            let share = |cost: Time| {
                if is_reader { cost * u64::from(bytes) / u64::from(awaited.max(1)) } else { cost }
            };
            cost += costs.user + share(self.cross_cost(core, end));
            if let Some(answer) = answer {
                cost += costs.syscall + costs.tx_packet + copy_cost(costs.copy_per_kib, answer);
            }
            // Of a connection to each transaction: accepted and closed, or closed.
            if socket.link != ConnectionState::Lasting {
                let is_client = matches!(self.tasks[task].program, TaskProgram::Client { .. });
                cost += costs.syscall * if is_client { 1 } else { 2 };
            }
        }
        Some((WorkItem::Receive { end, bytes, completes }, cost, user))
    }

    /// An answer that is due after thinking.
    pub(super) fn begin_answer(
        &self,
        task: usize,
        response: u32,
    ) -> Option<(WorkItem, Time, Time)> {
        let &end = self.tasks[task].ready.front()?;
        if self.ends[end as usize].owed == 0 {
            return None;
        }
        let costs = &self.hosts[self.tasks[task].host].costs;
        let cost = costs.syscall + costs.tx_packet + copy_cost(costs.copy_per_kib, response);
        Some((WorkItem::Answer { end }, cost, 0))
    }

    pub(super) fn send_request(&mut self, end: usize, bytes: u32, due: Option<Time>) -> Time {
        let sent = self.now;
        let socket = &mut self.ends[end];
        socket.exchange.starts.push(PendingRequest { due: due.unwrap_or(sent), sent });
        if socket.exchange.timeout > 0 && socket.exchange.lost_at == NEVER {
            self.schedule_loss_check(end, sent);
        }
        self.send_message(end, bytes, 0)
    }

    /// Sends a message; gives the cost beyond one packet's, which the item has paid.
    pub(super) fn send_message(&mut self, end: usize, bytes: u32, echo: Time) -> Time {
        let socket = &mut self.ends[end];
        let tally = &mut self.tallies[socket.load as usize];
        tally.handed_over(socket.is_generator, u64::from(bytes));
        let paid = self.hosts[socket.host as usize].costs.tx_packet;
        match &mut socket.protocol {
            SocketProtocol::Datagrams(_) => {
                let frame = Frame {
                    sent_at: self.now,
                    echo,
                    end: id(end) ^ 1,
                    payload: bytes,
                    ..Frame::default()
                };
                let queue = socket.queue as usize;
                self.transmit_frame(queue, &frame);
                0
            }
            SocketProtocol::Tcp(tcp) => {
                tcp.write(u64::from(bytes));
                self.tcp_output(end).saturating_sub(paid)
            }
        }
    }

    pub(super) fn finish_receive(
        &mut self,
        core: usize,
        task: usize,
        end: usize,
        bytes: u32,
        completes: bool,
    ) -> Time {
        self.keep_spinning(task, end, self.now);
        let program = self.tasks[task].program;
        let (mut cost, stamps) = self.take_received_bytes(&program, end, bytes, completes);
        match program {
            TaskProgram::Client { request, .. } if completes => {
                self.ends[end].consumed = 0;
                cost += self.finish_transaction(task, end, request, stamps);
            }
            TaskProgram::Server { response, think, .. } if completes => {
                self.ends[end].consumed = 0;
                let request = self.identify_request(end, stamps);
                if think.mean == 0 {
                    self.note_answer(end, request);
                    cost += self.send_message(end, response, request.sent);
                } else {
                    self.schedule_answer(end, think, request);
                }
            }
            TaskProgram::Client { .. } | TaskProgram::Server { .. } => {
                self.ends[end].consumed += bytes;
            }
            _ => {}
        }
        self.next_ready(core, task, end);
        cost
    }

    /// A response is complete: counts the transaction and, in a closed loop, goes on.
    fn finish_transaction(
        &mut self,
        task: usize,
        end: usize,
        request: u32,
        stamps: Option<(Time, Time)>,
    ) -> Time {
        let now = self.now;
        let socket = &mut self.ends[end];
        let started = match stamps {
            None => socket.exchange.answering.pop(),
            Some((_, echo)) => socket.exchange.take_start(echo),
        };
        let Some(started) = started else {
            return 0; // given up before: counted as lost
        };
        self.tallies[socket.load as usize].count_transaction(started, now);
        if socket.link == ConnectionState::Open {
            return self.close(task, end);
        }
        if now < self.tasks[task].stop && self.tasks[task].schedule.is_none() {
            return self.send_request(end, request, None);
        }
        0
    }

    /// Which request a server has read: TCP keeps their order, a datagram carries its stamp.
    fn identify_request(&mut self, end: usize, stamps: Option<(Time, Time)>) -> PendingRequest {
        match stamps {
            None => self.ends[end ^ 1].exchange.starts.pop().expect("a request was sent"),
            Some((sent, _)) => PendingRequest { due: sent, sent },
        }
    }

    /// On TCP answers arrive in the order in which they are sent: the client will know which is which, as
    /// by an identifier in them.
    fn note_answer(&mut self, end: usize, request: PendingRequest) {
        if matches!(self.ends[end].protocol, SocketProtocol::Tcp(_)) {
            self.ends[end ^ 1].exchange.answering.push(request);
        }
    }

    /// The answer to a request is due when the server has thought.
    #[expect(clippy::cast_possible_truncation, reason = "think times stay far below 2^52")]
    fn schedule_answer(&mut self, end: usize, think: ThinkTime, request: PendingRequest) {
        let span = if think.varies {
            draw_exponential(&mut self.rng, think.mean as f64) as Time
        } else {
            think.mean
        };
        let at = self.now + span;
        self.ends[end].exchange.thinking.push((at, request));
        let host = self.ends[end].host as usize;
        self.hosts[host].timers.push(at, id(end) | ANSWER);
        self.update_timers(host);
    }

    /// A server has thought: its process answers as soon as it can.
    pub(super) fn finish_thinking(&mut self, end: usize) {
        let now = self.now;
        let socket = &mut self.ends[end];
        let ripe = socket.exchange.thinking.iter().position(|(at, _)| *at <= now);
        let Some(ripe) = ripe else {
            return;
        };
        let (_, request) = socket.exchange.thinking.swap_remove(ripe);
        socket.exchange.answering.push(request);
        socket.owed += 1;
        self.make_ready(self.queues[self.ends[end].queue as usize].core, end);
    }

    pub(super) fn finish_answer(&mut self, core: usize, task: usize, end: usize) -> Time {
        self.ends[end].owed -= 1;
        let request = self.ends[end].exchange.answering.pop().expect("an answer has its request");
        self.note_answer(end, request);
        let cost = match self.tasks[task].program {
            TaskProgram::Server { response, .. } => self.send_message(end, response, request.sent),
            _ => unreachable!("only servers answer"),
        };
        self.next_ready(core, task, end);
        cost
    }

    /// Takes what was read out of the socket; gives what that cost and the stamps of a datagram.
    fn take_received_bytes(
        &mut self,
        program: &TaskProgram,
        end: usize,
        bytes: u32,
        completes: bool,
    ) -> (Time, Option<(Time, Time)>) {
        let socket = &mut self.ends[end];
        let tally = &mut self.tallies[socket.load as usize];
        tally.count_received(socket.is_generator, u64::from(bytes));
        match &mut socket.protocol {
            SocketProtocol::Datagrams(inbox) => {
                let datagram = inbox.take(1).expect("the item saw a datagram");
                (0, Some((datagram.sent_at, datagram.echo)))
            }
            SocketProtocol::Tcp(tcp) => {
                tcp.read(u64::from(bytes));
                // A read may offer the window again; an answer carries that for free.
                let is_answered = completes
                    && matches!(program, TaskProgram::Client { .. } | TaskProgram::Server { .. });
                (if is_answered { 0 } else { self.tcp_output(end) }, None)
            }
        }
    }

    /// The next look for lost transactions of a socket: when the oldest has had its time.
    fn schedule_loss_check(&mut self, end: usize, oldest: Time) {
        let socket = &mut self.ends[end];
        let at = oldest + socket.exchange.timeout;
        socket.exchange.lost_at = at;
        let host = socket.host as usize;
        self.hosts[host].timers.push(at, id(end) | LOST);
        self.update_timers(host);
    }

    /// Gives up the transactions of a socket whose time is over; in a closed loop others take their place.
    pub(super) fn give_up_lost(&mut self, end: usize) {
        let now = self.now;
        let socket = &mut self.ends[end];
        socket.exchange.lost_at = NEVER;
        let before = now.saturating_sub(socket.exchange.timeout);
        let mut lost = 0;
        let exchange = &mut *socket.exchange;
        for list in [&mut exchange.missing, &mut exchange.starts] {
            while list.front().is_some_and(|start| start.sent <= before) {
                list.pop();
                lost += 1;
            }
        }
        let oldest = [&socket.exchange.missing, &socket.exchange.starts]
            .into_iter()
            .filter_map(|list| list.front().map(|start| start.sent))
            .min();
        self.tallies[socket.load as usize].lost += lost;
        if let Some(oldest) = oldest {
            self.schedule_loss_check(end, oldest);
        }
        let task = self.ends[end].task.expect("a client's socket has its process") as usize;
        if lost > 0 && self.tasks[task].schedule.is_none() {
            self.ends[end].owed += narrow_size(lost);
            self.make_ready(self.queues[self.ends[end].queue as usize].core, end);
        }
    }
}
