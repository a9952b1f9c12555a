//! The controller's end of the control line: starts the agents, talks to them and ends them.

mod ending;
mod last_lines;
mod line;
mod program_host;
mod programs;
mod scout;

use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::{Duration, Instant};

use latput_load::Stop;
use latput_protocol::control::{
    AgentInfo, Answer, ControllerId, EarlyEnd, HostInterval, HostTrialResult, OpenRequest, Request,
    SCHEMA, clock_id,
};
use latput_reach::Error as ReachError;
use latput_reach::host_spec::HostSpec;
use latput_runner::Error;
use latput_trial::observation::Role;
use latput_units::Nanos;

use crate::clock::{ClockOffset, ROUND_TRIPS, RoundTrip, format_duration, format_offset};

use self::line::AgentLine;
pub(crate) use self::programs::{LiveServer, ProgramHosts};
pub(crate) use self::scout::HostInspector;

/// Interval at which waits check the stop flag.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Most time of an answer to a request without traffic.
pub(crate) const ANSWER_WITHIN: Duration = Duration::from_secs(15);
/// An agent's end explains the failures that it causes at other hosts. It may be noticed this much
/// later than they are.
const DEATHS_WITHIN: Duration = Duration::from_millis(300);

/// Looks at the programs of a trial, and says whether the windows are to end.
pub(crate) type WindowEnds<'a> = dyn FnMut(&mut ProgramHosts) -> Result<bool, Error> + 'a;

/// The agents of a testbed, in its order. Dropping it ends them all, and each puts its host back.
#[derive(Debug)]
pub struct AgentPool {
    agents: Vec<Agent>,
    /// Offsets of other kernels' clocks when the testbed was opened, in sentences.
    clock_notes: Vec<String>,
    /// Interval of the agents' reports during a trial.
    interval: Option<Nanos>,
    programs: ProgramHosts,
}

impl AgentPool {
    /// Starts an agent on every host. Knobs will be set on hosts of the roles `to_set`.
    pub fn start(hosts: &[HostSpec], to_set: &BTreeSet<Role>, stop: &Stop) -> Result<Self, Error> {
        let mut pool = Self {
            agents: Vec::new(),
            clock_notes: Vec::new(),
            interval: None,
            programs: ProgramHosts::default(),
        };
        match pool.start_agents(hosts, to_set, stop) {
            Ok(()) => Ok(pool),
            Err(error) => Err(pool.abort_agents(error, stop, &mut |_| {})),
        }
    }

    fn start_agents(
        &mut self,
        hosts: &[HostSpec],
        to_set: &BTreeSet<Role>,
        stop: &Stop,
    ) -> Result<(), Error> {
        for host in hosts {
            self.agents.push(Agent::start(host, to_set.contains(&host.role), stop)?);
        }
        let clocks = self.measure_clock_offsets(stop)?;
        let is_other = |(_, clock): &(&Agent, &ClockOffset)| **clock != ClockOffset::default();
        let others = self.agents.iter().zip(&clocks).filter(is_other);
        self.clock_notes = others.map(|(agent, clock)| clock_note(&agent.spec, clock)).collect();
        Ok(())
    }

    /// Each agent's answer to `open`, in the testbed's order.
    pub fn opened_hosts(&self) -> impl Iterator<Item = &AgentInfo> {
        self.agents.iter().map(|agent| &agent.opened)
    }

    /// Makes agents report at each interval of a running trial.
    pub fn with_progress_interval(mut self, interval: Option<Nanos>) -> Self {
        self.interval = interval;
        self
    }

    /// Interval of the agents' reports during a trial.
    pub const fn progress_interval(&self) -> Option<Nanos> {
        self.interval
    }

    /// Offsets of other kernels' clocks when the testbed was opened, in sentences.
    pub fn clock_notes(&self) -> &[String] {
        &self.clock_notes
    }

    /// Every agent, in the testbed's order.
    pub fn agents(&mut self) -> &mut [Agent] {
        &mut self.agents
    }

    /// The programs of `command` workloads.
    pub(crate) fn programs(&mut self) -> &mut ProgramHosts {
        &mut self.programs
    }

    /// The agents of one role, in the testbed's order.
    pub fn agents_of_role(&mut self, role: Role) -> impl Iterator<Item = &mut Agent> {
        self.agents.iter_mut().filter(move |agent| agent.spec.role == role)
    }

    /// The system under test.
    pub fn sut_agent(&mut self) -> &mut Agent {
        self.agents_of_role(Role::Sut).next().expect("a testbed has one system under test")
    }

    /// The offset of each host's clock from this one, in the testbed's order. Hosts that share a
    /// clock share the estimate of the quickest round trip.
    pub(crate) fn measure_clock_offsets(&mut self, stop: &Stop) -> Result<Vec<ClockOffset>, Error> {
        let here = latput_linux::process::boot_id().map(|boot_id| clock_id(&boot_id)).ok();
        let mut by_clock: BTreeMap<String, Vec<RoundTrip>> = BTreeMap::new();
        for agent in &mut self.agents {
            if here.as_ref() != Some(&agent.opened.clock) {
                let trips = agent.round_trips(stop)?;
                by_clock.entry(agent.opened.clock.clone()).or_default().extend(trips);
            }
        }
        let of = |agent: &Agent| {
            let trips = by_clock.get(&agent.opened.clock);
            trips.and_then(|trips| ClockOffset::from_round_trips(trips)).unwrap_or_default()
        };
        Ok(self.agents.iter().map(of).collect())
    }

