//! One queue with its core: interrupts, polls, the thread in epoll, and the time of each.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use latput_policy::dim::DimProfile;
use latput_policy::{Moderation, QueueObservation, TrafficCounts};
use latput_stats::Histogram;
use latput_units::{Nanos, SeededRng};

use super::clients::{Arrival, Clients};
use super::completions::CompletionQueue;
use super::napi::{Napi, PollEnd};
use super::{EpollServer, ServerCounts, ServerCpu};
use crate::agenda::{NEVER, Time};
use crate::casts::id;
use crate::machine::{CpuCosts, Nic};
use crate::vector::InterruptDelay;

/// Packets of one poll by the kernel (`NAPI_POLL_WEIGHT`).
const WEIGHT: u32 = 64;
/// Packets that reach their sockets together (`gro_normal_batch`).
const DELIVERY_BATCH: u32 = 8;
/// Time from the doorbell of a sent packet to its completion.
const SEND_TIME: Time = 1_500;
/// Requests after which the cache holds nothing of a socket: 4 KiB each in 1 MiB.
const CACHED_REQUESTS: u64 = 256;
/// Bytes of a request, an acknowledgement and an answer, with headers.
const REQUEST_BYTES: u32 = 114;
const ACKNOWLEDGEMENT_BYTES: u32 = 66;
const ANSWER_BYTES: u32 = 304;

/// The context of work on the core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Context {
    User,
    System,
    /// System time with soft interrupts off: a poll by the application.
    BusyPoll,
    Softirq,
}

/// A packet in the ring: a connection's request or acknowledgement.
#[derive(Clone, Copy, Debug)]
struct Packet {
    connection: u32,
    is_request: bool,
}

/// A socket in the ready list.
#[derive(Clone, Copy, Debug)]
struct ReadySocket {
    connection: u32,
    /// Requests delivered before it.
    delivered: u64,
}

/// The source of the next event beside the core.
#[derive(Clone, Copy, Debug)]
enum EventSource {
    Arrival,
    Sent,
    RxInterrupt,
    TxInterrupt,
    Timer,
}

/// One queue, its core and its thread.
#[derive(Debug)]
pub(super) struct Station<'a> {
    server: &'a EpollServer,
    costs: &'a CpuCosts,
    now: Time,
    clients: Clients,
    arrivals: BinaryHeap<Reverse<(Time, Arrival)>>,
    sending: VecDeque<Time>,
    ring: VecDeque<Packet>,
    sent: u32,
    rx: CompletionQueue,
    tx: CompletionQueue,
    rx_counts: TrafficCounts,
    tx_counts: TrafficCounts,
    napi: Napi,
    softirq_pending: bool,
    last_received: u32,
    ready: VecDeque<ReadySocket>,
    /// Whether epoll knows the NAPI instance of its sockets.
    knows_napi: bool,
    delivered: u64,
    cpu: ServerCpu,
    counts: ServerCounts,
}

fn new_queue(
    nic: &Nic,
    delay: &InterruptDelay,
    [eqe, cqe]: [DimProfile; 2],
    (is_adaptive, points): (bool, Option<[(u32, u32); 5]>),
) -> CompletionQueue {
    let profile = if delay.restarts { cqe } else { eqe };
    let fixed = Moderation { delay: delay.delay, frames: Some(delay.frames) };
    let is_adaptive = is_adaptive && nic.adaptation.is_some();
    CompletionQueue::new(profile, points.unwrap_or(profile.points()), is_adaptive, fixed)
}

