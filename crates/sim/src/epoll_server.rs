//! A key-value server: threads that wait in epoll, each with the connections of one queue, and the kernel's rules for
//! who polls the queue.
//!
//! Each queue has a core with its interrupt, its softirq and one thread, and is a station of its own: busy polling by
//! epoll (`EPIOCSPARAMS`), preferred busy polling, deferred interrupts and suspended interrupts follow Linux 6.13
//! (`net/core/dev.c`, `fs/eventpoll.c`), moderation follows mlx5 with DIM. A request is one packet, an answer is one
//! packet, and the client acknowledges it at once. Clients have one request in flight on each connection.
//!
//! Left out: retransmissions and full rings (all packets in flight fit), ksoftirqd, other work on the cores.

mod clients;
mod completions;
mod napi;
mod station;
#[cfg(test)]
mod tests;

use latput_stats::Histogram;
use latput_units::{Nanos, SeededRng};

pub use self::napi::NapiSettings;
use self::station::Station;
use crate::machine::{Machine, Nic};

/// The parameters of an epoll instance, and how its thread waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EpollSettings {
    /// Time for which `epoll_wait` polls the queue without events (`busy_poll_usecs`).
    pub busy_poll: Nanos,
    /// Most packets of one of these polls (`busy_poll_budget`).
    pub budget: u32,
    /// Whether interrupts stay masked between these polls as far as deferral allows (`prefer_busy_poll`).
    pub prefers: bool,
    /// Whether the thread calls `epoll_wait` again instead of sleeping in it.
    pub never_sleeps: bool,
}

/// A run of the server and its clients. The same description gives the same outcome.
#[derive(Clone, Debug, PartialEq)]
pub struct EpollServer {
    /// Seed of gaps and latencies.
    pub seed: u64,
    /// Time before the measured window.
    pub warmup: Nanos,
    /// Length of the window.
    pub duration: Nanos,
    /// Costs; each queue has a core of its own.
    pub machine: Machine,
    /// Queues and their moderation.
    pub nic: Nic,
    /// Settings of each NAPI instance.
    pub napi: NapiSettings,
    /// Settings of each thread's epoll instance.
    pub epoll: EpollSettings,
    /// One-way latency between client and server.
    pub latency: Nanos,
    /// The latency varies uniformly upwards by this share of itself.
    pub latency_jitter_ratio: f64,
    /// Time for which a client's NIC holds back an answer that follows another one within that time.
    pub client_hold: Nanos,
    /// Connections, divided among the queues.
    pub connections: u32,
    /// Offered requests per second of all connections together; `None` for a closed loop.
    pub rate_hz: Option<f64>,
}

/// CPU time of the server by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerCpu {
    /// The application.
    pub user: Nanos,
    /// System calls, wake-ups, and polls by the application.
    pub system: Nanos,
    /// Polls by the kernel.
    pub softirq: Nanos,
    /// Interrupt handlers that found the core idle. Accounting by ticks does not see them, and gives the time of other
    /// handlers to what they stopped.
    pub irq: Nanos,
}

/// Counts of the server's queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerCounts {
    /// Answers sent.
    pub transactions: u64,
    /// Packets received.
    pub rx_packets: u64,
    /// Interrupts of the NIC.
    pub interrupts: u64,
    /// Expired timers of NAPI instances.
    pub timers: u64,
    /// Polls by the kernel.
    pub softirq_polls: u64,
    /// Polls by the application.
    pub busy_polls: u64,
}

/// The window of a run.
#[derive(Clone, Debug)]
pub struct EpollOutcome {
    /// Its length.
    pub duration: Nanos,
    /// Number of cores.
    pub cores: u32,
    /// CPU time of all cores.
    pub cpu: ServerCpu,
    /// Counts of all queues.
    pub counts: ServerCounts,
    /// Time from request to answer at the clients.
    pub latency: Histogram,
}

impl EpollOutcome {
    /// A count per second of the window.
    pub fn per_second(&self, count: u64) -> f64 {
        count as f64 / self.duration.as_secs_f64()
    }

    /// The share of the cores' time that accounting by ticks calls busy.
    pub fn accounted_busy_ratio(&self) -> f64 {
        let cpu = &self.cpu;
        let busy = (cpu.user + cpu.system + cpu.softirq).as_secs_f64();
        busy / (self.duration.as_secs_f64() * f64::from(self.cores))
    }
}

impl EpollServer {
    /// Runs it. Stations do not depend on each other, so each has its own random numbers.
    pub fn run(&self) -> EpollOutcome {
        let queues = self.nic.queues.max(1);
        let mut outcome = EpollOutcome {
            duration: self.duration,
            cores: queues,
            cpu: ServerCpu::default(),
            counts: ServerCounts::default(),
            latency: Histogram::new(),
        };
        for queue in 0..queues {
            let connections =
                self.connections / queues + u32::from(queue < self.connections % queues);
            let rng = SeededRng::from_seed_and_index(self.seed, u64::from(queue));
            let mut station = Station::new(self, connections as usize, rng);
            station.run_until(self.warmup.as_ns());
            station.start_window();
            station.run_until((self.warmup + self.duration).as_ns());
            outcome.add(&station);
        }
        outcome
    }
}

impl EpollOutcome {
    fn add(&mut self, station: &Station<'_>) {
        let (cpu, of) = (&mut self.cpu, station.cpu());
        cpu.user = cpu.user + of.user;
        cpu.system = cpu.system + of.system;
        cpu.softirq = cpu.softirq + of.softirq;
        cpu.irq = cpu.irq + of.irq;
        let (counts, of) = (&mut self.counts, station.counts());
        counts.transactions += of.transactions;
        counts.rx_packets += of.rx_packets;
        counts.interrupts += of.interrupts;
        counts.timers += of.timers;
        counts.softirq_polls += of.softirq_polls;
        counts.busy_polls += of.busy_polls;
        self.latency.merge(station.latencies());
    }
}
