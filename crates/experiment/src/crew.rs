//! Trials on real hosts: the agents set the knobs, let the traffic flow and tell what they saw.

use std::collections::BTreeMap;
use std::time::Duration;

use latput_knobs::Setting;
use latput_load::{Key, ReceiverOutcome, Stop};
use latput_trial::observation::{HostObservation, ProbeObservation, Role, TrafficObservation};
use latput_trial::overrun::ReceiveSide;
use latput_trial::plan::Method;
use latput_trial::results::{HostFacts, LabelledSetting};
use latput_trial::{Check, Observation, Traffic, Workload, share};
use latput_units::Nanos;

use crate::checks::{self, HostPart};
use crate::clock::ClockOffset;
use crate::combine::{self, Start};
use crate::controller::{ANSWER_WITHIN, Agent, Crew};
use crate::error::Error;
use crate::host::{LINK_WITHIN, chain};
use crate::interval::Joiner;
use crate::lacking::Wanted;
use crate::protocol::{Answer, FailureKind, Finished, Part, Request};
use crate::runner::{News, Trial, TrialRunner, run_trial};

/// Beyond warm-up and window an answer may take this long: drains, joins, a slow control line.
const TRIAL_SLACK: Duration = Duration::from_secs(15);

/// Hosts are told an instant to start at, so far ahead that all get word of it in time, beside the
/// longest round trip of a control line.
const START_AHEAD: Nanos = Nanos::from_ms(5);

impl TrialRunner for Crew {
    fn hosts(&self) -> Vec<HostFacts> {
        self.opened().map(|opened| opened.facts.clone()).collect()
    }

    fn machine(&self) -> String {
        let hosts = self.opened().map(|opened| format!("{} {}", opened.facts.host, opened.boot_id));
        hosts.collect::<Vec<_>>().join(", ")
    }

    fn notes(&self) -> Vec<String> {
        let of_host = |host: &str, notes: &[String]| -> Vec<String> {
            notes.iter().map(|note| format!("{host}: {note}")).collect()
        };
        let of_agents = self.opened().flat_map(|o| of_host(&o.facts.host, &o.notes));
        of_agents.chain(self.clock_notes().iter().cloned()).collect()
    }

    fn receive_sides(&self) -> Vec<ReceiveSide> {
        self.opened().map(|opened| opened.receive.clone()).collect()
    }

    fn is_simulated(&self) -> bool {
        false
    }

    fn trials(
        &mut self,
        todo: Vec<Trial>,
        method: &Method,
        stop: &Stop,
        tell: &mut dyn FnMut(News) -> Result<(), Error>,
    ) -> Result<(), Error> {
        for trial in todo {
            run_trial(trial, tell, &mut |trial, tell| {
                await_links(self, stop)?;
                set_hosts(self, &trial.set, stop)?;
                await_links(self, stop)?;
                observe(self, &trial.load, method, stop, tell)
            })?;
        }
        Ok(())
    }

    fn lacks(
        &mut self,
        wanted: Wanted<'_>,
        _: &Method,
        stop: &Stop,
    ) -> Result<Option<String>, Error> {
        let load = match wanted {
            Wanted::Setting(by_role) => return not_taken(self, by_role, stop),
            Wanted::Load(load) => load,
        };
        let binding = &load.binding;
        for (role, wanted) in [(Role::Sut, &binding.sut), (Role::Generator, &binding.generator)] {
            let of_role = self.opened().filter(|opened| opened.facts.role == role);
            for opened in of_role {
                let beyond = |cpu: &latput_units::CpuId| !opened.cpus.contains(*cpu);
                if let Some(cpu) = wanted.iter().flat_map(latput_units::CpuSet::iter).find(beyond) {
                    let (host, cpus) = (&opened.facts.host, &opened.cpus);
                    let why = format!("CPU {cpu} is not among host `{host}`'s, which are {cpus}");
                    return Ok(Some(why));
                }
            }
        }
        Ok(None)
    }

    fn close(self: Box<Self>, stop: &Stop) -> Result<Vec<String>, Error> {
        Self::close(*self, stop)
    }

    fn abandon(self: Box<Self>) -> Result<(), Error> {
        Self::abandon(*self)
    }
}

/// Waits until every host's link is up that was so to begin with: what broke the trial before may have been one
/// that was not, and some knobs take theirs down.
fn await_links(crew: &mut Crew, stop: &Stop) -> Result<(), Error> {
    for agent in crew.agents().iter_mut() {
        agent.send(&Request::Link)?;
    }
    for agent in crew.agents() {
        match agent.receive(LINK_WITHIN + ANSWER_WITHIN, stop)? {
            Answer::Linked => {}
            other => return Err(agent.unexpected(other)),
        }
    }
    Ok(())
}

