//! Trials against a third-party program at the far end: this host is the generator, and no agent runs.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::panic::resume_unwind;
use std::thread;

use latput_knobs::Knob;
use latput_linux::process;
use latput_linux::route::Route;
use latput_load::{Stop, Window};
use latput_peers::{Peer, PeerResult, PeerSession};
use latput_trial::observation::{HostObservation, Role};
use latput_trial::plan::Method;
use latput_trial::results::HostFacts;
use latput_trial::{HostToday, Observation, Plan, Surroundings, Workload};
use latput_units::Nanos;

use crate::checks::{self, HostPart};
use crate::error::Error;
use crate::host::{HostSession, chain};
use crate::protocol::{Failure, LEASE, LinkReset, Open, Opened, SCHEMA};
use crate::runner::Wanted;
use crate::runner::{Trial, TrialEvent, TrialRunner, run_trial};

/// Time for the traffic's threads and the counters to get ready before the window.
const START_AHEAD: Nanos = Nanos::from_ms(5);
/// Name of this host in results.
const HERE: &str = "generator";

/// This host, and the program at the far end.
#[derive(Debug)]
pub(crate) struct ThirdParty {
    peer: Peer,
    address: SocketAddr,
    host: HostSession,
    opened: Opened,
    notes: Vec<String>,
}

impl ThirdParty {
    /// Refuses plans that the program does not support, and reads this host. No connection to the
    /// program is made yet.
    pub(crate) fn start(peer: &Peer, plan: &Plan) -> Result<Self, Error> {
        check(peer, plan)?;
        let address = peer.resolve()?;
        let broken = |error: latput_linux::Error| here(&chain(&error));
        let toward = Route::open().and_then(|route| route.toward(address.ip())).map_err(broken)?;
        let allowed = process::allowed_cpus().map_err(broken)?;
        let open = Open {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            host: HERE.to_owned(),
            role: Role::Generator,
            interface: toward.interface,
            address: address.ip(),
            // The whole host is counted, since the kernel may do network work on any CPU.
            cpus: Some(process::online_cpus().map_err(broken)?),
            binds_napi_threads: false,
            will_set: false,
            link_reset: LinkReset::Refused,
            lease: LEASE,
        };
        let (host, opened) =
            HostSession::open(open).map_err(|failure: Failure| here(&failure.message))?;
        // The traffic stays on the CPUs that this process was given, by `taskset` for example.
        process::bind_thread(&allowed).map_err(broken)?;
        let mut notes = opened.notes.clone();
        if toward.is_local {
            notes.push(format!(
                "{peer} is on this host: the CPU time of both ends is in the figures of each"
            ));
        }
        Ok(Self { peer: peer.clone(), address, host, opened, notes })
    }

    fn trial(
        &mut self,
        workload: &Workload,
        method: &Method,
        stop: &Stop,
    ) -> Result<Observation, Error> {
        let session =
            self.peer.open(self.address, workload, method.warmup, method.duration, stop)?;
        let ahead = session.warmup().max(START_AHEAD);
        let window =
            Window::starting_in(ahead, method.duration).map_err(latput_peers::Error::from)?;
        let (outcome, (host, drift)) = run(session, window, &mut self.host, stop)?;
        Ok(observation(workload, outcome, host, &drift, &self.opened.boot_id))
    }
}

/// Refuses a plan with factors, or with traffic that the program does not support.
pub(crate) fn check(peer: &Peer, plan: &Plan) -> Result<(), Error> {
    if plan.factors.iter().any(|factor| !factor.levels.is_empty()) {
        let problem = format!("{peer} cannot be set: leave out the plan's factors");
        return Err(Error::TestbedFile { file: peer.to_string(), problem });
    }
    plan.workloads.iter().try_for_each(|workload| Ok(peer.check(workload)?))
}

/// Runs the traffic on another thread, and reads the counters on this one.
fn run(
    session: PeerSession,
    window: Window,
    host: &mut HostSession,
    stop: &Stop,
) -> Result<(PeerResult, (HostObservation, Vec<String>)), Error> {
    let halt = Stop::new();
    thread::scope(|scope| {
        let traffic = scope.spawn(|| {
            let outcome = session.run(window, stop);
            if outcome.is_err() {
                halt.raise();
            }
            outcome
        });
        let observed = host.observe(window, &halt, None, &mut |_| {});
        let outcome = traffic.join().unwrap_or_else(|panic| resume_unwind(panic));
        match outcome {
            Err(latput_peers::Error::Stopped) => Err(Error::Interrupted),
            Err(error) => Err(error.into()),
            Ok(outcome) => Ok((outcome, observed.map_err(|failure| here(&failure.message))?)),
        }
    })
}

fn observation(
    workload: &Workload,
    outcome: PeerResult,
    host: HostObservation,
    drift: &[String],
    boot_id: &str,
) -> Observation {
    let PeerResult { traffic, reported_metrics, programs, mut checks } = outcome;
    let hosts = vec![host];
    let part = HostPart { boot_id, traffic_cpu: traffic.sender_cpu };
    checks.extend(checks::of_trial(&workload.traffic, &traffic, &hosts, &[part]));
    checks.push(checks::knob_drift(drift));
    Observation { traffic, hosts, checks, reported_metrics, programs, ..Observation::default() }
}

fn here(problem: &str) -> Error {
    Error::Agent { host: HERE.to_owned(), problem: problem.to_owned() }
}

impl TrialRunner for ThirdParty {
    fn hosts(&self) -> Vec<HostFacts> {
        vec![self.opened.facts.clone()]
    }

    fn machine(&self) -> String {
        format!("{HERE} {}", self.opened.boot_id)
    }

    fn notes(&self) -> Vec<String> {
        self.notes.clone()
    }

    /// Its plans set nothing.
    fn today(&mut self, _: &BTreeSet<Knob>, _: &Stop) -> Result<Vec<HostToday>, Error> {
        Ok(Vec::new())
    }

    fn look(&mut self, span: Nanos, stop: &Stop) -> Result<Vec<Surroundings>, Error> {
        match self.host.look(span, stop) {
            Ok(seen) => Ok(vec![seen]),
            Err(_) if stop.is_raised() => Err(Error::Interrupted),
            Err(failure) => Err(here(&failure.message)),
        }
    }

    fn trials(
        &mut self,
        todo: Vec<Trial>,
        method: &Method,
        stop: &Stop,
        tell: &mut dyn FnMut(TrialEvent) -> Result<(), Error>,
    ) -> Result<(), Error> {
        for trial in todo {
            if stop.is_raised() {
                return Err(Error::Interrupted);
            }
            run_trial(trial, tell, &mut |trial, _| self.trial(&trial.load, method, stop))?;
        }
        Ok(())
    }

    /// Plans were checked when the testbed was made.
    fn unsupported(
        &mut self,
        _: Wanted<'_>,
        _: &Method,
        _: &Stop,
    ) -> Result<Option<String>, Error> {
        Ok(None)
    }

    fn close(self: Box<Self>, _: &Stop, _: &mut dyn FnMut(&str)) -> Result<(), Error> {
        Ok(())
    }

    fn abandon(self: Box<Self>, cause: Error, _: &Stop, _: &mut dyn FnMut(&str)) -> Error {
        cause
    }
}
