//! Trials on real hosts: the agents set the knobs, let the traffic flow and tell what they saw.

use std::time::Duration;

use latput_load::{Key, Stop};
use latput_trial::observation::{HostObservation, Role};
use latput_trial::plan::Method;
use latput_trial::results::{HostFacts, LabelledSetting};
use latput_trial::{Check, Observation, Workload};
use latput_units::Nanos;

use crate::checks;
use crate::controller::Crew;
use crate::error::Error;
use crate::host::chain;
use crate::protocol::{Answer, Finished, Request};
use crate::runner::{Done, Trial, TrialRunner, unix_ms};

/// Beyond warm-up and window an answer may take this long: drains, joins, a slow control line.
const TRIAL_SLACK: Duration = Duration::from_secs(15);

/// Ends that share this kernel are told an instant to start at, far enough ahead for both to get it.
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
        self.opened().flat_map(|opened| of_host(&opened.facts.host, &opened.notes)).collect()
    }

    fn is_simulated(&self) -> bool {
        false
    }

    fn trials(
        &mut self,
        todo: Vec<Trial>,
        method: &Method,
        stop: &Stop,
        done: &mut dyn FnMut(Done) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let boot_ids: Vec<String> = self.opened().map(|opened| opened.boot_id.clone()).collect();
        for trial in todo {
            let started_unix_ms = unix_ms();
            set_hosts(self, &trial.set, stop)?;
            let finished = traffic(self, &trial.load, method, stop)?;
            let observation = observation(&trial.load, finished, &boot_ids)?;
            done(Done { trial, started_unix_ms, observation })?;
        }
        Ok(())
    }

    fn close(self: Box<Self>, stop: &Stop) -> Result<(), Error> {
        Self::close(*self, stop)
    }

    fn abandon(self: Box<Self>) -> Result<(), Error> {
        Self::abandon(*self)
    }
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

/// Lets the traffic flow once; both hosts start on one word and keep their own windows.
fn traffic(
    crew: &mut Crew,
    workload: &Workload,
    method: &Method,
    stop: &Stop,
) -> Result<Vec<Finished>, Error> {
    let key = Key::generate().map_err(|error| Error::Traffic {
        workload: workload.name.clone(),
        problem: chain(&error),
    })?;
    let receive = Request::Receive { workload: workload.clone(), key: key.clone() };
    let sut = crew.of_role(Role::Sut);
    let peer = sut.spec.address;
    let port = match sut.ask(&receive, stop)? {
        Answer::Listening { port } => port,
        other => return Err(sut.unexpected(other)),
    };
    let generator = crew.of_role(Role::Generator);
    let send = Request::Send { workload: workload.clone(), key, peer, port };
    match generator.ask(&send, stop)? {
        Answer::Connected => {}
        other => return Err(generator.unexpected(other)),
    }
    let at = crew.shares_this_kernel().then(|| latput_load::now() + START_AHEAD);
    let go = Request::Go { at, warmup: method.warmup, duration: method.duration };
    for agent in crew.agents() {
        agent.send(&go)?;
    }
    let within = (method.warmup + method.duration).as_duration() + TRIAL_SLACK;
    crew.agents()
        .iter_mut()
        .map(|agent| match agent.receive(within, stop)? {
            Answer::Finished(finished) => Ok(*finished),
            other => Err(agent.unexpected(other)),
        })
        .collect()
}

/// Joins what the hosts saw, and checks it.
fn observation(
    workload: &Workload,
    finished: Vec<Finished>,
    boot_ids: &[String],
) -> Result<Observation, Error> {
    let missing = |end: &str| Error::Traffic {
        workload: workload.name.clone(),
        problem: format!("the {end}'s figures are missing"),
    };
    let mut sender = None;
    let mut receiver = None;
    let mut drift = Vec::new();
    let mut hosts: Vec<HostObservation> = Vec::new();
    for mut part in finished {
        sender = sender.or(part.sender.take());
        receiver = receiver.or(part.receiver.take());
        drift.extend(part.drift.iter().map(|change| format!("{}: {change}", part.host.host)));
        hosts.push(part.host);
    }
    let sender = sender.ok_or_else(|| missing("sender"))?;
    let receiver = receiver.ok_or_else(|| missing("receiver"))?;
    let (traffic, probe, mut checks) = latput_load::combine(&sender, &receiver);
    checks.extend(checks::of_trial(&workload.traffic, &traffic, &hosts, boot_ids));
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
