//! Testbeds: their hosts and how to reach them, the lab that latput makes itself, and the
//! simulator.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use latput_linux::files::{self, FileError};
use latput_linux::lab;
use latput_linux::process;
use latput_load::Stop;
use latput_peers::Peer;
use latput_trial::Plan;
use latput_trial::nic::Nic;
use latput_trial::observation::Role;
use latput_trial::plan::OnUnsupported;
use latput_units::file_words::{line_of, problem_of};
use latput_units::{CpuSet, IntoSet, Nanos};
use latput_vm::GuestSpec;
use serde::Deserialize;

use crate::broker::client::{BrokerLine, get_broker};
use crate::broker::message::LaunchCommand;
use crate::controller::AgentPool;
use crate::discover::DiscoveredHosts;
use crate::error::Error;
use crate::held_lab::{self, OwnLab};
pub use crate::held_lab::{LAB_STATE, LabLock};
pub use crate::host_spec::HostSpec;
use crate::host_spec::{own_program, own_way};
use crate::protocol::{Answer, LEASE, LinkReset, Request};
use crate::runner::TrialRunner;
use crate::shared_cpus;
use crate::simulator::Simulator;
use crate::target::{FORMS, Target};
use crate::third_party::{self, ThirdParty};
use crate::vm::GuestRunner;

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
    lab: Option<HeldLab>,
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
                let roles = roles_set(plan);
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
                let roles = roles_set(plan);
                Ok(Box::new(GuestRunner::start(*spec, &roles, interval, stop)?))
            }
            TestbedKind::Simulator(simulator) => Ok(Box::new(simulator.clone())),
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
    pub fn may_make_lab() -> bool {
        held_lab::check_permission().is_ok()
    }

    /// The lab: two namespaces and a veth pair, removed when the value is dropped.
    pub fn create_lab() -> Result<Self, Error> {
        let (lab, places) = if let Some(broker) = get_broker() {
            (HeldLab::Brokers(BrokersLab(broker)), broker.make_lab()?)
        } else {
            let lab = OwnLab::build_lab(std::process::id())?;
            let places = lab.list_hosts();
            (HeldLab::Own(Box::new(lab)), places)
        };
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
        let file = path.display().to_string();
        let read = files::read_text(path, files::TEXT_BYTES_MOST);
        let text = read.map_err(|FileError { problem, .. }| Error::TestbedFile {
            file: file.clone(),
            problem: if path.exists() {
                problem
            } else {
                format!(
                    "there is no testbed file and no interface of this name (`latput show` lists those of this host): \
                     name `lab`, `loopback`, `sim:SYSTEM`, a testbed file, or hosts ({FORMS})"
                )
            },
        })?;
        Self::parse(&file, &text)
    }

    pub(crate) fn parse(file: &str, text: &str) -> Result<Self, Error> {
        let error = |problem: String| Error::TestbedFile { file: file.to_owned(), problem };
        let parsed: TestbedFile = toml::from_str(text).map_err(|parsed| {
            let at = parsed.span().map(|span| span.start);
            let problem = problem_of(parsed.message(), text, at, &WANTED);
            error(format!("line {}: {problem}", line_of(text, at.unwrap_or(0))))
        })?;
        if parsed.schema != 1 {
            return Err(error(format!("schema must be 1, not {}", parsed.schema)));
        }
        let lease = match &parsed.lease {
            None => LEASE,
            Some(text) => text
                .parse()
                .ok()
                .filter(|lease| LEASES.contains(lease))
                .ok_or_else(|| error(format!("lease must be 1s to 10min, not `{text}`")))?,
        };
        let hosts: Vec<HostSpec> = parsed
            .host
            .into_iter()
            .map(|(name, host)| host.into_host_spec(name, lease))
            .collect::<Result<_, _>>()
            .map_err(&error)?;
        check_roles(&hosts).map_err(&error)?;
        if let Some(host) = hosts.iter().find(|h| h.cpus.as_ref().is_some_and(CpuSet::is_empty)) {
            return Err(error(format!("host `{}`: `cpus` names no CPU", host.name)));
        }
        Ok(Self {
            name: file.to_owned(),
            kind: TestbedKind::Hosts(hosts),
            notes: Vec::new(),
            namespaces: Vec::new(),
            lab: None,
        })
    }
}

