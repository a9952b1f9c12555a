//! Trials against a third-party program at the far end: this host is the generator, and has the only agent.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use latput_knobs::Knob;
use latput_linux::process;
use latput_linux::route::Route;
use latput_load::Stop;
use latput_peers::{Peer, PeerResult};
use latput_protocol::control::{Answer, PeerFinished, PeerTrial, Request};
use latput_protocol::text::format_error_chain;
use latput_reach::Error as ReachError;
use latput_reach::host_spec::HostSpec;
use latput_runner::Error;
use latput_runner::checks::{self, HostPart};
use latput_runner::trials::{PlanPart, Trial, TrialProgress, TrialRunner};
use latput_trial::observation::Role;
use latput_trial::plan::Method;
use latput_trial::results::HostFacts;
use latput_trial::{HostToday, Observation, Plan, Surroundings, Workload};
use latput_units::Nanos;

use crate::agent_pool::AgentPool;

/// Most time of the dialogue with the program beside the traffic. Each of its steps has a shorter deadline of its own.
const DIALOGUE_WITHIN: Duration = Duration::from_secs(120);
/// Name of this host in results.
const HERE: &str = "generator";

/// This host, and the program at the far end.
#[derive(Debug)]
pub struct ThirdParty {
    peer: Peer,
    address: SocketAddr,
    /// The agent of this host alone: it speaks to the program, without rights, and its keeper counts.
    pool: AgentPool,
    notes: Vec<String>,
}

impl ThirdParty {
    /// Refuses plans that the program does not support, and starts the agent of this host. No connection to the
    /// program is made yet.
    pub fn start(
        peer: &Peer,
        address: SocketAddr,
        plan: &Plan,
        stop: &Stop,
    ) -> Result<Self, Error> {
        check_plan(peer, plan)?;
        let broken = |error: latput_linux::Error| local_error(&format_error_chain(&error));
        let toward = Route::open().and_then(|route| route.toward(address.ip())).map_err(broken)?;
        let host = HostSpec {
            interface: toward.interface,
            address: address.ip(),
            // The whole host is counted, since the kernel may do network work on any CPU.
            cpus: Some(process::online_cpus().map_err(broken)?),
            ..HostSpec::for_this_host(HERE, Role::Generator)
        };
        let pool = AgentPool::start(&[host], &BTreeSet::new(), stop)?;
        let mut notes: Vec<String> =
            pool.opened_hosts().flat_map(|opened| opened.notes.clone()).collect();
        if toward.is_local {
            notes.push(format!("{peer} is on this host: the CPU figures of each end hold both"));
        }
        Ok(Self { peer: peer.clone(), address, pool, notes })
    }

    fn run_peer_trial(
        &mut self,
        workload: &Workload,
        method: &Method,
        stop: &Stop,
    ) -> Result<Observation, Error> {
        let Method { warmup, duration, .. } = *method;
        let (peer, workload, address) = (self.peer.clone(), workload.clone(), self.address);
        let trial = PeerTrial { peer, address, workload, warmup, duration };
        let agent = self.pool.agents().first_mut().expect("this host has an agent");
        let traffic = (warmup + duration).as_duration();
        let request = Request::Peer(Box::new(trial.clone()));
        match agent.send_request_within(&request, DIALOGUE_WITHIN + 2 * traffic, stop)? {
            Answer::PeerFinished(finished) => {
                Ok(build_observation(&trial.workload, *finished, &agent.opened().boot_id))
            }
            Answer::PeerFailed(failure) => Err(Error::PeerTrial {
                message: failure.message,
                outcome: failure.outcome,
                is_transient: failure.is_transient,
            }),
            other => Err(agent.unexpected_answer(other)),
        }
    }
}

/// Refuses a plan with factors, or with traffic that the program does not support.
pub fn check_plan(peer: &Peer, plan: &Plan) -> Result<(), Error> {
    if plan.factors.iter().any(|factor| !factor.levels.is_empty()) {
        let problem = format!("{peer}: {peer} cannot be set: leave out the plan's factors");
        return Err(Error::Unsupported { problem });
    }
    plan.workloads.iter().try_for_each(|workload| Ok(peer.check_workload(workload)?))
}

fn build_observation(workload: &Workload, finished: PeerFinished, boot_id: &str) -> Observation {
    let PeerFinished { result, host, drift } = finished;
    let PeerResult { traffic, reported_metrics, programs, mut checks } = result;
    let hosts = vec![host];
    let part = HostPart { boot_id, traffic_cpu: traffic.sender_cpu };
    checks.extend(checks::of_trial(&workload.traffic, &traffic, &hosts, &[part]));
    checks.push(checks::knob_drift(&drift));
    Observation { traffic, hosts, checks, reported_metrics, programs, ..Observation::default() }
}

fn local_error(problem: &str) -> Error {
    let (host, problem) = (HERE.to_owned(), problem.to_owned());
    ReachError::Agent { host, problem, permission: false }.into()
}

impl TrialRunner for ThirdParty {
    fn host_facts(&self) -> Vec<HostFacts> {
        self.pool.host_facts()
    }

    fn machine_id(&self) -> String {
        self.pool.machine_id()
    }

    fn notes(&self) -> Vec<String> {
        self.notes.clone()
    }

    /// Its plans set nothing.
    fn read_knob_values(&mut self, _: &BTreeSet<Knob>, _: &Stop) -> Result<Vec<HostToday>, Error> {
        Ok(Vec::new())
    }

    fn watch_surroundings(&mut self, span: Nanos, stop: &Stop) -> Result<Vec<Surroundings>, Error> {
        self.pool.watch_surroundings(span, stop)
    }

    fn measure_trial(
        &mut self,
        trial: &Trial,
        method: &Method,
        stop: &Stop,
        _: &mut dyn TrialProgress,
    ) -> Result<Observation, Error> {
        if stop.is_raised() {
            return Err(Error::Interrupted);
        }
        self.run_peer_trial(&trial.load, method, stop)
    }

    /// Plans were checked when the testbed was made.
    fn explain_unsupported(
        &mut self,
        _: PlanPart<'_>,
        _: &Method,
        _: &Stop,
    ) -> Result<Option<String>, Error> {
        Ok(None)
    }

    fn close(self: Box<Self>, stop: &Stop, tell: &mut dyn FnMut(&str)) -> Result<(), Error> {
        self.pool.close(stop, tell)
    }

    fn abort_run(self: Box<Self>, cause: Error, stop: &Stop, tell: &mut dyn FnMut(&str)) -> Error {
        self.pool.abort_agents(cause, stop, tell)
    }
}
