//! The line between an agent and its keeper: the messages, which are the whole list of what a keeper does, and both ends.
//!
//! At each end one thread reads, so that an end hears that the other is alive, or gone, whatever it is doing.

use std::io::{self, BufReader, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use latput_linux::CounterSnapshot;
use latput_linux::process::OsClock;
use latput_load::Stop;
use latput_protocol::control::{
    self, Answer, EarlyEnd, Failure, LineError, Request, SettingTurns, make_failure,
};
use latput_protocol::live::{LiveBlock, LiveSeen};
use latput_trial::observation::{HostObservation, InterfaceCounters};
use latput_units::{Clock as _, Nanos};
use serde::{Deserialize, Serialize};

use crate::lease::KeepaliveLease;

/// Interval at which waits for live traffic check whether a guard is broken.
const GUARD_LOOK_EVERY: Nanos = Nanos::from_ms(5);
/// Interval at which waits check the stop flag.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Most time of a write to an agent that takes nothing.
const WRITE_WITHIN: Duration = Duration::from_secs(5);
/// Most time of an agent, after a signal, to end as its controller is used to.
const END_WITHIN: Duration = Duration::from_secs(5);

/// A message to the keeper.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum KeeperMessage {
    /// Do this, and reply.
    Do(Box<KeeperOperation>),
    /// The traffic has reached its count, or a guard of the agent's is broken, which ends the counting.
    CountReached,
    /// End what is being done.
    Halt,
    /// The agent is alive; the keeper replies the same.
    Alive,
}

/// Operation of a keeper.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum KeeperOperation {
    /// A request that is about the host and not about traffic. Any other is refused.
    Host(Box<Request>),
    /// Count over the window, or in each of its slices.
    Count(CountRequest),
}

/// The window to count in, as in [`Request::Go`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CountRequest {
    pub(crate) at: Nanos,
    pub(crate) warmup: Nanos,
    pub(crate) duration: Nanos,
    pub(crate) turns: Option<SettingTurns>,
    /// Whether [`KeeperMessage::CountReached`] may come, and how soon it is to be heard.
    pub(crate) early_end: EarlyEnd,
    /// Whether programs of the user's make the traffic.
    pub(crate) is_of_programs: bool,
}

/// A message from the keeper.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum KeeperReply {
    /// It is done, or has failed.
    Answer(Answer),
    /// The interface's counters, while it counts.
    Snapshot { at: Nanos, interface: InterfaceCounters },
    /// It has counted.
    Counted(WindowCounts),
    /// The keeper is alive.
    Alive,
}

/// Counts of a window.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WindowCounts {
    /// Of each slice, or of the window: the counters, and the duration of the change before.
    pub(crate) slices: Vec<(HostObservation, Nanos)>,
    /// Knobs that changed meanwhile, in sentences.
    pub(crate) drift: Vec<String>,
    /// Quotas and heat that held the host back, in sentences.
    pub(crate) held_back: Vec<String>,
    /// Knobs that were left to somebody else, in sentences.
    pub(crate) left: Vec<String>,
}

/// Events that may end an operation early.
#[derive(Clone, Copy)]
struct LookedFor<'a> {
    is_over: &'a dyn Fn() -> bool,
    /// The time to the next look, by the time since the first.
    next_look: &'a dyn Fn(Nanos) -> Nanos,
}

/// The agent's end of the line.
pub(crate) struct KeeperLine {
    to: Arc<Mutex<UnixStream>>,
    replies: Receiver<Result<KeeperReply, LineError>>,
    lease: KeepaliveLease,
    stop: Stop,
    /// Why there will be no more replies.
    lost: Option<Failure>,
}

