//! The controller's end of the line to the process that runs programs on a host.
//!
//! One thread writes, with pings; one reads. Closing the line ends every program of that host.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufReader, Read, Write};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use latput_load::Stop;
use latput_protocol::control::{self, LineError, read_line_within};
use latput_protocol::program::{
    MAX_ANSWER_BYTES, ProgramAnswer, ProgramOutcome, ProgramRequest, ReadyCheck, SCHEMA,
    StartRequest,
};
use latput_protocol::text::replace_control_chars;
use latput_reach::Error as ReachError;
use latput_reach::broker::message::HostCall;
use latput_reach::broker::process::HostProcess;
use latput_reach::host_spec::HostSpec;
use latput_runner::Error;
use latput_units::Nanos;

use super::LOOK_EVERY;
use super::last_lines::LastLines;

/// Lines kept of its stderr, and bytes of each.
const STDERR_LINES: usize = 8;
const STDERR_LINE_BYTES: usize = 1000;
/// Pings in each lease.
const PINGS: u32 = 3;
/// Most answers that wait; more block the other end.
const ANSWERS_WAITING: usize = 4;
/// Most time of the other end to end its programs after the line is closed.
const END_WITHIN: Duration = Duration::from_secs(6);

/// The process that runs programs on a host. Dropping it ends them all.
#[derive(Debug)]
pub(crate) struct ProgramHost {
    host: String,
    process: HostProcess,
    to: Option<Sender<Vec<u8>>>,
    answers: Receiver<Result<ProgramAnswer, LineError>>,
    stderr: Arc<Mutex<LastLines>>,
    last_id: u32,
    /// Programs that run, each with whether nothing of it can be left running.
    started: BTreeSet<u32>,
    is_uncontained: bool,
    ended: BTreeMap<u32, ProgramOutcome>,
    ready: BTreeMap<u32, Result<(), String>>,
    /// Programs whose end nobody will ask for.
    forgotten: BTreeSet<u32>,
}

impl ProgramHost {
    /// Starts it, through the same command as the host's agent.
    pub(crate) fn start(spec: &HostSpec, stop: &Stop) -> Result<Self, Error> {
        let (process, [input, output, errors]) =
            HostProcess::start_piped(spec, &HostCall::Programs)?;
        let (to, to_write) = mpsc::channel();
        let (answer_to, answers) = mpsc::sync_channel(ANSWERS_WAITING);
        let lease = spec.lease;
        thread::spawn(move || write(input, &to_write, lease));
        thread::spawn(move || {
            let mut output = BufReader::new(output);
            loop {
                let answer = read_line_within(&mut output, || MAX_ANSWER_BYTES);
                let is_broken = answer.is_err();
                if answer_to.send(answer).is_err() || is_broken {
                    break;
                }
            }
            drain_output(output); // so that the other end is not held up by a full pipe
        });
        let stderr = LastLines::collect_from(errors, STDERR_LINES, STDERR_LINE_BYTES);
        let mut host = Self {
            host: spec.name.clone(),
            process,
            to: Some(to),
            answers,
            stderr,
            last_id: 0,
            started: BTreeSet::new(),
            is_uncontained: false,
            ended: BTreeMap::new(),
            ready: BTreeMap::new(),
            forgotten: BTreeSet::new(),
        };
        let version = env!("CARGO_PKG_VERSION").to_owned();
        host.queue_request(&ProgramRequest::Open { schema: SCHEMA, version, lease })?;
        match host.next(spec.first_answer_within(), stop)? {
            Some(ProgramAnswer::Opened { schema: SCHEMA, .. }) => Ok(host),
            Some(ProgramAnswer::Opened { version, .. }) => Err(host.build_error(&format!(
                "it has latput {version}, and this is {}: install the same version on both",
                env!("CARGO_PKG_VERSION")
            ))),
            _ => Err(host.build_error("the process that runs programs did not answer")),
        }
    }