/// Allowed leases.
const LEASES: RangeInclusive<Nanos> = Nanos::from_s(1)..=Nanos::from_s(600);

/// Most generators of a testbed: each is an agent with its own control line.
const MOST_GENERATORS: usize = 64;

/// Refuses a testbed with missing, duplicate or unreachable roles.
fn check_roles(hosts: &[HostSpec]) -> Result<(), String> {
    for (role, plural, allowed, needs) in [
        (Role::Sut, "systems under test", 1..=1, "exactly one host needs"),
        (Role::Generator, "generators", 1..=MOST_GENERATORS, "1 to 64 hosts need"),
        (Role::Observer, "observers", 0..=1, "at most one host may have"),
    ] {
        let count = hosts.iter().filter(|host| host.role == role).count();
        if !allowed.contains(&count) {
            return Err(format!("{count} {plural}: {needs} `role = \"{}\"`", role.name()));
        }
    }
    let sut = hosts.iter().find(|host| host.role == Role::Sut);
    let other_family =
        |host: &&HostSpec| sut.is_some_and(|sut| sut.address.is_ipv4() != host.address.is_ipv4());
    if let Some(host) = hosts.iter().find(other_family) {
        return Err(format!(
            "host `{}`: its address and the system under test's must both be IPv4 or both IPv6",
            host.name
        ));
    }
    Ok(())
}

/// A lab while its testbed lives.
#[derive(Debug)]
#[expect(dead_code, reason = "it is only held")]
enum HeldLab {
    Own(Box<OwnLab>),
    Brokers(BrokersLab),
}