    /// Waits until every host has finished its trial; returns the answers in the testbed's order.
    /// If traffic broke at a host, that is the error once all have answered. Any other failure ends
    /// the wait; if an agent died, its death is the failure.
    ///
    /// `heard` receives each interval that a host sends, with the host's index in the testbed.
    pub fn await_finished(
        &mut self,
        within: Duration,
        stop: &Stop,
        heard: &mut dyn FnMut(usize, HostInterval),
    ) -> Result<Vec<HostTrialResult>, Error> {
        self.finished_beside(within, stop, heard, None)
    }

    /// [`Self::await_finished`] while programs run. `ends` looks at them as often as its second part wants, and says whether
    /// the windows are to end now.
    pub(crate) fn finished_beside(
        &mut self,
        within: Duration,
        stop: &Stop,
        heard: &mut dyn FnMut(usize, HostInterval),
        mut ends: Option<(&mut WindowEnds<'_>, EarlyEnd)>,
    ) -> Result<Vec<HostTrialResult>, Error> {
        let begun = Instant::now();
        let deadline = begun + within;
        let mut finished: Vec<Option<Result<HostTrialResult, Error>>> =
            self.agents.iter().map(|_| None).collect();
        while let Some(first) = finished.iter().position(Option::is_none) {
            if stop.is_raised() {
                return Err(Error::Interrupted);
            }
            if let Some((look, _)) = &mut ends
                && look(&mut self.programs)?
            {
                ends = None;
                for agent in &mut self.agents {
                    agent.queue_request(&Request::EndWindow)?;
                }
            }
            let early_end = ends.as_ref().map_or(EarlyEnd::Never, |(_, early_end)| *early_end);
            let look = early_end.next_look(begun.elapsed().into()).as_duration();
            for (idx, place) in finished.iter_mut().enumerate() {
                if place.is_some() {
                    continue;
                }
                let agent = &mut self.agents[idx];
                let wait = if idx == first { look } else { Duration::ZERO };
                let answer = match agent.line.poll(wait) {
                    Ok(None) if Instant::now() >= deadline => {
                        agent.line.last_look(within).map(Some)
                    }
                    answer => answer,
                };
                match answer {
                    Ok(None) => {}
                    Ok(Some(Answer::Finished(answer))) => *place = Some(Ok(*answer)),
                    Ok(Some(Answer::Progress(line))) if Instant::now() < deadline => {
                        heard(idx, line);
                    }
                    Ok(Some(other)) => return Err(agent.unexpected_answer(other)),
                    Err(error) if error.is_transient() => *place = Some(Err(error)),
                    Err(error) => return Err(self.find_dead_agent().unwrap_or(error)),
                }
            }
        }
        finished.into_iter().flatten().collect()
    }

    /// The end of an agent, if one has ended or does so soon.
    fn find_dead_agent(&mut self) -> Option<Error> {
        let deadline = Instant::now() + DEATHS_WITHIN;
        loop {
            for agent in &mut self.agents {
                if let Err(error @ Error::Reach(ReachError::Agent { .. })) =
                    agent.line.poll(Duration::ZERO)
                {
                    return Some(error);
                }
            }
            if Instant::now() >= deadline {
                return None;
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Ends every agent in any state; each puts its host back. If one fails to, `latput restore`
    /// runs in its place. Returns `cause`, with the hosts that may still be changed. `tell`
    /// receives remarks for people. A second raise of `stop` ends the wait.
    pub fn abort_agents(mut self, cause: Error, stop: &Stop, tell: &mut dyn FnMut(&str)) -> Error {
        self.programs.close();
        let hosts = ending::put_back(std::mem::take(&mut self.agents), stop, tell);
        if hosts.is_empty() {
            return cause;
        }
        Error::Changed { hosts, cause: Some(Box::new(cause)) }
    }

    /// Ends every agent after the last trial, like [`Self::abort_agents`].
    pub fn close(mut self, stop: &Stop, tell: &mut dyn FnMut(&str)) -> Result<(), Error> {
        for agent in &mut self.agents {
            let _gone = agent.queue_request(&Request::Close);
        }
        self.programs.close();
        let hosts = ending::put_back(std::mem::take(&mut self.agents), stop, tell);
        if hosts.is_empty() { Ok(()) } else { Err(Error::Changed { hosts, cause: None }) }
    }
}

impl Drop for AgentPool {
    /// Gives the agents time to put their hosts back, also after a panic.
    fn drop(&mut self) {
        self.programs.close();
        let _hurried = ending::close(&mut self.agents, &Stop::new(), &mut |_| {});
    }
}

/// One agent.
#[derive(Debug)]
pub struct Agent {
    /// Its host.
    pub spec: HostSpec,
    opened: AgentInfo,
    line: AgentLine,
    /// Whether knobs were to be set.
    is_changed: bool,
}

impl Agent {
    /// Whether the host needs no putting back.
    const fn is_settled(&self) -> bool {
        self.line.is_put_back() || !self.is_changed
    }

    /// Whether knobs were to be set.
    pub const fn is_changed(&self) -> bool {
        self.is_changed
    }

    fn start(spec: &HostSpec, will_set: bool, stop: &Stop) -> Result<Self, Error> {
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

    fn round_trips(&mut self, stop: &Stop) -> Result<Vec<RoundTrip>, Error> {
        round_trips(&mut self.line, stop)
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

/// Asks an agent for its clock, several times.
fn round_trips(line: &mut AgentLine, stop: &Stop) -> Result<Vec<RoundTrip>, Error> {
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

fn clock_note(spec: &HostSpec, clock: &ClockOffset) -> String {
    format!(
        "{}: its clock is {} ± {} against the controller's (quickest of {ROUND_TRIPS} round trips: \
         {}); windows are aligned by an estimate before each trial",
        spec.name,
        format_offset(clock.offset_ns),
        format_duration(clock.uncertainty),
        format_duration(clock.round_trip)
    )
}