    /// Starts a program; its id.
    pub(crate) fn launch_program(&mut self, mut start: StartRequest) -> Result<u32, Error> {
        self.last_id += 1;
        start.id = self.last_id;
        self.queue_request(&ProgramRequest::Start(Box::new(start)))?;
        Ok(self.last_id)
    }

    /// Tells a program to end, and forgets it.
    pub(crate) fn end_and_forget(&mut self, id: u32) -> Result<(), Error> {
        if self.ended.remove(&id).is_none() {
            self.forgotten.insert(id);
        }
        self.queue_request(&ProgramRequest::End { id })
    }

    /// Tells a program to end, whose end is asked for.
    pub(crate) fn stop_program(&self, id: u32) -> Result<(), Error> {
        self.queue_request(&ProgramRequest::End { id })
    }

    /// Whether something of a program that was started may be left running.
    pub(crate) const fn is_uncontained(&self) -> bool {
        self.is_uncontained
    }

    /// Whether a program has ended.
    pub(crate) fn has_ended(&mut self, id: u32) -> Result<bool, Error> {
        while let Some(answer) = self.poll(Duration::ZERO)? {
            self.take(answer)?;
        }
        Ok(self.ended.contains_key(&id))
    }

    /// Waits until a program has ended.
    pub(crate) fn await_end(
        &mut self,
        id: u32,
        within: Duration,
        stop: &Stop,
    ) -> Result<ProgramOutcome, Error> {
        self.await_condition(within, stop, |host| host.ended.remove(&id))
    }

    /// The end of a program, if it has ended. It can be asked for again.
    pub(crate) fn end_of(&mut self, id: u32) -> Result<Option<&ProgramOutcome>, Error> {
        Ok(self.has_ended(id)?.then(|| &self.ended[&id]))
    }

    /// The end of a program, if it has ended.
    pub(crate) fn take_end(&mut self, id: u32) -> Option<ProgramOutcome> {
        self.ended.remove(&id)
    }

    /// Waits until a program is ready. The reason if it is not follows its name.
    pub(crate) fn await_ready(
        &mut self,
        id: u32,
        ready: ReadyCheck,
        within: Nanos,
        stop: &Stop,
    ) -> Result<Result<(), String>, Error> {
        self.queue_request(&ProgramRequest::AwaitReady { id, ready, within })?;
        let slack = Duration::from_secs(15); // a ready command may run for 10 s beyond
        self.await_condition(within.as_duration() + slack, stop, |host| host.ready.remove(&id))
    }

    /// Waits until a program runs, or has ended.
    pub(crate) fn await_start(&mut self, id: u32, stop: &Stop) -> Result<(), Error> {
        self.await_condition(super::ANSWER_WITHIN, stop, |host| {
            (host.started.contains(&id) || host.ended.contains_key(&id)).then_some(())
        })
    }

