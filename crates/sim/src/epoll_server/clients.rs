//! The clients of one queue: connections with one request in flight each, and the clients' own delay.

use latput_stats::Histogram;
use latput_units::{Nanos, SeededRng};

use super::EpollServer;
use crate::agenda::Time;
use crate::casts::id;

/// Shape of the generalised Pareto gaps of Facebook's key-value load (Atikoglu et al. 2012).
const GAP_SHAPE: f64 = 0.154_971;
/// Time between the first requests of a queue's connections.
const START_SPACING: Time = 1_000;
/// Connections of one thread of a client.
const OF_THREAD: usize = 20;

/// An arrival at the server, or at a client's thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Arrival {
    /// The acknowledgement of a connection's answer. It comes before a request of the same time.
    Acknowledgement(u32),
    /// A connection's request.
    Request(u32),
    /// The end of a client's delay: it receives what was held back.
    Client(usize),
}

/// A thread of a client with the queue of its NIC.
#[derive(Clone, Debug, Default)]
struct ClientThread {
    /// The last time at which it received.
    last: Time,
    /// The time at which it receives what is held back.
    due: Time,
    /// The connections whose answers are held back.
    held: Vec<u32>,
}

/// The connections of one queue.
#[derive(Debug)]
pub(super) struct Clients {
    rng: SeededRng,
    /// Scale of the gaps of one connection in nanoseconds; `None` for a closed loop.
    gap_scale: Option<f64>,
    latency: Time,
    jitter: f64,
    hold: Time,
    /// The earliest time of each connection's next request.
    planned: Vec<Time>,
    issued: Vec<Time>,
    threads: Vec<ClientThread>,
    /// Further arrivals, for the station to take over.
    pub(super) arrivals: Vec<(Time, Arrival)>,
    /// Latencies since the start of the window.
    pub(super) latencies: Histogram,
}

impl Clients {
    pub(super) fn new(server: &EpollServer, connections: usize, rng: SeededRng) -> Self {
        let per_connection = server.rate_hz.map(|rate| rate / f64::from(server.connections));
        Self {
            rng,
            gap_scale: per_connection.map(|rate| (1.0 - GAP_SHAPE) * 1e9 / rate),
            latency: server.latency.as_ns(),
            jitter: server.latency_jitter_ratio,
            hold: server.client_hold.as_ns(),
            planned: vec![0; connections],
            issued: vec![0; connections],
            threads: vec![ClientThread::default(); connections.div_ceil(OF_THREAD)],
            arrivals: Vec::new(),
            latencies: Histogram::new(),
        }
    }

    /// Plans the first requests. They come at once, so that a server that cannot get out of an overload is found in it.
    pub(super) fn start(&mut self) {
        for idx in 0..self.planned.len() {
            let at = START_SPACING * idx as Time;
            self.issued[idx] = at;
            self.planned[idx] = at + self.draw_gap().unwrap_or(0);
            let requested = at + self.draw_latency();
            self.arrivals.push((requested, Arrival::Request(id(idx))));
        }
    }

    /// The server sent the answer of a connection.
    ///
    /// The client's NIC holds back an answer that follows another one within its delay, together with those that come
    /// meanwhile, each of which restarts the delay.
    #[inline]
    pub(super) fn answer(&mut self, connection: u32, now: Time) {
        let at = now + self.draw_latency();
        let idx = connection as usize / OF_THREAD;
        if !self.threads[idx].held.is_empty() && self.threads[idx].due <= at {
            self.release_held(idx);
        }
        let (hold, thread) = (self.hold, &mut self.threads[idx]);
        let is_close = thread.last > 0 && at < thread.last + hold;
        if is_close || !thread.held.is_empty() {
            thread.held.push(connection);
            thread.due = at + hold;
            self.arrivals.push((at + hold, Arrival::Client(idx)));
        } else {
            thread.last = thread.last.max(at);
            self.receive(connection, at);
        }
    }

    /// The delay of a thread ended at `now`, unless a later answer restarted it.
    pub(super) fn end_delay(&mut self, idx: usize, now: Time) {
        if self.threads[idx].due == now {
            self.release_held(idx);
        }
    }

    fn release_held(&mut self, idx: usize) {
        let thread = &mut self.threads[idx];
        let (held, due) = (std::mem::take(&mut thread.held), thread.due);
        thread.last = due;
        for &connection in &held {
            self.receive(connection, due);
        }
        // The list keeps its memory.
        self.threads[idx].held = held;
        self.threads[idx].held.clear();
    }

    /// A client has the answer: it acknowledges, and plans its next request.
    fn receive(&mut self, connection: u32, at: Time) {
        let idx = connection as usize;
        self.latencies.record(Nanos::from_ns(at - self.issued[idx]));
        let issued = at.max(self.planned[idx]);
        self.issued[idx] = issued;
        if let Some(gap) = self.draw_gap() {
            self.planned[idx] += gap;
        }
        let acknowledged = at + self.draw_latency();
        let requested = if issued == at { acknowledged } else { issued + self.draw_latency() };
        self.arrivals.push((acknowledged, Arrival::Acknowledgement(connection)));
        self.arrivals.push((requested, Arrival::Request(connection)));
    }

    /// A latency of the network, one way.
    fn draw_latency(&mut self) -> Time {
        self.latency + to_time(self.latency as f64 * self.jitter * self.rng.next_uniform())
    }

    fn draw_gap(&mut self) -> Option<Time> {
        let scale = self.gap_scale?;
        let uniform = 1.0 - self.rng.next_uniform();
        Some(to_time(scale * (uniform.powf(-GAP_SHAPE) - 1.0) / GAP_SHAPE))
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "times of a run are positive and far below 2^53"
)]
fn to_time(ns: f64) -> Time {
    ns as Time
}
