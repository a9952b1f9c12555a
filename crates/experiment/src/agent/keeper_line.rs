//! The agent's end of the line to its keeper, the process that has the rights.

use std::io::{self, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use latput_linux::CounterSnapshot;
use latput_linux::process::OsClock;
use latput_load::Stop;
use latput_units::{Clock as _, Nanos};

use crate::keeper::operation::{Count, Counted, Message, Operation, Reply};
use crate::lease::Lease;
use crate::live::{LiveBlock, LiveSeen};
use crate::protocol::{self, Answer, EarlyEnd, Failure, LineError, Request, failed};

/// Interval at which waits for live traffic check whether a guard is broken.
const GUARD_LOOK_EVERY: Nanos = Nanos::from_ms(5);

/// Events that may end an operation early.
#[derive(Clone, Copy)]
struct LookedFor<'a> {
    is_over: &'a dyn Fn() -> bool,
    /// The time to the next look, by the time since the first.
    next_look: &'a dyn Fn(Nanos) -> Nanos,
}

/// The agent's end of the line.
pub(super) struct KeeperLine {
    to: Arc<Mutex<UnixStream>>,
    replies: Receiver<Result<Reply, LineError>>,
    lease: Lease,
    stop: Stop,
    /// Why there will be no more replies.
    lost: Option<Failure>,
}

impl KeeperLine {
    /// Starts its threads. `stop` is raised when the keeper is gone.
    pub(super) fn open(link: OwnedFd, stop: &Stop) -> io::Result<Self> {
        let link = UnixStream::from(link);
        let from = link.try_clone()?;
        let to = Arc::new(Mutex::new(link));
        let (reply_to, replies) = mpsc::channel();
        let lease = Lease::new();
        let (silent_to, waited, stopped) = (reply_to.clone(), lease.clone(), stop.clone());
        thread::spawn(move || {
            if let Some(length) = waited.outlived() {
                let _ended_already = silent_to.send(Err(LineError::Silent(length)));
                stopped.raise();
            }
        });
        let (heard, stopped) = (lease.clone(), stop.clone());
        thread::spawn(move || {
            let mut from = BufReader::new(from);
            loop {
                let reply = protocol::read_line::<Reply>(&mut from);
                heard.hear();
                let is_broken = reply.is_err();
                if !matches!(reply, Ok(Reply::Alive)) && reply_to.send(reply).is_err() {
                    return;
                }
                if is_broken {
                    heard.end();
                    stopped.raise();
                    return;
                }
            }
        });
        let (kept, beating) = (lease.clone(), Arc::clone(&to));
        thread::spawn(move || kept.keep(|| send(&beating, &Message::Alive)));
        Ok(Self { to, replies, lease, stop: stop.clone(), lost: None })
    }

    /// Sets the lease.
    pub(super) fn set_lease(&self, lease: Nanos) {
        self.lease.set_length(lease);
    }

    /// Why there will be no more replies, if that is so.
    pub(super) const fn lost(&self) -> Option<&Failure> {
        self.lost.as_ref()
    }

    /// Lets the keeper do what is about the host.
    pub(super) fn ask(&mut self, request: Request) -> Result<Answer, Failure> {
        send(&self.to, &Message::Do(Box::new(Operation::Host(Box::new(request)))));
        match self.reply(None, &mut |_| {})? {
            Reply::Answer(Answer::Failed(failure)) => Err(failure),
            Reply::Answer(answer) => Ok(answer),
            _ => Err(failed("the keeper counted without being asked")),
        }
    }

    /// Puts the host back. Returns the knobs that were left to somebody else.
    pub(super) fn close(&mut self) -> Result<Vec<String>, Failure> {
        let closed = self.ask(Request::Close);
        self.lease.end();
        match closed? {
            Answer::Closed { left, .. } => Ok(left),
            _ => Err(failed("the keeper has not said that it put the host back")),
        }
    }

    /// Lets the keeper count. `watch` receives each snapshot of the interface's counters. `is_over` says whether the
    /// traffic has reached its count, if it has one.
    pub(super) fn count(
        &mut self,
        wanted: Count,
        is_over: &dyn Fn() -> bool,
        watch: &mut dyn FnMut(&CounterSnapshot),
    ) -> Result<Counted, Failure> {
        let early_end = wanted.early_end;
        let next_look = |elapsed| early_end.next_look(elapsed);
        let is_over =
            (early_end != EarlyEnd::Never).then_some(LookedFor { is_over, next_look: &next_look });
        send(&self.to, &Message::Do(Box::new(Operation::Count(wanted))));
        match self.reply(is_over, watch)? {
            Reply::Counted(counted) => Ok(counted),
            Reply::Answer(Answer::Failed(failure)) => Err(failure),
            _ => Err(failed("the keeper has not counted")),
        }
    }

    /// Lets the keeper run a block on live traffic. `is_over` says that its slice is to end.
    pub(super) fn live(
        &mut self,
        block: LiveBlock,
        is_over: &dyn Fn() -> bool,
    ) -> Result<LiveSeen, Failure> {
        let request = Request::Live(Box::new(block));
        let guarded = LookedFor { is_over, next_look: &|_| GUARD_LOOK_EVERY };
        send(&self.to, &Message::Do(Box::new(Operation::Host(Box::new(request)))));
        match self.reply(Some(guarded), &mut |_| {})? {
            Reply::Answer(Answer::Lived(seen)) => Ok(*seen),
            Reply::Answer(Answer::Failed(failure)) => Err(failure),
            _ => Err(failed("the keeper did not report the live traffic")),
        }
    }

    /// Waits for the reply to the last operation. Tells the keeper once when what is looked for is there.
    fn reply(
        &mut self,
        mut wanted: Option<LookedFor<'_>>,
        watch: &mut dyn FnMut(&CounterSnapshot),
    ) -> Result<Reply, Failure> {
        let (mut is_halted, begun) = (false, OsClock.now());
        loop {
            if let Some(failure) = &self.lost {
                return Err(failure.clone());
            }
            if wanted.is_some_and(|wanted| (wanted.is_over)()) {
                wanted = None;
                send(&self.to, &Message::CountReached);
            }
            if !is_halted && self.stop.is_raised() {
                is_halted = true;
                send(&self.to, &Message::Halt);
            }
            let elapsed = OsClock.now().saturating_sub(begun);
            let idle = EarlyEnd::Never.next_look(elapsed);
            let wait = wanted.map_or(idle, |wanted| (wanted.next_look)(elapsed));
            match self.replies.recv_timeout(wait.as_duration()) {
                Ok(Ok(Reply::Snapshot { at, interface })) => {
                    watch(&CounterSnapshot { at, interface });
                }
                Ok(Ok(reply)) => return Ok(reply),
                Ok(Err(error)) => self.lost = Some(lost(&error)),
                Err(RecvTimeoutError::Disconnected) => self.lost = Some(lost(&LineError::Closed)),
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }
}

impl Drop for KeeperLine {
    fn drop(&mut self) {
        self.lease.end();
    }
}

/// Whether it could be sent. A keeper that is gone is noticed by the reading thread.
fn send(to: &Mutex<UnixStream>, message: &Message) -> bool {
    let mut to = to.lock().unwrap_or_else(PoisonError::into_inner);
    to.write_all(&protocol::line(message)).is_ok()
}

/// The controller then restores the host, or says that it may still be changed.
fn lost(error: &LineError) -> Failure {
    failed(format!("its keeper, the process that sets knobs, is lost ({error})"))
}
