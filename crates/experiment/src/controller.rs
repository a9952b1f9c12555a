//! The controller's end of the control line: starts the agents, speaks to them, and sees to it that
//! they end.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use latput_load::Stop;
use latput_trial::observation::Role;
use latput_units::Nanos;

use crate::clock::{ClockOffset, ROUND_TRIPS, RoundTrip, rough, signed};
use crate::error::Error;
use crate::host;
use crate::interval::HostInterval;
use crate::protocol::{
    self, Answer, FailureKind, Finished, LineError, Open, Opened, Request, SCHEMA,
};
use crate::testbed::HostSpec;

/// How often a wait looks at the stop flag.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// For requests that do not run traffic.
pub(crate) const ANSWER_WITHIN: Duration = Duration::from_secs(15);
/// After its stdin is closed an agent has this long to put its host back.
const END_WITHIN: Duration = Duration::from_secs(10);
/// An agent's death explains the failures that it causes at other hosts, and may be seen after them by
/// so much.
const DEATHS_WITHIN: Duration = Duration::from_millis(300);
/// The last lines of an agent's stderr that an error shows.
const STDERR_LINES: usize = 8;

/// The agents of a testbed, in its order. Dropping it ends them all; each puts its host back.
#[derive(Debug)]
pub struct Crew {
    agents: Vec<Agent>,
    /// How the clocks of other kernels stood when the testbed was opened, in sentences.
    clock_notes: Vec<String>,
    /// How often the agents tell of a trial that runs.
    interval: Option<Nanos>,
}

impl Crew {
    /// Starts an agent on every host; knobs will be set on those of the roles `to_set`.
    pub fn start(hosts: &[HostSpec], to_set: &BTreeSet<Role>, stop: &Stop) -> Result<Self, Error> {
        let agents = hosts
            .iter()
            .map(|host| Agent::start(host, to_set.contains(&host.role), stop))
            .collect::<Result<_, _>>()?;
        let mut crew = Self { agents, clock_notes: Vec::new(), interval: None };
        let clocks = crew.clocks(stop)?;
        let is_other = |(_, clock): &(&Agent, &ClockOffset)| **clock != ClockOffset::default();
        let others = crew.agents.iter().zip(&clocks).filter(is_other);
        crew.clock_notes = others.map(|(agent, clock)| clock_note(&agent.spec, clock)).collect();
        Ok(crew)
    }

    /// What each agent said of itself, in the testbed's order.
    pub fn opened(&self) -> impl Iterator<Item = &Opened> {
        self.agents.iter().map(|agent| &agent.opened)
    }

    /// With word from the agents of every so much of a trial while it runs.
    pub fn telling_every(self, interval: Option<Nanos>) -> Self {
        Self { interval, ..self }
    }

    /// How often the agents tell of a trial that runs.
    pub const fn interval(&self) -> Option<Nanos> {
        self.interval
    }

    /// How the clocks of other kernels stood when the testbed was opened, in sentences.
    pub fn clock_notes(&self) -> &[String] {
        &self.clock_notes
    }

    /// Every agent, in the testbed's order.
    pub fn agents(&mut self) -> &mut [Agent] {
        &mut self.agents
    }

    /// The agents of one role, in the testbed's order.
    pub fn of_role(&mut self, role: Role) -> impl Iterator<Item = &mut Agent> {
        self.agents.iter_mut().filter(move |agent| agent.spec.role == role)
    }

    /// The system under test.
    pub fn sut(&mut self) -> &mut Agent {
        self.of_role(Role::Sut).next().expect("a testbed has one system under test")
    }

    /// Each host's clock against this one, in the testbed's order. Of hosts that share a clock the
    /// quickest round trip counts for all.
    pub(crate) fn clocks(&mut self, stop: &Stop) -> Result<Vec<ClockOffset>, Error> {
        let here = latput_linux::process::boot_id().map(|boot_id| host::clock_id(&boot_id)).ok();
        let mut by_clock: BTreeMap<String, Vec<RoundTrip>> = BTreeMap::new();
        for agent in &mut self.agents {
            if here.as_ref() != Some(&agent.opened.clock) {
                let trips = agent.round_trips(stop)?;
                by_clock.entry(agent.opened.clock.clone()).or_default().extend(trips);
            }
        }
        let of = |agent: &Agent| {
            let trips = by_clock.get(&agent.opened.clock);
            trips.and_then(|trips| ClockOffset::of(trips)).unwrap_or_default()
        };
        Ok(self.agents.iter().map(of).collect())
    }

