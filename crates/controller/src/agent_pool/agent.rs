//! One agent: the process that connects to it, and the line to it.
//!
//! It has three threads. One writes, so that an agent that reads nothing blocks nobody, and a busy
//! controller still sends pings. One reads. One keeps the last lines of stderr. The length of a
//! line, the kept part of stderr and the number of waiting answers are bounded.

use std::io::{BufReader, Read, Write};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender, TryRecvError};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use latput_load::Stop;
use latput_protocol::control::{
    self, AgentInfo, Answer, ControllerId, LineError, MAX_ANSWER_BYTES, OpenRequest, Request,
    SCHEMA,
};
use latput_reach::Error as ReachError;
use latput_reach::broker::message::HostCall;
use latput_reach::broker::process::HostProcess;
use latput_reach::host_spec::HostSpec;
use latput_runner::Error;
use latput_units::Nanos;

use super::last_lines::LastLines;
use super::{ANSWER_WITHIN, DEATHS_WITHIN, LOOK_EVERY};
use crate::clock::{ROUND_TRIPS, RoundTrip};

/// The exit code of a latput that lacked a privilege.
const PERMISSION: i32 = 3;
/// Lines of an agent's stderr in an error.
const STDERR_LINES: usize = 8;
/// Bytes kept of a line of stderr.
const STDERR_LINE_BYTES: usize = 1000;
/// Most queued answers; an agent that sends more is blocked.
const ANSWERS_WAITING: usize = 4;
/// Pings in each lease.
const PINGS: u32 = 3;

/// One agent.
#[derive(Debug)]
pub struct Agent {
    /// Its host.
    pub spec: HostSpec,
    pub(super) opened: AgentInfo,
    pub(super) line: AgentLine,
    /// Whether knobs were to be set.
    is_changed: bool,
}

impl Agent {
    /// Whether the host needs no putting back.
    pub(super) const fn is_settled(&self) -> bool {
        self.line.is_put_back() || !self.is_changed
    }

    /// Whether knobs were to be set.
    pub(super) const fn is_changed(&self) -> bool {
        self.is_changed
    }

    pub(super) fn start(spec: &HostSpec, will_set: bool, stop: &Stop) -> Result<Self, Error> {
        let mut line = AgentLine::start(spec)?;
        let open = Request::Open(OpenRequest {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            controller: ControllerId::of_this_process(),
            host: spec.name.clone(),
            role: spec.role,
            interface: spec.interface.clone(),
            address: spec.address,
            cpus: spec.cpus.clone(),
            binds_napi_threads: spec.binds_napi_threads,
            will_set,
            link_reset: spec.link_reset,
            lease: spec.lease,
        });
        line.queue_request(&open)?;
        match line.receive_answer(spec.first_answer_within(), stop)? {
            Answer::Opened(opened) => {
                Ok(Self { spec: spec.clone(), opened: *opened, line, is_changed: false })
            }
            other => Err(line.unexpected_answer(other)),
        }
    }

    /// The agent's answer to `open`.
    pub const fn opened(&self) -> &AgentInfo {
        &self.opened
    }

    /// Sends a request without waiting.
    pub fn queue_request(&mut self, request: &Request) -> Result<(), Error> {
        self.is_changed |= request.changes_knobs();
        self.line.queue_request(request)
    }

    /// Waits for the answer to the last request.
    pub fn receive_answer(&mut self, within: Duration, stop: &Stop) -> Result<Answer, Error> {
        self.line.receive_answer(within, stop)
    }

    /// Sends a request and waits for its answer.
    pub fn send_request_within(
        &mut self,
        request: &Request,
        within: Duration,
        stop: &Stop,
    ) -> Result<Answer, Error> {
        self.queue_request(request)?;
        self.line.receive_answer(within, stop)
    }

    /// [`Agent::send_request_within`] with the time limit of requests without traffic.
    pub fn send_request(&mut self, request: &Request, stop: &Stop) -> Result<Answer, Error> {
        self.send_request_within(request, ANSWER_WITHIN, stop)
    }

    /// The error for an answer that does not belong to its request.
    pub fn unexpected_answer(&self, answer: Answer) -> Error {
        self.line.unexpected_answer(answer)
    }
}

