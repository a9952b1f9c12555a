//! Testbeds: their hosts and how to reach them, the lab that latput makes itself, and the
//! simulator.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use latput_controller::agent_pool::AgentPool;
use latput_controller::discover::DiscoveredHosts;
use latput_controller::shared_cpus;
use latput_controller::third_party::{self, ThirdParty};
use latput_controller::vm::GuestRunner;
use latput_linux::{lab, process};
use latput_load::Stop;
use latput_peers::Peer;
use latput_protocol::control::{Answer, LEASE, LinkReset, Request};
use latput_reach::broker::message::LaunchCommand;
use latput_reach::held_lab::{self, LabGuard};
use latput_reach::host_spec::{HostSpec, own_program, own_way};
use latput_reach::testbed_file;
use latput_runner::Error;
use latput_runner::trials::TrialRunner;
use latput_trial::Plan;
use latput_trial::nic::Nic;
use latput_trial::observation::Role;
use latput_trial::plan::OnUnsupported;
use latput_units::{IntoSet, Nanos};
use latput_vm::GuestSpec;

use crate::simulator::{SimulatedTrials, Simulator};

/// Name of the testbed of this host's loopback.
const LOOPBACK: &str = "loopback";

/// A testbed: runs trials.
#[derive(Debug)]
pub struct Testbed {
    /// Name in results.
    pub name: String,
    /// The kind, with its hosts or model.
    pub kind: TestbedKind,
    /// Remarks for every result of this testbed.
    pub notes: Vec<String>,
    /// Identity of the network namespace of each of its hosts, where it was asked for.
    pub namespaces: Vec<String>,
    /// The lab, removed when the testbed is dropped.
    lab: Option<LabGuard>,
}

/// The kind of a testbed.
#[derive(Debug)]
pub enum TestbedKind {
    /// Agents on hosts: one system under test, at least one generator, at most one observer.
    Hosts(Vec<HostSpec>),
    /// The packet simulator.
    Simulator(Simulator),
    /// Agents in a guest, which exists during the trials.
    Guest(GuestSpec),
    /// This host, and a third-party program at the far end.
    ThirdParty(Peer, SocketAddr),
}

impl Testbed {
    /// Prepares the trials of a plan; changes nothing yet.
    pub(crate) fn open(
        &self,
        plan: &Plan,
        interval: Option<Nanos>,
        stop: &Stop,
    ) -> Result<Box<dyn TrialRunner>, Error> {
        let is_alone = matches!(&self.kind, TestbedKind::Hosts(hosts) if hosts.len() == 1);
        if plan.live().is_some() != is_alone {
            return Err(Error::NoLiveTraffic);
        }
        match &self.kind {
            TestbedKind::Hosts(hosts) => {
                let hosts: Vec<HostSpec> = hosts.iter().map(|host| host.with_plan(plan)).collect();
                let roles = collect_changed_roles(plan);
                refuse_shared_interface(&hosts, &roles)?;
                let pool = AgentPool::start(&hosts, &roles, stop)?;
                Ok(Box::new(pool.with_progress_interval(interval)))
            }
            TestbedKind::Guest(_) if plan.programs().next().is_some() => {
                let problem = "a guest has no program but latput: run a `command` workload in the lab or on \
                               hosts";
                Err(Error::Unsupported { problem: problem.to_owned() })
            }
            TestbedKind::Guest(spec) => {
                let roles = collect_changed_roles(plan);
                Ok(Box::new(GuestRunner::start(*spec, &roles, interval, stop)?))
            }
            TestbedKind::Simulator(simulator) => {
                Ok(Box::new(SimulatedTrials::new(simulator.clone())))
            }
            TestbedKind::ThirdParty(peer, address) => {
                Ok(Box::new(ThirdParty::start(peer, *address, plan, stop)?))
            }
        }
    }

    /// Looks at the interface of the system under test, and the knobs that can be set of it. `None` unless the hosts
    /// are the user's own.
    pub fn survey_nic(&self, stop: &Stop) -> Result<Option<Nic>, Error> {
        let TestbedKind::Hosts(hosts) = &self.kind else { return Ok(None) };
        if self.lab.is_some() || self.name == LOOPBACK {
            return Ok(None);
        }
        let sut: Vec<HostSpec> =
            hosts.iter().filter(|host| host.role == Role::Sut).cloned().collect();
        let mut pool = AgentPool::start(&sut, &BTreeSet::new(), stop)?;
        let agent = pool.sut_agent();
        let nic = match agent.send_request(&Request::Survey, stop)? {
            Answer::Surveyed(nic) => *nic,
            other => return Err(agent.unexpected_answer(other)),
        };
        pool.close(stop, &mut |_| {})?;
        Ok(Some(nic))
    }

    /// The simulator of `system`, a profile's name or file. A plan that it cannot run is an error.
    pub fn from_system(system: &str, plan: &Plan) -> Result<Self, Error> {
        Self::from_simulator(Simulator::for_system(system)?, plan)
    }

    /// This simulator. A plan that it cannot run is an error.
    pub fn from_simulator(simulator: Simulator, plan: &Plan) -> Result<Self, Error> {
        // If the plan skips unsupported parts, they are found when it runs.
        if plan.method.on_unsupported == OnUnsupported::Refuse {
            simulator.check_plan(plan)?;
        }
        Ok(Self {
            name: simulator.name(),
            kind: TestbedKind::Simulator(simulator),
            notes: Vec::new(),
            namespaces: Vec::new(),
            lab: None,
        })
    }