    /// Waits until every host has finished its trial, in whatever order they do; the answers in the
    /// testbed's order. Traffic that broke at one host is the error once all have answered; any other
    /// failure ends the wait, and where an agent died, that is the failure.
    ///
    /// `heard` is told of each interval that a host has sent, with its place in the testbed.
    pub fn finished(
        &mut self,
        within: Duration,
        stop: &Stop,
        heard: &mut dyn FnMut(usize, HostInterval),
    ) -> Result<Vec<Finished>, Error> {
        let deadline = Instant::now() + within;
        let mut finished: Vec<Option<Result<Finished, Error>>> =
            self.agents.iter().map(|_| None).collect();
        while let Some(first) = finished.iter().position(Option::is_none) {
            if stop.is_raised() {
                return Err(Error::Interrupted);
            }
            for (idx, place) in finished.iter_mut().enumerate() {
                if place.is_some() {
                    continue;
                }
                let agent = &mut self.agents[idx];
                let wait = if idx == first { LOOK_EVERY } else { Duration::ZERO };
                match agent.line.poll(wait) {
                    Ok(None) if Instant::now() < deadline => {}
                    Ok(None) => return Err(agent.line.too_late(within)),
                    Ok(Some(Answer::Finished(answer))) => *place = Some(Ok(*answer)),
                    Ok(Some(Answer::Progress(line))) if Instant::now() < deadline => {
                        heard(idx, line);
                    }
                    Ok(Some(other)) => return Err(agent.unexpected(other)),
                    Err(error) if error.is_passing() => *place = Some(Err(error)),
                    Err(error) => return Err(self.death().unwrap_or(error)),
                }
            }
        }
        finished.into_iter().flatten().collect()
    }