impl<'a> Station<'a> {
    pub(super) fn new(server: &'a EpollServer, connections: usize, rng: SeededRng) -> Self {
        let nic = &server.nic;
        let [rx, tx] = [&nic.coalescing.rx, &nic.coalescing.tx];
        let mut clients = Clients::new(server, connections, rng);
        clients.start();
        Self {
            arrivals: clients.arrivals.drain(..).map(Reverse).collect(),
            server,
            costs: &server.machine.costs,
            now: 0,
            clients,
            sending: VecDeque::new(),
            ring: VecDeque::new(),
            sent: 0,
            rx: new_queue(
                nic,
                rx,
                [DimProfile::RxEqe, DimProfile::RxCqe],
                (nic.adaptive_rx, nic.rx_profile),
            ),
            tx: new_queue(
                nic,
                tx,
                [DimProfile::TxEqe, DimProfile::TxCqe],
                (nic.adaptive_tx, nic.tx_profile),
            ),
            rx_counts: TrafficCounts::default(),
            tx_counts: TrafficCounts::default(),
            napi: Napi::new(server.napi),
            softirq_pending: false,
            last_received: u32::MAX,
            ready: VecDeque::new(),
            knows_napi: false,
            delivered: 0,
            cpu: ServerCpu::default(),
            counts: ServerCounts::default(),
        }
    }

    pub(super) const fn cpu(&self) -> &ServerCpu {
        &self.cpu
    }

    pub(super) const fn counts(&self) -> &ServerCounts {
        &self.counts
    }

    pub(super) const fn latencies(&self) -> &Histogram {
        &self.clients.latencies
    }

    /// The measured window begins.
    pub(super) fn start_window(&mut self) {
        self.cpu = ServerCpu::default();
        self.counts = ServerCounts::default();
        self.clients.latencies = Histogram::new();
    }

    /// The thread's loop: wait, serve, wait.
    pub(super) fn run_until(&mut self, until: Time) {
        while self.now < until {
            self.work(self.costs.syscall.as_ns(), Context::System);
            if self.ready.is_empty() {
                self.poll_without_events();
            }
            if self.ready.is_empty() {
                self.wait_for_events(until);
            }
            self.serve_ready();
        }
    }

    /// `ep_send_events`, `ep_suspend_napi_irqs` and the application's work on the events.
    fn serve_ready(&mut self) {
        if self.ready.is_empty() {
            return;
        }
        if self.server.epoll.prefers && self.knows_napi {
            self.napi.suspend(self.now);
        }
        let costs = self.costs;
        let syscall = costs.syscall.as_ns();
        for _ in 0..self.ready.len() {
            let Some(socket) = self.ready.pop_front() else { return };
            let since = (self.delivered - socket.delivered).min(CACHED_REQUESTS);
            let cold = costs.read_cold.as_ns() * since / CACHED_REQUESTS;
            self.work(syscall + cold, Context::System);
            self.work(costs.user.as_ns(), Context::User);
            self.work(syscall + costs.tx_packet.as_ns(), Context::System);
            self.send_answer(socket.connection);
        }
    }

    fn send_answer(&mut self, connection: u32) {
        self.counts.transactions += 1;
        self.sending.push_back(self.now + SEND_TIME);
        self.clients.answer(connection, self.now);
        self.take_arrivals();
    }

    fn take_arrivals(&mut self) {
        self.arrivals.extend(self.clients.arrivals.drain(..).map(Reverse));
    }

    /// `ep_busy_loop`: polls the queue for a time, then leaves it to interrupts and timers.
    fn poll_without_events(&mut self) {
        let epoll = &self.server.epoll;
        if !self.knows_napi || !(epoll.prefers || epoll.busy_poll > Nanos::ZERO) {
            return;
        }
        if self.napi.begin_busy_poll() {
            let deadline = self.now + epoll.busy_poll.as_ns();
            loop {
                self.poll(epoll.budget, Context::BusyPoll);
                if !self.ready.is_empty() || self.now >= deadline {
                    break;
                }
                self.spin(deadline);
            }
            self.stop_busy_poll();
        }
        if self.ready.is_empty() {
            if epoll.prefers && self.napi.resume() {
                self.run_softirq();
            }
            self.knows_napi = false;
        }
    }

    /// Empty polls until something comes, at the latest until `deadline`.
    fn spin(&mut self, deadline: Time) {
        let next = self.next_source().0.min(deadline);
        if self.ring.is_empty() && self.sent == 0 && next > self.now {
            let poll = self.costs.poll.as_ns().max(1);
            let polls = (next - self.now).div_ceil(poll);
            self.counts.busy_polls += polls;
            self.work(polls * poll, Context::BusyPoll);
        }
    }

