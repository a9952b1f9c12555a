//! Runs trials on real hosts: the agents set the knobs, run the traffic and report their counts.

mod command;
mod live;
#[cfg(test)]
mod mutated;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use latput_knobs::{ChangeOutcome, Knob, Refusal, Setting};
use latput_linux::traces_in_turns;
use latput_load::{Key, ReceiverOutcome, SliceLayout, Stop};
use latput_protocol::control::{
    Answer, EarlyEnd, GeneratorPart, HostSlice, HostTrialResult, LINK_WITHIN, Request,
    SettingTurns, TRACED_ROUNDS, TURN,
};
use latput_protocol::text::format_error_chain;
use latput_runner::Error;
use latput_runner::checks::{self, HostPart};
use latput_runner::trials::{
    LiveRunner, PlanPart, SliceRunner, Stint, Trial, TrialProgress, TrialRunner,
};
use latput_trial::observation::{HostObservation, ProbeObservation, Role, TrafficObservation};
use latput_trial::overrun::ReceiveSide;
use latput_trial::plan::Method;
use latput_trial::results::{HostFacts, LabelledSetting};
use latput_trial::{Check, HostToday, Observation, Surroundings, Traffic, Workload, share};
use latput_units::{IntoSet, Nanos};

use crate::clock::ClockOffset;
use crate::combine::{self, HostStart};
use crate::controller::{ANSWER_WITHIN, Agent, AgentPool};
use crate::interval::IntervalJoiner;

/// Most time of an answer beyond warm-up and window: drains, joins, a slow control line.
const TRIAL_SLACK: Duration = Duration::from_secs(15);

