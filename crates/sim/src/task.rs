//! Processes: their programs and their state.

use latput_units::SeededRng;

use crate::agenda::{NEVER, Time};
use crate::core::SoftirqWork;
use crate::fifo::Fifo;
use crate::scenario::GapDistribution;

/// The program of a process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum TaskProgram {
    /// Finishes long soft interrupts of its core.
    Ksoftirqd,
    /// Polls one NIC queue (threaded NAPI).
    PollThread(usize),
    /// Sends datagrams (or echo requests) at a pace.
    Source {
        end: usize,
        size: u32,
        group: u32,
        gap_ns: f64,
        spacing: GapDistribution,
        next_at: f64,
    },
    /// Receives datagrams, up to `batch` at a time.
    Sink { batch: u32 },
    /// Receives a stream, `message` bytes at a time.
    Reader { message: u32 },
    /// Sends a request, awaits the response.
    Client { request: u32, response: u32 },
    /// Answers requests, `think` after each.
    Server { request: u32, response: u32, think: ThinkTime },
    /// Sends without end.
    Writer { message: u32 },
    /// Computes without end.
    Compute,
}

/// Time until a server answers, without CPU use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ThinkTime {
    pub(crate) mean: Time,
    pub(crate) varies: bool,
}

/// Send times of a process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendSchedule {
    pub(crate) gap_ns: f64,
    pub(crate) spacing: GapDistribution,
    pub(crate) next_at: f64,
}

impl SendSchedule {
    /// Removes the next time. Evenly spaced times advance by `share` of a gap.
    #[expect(clippy::cast_possible_truncation, reason = "times stay below 2^52")]
    pub(crate) fn take(&mut self, share: f64, rng: &mut SeededRng) -> Time {
        let at = self.next_at as Time;
        self.next_at += share
            * match self.spacing {
                GapDistribution::Even => self.gap_ns,
                GapDistribution::Poisson => draw_exponential(rng, self.gap_ns),
            };
        at
    }

    #[expect(clippy::cast_possible_truncation, reason = "times stay below 2^52")]
    pub(crate) const fn next(&self) -> Time {
        self.next_at as Time
    }
}

/// A draw from the exponential distribution.
pub(crate) fn draw_exponential(rng: &mut SeededRng, mean: f64) -> f64 {
    -(1.0 - rng.next_uniform()).ln() * mean
}

/// The scheduling state of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TaskState {
    Asleep,
    /// In a run queue.
    Waiting,
    /// On a core.
    Running,
}

/// One item of process work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum WorkItem {
    #[default]
    Nothing,
    /// Poll work of a kernel thread.
    Kernel(SoftirqWork),
    /// A group of a source's datagrams.
    Emit,
    /// `count` datagrams received.
    Drain { end: u32, count: u32 },
    /// Poll work of a process that waits for its socket.
    Spin(SoftirqWork),
    /// A request without a response before it: the first ones, and those of an open loop with their
    /// due time.
    Start { end: u32, due: Option<Time> },
    /// The opening of a connection.
    Connect { end: u32 },
    /// A read of `bytes`. If it completes a message, the next is sent.
    Receive { end: u32, bytes: u32, completes: bool },
    /// An answer that is due.
    Answer { end: u32 },
    /// A write of `bytes`.
    Write { end: u32, bytes: u32 },
}

/// A process.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "what a process is about to do, each by itself")]
pub(crate) struct Task {
    pub(crate) host: usize,
    pub(crate) program: TaskProgram,
    pub(crate) state: TaskState,
    pub(crate) bound: Option<usize>,
    pub(crate) last_core: usize,
    /// CPU time for fair scheduling. A sleeper does not accumulate credit.
    pub(crate) runtime: Time,
    /// CPU time used.
    pub(crate) cpu: Time,
    /// Busy polling: the queue, and the end.
    pub(crate) spin_queue: usize,
    pub(crate) spin_until: Time,
    /// Whether it has polled since it slept.
    pub(crate) spins: bool,
    /// The time from which it starts nothing new.
    pub(crate) stop: Time,
    /// The core that woke it: its next item includes the wake-up.
    pub(crate) woken_by: Option<u32>,
    /// Whether it found no work and is about to sleep.
    pub(crate) retires: bool,
    /// Its sockets with work.
    pub(crate) ready: Fifo<u32>,
    pub(crate) item: WorkItem,
    /// The agenda slot of its timer, if any.
    pub(crate) slot: Option<usize>,
    /// Send times of an open loop.
    pub(crate) schedule: Option<SendSchedule>,
    /// Whether an open loop sent last, so that sending and reading alternate.
    pub(crate) sent_last: bool,
    /// Whether it may hold its core until its next request without a visible effect.
    pub(crate) may_hold: bool,
    /// The core that it holds while it sleeps or starts.
    pub(crate) holds: Option<usize>,
    /// Its first socket, their number, and the next one to send.
    pub(crate) first_end: usize,
    pub(crate) connections: usize,
    pub(crate) turn: usize,
    /// A source without a rate: packets that its send buffer holds.
    pub(crate) flood: Option<u32>,
}

impl Task {
    pub(crate) fn new(
        host: usize,
        program: TaskProgram,
        bound: Option<usize>,
        last_core: usize,
    ) -> Self {
        Self {
            host,
            program,
            state: TaskState::Asleep,
            bound,
            last_core,
            runtime: 0,
            cpu: 0,
            spin_queue: 0,
            spin_until: 0,
            spins: false,
            stop: NEVER,
            woken_by: None,
            retires: false,
            ready: Fifo::with_capacity(4),
            item: WorkItem::Nothing,
            slot: None,
            schedule: None,
            sent_last: false,
            may_hold: false,
            holds: None,
            first_end: 0,
            connections: 1,
            turn: 0,
            flood: None,
        }
    }

    /// The socket whose turn to send it is. Advances the turn.
    #[inline]
    pub(crate) fn take_turn(&mut self) -> usize {
        let end = self.first_end + 2 * self.turn;
        self.turn += 1;
        if self.turn == self.connections {
            self.turn = 0;
        }
        end
    }

    /// Whether it only acts when a socket has work.
    #[inline]
    pub(crate) const fn awaits_socket(&self) -> bool {
        match self.program {
            TaskProgram::Client { .. } => self.schedule.is_none(),
            TaskProgram::Sink { .. }
            | TaskProgram::Reader { .. }
            | TaskProgram::Server { .. }
            | TaskProgram::Writer { .. } => true,
            _ => false,
        }
    }
}
