//! The clients of one queue: connections with one request in flight each, and the clients' own delay.

use latput_stats::Histogram;
use latput_units::{Nanos, SeededRng};

use super::EpollServer;
use crate::agenda::Time;

/// Shape of the generalised Pareto gaps of Facebook's key-value load (Atikoglu et al. 2012).
const GAP_SHAPE: f64 = 0.154_971;
/// Connections of one thread of a client.
const OF_THREAD: usize = 20;

/// A thread of a client with the queue of its NIC.
#[derive(Clone, Copy, Debug, Default)]
struct ClientThread {
    /// The last time at which it received.
    last: Time,
    /// The time at which it receives next, if after the last one.
    due: Time,
}

/// What follows an answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct NextArrivals {
    /// Arrival of the acknowledgement.
    pub(super) acknowledgement: Time,
    /// Arrival of the connection's next request.
    pub(super) request: Time,
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
            latencies: Histogram::new(),
        }
    }

    /// The arrivals of the first requests.
    pub(super) fn start(&mut self) -> Vec<Time> {
        let connections = self.planned.len();
        let first = |idx: usize| {
            let at = self.draw_gap().unwrap_or(1_000 * idx as Time);
            self.issued[idx] = at;
            self.planned[idx] = at + self.draw_gap().unwrap_or(0);
            at + self.draw_latency()
        };
        (0..connections).map(first).collect()
    }

    /// The server sent the answer of a connection.
    #[inline]
    pub(super) fn answer(&mut self, connection: usize, now: Time) -> NextArrivals {
        let arrived = now + self.draw_latency();
        let received = self.receive_at(connection / OF_THREAD, arrived);
        self.latencies.record(Nanos::from_ns(received - self.issued[connection]));
        let issued = received.max(self.planned[connection]);
        self.issued[connection] = issued;
        if let Some(gap) = self.draw_gap() {
            self.planned[connection] += gap;
        }
        let acknowledgement = received + self.draw_latency();
        let request = if issued == received { acknowledgement } else { issued + self.draw_latency() };
        NextArrivals { acknowledgement, request }
    }

    /// The time at which a thread receives what arrives at `at`. Its NIC holds an arrival back that follows another
    /// one closely, together with later ones.
    fn receive_at(&mut self, thread: usize, at: Time) -> Time {
        let thread = &mut self.threads[thread];
        if thread.due > at {
            return thread.due;
        }
        thread.last = thread.last.max(thread.due);
        let is_close = at < thread.last + self.hold && thread.last > 0;
        thread.due = if is_close { at + self.hold } else { at };
        thread.due
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