    fn await_condition<T>(
        &mut self,
        within: Duration,
        stop: &Stop,
        mut found: impl FnMut(&mut Self) -> Option<T>,
    ) -> Result<T, Error> {
        let deadline = Instant::now() + within;
        loop {
            if let Some(found) = found(self) {
                return Ok(found);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let Some(answer) = self.next(left, stop)? else {
                let problem = format!(
                    "the process that runs programs did not answer within {} s",
                    within.as_secs()
                );
                return Err(self.build_error(&problem));
            };
            self.take(answer)?;
        }
    }

    /// Keeps an answer until somebody asks for it.
    fn take(&mut self, answer: ProgramAnswer) -> Result<(), Error> {
        match answer {
            ProgramAnswer::Started { id, contained, .. } => {
                self.started.insert(id);
                self.is_uncontained |= !contained;
            }
            ProgramAnswer::Ready { id } => {
                self.ready.insert(id, Ok(()));
            }
            ProgramAnswer::NotReady { id, why } => {
                self.ready.insert(id, Err(replace_control_chars(&why)));
            }
            ProgramAnswer::Ended { id, ended } => {
                self.started.remove(&id);
                if !self.forgotten.remove(&id) {
                    self.ended.insert(id, *ended);
                }
            }
            ProgramAnswer::Failed { message } => {
                return Err(self.build_error(&replace_control_chars(&message)));
            }
            ProgramAnswer::Opened { .. } => {
                return Err(self.build_error("an answer came at the wrong time"));
            }
        }
        Ok(())
    }

    /// The next answer, if it comes within `within`.
    fn next(&mut self, within: Duration, stop: &Stop) -> Result<Option<ProgramAnswer>, Error> {
        let deadline = Instant::now() + within;
        loop {
            if stop.is_raised() {
                return Err(Error::Interrupted);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if let Some(answer) = self.poll(left.min(LOOK_EVERY))? {
                return Ok(Some(answer));
            }
            if Instant::now() >= deadline {
                return Ok(None);
            }
        }
    }

    fn poll(&mut self, wait: Duration) -> Result<Option<ProgramAnswer>, Error> {
        match self.answers.recv_timeout(wait) {
            Ok(Ok(answer)) => Ok(Some(answer)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Ok(Err(error)) => Err(self.line_error(&error)),
            Err(RecvTimeoutError::Disconnected) => Err(self.line_error(&LineError::Closed)),
        }
    }

    fn queue_request(&self, request: &ProgramRequest) -> Result<(), Error> {
        let is_sent =
            self.to.as_ref().is_some_and(|to| to.send(control::encode_line(request)).is_ok());
        if is_sent { Ok(()) } else { Err(self.line_error(&LineError::Closed)) }
    }

    fn line_error(&self, error: &LineError) -> Error {
        let deadline = Instant::now() + Duration::from_millis(300);
        while !(self.process.has_ended() && LastLines::is_whole(&self.stderr))
            && Instant::now() < deadline
        {
            thread::sleep(Duration::from_millis(5));
        }
        let how = self.process.how_it_ended().map_or(String::new(), |how| format!(" ({how})"));
        let said = LastLines::read_text(&self.stderr);
        let said = if said.is_empty() { said } else { format!("; it said: {said}") };
        let problem = match error {
            LineError::Closed => format!("the process that runs programs ended{how}{said}"),
            _ => format!("the process that runs programs sent {error}{said}"),
        };
        self.build_error(&problem)
    }

    fn build_error(&self, problem: &str) -> Error {
        let (host, problem) = (self.host.clone(), problem.to_owned());
        ReachError::Agent { host, problem, permission: false }.into()
    }

    /// Closes the line, whereupon all programs are ended.
    pub(super) fn close(&mut self) {
        self.to = None;
    }
}

impl Drop for ProgramHost {
    fn drop(&mut self) {
        self.close();
        let deadline = Instant::now() + END_WITHIN;
        while !self.process.has_ended() && Instant::now() < deadline {
            // Late answers must not hold it up.
            while self.answers.try_recv().is_ok() {}
            thread::sleep(Duration::from_millis(5));
        }
        if self.process.has_ended() {
            self.process.leave_running();
        } else {
            self.process.kill();
        }
    }
}

/// Writes requests, and a ping after each part of the lease without one.
fn write(mut to: impl Write, lines: &Receiver<Vec<u8>>, lease: Nanos) {
    loop {
        let line = match lines.recv_timeout(lease.as_duration() / PINGS) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => control::encode_line(&ProgramRequest::Ping),
            Err(RecvTimeoutError::Disconnected) => return,
        };
        if to.write_all(&line).and_then(|()| to.flush()).is_err() {
            return;
        }
    }
}

fn drain_output(mut from: impl Read) {
    let mut buffer = [0; 8192];
    while matches!(from.read(&mut buffer), Ok(length) if length > 0) {}
}
