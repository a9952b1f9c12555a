//! The agents of a testbed, and the trials that are run with them: the agents set the knobs, run the traffic and report
//! their counts.

mod agent;
mod command;
mod ending;
mod last_lines;
mod live;
mod program_host;
mod programs;
mod scout;

use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::{Duration, Instant};

use latput_knobs::{ChangeOutcome, Knob, Refusal, Setting};
use latput_linux::traces_in_turns;
use latput_load::{Key, SliceLayout, Stop};
use latput_protocol::control::{
    AgentInfo, Answer, EarlyEnd, GeneratorPart, HostInterval, HostTrialResult, LINK_WITHIN,
    Request, SettingTurns, TRACED_ROUNDS, TURN, clock_id,
};
use latput_protocol::text::format_error_chain;
use latput_reach::Error as ReachError;
use latput_reach::host_spec::HostSpec;
use latput_runner::Error;
use latput_runner::trials::{
    LiveRunner, PlanPart, SliceRunner, Stint, Trial, TrialProgress, TrialRunner,
};
use latput_trial::observation::Role;
use latput_trial::overrun::ReceiveSide;
use latput_trial::plan::Method;
use latput_trial::results::{HostFacts, LabelledSetting};
use latput_trial::{HostToday, Observation, Surroundings, Traffic, Workload, share};
use latput_units::{IntoSet, Nanos};

pub use self::agent::Agent;
use self::agent::round_trips;
use self::programs::ProgramHosts;
pub(crate) use self::scout::HostInspector;
use crate::clock::{ClockOffset, ROUND_TRIPS, RoundTrip, format_duration, format_offset};
use crate::combine::{IntervalJoiner, TrialContext};

/// Interval at which waits check the stop flag.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Most time of an answer to a request without traffic.
const ANSWER_WITHIN: Duration = Duration::from_secs(15);
/// An agent's end explains the failures that it causes at other hosts. It may be noticed this much
/// later than they are.
const DEATHS_WITHIN: Duration = Duration::from_millis(300);
/// Most time of an answer beyond warm-up and window: drains, joins, a slow control line.
const TRIAL_SLACK: Duration = Duration::from_secs(15);
/// Hosts start at an agreed instant: this long in the future, plus the longest round trip of a
/// control line, so that all of them know it in time.
const START_AHEAD: Nanos = Nanos::from_ms(5);

