//! Processes: what they do next, and where they are in doing it.

use latput_units::Rng;

use crate::agenda::{NEVER, Time};
use crate::core::Work;
use crate::fifo::Fifo;
use crate::scenario::Spacing;

/// What a process does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum TaskProgram {
    /// Finishes soft interrupts of its core when they take too long.
    Ksoftirqd,
    /// Polls one NIC queue (threaded NAPI).
    PollThread(usize),
    /// Sends datagrams (or echo requests) at a pace.
    Source { end: usize, size: u32, group: u32, gap_ns: f64, spacing: Spacing, next_at: f64 },
    /// Receives datagrams, up to `batch` at a time.
    Sink { batch: u32 },
    /// Receives a stream, `message` bytes at a time.
    Reader { message: u32 },
    /// Sends a request, awaits the response.
    Client { request: u32, response: u32 },
    /// Answers requests, `think` after each.
    Server { request: u32, response: u32, think: Think },
    /// Sends without end.
    Writer { message: u32 },
    /// Computes without end.
    Compute,
}

/// How long a server takes before it answers, without using its CPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Think {
    pub(crate) mean: Time,
    pub(crate) varies: bool,
}

/// Times at which a process has something to send.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedule {
    pub(crate) gap_ns: f64,
    pub(crate) spacing: Spacing,
    pub(crate) next_at: f64,
}

impl Schedule {
    /// The time that is next, and from now on the one after it; `share` of a gap later if evenly spaced.
    #[expect(clippy::cast_possible_truncation, reason = "times stay below 2^52")]
    pub(crate) fn take(&mut self, share: f64, rng: &mut Rng) -> Time {
        let at = self.next_at as Time;
        self.next_at += share
            * match self.spacing {
                Spacing::Even => self.gap_ns,
                Spacing::Poisson => exponential(rng, self.gap_ns),
            };
        at
    }

    #[expect(clippy::cast_possible_truncation, reason = "times stay below 2^52")]
    pub(crate) const fn next(&self) -> Time {
        self.next_at as Time
    }
}

/// A draw from the exponential distribution.
pub(crate) fn exponential(rng: &mut Rng, mean: f64) -> f64 {
    -(1.0 - rng.uniform()).ln() * mean
}

/// Whether a process runs.
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
pub(crate) enum Item {
    #[default]
    Nothing,
    /// Poll work of a kernel thread.
    Kernel(Work),
    /// A group of a source's datagrams.
    Emit,
    /// `count` datagrams received.
    Drain { end: u32, count: u32 },
    /// Poll work of a process that waits for its socket.
    Spin(Work),
    /// A request that no response lets go: the first ones, and those of an open loop, `due` at a time.
    Start { end: u32, due: Option<Time> },
    /// A connection to be opened.
    Connect { end: u32 },
    /// `bytes` read, which complete a message (and send the next) or not.
    Receive { end: u32, bytes: u32, completes: bool },
    /// An answer whose time has come.
    Answer { end: u32 },
    /// `bytes` written.
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
    /// CPU time had, for sharing fairly; a sleeper does not save it up.
    pub(crate) runtime: Time,
    /// CPU time had, as it was spent.
    pub(crate) cpu: Time,
    /// Busy polling: which queue, and until when.
    pub(crate) spin_queue: usize,
    pub(crate) spin_until: Time,
    /// It has polled since it slept.
    pub(crate) spins: bool,
    /// It starts nothing new from then on.
    pub(crate) stop: Time,
    /// It slept, and this core woke it: its next item includes waking up.
    pub(crate) woken_by: Option<u32>,
    /// It found nothing more to do and is about to sleep.
    pub(crate) retires: bool,
    /// Its sockets with something to do.
    pub(crate) ready: Fifo<u32>,
    pub(crate) item: Item,
    /// The agenda slot of its timer, if it has one.
    pub(crate) slot: Option<usize>,
    /// An open loop's times.
    pub(crate) schedule: Option<Schedule>,
    /// An open loop sends before it reads, then reads before it sends.
    pub(crate) sent_last: bool,
    /// It may hold its core until its next request is due, and nobody sees a difference.
    pub(crate) may_hold: bool,
    /// It sleeps, or has just started, on this core, which it holds.
    pub(crate) holds: Option<usize>,
    /// Its first socket, how many it has, and which is next to send.
    pub(crate) first_end: usize,
    pub(crate) connections: usize,
    pub(crate) turn: usize,
    /// A source without a pace: how many packets its send buffer holds.
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
            item: Item::Nothing,
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

    /// The socket whose turn to send it is; the next one's is after it.
    #[inline]
    pub(crate) fn take_turn(&mut self) -> usize {
        let end = self.first_end + 2 * self.turn;
        self.turn += 1;
        if self.turn == self.connections {
            self.turn = 0;
        }
        end
    }

    /// Whether it has something to do only when one of its sockets has.
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
