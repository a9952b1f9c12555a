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
use latput_protocol::control::{self, Answer, EarlyEnd, Failure, LineError, Request, make_failure};
use latput_protocol::live::{LiveBlock, LiveSeen};
use latput_units::{Clock as _, Nanos};

use crate::keeper::operation::{
    CountRequest, KeeperMessage, KeeperOperation, KeeperReply, WindowCounts,
};
use crate::lease::KeepaliveLease;

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
    replies: Receiver<Result<KeeperReply, LineError>>,
    lease: KeepaliveLease,
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
        let lease = KeepaliveLease::new();
        let (silent_to, waited, stopped) = (reply_to.clone(), lease.clone(), stop.clone());
        thread::spawn(move || {
            if let Some(length) = waited.wait_for_expiry() {
                let _ended_already = silent_to.send(Err(LineError::Silent(length)));
                stopped.raise();
            }
        });
        let (heard, stopped) = (lease.clone(), stop.clone());
        thread::spawn(move || {
            let mut from = BufReader::new(from);
            loop {
                let reply = control::read_line::<KeeperReply>(&mut from);
                heard.renew();
                let is_broken = reply.is_err();
                if !matches!(reply, Ok(KeeperReply::Alive)) && reply_to.send(reply).is_err() {
                    return;
                }
                if is_broken {
                    heard.end_lease();
                    stopped.raise();
                    return;
                }
            }
        });
        let (kept, beating) = (lease.clone(), Arc::clone(&to));
        thread::spawn(move || {
            kept.run_heartbeats(|| write_message(&beating, &KeeperMessage::Alive));
        });
        Ok(Self { to, replies, lease, stop: stop.clone(), lost: None })
    }

    /// Sets the lease.
    pub(super) fn set_lease(&self, lease: Nanos) {
        self.lease.set_length(lease);
    }

    /// Why there will be no more replies, if that is so.
    pub(super) const fn connection_failure(&self) -> Option<&Failure> {
        self.lost.as_ref()
    }

    /// Lets the keeper do what is about the host.
    pub(super) fn send_request(&mut self, request: Request) -> Result<Answer, Failure> {
        write_message(
            &self.to,
            &KeeperMessage::Do(Box::new(KeeperOperation::Host(Box::new(request)))),
        );
        match self.wait_for_reply(None, &mut |_| {})? {
            KeeperReply::Answer(Answer::Failed(failure)) => Err(failure),
            KeeperReply::Answer(answer) => Ok(answer),
            _ => Err(make_failure("the keeper counted without being asked")),
        }
    }

    /// Puts the host back. Returns the knobs that were left to somebody else.
    pub(super) fn close(&mut self) -> Result<Vec<String>, Failure> {
        let closed = self.send_request(Request::Close);
        self.lease.end_lease();
        match closed? {
            Answer::Closed { left, .. } => Ok(left),
            _ => Err(make_failure("the keeper has not said that it put the host back")),
        }
    }

    /// Lets the keeper count. `watch` receives each snapshot of the interface's counters. `is_over` says whether the
    /// traffic has reached its count, if it has one.
    pub(super) fn count_window(
        &mut self,
        wanted: CountRequest,
        is_over: &dyn Fn() -> bool,
        watch: &mut dyn FnMut(&CounterSnapshot),
    ) -> Result<WindowCounts, Failure> {
        let early_end = wanted.early_end;
        let next_look = |elapsed| early_end.next_look(elapsed);
        let is_over =
            (early_end != EarlyEnd::Never).then_some(LookedFor { is_over, next_look: &next_look });
        write_message(&self.to, &KeeperMessage::Do(Box::new(KeeperOperation::Count(wanted))));
        match self.wait_for_reply(is_over, watch)? {
            KeeperReply::Counted(counted) => Ok(counted),
            KeeperReply::Answer(Answer::Failed(failure)) => Err(failure),
            _ => Err(make_failure("the keeper has not counted")),
        }
    }

    /// Lets the keeper run a block on live traffic. `is_over` says that its slice is to end.
    pub(super) fn run_live_block(
        &mut self,
        block: LiveBlock,
        is_over: &dyn Fn() -> bool,
    ) -> Result<LiveSeen, Failure> {
        let request = Request::Live(Box::new(block));
        let guarded = LookedFor { is_over, next_look: &|_| GUARD_LOOK_EVERY };
        write_message(
            &self.to,
            &KeeperMessage::Do(Box::new(KeeperOperation::Host(Box::new(request)))),
        );
        match self.wait_for_reply(Some(guarded), &mut |_| {})? {
            KeeperReply::Answer(Answer::Lived(seen)) => Ok(*seen),
            KeeperReply::Answer(Answer::Failed(failure)) => Err(failure),
            _ => Err(make_failure("the keeper did not report the live traffic")),
        }
    }

    /// Waits for the reply to the last operation. Tells the keeper once when what is looked for is there.
    fn wait_for_reply(
        &mut self,
        mut wanted: Option<LookedFor<'_>>,
        watch: &mut dyn FnMut(&CounterSnapshot),
    ) -> Result<KeeperReply, Failure> {
        let (mut is_halted, begun) = (false, OsClock.now());
        loop {
            if let Some(failure) = &self.lost {
                return Err(failure.clone());
            }
            if wanted.is_some_and(|wanted| (wanted.is_over)()) {
                wanted = None;
                write_message(&self.to, &KeeperMessage::CountReached);
            }
            if !is_halted && self.stop.is_raised() {
                is_halted = true;
                write_message(&self.to, &KeeperMessage::Halt);
            }
            let elapsed = OsClock.now().saturating_sub(begun);
            let idle = EarlyEnd::Never.next_look(elapsed);
            let wait = wanted.map_or(idle, |wanted| (wanted.next_look)(elapsed));
            match self.replies.recv_timeout(wait.as_duration()) {
                Ok(Ok(KeeperReply::Snapshot { at, interface })) => {
                    watch(&CounterSnapshot { at, interface });
                }
                Ok(Ok(reply)) => return Ok(reply),
                Ok(Err(error)) => self.lost = Some(keeper_lost_failure(&error)),
                Err(RecvTimeoutError::Disconnected) => {
                    self.lost = Some(keeper_lost_failure(&LineError::Closed));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }
}

impl Drop for KeeperLine {
    fn drop(&mut self) {
        self.lease.end_lease();
    }
}

/// Whether it could be sent. A keeper that is gone is noticed by the reading thread.
fn write_message(to: &Mutex<UnixStream>, message: &KeeperMessage) -> bool {
    let mut to = to.lock().unwrap_or_else(PoisonError::into_inner);
    to.write_all(&control::encode_line(message)).is_ok()
}

/// The controller then restores the host, or says that it may still be changed.
fn keeper_lost_failure(error: &LineError) -> Failure {
    make_failure(format!("its keeper, the process that sets knobs, is lost ({error})"))
}
