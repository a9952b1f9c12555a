//! Processes: what they do next, and where they are in doing it.

use std::cell::OnceCell;
use std::ops::{Deref, DerefMut};

use latput_units::Rng;

use crate::agenda::{NEVER, Time};
use crate::core::Work;
use crate::fifo::Fifo;
use crate::frame::Frame;
use crate::recorder::Recorder;
use crate::scenario::Spacing;
use crate::tcp::Tcp;

/// What a process does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Program {
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
pub(crate) enum State {
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
    pub(crate) program: Program,
    pub(crate) state: State,
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
        program: Program,
        bound: Option<usize>,
        last_core: usize,
    ) -> Self {
        Self {
            host,
            program,
            state: State::Asleep,
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
}

/// What a socket speaks.
#[derive(Debug)]
pub(crate) enum Protocol {
    /// Datagrams wait for the process.
    Datagrams(Inbox),
    Tcp(Box<Tcp>),
}

/// Datagrams that wait in a socket.
#[derive(Debug)]
pub(crate) struct Inbox {
    waiting: Fifo<Datagrams>,
    len: u32,
    limit: u32,
}

/// Datagrams that are alike: when they were sent, and how large each is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Datagrams {
    pub(crate) sent_at: Time,
    /// Of a response: when its request was sent.
    pub(crate) echo: Time,
    pub(crate) payload: u32,
    pub(crate) count: u32,
    /// From one to the next, in nanoseconds; 0: they were sent together.
    pub(crate) gap: u32,
}

impl Inbox {
    pub(crate) fn new(limit: u32) -> Self {
        Self { waiting: Fifo::with_capacity(16), len: 0, limit }
    }

    /// How many wait.
    #[inline]
    pub(crate) const fn len(&self) -> u32 {
        self.len
    }

    /// Payload of the first that waits.
    #[inline]
    pub(crate) fn first_payload(&self) -> Option<u32> {
        self.waiting.front().map(|first| first.payload)
    }

    /// Puts as many packets of a train into the socket as there is room for; gives how many.
    #[inline]
    pub(crate) fn put(&mut self, frame: &Frame) -> u32 {
        let count = frame.count().min(self.limit - self.len);
        if count == 0 {
            return 0;
        }
        self.len += count;
        match self.waiting.back_mut() {
            Some(last) if last.is_followed_by(frame) => last.count += count,
            _ => {
                let Frame { sent_at, echo, payload, .. } = *frame;
                self.waiting.push(Datagrams { sent_at, echo, payload, count, gap: frame.gap() });
            }
        }
        count
    }

    /// The first ones that are alike, at most `most`.
    #[inline]
    pub(crate) fn take(&mut self, most: u32) -> Option<Datagrams> {
        let first = self.waiting.front_mut()?;
        if first.count <= most {
            self.len -= first.count;
            return self.waiting.pop();
        }
        self.len -= most;
        let taken = Datagrams { count: most, ..*first };
        let later = u64::from(most) * u64::from(first.gap);
        first.count -= most;
        (first.sent_at, first.echo) = (first.sent_at + later, first.echo + later);
        Some(taken)
    }
}

impl Datagrams {
    /// Whether a train goes on with datagrams as these are.
    #[inline]
    fn is_followed_by(&self, train: &Frame) -> bool {
        let later = u64::from(self.count) * u64::from(self.gap);
        self.payload == train.payload
            && self.gap == train.gap()
            && self.sent_at + later == train.sent_at
            && self.echo + later == train.echo
    }
}

/// A request in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Start {
    /// When it was to be sent.
    pub(crate) due: Time,
    /// When it was.
    pub(crate) sent: Time,
}

/// How the connection of a socket stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    /// Open from the start to the end of the run.
    Lasting,
    /// A connection to each transaction: none now.
    Closed,
    /// Asked for.
    Connecting,
    /// For the transaction under way.
    Open,
}

/// A socket, in two cache lines; its peer is the one with the last bit of the index flipped.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct End {
    pub(crate) host: usize,
    /// The process that owns it; `None` if the kernel itself answers.
    pub(crate) task: Option<usize>,
    pub(crate) load: usize,
    /// Whether it is at the generator's side of its load.
    pub(crate) is_generator: bool,
    /// The NIC queue that its packets arrive on and leave by.
    pub(crate) queue: usize,
    /// The core that RPS steers its packets to.
    pub(crate) rps_core: Option<u32>,
    pub(crate) protocol: Protocol,
    /// In its process's list of ready sockets.
    pub(crate) is_ready: bool,
    /// Bytes read of the message under way.
    pub(crate) consumed: u32,
    /// Of a client, requests to send without a response before; of a server, answers whose time has come.
    pub(crate) owed: u32,
    /// How its connection stands.
    pub(crate) link: Link,
    /// Its earliest entry in the host's timers.
    pub(crate) timer_at: Time,
    /// What only requests and responses need, out of the way of streams.
    pub(crate) exchange: Exchanges,
}