    fn stop_busy_poll(&mut self) {
        let epoll = &self.server.epoll;
        let timer_polls = self.napi.stop_busy_poll(epoll.prefers, self.now);
        let received = self.poll(epoll.budget, Context::BusyPoll);
        let polls_again = if received == epoll.budget {
            self.napi.exhaust_busy_poll(timer_polls)
        } else {
            self.end_poll(received, Context::BusyPoll) == PollEnd::Again
        };
        self.softirq_pending |= polls_again;
        if std::mem::take(&mut self.softirq_pending) {
            self.run_softirq();
        }
    }

    /// Sleeps until there are events.
    fn wait_for_events(&mut self, until: Time) {
        if self.server.epoll.never_sleeps {
            let next = self.next_source().0.min(until);
            self.work(next.saturating_sub(self.now), Context::System);
            return;
        }
        self.work(self.costs.sleep.as_ns(), Context::System);
        let mut slept = false;
        while self.ready.is_empty() {
            slept = true;
            let (at, source) = self.next_source();
            if at >= until {
                self.now = until;
                return;
            }
            self.now = self.now.max(at);
            if let Some(cost) = self.take_event(source) {
                self.now += self.server.machine.idle_exit.as_ns() + cost;
                self.cpu.irq = self.cpu.irq + Nanos::from_ns(cost);
                if std::mem::take(&mut self.softirq_pending) {
                    self.run_softirq();
                }
            }
        }
        if slept {
            self.work(self.costs.wake.as_ns(), Context::System);
        }
    }

    /// `net_rx_action`: polls of the kernel until the instance is complete.
    fn run_softirq(&mut self) {
        loop {
            let received = self.poll(WEIGHT, Context::Softirq);
            let is_complete =
                received < WEIGHT && self.end_poll(received, Context::Softirq) != PollEnd::Again;
            if is_complete && !std::mem::take(&mut self.softirq_pending) {
                return;
            }
        }
    }

    /// The end of a poll that left the queue empty.
    fn end_poll(&mut self, received: u32, context: Context) -> PollEnd {
        let end = self.napi.complete(received, self.now);
        match end {
            PollEnd::Rearm => self.rearm(context),
            PollEnd::Masked => self.work(self.costs.timer_arm.as_ns(), context),
            PollEnd::Again => {}
        }
        end
    }

    /// The driver samples DIM and arms both completion queues.
    fn rearm(&mut self, context: Context) {
        self.work(self.costs.rearm.as_ns(), context);
        let observation = QueueObservation {
            now: Nanos::from_ns(self.now),
            rx: std::mem::take(&mut self.rx_counts),
            tx: std::mem::take(&mut self.tx_counts),
            ..QueueObservation::default()
        };
        self.rx.adapt(observation);
        self.tx.adapt(observation);
        self.rx.arm(self.now);
        self.tx.arm(self.now);
    }

    /// The driver's poll: all sent packets, and received ones up to `budget`.
    fn poll(&mut self, budget: u32, context: Context) -> u32 {
        let costs = self.costs;
        let sent = std::mem::take(&mut self.sent);
        self.tx.consume(sent);
        self.tx_counts.packets += sent;
        self.tx_counts.bytes += sent * ANSWER_BYTES;
        match context {
            Context::Softirq => self.counts.softirq_polls += 1,
            _ => self.counts.busy_polls += 1,
        }
        self.work(costs.poll.as_ns() + Time::from(sent) * costs.tx_completion.as_ns(), context);
        let mut received = 0;
        while received < budget && !self.ring.is_empty() {
            let batch = id(self.ring.len()).min(budget - received).min(DELIVERY_BATCH);
            let first = if received == 0 { costs.rx_first.as_ns() } else { 0 };
            let cost = first + self.cost_of_packets(batch);
            self.work(cost, context);
            for _ in 0..batch {
                self.deliver_packet();
            }
            received += batch;
        }
        received
    }