/// Brings every host to its part of a setting.
fn set_hosts(crew: &mut Crew, setting: &LabelledSetting, stop: &Stop) -> Result<(), Error> {
    for agent in crew.agents() {
        let Some(setting) = setting.by_role.get(&agent.spec.role) else { continue };
        match agent.ask(&Request::Set { setting: setting.clone() }, stop)? {
            Answer::Set => {}
            other => return Err(agent.unexpected(other)),
        }
    }
    Ok(())
}

/// Why some host does not take a setting; `None`: all took it. A host that it could not be taken back from is
/// an error.
fn not_taken(
    crew: &mut Crew,
    by_role: &BTreeMap<Role, Setting>,
    stop: &Stop,
) -> Result<Option<String>, Error> {
    let setting = LabelledSetting { label: String::new(), by_role: by_role.clone() };
    match set_hosts(crew, &setting, stop) {
        Ok(()) => Ok(None),
        Err(Error::Host { host, message, kind: FailureKind::Failed | FailureKind::RolledBack }) => {
            Ok(Some(format!("host `{host}`: {message}")))
        }
        Err(other) => Err(other),
    }
}

/// Lets the traffic flow once and joins what the hosts saw.
fn observe(
    crew: &mut Crew,
    workload: &Workload,
    method: &Method,
    stop: &Stop,
    tell: &mut dyn FnMut(News) -> Result<(), Error>,
) -> Result<Observation, Error> {
    let parts = prepare(crew, workload, stop)?;
    let clocks = crew.clocks(stop)?;
    let slowest = clocks.iter().map(|clock| clock.round_trip).max().unwrap_or_default();
    let at = latput_load::now() + START_AHEAD + slowest;
    let interval = crew.interval();
    for (agent, clock) in crew.agents().iter_mut().zip(&clocks) {
        let (warmup, duration) = (method.warmup, method.duration);
        agent.send(&Request::Go { at: clock.there(at), warmup, duration, interval })?;
    }
    let names = crew.agents().iter().map(|agent| agent.spec.name.clone()).collect();
    let mut joiner = Joiner::new(names, &workload.traffic);
    let mut heard = |host, line| {
        for interval in joiner.enter(host, line) {
            let _only_results_can_fail = tell(News::Interval(interval));
        }
    };
    let within = (method.warmup + method.duration).as_duration() + TRIAL_SLACK;
    let mut finished = crew.finished(within, stop, &mut heard)?;
    for part in &mut finished {
        for left in std::mem::take(&mut part.left) {
            tell(News::Remark(format!("latput: {}: {left}", part.host.host)))?;
        }
    }
    let boot_ids: Vec<String> = crew.opened().map(|opened| opened.boot_id.clone()).collect();
    let joined = Joined { workload, method, parts, clocks, boot_ids };
    joined.observation(finished)
}

/// Opens the ports, the connections and the probe. Returns the hosts that send, by their place in the
/// testbed and in the order of the far end's ports, each with its part.
fn prepare(
    crew: &mut Crew,
    workload: &Workload,
    stop: &Stop,
) -> Result<Vec<(usize, Workload)>, Error> {
    let (senders, prober) = senders(crew.agents(), &workload.traffic);
    let parts = share::parts(workload, senders.len());
    let parts: Vec<(usize, Workload)> = senders.into_iter().zip(parts).collect();
    let mut expected = Vec::new();
    for (_, workload) in parts.iter().cloned() {
        let key = Key::generate().map_err(|error| Error::Traffic {
            workload: workload.name.clone(),
            problem: chain(&error),
        })?;
        expected.push(Part { workload, key });
    }
    let probe = workload.probe;
    let sut = crew.sut();
    let peer = sut.spec.address;
    let ports = match sut.ask(&Request::Receive { parts: expected.clone() }, stop)? {
        Answer::Listening { ports } if ports.len() == expected.len() => ports,
        other => return Err(sut.unexpected(other)),
    };
    let agents = crew.agents();
    for ((&(idx, _), Part { mut workload, key }), port) in parts.iter().zip(expected).zip(ports) {
        workload.probe = probe.filter(|_| idx == prober);
        agents[idx].send(&Request::Send { workload, key, peer, port })?;
    }
    let senders: Vec<usize> = parts.iter().map(|(idx, _)| *idx).collect();
    let probe_alone = probe.filter(|_| !senders.contains(&prober));
    if let Some(probe) = probe_alone {
        agents[prober].send(&Request::Probe { probe, peer })?;
    }
    for idx in senders.into_iter().chain(probe_alone.map(|_| prober)) {
        match agents[idx].receive(ANSWER_WITHIN, stop)? {
            Answer::Connected | Answer::Probing => {}
            other => return Err(agents[idx].unexpected(other)),
        }
    }
    Ok(parts)
}