/// The requests and responses of a socket.
#[derive(Debug)]
pub(crate) struct Exchange {
    /// Of a client: requests in flight.
    pub(crate) starts: Fifo<Start>,
    /// Requests whose answer never came and that wait for their timeout.
    pub(crate) missing: Fifo<Start>,
    /// Of a server: requests that it answers now, or when it has thought.
    pub(crate) answering: Fifo<Start>,
    pub(crate) thinking: Vec<(Time, Start)>,
    /// The number of the connection under way.
    pub(crate) connection: u64,
    /// When it was begun.
    pub(crate) connect_at: Time,
    /// When a lost transaction is looked for; [`NEVER`] if nothing is in flight.
    pub(crate) lost_at: Time,
    /// How long a transaction may take; 0: it is waited for.
    pub(crate) timeout: Time,
}

/// The same, made when it is first asked for.
#[derive(Debug, Default)]
pub(crate) struct Exchanges(OnceCell<Box<Exchange>>);

impl Deref for Exchanges {
    type Target = Exchange;

    #[inline]
    fn deref(&self) -> &Exchange {
        self.0.get_or_init(|| Box::new(Exchange::new()))
    }
}

impl DerefMut for Exchanges {
    #[inline]
    fn deref_mut(&mut self) -> &mut Exchange {
        self.0.get_or_init(|| Box::new(Exchange::new()));
        self.0.get_mut().expect("it was made just now")
    }
}

impl Exchange {
    fn new() -> Self {
        Self {
            starts: Fifo::empty(),
            missing: Fifo::empty(),
            answering: Fifo::empty(),
            thinking: Vec::new(),
            connection: 0,
            connect_at: 0,
            lost_at: NEVER,
            timeout: 0,
        }
    }

    /// The datagram request that was sent at this time; earlier ones without an answer are missing.
    pub(crate) fn take_start(&mut self, sent: Time) -> Option<Start> {
        while let Some(start) = self.starts.front()
            && start.sent <= sent
        {
            let start = self.starts.pop()?;
            if start.sent == sent {
                return Some(start);
            }
            self.missing.push(start);
        }
        None
    }
}

impl End {
    /// Bytes (or, of datagrams, whole messages' bytes) that can be read at once.
    pub(crate) fn readable(&self) -> u64 {
        match &self.protocol {
            Protocol::Datagrams(inbox) => {
                inbox.first_payload().map_or(0, |payload| u64::from(payload.max(1)))
            }
            Protocol::Tcp(tcp) => tcp.readable(),
        }
    }
}

impl End {
    pub(crate) fn new(host: usize, load: usize, queue: usize, protocol: Protocol) -> Self {
        Self {
            host,
            task: None,
            load,
            is_generator: false,
            queue,
            rps_core: None,
            protocol,
            is_ready: false,
            consumed: 0,
            owed: 0,
            link: Link::Lasting,
            timer_at: NEVER,
            exchange: Exchanges::default(),
        }
    }
}

/// What one load did in the measured window.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    /// Round trips of transactions and probes; one-way delay of datagrams, from when they were due.
    pub(crate) latency: Recorder,
    /// Open loops: round trips from when requests were really sent.
    pub(crate) raw_latency: Option<Box<Recorder>>,
    /// Transactions given up.
    pub(crate) lost: u64,
    pub(crate) sent: u64,
    pub(crate) sent_bytes: u64,
    /// Of those, towards the generator.
    pub(crate) reverse_sent_bytes: u64,
    pub(crate) received: u64,
    pub(crate) received_bytes: u64,
    /// Of those, by the generator.
    pub(crate) reverse_received_bytes: u64,
    /// Dropped at a full socket.
    pub(crate) socket_dropped: u64,
    /// Datagrams and echoes received that were sent in the window too.
    pub(crate) matched: u64,
    /// Datagrams and echoes of the window that arrived after its end.
    pub(crate) late: u64,
    /// How many were under way then.
    pub(crate) awaited: u64,
    /// RFC 3550, section 6.4.1.
    pub(crate) jitter_ns: f64,
    last_transit: Option<Time>,
}