/// The process at the other end, and the line to it.
#[derive(Debug)]
pub(super) struct AgentLine {
    host: String,
    command: String,
    process: HostProcess,
    /// `None` once the line is closed.
    to: Option<Sender<Vec<u8>>>,
    answers: Receiver<Result<Answer, LineError>>,
    /// Most bytes of the next answer.
    limit: Arc<AtomicUsize>,
    stderr: Arc<Mutex<LastLines>>,
    /// The reason why no more answers come.
    broken: Option<LineFailure>,
    /// Whether the agent has confirmed that its host is as it was.
    is_put_back: bool,
    /// The failure that the agent reported last.
    refusal: Option<String>,
    /// Whether the line has ended and all answers are read.
    is_heard_out: bool,
}

/// Why no more answers come.
#[derive(Debug)]
struct LineFailure {
    problem: String,
    /// Whether the agent lacked a privilege.
    permission: bool,
}

impl From<String> for LineFailure {
    fn from(problem: String) -> Self {
        Self { problem, permission: false }
    }
}

impl AgentLine {
    pub(super) fn start(spec: &HostSpec) -> Result<Self, Error> {
        let (process, [input, output, errors]) = HostProcess::start_piped(spec, &HostCall::Agent)?;
        let (to, to_write) = mpsc::channel();
        let (answer_to, answers) = mpsc::sync_channel(ANSWERS_WAITING);
        let limit = Arc::new(AtomicUsize::new(MAX_ANSWER_BYTES));
        let signs = Arc::new(LivenessFlags::default());
        let silence_to = answer_to.clone();
        let lease = spec.lease;
        let seen = Arc::clone(&signs);
        thread::spawn(move || {
            let mut input = input;
            if write(&mut input, &to_write, lease, &seen) == WriteOutcome::Silent {
                // Sent before the line is closed, because the agent may answer that by ending.
                let _gone = silence_to.send(Err(LineError::Silent(lease)));
            }
        });
        let limit_now = Arc::clone(&limit);
        thread::spawn(move || read(output, &answer_to, &limit_now, &signs));
        let stderr = LastLines::collect_from(errors, STDERR_LINES, STDERR_LINE_BYTES);
        Ok(Self {
            host: spec.name.clone(),
            command: spec.to_shell_line(&HostCall::Agent.to_args()),
            process,
            to: Some(to),
            answers,
            limit,
            stderr,
            broken: None,
            is_put_back: false,
            refusal: None,
            is_heard_out: false,
        })
    }

    /// Queues a request.
    pub(super) fn queue_request(&mut self, request: &Request) -> Result<(), Error> {
        self.limit.store(request.max_answer_bytes(), Ordering::Relaxed);
        let is_sent =
            self.to.as_ref().is_some_and(|to| to.send(control::encode_line(request)).is_ok());
        if is_sent { Ok(()) } else { Err(self.end_of_line()) }
    }

    pub(super) fn receive_answer(
        &mut self,
        within: Duration,
        stop: &Stop,
    ) -> Result<Answer, Error> {
        let deadline = Instant::now() + within;
        loop {
            if stop.is_raised() {
                return Err(Error::Interrupted);
            }
            if let Some(answer) = self.poll(LOOK_EVERY)? {
                return Ok(answer);
            }
            if Instant::now() >= deadline {
                return self.last_look(within);
            }
        }
    }