/// Hosts start at an agreed instant: this long in the future, plus the longest round trip of a
/// control line, so that all of them know it in time.
const START_AHEAD: Nanos = Nanos::from_ms(5);

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
        of_agents.chain(self.clock_notes().iter().cloned()).collect()
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
        for agent in self.agents().iter_mut().filter(|agent| agent.spec.role != Role::Observer) {
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
        for agent in self.agents().iter_mut() {
            agent.queue_request(&Request::Watch { span })?;
        }
        let within = span.as_duration() + ANSWER_WITHIN;
        let mut hosts = Vec::new();
        for agent in self.agents() {
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
        let is_alone = self.agents().len() == 1;
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
    let interval = pool.progress_interval();
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
    let mut finished = pool.await_finished(within, stop, &mut heard)?;
    for part in &mut finished {
        let host = part.slices.first().map_or_else(String::new, |slice| slice.host.host.clone());
        for left in std::mem::take(&mut part.left) {
            progress.report_remark(&format!("latput: {host}: {left}"));
        }
    }
    let boot_ids: Vec<String> = pool.opened_hosts().map(|opened| opened.boot_id.clone()).collect();
    let joined = TrialContext { workload, duration, slices, parts, clocks, boot_ids };
    joined.join_observations(finished)
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

/// The data of a trial beside the hosts' counts.
struct TrialContext<'a> {
    workload: &'a Workload,
    /// Duration of a window without slices.
    duration: Nanos,
    slices: Option<SliceLayout>,
    /// The sending hosts, by index in the testbed, each with its part.
    parts: Vec<(usize, Workload)>,
    clocks: Vec<ClockOffset>,
    boot_ids: Vec<String>,
}

impl TrialContext<'_> {
    /// Joins the hosts' counts, slice by slice, and checks them.
    fn join_observations(
        &self,
        mut finished: Vec<HostTrialResult>,
    ) -> Result<Vec<Observation>, Error> {
        let expected = self.slices.map_or(1, |slices| slices.count as usize);
        if finished.iter().any(|part| part.slices.len() != expected) {
            return Err(self.traffic_error("a host did not answer for every slice".to_owned()));
        }
        let of_trial = self.checks_of_trial(&finished);
        let mut by_host: Vec<_> =
            finished.iter_mut().map(|part| std::mem::take(&mut part.slices).into_iter()).collect();
        (0..)
            .take(expected)
            .map(|idx| {
                let slice: Vec<HostSlice> = by_host.iter_mut().filter_map(Iterator::next).collect();
                let mut observation = self.join_slice(idx, slice)?;
                observation.checks.extend(of_trial.iter().cloned());
                Ok(observation)
            })
            .collect()
    }

    /// The checks that are equal for every slice.
    fn checks_of_trial(&self, finished: &[HostTrialResult]) -> Vec<Check> {
        let host = |part: &HostTrialResult| part.slices[0].host.host.clone();
        let start = |(part, clock): (&HostTrialResult, &ClockOffset)| HostStart {
            host: host(part),
            clock: *clock,
            late: part.late,
        };
        let starts: Vec<HostStart> = finished.iter().zip(&self.clocks).map(start).collect();
        let drift: Vec<String> = finished
            .iter()
            .flat_map(|part| part.drift.iter().map(|change| format!("{}: {change}", host(part))))
            .collect();
        let measured = self.slices.map_or(self.duration, |slices| slices.measured_length(0));
        let together = combine::started_together(&starts, measured);
        let held_back: Vec<String> = finished
            .iter()
            .flat_map(|part| part.held_back.iter().map(|why| format!("{}: {why}", host(part))))
            .collect();
        let of_hosts = [checks::knob_drift(&drift), checks::check_throttling(&held_back)];
        let sliced = if self.slices.is_some() { finished } else { &[] };
        let of_slices = sliced.iter().filter_map(|part| {
            checks::steal_of_slices(part.slices.iter().map(|slice| &slice.host))
        });
        together.into_iter().chain(of_hosts).chain(of_slices).collect()
    }

    /// Joins slice `idx`, or the whole window.
    fn join_slice(&self, idx: u32, mut slice: Vec<HostSlice>) -> Result<Observation, Error> {
        let cpus: Vec<Nanos> = slice.iter().map(traffic_cpu).collect();
        let (flows, mut probe, mut checks) = self.combine_flows(&mut slice)?;
        let traffic = combine::merge_flows(flows);
        for part in &mut slice {
            if let Some(outcome) = part.probe.take() {
                let (alone, on_schedule) = combine::convert_probe_outcome(outcome);
                probe = Some(alone);
                checks.push(on_schedule);
            }
        }
        checks.extend(self.slices.map(|slices| changed_in_cut(&slice, slices.cut)));
        let hosts: Vec<HostObservation> = slice.into_iter().map(|part| part.host).collect();
        let parts = self.boot_ids.iter().zip(&cpus);
        let parts: Vec<HostPart<'_>> =
            parts.map(|(boot_id, &traffic_cpu)| HostPart { boot_id, traffic_cpu }).collect();
        checks.extend(checks::of_trial(&self.workload.traffic, &traffic, &hosts, &parts));
        let is_program = self.workload.traffic == Traffic::Command;
        if self.workload.count.is_none() && !is_program {
            let planned = self.slices.map_or(self.duration, |slices| slices.measured_length(idx));
            checks.extend(checks::on_schedule(&hosts, planned));
        }
        Ok(Observation { traffic, probe, hosts, checks, ..Observation::default() })
    }

    fn traffic_error(&self, problem: String) -> Error {
        Error::Traffic { workload: self.workload.name.clone(), problem }
    }

    /// Each generator's flow with the far end's part of it, and the checks of each.
    #[expect(clippy::type_complexity, reason = "the three things that joining two ends gives")]
    fn combine_flows(
        &self,
        slice: &mut [HostSlice],
    ) -> Result<(Vec<TrafficObservation>, Option<ProbeObservation>, Vec<Check>), Error> {
        let missing = |end: &str| self.traffic_error(format!("the {end}'s figures are missing"));
        let receivers: Vec<ReceiverOutcome> =
            slice.iter_mut().flat_map(|part| part.receivers.drain(..)).collect();
        if receivers.len() != self.parts.len() {
            return Err(missing("receiver"));
        }
        let mut flows = Vec::new();
        let mut probe = None;
        let mut checks = Vec::new();
        for ((idx, workload), receiver) in self.parts.iter().zip(&receivers) {
            let part = &mut slice[*idx];
            let sender = part.sender.take().ok_or_else(|| missing("sender"))?;
            let (flow, beside, of_flow) = latput_load::combine(workload, &sender, receiver);
            flows.push(flow);
            probe = probe.or(beside);
            checks.push((part.host.host.clone(), of_flow));
        }
        Ok((flows, probe, combine::merge_checks(checks)))
    }
}

/// Whether each change of the setting ended within the cut. A longer one reaches into the measured
/// part.
fn changed_in_cut(slice: &[HostSlice], cut: Nanos) -> Check {
    let longest = slice.iter().max_by_key(|part| part.change);
    let change = longest.map_or(Nanos::ZERO, |part| part.change);
    let host = longest.map_or("", |part| part.host.host.as_str());
    Check {
        name: "changed-in-cut".to_owned(),
        passed: change <= cut,
        detail: format!(
            "{host}: changing the setting took {:.1} ms of the {:.1} ms that are cut",
            change.as_us_f64() / 1e3,
            cut.as_us_f64() / 1e3
        ),
    }
}

/// CPU time of a host's own traffic threads.
fn traffic_cpu(part: &HostSlice) -> Nanos {
    let receivers = part.receivers.iter().map(|receiver| receiver.cpu);
    let sender = part.sender.iter().map(|sender| sender.cpu);
    receivers.chain(sender).fold(Nanos::ZERO, Nanos::saturating_add)
}