/// Looks at the programs of a trial, and says whether the windows are to end.
type WindowEnds<'a> = dyn FnMut(&mut ProgramHosts) -> Result<bool, Error> + 'a;

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

    /// Every agent, in the testbed's order.
    pub fn agents(&mut self) -> &mut [Agent] {
        &mut self.agents
    }

    /// The agents of one role, in the testbed's order.
    fn agents_of_role(&mut self, role: Role) -> impl Iterator<Item = &mut Agent> {
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
                let trips = round_trips(&mut agent.line, stop)?;
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
    ///
    /// While programs run, `ends` looks at them as often as its second part wants, and says whether the windows are to end
    /// now.
    fn await_finished(
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

impl TrialRunner for AgentPool {
    fn host_facts(&self) -> Vec<HostFacts> {
        self.opened_hosts().map(|opened| opened.facts.clone()).collect()
    }

    fn machine_id(&self) -> String {
        let hosts =
            self.opened_hosts().map(|opened| format!("{} {}", opened.facts.host, opened.boot_id));
        hosts.collect::<Vec<_>>().join(", ")
    }

    fn notes(&self) -> Vec<String> {
        // A lack of several hosts is said once.
        let mut of_agents: Vec<(Vec<&str>, &str)> = Vec::new();
        for opened in self.opened_hosts() {
            let host = opened.facts.host.as_str();
            for note in &opened.notes {
                match of_agents.iter_mut().find(|(_, told)| told == note) {
                    Some((hosts, _)) => hosts.push(host),
                    None => of_agents.push((vec![host], note)),
                }
            }
        }
        let of_agents =
            of_agents.into_iter().map(|(hosts, note)| format!("{}: {note}", hosts.join(" and ")));
        of_agents.chain(self.clock_notes.iter().cloned()).collect()
    }

    fn receive_sides(&self) -> Vec<ReceiveSide> {
        self.opened_hosts().map(|opened| opened.receive.clone()).collect()
    }

    fn read_knob_values(
        &mut self,
        knobs: &BTreeSet<Knob>,
        stop: &Stop,
    ) -> Result<Vec<HostToday>, Error> {
        if knobs.is_empty() {
            return Ok(Vec::new());
        }
        let mut today = Vec::new();
        for agent in self.agents.iter_mut().filter(|agent| agent.spec.role != Role::Observer) {
            let knobs = knobs.iter().copied().collect();
            match agent.send_request(&Request::Read { knobs }, stop)? {
                Answer::Values { values } => {
                    let (host, role) = (agent.spec.name.clone(), agent.spec.role);
                    today.push(HostToday { host, role, values });
                }
                other => return Err(agent.unexpected_answer(other)),
            }
        }
        Ok(today)
    }

    fn watch_surroundings(&mut self, span: Nanos, stop: &Stop) -> Result<Vec<Surroundings>, Error> {
        for agent in &mut self.agents {
            agent.queue_request(&Request::Watch { span })?;
        }
        let within = span.as_duration() + ANSWER_WITHIN;
        let mut hosts = Vec::new();
        for agent in &mut self.agents {
            match agent.receive_answer(within, stop)? {
                Answer::Watched(seen) => hosts.push(*seen),
                other => return Err(agent.unexpected_answer(other)),
            }
        }
        Ok(hosts)
    }

    fn measure_trial(
        &mut self,
        trial: &Trial,
        method: &Method,
        stop: &Stop,
        progress: &mut dyn TrialProgress,
    ) -> Result<Observation, Error> {
        await_links(self, stop)?;
        set_hosts(self, &trial.set, stop)?;
        await_links(self, stop)?;
        if trial.load.traffic == Traffic::Command {
            return command::run_command_trial(self, trial, method, stop, progress);
        }
        let seen = run_traffic(self, &trial.load, method, None, stop, progress)?;
        Ok(seen.into_iter().next().expect("a window without slices has one observation"))
    }

    fn slice_runner(&mut self) -> Option<&mut dyn SliceRunner> {
        Some(self)
    }

    fn live_runner(&mut self) -> Option<&mut dyn LiveRunner> {
        let is_alone = self.agents.len() == 1;
        if is_alone { Some(self) } else { None }
    }

    fn explain_unsupported(
        &mut self,
        wanted: PlanPart<'_>,
        _: &Method,
        stop: &Stop,
    ) -> Result<Option<String>, Error> {
        let load = match wanted {
            PlanPart::Setting(by_role) => return explain_refused_setting(self, by_role, stop),
            PlanPart::Rehearsed(by_role) => return explain_impossible_setting(self, by_role, stop),
            PlanPart::Load(load) => load,
        };
        let binding = &load.binding;
        for (role, wanted) in [(Role::Sut, &binding.sut), (Role::Generator, &binding.generator)] {
            let of_role = self.opened_hosts().filter(|opened| opened.facts.role == role);
            for opened in of_role {
                let beyond = |cpu: &latput_units::CpuId| !opened.cpus.contains(*cpu);
                if let Some(cpu) = wanted.iter().flat_map(latput_units::CpuSet::iter).find(beyond) {
                    let host = &opened.facts.host;
                    let cpus = &opened.cpus;
                    let why = format!("CPU {cpu} is not among host `{host}`'s, which are {cpus}");
                    return Ok(Some(why));
                }
            }
        }
        Ok(None)
    }

    fn read_tried_values(
        &mut self,
        by_role: &BTreeMap<Role, Setting>,
        stop: &Stop,
    ) -> Result<Vec<HostToday>, Error> {
        self.read_knob_values(&knobs_of(by_role), stop)
    }

    fn close(self: Box<Self>, stop: &Stop, tell: &mut dyn FnMut(&str)) -> Result<(), Error> {
        Self::close(*self, stop, tell)
    }

    fn abort_run(self: Box<Self>, cause: Error, stop: &Stop, tell: &mut dyn FnMut(&str)) -> Error {
        Self::abort_agents(*self, cause, stop, tell)
    }
}

/// The knobs of a setting, and those that may overrule them.
fn knobs_of(by_role: &BTreeMap<Role, Setting>) -> BTreeSet<Knob> {
    let named = by_role.values().flat_map(|setting| setting.keys().copied());
    named.flat_map(|knob| [Some(knob), knob.spec().overruled_by]).flatten().into_set()
}

impl SliceRunner for AgentPool {
    fn measure_stint(
        &mut self,
        stint: &Stint,
        method: &Method,
        stop: &Stop,
        progress: &mut dyn TrialProgress,
    ) -> Result<Vec<Observation>, Error> {
        let first = stint.trials.first().expect("a stint has slices");
        await_links(self, stop)?;
        set_hosts(self, &first.set, stop)?; // the warm-up has the setting of the first slice
        await_links(self, stop)?;
        let order = SliceOrder::from_stint(stint);
        run_traffic(self, &first.load, method, Some(&order), stop, progress)
    }
}

/// The setting of each slice.
struct SliceOrder<'a> {
    slices: SliceLayout,
    settings: Vec<&'a LabelledSetting>,
    /// For each slice, the index of its setting in `settings`.
    places: Vec<usize>,
}

impl<'a> SliceOrder<'a> {
    fn from_stint(stint: &'a Stint) -> Self {
        let mut settings: Vec<&LabelledSetting> = Vec::new();
        let places = stint.trials.iter().map(|trial| {
            settings.iter().position(|known| **known == trial.set).unwrap_or_else(|| {
                settings.push(&trial.set);
                settings.len() - 1
            })
        });
        let places: Vec<usize> = places.collect();
        let count = u32::try_from(places.len()).unwrap_or(u32::MAX);
        let usual = SliceLayout::new(stint.length, stint.cut, count);
        // Steps that look for carry-over have no cut, and no figures to divide.
        let slices = if stint.cut == Nanos::ZERO {
            usual
        } else {
            // A round has each setting once, so these are the first slices of all settings.
            let round = u32::try_from(settings.len()).unwrap_or(count);
            let first = round.saturating_mul(TRACED_ROUNDS).min(count);
            let long_cuts = if traces_in_turns() { count } else { first };
            SliceLayout { long_cuts, long_cut: stint.cut + TURN, ..usual }
        };
        Self { slices, settings, places }
    }

    /// The turns of a host of `role`. A host that no setting names is left alone.
    fn turns_of_role(&self, role: Role) -> SettingTurns {
        let of_role = |set: &&LabelledSetting| set.by_role.get(&role).cloned().unwrap_or_default();
        SettingTurns {
            slices: self.slices,
            settings: self.settings.iter().map(of_role).collect(),
            order: self.places.clone(),
        }
    }
}

/// Waits until every link that was up at the start is up again. Some knobs take the link down, and
/// a link that went down may have broken the trial before.
fn await_links(pool: &mut AgentPool, stop: &Stop) -> Result<(), Error> {
    for agent in pool.agents().iter_mut() {
        agent.queue_request(&Request::Link)?;
    }
    for agent in pool.agents() {
        match agent.receive_answer(LINK_WITHIN + ANSWER_WITHIN, stop)? {
            Answer::Linked => {}
            other => return Err(agent.unexpected_answer(other)),
        }
    }
    Ok(())
}

/// Sets each host's part of a setting.
fn set_hosts(pool: &mut AgentPool, setting: &LabelledSetting, stop: &Stop) -> Result<(), Error> {
    for agent in pool.agents() {
        let setting = setting.by_role.get(&agent.spec.role).cloned().unwrap_or_default();
        // A knob that a setting does not name has its first value; a host without changes has it already.
        if setting.is_empty() && !agent.is_changed() {
            continue;
        }
        match agent.send_request(&Request::Set { setting }, stop)? {
            Answer::Set => {}
            other => return Err(agent.unexpected_answer(other)),
        }
    }
    Ok(())
}

/// The reason why some host does not accept a setting; `None` if all accept it. A host that could
/// not be put back is an error.
fn explain_refused_setting(
    pool: &mut AgentPool,
    by_role: &BTreeMap<Role, Setting>,
    stop: &Stop,
) -> Result<Option<String>, Error> {
    let setting = LabelledSetting { label: String::new(), by_role: by_role.clone() };
    match set_hosts(pool, &setting, stop) {
        Ok(()) => Ok(None),
        Err(Error::Host {
            host,
            message,
            outcome: ChangeOutcome::Refused(Refusal::Failure) | ChangeOutcome::RolledBack,
            is_transient: false,
        }) => Ok(Some(format!("host `{host}`: {message}"))),
        Err(other) => Err(other),
    }
}

/// The reason why some host could not be set so; `None` if nothing is known to stand against it. Nothing is set.
fn explain_impossible_setting(
    pool: &mut AgentPool,
    by_role: &BTreeMap<Role, Setting>,
    stop: &Stop,
) -> Result<Option<String>, Error> {
    for agent in pool.agents() {
        let setting = by_role.get(&agent.spec.role).cloned().unwrap_or_default();
        if setting.is_empty() {
            continue;
        }
        match agent.send_request(&Request::Rehearse { setting }, stop) {
            Ok(Answer::Rehearsed) => {}
            Ok(other) => return Err(agent.unexpected_answer(other)),
            Err(Error::Host {
                host,
                message,
                outcome: ChangeOutcome::Refused(Refusal::Failure),
                ..
            }) => return Ok(Some(format!("host `{host}`: {message}"))),
            Err(other) => return Err(other),
        }
    }
    Ok(None)
}

/// Runs the traffic once and joins the hosts' counts: an observation for each slice of `order`, or
/// one for a window without slices.
fn run_traffic(
    pool: &mut AgentPool,
    workload: &Workload,
    method: &Method,
    order: Option<&SliceOrder<'_>>,
    stop: &Stop,
    progress: &mut dyn TrialProgress,
) -> Result<Vec<Observation>, Error> {
    let parts = prepare_traffic(pool, workload, stop)?;
    let clocks = pool.measure_clock_offsets(stop)?;
    let slowest = clocks.iter().map(|clock| clock.round_trip).max().unwrap_or_default();
    let at = latput_load::now() + START_AHEAD + slowest;
    let interval = pool.interval;
    let warmup = method.warmup;
    let duration = method.duration;
    for (agent, clock) in pool.agents().iter_mut().zip(&clocks) {
        let turns = order.map(|order| order.turns_of_role(agent.spec.role));
        let at = clock.remote_time(at);
        let early_end = EarlyEnd::Never;
        agent.queue_request(&Request::Go { at, warmup, duration, interval, turns, early_end })?;
    }
    let names = pool.agents().iter().map(|agent| agent.spec.name.clone()).collect();
    let mut joiner = IntervalJoiner::new(names, &workload.traffic);
    let mut heard = |host, line| {
        for interval in joiner.add_interval(host, line) {
            progress.report_interval(&interval);
        }
    };
    let slices = order.map(|order| order.slices);
    let window = slices.map_or(duration, |slices| slices.total_length());
    let within = (warmup + window).as_duration() + TRIAL_SLACK;
    let mut finished = pool.await_finished(within, stop, &mut heard, None)?;
    report_left(&mut finished, progress);
    let boot_ids: Vec<String> = pool.opened_hosts().map(|opened| opened.boot_id.clone()).collect();
    let joined = TrialContext { workload, duration, slices, parts, clocks, boot_ids };
    joined.join_observations(finished)
}

/// Reports the knobs that hosts have left to somebody else.
fn report_left(finished: &mut [HostTrialResult], progress: &mut dyn TrialProgress) {
    for part in finished {
        let host = part.slices.first().map_or("", |slice| slice.host.host.as_str());
        for left in std::mem::take(&mut part.left) {
            progress.report_remark(&format!("latput: {host}: {left}"));
        }
    }
}

/// Opens the ports, the connections and the probe. Returns the sending hosts, by index in the
/// testbed and in the order of the far end's ports, each with its part.
fn prepare_traffic(
    pool: &mut AgentPool,
    workload: &Workload,
    stop: &Stop,
) -> Result<Vec<(usize, Workload)>, Error> {
    let (senders, prober) = find_senders(pool.agents(), &workload.traffic);
    let parts = share::parts(workload, senders.len());
    let parts: Vec<(usize, Workload)> = senders.into_iter().zip(parts).collect();
    let mut expected = Vec::new();
    for (_, workload) in parts.iter().cloned() {
        let key = Key::generate().map_err(|error| Error::Traffic {
            workload: workload.name.clone(),
            problem: format_error_chain(&error),
        })?;
        expected.push(GeneratorPart { workload, key });
    }
    let probe = workload.probe;
    let sut = pool.sut_agent();
    let peer = sut.spec.address;
    let ports = match sut.send_request(&Request::Receive { parts: expected.clone() }, stop)? {
        Answer::Listening { ports } if ports.len() == expected.len() => ports,
        other => return Err(sut.unexpected_answer(other)),
    };
    let agents = pool.agents();
    for ((&(idx, _), GeneratorPart { mut workload, key }), port) in
        parts.iter().zip(expected).zip(ports)
    {
        workload.probe = probe.filter(|_| idx == prober);
        agents[idx].queue_request(&Request::Send { workload, key, peer, port })?;
    }
    let senders: Vec<usize> = parts.iter().map(|(idx, _)| *idx).collect();
    let probe_alone = probe.filter(|_| !senders.contains(&prober));
    if let Some(probe) = probe_alone {
        agents[prober].queue_request(&Request::Probe { probe, peer })?;
    }
    // Every answer is read, also after a failure, so that the next attempt does not take it for its
    // own.
    let mut failure = None;
    for idx in senders.into_iter().chain(probe_alone.map(|_| prober)) {
        match agents[idx].receive_answer(ANSWER_WITHIN, stop) {
            Ok(Answer::Connected | Answer::Probing) => {}
            Ok(other) => return Err(agents[idx].unexpected_answer(other)),
            Err(error) if error.is_transient() => failure = Some(error),
            Err(error) => return Err(error),
        }
    }
    failure.map_or(Ok(parts), Err)
}

/// The indices of the generators, and of the host that sends the probe: the observer if there is
/// one, else the first generator. The observer also sends a `ping` workload.
fn find_senders(agents: &[Agent], traffic: &Traffic) -> (Vec<usize>, usize) {
    let of_role = |role| {
        let agents = agents.iter().enumerate().filter(move |(_, agent)| agent.spec.role == role);
        agents.map(|(idx, _)| idx).collect::<Vec<usize>>()
    };
    let generators = of_role(Role::Generator);
    let observer = of_role(Role::Observer);
    let prober = observer.first().or(generators.first());
    let prober = *prober.expect("a testbed has at least one generator");
    if traffic.is_echo() { (vec![prober], prober) } else { (generators, prober) }
}