    /// The next answer, if it comes within `wait`.
    pub(super) fn poll(&mut self, wait: Duration) -> Result<Option<Answer>, Error> {
        if let Some(broken) = &self.broken {
            return Err(self.build_error(broken));
        }
        match self.answers.recv_timeout(wait) {
            Ok(Ok(Answer::Failed(failure))) => Err(Error::Host {
                host: self.host.clone(),
                message: failure.message,
                outcome: failure.outcome,
                is_transient: failure.is_transient,
            }),
            Ok(Ok(Answer::Closed { why, left })) => {
                self.is_put_back = true;
                let said: Vec<String> = std::iter::once(why).chain(left).collect();
                let said = said.join("; ");
                Err(self.record_failure(
                    format!("its agent put the host back and ended: {said}").into(),
                ))
            }
            Ok(Ok(answer)) => Ok(Some(answer)),
            Ok(Err(error)) => Err(self.line_error(&error)),
            Err(RecvTimeoutError::Disconnected) => Err(self.line_error(&LineError::Closed)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
        }
    }

    /// The answer, or the reason why it is missing after `within`. A controller that was stopped is
    /// late itself, so an answer that came meanwhile counts.
    pub(super) fn last_look(&mut self, within: Duration) -> Result<Answer, Error> {
        let problem = format!("its agent did not answer within {} s", within.as_secs());
        self.poll(DEATHS_WITHIN)?.ok_or_else(|| self.build_error(&problem.into()))
    }

    /// The error for an answer that does not belong to its request.
    pub(super) fn unexpected_answer(&self, answer: Answer) -> Error {
        let name = format!("{answer:?}");
        let name = name.split([' ', '(', '{']).next().unwrap_or_default();
        self.build_error(&format!("its agent sent `{name}` at the wrong time").into())
    }

    /// Tells the agent to stop its traffic, put its host back and end.
    pub(super) fn close(&mut self) {
        self.to = None;
    }

    /// Reads the agent's last messages; returns the knobs that it left to others, in sentences.
    pub(super) fn hear_out(&mut self) -> Vec<String> {
        // Bounded by the queue, so that an agent that sends forever cannot block this.
        for _ in 0..ANSWERS_WAITING {
            match self.answers.try_recv() {
                Ok(Ok(Answer::Closed { left, .. })) => {
                    self.is_put_back = true;
                    return left;
                }
                Ok(Ok(Answer::Failed(failure))) => self.refusal = Some(failure.message),
                Ok(_) => {}
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => {
                    self.is_heard_out = true;
                    break;
                }
            }
        }
        Vec::new()
    }

    /// Whether the agent has confirmed that its host is as it was.
    pub(super) const fn is_put_back(&self) -> bool {
        self.is_put_back
    }

    /// The last failure that the agent reported.
    pub(super) fn last_failure(&self) -> Option<&str> {
        self.refusal.as_deref()
    }

    /// Whether the process has ended, with all its descendants.
    pub(super) fn has_ended(&self) -> bool {
        self.is_heard_out && self.process.has_ended()
    }

    /// Kills the process and its descendants. A checkpoint keeps the old values.
    pub(super) fn kill(&mut self) {
        self.process.kill();
    }

    /// Lets the process end by itself.
    pub(super) fn leave_running(&mut self) {
        self.process.leave_running();
    }

    /// The error when requests can no longer be sent: the agent's own message, if there is one.
    fn end_of_line(&mut self) -> Error {
        for _ in 0..ANSWERS_WAITING {
            match self.poll(DEATHS_WITHIN) {
                Err(error) => return error,
                Ok(None) => break,
                Ok(Some(_)) => {}
            }
        }
        self.build_error(&"its agent takes no more requests".to_owned().into())
    }

    /// The error of a broken line, with the process's exit status and its last messages.
    fn line_error(&mut self, error: &LineError) -> Error {
        let command = &self.command;
        let problem = match error {
            LineError::Closed => {
                let (problem, permission) = self.describe_end();
                return self.record_failure(LineFailure { problem, permission });
            }
            LineError::OtherVersion { .. } => {
                format!("its agent (`{command}`) sent {error}: install the same version on both")
            }
            LineError::Silent(lease) => format!(
                "its agent (`{command}`) did not answer for {lease}: the host, the agent or the connection is \
                 down"
            ),
            _ => format!(
                "its agent (`{command}`) sent {}",
                latput_protocol::text::format_error_chain(error)
            ),
        };
        self.record_failure(problem.into())
    }

    /// How the agent ended, and whether it lacked a privilege.
    fn describe_end(&self) -> (String, bool) {
        let deadline = Instant::now() + Duration::from_secs(1);
        while !self.process.has_ended() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(5));
        }
        let ended = match self.process.how_it_ended() {
            Some(how) => format!("its agent ended ({how})"),
            None => "its agent closed the control line".to_owned(),
        };
        // Its last messages may still be in the pipe.
        let deadline = Instant::now() + DEATHS_WITHIN;
        while !LastLines::is_whole(&self.stderr) && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(5));
        }
        let started = format!("it was started by `{}`", self.command);
        if let Some((error, lines)) = LastLines::find_error(&self.stderr) {
            let said = if lines.is_empty() { lines } else { format!("; it said before: {lines}") };
            let permission = self.process.exit_code() == Some(PERMISSION);
            return (format!("{error} ({ended}; {started}{said})"), permission);
        }
        let lines = LastLines::read_text(&self.stderr);
        let said = if lines.is_empty() { lines } else { format!("; it said: {lines}") };
        (format!("{ended}; {started}{said}"), false)
    }

    /// Keeps the reason why no more answers come, so that every later call returns the same error.
    fn record_failure(&mut self, broken: LineFailure) -> Error {
        let error = self.build_error(&broken);
        self.broken = Some(broken);
        error
    }

    fn build_error(&self, LineFailure { problem, permission }: &LineFailure) -> Error {
        let (host, problem) = (self.host.clone(), problem.clone());
        ReachError::Agent { host, problem, permission: *permission }.into()
    }
}