    /// A QEMU guest with two network cards; it boots when the trials begin.
    pub fn from_guest(spec: GuestSpec) -> Self {
        Self {
            name: format!("vm:{spec}"),
            kind: TestbedKind::Guest(spec),
            notes: Vec::new(),
            namespaces: Vec::new(),
            lab: None,
        }
    }

    /// A third-party program at the far end, as parsed by `latput_peers::Peer::parse`. A plan that
    /// it cannot run is an error.
    pub fn third_party(peer: Peer, plan: &Plan) -> Result<Self, Error> {
        third_party::check_plan(&peer, plan)?;
        let address = peer.resolve()?;
        Ok(Self {
            name: peer.to_string(),
            kind: TestbedKind::ThirdParty(peer, address),
            notes: Vec::new(),
            namespaces: Vec::new(),
            lab: None,
        })
    }

    /// How its hosts are reached; empty where it has none, or makes them itself.
    pub fn launch_commands(&self) -> Vec<LaunchCommand> {
        match &self.kind {
            TestbedKind::Hosts(hosts) => hosts.iter().map(HostSpec::launch_command).collect(),
            TestbedKind::ThirdParty(..) => vec![own_way()],
            TestbedKind::Simulator(_) | TestbedKind::Guest(_) => Vec::new(),
        }
    }

    /// Whether this process has the privileges to make a lab.
    pub fn can_create_lab() -> bool {
        held_lab::check_permission().is_ok()
    }

    /// The lab: two namespaces and a veth pair, removed when the value is dropped.
    pub fn create_lab() -> Result<Self, Error> {
        let (lab, places) = LabGuard::build()?;
        let notes =
            shared_cpus::note_shared_cpus([&places[0].cpus, &places[1].cpus]).into_iter().collect();
        let roles = [Role::Generator, Role::Sut];
        let hosts =
            places.iter().zip(roles).map(|(place, role)| place.to_host_spec(role)).collect();
        Ok(Self {
            name: "lab".to_owned(),
            kind: TestbedKind::Hosts(hosts),
            notes,
            namespaces: Vec::new(),
            lab: Some(lab),
        })
    }

    /// Both ends on this host's loopback, each on its own CPUs if there are two. It needs no root
    /// and sets nothing.
    pub fn create_loopback() -> Self {
        let program = own_program();
        let [generator, sut] = lab::split(&process::allowed_cpus().unwrap_or_default());
        let notes = shared_cpus::note_shared_cpus([&generator, &sut]).into_iter().collect();
        let host = |name: &str, role, cpus| HostSpec {
            name: name.to_owned(),
            role,
            via: Vec::new(),
            program: program.clone(),
            interface: "lo".to_owned(),
            address: IpAddr::from([127, 0, 0, 1]),
            cpus: Some(cpus),
            binds_napi_threads: false,
            link_reset: LinkReset::Refused,
            is_named_twice: false,
            lease: LEASE,
            may_be_brought: false,
        };
        let hosts =
            vec![host("generator", Role::Generator, generator), host("sut", Role::Sut, sut)];
        Self {
            name: LOOPBACK.to_owned(),
            kind: TestbedKind::Hosts(hosts),
            notes,
            namespaces: Vec::new(),
            lab: None,
        }
    }

    /// Two hosts, with the interfaces that were found between them.
    pub fn from_discovered(found: &DiscoveredHosts) -> Self {
        Self {
            name: found.name.clone(),
            kind: TestbedKind::Hosts(found.hosts.to_vec()),
            notes: found.said.iter().chain(&found.warnings).cloned().collect(),
            namespaces: found.namespaces.to_vec(),
            lab: None,
        }
    }

    /// One host with live traffic.
    pub fn from_single_host(name: &str, host: HostSpec) -> Self {
        let kind = TestbedKind::Hosts(vec![host]);
        Self { name: name.to_owned(), kind, notes: Vec::new(), namespaces: Vec::new(), lab: None }
    }

    /// The hosts of a testbed file.
    pub fn from_file(path: &Path) -> Result<Self, Error> {
        Ok(Self {
            name: path.display().to_string(),
            kind: TestbedKind::Hosts(testbed_file::read_hosts(path)?),
            notes: Vec::new(),
            namespaces: Vec::new(),
            lab: None,
        })
    }
}

/// The roles of hosts on which a plan sets knobs.
fn collect_changed_roles(plan: &Plan) -> BTreeSet<Role> {
    if plan.live().is_some_and(|live| live.observe) {
        return BTreeSet::new();
    }
    let settings = plan.settings();
    let parts = settings.iter().flat_map(|setting| &setting.by_role);
    parts.filter(|(_, set)| !set.is_empty()).map(|(role, _)| *role).into_set()
}

/// Refuses to set the knobs of two ends that are one interface, as those of `loopback` are.
fn refuse_shared_interface(hosts: &[HostSpec], roles: &BTreeSet<Role>) -> Result<(), Error> {
    let set: Vec<&HostSpec> = hosts.iter().filter(|host| roles.contains(&host.role)).collect();
    let is_same = |one: &HostSpec, other: &HostSpec| {
        (&one.via, &one.interface) == (&other.via, &other.interface)
    };
    let shared = set.iter().enumerate().find_map(|(idx, one)| {
        Some((one, set[idx + 1..].iter().find(|other| is_same(one, other))?))
    });
    let Some((one, other)) = shared else { return Ok(()) };
    let problem = format!(
        "hosts `{}` and `{}` are both {}, and the plan sets knobs of both. Set those of one, such as `sut.mtu`, or take two \
         interfaces: `lab` has its own",
        one.name, other.name, one.interface
    );
    Err(Error::Unsupported { problem })
}