/// Who makes the traffic and who sends the probe, by place in the testbed: the generators, and the
/// observer if there is one, else the first generator. Echo alone is the observer's as well.
fn senders(agents: &[Agent], traffic: &Traffic) -> (Vec<usize>, usize) {
    let of_role = |role| {
        let agents = agents.iter().enumerate().filter(move |(_, agent)| agent.spec.role == role);
        agents.map(|(idx, _)| idx).collect::<Vec<usize>>()
    };
    let (generators, observer) = (of_role(Role::Generator), of_role(Role::Observer));
    let prober = observer.first().or(generators.first());
    let prober = *prober.expect("a testbed has at least one generator");
    match traffic {
        Traffic::Ping { .. } => (vec![prober], prober),
        _ => (generators, prober),
    }
}

/// What is known of a trial beside what the hosts bring home.
struct Joined<'a> {
    workload: &'a Workload,
    method: &'a Method,
    /// The hosts that send, by their place in the testbed, each with its part.
    parts: Vec<(usize, Workload)>,
    clocks: Vec<ClockOffset>,
    boot_ids: Vec<String>,
}

impl Joined<'_> {
    /// Joins what the hosts saw, and checks it.
    fn observation(&self, mut finished: Vec<Finished>) -> Result<Observation, Error> {
        let start = |(part, clock): (&Finished, &ClockOffset)| Start {
            host: part.host.host.clone(),
            clock: *clock,
            late: part.late,
        };
        let starts: Vec<Start> = finished.iter().zip(&self.clocks).map(start).collect();
        let cpus: Vec<Nanos> = finished.iter().map(traffic_cpu).collect();
        let (flows, mut probe, mut checks) = self.flows(&mut finished)?;
        let traffic = combine::flows(flows);
        let drift: Vec<String> = finished
            .iter()
            .flat_map(|part| {
                part.drift.iter().map(|change| format!("{}: {change}", part.host.host))
            })
            .collect();
        for part in &mut finished {
            if let Some(outcome) = part.probe.take() {
                let (alone, on_schedule) = combine::probe(outcome);
                probe = Some(alone);
                checks.push(on_schedule);
            }
        }
        let hosts: Vec<HostObservation> = finished.into_iter().map(|part| part.host).collect();
        let parts = self.boot_ids.iter().zip(&cpus);
        let parts: Vec<HostPart<'_>> =
            parts.map(|(boot_id, &traffic_cpu)| HostPart { boot_id, traffic_cpu }).collect();
        checks.extend(checks::of_trial(&self.workload.traffic, &traffic, &hosts, &parts));
        checks.extend(combine::started_together(&starts, self.method.duration));
        checks.push(Check {
            name: "knob-drift".to_owned(),
            passed: drift.is_empty(),
            detail: if drift.is_empty() {
                "no knob changed during the trial".to_owned()
            } else {
                drift.join("; ")
            },
        });
        Ok(Observation { traffic, probe, hosts, checks, ..Observation::default() })
    }

    /// Each generator's flow with the far end's part of it, and what was checked of each.
    #[expect(clippy::type_complexity, reason = "the three things that joining two ends gives")]
    fn flows(
        &self,
        finished: &mut [Finished],
    ) -> Result<(Vec<TrafficObservation>, Option<ProbeObservation>, Vec<Check>), Error> {
        let missing = |end: &str| Error::Traffic {
            workload: self.workload.name.clone(),
            problem: format!("the {end}'s figures are missing"),
        };
        let receivers: Vec<ReceiverOutcome> =
            finished.iter_mut().flat_map(|part| part.receivers.drain(..)).collect();
        if receivers.len() != self.parts.len() {
            return Err(missing("receiver"));
        }
        let (mut flows, mut probe, mut checks) = (Vec::new(), None, Vec::new());
        for ((idx, workload), receiver) in self.parts.iter().zip(&receivers) {
            let part = &mut finished[*idx];
            let sender = part.sender.take().ok_or_else(|| missing("sender"))?;
            let (flow, beside, of_flow) = latput_load::combine(workload, &sender, receiver);
            flows.push(flow);
            probe = probe.or(beside);
            checks.push((part.host.host.clone(), of_flow));
        }
        Ok((flows, probe, combine::checks(checks)))
    }
}

/// CPU time of a host's own traffic threads.
fn traffic_cpu(part: &Finished) -> Nanos {
    let receivers = part.receivers.iter().map(|receiver| receiver.cpu);
    let sender = part.sender.iter().map(|sender| sender.cpu);
    receivers.chain(sender).fold(Nanos::ZERO, Nanos::saturating_add)
}