/// The lab of the broker.
#[derive(Debug)]
struct BrokersLab(&'static BrokerLine);

impl Drop for BrokersLab {
    fn drop(&mut self) {
        self.0.remove_lab();
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TestbedFile {
    schema: u32,
    lease: Option<String>,
    #[serde(default)]
    host: BTreeMap<String, HostFile>,
}

/// Forms of the keys whose values are tables or words.
const WANTED: [(&str, &str); 3] = [
    ("host", "a table of tables: `[host.NAME]`, and below each lines such as `role = \"sut\"`"),
    ("role", "\"sut\", \"generator\" or \"observer\""),
    ("via", "a list of words such as `[\"ssh\", \"root@server\"]`"),
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HostFile {
    role: Role,
    target: Option<String>,
    bring: Option<PathBuf>,
    #[serde(default)]
    via: Vec<String>,
    latput: Option<String>,
    interface: String,
    address: String,
    cpus: Option<CpuSet>,
    allow_link_reset: Option<String>,
}

impl HostFile {
    fn into_host_spec(self, name: String, lease: Nanos) -> Result<HostSpec, String> {
        if self.allow_link_reset.as_ref().is_some_and(|named| *named != self.interface) {
            return Err(format!(
                "host `{name}`: `allow_link_reset` must repeat `interface`, which is \"{}\"",
                self.interface
            ));
        }
        let address =
            resolve_address(&self.address).map_err(|why| format!("host `{name}`: {why}"))?;
        let (reach, may_be_brought) =
            self.resolve_reach().map_err(|why| format!("host `{name}`: {why}"))?;
        Ok(HostSpec {
            interface: self.interface,
            address,
            cpus: self.cpus,
            is_named_twice: self.allow_link_reset.is_some(),
            lease,
            may_be_brought,
            ..HostSpec::from_launch_command(&name, self.role, reach)
        })
    }

    /// `via` and the latput there, and whether it may have to be taken along.
    fn resolve_reach(&self) -> Result<((Vec<String>, String), bool), String> {
        let own = own_program();
        let Some(target) = &self.target else {
            if self.bring.is_some() {
                return Err("`bring` goes with `target`".to_owned());
            }
            let program = self.latput.clone();
            let program = program
                .unwrap_or_else(|| if self.via.is_empty() { own } else { "latput".to_owned() });
            return Ok(((self.via.clone(), program), false));
        };
        if !self.via.is_empty() || self.latput.is_some() {
            return Err("`target` takes the place of `via` and `latput`".to_owned());
        }
        if !Target::is_told_by(target) {
            return Err(format!("target `{target}` is not ssh://, netns:// or exec:"));
        }
        let target = Target::parse(target).map_err(|error| error.to_string())?;
        if target.at.is_some() || target.cpus.is_some() {
            return Err("`target` must not repeat `interface`, `address` and `cpus`".to_owned());
        }
        Ok((target.via_command(&own, self.bring.as_deref()), target.is_elsewhere()))
    }
}

/// An IP address, or the first address of a host name.
fn resolve_address(address: &str) -> Result<IpAddr, String> {
    let found = latput_names::resolve(address).map_err(|error| {
        format!(
            "address `{address}` is not an IP address, and it does not resolve as a name: {error}"
        )
    })?;
    Ok(found[0])
}

/// The roles of hosts on which a plan sets knobs.
fn roles_set(plan: &Plan) -> BTreeSet<Role> {
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

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
        schema = 1
        [host.sut]
        role = "sut"
        via = ["ssh", "root@sut"]
        interface = "eth2"
        address = "192.0.2.10"
        cpus = "0-3"
        [host.load]
        role = "generator"
        interface = "eth1"
        address = "192.0.2.11"
    "#;

    #[test]
    fn wrong_values_are_told_in_file_words() {
        let whole = format!(
            "lease = \"30s\"\n{GOOD}\nlatput = \"latput\"\ntarget = \"ssh://b\"\nbring = \"l\"\nallow_link_reset = \"eth1\""
        );
        let whole: toml::Table = whole.parse().unwrap();
        let refused = latput_testkit::check_wrong_values(&whole, |text| {
            Testbed::parse("rack.toml", text).err().map(|error| error.to_string())
        });
        assert!(refused > 100, "{refused}");
        for text in ["no-such-key = 1", "schema = 1\n[host.a]\nno-such-key = 1"] {
            let problem = Testbed::parse("rack.toml", text).unwrap_err().to_string();
            for key in problem.split('`').skip(3).step_by(2) {
                assert!(
                    toml::to_string(&whole).unwrap().contains(key),
                    "`{key}` is not in the whole file"
                );
            }
        }
    }

    #[test]
    fn testbed_file_names_hosts_and_ways() {
        let testbed = Testbed::parse("rack.toml", GOOD).unwrap();
        let TestbedKind::Hosts(hosts) = &testbed.kind else { panic!("{testbed:?}") };
        let sut = &hosts[1];
        assert_eq!((sut.name.as_str(), sut.program.as_str()), ("sut", "latput"));
        assert_eq!(sut.via, ["ssh", "root@sut"]);
        assert_eq!(sut.cpus.as_ref().unwrap().len(), 4);
        assert_eq!(sut.lease, LEASE);
        assert_eq!(sut.to_command_line(&["restore"]), ["ssh", "root@sut", "latput", "restore"]);
        let lease = GOOD.replace("schema = 1", "schema = 1\nlease = \"30s\"");
        let testbed = Testbed::parse("rack.toml", &lease).unwrap();
        let TestbedKind::Hosts(hosts) = &testbed.kind else { panic!("{testbed:?}") };
        assert!(hosts.iter().all(|host| host.lease == Nanos::from_s(30)));
    }

    #[test]
    fn plan_and_testbed_allow_link_resets_separately() {
        let twice = GOOD.replace("eth2", "eth2\"\nallow_link_reset = \"eth2");
        let testbed = Testbed::parse("rack.toml", &twice).unwrap();
        let TestbedKind::Hosts(hosts) = &testbed.kind else { panic!("{testbed:?}") };
        let mut plan = Plan::parse("built in", latput_trial::plan::BUILT_IN).unwrap();
        let under =
            |plan: &Plan| [&hosts[0], &hosts[1]].map(|host| host.with_plan(plan).link_reset);
        assert_eq!(under(&plan), [LinkReset::Refused; 2]);
        plan.method.allow_link_reset = true;
        assert_eq!(under(&plan), [LinkReset::Allowed, LinkReset::AllowedOnControl]);
    }

    const OBSERVER: &str = r#"
        [host.eye]
        role = "observer"
        interface = "eth0"
        address = "192.0.2.12"
    "#;

    #[test]
    fn several_generators_and_an_observer_are_a_testbed() {
        let more = GOOD.replace("host.sut", "host.load2").replace("\"sut\"", "\"generator\"");
        let more = more.replace("schema = 1", "").replace("host.load]", "host.load3]");
        let testbed = Testbed::parse("rack.toml", &format!("{GOOD}{more}{OBSERVER}")).unwrap();
        let TestbedKind::Hosts(hosts) = &testbed.kind else { panic!("{testbed:?}") };
        let roles: Vec<&str> = hosts.iter().map(|host| host.role.name()).collect();
        assert_eq!(roles, ["observer", "generator", "generator", "generator", "sut"]);
    }

    #[test]
    fn examples_are_testbeds() {
        for (text, hosts) in [
            (include_str!("../../../examples/testbeds/rack.toml"), 2),
            (include_str!("../../../examples/testbeds/four-hosts.toml"), 4),
        ] {
            let testbed = Testbed::parse("example", text).unwrap();
            assert!(matches!(&testbed.kind, TestbedKind::Hosts(found) if found.len() == hosts));
        }
    }

    #[test]
    fn bad_testbed_is_refused_with_reason() {
        assert_parse_error(&GOOD.replace("schema = 1", "schema = 2"), "schema must be 1");
        assert_parse_error(&GOOD.replace("\"generator\"", "\"sut\""), "2 systems under test");
        assert_parse_error(&GOOD.replace("\"generator\"", "\"observer\""), "0 generators");
        assert_parse_error(
            &format!("{GOOD}{OBSERVER}{}", OBSERVER.replace(".eye", ".ear")),
            "2 observers",
        );
        assert_parse_error(&GOOD.replace("192.0.2.11", "2001:db8::1"), "must both be IPv4");
        assert_parse_error(&GOOD.replace("eth1\"", "eth1\"\ncolour = 1"), "colour");
        assert_parse_error(&GOOD.replace("192.0.2.10", "no where"), "does not resolve");
        assert_parse_error(&GOOD.replace("0-3", "3-0"), "list of CPUs");
        assert_parse_error(&GOOD.replace("0-3", "none"), "names no CPU");
        let twice = |name: &str| format!("eth2\"\nallow_link_reset = \"{name}");
        assert_parse_error(
            &GOOD.replace("eth2", &twice("eth1")),
            "must repeat `interface`, which is \"eth2\"",
        );
        assert_parse_error(
            &GOOD.replace("schema = 1", "schema = 1\nlease = \"500ms\""),
            "lease must be 1s to",
        );
        assert_parse_error(
            &GOOD.replace("schema = 1", "schema = 1\nlease = \"10\""),
            "lease must be 1s to",
        );
        assert_parse_error("", "schema");
    }

    #[track_caller]
    fn assert_parse_error(text: &str, expected: &str) {
        let problem = Testbed::parse("rack.toml", text).unwrap_err().to_string();
        assert!(problem.contains(expected) && problem.contains("rack.toml"), "{problem}");
    }
}