    fn cost_of_packets(&mut self, batch: u32) -> Time {
        let costs = self.costs;
        let mut cost = Time::from(batch) * costs.rx_packet.as_ns();
        for packet in self.ring.iter().take(batch as usize) {
            if packet.is_request {
                cost += costs.rx_data.as_ns();
            }
            if packet.connection != self.last_received {
                self.last_received = packet.connection;
                cost += costs.rx_socket.as_ns();
            }
        }
        cost
    }

    fn deliver_packet(&mut self) {
        let Some(packet) = self.ring.pop_front() else { return };
        self.rx.consume(1);
        self.counts.rx_packets += 1;
        self.rx_counts.packets += 1;
        self.rx_counts.bytes +=
            if packet.is_request { REQUEST_BYTES } else { ACKNOWLEDGEMENT_BYTES };
        if packet.is_request {
            let (connection, delivered) = (packet.connection, self.delivered);
            self.ready.push_back(ReadySocket { connection, delivered });
            self.delivered += 1;
            self.knows_napi = true;
        }
    }

    /// Uses the core for `cost`, and longer where interrupts come meanwhile.
    #[inline]
    fn work(&mut self, cost: Time, context: Context) {
        let mut end = self.now + cost;
        loop {
            let (at, source) = self.next_source();
            if at > end {
                break;
            }
            self.now = self.now.max(at);
            let Some(handler) = self.take_event(source) else { continue };
            self.account(handler, context);
            end += handler;
            let is_preemptible = matches!(context, Context::User | Context::System);
            if is_preemptible && std::mem::take(&mut self.softirq_pending) {
                let left = end - self.now - handler;
                self.now += handler;
                self.run_softirq();
                let preempted = self.costs.preempted.as_ns();
                self.account(preempted, context);
                end = self.now + left + preempted;
            }
        }
        self.account(cost, context);
        self.now = end;
    }

    #[inline]
    fn account(&mut self, cost: Time, context: Context) {
        let total = match context {
            Context::User => &mut self.cpu.user,
            Context::System | Context::BusyPoll => &mut self.cpu.system,
            Context::Softirq => &mut self.cpu.softirq,
        };
        *total = *total + Nanos::from_ns(cost);
    }

    /// The next event beside the core, and its time.
    #[inline]
    fn next_source(&self) -> (Time, EventSource) {
        let mut next = (self.napi.timer_due(), EventSource::Timer);
        let arrival = self.arrivals.peek().map_or(NEVER, |Reverse((at, _))| *at);
        let sent = self.sending.front().copied().unwrap_or(NEVER);
        for (at, source) in [
            (self.rx.due(), EventSource::RxInterrupt),
            (self.tx.due(), EventSource::TxInterrupt),
            (sent, EventSource::Sent),
            (arrival, EventSource::Arrival),
        ] {
            if at < next.0 {
                next = (at, source);
            }
        }
        next
    }

    /// Takes in the event that is due now; the time of its interrupt handler, if it has one.
    #[inline]
    fn take_event(&mut self, source: EventSource) -> Option<Time> {
        match source {
            EventSource::Arrival => {
                self.take_arrival();
                return None;
            }
            EventSource::Sent => {
                self.sending.pop_front();
                self.sent += 1;
                self.tx.complete(self.now);
                return None;
            }
            EventSource::Timer => {
                self.counts.timers += 1;
                self.softirq_pending |= self.napi.expire_timer();
                return Some(self.costs.timer.as_ns());
            }
            EventSource::RxInterrupt => self.rx.raise(self.now),
            EventSource::TxInterrupt => self.tx.raise(self.now),
        }
        self.counts.interrupts += 1;
        self.softirq_pending |= self.napi.schedule();
        Some(self.costs.interrupt.as_ns())
    }

    fn take_arrival(&mut self) {
        let Some(Reverse((at, arrival))) = self.arrivals.pop() else { return };
        let (connection, is_request) = match arrival {
            Arrival::Acknowledgement(connection) => (connection, false),
            Arrival::Request(connection) => (connection, true),
            Arrival::Client(thread) => {
                self.clients.end_delay(thread, at);
                self.take_arrivals();
                return;
            }
        };
        self.ring.push_back(Packet { connection, is_request });
        self.rx.complete(self.now);
    }
}