impl KeeperLine {
    /// Starts its threads. `stop` is raised when the keeper is gone.
    pub(crate) fn open(link: OwnedFd, stop: &Stop) -> io::Result<Self> {
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
    pub(crate) fn set_lease(&self, lease: Nanos) {
        self.lease.set_length(lease);
    }

    /// Why there will be no more replies, if that is so.
    pub(crate) const fn connection_failure(&self) -> Option<&Failure> {
        self.lost.as_ref()
    }

    /// Lets the keeper do what is about the host.
    pub(crate) fn send_request(&mut self, request: Request) -> Result<Answer, Failure> {
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
    pub(crate) fn close(&mut self) -> Result<Vec<String>, Failure> {
        let closed = self.send_request(Request::Close);
        self.lease.end_lease();
        match closed? {
            Answer::Closed { left, .. } => Ok(left),
            _ => Err(make_failure("the keeper has not said that it put the host back")),
        }
    }

    /// Lets the keeper count. `watch` receives each snapshot of the interface's counters. `is_over` says whether the
    /// traffic has reached its count, if it has one.
    pub(crate) fn count_window(
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
    pub(crate) fn run_live_block(
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

/// The controller then restores the host, or says that it may still be changed.
fn keeper_lost_failure(error: &LineError) -> Failure {
    make_failure(format!("its keeper, the process that sets knobs, is lost ({error})"))
}

/// The keeper's end of the line.
pub(crate) struct AgentLine {
    operations: Receiver<KeeperOperation>,
    to: Arc<Mutex<UnixStream>>,
    lease: KeepaliveLease,
    /// Raised when the agent says so, or is gone.
    halt: Stop,
    count_reached: Arc<AtomicBool>,
}

impl AgentLine {
    /// Starts its threads.
    pub(crate) fn open(link: UnixStream) -> io::Result<Self> {
        link.set_write_timeout(Some(WRITE_WITHIN))?;
        let from = link.try_clone()?;
        let cut = link.try_clone()?;
        let (operation_to, operations) = mpsc::channel();
        let line = Self {
            operations,
            to: Arc::new(Mutex::new(link)),
            lease: KeepaliveLease::new(),
            halt: Stop::new(),
            count_reached: Arc::default(),
        };
        let reader = MessageReader {
            to: Arc::clone(&line.to),
            lease: line.lease.clone(),
            halt: line.halt.clone(),
            count_reached: Arc::clone(&line.count_reached),
        };
        thread::spawn(move || reader.read(from, &operation_to));
        let lease = line.lease.clone();
        thread::spawn(move || {
            if lease.wait_for_expiry().is_some() {
                // The reader then ends, as if the agent had closed the line.
                let _gone = cut.shutdown(Shutdown::Read);
            }
        });
        Ok(line)
    }

    pub(crate) fn set_lease(&self, lease: Nanos) {
        self.lease.set_length(lease);
    }

    /// The flag that ends what the keeper is doing.
    pub(crate) const fn halt_flag(&self) -> &Stop {
        &self.halt
    }

    /// Forgets that an earlier traffic has reached its count.
    pub(crate) fn begin_count(&self) {
        self.count_reached.store(false, Ordering::Relaxed);
    }

    /// Whether the traffic has reached its count.
    pub(crate) fn has_reached_count(&self) -> bool {
        self.count_reached.load(Ordering::Relaxed)
    }

    /// The next operation; `None` when the agent has ended, is silent for the lease, or does not end after `stop` is raised.
    pub(crate) fn next(&self, stop: &Stop) -> Option<KeeperOperation> {
        let mut told_at = None;
        loop {
            match self.operations.recv_timeout(LOOK_EVERY) {
                Ok(operation) => return Some(operation),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) if stop.is_raised() => {
                    if told_at.get_or_insert_with(Instant::now).elapsed() > END_WITHIN {
                        return None;
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// Sends a reply. An agent that is gone is noticed by the reading thread.
    pub(crate) fn send_reply(&self, reply: &KeeperReply) {
        write_message(&self.to, reply);
    }
}

impl Drop for AgentLine {
    fn drop(&mut self) {
        self.lease.end_lease();
    }
}

/// Writes a message; whether it could be sent. An end that is gone is noticed by the reading thread.
fn write_message(to: &Mutex<UnixStream>, message: &impl Serialize) -> bool {
    let mut to = to.lock().unwrap_or_else(PoisonError::into_inner);
    let is_sent = to.write_all(&control::encode_line(message)).is_ok();
    if !is_sent {
        // Nothing can follow a message that was written in part.
        let _gone = to.shutdown(Shutdown::Both);
    }
    is_sent
}

struct MessageReader {
    to: Arc<Mutex<UnixStream>>,
    lease: KeepaliveLease,
    halt: Stop,
    count_reached: Arc<AtomicBool>,
}

impl MessageReader {
    fn read(self, from: UnixStream, operation_to: &Sender<KeeperOperation>) {
        let mut from = BufReader::new(from);
        loop {
            let message: Result<KeeperMessage, LineError> = control::read_line(&mut from);
            self.lease.renew();
            match message {
                Ok(KeeperMessage::Alive) => {
                    write_message(&self.to, &KeeperReply::Alive);
                }
                Ok(KeeperMessage::CountReached) => {
                    self.count_reached.store(true, Ordering::Relaxed);
                }
                Ok(KeeperMessage::Halt) => self.halt.raise(),
                Ok(KeeperMessage::Do(operation)) => {
                    if operation_to.send(*operation).is_err() {
                        return;
                    }
                }
                Err(_) => break, // closed, or no message: either way it is not to be served
            }
        }
        self.lease.end_lease();
        self.halt.raise();
    }
}