    /// The end of an agent, if one ended or does so soon.
    fn death(&mut self) -> Option<Error> {
        let deadline = Instant::now() + DEATHS_WITHIN;
        loop {
            for agent in &mut self.agents {
                if let Err(error @ Error::Agent { .. }) = agent.line.poll(Duration::ZERO) {
                    return Some(error);
                }
            }
            if Instant::now() >= deadline {
                return None;
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Ends every agent without waiting for an answer to what it is doing: a closed line makes it put
    /// its host back. Where an agent did not end in order, `latput restore` is run in its place.
    pub fn abandon(self) -> Result<(), Error> {
        let mut worst = Ok(());
        for agent in self.agents {
            let Agent { spec, line, .. } = agent;
            let ended_in_order = line.end();
            if !ended_in_order && worst.is_ok() {
                worst = restore(&spec);
            }
        }
        worst
    }

    /// Puts every host back and ends every agent; gives what was left to somebody else. All are closed
    /// even if one fails; the first error is returned.
    pub fn close(self, stop: &Stop) -> Result<Vec<String>, Error> {
        let mut told = Ok(Vec::new());
        for mut agent in self.agents {
            let closed = agent.call(&Request::Close, ANSWER_WITHIN, stop);
            match (&mut told, closed) {
                (Ok(remarks), Ok(Answer::Closed { left })) => {
                    let host = &agent.spec.name;
                    remarks.extend(left.iter().map(|left| format!("latput: {host}: {left}")));
                }
                (Ok(_), Err(error)) => told = Err(error),
                _ => {}
            }
        }
        told
    }
}

/// One agent.
#[derive(Debug)]
pub struct Agent {
    /// Its host.
    pub spec: HostSpec,
    opened: Opened,
    line: Line,
}

impl Agent {
    fn start(spec: &HostSpec, will_set: bool, stop: &Stop) -> Result<Self, Error> {
        let mut line = Line::start(spec)?;
        let open = Request::Open(Open {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            host: spec.name.clone(),
            role: spec.role,
            interface: spec.interface.clone(),
            address: spec.address,
            cpus: spec.cpus.clone(),
            binds_napi_threads: spec.binds_napi_threads,
            will_set,
            link_reset: spec.link_reset,
        });
        line.send(&open)?;
        match line.receive(ANSWER_WITHIN, stop)? {
            Answer::Opened(opened) => Ok(Self { spec: spec.clone(), opened, line }),
            other => Err(line.unexpected(other)),
        }
    }

    fn round_trips(&mut self, stop: &Stop) -> Result<Vec<RoundTrip>, Error> {
        (0..ROUND_TRIPS)
            .map(|_| {
                let asked = latput_load::now();
                match self.ask(&Request::Clock, stop)? {
                    Answer::Clock { now: there } => {
                        Ok(RoundTrip { asked, there, answered: latput_load::now() })
                    }
                    other => Err(self.unexpected(other)),
                }
            })
            .collect()
    }

    /// What the agent said of itself.
    pub const fn opened(&self) -> &Opened {
        &self.opened
    }

    /// Sends a request without waiting.
    pub fn send(&mut self, request: &Request) -> Result<(), Error> {
        self.line.send(request)
    }

    /// Waits for the answer to the request before.
    pub fn receive(&mut self, within: Duration, stop: &Stop) -> Result<Answer, Error> {
        self.line.receive(within, stop)
    }

    /// Sends a request and waits for its answer.
    pub fn call(
        &mut self,
        request: &Request,
        within: Duration,
        stop: &Stop,
    ) -> Result<Answer, Error> {
        self.line.send(request)?;
        self.line.receive(within, stop)
    }

    /// [`Agent::call`] for requests that are done at once.
    pub fn ask(&mut self, request: &Request, stop: &Stop) -> Result<Answer, Error> {
        self.call(request, ANSWER_WITHIN, stop)
    }

    /// The error for an answer that does not belong to its request.
    pub fn unexpected(&self, answer: Answer) -> Error {
        self.line.unexpected(answer)
    }
}

/// The process at the other end, and the line to it.
#[derive(Debug)]
struct Line {
    host: String,
    command: String,
    child: Child,
    to: Option<ChildStdin>,
    answers: Receiver<Result<Answer, LineError>>,
    stderr: Arc<Mutex<VecDeque<String>>>,
}

impl Line {
    fn start(spec: &HostSpec) -> Result<Self, Error> {
        let mut words: Vec<&str> = spec.via.iter().map(String::as_str).collect();
        words.extend([spec.program.as_str(), "agent", "--stdio"]);
        let command = words.join(" ");
        let mut child = Command::new(words[0])
            .args(&words[1..])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0) // Ctrl-C is for the controller, which ends its agents in order
            .spawn()
            .map_err(|error| Error::Agent {
                host: spec.name.clone(),
                problem: format!("cannot start `{command}`: {error}"),
            })?;
        let to = child.stdin.take();
        let mut from = BufReader::new(child.stdout.take().expect("stdout is piped"));
        let (answer_to, answers) = mpsc::channel();
        thread::spawn(move || {
            loop {
                let answer = protocol::read_line::<Answer>(&mut from);
                let is_last = answer.is_err();
                if answer_to.send(answer).is_err() || is_last {
                    break;
                }
            }
        });
        let stderr = Arc::new(Mutex::new(VecDeque::new()));
        let errors = BufReader::new(child.stderr.take().expect("stderr is piped"));
        let kept = Arc::clone(&stderr);
        thread::spawn(move || keep_last_lines(errors, &kept));
        Ok(Self { host: spec.name.clone(), command, child, to, answers, stderr })
    }

    fn send(&mut self, request: &Request) -> Result<(), Error> {
        let Some(to) = self.to.as_mut() else {
            return Err(self.error("its control line is closed".to_owned()));
        };
        protocol::write_line(to, request).map_err(|error| self.line_error(&error))
    }

    fn receive(&mut self, within: Duration, stop: &Stop) -> Result<Answer, Error> {
        let deadline = Instant::now() + within;
        loop {
            if stop.is_raised() {
                return Err(Error::Interrupted);
            }
            match self.poll(LOOK_EVERY)? {
                Some(answer) => return Ok(answer),
                None if Instant::now() < deadline => {}
                None => return Err(self.too_late(within)),
            }
        }
    }

    /// The next answer, if it comes within `wait`.
    fn poll(&mut self, wait: Duration) -> Result<Option<Answer>, Error> {
        match self.answers.recv_timeout(wait) {
            Ok(Ok(Answer::Failed(failure))) => Err(Error::Host {
                host: self.host.clone(),
                message: failure.message,
                kind: failure.kind,
            }),
            Ok(Ok(answer)) => Ok(Some(answer)),
            Ok(Err(error)) => Err(self.line_error(&error)),
            Err(RecvTimeoutError::Disconnected) => Err(self.line_error(&LineError::Closed)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
        }
    }

    fn too_late(&self, within: Duration) -> Error {
        self.error(format!("its agent did not answer within {} s", within.as_secs()))
    }

    /// Why the line broke, with how the process ended and what it last said.
    fn line_error(&mut self, error: &LineError) -> Error {
        if let LineError::OtherVersion { .. } = error {
            let command = &self.command;
            let mend = "install the same version on both";
            return self.error(format!("its agent (`{command}`) sent {error}: {mend}"));
        }
        if !matches!(error, LineError::Closed) {
            return self.error(format!("its agent (`{}`) sent {error}", self.command));
        }
        let ended = match self.wait(Duration::from_secs(1)) {
            Some(status) => format!("its agent ended ({status})"),
            None => "its agent closed the control line".to_owned(),
        };
        // What it said last may still be on its way through the pipe.
        let deadline = Instant::now() + DEATHS_WITHIN;
        let mut lines = Vec::new();
        while lines.is_empty() && Instant::now() < deadline {
            lines = self.stderr.lock().map(|lines| Vec::from(lines.clone())).unwrap_or_default();
            thread::sleep(Duration::from_millis(5));
        }
        let said = if lines.is_empty() {
            String::new()
        } else {
            format!("; it said: {}", lines.join(" | "))
        };
        self.error(format!("{ended}; it was started by `{}`{said}", self.command))
    }

    fn error(&self, problem: String) -> Error {
        Error::Agent { host: self.host.clone(), problem }
    }

    fn unexpected(&self, answer: Answer) -> Error {
        let name = format!("{answer:?}");
        let name = name.split([' ', '(', '{']).next().unwrap_or_default();
        self.error(format!("its agent answered `{name}` out of turn"))
    }

    /// Waits for the process; `None` if it is still there after `within`.
    fn wait(&mut self, within: Duration) -> Option<std::process::ExitStatus> {
        let deadline = Instant::now() + within;
        loop {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Some(status);
            }
            if Instant::now() >= deadline {
                return None;
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Line {
    /// Ends the agent, and says whether it ended in order, its host put back.
    fn end(mut self) -> bool {
        self.close().is_some_and(|status| status.success())
    }

    /// A closed stdin tells the agent to stop its traffic, put its host back and end.
    fn close(&mut self) -> Option<std::process::ExitStatus> {
        self.to = None;
        self.wait(END_WITHIN).or_else(|| {
            // Killing loses nothing that is not in its checkpoint: `latput restore` finishes it.
            let _ = self.child.kill();
            self.child.wait().ok()
        })
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.close();
    }
}

fn clock_note(spec: &HostSpec, clock: &ClockOffset) -> String {
    format!(
        "{}: its clock is {} ± {} against the controller's (quickest of {ROUND_TRIPS} round trips: \
         {}); windows are aligned by an estimate before each trial",
        spec.name,
        signed(clock.offset_ns),
        rough(clock.uncertainty),
        rough(clock.round_trip)
    )
}

/// Finishes on a host what an agent there can no longer do.
fn restore(spec: &HostSpec) -> Result<(), Error> {
    let mut words: Vec<&str> = spec.via.iter().map(String::as_str).collect();
    words.extend([spec.program.as_str(), "restore"]);
    let stranded = |why: String| Error::Host {
        host: spec.name.clone(),
        message: format!(
            "its agent ended without putting the knobs back, and so did `{}`: {why}: run \
             `latput restore` on that host",
            words.join(" ")
        ),
        kind: FailureKind::Stranded,
    };
    let ran = Command::new(words[0])
        .args(&words[1..])
        .stdin(Stdio::null())
        .output()
        .map_err(|error| stranded(error.to_string()))?;
    if ran.status.success() {
        return Ok(());
    }
    Err(stranded(String::from_utf8_lossy(&ran.stderr).trim().to_owned()))
}

fn keep_last_lines(from: impl BufRead, kept: &Mutex<VecDeque<String>>) {
    for line in from.lines().map_while(Result::ok) {
        if let Ok(mut lines) = kept.lock() {
            lines.push_back(line.chars().take(300).collect());
            if lines.len() > STDERR_LINES {
                lines.pop_front();
            }
        }
    }
}