/// Asks an agent for its clock, several times.
pub(super) fn round_trips(line: &mut AgentLine, stop: &Stop) -> Result<Vec<RoundTrip>, Error> {
    (0..ROUND_TRIPS)
        .map(|_| {
            let asked = latput_load::now();
            line.queue_request(&Request::Clock)?;
            match line.receive_answer(ANSWER_WITHIN, stop)? {
                Answer::Clock { now: there } => {
                    Ok(RoundTrip { asked, there, answered: latput_load::now() })
                }
                other => Err(line.unexpected_answer(other)),
            }
        })
        .collect()
}

#[derive(PartialEq)]
enum WriteOutcome {
    Closed,
    Silent,
}

/// Signals from the reading thread to the writing one.
#[derive(Debug, Default)]
struct LivenessFlags {
    /// Whether a message has come since the last check.
    heard: AtomicBool,
    /// Whether a received message waits for the controller.
    held_up: AtomicBool,
}

/// Writes requests, and a ping after each part of the lease without one. Ends when no more requests
/// will come, and when the agent has answered no ping for the lease. An agent without any message
/// so far may still be starting.
fn write(
    to: &mut impl Write,
    lines: &Receiver<Vec<u8>>,
    lease: Nanos,
    signs: &LivenessFlags,
) -> WriteOutcome {
    let mut has_begun = false;
    let mut unanswered = 0;
    loop {
        let line = match lines.recv_timeout(lease.as_duration() / PINGS) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => {
                if signs.heard.swap(false, Ordering::Relaxed)
                    || signs.held_up.load(Ordering::Relaxed)
                {
                    (has_begun, unanswered) = (true, 0);
                } else if has_begun {
                    unanswered += 1;
                }
                if unanswered == PINGS {
                    return WriteOutcome::Silent;
                }
                control::encode_line(&Request::Ping)
            }
            Err(RecvTimeoutError::Disconnected) => return WriteOutcome::Closed,
        };
        if to.write_all(&line).and_then(|()| to.flush()).is_err() {
            return WriteOutcome::Closed;
        }
    }
}

fn read(
    from: impl Read,
    to: &SyncSender<Result<Answer, LineError>>,
    limit: &AtomicUsize,
    signs: &LivenessFlags,
) {
    let mut from = BufReader::new(from);
    let limit_now = || {
        signs.heard.store(true, Ordering::Relaxed); // a part of a long line is a sign of life, too
        limit.load(Ordering::Relaxed)
    };
    loop {
        let answer = control::read_line_within::<Answer>(&mut from, limit_now);
        if matches!(answer, Ok(Answer::Alive)) {
            continue;
        }
        let is_last = answer.is_err();
        signs.held_up.store(true, Ordering::Relaxed);
        let is_gone = to.send(answer).is_err();
        signs.held_up.store(false, Ordering::Relaxed);
        if is_gone || is_last {
            break;
        }
    }
}

impl Drop for AgentLine {
    fn drop(&mut self) {
        self.kill();
    }
}
