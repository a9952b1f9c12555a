//! Looks at the host at even distances, by a thread: programs that answer late hold up no key.

use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

use latput_diagnose::Look;
use latput_linux::look::{read_counter_files, read_look};
use latput_linux::route::Route;

use crate::exit::{CliError, ExitReason};

/// Every so many looks one is full: it also has the outputs of programs, and the settings.
const FULL_EVERY: u64 = 5;

/// A look at the host.
#[derive(Clone, Debug)]
pub(super) struct TakenLook {
    /// When it began, since the start of the watch.
    pub(super) seconds: f64,
    /// Whether it has all that a diagnosis reads, not only the counters in files.
    pub(super) is_full: bool,
    /// Whether the interface was there.
    pub(super) is_there: bool,
    /// The texts.
    pub(super) look: Look,
}

/// Takes looks at even distances.
#[derive(Debug)]
pub(super) struct LookTaker {
    /// Asks for a look: `true` for a full one.
    asks: Sender<bool>,
    taken: Receiver<TakenLook>,
    begun: Instant,
    every: Duration,
    limit: Option<Duration>,
    /// When the next look is due, since the start.
    next: Duration,
    /// Looks since the start or the last pause.
    asked: u64,
    is_waiting: bool,
    is_paused: bool,
}

impl LookTaker {
    /// Starts the thread. The first look is due at once.
    pub(super) fn start(interface: &str, every: Duration, limit: Option<Duration>) -> Self {
        let (asks, asked) = mpsc::channel();
        let (sender, taken) = mpsc::channel();
        let (interface, begun) = (interface.to_owned(), Instant::now());
        thread::spawn(move || {
            for is_full in asked {
                if sender.send(take_look(&interface, is_full, begun)).is_err() {
                    return;
                }
            }
        });
        Self {
            asks,
            taken,
            begun,
            every,
            limit,
            next: Duration::ZERO,
            asked: 0,
            is_waiting: false,
            is_paused: false,
        }
    }

    /// Asks for the next look if it is due; gives one that has been taken.
    pub(super) fn poll(&mut self) -> Result<Option<TakenLook>, CliError> {
        let now = self.begun.elapsed();
        if !self.is_waiting && !self.is_paused && now >= self.next && !self.is_out_of_time() {
            // The second look is full as well, so that there are findings after one interval.
            let is_full = self.asked == 1 || self.asked.is_multiple_of(FULL_EVERY);
            self.asks.send(is_full).map_err(|_| ended())?;
            self.asked += 1;
            self.is_waiting = true;
            // A look that took longer than an interval is followed by no burst.
            self.next = (self.next + self.every).max(now);
        }
        match self.taken.try_recv() {
            Ok(taken) => {
                self.is_waiting = false;
                Ok(Some(taken))
            }
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(ended()),
        }
    }

    /// Whether the time is over and the last look has come.
    pub(super) fn is_over(&self) -> bool {
        let is_past = self.limit.is_some_and(|limit| self.begun.elapsed() >= limit);
        is_past && !self.is_waiting && self.is_out_of_time()
    }

    /// Takes no look until [`Self::restart`].
    pub(super) fn pause(&mut self) {
        self.is_paused = true;
    }

    /// Begins again, with a full look.
    pub(super) fn restart(&mut self) {
        self.is_paused = false;
        self.asked = 0;
        self.next = self.begun.elapsed();
    }

    fn is_out_of_time(&self) -> bool {
        self.limit.is_some_and(|limit| self.next > limit)
    }
}

fn ended() -> CliError {
    CliError::new(ExitReason::Failed, "the thread that looks at the host has ended")
}

fn take_look(interface: &str, is_full: bool, begun: Instant) -> TakenLook {
    let seconds = begun.elapsed().as_secs_f64();
    let texts = if is_full { read_look(interface) } else { read_counter_files(interface) };
    let mut look = Look::default();
    for (name, text) in texts {
        look.insert(&name, text);
    }
    let is_there = Route::open().and_then(|route| route.link(interface)).is_ok();
    TakenLook { seconds, is_full, is_there, look }
}