impl Tally {
    /// Nothing yet; with `keeps_raw`, of an open loop.
    pub(crate) fn new(keeps_raw: bool) -> Self {
        Self { raw_latency: keeps_raw.then(Box::default), ..Self::default() }
    }

    /// A process handed over so much; of a generator, or not.
    #[inline]
    pub(crate) fn handed_over(&mut self, is_generator: bool, bytes: u64) {
        self.sent_bytes += bytes;
        if !is_generator {
            self.reverse_sent_bytes += bytes;
        }
    }

    /// A process got so much; of a generator, or not.
    #[inline]
    pub(crate) fn got(&mut self, is_generator: bool, bytes: u64) {
        self.received_bytes += bytes;
        if is_generator {
            self.reverse_received_bytes += bytes;
        }
    }

    /// Nothing yet, of the same load.
    pub(crate) fn cleared(&self) -> Self {
        Self::new(self.raw_latency.is_some())
    }

    /// A transaction is complete.
    #[inline]
    pub(crate) fn transaction(&mut self, start: Start, now: Time) {
        self.received += 1;
        self.latency.record(now - start.due, 1);
        if let Some(raw) = &mut self.raw_latency {
            raw.record(now - start.sent, 1);
        }
    }

    /// Datagrams or echoes that left the process at `sent` have arrived: in their window, or late.
    #[inline]
    pub(crate) fn arrived(&mut self, sent: Time, count: u64, now: Time, (from, to): (Time, Time)) {
        if sent <= from || sent > to {
            return;
        }
        if now <= to {
            self.matched += count;
        } else {
            self.late += count;
        }
    }

    /// Datagrams reached their process.
    pub(crate) fn datagrams(&mut self, datagrams: &Datagrams, now: Time, window: (Time, Time)) {
        if datagrams.gap == 0 || datagrams.count == 1 {
            return self.datagrams_together(datagrams, now, window);
        }
        for idx in 0..u64::from(datagrams.count) {
            let later = idx * u64::from(datagrams.gap);
            let (sent_at, echo) = (datagrams.sent_at + later, datagrams.echo + later);
            let one = Datagrams { sent_at, echo, count: 1, ..*datagrams };
            self.datagrams_together(&one, now, window);
        }
    }

    /// Datagrams that reached their process one by one in a window that began at `from`: the first at `first`,
    /// each `every` after the one before it.
    pub(crate) fn datagrams_apart(
        &mut self,
        datagrams: &Datagrams,
        first: Time,
        every: Time,
        from: Time,
    ) {
        let Datagrams { payload, count, gap, .. } = *datagrams;
        let (many, gap) = (u64::from(count), u64::from(gap));
        self.received += many;
        self.received_bytes += many * u64::from(payload);
        self.matched += match from.checked_sub(datagrams.echo) {
            None => many,
            Some(before) => (0..many).filter(|idx| idx * gap > before).count() as u64,
        };
        let mut jitter_ns = self.jitter_ns;
        let mut last = self.last_transit;
        for idx in 0..many {
            let transit = (first + idx * every).saturating_sub(datagrams.sent_at + idx * gap);
            self.latency.record(transit, 1);
            if let Some(last) = last {
                jitter_ns += (transit.abs_diff(last) as f64 - jitter_ns) / 16.0;
            }
            last = Some(transit);
        }
        (self.jitter_ns, self.last_transit) = (jitter_ns, last);
    }

    #[inline]
    fn datagrams_together(&mut self, datagrams: &Datagrams, now: Time, window: (Time, Time)) {
        let Datagrams { sent_at, echo, payload, count, .. } = *datagrams;
        let transit = now.saturating_sub(sent_at);
        let many = u64::from(count);
        self.received += many;
        self.received_bytes += many * u64::from(payload);
        self.arrived(echo, many, now, window);
        self.latency.record(transit, many);
        if let Some(last) = self.last_transit {
            self.jitter_ns += (transit.abs_diff(last) as f64 - self.jitter_ns) / 16.0;
        }
        // The others were under way for as long as the first.
        if self.jitter_ns > 0.0 {
            for _ in 1..count {
                self.jitter_ns -= self.jitter_ns / 16.0;
            }
        }
        self.last_transit = Some(transit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_stays_small() {
        // With ten thousand streams the caches hold only so many.
        assert!(size_of::<End>() <= 128, "{}", size_of::<End>());
        assert!(size_of::<Tcp>() <= 256, "{}", size_of::<Tcp>());
    }
}
